"""Reports are told when somebody looks: they show each step as it was when it ended, and never a secret."""

from __future__ import annotations

import asyncio
import copy
import json
import pickle
from itertools import product
from textwrap import dedent

import pytest

from in_memory import MOCKS, runtime_of
from sampling import sample
from toolcrib import Executors, Outcome, Result
from toolcrib.executors.mock import MockExecutor
from toolcrib.scenarios import ScenarioReport, run_scenario, runs_of
from toolcrib.scenarios.workers import pack_report
from toolcrib.testing import FunctionExecutor

SECRET = "hunter2-is-secret"

TOOLS = """
name: echo
input_schema: {}
mock: {result: {said: "{{ args }}"}}
---
name: log_in
input_schema: {}
mock: {result: {token: hunter2-is-secret, greeting: welcome hunter2-is-secret}}
---
name: opened
input_schema: {type: object, properties: {box: {writeOnly: true}}}
output_schema: {type: object, properties: {inside: {x-secret: true}}}
mock: {result: {inside: hunter2-is-secret, copy: "{{ args }}"}}
---
name: failing
input_schema: {}
mock: {error: {code: refused, message: "no {{ args }}", details: {given: "{{ args }}"}}}
---
name: speaking
input_schema: {}
mock: {result: 1, content: [{type: text, text: "you said {{ args }}"}]}
"""

FOREIGN = "---\nname: foreign\ninput_schema: {}\nfake: {}\n"


def run(text, answer=None, **options) -> ScenarioReport:
    executors = MOCKS
    if answer is not None:
        executors = Executors({"mock": MockExecutor, "fake": lambda: FunctionExecutor(answer)})
    tools = TOOLS + (FOREIGN if answer is not None else "")
    runtime = runtime_of(f"{tools}---\n{dedent(text)}", executors=executors, **options)
    (scenario,) = runtime.scenarios
    return asyncio.run(run_scenario(runtime, scenario))


def everything(report: ScenarioReport) -> str:
    """All that a report tells, in every way in which it tells it."""
    fault_texts = [str(fault) for fault in report.faults]
    parts = [str(report), repr(report), json.dumps(report.as_json()), *fault_texts]
    # A step itself is the document, which says what it says; what came of it is not.
    parts += [repr(step[1:]) for step in report.steps]
    return "\n".join([*parts, repr(report.failures), repr(pack_report(report))])


STEPS = {
    "an argument with a secret name": f"{{call: echo, args: {{password: {SECRET}}}}}",
    "an argument deep down": f"{{call: echo, args: {{a: [{{api_key: {SECRET}}}]}}}}",
    "a marked argument": f"{{call: opened, args: {{box: {SECRET}}}}}",
    "an answer with a secret name": "{call: log_in}",
    "a message": f"{{call: failing, args: {{token: {SECRET}}}, expect: {{outcome: tool_error}}}}",
    "content": f"{{call: speaking, args: {{token: {SECRET}}}}}",
}

LATER = {
    "nothing": "",
    "an answer read later": '{call: echo, args: {x: "{{ first.result }} {{ first.error }} {{ first.content }}"}}',
    "the same text elsewhere": f"{{call: echo, args: {{x: [said {SECRET}]}}}}",
    "a failure": f"{{call: echo, args: {{x: {SECRET}}}, expect: {{result: {{said: {{x: other}}}}}}}}",
    "arguments that fail": f'{{call: echo, args: {{x: {SECRET}, y: "{{{{ first.result.absent }}}}"}}}}',
}

VERIFY = {
    "no rules": "",
    "calls that were not made": "verify: {calls: [{tool: echo, args: {x: 1}, times: 9}, {tool: opened, times: 9}]}",
    "calls that were made": f"verify: {{calls: [{{tool: '*', args: {{password: {SECRET}}}, times: 0}}]}}",
}


@pytest.mark.parametrize(
    ("first", "then", "verify"), sample(product(STEPS, LATER, list(VERIFY)[:2]), 3), ids=str
)
def test_a_secret_that_one_step_brought_is_told_nowhere(first, then, verify):
    first, then, verify = STEPS[first], LATER[then], VERIFY[verify]
    first = first[:-1] + ", as: first}"
    report = run(f"scenario: s\nsteps: [{first}{', ' + then if then else ''}]\n{verify}")
    assert SECRET not in everything(report)
    assert "***" in json.dumps(report.as_json())


def test_a_rule_that_names_a_secret_does_not_show_it():
    report = run(
        f"scenario: s\nsteps: [{STEPS['an argument with a secret name']}]\n{VERIFY['calls that were made']}"
    )
    assert not report.passed
    assert SECRET not in everything(report)


