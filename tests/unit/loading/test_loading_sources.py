"""Folders, packs, files and texts: what is good is kept, what is not is told, and one never harms the other."""

from __future__ import annotations

import os

import pytest

from toolcrib import parse_registry
from toolcrib.core.errors import DocumentError
from toolcrib.engine.runtime import Runtime
from toolcrib.executors import Executors
from toolcrib.executors.mock import MockExecutor
from toolcrib.loading.sources import load, parse
from toolcrib.registry.registry import Registry

KINDS = Executors({"mock": MockExecutor})

GOOD = "name: good\ndescription: A good tool.\nmock: {result: 1}\n"
PACK = "name: shop\nversion: 1.0.0\n"
SCENARIO = "scenario: play\nsteps: [{call: good}]\n"


def tool(name):
    return f"name: {name}\ndescription: A tool.\nmock: {{result: {name}}}\n"


def names(found):
    return [entry.name for entry in found.tools]


def codes(found):
    return [problem.code for problem in found.problems]


def told(found, root):
    """(file, line, code, severity) of every problem."""
    return [
        (os.path.relpath(problem.source, root), problem.line, problem.code, problem.severity)
        for problem in found.problems
    ]


BAD_FILES = {
    "a/alias.yaml": "a: &x 1\nb: *x\n",
    "a/broken.json": '{"name": ',
    "b/bytes.yaml": "name: x\nmock: {result: '\x07'}\n",
    "b/misspelt.tool.yaml": "name: misspelt\ndescripton: x\nmock: {result: 1}\n",
    "c/wrong.tool.yaml": "name: wrong\ntags: 3\ntimeout: 5\nmock: {}\n",
    "c/scenario.yaml": "scenario: s\nsteps: []\n",
}


def test_all_problems_of_all_files_are_told_and_good_tools_load(folder):
    root = folder({**BAD_FILES, "b/good.tool.yaml": GOOD})
    found = load([root], KINDS)
    assert names(found) == ["good"]
    assert set(BAD_FILES) == {os.path.relpath(problem.source, root) for problem in found.problems}
    wrong = [problem.pointer for problem in found.problems if problem.source.endswith("wrong.tool.yaml")]
    assert sorted(wrong) == ["/mock", "/tags", "/timeout"]


@pytest.mark.parametrize("bad", BAD_FILES)
def test_one_bad_file_harms_no_good_one(folder, bad):
    root = folder({bad: BAD_FILES[bad], "a/good.tool.yaml": GOOD, "z/other.tool.yaml": tool("other")})
    found = load([root], KINDS)
    assert names(found) == ["good", "other"]
    assert {os.path.relpath(problem.source, root) for problem in found.problems} == {bad}


def test_files_are_read_in_the_order_of_their_paths(folder):
    root = folder(
        {"z.yaml": tool("a"), "b/x.yaml": tool("c"), "a.json": '{"name": "z", "mock": {"result": 1}}'}
    )
    assert names(load([root], KINDS)) == ["z", "a", "c"]


def test_a_file_may_hold_several_documents(folder):
    root = folder({"x.yaml": f"{tool('a')}---\n{tool('b')}---\n{SCENARIO}---\n", "y.json": f"[{'{}'}]"})
    found = load([root], KINDS)
    assert names(found) == ["a", "b"]
    assert [scenario.name for scenario in found.scenarios] == ["play"]
    assert [tool.origin.line for tool in found.tools] == [1, 5]


def test_a_json_list_stands_for_its_elements():
    text = '[{"name": "a", "mock": {"result": 1}},\n {"name": "b", "mock": {"result": 1}, "tag": 1}]'
    found = parse("x.json", text, KINDS)
    assert names(found) == ["a"]
    assert [(problem.line, problem.pointer) for problem in found.problems] == [(2, "/tag")]


def test_a_path_that_is_not_there_is_a_problem(tmp_path):
    found = load([tmp_path / "absent", tmp_path / "descriptors"], KINDS)
    assert codes(found) == ["path_not_found", "path_not_found"]
    assert [problem.hint for problem in found.problems] == ["", "run `toolcrib init` to create a first tool"]


def test_a_single_file_is_read_whatever_it_is_called(folder):
    root = folder({"tool.txt": GOOD})
    assert names(load([root / "tool.txt"], KINDS)) == ["good"]


def test_a_file_that_is_named_twice_is_read_once(folder):
    root = folder({"sub/x.yaml": GOOD, "sub/bad.tool.yaml": "name: bad\nmock: {}\n"})
    (root / "again").symlink_to(root / "sub")
    found = load([root, root / "sub", root / "sub" / "x.yaml", root / "again"], KINDS)
    assert (names(found), codes(found)) == (["good"], ["wrong_combination"])


