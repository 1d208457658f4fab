"""Arguments that models get almost right are repaired where one reading alone fits, and nowhere else."""

from __future__ import annotations

import json
from copy import deepcopy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sampling import examples
from toolcrib.schema.coercion import Repair, coerce, repair
from toolcrib.schema.validation import Validator

INTEGER = {"type": "integer"}
NUMBER = {"type": "number"}
BOOLEAN = {"type": "boolean"}
STRING = {"type": "string"}
LIST = {"type": "array", "items": INTEGER}
UNIT = {"enum": ["metric", "imperial"]}


def closed(**properties):
    return {"type": "object", "properties": properties, "additionalProperties": False}


def of(**properties):
    return {"type": "object", "properties": properties}


def repaired(schema, value, level="safe"):
    before = deepcopy(value)
    validator = Validator(schema)
    result, repairs = coerce(schema, validator, value, level)
    assert value == before
    assert validator.is_valid(result) if repairs else result is value
    return result, [(repair.pointer, repair.kind) for repair in repairs]


SAFE = {
    "integer": (INTEGER, "10", 10, "parsed"),
    "signed": (INTEGER, "+10", 10, "parsed"),
    "negative": (INTEGER, "-10", -10, "parsed"),
    "space around": (INTEGER, " 7\n", 7, "parsed"),
    "nothing behind the point": (INTEGER, "5.00", 5, "parsed"),
    "exact integer": (INTEGER, "9" * 300, 10**300 - 1, "parsed"),
    "number": (NUMBER, "0.8", 0.8, "parsed"),
    "exponent": (NUMBER, "-1.5e3", -1500.0, "parsed"),
    "exact number": (NUMBER, "9007199254740993", 9007199254740993, "parsed"),
    "boolean": (BOOLEAN, "true", True, "parsed"),
    "boolean in capitals": (BOOLEAN, "FALSE ", False, "parsed"),
    "array": (LIST, "[1, 2]", [1, 2], "parsed"),
    "object": (of(a=INTEGER), ' {"a": 1}', {"a": 1}, "parsed"),
    "option that is a number": ({"enum": [1, 2]}, "2", 2, "parsed"),
    "one of several types": ({"type": ["integer", "null", "boolean"]}, "5", 5, "parsed"),
    "integer and number are one reading": ({"type": ["integer", "number"]}, "5", 5, "parsed"),
    "one branch": ({"anyOf": [INTEGER, BOOLEAN]}, "true", True, "parsed"),
    "one branch of oneOf": ({"oneOf": [INTEGER, {"type": "null"}]}, "5", 5, "parsed"),
    "behind a reference": ({"$ref": "#/$defs/n", "$defs": {"n": INTEGER}}, "5", 5, "parsed"),
    "in allOf": ({"allOf": [INTEGER, {"minimum": 3}]}, "5", 5, "parsed"),
    "text": (STRING, 5, "5", "written"),
    "text with a pattern": ({"type": "string", "pattern": "^[0-9]{5}$"}, 12345, "12345", "written"),
    "option that is text": ({"enum": ["1", "2"]}, 2, "2", "written"),
    "option in other case": (UNIT, "METRIC", "metric", "matched"),
    "option with space around": (UNIT, " metric ", "metric", "matched"),
    "const": ({"const": "Oslo"}, "oslo", "Oslo", "matched"),
    "options in branches": ({"oneOf": [{"const": "a"}, {"const": "b"}]}, "B", "b", "matched"),
    "no arguments": (of(a=INTEGER), None, {}, "dropped"),
    "no arguments as text": (of(a=INTEGER), "", {}, "dropped"),
}


@pytest.mark.parametrize("level", ["safe", "lenient"])
@pytest.mark.parametrize(("schema", "value", "wanted", "kind"), SAFE.values(), ids=SAFE)
def test_a_value_is_written_as_the_schema_wants_it(schema, value, wanted, kind, level):
    result, repairs = repaired(schema, value, level)
    assert (json.dumps(result), repairs) == (json.dumps(wanted), [("", kind)])


