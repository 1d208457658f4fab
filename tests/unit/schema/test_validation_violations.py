"""Faults of values: one for each place and reason, in words, without what is secret."""

from __future__ import annotations

from decimal import Decimal

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sampling import examples
from toolcrib.schema.validation import Validator, Violation, report, validate
from toolcrib.schema.validation.violations import describe_value

DRAFT_7 = "http://json-schema.org/draft-07/schema#"

FORECAST = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer", "minimum": 1, "maximum": 7},
        "unit": {"enum": ["metric", "imperial"]},
        "tags": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["city"],
    "additionalProperties": False,
}

SHAPES = {
    "anyOf": [
        {
            "properties": {"kind": {"const": "circle"}, "radius": {"type": "number"}},
            "required": ["kind", "radius"],
        },
        {"properties": {"kind": {"const": "box"}, "side": {"type": "number"}}, "required": ["kind", "side"]},
    ]
}

LONG = f"{'z' * 57}...{'z' * 20}"
TEN = [f"`property_{number}`" for number in range(10)]

LISTS = {"items": [{}], "$schema": DRAFT_7}

LINES = {
    "missing": (FORECAST, {}, ["/city: expected a string (required), got nothing"]),
    "type": (FORECAST, {"city": 3}, ["/city: expected a string, got 3"]),
    "types": ({"type": ["string", "null"]}, 3, ["(root): expected null or a string, got 3"]),
    "maximum": (FORECAST, {"city": "Oslo", "days": 9}, ["/days: expected at most 7, got 9"]),
    "minimum": (FORECAST, {"city": "Oslo", "days": 0}, ["/days: expected at least 1, got 0"]),
    "exclusive": (
        {"exclusiveMinimum": 3, "exclusiveMaximum": 2},
        2.5,
        ["(root): expected less than 2, got 2.5", "(root): expected more than 3, got 2.5"],
    ),
    "nearest option": (
        FORECAST,
        {"city": "Oslo", "unit": "metrc"},
        ['/unit: expected one of "metric", "imperial", got "metrc" (did you mean "metric"?)'],
    ),
    "a number that should be text": (
        {"enum": ["1", "2"]},
        2,
        ['(root): expected one of "1", "2", got 2 (did you mean "2"?)'],
    ),
    "an option of another kind": ({"enum": ["1"]}, [], ['(root): expected "1", got an empty array']),
    "many options": (
        {"enum": list(range(20))},
        99,
        ["(root): expected one of 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 (20 in total), got 99"],
    ),
    "const": ({"const": "a"}, "b", ['(root): expected "a", got "b"']),
    "item": (FORECAST, {"city": "Oslo", "tags": ["a", 3]}, ["/tags/1: expected a string, got 3"]),
    "misspelt": (
        FORECAST,
        {"City": "Oslo"},
        [
            "/City: expected no property of this name, got `City` (did you mean `city`?)",
            "/city: expected a string (required), got nothing (is `City` a misspelling of it?)",
        ],
    ),
    "stray": (
        FORECAST,
        {"city": "Oslo", "zzz": {"secret": 1}},
        ["/zzz: expected no property of this name, got `zzz` (known: `city`, `days`, `unit`, `tags`)"],
    ),
    "no property is known": (
        {"additionalProperties": False},
        {"a": 1},
        ["/a: expected no property of this name, got `a` (no property is allowed)"],
    ),
    "no property is known within": (
        {"properties": {"properties": {"type": "object", "additionalProperties": False}}},
        {"properties": {"z" * 300: {}}},
        [f"/properties/{LONG}: expected no property of this name, got `{LONG}` (no property is allowed)"],
    ),
    "a property called additionalProperties": (
        {"properties": {"additionalProperties": False}},
        {"additionalProperties": {"a": 1}},
        ["/additionalProperties: expected nothing here, got an object with 1 key"],
    ),
    "many properties are known": (
        {"properties": {f"property_{i}": {} for i in range(12)}, "unevaluatedProperties": False},
        {"z" * 300: 1},
        [
            f"/{LONG}: expected no property of this name, got `{LONG}` (known: {', '.join(TEN)} ...)",
        ],
    ),
    "dependent": (
        {"dependentRequired": {"a": ["b"]}},
        {"a": 1},
        ["/b: expected a value (required), got nothing"],
    ),
    "name": (
        {"propertyNames": {"maxLength": 1}},
        {"ab": 1},
        ["/ab: expected a valid property name: at most 1 character, got `ab`"],
    ),
    "length": ({"minLength": 3}, "ab", ['(root): expected at least 3 characters, got "ab" (it has 2)']),
    "pattern": ({"pattern": "^a$"}, "b", ['(root): expected text that matches ^a$, got "b"']),
    "multiple": ({"multipleOf": 5}, 7, ["(root): expected a multiple of 5, got 7 (nearest: 5 or 10)"]),
    "multiple of a fraction": ({"multipleOf": 0.5}, 0.7, ["(root): expected a multiple of 0.5, got 0.7"]),
    "items": (
        {"uniqueItems": True, "maxItems": 1},
        [1, 1],
        [
            "(root): expected at most 1 item, got an array of 2 items",
            "(root): expected unique items, got an array of 2 items",
        ],
    ),
    "few items": ({"minItems": 1}, [], ["(root): expected at least 1 item, got an empty array"]),
    "properties": (
        {"maxProperties": 1, "minProperties": 3},
        {"a": 1, "b": 2},
        [
            "(root): expected at most 1 property, got an object with 2 keys",
            "(root): expected at least 3 properties, got an object with 2 keys",
        ],
    ),
    "not": (
        {"not": {}},
        None,
        ["(root): expected a value that does not match the schema under `not`, got null"],
    ),
    "contains": (
        {"contains": {"type": "string"}},
        [1],
        ["(root): expected items of which the required number matches `contains`, got an array of 1 item"],
    ),
    "false": ({"properties": {"a": False}}, {"a": 1}, ["/a: expected nothing here, got 1"]),
    "false behind the items": (
        {"prefixItems": [{}], "items": False},
        [1, 2],
        ["/1: expected nothing here, got 2"],
    ),
    "unevaluated items": (
        {"prefixItems": [{}], "unevaluatedItems": False},
        [1, 2],
        ["(root): expected no additional items, got an array of 2 items"],
    ),
    "additional items": (
        {**LISTS, "additionalItems": False},
        [1, 2],
        ["(root): expected at most 1 item, got an array of 2 items"],
    ),
    "encoding": (
        {"$schema": DRAFT_7, "contentEncoding": "base64"},
        "!",
        ['(root): expected text in the encoding "base64", got "!"'],
    ),
    "media type": (
        {"$schema": DRAFT_7, "contentMediaType": "application/json"},
        "!",
        ['(root): expected text of the media type "application/json", got "!"'],
    ),
    "no type fits": (
        {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "x",
        ['(root): expected an integer or null, got "x"'],
    ),
    "nothing fits": (
        {"anyOf": [False, False]},
        1,
        ["(root): expected a value that matches one of the forms, got 1"],
    ),
    "nearest branch": (
        SHAPES,
        {"kind": "box", "side": "3"},
        ['/side: expected a number, got "3" (nearest of 2 forms)'],
    ),
    "nearest branch by its faults": (
        {"anyOf": [{"required": ["a", "b"]}, {"required": ["c"]}]},
        {},
        ["/c: expected a value (required), got nothing (nearest of 2 forms)"],
    ),
    "nearest branch for a list": (
        {"anyOf": [{"enum": ["a", "b"]}, {"type": "array", "items": {"enum": ["a", "b"]}}]},
        ["aa"],
        ['/0: expected one of "a", "b", got "aa" (did you mean "a"?)'],
    ),
    "one branch": ({"anyOf": [{"minimum": 3}]}, 1, ["(root): expected at least 3, got 1"]),
    "options in branches": (
        {"oneOf": [{"const": "a"}, {"enum": ["b"]}, {"type": "integer"}]},
        "A",
        ['(root): expected one of "a", "b", got "A" (did you mean "a"?)'],
    ),
    "several branches": (
        {"oneOf": [{"type": "integer"}, {"minimum": 2}, False]},
        3,
        ["(root): expected a value that matches exactly one of 3 forms, got 3 (it matches the forms 1, 2)"],
    ),
    "behind a reference": (
        {"properties": {"a": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "integer"}}},
        {"a": "x"},
        ['/a: expected an integer, got "x"'],
    ),
    "missing behind a reference": (
        {"$ref": "#/$defs/o", "$defs": {"o": {"properties": {"a": {"type": "integer"}}, "required": ["a"]}}},
        {},
        ["/a: expected an integer (required), got nothing"],
    ),
    "then": ({"if": {}, "then": {"type": "null"}}, 1, ["(root): expected null, got 1"]),
    "escaped": ({"properties": {"a/b~": {"type": "null"}}}, {"a/b~": 1}, ["/a~1b~0: expected null, got 1"]),
    "no JSON": (
        {"type": "integer"},
        {1, 2},
        ["(root): expected a JSON value, got a Python `set` (convert it to a sorted list)"],
    ),
}


