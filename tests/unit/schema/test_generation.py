"""Values made up from schemas by keyed draws."""

from __future__ import annotations

import copy
import re

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sampling import sample
from toolcrib.core.errors import DocumentError, ExpressionError
from toolcrib.core.text import canonical
from toolcrib.schema.all_of import merge_closely
from toolcrib.schema.generation import KeyedRandom, arguments_for, generate, overlay
from toolcrib.schema.validation import Validator

KEYS = st.lists(st.text(max_size=5) | st.integers(), max_size=3)


@given(st.integers(), KEYS, KEYS)
def test_a_place_is_named_by_its_whole_path(seed, above, below):
    assert KeyedRandom(seed, *above).at(*below).integer(0, 2**64) == KeyedRandom(
        seed, *above, *below
    ).integer(0, 2**64)


def test_no_two_paths_are_the_same_place():
    paths = [
        (),
        ("",),
        ("a",),
        ("a", ""),
        ("", "a"),
        ("ab",),
        ("a", "b"),
        (1,),
        ("1",),
        (11,),
        (1, 1),
        (-1,),
        ("i1;",),
    ]
    assert len({KeyedRandom(7, *path).integer(0, 2**64) for path in paths}) == len(paths)
    assert KeyedRandom(7).integer(0, 2**64) != KeyedRandom(8).integer(0, 2**64)


def test_a_place_gives_the_same_answer_each_time_and_its_children_do_not_change_it():
    draw = KeyedRandom(1, "a")
    before = draw.integer(0, 2**64)
    draw.at("b").text(5)
    assert draw.integer(0, 2**64) == before


@given(st.integers(), st.integers(), st.integers(0, 2**300))
def test_whole_numbers_lie_within_their_bounds(seed, low, span):
    assert low <= KeyedRandom(seed).integer(low, low + span) <= low + span


@given(st.integers(), st.floats(-1e300, 1e300), st.floats(-1e300, 1e300))
def test_numbers_lie_within_their_bounds(seed, one, other):
    low, high = sorted((one, other))
    drawn = KeyedRandom(seed).number(low, high)
    assert low <= drawn <= high or drawn == pytest.approx(low) == pytest.approx(high)


def test_draws_spread_over_their_range():
    counts = [0] * 6
    for number in range(600):
        counts[KeyedRandom(3, number).integer(0, 5)] += 1
    assert min(counts) > 60
    assert len({KeyedRandom(3, number).choice("abc") for number in range(30)}) == 3


@given(st.integers(0, 400))
def test_texts_have_their_length(length):
    text = KeyedRandom(1).text(length)
    assert len(text) == length
    assert re.fullmatch("[a-z]*", text)


def test_an_empty_range_has_no_number_and_no_choice():
    with pytest.raises(ValueError, match="from 3 to 2"):
        KeyedRandom(1).integer(3, 2)
    with pytest.raises(ValueError, match="from 0 to -1"):
        KeyedRandom(1).choice([])


def test_draws_are_the_same_on_every_machine():
    draw = KeyedRandom(42, "orders", 3)
    assert [draw.integer(0, 999), draw.text(6), round(draw.number(0, 1), 6)] == [901, "xqmode", 0.419315]


FORECAST = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer", "minimum": 1, "maximum": 7, "default": 3},
        "daily": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {
                    "date": {"type": "string", "format": "date"},
                    "high": {"type": "number", "minimum": -40, "maximum": 50},
                    "sky": {"enum": ["sun", "rain"]},
                },
                "required": ["date"],
            },
        },
    },
    "required": ["city", "daily"],
}


def valid(schema, value) -> bool:
    return Validator(schema).is_valid(value)


def made(schema, *key, **options):
    before = copy.deepcopy(schema)
    value = generate(schema, KeyedRandom(1, *key), **options)
    assert schema == before
    assert valid(schema, value), value
    assert generate(schema, KeyedRandom(1, *key), **options) == value
    return value


def test_instances_are_the_same_on_every_machine():
    assert canonical(made(FORECAST, "golden")) == (
        '{"city":"Porto","daily":[{"date":"2030-01-08","high":-31.38,"sky":"rain"},{"date":"2030-01'
        '-17","high":37.69,"sky":"rain"},{"date":"2030-02-21","high":-11.05,"sky":"rain"}],"days":3'
        "}"
    )


