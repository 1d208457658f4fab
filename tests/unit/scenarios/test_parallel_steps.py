"""Calls of one parallel step begin together, end when they end, and are told in the order in which they begin."""

from __future__ import annotations

import asyncio
import json
from textwrap import dedent

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from in_memory import MOCKS, loaded, problems_of
from sampling import examples
from toolcrib.engine.runtime import loaded_runtime
from toolcrib.scenarios import run_scenario

TOOLS = """
name: lasting
input_schema: {type: object, properties: {id: {type: integer}}}
timeout: 10m
mock:
  rules:
    - {when: {args: {id: 1}}, reply: {result: {call: "{{ call }}", began: "{{ now }}"}, latency: 30s}}
    - {when: {args: {id: 2}}, reply: {result: {call: "{{ call }}", began: "{{ now }}"}, latency: 10s}}
    - {when: {args: {id: 3}}, reply: {result: {call: "{{ call }}", began: "{{ now }}"}}}
    - {when: {args: {id: 4}}, reply: {error: {code: broken, message: It is broken.}, latency: 5s}}
---
name: echo
input_schema: {}
mock: {result: "{{ args }}"}
"""


def runtime_over(text):
    runtime = loaded_runtime(loaded(f"{TOOLS}---\n{dedent(text)}"), executors=MOCKS)
    assert [str(problem) for problem in runtime.problems] == []
    return runtime


def run(text):
    runtime = runtime_over(text)
    return asyncio.run(run_scenario(runtime, runtime.scenarios[0]))


THREE = """
scenario: s
steps:
  - call: lasting
    args: {id: 2}
  - name: all at once
    parallel:
      - {call: lasting, args: {id: 1}, as: one, expect: {elapsed: 30, result: {call: 2}}}
      - {call: lasting, args: {id: 2}, as: two, expect: {elapsed: 10, result: {call: 3}}}
      - {call: lasting, args: {id: 3}, as: three, expect: {elapsed: 0, result: {call: 4}}}
  - {call: echo, args: {came: "{{ [one.result.call, two.result.call, three.result.call] }}"}, expect: {result: {came: [2, 3, 4]}}}
verify:
  calls: [{tool: lasting, args: {id: "{{ two.result.call - 1 }}"}, times: 2}]
  order: {exact: [lasting, lasting, lasting, lasting, echo]}
"""


def test_calls_begin_together_and_the_step_takes_as_long_as_the_longest():
    report = run(THREE)
    assert str(report) == "passed s"
    began = [step.result.value["began"] for step in report.steps[1:4]]
    assert began == ["2030-01-01T00:00:10Z"] * 3
    assert report.duration == 40.0


def test_reports_are_in_the_order_of_beginning_with_labels_of_their_own():
    steps = run(THREE).as_json()["steps"]
    assert [(step["number"], step["branch"]) for step in steps] == [
        (1, None),
        (2, 1),
        (2, 2),
        (2, 3),
        (3, None),
    ]


FAILING = """
scenario: s
steps:
  - parallel:
      - {call: lasting, args: {id: 4}}
      - {name: the good one, call: lasting, args: {id: 1}}
      - {name: the other bad one, call: lasting, args: {id: 3}, expect: {result: {call: 9}}}
  - {call: echo}
  - {call: echo}
"""


def test_a_call_that_fails_stops_no_sibling_and_the_scenario_ends_after_the_step():
    report = run(FAILING)
    assert [bool(step.failures) for step in report.steps] == [True, False, True]
    assert report.duration == 30.0
    assert str(report) == dedent(
        """\
        FAILED s › step 1.1 (tools.yaml:20)
          call      lasting {"id":4}
          answered  tool_error (broken): It is broken.
          outcome   expected ok, got tool_error
        FAILED s › step 1.3 “the other bad one” (tools.yaml:22)
          call      lasting {"id":3}
          answered  {"call":3,"began":"2030-01-01T00:00:00Z"}
          result    /call: expected 9, got 3
          2 later steps did not run
          seed 0"""
    )


def test_arguments_that_can_not_be_worked_out_stop_no_sibling():
    report = run(
        """
        scenario: s
        steps:
          - {call: echo, as: first}
          - parallel:
              - {call: echo, args: {id: "{{ first.result.nothing }}"}}
              - {call: lasting, args: {id: 2}}
        """
    )
    assert [step.result is None for step in report.steps] == [False, True, False]
    assert [failure.what for step in report.steps for failure in step.failures] == ["args"]


