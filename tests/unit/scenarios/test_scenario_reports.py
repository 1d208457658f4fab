"""What a run shows: one line for a scenario that passed, one readable block for one that did not, stable JSON."""

from __future__ import annotations

import asyncio
import json
from textwrap import dedent

from in_memory import MOCKS, loaded
from toolcrib.engine.runtime import loaded_runtime
from toolcrib.loading.scenarios.scenario import example_scenario
from toolcrib.scenarios import run_scenario

SHOP = """
name: get_order
description: Read an order.
input_schema: {type: object, properties: {id: {type: string}}, required: [id], additionalProperties: false}
output_schema: {type: object, required: [status], properties: {status: {enum: [paid, open]}}}
examples:
  - {args: {id: "1"}, result: {status: paid}}
  - {args: {id: "2"}, result: {status: open}}
mock:
  rules:
    - name: the first order
      when: {args: {id: "1"}}
      reply: {result: {status: paid}}
    - name: the third order
      when: {args: {id: "3"}}
      reply: {error: "line one\\nline two"}
"""


def report_of(text, **options):
    runtime = loaded_runtime(loaded(f"{SHOP}---\n{dedent(text)}"), executors=MOCKS)
    assert [str(problem) for problem in runtime.problems] == []
    return asyncio.run(run_scenario(runtime, runtime.scenarios[0], **options))


def test_a_scenario_that_passed_is_one_line():
    assert str(report_of('scenario: fine\nsteps: [{call: get_order, args: {id: "1"}}]\n')) == "passed fine"


def test_a_step_that_failed_is_one_readable_block():
    report = report_of(
        """
        scenario: read_orders
        seed: 7
        steps:
          - {call: get_order, args: {id: "1"}}
          - name: the order is open
            call: get_order
            args: {id: "1"}
            expect:
              result: {status: open, total: {$gt: 3}}
              attempts: 2
          - {call: get_order, args: {id: "1"}}
        """
    )
    assert str(report) == dedent(
        """\
        FAILED read_orders › step 2 “the order is open” (tools.yaml:23)
          call      get_order {"id":"1"}
          answered  {"status":"paid"}
          result    /status: expected "open", got "paid"
                    /total: expected a number greater than 3, got nothing
          attempts  expected 2, got 1
          1 later step did not run
          seed 7"""
    )


def test_a_call_that_no_rule_answers_shows_the_nearest_rules_and_one_to_paste():
    lines = str(report_of("scenario: s\nsteps: [{call: get_order, args: {id: '2'}}]\n", seed=3)).splitlines()
    assert lines[:5] == [
        "FAILED s › step 1 (tools.yaml:19)",
        '  call      get_order {"id":"2"}',
        '  answered  unmatched_mock: no mock rule of `get_order` answers call 1 with {"id":"2"}',
        '              the first order (tools.yaml:11): args/id: expected "1", got "2"',
        '              the third order (tools.yaml:14): args/id: expected "3", got "2"',
    ]
    assert "                - when:" in lines
    assert lines[-2:] == ["  outcome   expected ok, got unmatched_mock", "  seed 3"]


def test_a_failed_verification_is_a_block_of_its_own():
    report = report_of(
        """
        scenario: s
        steps:
          - {call: get_order, args: {id: "1"}}
        verify:
          calls:
            - {tool: get_order, args: {id: "2"}}
          order: {exact: [get_order, get_order]}
        """
    )
    assert str(report) == dedent(
        """\
        FAILED s › verify (tools.yaml:24)
          calls of `get_order` with {"id":"2"}: expected a number greater than or equal to 1, got 0
            step 1 differs: /id: expected "2", got "1"
        FAILED s › verify (tools.yaml:25)
          expected exactly these calls: get_order, get_order
          the calls were: get_order
          seed 0"""
    )


def test_a_call_that_could_not_be_made_shows_no_answer():
    report = report_of(
        """
        scenario: s
        steps:
          - {call: get_order, args: {id: "1"}, as: order}
          - {call: get_order, args: {id: "{{ order.result.number }}"}}
        """
    )
    lines = str(report).splitlines()
    assert lines[1] == '  call      get_order {"id":"{{ order.result.number }}"}'
    assert lines[2].startswith("  args      ")
    assert not any("answered" in line for line in lines)


def test_an_error_of_several_lines_keeps_them_under_each_other():
    report = report_of("scenario: s\nsteps: [{call: get_order, args: {id: '3'}}]\n")
    assert "  answered  tool_error: line one\n            line two\n" in str(report)


