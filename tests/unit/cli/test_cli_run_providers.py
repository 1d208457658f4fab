"""`--provider`, `--model` and `--base-url` in place of providers of an arena that are missing or not supported."""

from __future__ import annotations

import json

import pytest

from arenas import ANSWERS, arena_files, manifest
from http_servers import answered_by, answering_json
from toolcrib.cli import exit_codes

REPLY = {
    "model": "m-2",
    "choices": [{"message": {"content": "Found it."}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 10, "completion_tokens": 5},
}
WAY = "choose one with `--provider`, `--model` and `--base-url`"


def without(*names: str, **options: str) -> dict[str, str]:
    """An arena without some of its files."""
    files = arena_files(**options)
    return {name: text for name, text in files.items() if name not in ("mock-responses.yaml", *names)}


UNUSABLE = {
    "no file": without("providers/mock.yaml"),
    "no mock responses": without(),
    "unknown type": without(provider="type: gemini\nmodel: flash"),
    "platform": without(provider="type: claude\nmodel: m\nplatform: {type: bedrock}"),
    "headers": without(provider="type: openai\nmodel: m\nheaders: {X-Account: a}"),
    "wrong shape": without(provider="type: [openai]"),
    "broken mock responses": {**arena_files(), "mock-responses.yaml": "scenarios: {one: ["},
}


@pytest.mark.parametrize("files", UNUSABLE.values(), ids=UNUSABLE)
def test_a_provider_of_the_operator_replaces_one_that_can_not_be_used(write, toolcrib, files):
    write(files)
    with answered_by(answering_json(REPLY)) as server:
        words = ("--provider", "openai", "--model", "m-1", "--base-url", f"{server.origin}/v1")
        result = toolcrib("run", ".", *words, "--json")
    found = json.loads(result.stdout)
    (report,) = found["scenarios"]
    assert (result.exit_code, report["passed"], found["not_run"]) == (exit_codes.OK, True, [])
    assert (report["agent"]["provider"], report["agent"]["model"]) == ("openai", "m-2")
    assert [head.json["model"] for head in server.requests] == ["m-1", "m-1"]
    assert {each["severity"] for each in found["problems"]} <= {"notice"}


@pytest.mark.parametrize("files", UNUSABLE.values(), ids=UNUSABLE)
def test_without_the_options_the_message_names_them(write, toolcrib, files):
    write(files)
    result = toolcrib("run", ".")
    assert result.exit_code == exit_codes.PROBLEMS
    assert (
        f"one (scenarios/one.scenario.yaml:1): unavailable: no provider can answer for its agent; {WAY}"
        in result.stdout
    )
    assert toolcrib("validate", ".").exit_code == exit_codes.PROBLEMS


def test_one_scenario_alone_gets_the_provider_too(write, document):
    write({f"a/{name}": text for name, text in UNUSABLE["unknown type"].items()})
    with answered_by(answering_json(REPLY)) as server:
        words = ("--provider", "openai", "--model", "m", "--base-url", f"{server.origin}/v1", "--json")
        (report,) = document("run", "a/scenarios/one.scenario.yaml", *words)["scenarios"]
    assert report["passed"] is True


def test_the_other_options_need_a_provider(write, toolcrib):
    write(UNUSABLE["unknown type"])
    result = toolcrib("run", ".", "--model", "m")
    assert result.exit_code == exit_codes.USAGE
    assert "the selected scenarios have no usable provider; choose one with `--provider`" in result.stderr


def test_a_filter_that_leaves_the_scenario_out_does_not_report_it(write, toolcrib):
    write(UNUSABLE["unknown type"])
    assert "one (" not in toolcrib("run", ".", "-k", "nothing").stdout


def test_errors_of_other_files_still_fail_the_run(write, toolcrib):
    write({**UNUSABLE["unknown type"], "tools/bad.tool.yaml": "name: bad\nmode: nosuch\n"})
    with answered_by(answering_json(REPLY)) as server:
        words = ("--provider", "openai", "--model", "m-1", "--base-url", f"{server.origin}/v1")
        result = toolcrib("run", ".", *words)
    assert result.exit_code == exit_codes.PROBLEMS
    assert "binding_missing" in result.stderr
    assert "no_provider" not in result.stderr


def test_a_scenario_that_another_arena_provides_for_runs_there(write, document):
    files = arena_files(answers=ANSWERS)
    spec = """
    prompt_configs: [{id: help, file: prompts/help.yaml}]
    provider_specs: {other: {type: gemini, model: m}}
    scenarios: [{file: scenarios/one.scenario.yaml}]
    """
    write({**files, "a.arena.yaml": manifest("Arena", "other", spec)})
    found = document("run", ".", "--json")
    assert [report["passed"] for report in found["scenarios"]] == [True]


def test_an_imported_scenario_names_no_provider(write, toolcrib):
    folder = write(UNUSABLE["unknown type"])
    result = toolcrib("import", "promptkit", ".", "--out", "new")
    assert result.exit_code == exit_codes.PROBLEMS
    assert "  provider: none\n" in (folder / "new/scenarios/one.scenario.yaml").read_text()
    assert WAY in toolcrib("run", "new").stdout
    with answered_by(answering_json(REPLY)) as server:
        words = ("--provider", "openai", "--model", "m-1", "--base-url", f"{server.origin}/v1")
        assert toolcrib("run", "new", *words).exit_code == exit_codes.OK
