"""Documents that are laid over tools from elsewhere, and sources with a namespace."""

from __future__ import annotations

import pytest

from toolcrib.executors import Executors
from toolcrib.loading.sources import Source, load

KINDS = Executors.installed()

BASE = """\
name: search
description: As its authors say it.
timeout: 5s
output_schema: {type: object, properties: {hits: {type: integer}}, required: [hits]}
mock: {result: {hits: 3}}
"""


@pytest.fixture
def folders(tmp_path):
    """Write files below two folders, and return the folders' paths."""

    def write(**files: str) -> list[str]:
        for name, text in files.items():
            folder, _, file = name.partition("__")
            (tmp_path / folder).mkdir(exist_ok=True)
            (tmp_path / folder / f"{file}.yaml").write_text(text, encoding="utf-8")
        return [str(tmp_path / folder) for folder in dict.fromkeys(name.partition("__")[0] for name in files)]

    return write


def only_tool(loaded):
    assert loaded.problems == ()
    (tool,) = loaded.tools
    return tool


@pytest.mark.parametrize("order", [1, -1])
def test_an_override_changes_the_keys_that_it_writes(folders, order):
    upper = "name: search\noverride: true\ndescription: In our words.\nannotations: {read_only: true}\n"
    paths = folders(theirs__a=BASE, ours__a=upper)
    tool = only_tool(load(paths[::order], KINDS))
    assert (tool.description, tool.annotations.read_only) == ("In our words.", True)
    assert (tool.timeout, tool.bindings["mock"]) == (5.0, {"result": {"hits": 3}})


def test_an_override_leaves_the_data_that_the_tool_names(tmp_path):
    (tmp_path / "theirs" / "tools").mkdir(parents=True)
    (tmp_path / "ours").mkdir()
    (tmp_path / "theirs" / "pack.yaml").write_text("name: theirs\nversion: 1.0.0\n")
    (tmp_path / "theirs" / "data.json").write_text('{"hits": 3}')
    (tmp_path / "theirs" / "tools" / "a.yaml").write_text("name: search\nmock: {result_file: ../data.json}\n")
    (tmp_path / "ours" / "a.yaml").write_text("name: search\noverride: true\ndescription: Ours.\n")
    tool = only_tool(load([tmp_path / "theirs", tmp_path / "ours"], KINDS))
    assert (tool.description, tool.bindings["mock"]) == ("Ours.", {"result_file": "../data.json"})


def test_a_key_is_replaced_whole(folders):
    upper = "name: search\noverride: true\noutput_schema: {type: object}\nmock: {result: {found: 1}}\n"
    tool = only_tool(load(folders(theirs__a=BASE, ours__a=upper), KINDS))
    assert tool.output_schema == {"type": "object"}
    assert tool.bindings["mock"] == {"result": {"found": 1}}


def test_an_override_says_where_each_part_stands(folders):
    paths = folders(theirs__a=BASE, ours__a="name: search\noverride: true\ndescription: Ours.\n")
    tool = only_tool(load(paths, KINDS))
    assert tool.origin.place("/description") == f"{paths[1]}/a.yaml:3"
    assert tool.origin.overrides == (f"{paths[0]}/a.yaml:1",)


def test_several_overrides_apply_in_order_of_sources(folders):
    paths = folders(
        a__x="name: search\noverride: true\ntitle: A\ndescription: A.\n",
        b__x=BASE,
        c__x="name: search\noverride: true\ntitle: C\n",
    )
    tool = only_tool(load(paths, KINDS))
    assert (tool.title, tool.description) == ("C", "A.")
    assert tool.origin.overrides == (f"{paths[0]}/x.yaml:1", f"{paths[1]}/x.yaml:1")


def test_it_is_known_in_which_document_each_key_stands(folders):
    paths = folders(
        a__x=BASE,
        b__x="name: search\noverride: true\ntitle: B\n",
        c__x="name: search\noverride: true\ndescription: C.\n",
    )
    origin = only_tool(load(paths, KINDS)).origin
    assert origin.written == {"name", "description"}
    assert origin.settings == {
        "title": f"{paths[1]}/x.yaml:3",
        "timeout": f"{paths[0]}/x.yaml:3",
        "output_schema": f"{paths[0]}/x.yaml:4",
        "mock": f"{paths[0]}/x.yaml:5",
    }


def test_an_override_without_a_tool_below_is_an_error(folders):
    paths = folders(theirs__a=BASE, ours__a="name: serch\noverride: true\ntitle: T\n")
    loaded = load(paths, KINDS)
    (problem,) = loaded.problems
    assert (problem.code, problem.pointer, problem.line) == ("nothing_to_override", "/name", 1)
    assert "`search`" in problem.hint
    assert [tool.name for tool in loaded.tools] == ["search"]


def test_a_refused_override_leaves_the_tool_as_it_was(folders):
    paths = folders(
        theirs__a=BASE, ours__a="name: search\noverride: true\ntimeuot: 3s\nmock: {result: {hits: many}}\n"
    )
    loaded = load(paths, KINDS)
    assert {problem.code for problem in loaded.problems} == {"unknown_key", "result_breaks_schema"}
    assert all(problem.source == f"{paths[1]}/a.yaml" for problem in loaded.problems)
    assert [tool.timeout for tool in loaded.tools] == [5.0]


def test_what_breaks_below_names_the_override(folders):
    upper = "name: search\noverride: true\noutput_schema: {type: object, required: [pages]}\n"
    paths = folders(theirs__a=BASE, ours__a=upper)
    (problem,) = load(paths, KINDS).problems
    assert (problem.code, problem.source) == ("result_breaks_schema", f"{paths[0]}/a.yaml")
    assert f"`{paths[1]}/a.yaml:1` overrides other keys of this tool" in problem.hint


def test_an_override_finds_files_beside_either_document(folders, tmp_path):
    lower = "name: search\nmock: {result_file: answer.txt}\n"
    paths = folders(theirs__a=lower, ours__a="name: search\noverride: true\ntitle: T\n")
    (tmp_path / "theirs" / "answer.txt").write_text("{hits: 1}", encoding="utf-8")
    tool = only_tool(load(paths, KINDS))
    assert tool.origin.files.read("answer.txt") == b"{hits: 1}"


def test_override_false_is_a_tool_of_its_own(folders):
    loaded = load(folders(ours__a=f"{BASE}override: false\n"), KINDS)
    assert only_tool(loaded).name == "search"


def test_a_namespace_stands_before_the_names_of_its_tools(folders):
    paths = folders(theirs__a=BASE, ours__a=BASE)
    loaded = load([Source(paths[0], namespace="team"), paths[1]], KINDS)
    assert [tool.name for tool in loaded.tools] == ["team__search", "search"]
    assert loaded.tools[0].origin.namespace == "team"


def test_an_override_names_a_tool_of_a_namespace_in_full(folders):
    paths = folders(theirs__a=BASE, ours__a="name: team__search\noverride: true\ntitle: T\n")
    loaded = load([Source(paths[0], namespace="team"), paths[1]], KINDS)
    tool = only_tool(loaded)
    assert (tool.name, tool.title, tool.timeout) == ("team__search", "T", 5.0)


def test_ignored_files_are_passed_over(folders, tmp_path):
    paths = folders(ours__a=BASE, ours__data="hits: 3\n")
    loaded = load([Source(paths[0], ignore=("ours/data.*",), root=str(tmp_path))], KINDS)
    assert loaded.problems == ()
    assert loaded.ignored == (f"{paths[0]}/data.yaml",)
