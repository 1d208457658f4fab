"""From a document to a scenario: every key arrives, and every fault is named at its place."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest

from toolcrib.core.clock import START
from toolcrib.core.model import Descriptor, Example, Outcome
from toolcrib.core.schemas import LATER_KEYS
from toolcrib.executors import Executors
from toolcrib.executors.mock import MockExecutor
from toolcrib.loading.scenarios.model import Scenario
from toolcrib.loading.scenarios.scenario import YEARS, example_scenario
from toolcrib.loading.scenarios.scenario_state import with_mock
from toolcrib.loading.sources import parse

KINDS = Executors({"mock": MockExecutor})

WHOLE = """
$schema: ./scenario.json
scenario: refund
description: A paid order is refunded.
tags: [smoke, money]
seed: 7
clock: {start: "2031-05-01T09:00:00.5+02:00"}
modes: {"pay*": mock, "*": live}
mocks: {pay: {result: 1}}
steps:
  - name: pay it
    call: pay
    args: {amount: 4}
    as: paid
  - call: refund
    args: {id: "{{ paid.result.id }}", at: "{{ now }}", seed: "{{ seed }}"}
    expect:
      result: {amount: "{{ paid.result.amount }}"}
      content: [{type: text}]
      attempts: 1
      elapsed: {$lt: 2}
  - call: refund
    expect: {outcome: tool_error, error: {code: twice}}
  - call: refund
    expect: {error: {code: thrice}}
  - call: refund
    expect: {outcome: not_found}
verify:
  calls:
    - {tool: pay, times: 1}
    - {tool: "ref*", args: {id: {$exists: true}}}
  never: [{tool: void, args: {amount: {$gt: 9}}}]
  order: {subsequence: [pay, refund]}
