"""`answers` of a step: the scripted approver, on virtual time."""

from __future__ import annotations

import asyncio

import pytest

from holding import HELD, PAY, project
from toolcrib import Runtime, run_scenario


def play(folder, *steps):
    text = "scenario: s\nsteps:\n" + "".join(f"  - {step}\n" for step in steps)
    (project(folder, HELD, PAY) / "descriptors" / "s.scenario.yaml").write_text(text)

    async def run():
        async with Runtime.open(folder) as runtime:
            assert runtime.problems == ()
            return await run_scenario(runtime, runtime.scenarios[0])

    return asyncio.run(run())


CALL = "call: pay, args: {amount: 5}"


@pytest.mark.parametrize(
    "step",
    [
        f"{{{CALL}, answers: {{approve: true}}, expect: {{result: {{paid: 5}}}}}}",
        f"{{{CALL}, answers: {{approve: {{arguments: {{amount: 2}}}}}}, expect: {{result: {{paid: 2}}}}}}",
        f"{{{CALL}, answers: {{reject: no}}, expect: {{error: {{code: rejected}}}}}}",
        f"{{{CALL}, answers: {{expire: true}}, expect: {{error: {{code: approval_expired}}}}}}",
        f"{{{CALL}, expect: {{outcome: needs_approval}}}}",
        f"{{parallel: [{{{CALL}, answers: [{{approve: true}}]}}, {{{CALL}, answers: [{{reject: no}}], expect: {{outcome: denied}}}}]}}",
    ],
)
def test_the_approver_answers(tmp_path, step):
    report = play(tmp_path, step)
    assert report.passed, str(report)


def test_an_approval_for_the_session_covers_later_steps(tmp_path):
    report = play(
        tmp_path, f"{{{CALL}, answers: {{approve: {{scope: session}}}}}}", "{call: pay, args: {amount: 7}}"
    )
    assert report.passed, str(report)


def test_an_answer_that_is_not_used_fails_the_step(tmp_path):
    report = play(tmp_path, f"{{{CALL}, answers: [{{approve: true}}, {{reject: no}}]}}")
    assert not report.passed
    assert "1 answer of the approver not used" in str(report)
