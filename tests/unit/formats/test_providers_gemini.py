"""Schemas for Gemini's function declarations, and what becomes of the arguments that are given for them."""

from __future__ import annotations

import pytest

from toolcrib.core.model import Descriptor
from toolcrib.formats.providers import Loss, declare


def declared(schema):
    (declaration,) = declare([Descriptor("tool", input_schema=schema)], "gemini")
    return declaration


def of(**properties):
    return declared({"type": "object", "properties": properties})


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"type": ["string", "null"], "maxLength": 3}, {"type": "string", "maxLength": 3, "nullable": True}),
        ({"type": "string", "format": "date-time"}, {"type": "string", "format": "date-time"}),
        (
            {"type": "integer", "format": "int32", "minimum": 1},
            {"type": "integer", "format": "int32", "minimum": 1},
        ),
        ({"type": "string", "format": "email"}, {"type": "string", "description": "Format: email."}),
        ({"type": "number", "exclusiveMinimum": 0}, {"type": "number", "description": "Greater than 0."}),
        ({"const": "a"}, {"type": "string", "enum": ["a"]}),
        ({"enum": [1, "b", None, True]}, {"type": "string", "enum": ["1", "b", "true"], "nullable": True}),
        (
            {"type": "array"},
            {
                "type": "array",
                "items": {"type": "string", "description": "JSON text of a value of any type."},
            },
        ),
        (
            {"type": "array", "prefixItems": [{"type": "string"}, {"type": "integer"}], "items": False},
            {
                "type": "array",
                "items": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
                "description": 'Items in order: [{"type":"string"},{"type":"integer"}].',
            },
        ),
        (
            {
                "oneOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}],
                "description": "Either",
                "default": 1,
            },
            {
                "anyOf": [
                    {"type": "string", "description": "Either. Default: 1.", "nullable": True},
                    {"type": "integer"},
                ]
            },
        ),
        (
            {"type": "object", "additionalProperties": {"type": "number"}},
            {
                "type": "string",
                "description": 'JSON text of an object. additionalProperties: {"type":"number"}.',
            },
        ),
        (
            {"properties": {"x": {"type": "string"}}, "required": ["x", "y"]},
            {
                "type": "object",
                "properties": {
                    "x": {"type": "string"},
                    "y": {"type": "string", "description": "JSON text of a value of any type."},
                },
                "required": ["x", "y"],
            },
        ),
        (
            {"type": "string", "not": {"const": "a"}},
            {"type": "string", "description": 'Not: {"const":"a"}.'},
        ),
        ({"type": "null"}, {"type": "string", "description": "Always null.", "nullable": True}),
        ({"enum": ["", "a"]}, {"type": "string", "description": 'One of ["","a"].'}),
    ],
)
def test_a_schema_is_told_in_the_subset(schema, told):
    assert of(a=schema).schema["properties"]["a"] == told


def test_losses_name_the_place_the_keyword_and_what_became_of_it():
    schema = {
        "type": "object",
        "additionalProperties": False,
        "properties": {"a": {"type": "object", "properties": {"m": {"type": "object"}}, "unknown": 1}},
    }
    assert declared(schema).losses == (
        Loss("", "additionalProperties", "undeclared properties cannot be forbidden"),
        Loss("/properties/a/properties/m", "type", "an object is given as JSON text"),
        Loss("/properties/a", "unknown", "dropped"),
    )


def test_values_are_of_their_own_type_again():
    restore = of(
        level={"enum": [1, 2.5, True, "1st", None]},
        filter={"type": "object"},
        any={},
        list={"type": "array", "items": {"enum": [10]}},
        nothing={"type": "null"},
    ).restore
    given = {"level": "2.5", "filter": '{"a": [1]}', "any": "[null]", "list": ["10", "11"], "nothing": "null"}
    assert restore(given) == {
        "level": 2.5,
        "filter": {"a": [1]},
        "any": [None],
        "list": [10, "11"],
        "nothing": None,
    }
    assert restore({"level": None, "filter": {"a": 1}, "any": "hello", "list": "x"}) == {
        "level": None,
        "filter": {"a": 1},
        "any": "hello",
        "list": "x",
    }
    assert restore({"any": "NaN", "filter": "{"}) == {"any": "NaN", "filter": "{"}


def test_a_text_that_could_mean_two_values_means_the_text():
    declaration = of(a={"enum": [1, "1"]})
    assert declaration.schema["properties"]["a"] == {"type": "string", "enum": ["1"]}
    assert declaration.restore({"a": "1"}) == {"a": "1"}
    assert (
        Loss(
            "/properties/a",
            "enum",
            "`1` stands for the string; another value with the same text cannot be given",
        )
        in declaration.losses
    )


def test_arguments_of_no_fixed_form_are_given_as_json_text():
    declaration = declared({"type": "object", "additionalProperties": {"type": "integer"}})
    assert [*declaration.schema["properties"]] == ["arguments"]
    assert declaration.restore({"arguments": '{"a": 1}'}) == {"a": 1}
    assert declaration.restore({"arguments": "[1]"}) == {"arguments": "[1]"}


def test_a_subschema_of_very_many_options_takes_any_value():
    kinds = [{"type": "object", "properties": {f"p{number}": {"type": "string"}}} for number in range(40)]
    declaration = of(a={"anyOf": kinds})
    assert declaration.schema["properties"]["a"]["type"] == "string"
    assert (
        Loss("/properties/a", "anyOf", "has more than 32 options; any value is accepted")
        in declaration.losses
    )


def test_several_options_of_an_object_are_multiplied_out():
    declaration = of(
        a={
            "type": "object",
            "properties": {"id": {"type": "integer"}},
            "anyOf": [
                {"properties": {"x": {"enum": [1]}}, "required": ["x"]},
                {"properties": {"y": {"type": "string"}}},
            ],
        }
    )
    first, second = declaration.schema["properties"]["a"]["anyOf"]
    assert [*first["properties"]] == ["id", "x"]
    assert [*second["properties"]] == ["id", "y"]
    assert declaration.restore({"a": {"id": 1, "x": "1"}}) == {"a": {"id": 1, "x": 1}}
