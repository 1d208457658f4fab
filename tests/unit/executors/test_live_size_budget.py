"""`response.budget`: what is too large loses whole items, fits, and says so."""

from __future__ import annotations

import json

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from live_answers import TOOL, answer, result_of
from sampling import sample
from toolcrib import Outcome
from toolcrib.core.pointers import keys_of
from toolcrib.core.text import compact
from toolcrib.schema.validation import Validator


def within(size, value, items=None, schema=None, block=None, **tool):
    budget = {"size": size} if items is None else {"size": size, "items": items}
    body = json.dumps(value).encode()
    whole = TOOL._replace(output_schema=schema, **tool)
    return result_of({"response": {"budget": budget}, **(block or {})}, answer(body), tool=whole)


def told(result):
    assert result.outcome is Outcome.OK, result.message
    return result.value, result.meta.get("truncated")


def refusal(result):
    assert (result.outcome, result.error.code) == (Outcome.LIMIT_EXCEEDED, "result_too_large")
    assert not result.error.retryable
    assert result.value is None
    return result


def test_what_fits_stays_as_it_is():
    assert told(within(13, {"a": [1, 2, 3]})) == ({"a": [1, 2, 3]}, None)
    assert told(within(12, {"a": [1, 2, 3]})) == ({"a": [1, 2]}, [{"pointer": "/a", "kept": 2, "of": 3}])


def test_bytes_are_counted_in_utf_8():
    assert told(within(10, ["ø", "ø"])) == (["ø"], [{"pointer": "", "kept": 1, "of": 2}])
    assert told(within(11, ["ø", "ø"])) == (["ø", "ø"], None)


def test_the_named_list_alone_loses_items():
    value = {"small": [1] * 10, "page": {"rows": ["x" * 10] * 50}}
    left, truncated = told(within(200, value, "/page/rows"))
    assert left == {"small": [1] * 10, "page": {"rows": ["x" * 10] * truncated[0]["kept"]}}
    assert truncated == [{"pointer": "/page/rows", "kept": 11, "of": 50}]
    assert len(compact(left)) <= 200 < len(compact(left)) + 13
    assert told(within(20, [[1] * 20, 2], "/0"))[0] == [[1] * 7, 2]
    assert told(within(20, [1] * 20, ""))[0] == [1] * 9


@pytest.mark.parametrize(
    ("value", "items", "why"),
    [
        ({"rows": ["x" * 100]}, "/rows", "too few items"),
        ({"rows": [1] * 9, "text": "x" * 100}, "/rows", "too few items"),
        ({"rows": [], "text": "x" * 100}, "/rows", "too few items"),
        ({"text": "x" * 100}, "/rows", "`/rows` does not exist"),
        ({"rows": {"a": "x" * 100}}, "/rows", "`/rows` is not a list"),
        ({"rows": ["x" * 100]}, "/rows/1/a", "`/rows/1/a` does not exist"),
        ({"rows": ["x" * 100]}, "/rows/a", "`/rows/a` does not exist"),
        ("x" * 100, "", "`(the whole response)` is not a list"),
        ("x" * 100, None, "already too large"),
        (["x" * 100], None, "already too large"),
        ({"a": ["x" * 60], "b": ["y" * 60]}, None, "already too large"),
    ],
)
def test_what_can_not_be_shortened_is_refused_with_a_way_out(value, items, why):
    result = refusal(within(50, value, items))
    assert why in result.message
    assert (
        "request less data, raise `response.budget.size`, or extract the needed fields with `select`"
        in result.message
    )
    assert result.error.details == {"size": len(compact(value)), "budget": 50}


def test_the_largest_lists_share_what_there_is():
    value = {"a": [1] * 500, "text": "x" * 50, "b": [2] * 500, "c": [3, 3, 3]}
    left, truncated = told(within(300, value))
    assert left["text"] == value["text"]
    assert left["c"] == [3, 3, 3]
    assert len(left["a"]) == len(left["b"]) > 50
    assert [each["pointer"] for each in truncated] == ["/a", "/b"]
    assert told(within(300, value)) == (left, truncated)


