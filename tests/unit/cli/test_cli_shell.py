"""`toolcrib shell`: calls in one session, line by line, from a pipe and at a terminal."""

from __future__ import annotations

import json
import sys

import pytest

from chatting import install
from toolcrib import Runtime
from toolcrib.cli import exit_codes
from toolcrib.cli.shell import complete_line

if sys.platform == "win32":
    pytest.skip("terminals are of another kind there", allow_module_level=True)

from chatting import Talk

DESK = """
name: open_ticket
description: Open a ticket. More about it.
input_schema:
  type: object
  properties:
    title: {type: string}
    kind: {enum: [new, no longer needed]}
    urgent: {type: boolean}
    tags: {type: array, items: {type: string}}
  required: [title]
mock:
  effects: [{insert: tickets, value: {title: "{{ args.title }}"}}]
  result: "{{ store.tickets | length }}"
---
name: stall
mock: {result: 1, latency: 10m}
"""

FILES = {
    "toolcrib.yaml": "project: desk\nsources: [tools.tool.yaml]\nstore: {tickets: []}\n",
    "tools.tool.yaml": DESK,
}


@pytest.fixture
def desk(write):
    return write(FILES)


@pytest.fixture
def shell(desk, toolcrib):
    return lambda *lines, words=(): toolcrib("shell", *words, given="".join(f"{line}\n" for line in lines))


def test_calls_share_one_store(shell):
    result = shell(
        "open_ticket title=1",
        "",
        "# a remark",
        "open_ticket 'title=a b' tags:='[\"x y\"]'",
        'open_ticket {"title": "3"}',
    )
    assert (result.stdout, result.exit_code) == ("1\n2\n3\n", 0)


def test_store_shows_what_changed_and_reset_starts_again(shell):
    result = shell("/store", "open_ticket title=a", "/store", "/reset", "open_ticket title=b")
    before, _, rest = result.stdout.partition("1\n")
    assert before == "no row was changed\n"
    changed, _, after = rest.partition("the session starts again from the store of the documents\n")
    assert json.loads(changed) == {"tickets": {"1": {"title": "a"}}}
    assert after == "1\n"


def test_json_is_one_line_for_each_call(shell):
    result = shell("open_ticket title=a", "open_ticket", words=["--json"])
    told = [json.loads(line) for line in result.stdout.splitlines()]
    assert [each["outcome"] for each in told] == ["ok", "invalid_arguments"]


@pytest.mark.parametrize(
    ("line", "told", "code"),
    [
        ("open_tickt title=1", "did you mean `open_ticket`?", 13),
        ("open_ticket", "/title: expected a string (required), got nothing", 11),
        ("open_ticket title", "error: `title` is not an argument; use `key=text`", 2),
        ("open_ticket 'title=1", "error: cannot split the line into words: no closing quotation", 2),
        ('open_ticket {"title": }', "error: the arguments are not a valid JSON object", 2),
        ("/stor", "error: unknown command `/stor`; did you mean `/store`", 2),
        ("/zzzz", "error: unknown command `/zzzz`; run `/help` to list them", 2),
        ("/show open_tikt", "error: unknown tool `open_tikt`; did you mean `open_ticket`?", 2),
    ],
)
def test_a_line_that_fails_is_reported_and_the_next_one_runs(shell, line, told, code):
    result = shell(line, "open_ticket title=1")
    assert told in result.stderr
    assert (result.stdout, result.exit_code) == ("1\n", code)


def test_commands(shell):
    result = shell("list", "store")
    assert "hint: commands begin with a slash: `/tools`\n" in result.stderr
    assert "hint: commands begin with a slash: `/store`\n" in result.stderr
    result = shell("/tools", "/show stall", "help", "quit", "open_ticket title=1")
    assert "open_ticket  mock  Open a ticket." in result.stdout
    assert "toolcrib call stall" in result.stdout
    assert "/reset" in result.stdout
    assert not result.stdout.endswith("1\n")
    assert result.exit_code == exit_codes.OK


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("op", ["open_ticket "]),
        ("", ["/help", "/quit", "/reset", "/show", "/store", "/tools", "open_ticket ", "stall "]),
        ("/sh", ["/show"]),
        ("/show st", ["stall"]),
        ("open_ticket ", ["title=", "kind=", "urgent=", "tags:="]),
        ("open_ticket ti", ["title="]),
        ("open_ticket title=x k", ["kind="]),
        ("open_ticket 'title=a b' ti", []),
        ("open_ticket urgent=", ["urgent=true ", "urgent=false "]),
        ("open_ticket kind=n", ["kind=new ", "'kind=no longer needed' "]),
        ("open_ticket 'kind=no longer n", ["needed' "]),
        ("nothing ti", []),
    ],
)
def test_completion_of_tools_arguments_and_values(desk, line, words):
    assert complete_line(Runtime.open(desk).registry, line, line.rfind(" ") + 1) == words


def test_a_terminal_completes_and_ctrl_c_ends_a_call_and_ctrl_d_the_shell(desk, tmp_path):
    with Talk(install(tmp_path), desk, verb="shell") as shell:
        assert "2 tools; /help lists the commands" in shell.until("> ")
        shell.type("open_\tti\tx")
        assert "open_ticket title=x" in shell.until("\n1\r\n> ")
        shell.type("stall")
        shell.until("waiting for `stall`")
        shell.until("interrupted; Ctrl-D or /quit ends the shell\r\n> ", sending=2)
        shell.type("open_ticket title=y")
        shell.until("\n2\r\n> ")
        shell.end_of_input()
        assert shell.ended() == exit_codes.OK
