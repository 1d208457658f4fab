"""Tools of an MCP server as descriptor files."""

from __future__ import annotations

import json
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolcrib import Executors
from toolcrib.core.server_config import Catalogue, Server
from toolcrib.formats.descriptor_files import descriptor_files
from toolcrib.formats.mcp_server_tools import tools_of_server
from toolcrib.loading.sources import parse

KINDS = Executors.installed()
SERVER = Server("shop")
OBJECT = {"type": "object"}


def offered(*definitions, **more):
    return Catalogue("shop", {each["name"]: each for each in definitions}, **more)


class Made(NamedTuple):
    files: tuple
    refused: dict
    remarks: tuple


def made_of(server, catalogue, *, prefix=None, schema=""):
    """The tools of a server as files."""
    imported, remarks = tools_of_server(server, catalogue, prefix=prefix)
    made = descriptor_files(imported, KINDS, schema=schema)
    return Made(made.files, {each.key: each.message for each in made.refused}, remarks)


def files(*definitions, server=SERVER, **options):
    """The files of good tools; no one is refused."""
    made = made_of(server, offered(*definitions), **options)
    assert made.refused == {}
    return made.files


def descriptor(file):
    """The tool that a file describes, by the whole loader and without a complaint."""
    loaded = parse(file.file, file.text, KINDS)
    assert [problem for problem in loaded.problems if problem.severity == "error"] == []
    (tool,) = loaded.tools
    return tool


ORDER = {
    "name": "get-order",
    "title": "Order",
    "description": "Looks an order up.\n\nArgs:\n  no: its number\n",
    "inputSchema": {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "type": "object",
        "properties": {"no": {"$ref": "#/definitions/number"}, "full": {"type": "boolean", "default": False}},
        "required": ["no"],
        "additionalProperties": False,
        "definitions": {"number": {"type": "string", "pattern": "^#[0-9]+$", "examples": ["1.10", "no"]}},
    },
    "outputSchema": {"type": "object", "properties": {"total": {"type": "number", "minimum": 0.0}}},
    "annotations": {"readOnlyHint": True, "openWorldHint": None, "audience": ["user"]},
    "icons": [{"src": "https://x.example/i.png", "mimeType": "image/png"}],
    "_meta": {"changes": "with every listing"},
    "mock": {"result": "a server writes no block"},
}


def test_a_file_is_what_a_person_would_write():
    (file,) = files(ORDER, schema="../.toolcrib/descriptor.schema.json")
    assert (
        file.text
        == """\
# yaml-language-server: $schema=../.toolcrib/descriptor.schema.json
name: shop__get-order
title: Order
description: |
  Looks an order up.

  Args:
    no: its number
annotations: {read_only: true}
icons: [{src: "https://x.example/i.png", mime_type: image/png}]

input_schema:
  $schema: "http://json-schema.org/draft-07/schema#"
  type: object
  properties:
    "no": {$ref: "#/definitions/number"}
    full: {type: boolean, default: false}
  required: ["no"]
  additionalProperties: false
  definitions:
    number: {type: string, pattern: "^#[0-9]+$", examples: ["1.10", "no"]}

output_schema:
  type: object
  properties: {total: {type: number, minimum: 0.0}}
metadata:
  annotations: {audience: [user]}

mode: mcp
mcp: {server: shop, tool: get-order}

# To use the tool without the server, in tests and scenarios, add a mock and use `--mode mock`:
# mock:
#   generate: true
"""
    )
    assert (file.key, file.name, file.file) == ("get-order", "shop__get-order", "shop__get-order.tool.yaml")


@pytest.mark.parametrize("definition", [ORDER, {"name": "ping", "inputSchema": OBJECT}])
def test_the_hint_is_a_mock_when_it_is_no_comment_any_more(definition):
    (file,) = files(definition)
    hint = file.text.index("# mock:")
    text = file.text[:hint] + file.text[hint:].replace("# ", "")
    tool = descriptor(file._replace(text=text))
    assert tool.mode == "mcp"
    assert set(tool.bindings) == {"mcp", "mock"}


def test_schemas_stand_in_the_file_as_the_server_gives_them():
    (file,) = files(ORDER)
    tool = descriptor(file)
    assert json.dumps(tool.input_schema) == json.dumps(ORDER["inputSchema"])
    assert json.dumps(tool.output_schema) == json.dumps(ORDER["outputSchema"])
    assert tool.bindings == {"mcp": {"server": "shop", "tool": "get-order"}}