def test_where_one_item_is_too_large_its_own_lists_are_shortened():
    value = [{"name": "a", "tags": ["x"] * 100}, {"name": "b", "tags": []}]
    left, truncated = told(within(60, value))
    assert left == [{"name": "a", "tags": ["x"] * truncated[1]["kept"]}]
    assert truncated == [{"pointer": "", "kept": 1, "of": 2}, {"pointer": "/0/tags", "kept": 9, "of": 100}]


def test_a_list_of_one_large_list():
    assert told(within(10, [[1] * 100])) == ([[1, 1, 1]], [{"pointer": "/0", "kept": 3, "of": 100}])


def test_very_many_lists_are_told_in_sum():
    value = {f"k{index}": [1, 2, 3] for index in range(150)}
    left, truncated = told(within(150 * 12, value))
    assert len(truncated) == 101
    assert truncated[-1] == {
        "lists": 50,
        "kept": sum(len(each) for each in list(left.values())[100:]),
        "of": 150,
    }


def test_deep_lists_stay_whole():
    value = [1] * 100
    for _ in range(20):
        value = {"a": value}
    refusal(within(150, value))
    value = [1] * 100
    for _ in range(20):
        value = [value]
    refusal(within(150, value))
    deep = {"a": [[1] * 100] * 3}
    for _ in range(14):
        deep = {"a": deep}
    assert told(within(450, deep))[1][0]["kept"] == 1


LISTS = {"type": "object", "required": ["a", "b"], "properties": {"a": {"$ref": "#/$defs/l"}, "b": {"type": "array"}}, "$defs": {"l": {"type": "array", "minItems": 40}}}  # fmt: skip


def test_the_output_schema_says_how_many_must_be_left():
    value = {"a": [1] * 100, "b": [1] * 100}
    left, truncated = told(within(120, value, schema=LISTS))
    assert (len(left["a"]), len(left["b"])) == (40, 13)
    assert truncated == [{"pointer": "/a", "kept": 40, "of": 100}, {"pointer": "/b", "kept": 13, "of": 100}]
    assert "too few items" in refusal(within(60, {"a": [1] * 100, "b": [1]}, "/a", LISTS)).message
    assert "already too large" in refusal(within(60, value, schema=LISTS)).message


def test_what_the_schema_wants_otherwise_can_not_be_had():
    schema = {"type": "array", "contains": {"const": 2}}
    assert "does not match the output schema" in refusal(within(10, [1] * 50 + [2], schema=schema)).message
    assert told(within(10, [2] + [1] * 50, schema=schema))[0] == [2, 1, 1, 1]


def test_items_within_items_are_asked_for():
    inner = {"type": "array", "minItems": 3}
    schema = {"type": "array", "minItems": 2, "items": inner}
    assert told(within(20, [[1] * 50] * 10, schema=schema))[0] == [[1, 1, 1], [1, 1, 1]]
    schema = {"type": "array", "items": {"type": "array", "items": {"type": "array", "items": inner, "minItems": 3}, "minItems": 3}, "minItems": 3}  # fmt: skip
    value = [[[[1] * 5] * 5] * 5] * 5
    left, _truncated = told(within(300, value, schema=schema))
    assert Validator(schema).is_valid(left)


def test_an_answer_that_does_not_fit_the_schema_anyway_is_left_to_its_judge():
    left, truncated = told(within(10, [1] * 50, schema={"type": "object"}))
    assert (left, truncated[0]["kept"]) == ([1] * 4, 4)
    assert result_of({"response": {"budget": {"size": 5}}}, answer(b"[1e999, 1, 2, 3]")).value[0] == float(
        "inf"
    )


def nested(levels, items):
    value = 1
    for _ in range(levels):
        value = [value] * items
    return value