LENIENT = {
    **{text: (BOOLEAN, text, True, "parsed") for text in ("yes", "On", " y", "T", "1")},
    **{text: (BOOLEAN, text, False, "parsed") for text in ("no", "OFF", "n", "f", "0")},
    "one": (BOOLEAN, 1, True, "parsed"),
    "zero": (BOOLEAN, 0, False, "parsed"),
    "scalar": (LIST, 5, [5], "wrapped"),
    "object": ({"type": "array", "items": of(a=INTEGER)}, {"a": 1}, [{"a": 1}], "wrapped"),
}


@pytest.mark.parametrize(("schema", "value", "wanted", "kind"), LENIENT.values(), ids=LENIENT)
def test_usual_guesses_are_made_if_asked_for(schema, value, wanted, kind):
    result, repairs = repaired(schema, value, "lenient")
    assert (json.dumps(result), repairs) == (json.dumps(wanted), [("", kind)])
    assert repaired(schema, value, "safe") == (value, [])


NEVER = {
    "fraction": (INTEGER, "3.14"),
    "fraction as a number": (INTEGER, 3.5),
    "leading zero": (INTEGER, "007"),
    "exponent": (INTEGER, "1e3"),
    "hexadecimal": (INTEGER, "0x10"),
    "underscore": (INTEGER, "1_000"),
    "comma": (INTEGER, "1,000"),
    "other digits": (INTEGER, "\u0663"),
    "vast": (INTEGER, "9" * 5000),
    "boolean for an integer": (INTEGER, True),
    "list for an integer": (INTEGER, [5]),
    "beyond the maximum": ({"type": "integer", "maximum": 7}, "9"),
    "NaN": (NUMBER, "NaN"),
    "Infinity": (NUMBER, "Infinity"),
    "infinite": (NUMBER, "1e999"),
    "words": (NUMBER, "ten"),
    "boolean for text": (STRING, True),
    "fraction for text": (STRING, 5.5),
    "vast text": (STRING, 10**2000),
    "null for text": (STRING, None),
    "misspelt option": (UNIT, "metrc"),
    "two options": ({"enum": ["a", "A"]}, " a"),
    "number or text": ({"enum": [1, "1"]}, "1 "),
    "JSON of another type": (LIST, "{}"),
    "broken JSON": (LIST, "[1,"),
    "JSON with NaN": (LIST, "[NaN]"),
    "JSON with an infinite number": (LIST, "[1e999]"),
    "JSON with a key twice": (of(a=INTEGER), '{"a": 1, "a": 2}'),
    "JSON with half a surrogate": ({"type": "array"}, '["\\ud800"]'),
    "JSON that nests too deeply": ({"type": "array"}, "[" * 65 + "]" * 65),
    "JSON that nests much too deeply": ({"type": "array"}, "[" * 100_000),
    "JSON null": (of(a=INTEGER), "null"),
    "null where nothing is wanted": ({"type": "object", "required": ["a"]}, None),
    "not": ({"not": STRING}, "x"),
    "nothing fits": (False, 5),
    "too many digits for a boolean": (BOOLEAN, 2),
    "word for a boolean": (BOOLEAN, "perhaps"),
    "broken JSON of texts": ({"type": "array", "items": STRING}, '["a"'),
}


@pytest.mark.parametrize("level", ["safe", "lenient"])
@pytest.mark.parametrize(("schema", "value"), NEVER.values(), ids=NEVER)
def test_what_has_no_one_reading_is_given_back_as_it_came(schema, value, level):
    assert repaired(schema, value, level) == (value, [])