def test_a_pack_that_is_named_twice_is_one_pack(folder):
    root = folder({"shop/pack.yaml": PACK, "shop/x.yaml": GOOD})
    found = load([root, root / "shop", root / "shop" / "pack.yaml"], KINDS)
    assert ([pack.name for pack in found.packs], names(found)) == (["shop"], ["good"])


STRANGERS = [
    ("x.yaml", "- 1\n", "notice"),
    ("x.yaml", "just text\n", "notice"),
    ("x.yaml", "null\n", "notice"),
    ("x.yaml", "", "notice"),
    ("x.yaml", "# only a comment\n", "notice"),
    ("x.yaml", "name: nothing else\n", "notice"),
    ("x.json", "{}", "notice"),
    ("x.tool.yaml", "- 1\n", "error"),
    ("x.tool.yml", "", "error"),
    ("x.tool.json", "[]", "error"),
    ("x.tool.json", "{}", "error"),
]


@pytest.mark.parametrize(("name", "text", "severity"), STRANGERS)
def test_a_file_that_is_nothing_of_ours_gets_one_notice_or_an_error_by_its_name(folder, name, text, severity):
    root = folder({name: text})
    assert told(load([root], KINDS), root) == [(name, 1, "unrecognised_file", severity)]
    assert [(problem.code, problem.severity) for problem in parse(name, text, KINDS).problems] == [
        ("unrecognised_file", severity)
    ]


def test_a_file_of_many_strangers_gets_one_notice():
    found = parse("x.yaml", "---\n---\na: 1\n---\nb: 2\n", KINDS)
    assert [(problem.code, problem.line) for problem in found.problems] == [("unrecognised_file", 3)]


def test_a_stranger_beside_a_good_tool_is_told():
    found = parse("x.tool.yaml", f"{GOOD}---\nstuff: 1\n", KINDS)
    assert names(found) == ["good"]
    assert [(problem.code, problem.line, problem.severity) for problem in found.problems] == [
        ("unrecognised_file", 5, "error")
    ]


@pytest.mark.parametrize("text", [f"---\n{GOOD}", f"{GOOD}---\n", f"---\n---\n{GOOD}...\n---\n# end\n"])
def test_an_empty_document_beside_a_tool_is_nothing(text):
    found = parse("x.tool.yaml", text, KINDS)
    assert (names(found), found.problems) == (["good"], ())


def test_strict_makes_every_problem_an_error(folder):
    root = folder({"x.yaml": GOOD, "notes.yaml": "a: 1\n"})
    with Runtime.open(root, executors=KINDS) as runtime:
        assert list(runtime.registry) == ["good"]
        assert [problem.code for problem in runtime.problems] == ["unrecognised_file"]
    with pytest.raises(DocumentError, match="unrecognised_file"):
        Runtime.open(root, strict=True, executors=KINDS)


REFERRING = "name: {name}\nmock: {{result_file: {file}}}\n"


def test_a_file_that_a_tool_names_as_data_gets_no_notice(folder):
    root = folder({"x.yaml": REFERRING.format(name="a", file="data/y.json"), "data/y.json": "[1, 2]"})
    found = load([root], KINDS)
    assert (names(found), found.problems) == (["a"], ())


@pytest.mark.parametrize(
    "data",
    [
        '{"name": "Chair", "description": "To sit on.", "price": 3}',
        '{"scenario": "rain", "steps": 4}',
        '{"name": "x", "inputSchema": 3}',
    ],
)
def test_data_that_looks_like_a_document_is_data_all_the_same(folder, data):
    root = folder({"x.yaml": REFERRING.format(name="a", file="y.json"), "y.json": data})
    assert load([root], KINDS).problems == ()
    (root / "x.yaml").unlink()
    assert load([root], KINDS).problems != ()


def test_naming_a_good_tool_as_data_does_not_take_it_away(folder):
    root = folder({"x.yaml": REFERRING.format(name="a", file="y.tool.yaml"), "y.tool.yaml": GOOD})
    assert names(load([root], KINDS)) == ["a", "good"]


def test_naming_a_bad_tool_as_data_does_not_hide_it(folder):
    root = folder(
        {"x.yaml": REFERRING.format(name="a", file="y.tool.yaml"), "y.tool.yaml": "name: b\nmock: {}\n"}
    )
    found = load([root], KINDS)
    assert codes(found) == ["wrong_combination"]
    assert list(found.refused) == ["b"]


def test_a_file_that_vanished_is_a_notice_and_the_others_load(folder):
    root = folder({"x.yaml": GOOD})
    (root / "gone.yaml").symlink_to(root / "nowhere")
    assert told(load([root], KINDS), root) == [("gone.yaml", 0, "file_vanished", "notice")]


