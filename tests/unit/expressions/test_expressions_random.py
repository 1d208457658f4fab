"""Functions that draw and count: keyed by their place and use, and refused where nothing provides for them."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from library import played, refused
from toolcrib.core.errors import ExpressionError
from toolcrib.expressions import compile_condition, compile_expression, compile_text, compile_value
from toolcrib.expressions.functions import COUNTS, DRAWS
from toolcrib.schema.generation import KeyedRandom

NAMES = {"args": None, DRAWS: None, COUNTS: None}


class Drawing:
    """Draws by place and use, as a mock does it."""

    def __init__(self, seed=0):
        self.seed = seed
        self.places = []

    def __call__(self, place):
        self.places.append(place)
        return KeyedRandom(self.seed, place, self.places.count(place))


def drawn(value, seed=0, **args):
    problems = []
    rendering = compile_value(value, NAMES, problems, "/r")
    assert problems == []
    return rendering.render({"args": args, DRAWS: Drawing(seed)})


def test_a_uuid_is_one_of_version_4():
    found = UUID(drawn("{{ uuid() }}"))
    assert (found.version, found.variant) == (4, "specified in RFC 4122")


def test_each_place_and_each_use_draws_anew():
    everywhere = drawn(
        ["{{ uuid() }}", "{{ uuid() }}", "{{ uuid() }} {{ uuid() }}", "{{ [uuid(), uuid()] }}"]
    )
    flat = [*everywhere[:2], *everywhere[2].split(), *everywhere[3]]
    assert len(set(flat)) == 6
    drawing = Drawing()
    part = compile_expression("uuid()", NAMES, "/at")
    assert part.evaluate({DRAWS: drawing}) != part.evaluate({DRAWS: drawing})
    assert drawing.places == ["/at#1", "/at#1"]


def test_the_same_seed_draws_the_same():
    assert drawn("{{ uuid() }}", 3) == drawn("{{ uuid() }}", 3) != drawn("{{ uuid() }}", 4)


def test_a_place_draws_the_same_whatever_stands_before_it():
    alone = drawn({"id": "{{ uuid() }}"})["id"]
    assert drawn({"more": "{{ pick([1, 2]) }}", "id": "{{ uuid() }}"})["id"] == alone


def test_a_condition_and_a_template_may_draw():
    test = compile_condition("{{ random(1, 6) > 3 }}", NAMES, "/if")
    assert {test.run({DRAWS: Drawing(seed)}) for seed in range(20)} == {True, False}
    text = compile_text("{% for x in args.xs %}{{ pick(x) }}{% endfor %}", NAMES)
    assert text.render({"args": {"xs": [["a"], ["b"]]}, DRAWS: Drawing()}) == "ab"


@given(st.lists(st.integers(), min_size=1), st.integers(0, 1000))
def test_pick_gives_an_element(options, seed):
    assert drawn("{{ pick(args.options) }}", seed, options=options) in options
    assert drawn("{{ args.options | pick }}", seed, options=options) in options


@given(st.integers(-(10**30), 10**30), st.integers(0, 10**30), st.integers(0, 1000))
def test_random_of_whole_numbers_is_one_from_the_first_to_the_second(low, span, seed):
    found = drawn("{{ random(args.low, args.high) }}", seed, low=low, high=low + span)
    assert type(found) is int
    assert low <= found <= low + span


@given(st.floats(-1e300, 1e300), st.floats(-1e300, 1e300), st.integers(0, 1000))
def test_random_of_other_numbers_lies_between_them(one, two, seed):
    low, high = sorted((one, two))
    found = drawn("{{ random(args.low, args.high) }}", seed, low=low, high=high)
    assert type(found) is float
    assert low <= found <= high


def test_all_values_come_up():
    assert {drawn("{{ random(1, 3) }}", seed) for seed in range(40)} == {1, 2, 3}
    assert {drawn("{{ pick(['a', 'b']) }}", seed) for seed in range(40)} == {"a", "b"}


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("pick([])", "a non-empty list"),
        ("pick('abc')", "needs a list, not a string"),
        ("pick(args)", "needs a list, not an object"),
        ("random(2, 1)", "the lower number first: 2 is greater than 1"),
        ("random('1', 2)", "needs two numbers"),
        ("random(1, true)", "needs two numbers"),
        ("random(false, 1)", "needs two numbers"),
        ("random(0.5, 10 ** 400)", "too large for a float"),
    ],
)
def test_what_can_not_be_drawn_fails(expression, words):
    with pytest.raises(ExpressionError, match=words):
        drawn(f"{{{{ {expression} }}}}")


@pytest.mark.parametrize(
    "expression",
    [
        "uuid(1)",
        "1 | uuid",
        "pick()",
        "pick(1, 2)",
        "random(1)",
        "random(1, 2, 3)",
        "seq()",
        "seq('a', 1, 2)",
    ],
)
def test_other_arguments_are_refused(expression):
    with pytest.raises(ExpressionError) as caught:
        compile_expression(expression, NAMES)
    assert caught.value.code == "expression_syntax"


@pytest.mark.parametrize(
    "expression", ["uuid()", "pick([1])", "args | pick", "random(1, 2)", "seq('a')", "'a' | seq"]
)
def test_where_nothing_is_drawn_the_functions_are_refused(expression):
    with pytest.raises(ExpressionError, match="cannot be used here") as caught:
        compile_expression(expression, {"args": None})
    assert caught.value.code == "unknown_function"


def test_what_provides_them_has_no_name():
    with pytest.raises(ExpressionError, match="the names here are `args`\n"):
        compile_expression("draws", NAMES)
    with pytest.raises(ExpressionError) as caught:
        compile_expression("uuid", NAMES)
    assert caught.value.hint == "`uuid` is a function: use `uuid()`"


def test_what_is_drawn_of_constants_is_not_worked_out_before():
    part = compile_expression("pick([1])", NAMES)
    assert part.names == {DRAWS}
    assert compile_expression("seq('a', 2)", NAMES).names == {COUNTS}


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("seq(1)", "the name of a sequence"),
        ("seq('a', 1.5)", "a whole number"),
        ("seq('a', true)", "a whole number"),
    ],
)
def test_a_sequence_has_a_name_and_a_whole_first_number(expression, words):
    with pytest.raises(ExpressionError, match=words):
        compile_expression(expression, NAMES).evaluate({COUNTS: lambda _name, first: first})


def values(block, *arguments, **options):
    return [result.value for result in played(block, *arguments, **options).results]


def test_a_sequence_counts_in_the_session():
    block = "result: [\"{{ seq('a') }}\", \"{{ seq('a') }}\", \"{{ seq('b', 7) }}\", \"{{ 'ORD-' ~ seq('c', 100) }}\"]"
    assert values(block, {}, {}) == [[1, 2, 7, "ORD-100"], [3, 4, 8, "ORD-101"]]


def test_a_call_that_comes_to_nothing_does_not_count():
    block = """
        let: {n: "{{ seq('a') }}"}
        guard: [{if: "{{ n > 0 and args.stop }}", error: stopped}]
        effects: [{if: "{{ args.bug }}", delete: readers.nobody}, {insert: log, value: {n: "{{ n }}"}}]
        result: "{{ n }}"
    """
    given = [{"stop": True, "bug": False}, {"stop": False, "bug": True}, {"stop": False, "bug": False}]
    assert values(block, *given) == [None, None, 1]


def test_each_call_draws_anew_and_each_session_of_the_same_seed_alike():
    block = 'rows: {ann: {in: readers, key: ann}}\nlet: {id: "{{ uuid() }}"}\neffects: [{update: ann, set: {id: "{{ id }}"}}]\nresult: ["{{ id }}", "{{ ann.id }}", "{{ random(0, 1000000) }}"]'
    first, second = values(block, {}, {})
    assert first[0] == first[1] != second[0]
    assert first[2] != second[2]
    assert values(block, {}, {}) == [first, second]


def test_guards_and_rows_may_draw():
    block = """
        rows: {one: {in: readers, key: "{{ pick(['ann', 'bob']) }}"}}
        guard: [{if: "{{ random(0, 9) == 0 }}", error: unlucky}]
        result: "{{ one.name }}"
    """
    results = played(block, *[{}] * 40).results
    assert {result.message or result.value for result in results} == {"Ann", "Bob", "unlucky"}


def test_an_unknown_argument_to_a_draw_is_found():
    assert refused('result: "{{ pick(nope) }}"') == [("unknown_name", "/mock/result")]
