"""Matchers: what they accept, how they explain, and which patterns are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.core.errors import ExpressionError
from toolcrib.core.text import json_equal
from toolcrib.expressions.matchers import ABSENT, MatchDifference, Matcher, compile_matcher, find_impossible
from toolcrib.schema.validation import Validator

KEYS = st.sampled_from(["city", "days", "unit", "a/b", "~", ""])
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 3)
    | st.sampled_from([0.0, 1.0, 2.5])
    | st.sampled_from(["", "1", "Oslo"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=8,
)


def operator(name, operands):
    return operands.map(lambda operand: {name: operand})


NUMBERS = st.integers(-3, 3) | st.sampled_from([0.5, 1.0])
PATTERNS = st.recursive(
    VALUES
    | operator("$eq", VALUES)
    | operator("$ne", VALUES)
    | operator("$exact", VALUES)
    | st.sampled_from(["$gt", "$gte", "$lt", "$lte"]).flatmap(
        lambda name: operator(name, NUMBERS | st.just("M"))
    )
    | operator("$in", st.lists(VALUES, min_size=1, max_size=3))
    | operator("$regex", st.sampled_from(["^O", "1|s", ""]))
    | operator("$exists", st.booleans())
    | operator(
        "$type", st.sampled_from(["null", "boolean", "integer", "number", "string", "array", "object"])
    )
    | operator("$len", st.integers(0, 3))
    | operator("$close", st.tuples(NUMBERS, st.sampled_from([0, 0.5, 2])).map(list))
    | operator("$schema", st.sampled_from([{"type": "integer"}, {"required": ["city"]}, True, False])),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(KEYS, inner, max_size=3)
        | operator("$any", st.lists(inner, min_size=1, max_size=3))
        | operator("$all", st.lists(inner, min_size=1, max_size=3))
        | operator("$not", inner)
        | operator("$contains", inner)
    ),
    max_leaves=6,
)


def matcher(pattern, names=()) -> Matcher:
    problems: list = []
    compiled = compile_matcher(pattern, problems, names=names)
    assert problems == []
    return compiled


def problems_of(pattern, names=()):
    problems: list = []
    compile_matcher(pattern, problems, "/when/args", names=names)
    return [(problem.code, problem.pointer) for problem in problems]


ACCEPTED = [
    ("Oslo", "Oslo"),
    (1, 1.0),
    (None, None),
    (True, True),
    ({}, {"any": "object"}),
    ({"city": "Oslo"}, {"city": "Oslo", "days": 3}),
    ({"a": {"b": 1}}, {"a": {"b": 1, "c": 2}}),
    ([1, {"a": 1}], [1, {"a": 1, "b": 2}]),
    ([], []),
    ({"$eq": {"b": 2, "a": 1}}, {"a": 1.0, "b": 2}),
    ({"$eq": {"$x": 1}}, {"$x": 1}),
    ({"$exact": [1, "a"]}, [1, "a"]),
    ({"$ne": 1}, True),
    ({"$ne": "a"}, None),
    ({"$gt": 3}, 3.5),
    ({"$gte": 3, "$lt": 4}, 3),
    ({"$lte": "b"}, "a"),
    ({"$gt": 2**64}, 2**64 + 1),
    ({"$in": ["a", None, 1]}, None),
    ({"$in": ["a", None, 1]}, 1.0),
    ({"$regex": "^[A-Z]{3}-[0-9]+$"}, "ORD-17"),
    ({"$regex": "sl"}, "Oslo"),
    ({"$regex": r"\d"}, "no 5"),
    ({"x": {"$exists": False}}, {}),
    ({"x": {"$exists": True}}, {"x": None}),
    ({"x": {"$ne": 1}}, {}),
    ({"x": {"$not": 1}}, {}),
    ({"x": {"$any": [{"$exists": False}, 1]}}, {}),
    ({"$any": ["a", {"$gt": 5}]}, 6),
    ({"$all": [{"$gt": 1}, {"$lt": 3}]}, 2),
    ({"$all": [{"a": 1}]}, {"a": 1, "b": 2}),
    ({"$not": {"city": "Oslo"}}, {"city": "Bergen"}),
    ({"$contains": "sl"}, "Oslo"),
    ({"$contains": "Oslo"}, ["Bergen", "Oslo"]),
    ({"$contains": {"id": 2}}, [{"id": 1}, {"id": 2, "n": 0}]),
    ({"$contains": ""}, ""),
    ({"$schema": {"type": "integer", "minimum": 1}}, 3),
    ({"$schema": True}, None),
    ({"$type": "integer"}, 1.0),
    ({"$type": "number"}, 3),
    ({"$type": "null"}, None),
    ({"$len": 2}, "øl"),
    ({"$len": 0}, {}),
    ({"$len": {"$gte": 2}}, [1, 2]),
    ({"$close": [20.5, 0.5]}, 21),
    ({"$close": [0.3, 0.1]}, 0.4),
    ({"$close": [10**400, 1]}, 10**400 + 1),
]

REFUSED = [
    ("Oslo", "oslo"),
    (1, True),
    (1, "1"),
    (0, False),
    (True, 1),
    (False, 0),
    (None, False),
    ({}, []),
    ({}, None),
    ({"city": "Oslo"}, {"city": "Bergen"}),
    ({"city": None}, {}),
    ([1], [1, 2]),
    ([1, 2], [2, 1]),
    ([], {}),
    ({"$eq": {"a": 1}}, {"a": 1, "b": 2}),
    ({"$eq": [1]}, [True]),
    ({"$exact": {"a": 1, "b": 1}}, {"a": 1}),
    ({"$exact": {"a": 1}}, {"b": 1}),
    ({"$ne": 1}, 1.0),
    ({"$gt": 3}, 3),
    ({"$gt": 3}, "4"),
    ({"$gt": 0}, True),
    ({"$lt": "b"}, 1),
    ({"$gte": 3, "$lt": 4}, 4),
    ({"$in": [1]}, True),
    ({"$regex": "1"}, 1),
    ({"$regex": r"\d"}, "٥"),
    ({"x": {"$regex": ""}}, {}),
    ({"x": {"$exists": True}}, {}),
    ({"x": {"$exists": False}}, {"x": None}),
    ({"x": {"$gt": 1}}, {}),
    ({"x": {"$in": [None]}}, {}),
    ({"x": {"$type": "null"}}, {}),
    ({"x": {"$schema": True}}, {}),
    ({"x": {"$len": 0}}, {}),
    ({"x": {"$contains": ""}}, {}),
    ({"$any": ["a", {"$gt": 5}]}, 5),
    ({"$all": [{"$gt": 1}, {"$lt": 3}]}, 3),
    ({"$not": {"city": "Oslo"}}, {"city": "Oslo", "days": 1}),
    ({"$contains": "x"}, "Oslo"),
    ({"$contains": 1}, "1"),
    ({"$contains": 1}, [True]),
    ({"$contains": "a"}, {"a": 1}),
    ({"$schema": {"type": "integer"}}, "3"),
    ({"$schema": False}, 1),
    ({"$type": "integer"}, 1.5),
    ({"$type": "integer"}, True),
    ({"$type": "boolean"}, 0),
    ({"$len": 2}, 2),
    ({"$len": 1}, "øl"),
    ({"$close": [20, 0.5]}, 20.6),
    ({"$close": [1, 1]}, True),
    ({"$close": [1, 1]}, "1"),
]


@pytest.mark.parametrize(("pattern", "value"), ACCEPTED)
def test_accepted(pattern, value):
    assert matcher(pattern).matches(value)
    assert matcher(pattern).differences(value) == []


@pytest.mark.parametrize(("pattern", "value"), REFUSED)
def test_refused(pattern, value):
    assert not matcher(pattern).matches(value)
    assert matcher(pattern).differences(value)


@given(VALUES)
def test_a_value_matches_itself(value):
    assert matcher(value).matches(value)
    assert matcher({"$exact": value}).matches(value)
    assert matcher({"$eq": value}).matches(value)


@given(PATTERNS, VALUES)
def test_there_are_differences_exactly_if_it_does_not_match(pattern, value):
    compiled = matcher(pattern)
    assert compiled.matches(value) is not bool(compiled.differences(value))


@given(PATTERNS, VALUES)
def test_not_inverts(pattern, value):
    assert matcher({"$not": pattern}).matches(value) is not matcher(pattern).matches(value)


@given(st.dictionaries(KEYS, VALUES, max_size=4), st.dictionaries(KEYS, VALUES, max_size=4))
def test_an_object_accepts_every_object_that_adds_keys(pattern, more):
    assert matcher(pattern).matches({**more, **pattern})


@given(VALUES, VALUES)
def test_equality_is_symmetric_and_decides_exact_matchers(left, right):
    assert json_equal(left, right) is json_equal(right, left)
    assert matcher({"$exact": left}).matches(right) is json_equal(left, right)


@given(st.lists(PATTERNS, min_size=1, max_size=3), VALUES)
def test_any_and_all_are_or_and_and(patterns, value):
    each = [matcher(pattern).matches(value) for pattern in patterns]
    assert matcher({"$any": patterns}).matches(value) is any(each)
    assert matcher({"$all": patterns}).matches(value) is all(each)


def test_a_pattern_on_values_that_are_no_valid_text_is_an_answer_and_no_crash():
    assert not matcher({"$regex": "a"}).matches("a\ud800")
    assert not matcher({"$schema": {"type": "string"}}).matches("a\ud800")


@pytest.mark.parametrize(
    ("pattern", "value", "texts"),
    [
        ({"city": "Oslo"}, {"city": "Bergen"}, ['/city: expected "Oslo", got "Bergen"']),
        ({"town": "Oslo"}, {"towm": "Oslo"}, ['/town: expected "Oslo", got nothing (did you mean `towm`?)']),
        (
            {"city": "Oslo"},
            {"city": "oslo "},
            ['/city: expected "Oslo", got "oslo " (they differ only in whitespace or case)'],
        ),
        ({"days": 3}, {"days": "3"}, ['/days: expected 3, got "3" (number and string are never equal)']),
        (
            {"on": True},
            {"on": "true"},
            ['/on: expected true, got "true" (boolean and string are never equal)'],
        ),
        ({"a/b": {"~": 1}}, {"a/b": {"~": 2}}, ["/a~1b/~0: expected 1, got 2"]),
        ("a", "b", ['expected "a", got "b"']),
        ({"a": {}}, {"a": []}, ["/a: expected an object, got []"]),
        ([1], {"a": 1}, ['expected a list, got {"a": 1}']),
        ([1, 2], [3], ["expected 2 items, got 1", "/0: expected 1, got 3"]),
        ({"$eq": [1]}, [1, 2], ["expected 1 item, got 2"]),
        ({"$exact": {"a": 1}}, {"a": 2, "aa": 1}, ["/a: expected 1, got 2", "/aa: expected nothing, got 1"]),
        (
            {"$gte": 3, "$lt": 2},
            2.5,
            [
                "expected a number greater than or equal to 3, got 2.5",
                "expected a number less than 2, got 2.5",
            ],
        ),
        ({"$gt": "b"}, "a", ['expected a string greater than "b", got "a"']),
        ({"$ne": 1}, 1, ["expected anything but 1, got 1"]),
        ({"$in": [1, 2]}, 3, ["expected one of [1, 2], got 3"]),
        ({"$regex": "^a"}, "b", ['expected a string that matches "^a", got "b"']),
        ({"x": {"$exists": True}}, {}, ["/x: expected any value, got nothing"]),
        ({"x": {"$exists": False}}, {"x": 1}, ["/x: expected nothing, got 1"]),
        ({"$any": [1, 2]}, 3, ["expected any of [1, 2], got 3"]),
        ({"$all": [1, 2]}, 3, ["expected 1, got 3", "expected 2, got 3"]),
        ({"$not": 1}, 1, ["expected not 1, got 1"]),
        ({"$contains": "a"}, "b", ['expected a list or string that contains "a", got "b"']),
        ({"$contains": 1}, [2], ["expected a list that contains 1, got [2]"]),
        ({"$type": "integer"}, "x", ['expected an integer, got "x"']),
        ({"$type": "null"}, 0, ["expected null, got 0"]),
        ({"$type": "string"}, 0, ["expected a string, got 0"]),
        ({"$len": 2}, [1], ["expected a length that is 2, got 1"]),
        ({"$len": 2}, 5, ["expected a string, list or object, got 5"]),
        ({"$close": [20.5, 0.1]}, 21, ["expected a number within 0.1 of 20.5, got 21"]),
        ({"a": {"$schema": {"type": "integer"}}}, {"a": "x"}, ['/a: expected an integer, got "x"']),
        (
            {"a": {"$schema": {"type": "integer"}}},
            {},
            ["/a: expected a value that matches a schema, got nothing"],
        ),
    ],
)
def test_differences_say_where_what_and_why(pattern, value, texts):
    assert [str(difference) for difference in matcher(pattern).differences(value)] == texts


def test_a_near_miss_is_named_only_among_keys_that_the_pattern_does_not_want():
    assert matcher({"city": 1, "citys": 2}).differences({"citys": 2}) == [
        MatchDifference("/city", "1", "nothing")
    ]


def test_long_values_are_shortened_and_many_differences_cut():
    (difference,) = matcher("x").differences("y" * 500)
    assert len(difference.actual) == 80
    assert len(matcher([0] * 50).differences([1] * 50)) == 20
    assert len(matcher([0] * 50).differences([1] * 50, most=3)) == 3


def test_a_matcher_keeps_its_pattern_and_says_whether_it_is_constant():
    pattern = {"a": {"$any": ["{{ x }}", 1]}}
    assert matcher(pattern).constant
    assert matcher(pattern).expected() is pattern
    assert not matcher(pattern, names=["x"]).constant
    assert matcher({"a": [{"$gt": "{{ 1 + 1 }}"}]}, names=["x"]).constant
    assert repr(ABSENT) == "ABSENT"


@pytest.mark.parametrize(
    ("pattern", "value"),
    [
        ({"id": "{{ args.id }}"}, {"id": 7}),
        ({"text": "no {{ args.id }}"}, {"text": "no 7"}),
        ({"$eq": ["{{ args.id }}"]}, [7]),
        ({"$ne": "{{ args.id }}"}, 8),
        ({"$gt": "{{ args.id - 1 }}"}, 7),
        ({"$lt": "{{ args.name }}"}, "A"),
        ({"$in": ["{{ args.id }}", 0]}, 7),
        ({"$in": "{{ args.list }}"}, 2),
        ({"$exact": {"a": "{{ args.id }}"}}, {"a": 7}),
        ({"$contains": "{{ args.id }}"}, [7]),
        ({"$contains": "{{ args.name }}"}, "I am Bo."),
        ({"$not": {"$contains": "{{ args.id }}"}}, "7"),
        ({"$len": "{{ args.id }}"}, "seven77"),
        ({"$close": ["{{ args.id }}", 0.5]}, 7.25),
        ({"$any": ["{{ args.id }}"]}, 7),
        ({"$all": ["{{ args.id }}"]}, 7),
        ({"cost": "$${HOME}"}, {"cost": "${HOME}"}),
    ],
)
def test_expressions_give_the_expected_value_of_each_match(pattern, value):
    scope = {"args": {"id": 7, "name": "Bo", "list": [1, 2]}}
    compiled = matcher(pattern, names=["args"])
    assert compiled.matches(value, scope)
    assert compiled.differences(value, scope) == []
    assert compiled.differences({"other": None}, scope) or pattern.keys() & {"$ne", "$not"}


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        (
            {"a": {"$gt": "{{ args.flag }}"}},
            "`$gt` expects a number or a string, but its expression returned true",
        ),
        ({"a": {"$in": "{{ args.flag }}"}}, "`$in` expects a list of at least one plain value, but"),
        ({"a": {"$close": ["{{ args.flag }}", 1]}}, "`$close` expects a list of a number and a tolerance"),
    ],
)
def test_a_computed_operand_of_the_wrong_kind_is_an_error_at_its_place(pattern, text):
    with pytest.raises(ExpressionError) as caught:
        matcher(pattern, names=["args"]).matches({"a": 1}, {"args": {"flag": True}})
    assert text in caught.value.message
    assert caught.value.code == "wrong_operand"
    assert caught.value.pointer.startswith("/a/$")


def test_a_failing_expression_says_where_it_stands():
    with pytest.raises(ExpressionError) as caught:
        matcher({"a": {"b": "{{ args.gone }}"}}, names=["args"]).matches(
            {"a": {"b": 1}}, {"args": {"here": 1}}
        )
    assert caught.value.pointer == "/a/b"
    assert caught.value.code == "missing_key"


@pytest.mark.parametrize(
    ("pattern", "code", "place"),
    [
        ({"a": {"$gt": 1, "b": 2}}, "mixed_matcher", "/a"),
        ({"a": [{"$gtt": 1}]}, "unknown_operator", "/a/0/$gtt"),
        ({"$gt": None}, "wrong_operand", "/$gt"),
        ({"$gt": True}, "wrong_operand", "/$gt"),
        ({"$lte": [1]}, "wrong_operand", "/$lte"),
        ({"$in": 3}, "wrong_operand", "/$in"),
        ({"$in": []}, "wrong_operand", "/$in"),
        ({"$in": [{"$gt": 1}]}, "wrong_operand", "/$in"),
        ({"$regex": 3}, "wrong_operand", "/$regex"),
        ({"$regex": "("}, "invalid_pattern", "/$regex"),
        ({"$regex": "(?=a)"}, "invalid_pattern", "/$regex"),
        ({"$regex": r"(a)\1"}, "invalid_pattern", "/$regex"),
        ({"$exists": "yes"}, "wrong_operand", "/$exists"),
        ({"$any": []}, "wrong_operand", "/$any"),
        ({"$all": {"a": 1}}, "wrong_operand", "/$all"),
        ({"$not": {"$foo": 1}}, "unknown_operator", "/$not/$foo"),
        ({"$contains": {"$foo": 1}}, "unknown_operator", "/$contains/$foo"),
        ({"$schema": "string"}, "wrong_operand", "/$schema"),
        ({"$type": "str"}, "wrong_operand", "/$type"),
        ({"$type": ["string"]}, "wrong_operand", "/$type"),
        ({"$len": "two"}, "wrong_operand", "/$len"),
        ({"$len": True}, "wrong_operand", "/$len"),
        ({"$len": {"a": 1}}, "wrong_operand", "/$len"),
        ({"$close": 3}, "wrong_operand", "/$close"),
        ({"$close": [3, -1]}, "wrong_operand", "/$close"),
        ({"$close": [3, "x"]}, "wrong_operand", "/$close"),
    ],
)
def test_a_broken_pattern_is_refused_at_its_place_and_accepts_nothing(pattern, code, place):
    assert problems_of(pattern) == [(code, "/when/args" + place)]
    compiled = compile_matcher(pattern, [])
    assert not compiled.matches({"a": [1]}) or "$not" in pattern


def test_a_broken_schema_is_refused_with_its_own_problems():
    (problem,) = problems_of({"a": {"$schema": {"type": "strng"}}})
    assert problem[1] == "/when/args/a/$schema/type"


def test_all_problems_are_collected():
    assert len(problems_of({"a": {"$gt": None}, "b": {"$x": 1, "$y": 1}, "c": [{"$in": 1}]})) == 4


@pytest.mark.parametrize(
    ("pattern", "hint"),
    [
        ({"$gtee": 1}, "did you mean `$gte`"),
        ({"$or": [1]}, "write `$any`"),
        ({"$present": True}, "write `$exists`"),
        ({"$zzzz": 1}, "the operators are `$eq`"),
        ({"$in": [{"$gt": 1}]}, "use `$any` for a list of matchers"),
        ({"a": 1, "$b": 1}, "`$exact`"),
    ],
)
def test_a_refusal_shows_the_way_out(pattern, hint):
    problems: list = []
    compile_matcher(pattern, problems)
    assert hint in problems[0].hint


@pytest.mark.parametrize(
    ("pattern", "code"),
    [
        ({"a": "{{ nobody }}"}, "unknown_name"),
        ({"$gt": "{{ 1 +"}, "expression_syntax"),
        ({"$regex": "{{ args.x }}"}, "wrong_operand"),
        ({"$type": "{{ args.x }}"}, "wrong_operand"),
        ({"$contains": "{{ nobody }}"}, "unknown_name"),
    ],
)
def test_expressions_are_checked_when_a_pattern_is_compiled(pattern, code):
    assert [found for found, _ in problems_of(pattern, names=["args"])] == [code]


SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "unit": {"enum": ["celsius", "kelvin"]},
        "kind": {"const": "daily"},
        "days": {"type": ["integer", "null"]},
        "place": {"$ref": "#/$defs/place"},
        "tags": {"type": "array", "prefixItems": [{"const": "a"}], "items": {"type": "string"}},
        "free": {"anyOf": [{"type": "string"}]},
        "any": True,
        "loop": {"$ref": "#/$defs/loop"},
        "far": {"$ref": "other.json#/x"},
        "lost": {"$ref": "#/$defs/gone/deeper"},
        "both": {"$ref": "#/$defs/place", "properties": {"more": {}}},
    },
    "additionalProperties": False,
    "$defs": {
        "place": {"type": "object", "properties": {"lat": {"type": "number"}}},
        "loop": {"$ref": "#/$defs/loop"},
    },
}


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ({"citty": "Oslo"}, [("unknown_argument", "error", "/citty")]),
        ({"place": {"lta": 1}}, [("unknown_argument", "warning", "/place/lta")]),
        ({"place": {"lat": "x"}}, [("never_matches", "error", "/place/lat")]),
        ({"unit": "celcius"}, [("never_matches", "error", "/unit")]),
        ({"kind": "hourly"}, [("never_matches", "error", "/kind")]),
        ({"days": "3"}, [("never_matches", "error", "/days")]),
        ({"city": {"name": "x"}}, [("never_matches", "error", "/city")]),
        ({"city": ["x"]}, [("never_matches", "error", "/city")]),
        ({"city": {"$eq": 3}}, [("never_matches", "error", "/city/$eq")]),
        ({"place": {"$exact": "x"}}, [("never_matches", "error", "/place/$exact")]),
        ({"unit": {"$in": ["c", "k"]}}, [("never_matches", "error", "/unit")]),
        ({"unit": {"$regex": "^C"}}, [("never_matches", "error", "/unit")]),
        ({"kind": {"$any": ["a", "b"], "$type": "string"}}, [("never_matches", "error", "/kind")]),
        ({"city": {"$in": [1, 2]}}, [("never_matches", "error", "/city/$in")]),
        ({"city": {"$gt": 3}}, [("never_matches", "error", "/city/$gt")]),
        (
            {"days": {"$gt": "a", "$regex": "a"}},
            [("never_matches", "error", f"/days/{name}") for name in ("$gt", "$regex")],
        ),
        ({"days": {"$len": 3}}, [("never_matches", "error", "/days/$len")]),
        ({"days": {"$contains": "a"}}, [("never_matches", "error", "/days/$contains")]),
        ({"city": {"$contains": 3}}, [("never_matches", "error", "/city/$contains")]),
        ({"city": {"$close": [1, 1]}}, [("never_matches", "error", "/city/$close")]),
        ({"city": {"$type": "integer"}}, [("never_matches", "error", "/city/$type")]),
        ({"city": {"$all": [{"$regex": "a"}, 3]}}, [("never_matches", "error", "/city/$all/1")]),
        ({"tags": ["b", 3]}, [("never_matches", "error", "/tags/0"), ("never_matches", "error", "/tags/1")]),
        ({"x": {"$exists": True}}, [("unknown_argument", "error", "/x")]),
        ({"x": {"$gt": 1, "$ne": 3}}, [("unknown_argument", "error", "/x")]),
        ({"x": {}}, [("unknown_argument", "error", "/x")]),
    ],
)
def test_what_no_arguments_can_match_is_reported(pattern, expected):
    found = find_impossible(pattern, SCHEMA)
    assert [(problem.code, problem.severity, problem.pointer) for problem in found] == expected


@pytest.mark.parametrize(
    "pattern",
    [
        {},
        {
            "city": "Oslo",
            "unit": "kelvin",
            "kind": "daily",
            "days": 3.0,
            "place": {"lat": 1},
            "tags": ["a", "b"],
        },
        {"days": None},
        {"city": "{{ vars.city }}", "unit": "{{ vars.unit }}", "kind": {"$eq": "{{ x }}"}},
        {"unit": {"$in": ["c", "kelvin"]}},
        {"unit": {"$in": ["{{ x }}"]}},
        {"place": {"$eq": {"lat": ["{{ x }}"]}}},
        {"x": {"$exists": False}},
        {
            "unit": {"$regex": "^k"},
            "days": {"$type": "number"},
            "city": {"$gt": "a", "$contains": "x", "$len": 3},
        },
        {
            "days": {"$gt": "{{ x }}", "$type": "null"},
            "kind": {"$any": ["{{ x }}"]},
            "unit": {"$not": "kelvin"},
        },
        {"unit": {"$eq": "{{ x }}"}, "kind": {"$gt": None}},
        {"x": {"$not": 1}},
        {"x": {"$ne": 1}},
        {"x": {"$any": [1, {"$exists": False}]}},
        {"free": 3, "any": {"thing": 1}, "loop": 1, "far": 1, "lost": 1, "both": {"more": 1}},
        {"city": {"$any": [1, 2]}},
        {"city": {"$all": 3}},
    ],
)
def test_what_may_match_is_never_reported(pattern):
    assert find_impossible(pattern, SCHEMA) == []


@pytest.mark.parametrize(
    "schema",
    [
        True,
        {},
        {"type": "object"},
        {"properties": {"a": {}}, "additionalProperties": True},
        {"properties": {"a": {}}, "additionalProperties": {"type": "string"}},
        {"properties": {"a": {}}, "patternProperties": {"^x": {}}, "additionalProperties": False},
        {"properties": {"a": {}}, "allOf": [{"properties": {"xyz": {}}}]},
        {
            "$defs": {"r": {"$id": "urn:r", "$defs": {"s": {"const": 1}}}},
            "properties": {"xyz": {"$ref": "#/$defs/r/$defs/s"}},
        },
    ],
)
def test_a_schema_that_may_know_more_reports_nothing(schema):
    assert find_impossible({"xyz": "x"}, schema) == []


@given(
    st.sampled_from(
        [
            {"type": "integer"},
            {"type": ["string", "null"]},
            {"enum": [1, "1", None, "Oslo"]},
            {"const": {"city": 1}},
            {"type": "array", "items": {"type": "integer"}},
            {"type": "object", "properties": {"city": {"type": "string"}, "days": {"enum": [1, 2]}}},
            {"properties": {"city": {"type": "integer"}}, "additionalProperties": False},
        ]
    ),
    PATTERNS,
    VALUES,
)
def test_a_pattern_that_matches_a_valid_value_is_never_an_error(schema, pattern, value):
    if Validator(schema).is_valid(value) and matcher(pattern).matches(value):
        assert [problem for problem in find_impossible(pattern, schema) if problem.severity == "error"] == []


def test_a_report_names_what_is_allowed_and_what_is_near():
    (unknown,) = find_impossible({"citty": 1}, SCHEMA)
    assert unknown.hint == "did you mean `city`?"
    (far,) = find_impossible({"qqq": 1}, {"properties": {}, "additionalProperties": False})
    assert far.hint == "it has no keys"
    (never,) = find_impossible({"unit": "Celsius"}, SCHEMA)
    assert never.hint == "did you mean `celsius`?"
    assert 'one of ["celsius", "kelvin"]' in never.message
    assert "`integer` or `null`" in find_impossible({"days": "x"}, SCHEMA)[0].message
    assert find_impossible({"kind": "dayly"}, SCHEMA)[0].message.endswith('only "daily"')


@pytest.mark.parametrize(
    ("pattern", "schema"),
    [
        ({"$gt": 5, "$lt": 3}, True),
        ({"$gt": 5, "$lte": 5}, True),
        ({"$gt": "b", "$lte": "a"}, True),
        ({"$gt": 1, "$lt": "a"}, True),
        ({"$gt": 1, "$lt": 2}, {"type": "integer"}),
        ({"$lt": 1}, {"minimum": 1}),
        ({"$gte": 9}, {"exclusiveMaximum": 9}),
        (7, {"maximum": 6.5}),
        ({"$eq": 0}, {"type": "integer", "exclusiveMinimum": 0}),
        ({"$all": [{"$gt": 5, "$lt": 3}]}, {}),
    ],
)
def test_bounds_with_nothing_between_them_are_found(pattern, schema):
    for place, within in ((pattern, schema), ({"x": pattern}, {"properties": {"x": schema}})):
        (problem,) = find_impossible(place, within)
        assert problem.code == "never_matches"


def test_bounds_are_found_under_keys_that_the_schema_does_not_name():
    (problem,) = find_impossible({"x": {"y": [{"$gt": 5, "$lt": 3}]}}, {"type": "object"})
    assert (problem.pointer, problem.hint[:8]) == ("/x/y/0", "swap the")


@pytest.mark.parametrize(
    ("pattern", "schema"),
    [
        ({"$gte": 5, "$lte": 5}, True),
        ({"$gt": 1, "$lt": 2}, {"type": "number"}),
        ({"$gt": "a", "$lt": "b"}, {"minimum": 3}),
        ({"$gt": "{{ 5 }}", "$lt": 3}, True),
        ({"$gt": 1, "$lt": 3}, {"minimum": True, "exclusiveMinimum": False, "maximum": 2}),
        ("x", {"maximum": 6}),
        ({"$not": {"$gt": 5, "$lt": 3}}, {}),
    ],
)
def test_bounds_with_something_between_them_are_fine(pattern, schema):
    assert find_impossible(pattern, schema) == []


def test_what_a_schema_allows_is_told_with_its_bounds():
    (problem,) = find_impossible(7, {"type": "integer", "maximum": 6})
    assert problem.message == "7 cannot occur here: the input schema allows `integer`, maximum 6"