@pytest.mark.parametrize(("schema", "value", "lines"), LINES.values(), ids=LINES)
def test_a_fault_is_one_line_for_a_model(schema, value, lines):
    assert [fault.for_model() for fault in validate(schema, value)] == lines


def test_a_fault_holds_the_place_the_keyword_and_the_texts():
    (fault,) = validate(FORECAST, {"city": "Oslo", "tags": ["a", 3]})
    assert fault == Violation("/tags/1", "type", "a string", "3", "", ("tags", 1))


def test_a_value_that_fits_has_no_faults():
    validator = Validator(FORECAST)
    assert validator.is_valid({"city": "Oslo"})
    assert validator.judge({"city": "Oslo"})
    assert validator.faults({"city": "Oslo"}) == []


@pytest.mark.parametrize("value", [float("nan"), float("inf"), {1, 2}, "\ud800", {1: 2}, b"", object()])
def test_what_is_no_json_is_never_valid_and_raises_nothing(value):
    assert not Validator(True).is_valid({"a": value})
    assert Validator(True).faults({"a": value})[0].keyword == "json"


def test_at_most_twenty_faults_are_told_unless_more_are_asked_for():
    validator = Validator({"items": {"type": "integer"}})
    assert [fault.path for fault in validator.faults(["x"] * 100)] == [(index,) for index in range(20)]
    assert len(validator.faults(["x"] * 100, most=50)) == 50
    assert len(validator.faults(["x"] * 100, most=1)) == 1


