"""What an editor can do for tools: read, write and edit files, run commands. The operations of mode `client`.

Files are those of the editor, with its unsaved changes. A session remembers the files that it has shown, so that an edit of a
file that has changed since fails. Commands run in terminals of the editor, which are always released.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from difflib import unified_diff
from typing import Any, Final, Protocol

from acp.exceptions import RequestError
from acp.schema import TerminalExitStatus

from toolcrib.core.errors import did_you_mean
from toolcrib.core.model import JSON, Outcome, Result
from toolcrib.executors.client import ClientCall
from toolcrib.serve.acp.connection import NOT_FOUND, Editor

LONGEST_TEXT: Final = 50_000
"""Maximum number of characters of a file that one call shows."""

LONGEST_OUTPUT: Final = 32_000
"""Maximum number of bytes of output that a terminal keeps."""

LONGEST_TRANSCRIPT: Final = 1 << 20
"""Maximum number of characters of output that a background command keeps."""

_CLEANUP: Final = 10.0
"""Seconds that an editor gets to kill and to release a terminal."""


class Display(Protocol):
    """Shows what a running call does, in place of the text of its result."""

    def __call__(self, call: str, content: list[dict[str, Any]], *, now: bool = False) -> Awaitable[None]:
        """Show content of a call, at once or at its end."""
        ...


class BackgroundCommand:
    """A command in the background, and what it has printed so far.

    Attributes:
        terminal: Its terminal; empty once it is released.
        text: The output that is kept.
        begin: Number of characters before `text`.
        read: Number of the first character that the model has not read.
        status: How it ended; None while it runs.
        killed: Whether it was killed.
    """

    def __init__(self, terminal: str) -> None:
        self.terminal = terminal
        self.text, self.begin, self.read = "", 0, 0
        self.status: TerminalExitStatus | None = None
        self.killed = False
        self._last = ""

    @property
    def end(self) -> int:
        """Number of characters that it has printed."""
        return self.begin + len(self.text)

    def add(self, output: str) -> None:
        """Add what is new in the output of the terminal, whose beginning is cut off once it is too long."""
        self.text += output[_overlap(self._last, output) :]
        self._last = output
        excess = len(self.text) - LONGEST_TRANSCRIPT
        if excess > 0:
            self.text, self.begin = self.text[excess:], self.begin + excess

    def state(self) -> str:
        """What it does, for people."""
        if self.killed:
            return "killed"
        return "running" if self.status is None else _ended(self.status)


def _overlap(before: str, now: str) -> int:
    """Length of the beginning of `now` that ends `before`."""
    if now.startswith(before):
        return len(before)
    # The terminal has cut off its beginning: look for the rest of what was there.
    start = max(0, len(before) - len(now))
    while start < len(before) and not now.startswith(before[start:]):
        found = before.find(now[0], start + 1) if now else -1
        start = len(before) if found < 0 else found
    return len(before) - start


class EditorTools:
    """Fulfils the calls of one session.

    Args:
        editor: The editor.
        session: ID of the session.
        cwd: Its working folder.
        display: Shows what calls do.
        reads: Whether the editor can read files.
    """

    def __init__(self, editor: Editor, session: str, cwd: str, display: Display, *, reads: bool) -> None:
        self._editor = editor
        self._session = session
        self._cwd = cwd
        self._display = display
        self._reads = reads
        self._shown: dict[str, str] = {}
        self._commands: dict[str, BackgroundCommand] = {}

    async def __call__(self, call: ClientCall) -> Result:
        """Fulfil a call. What the editor refuses is a `tool_error` with its reason."""
        try:
            return await _OPERATIONS[call.operation](self, call)
        except RequestError as error:
            code = "file_not_found" if error.code == NOT_FOUND else "client_refused"
            return _failed(code, f"the editor refused: {error} (error {error.code})")
        except ConnectionError as error:
            message = f"the editor is gone: {error}"
            return Result.failure(Outcome.TRANSPORT_ERROR, message, code="client_gone")

    async def close(self) -> None:
        """Release the terminals of commands in the background, which ends them."""
        await asyncio.gather(*(self._release(command) for command in self._commands.values()))

    # Files.

    async def read_file(self, call: ClientCall) -> Result:
        """Show lines of a file."""
        path, said = self._path(call), _arguments(call)
        offset = said.get("offset", 1)
        content = self._shown[path] = await self._editor.read(self._session, path)
        lines = content.splitlines(keepends=True)
        if not lines:
            return Result.success("[the file is empty]")
        if offset > len(lines):
            return _failed(
                "offset_too_large", f"line {offset} is past the end of `{path}`, which has {len(lines)} lines"
            )
        shown: list[str] = []
        size = 0
        for line in lines[offset - 1 : offset - 1 + said.get("limit", len(lines))]:
            if size + len(line) > LONGEST_TEXT and shown:
                break
            shown.append(line[:LONGEST_TEXT])
            size += len(line)
        text, end = "".join(shown), offset + len(shown) - 1
        if end < len(lines):
            text += f"\n[lines {offset} to {end} of {len(lines)}; continue with offset={end + 1}]"
        elif len(shown[-1]) < len(lines[-1]):
            text += f"\n[line {end} has {len(lines[-1])} characters, of which {LONGEST_TEXT} are shown]"
        return Result.success(text)

    async def write_file(self, call: ClientCall) -> Result:
        """Replace the content of a file, or create it."""
        path, content = self._path(call), _arguments(call)["content"]
        before = None
        if self._reads:
            with suppress(RequestError):  # there is no such file yet
                before = await self._editor.read(self._session, path)
        await self._editor.write(self._session, path, content)
        self._shown[path] = content
        await self._show_diff(call, path, before, content)
        what = "created" if self._reads and before is None else "written"
        return Result.success(f"`{path}` was {what}: {len(content.splitlines())} lines")

    async def edit_file(self, call: ClientCall) -> Result:
        """Replace a text of a file, which must occur once."""
        path, said = self._path(call), _arguments(call)
        old, new = said["old_string"], said["new_string"]
        if not old or old == new:
            why = "is empty; use the tool that writes files" if not old else "and `new_string` are equal"
            return _failed("nothing_to_edit", f"`old_string` {why}")
        content = await self._editor.read(self._session, path)
        if self._shown.get(path, content) != content:
            return _failed("file_changed", f"`{path}` has changed since it was read; read it again")
        times = content.count(old)
        if not times:
            return _failed("no_match", f"`old_string` does not occur in `{path}`; read the file and copy it")
        if times > 1 and not said.get("replace_all", False):
            return _failed(
                "not_unique",
                f"`old_string` occurs {times} times in `{path}`; add lines around it, or set `replace_all`",
            )
        edited = content.replace(old, new)
        await self._editor.write(self._session, path, edited)
        self._shown[path] = edited
        await self._show_diff(call, path, content, edited)
        diff = unified_diff(content.splitlines(keepends=True), edited.splitlines(keepends=True), path, path)
        return Result.success("".join(line if line.endswith("\n") else f"{line}\n" for line in diff))

    def _path(self, call: ClientCall) -> str:
        # The protocol wants absolute paths.
        return os.path.normpath(os.path.join(self._cwd, _arguments(call)["file_path"]))

    async def _show_diff(self, call: ClientCall, path: str, before: str | None, after: str) -> None:
        diff = {"type": "diff", "path": path, "newText": after}
        await self._display(call.id, [diff if before is None else {**diff, "oldText": before}])

    # Commands.

    async def run_command(self, call: ClientCall) -> Result:
        """Run a command in a terminal, and return its output; in the background, return its ID."""
        said = _arguments(call)
        command = said["command"]
        shell = ["sh", "-c", command] if os.name == "posix" else [command]
        terminal = await self._editor.start(self._session, shell, self._cwd, LONGEST_OUTPUT)
        if said.get("run_in_background", False):
            id_ = f"shell_{len(self._commands) + 1}"
            self._commands[id_] = BackgroundCommand(terminal)
            await self._display(call.id, [{"type": "terminal", "terminalId": terminal}])
            return Result.success({"shell_id": id_, "status": "running"})
        try:
            await self._display(call.id, [{"type": "terminal", "terminalId": terminal}], now=True)
            seconds = said.get("timeout", 120_000) / 1000
            late = False
            try:
                async with asyncio.timeout(seconds):
                    await self._editor.wait(self._session, terminal)
            except TimeoutError:
                late = True
                await self._editor.kill(self._session, terminal)
            shown = await self._editor.output(self._session, terminal)
        finally:
            await self._cleanup(self._editor.release(self._session, terminal))
        facts: dict[str, JSON] = {"output": shown.output, "truncated": shown.truncated}
        status = shown.exit_status
        if late:
            message = f"the command was killed after {seconds:g} s; its output:\n{shown.output}"
            return _failed("command_timeout", message, facts)
        facts["exit_code"] = None if status is None else status.exit_code
        if status is not None and (status.exit_code or status.signal):
            return _failed(
                "command_failed", f"the command {_ended(status)}; its output:\n{shown.output}", facts
            )
        return Result.success(facts)

    async def command_output(self, call: ClientCall) -> Result:
        """Return what a command in the background has printed since an offset."""
        found = self._command(call)
        if isinstance(found, Result):
            return found
        await self._refresh(found)
        offset = _arguments(call).get("offset", found.read)
        if offset > found.end:
            return _failed("offset_too_large", f"offset {offset} is past the end of the output, {found.end}")
        found.read = found.end
        code = None if found.status is None else found.status.exit_code
        return Result.success(
            {
                "output": found.text[max(0, offset - found.begin) :],
                "next_offset": found.end,
                "lost": max(0, found.begin - offset),
                "status": found.state(),
                "exit_code": code,
            }
        )

    async def kill_command(self, call: ClientCall) -> Result:
        """End a command in the background. Ending it again has no effect."""
        found = self._command(call)
        if isinstance(found, Result):
            return found
        await self._refresh(found)
        before = found.state()
        if before != "running":
            return Result.success({"status": before, "message": f"the command had ended before: {before}"})
        await self._editor.kill(self._session, found.terminal)
        found.killed = True
        await self._refresh(found)
        return Result.success({"status": "killed", "message": "the command was killed"})

    def _command(self, call: ClientCall) -> BackgroundCommand | Result:
        id_ = _arguments(call)["shell_id"]
        if id_ in self._commands:
            return self._commands[id_]
        listed = ", ".join(f"`{each}`" for each in self._commands) or "none"
        near = did_you_mean(id_, self._commands) or f"the commands are: {listed}"
        return _failed("unknown_shell", f"unknown command `{id_}`; {near}")

    async def _refresh(self, command: BackgroundCommand) -> None:
        """Read the output of a command, and release its terminal once it has ended."""
        if not command.terminal:
            return
        said = await self._editor.output(self._session, command.terminal)
        command.add(said.output)
        command.status = said.exit_status
        if command.killed or command.status is not None:
            await self._release(command)

    async def _release(self, command: BackgroundCommand) -> None:
        terminal, command.terminal = command.terminal, ""
        if terminal:
            await self._cleanup(self._editor.release(self._session, terminal))

    async def _cleanup(self, work: Awaitable[None]) -> None:
        """Do something at the end of a call, also if the call is cancelled meanwhile; the editor may be gone."""
        task = asyncio.ensure_future(work)
        with suppress(RequestError, ConnectionError, TimeoutError):
            async with asyncio.timeout(_CLEANUP):
                await asyncio.shield(task)


_OPERATIONS: Final[Mapping[str, Callable[[EditorTools, ClientCall], Awaitable[Result]]]] = {
    "read_file": EditorTools.read_file,
    "write_file": EditorTools.write_file,
    "edit_file": EditorTools.edit_file,
    "run_command": EditorTools.run_command,
    "command_output": EditorTools.command_output,
    "kill_command": EditorTools.kill_command,
}


def _arguments(call: ClientCall) -> Any:
    # Valid under the schema of the tool, which the operation relies on.
    return call.arguments


def _ended(status: TerminalExitStatus) -> str:
    if status.signal:
        return f"was ended by {status.signal}"
    return f"exited with code {status.exit_code}"


def _failed(code: str, message: str, details: Mapping[str, JSON] | None = None) -> Result:
    return Result.failure(Outcome.TOOL_ERROR, message, code=code, details=details or {})