@pytest.mark.parametrize(
    ("schema", "value"),
    [(True, 5), (INTEGER, 5), (INTEGER, 5.0), (of(a=STRING), {"a": "5"}), ({"type": ["string", "null"]}, "")],
)
@pytest.mark.parametrize("level", ["safe", "lenient"])
def test_what_fits_is_never_changed(schema, value, level):
    assert repaired(schema, value, level) == (value, [])


NESTED = {
    "properties": (of(a=of(b=of(c=INTEGER))), {"a": {"b": {"c": "5"}}}, {"a": {"b": {"c": 5}}}, ["/a/b/c"]),
    "items": (
        {"items": of(a=INTEGER)},
        [{"a": "5"}, {"a": 6}, {"a": "7"}],
        [{"a": 5}, {"a": 6}, {"a": 7}],
        ["/0/a", "/2/a"],
    ),
    "first items": ({"prefixItems": [INTEGER, BOOLEAN]}, ["1", "true"], [1, True], ["/0", "/1"]),
    "further properties": ({"additionalProperties": INTEGER}, {"x": "5"}, {"x": 5}, ["/x"]),
    "properties by pattern": (
        {"patternProperties": {"^n": INTEGER}},
        {"n": "5", "m": "5"},
        {"n": 5, "m": "5"},
        ["/n"],
    ),
    "reference": ({**of(a={"$ref": "#/$defs/n"}), "$defs": {"n": INTEGER}}, {"a": "5"}, {"a": 5}, ["/a"]),
    "tree": (
        of(n=INTEGER, next={"$ref": "#"}),
        {"next": {"next": {"n": "5"}}},
        {"next": {"next": {"n": 5}}},
        ["/next/next/n"],
    ),
    "nearest branch": (
        {"anyOf": [of(kind={"const": "a"}, n=INTEGER), {**of(kind={"const": "b"}, n=BOOLEAN)}]},
        {"kind": "b", "n": "true"},
        {"kind": "b", "n": True},
        ["/n"],
    ),
    "then": (
        {"if": {"required": ["a"]}, "then": of(b=INTEGER)},
        {"a": 1, "b": "2"},
        {"a": 1, "b": 2},
        ["/b"],
    ),
    "within parsed text": (of(a=of(b=INTEGER)), {"a": '{"b": "3"}'}, {"a": {"b": 3}}, ["/a", "/a/b"]),
    "names that need escapes": (of(**{"a~/b %": INTEGER}), {"a~/b %": "5"}, {"a~/b %": 5}, ["/a~0~1b %"]),
    "names that look like positions": (
        of(**{"0": INTEGER, "01": INTEGER}),
        {"0": "5", "01": "6"},
        {"0": 5, "01": 6},
        ["/0", "/01"],
    ),
    "an id above": (
        of(a={"$id": "b", **of(c={"$ref": "#/$defs/n"}), "$defs": {"n": INTEGER}}),
        {"a": {"c": "5"}},
        {"a": {"c": 5}},
        ["/a/c"],
    ),
}


@pytest.mark.parametrize(("schema", "value", "wanted", "pointers"), NESTED.values(), ids=NESTED)
def test_repairs_are_made_wherever_the_schema_speaks_of_the_place(schema, value, wanted, pointers):
    result, repairs = repaired(schema, value)
    assert json.dumps(result) == json.dumps(wanted)
    assert [pointer for pointer, _kind in repairs] == pointers


def test_containers_are_copied_along_the_path_alone():
    value = {"a": {"n": "5"}, "other": {"deep": []}}
    result, _ = repaired(of(a=of(n=INTEGER)), value)
    assert result["other"] is value["other"]


@pytest.mark.parametrize("empty", [None, ""])
def test_null_and_nothing_are_dropped_where_a_property_may_be_left_out(empty):
    assert repaired(of(a=INTEGER, b=INTEGER), {"a": empty, "b": 1}) == ({"b": 1}, [("/a", "dropped")])
    assert repaired(of(a=UNIT), {"a": empty}) == ({}, [("/a", "dropped")])
    assert repaired({"items": of(a=INTEGER)}, [{"a": empty}]) == ([{}], [("/0/a", "dropped")])


