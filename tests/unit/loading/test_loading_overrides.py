"""Documents that are laid over tools from elsewhere, and sources with a namespace."""

from __future__ import annotations

import asyncio
import marshal

import pytest

from toolcrib import Runtime
from toolcrib.executors import Executors
from toolcrib.loading.cache.index import decode_value, encode_value
from toolcrib.loading.documents.files import files_at
from toolcrib.loading.sources import SourcePath, load

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
    assert tool.origin.place("/mock/result/hits") == f"{paths[0]}/a.yaml:5"
    assert tool.origin.place() == tool.origin.place("/nowhere") == f"{paths[1]}/a.yaml:1"
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


def test_an_override_of_a_refused_tool_is_told_where_that_stands(folders):
    paths = folders(theirs__a="name: search\nmock: {resul: 1}\n", ours__a="name: search\noverride: true\n")
    (problem,) = (each for each in load(paths, KINDS).problems if each.code == "nothing_to_override")
    assert problem.message.endswith("override: its document was rejected")
    assert problem.hint == f"fix {paths[0]}/a.yaml:2"


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
    loaded = load([SourcePath(paths[0], namespace="team"), paths[1]], KINDS)
    assert [tool.name for tool in loaded.tools] == ["team__search", "search"]
    assert loaded.tools[0].origin.namespace == "team"


def test_an_override_names_a_tool_of_a_namespace_in_full(folders):
    paths = folders(theirs__a=BASE, ours__a="name: team__search\noverride: true\ntitle: T\n")
    loaded = load([SourcePath(paths[0], namespace="team"), paths[1]], KINDS)
    tool = only_tool(loaded)
    assert (tool.name, tool.title, tool.timeout) == ("team__search", "T", 5.0)


def test_ignored_files_are_passed_over(folders, tmp_path):
    paths = folders(ours__a=BASE, ours__data="hits: 3\n")
    loaded = load([SourcePath(paths[0], ignore=("ours/data.*",), root=str(tmp_path))], KINDS)
    assert loaded.problems == ()
    assert loaded.ignored == (f"{paths[0]}/data.yaml",)


BY_FILE = "name: a\nmock: {result_file: d.json}\n"
WORDS = "name: a\noverride: true\ndescription: x\n"


@pytest.fixture(params=["read", "from an index"])
def answer(request, tmp_path):
    """Lay folders over each other, the first lowest, and give what a call of `a` answers."""

    def call(*layers: dict[str, str]):
        paths = []
        for number, files in enumerate(layers):
            folder = tmp_path / str(number)
            folder.mkdir()
            paths.append(folder)
            for name, text in files.items():
                (folder / name).write_text(text, encoding="utf-8")
        if request.param == "from an index":
            Runtime.open(*paths)
        runtime = Runtime.open(*paths, index=request.param == "from an index")
        return asyncio.run(runtime.call("a")).value

    return call


@pytest.mark.parametrize("beside", ['"MINE"', "{", None])
def test_a_path_is_relative_to_the_file_that_writes_it(answer, beside):
    mine = {} if beside is None else {"d.json": beside}
    assert answer({"a.yaml": BY_FILE, "d.json": "1"}, {"b.yaml": WORDS, **mine}) == 1


def test_a_path_of_an_override_is_relative_to_the_override(answer):
    upper = {"b.yaml": f"{BY_FILE}override: true\n", "d.json": "2"}
    assert answer({"a.yaml": BY_FILE, "d.json": "1"}, upper) == 2


def test_each_of_several_overrides_has_its_own_files(answer):
    lowest = {"a.yaml": BY_FILE, "d.json": "1"}
    middle = {"b.yaml": f"{BY_FILE}override: true\n", "d.json": "2"}
    assert answer(lowest, middle, {"c.yaml": WORDS, "d.json": "3"}, {"d.json": "4", "e.yaml": WORDS}) == 2


def test_what_is_kept_of_an_origin_tells_the_files_of_its_documents_apart(folders, tmp_path):
    for folder in ("theirs", "ours"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "d.json").write_text(f'"{folder}"', encoding="utf-8")
    (tool,) = load(folders(theirs__a=BY_FILE, ours__b=WORDS), KINDS).tools
    files = decode_value(marshal.loads(marshal.dumps(encode_value(tool.origin)))).files
    places = ("/mock/result_file", "/description", "/mock", "/nowhere")
    assert [files_at(files, place).read("d.json") for place in places] == [
        b'"theirs"',
        b'"ours"',
        b'"theirs"',
        b'"theirs"',
    ]


def test_an_override_does_not_find_a_file_beside_the_document_below(folders, tmp_path):
    paths = folders(theirs__a=BY_FILE, ours__b=f"{BY_FILE}override: true\n")
    (tmp_path / "theirs" / "d.json").write_text("1", encoding="utf-8")
    loaded = load(paths, KINDS)
    (problem,) = loaded.problems
    assert (problem.code, problem.source) == ("file_unreadable", f"{paths[1]}/b.yaml")
    assert paths[1] in problem.message
    assert [tool.origin.overrides for tool in loaded.tools] == [()]


def test_the_files_of_each_document_make_a_difference_to_what_the_tool_is(folders, tmp_path):
    def digest(lower: str, upper: str) -> str:
        (tmp_path / "theirs" / "d.json").write_text(lower, encoding="utf-8")
        (tmp_path / "ours" / "d.json").write_text(upper, encoding="utf-8")
        return load(paths, KINDS).tools[0].origin.digest

    paths = folders(theirs__a=BY_FILE, ours__b=WORDS)
    assert digest("1", "3") == digest("1", "4") != digest("2", "4")


def test_a_second_tool_of_an_overridden_name_is_told_the_first_document(tmp_path):
    names = ("0.tool.yaml", "a.tool.yaml", "z.tool.yaml")
    texts = ("name: a\nmock: {result: 1}\n", WORDS, "name: a\nmock: {result: 2}\n")
    for name, text in zip(names, texts, strict=True):
        (tmp_path / name).write_text(text, encoding="utf-8")
    (problem,) = Runtime.open(tmp_path, index=False).problems
    assert (problem.code, problem.source) == ("duplicate_tool", str(tmp_path / "z.tool.yaml"))
    assert f"already loaded from {tmp_path / '0.tool.yaml'}:1" in problem.message
