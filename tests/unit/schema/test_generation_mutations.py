"""Violations of output schemas: few, named, and each one refused by the judge."""

from __future__ import annotations

import json
from copy import deepcopy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sampling import examples
from toolcrib.core.errors import ExpressionError
from toolcrib.schema.generation import KeyedRandom, arguments_for
from toolcrib.schema.mutations import MOST, Mutations
from toolcrib.schema.validation import Validator

INVOICE = {
    "type": "object",
    "required": ["number", "lines"],
    "additionalProperties": False,
    "properties": {
        "number": {"type": "string", "pattern": "^R-[0-9]+$"},
        "state": {"enum": ["sent", "paid"]},
        "total": {"type": "number", "minimum": 0, "exclusiveMaximum": 1000},
        "note": {"type": ["string", "null"], "maxLength": 5},
        "lines": {
            "type": "array",
            "minItems": 1,
            "uniqueItems": True,
            "items": {"type": "object", "required": ["sku"], "properties": {"sku": {"type": "string"}}},
        },
    },
}


def test_violations_are_named_by_what_they_do_and_where_in_the_order_of_the_schema():
    assert Mutations(INVOICE).names == (
        "missing_number",
        "missing_lines",
        "wrong_type",
        "extra_property",
        "wrong_type_number",
        "pattern_number",
        "enum_state",
        "wrong_type_total",
        "below_minimum_total",
        "above_maximum_total",
        "wrong_type_note",
        "too_long_note",
        "wrong_type_lines",
        "too_few_items_lines",
        "not_unique_lines",
        "missing_lines.0.sku",
        "wrong_type_lines.0",
        "wrong_type_lines.0.sku",
        "missing_required",
        "pattern",
        "enum",
        "range",
        "length",
        "unique",
    )


@pytest.mark.parametrize(
    ("name", "spoilt"),
    [
        ("missing_number", {"lines": [{"sku": "a"}]}),
        ("enum_state", {"number": "R-1", "lines": [{"sku": "a"}], "state": "unlisted"}),
        ("range", {"number": "R-1", "lines": [{"sku": "a"}], "total": -1}),
        ("above_maximum_total", {"number": "R-1", "lines": [{"sku": "a"}], "total": 1000}),
        ("missing_lines.0.sku", {"number": "R-1", "lines": [{}]}),
        ("too_few_items_lines", {"number": "R-1", "lines": []}),
        ("not_unique_lines", {"number": "R-1", "lines": [{"sku": "a"}, {"sku": "a"}]}),
        ("wrong_type", "not an object"),
    ],
)
def test_a_valid_value_is_changed_at_one_place_and_no_further(name, spoilt):
    valid = {"number": "R-1", "lines": [{"sku": "a"}]}
    before = deepcopy(valid)
    violations = Mutations(INVOICE)
    broken = violations.broken(violations.called(name)[0], valid)
    assert broken is not None
    assert broken.value == spoilt
    assert valid == before


def test_a_place_that_the_value_does_not_have_is_made():
    schema = {
        "type": "object",
        "properties": {"a": {"type": "object", "properties": {"b": {"type": "integer"}}}},
    }
    violations = Mutations(schema)
    (wrong,) = violations.called("wrong_type_a.b")
    assert violations.broken(wrong, {}).value == {"a": {"b": "not a number"}}


def test_what_can_not_be_made_of_a_value_is_told():
    schema = {"anyOf": [{"type": "integer", "minimum": 3}, {"type": "object", "required": ["a"]}]}
    violations = Mutations(schema)
    (missing,) = violations.called("missing_a")
    assert violations.broken(missing, 5) is None
    assert violations.broken(missing, {"a": 1}).value == {}


def test_a_name_is_before_its_group_and_any_is_all():
    violations = Mutations(
        {"type": "object", "required": ["required"], "properties": {"x": {"type": "null"}}}
    )
    assert [each.name for each in violations.called("missing_required")] == ["missing_required"]
    assert violations.called("any") == violations.all
    assert violations.called("nothing") == ()


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {},
        {"description": "anything"},
        {"type": ["null", "boolean", "number", "string", "array", "object"]},
    ],
)
def test_a_schema_that_takes_everything_has_no_violations(schema):
    assert Mutations(schema).all == ()


@pytest.mark.exhaustive
def test_a_schema_that_refers_to_itself_has_an_end():
    schema = {
        "$ref": "#/$defs/node",
        "$defs": {
            "node": {
                "type": "object",
                "required": ["name"],
                "properties": {
                    "name": {"type": "string"},
                    **{f"in_{n}": {"$ref": "#/$defs/node"} for n in range(9)},
                },
            }
        },
    }
    violations = Mutations(schema)
    assert len(violations.all) == MOST
    assert violations.names[0] == "missing_name"


def test_violations_of_a_schema_of_which_nothing_can_be_made_are_those_of_its_words():
    schema = {
        "type": "object",
        "required": ["code"],
        "properties": {"code": {"type": "string", "pattern": "^(?=a)b?a$"}},
    }
    violations = Mutations(schema)
    assert "missing_code" in violations.names
    assert violations.broken(violations.called("missing_code")[0], {"code": "a"}).value == {}


scalars = st.one_of(
    st.fixed_dictionaries({"type": st.sampled_from(["string", "integer", "number", "boolean", "null"])}),
    st.builds(
        lambda low, span: {"type": "integer", "minimum": low, "maximum": low + span},
        st.integers(-9, 9),
        st.integers(0, 9),
    ),
    st.builds(
        lambda low, span: {"type": "string", "minLength": low, "maxLength": low + span},
        st.integers(0, 4),
        st.integers(0, 4),
    ),
    st.lists(
        st.one_of(st.integers(-3, 3), st.text("abc", max_size=2), st.none(), st.booleans()),
        min_size=1,
        max_size=4,
    ).map(lambda some: {"enum": some}),
    st.just({"type": ["string", "null"]}),
    st.just({"type": "number", "multipleOf": 0.5, "exclusiveMinimum": 0}),
    st.just({"type": "string", "pattern": "^[a-z]{2,4}$"}),
)


def containers(inner):
    named = st.dictionaries(st.sampled_from("abcd"), inner, max_size=3)
    objects = st.builds(
        lambda properties, needed, closed: {
            "type": "object",
            "properties": properties,
            "required": sorted(properties)[:needed],
            **({"additionalProperties": False} if closed else {}),
        },
        named,
        st.integers(0, 3),
        st.booleans(),
    )
    lists = st.builds(
        lambda items, least, unique: {
            "type": "array",
            "items": items,
            "minItems": least,
            "uniqueItems": unique,
            "maxItems": 4,
        },
        inner,
        st.integers(0, 1),
        st.booleans(),
    )
    choices = st.builds(lambda one, other: {"anyOf": [one, other]}, inner, inner)
    return st.one_of(objects, objects, lists, choices)


@settings(max_examples=examples(60), deadline=None)
@given(st.recursive(scalars, containers, max_leaves=6), st.integers(0, 99))
def test_every_violation_makes_of_every_valid_value_one_that_is_refused_or_none(schema, seed):
    judge = Validator(schema)
    violations = Mutations(schema)
    try:
        valid = arguments_for(schema, KeyedRandom(seed), 4)
    except ExpressionError:
        return
    assert len({each.name for each in violations.all}) == len(violations.all) <= MOST
    for violation in violations.all:
        made = [violations.broken(violation, value) for value in valid]
        assert not any(judge.is_valid(broken.value) for broken in made if broken is not None)
        assert all(
            json.loads(json.dumps(broken.value)) == broken.value for broken in made if broken is not None
        )
