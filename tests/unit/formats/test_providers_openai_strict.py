"""Schemas in OpenAI's strict mode, and what becomes of the arguments that are given for them."""

from __future__ import annotations

import pytest

from toolcrib.core.model import Descriptor
from toolcrib.formats.providers import Loss, declare


def declared(schema):
    (declaration,) = declare([Descriptor("tool", input_schema=schema)], "openai_strict")
    return declaration


def closed(required=(), **properties):
    told = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**told, "required": list(required)} if required else told


def strict_property(schema, *, required=True):
    """How one property is declared."""
    declaration = declared(closed(["a"] if required else [], a=schema))
    assert declaration.strict, declaration.losses
    return declaration.schema["properties"]["a"]


def reasons(schema):
    """Why there is no strict mode for a property: keyword and message."""
    declaration = declared(closed(a=schema))
    assert not declaration.strict
    assert "strict" not in declaration.definition["function"]
    suffix = ": declared without strict mode"
    return [
        (loss.keyword, loss.message.removesuffix(suffix))
        for loss in declaration.losses
        if loss.message.endswith(suffix)
    ]


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        ({"type": "string"}, {"type": ["string", "null"]}),
        (
            {"enum": ["a", 1]},
            {
                "anyOf": [
                    {"type": "string", "enum": ["a"]},
                    {"type": "integer", "enum": [1]},
                    {"type": "null"},
                ]
            },
        ),
        ({"const": "a"}, {"type": ["string", "null"], "enum": ["a", None]}),
        ({"type": ["string", "null"]}, {"type": ["string", "null"]}),
        (
            {"type": "array", "items": {"type": "string"}},
            {"type": ["array", "null"], "items": {"type": "string"}},
        ),
        (
            {"anyOf": [{"type": "string"}, {"type": "integer"}], "description": "Either"},
            {"anyOf": [{"type": "string"}, {"type": "integer"}, {"type": "null"}], "description": "Either"},
        ),
    ],
)
def test_an_optional_property_may_be_null(schema, told):
    assert strict_property(schema, required=False) == told


@pytest.mark.parametrize(
    ("schema", "told"),
    [
        (
            {"type": "string", "format": "date", "pattern": "^2"},
            {"type": "string", "format": "date", "pattern": "^2"},
        ),
        (
            {"type": "number", "exclusiveMinimum": 0, "maximum": 5, "multipleOf": 0.5},
            {"type": "number", "exclusiveMinimum": 0, "maximum": 5, "multipleOf": 0.5},
        ),
        (
            {"type": "array", "items": {"type": "null"}, "minItems": 1, "maxItems": 2},
            {"type": "array", "items": {"type": "null"}, "minItems": 1, "maxItems": 2},
        ),
        ({"type": ["integer", "number"]}, {"type": "number"}),
        (
            {"type": ["string", "array"], "items": {"type": "integer"}, "pattern": "a"},
            {"anyOf": [{"type": "string", "pattern": "a"}, {"type": "array", "items": {"type": "integer"}}]},
        ),
        (
            {"allOf": [{"type": "integer", "minimum": 1}, {"minimum": 3}], "title": "N"},
            {"type": "integer", "minimum": 3, "title": "N"},
        ),
        (
            {"type": "object", "anyOf": [closed(["k"], k={"const": "x"}), {"type": "null"}]},
            {
                "type": "object",
                "properties": {"k": {"type": "string", "enum": ["x"]}},
                "required": ["k"],
                "additionalProperties": False,
            },
        ),
    ],
)
def test_what_strict_mode_has_stays(schema, told):
    assert strict_property(schema) == told


@pytest.mark.parametrize(
    ("schema", "description"),
    [
        ({"type": "string", "minLength": 2, "description": "Word"}, "Word. Minimum length: 2."),
        ({"type": "string", "format": "uri", "description": "Where?"}, "Where? Format: uri."),
        ({"type": "string", "pattern": "^(?!a)"}, "Pattern: ^(?!a)."),
        ({"type": "integer", "default": 5, "examples": [1]}, "Default: 5. Examples: [1]."),
        ({"type": "string", "default": "x"}, 'Default: "x".'),
        ({"type": "string", "deprecated": True}, "Deprecated."),
        ({"type": "array", "items": {"type": "string"}, "uniqueItems": True}, "Items are unique."),
        ({"type": "string", "pattern": "a" * 300 + "(?=b)"}, None),
    ],
)
def test_other_bounds_are_told_in_the_description(schema, description):
    declaration = declared(closed(["a"], a=schema))
    assert declaration.schema["properties"]["a"].get("description") == description
    assert {loss.pointer for loss in declaration.losses} == {"/properties/a"}
    message = "dropped" if description is None else "moved to the description"
    assert {loss.message for loss in declaration.losses} == {message}


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "string", "minLength": 0},
        {"type": "array", "items": {"type": "string"}, "uniqueItems": False},
    ],
)
def test_a_keyword_that_says_nothing_is_no_loss(schema):
    assert declared(closed(["a"], a=schema)).losses == ()