def test_what_yaml_would_read_as_anything_else_is_written_as_json():
    # In YAML, 5 in the place of a text is the text that was written.
    definition = {
        "name": "a",
        "inputSchema": {"type": "object", "properties": {"b": {"type": "string", "default": 5}}},
    }
    (file,) = files(definition, schema="s.json")
    assert file.file == "shop__a.tool.json"
    assert json.loads(file.text)["$schema"] == "s.json"
    assert descriptor(file).input_schema == definition["inputSchema"]
    assert [problem.code for problem in file.problems] == ["default_mismatch"]


def test_a_bad_tool_is_refused_and_hides_no_other():
    good, bad = {"name": "good", "inputSchema": OBJECT}, {"name": "bad", "inputSchema": {"type": "array"}}
    broken = {"name": "broken", "inputSchema": {"type": "object", "properties": {"a": {"$ref": "#/none"}}}}
    made = made_of(SERVER, offered(bad, good, broken, refused={"#3": "it has no name"}))
    assert [file.name for file in made.files] == ["shop__good"]
    assert set(made.refused) == {"bad", "broken", "#3"}
    assert "array" in made.refused["bad"]
    assert "/properties/a" in made.refused["broken"]


def test_filters_of_the_server_hold():
    made = made_of(
        SERVER._replace(only=("a*",)),
        offered(
            {"name": "ab", "inputSchema": OBJECT}, {"name": "b", "inputSchema": OBJECT}, refused={"c": "no"}
        ),
    )
    assert ([file.key for file in made.files], made.refused) == (["ab"], {})


@pytest.mark.parametrize(
    ("prefix", "names"),
    [
        (None, ["shop__get", "shop__2fa", "shop__a_b"]),
        ("", ["get", "_2fa", "a_b"]),
        ("my_", ["my_get", "my_2fa", "my_a_b"]),
    ],
)
def test_names_begin_with_the_server_or_as_is_asked(prefix, names):
    definitions = [{"name": name, "inputSchema": OBJECT} for name in ("get", "2fa", "a b")]
    made = files(*definitions, prefix=prefix)
    assert [file.name for file in made] == names
    assert [descriptor(file).bindings["mcp"]["tool"] for file in made] == ["get", "2fa", "a b"]


def test_a_prefix_that_is_no_name_refuses_every_tool():
    made = made_of(SERVER, offered({"name": "a", "inputSchema": OBJECT}), prefix="x y/")
    assert made.files == ()
    assert "/name" in made.refused["a"]


def test_files_have_names_that_every_system_has():
    names = ["Get", "get", "GET", "con", "../up", "nul.x", "é"]
    made = files(*({"name": name, "inputSchema": OBJECT} for name in names), prefix="")
    assert [file.file for file in made] == [
        "Get.tool.yaml",
        "get_2.tool.yaml",
        "GET_3.tool.yaml",
        "con_.tool.yaml",
        "_.._up.tool.yaml",
        "nul.x_.tool.yaml",
        "_.tool.yaml",
    ]


def test_characters_that_nobody_sees_are_told_and_stand_as_escapes():
    definition = {"name": "a", "description": "Adds\u200b numbers.", "inputSchema": OBJECT}
    made = made_of(SERVER, offered(definition))
    assert 'description: "Adds\\u200b numbers."' in made.files[0].text
    (remark,) = made.remarks
    assert remark.startswith(
        "the tool `a` contains 1 hidden character (first: U+200B ZERO WIDTH SPACE at character 5 of /description"
    )


def test_what_is_odd_about_the_list_is_told():
    odd = offered(
        {"name": "a b", "inputSchema": OBJECT}, {"name": "a_b", "inputSchema": OBJECT}, remarks=("a loop",)
    )
    made = made_of(SERVER, odd)
    assert [file.name for file in made.files] == ["shop__a_b_2", "shop__a_b"]
    assert made.remarks[0] == "a loop"
    assert "`shop__a_b_2` here" in made.remarks[1]


TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-1000, 1000) | st.floats(-1e6, 1e6) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=6,
)
PROPERTIES = st.dictionaries(
    TEXTS,
    st.fixed_dictionaries(
        {},
        optional={"description": TEXTS, "default": VALUES, "enum": st.lists(VALUES, min_size=1, max_size=3)},
    ),
    max_size=3,
)


@settings(deadline=None)
@given(TEXTS, PROPERTIES)
def test_whatever_a_server_writes_comes_back(description, properties):
    schema = {"type": "object", "properties": properties}
    (file,) = files({"name": "a", "description": description, "inputSchema": schema, "outputSchema": schema})
    tool = descriptor(file)
    assert tool.description == description
    assert json.dumps([tool.input_schema, tool.output_schema]) == json.dumps([schema, schema])
