"""JSON Schemas without references."""

from __future__ import annotations

import json
import time
from copy import deepcopy

import pytest
from hypothesis import HealthCheck, assume, event, given, settings
from hypothesis import strategies as st

from sampling import examples, sample
from toolcrib.schema.dereference import DEPTH, LEVELS, SMALL, dereference
from toolcrib.schema.validation import Validator, check_schema

DRAFT_7 = "http://json-schema.org/draft-07/schema#"
DRAFT_4 = "http://json-schema.org/draft-04/schema#"
OF_2019 = "https://json-schema.org/draft/2019-09/schema"
OF_2020 = "https://json-schema.org/draft/2020-12/schema"

NODE = {
    "type": "object",
    "title": "Node",
    "properties": {
        "value": {"type": "integer"},
        "children": {"type": "array", "items": {"$ref": "#/$defs/node"}},
    },
    "required": ["value"],
}


def inlined(schema):
    """The result for a schema that leaves nothing to remark."""
    result = dereference(schema)
    assert result.remarks == ()
    return result.schema


def references(schema):
    """The reference keywords anywhere in a schema, data included."""
    if isinstance(schema, list):
        return [each for item in schema for each in references(item)]
    if not isinstance(schema, dict):
        return []
    own = [key for key in schema if key in {"$ref", "$dynamicRef", "$recursiveRef"}]
    return own + [each for item in schema.values() for each in references(item)]


# What a reference means.


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"type": "string"}}},
        {"properties": {"a": {"$ref": "#/definitions/x"}}, "definitions": {"x": {"type": "string"}}},
        {"properties": {"a": {"$ref": "#x"}}, "$defs": {"y": {"$anchor": "x", "type": "string"}}},
        {
            "properties": {"a": {"$dynamicRef": "#x"}},
            "$defs": {"y": {"$dynamicAnchor": "x", "type": "string"}},
        },
        {"properties": {"a": {"$dynamicRef": "#x"}}, "$defs": {"y": {"$anchor": "x", "type": "string"}}},
        {"properties": {"a": {"$dynamicRef": "#/$defs/y"}}, "$defs": {"y": {"type": "string"}}},
        {
            "$id": "https://x.example/root",
            "properties": {"a": {"$ref": "other"}},
            "$defs": {"y": {"$id": "other", "type": "string"}},
        },
        {
            "$id": "https://x.example/root",
            "properties": {"a": {"$ref": "https://x.example/other#/$defs/z"}},
            "$defs": {"y": {"$id": "other", "$defs": {"z": {"type": "string"}}}},
        },
        {"$id": "urn:x:y", "properties": {"a": {"$ref": "#/$defs/x"}}, "$defs": {"x": {"type": "string"}}},
        {"properties": {"a": {"$ref": "#/$defs/a~1b%25"}}, "$defs": {"a/b%": {"type": "string"}}},
        {
            "properties": {"a": {"$ref": "#/components/schemas/x"}},
            "components": {"schemas": {"x": {"type": "string"}}},
        },
        {
            "properties": {"a": {"$ref": "#/$defs/x"}},
            "$defs": {"x": {"$ref": "#/$defs/y"}, "y": {"$ref": "#/$defs/z"}, "z": {"type": "string"}},
        },
        {"$schema": OF_2020, "properties": {"a": {"type": "string"}}},
    ],
)
def test_what_a_reference_means_stands_where_it_stood(schema):
    assert check_schema(schema) == []
    assert inlined(schema) == {"properties": {"a": {"type": "string"}}}


def test_a_reference_to_another_property_leaves_that_one_where_it_is():
    schema = {"properties": {"a": {"type": "string"}, "b": {"$ref": "#/properties/a"}}}
    assert inlined(schema) == {"properties": {"a": {"type": "string"}, "b": {"type": "string"}}}


def test_a_root_that_is_a_reference_becomes_what_it_means():
    schema = {"$ref": "#/$defs/x", "$defs": {"x": {"type": "object", "properties": {"a": True}}}}
    assert inlined(schema) == {"type": "object", "properties": {"a": True}}


@pytest.mark.parametrize(("target", "meant"), [(True, {}), (False, {"not": {}}), ({}, {})])
def test_a_root_is_an_object_whatever_it_refers_to(target, meant):
    assert inlined({"$ref": "#/$defs/x", "$defs": {"x": target}}) == meant


