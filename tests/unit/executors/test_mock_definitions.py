"""`let` and `define` of a pack or project: values and functions that all its mocks share."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from in_memory import MOCKS
from keeping import calls, loaded_with
from sampling import examples
from toolcrib import Outcome, Runtime, VirtualClock
from toolcrib.engine.runtime import loaded_runtime

STORE = """
store:
  flights: {rows: {F1: {seats: 2, prices: {eco: 10}}, F2: {seats: 0, prices: {eco: 5}}}}
  log: []
"""

SHARED = """
let:
  total_fee: "{{ fee * 2 }}"
  fee: 3
  ticket: "{{ uuid() }}"
  open:
    for_each: {pair: "{{ store.flights | items }}"}
    where: "{{ pair[1].seats > 0 }}"
    value: "{{ pair[0] }}"
define:
  trip: {parameters: [ids], value: {for_each: {id: "{{ ids }}"}, sum: "{{ store.flights[id] | fare('eco') }}"}}
  fare: {parameters: [flight, cabin], value: "{{ flight.prices[cabin] + fee }}"}
  next_number: {value: "{{ seq('numbers') }}"}
"""


def ended(mock, *arguments, shared=SHARED):
    """The results of calls of a tool whose mock is a flow mapping."""
    found = loaded_with(f"name: tool\ninput_schema: {{}}\nmock: {mock}\n", STORE + shared)
    assert [str(problem) for problem in found.problems] == []
    runtime = loaded_runtime(found, executors=MOCKS, clock=VirtualClock())
    return calls(runtime.session(clock=VirtualClock()), *(arguments or ({},)))


def faults(shared, mock="{result: 1}"):
    found = loaded_with(f"name: tool\ninput_schema: {{}}\nmock: {mock}\n", STORE + shared)
    return [(problem.code, problem.pointer) for problem in found.problems]


@pytest.mark.parametrize(
    ("mock", "value"),
    [
        ("{result: '{{ fee }}'}", 3),
        ("{result: 'fee {{ total_fee }}'}", "fee 6"),
        ('{result: \'{{ trip(["F1", "F2"]) }}\'}', 21),
        ("{result: '{{ [\"F2\"] | trip }}'}", 8),
        ("{result: '{{ store.flights.F1 | fare(\"eco\") | string }}'}", "13"),
        ("{result: '{{ open }}'}", ["F1"]),
        ("{result: '{{ ticket == ticket }}'}", True),
        ("{result: ['{{ next_number() }}', '{{ next_number() }}']}", [1, 2]),
        ("{template: '{% for id in open %}{{ id }}{{ fee }}{% endfor %}'}", "F13"),
        ("{rules: [{when: {if: '{{ fee > 2 }}'}, reply: {result: dear}}, {reply: {result: cheap}}]}", "dear"),
        ("{let: {x: '{{ fee }}'}, result: '{{ x }}'}", 3),
        ("{rows: {f: {in: flights, key: '{{ open[0] }}'}}, result: '{{ f | fare(\"eco\") }}'}", 13),
    ],
)
def test_every_expression_of_a_mock_reads_them(mock, value):
    result = ended(mock)[0]
    assert result.outcome is Outcome.OK, result.message
    assert result.value == value


def test_guards_and_errors_read_them():
    (result,) = ended("{guard: [{if: '{{ args.n > fee }}', error: 'over {{ fee }}'}], result: 1}", {"n": 4})
    assert result.message == "over 3"


def test_a_value_is_computed_before_the_first_effect_and_anew_in_each_call():
    mock = "{effects: [{update: flights.F1, set: {seats: 0}}], result: '{{ open }}'}"
    assert [result.value for result in ended(mock, {}, {})] == [["F1"], []]


def test_a_value_stays_the_same_in_one_call_and_differs_between_calls():
    mock = "{effects: [{insert: log, value: {id: '{{ ticket }}'}}], result: ['{{ ticket }}', '{{ store.log | values | pluck(\"id\") }}']}"
    first, second = (result.value for result in ended(mock, {}, {}))
    assert second[1] == [first[0], second[0]]
    assert first[0] != second[0]


def test_a_delayed_effect_keeps_the_value_of_its_call():
    mock = "{effects: [{update: flights.F1, set: {seats: 0}}, {after: 1h, insert: log, value: {open: '{{ open }}', fare: '{{ store.flights.F1 | fare(\"eco\") }}'}}], result: 1}"
    found = loaded_with(f"name: tool\nmock: {mock}\n", STORE + SHARED)
    clock = VirtualClock()
    session = loaded_runtime(found, executors=MOCKS).session(clock=clock)

    async def run():
        assert (await session.call("tool", {})).outcome is Outcome.OK
        await clock.advance(3600)

    asyncio.run(run())
    assert session.store.rows("log") == {"1": {"open": ["F1"], "fare": 13}}


def test_an_error_within_a_function_names_it_and_its_place():
    (result,) = ended("{result: '{{ trip([\"F9\"]) }}'}")
    assert result.outcome is Outcome.INTERNAL
    assert "in `trip` (pack.yaml:" in result.message
    assert "): in `fare` (pack.yaml:" in result.message
    assert "`flight` is none and has no `prices`" in result.message
    assert result.error.details["pointer"] == "/mock/result"


@pytest.mark.parametrize(
    ("shared", "found"),
    [
        (
            "define: {f: {parameters: [n], value: '{{ f(n) }}'}}",
            [("recursive_definition", "/define/f/value")],
        ),
        ("let: {a: '{{ a }}'}", [("recursive_definition", "/let/a")]),
        (
            "let: {a: '{{ f() }}'}\ndefine: {f: {value: '{{ a }}'}}",
            [("recursive_definition", "/define/f/value"), ("broken_definition", "/let/a")],
        ),
        ("let: {x: '{{ args.n }}'}", [("unknown_name", "/let/x")]),
        ("let: {x: '{{ nope }}'}", [("unknown_name", "/let/x")]),
        ("let: {length: 1}", [("name_taken", "/let/length")]),
        ("let: {store: 1}", [("name_taken", "/let/store")]),
        ("let: {a b: 1}", [("invalid_name", "/let/a b")]),
        ("define: {merge: {value: 1}}", [("name_taken", "/define/merge")]),
        ("let: {a: 1}\ndefine: {a: {value: 1}}", [("name_taken", "/define/a")]),
        ("define: {f: {parameters: [n], value: 1}}", [("unused_name", "/define/f/parameters/0")]),
        (
            "define: {f: {parameters: [now], value: '{{ now }}'}}",
            [("name_taken", "/define/f/parameters/0")],
        ),
        ("let: {x: '{{ f(1, 2) }}'}\ndefine: {f: {value: 1}}", [("expression_syntax", "/let/x")]),
        ("let: {x: '{{ f }}'}\ndefine: {f: {value: 1}}", [("unknown_name", "/let/x")]),
        ("let: {x: '{{ y() }}', y: 1}", [("unknown_function", "/let/x")]),
        ("let: {x: '{{ f(n=1) }}'}\ndefine: {f: {value: 1}}", [("expression_syntax", "/let/x")]),
    ],
)
def test_what_can_never_work_is_found_when_the_pack_is_loaded(shared, found):
    assert faults(shared) == found


def test_a_cycle_is_named():
    shared = "define: {a: {value: '{{ b() }}'}, b: {value: '{{ c() }}'}, c: {value: '{{ a() }}'}}"
    messages = [
        problem.message for problem in loaded_with("name: t\nmock: {result: 1}\n", STORE + shared).problems
    ]
    assert "`a` needs itself: `a` -> `b` -> `c` -> `a`" in messages


def test_a_tool_that_uses_a_broken_definition_is_refused_and_others_load():
    shared = "let: {bad: '{{ nope }}', good: 1}"
    text = "name: one\nmock: {result: '{{ bad }}'}\n---\nname: two\nmock: {result: '{{ good }}'}\n"
    found = loaded_with(text, STORE + shared)
    assert [(problem.code, problem.pointer) for problem in found.problems] == [
        ("unknown_name", "/let/bad"),
        ("broken_definition", "/mock/result"),
    ]


def test_a_name_of_a_pack_cannot_be_hidden():
    assert faults(SHARED, "{rows: {fee: {in: flights, key: F1}}, result: '{{ fee }}'}") == [
        ("name_taken", "/mock/rows/fee")
    ]
    assert faults(SHARED, "{let: {fare: 1}, result: '{{ fare }}'}")[:1] == [("name_taken", "/mock/let/fare")]


def test_a_misspelt_function_suggests_the_right_one():
    found = loaded_with("name: tool\nmock: {result: '{{ tripp([]) }}'}\n", STORE + SHARED)
    assert [problem.hint for problem in found.problems] == ["did you mean `trip` or `trim`?"]


@pytest.mark.parametrize("forwards", [True, False])
def test_chains_of_functions_are_bounded(forwards):
    numbers = range(40) if forwards else range(39, -1, -1)
    lines = [f"  f{n}: {{value: '{{{{ f{n + 1}() }}}}'}}" for n in numbers if n < 39]
    shared = "define:\n  f39: {value: 1}\n" + "\n".join(lines) + "\n"
    assert "expression_too_large" in [code for code, _pointer in faults(shared)]


def test_functions_that_multiply_are_bounded():
    lines = [f"  f{n}: {{value: '{{{{ f{n + 1}() + f{n + 1}() }}}}'}}" for n in range(25)]
    shared = "define:\n  f25: {value: 1}\n" + "\n".join(lines) + "\n"
    (result,) = ended("{result: '{{ f0() }}'}", shared=shared)
    assert result.outcome is Outcome.INTERNAL
    assert "more than 5,000,000 elements" in result.message


def test_a_project_shares_definitions_between_its_tools(tmp_path):
    (tmp_path / "toolcrib.yaml").write_text(
        "project: p\nsources: [t.tool.yaml]\nlet: {fee: 3}\ndefine: {twice: {parameters: [n], value: '{{ n * 2 }}'}}\n"
    )
    (tmp_path / "t.tool.yaml").write_text("name: price\nmock: {result: '{{ twice(fee) }}'}\n")
    for _cold_and_warm in range(2):
        with Runtime.open(tmp_path) as tools:
            assert [*tools.problems] == []
            assert tools.call_sync("price", {}).value == 6


@settings(max_examples=examples(60), deadline=None)
@given(st.lists(st.integers(-9, 9), max_size=6), st.integers(-3, 3), st.integers(-3, 3))
def test_functions_are_those_of_python(numbers, factor, offset):
    shared = f"""
let: {{factor: {factor}}}
define:
  scaled: {{parameters: [n], value: "{{{{ n * factor + {offset} }}}}"}}
  all_scaled: {{parameters: [ns], value: {{for_each: {{n: "{{{{ ns }}}}"}}, value: "{{{{ n | scaled }}}}"}}}}
"""
    (result,) = ended("{result: '{{ all_scaled(args.ns) | sum }}'}", {"ns": numbers}, shared=shared)
    assert result.value == sum(n * factor + offset for n in numbers)