def test_a_run_without_secrets_shows_everything_as_it_was():
    report = run("scenario: s\nsteps: [{call: echo, args: {max_token: 3, key: k}, as: first}]")
    assert report.steps[0].args == {"max_token": 3, "key": "k"}
    assert report.steps[0].result.value == {"said": {"max_token": 3, "key": "k"}}


def test_what_is_private_of_a_report_does_not_leave_the_process():
    report = run(f"scenario: s\nsteps: [{STEPS['an argument with a secret name']}]")
    with pytest.raises((TypeError, AttributeError, pickle.PicklingError)):
        pickle.dumps(report)
    assert SECRET.encode() not in pickle.dumps(pack_report(report))
    assert SECRET not in everything(copy.copy(report))


def test_an_answer_that_its_tool_changes_later_is_shown_as_it_was():
    kept = {"calls": 0}

    async def counting(_call):
        kept["calls"] += 1
        return Result.success(kept)

    report = run(
        """
        scenario: s
        steps:
          - {call: foreign, as: first, expect: {result: {calls: 1}}}
          - {call: echo, args: {x: "{{ first.result }}"}}
          - {call: foreign, expect: {result: {calls: 2}}}
        """,
        counting,
    )
    assert report.passed
    kept["calls"] = 99
    assert [step.result.value for step in report.steps] == [
        {"calls": 1},
        {"said": {"x": {"calls": 1}}},
        {"calls": 2},
    ]


def test_arguments_that_a_tool_changes_are_shown_as_it_left_them_and_keep_their_secrets():
    async def taking(call):
        return Result.failure(Outcome.TOOL_ERROR, f"took {call.arguments.pop('password')}")

    report = run(
        f"""
        scenario: s
        steps: [{{call: foreign, args: {{password: {SECRET}, a: 1}}, expect: {{outcome: tool_error}}}}]
        """,
        taking,
    )
    assert report.passed
    assert report.steps[0].args == {"a": 1}
    assert report.steps[0].result.message == "took ***"


def test_calls_of_a_parallel_step_keep_their_secrets_though_their_tool_takes_them_away():
    async def taking(call):
        return Result.success({"took": call.arguments.pop("password")})

    report = run(
        f"""
        scenario: s
        steps:
          - parallel:
              - {{call: foreign, args: {{password: {SECRET}}}}}
              - {{call: echo, args: {{x: {SECRET}}}}}
        """,
        taking,
    )
    assert report.passed
    assert [step.result.value for step in report.steps] == [{"took": "***"}, {"said": {"x": "***"}}]


def test_a_layer_around_the_tools_may_change_what_they_answered():
    answers = []

    async def keeping(call, call_next):
        result = await call_next(call)
        for old in answers:
            old["said"] = "changed"
        answers.append(result.value)
        return result

    text = "scenario: s\nsteps: [{call: echo, args: {x: 1}}, {call: echo, args: {x: 2}}]"
    report = run(text, middleware=[keeping])
    assert [step.result.value for step in report.steps] == [{"said": {"x": 1}}, {"said": {"x": 2}}]


def test_a_tool_that_changes_what_it_is_given_changes_neither_the_scenario_nor_earlier_answers():
    async def taking(call):
        return Result.success({"took": call.arguments["x"].pop("a")})

    text = """
        scenario: s
        repeat: 2
        steps:
          - {call: echo, args: {a: 1}, as: first}
          - {call: foreign, args: {x: {a: 2}}, expect: {result: {took: 2}}}
          - {call: foreign, args: {x: "{{ first.result.said }}"}, expect: {result: {took: 1}}}
          - {call: foreign, args: {x: "{{ first.result.said }}"}, expect: {result: {took: 1}}}
          - parallel: [{call: foreign, args: {x: {a: 3}}, expect: {result: {took: 3}}}, {call: echo}]
        """
    executors = Executors({"mock": MockExecutor, "fake": lambda: FunctionExecutor(taking)})
    runtime = runtime_of(f"{TOOLS}{FOREIGN}---\n{dedent(text)}", executors=executors)
    for scenario in runs_of(runtime.scenarios[0]):
        report = asyncio.run(run_scenario(runtime, scenario))
        assert report.passed, str(report)


def test_what_later_steps_read_of_an_answer_is_what_it_was():
    kept = {"calls": 0}

    async def counting(_call):
        kept["calls"] += 1
        return Result.success(kept)

    report = run(
        """
        scenario: s
        steps:
          - {call: foreign, as: first}
          - {call: foreign}
          - {call: echo, args: {x: "{{ first.result.calls }}"}, expect: {result: {said: {x: 1}}}}
        """,
        counting,
    )
    assert report.passed, str(report)
