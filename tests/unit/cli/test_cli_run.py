"""`toolcrib run`."""

from __future__ import annotations

import json
import re

import pytest

from toolcrib.cli import exit_codes
from toolcrib.cli.run_output import format_seconds

GOOD = """
scenario: good
tags: [smoke]
steps:
  - {call: echo, args: {text: a}, expect: {result: "a 1"}}
  - {call: failing, expect: {error: {code: broken}}}
"""

BAD = """
scenario: bad
description: "\\e[31m"
steps:
  - {name: "wrong \\e[31mstep", call: echo, args: {text: a}, expect: {result: "b 1"}}
"""


PACK = {
    "packs/words/pack.yaml": "name: words\nversion: 1.0.0\n",
    "packs/words/tools/waiting.tool.yaml": "name: waiting\ntimeout: 10m\nmock: {result: 1, latency: 5m}\n",
    "packs/words/scenarios/wait.scenario.yaml": "scenario: wait\nsteps: [{call: waiting, expect: {elapsed: 300}}]\n",
}


@pytest.fixture
def good(tools, write):
    return write({"descriptors/scenarios/good.scenario.yaml": GOOD, **PACK})


def test_a_run_shows_files_groups_tools_outcomes_and_a_verdict(good, toolcrib):
    result = toolcrib("run")
    *lines, verdict = result.stdout.splitlines()
    assert (result.exit_code, result.stderr) == (0, "")
    assert lines == [
        "descriptors/echo.tool.yaml .",
        "descriptors/scenarios/good.scenario.yaml .",
        "packs/words/scenarios/wait.scenario.yaml .",
        "",
        "descriptors            1 tool with examples  1 call   ok".replace(
            "descriptors            ", "descriptors                        "
        ),
        "descriptors/scenarios  1 scenario                        2 calls  ok",
        "words                  1 scenario                        1 call   ok",
        "",
        "4 tools: 3 mock, 1 unbound",
        "outcomes: 3 ok, 1 tool_error",
    ]
    assert re.match(
        r"3 scenarios passed in [0-9.]+ s \(5 m 0 s of virtual time\), 4 calls of 3 tools$", verdict
    )


def test_paths_tags_and_words_choose_what_runs(good, document):
    def ran(*words):
        return [report["scenario"] for report in document("run", *words, "--json")["scenarios"]]

    assert ran("packs") == ["wait"]
    assert ran("--tag", "smoke") == ["good"]
    assert ran("--tag", "smoke", "--tag", "examples") == ["echo examples", "good"]
    assert ran("-k", "wait or (good and not nothing)") == ["good", "wait"]


def test_a_failure_is_one_block_and_the_exit_code_is_one(good, write, toolcrib):
    write({"descriptors/scenarios/bad.scenario.yaml": BAD})
    result = toolcrib("run")
    assert result.exit_code == exit_codes.PROBLEMS
    assert (
        "FAILED bad › step 1 “wrong \\x1b[31mstep” (descriptors/scenarios/bad.scenario.yaml:5)"
        in result.stdout
    )
    assert 'expected "b 1", got "a 1"' in result.stdout
    assert "1 scenario failed: bad\n" in result.stdout
    assert "descriptors/scenarios  2 scenarios                        3 calls  1 failed" in result.stdout
    assert "\n1 failed, 3 scenarios passed in" in result.stdout
    assert "\x1b" not in result.stdout


def test_scenarios_of_one_file_share_a_line(tools, write, toolcrib):
    write({"descriptors/all.scenario.yaml": f"{GOOD}\n---\n{BAD}"})
    assert "descriptors/all.scenario.yaml .F\n" in toolcrib("run").stdout


def test_fail_fast_stops_at_the_first_failure(good, write, document):
    write({"descriptors/aaa.scenario.yaml": BAD})
    assert [report["scenario"] for report in document("run", "--fail-fast", "--json")["scenarios"]] == ["bad"]


def test_json_holds_totals_reports_and_problems(good, document):
    run = document("run", "--json")
    assert {key: run[key] for key in ("passed", "failed", "calls", "outcomes", "duration", "problems")} == {
        "passed": 3,
        "failed": 0,
        "calls": 4,
        "outcomes": {"ok": 3, "tool_error": 1},
        "duration": 300.0,
        "problems": [],
    }


def test_json_has_real_times_under_one_key_only(good, toolcrib, document):
    first, second = document("run", "--json"), document("run", "--json")
    times = first.pop("wall_time")
    second.pop("wall_time")
    assert (len(times["scenarios"]), times["total"] > 0) == (3, True)
    assert json.dumps(first) == json.dumps(second)


def test_reports_without_real_times_are_equal_byte_by_byte(good, write, toolcrib):
    write({"descriptors/aaa.scenario.yaml": BAD})
    printed, written = set(), set()
    for jobs in ("1", "2", "1"):
        printed.add(
            toolcrib("run", "-j", jobs, "--no-wall-time", "--json", "--junit", "report.xml").stdout_bytes
        )
        written.add((good / "report.xml").read_bytes())
    ((text,), (xml,)) = printed, written
    assert (b"wall_time" in text, b" time=" in xml) == (False, False)


def test_a_seed_stands_in_for_that_of_the_scenarios(good, document):
    assert {report["seed"] for report in document("run", "--seed", "7", "--json")["scenarios"]} == {7}


