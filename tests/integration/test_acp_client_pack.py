"""The pack `acp-client`: its tools use the files and the terminals of an editor, the client of the official Python SDK."""

from __future__ import annotations

import asyncio
import json
from itertools import product
from pathlib import Path

import pytest
from acp import RequestError
from acp.schema import (
    CreateTerminalResponse,
    ReadTextFileResponse,
    TerminalExitStatus,
    TerminalOutputResponse,
    WaitForTerminalExitResponse,
)

from acp_editors import PATIENCE, Editor, capabilities, editing
from loop_models import Model, asks, says
from toolcrib import Runtime

PACK = Path(__file__).parents[2] / "packs" / "acp-client"
READ, WRITE, EDIT = "mcp__acp__Read", "mcp__acp__Write", "mcp__acp__Edit"
BASH, OUTPUT, KILL = "mcp__acp__Bash", "mcp__acp__BashOutput", "mcp__acp__KillShell"


class Terminal:
    """A program, and what it has printed."""

    def __init__(self, process, limit):
        self.process, self.limit = process, limit
        self.output, self.truncated = b"", False
        self.reading = asyncio.create_task(self._read())

    async def _read(self):
        while chunk := await self.process.stdout.read(65536):
            self.output += chunk
            if len(self.output) > self.limit:
                self.output, self.truncated = self.output[-self.limit :], True
        await self.process.wait()