def test_the_same_fault_from_several_branches_is_told_once():
    assert len(validate({"allOf": [{"type": "integer"}] * 50}, "x")) == 1


def test_faults_stand_in_the_order_of_their_places():
    schema = {"additionalProperties": {"items": {"type": "null"}}, "maxProperties": 1}
    faults = validate(schema, {"b": [None, 1], "a": [1] * 11})
    assert [fault.pointer for fault in faults] == ["", *(f"/a/{index}" for index in range(11)), "/b/1"]


def test_remote_documents_come_from_the_table_that_is_handed_in():
    remotes = {"http://x.example/n.json": {"type": "integer", "title": "n"}}
    validator = Validator(
        {"properties": {"a": {"$ref": "http://x.example/n.json"}}, "required": ["a"]}, remotes=remotes
    )
    assert validator.is_valid({"a": 1})
    assert validator.faults({})[0].expected == "an integer (required)"
    assert not validator.complains(validator.index.heads(("a",))[0], 1)


SECRETS = {
    "name": ({"properties": {"password": {"minLength": 40}}}, {"password": "CANARY"}),
    "name in a container": ({"properties": {"token": {"items": {"maxLength": 1}}}}, {"token": ["CANARY"]}),
    "writeOnly": ({"properties": {"pin": {"writeOnly": True, "maxLength": 1}}}, {"pin": "CANARY"}),
    "format": ({"properties": {"pin": {"format": "password", "maxLength": 1}}}, {"pin": "CANARY"}),
    "x-secret": ({"additionalProperties": {"x-secret": True, "type": "integer"}}, {"a": "CANARY"}),
    "marked behind a reference": (
        {"properties": {"a": {"$ref": "#/$defs/s"}}, "$defs": {"s": {"writeOnly": True, "type": "integer"}}},
        {"a": "CANARY"},
    ),
    "marked in a branch": ({"anyOf": [{"writeOnly": True, "maxLength": 1}, {"type": "null"}]}, "CANARY"),
    "marked number": ({"properties": {"pin": {"writeOnly": True, "maximum": 1}}}, {"pin": 7357}),
    "options": ({"properties": {"pin": {"writeOnly": True, "enum": ["CANARY1"]}}}, {"pin": "CANARY2"}),
    "options by name": ({"properties": {"password": {"enum": ["CANARY1"]}}}, {"password": 5}),
    "options in branches": (
        {"properties": {"password": {"oneOf": [{"const": "CANARY1"}, {"const": "CANARY2"}]}}},
        {"password": "CANARY3"},
    ),
    "several branches": (
        {"properties": {"password": {"oneOf": [{}, {"maxLength": 9}]}}},
        {"password": "CANARY"},
    ),
    "no branch": ({"properties": {"password": {"anyOf": [{"type": "null"}]}}}, {"password": "CANARY"}),
    "multiple": ({"x-secret": True, "multipleOf": 5}, 7357),
    "missing beside it": ({"required": ["city"]}, {"password": "CANARY"}),
    "not its container": ({"properties": {"a": {"type": "string"}}}, {"a": {"password": "CANARY"}}),
    "JSON text": ({"properties": {"a": {"type": "object"}}}, {"a": ' {"password": "CANARY"}'}),
    "stray": ({"additionalProperties": False}, {"a": "CANARY", "password": "CANARY"}),
    "too many": ({"maxProperties": 0}, {"password": "CANARY"}),
    "unique": ({"uniqueItems": True}, [{"password": "CANARY"}] * 2),
}


