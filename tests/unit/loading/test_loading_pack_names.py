"""Packs of one name, two pack files in a folder, and texts that YAML takes for numbers."""

from __future__ import annotations

import pytest

from toolcrib.core.errors import DocumentError
from toolcrib.executors import Executors
from toolcrib.executors.mock import MockExecutor
from toolcrib.loading.packs import Pack
from toolcrib.loading.sources import load, parse, parse_files

KINDS = Executors({"mock": MockExecutor})

GOOD = "name: good\ndescription: A good tool.\nmock: {result: 1}\n"
OTHER = "name: other\ndescription: A good tool.\nmock: {result: 1}\n"
PACK = "name: shop\nversion: 1.0.0\n"


def names(found):
    return [tool.name for tool in found.tools]


def test_the_second_of_two_packs_of_one_name_is_left_out_with_its_tools(folder):
    root = folder(
        {"a/pack.yaml": PACK, "a/x.yaml": GOOD, "b/pack.yaml": "# second\n" + PACK, "b/y.yaml": OTHER}
    )
    found = load([root], KINDS)
    (problem,) = found.problems
    assert (problem.code, problem.severity, problem.line) == ("duplicate_pack", "error", 2)
    assert problem.source == str(root / "b" / "pack.yaml")
    assert f"{root / 'a' / 'pack.yaml'}:1" in problem.message
    assert len(found.packs) == 1
    assert [(tool.name, tool.origin.pack) for tool in found.tools] == [("good", "shop")]
    assert found.refused["other"].code == "refused_pack"
    assert found.refused["other"].source == str(root / "b" / "pack.yaml")


@pytest.mark.parametrize("second", ["pack.yml", "pack.json"])
def test_a_second_pack_file_is_told_and_not_read(folder, second):
    root = folder({"pack.yaml": PACK, second: "{", "x.yaml": GOOD})
    for found in (load([root], KINDS), parse_files({"pack.yaml": PACK, second: "{", "x.yaml": GOOD}, KINDS)):
        (problem,) = found.problems
        assert (problem.code, problem.severity) == ("second_pack_file", "warning")
        assert "`pack.yaml` is used" in problem.message
        assert names(found) == ["good"]
    assert [problem.code for problem in load([root / second], KINDS).problems] == ["second_pack_file"]


def test_a_pack_keeps_its_texts_as_they_were_written():
    assert Pack.parse("pack.yaml", PACK + "author: 1.10\n", kinds=KINDS).author == "1.10"
    with pytest.raises(DocumentError, match=r'a version is three numbers.*got "1\.0"'):
        Pack.parse("pack.yaml", "name: shop\nversion: 1.0\n", kinds=KINDS)


def test_nested_texts_of_tools_and_scenarios_stay_as_they_were_written():
    text = (
        "name: x\nlabels: {a: 1.10, b: two}\ntags: [1.0]\nmock: {error: {code: oops, message: 4.040}}\n"
        "---\nscenario: one\ndescription: 2.10\ntags: [1.50]\nsteps: [{call: x, name: 7.0}]\n"
    )
    found = parse("x.yaml", text, KINDS)
    assert found.problems == ()
    (tool,), (scenario,) = found.tools, found.scenarios
    assert (tool.labels, tool.tags) == ({"a": "1.10", "b": "two"}, ("1.0",))
    assert tool.bindings["mock"] == {"error": {"code": "oops", "message": "4.040"}}
    assert (scenario.description, scenario.tags, scenario.steps[0].name) == ("2.10", ("1.50",), "7.0")


@pytest.mark.parametrize("labels", ["{a: true}", "{a: null}", "{a: []}"])
def test_what_is_no_number_stays_a_fault(labels):
    (problem,) = parse("x.yaml", f"name: x\nlabels: {labels}\nmock: {{result: 1}}\n", KINDS).problems
    assert (problem.code, problem.pointer) == ("wrong_type", "/labels/a")


def test_numbers_of_json_and_of_mappings_are_numbers_on_purpose():
    value = {"name": "x", "labels": {"a": 1}, "mock": {"result": 1}}
    assert [problem.pointer for problem in parse("memory", value, KINDS).problems] == ["/labels/a"]
    json = '{"name": "x", "labels": {"a": 1}, "mock": {"result": 1}}'
    assert [problem.pointer for problem in parse("x.json", json, KINDS).problems] == ["/labels/a"]
