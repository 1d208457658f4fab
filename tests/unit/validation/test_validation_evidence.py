"""What is evident needs no longer look, and the longer look never finds anything in it."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from toolcrib.validation import Validator, check_schema
from toolcrib.validation.evidence import is_evident

SCALARS = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 3), st.floats(-2, 2), st.sampled_from(["", "a", "b"])
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=2), st.dictionaries(st.sampled_from(["a", "b", "$ref"]), inner, max_size=2)
    ),
    max_leaves=4,
)
TYPES = st.sampled_from(["string", "integer", "number", "object", "array", "boolean", "null", "strng"])
PATTERNS = st.sampled_from(["^a+$", "(", "(?=a)b", "^(a+)+$", r"\p{L}", "(?<x>a)\\k<x>"])


def keywords(inner):
    """Schemas with few keywords, right and wrong."""
    named = st.dictionaries(st.sampled_from(["a", "b", "$ref", "$id", "default"]), inner, max_size=2)
    every = {
        "$comment": VALUES,
        "$defs": named,
        "$id": st.sampled_from(["https://example.com/x", "#x", ""]),
        "$ref": st.sampled_from(["#", "#/properties/a", "#/nowhere", "https://example.com/x"]),
        "additionalProperties": inner,
        "anyOf": st.lists(inner, max_size=2),
        "const": VALUES,
        "default": VALUES,
        "dependencies": named,
        "enum": st.lists(VALUES, max_size=2),
        "examples": VALUES,
        "if": inner,
        "items": inner,
        "maxLength": st.sampled_from([0, 1, 1.0, -1, 10**20, "1"]),
        "maximum": st.sampled_from([0, 1.5, 10**400, True, None]),
        "minItems": st.sampled_from([0, 1, 2.5]),
        "not": inner,
        "pattern": PATTERNS,
        "patternProperties": st.dictionaries(PATTERNS, inner, max_size=1),
        "prefixItems": st.lists(inner, max_size=2),
        "properties": named,
        "required": st.sampled_from([["a"], ["a", "a"], [1], "a"]),
        "type": st.one_of(TYPES, st.lists(TYPES, max_size=2)),
        "unknown": VALUES,
    }
    pairs = st.sampled_from(sorted(every)).flatmap(lambda key: st.tuples(st.just(key), every[key]))
    return st.lists(pairs, max_size=4).map(dict)


SCHEMAS = st.recursive(st.one_of(st.booleans(), keywords(st.just({}))), keywords, max_leaves=6)


@given(SCHEMAS, st.lists(VALUES, max_size=2))
@example({"pattern": "(?=a)b", "properties": {"a": {"pattern": "^(a+)+$"}}}, ["b"])
@example({"default": {"a": 1}, "properties": {"a": {"default": 1, "type": "string"}}}, [])
@settings(max_examples=1_000, deadline=None)
def test_the_longer_look_finds_nothing_in_what_is_evident(schema, values):
    if is_evident([(schema, values)]):
        assert check_schema(schema) == []
        validator = Validator(schema)
        assert [validator.faults(value) for value in values] == [[] for _ in values]


EVERYDAY = {
    "type": "object",
    "description": "What people write.",
    "properties": {
        "city": {"type": "string", "minLength": 1, "examples": ["Oslo"]},
        "days": {"type": "integer", "minimum": 1, "maximum": 7, "default": 3},
        "units": {"enum": ["metric", "imperial"], "default": "metric"},
        "when": {"type": "string", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"},
        "tags": {"type": "array", "items": {"type": "string"}, "maxItems": 10, "default": []},
        "place": {"anyOf": [{"type": "null"}, {"type": "object", "properties": {"lat": {"type": "number"}}}]},
    },
    "required": ["city"],
    "additionalProperties": False,
}


def test_everyday_schemas_are_evident():
    assert is_evident([(EVERYDAY, [{"city": "Oslo"}, {"city": "Rome", "days": 7}]), (True, [None]), ({}, [])])


def test_a_value_that_does_not_fit_is_not():
    assert not is_evident([(EVERYDAY, [{"city": "Oslo"}, {"city": ""}])])
    assert not is_evident([(EVERYDAY, []), ({"type": "null"}, [1])])


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "strng"},
        {"pattern": "("},
        {"items": {"pattern": "("}},
        {"if": {"pattern": "("}},
        {"type": "integer", "default": "a"},
        {"properties": {"a": {"anyOf": [{"type": "integer", "default": "a"}]}}},
        {"$ref": "#"},
        {"$ref": "https://example.com/"},
        {"$schema": "https://example.com/"},
        {"allOf": []},
        [],
        "object",
        None,
    ],
    ids=str,
)
def test_a_schema_with_a_fault_is_not(schema):
    assert not is_evident([(schema, [])])
    assert check_schema(schema) != []


def test_many_defaults_are_left_to_the_longer_look():
    crowd = {"properties": {f"p{number}": {"default": 1} for number in range(100)}}
    assert not is_evident([(crowd, [])])
    assert check_schema(crowd) == []


def test_deep_schemas_are_left_to_the_longer_look():
    schema = {}
    for _ in range(40):
        schema = {"not": schema}
    assert not is_evident([(schema, [])])
    assert check_schema(schema) == []