def test_an_added_property_changes_no_other_one():
    more = copy.deepcopy(FORECAST)
    more["properties"] = {"first": {"type": "string"}, **more["properties"], "last": {"type": "integer"}}
    before, after = made(FORECAST), made(more)
    assert {key: after[key] for key in before} == before


def test_every_optional_property_is_given():
    assert made(FORECAST).keys() == {"city", "days", "daily"}


def test_different_keys_give_different_instances():
    assert len({canonical(made(FORECAST, number)) for number in range(10)}) == 10


def test_what_is_given_belongs_to_the_caller():
    schema = {"const": {"list": [1]}}
    generate(schema, KeyedRandom(1))["list"].append(2)
    assert generate(schema, KeyedRandom(1)) == {"list": [1]}


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"const": 3}, 3),
        ({"enum": ["a"]}, "a"),
        ({"type": "string", "enum": ["a", "b"], "default": "b"}, "b"),
        ({"type": "integer", "default": 12}, 12),
        ({"type": "integer", "examples": [41], "default": 12}, 41),
        ({"type": "integer", "example": 43}, 43),
        ({"type": "null"}, None),
        ({"type": ["null", "boolean"], "enum": [None]}, None),
        ({"type": "integer", "minimum": 5, "maximum": 5}, 5),
        ({"type": "integer", "exclusiveMinimum": 4, "exclusiveMaximum": 6}, 5),
        ({"type": "number", "minimum": 0.5, "maximum": 0.5}, 0.5),
        ({"type": "array", "maxItems": 0}, []),
        ({"type": "array", "items": False}, []),
        (
            {"type": "array", "prefixItems": [{"const": 1}, {"const": 2}], "items": False, "minItems": 2},
            [1, 2],
        ),
        ({"type": "object", "properties": {"a": False}}, {}),
        ({"allOf": [{"minimum": 3}, {"maximum": 3}, {"type": "integer"}]}, 3),
        (
            {
                "allOf": [
                    {"type": ["integer", "string"]},
                    {"type": ["number", "null"]},
                    {"minimum": 9, "maximum": 9},
                ]
            },
            9,
        ),
        ({"allOf": [{"enum": [1, 2]}, {"enum": [2, 3]}]}, 2),
        ({"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"const": "deep"}}}, "deep"),
        ({"$ref": "#here", "$defs": {"a": {"$anchor": "here", "const": 1}}}, 1),
        ({"$dynamicRef": "#here", "$defs": {"a": {"$dynamicAnchor": "here", "const": 1}}}, 1),
        ({"anyOf": [False, {"const": 1}]}, 1),
        ({"anyOf": [False, False, True], "const": 3}, 3),
        ({"oneOf": [{"const": 1}, {"enum": [1, 2]}], "enum": [1, 2]}, 2),
        ({"if": {"const": 1}, "then": False, "else": {"const": 2}}, 2),
        ({"type": "boolean", "not": {"const": True}}, False),
        ({"type": "integer", "examples": ["wrong"], "minimum": 7, "maximum": 7}, 7),
        ({"type": "integer", "default": "wrong", "minimum": 7, "maximum": 7}, 7),
        ({"properties": {"a": {"const": 1}}}, {"a": 1}),
        ({"prefixItems": [{"const": 1}], "items": False}, [1]),
        (
            {
                "$schema": "http://json-schema.org/draft-07/schema#",
                "items": [{"const": 1}],
                "additionalItems": False,
            },
            [1],
        ),
        (
            {
                "$schema": "http://json-schema.org/draft-04/schema#",
                "type": "integer",
                "minimum": 4,
                "maximum": 6,
                "exclusiveMinimum": True,
                "exclusiveMaximum": True,
            },
            5,
        ),
    ],
)
def test_where_one_value_is_right_it_is_found(schema, value):
    assert made(schema) == value
    assert type(made(schema)) is type(value)


TABLE = {"type": "object", "additionalProperties": {"type": "integer"}}
TREE = {
    "$defs": {
        "node": {
            "type": "object",
            "properties": {
                "name": {"type": "string"},
                "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
            },
            "required": ["name", "children"],
            "additionalProperties": False,
        }
    },
    "$ref": "#/$defs/node",
}
LIST = {
    "type": "object",
    "properties": {"value": {"type": "integer"}, "next": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}},
    "required": ["value", "next"],
}