def test_definitions_of_id_in_draft_4_are_followed_and_gone():
    schema = {
        "$schema": DRAFT_4,
        "id": "http://x.example/root.json",
        "properties": {"a": {"$ref": "other.json"}, "id": {"type": "string"}},
        "definitions": {"o": {"id": "other.json", "type": "integer", "minimum": 1, "exclusiveMinimum": True}},
    }
    assert inlined(schema) == {
        "$schema": DRAFT_4,
        "properties": {
            "a": {"type": "integer", "minimum": 1, "exclusiveMinimum": True},
            "id": {"type": "string"},
        },
    }


def test_values_that_look_like_references_are_left_alone():
    schema = {
        "properties": {
            "$ref": {"type": "string"},
            "a": {"const": {"$ref": "#/$defs/x"}, "default": {"$ref": "y"}},
            "b": {"enum": [{"$ref": "#/$defs/x"}], "examples": [{"$id": "z"}]},
        },
    }
    assert inlined(schema) == schema


def test_a_value_that_is_referred_to_stays_where_it_means_something():
    schema = {"properties": {"a": {"const": {"type": "string"}}, "b": {"$ref": "#/properties/a/const"}}}
    assert inlined(schema) == {"properties": {"a": {"const": {"type": "string"}}, "b": {"type": "string"}}}


def test_dependencies_that_are_lists_of_names_stay():
    schema = {
        "$schema": DRAFT_7,
        "dependencies": {"a": ["b"], "c": {"$ref": "#/definitions/x"}},
        "definitions": {"x": {"minProperties": 2}},
    }
    assert inlined(schema) == {"$schema": DRAFT_7, "dependencies": {"a": ["b"], "c": {"minProperties": 2}}}


def test_a_dialect_that_is_not_the_usual_one_is_still_named():
    for dialect in (DRAFT_4, DRAFT_7, OF_2019):
        assert inlined({"type": "object", "$schema": dialect}) == {"$schema": dialect, "type": "object"}


# Siblings.


@pytest.mark.parametrize("dialect", [DRAFT_4, DRAFT_7])
def test_in_older_dialects_only_texts_for_readers_count_beside_a_reference(dialect):
    schema = {
        "$schema": dialect,
        "properties": {
            "a": {
                "$ref": "#/definitions/x",
                "description": "Mine.",
                "default": "q",
                "maxLength": 1,
                "type": "null",
            },
        },
        "definitions": {"x": {"type": "string", "description": "Theirs.", "title": "X"}},
    }
    assert inlined(schema)["properties"]["a"] == {
        "description": "Mine.",
        "default": "q",
        "type": "string",
        "title": "X",
    }


STRING = {"type": "string", "description": "Theirs."}


@pytest.mark.parametrize(
    ("siblings", "target", "meant"),
    [
        ({"maxLength": 3}, STRING, {"maxLength": 3, "type": "string", "description": "Theirs."}),
        ({"description": "Mine."}, STRING, {"description": "Mine.", "type": "string"}),
        ({"type": "string", "maxLength": 3}, {"type": "string"}, {"type": "string", "maxLength": 3}),
        ({"type": "string"}, {"type": "number"}, {"type": "string", "allOf": [{"type": "number"}]}),
        ({"const": 1}, {"const": True}, {"const": 1, "allOf": [{"const": True}]}),
        ({"required": ["a", "b"]}, {"required": ["b", "c"]}, {"required": ["a", "b", "c"]}),
        (
            {"properties": {"a": {"type": "string"}}},
            {"properties": {"b": {"type": "null"}}},
            {"properties": {"a": {"type": "string"}, "b": {"type": "null"}}},
        ),
        (
            {"properties": {"a": {"type": "string"}}},
            {"properties": {"a": {"minLength": 1}}},
            {"properties": {"a": {"type": "string"}}, "allOf": [{"properties": {"a": {"minLength": 1}}}]},
        ),
        (
            {"properties": {"a": True}},
            {"additionalProperties": False},
            {"properties": {"a": True}, "allOf": [{"additionalProperties": False}]},
        ),
        (
            {"properties": {"a": True}},
            {"type": "object", "unevaluatedProperties": False},
            {"properties": {"a": True}, "allOf": [{"type": "object", "unevaluatedProperties": False}]},
        ),
        (
            {"unevaluatedProperties": False},
            {"properties": {"a": True}},
            {"unevaluatedProperties": False, "properties": {"a": True}},
        ),
        ({"contains": {}}, {"maxContains": 1}, {"contains": {}, "allOf": [{"maxContains": 1}]}),
        ({"if": {}}, {"then": False}, {"if": {}, "allOf": [{"then": False}]}),
        ({"items": False}, {"prefixItems": [{}]}, {"items": False, "allOf": [{"prefixItems": [{}]}]}),
        (
            {"allOf": [{"minLength": 1}]},
            {"allOf": [{"maxLength": 2}]},
            {"allOf": [{"minLength": 1}, {"maxLength": 2}]},
        ),
        (
            {"anyOf": [{"type": "null"}]},
            {"anyOf": [{}]},
            {"anyOf": [{"type": "null"}], "allOf": [{"anyOf": [{}]}]},
        ),
        ({"minLength": 1}, True, {"minLength": 1}),
        ({"minLength": 1}, False, False),
        ({"minLength": 1, "title": "T"}, False, {"title": "T", "not": {}}),
    ],
)
def test_siblings_are_merged_where_nothing_then_means_anything_else(siblings, target, meant):
    schema = {"properties": {"p": {"$ref": "#/$defs/x", **siblings}}, "$defs": {"x": target}}
    assert inlined(schema) == {"properties": {"p": meant}}


