"""Schemas are checked at load: every fault at its own place, and nothing is fetched."""

from __future__ import annotations

import pytest

from toolcrib.core.errors import DocumentError
from toolcrib.schema.validation import Validator, check_schema
from toolcrib.schema.validation.schema_check import DIALECTS

DRAFT_7 = "http://json-schema.org/draft-07/schema#"
DRAFT_2019 = "https://json-schema.org/draft/2019-09/schema"


def found(schema, pointer=""):
    return [(problem.code, problem.pointer) for problem in check_schema(schema, pointer)]


def only(schema):
    (problem,) = check_schema(schema)
    return problem


def ladder(steps):
    """Each step refers twice to the next."""
    table = {f"l{i}": {"anyOf": [{"$ref": f"#/$defs/l{i + 1}"}] * 2} for i in range(steps)}
    return {"$ref": "#/$defs/l0", "$defs": {**table, f"l{steps}": {"type": "null"}}}


def nested(levels):
    schema = {}
    for _ in range(levels):
        schema = {"not": schema}
    return schema


SOUND = {
    "true": True,
    "false": False,
    "empty": {},
    "unknown keyword": {"type": "object", "x-order": 3, "widget": {"type": "strng", "$ref": "http://x/"}},
    "data is no schema": {
        "const": {"$ref": "http://x/"},
        "enum": [{"type": "strng"}],
        "examples": [{"$ref": 5}],
    },
    "property called $ref": {"properties": {"$ref": {"type": "string"}, "pattern": {"type": "string"}}},
    "local reference": {"$ref": "#/$defs/a", "$defs": {"a": {"type": "string"}}},
    "escaped reference": {"$ref": "#/$defs/a~1b~0%20c", "$defs": {"a/b~ c": {"type": "string"}}},
    "reference into a list": {"allOf": [{"type": "string"}], "items": {"$ref": "#/allOf/0"}},
    "anchor": {"$ref": "#x", "$defs": {"a": {"$anchor": "x"}}},
    "embedded resource": {"$ref": "b#x", "properties": {"a": {"$id": "b", "$anchor": "x"}}},
    "reference to an unknown keyword": {"$ref": "#/x", "x": {"type": "string"}},
    "tree": {"properties": {"children": {"items": {"$ref": "#"}}}},
    "recursive reference": {"$schema": DRAFT_2019, "properties": {"a": {"$recursiveRef": "#"}}},
    "dynamic reference": {"$dynamicAnchor": "node", "properties": {"a": {"$dynamicRef": "#node"}}},
    "nothing counts beside a reference": {
        "$schema": DRAFT_7,
        "properties": {"a": {"$ref": "#/definitions/b", "$id": "http://elsewhere.example/"}},
        "definitions": {"b": {}},
    },
    "default below an id that leads its reference astray": {
        "$id": "http://x/",
        "items": {"$id": "b/", "items": {"$ref": "c", "default": "x"}},
        "$defs": {"c": {"$id": "b/c", "type": "integer"}},
    },
    "look-around": {"pattern": "(?<!a)b(?=c)"},
    "back-reference": {"pattern": "(a|b)\\1"},
    "long ladder": ladder(14),
    "64 levels": nested(63),
    "just small enough": {"description": "x" * (256 * 1024 - len('{"description":""}'))},
    "default that fits": {"properties": {"a": {"type": "integer", "default": 1}}},
    "large numbers": {"minimum": -(10**400), "maximum": 10**400},
}


@pytest.mark.parametrize("schema", SOUND.values(), ids=SOUND)
def test_a_sound_schema_has_no_problems_and_compiles(schema):
    assert check_schema(schema) == []
    Validator(schema)