class Workplace(Editor):
    """An editor with files and terminals."""

    def __init__(self, **files):
        super().__init__()
        self.files = {f"/project/{name}.txt": text for name, text in files.items()}
        self.terminals = {}
        self.released = []
        self.refuses = None

    def _may(self):
        if self.refuses is not None:
            raise self.refuses

    async def read_text_file(self, session_id, path, line=None, limit=None, **_meta):
        self._may()
        if path not in self.files:
            raise RequestError.resource_not_found(path)
        return ReadTextFileResponse(content=self.files[path])

    async def write_text_file(self, session_id, path, content, **_meta):
        self._may()
        self.files[path] = content

    async def create_terminal(self, session_id, command, args=None, output_byte_limit=None, **_meta):
        self._may()
        process = await asyncio.create_subprocess_exec(
            command,
            *(args or []),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        id_ = f"terminal_{len(self.terminals) + 1}"
        self.terminals[id_] = Terminal(process, output_byte_limit)
        return CreateTerminalResponse(terminal_id=id_)

    async def wait_for_terminal_exit(self, session_id, terminal_id, **_meta):
        terminal = self.terminals[terminal_id]
        await terminal.reading
        code = terminal.process.returncode
        return WaitForTerminalExitResponse(exit_code=max(code, 0), signal="SIGKILL" if code < 0 else None)

    async def terminal_output(self, session_id, terminal_id, **_meta):
        terminal = self.terminals[terminal_id]
        code = terminal.process.returncode
        status = None
        if terminal.reading.done():
            status = TerminalExitStatus(
                exit_code=None if code < 0 else code, signal="SIGKILL" if code < 0 else None
            )
        return TerminalOutputResponse(
            output=terminal.output.decode(), truncated=terminal.truncated, exit_status=status
        )

    async def kill_terminal(self, session_id, terminal_id, **_meta):
        terminal = self.terminals[terminal_id]
        if terminal.process.returncode is None:
            terminal.process.kill()
        await terminal.reading

    async def release_terminal(self, session_id, terminal_id, **_meta):
        await self.kill_terminal(session_id, terminal_id)
        self.released.append(terminal_id)


EVERYTHING = {"read": True, "write": True, "terminal": True}


class Talk:
    """Calls of tools in one session of an editor."""

    def __init__(self, editor, model, session):
        self.editor, self.model, self.session = editor, model, session

    async def call(self, *calls):
        """Make calls in one round, and return the results as the model reads them."""
        self.model._answers = [asks(*calls), says("done")]
        await self.editor.say(self.session, "go")
        asked = max(at for at, message in enumerate(self.model.requests[-1].messages) if message.calls)
        results = [part for message in self.model.requests[-1].messages[asked:] for part in message.results]
        return results if len(results) > 1 else results[0]


def talking(test):
    """Run a test with a `Talk` in an editor whose files and capabilities it names."""

    async def run(editor, announced=EVERYTHING):
        model = Model()
        runtime = Runtime.open(PACK, index=False)
        async with editing(runtime, model, editor=editor, announced=capabilities(**announced)):
            return await test(Talk(editor, model, await editor.open("/project")))

    return run


@pytest.mark.parametrize("has", [*product([False, True], repeat=3)])
async def test_each_combination_of_capabilities_gives_its_tools_and_shadows(has):
    read, write, terminal = has
    expected = {}
    if read:
        expected |= {"Read": READ}
    if write:
        expected |= {"Write": WRITE}
    if read and write:
        expected |= {"Edit": EDIT}
    if terminal:
        expected |= {"Bash": BASH, "BashOutput": OUTPUT, "KillShell": KILL}
    approved = {READ, OUTPUT, KILL} & set(expected.values())
    editor = Workplace()
    runtime = Runtime.open(PACK, index=False)
    announced = capabilities(read=read, write=write, terminal=terminal)
    async with editing(runtime, Model(), editor=editor, announced=announced):
        opened = await editor.agent.new_session(cwd="/project", mcp_servers=[])
    told = opened.field_meta["toolcrib"]
    missing = told.pop("missing")
    assert told == {
        "tools": sorted(expected.values()),
        "replaced": expected,
        "preApproved": sorted(approved),
    }
    # What is missing says which capability it needs.
    assert {*missing} == {READ, WRITE, EDIT, BASH, OUTPUT, KILL}.difference(expected.values())
    assert {why["code"] for why in missing.values()} <= {"capability_missing"}


async def test_read_shows_unsaved_lines_and_says_where_to_continue():
    editor = Workplace(long="one\ntwo\nthree\n", empty="", wide="x" * 60_000)

    @talking
    async def test(talk):
        assert (await talk.call((READ, {"file_path": "/project/long.txt"}))).text == "one\ntwo\nthree\n"
        part = await talk.call((READ, {"file_path": "long.txt", "offset": 2, "limit": 1}))
        assert part.text == "two\n\n[lines 2 to 2 of 3; continue with offset=3]"
        assert (await talk.call((READ, {"file_path": "empty.txt"}))).text == "[the file is empty]"
        late = await talk.call((READ, {"file_path": "long.txt", "offset": 4}))
        assert (late.outcome, late.code) == ("tool_error", "offset_too_large")
        none = await talk.call((READ, {"file_path": "none.txt"}))
        assert (none.outcome, none.code) == ("tool_error", "file_not_found")
        assert editor.questions == []
        started = next(each for each in editor.updates if each["sessionUpdate"] == "tool_call")
        assert (started["kind"], started["title"]) == ("read", "Read a file")
        assert {"path": "/project/long.txt", "line": 2} in [
            place for each in editor.updates for place in each.get("locations", [])
        ]

    await test(editor)


async def test_write_and_edit_show_a_diff_and_change_the_file():
    editor = Workplace(rate="RATE = 0.2\n")

    @talking
    async def test(talk):
        made = await talk.call((WRITE, {"file_path": "new.txt", "content": "a\nb\n"}))
        assert made.text == "`/project/new.txt` was created: 2 lines"
        edited = await talk.call((EDIT, {"file_path": "rate.txt", "old_string": "0.2", "new_string": "0.25"}))
        assert "-RATE = 0.2\n+RATE = 0.25\n" in edited.text
        assert editor.files == {"/project/rate.txt": "RATE = 0.25\n", "/project/new.txt": "a\nb\n"}
        diffs = [
            content
            for each in editor.updates
            for content in each.get("content", [])
            if isinstance(content, dict) and content.get("type") == "diff"
        ]
        assert diffs == [
            {"type": "diff", "path": "/project/new.txt", "newText": "a\nb\n"},
            {
                "type": "diff",
                "path": "/project/rate.txt",
                "oldText": "RATE = 0.2\n",
                "newText": "RATE = 0.25\n",
            },
        ]
        # Both change something, so that the user was asked about both.
        assert len(editor.questions) == 2

    await test(editor)


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("two", "2", "not_unique"),
        ("three", "3", "no_match"),
        ("two", "two", "nothing_to_edit"),
    ],
)
async def test_an_edit_that_is_not_certain_changes_nothing(old, new, code):
    editor = Workplace(twice="two\ntwo\n")

    @talking
    async def test(talk):
        result = await talk.call((EDIT, {"file_path": "twice.txt", "old_string": old, "new_string": new}))
        assert (result.outcome, result.code) == ("tool_error", code)
        assert editor.files == {"/project/twice.txt": "two\ntwo\n"}
        arguments = {"file_path": "twice.txt", "old_string": "two", "new_string": "2", "replace_all": True}
        assert (await talk.call((EDIT, arguments))).outcome == "ok"
        assert editor.files == {"/project/twice.txt": "2\n2\n"}

    await test(editor)


async def test_an_edit_of_a_file_that_has_changed_since_it_was_read_fails():
    editor = Workplace(notes="one\n")

    @talking
    async def test(talk):
        edit = {"file_path": "notes.txt", "old_string": "one", "new_string": "1"}
        await talk.call((READ, {"file_path": "notes.txt"}))
        editor.files["/project/notes.txt"] = "one\ntyped by the user\n"
        for _again in range(2):
            changed = await talk.call((EDIT, edit))
            assert (changed.outcome, changed.code) == ("tool_error", "file_changed")
        await talk.call((READ, {"file_path": "notes.txt"}))
        assert (await talk.call((EDIT, edit))).outcome == "ok"
        # The edit is what the session knows now.
        again = {"file_path": "notes.txt", "old_string": "1", "new_string": "one"}
        assert (await talk.call((EDIT, again))).outcome == "ok"

    await test(editor)


