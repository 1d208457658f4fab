"""Large values: what is wrong with them is found in one more pass, at most 50 violations of it, and none is invented."""

from __future__ import annotations

import random

import pytest

from sampling import sample
from toolcrib.core.text import compact
from toolcrib.schema.validation import Validator, check_schema
from toolcrib.schema.validation.explanation import Explanation
from toolcrib.schema.validation.json_values import compact_size, count_elements
from toolcrib.schema.validation.validator import COMPUTED
from toolcrib.schema.validation.violation_search import ViolationSearch

DRAFT_7 = "http://json-schema.org/draft-07/schema#"
DRAFT_2019 = "https://json-schema.org/draft/2019-09/schema"
MANY = 3_000

INTEGER = {"type": "integer"}
INTEGERS = {"type": "array", "items": INTEGER}
RECORD = {
    "type": "object",
    "properties": {"id": INTEGER, "tags": {"items": {"type": "string"}}},
    "required": ["id"],
}


def records(*bad):
    return [{"id": "x" if index in bad else index, "tags": ["a"]} for index in range(MANY)]


LINES = {
    "all items": (INTEGERS, ["x"] * MANY, [f'/{index}: expected an integer, got "x"' for index in range(COMPUTED)]),
    "the last item": (INTEGERS, [1] * MANY + ["x"], [f'/{MANY}: expected an integer, got "x"']),
    "records": (
        {"items": RECORD},
        records(7, 2_999),
        ['/7/id: expected an integer, got "x"', '/2999/id: expected an integer, got "x"'],
    ),
    "a missing property": (
        {"items": RECORD},
        [*records(), {}],
        [f"/{MANY}/id: expected an integer (required), got nothing"],
    ),
    "in a property": (
        {"properties": {"items": INTEGERS}, "required": ["name"]},
        {"items": [1] * MANY + [None]},
        [
            "/name: expected a value (required), got nothing",
            f"/items/{MANY}: expected an integer, got null",
        ],
    ),
    "too many items": ({"maxItems": 5}, [1] * MANY, [f"(root): expected at most 5 items, got an array of {MANY} items"]),
    "too few items": (
        {"minItems": MANY + 1},
        [1] * MANY,
        [f"(root): expected at least {MANY + 1} items, got an array of {MANY} items"],
    ),
    "another type": ({"type": "object"}, [1] * MANY, [f"(root): expected an object, got an array of {MANY} items"]),
    "items that repeat": (
        {"uniqueItems": True},
        [*range(MANY), 0],
        [f"(root): expected unique items, got an array of {MANY + 1} items"],
    ),
    "no item fits": (
        {"contains": {"type": "string"}},
        [1] * MANY,
        [
            f"(root): expected items of which the required number matches `contains`, got an array of {MANY} items"
        ],
    ),
    "const": ({"const": "a"}, [1] * MANY, [f'(root): expected "a", got an array of {MANY} items']),
    "not": (
        {"not": {"type": "array"}},
        [1] * MANY,
        [f"(root): expected a value that does not match the schema under `not`, got an array of {MANY} items"],
    ),
    "false": ({"properties": {"a": False}}, {"a": [1] * MANY}, ["/a: expected nothing here, got an array of 3000 items"]),
    "nullable": (
        {"anyOf": [INTEGERS, {"type": "null"}]},
        [1] * MANY + ["x"],
        [f'/{MANY}: expected an integer, got "x" (nearest of 2 forms)'],
    ),
    "several forms": (
        {"oneOf": [INTEGERS, {"minItems": 1}]},
        [1] * MANY,
        [f"(root): expected a value that matches exactly one of 2 forms, got an array of {MANY} items (it matches the forms 1, 2)"],
    ),
    "a form within items": (
        {"items": {"anyOf": [INTEGER, {"type": "null"}]}},
        [1] * MANY + ["x"],
        [f'/{MANY}: expected an integer or null, got "x"'],
    ),
    "behind a condition": (
        {"if": {"minItems": 2}, "then": INTEGERS, "else": False},
        [1] * MANY + ["x"],
        [f'/{MANY}: expected an integer, got "x"'],
    ),
    "behind the first items": (
        {"prefixItems": [{"type": "string"}], "items": INTEGER},
        [1, *range(MANY), "x"],
        ["/0: expected a string, got 1", f'/{MANY + 1}: expected an integer, got "x"'],
    ),
    "additional items": (
        {"$schema": DRAFT_7, "items": [{}], "additionalItems": False},
        [1] * MANY,
        [f"(root): expected at most 1 item, got an array of {MANY} items"],
    ),
    "values of properties": (
        {"properties": {"a": {"type": "string"}}, "additionalProperties": INTEGER},
        {"a": 1, **{f"k{index}": index for index in range(MANY)}, "z": "x"},
        ["/a: expected a string, got 1", '/z: expected an integer, got "x"'],
    ),
    "names of properties": (
        {"propertyNames": {"maxLength": 5}},
        {f"k{index}": index for index in range(MANY)} | {"longer": 1},
        ["/longer: expected a valid property name: at most 5 characters, got `longer`"],
    ),
    "unevaluated items": (
        {"allOf": [{"prefixItems": [{}]}], "unevaluatedItems": False},
        [1] * MANY,
        [f"(root): expected no additional items, got an array of {MANY} items"],
    ),
    "the key 1": ({"additionalProperties": {"items": INTEGER}}, {"1": ["x"] * 60}, [f'/1/{index}: expected an integer, got "x"' for index in range(COMPUTED)]),
}  # fmt: skip


