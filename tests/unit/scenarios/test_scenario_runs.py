"""A scenario runs in a session of its own on virtual time, and says what was not as it should be."""

from __future__ import annotations

import asyncio

import pytest

from in_memory import MOCKS, fake, loaded
from toolcrib.core.model import Content, Outcome, Result, Usage
from toolcrib.engine.runtime import loaded_runtime
from toolcrib.scenarios import run_scenario

ORDERS = """
name: get_order
description: Read an order.
input_schema:
  type: object
  properties: {id: {type: string}, password: {type: string}}
  additionalProperties: false
  required: [id]
output_schema: {type: object}
mock:
  rules:
    - name: unknown
      when: {args: {id: "0"}}
      reply:
        error: {code: not_found, message: "no order {{ args.id }}", retryable: true, details: {id: "{{ args.id }}"}}
    - name: slow
      when: {args: {id: slow}}
      reply: {result: {id: slow}, latency: 20s}
    - name: known
      reply:
        result: {id: "{{ args.id }}", total: 40, lines: [{sku: a}, {sku: b}], call: "{{ call }}", seed: "{{ seed }}", now: "{{ now }}"}
        content: [{type: text, text: "order {{ args.id }}"}]
---
name: pay
description: Pay an order.
input_schema:
  type: object
  properties: {id: {type: string}, amount: {type: integer, minimum: 1}}
  additionalProperties: false
mode: mock
mock: {result: {paid: "{{ args.amount }}"}}
live: {}
"""


def runtime_over(*scenarios):
    runtime = loaded_runtime(
        loaded("---\n".join([ORDERS, *(f"\n{text}\n" for text in scenarios)])), executors=MOCKS
    )
    assert [str(problem) for problem in runtime.problems if problem.severity == "error"] == []
    return runtime


def run(text, **options):
    """The report of a scenario."""
    runtime = runtime_over(text)
    return asyncio.run(run_scenario(runtime, runtime.scenarios[0], **options))


def steps(*lines, head=""):
    return "\n".join(["scenario: s", head, "steps:", *(f"  - {line}" for line in lines)])


def failures(report):
    """(step, what, lines) of everything that was not as expected."""
    return [(step.number, failure.what, failure.lines) for step in report.steps for failure in step.failures]


@pytest.mark.parametrize(
    "expect",
    [
        "",
        "outcome: ok",
        "result: {total: 40}",
        "result: {total: {$gt: 30}, lines: {$contains: {sku: b}}}",
        "result: {total: '{{ 20 * 2 }}'}",
        "content: [{type: text, text: order 7}]",
        "content: {$len: 1}",
        "attempts: 1",
        "elapsed: 0",
        "outcome: ok, result: {id: '7'}, attempts: {$lt: 2}, elapsed: {$lte: 0}",
        "outcome: [tool_error, ok]",
        "outcome: [ok, tool_error], result: {total: 40}, error: {code: poor}",
    ],
)
def test_a_step_passes_when_the_call_answers_as_expected(expect):
    report = run(
        steps(
            f'{{call: get_order, args: {{id: "7"}}, expect: {{{expect}}}}}'
            if expect
            else '{call: get_order, args: {id: "7"}}'
        )
    )
    assert failures(report) == []
    assert report.passed


@pytest.mark.parametrize(
    ("expect", "what", "line"),
    [
        ("outcome: tool_error", "outcome", "expected tool_error, got ok"),
        ("error: {code: x}", "outcome", "expected an error, got ok"),
        ("outcome: [tool_error, timeout]", "outcome", "expected tool_error or timeout, got ok"),
        ("outcome: [ok, tool_error], result: {total: 41}", "result", "/total: expected 41, got 40"),
        ("result: {total: 41}", "result", "/total: expected 41, got 40"),
        ("result: {nothing: 1}", "result", "/nothing: expected 1, got nothing"),
        ("content: {$len: 2}", "content", "expected"),
        ("attempts: 2", "attempts", "expected 2, got 1"),
        ("elapsed: {$gt: 0}", "elapsed", "expected a number greater than 0, got 0"),
    ],
)
def test_a_step_fails_when_the_call_answers_otherwise(expect, what, line):
    report = run(steps(f'{{call: get_order, args: {{id: "7"}}, expect: {{{expect}}}}}'))
    ((number, kind, lines),) = failures(report)
    assert (number, kind) == (1, what)
    assert line in lines[0]
    assert not report.passed