async def test_what_the_editor_refuses_is_an_error_with_its_reason():
    editor = Workplace(notes="one\n")
    editor.refuses = RequestError(-32603, "the buffer is locked")

    @talking
    async def test(talk):
        for call in (
            (READ, {"file_path": "notes.txt"}),
            (WRITE, {"file_path": "notes.txt", "content": ""}),
            (EDIT, {"file_path": "notes.txt", "old_string": "one", "new_string": "1"}),
            (BASH, {"command": "true"}),
        ):
            result = await talk.call(call)
            assert (result.outcome, result.code) == ("tool_error", "client_refused")
            assert "the buffer is locked (error -32603)" in result.text

    await test(editor)


async def test_a_command_runs_in_a_terminal_that_is_released():
    editor = Workplace()

    @talking
    async def test(talk):
        result = await talk.call((BASH, {"command": "echo hello"}))
        assert json.loads(result.text) == {"output": "hello\n", "exit_code": 0, "truncated": False}
        failed = await talk.call((BASH, {"command": "echo oh; exit 3"}))
        assert (failed.outcome, failed.code) == ("tool_error", "command_failed")
        assert "exited with code 3; its output:\noh\n" in failed.text
        assert editor.released == ["terminal_1", "terminal_2"]
        shown = [
            each
            for each in editor.updates
            if each.get("content") == [{"type": "terminal", "terminalId": "terminal_1"}]
        ]
        assert [each.get("status") for each in shown] == [None, "completed"]
        assert "execute" in [each.get("kind") for each in editor.updates]

    await test(editor)


async def test_a_command_that_takes_too_long_is_killed_and_its_output_returned():
    editor = Workplace()

    @talking
    async def test(talk):
        result = await talk.call((BASH, {"command": "echo begun; exec sleep 600", "timeout": 1000}))
        assert (result.outcome, result.code) == ("tool_error", "command_timeout")
        assert "the command was killed after 1 s" in result.text
        assert editor.released == ["terminal_1"]
        assert editor.terminals["terminal_1"].process.returncode == -9

    await test(editor)


async def test_a_cancelled_command_is_ended_and_released():
    editor = Workplace()

    @talking
    async def test(talk):
        talk.model._answers = [asks((BASH, {"command": "exec sleep 600"}))]
        prompt = asyncio.create_task(editor.say(talk.session, "go"))
        await editor.until(
            lambda each: bool(each.get("content")) and each["content"][0]["type"] == "terminal"
        )
        await editor.agent.cancel(session_id=talk.session)
        assert (await prompt).stop_reason == "cancelled"
        assert editor.released == ["terminal_1"]

    await test(editor)


async def test_a_command_in_the_background_is_read_by_offset_and_killed_once():
    editor = Workplace()

    @talking
    async def test(talk):
        started = await talk.call(
            (BASH, {"command": "echo one; read x; echo two", "run_in_background": True})
        )
        assert json.loads(started.text) == {"shell_id": "shell_1", "status": "running"}
        terminal = editor.terminals["terminal_1"]
        async with asyncio.timeout(PATIENCE):
            # `read` meets the end of its input at once, so that the command ends by itself.
            await terminal.reading
        first = json.loads((await talk.call((OUTPUT, {"shell_id": "shell_1"}))).text)
        assert first == {
            "output": "one\ntwo\n",
            "next_offset": 8,
            "lost": 0,
            "status": "exited with code 0",
            "exit_code": 0,
        }
        again = json.loads((await talk.call((OUTPUT, {"shell_id": "shell_1"}))).text)
        assert (again["output"], again["next_offset"]) == ("", 8)
        part = json.loads((await talk.call((OUTPUT, {"shell_id": "shell_1", "offset": 4}))).text)
        assert part["output"] == "two\n"
        late = await talk.call((OUTPUT, {"shell_id": "shell_1", "offset": 9}))
        assert (late.outcome, late.code) == ("tool_error", "offset_too_large")
        await talk.call((BASH, {"command": "exec sleep 600", "run_in_background": True}))
        for _again in range(2):
            killed = json.loads((await talk.call((KILL, {"shell_id": "shell_2"}))).text)
            assert killed["status"] == "killed"
        ended = json.loads((await talk.call((KILL, {"shell_id": "shell_1"}))).text)
        assert ended["status"] == "exited with code 0"
        unknown = await talk.call((KILL, {"shell_id": "shell_9"}))
        assert (unknown.outcome, unknown.code) == ("tool_error", "unknown_shell")
        assert editor.released == ["terminal_1", "terminal_2"]

    await test(editor)


async def test_a_closed_session_releases_its_terminals():
    editor = Workplace()

    @talking
    async def test(talk):
        await talk.call((BASH, {"command": "exec sleep 600", "run_in_background": True}))
        await editor.agent.close_session(session_id=talk.session)
        assert editor.released == ["terminal_1"]

    await test(editor)