@pytest.mark.parametrize(
    "schema",
    [
        {**of(a=INTEGER), "required": ["a"]},
        {"allOf": [{"required": ["a"]}, of(a=INTEGER)]},
        {**of(a=INTEGER), "minProperties": 1},
    ],
)
def test_a_property_that_has_to_be_there_is_not_dropped(schema):
    assert repaired(schema, {"a": None}) == ({"a": None}, [])


def test_null_that_the_schema_allows_stays():
    assert repaired(of(a={"type": ["integer", "null"]}, b=INTEGER), {"a": None, "b": "5"})[0] == {
        "a": None,
        "b": 5,
    }


def test_a_repair_that_does_not_help_in_the_end_is_not_made():
    assert repaired(of(a=INTEGER, b=INTEGER), {"a": "5", "b": "x"}) == ({"a": "5", "b": "x"}, [])


NAMES = {
    "stray": (closed(city_name=STRING), {"cityName": "Oslo"}, {"city_name": "Oslo"}),
    "missing": (
        {**of(city_name=STRING), "required": ["city_name"]},
        {"City-Name": "Oslo"},
        {"city_name": "Oslo"},
    ),
    "stray and missing": (
        {**closed(a=STRING, b=STRING), "required": ["a"]},
        {"B": "x", "A": "y"},
        {"b": "x", "a": "y"},
    ),
    "unevaluated": (
        {**of(cityName=STRING), "unevaluatedProperties": False},
        {"city name": "Oslo"},
        {"cityName": "Oslo"},
    ),
}


@pytest.mark.parametrize(("schema", "value", "wanted"), NAMES.values(), ids=NAMES)
def test_a_name_in_other_spelling_is_put_right_if_asked_for(schema, value, wanted):
    result, repairs = repaired(schema, value, "lenient")
    assert result == wanted
    assert list(result) == list(wanted)
    assert {kind for _pointer, kind in repairs} == {"renamed"}
    assert repaired(schema, value, "safe") == (value, [])


MISNAMED = {
    "nothing forbids it": (of(city_name=STRING), {"cityName": "Oslo"}),
    "both are there": (closed(city_name=STRING), {"cityName": "x", "city_name": "y"}),
    "two go by it": (closed(city_name=STRING), {"cityName": "x", "city-name": "y"}),
    "two go by it and one is missing": (
        {**of(city_name=STRING), "required": ["city_name"]},
        {"cityName": "x", "city-name": "y"},
    ),
    "it goes by two": (closed(city_name=STRING, CityName=STRING), {"cityname": "x"}),
    "nothing goes by it": ({**closed(city=STRING), "required": ["city"]}, {"ciy": "x"}),
}


@pytest.mark.parametrize(("schema", "value"), MISNAMED.values(), ids=MISNAMED)
def test_a_name_that_could_mean_several_things_or_none_stays(schema, value):
    assert repaired(schema, value, "lenient") == (value, [])


def test_a_name_put_right_is_read_as_its_property():
    assert repaired(closed(days=INTEGER), {"Days": "5"}, "lenient") == (
        {"days": 5},
        [("/Days", "renamed"), ("/days", "parsed")],
    )


def test_stray_properties_are_removed_if_asked_for():
    value = {"a": 1, "x": {"y": 2}, "z": None}
    result, repairs = repaired(closed(a=INTEGER), value, "lenient")
    assert (result, repairs) == ({"a": 1}, [("/x", "removed"), ("/z", "removed")])
    assert repaired({"type": "object", "additionalProperties": False}, {"a": 1}, "lenient")[0] == {}
    assert repaired(closed(a=INTEGER), value, "safe") == (value, [])


