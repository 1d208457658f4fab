"""Faults of a scenario: in force in every run, told where they did not happen, settled for each run of a matrix."""

from __future__ import annotations

import asyncio
from dataclasses import replace

from in_memory import MOCKS, loaded, runtime_of
from toolcrib.engine.runtime import loaded_runtime
from toolcrib.scenarios import run_scenario, runs_of
from toolcrib.scenarios.run_setup import registry_for

TOOLS = """
name: search
input_schema: {type: object, properties: {q: {type: string}}}
annotations: {read_only: true}
timeout: 5s
mock: {rules: [{when: {args: {q: b}}, reply: {result: found}}]}
---
name: send
input_schema: {type: object}
annotations: {idempotent: true}
mock: {result: sent}
---
"""

LOST = """
scenario: s
store: {outbox: []}
mocks:
  send:
    effects: [{upsert: outbox, key: k1, value: {sent: true}}]
    result: sent
faults:
  - {name: ack_lost, tool: send, inject: lost_ack, when: {call: 1, attempt: 1}}
  - {name: cold, tool: "s*", inject: timeout, when: {first: 1, args: {q: b}}}
steps:
  - {call: send, expect: {attempts: 2, result: sent}}
  - {call: search, args: {q: b}, expect: {outcome: timeout, elapsed: 5}}
  - {call: search, args: {q: b}, expect: {attempts: 1}}
verify: {store: {outbox: {k1: {sent: true}}}}
"""


def runs(text, **options):
    runtime = runtime_of(TOOLS + text)
    (scenario,) = runtime.scenarios
    return [asyncio.run(run_scenario(runtime, run)) for run in runs_of(scenario, **options)]


def test_faults_happen_in_each_run():
    runtime = runtime_of(TOOLS + LOST)
    (scenario,) = runtime.scenarios
    for _ in range(2):
        report = asyncio.run(run_scenario(runtime, scenario))
        assert report.passed, str(report)


def test_a_fault_that_must_happen_and_did_not_fails_the_run_and_says_why():
    (report,) = runs(LOST.replace("call: 1, attempt: 1", "call: 2, attempt: 1"), repeat=1)
    assert str(report.steps[0].step.label) == "1"
    text = LOST.replace("call: 1, attempt: 1", "call: 2").replace("attempts: 2", "attempts: 1")
    (report,) = runs(text)
    assert [failure.what for failure in report.failures] == ["fault"]
    assert str(report).splitlines() == [
        "FAILED s › fault (tools.yaml:21)",
        "  fault `ack_lost` was never due: it waits for call 2, but there was 1 call",
        "  seed 0",
    ]
    assert report.as_json()["failures"][0]["pointer"] == "/faults/0"


def test_one_that_need_not_happen_fails_nothing():
    text = LOST.replace("call: 1, attempt: 1}", "call: 2}, must_fire: false")
    (report,) = runs(text.replace("attempts: 2", "attempts: 1"))
    assert report.passed, str(report)


def test_a_step_that_went_otherwise_tells_why_faults_of_its_tool_have_not_happened():
    text = """
scenario: s
faults:
  - {name: later, tool: search, inject: timeout, when: {call: 3}}
  - {name: others, tool: send, inject: timeout}
steps:
  - {call: search, args: {q: b}, expect: {outcome: timeout}}
"""
    (report,) = runs(text)
    lines = str(report).splitlines()
    assert lines[1:] == [
        '  call      search {"q":"b"}',
        '  answered  "found"',
        "  outcome   expected timeout, got ok",
        "  fault     `later` was never due: it waits for call 3, but there was 1 call (tools.yaml:16)",
        "  seed 0",
    ]


def test_a_call_that_no_rule_answers_tells_of_faults_too_in_text_and_json():
    text = """
scenario: s
faults: [{name: later, tool: search, inject: {error: busy}, when: {call: 2}}]
steps: [{call: search, args: {q: a}}]
"""
    (report,) = runs(text)
    told = str(report)
    assert 'args/q: expected "b", got "a"' in told
    assert 'args: {"q": "a"}' in told
    assert "`later` was never due: it waits for call 2, but there was 1 call (tools.yaml:15)" in told
    step = report.as_json()["steps"][0]
    assert [failure["what"] for failure in step["failures"]] == ["outcome", "fault"]
    assert step["failures"][1]["line"] == 15
    assert step["result"]["error"]["details"]["nearest"][0]["rule"] == "rule 1"


def test_a_step_that_went_otherwise_tells_where_faults_of_its_tool_happened():
    text = """
scenario: s
faults: [{name: cold, tool: search, inject: timeout, when: {first: 2}}]
steps:
  - {call: search, args: {q: b}, expect: {outcome: timeout}}
  - {call: search, args: {q: b}}
"""
    (report,) = runs(text)
    assert (
        "  fault     `cold` happened on call 1 of `search`, call 2 of `search` (tools.yaml:15)"
        in str(report).splitlines()
    )


MATRIX = """
scenario: s
matrix: {kind: [timeout, disconnect]}
faults: [{name: bad, tool: send, inject: "{{ matrix.kind }}", when: {attempt: {$lte: 9}}}]
steps: [{call: send, as: sent, expect: {error: {code: "{{ 'timeout' if matrix.kind == 'timeout' else 'disconnected' }}"}}}]
"""


def test_a_fault_may_be_another_one_in_each_run():
    reports = runs(MATRIX)
    assert [str(report) for report in reports] == ["passed s[kind=timeout]", "passed s[kind=disconnect]"]


def test_the_tools_are_derived_once_for_runs_in_which_the_same_goes_wrong():
    runtime = runtime_of(TOOLS + LOST)
    (scenario,) = runtime.scenarios
    seen = registry_for(runtime.registry, scenario)
    assert registry_for(runtime.registry, replace(scenario, run=2, seed=2)) is seen
    assert [fault.name for fault in seen["search"].faults] == ["cold"]
    assert [fault.name for fault in seen["send"].faults] == ["ack_lost", "cold"]
    assert runtime.registry["send"].faults == ()


def test_a_fault_for_a_tool_that_is_not_there_is_found_at_load():
    text = TOOLS + LOST.replace("tool: send, inject", "tool: sent, inject")
    problems = loaded_runtime(loaded(text), executors=MOCKS).problems
    assert [(problem.code, problem.pointer) for problem in problems] == [("unknown_tool", "/faults/0/tool")]
