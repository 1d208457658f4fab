"""Descriptors as MCP tool definitions, and back."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp.types import Tool

from toolcrib import Annotations, Descriptor, Executors, Icon
from toolcrib.formats.mcp_tools import LATEST, definition_of, has_output, schemas_of
from toolcrib.formats.promptkit.foreign_descriptors import normalise
from toolcrib.loading.descriptors import parse_descriptor
from toolcrib.loading.document_checks import DocumentChecker
from toolcrib.loading.documents.document import parse_documents

OBJECT = {"type": "object"}
REVISIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"]
ICON = Icon("https://x.example/i.png", "image/png", ("48x48", "any"), "dark")
RICH = Descriptor(
    name="get_forecast",
    title="Forecast",
    description="Daily forecast.",
    version="1.2",
    author="Ada <ada@x.example>",
    help_url="https://x.example/help",
    tags=("weather",),
    labels={"team": "sky"},
    category="information",
    annotations=Annotations(read_only=True, open_world=False),
    icons=(ICON,),
    input_schema={"type": "object", "properties": {"city": {"type": "string", "x-mcp-header": "City"}}},
    output_schema={"type": "object", "properties": {"key": {"type": "string", "x-secret": True}}},
    mode="mock",
    bindings={"mock": {"result": {"key": "hunter2"}}},
    deprecated="Use get_forecast_v2.",
    experimental=True,
    metadata={"ticket": "WX-12", "_meta": {"x.example/a": 1}},
)


KINDS = Executors.installed()
SHAPE = DocumentChecker("descriptor", KINDS)


def loaded(definition):
    """The descriptor of a bare definition, read by our own loader without a complaint."""
    (document,), problems = parse_documents("bare.json", json.dumps(definition))
    (found,), faults = normalise(document)
    tool, complaints = parse_descriptor(found, KINDS, SHAPE)
    told = [problem for problem in (*problems, *faults, *complaints) if problem.code != "hidden_character"]
    assert told == []
    return tool


def test_everything_that_serves_a_client_is_told_and_nothing_else():
    assert definition_of(RICH) == {
        "name": "get_forecast",
        "title": "Forecast",
        "description": "Daily forecast.",
        "inputSchema": RICH.input_schema,
        "outputSchema": RICH.output_schema,
        "annotations": {"title": "Forecast", "readOnlyHint": True, "openWorldHint": False},
        "icons": [
            {
                "src": "https://x.example/i.png",
                "mimeType": "image/png",
                "sizes": ["48x48", "any"],
                "theme": "dark",
            }
        ],
        "_meta": {
            "x.example/a": 1,
            "dev.toolcrib/version": "1.2",
            "dev.toolcrib/category": "information",
            "dev.toolcrib/tags": ["weather"],
            "dev.toolcrib/labels": {"team": "sky"},
            "dev.toolcrib/help_url": "https://x.example/help",
            "dev.toolcrib/deprecated": "Use get_forecast_v2.",
            "dev.toolcrib/experimental": True,
        },
    }


def test_a_plain_tool_says_no_more_than_it_must():
    assert definition_of(Descriptor(name="go_there_now")) == {
        "name": "go_there_now",
        "description": "go there now",
        "inputSchema": {"type": "object", "additionalProperties": False},
    }


@pytest.mark.parametrize(
    ("tool", "description"),
    [
        (Descriptor(name="a_b", title="A and b"), "A and b"),
        (Descriptor(name="a_b", description=" \n"), "a b"),
        (Descriptor(name="__"), "__"),
        (Descriptor(name="a_b", title="T", description="  As written.\n"), "  As written.\n"),
    ],
)
def test_a_description_is_never_empty(tool, description):
    assert definition_of(tool)["description"] == description


def test_another_name_may_be_given():
    assert definition_of(RICH, name="get-forecast")["name"] == "get-forecast"


@pytest.mark.parametrize(
    ("revision", "keys"),
    [
        ("2024-11-05", {"name", "description", "inputSchema"}),
        ("2025-03-26", {"name", "description", "inputSchema", "annotations"}),
        (
            "2025-06-18",
            {"name", "description", "inputSchema", "annotations", "title", "outputSchema", "_meta"},
        ),
        ("2025-11-25", set(definition_of(RICH))),
    ],
)
def test_a_revision_is_told_what_it_knows(revision, keys):
    assert set(definition_of(RICH, revision=revision)) == keys


@pytest.mark.parametrize(
    ("written", "told"),
    [
        (True, {"type": "object"}),
        (False, {"type": "object", "not": {}}),
        ({}, {"type": "object"}),
        ({"properties": {"a": {}}}, {"type": "object", "properties": {"a": {}}}),
        (
            {"$ref": "#/$defs/x", "$defs": {"x": OBJECT}},
            {"type": "object", "$ref": "#/$defs/x", "$defs": {"x": OBJECT}},
        ),
    ],
)
def test_arguments_are_said_to_be_an_object_where_the_schema_does_not_say_so(written, told):
    assert definition_of(Descriptor(name="a", input_schema=written))["inputSchema"] == told


def test_a_schema_that_says_what_it_must_is_told_as_it_was_written():
    schema = {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "definitions": {"x": OBJECT},
    }
    assert definition_of(Descriptor(name="a", input_schema=schema))["inputSchema"] is schema


LIST = {"type": "array", "items": {"type": "integer"}}


@pytest.mark.parametrize(
    ("written", "before", "after"),
    [
        (None, None, None),
        (True, None, None),
        (False, None, {"not": {}}),
        ({}, None, {}),
        (OBJECT, OBJECT, OBJECT),
        (LIST, None, LIST),
        ({"properties": {"a": {}}}, None, {"properties": {"a": {}}}),
        ({"type": ["object", "null"]}, None, {"type": ["object", "null"]}),
        (
            {"$ref": "#/$defs/x", "$defs": {"x": OBJECT}},
            {"type": "object", "$ref": "#/$defs/x", "$defs": {"x": OBJECT}},
            {"$ref": "#/$defs/x", "$defs": {"x": OBJECT}},
        ),
        ({"allOf": [OBJECT]}, {"type": "object", "allOf": [OBJECT]}, {"allOf": [OBJECT]}),
        ({"anyOf": [OBJECT, LIST]}, None, {"anyOf": [OBJECT, LIST]}),
    ],
)
def test_before_2026_only_schemas_of_objects_are_told_of_results(written, before, after):
    tool = Descriptor(name="a", output_schema=written)
    for revision, told in (
        ("2025-03-26", None),
        ("2025-06-18", before),
        ("2025-11-25", before),
        (LATEST, after),
    ):
        assert definition_of(tool, revision=revision).get("outputSchema") == told
        assert has_output(tool, revision) is (told is not None)
        for inline_refs in (False, True):
            made = schemas_of(tool, inline_refs=inline_refs, revision=revision).output
            assert (made is not None) is (told is not None)


def test_schemas_are_freed_of_references_where_that_is_asked_for():
    node = {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}
    tool = Descriptor(
        name="a",
        input_schema={
            "type": "object",
            "properties": {"x": {"$ref": "#/$defs/x"}},
            "$defs": {"x": {"type": "null"}},
        },
        output_schema={"$ref": "#/$defs/node", "$defs": {"node": node}},
    )
    definition = definition_of(tool, inline_refs=True)
    assert definition["inputSchema"] == {"type": "object", "properties": {"x": {"type": "null"}}}
    assert "$ref" not in json.dumps(definition)
    assert schemas_of(tool, inline_refs=True).remarks == (
        "output schema: `node` refers to itself: it is expanded 3 levels deep and unchecked below that",
    )
    assert "$ref" in json.dumps(definition_of(tool))


@pytest.mark.parametrize("inline_refs", [False, True])
@pytest.mark.parametrize("revision", REVISIONS)
def test_the_protocol_s_own_library_takes_every_definition(revision, inline_refs):
    for tool in (RICH, Descriptor(name="a", input_schema=False, output_schema=LIST)):
        definition = definition_of(tool, revision=revision, inline_refs=inline_refs)
        again = Tool.model_validate(definition).model_dump(by_alias=True, exclude_unset=True, mode="json")
        assert again == definition


# There and back.

TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), min_size=1, max_size=12).filter(str.strip)
SCHEMAS = st.sampled_from(
    [
        OBJECT,
        {"type": "object", "additionalProperties": False},
        {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "type": "object",
            "properties": {"version": {"$ref": "#/definitions/v"}, "n": {"type": "number", "default": 1.0}},
            "definitions": {"v": {"type": "string", "enum": ["1.10", "no"]}},
        },
        {
            "type": "object",
            "properties": {"a": {"$ref": "#x"}},
            "$defs": {"b": {"$anchor": "x", "x-mcp-header": "A"}},
        },
    ]
)
ICONS = st.fixed_dictionaries(
    {"src": st.sampled_from(["https://x.example/i.png", "data:image/png;base64,AA=="])},
    optional={
        "mimeType": st.just("image/svg+xml"),
        "sizes": st.lists(st.sampled_from(["any", "48x48"]), min_size=1, max_size=2),
        "theme": st.sampled_from(["light", "dark"]),
    },
)
DEFINITIONS = st.fixed_dictionaries(
    {"name": st.from_regex(r"[A-Za-z_][A-Za-z0-9_.-]{0,20}", fullmatch=True), "inputSchema": SCHEMAS},
    optional={
        "title": TEXTS,
        "description": TEXTS,
        "outputSchema": SCHEMAS,
        "annotations": st.fixed_dictionaries(
            {},
            optional={
                "title": TEXTS,
                "readOnlyHint": st.booleans(),
                "destructiveHint": st.booleans(),
                "idempotentHint": st.booleans(),
                "openWorldHint": st.booleans(),
            },
        ),
        "icons": st.lists(ICONS, min_size=1, max_size=2),
        "_meta": st.dictionaries(st.sampled_from(["x.example/a", "b"]), st.integers() | TEXTS, min_size=1),
        "execution": st.just({"taskSupport": "optional"}),
    },
)
DEFAULTS = {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": False, "openWorldHint": True}


def normal(definition):
    """The same definition with nothing left to be understood: titles in both places, no hint that says the default."""
    hints = definition.get("annotations", {})
    title = definition.get("title") or hints.get("title", "")
    annotations = {"title": title} if title else {}
    annotations |= {key: item for key, item in hints.items() if item != DEFAULTS.get(key, "")}
    words = title.strip() or " ".join(definition["name"].replace("_", " ").split()) or definition["name"]
    whole = {"description": words, **definition, "title": title, "annotations": annotations}
    return {key: item for key, item in whole.items() if item and key != "execution"}


@settings(deadline=None)
@given(DEFINITIONS)
def test_a_bare_definition_comes_back_as_it_was(definition):
    tool = loaded(definition)
    assert (tool.input_schema, tool.output_schema) == (
        definition["inputSchema"],
        definition.get("outputSchema"),
    )
    assert definition_of(tool) == normal(definition)
    assert definition_of(loaded(definition_of(tool))) == definition_of(tool)
    assert tool.metadata.get("execution") == definition.get("execution")