@pytest.mark.parametrize(("schema", "value"), SECRETS.values(), ids=SECRETS)
def test_a_secret_is_not_told(schema, value):
    faults = validate(schema, value)
    assert faults
    assert "CANARY" not in repr(faults)
    assert "735" not in repr(faults)


def test_a_number_is_not_secret_by_its_name_alone():
    assert validate({"properties": {"token": {"maximum": 1}}}, {"token": 5})[0].got == "5"


def test_a_pattern_that_takes_too_many_steps_is_a_fault_with_its_own_words():
    (fault,) = validate({"pattern": "^(?:a|a(?=a))+$"}, "a" * 40 + "!")
    assert fault.keyword == "pattern"
    assert fault.hint == "the pattern took too many steps"
    assert fault.expected == "text that the pattern matches in fewer steps"
    assert not Validator({"pattern": "^(?:a|a(?=a))+$"}).is_valid("a" * 40 + "!")


SHOWN = [
    (None, "null"),
    (True, "true"),
    (1.0, "1.0"),
    (float("nan"), "NaN"),
    (float("inf"), "Infinity"),
    (float("-inf"), "-Infinity"),
    (10**80, "1" + "0" * 80),
    (10**81, "an integer of 270 bits"),
    ("a\n\x1b[31m\u202e", '"a\\n\\u001b[31m\\u202e"'),
    ("x" * 1000, f'"{"x" * 57}...{"x" * 20}"'),
    ("[1", "text of 2 characters"),
    ({}, "an empty object"),
    ({"a": 1}, "an object with 1 key"),
    ([], "an empty array"),
    ([1, 2], "an array of 2 items"),
    (Decimal("0.10"), "0.10"),
    (b"", "a Python `bytes`"),
]