@pytest.mark.parametrize(
    "schema",
    sample(
        [
            True,
            {},
            {"type": ["string", "null"]},
            {"type": "string", "minLength": 30, "maxLength": 31},
            {"type": "string", "maxLength": 3},
            {"type": "string", "maxLength": 0},
            {"type": "integer", "minimum": 10**30},
            {"type": "integer", "maximum": -(10**30)},
            {"type": "integer", "multipleOf": 7, "minimum": 20},
            {"type": "integer", "multipleOf": 0.5, "minimum": 1},
            {"type": "integer", "multipleOf": 1.5},
            {"type": "integer", "minimum": 0.5, "maximum": 1.5},
            {"type": "number", "multipleOf": 0.01},
            {"type": "number", "multipleOf": 1000},
            {"type": "number", "exclusiveMinimum": 0, "exclusiveMaximum": 0.001},
            {"type": "number", "minimum": 1e308},
            {"type": "number", "minimum": 10**400},
            {"allOf": [{"multipleOf": 4}, {"multipleOf": 6}], "type": "integer"},
            {"allOf": [{"multipleOf": 0.2}, {"multipleOf": 0.3}], "type": "number"},
            {
                "type": "array",
                "items": {"type": "integer", "minimum": 0, "maximum": 3},
                "uniqueItems": True,
                "minItems": 4,
            },
            {"type": "array", "items": {"type": "boolean"}, "uniqueItems": True},
            {"type": "array", "contains": {"const": 3}, "minContains": 2, "items": {"type": "integer"}},
            {"type": "array", "contains": {"const": 3}, "maxContains": 1, "minItems": 2},
            {"type": "array", "contains": {"const": 3}, "minContains": 0},
            {"type": "array", "prefixItems": [{"type": "string"}], "items": {"type": "null"}, "maxItems": 2},
            {"contains": False},
            TABLE,
            {**TABLE, "propertyNames": {"pattern": "^[a-z]{3}$"}, "minProperties": 5},
            {**TABLE, "minProperties": 3, "maxProperties": 3},
            {
                "type": "object",
                "patternProperties": {"^x-[0-9]$": {"type": "string"}},
                "additionalProperties": False,
            },
            {"type": "object", "patternProperties": {"^(?=a)": {}}},
            {"type": "object", "required": ["free"], "properties": {}},
            {
                "type": "object",
                "required": ["xa"],
                "patternProperties": {"^x": {"type": "integer"}, "a$": {"minimum": 5}},
            },
            {
                "type": "object",
                "properties": {"a": {}, "b": {}, "c": {}},
                "maxProperties": 2,
                "required": ["c"],
            },
            {"type": "object", "properties": {"a": {}, "b": {}}, "not": {"required": ["a"]}},
            {
                "type": "object",
                "properties": {"a": {}, "b": {}},
                "oneOf": [{"required": ["a"]}, {"required": ["b"]}],
            },
            {"type": "object", "properties": {"a": {}}, "dependentRequired": {"a": ["b"]}},
            {"type": "object", "required": ["a"], "dependentRequired": {"a": ["b"]}},
            {"type": "object", "properties": {"a": {}}, "dependentSchemas": {"a": {"required": ["z"]}}},
            {"type": "object", "properties": {"a": {"type": "string", "pattern": "(?=x)"}}},
            {"type": "string", "not": {"minLength": 3}},
            {"if": {"type": "integer"}, "then": {"minimum": 5}, "else": {"type": "string"}},
            {"anyOf": [{"type": "object", "required": ["a"]}, {"type": "array", "minItems": 1}]},
            {
                "allOf": [
                    {"properties": {"a": {"type": "integer"}}},
                    {"properties": {"a": {"minimum": 5}, "b": True}},
                ]
            },
            {"allOf": [{"required": ["a"]}, {"required": ["b", "a"]}], "type": "object"},
            {
                "allOf": [
                    {"prefixItems": [{"type": "integer"}]},
                    {"prefixItems": [{"minimum": 5}, {"type": "null"}]},
                ]
            },
            {
                "allOf": [
                    {"type": "string"},
                    {"type": ["string", "null"], "minLength": 2},
                    {"minLength": 4, "maxLength": 9},
                ]
            },
            {"allOf": [True, {"type": "integer"}]},
            TREE,
            LIST,
        ],
        one_in=3,
    ),
)
@pytest.mark.parametrize("key", [1, 2])
def test_instances_are_valid(schema, key):
    made(schema, key)
    made(schema, key, examples="ignore")
    for value in arguments_for(schema, KeyedRandom(key), 4):
        assert valid(schema, value)


