"""Rules of a scenario's own mocks that no call used: told, or an error, or nobody's business."""

from __future__ import annotations

import asyncio

import pytest

from in_memory import runtime_of
from toolcrib.scenarios import run_scenario
from toolcrib.scenarios.workers import pack_report, unpack_report

TOOLS = """
name: pay
input_schema: {type: object}
mock: {rules: [{when: {args: {id: 9}}, reply: {result: 1}}, {reply: {result: 2}}]}
---
name: look
input_schema: {type: object}
mock: {result: 1}
---
"""


def run(mock, calls="[{call: pay}]", rules=""):
    text = f"scenario: s\nmocks: {{pay: {mock}}}\nsteps: {calls}\n{rules}"
    runtime = runtime_of(TOOLS + text)
    return asyncio.run(run_scenario(runtime, runtime.scenarios[0]))


RULES = "{rules: [{name: dear, when: {args: {id: 1}}, reply: {result: 1}}, {when: {args: {id: 2}}, reply: [{result: 1}, {result: 2}, {result: 3}]}, {reply: {result: 4}}]}"
TIMES = "{sequence: [{result: 1, times: 2}, {result: 2, times: 2}, {result: 3}]}"

CASES = [
    (RULES, "[{call: pay}]", ["`dear`", "rule 2"], ["/mocks/pay/rules/0", "/mocks/pay/rules/1"]),
    (
        RULES,
        "[{call: pay, args: {id: 1}}, {call: pay}, {call: pay, args: {id: 2}}]",
        ["replies 2 to 3 of rule 2"],
        ["/mocks/pay/rules/1/reply/1"],
    ),
    (
        RULES,
        "[{call: pay, args: {id: 1}}, {call: pay}, {call: pay, args: {id: 2}}, {call: pay, args: {id: 2}}]",
        ["reply 3 of rule 2"],
        ["/mocks/pay/rules/1/reply/2"],
    ),
    (RULES, "[{call: look}]", ["any of the 3 rules"], ["/mocks/pay/rules"]),
    ("{sequence: [{result: 1}, {result: 2}]}", "[{call: look}]", ["the sequence"], ["/mocks/pay/sequence"]),
    (TIMES, "[{call: pay}]", ["replies 2 to 3 of the sequence"], ["/mocks/pay/sequence/1"]),
    (TIMES, "[{call: pay}, {call: pay}]", ["replies 2 to 3 of the sequence"], ["/mocks/pay/sequence/1"]),
    (
        TIMES,
        "[{call: pay}, {call: pay}, {call: pay}]",
        ["reply 3 of the sequence"],
        ["/mocks/pay/sequence/2"],
    ),
    ("{result: 1}", "[{call: look}]", [], []),
    ("{sequence: [{result: 1}], after_last: repeat}", "[{call: pay}, {call: pay}]", [], []),
]


@pytest.mark.parametrize(("mock", "calls", "what", "pointers"), CASES)
def test_what_no_call_used_is_a_warning_unless_said_otherwise(mock, calls, what, pointers):
    report = run(mock, calls)
    assert report.passed
    lines = [f"no call used {one} in the mock of `pay`" for one in what]
    assert [line for warning in report.warnings for line in warning.lines] == lines
    assert [warning.pointer for warning in report.warnings] == pointers
    assert str(report).splitlines() == ["passed s", *(f"  warning: {line} (tools.yaml:11)" for line in lines)]
    failed = run(mock, calls, "verify: {unused_rules: error}")
    assert failed.passed == (not what)
    assert [(failure.what, failure.lines) for failure in failed.failures] == [
        ("unused_rules", (line,)) for line in lines
    ]
    assert run(mock, calls, "verify: {unused_rules: ignore}").warnings == ()


def test_an_error_is_a_block_of_the_report():
    report = run(RULES, "[{call: pay}, {call: pay, args: {id: 2}}]", "verify: {unused_rules: error}")
    assert str(report).splitlines()[:2] == [
        "FAILED s › mocks (tools.yaml:11)",
        "  no call used `dear` in the mock of `pay`",
    ]


def test_rules_of_the_tools_own_mocks_may_be_unused():
    runtime = runtime_of(f"{TOOLS}scenario: s\nsteps: [{{call: pay}}]\nverify: {{unused_rules: error}}\n")
    assert asyncio.run(run_scenario(runtime, runtime.scenarios[0])).passed


def test_a_run_that_ended_early_tells_nothing_of_rules():
    report = run(RULES, "[{call: pay, expect: {result: 5}}, {call: pay, args: {id: 1}}]")
    assert not report.passed
    assert report.warnings == ()


def test_warnings_travel_and_are_in_the_json():
    report = run(RULES)
    again = unpack_report(pack_report(report), report.scenario)
    assert again.warnings == report.warnings
    assert again.digest == report.digest
    assert [warning["pointer"] for warning in again.as_json()["warnings"]] == [
        "/mocks/pay/rules/0",
        "/mocks/pay/rules/1",
    ]
