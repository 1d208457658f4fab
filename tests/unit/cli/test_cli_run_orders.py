"""`toolcrib run --interleave`: parallel steps in further orders."""

from __future__ import annotations

import pytest

from toolcrib.cli import exit_codes

RACE = """
name: stamp
input_schema: {type: object, properties: {text: {type: string}}}
mock: {result: "{{ call }}"}
---
scenario: race
steps:
  - parallel:
      - {call: stamp, args: {text: a}, expect: {result: 1}}
      - {call: stamp, args: {text: b}}
      - {call: stamp, args: {text: c}}
---
scenario: plain
steps: [{call: stamp}]
"""


@pytest.fixture
def race(tools, write):
    write({"descriptors/queue/queue.scenario.yaml": RACE})
    return tools


def test_other_orders_are_runs_of_their_own(race, toolcrib, document):
    assert toolcrib("run", "-k", "race").exit_code == exit_codes.OK
    ran = document("run", "-k", "race or plain", "--interleave", "3", "--json")["scenarios"]
    names = [report["scenario"] for report in ran]
    assert names == ["race[order 1/4]", "race[order 2/4]", "race[order 3/4]", "race[order 4/4]", "plain"]
    assert ran[0]["order"] == [["1.1", "1.2", "1.3"]]
    assert ran[4]["order"] == []


def test_an_order_that_fails_is_told_and_can_be_had_again_alone(race, toolcrib):
    result = toolcrib("run", "-k", "race", "--interleave", "9")
    assert result.exit_code == exit_codes.PROBLEMS
    assert "  calls began in the order 1.2, 1.1, 1.3" in result.stdout
    assert "6 runs of 1 scenario" in result.stdout
    again = toolcrib("run", "-k", "race[order and 3/6]", "--interleave", "9")
    assert again.exit_code == exit_codes.PROBLEMS
    assert "1 failed, 0 scenarios passed" in again.stdout


@pytest.mark.exhaustive
def test_several_processes_run_the_same_orders(race, document):
    def told(*words):
        run = document("run", "-k", "race", "--interleave", "4", "--json", *words)
        return [(report["scenario"], report["order"], report["passed"]) for report in run["scenarios"]]

    assert told() == told("-j", "2")


def test_a_number_of_orders_that_can_not_be_is_a_usage_error(race, toolcrib):
    assert toolcrib("run", "--interleave", "-1").exit_code == exit_codes.USAGE
    assert toolcrib("run", "--interleave", "1000").exit_code == exit_codes.USAGE