@pytest.mark.parametrize(
    ("schema", "keyword", "pointer"),
    sample(
        [
            (False, "false", ""),
            ({"type": "object", "properties": {"a": False}, "required": ["a"]}, "false", "/a"),
            ({"allOf": [{"type": "string"}, {"type": "integer"}]}, "type", ""),
            ({"type": "string", "minLength": 3, "maxLength": 2}, "minLength", ""),
            (
                {"type": "array", "items": {"type": "string", "pattern": "^(?!a)b"}, "minItems": 1},
                "pattern",
                "/0",
            ),
            ({"type": "string", "pattern": "^a{3}$", "minLength": 5}, "pattern", ""),
            ({"type": "integer", "minimum": 3, "maximum": 2}, "minimum", ""),
            ({"type": "integer", "minimum": 3, "maximum": 4, "multipleOf": 7}, "multipleOf", ""),
            ({"type": "array", "minItems": 3, "maxItems": 2}, "minItems", ""),
            ({"type": "array", "minItems": 100_000}, "minItems", ""),
            (
                {"type": "array", "items": {"type": "null"}, "uniqueItems": True, "minItems": 2},
                "uniqueItems",
                "/1",
            ),
            ({"type": "string", "not": {}}, "not", ""),
            (
                {
                    "type": "object",
                    "properties": {"a~/": {"type": "integer", "not": {"type": "integer"}}},
                    "required": ["a~/"],
                },
                "not",
                "/a~0~1",
            ),
            ({"type": "object", "required": ["a"], "properties": {"a": {"$ref": "#"}}}, "$ref", ""),
            ({"allOf": [{"allOf": [True] * 70}]}, "$ref", ""),
            (
                {
                    "type": "object",
                    "patternProperties": {"^(?=a)b": {}},
                    "minProperties": 1,
                    "additionalProperties": False,
                },
                "patternProperties",
                "",
            ),
            ({"type": "object", "propertyNames": False, "minProperties": 1}, "false", ""),
        ],
        one_in=2,
    ),
)
def test_where_nothing_can_be_made_the_place_and_the_keyword_are_named(schema, keyword, pointer):
    with pytest.raises(ExpressionError) as caught:
        generate(schema, KeyedRandom(1))
    assert caught.value.code == "can_not_generate"
    assert f"`{keyword}`" in caught.value.message
    if keyword != "$ref":
        assert caught.value.pointer == pointer
    with pytest.raises(ExpressionError):
        arguments_for(schema, KeyedRandom(1), 2)


def test_a_reference_out_of_the_schema_is_not_followed():
    with pytest.raises(DocumentError):
        generate({"$ref": "https://example.com/other.json"}, KeyedRandom(1))
    with pytest.raises(ExpressionError, match="unresolved reference"):
        generate({"$ref": "https://json-schema.org/draft/2020-12/schema"}, KeyedRandom(1))


SMALL = st.integers(0, 4)
SCHEMAS = st.recursive(
    st.sampled_from(
        [True, {}, {"type": "boolean"}, {"type": "null"}, {"enum": [1, "a", None]}, {"const": [1]}]
    )
    | st.fixed_dictionaries(
        {"type": st.just("integer")}, optional={"minimum": SMALL, "multipleOf": st.integers(1, 3)}
    )
    | st.fixed_dictionaries(
        {"type": st.just("number")}, optional={"exclusiveMinimum": SMALL, "maximum": st.just(9)}
    )
    | st.fixed_dictionaries(
        {"type": st.just("string")}, optional={"minLength": SMALL, "maxLength": st.integers(4, 9)}
    ),
    lambda inner: (
        st.fixed_dictionaries(
            {"type": st.just("array"), "items": inner},
            optional={"minItems": SMALL, "maxItems": st.integers(4, 6)},
        )
        | st.fixed_dictionaries(
            {"type": st.just("object"), "properties": st.dictionaries(st.sampled_from("abc"), inner)},
            optional={
                "required": st.lists(st.sampled_from("abc"), unique=True),
                "additionalProperties": inner,
            },
        )
        | st.lists(inner, min_size=1, max_size=3).map(lambda branches: {"anyOf": branches})
    ),
    max_leaves=6,
)


@given(SCHEMAS, st.integers(0, 5))
def test_what_is_made_is_always_valid(schema, seed):
    value = generate(schema, KeyedRandom(seed))
    assert jsonschema.Draft202012Validator(schema).is_valid(value)
    assert generate(schema, KeyedRandom(seed)) == value


