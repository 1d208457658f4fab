"""`for_each`: lists, sums, objects and records of the elements of lists."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from library import failed, played, refused
from toolcrib.expressions import compile_value

XS = {"xs": [3, 1, 2], "ys": ["a", "b", "c"]}


def made(form, **args):
    problems = []
    rendering = compile_value(form, {"args": None}, problems, "/r", forms=True)
    assert problems == []
    return rendering.render({"args": args or XS})


@pytest.mark.parametrize(
    ("form", "value"),
    [
        ({"value": "{{ x * 2 }}"}, [6, 2, 4]),
        ({"value": {"n": "{{ x }}", "k": 1}}, [{"n": 3, "k": 1}, {"n": 1, "k": 1}, {"n": 2, "k": 1}]),
        ({"sum": "{{ x }}"}, 6),
        ({"sum": 1}, 3),
        ({"key": "k{{ x }}", "value": "{{ x }}"}, {"k3": 3, "k1": 1, "k2": 2}),
        ({"key": "k", "value": "{{ x }}"}, {"k": 2}),
        ({}, [{"x": 3}, {"x": 1}, {"x": 2}]),
        ({"where": "{{ x > 1 }}", "value": "{{ x }}"}, [3, 2]),
        ({"where": "{{ x > 9 }}", "sum": "{{ x }}"}, 0),
        (
            {"let": {"y": "{{ x + 1 }}", "z": "{{ y * y }}"}},
            [{"x": 3, "y": 4, "z": 16}, {"x": 1, "y": 2, "z": 4}, {"x": 2, "y": 3, "z": 9}],
        ),
        ({"let": {"y": "{{ x + 1 }}"}, "where": "{{ y == 2 }}", "value": "{{ x }}"}, [1]),
        ({"value": {"for_each": {"y": "{{ args.xs }}"}, "sum": "{{ x * y }}"}}, [18, 6, 12]),
        (
            {"for_each": [{"x": "{{ args.xs }}"}, {"y": "{{ range(x) }}"}], "value": "{{ x * 10 + y }}"},
            [30, 31, 32, 10, 20, 21],
        ),
        (
            {"for_each": [{"x": [2]}, {"y": "{{ args.ys }}"}, {"z": [1]}]},
            [{"x": 2, "y": y, "z": 1} for y in "abc"],
        ),
    ],
)
def test_a_form_makes_what_it_says(form, value):
    assert made({"for_each": {"x": "{{ args.xs }}"}, **form}) == value


def test_two_lists_go_side_by_side():
    assert made({"for_each": {"x": "{{ args.xs }}", "y": "{{ args.ys }}"}, "value": "{{ y ~ x }}"}) == [
        "a3",
        "b1",
        "c2",
    ]


def test_lists_may_be_written_out():
    assert made({"for_each": {"x": ["{{ args.xs[0] }}", 4]}, "value": "{{ x }}"}) == [3, 4]


def test_a_form_may_stand_anywhere_in_a_result():
    block = 'result: {all: {for_each: {b: "{{ store.books | values }}"}, key: "{{ b.title }}", value: "{{ b.copies }}"}, n: 1}'
    assert played(block).value == {"all": {"Emma": 2, "Ulysses": 0}, "n": 1}


def test_other_mappings_are_data():
    assert made({"for_each": {"x": 1}, "price": 2}) == {"for_each": {"x": 1}, "price": 2}
    assert made({"value": 1, "key": 2}) == {"value": 1, "key": 2}


def test_only_what_asks_for_it_reads_forms():
    assert compile_value({"for_each": {"x": [1]}}, {}, []).render({}) == {"for_each": {"x": [1]}}


def test_loops_of_a_let_and_of_a_guard_may_use_the_same_name():
    block = """
        let:
          total: {for_each: {x: "{{ args.xs }}"}, let: {y: "{{ x * 10 }}"}, sum: "{{ y }}"}
        guard:
        - for_each: {x: "{{ args.xs }}"}
          let: {y: "{{ x + total }}"}
          if: "{{ y > args.most }}"
          error: "{{ x }} and {{ y }} of {{ total }}"
        result: "{{ total }}"
    """
    results = played(block, {"xs": [1, 2], "most": 31}, {"xs": [1, 2], "most": 99}).results
    assert [result.message or result.value for result in results] == ["2 and 32 of 30", 30]


@pytest.mark.parametrize(
    ("form", "args", "words"),
    [
        ({"for_each": {"x": "{{ args.a }}"}}, {"a": 1}, "needs a list for `x`, not a number"),
        ({"for_each": {"x": "{{ args.a }}"}}, {"a": {"k": 1}}, "not an object"),
        (
            {"for_each": {"x": "{{ args.a }}", "y": "{{ args.b }}"}},
            {"a": [1], "b": []},
            "`x` has 1, `y` has 0",
        ),
        (
            {"for_each": {"x": "{{ args.a }}"}, "sum": "{{ x }}"},
            {"a": [1, "2"]},
            "adds numbers, not a string",
        ),
        ({"for_each": {"x": "{{ args.a }}"}, "sum": "{{ x }}"}, {"a": [True]}, "adds numbers, not `true`"),
        (
            {"for_each": {"x": "{{ args.a }}"}, "key": "{{ x }}", "value": 1},
            {"a": [1]},
            "a `key` must be a string",
        ),
        (
            {"for_each": {"x": "{{ args.a }}"}, "value": {"for_each": {"y": "{{ args.a }}"}, "sum": 1}},
            {"a": [0] * 101},
            "exceed 10,000 elements",
        ),
        (
            {"for_each": [{"x": "{{ args.a }}"}, {"y": "{{ args.a }}"}]},
            {"a": [0] * 101},
            "exceed 10,000 elements",
        ),
        (
            {"for_each": [{"x": "{{ args.a }}"}, {"y": "{{ x }}"}]},
            {"a": [[1], None]},
            "needs a list for `y`, not none",
        ),
    ],
)
def test_what_a_loop_can_not_go_through_is_a_bug_of_the_mock(form, args, words):
    result = failed(f"result: {form}".replace("'", '"'), args)
    assert words in result.message
    assert result.error.details["pointer"].startswith("/mock/result")


@pytest.mark.parametrize(
    ("form", "fault"),
    [
        ("{for_each: {x: [1], y: [1, 2]}}", ("unequal_lists", "/mock/result/for_each")),
        ("{for_each: {x: 1}}", ("invalid_for_each", "/mock/result/for_each/x")),
        ("{for_each: {x: text}}", ("invalid_for_each", "/mock/result/for_each/x")),
        ("{for_each: {}}", ("invalid_for_each", "/mock/result/for_each")),
        ("{for_each: [1]}", ("invalid_for_each", "/mock/result/for_each/0")),
        ("{for_each: []}", ("invalid_for_each", "/mock/result/for_each")),
        ("{for_each: [{x: [1]}, {}]}", ("invalid_for_each", "/mock/result/for_each/1")),
        ("{for_each: [{x: [1]}, {x: [1]}]}", ("name_taken", "/mock/result/for_each/1/x")),
        ("{for_each: [{y: ['{{ x }}']}, {x: [1]}]}", ("unknown_name", "/mock/result/for_each/0/y/0")),
        (
            f"{{for_each: [{', '.join(f'{{x{n}: [1]}}' for n in range(17))}]}}",
            ("invalid_for_each", "/mock/result/for_each"),
        ),
        ("{for_each: {x: [1]}, let: [1]}", ("invalid_for_each", "/mock/result/let")),
        ("{for_each: {x: [1]}, sum: 1, value: 1}", ("invalid_for_each", "/mock/result")),
        ("{for_each: {x: [1]}, key: a}", ("invalid_for_each", "/mock/result")),
        ("{for_each: {x: [1]}, where: 1, value: 1}", ("expression_syntax", "/mock/result/where")),
        ("{for_each: {x: [1]}, let: {y: 1}, value: 1}", ("unused_name", "/mock/result/let/y")),
        ("{for_each: {x: [1]}, let: {x: 1}}", ("name_taken", "/mock/result/let/x")),
        ("{for_each: {args: [1]}}", ("name_taken", "/mock/result/for_each/args")),
        ("{for_each: {x y: [1]}}", ("invalid_name", "/mock/result/for_each/x y")),
        ('{for_each: {x: [1], y: ["{{ x }}"]}}', ("unknown_name", "/mock/result/for_each/y/0")),
        (
            "{for_each: {x: [1]}, value: {for_each: {x: [1]}}}",
            ("name_taken", "/mock/result/value/for_each/x"),
        ),
    ],
)
def test_what_can_never_work_is_found_when_the_tool_is_loaded(form, fault):
    assert fault in refused(f"result: {form}")


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e9, max_value=1e9)))
def test_sums_run_from_left_to_right(numbers):
    total = 0
    for number in numbers:
        total = total + number
    assert repr(made({"for_each": {"x": "{{ args.xs }}"}, "sum": "{{ x }}"}, xs=numbers)) == repr(total)


@given(st.lists(st.integers(), max_size=20), st.integers(0, 9))
def test_where_and_value_are_those_of_python(numbers, least):
    form = {
        "for_each": {"x": "{{ args.xs }}"},
        "let": {"y": "{{ x * x }}"},
        "where": "{{ x >= args.least }}",
        "value": "{{ y }}",
    }
    assert made(form, xs=numbers, least=least) == [number * number for number in numbers if number >= least]


@given(st.lists(st.lists(st.integers(), max_size=4), max_size=6), st.integers(-3, 3))
def test_nested_loops_are_those_of_a_comprehension(lists, least):
    form = {
        "for_each": [{"xs": "{{ args.lists }}"}, {"x": "{{ xs }}"}],
        "let": {"n": "{{ xs | length }}"},
        "where": "{{ x > args.least }}",
        "value": ["{{ x }}", "{{ n }}"],
    }
    expected = [[x, len(xs)] for xs in lists for x in xs if x > least]
    assert made(form, lists=lists, least=least) == expected


def test_nested_loops_of_effects_read_an_inner_list_when_its_turn_comes():
    block = """
        effects:
        - for_each: [{reader: "{{ store.readers | keys }}"}, {loan: "{{ store.readers[reader].loans }}"}]
          do:
          - {insert: log, value: {reader: "{{ reader }}", isbn: "{{ loan.isbn }}"}}
          - {increment: "readers[reader].balance"}
        result: "{{ store.log | values | pluck('isbn') }}"
    """
    ended = played(block)
    assert ended.value == ["b1", "b2", "b1"]
    assert ended.changed["readers"]["ann"]["balance"] == 5.5
