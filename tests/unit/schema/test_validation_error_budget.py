"""Telling faults stays cheap: schemas under which errors double, large schemas, keys that look like indexes."""

from __future__ import annotations

import time

import pytest

from toolcrib.core.subschemas import SchemaIndex
from toolcrib.schema.coercion import coerce
from toolcrib.schema.validation import Validator, check_schema, validate
from toolcrib.schema.validation.violation_search import ErrorBudget

EXPRESSION = {
    "type": "object",
    "properties": {"value": {"type": "integer"}},
    "oneOf": [
        {"properties": {"kind": {"const": "not"}, "inner": {"$ref": "#"}}, "required": ["kind"]},
        {"properties": {"kind": {"const": "neg"}, "inner": {"$ref": "#"}}, "required": ["kind"]},
        {"not": {"required": ["kind"]}},
    ],
}

DOUBLING = {
    "expression": EXPRESSION,
    "allOf": {
        "type": "object",
        "properties": {
            "inner": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]},
            "value": {"type": "integer"},
        },
    },
    "patternProperties": {
        "type": "object",
        "properties": {"inner": {"$ref": "#"}, "value": {"type": "integer"}},
        "patternProperties": {"^in": {"$ref": "#"}},
    },
}

TREE = {
    "type": "object",
    "properties": {"size": {"type": "integer"}, "parts": {"type": "array", "items": {"$ref": "#"}}},
}


def nested(value: object, levels: int) -> object:
    for _ in range(levels):
        value = {"kind": "not", "inner": value}
    return value


def seconds(work) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


@pytest.mark.parametrize("schema", DOUBLING.values(), ids=DOUBLING)
def test_under_a_doubling_schema_one_fault_tells_the_innermost_place(schema):
    value = nested({"value": "CANARY"}, 60)
    (fault,) = Validator(schema).faults(value)
    assert (fault.pointer, fault.keyword) == ("/inner" * 60 + "/value", "schema")
    assert (fault.expected, fault.got) == ("an integer", '"CANARY"')


@pytest.mark.parametrize("schema", DOUBLING.values(), ids=DOUBLING)
def test_a_value_that_fits_a_doubling_schema_has_no_faults(schema):
    assert Validator(schema).faults(nested({"value": 1}, 60)) == []


def test_the_time_does_not_double_with_the_levels():
    validator = Validator(EXPRESSION)
    assert seconds(lambda: validator.faults(nested({"value": "x"}, 60))) < 10


def test_a_shallow_value_under_a_doubling_schema_is_told_in_full():
    faults = Validator(EXPRESSION).faults({"value": "x", "kind": "not", "inner": {"value": "y"}})
    assert {fault.pointer for fault in faults} == {"/value", "/inner/value"}
    assert {fault.keyword for fault in faults} == {"type"}


def test_the_innermost_place_is_not_told_where_it_is_secret():
    schema = {**EXPRESSION, "properties": {"value": {"type": "integer", "writeOnly": True}}}
    (fault,) = Validator(schema).faults(nested({"value": "CANARY"}, 60))
    assert fault.got == "***"


def test_a_place_of_no_type_is_told_too():
    schema = {"properties": {"inner": {"allOf": [{"$ref": "#"}, {"$ref": "#"}]}, "value": {"maximum": 1}}}
    (fault,) = Validator(schema).faults(nested({"value": 5}, 60))
    assert (fault.expected, fault.got) == ("a value that matches its schema", "5")


def test_a_recursive_schema_that_does_not_double_is_told_in_full():
    value: object = {"size": "x"}
    for _ in range(20):
        value = {"size": "x", "parts": [value]}
    assert len(Validator(TREE).faults(value, most=100)) == 21


def test_a_very_wide_value_under_a_recursive_schema_is_explained():
    value = {"size": 1, "parts": [{"size": 1, "parts": []} for _ in range(8000)] + [{"size": "x"}]}
    (fault,) = Validator(TREE).faults(value)
    assert (fault.pointer, fault.keyword) == ("/parts/8000/size", "type")