@pytest.mark.parametrize(
    ("schema", "keyword", "message"),
    [
        ({"type": "object"}, "properties", "strict mode does not support objects with arbitrary properties"),
        (
            {"type": "object", "additionalProperties": {"type": "string"}},
            "additionalProperties",
            "strict mode does not support arbitrary properties",
        ),
        (
            {"type": "object", "properties": {"b": {"type": "string"}}, "additionalProperties": True},
            "additionalProperties",
            "strict mode does not support arbitrary properties",
        ),
        (closed(b={}), "type", "strict mode does not support values of any type"),
        ({}, "type", "strict mode does not support values of any type"),
        ({"type": "array"}, "type", "strict mode does not support values of any type"),
        (
            {"type": "object", "patternProperties": {"^x": {}}, "additionalProperties": False},
            "patternProperties",
            "strict mode does not support this keyword",
        ),
        (
            {"type": "array", "prefixItems": [{"type": "string"}]},
            "prefixItems",
            "strict mode does not support this keyword",
        ),
        ({"type": "string", "not": {"const": "a"}}, "not", "strict mode does not support this keyword"),
        (
            {"type": "string", "if": {"const": "a"}, "then": {"minLength": 2}},
            "if",
            "strict mode does not support this keyword",
        ),
        ({"enum": [["a"]]}, "enum", "strict mode accepts only strings, numbers and booleans here"),
        (
            {"allOf": [{"type": "string", "pattern": "a"}, {"pattern": "b"}]},
            "allOf",
            "strict mode does not support this keyword",
        ),
        ({"enum": [f"v{number}" for number in range(1001)]}, "", "exceeds 1,000 values of `enum`"),
        (
            {"enum": [f"{number}{'x' * 80}" for number in range(300)]},
            "",
            "exceeds 15,000 characters in an `enum` of more than 250 values",
        ),
    ],
)
def test_a_tool_that_strict_mode_can_not_say_is_declared_without_it(schema, keyword, message):
    assert (keyword, message) in reasons(schema)


def test_whatever_stands_in_the_way_is_told_at_once_with_its_place():
    schema = closed(a={"type": "object"}, b={"type": "array", "items": {}})
    assert [loss[:2] for loss in declared(schema).losses] == [
        ("/properties/a", "properties"),
        ("/properties/b/items", "type"),
    ]


def test_without_strict_mode_the_schema_is_told_as_it_is():
    schema = closed(a={"type": "object", "additionalProperties": {"type": "string"}, "default": {}})
    assert declared(schema).schema == schema
    assert declared(schema).restore({"a": None}) == {"a": None}


def test_an_object_that_does_not_say_so_is_closed_and_that_is_a_loss():
    schema = {"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]}
    message = "is not set; undeclared properties cannot be given"
    assert declared(schema).losses == (Loss("", "additionalProperties", message),)


# Arguments in the tool's own form again.

TRIP = closed(
    ["to"],
    to={"type": "string"},
    note={"type": ["string", "null"]},
    days={"type": "integer"},
    stops={"type": "array", "items": closed(["city"], city={"type": "string"}, nights={"type": "integer"})},
    pay={
        "oneOf": [
            closed(["kind"], kind={"const": "card"}, number={"type": "string"}),
            closed(["kind"], kind={"const": "cash"}, change={"type": ["null", "boolean"]}),
        ]
    },
)


def test_null_that_stands_for_what_is_not_given_is_dropped():
    given = {
        "to": "Rome",
        "note": None,
        "days": None,
        "stops": [{"city": "Pisa", "nights": None}, {"city": "Siena", "nights": 2}],
        "pay": {"kind": "card", "number": None},
    }
    assert declared(TRIP).restore(given) == {
        "to": "Rome",
        "note": None,
        "stops": [{"city": "Pisa"}, {"city": "Siena", "nights": 2}],
        "pay": {"kind": "card"},
    }


def test_null_that_the_tool_takes_is_kept():
    restore = declared(TRIP).restore
    assert restore({"to": "R", "pay": {"kind": "cash", "change": None}}) == {
        "to": "R",
        "pay": {"kind": "cash", "change": None},
    }
    message = "null is given if it is omitted, and the tool also accepts null"
    assert Loss("/properties/note", "required", message) in declared(TRIP).losses


def test_what_does_not_fit_is_passed_on_for_the_tool_to_refuse():
    restore = declared(TRIP).restore
    for given in (
        {"to": 1, "stops": "x"},
        {"stops": [None, {"nights": []}]},
        {"pay": {"kind": "gold", "x": None}},
        {"other": None},
    ):
        assert restore(given) == given
    assert restore({"to": None}) == {"to": None}
