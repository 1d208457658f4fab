"""Time in scenarios: virtual unless they say otherwise, one for everything, and moved on by a step."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from textwrap import dedent

import pytest

from in_memory import problems_of, runtime_of
from reaching import ReachingExecutor, broken
from toolcrib import Executors, Result
from toolcrib.core.errors import ConfigurationError
from toolcrib.executors.mock import MockExecutor
from toolcrib.loading.scenarios.model import AdvanceStep
from toolcrib.scenarios import run_scenario

CLOCK = """
name: look
input_schema: {}
mock: {result: "{{ now }}", latency: 10s}
---
"""


def run(text, **options):
    runtime = runtime_of(dedent(text), **options)
    (scenario,) = runtime.scenarios
    return asyncio.run(run_scenario(runtime, scenario))


def test_advance_moves_the_time_that_calls_and_expressions_read():
    report = run(
        CLOCK
        + """
scenario: s
clock: {start: "2030-01-01T09:00:00Z", mode: virtual}
steps:
  - {call: look, expect: {result: "2030-01-01T09:00:00Z"}}
  - {name: an hour passes, advance: 1h}
  - {call: look, expect: {result: "2030-01-01T10:00:10Z"}}
  - advance: 1.5m
  - {call: look, args: {now: "{{ now }}"}, expect: {result: "2030-01-01T10:01:50Z"}}
verify: {calls: [{tool: look, args: {now: "2030-01-01T10:01:50Z"}}]}
"""
    )
    assert str(report) == "passed s"
    assert [step.number for step in report.steps] == [1, 3, 5]
    assert report.duration == 3600 + 90 + 30


def run_reaching(keys, steps, *answers):
    """Run steps over the tool `quote`, which reaches out and gives these answers, the last one again and again."""
    left = list(answers)

    async def answer(_call):
        return left.pop(0) if len(left) > 1 else left[0]

    executors = Executors({"mock": MockExecutor, "fake": lambda: ReachingExecutor(answer)})
    text = f"name: quote\ninput_schema: {{}}\nfake: {{}}\n{dedent(keys)}\n---\nscenario: s\nsteps:\n{steps}"
    return run(text, executors=executors)


def test_hours_of_latency_and_deadlines_pass_in_milliseconds():
    report = run(
        CLOCK
        + """
name: slow
input_schema: {}
timeout: 10m
mock: {rules: [{when: {call: 1}, reply: {result: 1, latency: 9m}}, {reply: {result: 1, latency: 1h}}]}
---
scenario: s
steps:
  - {call: slow, expect: {elapsed: 540}}
  - {call: slow, expect: {outcome: timeout, elapsed: 600}}
  - advance: 1d
  - {call: look, expect: {result: "2030-01-02T00:19:00Z"}}
"""
    )
    assert report.passed, str(report)
    assert report.duration == 86400 + 1150


def test_a_rate_is_given_again_when_time_has_been_moved_on():
    report = run_reaching(
        "timeout: 1m\nlimits: {rate: 1/1h}",
        "  - {call: quote}\n"
        "  - {call: quote, expect: {outcome: limit_exceeded, elapsed: 0}}\n"
        "  - advance: 1h\n"
        "  - {call: quote, expect: {elapsed: 0}}\n",
        Result.success(1),
    )
    assert report.passed, str(report)


def test_a_breaker_lets_calls_through_when_time_has_been_moved_on():
    report = run_reaching(
        "limits: {attempts: 1, breaker: {failures: 2, within: 1m, open_for: 1h}}",
        "  - {call: quote, expect: {outcome: transport_error}}\n"
        "  - {call: quote, expect: {outcome: transport_error}}\n"
        "  - {call: quote, expect: {error: {code: circuit_open}}}\n"
        "  - advance: 59m\n"
        "  - {call: quote, expect: {error: {code: circuit_open}}}\n"
        "  - advance: 1m\n"
        "  - {call: quote}\n",
        broken(retryable=False),
        broken(retryable=False),
        Result.success(1),
    )
    assert report.passed, str(report)


def test_backoff_passes_on_virtual_time():
    report = run_reaching(
        "timeout: 10m\nlimits: {attempts: 3, backoff: {first: 2m, longest: 3m}}",
        "  - {call: quote, expect: {attempts: 3, elapsed: {$gt: 1, $lte: 300}}}\n",
        broken(),
        broken(),
        Result.success(1),
    )
    assert report.passed, str(report)


def test_a_real_clock_is_the_machines():
    report = run(
        """
        name: look
        input_schema: {}
        mock: {result: "{{ now }}", latency: 1ms}
        ---
        scenario: s
        clock: {mode: real}
        steps: [{call: look, args: {now: "{{ now }}"}, expect: {elapsed: {$gte: 0.001}, result: {$gte: "2026"}}}]
        """
    )
    assert report.passed, str(report)
    assert report.duration == 0


WRONG = [
    ("clock: {mode: real}\nsteps: [{call: look}, {advance: 1h}]", ("contradiction", "/steps/1/advance")),
    (
        'clock: {mode: real, start: "2030-01-01T09:00:00Z"}\nsteps: [{call: look}]',
        ("contradiction", "/clock/start"),
    ),
    ("clock: {mode: fast}\nsteps: [{call: look}]", ("not_allowed", "/clock/mode")),
    ("steps: [{call: look}, {advance: 1}]", ("wrong_form", "/steps/1/advance")),
    ("steps: [{call: look}, {advance: soon}]", ("wrong_form", "/steps/1/advance")),
    ("steps: [{call: look}, {advance: 1h, call: look}]", ("unknown_key", "/steps/1/call")),
    ("steps: [{parallel: [{call: look}, {advance: 1h}]}]", ("unknown_key", "/steps/0/parallel/1/advance")),
    ("steps: [{call: look, as: store}]", ("duplicate_name", "/steps/0/as")),
]


@pytest.mark.parametrize(("text", "told"), WRONG, ids=[told[1] for _text, told in WRONG])
def test_what_can_not_be_said_of_time_is_refused(text, told):
    assert told in problems_of(f"{CLOCK}scenario: s\n{text}\n")


def test_who_makes_a_scenario_by_hand_can_not_move_a_real_clock_either():
    runtime = runtime_of(f"{CLOCK}scenario: s\nclock: {{mode: real}}\nsteps: [{{call: look}}]\n")
    wrong = replace(runtime.scenarios[0], steps=(AdvanceStep(seconds=1),))
    with pytest.raises(ConfigurationError, match="cannot advance a real clock"):
        asyncio.run(run_scenario(runtime, wrong))