@pytest.mark.parametrize("level", ["safe", "lenient"])
def test_what_is_no_json_is_given_back(level):
    for value in ({"a": float("nan"), "b": "5"}, {"b": float("nan")}, {"b": {1, 2}}):
        assert coerce(of(b=INTEGER), Validator(of(b=INTEGER)), value, level) == (value, [])


def test_two_guesses_are_none():
    assert repaired({"anyOf": [BOOLEAN, LIST]}, 1, "lenient") == (1, [])
    assert repaired({"type": ["boolean", "integer"]}, "1", "lenient") == (1, [("", "parsed")])


def test_a_wrapped_value_is_read_as_an_item():
    assert repaired(LIST, "5", "lenient") == ([5], [("", "wrapped"), ("/0", "parsed")])


def test_a_repair_says_what_was_there_and_what_is_there():
    schema = closed(n=INTEGER, list=LIST, city_name=STRING, note=STRING)
    value = {"n": "5", "list": "[1]", "cityName": "Oslo", "note": None, "x": 1}
    _, repairs = coerce(schema, Validator(schema), value, "lenient")
    assert sorted(repairs, key=lambda repair: repair.pointer) == [
        Repair("/cityName", "renamed", '"Oslo"', "/city_name"),
        Repair("/list", "parsed", "text of 3 characters", "an array of 1 item"),
        Repair("/n", "parsed", '"5"', "5"),
        Repair("/note", "dropped", "null", "nothing"),
        Repair("/x", "removed", "1", "nothing"),
    ]


SECRETS = {
    "by name": (of(password=INTEGER), {"password": "7357"}),
    "by mark": (of(pin={"type": "integer", "writeOnly": True}), {"pin": "7357"}),
    "text": (of(password={"enum": ["CANARY7357"]}), {"password": "canary7357"}),
    "written": (of(api_key=STRING), {"api_key": 7357}),
    "renamed": (closed(api_key=STRING), {"apiKey": "CANARY7357"}),
    "removed": (closed(a=STRING), {"password": "CANARY7357"}),
    "within text": (of(a=of(password=STRING)), {"a": '{"password": "CANARY7357"}'}),
}


@pytest.mark.parametrize(("schema", "value"), SECRETS.values(), ids=SECRETS)
def test_a_repair_tells_no_secret(schema, value):
    _, repairs = coerce(schema, Validator(schema), value, "lenient")
    assert repairs
    assert "7357" not in repr(repairs)


def test_from_50_faults_on_nothing_is_repaired():
    many = {"items": INTEGER}
    assert len(repaired(many, ["1"] * 49)[1]) == 49
    assert repaired(many, ["1"] * 50) == (["1"] * 50, [])
    assert repaired({"items": LIST}, ["[" + ",".join(['"1"'] * 30) + "]"] * 2)[1] == []


def test_repairs_of_repairs_come_to_an_end():
    schema, wrapped = INTEGER, 5
    for _ in range(15):
        schema, wrapped = {"type": "array", "items": schema}, [wrapped]
    assert repaired(schema, 5, "lenient")[0] == wrapped
    for _ in range(5):
        schema = {"type": "array", "items": schema}
    assert repaired(schema, 5, "lenient") == (5, [])


def test_a_property_that_is_stray_for_two_reasons_is_removed_once():
    schema = {**closed(a=INTEGER), "unevaluatedProperties": False}
    assert repaired(schema, {"x": 1}, "lenient") == ({}, [("/x", "removed")])


