"""Defaults fill in what is absent, wherever it is sure that they hold."""

from __future__ import annotations

from copy import deepcopy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toolcrib.schema.validation import compile_defaults

DRAFT_7 = "http://json-schema.org/draft-07/schema#"

INNER = {"properties": {"n": {"default": 1}}}

FILLED = {
    "absent": ({"properties": {"a": {"default": 1}}}, {}, {"a": 1}),
    "there": ({"properties": {"a": {"default": 1}}}, {"a": 2}, {"a": 2}),
    "null is there": ({"properties": {"a": {"default": 1}}}, {"a": None}, {"a": None}),
    "null is a default": ({"properties": {"a": {"default": None}}}, {}, {"a": None}),
    "within": ({"properties": {"a": INNER}}, {"a": {}, "b": 0}, {"a": {"n": 1}, "b": 0}),
    "not within what is absent": ({"properties": {"a": INNER}}, {}, {}),
    "items": ({"items": INNER}, [{}, {"n": 2}, 5], [{"n": 1}, {"n": 2}, 5]),
    "first items": (
        {"prefixItems": [{}, INNER], "items": {"properties": {"m": {"default": 2}}}},
        [{}, {}, {}],
        [{}, {"n": 1}, {"m": 2}],
    ),
    "no additional items": ({"prefixItems": [INNER]}, [{}, {}], [{"n": 1}, {}]),
    "first items of draft 7": (
        {"$schema": DRAFT_7, "items": [INNER], "additionalItems": {"properties": {"m": {"default": 2}}}},
        [{}, {}],
        [{"n": 1}, {"m": 2}],
    ),
    "list in a list": ({"items": {"items": INNER}}, [[{}], []], [[{"n": 1}], []]),
    "reference": ({"$ref": "#/$defs/a", "$defs": {"a": INNER}}, {}, {"n": 1}),
    "reference of a property": (
        {"properties": {"a": {"$ref": "#/$defs/a", "default": {}}}, "$defs": {"a": INNER}},
        {},
        {"a": {"n": 1}},
    ),
    "allOf": ({"allOf": [INNER, {"properties": {"m": {"default": 2}}}]}, {}, {"n": 1, "m": 2}),
    "the first default counts": (
        {"properties": {"n": {"default": 3}}, "allOf": [INNER, {"properties": {"n": {"default": 4}}}]},
        {},
        {"n": 3},
    ),
    "allOf within": (
        {"properties": {"a": {}}, "allOf": [{"properties": {"a": INNER}}]},
        {"a": {}},
        {"a": {"n": 1}},
    ),
    "default within a default": (
        {"properties": {"a": {"default": {"list": [{}]}, "properties": {"list": {"items": INNER}}}}},
        {},
        {"a": {"list": [{"n": 1}]}},
    ),
    "default of the items in a default": (
        {"properties": {"a": {"default": [{}, 5], "prefixItems": [INNER]}}},
        {},
        {"a": [{"n": 1}, 5]},
    ),
    "tree": (
        {"properties": {"depth": {"default": 0}, "children": {"items": {"$ref": "#"}}}},
        {"children": [{"children": [{}]}]},
        {"depth": 0, "children": [{"depth": 0, "children": [{"depth": 0}]}]},
    ),
    "its own subschema refuses it": (
        {"properties": {"a": {"type": "string", "default": None}, "b": {"default": 1}}},
        {},
        {"b": 1},
    ),
    "refused within": (
        {"properties": {"a": {"properties": {"b": {"type": "string", "default": 1}, "c": {"default": 2}}}}},
        {"a": {}},
        {"a": {"c": 2}},
    ),
    "refused within a default": (
        {
            "properties": {
                "a": {"default": {}, "properties": {"b": {"enum": [1], "default": 2}, "c": {"default": 3}}}
            }
        },
        {},
        {"a": {"c": 3}},
    ),
    "refused by another part of allOf": (
        {
            "properties": {"a": {"default": None}, "b": {"default": 1}},
            "allOf": [{"properties": {"a": {"type": "string"}}}],
        },
        {},
        {"b": 1},
    ),
    "refused by a reference": (
        {
            "properties": {"a": {"$ref": "#/$defs/s", "default": None}, "b": {"default": 1}},
            "$defs": {"s": {"type": "string"}},
        },
        {},
        {"b": 1},
    ),
    "refused by draft 7": (
        {"$schema": DRAFT_7, "properties": {"a": {"const": 1, "default": 2}, "b": {"default": 1}}},
        {},
        {"b": 1},
    ),
    "null by anyOf": (
        {"properties": {"a": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}}},
        {},
        {"a": None},
    ),
    "whole with what is within it": (
        {"properties": {"a": {"default": {}, "required": ["b"], "properties": {"b": {"default": 1}}}}},
        {},
        {"a": {"b": 1}},
    ),
    "another kind of value": ({"properties": {"a": {"default": 1}}}, [], []),
    "another kind of value for a list": ({"items": INNER}, "x", "x"),
}


