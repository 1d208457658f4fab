"""What must be true when all steps are done: calls with their number, absence, order."""

from __future__ import annotations

import asyncio

import pytest

from in_memory import MOCKS, loaded
from toolcrib.engine.runtime import loaded_runtime
from toolcrib.scenarios import run_scenario

TOOLS = """
name: get_order
input_schema: {type: object, properties: {id: {type: integer}}, additionalProperties: false}
mock: {rules: [{when: {args: {id: 9}}, reply: {error: gone}}, {reply: {result: 1}}]}
---
name: get_user
input_schema: {type: object}
mock: {result: 1}
---
name: pay
input_schema: {type: object}
mock: {result: 1}
---
name: scenario_only
input_schema: {type: object}
mock: {result: 1}
"""

CALLS = """
scenario: s
steps:
  - {call: get_order, args: {id: 1}}
  - {call: get_user}
  - {call: get_order, args: {id: 9}, expect: {outcome: tool_error}}
  - {call: pay, args: {amount: 3}}
  - {call: get_order, args: {id: nine}, expect: {outcome: invalid_arguments}}
  - {call: nobody, expect: {outcome: not_found}}
verify:
"""

MADE = "get_order, get_user, get_order, pay"


def verified(rules):
    """The lines of everything that `verify` found; four calls were made."""
    runtime = loaded_runtime(loaded(f"{TOOLS}---{CALLS}  {rules}\n"), executors=MOCKS)
    assert [str(problem) for problem in runtime.problems] == []
    report = asyncio.run(run_scenario(runtime, runtime.scenarios[0]))
    assert [step.failures for step in report.steps] == [()] * 6
    return [(failure.what, failure.lines) for failure in report.failures]


@pytest.mark.parametrize(
    "rules",
    [
        "calls: [{tool: pay}]",
        "calls: [{tool: get_order, times: 2}]",
        "calls: [{tool: 'get_*', times: 3}]",
        "calls: [{tool: '*', times: {$gte: 4, $lt: 5}}]",
        "calls: [{tool: get_order, args: {id: 9}, times: 1}]",
        "calls: [{tool: get_order, args: {id: {$gt: 0}}, times: 2}]",
        "calls: [{tool: scenario_only, times: 0}]",
        "never: [{tool: scenario_only}]",
        "calls: [{tool: get_order, outcome: tool_error, times: 1}, {tool: get_order, outcome: ok, times: 1}]",
        "calls: [{tool: get_order, outcome: [ok, tool_error], times: 2}]",
        "never: [{tool: get_order, outcome: timeout}, {tool: get_order, outcome: ok, args: {id: 9}}]",
        "never: [{tool: pay, args: {amount: {$gt: 3}}}, {tool: 'scen*'}]",
        f"order: {{exact: [{MADE}]}}",
        "order: {subsequence: [get_order, pay]}",
        "order: {subsequence: [get_order, get_order]}",
        "order: {any: [pay, get_order, get_order, get_user]}",
        "order: {any: [pay]}",
        f"{{calls: [{{tool: pay}}], never: [{{tool: scenario_only}}], order: {{exact: [{MADE}]}}}}",
    ],
)
def test_a_rule_that_holds_says_nothing(rules):
    assert verified(rules) == []


BROKEN = [
    (
        "calls: [{tool: scenario_only}]",
        "calls",
        ("calls of `scenario_only`: expected a number greater than or equal to 1, got 0",),
    ),
    (
        "calls: [{tool: pay, times: 2}]",
        "calls",
        ("calls of `pay`: expected 2, got 1", '  step 4: pay {"amount":3}'),
    ),
    (
        "calls: [{tool: get_order, args: {id: 9}, times: 2}]",
        "calls",
        (
            'calls of `get_order` with {"id":9}: expected 2, got 1',
            '  step 3: get_order {"id":9}',
            "  step 1 differs: /id: expected 9, got 1",
        ),
    ),
    (
        "calls: [{tool: get_order, outcome: ok, times: 2}]",
        "calls",
        (
            "calls of `get_order` that ended `ok`: expected 2, got 1",
            '  step 1: get_order {"id":1}',
            "  step 3 differs: it ended with `tool_error`",
        ),
    ),
    (
        "never: [{tool: get_order, args: {id: 1}, outcome: ok}]",
        "calls",
        (
            'calls of `get_order` with {"id":1} that ended `ok`: expected 0, got 1',
            '  step 1: get_order {"id":1}',
            "  step 3 differs: it ended with `tool_error`",
        ),
    ),
    (
        "never: [{tool: 'pa*'}]",
        "calls",
        ("calls of `pa*`: expected 0, got 1", '  step 4: pay {"amount":3}'),
    ),
    (
        "never: [{tool: pay, args: {amount: {$lt: 9}}}]",
        "calls",
        ('calls of `pay` with {"amount":{"$lt":9}}: expected 0, got 1', '  step 4: pay {"amount":3}'),
    ),
    (
        "order: {exact: [get_order, pay]}",
        "order",
        ("expected exactly these calls: get_order, pay", f"the calls were: {MADE}"),
    ),
    (
        "order: {subsequence: [pay, get_order]}",
        "order",
        ("expected these calls in this order: pay, get_order", f"the calls were: {MADE}"),
    ),
    (
        "order: {any: [pay, pay]}",
        "order",
        ("expected these calls in any order: pay, pay", f"the calls were: {MADE}"),
    ),
]


@pytest.mark.parametrize(("rules", "what", "lines"), BROKEN)
def test_a_rule_that_does_not_hold_tells_what_there_was(rules, what, lines):
    assert verified(rules) == [(what, lines)]


def test_all_rules_that_do_not_hold_are_told():
    assert [
        what
        for what, _lines in verified(
            "{calls: [{tool: pay, times: 9}], never: [{tool: pay, outcome: [ok, timeout]}], order: {any: [scenario_only]}}"
        )
    ] == [
        "calls",
        "calls",
        "order",
    ]


def test_a_run_without_calls_says_so():
    text = f"{TOOLS}---\nscenario: s\nsteps: [{{call: nobody, expect: {{outcome: not_found}}}}]\nverify: {{order: {{any: [pay]}}}}\n"
    runtime = loaded_runtime(loaded(text), executors=MOCKS)
    report = asyncio.run(run_scenario(runtime, runtime.scenarios[0]))
    assert report.failures[0].lines == ("expected these calls in any order: pay", "the calls were: none")


def ran(text):
    runtime = loaded_runtime(loaded(text, MOCKS), executors=MOCKS)
    assert [str(problem) for problem in runtime.problems] == []
    return asyncio.run(run_scenario(runtime, runtime.scenarios[0]))


COMPUTED = """
name: make
mock: {result: {id: 7}}
---
name: read
input_schema: {type: object}
mock: {result: 1}
---
scenario: made_then_read
steps:
  - {call: make, as: made}
  - {call: read, args: {id: 7}}
verify:
  calls: [{tool: read, args: {id: "{{ made.result.WHAT }}"}, times: 1}]
"""


def test_a_rule_may_read_what_came_of_the_steps():
    assert ran(COMPUTED.replace("WHAT", "id")).passed


def test_an_expression_of_a_rule_that_fails_is_told_with_its_place():
    (failure,) = ran(COMPUTED.replace("WHAT", "idd")).failures
    assert "`idd`" in failure.lines[0]
    assert failure.pointer == "/verify/calls/0/args/id"