def test_arguments_come_in_the_usual_the_least_and_the_fullest_form():
    usual, least, fullest, *others = arguments_for(FORECAST, KeyedRandom(1), 6)
    assert usual.keys() == {"city", "daily", "days"}
    assert usual["days"] == 3
    assert least.keys() == {"city", "daily"}
    assert least["daily"] == []
    assert len(fullest["daily"]) == 4
    assert fullest["days"] == 7
    assert len(others) == 3
    assert len({canonical(value) for value in (usual, least, fullest, *others)}) == 6


def test_arguments_reach_every_type_and_branch():
    schema = {"type": "object", "properties": {"a": {"type": ["integer", "null"]}}, "required": ["a"]}
    assert {type(value["a"]) for value in arguments_for(schema, KeyedRandom(1), 10)} == {int, type(None)}


def test_a_schema_with_few_values_gives_few_arguments():
    assert arguments_for({"type": "object", "additionalProperties": False}, KeyedRandom(1), 5) == [{}]
    assert sorted(arguments_for({"type": "boolean"}, KeyedRandom(1), 5)) == [False, True]
    assert arguments_for(FORECAST, KeyedRandom(1), 0) == []


@pytest.mark.parametrize(
    ("value", "patch", "result"),
    [
        ({"a": 1, "b": 2}, {"b": 3}, {"a": 1, "b": 3}),
        ({"a": {"x": 1, "y": 2}}, {"a": {"y": 3, "z": 4}}, {"a": {"x": 1, "y": 3, "z": 4}}),
        ({"a": [1, 2]}, {"a": [3]}, {"a": [3]}),
        ({"a": 1}, {"a": None}, {"a": None}),
        ({"a": 1}, {}, {"a": 1}),
        ({"a": 1}, 3, 3),
        (3, {"a": 1}, {"a": 1}),
    ],
)
def test_an_overlay_replaces_key_by_key(value, patch, result):
    before = copy.deepcopy((value, patch))
    assert overlay(value, patch) == result
    assert (value, patch) == before


@pytest.mark.parametrize(
    ("left", "right", "both"),
    [
        (True, {"minimum": 1}, {"minimum": 1}),
        ({"minimum": 1}, True, {"minimum": 1}),
        ({"minimum": 1}, False, False),
        ({"type": "number"}, {"type": "integer"}, {"type": ["integer"]}),
        ({"type": "integer"}, {"type": "number"}, {"type": ["integer"]}),
        ({"type": ["string", "null"]}, {"type": "string"}, {"type": ["string"]}),
        ({"minimum": 1, "maximum": 9}, {"minimum": 2, "maximum": 5}, {"minimum": 2, "maximum": 5}),
        ({"multipleOf": 4}, {"multipleOf": 6}, {"multipleOf": 12}),
        ({"multipleOf": 0.4}, {"multipleOf": 0.6}, {"multipleOf": 1.2}),
        ({"uniqueItems": False}, {"uniqueItems": True}, {"uniqueItems": True}),
        ({"required": ["a"]}, {"required": ["b", "a"]}, {"required": ["a", "b"]}),
        ({"enum": [1, 2]}, {"enum": [2.0, 3]}, {"enum": [2]}),
        ({"pattern": "a"}, {"pattern": "b"}, {"pattern": "b"}),
        ({"items": {"minimum": 1}}, {"items": {"maximum": 2}}, {"items": {"minimum": 1, "maximum": 2}}),
        (
            {"prefixItems": [True, {"minimum": 1}]},
            {"prefixItems": [False]},
            {"prefixItems": [False, {"minimum": 1}]},
        ),
        ({"type": 1}, {"type": "string"}, {"type": "string"}),
        ({"enum": 1}, {"enum": [1]}, {"enum": [1]}),
        ({"required": 1}, {"required": ["a"]}, {"required": ["a"]}),
        ({"properties": 1}, {"properties": {}}, {"properties": {}}),
        ({"prefixItems": 1}, {"prefixItems": []}, {"prefixItems": []}),
        ({"multipleOf": "x"}, {"multipleOf": 2}, {"multipleOf": 2}),
        ({"minimum": True}, {"minimum": "x"}, {"minimum": "x"}),
    ],
)
def test_two_schemas_are_merged_into_one(left, right, both):
    assert merge_closely(left, right) == both
