"""Reports are told when somebody looks, and tell no secret whenever that is."""

from __future__ import annotations

import asyncio

from in_memory import MOCKS, loaded
from toolcrib.engine.runtime import loaded_runtime
from toolcrib.scenarios import run_scenario

SECRET = "hunter2-is-secret"

TOOLS = f"""
name: sign_in
input_schema: {{type: object, properties: {{code: {{type: string, writeOnly: true}}, user: {{type: string}}}}}}
mock: {{result: {{user: "{{{{ args.user }}}}", said: "the code is {SECRET}"}}}}
"""


def report_of(steps, more=""):
    text = f"{TOOLS}---\nscenario: s\nsteps:\n{steps}{more}"
    runtime = loaded_runtime(loaded(text), executors=MOCKS)
    assert [str(problem) for problem in runtime.problems if problem.severity == "error"] == []
    return asyncio.run(run_scenario(runtime, runtime.scenarios[0]))


def test_nothing_shows_what_a_passed_run_keeps():
    report = report_of(f"- {{call: sign_in, args: {{code: {SECRET}, user: me}}}}\n")
    assert report.passed
    assert repr(report) == "<ScenarioReport 's', passed>"
    assert SECRET not in f"{report!r} {report} {vars(type(report))}"
    (step,) = report.steps
    assert (step.args, step.result.value) == (
        {"code": "***", "user": "me"},
        {"user": "me", "said": "the code is ***"},
    )
    assert SECRET not in str(report.as_json())


def test_each_step_is_told_as_far_as_secrets_were_known_when_it_had_ended():
    report = report_of(
        f"- {{call: sign_in, args: {{user: {SECRET}}}}}\n- {{call: sign_in, args: {{code: {SECRET}, user: {SECRET}}}}}\n"
    )
    assert [step.args for step in report.steps] == [
        {"user": SECRET},
        {"code": "***", "user": "***"},
    ]


def test_a_failed_step_knows_the_secrets_of_the_steps_before_it():
    report = report_of(
        f"- {{call: sign_in, args: {{code: {SECRET}, user: me}}}}\n"
        f"- {{call: sign_in, args: {{user: x}}, expect: {{result: {{said: {SECRET}}}}}}}\n"
    )
    assert not report.passed
    assert SECRET not in str(report)
    assert [bool(step.failures) for step in report.steps] == [False, True]


def test_what_verify_tells_hides_the_secrets_of_all_steps():
    report = report_of(
        f"- {{call: sign_in, args: {{code: {SECRET}, user: me}}}}\n",
        "verify: {never: [{tool: sign_in}]}\n",
    )
    assert not report.passed
    assert SECRET not in str(report)
    assert "***" in str(report)


def test_looking_twice_shows_the_same():
    report = report_of("- {call: sign_in, args: {user: me}}\n")
    assert report.steps is report.steps
    assert report.as_json() == report.as_json()
