"""`toolcrib call --state FILE`: the store of mocks between calls, on the fast path and through click."""

from __future__ import annotations

import os

import pytest

from toolcrib.cli import exit_codes, fast_path

FILES = {
    "toolcrib.yaml": "project: desk\nsources: [tools.tool.yaml]\nstore: {tickets: []}\n",
    "tools.tool.yaml": """
name: open_ticket
input_schema: {type: object, properties: {title: {type: string}}, required: [title]}
mock:
  effects: [{insert: tickets, value: {title: "{{ args.title }}"}}]
  result: "{{ store.tickets | length }}"
---
name: slow_ticket
input_schema: {type: object, properties: {title: {type: string}}, required: [title]}
mock:
  effects: [{insert: tickets, value: {title: "{{ args.title }}"}}]
  result: "{{ store.tickets | length }}"
  latency: 1ms
""",
}


@pytest.fixture
def desk(write):
    return write(FILES)


@pytest.mark.parametrize("tool", ["open_ticket", "slow_ticket"])
def test_calls_continue_from_the_file_and_without_it_from_the_documents(desk, toolcrib, tool):
    told = [toolcrib("call", tool, f"title={n}", "--state", "s.json").stdout for n in range(3)]
    assert told == ["1\n", "2\n", "3\n"]
    assert toolcrib("call", tool, "title=x").stdout == "1\n"


def test_the_fast_path_reads_and_writes_the_same_file(desk, toolcrib, capsys):
    assert toolcrib("call", "slow_ticket", "title=1", "--state", "s.json").stdout == "1\n"
    assert fast_path.call(["open_ticket", "title=2", "--state", "s.json"]) == 0
    assert capsys.readouterr().out == "2\n"
    assert toolcrib("call", "open_ticket", "title=3", "--state", "s.json").stdout == "3\n"


def test_the_fast_path_leaves_an_unusable_file_to_the_command(desk, capsys):
    (desk / "s.json").write_text("{")
    assert fast_path.call(["open_ticket", "title=2", "--state", "s.json"]) is None
    assert capsys.readouterr() == ("", "")
    assert (desk / "s.json").read_text() == "{"


def test_a_dry_run_shows_the_store_of_the_file_and_changes_nothing(desk, toolcrib):
    toolcrib("call", "open_ticket", "title=1", "--state", "s.json")
    before = (desk / "s.json").read_bytes()
    assert '"call": 2' in toolcrib("call", "open_ticket", "title=1", "--state", "s.json", "--dry-run").stdout
    assert (desk / "s.json").read_bytes() == before
    assert toolcrib("call", "open_ticket", "title=1", "--state", "t.json", "--dry-run").exit_code == 0
    assert not (desk / "t.json").exists()


def test_a_refused_file_ends_the_command_before_the_call(desk, toolcrib):
    (desk / "s.json").write_text('{"format": 99}')
    result = toolcrib("call", "open_ticket", "title=1", "--state", "s.json")
    assert (result.exit_code, result.stdout) == (exit_codes.USAGE, "")
    assert "written by a newer toolcrib" in result.stderr
    assert (desk / "s.json").read_text() == '{"format": 99}'


def test_a_store_that_cannot_be_written_is_reported_after_the_result(desk, toolcrib):
    draft = desk / f"s.json.{os.getpid()}.part"
    draft.mkdir()
    result = toolcrib("call", "open_ticket", "title=1", "--state", "s.json")
    assert (result.exit_code, result.stdout) == (exit_codes.OUTPUT_FAILED, "1\n")
    assert "the call was made, but its changes to the store are lost: " in result.stderr
    assert "s.json cannot be written: File exists" in result.stderr


def test_help_says_where_a_call_starts(toolcrib):
    told = " ".join(toolcrib("call", "--help").stdout.split())
    assert "Each call starts from the store of the documents, unless `--state`" in told


@pytest.mark.parametrize("fast", [True, False])
def test_delayed_effects_are_not_saved_and_a_warning_names_them(write, toolcrib, capsys, fast):
    text = FILES["tools.tool.yaml"].replace("[{insert", "[{after: 2h, insert")
    write({**FILES, "tools.tool.yaml": text})
    arguments = ["open_ticket", "title=1", "--state", "s.json"]
    if fast:
        assert fast_path.call(arguments) == 0
        told = capsys.readouterr().err
    else:
        told = toolcrib("call", *arguments).stderr
    assert (
        "warning: the state file does not contain a delayed effect of `open_ticket` (tools.tool.yaml:5)"
        in told
    )
    assert "it will never be applied" in told
