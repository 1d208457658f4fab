"""A run that is tried several times: it passes where enough of what it must show holds in enough of the trials."""

from __future__ import annotations

import asyncio
import pickle

import pytest

from in_memory import runtime_of
from toolcrib.scenarios import run_scenario, runs_of
from toolcrib.scenarios.workers import pack_report, unpack_report

COIN = """
name: coin
mock: {result: "{{ seed % 3 }}"}
---
"""


def run(text, **options):
    runtime = runtime_of(COIN + text)
    (scenario,) = runs_of(runtime.scenarios[0])
    report = asyncio.run(run_scenario(runtime, scenario, **options))
    travelled = unpack_report(pickle.loads(pickle.dumps(pack_report(report))), scenario)
    assert (str(travelled), travelled.as_json()) == (str(report), report.as_json())
    return report


def flipping(assertion, more=""):
    """Of three trials, one shows a 0."""
    return f"""
scenario: s
trials: 3
agent:
  turns:
    - user: Flip it.
      script: [{{call: coin}}, {{say: "It is {{{{ results.coin }}}}."}}]
      assertions: [{{type: content_excludes, params: {{patterns: ["0"]}}{assertion}}}]
{more}
"""


@pytest.mark.parametrize(
    ("assertion", "more", "passed"),
    [
        ("", "", False),
        ("", "pass_threshold: 0.66", True),
        ("", "pass_threshold: 0.67", False),
        (", pass_threshold: 0.5", "", True),
        (", pass_threshold: 0.9", "pass_threshold: 0.1", False),
        (", pass_threshold: 0.1", "", True),
        (", when: {min_tool_calls: 1}", "pass_threshold: 0.66", True),
    ],
)
def test_an_assertion_must_hold_in_a_share_of_the_trials(assertion, more, passed):
    assert run(flipping(assertion, more)).passed is passed


def test_what_held_too_seldom_is_told_with_the_bad_trials():
    report = run(flipping(", message: no zero, pass_threshold: 0.75"))
    text = str(report)
    assert "FAILED s › trials (tools.yaml:12)" in text
    assert "content_excludes (no zero) held in 2 of 3 trials; all are required" in text
    assert "FAILED s › trial 1 (seed 0) › turn 1 “Flip it.”" in text
    assert "trial 2" not in text
    document = report.as_json()
    assert [trial["passed"] for trial in document["trials"]] == [False, True, True]
    assert [trial["seed"] for trial in document["trials"]] == [0, 1, 2]
    assert len(report.steps) == 3


def test_a_run_whose_only_assertion_was_judged_in_no_trial_is_not_judged():
    never = run(flipping(", when: {min_tool_calls: 9}"))
    assert [(each.unmet, each.pointer) for each in never.skipped] == [(True, "/agent/turns/0/assertions/0")]
    assert (never.verdict, never.passed, never.failed) == ("not judged", False, False)
    assert repr(never) == "<ScenarioReport 's', not judged>"
    assert str(never).startswith("not judged s\n  `content_excludes` was not judged: 1 call made")
    once = run(flipping(", when: {min_tool_calls: 1}", "pass_threshold: 0.66"))
    assert (once.verdict, once.skipped) == ("passed", ())


@pytest.mark.parametrize(
    "other",
    [
        "steps: [{call: coin}]",
        "verify: {stop: answered}",
        "agent: {expect_result: 0}",
    ],
)
def test_a_run_that_judges_something_else_than_skipped_assertions_passes(other):
    text = flipping(", when: {min_tool_calls: 9}").replace("trials: 3", "trials: 1")
    if other.startswith("agent"):
        text = text.replace("{call: coin}", "{call: coin, expect_result: {$exists: true}}")
    else:
        text += f"{other}\n"
    report = run(text)
    assert (report.verdict, len(report.skipped)) == ("passed", 1)


@pytest.mark.parametrize("where", ["pass_threshold: 0.5", "agent"])
def test_a_threshold_without_trials_is_a_warning(where):
    assertion, more = (", pass_threshold: 0.5", "") if where == "agent" else ("", where)
    runtime = runtime_of(COIN + flipping(assertion, more).replace("trials: 3", ""))
    assert [(each.code, each.severity) for each in runtime.problems] == [("needless_key", "warning")]


def test_a_run_that_passes_now_and_then_is_called_flaky():
    report = run(flipping("", "pass_threshold: 0.5"))
    (warning,) = report.warnings
    assert (report.passed, warning.what) == (True, "trials")
    assert warning.lines[0].startswith(
        "flaky: 2 of 3 trials passed; trial 1 (seed 0) failed at turn 1 “Flip it.”: assertion: content_excludes"
    )


UNSCRIPTED = """
scenario: s
trials: 3
agent:
  turns:
    - user: Flip it.
      script: [{call: coin}, {when: {results: {coin: {$gt: 0}}}, say: Good.}]
"""


@pytest.mark.parametrize(("threshold", "passed"), [("1", False), ("0.6", True), ("0.7", False)])
def test_all_else_must_be_good_in_a_share_of_the_trials(threshold, passed):
    report = run(f"{UNSCRIPTED}pass_threshold: {threshold}\n")
    assert report.passed is passed
    if not passed:
        assert report.failures[0].lines[0].startswith("2 of 3 trials were good; all are required")


def test_the_seeds_follow_the_first_one():
    report = run(flipping(""), seed=5)
    assert [trial.seed for trial in report.trials] == [5, 6, 7]
    assert report.digest == run(flipping(""), seed=5).digest
    assert report.digest != run(flipping(""), seed=6).digest


def test_steps_alone_can_be_tried_as_well():
    text = "scenario: s\ntrials: 3\npass_threshold: 0.3\nsteps: [{call: coin, expect: {result: 0}}]\n"
    report = run(text)
    assert report.passed
    assert report.warnings[0].lines[0].startswith("flaky: 1 of 3 trials passed; trial 2 (seed 1)")
    assert not run(text.replace("0.3", "0.4")).passed


def test_of_many_bad_trials_some_are_told():
    text = str(run(flipping("").replace("trials: 3", "trials: 15")))
    assert text.count("› turn 1") == 3
    assert "and 2 more failed trials" in text
