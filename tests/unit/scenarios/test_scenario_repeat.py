"""`repeat` of scenario steps: one call, calls in parallel, a group of steps."""

from __future__ import annotations

import asyncio
import json

import pytest

from in_memory import MOCKS
from keeping import loaded_with
from toolcrib import VirtualClock
from toolcrib.engine.runtime import loaded_runtime
from toolcrib.scenarios import run_scenario, runs_of
from toolcrib.scenarios.static_checks import run_static_checks

TOOLS = """
name: count
input_schema: {type: object, properties: {n: {type: integer}}, additionalProperties: false}
mock:
  effects: [{insert: log, value: {n: "{{ args['n'] }}", at: "{{ now }}"}}]
  result: "{{ store.log | length }}"
"""


def reports(steps, more="", **options):
    files = {"s.yaml": f"scenario: s\nsteps: {steps}\n{more}"}
    found = loaded_with(TOOLS, files=files)
    assert [str(problem) for problem in found.problems] == []
    runtime = loaded_runtime(found, executors=MOCKS, clock=VirtualClock())
    (scenario,) = runtime.scenarios
    return [asyncio.run(run_scenario(runtime, run)) for run in runs_of(scenario, **options)]


def report(steps, more=""):
    (only,) = reports(steps, more)
    return only


def problems(steps):
    found = loaded_with(TOOLS, files={"s.yaml": f"scenario: s\nsteps: {steps}\n"})
    return [(problem.code, problem.pointer) for problem in found.problems]


def test_a_step_is_repeated_and_each_repetition_is_checked():
    done = report(
        "[{repeat: 3, call: count, args: {n: '{{ repetition * 2 }}'}, as: last, expect: {result: '{{ repetition }}'}},"
        " {call: count, args: {n: '{{ last.result }}'}}]",
        "verify: {store: {log: {'1': {n: 2}, '3': {n: 6}, '4': {n: 3}}}, calls: [{tool: count, times: 4}]}",
    )
    assert done.passed
    assert [step.step.title for step in done.steps] == [
        "step 1[1/3]",
        "step 1[2/3]",
        "step 1[3/3]",
        "step 2",
    ]


def test_the_first_repetition_that_fails_ends_the_run():
    done = report(
        "[{repeat: 5, call: count, name: fill, expect: {result: {$lt: 3}}}, {call: count}]",
    )
    assert not done.passed
    (fault,) = done.faults
    assert fault.title == "step 1[3/5] “fill”"
    assert [step["repetition"] for step in json.loads(json.dumps(done.as_json()))["steps"]] == [1, 2, 3]


def test_a_group_is_repeated_with_its_time():
    done = report(
        "[{repeat: 2, name: hourly, steps: [{call: count, as: c}, {call: count, args: {n: '{{ c.result }}'}}, {advance: 1h}]},"
        " {repeat: 2, advance: 30m}, {call: count}]",
        "verify: {store: {log: {'3': {at: '2030-01-01T01:00:00Z'}, '4': {n: 3}, '5': {at: '2030-01-01T03:00:00Z'}}}}",
    )
    assert done.passed
    assert [step.step.label for step in done.steps] == ["1.1", "1.2", "1.1", "1.2", "3"]
    assert (done.duration, done.steps[0].step.within) == (3 * 3600, "hourly")


def test_parallel_calls_are_repeated_in_every_order_of_interleaving():
    steps = "[{repeat: 3, parallel: [{call: count, args: {n: 1}}, {call: count, args: {n: 2}}]}]"
    runs = reports(steps, interleave=9)
    assert [run.passed for run in runs] == [True, True]
    assert [[step.args["n"] for step in run.steps] for run in runs] == [[1, 2] * 3, [2, 1] * 3]
    assert runs[1].order_lines == ["calls began in the order 1.2, 1.1"]


@pytest.mark.parametrize(
    ("step", "found"),
    [
        ("{repeat: 0, call: count}", [("wrong_value", "/steps/0/repeat")]),
        ("{repeat: 1001, call: count}", [("wrong_value", "/steps/0/repeat")]),
        ("{repeat: 2.5, call: count}", [("wrong_type", "/steps/0/repeat")]),
        ("{repeat: null, call: count}", [("wrong_type", "/steps/0/repeat")]),
        ("{repeat: 2, steps: []}", [("wrong_value", "/steps/0/steps")]),
        ("{steps: [{call: count}]}", [("missing_key", "/steps/0/repeat")]),
        (
            "{repeat: 2, steps: [{repeat: 2, call: count}]}",
            [("wrong_value", "/steps/0/steps/0")],
        ),
        ("{parallel: [{repeat: 2, call: count}]}", [("wrong_value", "/steps/0/parallel/0")]),
        ("{call: count, args: {n: '{{ repetition }}'}}", [("unknown_name", "/steps/0/args/n")]),
        ("{call: count, as: repetition}", [("duplicate_name", "/steps/0/as")]),
    ],
)
def test_what_can_not_be_repeated_is_reported_once(step, found):
    assert problems(f"[{step}]") == found


def test_a_name_of_a_repeated_step_stays_unique():
    assert problems("[{repeat: 2, call: count, as: a}, {call: count, as: a}]") == [
        ("duplicate_name", "/steps/1/as")
    ]


def test_the_arguments_of_a_repeated_step_are_checked_once():
    files = {"s.yaml": "scenario: s\nsteps: [{repeat: 900, steps: [{call: count, args: {m: 1}}]}]\n"}
    runtime = loaded_runtime(loaded_with(TOOLS, files=files), executors=MOCKS)
    (problem,) = run_static_checks(runtime)
    assert (problem.code, problem.pointer) == ("step_breaks_schema", "/steps/0/steps/0/args/m")