def test_two_references_of_one_place_do_not_see_what_the_other_evaluates():
    schema = {
        "$ref": "#/$defs/x",
        "$dynamicRef": "#/$defs/y",
        "$defs": {"x": {"properties": {"a": True}}, "y": {"unevaluatedProperties": False}},
    }
    assert inlined(schema) == {"allOf": [{"properties": {"a": True}}, {"unevaluatedProperties": False}]}


# Recursion.


def nested(levels):
    """A value of so many levels of nodes whose innermost has no value."""
    value = {}
    for _ in range(levels - 1):
        value = {"value": 1, "children": [value]}
    return value


def test_recursion_is_written_out_some_levels_deep_and_open_below():
    result = dereference({"$ref": "#/$defs/node", "$defs": {"node": NODE}})
    assert references(result.schema) == []
    assert result.remarks == (
        f"`Node` refers to itself: it is expanded {LEVELS} levels deep and unchecked below that",
    )
    judge = Validator(result.schema)
    assert [judge.is_valid(nested(levels)) for levels in range(1, LEVELS + 2)] == [False] * LEVELS + [True]
    open_one = {"type": "object", "description": "Recursive: has the same form as `Node`."}
    assert json.dumps(open_one) in json.dumps(result.schema)


def test_the_root_may_refer_to_itself():
    result = dereference(
        {"type": "object", "properties": {"next": {"$ref": "#"}}, "additionalProperties": False}
    )
    judge = Validator(result.schema)
    assert judge.is_valid({"next": {"next": {"next": {"next": {}}}}})
    assert not judge.is_valid({"next": {"next": {"other": 1}}})
    assert result.remarks == (
        "the whole schema refers to itself: it is expanded 3 levels deep and unchecked below that",
    )


def test_a_recursive_reference_of_2019_is_one_to_the_root_where_nothing_else_can_be_meant():
    result = dereference(
        {"$schema": OF_2019, "type": "object", "additionalProperties": {"$recursiveRef": "#"}}
    )
    assert references(result.schema) == []
    assert not Validator(result.schema).is_valid({"a": {"b": 1}})


def test_fewer_levels_are_written_out_where_more_would_be_too_long():
    names = [f"p{number}" for number in range(30)]
    schema = {
        "type": "object",
        "properties": {
            name: {"$ref": "#", "description": "Again, one level deeper, and it takes its room."}
            for name in names
        },
    }
    result = dereference(schema)
    assert result.remarks == (
        "the whole schema refers to itself: it is expanded 1 level deep and unchecked below that",
    )
    assert references(result.schema) == []


@pytest.mark.parametrize(
    "around",
    [
        {"not": {"$ref": "#/$defs/r"}},
        {"oneOf": [{"$ref": "#/$defs/r"}, {"type": "string"}]},
        {"oneOf": [{"$ref": "#/$defs/r"}], "anyOf": [{}]},
        {"if": {"$ref": "#/$defs/r"}, "then": {"maxProperties": 1}, "else": {"type": "null"}},
        {"if": {"$ref": "#/$defs/r"}, "then": False},
        {"contains": {"$ref": "#/$defs/r"}, "maxContains": 1},
        {"anyOf": [{"$ref": "#/$defs/r"}], "unevaluatedProperties": False},
        {"$ref": "#/$defs/r", "unevaluatedProperties": False},
    ],
)
def test_an_open_schema_refuses_nothing_wherever_it_stands(around):
    recursive = {"type": "object", "properties": {"a": {"$ref": "#/$defs/wrap"}}}
    schema = {"$ref": "#/$defs/wrap", "$defs": {"r": recursive, "wrap": around}}
    result = dereference(schema)
    assert "refers to itself" in result.remarks[0]
    judge, loose = Validator(schema), Validator(result.schema)
    values = [{}, 1, "x", None, [], [{}], [{}, {}], {"b": 1}]
    for _ in range(6):
        values += [{"a": value} for value in values[-8:]]
    accepted = [value for value in values if judge.is_valid(value)]
    assert accepted
    assert all(loose.is_valid(value) for value in accepted)