def test_a_large_schema_without_recursion_is_told_in_full():
    schema = {"properties": {f"p{number}": {"type": "integer"} for number in range(3000)}}
    faults = Validator(schema).faults({f"p{number}": "x" for number in range(30)}, most=100)
    assert len(faults) == 30


def test_a_chain_of_references_longer_than_the_stack_counts_as_too_much():
    links = {str(number): {"$ref": f"#/$defs/{number + 1}"} for number in range(1500)}
    index = SchemaIndex({"$ref": "#/$defs/0", "$defs": {**links, "1500": {"type": "string"}}})
    assert ErrorBudget(index).too_much(index.root, 1)


def test_a_repair_under_a_doubling_schema_is_bounded():
    value = nested({"value": "x"}, 60)
    validator = Validator(EXPRESSION)
    assert coerce(EXPRESSION, validator, value, "lenient") == (value, [])


def test_a_repair_deep_under_a_doubling_schema_is_found():
    value = nested({"value": "7"}, 60)
    schema = DOUBLING["allOf"]
    repaired, repairs = coerce(schema, Validator(schema), value, "safe")
    assert repaired == nested({"value": 7}, 60)
    assert [repair.pointer for repair in repairs] == ["/inner" * 60 + "/value"]


def connected(size: int, default: object) -> dict[str, object]:
    """A schema whose definitions all lead to one another, each with a default."""
    definitions = {
        f"d{number}": {
            "type": "object",
            "properties": {
                **{f"p{step}": {"$ref": f"#/$defs/d{(number * 7 + step) % size}"} for step in range(8)},
                "n": {"type": "integer", "default": default},
            },
        }
        for number in range(size)
    }
    return {"$defs": definitions, "$ref": "#/$defs/d0"}


def test_defaults_of_a_large_connected_schema_are_checked_as_one():
    assert seconds(lambda: check_schema(connected(150, 1))) < 5


def test_every_default_that_does_not_fit_is_found():
    problems = check_schema(connected(20, "x"))
    assert [problem.code for problem in problems] == ["default_mismatch"] * 20


def test_a_default_under_a_doubling_schema_is_refused_in_few_words():
    schema = {"$defs": {"e": EXPRESSION_DEFINITION}, "properties": {"e": {"$ref": "#/$defs/e"}}}
    schema["properties"]["e"]["default"] = nested({"value": "x"}, 30)
    (problem,) = check_schema(schema)
    assert (problem.code, problem.message) == (
        "default_mismatch",
        "the default does not match its own schema",
    )
    assert problem.pointer == "/properties/e/default"


EXPRESSION_DEFINITION = {
    "type": "object",
    "properties": {"value": {"type": "integer"}},
    "oneOf": [
        {"properties": {"kind": {"const": kind}, "inner": {"$ref": "#/$defs/e"}}, "required": ["kind"]}
        for kind in ("not", "neg")
    ],
}


@pytest.mark.parametrize("key", ["0", "1", "00", "007", "+1", "-1", "18446744073709551616", "0" * 50 + "1"])
def test_a_key_that_looks_like_an_index_keeps_its_place(key):
    schema = {"additionalProperties": {"anyOf": [{"type": "string"}, {"items": {"type": "string"}}]}}
    faults = validate(schema, {key: [1]})
    assert [fault.path for fault in faults] == [(key, 0)]


def test_of_two_keys_that_are_one_index_the_plain_one_is_told():
    faults = validate({"additionalProperties": {"type": "string"}}, {"01": "x", "1": 5})
    assert [(fault.pointer, fault.got) for fault in faults] == [("/1", "5")]


def test_a_repair_at_a_key_that_looks_like_an_index_is_made_there():
    schema = {"type": "object", "additionalProperties": {"type": "integer"}}
    repaired, _ = coerce(schema, Validator(schema), {"007": "5"}, "safe")
    assert repaired == {"007": 5}
