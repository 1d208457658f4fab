"""Run a server as a child process, with one JSON-RPC message per line over its stdin and stdout.

MCP 2025-11-25, basic/transports. All variables in the command and the environment are resolved first.
"""

from __future__ import annotations

import asyncio
import errno
import os
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, Self

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import JSONRPCRequest

from toolcrib.core.child_process import ChildProcess, inherited_environment
from toolcrib.core.errors import did_you_mean
from toolcrib.core.message_splitter import MessageSplitter, OversizedMessage
from toolcrib.core.server_config import Server
from toolcrib.security.secrets import SecretResolver
from toolcrib.servers.environment import NetworkEnvironment
from toolcrib.servers.mcp.incoming_messages import (
    GARBAGE,
    Intake,
    PendingRequests,
    read_head,
)
from toolcrib.servers.mcp.transports import ServerTexts, StartFailure, Streams, mask_nothing

if TYPE_CHECKING:
    from toolcrib.security.egress import EgressRefused


class ServerCommand(NamedTuple):
    """The command of a server, with all variables looked up.

    Attributes:
        name: Name of the server, for messages.
        argv: The program as configured, and its arguments.
        env: The whole environment except the mark of `ChildProcess`.
        cwd: The working directory, absolute.
    """

    name: str
    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str

    # Arguments and variables may contain secrets, and logs may show a `repr`.
    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name}: {self.argv[0]} with {len(self.argv) - 1} arguments)"


def resolve_command(server: Server, secrets: SecretResolver) -> ServerCommand:
    """Look up the command of a server, and everything that it needs.

    Raises:
        MissingSecret: Values are missing; the message lists all of them, the pointer is that of the first.
    """
    texts = ServerTexts(server, secrets)
    # The program and the folder are not masked: a message about a missing program must name them.
    argv = [texts.filled(server.command, "/command", secret=mask_nothing)]
    argv += [texts.filled(arg, f"/args/{index}") for index, arg in enumerate(server.args)]
    cwd = texts.filled(server.cwd, "/cwd", secret=mask_nothing)
    named = {name: texts.named(name, value, f"/env/{name}") for name, value in server.env.items()}
    texts.check()
    folder = Path(server.root, cwd).absolute()
    return ServerCommand(
        server.name, tuple(argv), {**inherited_environment(os.environ), **named}, str(folder)
    )


def find_program(command: ServerCommand) -> str:
    """Find the program of a command, in the way the child would.

    Raises:
        StartFailure: The program or the working directory does not exist.
    """
    name = command.argv[0]
    # Check first: a failed start reports a missing folder, program or interpreter with the same ENOENT.
    if not Path(command.cwd).is_dir():
        message = f"the working directory of the server `{command.name}`, `{command.cwd}`, does not exist"
        hint = "create it, or correct `cwd`; a relative path starts at the file that names the server"
        raise StartFailure(message, hint=hint)
    # A name with a separator is not searched in PATH, and is relative to the child's folder, not to ours.
    if any(mark in name for mark in (os.sep, os.altsep) if mark):
        found = Path(command.cwd, name)
        if found.is_file() and os.access(found, os.X_OK):
            return str(found)
        raise _no_program(command, found)
    # The PATH of the child, because its `env` may replace ours.
    places = command.env.get("PATH", os.defpath)
    program = shutil.which(name, path=places) if name else None
    if program is None:
        raise _nowhere(command, places)
    return str(Path(program).absolute())


def start_failure(command: ServerCommand, program: str, error: OSError | ValueError) -> StartFailure:
    """Return the error for a program that the system did not start."""
    what = f"cannot start the server `{command.name}`: "
    number = getattr(error, "errno", None)
    if isinstance(error, ValueError):
        fault, hint = "`command`, `args`, `env` or `cwd` contains a NUL character", "remove it"
    elif number == errno.ENOEXEC:
        # A shell runs a file without `#!` by itself; `exec` does not.
        fault, hint = f"`{program}` is not a program", "begin a script with `#!` and its interpreter"
    elif number == errno.ENOENT:
        # `find_program` has found the program itself, so only its interpreter can be missing.
        fault = f"the interpreter of `{program}` does not exist"
        hint = "check the first line of the script, after `#!`"
    elif number == errno.E2BIG:
        fault, hint = "`args` and `env` exceed the system limit", "shorten them"
    else:
        reason = os.strerror(number) if isinstance(number, int) else type(error).__name__
        fault, hint = f"`{program}`: {reason}", "try it in a shell"
    return StartFailure(what + fault, hint=hint)


def _no_program(command: ServerCommand, path: Path) -> StartFailure:
    what = f"the command of the server `{command.name}`, `{command.argv[0]}`,"
    if path.is_file():
        return StartFailure(f"{what} is not executable", hint=f"chmod +x {path}")
    home = command.argv[0].startswith("~")
    hint = "no shell expands it: write `${HOME}` instead of `~`" if home else "correct `command`"
    return StartFailure(f"{what} does not exist: looked for `{path}`", hint=hint)


def _nowhere(command: ServerCommand, places: str) -> StartFailure:
    name = command.argv[0]
    message = f"the command of the server `{command.name}`, `{name}`, was not found in PATH ({places})"
    if " " in name.strip():
        hint = "`command` is only the program: put its arguments into `args`"
    elif name in _MAKERS:
        hint = f"install {_MAKERS[name]}, or use its full path"
    else:
        near = did_you_mean(name, {each for place in places.split(os.pathsep) for each in _names_in(place)})
        hint = near or "install it, or use its full path"
    return StartFailure(message, hint=hint)


