"""The process of an agent: its program, and the lines that it reads and writes.

Every line of the protocol passes `AgentProcess.send` or `AgentProcess.receive`, which show it to the observers.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import shutil
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from toolcrib.core.child_process import ChildProcess, inherited_environment
from toolcrib.core.errors import ConfigurationError, did_you_mean
from toolcrib.core.message_splitter import MessageSplitter, OversizedMessage
from toolcrib.core.model import JSON
from toolcrib.core.text import compact, decode_json, format_size
from toolcrib.schema.validation.violations import shorten

LONGEST_LINE: Final = 64 << 20
"""Maximum length of a line of an agent in bytes."""

_AHEAD: Final = 1 << 20
"""Bytes of unread lines beyond which reading pauses."""

_LAST_WORDS: Final = 1.0
"""Seconds to wait for the last output of an agent that has exited, or for the exit of one without output."""

_SHOWN: Final = 80
"""Characters of an invalid line that a problem shows."""

_LINE_END: Final = re.compile(rb"\n")


class WireLine(NamedTuple):
    """A line of the protocol.

    Attributes:
        direction: `in` for a line of the agent, `out` for one that is sent to it.
        number: Its number in this direction, from 1, since the agent was started.
        data: The line without its end; of a line that is too long, its beginning.
        message: Its JSON value.
        fault: Why it is not a message; empty if it is one.
    """

    direction: Literal["in", "out"]
    number: int
    data: bytes
    message: JSON = None
    fault: str = ""


Observer: TypeAlias = Callable[[WireLine], None]
"""Sees every line of the protocol; must not block."""


class AgentCommand(NamedTuple):
    """How an agent is started.

    Attributes:
        argv: The program and its arguments.
        cwd: Its working directory, absolute.
        env: Its environment variables.
    """

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str]

    # Arguments and variables may contain secrets, and logs may show a `repr`.
    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name} with {len(self.argv) - 1} arguments)"

    @property
    def name(self) -> str:
        """The program without its folder."""
        return os.path.basename(self.argv[0])


def agent_command(argv: Sequence[str], cwd: str, env: Mapping[str, str]) -> AgentCommand:
    """The command of an agent, with the few variables of our environment that every program gets.

    Args:
        argv: The program and its arguments.
        cwd: Its working directory.
        env: Further environment variables, such as the key of its model.

    Raises:
        ConfigurationError: `argv` names no program.
    """
    if not argv or not argv[0]:
        raise ConfigurationError(
            "the command of the agent is empty", hint="name the program of the agent, and its arguments"
        )
    return AgentCommand(tuple(argv), os.path.abspath(cwd), {**inherited_environment(os.environ), **env})


def _program_of(command: AgentCommand) -> str:
    """The path of the program.

    Raises:
        ConfigurationError: `no_program`: the program or the working directory does not exist.
    """
    name = command.argv[0]
    if not os.path.isdir(command.cwd):
        raise _no_start(f"its working directory `{command.cwd}` does not exist", "create it")
    if os.sep in name:
        found = os.path.join(command.cwd, name)
        if os.path.isfile(found) and os.access(found, os.X_OK):
            return found
        if os.path.isfile(found):
            raise _no_start(f"`{found}` is not executable", f"chmod +x {found}")
        raise _no_start(f"`{found}` does not exist", "correct the command")
    folders = command.env.get("PATH", os.defpath)
    program = shutil.which(name, path=folders)
    if program is None:
        known = {each.name for folder in folders.split(os.pathsep) for each in _files_of(folder)}
        hint = did_you_mean(name, known) or "install it, or write its full path"
        raise _no_start(f"`{name}` was not found in PATH ({folders})", hint)
    return program


def _files_of(folder: str) -> list[Path]:
    try:
        return [*Path(folder).iterdir()]
    except OSError:
        return []


def _no_start(why: str, hint: str) -> ConfigurationError:
    return ConfigurationError(f"cannot start the agent: {why}", code="no_program", hint=hint)


class AgentProcess:
    """A running agent: a transport of the SDK's connection. It can be started once.

    Args:
        command: How it is started.
        observe: Sees every line.

    Attributes:
        ended: How it ended, such as `exited with code 3`; empty while it runs.
    """

    def __init__(self, command: AgentCommand, observe: Observer) -> None:
        self._command = command
        self._observe = observe
        self._child = ChildProcess(self._heard, self._silent)
        self._lines = MessageSplitter(_LINE_END, lambda _head: LONGEST_LINE)
        self._inbox: deque[bytes | OversizedMessage] = deque()
        self._waiting = 0
        self._paused = False
        self._news = asyncio.Event()
        self._received = self._sent = 0
        self.ended = ""

    @property
    def pid(self) -> int:
        """ID of the process; 0 before its start."""
        return self._child.pid

    async def start(self) -> None:
        """Start the process.

        Raises:
            ConfigurationError: `no_program`: it cannot be started.
        """
        command = self._command
        program = _program_of(command)
        try:
            await self._child.start(program, command.argv[1:], env=command.env, cwd=command.cwd)
        except (OSError, ValueError) as error:
            why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise _no_start(f"`{program}`: {why}", "try the command in a shell") from None

    async def gone(self) -> None:
        """Wait until it has ended, at most a moment longer than it needs to exit."""
        if not self.ended:
            await self._child.gone(_LAST_WORDS)
            self._over("does not read any more")

    def last_words(self) -> str:
        """The end of its stderr."""
        return self._child.last_words(lambda text: text).rstrip()

    async def end(self) -> None:
        """End it with everything that it has started: within 5 s, or immediately if this is cancelled."""
        ending = asyncio.ensure_future(self._child.end())
        try:
            await asyncio.shield(ending)
        except asyncio.CancelledError:
            self._child.hurry()
            await asyncio.wait({ending})
            raise
        finally:
            if not ending.done():
                self._child.kill()
            self._over("was ended")

    # The transport.

    async def send(self, message: dict[str, Any]) -> None:
        """Write a message.

        Raises:
            ConnectionError: The agent does not read any more.
        """
        try:
            line = compact(message).encode()
        except ValueError:  # a lone surrogate has no UTF-8 form and must be escaped
            line = json.dumps(message).encode()
        try:
            await self._child.room()
            self._child.write(line + b"\n")
        except BrokenPipeError:
            raise ConnectionError(f"the agent `{self._command.name}` does not read any more") from None
        self._sent += 1
        self._observe(WireLine("out", self._sent, line, message))

    async def receive(self) -> dict[str, Any] | None:
        """The next message; None once the agent has ended. Lines that are none are reported."""
        while True:
            while not self._inbox:
                if self.ended:
                    return None
                self._news.clear()
                await self._news.wait()
            line = self._inbox.popleft()
            self._waiting -= _length(line)
            if self._paused and self._waiting < _AHEAD:
                self._paused = False
                self._child.listen(True)
            self._received += 1
            message = self._read(line)
            if message is not None:
                return message

    async def close(self) -> None:
        """Do nothing: the owner ends the process."""

    def _read(self, line: bytes | OversizedMessage) -> dict[str, Any] | None:
        if isinstance(line, OversizedMessage):
            self._refuse(line.head, f"it is longer than {format_size(line.limit)}")
            return None
        data = line.strip()
        if not data:
            return None
        try:
            message = decode_json(data)
        except (ValueError, RecursionError) as error:
            self._refuse(data, f"{error}: {_shown(data)}")
            return None
        if not isinstance(message, dict) or message.get("jsonrpc") != "2.0":
            self._refuse(data, f"it is not an object of JSON-RPC 2.0: {_shown(data)}")
            return None
        self._observe(WireLine("in", self._received, data, message))
        return message

    def _refuse(self, data: bytes, why: str) -> None:
        self._observe(WireLine("in", self._received, data, fault=why))

    # The callbacks of the process.

    def _heard(self, data: bytes) -> None:
        for line in self._lines.add(data):
            self._inbox.append(line)
            self._waiting += _length(line)
        if self._waiting >= _AHEAD and not self._paused:
            self._paused = True
            self._child.listen(False)
        self._news.set()
        # This chunk may have been the last output of a process that has exited.
        if self._child.code is not None:
            self._silent()

    def _silent(self) -> None:
        """Called when the process exits or its stdout ends."""
        # End of file alone is not enough: a descendant may keep stdout open after the exit of the agent.
        if self.ended:
            return
        loop = asyncio.get_running_loop()
        if self._child.code is None:
            loop.call_later(_LAST_WORDS, self._over, "closed its output but did not exit")
        elif self._child.waits_in_pipe():
            loop.call_later(_LAST_WORDS, self._dead)
        else:
            # Output that asyncio has already read is delivered before this callback runs.
            loop.call_soon(self._dead_if_quiet)

    def _dead_if_quiet(self) -> None:
        if not self._child.waits_in_pipe():
            self._dead()

    def _dead(self) -> None:
        cut = " in the middle of a message" if self._lines.unfinished() else ""
        self._over(f"{self._child.describe_end()}{cut}")

    def _over(self, how: str) -> None:
        if not self.ended:
            self.ended = how
            self._news.set()


def _shown(data: bytes) -> str:
    return f"`{shorten(data.decode('utf-8', 'replace'), _SHOWN)}`"


def _length(line: bytes | OversizedMessage) -> int:
    return len(line) if isinstance(line, bytes) else len(line.head)