def test_a_failure_tells_its_attempts_and_what_prevented_another():
    text = """
        name: read_later
        annotations: {read_only: true}
        timeout: DURATION
        mock: {result: {}}
        ---
        scenario: s
        faults: [{tool: read_later, inject: disconnect}]
        steps: [{call: read_later}]
        """
    assert "\n            3 attempts\n  outcome " in str(report_of(text.replace("DURATION", "5m")))
    stopped = "1 attempt; another attempt would begin after the deadline"
    assert f"\n            {stopped}\n  outcome " in str(report_of(text.replace("DURATION", "10ms")))


def test_a_long_answer_is_cut_with_a_word():
    report = report_of(
        f"""
        scenario: s
        mocks: {{get_order: {{result: {{status: paid, note: {"x" * 5000}}}}}}}
        steps: [{{call: get_order, args: {{id: "1"}}, expect: {{result: {{status: open}}}}}}]
        """
    )
    line = str(report).splitlines()[2]
    assert len(line) < 2100
    assert "truncated" in line
    assert report.as_json()["steps"][0]["result"]["result"]["note"] == "x" * 5000


def test_the_json_of_a_report_is_stable():
    text = """
    scenario: s
    seed: 7
    steps:
      - {call: get_order, args: {id: "1"}, name: it is open, expect: {result: {status: open}}}
      - {call: get_order, args: {id: "1"}}
    """
    first, second = (report_of(text).as_json() for _ in range(2))
    assert json.dumps(first) == json.dumps(second)
    assert len(first.pop("digest")) == 64
    assert first == {
        "scenario": "s",
        "source": "tools.yaml",
        "line": 19,
        "matrix": {},
        "run": 1,
        "order": [],
        "verdict": "failed",
        "passed": False,
        "seed": 7,
        "duration": 0.0,
        "steps": [
            {
                "number": 1,
                "branch": None,
                "repetition": None,
                "name": "it is open",
                "within": "",
                "call": "get_order",
                "args": {"id": "1"},
                "line": 22,
                "result": {
                    "outcome": "ok",
                    "result": {"status": "paid"},
                    "content": [],
                    "message": "",
                    "error": None,
                    "usage": {"attempts": 1, "duration": 0.0},
                    "meta": {"mock": {"rule": "the first order", "reply": 1}},
                },
                "failures": [
                    {
                        "what": "result",
                        "lines": ['/status: expected "open", got "paid"'],
                        "pointer": "/steps/0/expect/result",
                        "line": 22,
                    }
                ],
            }
        ],
        "failures": [],
        "warnings": [],
        "skipped": [],
    }


def test_the_json_of_a_verification_names_its_line():
    report = report_of(
        "scenario: s\nsteps: [{call: get_order, args: {id: '1'}}]\nverify:\n  never: [{tool: '*'}]\n"
    )
    (failure,) = report.as_json()["failures"]
    assert (failure["what"], failure["pointer"], failure["line"]) == ("calls", "/verify/never/0", 21)


def test_the_json_of_a_call_that_could_not_be_made_has_no_result():
    report = report_of(
        "scenario: s\nsteps: [{call: get_order, args: {id: '1'}, as: a}, {call: get_order, args: {id: '{{ a.error.x }}'}}]\n"
    )
    assert report.as_json()["steps"][1]["result"] is None


def test_the_examples_of_a_tool_are_played_and_their_failures_point_into_the_descriptor():
    runtime = loaded_runtime(loaded(SHOP), executors=MOCKS)
    report = asyncio.run(run_scenario(runtime, example_scenario(runtime.registry["get_order"])))
    assert [bool(step.failures) for step in report.steps] == [False, True]
    assert str(report).startswith("FAILED get_order examples › step 2 “example 2” (tools.yaml:8)\n")


def test_the_result_of_an_example_is_exact():
    tool = "name: t\nmock: {result: {a: 1, b: 2}}\nexamples: [{args: {}, result: {a: 1}}]\ninput_schema: {}\n"
    runtime = loaded_runtime(loaded(tool), executors=MOCKS)
    assert not asyncio.run(run_scenario(runtime, example_scenario(runtime.registry["t"]))).passed


def test_arguments_that_could_not_be_worked_out_are_shown_as_written():
    report = report_of(
        """
        scenario: s
        steps:
          - {call: get_order, args: {id: "1"}, as: first}
          - {call: get_order, args: {id: "{{ first.result.total + 1 }}", password: hunter2}}
        """
    )
    lines = str(report).splitlines()
    assert lines[1] == '  call      get_order {"id":"{{ first.result.total + 1 }}","password":"***"}'
    assert report.as_json()["steps"][1]["args"]["id"] == "{{ first.result.total + 1 }}"