"""


def scenario_of(text) -> Scenario:
    found = parse("x.scenario.yaml", text, KINDS)
    assert [str(problem) for problem in found.problems] == []
    (scenario,) = found.scenarios
    return scenario


def codes(text):
    found = parse("x.scenario.yaml", text, KINDS)
    assert found.scenarios == ()
    return [(problem.code, problem.pointer, problem.line) for problem in found.problems]


def test_every_key_of_a_scenario_arrives():
    scenario = scenario_of(WHOLE)
    assert (scenario.name, scenario.description) == ("refund", "A paid order is refunded.")
    assert (scenario.tags, scenario.seed) == (("smoke", "money"), 7)
    assert scenario.start == datetime(2031, 5, 1, 9, 0, 0, 500_000, timezone(timedelta(hours=2)))
    assert dict(scenario.modes) == {"pay*": "mock", "*": "live"}
    assert dict(scenario.mocks) == {"pay": {"result": 1}}
    assert (scenario.origin.source, scenario.origin.line) == ("x.scenario.yaml", 2)


def test_every_key_of_a_step_arrives():
    first, second, third, fourth, fifth = scenario_of(WHOLE).steps
    assert (first.name, first.call, first.save_as, first.pointer) == ("pay it", "pay", "paid", "/steps/0")
    assert first.args.render({}) == {"amount": 4}
    scope = {"now": "noon", "seed": 3, "paid": {"result": {"id": "R1"}}}
    assert second.args.render(scope) == {"id": "R1", "at": "noon", "seed": 3}
    assert set(second.expect.parts) == {"result", "content", "attempts", "elapsed"}
    assert [step.expect.outcomes for step in (first, second, third, fourth, fifth)] == [
        (Outcome.OK,),
        (Outcome.OK,),
        (Outcome.TOOL_ERROR,),
        (),
        (Outcome.NOT_FOUND,),
    ]
    assert third.args.render({}) == {}


def test_every_key_of_verify_arrives():
    verify = scenario_of(WHOLE).verify
    pay, refund, void = verify.calls
    assert (pay.tool, pay.args, pay.times.expected()) == ("pay", None, 1)
    assert (refund.tool, refund.times.expected()) == ("ref*", {"$gte": 1})
    assert refund.args.matches({"id": 1})
    assert (void.tool, void.times.expected(), void.pointer) == ("void", 0, "/verify/never/0")
    assert verify.order == ("subsequence", ("pay", "refund"))


def test_what_is_left_out_has_its_default():
    scenario = scenario_of("scenario: s\nsteps: [{call: a}]\n")
    assert scenario == Scenario(name="s", steps=scenario.steps, origin=scenario.origin)
    assert (scenario.start, scenario.seed) == (START, 0)


STEPS = "scenario: s\nsteps:\n"

WRONG = [
    ("scenario: s\n", [("missing_key", "/steps", 1)]),
    ("scenario: s\nsteps: []\n", [("wrong_value", "/steps", 2)]),
    ("scenario: a b\nsteps: [{call: a}]\n", [("wrong_form", "/scenario", 1)]),
    (STEPS + "  - {args: {}}\n", [("missing_key", "/steps/0/call", 3)]),
    (STEPS + "  - {call: a, arg: {}}\n", [("unknown_key", "/steps/0/arg", 3)]),
    (STEPS + "  - {call: a, args: [1]}\n", [("wrong_type", "/steps/0/args", 3)]),
    (STEPS + "  - {call: a, as: made-it}\n", [("wrong_form", "/steps/0/as", 3)]),
    (STEPS + "  - {call: a, expect: {}}\n", [("wrong_value", "/steps/0/expect", 3)]),
    (STEPS + "  - {call: a, expect: {outcome: fine}}\n", [("not_allowed", "/steps/0/expect/outcome", 3)]),
    (
        STEPS + "  - {call: a, expect: {outcome: [ok, no]}}\n",
        [("not_allowed", "/steps/0/expect/outcome/1", 3)],
    ),
    (STEPS + "  - {call: a}\nverify: {order: {}}\n", [("wrong_value", "/verify/order", 4)]),
    (
        STEPS + "  - {call: a}\nverify: {order: {any: [a], exact: [a]}}\n",
        [("wrong_value", "/verify/order", 4)],
    ),
    (
        STEPS + "  - {call: a}\nmocks: {a: {reslt: 1}}\n",
        [("wrong_combination", "/mocks/a", 4), ("unknown_key", "/mocks/a/reslt", 4)],
    ),
    (STEPS + "  - {call: a}\nclock: {start: noon}\n", [("wrong_form", "/clock/start", 4)]),
    (STEPS + "  - {call: a}\nseed: 1.5\n", [("wrong_type", "/seed", 4)]),
]


@pytest.mark.parametrize(("text", "expected"), WRONG)
def test_a_wrong_shape_is_told_at_its_place(text, expected):
    assert sorted(codes(text)) == sorted(expected)


@pytest.mark.parametrize("key", sorted(LATER_KEYS["scenario"]))
def test_a_key_of_later_is_refused(key):
    assert codes(STEPS + f"  - call: a\n{key}: {{}}\n") == [("not_supported_yet", f"/{key}", 4)]


def test_all_faults_of_the_content_are_told_at_once():
    text = (
        STEPS
        + "  - call: a\n    args: {x: '{{ nobody }}', y: '{{ 1 + }}'}\n    as: made\n"
        + "  - call: b\n    as: made\n    expect: {result: {$grater: 1}, error: {code: 3}, outcome: ok}\n"
        + "verify:\n  calls:\n    - {tool: a, args: {n: {$len: x}}}\n"
        + 'clock: {start: "2030-02-30T00:00:00Z"}\n'
    )
    found = codes(text)
    places = {(pointer, line) for _code, pointer, line in found}
    assert places >= {
        ("/steps/0/args/x", 4),
        ("/steps/0/args/y", 4),
        ("/steps/1/as", 7),
        ("/verify/calls/0/args/n/$len", 11),
        ("/clock/start", 12),
    }
    assert [code for code, _pointer, _line in found].count("contradiction") == 2


def test_a_step_sees_only_what_was_saved_before_it():
    text = STEPS + "  - {call: a, args: {x: '{{ later.result }}'}}\n  - {call: b, as: later}\n"
    ((_code, pointer, line),) = codes(text)
    assert (pointer, line) == ("/steps/0/args/x", 3)


@pytest.mark.parametrize(("name", "words"), [("now", "something else"), ("made", "an earlier step")])
def test_a_name_is_given_once(name, words):
    text = STEPS + "  - {call: a, as: made}\n" + f"  - {{call: b, as: {name}}}\n"
    (problem,) = parse("x.yaml", text, KINDS).problems
    assert (problem.code, problem.pointer, problem.line) == ("duplicate_name", "/steps/1/as", 4)
    assert words in problem.message


@pytest.mark.parametrize(
    ("expect", "pointer", "words"),
    [
        ("{elapsed: 2s}", "elapsed", ("`elapsed` is a number of seconds", "write `2`")),
        ("{elapsed: {$lt: 0}}", "elapsed", ("`elapsed` is a number of seconds", "such as `2`")),
        ("{attempts: soon}", "attempts", ("`attempts` is a whole number", "such as `2`")),
        ("{attempts: 1.5}", "attempts", ("`attempts` is a whole number", "such as `2`")),
        ("{result: {n: {$gt: 5, $lt: 3}}}", "result/n", ("no value matches", "swap the bounds")),
    ],
)
def test_a_matcher_that_nothing_can_fit_is_refused(expect, pointer, words):
    (problem,) = parse("x.yaml", STEPS + f"  - {{call: a, expect: {expect}}}\n", KINDS).problems
    assert (problem.code, problem.pointer) == ("never_matches", f"/steps/0/expect/{pointer}")
    assert words[0] in problem.message
    assert words[1] in problem.hint


def test_how_often_is_a_whole_number():
    text = STEPS + "  - call: a\nverify: {calls: [{tool: a, times: often}], never: [{tool: b}]}\n"
    assert [code[:2] for code in codes(text)] == [("never_matches", "/verify/calls/0/times")]


@pytest.mark.parametrize(
    ("expect", "pointer"),
    [
        ("{outcome: ok, error: {code: x}}", "/steps/0/expect/outcome"),
        ("{result: 1, error: {code: x}}", "/steps/0/expect/error"),
        ("{result: 1, outcome: tool_error}", "/steps/0/expect/result"),
        ("{result: 1, error: {code: x}, outcome: timeout}", "/steps/0/expect/error"),
        ("{outcome: [ok], error: {code: x}}", "/steps/0/expect/outcome"),
        ("{result: 1, outcome: [tool_error, timeout]}", "/steps/0/expect/result"),
        ("{golden: a.json, outcome: [tool_error, timeout]}", "/steps/0/expect/golden"),
        ("{result: 1, error: {code: x}, outcome: [timeout, denied]}", "/steps/0/expect/error"),
    ],
)
def test_an_expectation_that_nothing_can_meet_is_refused(expect, pointer):
    assert codes(STEPS + f"  - {{call: a, expect: {expect}}}\n") == [("contradiction", pointer, 3)]


@pytest.mark.parametrize(
    "start",
    [
        "2030-02-30T00:00:00Z",
        "2030-01-01T25:00:00Z",
        "2030-01-01T00:00:00+24:00",
        "0001-01-01T00:00:00+05:00",
        f"{YEARS.stop}-01-01T00:00:00Z",
        "9999-12-31T23:59:59Z",
    ],
)
def test_a_start_that_is_no_time_or_leaves_the_calendar_is_refused(start):
    text = f"scenario: s\nclock: {{start: '{start}'}}\nsteps: [{{call: a}}]\n"
    (problem,) = parse("x.yaml", text, KINDS).problems
    assert (problem.code, problem.pointer, problem.line) == ("wrong_value", "/clock/start", 2)
    assert start in problem.message
    assert "2030-01-01T09:00:00Z" in problem.hint


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("2030-01-01T09:00:00Z", datetime(2030, 1, 1, 9, tzinfo=UTC)),
        ("1000-01-01T00:00:00Z", datetime(1000, 1, 1, tzinfo=UTC)),
        ("8999-12-31T23:59:59Z", datetime(8999, 12, 31, 23, 59, 59, tzinfo=UTC)),
    ],
)
def test_a_start_is_a_time_with_its_zone(text, start):
    assert scenario_of(f"scenario: s\nclock: {{start: '{text}'}}\nsteps: [{{call: a}}]\n").start == start


def descriptor(**changes):
    return Descriptor(name="tool", bindings={"mock": {"result": 1}}, mode="mock", **changes)


def test_examples_are_played_as_a_scenario():
    examples = (Example(args={"x": "{{ 1 }}"}, result={"$eq": "{{ 2 }}"}, has_result=True), Example(args={}))
    scenario = example_scenario(descriptor(examples=examples))
    assert (scenario.name, scenario.tags) == ("tool examples", ("examples",))
    first, second = scenario.steps
    assert (first.call, first.name, first.pointer) == ("tool", "example 1", "/examples/0")
    assert first.args.render({}) == {"x": "{{ 1 }}"}
    assert second.expect.parts == {}


@pytest.mark.parametrize("result", [None, 0, {}, {"$eq": 3}, {"$ref": "#"}, {"a": {"$any": []}}, ["{{ x }}"]])
def test_the_result_of_an_example_is_data_and_exact(result):
    matcher = (
        example_scenario(descriptor(examples=(Example(args={}, result=result, has_result=True),)))
        .steps[0]
        .expect.parts["result"]
    )
    assert matcher.matches(result)
    assert not matcher.matches({**result, "more": 1} if isinstance(result, dict) else "other")


def test_a_tool_without_examples_plays_nothing():
    assert example_scenario(descriptor()) is None


def test_the_mock_of_a_scenario_stands_in_for_the_tools_own():
    scenario = scenario_of("scenario: s\nmocks:\n  tool:\n    result: 2\nsteps: [{call: tool}]\n")
    own = Descriptor(name="tool", mode="live", bindings={"live": {}})
    seen = with_mock(own, scenario)
    assert (seen.mode, dict(seen.bindings)) == ("mock", {"live": {}, "mock": {"result": 2}})
    assert seen.origin.source == "x.scenario.yaml"
    assert seen.origin.place("/mock/result") == "x.scenario.yaml:4"
    other = Descriptor(name="other")
    assert with_mock(other, scenario) is other