UNSOUND = {
    "number": (5, [("invalid_schema", "")]),
    "null": (None, [("invalid_schema", "")]),
    "list": ([], [("invalid_schema", "")]),
    "NaN": ({"maximum": float("nan")}, [("not_json", "/maximum")]),
    "keys that are no text": ({"properties": {1: {}}}, [("not_json", "/properties")]),
    "tuple": ({"required": ("a",)}, [("not_json", "/required")]),
    "65 levels": (nested(64), [("schema_too_deep", "")]),
    "5,000 levels": (nested(5000), [("schema_too_deep", "")]),
    "one byte too large": (
        {"description": "x" * (256 * 1024 - len('{"description":""}') + 1)},
        [("schema_too_large", "")],
    ),
    "bytes count": ({"description": "é" * 131072}, [("schema_too_large", "")]),
    "type": ({"type": "strng"}, [("invalid_schema", "/type")]),
    "one of several types": ({"type": ["null", "strng"]}, [("invalid_schema", "/type/1")]),
    "multipleOf 0": ({"multipleOf": 0}, [("invalid_schema", "/multipleOf")]),
    "several": (
        {"properties": {"a": {"type": "strng"}, "b": {"minimum": "3"}}, "required": "a", "minLength": -1},
        [
            ("invalid_schema", "/minLength"),
            ("invalid_schema", "/properties/a/type"),
            ("invalid_schema", "/properties/b/minimum"),
            ("invalid_schema", "/required"),
        ],
    ),
    "of several kinds": (
        {"items": {"pattern": "("}, "not": {"$ref": "http://x/"}, "type": "strng"},
        [("bad_pattern", "/items/pattern"), ("remote_ref", "/not/$ref"), ("invalid_schema", "/type")],
    ),
    "unknown dialect": ({"$schema": "urn:mine"}, [("unknown_dialect", "/$schema")]),
    "unknown dialect within": ({"items": {"$schema": "urn:mine"}}, [("unknown_dialect", "/items/$schema")]),
    "dialect of another type": ({"$schema": 5}, [("invalid_schema", "/$schema")]),
    "pattern": ({"pattern": "("}, [("bad_pattern", "/pattern")]),
    "pattern of names": ({"patternProperties": {"[": {}}}, [("bad_pattern", "/patternProperties/[")]),
    "pattern of the wrong type": ({"pattern": 5}, [("invalid_schema", "/pattern")]),
    "pattern with a vast repetition": ({"pattern": "a{99999999999}"}, [("bad_pattern", "/pattern")]),
    "pattern of more than 1 MiB": ({"pattern": "(?:a{999}){999}"}, [("bad_pattern", "/pattern")]),
    "http": ({"$ref": "http://127.0.0.1:1/a.json"}, [("remote_ref", "/$ref")]),
    "file": ({"$ref": "file:///etc/passwd"}, [("remote_ref", "/$ref")]),
    "relative": ({"$ref": "../common.json#/$defs/a"}, [("remote_ref", "/$ref")]),
    "relative to an id": ({"$id": "http://x/a/", "items": {"$ref": "b"}}, [("remote_ref", "/items/$ref")]),
    "dynamic": ({"$dynamicRef": "http://x/#a"}, [("remote_ref", "/$dynamicRef")]),
    "no URI": ({"$ref": "http://[bad#x"}, [("remote_ref", "/$ref")]),
    "no URI under an id": ({"$id": "http://x/", "not": {"$ref": "http://[b"}}, [("remote_ref", "/not/$ref")]),
    "meta-schema of another dialect": ({"$ref": DRAFT_7}, [("remote_ref", "/$ref")]),
    "no part of the meta-schema": ({"$ref": f"{DIALECTS[0]}#/$defs/x"}, [("remote_ref", "/$ref")]),
    "dangling": ({"$ref": "#/$defs/x"}, [("dangling_ref", "/$ref")]),
    "dangling anchor": ({"$dynamicRef": "#x"}, [("dangling_ref", "/$dynamicRef")]),
    "dangling index": ({"$ref": "#/allOf/1", "allOf": [{}]}, [("dangling_ref", "/$ref")]),
    "vast index": ({"$ref": f"#/allOf/{'9' * 5000}", "allOf": [{}]}, [("dangling_ref", "/$ref")]),
    "index in other digits": ({"$ref": "#/allOf/\u0660", "allOf": [{}]}, [("dangling_ref", "/$ref")]),
    "reference to no schema": ({"$ref": "#/required", "required": ["a"]}, [("dangling_ref", "/$ref")]),
    "dangling behind a reference": (
        {"$ref": "#/x", "x": {"$ref": "#/y"}},
        [("dangling_ref", "/x/$ref")],
    ),
    "itself": ({"$ref": "#"}, [("endless_ref", "/$ref")]),
    "itself, beside another reference": (
        {"$ref": "#", "$dynamicRef": "#/$defs/a", "$defs": {"a": {}}},
        [("endless_ref", "/$ref")],
    ),
    "itself under not": ({"not": {"$ref": "#"}}, [("endless_ref", "/not/$ref")]),
    "itself under if": ({"if": {"$ref": "#"}}, [("endless_ref", "/if/$ref")]),
    "itself recursively": (
        {"$schema": DRAFT_2019, "$recursiveRef": "#"},
        [("endless_ref", "/$recursiveRef")],
    ),
    "each other": (
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/b"}, "b": {"anyOf": [{"$ref": "#/$defs/a"}]}}},
        [("endless_ref", "/$defs/a/$ref"), ("endless_ref", "/$defs/b/anyOf/0/$ref")],
    ),
    "ladder": (ladder(18), [("schema_too_branchy", "")]),
    "wrong where only a reference looks": (
        {"$ref": "#/x", "x": {"type": "strng"}},
        [("invalid_schema", "/x/type")],
    ),
    "space in an id": ({"$id": "a b"}, [("invalid_schema", "")]),
    "default": (
        {"properties": {"a": {"type": "integer", "default": "x"}}},
        [("default_mismatch", "/properties/a/default")],
    ),
    "default behind a reference": (
        {"properties": {"a": {"$ref": "#/$defs/n", "default": "x"}}, "$defs": {"n": {"type": "integer"}}},
        [("default_mismatch", "/properties/a/default")],
    ),
    "deep in a default": (
        {"default": {"a": [1, "x"]}, "properties": {"a": {"items": {"type": "integer"}}}},
        [("default_mismatch", "/default/a/1")],
    ),
}


