"""Lists of tools for model providers and of MCP become descriptors, and come back."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sampling import sample
from toolcrib import Executors, Registry, Runtime
from toolcrib.core.text import json_equal
from toolcrib.formats.descriptor_files import descriptor_files
from toolcrib.formats.imported_tools import ImportedTools
from toolcrib.formats.imports.mocks import with_mock
from toolcrib.formats.mcp_tools import definition_of
from toolcrib.formats.providers import DIALECTS, declare
from toolcrib.formats.tool_lists import (
    schema_of_gemini,
    tools_of_anthropic,
    tools_of_gemini,
    tools_of_mcp,
    tools_of_openai,
)
from toolcrib.loading.sources import parse

KINDS = Executors.installed()
SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
CHAT = {
    "type": "function",
    "function": {"name": "a", "description": "A.", "parameters": SCHEMA, "strict": True},
}
RESPONSES = {"type": "function", "name": "a", "description": "A.", "parameters": SCHEMA, "strict": None}
OLD = {"name": "a", "description": "A.", "parameters": SCHEMA}


def only(imported):
    assert imported.refused == []
    (tool,) = imported.tools
    return tool


def told(imported):
    return [(remark.kind, remark.key, remark.pointer, remark.message) for remark in imported.remarks]


@pytest.mark.parametrize(
    "source",
    [[CHAT], {"tools": [CHAT], "model": "m"}, [RESPONSES], {"functions": [OLD]}, OLD, CHAT],
    ids=["chat", "request", "responses", "functions", "one", "one chat"],
)
def test_openai(source):
    tool = only(tools_of_openai(source))
    assert tool.key == "a"
    assert tool.descriptor["description"] == "A."
    assert tool.descriptor["input_schema"] == SCHEMA
    strict = "'strict': True" in str(source)
    assert tool.descriptor.get("metadata") == ({"strict": True} if strict else None)


def test_tools_that_a_provider_runs_are_refused_and_hide_no_other():
    imported = tools_of_openai(
        [{"type": "web_search"}, CHAT, {"type": "custom", "name": "code"}, 5, {"type": "function"}]
    )
    assert [tool.key for tool in imported.tools] == ["a"]
    assert [(each.key, each.reason, each.pointer) for each in imported.refused] == [
        ("web_search", "provider_tool", "/0"),
        ("code", "provider_tool", "/2"),
        ("/3", "not_a_tool", "/3"),
        ("/4", "no_name", "/4"),
    ]


def test_anthropic():
    imported = tools_of_anthropic(
        {
            "tools": [
                {
                    "name": "a",
                    "input_schema": SCHEMA,
                    "input_examples": [{"city": "Oslo"}],
                    "cache_control": {"type": "ephemeral"},
                },
                {"type": "bash_20250124", "name": "bash"},
                {"type": "custom", "name": "b", "input_schema": {"type": "object"}},
            ]
        }
    )
    assert [tool.key for tool in imported.tools] == ["a", "b"]
    assert imported.tools[0].descriptor["examples"] == [{"args": {"city": "Oslo"}}]
    assert told(imported) == [
        ("lost", "a", "/tools/0/cache_control", "`cache_control` has no counterpart in a descriptor")
    ]
    assert [(each.key, each.reason) for each in imported.refused] == [("bash", "provider_tool")]


def test_gemini():
    declaration = {
        "name": "a",
        "parameters": {
            "type": "OBJECT",
            "properties": {
                "n": {"type": "INTEGER", "format": "int64", "nullable": True, "example": 5},
                "kind": {"type": "STRING", "format": "enum", "enum": ["x", "y"]},
                "tags": {"type": "ARRAY", "items": {"type": "STRING"}, "minItems": "1"},
                "any": {"anyOf": [{"type": "STRING"}, {"type": "NULL"}]},
            },
            "propertyOrdering": ["tags", "n"],
        },
        "response": {"type": "OBJECT", "properties": {"ok": {"type": "BOOLEAN"}}},
        "behavior": "NON_BLOCKING",
    }
    imported = tools_of_gemini([{"functionDeclarations": [declaration]}, {"googleSearch": {}}])
    (tool,) = imported.tools
    assert tool.descriptor["input_schema"] == {
        "type": "object",
        "properties": {
            "tags": {"type": "array", "items": {"type": "string"}, "minItems": 1},
            "n": {"type": ["integer", "null"], "format": "int64", "examples": [5]},
            "kind": {"type": "string", "enum": ["x", "y"]},
            "any": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        },
    }
    assert [*tool.descriptor["input_schema"]["properties"]] == ["tags", "n", "kind", "any"]
    assert tool.descriptor["output_schema"]["properties"] == {"ok": {"type": "boolean"}}
    assert told(imported) == [
        ("lost", "a", "/0/functionDeclarations/0/behavior", "the behaviour `NON_BLOCKING` has no counterpart")
    ]
    assert [(each.key, each.reason) for each in imported.refused] == [("googleSearch", "provider_tool")]
    for other in (
        {"function_declarations": [declaration]},
        {"tools": [{"functionDeclarations": [declaration]}]},
        [declaration],
    ):
        assert tools_of_gemini(other).tools == imported.tools


def test_json_schemas_of_gemini_stay_as_they_are():
    imported = tools_of_gemini(
        [{"name": "a", "parametersJsonSchema": SCHEMA, "responseJsonSchema": {"type": "string"}}]
    )
    assert only(imported).descriptor == {
        "name": "a",
        "input_schema": SCHEMA,
        "output_schema": {"type": "string"},
    }


def test_names_are_made_valid_and_unique_and_keys_stay():
    named = [
        {"name": name, "parameters": {"type": "object", "title": str(place)}}
        for place, name in enumerate(["a b", "a.b", "a_b", "a b", "1x"])
    ]
    imported = tools_of_openai([*named, named[0]])
    assert [(tool.key, tool.descriptor["name"]) for tool in imported.tools] == [
        ("a b", "a_b"),
        ("a.b", "a.b"),
        ("a_b", "a_b_2"),
        ("a b#2", "a_b_3"),
        ("1x", "_1x"),
    ]
    assert {kind for kind, *_rest in told(imported)} == {"repaired"}
    assert len(imported.remarks) == 4


MCP = {
    "name": "get-order",
    "title": "Order",
    "description": "Looks an order up.",
    "inputSchema": SCHEMA,
    "outputSchema": {"type": "object", "properties": {"total": {"type": "number"}}},
    "annotations": {"readOnlyHint": True},
    "icons": [{"src": "https://x.example/i.png", "mimeType": "image/png"}],
    "_meta": {"vendor/key": [1]},
}


@pytest.mark.parametrize(
    "wrap",
    [
        lambda tools: tools,
        lambda tools: {"tools": tools},
        lambda tools: {"jsonrpc": "2.0", "id": 1, "result": {"tools": tools}},
    ],
)
def test_mcp_tools_come_back_whole(wrap):
    imported = tools_of_mcp(wrap([MCP]))
    tool = descriptor(only(imported))
    again = definition_of(tool)
    # The hints of annotations also carry the title, for older clients.
    assert {**again, "annotations": {"readOnlyHint": True}} == MCP


def descriptor(tool):
    """The tool in the file that is written, read by the whole loader."""
    made = descriptor_files(tools_with_mocks(tool), KINDS)
    assert made.refused == ()
    loaded = parse(made.files[0].file, made.files[0].text, KINDS)
    assert [problem for problem in loaded.problems if problem.severity == "error"] == []
    return loaded.tools[0]


def tools_with_mocks(tool):
    return ImportedTools([tool._replace(descriptor=with_mock(tool.descriptor))])


def test_a_tool_whose_result_cannot_be_generated_is_written_with_a_mock_that_says_so():
    impossible = {"type": "string", "pattern": "^a$", "minLength": 5}
    tool = only(tools_of_mcp([{"name": "a", "inputSchema": {"type": "object"}, "outputSchema": impossible}]))
    made = descriptor_files(tools_with_mocks(tool), KINDS)
    assert made.refused == ()
    assert made.files[0].document["mock"]["error"]["code"] == "not_mocked"
    (remark,) = made.remarks
    assert (remark.kind, remark.key) == ("lost", "a")
    assert remark.message.startswith("the mock is an error: cannot generate")


READERS = {
    "openai": tools_of_openai,
    "openai_responses": tools_of_openai,
    "anthropic": tools_of_anthropic,
    "gemini": tools_of_gemini,
}


@pytest.mark.parametrize("dialect", READERS)
def test_the_tools_of_the_repository_come_back_from_every_provider(root, dialect):
    folders = [root / "descriptors", *sorted((root / "packs").iterdir())]
    tools = sample([tool for folder in folders for tool in Runtime.open(folder).registry.values()], one_in=5)
    for tool in tools:
        (declared,) = declare([tool], dialect)
        back = descriptor(only(READERS[dialect]([declared.definition])))
        assert back.name == declared.name
        assert json_equal(back.input_schema, expected(declared.schema, dialect))
        # What was declared once is declared in the same form again.
        (again,) = declare([back], dialect)
        assert json_equal(again.schema, declared.schema)


def expected(schema, dialect):
    return schema_of_gemini(schema) if dialect == "gemini" else schema


TEXTS = st.text("abcé", min_size=1, max_size=5)
SCHEMAS = st.recursive(
    st.fixed_dictionaries(
        {"type": st.sampled_from(["string", "integer", "number", "boolean"])},
        optional={"description": TEXTS, "title": TEXTS},
    )
    | st.fixed_dictionaries(
        {
            "type": st.just("string"),
            "enum": st.lists(st.sampled_from(["x", "y", "z"]), min_size=1, unique=True),
        }
    )
    | st.fixed_dictionaries(
        {"type": st.just("integer"), "minimum": st.integers(-5, 0), "maximum": st.integers(1, 5)}
    ),
    lambda inner: (
        st.fixed_dictionaries({"type": st.just("array"), "items": inner})
        | st.fixed_dictionaries(
            {
                "type": st.just("object"),
                "properties": st.dictionaries(st.sampled_from(["a", "b", "c"]), inner, max_size=3),
            }
        ).map(lambda schema: {**schema, "required": sorted(schema["properties"])[:1]})
    ),
    max_leaves=6,
)


@settings(max_examples=50, deadline=None)
@given(st.dictionaries(st.sampled_from(["p", "q", "r"]), SCHEMAS, max_size=3), st.sampled_from([*READERS]))
def test_random_schemas_come_back_and_so_do_their_arguments(properties, dialect):
    schema = {"type": "object", "properties": properties, "required": sorted(properties)[:1]}
    (tool,) = parse(
        "t.json",
        json.dumps({"name": "t", "description": "d", "input_schema": schema, "mock": {"result": 1}}),
        KINDS,
    ).tools
    (declared,) = declare([tool], dialect)
    back = descriptor(only(READERS[dialect]([declared.definition])))
    if not declared.losses:
        assert json_equal(back.input_schema, schema)
    (again,) = declare([back], dialect)
    assert json_equal(again.schema, declared.schema)
    example = example_of(schema)
    assert json_equal(again.restore(example), example)


def example_of(schema):
    kind = schema.get("type")
    if "enum" in schema:
        return schema["enum"][0]
    if kind == "object":
        return {name: example_of(part) for name, part in schema["properties"].items()}
    if kind == "array":
        return [example_of(schema["items"])]
    return {"string": "x", "integer": 1, "number": 1.5, "boolean": True}[kind]


@pytest.mark.parametrize("dialect", [*DIALECTS])
def test_strict_forms_come_back_as_they_were_declared(dialect):
    (tool,) = parse(
        "t.json",
        json.dumps({"name": "t", "description": "d", "input_schema": SCHEMA, "mock": {"result": 1}}),
        KINDS,
    ).tools
    (declared,) = declare([tool], dialect)
    reader = next((READERS[name] for name in READERS if dialect.startswith(name)), tools_of_openai)
    back = only(reader([declared.definition]))
    assert json_equal(back.descriptor["input_schema"], expected(declared.schema, dialect))


async def test_the_list_of_a_real_server_comes_back_without_loss():
    from mcp_sdk_server import sdk_server  # noqa: PLC0415 -- the SDK takes a second to import

    async with Runtime(Registry(), servers={"sdk": sdk_server()}) as runtime:
        definitions = (await runtime.catalogue("sdk")).tools
    assert len(definitions) > 5
    imported = tools_of_mcp({"tools": [*definitions.values()]})
    assert (imported.refused, imported.remarks) == ([], [])
    for tool in imported.tools:
        assert meaning(definition_of(descriptor(tool))) == meaning(definitions[tool.key])


def meaning(definition):
    """A definition without what means the same as if it was left out."""
    usual = {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False, "openWorldHint": True}
    said = {key: value for key, value in definition.items() if value is not None}
    hints = {
        key: hint
        for key, hint in said.pop("annotations", {}).items()
        if hint is not None and usual.get(key) is not hint
    }
    said["description"] = said.get("description") or said.get("title") or said["name"].replace("_", " ")
    return {**said, "annotations": hints}