# Bounds.


def ladder(rungs, factor=2):
    """A schema that would double with every rung."""
    steps = {
        f"a{number}": {"anyOf": [{"$ref": f"#/$defs/a{number - 1}"}] * factor} for number in range(1, rungs)
    }
    return {
        "properties": {"x": {"$ref": f"#/$defs/a{rungs - 1}"}},
        "$defs": {"a0": {"type": "string"}, **steps},
    }


@pytest.mark.parametrize(("rungs", "factor"), sample([(40, 2), (200, 2), (30, 50), (1000, 1)], one_in=2))
def test_what_would_grow_without_bounds_is_left_as_it_was_written_at_once(rungs, factor):
    schema = ladder(rungs, factor)
    begun = time.process_time()
    result = dereference(schema)
    assert time.process_time() - begun < 5  # without the bound, it would not end in a lifetime
    assert result.schema is schema
    (remark,) = result.remarks
    assert remark.endswith("; the schema is unchanged")


def test_a_short_schema_may_grow_a_little_and_a_long_one_by_a_bounded_part():
    assert references(inlined(ladder(6))) == []
    assert len(json.dumps(inlined(ladder(6)))) < SMALL * 2
    filled = {"properties": {f"p{number}": {"$ref": "#/$defs/long"} for number in range(20)}}
    schema = {**filled, "$defs": {"long": {"description": "x" * 20_000}}}
    assert dereference(schema).schema is schema
    assert references(dereference(schema, most=1_000_000).schema) == references(
        schema
    )  # more than eight times
    few = {"properties": dict(list(filled["properties"].items())[:6]), "$defs": schema["$defs"]}
    assert dereference(few).schema is few
    assert references(dereference(few, most=200_000).schema) == []


def test_a_reference_behind_too_many_others_leaves_the_schema_as_it_was_written():
    steps = {f"a{number}": {"$ref": f"#/$defs/a{number - 1}"} for number in range(1, DEPTH + 10)}
    schema = {"$ref": f"#/$defs/a{DEPTH + 9}", "$defs": {"a0": {}, **steps}}
    assert dereference(schema).schema is schema


def test_references_in_a_circle_end():
    result = dereference(
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"$ref": "#/$defs/a"}}}
    )
    assert references(result.schema) == []


# What can't be done.


def test_a_reference_that_leads_nowhere_stays_and_is_told():
    schema = {
        "properties": {
            "a": {"$ref": "#/$defs/none"},
            "b": {"$ref": "#/$defs/x"},
            "c": {"$ref": "https://y.example/s"},
        },
        "$defs": {"x": {"type": "null"}},
    }
    result = dereference(schema)
    assert result.schema == {
        "properties": {
            "a": {"$ref": "#/$defs/none"},
            "b": {"type": "null"},
            "c": {"$ref": "https://y.example/s"},
        }
    }
    assert result.remarks == (
        "`#/$defs/none` cannot be resolved in the schema and is kept",
        "`https://y.example/s` cannot be resolved in the schema and is kept",
    )


def test_a_reference_that_stays_is_made_absolute_since_its_base_is_gone():
    schema = {"$id": "https://x.example/a/root.json", "properties": {"a": {"$ref": "other.json"}}}
    assert dereference(schema).schema == {"properties": {"a": {"$ref": "https://x.example/a/other.json"}}}


AMBIGUOUS = {
    "$id": "https://x.example/strings",
    "$ref": "list",
    "$defs": {
        "foo": {"$dynamicAnchor": "item", "type": "string"},
        "list": {
            "$id": "list",
            "items": {"$dynamicRef": "#item"},
            "$defs": {"item": {"$dynamicAnchor": "item"}},
        },
    },
}


@pytest.mark.parametrize(
    ("schema", "why"),
    [
        (AMBIGUOUS, "the meaning of `$dynamicRef: #item` depends on the path that leads to it"),
        (
            {"$dynamicAnchor": "meta", "$ref": OF_2020},
            f"`{OF_2020}` is outside the schema and may lead back to a dynamic anchor",
        ),
        (
            {"$defs": {"x": {"$id": "https://x.example/x", "$schema": DRAFT_7, "type": "string"}}},
            f"a subschema uses another dialect, `{DRAFT_7}`",
        ),
    ],
)
def test_a_schema_whose_meaning_depends_on_the_way_is_left_as_it_was_written(schema, why):
    assert dereference(schema) == (schema, (f"{why}; the schema is unchanged",))


