"""What is JSON and what is not: asked of every value that comes in."""

from __future__ import annotations

import json
from collections import OrderedDict, defaultdict
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import IntEnum, StrEnum
from itertools import count
from types import MappingProxyType
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sampling import sample
from toolcrib.schema.validation import SUBCLASS, NotJSONError, as_dict, as_json, json_violation
from toolcrib.schema.validation.json_values import ALIEN as NO_JSON
from toolcrib.schema.validation.json_values import bounded_copy, remaining_budget


class Text(str):
    __slots__ = ()


class Colour(IntEnum):
    RED = 1


class Unit(StrEnum):
    METRIC = "metric"


class Items(list):
    pass


def nested(levels, value=None):
    for _ in range(levels):
        value = [value]
    return value


JSON = [
    None,
    True,
    0,
    -(2**53),
    2**53,
    10**4300 - 1,
    1 - 10**4300,
    0.0,
    -1.5e308,
    "",
    "Ærø 👍",
    "\x00",
    [],
    {},
    {"": None},
    {"é": [{"a": [1, 2.5, "é", False, None]}]},
]

NOT_PLAIN = [
    OrderedDict(a=1),
    defaultdict(list, a=[1]),
    {"a": OrderedDict(a=1)},
    Items([1]),
    [Items([1])],
    {"a": [Items([OrderedDict(a=Items())])]},
]


@pytest.mark.parametrize("value", JSON, ids=lambda value: repr(value)[:20])
def test_json_is_json(value):
    assert json_violation(value) is None
    assert json_violation({"a": [value]}) is None


@pytest.mark.parametrize("value", NOT_PLAIN, ids=lambda value: repr(value)[:20])
def test_what_is_json_but_for_its_class_is_made_plain(value):
    assert json_violation(value).keyword == SUBCLASS
    plain, fault = as_json(value)
    assert fault is None
    assert plain == value
    assert json_violation(plain) is None


def test_a_real_fault_comes_before_that_of_a_class():
    assert json_violation([Items([1]), {"a": (1,)}]).pointer == "/1/a"
    given = [Items([1]), (1,)]
    assert as_json(given)[0] is given


def test_a_plain_value_is_its_own_plain_value():
    value = {"a": [1]}
    assert as_json(value) == (value, None)
    assert as_json(value)[0] is value


def test_a_list_that_is_held_twice_on_each_level_is_refused_before_anybody_walks_through_it():
    value = []
    for _ in range(60):
        value = [value, value]
    wide = [0] * 3000
    for _ in range(4):
        wide = [wide] * 3000
    for each in sample((value, wide, OrderedDict(a=value), {"a": value}, [wide, Items()]), one_in=4):
        found = json_violation(each)
        assert (found.keyword, found.expected) == ("size", "at most 4,194,304 values in total")


@pytest.mark.exhaustive
def test_eight_mebibytes_of_numbers_are_not_too_many():
    assert json_violation({"rows": [0] * 4_000_000}) is None


class Alias(Mapping):
    """A mapping that is no dict."""

    def __init__(self, members):
        self.members = members

    def __getitem__(self, key):
        return self.members[key]

    def __iter__(self):
        return iter(self.members)

    def __len__(self):
        return 1


class Counting(dict):
    """Gives keys without end."""

    def __getitem__(self, key):
        return 1

    def __iter__(self):
        return map(str, count())


class Failing(dict):
    """Gives no key."""

    def __iter__(self):
        raise RuntimeError("no")


def test_a_mapping_is_read_as_far_as_it_can_be():
    assert as_dict({"a": 1}) == {"a": 1}
    assert as_dict(OrderedDict(a=1)) == {"a": 1}
    assert as_dict(MappingProxyType({"a": 1})) == {"a": 1}
    assert as_dict(Alias({"a": 1})) == {"a": 1}
    for hostile in (Alias(Counting()), Alias(Failing()), 5, [1]):
        assert as_dict(hostile) is hostile


ALIEN = {
    "NaN": (float("nan"), "a finite number", "NaN", ""),
    "Infinity": (float("inf"), "a finite number", "Infinity", ""),
    "-Infinity": (float("-inf"), "a finite number", "-Infinity", ""),
    "digits": (10**4300, "at most 4300 digits", "an integer of 14285 bits", ""),
    "negative digits": (-(10**4300), "at most 4300 digits", "an integer of 14285 bits", ""),
    "surrogate": ("a\ud800", "text without lone surrogates", '"a\\ud800"', ""),
    "tuple": ((1,), "a JSON value", "a Python `tuple`", "convert it to a list"),
    "set": ({1}, "a JSON value", "a Python `set`", "convert it to a sorted list"),
    "frozenset": (frozenset(), "a JSON value", "a Python `frozenset`", "convert it to a sorted list"),
    "bytes": (b"x", "a JSON value", "a Python `bytes`", "encode it as base64"),
    "date": (
        date(2025, 1, 2),
        "a JSON value",
        "a Python `date`",
        "convert it to a string, for example with `isoformat()`",
    ),
    "datetime": (
        datetime(2025, 1, 2, tzinfo=UTC),
        "a JSON value",
        "a Python `datetime`",
        "convert it to a string, for example with `isoformat()`",
    ),
    "Decimal": (Decimal("1.5"), "a JSON value", "1.5", "convert it to a string or a float"),
    "UUID": (UUID(int=1), "a JSON value", "a Python `UUID`", "convert it to a string"),
    "subclass of str": (Text("x"), "a JSON value", '"x"', "convert it to a plain `str`; it is a `Text`"),
    "text enum": (Unit.METRIC, "a JSON value", '"metric"', "convert it to a plain `str`; it is a `Unit`"),
    "number enum": (Colour.RED, "a JSON value", "1", "convert it to a plain `int`; it is a `Colour`"),
    "complex": (1j, "a JSON value", "a Python `complex`", ""),
    "class": (int, "a JSON value", "a Python `type`", ""),
    "key": ({1: 2}, "string keys", "the key 1", ""),
    "null key": ({None: 2}, "string keys", "the key null", ""),
    "subclass key": ({Text("a"): 2}, "string keys", 'the key "a"', ""),
    "surrogate key": ({"\udfff": 2}, "keys without lone surrogates", 'the key "\\udfff"', ""),
}