def test_documents_that_are_refused_fail_the_run_and_the_rest_runs(good, write, toolcrib):
    write(
        {
            "descriptors/odd.tool.yaml": "name: odd\noops: 1\nmock: {result: 1}\n",
            "descriptors/data.yaml": "just: data\n",
        }
    )
    result = toolcrib("run")
    assert result.exit_code == exit_codes.PROBLEMS
    assert result.stderr.startswith("descriptors/odd.tool.yaml:2:1: unknown_key")
    assert "data.yaml" not in result.stderr
    assert "3 scenarios passed" in result.stdout


def test_a_linked_folder_that_was_not_read_is_named_without_a_line(good, tmp_path, toolcrib):
    (tmp_path / "elsewhere").mkdir()
    (good / "descriptors" / "linked").symlink_to(tmp_path / "elsewhere")
    result = toolcrib("run")
    assert result.exit_code == 0
    assert "  descriptors/linked: the folder is a symlink, and was not read" in result.stdout


def test_nothing_that_fits_has_a_code_of_its_own(good, toolcrib):
    result = toolcrib("run", "-k", "nothing_like_it")
    assert (result.exit_code, result.stdout) == (exit_codes.NOTHING_SELECTED, "")
    assert result.stderr == (
        "nothing to run: no scenario or example matches in descriptors, packs\n"
        "    hint: there are: `echo`, `good`, `wait`\n"
    )


def test_no_scenario_at_all_says_where_none_was_found(write, toolcrib):
    write({"descriptors/a.tool.yaml": "name: a\nmock: {result: 1}\n"})
    result = toolcrib("run")
    assert result.exit_code == exit_codes.NOTHING_SELECTED
    assert result.stderr == "nothing to run: no scenarios or examples in descriptors\n"


@pytest.mark.parametrize("words", [(), ("--strict",), ("-q",), ("-k", "a"), ("--last-failed",)], ids=str)
def test_where_there_is_nothing_at_all_the_way_out_is_told(words, write, toolcrib):
    write({})
    result = toolcrib("run", *words)
    assert (result.exit_code, result.stdout) == (exit_codes.NOTHING_SELECTED, "")
    assert result.stderr.endswith(
        "nothing to run: there is no project here, and no folder `descriptors` or `packs`\n"
        "    hint: `toolcrib init` creates a first one\n"
    )


def test_nothing_at_all_is_still_a_json_document(write, document):
    write({})
    run = document("run", "--json")
    assert (run["scenarios"], run["not_run"], run["problems"]) == ([], [], [])


def test_nothing_to_run_is_still_a_json_document(write, document):
    write({"descriptors/a.tool.yaml": "name: a\nmock: {result: 1}\n"})
    assert document("run", "--json")["scenarios"] == []


def test_an_expression_that_can_not_be_read_is_a_usage_error(good, toolcrib):
    result = toolcrib("run", "-k", "(good")
    assert result.exit_code == exit_codes.USAGE
    assert "missing `)`" in result.stderr


def test_examples_of_a_tool_that_can_not_run_here_are_not_played(write, toolcrib):
    write({"descriptors/a.tool.yaml": "name: a\nmode: robot\nrobot: {command: x}\nexamples: [{args: {}}]\n"})
    result = toolcrib("run")
    assert result.exit_code == exit_codes.PROBLEMS
    assert "the examples of a (descriptors/a.tool.yaml:1): unavailable: mode `robot`" in result.stdout


def test_at_a_terminal_a_bar_moves_on_stderr_and_stdout_has_the_summary(good, on_terminal):
    out, err = on_terminal("run")
    assert "100%" in err
    assert "scenario.yaml" not in out
    assert "3 scenarios passed" in out


def test_at_a_terminal_a_json_run_keeps_stdout_to_the_document(good, on_terminal):
    out, _err = on_terminal("run", "--json")
    assert out.startswith("{")


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.214, "0.21 s"),
        (5, "5 s"),
        (12.4, "12 s"),
        (59.7, "1 m 0 s"),
        (200, "3 m 20 s"),
        (8040, "2 h 14 m"),
    ],
)
def test_spans_of_time_are_told_for_people(seconds, text):
    assert format_seconds(seconds) == text


NOBODY = """
scenario: nobody
steps: [{call: nobody, expect: {outcome: not_found}}, {call: echo, args: {text: hi}}]
"""


def test_a_tool_that_does_not_exist_is_not_counted(tools, write, toolcrib):
    write({"descriptors/nobody.scenario.yaml": NOBODY})
    assert toolcrib("run", "-k", "nobody").stdout.splitlines()[-1].endswith("2 calls of 1 tool")


def test_what_came_as_a_secret_argument_is_printed_nowhere(tools, write, toolcrib):
    tool = """
name: sealed
input_schema: {type: object, properties: {tok: {type: string, x-secret: true}}}
output_schema: {type: object, properties: {id: {type: integer}}}
mock: {template: '{"id": "{{ args["tok"] }}"}'}
"""
    scenario = "scenario: seal\nsteps: [{call: sealed, args: {tok: SEKRIT}}]\n"
    write({"descriptors/sealed.tool.yaml": tool, "descriptors/seal.scenario.yaml": scenario})
    for words in (["run"], ["run", "--json"], ["call", "sealed", "tok=SEKRIT"]):
        result = toolcrib(*words)
        assert "***" in result.stdout + result.stderr
        assert "SEKRIT" not in result.stdout + result.stderr