def test_every_part_that_is_wrong_is_told():
    report = run(
        steps('{call: get_order, args: {id: "7"}, expect: {result: {total: 1, id: "8"}, attempts: 2}}')
    )
    assert [(what, len(lines)) for _number, what, lines in failures(report)] == [
        ("result", 2),
        ("attempts", 1),
    ]
    assert [failure.pointer for failure in report.steps[0].failures] == [
        "/steps/0/expect/result",
        "/steps/0/expect/attempts",
    ]


@pytest.mark.parametrize(
    "expect",
    [
        "outcome: tool_error",
        "error: {code: not_found}",
        "outcome: tool_error, error: {code: not_found, message: no order 0, retryable: true, details: {id: '0'}}",
        "error: {message: {$regex: '^no order'}}",
        "outcome: [ok, tool_error], result: {total: 1}",
    ],
)
def test_an_error_that_is_expected_passes(expect):
    assert run(steps(f'{{call: get_order, args: {{id: "0"}}, expect: {{{expect}}}}}')).passed


@pytest.mark.parametrize(
    ("expect", "what"),
    [
        ("error: {code: other}", "error"),
        ("outcome: timeout", "outcome"),
        ("outcome: [ok, timeout]", "outcome"),
        ("outcome: [ok, tool_error], error: {code: other}", "error"),
        ("outcome: tool_error, error: {details: {id: '1'}}", "error"),
    ],
)
def test_another_error_than_expected_fails(expect, what):
    report = run(steps(f'{{call: get_order, args: {{id: "0"}}, expect: {{{expect}}}}}'))
    assert [found for _number, found, _lines in failures(report)] == [what]


def test_a_step_without_expectations_must_be_ok():
    report = run(steps('{call: get_order, args: {id: "0"}}'))
    assert failures(report) == [(1, "outcome", ("expected ok, got tool_error",))]


OUTCOMES = [
    ("{call: get_order, args: {}, expect: {outcome: invalid_arguments}}", ""),
    ("{call: nobody, expect: {outcome: not_found}}", ""),
    ("{call: pay, expect: {outcome: unavailable}}", "modes: {pay: live}"),
    (
        "{call: pay, expect: {outcome: unmatched_mock}}",
        "mocks: {pay: {rules: [{when: {call: 9}, reply: {result: 1}}]}}",
    ),
    (
        "{call: get_order, args: {id: x}, expect: {outcome: invalid_result}}",
        "mocks: {get_order: {result: '{{ args.id }}'}}",
    ),
    ("{call: pay, args: {}, expect: {outcome: internal, error: {code: mock_failed}}}", ""),
    (
        "{call: get_order, args: {id: x}, expect: {outcome: timeout, elapsed: 30}}",
        "mocks: {get_order: {result: {}, latency: 1h}}",
    ),
]


@pytest.mark.parametrize(("step", "head"), OUTCOMES)
def test_every_outcome_of_a_mock_can_be_expected(step, head):
    report = run(steps(step, head=head))
    assert failures(report) == []


@pytest.mark.parametrize(
    "outcome", [outcome for outcome in Outcome if outcome not in {Outcome.OK, Outcome.NOT_FOUND}]
)
def test_every_outcome_of_an_executor_can_be_expected(outcome):
    async def answer(_call):
        return Result.failure(outcome, "so it ended")

    runtime = fake(answer)
    text = f"scenario: s\nsteps: [{{call: tool, expect: {{outcome: {outcome}, error: {{message: so it ended}}}}}}]\n"
    (scenario,) = loaded(text).scenarios
    assert asyncio.run(run_scenario(runtime, scenario)).passed


def test_content_and_attempts_are_those_of_the_result():
    async def answer(_call):
        return Result.success(1, content=(Content("text", text="hi"),))._replace(usage=Usage(3, 0.0))

    (scenario,) = loaded(
        "scenario: s\nsteps: [{call: tool, expect: {attempts: 3, content: {$exact: [{type: text, text: hi}]}}}]\n"
    ).scenarios
    assert asyncio.run(run_scenario(fake(answer), scenario)).passed


