"""What is evident needs no longer look, and the longer look never finds anything in it."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from sampling import examples
from toolcrib.schema.validation import Validator, check_schema
from toolcrib.schema.validation.schema_check import is_evident

DRAFT_7 = "http://json-schema.org/draft-07/schema"
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
REFERENCES = st.sampled_from(
    ["#", "#/properties/a", "#/nowhere", "https://example.com/x", "#/$defs/a", "#/$defs/b"]
)
DIALECTS = st.sampled_from(["https://json-schema.org/draft/2020-12/schema", DRAFT_7, f"{DRAFT_7}#", "x"])
PATTERNS = st.sampled_from(["^a+$", "(", "(?=a)b", "^(a+)+$", r"\p{L}", "(?<x>a)\\k<x>"])


def keywords(inner):
    """Schemas with few keywords, right and wrong."""
    named = st.dictionaries(st.sampled_from(["a", "b", "$ref", "$id", "default"]), inner, max_size=2)
    every = {
        "$comment": VALUES,
        "$defs": named,
        "$id": st.sampled_from(["https://example.com/x", "#x", ""]),
        "$ref": REFERENCES,
        "$schema": DIALECTS,
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


PARTS = st.recursive(st.one_of(st.booleans(), keywords(st.just({}))), keywords, max_leaves=6)


def with_definitions(part, name):
    """A schema that may refer to a definition of its own, in the table of a name."""
    refers = st.builds(
        lambda key, beside: {"$ref": f"#/{name}/{key}", **beside}, st.sampled_from("ab"), BESIDE
    )
    below = st.sampled_from(
        [lambda one: one, lambda one: {"items": one}, lambda one: {"properties": {"a": one}}]
    )
    inner = st.one_of(part, refers, st.builds(lambda place, one: place(one), below, refers))
    table = st.dictionaries(st.sampled_from("ab"), inner, max_size=2)
    dialect = st.one_of(st.just({}), DIALECTS.map(lambda uri: {"$schema": uri}))
    whole = inner.filter(lambda one: isinstance(one, dict))
    return st.builds(lambda one, table, dialect: {**one, name: table, **dialect}, whole, table, dialect)


BESIDE = st.one_of(st.just({}), VALUES.map(lambda value: {"default": value}), st.just({"type": "string"}))
SCHEMAS = st.one_of(PARTS, with_definitions(PARTS, "$defs"), with_definitions(PARTS, "definitions"))


@given(SCHEMAS, st.lists(VALUES, max_size=2))
@example({"pattern": "(?=a)b", "properties": {"a": {"pattern": "^(a+)+$"}}}, ["b"])
@example({"default": {"a": 1}, "properties": {"a": {"default": 1, "type": "string"}}}, [])
@settings(max_examples=examples(500), deadline=None)
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


PLACE = {"type": "object", "properties": {"at": {"$ref": "#/$defs/Point"}}, "required": ["at"]}
POINT = {"type": "array", "items": {"type": "number"}, "minItems": 2}
GENERATED = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "$defs": {"Place": PLACE, "Point": POINT},
    "type": "object",
    "properties": {
        "from": {"$ref": "#/$defs/Place"},
        "to": {"anyOf": [{"$ref": "#/$defs/Place"}, {"type": "null"}], "default": None},
    },
}


def test_so_are_schemas_with_definitions_as_models_make_them():
    assert is_evident([(GENERATED, [{"from": {"at": [1, 2]}}]), (GENERATED, [{}])])
    assert not is_evident([(GENERATED, [{"from": {"at": [1]}}])])
    assert not is_evident(
        [({**GENERATED, "properties": {"to": {"$ref": "#/$defs/Place", "default": 1}}}, [])]
    )


def test_so_are_those_of_draft_7():
    schema = {"definitions": {"Point": POINT}, "properties": {"at": {"$ref": "#/definitions/Point"}}}
    assert is_evident([({"$schema": f"{DRAFT_7}#", **schema}, [{"at": [1, 2]}])])
    beside = {**schema, "properties": {"at": {"$ref": "#/definitions/Point", "maxItems": 2}}}
    assert is_evident([(beside, [])])
    assert not is_evident([({"$schema": DRAFT_7, **beside}, [])])


def test_two_definitions_of_one_name_are_left_to_the_longer_look():
    other = {**GENERATED, "$defs": {"Place": True, "Point": POINT}}
    assert is_evident([(other, [])])
    assert not is_evident([(GENERATED, []), (other, [])])


def ladder(steps):
    """Each step refers twice to the next."""
    table = {f"l{step}": {"anyOf": [{"$ref": f"#/$defs/l{step + 1}"}] * 2} for step in range(steps)}
    return {"$ref": "#/$defs/l0", "$defs": {**table, f"l{steps}": {"type": "null"}}}


@pytest.mark.parametrize(
    "schema",
    [
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}},
        {"$ref": "#/$defs/b", "$defs": {"a": True}},
        {"$defs": {"a": {"$defs": {}}}},
        {"$defs": {f"d{number}": True for number in range(200)}},
        ladder(20),
    ],
    ids=["circle", "dangling", "within", "many", "ladder"],
)
def test_references_that_are_not_plain_are_left_to_the_longer_look(schema):
    assert not is_evident([(schema, [])])


def test_a_short_ladder_is_plain():
    assert is_evident([(ladder(5), [None])])
    assert not is_evident([(ladder(5), [1])])