@pytest.mark.parametrize(("schema", "value", "filled"), FILLED.values(), ids=FILLED)
def test_what_is_absent_is_filled_in(schema, value, filled):
    fill = compile_defaults(schema)
    before = deepcopy(value)
    assert fill(value) == filled
    assert value == before
    assert fill(filled) is filled


NONE = {
    "true": True,
    "no defaults": {"type": "object", "properties": {"a": {"items": {"type": "integer"}}}},
    "at the root": {"default": {}},
    "anyOf": {"anyOf": [INNER]},
    "oneOf": {"oneOf": [INNER]},
    "if": {"if": INNER, "then": INNER, "else": INNER},
    "not": {"not": INNER},
    "definitions alone": {"$defs": {"a": INNER}},
    "dependentSchemas": {"dependentSchemas": {"a": INNER}},
    "beside a reference in draft 7": {
        "$schema": DRAFT_7,
        "$ref": "#/definitions/a",
        "definitions": {"a": {}},
        **INNER,
    },
    "refused by its own subschema": {"properties": {"a": {"type": "string", "default": None}}},
    "endless": {"properties": {"a": {"$ref": "#", "default": {}}}},
    "dangling": {"properties": {"a": {"$ref": "#/$defs/x"}}},
}


@pytest.mark.parametrize("schema", NONE.values(), ids=NONE)
def test_a_schema_without_a_default_that_surely_holds_costs_nothing(schema):
    assert compile_defaults(schema) is None


def test_a_value_without_gaps_is_returned_itself():
    fill = compile_defaults({"properties": {"a": INNER, "l": {"items": INNER}}})
    for value in ({}, {"a": {"n": 1}}, {"l": [{"n": 1}, 5]}, [], 5, None, "x"):
        assert fill(value) is value


def test_containers_are_copied_along_the_way_alone():
    fill = compile_defaults({"properties": {"a": INNER, "l": {"items": INNER}}})
    value = {"a": {}, "l": [{}, {"n": 2}], "other": {"x": []}}
    filled = fill(value)
    assert value == {"a": {}, "l": [{}, {"n": 2}], "other": {"x": []}}
    assert filled == {"a": {"n": 1}, "l": [{"n": 1}, {"n": 2}], "other": {"x": []}}
    assert filled["other"] is value["other"]
    assert filled["l"][1] is value["l"][1]


def test_each_value_gets_its_own_copy_of_a_default():
    schema = {"properties": {"a": {"default": {"list": []}}}}
    fill = compile_defaults(schema)
    fill({})["a"]["list"].append(1)
    assert fill({}) == {"a": {"list": []}}
    assert schema == {"properties": {"a": {"default": {"list": []}}}}


def test_a_default_that_would_grow_without_end_is_left_out_and_the_others_stay():
    schema = {"properties": {"next": {"$ref": "#", "default": {}}, "n": {"default": 1}}}
    fill = compile_defaults(schema)
    assert fill({}) == {"n": 1}
    assert fill({"next": {}}) == {"next": {"n": 1}, "n": 1}


def test_a_default_that_would_grow_beyond_bounds_is_left_out():
    table = {
        f"l{step}": {"properties": {name: {"$ref": f"#/$defs/l{step + 1}", "default": {}} for name in "abcd"}}
        for step in range(10)
    }
    fill = compile_defaults({"$ref": "#/$defs/l0", "$defs": {**table, "l10": INNER}})
    assert fill({}) == {}
    assert fill({"a": {"a": {"a": {"a": {"a": {"a": {"a": {"a": {"a": {}}}}}}}}}}) != {}


NAMES = st.sampled_from("abc")
SCALARS = st.none() | st.integers(0, 3)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)


def _schemas(inner):
    return (
        st.builds(lambda table: {"properties": table}, st.dictionaries(NAMES, inner, max_size=3))
        | st.builds(lambda item: {"items": item}, inner)
        | st.builds(
            lambda first, rest: {"prefixItems": first, "items": rest},
            st.lists(inner, min_size=1, max_size=2),
            inner,
        )
        | st.builds(lambda parts: {"allOf": parts}, st.lists(inner, min_size=1, max_size=2))
        | st.builds(lambda part, value: {**part, "default": value}, inner, VALUES)
        | st.just({"$ref": "#"})
    )


SCHEMAS = st.recursive(st.builds(lambda value: {"default": value}, VALUES), _schemas, max_leaves=8)


def holds(filled, value):
    """Whether a value is still there, with nothing but further properties."""
    if isinstance(value, dict):
        return isinstance(filled, dict) and all(
            name in filled and holds(filled[name], value[name]) for name in value
        )
    if isinstance(value, list):
        return (
            isinstance(filled, list)
            and len(filled) == len(value)
            and all(holds(*pair) for pair in zip(filled, value, strict=True))
        )
    return filled == value


@settings(deadline=None)
@given(schema=SCHEMAS, value=VALUES)
def test_filling_in_twice_is_filling_in_once_and_changes_nothing_that_is_there(schema, value):
    fill = compile_defaults(schema)
    if fill is None:
        return
    before = deepcopy(value)
    filled = fill(value)
    assert value == before
    assert holds(filled, value)
    assert fill(filled) == filled