def test_what_is_no_regular_file_is_an_error_and_the_others_load(folder):
    root = folder({"x.yaml": GOOD})
    os.mkfifo(root / "pipe.yaml")
    (root / "circle.yaml").symlink_to("circle.yaml")
    found = load([root], KINDS)
    assert names(found) == ["good"]
    assert codes(found) == ["file_unreadable", "file_unreadable"]


DUPLICATES = {"a.yaml": GOOD, "b.yaml": f"# again\n{GOOD}"}


def test_a_duplicate_is_an_error_that_names_both_files(folder):
    root = folder(DUPLICATES)
    with Runtime.open(root, executors=KINDS) as runtime:
        (problem,) = runtime.problems
        assert runtime.registry["good"].origin.source == str(root / "a.yaml")
    assert problem.code == "duplicate_tool"
    assert (problem.source, problem.line) == (str(root / "b.yaml"), 2)
    assert f"{root / 'a.yaml'}:1" in problem.message


def test_names_that_differ_by_case_are_two_tools():
    found = parse("x.yaml", f"{tool('get')}---\n{tool('Get')}", KINDS)
    assert list(Registry(found.tools)) == ["Get", "get"]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("x.yaml", GOOD),
        ("x.yaml", GOOD.encode()),
        ("x.json", '{"name": "good", "mock": {"result": 1}}'),
        ("anything", {"name": "good", "mock": {"result": 1}}),
    ],
)
def test_a_registry_comes_from_text_bytes_or_a_mapping(name, content):
    registry = parse_registry(name, content, kinds=KINDS)
    assert (list(registry), registry.revision) == (["good"], 1)
    assert registry["good"].origin.source == name


def test_a_registry_from_memory_raises_with_everything_that_is_wrong():
    text = f"{GOOD}---\nname: bad\ntags: 3\nmock: {{}}\n---\n{GOOD}"
    with pytest.raises(DocumentError) as raised:
        parse_registry("x.yaml", text, kinds=KINDS)
    found = [(problem.code, problem.line) for problem in raised.value.problems]
    assert sorted(found) == [("duplicate_tool", 9), ("wrong_combination", 7), ("wrong_type", 6)]
    problems = []
    assert list(parse_registry("x.yaml", text, kinds=KINDS, problems=problems)) == ["good"]
    assert problems == list(raised.value.problems)


def test_a_registry_from_memory_overlooks_what_is_no_error():
    assert list(parse_registry("x.yaml", f"{GOOD}---\nstuff: 1\n", kinds=KINDS)) == ["good"]


MANIFEST = """
apiVersion: promptkit.altairalabs.ai/v1alpha1
kind: Tool
metadata: {{name: {name}}}
spec:
  description: A tool.
  mode: mock
  input_schema: {{type: object}}
  output_schema: {{}}
  {key}: {value}
"""
ARENA = "apiVersion: promptkit.altairalabs.ai/v1alpha1\nkind: Arena\nmetadata: {name: arena}\n"


def manifest(name, key="mock_result", value="1"):
    return MANIFEST.format(name=name, key=key, value=value)


def test_paths_of_a_manifest_start_at_the_arena_above_it(folder, monkeypatch):
    files = {
        "config.arena.yaml": ARENA,
        "tools/deep/x.tool.yaml": manifest("a", "mock_result_file", "testdata/y.json"),
        "tools/deep/z.tool.yaml": manifest("b", "mock_result_file", "testdata/y.json"),
        "testdata/y.json": '{"n": 1}',
    }
    root = folder(files)
    found = load([root / "tools"], KINDS)
    assert (names(found), found.problems) == (["a", "b"], ())
    monkeypatch.chdir(root / "tools" / "deep")
    assert names(load(["x.tool.yaml"], KINDS)) == ["a"]


def test_paths_of_a_manifest_without_an_arena_start_at_the_manifest(folder):
    files = {
        "shop/pack.yaml": PACK,
        "shop/tools/m.yaml": manifest("m", "mock_result_file", "../data/y.json"),
        "shop/data/y.json": "{}",
    }
    found = load([folder(files)], KINDS)
    assert (names(found), found.problems) == (["m"], ())


def test_a_tool_that_is_refused_for_its_foreign_form_is_remembered():
    found = parse("x.yaml", manifest("a", "mock_reslt", "1"), KINDS)
    assert names(found) == []
    assert list(found.refused) == ["a"]
    assert found.refused["a"].code == "unknown_key"


def test_a_mapping_that_its_caller_changes_later_changes_no_tool():
    document = {"name": "a", "mock": {"result": {"n": 1}}}
    loaded = parse("a", document, Executors.installed())
    document["mock"]["result"]["n"] = 2
    assert loaded.tools[0].bindings["mock"] == {"result": {"n": 1}}