def test_a_place_that_can_not_be_judged_apart_is_left_alone():
    astray = {"$id": "http://x/", "items": {"$id": "b/", "items": {"$ref": "c"}}}
    schema = {**astray, "$defs": {"c": {"$id": "b/c", "type": "integer"}}}
    assert repaired(schema, [["5"]]) == ([["5"]], [])


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.floats(-3, 3)
    | st.sampled_from(["", "1", "2.0", "0.5", "true", "no", "a", "A ", "[1]", '{"a": "1"}', "null"])
)
KEYS = st.sampled_from(["a", "A", "b_c", "bC"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=6,
)
TYPES = st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])
FLAT = (
    st.builds(lambda types: {"type": types}, st.lists(TYPES, min_size=1, max_size=2, unique=True))
    | st.builds(lambda options: {"enum": options}, st.lists(SCALARS, min_size=1, max_size=3))
    | st.just({"type": "string", "pattern": "^[a1]"})
    | st.just({"type": "integer", "minimum": 1})
)


def _schemas(inner):
    table = st.dictionaries(KEYS, inner, max_size=3)
    return (
        st.builds(
            lambda properties, required, more: {
                "type": "object",
                "properties": properties,
                "required": required,
                **more,
            },
            table,
            st.lists(KEYS, max_size=2, unique=True),
            st.sampled_from([{}, {"additionalProperties": False}, {"unevaluatedProperties": False}]),
        )
        | st.builds(lambda item: {"type": "array", "items": item}, inner)
        | st.builds(
            lambda keyword, parts: {keyword: parts},
            st.sampled_from(["allOf", "anyOf", "oneOf"]),
            st.lists(inner, min_size=1, max_size=2),
        )
    )


TREES = st.recursive(FLAT, _schemas, max_leaves=5)
SCHEMAS = TREES | st.builds(
    lambda schema: {"$defs": {"d": schema}, "properties": {"a": {"$ref": "#/$defs/d"}}}, TREES
)


@settings(max_examples=examples(300), deadline=None)
@given(schema=SCHEMAS, value=VALUES, level=st.sampled_from(["safe", "lenient"]))
def test_what_comes_back_fits_or_is_what_was_given(schema, value, level):
    before = json.dumps(value)
    validator = Validator(schema)
    result, repairs = coerce(schema, validator, value, level)
    assert json.dumps(value) == before
    if validator.is_valid(value) or not repairs:
        assert result is value
        assert repairs == []
    else:
        assert validator.is_valid(result)
        assert coerce(schema, validator, result, level) == (result, [])


@settings(max_examples=examples(100), deadline=None)
@given(schema=SCHEMAS, value=VALUES)
def test_lenient_repairs_whatever_safe_repairs_or_more(schema, value):
    validator = Validator(schema)
    _, repairs = coerce(schema, validator, value, "safe")
    if repairs:
        assert validator.is_valid(coerce(schema, validator, value, "lenient")[0])


CLOSED = {
    "type": "object",
    "properties": {
        "days": {"type": "integer"},
        "tag": {"type": "array", "items": {"type": "string", "pattern": "^a"}},
    },
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("value", "level", "left"),
    [
        ({"days": "4", "zz": 1}, "safe", ["/zz"]),
        ({"days": "four", "zz": 1}, "safe", ["/days", "/zz"]),
        ({"days": "4", "tag": "b"}, "lenient", ["/tag"]),
        ({"days": None, "zz": 1}, "safe", ["/zz"]),
    ],
)
def test_what_is_left_is_what_no_repair_ends(value, level, left):
    validator = Validator(CLOSED)
    found = repair(validator, value, level, validator.report(value))
    assert (found.value, found.repairs) == (value, [])
    assert sorted(fault.pointer for fault in found.left.faults) == left


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"n": "900"}, "expected at most 500, got 900"),
        ({"n": " -1 "}, "expected at least 0, got -1"),
        ({"n": "many"}, 'expected a number, got "many"'),
    ],
)
def test_a_number_in_a_text_is_explained_as_a_number(value, message):
    schema = {"type": "object", "properties": {"n": {"type": "number", "minimum": 0, "maximum": 500}}}
    validator = Validator(schema)
    (left,) = repair(validator, value, "safe", validator.explain(value)).left.faults
    assert (left.pointer, f"expected {left.expected}, got {left.got}") == ("/n", message)