def test_later_steps_use_what_was_saved():
    report = run(
        steps(
            '{call: get_order, args: {id: "7"}, as: order}',
            '{call: get_order, args: {id: "0"}, as: gone, expect: {outcome: tool_error}}',
            "{call: pay, args: {id: '{{ order.result.id }}', amount: '{{ order.result.total }}'}, as: paid, "
            "expect: {result: {paid: '{{ order.result.total }}'}}}",
            "{call: get_order, args: {id: '{{ gone.error.code }}-{{ gone.outcome }}-{{ paid.outcome }}'}, "
            "expect: {result: {id: not_found-tool_error-ok}}}",
            "{call: get_order, args: {id: '{{ order.content[0].text }}'}, expect: {result: {id: order 7}}}",
        )
    )
    assert failures(report) == []
    assert report.steps[2].args == {"id": "7", "amount": 40}


def test_arguments_that_can_not_be_worked_out_are_a_failure_of_the_step():
    report = run(
        steps(
            '{call: get_order, args: {id: "7"}, as: order}',
            "{call: pay, args: {amount: '{{ order.result.sum }}'}}",
            "{call: pay}",
        )
    )
    ((number, what, lines),) = failures(report)
    assert (number, what) == (2, "args")
    assert "`sum`" in lines[0]
    assert (report.steps[1].args, report.steps[1].result) == ({"amount": "{{ order.result.sum }}"}, None)
    assert report.steps[1].failures[0].pointer == "/steps/1/args"


def test_an_expectation_that_can_not_be_worked_out_is_a_failure_of_its_part():
    report = run(
        steps(
            '{call: get_order, args: {id: "7"}, as: order}',
            "{call: get_order, args: {id: '8'}, expect: {result: {total: '{{ order.result.sum }}'}, attempts: 2}}",
        )
    )
    assert [(number, what) for number, what, _lines in failures(report)] == [(2, "result"), (2, "attempts")]
    assert "`sum`" in report.steps[1].failures[0].lines[0]


def test_a_scenario_stops_at_the_first_step_that_fails():
    report = run(
        steps(
            "{call: pay, args: {amount: 1}}",
            "{call: pay, args: {amount: 0}}",
            "{call: pay, args: {amount: 2}}",
            "{call: pay, args: {amount: 3}}",
        )
        + "\nverify: {calls: [{tool: pay, times: 9}]}"
    )
    assert [step.number for step in report.steps] == [1, 2]
    assert report.failures == ()
    assert "2 later steps did not run" in str(report)


def test_time_is_virtual():
    report = run(
        steps(
            "{call: get_order, args: {id: slow}, expect: {elapsed: 20}}",
            "{call: get_order, args: {id: slow}, expect: {elapsed: {$close: [20, 0.001]}}}",
            "{call: get_order, args: {id: '{{ now }}'}, expect: {result: {id: '2031-05-01T07:00:40Z', now: '2031-05-01T07:00:40Z'}}}",
            head='clock: {start: "2031-05-01T09:00:00+02:00"}',
        )
    )
    assert failures(report) == []
    assert report.duration == 40.0
    assert report.wall_time < 5


def test_time_starts_at_the_same_moment_for_everybody():
    assert run(
        steps("{call: get_order, args: {id: '{{ now }}'}, expect: {result: {id: '2030-01-01T00:00:00Z'}}}")
    ).passed


def test_every_scenario_has_a_fresh_session():
    text = steps("{call: get_order, args: {id: '7'}, expect: {result: {call: 1}}}")
    runtime = runtime_over(text)

    async def twice():
        for _ in range(2):
            assert (await run_scenario(runtime, runtime.scenarios[0])).passed
        result = await runtime.call("get_order", {"id": "7"})
        return result.value["call"]

    assert asyncio.run(twice()) == 1


def test_the_seed_is_the_scenarios_own_unless_another_is_given():
    text = steps("{call: get_order, args: {id: '{{ seed }}'}}", head="seed: 11")
    own, other = run(text), run(text, seed=12)
    assert [(report.seed, report.steps[0].result.value["seed"]) for report in (own, other)] == [
        (11, 11),
        (12, 12),
    ]
    assert other.steps[0].args == {"id": 12}
    assert run(text, seed=0).seed == 0


