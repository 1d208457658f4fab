"""Formats of other systems: loading reads those that it is given, and its own documents without any."""

from __future__ import annotations

import pytest

from toolcrib import Executors, Runtime
from toolcrib.formats.known_formats import FORMATS
from toolcrib.loading.cache.index import decode_value, encode_value
from toolcrib.loading.format_contract import NO_FORMATS, Conversion, ForeignTool, Format, Formats
from toolcrib.loading.sources import load, parse

MANIFEST = {"tool": "greet", "says": "{{ args.who }}"}


def is_greeting(value):
    return isinstance(value, dict) and "says" in value


def documents(document, _files):
    """A descriptor for a document `{tool: NAME, says: TEXT}`."""
    if not is_greeting(document.value):
        return []
    schema = {"type": "object", "properties": {"who": {"type": "string"}}}
    own = {
        "name": document.value["tool"],
        "input_schema": schema,
        "mock": {"result": document.value["says"]},
    }
    return [document.moved(own, {"/name": "/tool", "/mock": "/says"})]


def convert(document, where):
    tools = [ForeignTool(own, reword=in_capitals) for own in documents(document, where.files)]
    return Conversion(tools=tools)


def in_capitals(problems):
    return [problem._replace(message=problem.message.upper()) for problem in problems]


GREETING = Format(name="greeting", detect=is_greeting, convert=convert, documents=documents)


def kinds(*formats):
    executors = Executors.installed()
    executors.formats = Formats(formats)
    return executors


def test_a_document_of_an_added_format_is_read(tmp_path):
    path = tmp_path / "greet.yaml"
    path.write_text("tool: greet\nsays: '{{ args.who }}'\n", encoding="utf-8")
    (tool,) = load([tmp_path], kinds(GREETING)).tools
    assert (tool.name, tool.mode) == ("greet", "mock")
    assert tool.origin.place("/mock") == f"{path}:2"


def test_what_an_index_keeps_of_it_is_found_again(tmp_path):
    path = tmp_path / "greet.yaml"
    path.write_text("tool: greet\nsays: '{{ args.who }}'\n", encoding="utf-8")
    given = kinds(GREETING)
    (tool,) = load([tmp_path], given).tools
    back = decode_value(encode_value(tool), given)
    assert back == tool
    assert back.origin.place("/mock") == f"{path}:2"
    assert decode_value(encode_value(tool)).origin.place("/mock") == f"{path}:1", (
        "nothing converts the document again"
    )


def test_problems_are_told_in_the_words_of_the_format():
    given = {"tool": "greet", "says": "{{ args.who | nonsense }}"}
    (problem, *_) = parse("greet.yaml", given, kinds(GREETING)).problems
    assert problem.message.isupper()


async def test_a_runtime_calls_a_tool_of_an_added_format(tmp_path):
    (tmp_path / "greet.yaml").write_text("tool: greet\nsays: 'Hi {{ args.who }}'\n", encoding="utf-8")
    async with Runtime.open(str(tmp_path), executors=kinds(GREETING)) as runtime:
        assert (await runtime.call("greet", {"who": "Ann"})).value == "Hi Ann"


def test_without_a_format_only_our_own_documents_are_read():
    loaded = parse("greet.yaml", [MANIFEST, {"name": "own", "mock": {"result": 1}}], kinds())
    assert [tool.name for tool in loaded.tools] == ["own"]
    (problem,) = loaded.problems
    assert problem.code == "unrecognised_file"


@pytest.mark.parametrize(
    "foreign",
    [
        {"apiVersion": "v1", "kind": "Tool", "metadata": {"name": "a"}, "spec": {"mock_result": 1}},
        {"type": "function", "function": {"name": "a"}},
        {"template_engine": {}, "prompts": {}},
    ],
)
def test_formats_of_other_systems_are_foreign_to_loading(foreign):
    assert NO_FORMATS.of(foreign) is None
    assert FORMATS.of(foreign) is not None
    assert (
        parse("x.yaml", foreign, kinds()).problems != parse("x.yaml", foreign, kinds(*FORMATS.table)).problems
    )


def test_a_format_is_probed_in_the_order_of_the_table_and_once_for_each_document():
    probed = []

    def probe(name, *, known):
        def detect(_value):
            probed.append(name)
            return known

        return Format(name=name, detect=detect, convert=convert)

    parse(
        "greet.yaml", MANIFEST, kinds(probe("a", known=False), probe("b", known=True), probe("c", known=True))
    )
    assert probed == ["a", "b"]


def test_servers_of_a_client_are_not_read_without_its_format(tmp_path):
    file = tmp_path / "mcp.json"
    file.write_text('{"mcpServers": {"s": {"command": "x"}}}', encoding="utf-8")
    project = tmp_path / "toolcrib.yaml"
    project.write_text("project: p\nservers_from: mcp.json\n", encoding="utf-8")
    assert Runtime.open(str(project)).problems == ()
    (problem,) = Runtime.open(str(project), executors=kinds()).problems
    assert (problem.code, problem.line) == ("no_servers", 2)