@pytest.mark.parametrize(("schema", "value", "lines"), LINES.values(), ids=LINES)
def test_a_violation_of_a_large_value_reads_like_one_of_a_small_value(schema, value, lines):
    report = Validator(schema).report(value)
    assert [fault.for_model() for fault in report.faults] == lines
    assert report.more is (len(lines) == COMPUTED)


LADDER = {
    "$defs": {"s0": INTEGER}
    | {f"s{step}": {"allOf": [{"$ref": f"#/$defs/s{step - 1}"}] * 2} for step in range(1, 15)},
    "items": {"$ref": "#/$defs/s14"},
}

HOSTILE = {
    "items": (INTEGERS, ["x"] * 200_000),
    "records": ({"items": RECORD}, [{"id": "x", "tags": [1, 2]}] * 50_000),
    "one bad item in each chunk": (INTEGERS, [*range(249), "x"] * 800),
    "a nullable list": ({"anyOf": [INTEGERS, {"type": "null"}]}, ["x"] * 200_000),
    "stray properties": ({"additionalProperties": False}, {f"k{index}": 1 for index in range(100_000)}),
    "stray properties beside known ones": (
        {"properties": {"a": {}}, "additionalProperties": False},
        {f"k{index}": 1 for index in range(100_000)},
    ),
    "missing properties": (
        {"required": [f"r{index}" for index in range(5_000)]},
        {f"k{index}": 1 for index in range(100_000)},
    ),
    "names": ({"propertyNames": {"maxLength": 1}}, {f"k{index}": 1 for index in range(100_000)}),
    "many lists": ({"items": INTEGERS}, [["x"] * 300] * 300),
    "nested lists": ({"items": {"items": {"items": INTEGER}}}, [[["x"] * 20] * 20] * 200),
    "many forms": ({"items": {"oneOf": [{"const": number} for number in range(5_000)]}}, ["x"] * 100_000),
    "a ladder": (LADDER, ["x"] * 100_000),
    "a list of its own kind": ({"$id": "tree", "items": {"$ref": "tree"}, "type": "array"}, [[["x"] * 300] * 10] * 10),
}  # fmt: skip


@pytest.mark.parametrize(
    ("schema", "value"), sample(HOSTILE.values(), one_in=3), ids=sample(HOSTILE, one_in=3)
)
def test_at_most_50_violations_are_worked_out_in_one_pass_behind_the_judgement(schema, value):
    validator = Validator(schema)
    assert not validator.judge(value)  # the first pass; it ends at the first violation
    report = validator.explain(value)
    assert 0 < len(report.faults) <= COMPUTED
    assert report.judged <= count_elements(value, 10**9)


def test_a_report_counts_what_is_not_shown_and_claims_no_total_beyond_50():
    def told(count):
        report = Validator(INTEGERS).report(["x"] * count)
        return report.counts(), report.unshown()

    assert told(20) == ({}, [])
    assert told(23) == ({"total": 23}, ["... and 3 more"])
    assert told(49) == ({"total": 49}, ["... and 29 more"])
    assert told(50) == ({"at_least": 50}, ["... and at least 30 more"])
    assert told(100_000) == ({"at_least": 50}, ["... and at least 30 more"])


NAMES = ["a", "b", "1", "x-1"]


