"""Tools as an OpenAPI document, judged by a validator of OpenAPI and by validators of JSON Schema."""

from __future__ import annotations

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st
from openapi_spec_validator import OpenAPIV31SpecValidator
from referencing import Registry as Documents
from referencing.jsonschema import DRAFT202012

from toolcrib import Descriptor
from toolcrib.formats.openapi_document import openapi_document

TREE = {
    "type": "object",
    "properties": {
        "tree": {"$ref": "#/$defs/node"},
        "same": {"$ref": "#/properties/tree"},
        "self": {"$ref": "#"},
    },
    "additionalProperties": False,
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "inner": {"type": "array", "items": {"$ref": "#/$defs/node"}},
            },
            "required": ["name"],
        }
    },
}


def exported(*tools, **more):
    made = openapi_document(tools, {}, title="shop", version="1.0.0", **more)
    OpenAPIV31SpecValidator(made.document).validate()
    return made


def validator_of(document, reference):
    documents = Documents().with_resource("urn:document", DRAFT202012.create_resource(document))
    return jsonschema.Draft202012Validator({"$ref": f"urn:document{reference['$ref']}"}, registry=documents)


def body_of(document, name):
    operation = document["paths"][f"/tools/{name}"]["post"]
    return operation["requestBody"]["content"]["application/json"]["schema"]


def test_an_operation_says_what_the_tool_says():
    tool = Descriptor(
        "find",
        title="Find",
        description="Find an order.",
        tags=("orders",),
        input_schema={"type": "object", "properties": {"number": {"type": "string"}}},
        output_schema={"type": "object"},
        deprecated="use seek",
        help_url="https://example.com/find",
    )
    document = exported(tool, server="https://api.example.com", description="Orders.").document
    operation = document["paths"]["/tools/find"]["post"]
    assert document["info"] == {"title": "shop", "version": "1.0.0", "description": "Orders."}
    assert document["servers"] == [{"url": "https://api.example.com"}]
    assert (operation["operationId"], operation["summary"], operation["tags"]) == ("find", "Find", ["orders"])
    assert operation["description"] == "Find an order."
    assert operation["deprecated"] is True
    assert operation["externalDocs"] == {"url": "https://example.com/find"}
    result = operation["responses"]["200"]["content"]["application/json"]["schema"]
    assert document["components"]["schemas"][result["$ref"].rpartition("/")[2]] == {"type": "object"}


@pytest.mark.parametrize(
    ("arguments", "valid"),
    [
        ({"tree": {"name": "a", "inner": [{"name": "b", "inner": []}]}}, True),
        ({"tree": {"name": "a", "inner": [{"inner": []}]}}, False),
        ({"same": {"name": "a"}, "self": {"tree": {"name": "b"}}}, True),
        ({"same": {}}, False),
        ({"self": {"tree": {}}}, False),
        ({"other": 1}, False),
    ],
)
def test_references_keep_their_meaning(arguments, valid):
    made = exported(Descriptor("walk", input_schema=TREE))
    assert made.losses == ()
    assert validator_of(made.document, body_of(made.document, "walk")).is_valid(arguments) is valid


def test_data_that_looks_like_a_reference_stays():
    data = {"$ref": "#/$defs/node"}
    schema = {
        **TREE,
        "default": data,
        "examples": [data],
        "properties": {"a": {"const": data}, "b": {"enum": [data]}},
    }
    document = openapi_document([Descriptor("t", input_schema=schema)], {}, title="t", version="1").document
    moved = document["components"]["schemas"]["t.input"]
    assert (moved["default"], moved["examples"]) == (data, [data])
    assert moved["properties"] == {"a": {"const": data}, "b": {"enum": [data]}}