@pytest.mark.parametrize(("value", "expected", "got", "hint"), ALIEN.values(), ids=ALIEN)
def test_what_is_no_json_is_told_with_its_place_and_a_way_out(value, expected, got, hint):
    found = json_violation(value)
    assert (found.pointer, found.keyword, found.expected, found.got, found.hint) == (
        "",
        "json",
        expected,
        got,
        hint,
    )
    for container, pointer in (({"b": 1, "a": value}, "/a"), ([1, {"x/y": value}], "/1/x~1y")):
        found = json_violation(container)
        assert (found.pointer, found.keyword, found.expected, found.got) == (pointer, "json", expected, got)


def test_the_first_of_several_is_told():
    assert json_violation([1, {"a": b"", "b": float("nan")}, (1,)]).path == (1, "a")


@pytest.mark.parametrize("depth", [1, 2, 64, 100])
def test_so_many_containers_may_be_nested_in_one_another(depth):
    assert json_violation(nested(depth), depth=depth) is None
    found = json_violation(nested(depth + 1), depth=depth)
    assert found.keyword == "depth"
    assert found.expected == "fewer levels of nesting"
    assert found.path == (0,) * depth


def test_a_hundred_levels_are_the_rule():
    assert json_violation(nested(100)) is None
    assert json_violation(nested(101)).keyword == "depth"


def test_a_value_that_holds_itself_nests_too_deeply():
    value = {"a": []}
    value["a"].append(value)
    assert json_violation(value).keyword == "depth"


def test_a_hundred_thousand_levels_do_not_exhaust_the_stack():
    assert json_violation(nested(100_000)).keyword == "depth"


ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=True, allow_infinity=True)
    | st.text(st.characters(exclude_categories=()), max_size=5),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(st.characters(exclude_categories=()), max_size=3), inner, max_size=4)
    ),
    max_leaves=12,
)


def writable(value):
    """Whether Python's writer and UTF-8 take a value."""
    try:
        json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
    except ValueError:
        return False
    return True


@settings(deadline=None)
@given(ANYTHING)
def test_json_is_what_can_be_written(value):
    assert (json_violation(value) is None) == writable(value)


@settings(deadline=None)
@given(ANYTHING.filter(writable))
def test_json_comes_back_from_its_text_as_it_was(value):
    assert json_violation(value) is None
    assert json.loads(json.dumps(value)) == value


@given(ANYTHING, st.integers(1, 3))
def test_what_is_weighed_is_json_where_nothing_keeps_it_from_being_so(value, depth):
    assert (remaining_budget(value, depth, 10**9) == NO_JSON) is (
        json_violation(value, depth=depth) is not None
    )


CONTAINERS = ANYTHING.filter(lambda value: isinstance(value, dict | list))


@given(CONTAINERS, st.integers(1, 3), st.integers(0, 60))
def test_what_is_copied_within_a_budget_is_json_and_leaves_what_its_weight_leaves(value, depth, budget):
    left = [budget]
    rest = remaining_budget(value, depth, budget)
    if rest < 0:
        with pytest.raises(NotJSONError):
            bounded_copy(value, depth, left)
    else:
        copy = bounded_copy(value, depth, left)
        assert (copy, left[0]) == (value, rest)
        assert not _containers(copy) & _containers(value)


def _containers(value):
    """The ids of the objects and lists of a value, itself included."""
    if not isinstance(value, dict | list):
        return set()
    inner = value.values() if isinstance(value, dict) else value
    return {id(value)}.union(*map(_containers, inner))


@pytest.mark.parametrize("value", [Items(), OrderedDict(), {"a": Items()}, [Text()], {Text("a"): 1}, [(1,)]])
def test_values_of_other_classes_are_not_copied_within_a_budget(value):
    with pytest.raises(NotJSONError):
        bounded_copy([value], 9, [1000])


def test_a_list_that_contains_the_same_list_twice_on_every_level_ends_with_the_budget():
    value = []
    for _ in range(60):
        value = [value, value]
    with pytest.raises(NotJSONError):
        bounded_copy(value, 100, [1 << 16])
