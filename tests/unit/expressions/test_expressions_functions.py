"""The functions that expressions may call."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sampling import examples
from toolcrib.core.errors import ExpressionError
from toolcrib.expressions import compile_expression
from toolcrib.expressions.functions import FUNCTIONS

SCOPE = {
    "rows": [{"id": "b", "n": 2}, {"id": "a", "n": 2.0}, {"id": "B", "n": True}],
    "names": ["b", "a", "B", "a"],
    "numbers": [3, 1.5, 2],
    "o": {"x": 1, "y": [2]},
    "t": " Hello, World ",
    "nothing": None,
    "yes": True,
    "long": "x" * 200_000,
    "many": [0] * 9_999,
    "big": 10**900,
}


def evaluate(source, scope=SCOPE):
    return compile_expression(source, scope).evaluate(scope)


MEANINGS = [
    ("rows | find(id='a')", {"id": "a", "n": 2.0}),
    ("rows | find(n=2, id='a')", {"id": "a", "n": 2.0}),
    ("rows | find(id='z')", None),
    (
        "[{'a': 'x'}, {'b': 'x'}, {'a': true}, {'a': 'x', 'n': 2}] | where(a='x')",
        [{"a": "x"}, {"a": "x", "n": 2}],
    ),
    ("[{'a': 'x'}, {'b': 'x'}, {'a': 'x'}] | count_of(a='x')", 2),
    ("rows | find(absent=none)", None),
    ("find(rows, id='b').n", 2),
    ("rows | where(n=2) | pluck('id')", ["b", "a"]),
    ("names | count_of('a')", 2),
    ("[1, 1.0, true] | count_of(1)", 2),
    ("rows | count_of(n=2)", 2),
    ("rows | pluck('id')", ["b", "a", "B"]),
    ("names | sort", ["B", "a", "a", "b"]),
    ("numbers | sort", [1.5, 2, 3]),
    ("[] | sort", []),
    ("rows | sort('id') | pluck('id')", ["B", "a", "b"]),
    ("[{'k': 1, 'v': 'x'}, {'k': 1, 'v': 'w'}] | sort('k') | pluck('v')", ["x", "w"]),
    ("names | reverse", ["a", "B", "a", "b"]),
    ("'abc' | reverse", "cba"),
    ("names | unique", ["b", "a", "B"]),
    ("[1, true, 1.0, [1], [1.0], {'a': false}, {'a': 0}] | unique", [1, True, [1], {"a": False}, {"a": 0}]),
    ("names | first", "b"),
    ("names | last", "a"),
    ("[] | first", None),
    ("[] | last", None),
    ("o | keys", ["x", "y"]),
    ("o | values", [1, [2]]),
    ("o | items", [["x", 1], ["y", [2]]]),
    ("names | length", 4),
    ("o | length", 2),
    ("t | length", 14),
    ("zip(names, [1, 2, 3, 4])", [["b", 1], ["a", 2], ["B", 3], ["a", 4]]),
    ("[[1], [], [[2]], 3, 'ab'] | flatten", [1, [2], 3, "ab"]),
    ("[] | flatten", []),
    ("o | merge({'y': 3, 'z': none}, {'z': 4})", {"x": 1, "y": 3, "z": 4}),
    ("o | omit('x', 'nope')", {"y": [2]}),
    ("o | omit(['x', 'y'])", {}),
    ("o | omit([])", {"x": 1, "y": [2]}),
    ("range(3)", [0, 1, 2]),
    ("range(3, 0, -1)", [3, 2, 1]),
    ("range(1, 4)", [1, 2, 3]),
    ("range(10000) | length", 10_000),
    ("nothing | default(7)", 7),
    ("false | default(7)", False),
    ("-3 | abs", 3),
    ("2.675 | round(2)", 2.67),
    ("2.5 | round", 2),
    ("7 | round(2)", 7),
    ("235.0 | round", 235),
    ("235.0 | round(2)", 235.0),
    ("'owes ' ~ 235.0 ~ ' of ' ~ 235", "owes 235.0 of 235"),
    ("15 | round(-1)", 20),
    ("numbers | sum", 6.5),
    ("[] | sum", 0),
    ("[{'n': 1}, {'n': 2}] | sum('n')", 3),
    ("numbers | min", 1.5),
    ("numbers | max", 3),
    ("min(3, 2)", 2),
    ("max('a', 'B')", "a"),
    ("[] | min", None),
    ("3.9 | int", 3),
    ("-3.9 | int", -3),
    ("' 42 ' | int", 42),
    ("'-7' | int", -7),
    ("3 | float", 3.0),
    ("'1e3' | float", 1000.0),
    ("'-2.50' | float", -2.5),
    ("'2 * (3 + 4) ** 2 / 7' | arith", 14.0),
    ("'7 // 2 - -1' | arith", 4),
    ("'.5 + 1. + 1e2' | arith", 101.5),
    ("'2 ** -1' | arith", 0.5),
    ("' 2**3**2 ' | arith", 512),
    ("'-2 ** 2' | arith", -4),
    ("'+-+3' | arith", -3),
    ("1.0 | string", "1.0"),
    ("yes | string", "true"),
    ("t | string", " Hello, World "),
    ("o | tojson", '{"x":1,"y":[2]}'),
    ("'é\"\\n' | tojson", '"é\\"\\n"'),
    ("t | lower", " hello, world "),
    ("t | upper", " HELLO, WORLD "),
    ("t | trim", "Hello, World"),
    ("t | starts_with(' He')", True),
    ("t | ends_with('x')", False),
    ("names | join", "baBa"),
    ("[1, none, 'x', [1]] | join(', ')", "1, null, x, [1]"),
    ("'a b  c' | split", ["a", "b", "c"]),
    ("'a,b,,c' | split(',')", ["a", "b", "", "c"]),
    ("t | replace('l', 'L')", " HeLLo, WorLd "),
]


@pytest.mark.parametrize(("source", "value"), MEANINGS, ids=[source for source, _ in MEANINGS])
def test_a_function_gives(source, value):
    result = evaluate(source)
    assert result == value
    assert type(result) is type(value)


FAULTS = [
    ("o | find(x=1)", "use `| values`"),
    ("names | find(x=1)", "`find` by field needs objects in its list, not a string"),
    ("names | where(x=1)", "needs objects"),
    ("t | count_of('l')", "needs a list, not a string"),
    ("rows | pluck('zz')", "has no `zz`: it has `id`, `n`"),
    ("names | pluck('id')", "`pluck` by `id` needs objects in its list, not a string"),
    ("rows | pluck(1)", "`pluck` needs a string, not a number"),
    ("[{}] | sort('a')", "it has nothing"),
    ("[1, 'a'] | sort", "only numbers or only strings, not a number and a string"),
    ("[true] | sort", "not `true`"),
    ("5 | reverse", "needs a list"),
    ("t | first", "use `[0:1]` for a part of a string"),
    ("names | keys", "needs an object, not a list"),
    ("5 | length", "needs a list, an object or a string"),
    ("zip(names, [1])", "equal length, not 4 and 1"),
    ("o | flatten", "`flatten` needs a list, not an object"),
    ("[many, [1, 2]] | flatten", "10,000 elements"),
    ("o | merge", "2 or more values"),
    ("o | merge(names)", "`merge` needs an object, not a list"),
    ("nothing | merge(o)", "`merge` needs an object, not none"),
    ("o | combine(o)", "write `merge`"),
    ("o | omit", "2 or more values"),
    ("names | omit('a')", "`omit` needs an object, not a list"),
    ("o | omit(1)", "`omit` needs a string, not a number"),
    ("o | omit(['x', none])", "`omit` needs a string, not none"),
    ("range(10001)", "at most 10,000"),
    ("range(0, 10 ** 30)", "at most 10,000"),
    ("range(0, 1, 0)", "step"),
    ("range('3')", "needs a whole number, not a string"),
    ("yes | abs", "needs a number, not `true`"),
    ("'3' | abs", "with `| float` or `| int`"),
    ("1.5 | round(1.5)", "whole number"),
    ("1.5 | round(10 ** 9)", "-400 to 400"),
    ("17e307 | round(-308)", "too large for a float"),
    ("[1, 'a'] | sum", "needs a number, not a string"),
    ("[none] | min", "two numbers or two strings"),
    ("['a', 1] | max", "two numbers or two strings"),
    ("5 | min", "needs a list"),
    ("'1_000' | int", "cannot read"),
    ("'3.5' | int", "as a whole number"),
    ("'nan' | float", "cannot read"),
    ("'1e999' | float", "too large for JSON"),
    ("big | float", "too large for a float"),
    ("nothing | int", "needs a number, not none"),
    ("'2 +' | arith", "unexpected end of text"),
    ("'2 $ 3' | arith", "unexpected `$`"),
    ("'2 3' | arith", "unexpected `3`"),
    ("'(2' | arith", "unexpected end of text"),
    ("')' | arith", "unexpected `)`"),
    ("'' | arith", "unexpected end of text"),
    ("'1/0' | arith", "divides by zero"),
    ("'9**9**9**9' | arith", "1,000 digits"),
    ("5 | arith", "convert it with `| string`"),
    ("('(' ~ long[:4000]) | arith", "unexpected"),
    ("long | arith", "4,096 characters"),
    ("(range(500) | join | replace('0', '((((('))[:4000] | arith", "unexpected"),
    ("t | starts_with(1)", "needs a string"),
    ("5 | lower", "needs a string"),
    ("long + long", "256 KiB"),
    ("long ~ long", "256 KiB"),
    ("[long, long] | join", "256 KiB"),
    ("[long, long] | tojson", "256 KiB"),
    ("['é' | replace('é', long), 'é'] | join(long)", "256 KiB"),
    ("long | replace('x', 'yy')", "256 KiB"),
    ("long | replace('x', long)", "256 KiB"),
    ("long | replace('', 'a')", "at least one character"),
    ("long | replace('x', 'é')", "256 KiB"),
    ("long | split('')", "a non-empty separator"),
    ("long | split('x')", "10,000 elements"),
    ("many + many", "10,000 elements"),
]


@pytest.mark.parametrize(("source", "words"), FAULTS, ids=[source for source, _ in FAULTS])
def test_a_function_refuses(source, words):
    with pytest.raises(ExpressionError) as caught:
        evaluate(source)
    assert words in str(caught.value)


def test_a_sum_written_as_text_is_bounded_in_depth():
    for source in ("(" * 100 + "1" + ")" * 100, "1**" * 100 + "1"):
        with pytest.raises(ExpressionError, match="64 levels"):
            evaluate("x | arith", {"x": source})


def test_a_whole_number_written_as_text_is_bounded_in_digits():
    with pytest.raises(ExpressionError, match="1,000 digits"):
        evaluate("x | arith", {"x": "9" * 1002})


def test_every_function_says_in_one_line_what_it_does():
    assert all(function.summary.endswith(".") for function in FUNCTIONS.values())


def test_a_sum_is_added_from_left_to_right():
    scope = {"n": [0.1] * 10}
    total = 0
    for number in scope["n"]:
        total += number
    assert evaluate("n | sum", scope) == total == 0.9999999999999999


SUMS = st.recursive(
    st.integers(0, 99).map(str) | st.floats(0, 99).map(lambda number: repr(round(number, 3))),
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "//"]), inner).map(" ".join),
        inner.map("({})".format),
        inner.map("-{}".format),
        st.tuples(inner, st.sampled_from(["**2", "** 0", "**-1"])).map("".join),
    ),
    max_leaves=8,
)


@settings(max_examples=examples(200), deadline=None)
@given(SUMS)
def test_a_sum_written_as_text_is_worked_out_as_python_would(source):
    try:
        expected = eval(source, {"__builtins__": {}})  # noqa: S307, RUF100 -- our own literals
    except (ZeroDivisionError, OverflowError):
        expected = None
    try:
        ours = evaluate("x | arith", {"x": source})
    except ExpressionError:
        ours = None
    if isinstance(ours, int | float):
        assert ours == expected
        assert type(ours) is type(expected)
    else:
        assert expected is None or isinstance(expected, complex) or abs(expected) > 1e300


@settings(max_examples=examples(200), deadline=None)
@given(st.text(alphabet="0123456789+-*/(). e", max_size=30))
def test_no_text_makes_arith_fail_with_anything_but_its_own_error(source):
    try:
        evaluate("x | arith", {"x": source})
    except ExpressionError as error:
        assert error.message  # noqa: PT017


OBJECTS = st.dictionaries(st.sampled_from("abcde"), st.integers(), max_size=5)


@settings(max_examples=examples(100), deadline=None)
@given(OBJECTS, OBJECTS, st.lists(st.sampled_from("abcxyz"), max_size=3))
def test_merge_and_omit_are_those_of_python_and_change_nothing(left, right, names):
    scope = {"left": dict(left), "right": dict(right), "names": names}
    assert list(evaluate("left | merge(right)", scope).items()) == list({**left, **right}.items())
    assert evaluate("left | omit(names)", scope) == {k: v for k, v in left.items() if k not in names}
    assert (scope["left"], scope["right"]) == (left, right)
