"""Packs on disk and in memory: what their globs hold, which files are theirs, and what a broken one leaves."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from toolcrib.engine.runtime import loaded_runtime
from toolcrib.executors import Executors
from toolcrib.executors.mock import MockExecutor
from toolcrib.loading.sources import load, parse_files

KINDS = Executors({"mock": MockExecutor})

GOOD = "name: good\ndescription: A good tool.\nmock: {result: 1}\n"
PACK = "name: shop\nversion: 1.0.0\n"
SCENARIO = "scenario: play\nsteps: [{call: good}]\n"
REFERRING = "name: {name}\nmock: {{result_file: {file}}}\n"


def tool(name):
    return f"name: {name}\ndescription: A tool.\nmock: {{result: {name}}}\n"


def names(found):
    return [entry.name for entry in found.tools]


def codes(found):
    return [problem.code for problem in found.problems]


PACKED = {
    "shop/pack.yaml": PACK,
    "shop/tools/x.tool.yaml": REFERRING.format(name="a", file="../data/y.json"),
    "shop/data/y.json": "{}",
}


def test_the_files_of_a_pack_are_its_own(folder):
    found = load([folder(PACKED)], KINDS)
    assert (names(found), found.problems) == (["a"], ())
    assert found.tools[0].origin.pack == "shop"
    assert found.packs[0].origin.source.endswith("shop/pack.yaml")


@pytest.mark.parametrize("path", ["shop/tools/x.tool.yaml", "shop/tools"])
def test_a_part_of_a_pack_may_name_the_packs_files(folder, path, monkeypatch):
    root = folder(PACKED)
    found = load([root / path], KINDS)
    assert (names(found), found.problems) == (["a"], ())
    monkeypatch.chdir(root / "shop" / "tools")
    assert names(load(["x.tool.yaml"], KINDS)) == names(load(["."], KINDS)) == ["a"]


@pytest.mark.parametrize("file", ["../../secret.json", "../../../etc/passwd", "/etc/passwd", "../link.json"])
def test_a_path_may_not_leave_the_pack(folder, file):
    root = folder({**PACKED, "secret.json": "{}", "shop/tools/z.yaml": REFERRING.format(name="z", file=file)})
    (root / "shop" / "link.json").symlink_to(root / "secret.json")
    found = load([root / "shop"], KINDS)
    assert names(found) == ["a"]
    problem, link = (problem for problem in found.problems if problem.severity == "error")
    if problem.code == "link_leads_outside":
        problem, link = link, problem
    assert link.code == "link_leads_outside"
    assert (problem.code, problem.pointer) == ("file_unreadable", "/mock/result_file")
    assert "is outside" in problem.message


def test_a_pack_by_its_own_file(folder):
    root = folder(PACKED)
    found = load([root / "shop" / "pack.yaml"], KINDS)
    assert (names(found), found.problems, len(found.packs)) == (["a"], (), 1)


GLOBBED = {
    "pack.yaml": PACK + "tools: [tools/*.tool.yaml]\nscenarios: [scenarios/**]\n",
    "tools/good.tool.yaml": GOOD,
    "tools/notes.yaml": "not: read\n",
    "tools/scenario.tool.yaml": SCENARIO.replace("play", "not_taken"),
    "drafts/bad.tool.yaml": "name: 3\n",
    "scenarios/deep/play.yaml": SCENARIO,
    "scenarios/tool.yaml": tool("not_taken"),
}


def test_globs_choose_the_tools_and_the_scenarios_of_a_pack(folder):
    for found in (load([folder(GLOBBED)], KINDS), parse_files(GLOBBED, KINDS)):
        assert (names(found), found.problems) == (["good"], ())
        assert [scenario.name for scenario in found.scenarios] == ["play"]


def test_globs_of_tools_leave_the_scenarios_open(folder):
    files = {**GLOBBED, "pack.yaml": PACK + "tools: [tools/*.tool.yaml]\n", "drafts/b.yaml": tool("draft")}
    files["drafts/manifest.yaml"] = "name: mcp\ninputSchema: {type: object}\n"
    for found in (load([folder(files)], KINDS), parse_files(files, KINDS)):
        assert names(found) == ["good"]
        assert sorted(scenario.name for scenario in found.scenarios) == ["not_taken", "play"]
        assert set(codes(found)) <= {"unrecognised_file"}


def test_a_pack_within_a_pack_has_its_own_files(folder):
    root = folder(
        {
            "pack.yaml": PACK + "tools: [tools/*]\nscenarios: [none]\n",
            "tools/a.yaml": tool("a"),
            "inner/pack.yaml": PACK.replace("shop", "inner") + "tools: [mine/*]\n",
            "inner/mine/b.yaml": tool("b"),
            "inner/tools/c.yaml": tool("c"),
        }
    )
    found = load([root], KINDS)
    assert {entry.name: entry.origin.pack for entry in found.tools} == {"a": "shop", "b": "inner"}
    assert sorted(pack.name for pack in found.packs) == ["inner", "shop"]


@pytest.mark.parametrize("broken", ["name: Shop\n", "", "{", PACK + "requires: {extras: []}\n", "- 1\n"])
def test_of_a_pack_whose_file_is_broken_nothing_is_taken(folder, broken):
    files = {**PACKED, "shop/play.scenario.yaml": SCENARIO, "shop/over.yaml": "name: good\noverride: true\n"}
    root = folder({**files, "shop/pack.yaml": broken, "good.yaml": GOOD})
    found = load([root], KINDS)
    assert (names(found), found.packs, found.scenarios, found.refused_scenarios) == (["good"], (), (), ())
    assert found.tools[0].origin.overrides == ()
    assert {problem.severity for problem in found.problems} == {"error"}
    assert {os.path.relpath(problem.source, root) for problem in found.problems} == {"shop/pack.yaml"}
    assert (found.refused["a"].code, found.refused["a"].source) == (
        "refused_pack",
        str(root / "shop/pack.yaml"),
    )


def test_what_is_wrong_with_the_files_of_a_broken_pack_is_still_told(folder):
    files = {"pack.yaml": PACK + "bad: 1\n", "x.tool.yaml": "name: x\nlabls: {}\nmock: {result: 1}\n"}
    for found in (load([folder(files)], KINDS), parse_files(files, KINDS)):
        assert [(Path(problem.source).name, problem.code) for problem in found.problems] == [
            ("pack.yaml", "unknown_key"),
            ("x.tool.yaml", "unknown_key"),
        ]
        assert found.refused["x"].source.endswith("x.tool.yaml")


def test_what_can_be_read_of_a_broken_pack_says_which_files_are_its_own(folder):
    said = PACK + "namespace: ns\ntools: ['x/*']\nscenarios: [none]\ndefaults: {timeout: 99h}\nbad: 1\n"
    files = {
        "pack.yaml": said,
        "x/a.yaml": tool("a"),
        "drafts/bad.tool.yaml": "name: 3\n",
        "b.yaml": tool("b"),
    }
    for found in (load([folder(files)], KINDS), parse_files(files, KINDS)):
        assert (names(found), codes(found)) == ([], ["unknown_key", "out_of_range"])
        assert sorted(found.refused) == ["a", "ns__a"]
    with loaded_runtime(found, executors=KINDS) as runtime:
        for name in ("ns__a", "a"):
            error = runtime.call_sync(name).error
            assert error is not None
            assert "pack.yaml:7:1: refused_pack: its pack was rejected: unknown_key: " in error.message


def test_two_pack_files_in_one_folder_are_one_pack_and_a_warning(folder):
    root = folder({"pack.yaml": PACK, "pack.json": "{}", "x.yaml": GOOD})
    found = load([root], KINDS)
    assert [(problem.source, problem.code, problem.severity) for problem in found.problems] == [
        (str(root / "pack.json"), "second_pack_file", "warning")
    ]
    assert [pack.name for pack in found.packs] == ["shop"]


MEMORY = {
    "pack.json": '{"name": "shop", "version": "1.0.0"}',
    "tools/a.tool.yaml": REFERRING.format(name="a", file="../data/y.json"),
    "tools/b.tool.yaml": "name: b\nmock: {content: [{type: image, file: ../x.png, mime_type: image/png}]}\n",
    "data/y.json": b'{"n": 1}',
    "x.png": b"\x89PNG",
    "scenarios/play.yaml": "scenario: play\nsteps: [{call: a, expect: {result: {n: 1}}}]\n",
    "README.md": "not read",
}


def test_a_pack_may_live_in_memory():
    found = parse_files(MEMORY, KINDS)
    assert (names(found), found.problems) == (["a", "b"], ())
    assert ([pack.name for pack in found.packs], found.tools[0].origin.pack) == (["shop"], "shop")
    assert found.tools[0].origin.source == "tools/a.tool.yaml"
    with loaded_runtime(found, executors=KINDS) as runtime:
        assert runtime.call_sync("a").value == {"n": 1}
        assert [part.type for part in runtime.call_sync("b").content] == ["image"]


def test_files_in_memory_need_no_pack():
    found = parse_files({"x.yaml": GOOD, "y.yaml": "a: 1\n"}, KINDS)
    assert (names(found), codes(found), found.packs) == (["good"], ["unrecognised_file"], ())


def test_of_a_broken_pack_in_memory_nothing_is_taken():
    found = parse_files({**MEMORY, "pack.json": "{}"}, KINDS)
    assert (names(found), found.scenarios, sorted(found.refused)) == ([], (), ["a", "b"])
    assert codes(found) == ["missing_key", "missing_key"]


def test_a_path_in_memory_may_not_lead_outside():
    found = parse_files(
        {"tools/a.yaml": REFERRING.format(name="a", file="../../x.json"), "x.json": "{}"}, KINDS
    )
    assert [problem.message for problem in found.problems if problem.severity == "error"] == [
        "`../../x.json` leaves its folder"
    ]