@pytest.mark.exhaustive
def test_a_schema_that_wants_ever_more_is_given_up():
    schema = True
    for levels in range(1, 10):
        schema = {"type": "array", "minItems": 2.0, "items": schema}
        room = len(compact(nested(levels, 2)))
        if levels < 8:
            assert told(within(room, nested(levels, 3), schema=schema))[0] == nested(levels, 2)
    assert "does not match the output schema" in refusal(within(room, nested(9, 3), schema=schema)).message


def test_many_lists_that_are_too_short_are_found_at_once():
    schema = {"type": "object", "additionalProperties": {"type": "array", "minItems": 2}}
    value = {f"k{index}": [1, 2, 3] for index in range(300)}
    left, _truncated = told(within(len(compact(value)) - 600, value, schema=schema))
    assert left == {key: [1, 2] for key in value}


def test_texts_and_selected_values_have_budgets_too():
    result = result_of({"response": {"budget": {"size": 10}}}, answer(b"x" * 20, "text/plain"))
    refusal(result)
    left, truncated = told(within(20, {"rows": [{"a": 1}] * 9}, block={"select": "body.rows[*].a"}))
    assert (left, truncated) == ([1] * 9, None)


def at(value, pointer):
    for key in keys_of(pointer):
        value = value[int(key)] if isinstance(value, list) else value[key]
    return value


def is_cut_of(left, whole):
    """Whether the one is the other without last items of lists."""
    if isinstance(whole, dict):
        return (
            isinstance(left, dict)
            and list(left) == list(whole)
            and all(is_cut_of(left[key], whole[key]) for key in whole)
        )
    if isinstance(whole, list):
        return isinstance(left, list) and len(left) <= len(whole) and all(map(is_cut_of, left, whole))
    return left == whole


VALUES = st.recursive(
    st.integers(-1000, 1000) | st.text(max_size=12) | st.none(),
    lambda inner: st.lists(inner, max_size=12) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=60,
)


@given(VALUES, st.integers(1, 200))
def test_budgeted_values_fit_the_size_and_are_the_first_items(value, size):
    result = within(size, value)
    if result.outcome is Outcome.LIMIT_EXCEEDED:
        refusal(result)
        return
    left, truncated = told(result)
    assert len(compact(left).encode()) <= size
    assert is_cut_of(left, value)
    if truncated is None:
        assert left == value
        return
    for each in truncated:
        assert 0 < each["kept"] < each["of"] == len(at(value, each["pointer"]))
        assert len(at(left, each["pointer"])) == each["kept"]


SCHEMA = {
    "type": "object",
    "required": ["rows"],
    "properties": {
        "rows": {
            "type": "array",
            "minItems": 2,
            "items": {"type": "object", "required": ["id", "tags"], "properties": {"tags": {"type": "array", "minItems": 1}}},
        },
        "more": {"type": "array", "minItems": 3},
    },
}  # fmt: skip
ROWS = st.fixed_dictionaries(
    {"id": st.integers(), "tags": st.lists(st.text(max_size=5), min_size=1, max_size=30)}
)


@given(
    st.lists(ROWS, min_size=2, max_size=20),
    st.lists(st.integers(), min_size=3, max_size=40),
    st.integers(20, 2000),
)
def test_budgeted_values_fit_the_schema(rows, more, size):
    value = {"rows": rows, "more": more, "note": "x"}
    assume(len(compact(value)) > size)
    result = within(size, value, schema=SCHEMA)
    if result.outcome is Outcome.OK:
        assert Validator(SCHEMA).is_valid(result.value)
        assert len(compact(result.value).encode()) <= size
    else:
        least = {
            "rows": [{**row, "tags": row["tags"][:1]} for row in rows[:2]],
            "more": more[:3],
            "note": "x",
        }
        assert len(compact(least).encode()) > size


@pytest.mark.parametrize("items", sample([None, "/a/b"], one_in=2))
def test_a_large_answer(items):
    rows = [{"id": index, "tags": [index]} for index in range(50_000)]
    left, truncated = told(within(1_000_000, {"a": {"b": rows, "note": "x"}}, items))
    assert left == {"a": {"b": rows[: truncated[0]["kept"]], "note": "x"}}
    assert 999_960 < len(compact(left)) <= 1_000_000