class Drawn:
    """Schemas and values that are drawn by a seed."""

    def __init__(self, seed):
        self.random = random.Random(seed)
        self.dialect = self.random.choice(["", DRAFT_7, DRAFT_2019])
        self.definitions = "definitions" if self.dialect == DRAFT_7 else "$defs"

    def schema(self):
        drawn = {self.definitions: {"t": self.inner(1)}, **self.keywords(3)}
        return {"$schema": self.dialect, **drawn} if self.dialect else drawn

    def inner(self, depth):
        plain = [INTEGER, {"type": "string"}, {"type": ["null", "array"]}, {"minimum": 2}, {}, True, False]
        if depth <= 0 or self.random.random() < 0.15:
            return self.random.choice([*plain, {"$ref": f"#/{self.definitions}/t"}] if depth < 3 else plain)
        return self.keywords(depth)

    def keywords(self, depth):
        known = self.random.sample(NAMES, 2)
        inner, number = self.inner, self.random.randint(0, 4)
        older = self.dialect in (DRAFT_7, DRAFT_2019)
        listed = {"items": [inner(depth - 1)], "additionalItems": inner(depth - 1)}
        dependent = {"dependentSchemas": {known[0]: inner(depth - 1)}, "dependentRequired": {known[1]: ["a"]}}
        choices = [
            {"type": self.random.choice(["array", "object", ["array", "object"]])},
            {"properties": {name: inner(depth - 1) for name in known}},
            {"patternProperties": {self.random.choice(["^a", "[0-9]"]): inner(depth - 1)}},
            {self.random.choice(["anyOf", "oneOf", "allOf"]): [inner(depth - 1) for _ in range(2)]},
            {"if": inner(depth - 1), "then": inner(depth - 1), "else": inner(depth - 1)},
            {self.random.choice(["minItems", "maxItems", "minProperties", "maxProperties"]): number},
            {"uniqueItems": True},
            {"required": known},
            {"const": self.random.choice([[], {}, 1])},
            {"enum": [[], {"a": 1}, 3]},
            {"dependencies": {known[0]: inner(depth - 1), known[1]: ["a"]}} if self.dialect == DRAFT_7 else dependent,
            listed if older else {"prefixItems": [inner(depth - 1)]},
            *(
                {keyword: inner(depth - 1)}
                for keyword in ("items", "additionalProperties", "not", "contains", "propertyNames")
            ),
            {} if self.dialect == DRAFT_7 else {"unevaluatedItems": inner(depth - 1)},
        ]  # fmt: skip
        drawn = {}
        for each in self.random.sample(choices, self.random.randint(1, 3)):
            drawn |= each
        return drawn

    def value(self, depth):
        if depth <= 0 or self.random.random() < 0.3:
            return self.random.choice([1, 2, "a", None, True, 1.5])
        if self.random.random() < 0.5:
            return [self.value(depth - 1) for _ in range(self.random.randint(0, 5))]
        return {name: self.value(depth - 1) for name in self.random.sample(NAMES, self.random.randint(0, 4))}


@pytest.mark.parametrize("whole", [2, 5])
@pytest.mark.parametrize("seed", sample(range(40), 20))
def test_the_search_finds_what_is_wrong_and_nothing_else(seed, whole):
    """What is searched member by member, as if it were large, is explained whole beside it."""
    drawn = Drawn(seed)
    for _ in range(12):
        schema = drawn.schema()
        if check_schema(schema):
            continue
        validator = Validator(schema)
        for value in (drawn.value(3) for _ in range(4)):
            search = ViolationSearch(
                validator.index, validator._effort, validator._compile_beside, validator._reference, whole
            )
            found = [*search.errors(validator.index.root, value)]
            assert bool(found) is not validator.judge(value), (schema, value)
            explanation = Explanation(value, validator.index, lambda _path, _value: False)
            expected = {*explanation.of(validator._compiled.iter_errors(value), 10**6)}
            assert {*explanation.of(found, 10**6)} <= expected, (schema, value)


LONG = "wörd\n" * 1000


@pytest.mark.parametrize(
    "value",
    [
        LONG * 100,
        [LONG] * 500,
        [[LONG] * 300, [], {}, [1, None, True, 1.5, -3]],
        {f"{LONG}{number}": number for number in range(300)},
        {"a": [{"b": [LONG] * 200}] * 3, "c": {"d": {"e": LONG * 70}}, "f": []},
        [{"x": number} for number in range(200_000)],
        [[number] * 3 for number in range(129)],
        [],
        {},
        None,
    ],
)
def test_a_size_is_that_of_the_whole_text(value):
    assert compact_size(value, 100) == len(compact(value).encode())