# Laws.

NAMES = st.sampled_from(["a", "b", "c"])
SCALARS = st.none() | st.booleans() | st.integers(0, 3) | st.sampled_from(["", "a", "bb"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
TYPES = st.sampled_from(["null", "boolean", "integer", "string", "array", "object"])


def schemas(targets, dialect):
    """Subschemas that refer to some definitions, of keywords that mean much to each other."""
    references = st.sampled_from([f"#/{_definitions(dialect)}/{name}" for name in targets] or [None])

    def objects(inner):
        some = st.lists(inner, min_size=1, max_size=2)
        named = st.dictionaries(NAMES, inner, max_size=2)
        keywords = {
            "type": TYPES,
            "description": st.sampled_from(["x", "y"]),
            "minLength": st.just(1),
            "maxProperties": st.integers(0, 2),
            "required": st.lists(NAMES, max_size=2, unique=True),
            "enum": st.lists(SCALARS, min_size=1, max_size=3),
            "properties": named,
            "patternProperties": named,
            "additionalProperties": inner,
            "items": inner,
            "contains": inner,
            "allOf": some,
            "anyOf": some,
            "oneOf": some,
            "not": inner,
            "if": inner,
            "then": inner,
            "else": inner,
        }
        if dialect != DRAFT_7:
            keywords |= {
                "unevaluatedProperties": inner,
                "unevaluatedItems": inner,
                "maxContains": st.integers(1, 2),
                "dependentSchemas": named,
            }
        if dialect == OF_2020:
            keywords["prefixItems"] = some
        if targets:
            keywords["$ref"] = references
        chosen = st.lists(st.sampled_from(sorted(keywords)), max_size=4, unique=True)
        wanted = st.just(["$ref"] if targets else [])
        return st.tuples(chosen, st.one_of(wanted, st.just([]))).flatmap(
            lambda names: st.fixed_dictionaries({name: keywords[name] for name in {*names[0], *names[1]}})
        )

    return st.recursive(st.booleans() | objects(st.booleans()), objects, max_leaves=4)


def _definitions(dialect):
    return "definitions" if dialect == DRAFT_7 else "$defs"


@st.composite
def documents(draw, *, recursive):
    """A schema with three definitions; unless recursive, each refers only to those before it."""
    dialect = draw(st.sampled_from([OF_2020, OF_2019, DRAFT_7]))
    names = ["x", "y", "z"]
    definitions = {
        name: draw(schemas(names if recursive else names[:place], dialect))
        for place, name in enumerate(names)
    }
    root = draw(schemas(names, dialect).filter(lambda schema: isinstance(schema, dict)))
    return {"$schema": dialect, **root, _definitions(dialect): definitions}


LAWS = settings(
    max_examples=examples(25),
    deadline=None,
    suppress_health_check=[HealthCheck.filter_too_much, HealthCheck.too_slow],
)


@LAWS
@given(documents(recursive=False), st.lists(VALUES, min_size=1, max_size=8))
def test_without_recursion_the_result_takes_exactly_the_same_values(schema, values):
    assume(not any(problem.severity == "error" for problem in check_schema(schema)))
    before = deepcopy(schema)
    result = dereference(schema)
    assert schema == before
    assume(result.schema is not schema)
    assert result.remarks == ()
    assert references(result.schema) == []
    assert [each for each in check_schema(result.schema) if each.severity == "error"] == []
    judge, other = Validator(schema), Validator(result.schema)
    for value in values:
        verdict = judge.is_valid(value)
        event(f"valid: {verdict}")
        assert other.is_valid(value) is verdict


@LAWS
@given(documents(recursive=True), st.lists(VALUES, min_size=1, max_size=8))
def test_with_recursion_everything_that_was_taken_is_taken(schema, values):
    assume(not any(problem.severity == "error" for problem in check_schema(schema)))
    result = dereference(schema)
    assume(result.schema is not schema)
    assert references(result.schema) == []
    exact = result.remarks == ()
    event(f"exact: {exact}")
    judge, other = Validator(schema), Validator(result.schema)
    for value in values:
        if judge.is_valid(value):
            assert other.is_valid(value)
        elif exact:
            assert not other.is_valid(value)


@LAWS
@given(documents(recursive=True))
def test_once_is_enough(schema):
    result = dereference(schema)
    again = dereference(result.schema)
    assert again.schema == result.schema
    assert result.schema is schema or again.remarks == ()