def test_definitions_of_two_tools_and_odd_names_do_not_meet():
    odd = {
        "type": "object",
        "properties": {"a": {"$ref": "#/$defs/x~1y"}},
        "$defs": {"x/y": {"type": "integer"}},
    }
    old = {
        "type": "object",
        "properties": {"a": {"$ref": "#/definitions/n"}},
        "definitions": {"n": {"type": "null"}},
    }
    made = exported(
        Descriptor("walk", input_schema=TREE),
        Descriptor("odd", input_schema=odd),
        Descriptor("old", input_schema=old),
    )
    assert validator_of(made.document, body_of(made.document, "odd")).is_valid({"a": 1})
    assert not validator_of(made.document, body_of(made.document, "odd")).is_valid({"a": "1"})
    assert not validator_of(made.document, body_of(made.document, "old")).is_valid({"a": 1})
    assert validator_of(made.document, body_of(made.document, "walk")).is_valid({"tree": {"name": "a"}})


def test_anchors_are_inlined():
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#number"}},
        "$defs": {"n": {"$anchor": "number", "type": "integer"}},
    }
    made = exported(Descriptor("find", input_schema=schema))
    assert made.document["components"]["schemas"]["find.input"]["properties"]["a"] == {"type": "integer"}


def test_what_cannot_be_inlined_is_told():
    schema = {
        "type": "object",
        "properties": {"a": {"$ref": "#node"}},
        "$defs": {"n": {"$anchor": "node", "type": "object", "properties": {"b": {"$ref": "#node"}}}},
    }
    made = exported(Descriptor("find", input_schema=schema))
    assert [tool for tool, _message in made.losses] == ["find"]
    assert made.losses[0][1].startswith("input_schema: ")


NAMES = st.text("ab$/~ .", min_size=1, max_size=4)


@given(
    st.dictionaries(
        NAMES, st.sampled_from([{"type": "integer"}, {"type": "string"}, {"enum": [1, "x"]}]), min_size=1
    ),
    st.data(),
)
def test_any_definition_is_found_again(definitions, data):
    name = data.draw(st.sampled_from(sorted(definitions)))
    place = name.replace("~", "~0").replace("/", "~1").replace(" ", "%20")
    schema = {"type": "object", "properties": {"a": {"$ref": f"#/$defs/{place}"}}, "$defs": definitions}
    made = openapi_document([Descriptor("t", input_schema=schema)], {}, title="t", version="1")
    moved = validator_of(made.document, body_of(made.document, "t"))
    own = jsonschema.Draft202012Validator(schema)
    for value in (1, "x", None):
        assert moved.is_valid({"a": value}) is own.is_valid({"a": value})


def test_an_operation_has_an_id_that_fastmcp_does_not_cut():
    tools = [Descriptor("a__b"), Descriptor("a_b"), Descriptor("a__c")]
    paths = openapi_document(tools, {}, title="t", version="1").document["paths"]
    ids = {path: item["post"]["operationId"] for path, item in paths.items()}
    assert ids == {"/tools/a__b": "a__b", "/tools/a__c": "a_c", "/tools/a_b": "a_b"}


def test_a_body_is_required_if_a_call_without_arguments_is_refused():
    needed = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    made = exported(Descriptor("bare"), Descriptor("full", input_schema=needed))
    bodies = {path: item["post"]["requestBody"] for path, item in made.document["paths"].items()}
    assert [bodies[f"/tools/{name}"].get("required") for name in ("bare", "full")] == [None, True]


def test_a_definition_that_is_one_object_at_two_places_is_referenced_from_both():
    one = {"$ref": "#/$defs/x"}
    schema = {
        "type": "object",
        "properties": {"a": one, "b": one},
        "$defs": {"x": {"properties": {"a": one}}},
    }
    made = openapi_document([Descriptor("tool", input_schema=schema)], {}, title="t", version="1")
    assert made.document["components"]["schemas"]["tool.input"]["properties"] == {
        "a": {"$ref": "#/components/schemas/tool.input.x"},
        "b": {"$ref": "#/components/schemas/tool.input.x"},
    }