@pytest.mark.parametrize(("schema", "problems"), UNSOUND.values(), ids=UNSOUND)
def test_an_unsound_schema_has_each_problem_at_its_place(schema, problems):
    assert found(schema) == problems


def test_pointers_begin_with_the_place_of_the_schema():
    assert found({"items": {"type": "strng"}}, "/input_schema") == [
        ("invalid_schema", "/input_schema/items/type")
    ]
    assert found(5, "/input_schema") == [("invalid_schema", "/input_schema")]


@pytest.mark.parametrize("dialect", DIALECTS)
@pytest.mark.parametrize("end", ["", "#"])
def test_each_dialect_is_known_and_carries_its_meta_schema(dialect, end):
    assert check_schema({"$schema": dialect + end, "properties": {"a": {"$ref": dialect + "#"}}}) == []


def test_keywords_are_those_of_the_dialect():
    old = {"minimum": 1, "exclusiveMinimum": True}
    assert found(old) == [("invalid_schema", "/exclusiveMinimum")]
    assert found({"$schema": "http://json-schema.org/draft-04/schema#", **old}) == []
    assert found({"items": [{}]}) == [("invalid_schema", "/items")]
    assert found({"$schema": DRAFT_7, "items": [{}]}) == []


def test_the_nearest_allowed_value_is_named():
    problem = only({"type": "strng"})
    assert problem.hint == 'did you mean "string"?'
    assert problem.message.startswith("`type`: expected one of ")
    assert problem.message.endswith(', got "strng"')


def test_the_nearest_definition_is_named():
    assert only({"$ref": "#/$defs/ct", "$defs": {"cat": {}}}).hint == "did you mean `#/$defs/cat`?"
    assert only({"$ref": "#/definitions/cat", "$defs": {"cat": {}}}).hint == "did you mean `#/$defs/cat`?"
    assert only({"$ref": "#/$defs/zzz", "$defs": {"cat": {}}}).hint == "the definitions are `#/$defs/cat`"
    assert only({"$ref": "#/$defs/zzz"}).hint == ""


def test_the_nearest_dialect_is_named():
    assert (
        "`http://json-schema.org/draft-07/schema`"
        in only({"$schema": "http://json-schema.org/draft7/schema"}).hint
    )
    assert only({"$schema": "urn:mine"}).hint.startswith(f"known: {DIALECTS[0]}, ")


def test_a_bad_pattern_is_shown():
    assert only({"pattern": "[a-"}).message == "`[a-` is not a supported regular expression"


def test_a_default_that_does_not_fit_is_a_warning():
    problem = only({"properties": {"a": {"type": "integer", "default": "x"}}})
    assert problem.severity == "warning"
    assert problem.message == 'the default does not match its own schema: expected an integer, got "x"'


@pytest.mark.parametrize(
    "schema",
    [
        {"properties": {"password": {"maxLength": 1, "default": "CANARY"}}},
        {"properties": {"pin": {"writeOnly": True, "maxLength": 1, "default": "CANARY"}}},
        {
            "properties": {
                "login": {"default": {"api_key": "CANARY"}, "additionalProperties": {"maxLength": 1}}
            }
        },
        {
            "properties": {"login": {"$ref": "#/$defs/login", "default": {"pin": "CANARY"}}},
            "$defs": {"login": {"properties": {"pin": {"x-secret": True, "maxLength": 1}}}},
        },
    ],
    ids=["by name", "by mark", "by name within", "by mark within"],
)
def test_a_secret_default_is_not_told(schema):
    problem = only(schema)
    assert problem.code == "default_mismatch"
    assert "CANARY" not in str(problem)
    assert problem.message.endswith("got ***")


def test_at_most_a_hundred_problems_of_form_are_told():
    schema = {"properties": {f"p{number}": {"type": "strng"} for number in range(3000)}}
    assert len(check_schema(schema)) == 100


def test_a_schema_that_can_not_be_compiled_is_refused_by_the_validator_too():
    with pytest.raises(DocumentError) as raised:
        Validator({"type": "strng"})
    (problem,) = raised.value.problems
    assert problem.code == "invalid_schema"
    assert "\n" not in problem.message