def test_the_same_run_gives_the_same_report():
    def told():
        document = run(FAILING).as_json()
        document.pop("duration")
        return json.dumps(document)

    assert told() == told()


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(st.sampled_from([1, 2, 3]), min_size=1, max_size=40))
def test_however_many_begin_none_begins_later_and_none_changes_the_order(ids):
    calls = "\n".join(f"      - {{call: lasting, args: {{id: {number}}}}}" for number in ids)
    report = run(
        f"scenario: s\nsteps:\n  - parallel:\n{calls}\nverify: {{calls: [{{tool: lasting, times: {len(ids)}}}]}}\n"
    )
    assert report.passed
    assert report.duration == max({1: 30, 2: 10, 3: 0}[number] for number in ids)
    assert [step.result.value["call"] for step in report.steps] == list(range(1, len(ids) + 1))
    assert {step.result.value["began"] for step in report.steps} == {"2030-01-01T00:00:00Z"}


def test_a_secret_of_one_call_is_hidden_in_the_report_of_its_sibling():
    report = run(
        """
        scenario: s
        mocks: {echo: {result: {seen: hunter2-is-secret}}}
        steps:
          - parallel:
              - {call: echo, expect: {result: {seen: other}}}
              - {call: lasting, args: {id: 3, password: hunter2-is-secret}}
        """
    )
    assert not report.passed
    assert "hunter2" not in str(report)
    assert "hunter2" not in str(report.as_json())


def found(steps):
    return problems_of(f"{TOOLS}---\nscenario: s\nsteps:\n{dedent(steps)}")


@pytest.mark.parametrize(
    ("call", "pointer"),
    [
        ("args: {a: [1, '{{ two.result }}']}", "/args/a/1"),
        ("args: {a: 'x {{ one.outcome }}'}", "/args/a"),
        ("expect: {result: {'a/b': {$gt: '{{ two.result + 1 }}'}}}", "/expect/result/a~1b/$gt"),
    ],
)
def test_what_a_sibling_saves_can_not_be_read(call, pointer):
    steps = f"- parallel:\n    - {{call: echo, as: one, {call}}}\n    - {{call: echo, as: two}}\n- {{call: echo, args: {{a: '{{{{ one.result }}}}'}}}}\n"
    assert found(steps) == [("reads_sibling", f"/steps/0/parallel/0{pointer}")]


def test_a_name_that_nobody_saves_is_an_unknown_name_as_anywhere():
    assert found("- parallel: [{call: echo, args: {a: '{{ nobody.result }}'}}]\n") == [
        ("unknown_name", "/steps/0/parallel/0/args/a")
    ]


def test_the_same_name_twice_is_refused():
    steps = "- {call: echo, as: one}\n- parallel: [{call: echo, as: one}, {call: echo, as: two}, {call: echo, as: two}]\n"
    assert found(steps) == [
        ("duplicate_name", "/steps/1/parallel/0/as"),
        ("duplicate_name", "/steps/1/parallel/2/as"),
    ]


@pytest.mark.parametrize(
    ("step", "code", "pointer"),
    [
        ("{parallel: []}", "wrong_value", "/steps/0/parallel"),
        ("{parallel: [{parallel: [{call: echo}]}]}", "unknown_key", "/steps/0/parallel/0/parallel"),
        ("{parallel: [{call: echo}], call: echo}", "unknown_key", "/steps/0/call"),
        ("{parallel: {call: echo}}", "wrong_type", "/steps/0/parallel"),
    ],
)
def test_a_parallel_step_that_is_written_wrong_is_told_with_its_place(step, code, pointer):
    assert (code, pointer) in found(f"- {step}\n")


def test_a_tool_that_does_not_exist_is_told_with_its_place():
    text = f"{TOOLS}---\nscenario: s\nsteps: [{{parallel: [{{call: echo}}, {{call: nobody}}]}}]\n"
    (problem,) = loaded_runtime(loaded(text), executors=MOCKS).problems
    assert (problem.code, problem.pointer) == ("unknown_tool", "/steps/0/parallel/1/call")
