"""`toolcrib serve acp --record` with editors of the Python SDK that hang, lie and break off, and what `doctor --acp` says."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from acp import RequestError
from click.testing import CliRunner

from acp_editors import PATIENCE, Editor, capabilities, editing
from in_memory import runtime_of
from loop_models import Model, asks, says
from toolcrib import Executors, Runtime
from toolcrib.cli import doctor
from toolcrib.executors.mock import MockExecutor

PACK = Path(__file__).parents[2] / "packs" / "acp-client"

TOOLS = """
name: refund
requires_confirmation: true
mock: {result: refunded}
"""


def tools():
    return runtime_of(TOOLS, executors=Executors({"mock": MockExecutor}))


def examined(path, *options):
    return CliRunner().invoke(doctor.command, ["--acp", str(path), *options])


class Silent(Editor):
    """An editor that never answers a question."""

    def __init__(self):
        super().__init__()
        self.asked = asyncio.Event()

    async def decide(self):
        self.asked.set()
        await asyncio.Event().wait()


class Lines(list):
    """What an agent says to people; `there` is set once a text is among it."""

    def __init__(self, text):
        super().__init__()
        self.text = text
        self.there = asyncio.Event()

    def append(self, line):
        super().append(line)
        if self.text in line:
            self.there.set()


async def test_a_question_that_nobody_answers_is_reported_while_it_waits_and_afterwards(tmp_path):
    path = tmp_path / "recording.jsonl"
    editor = Silent()
    editor.said = Lines("nobody has answered the question about the call")
    model = Model(asks("refund"), says("."))
    async with editing(tools(), model, editor=editor, record=path, patience=0.01):
        session = await editor.open()
        turn = asyncio.create_task(editor.say(session, "Refund it"))
        await editor.asked.wait()
        await asyncio.wait_for(editor.said.there.wait(), PATIENCE)
        turn.cancel()
    assert len([line for line in editor.said if "nobody has answered" in line]) == 1
    shown = examined(path)
    assert shown.exit_code == 1
    assert "nobody has answered the question about the call" in shown.output
    assert "the agent waits for the answer to `session/request_permission`" in shown.output
    assert "answer it in the client; a client without a user must answer `cancelled`" in shown.output
    told = json.loads(examined(path, "--json").output)
    assert {each["code"] for each in told["findings"]} >= {"permission_unanswered", "turn_open"}
    assert not told["healthy"]


async def test_a_client_without_the_method_that_it_announced_is_named(tmp_path):
    path = tmp_path / "recording.jsonl"

    class Liar(Editor):
        async def read_text_file(self, **_params):
            raise RequestError.method_not_found("fs/read_text_file")

    editor = Liar()
    pack = capabilities(read=True)
    runtime = Runtime.open(PACK, index=False)
    model = Model(asks(("mcp__acp__Read", {"file_path": "/a"})), says("."))
    async with editing(runtime, model, editor=editor, announced=pack, record=path):
        await editor.say(await editor.open(), "Read it")
    shown = examined(path)
    assert shown.exit_code == 1
    assert "the client has announced `client.fs.read_text_file`, but has no method `fs/read_text_file`" in (
        shown.output
    )
    assert any("has no method" in line for line in editor.said)
    # Which tools the session had, and why others were missing.
    assert "mcp__acp__Read" in shown.output
    assert "`mcp__acp__Bash` needs `client.terminal`, which the client has not announced" in shown.output
    assert "client.fs.write_text_file, client.terminal" in shown.output


async def test_a_line_that_is_no_message_is_reported_with_its_number(tmp_path):
    path = tmp_path / "recording.jsonl"
    editor = Editor()
    async with editing(tools(), Model(says("hello")), editor=editor, record=path):
        session = await editor.open()
        editor.writer.write(b"Debug: hello\n")
        await editor.writer.drain()
        await editor.say(session, "hello")
    assert "ACP: line 3 of the client is no message: Parse error" in " ".join(editor.said)
    shown = examined(path)
    assert "line 3 of the client is no message: Parse error" in shown.output


async def test_a_sound_connection_is_healthy(tmp_path):
    path = tmp_path / "recording.jsonl"
    async with editing(tools(), Model(asks("refund"), says(".")), record=path) as editor:
        await editor.say(await editor.open(), "Refund it")
    assert [line for line in editor.said if line.startswith("ACP: ")] == []
    shown = examined(path)
    assert (shown.exit_code, shown.output.splitlines()[-1]) == (0, "No problems found.")
    assert "1 completed: refund" in shown.output


@pytest.mark.parametrize(
    ("text", "message"),
    [("{}\n", "is not a recording of ACP"), ('{"acp_recording": 7}\n', "is a recording of format 7")],
)
def test_a_file_that_is_no_recording_is_refused(tmp_path, text, message):
    (tmp_path / "other.jsonl").write_text(text)
    failed = examined(tmp_path / "other.jsonl")
    assert message in str(failed.exception)


def test_a_recording_that_was_cut_off_is_read_as_far_as_it_goes(tmp_path):
    path = tmp_path / "r.jsonl"
    path.write_text('{"acp_recording": 1, "by": "agent"}\n{"t": 1, "from": "cli')
    shown = examined(path)
    assert shown.exit_code == 0
    assert "the last line was not written completely" in shown.output
    path.write_text('{"acp_recording": 1, "by": "agent"}\n?\n')
    assert examined(path).exit_code == 1


def test_other_options_do_not_fit(tmp_path):
    failed = CliRunner().invoke(doctor.command, ["echo", "--acp", str(tmp_path)])
    assert failed.exit_code == 2
    assert "`--acp` cannot be combined with NAME" in failed.output