_MAKERS = {
    "docker": "Docker (https://docs.docker.com/get-docker/)",
    "node": "Node.js (https://nodejs.org/)",
    "npx": "Node.js (https://nodejs.org/)",
    "uv": "uv (https://docs.astral.sh/uv/)",
    "uvx": "uv (https://docs.astral.sh/uv/)",
}


def _names_in(folder: str) -> list[str]:
    try:
        return [path.name for path in Path(folder).iterdir()]
    except OSError:
        return []


_LAST_WORDS = 1.0
"""Seconds to wait for the last output of a server that has exited, or for the exit of one without output."""


_LINE_END = re.compile(rb"\n")


class StdioLink:
    """The link to a server process; see `Link`. It can be entered once.

    Args:
        server: A server with transport `stdio`.
        world: The environment whose secrets resolve `${...}`.

    Raises:
        MissingSecret: See `open_link`.
    """

    refusal: EgressRefused | None = None

    def __init__(self, server: Server, world: NetworkEnvironment) -> None:
        self._command = resolve_command(server, world.secrets)
        self._hide = world.secrets.hide_in_text
        self._child = ChildProcess(self._heard, self._silent)
        self._intake = Intake(server.name, self._child.listen)
        self._lines = MessageSplitter(_LINE_END, self._intake.waiting.limit)
        self.ended = ""

    @property
    def pid(self) -> int | None:
        """See `Link`."""
        return self._child.pid if self._child.code is None else None

    @property
    def garbage(self) -> int:
        """Number of lines that were not valid messages."""
        return self._intake.garbage

    async def __aenter__(self) -> Streams:
        """Start the process.

        Raises:
            StartFailure: The process cannot be started.
        """
        command = self._command
        program = find_program(command)
        try:
            await self._child.start(program, command.argv[1:], env=command.env, cwd=command.cwd)
        except (OSError, ValueError) as error:
            raise start_failure(command, program, error) from None
        return self._intake.inbox, StdioOutbox(self._child, self._intake.waiting)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        """End the process and its descendants: within 4.5 s, or within a second if the block or this is cancelled."""
        self._over("was stopped")
        # Only the end of the event loop, as after a second signal, cancels the task that owns the link. A server that has
        # something to write still gets a moment for it.
        if isinstance(error, asyncio.CancelledError):
            self._child.hurry()
        # A task of its own, and shielded: a cancelled caller must not leave processes behind.
        ending = asyncio.ensure_future(self._child.end())
        try:
            await asyncio.shield(ending)
        except asyncio.CancelledError:
            self._child.hurry()
            with anyio.CancelScope(shield=True):
                await asyncio.wait({ending})
            raise
        finally:
            # A shielded anyio scope does not stop a second `Task.cancel()`: the process may still run.
            if not ending.done():
                self._child.kill()

    def said(self) -> str:
        """The last 64 KiB of stderr, with secrets masked."""
        return self._child.last_words(self._hide)

    def _heard(self, data: bytes) -> None:
        if self.ended:
            return
        for line in self._lines.add(data):
            if isinstance(line, OversizedMessage):
                self._intake.discard(line, "a line longer than", read_head(line.head))
                continue
            # An invalid byte must not end the connection: the SDK's client then leaves the caller waiting for
            # its timeout. A byte order mark may be ignored (RFC 8259, section 8.1).
            text = line.decode("utf-8", "replace").strip().removeprefix("\ufeff")
            if text and not self.ended:
                self._intake.read(text, len(line))
                self._count()
        # This chunk may have been the last output of a process that has exited.
        if self._child.code is not None:
            self._silent()

    def _count(self) -> None:
        if self.garbage > GARBAGE:
            self._over(f"wrote more than {GARBAGE} lines to its stdout that are not MCP messages")
            self._child.stop_listening()

    def _silent(self) -> None:
        """Called when the process exits or its stdout ends, so that no call waits for a lost response."""
        # End of file alone is not enough: a descendant may keep stdout open after the exit of the server.
        if self.ended:
            return
        loop = asyncio.get_running_loop()
        if self._child.code is None:
            # Usually the process exits a moment later, and its exit code is the better explanation.
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
        self._over(self._how())

    def _how(self) -> str:
        cut = " in the middle of a message" if self._lines.unfinished() else ""
        return f"{self._child.describe_end()}{cut}"

    def _over(self, why: str) -> None:
        if not self.ended:
            self.ended = why
            self._intake.inbox.end()


class StdioOutbox:
    """A write stream for the SDK, to the stdin of a process. Each line is written whole or not at all."""

    def __init__(self, child: ChildProcess, waiting: PendingRequests) -> None:
        self._child = child
        self._waiting = waiting
        self._closed = False

    async def send(self, item: SessionMessage, /) -> None:
        """Send a message. A request waits until the write buffer has room; other messages do not wait.

        Raises:
            anyio.ClosedResourceError: This stream is closed.
            anyio.BrokenResourceError: The server no longer reads its stdin.
        """
        message = item.message
        line = message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        try:
            # A cancellation must not wait behind the request that it cancels.
            if isinstance(message, JSONRPCRequest):
                await self._child.room()
            if self._closed:
                raise anyio.ClosedResourceError
            self._child.write(line)
        except BrokenPipeError:
            raise anyio.BrokenResourceError from None
        # After the write: a call that was never written cannot have had an effect.
        self._waiting.sent(message, len(line))

    async def aclose(self) -> None:
        """Stop sending. The process keeps running."""
        self._closed = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        await self.aclose()