@pytest.mark.parametrize(("value", "text"), SHOWN)
def test_a_value_is_shown_in_a_few_words(value, text):
    assert describe_value(value) == text
    assert describe_value(value, hidden=True) == "***"


def test_a_report_is_cut_to_its_bytes_and_says_how_much_is_missing():
    faults = validate({"items": {"const": "ø" * 100}}, ["é" * 100] * 100)
    assert report(faults, most=10_000) == "\n".join(fault.for_model() for fault in faults[:20])
    text = report(faults, most=1000)
    assert len(text.encode()) <= 1000
    kept = text.count("\n")
    assert text.endswith(f"\n... and {20 - kept} more")
    assert report([]) == ""
    assert report(faults, most=1) == "... and 20 more"
    assert len(report(faults).encode()) <= 4096


def test_texts_stay_short_whatever_the_schema_holds():
    schema = {"oneOf": [{"const": f"{number}{'x' * 1000}"} for number in range(200)]}
    (fault,) = validate(schema, "y" * 100_000)
    assert len(fault.for_model()) < 1000


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-5, 5)
    | st.sampled_from([0.5, 1.0, 2.5])
    | st.text("ab", max_size=3)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=6,
)
TYPES = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])
SIZES = st.integers(0, 3)


def _schemas(inner):
    table = st.dictionaries(st.sampled_from("abc"), inner, max_size=3)
    several = st.lists(inner, min_size=1, max_size=3)
    names = st.lists(st.sampled_from("abc"), max_size=2, unique=True)
    keywords = {
        "type": TYPES | st.lists(TYPES, min_size=1, max_size=3, unique=True),
        "enum": st.lists(VALUES, min_size=1, max_size=3),
        "const": VALUES,
        "minimum": st.integers(-3, 3),
        "exclusiveMaximum": st.integers(-3, 3),
        "multipleOf": st.sampled_from([1, 2, 3]),
        "minLength": SIZES,
        "maxLength": SIZES,
        "pattern": st.sampled_from(["^a", "b$", "^(ab)*$", "[^a]"]),
        "minItems": SIZES,
        "maxItems": SIZES,
        "uniqueItems": st.booleans(),
        "items": inner,
        "prefixItems": several,
        "contains": inner,
        "properties": table,
        "additionalProperties": inner,
        "unevaluatedProperties": inner,
        "propertyNames": inner,
        "required": names,
        "dependentRequired": st.dictionaries(st.sampled_from("abc"), names, max_size=2),
        "maxProperties": SIZES,
        "allOf": several,
        "anyOf": several,
        "oneOf": several,
        "not": inner,
        "if": inner,
        "then": inner,
        "else": inner,
    }
    chosen = st.lists(st.sampled_from(sorted(keywords)), min_size=1, max_size=4, unique=True)
    return chosen.flatmap(lambda names: st.fixed_dictionaries({name: keywords[name] for name in names}))


SCHEMAS = st.recursive(
    st.booleans() | st.builds(lambda name: {"type": name}, TYPES),
    _schemas,
    max_leaves=4,
)


@settings(max_examples=examples(200), deadline=None)
@given(schema=SCHEMAS, value=VALUES)
def test_the_verdict_is_that_of_jsonschema(schema, value):
    validator = Validator(schema)
    valid = jsonschema.Draft202012Validator(schema).is_valid(value)
    assert validator.is_valid(value) == valid
    assert bool(validator.faults(value)) != valid


@settings(max_examples=examples(100), deadline=None)
@given(schema=SCHEMAS, value=VALUES)
def test_faults_are_bounded_distinct_and_in_plain_text(schema, value):
    faults = validate(schema, value)
    assert len(faults) <= 20
    assert len({(fault.pointer, fault.keyword, fault.expected) for fault in faults}) == len(faults)
    assert all(fault.expected and fault.got and fault.for_model().isprintable() for fault in faults)


def test_the_option_that_differs_only_in_blanks_is_the_near_miss():
    (fault,) = Validator({"enum": ["a", "A"]}).faults("a ")
    assert fault.hint == 'did you mean "a"?'