def test_mocks_stand_in_for_this_scenario_alone():
    runtime = runtime_over(
        steps("{call: pay, expect: {result: theirs}}", head="mocks: {pay: {result: theirs}}"),
        steps("{call: pay, args: {amount: 2}, expect: {result: {paid: 2}}}").replace(
            "scenario: s", "scenario: t"
        ),
    )

    async def both():
        return [await run_scenario(runtime, scenario) for scenario in runtime.scenarios]

    assert [report.passed for report in asyncio.run(both())] == [True, True]


def test_a_mock_answers_also_where_another_mode_is_in_force():
    assert run(
        steps(
            "{call: pay, expect: {result: mocked}}", head="modes: {pay: live}\nmocks: {pay: {result: mocked}}"
        )
    ).passed


def test_a_failing_mock_of_a_scenario_says_where_it_stands():
    report = run(steps("{call: pay, args: {}}", head="mocks:\n  pay:\n    result: '{{ args.amount + 1 }}'"))
    assert "tools.yaml:" in report.steps[0].result.message
    assert report.steps[0].result.error.details["at"].endswith(":38")


SECRET = "hunter2-is-secret"


@pytest.mark.parametrize(
    "text",
    [
        steps(
            f"{{call: get_order, args: {{id: '7', password: {SECRET}}}, expect: {{result: {{total: 1}}}}}}"
        ),
        steps(f"{{call: get_order, args: {{id: 7.5, passwort: {SECRET}, password: {SECRET}}}}}").replace(
            "passwort", "token"
        ),
        steps(f"{{call: get_order, args: {{id: '7', password: {SECRET}}}}}")
        + "\nverify: {calls: [{tool: get_order, times: 2}, {tool: get_order, args: {id: '7'}, times: 3}]}",
        steps(f"{{call: get_order, args: {{id: '7', password: {SECRET}}}}}")
        + "\nverify: {calls: [{tool: get_order, args: {password: other}}]}",
        steps(f"{{call: get_order, args: {{id: '7', password: {SECRET}}}}}")
        + "\nverify: {calls: [{tool: get_order, args: {password: {$regex: '^[*]+$'}}}]}",
        steps(
            "{call: pay, expect: {result: {token: x}}}",
            head=f"mocks: {{pay: {{result: {{token: {SECRET}}}}}}}",
        ),
        steps(
            "{call: pay, expect: {result: {$exact: {token: x, n: 1}}, attempts: 2}}",
            head=f"mocks: {{pay: {{result: {{token: {SECRET}, n: 1}}}}}}",
        ),
        steps(
            "{call: pay, expect: {result: {token: {$regex: '^[*]+$'}}}}",
            head=f"mocks: {{pay: {{result: {{token: {SECRET}}}}}}}",
        ),
        *(
            steps(
                f"{{call: get_order, args: {{id: '7', password: {SECRET}}}}}",
                "{call: pay, args: {id: '7'}}",
                head=f"mocks: {{get_order: {mock}, pay: {{error: '{SECRET} twice'}}}}",
            )
            for mock in (
                "{result: '{{ args.password ~ 1 }}'}",
                "{result: '{{ {args.password: 1} }}'}",
                "{error: 'no {{ args.password }}'}",
                "{content: [{type: text, text: 'no {{ args.password }}'}], result: {total: 1}}",
            )
        ),
        steps(f"{{call: get_order, args: {{id: '7', password: {SECRET}}}, expect: {{result: {SECRET}}}}}"),
    ],
)
def test_secrets_are_masked_in_reports(text):
    report = run(text)
    assert not report.passed
    assert SECRET not in str(report)
    assert SECRET not in str(report.as_json())


def test_a_secret_is_still_compared():
    text = steps(
        "{call: pay, as: made, expect: {result: {token: open}}}",
        "{call: get_order, args: {id: '7', password: '{{ made.result.token }}'}}",
        head="mocks: {pay: {result: {token: open}}}",
    )
    assert run(text + "\nverify: {calls: [{tool: get_order, args: {password: open}}]}").passed
