"""A server as a process of ours: one JSON-RPC message a line, over its stdin and stdout (2025-11-25, basic/transports)."""

from __future__ import annotations

import asyncio
import signal
from types import TracebackType
from typing import TYPE_CHECKING, Self

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import CONNECTION_CLOSED, JSONRPCRequest

from toolcrib.core.model import OUTPUT_SIZE
from toolcrib.core.server_config import Server
from toolcrib.core.text import format_size
from toolcrib.servers.environment import World
from toolcrib.servers.mcp.child_process import SAID, Child
from toolcrib.servers.mcp.commands import command_of
from toolcrib.servers.mcp.incoming_messages import GARBAGE, Intake, Waiting
from toolcrib.servers.mcp.transports import Trouble

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

    from toolcrib.security.egress import EgressRefused

LONGEST = OUTPUT_SIZE
"""Bytes of a line."""

_LAST_WORDS = 1.0
"""Seconds for which what a dead server wrote is heard, where somebody else still holds its stdout."""


class TooLong(Exception):
    """A line does not end in time."""


class Lines:
    """Cuts what comes into lines, without their ends; holds no more than one line.

    Args:
        longest: Bytes that a line may have.
    """

    def __init__(self, longest: int = LONGEST) -> None:
        self._longest = longest
        self._rest = bytearray()

    def add(self, data: bytes) -> list[bytes]:
        """The lines that are whole now.

        Raises:
            TooLong: One has more bytes than it may.
        """
        first, *others = data.split(b"\n")
        self._rest += first
        lines = []
        for other in others:
            lines.append(bytes(self._rest))
            self._rest = bytearray(other)
        if max(map(len, (*lines, self._rest))) > self._longest:
            raise TooLong
        return lines

    def unfinished(self) -> bool:
        """Whether a line has begun."""
        return bool(self._rest.strip())


class StdioLink:
    """The link to a process: see `Link`. It can be entered once.

    Args:
        server: Of transport `stdio`.
        world: Its vault is asked for what `${...}` names.

    Raises:
        MissingSecret: As `open_link` says.
    """

    refusal: EgressRefused | None = None

    def __init__(self, server: Server, world: World) -> None:
        self._command = command_of(server, world.vault)
        self._hide = world.vault.hide_in_text
        self._lines = Lines()
        self._child = Child(self._heard, self._silent)
        self._intake = Intake(self._child.listen)
        self.ended = ""

    @property
    def garbage(self) -> int:
        """How many lines were no messages."""
        return self._intake.garbage

    async def __aenter__(self) -> TransportStreams:
        """Start the process.

        Raises:
            StartFailed: It can't be started.
        """
        await self._child.start(self._command)
        return self._intake.inbox, Outbox(self._child, self._intake.waiting)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        """End the process and what it started: 4.5 s at most; at once where this is cancelled."""
        self._over("was ended")
        ending = asyncio.ensure_future(self._child.end())
        try:
            await asyncio.shield(ending)
        except asyncio.CancelledError:
            self._child.hurry()
            with anyio.CancelScope(shield=True):
                await asyncio.wait({ending})
            raise
        finally:
            if not ending.done():
                self._child.kill()

    def said(self) -> str:
        """The end of stderr, masked."""
        raw = self._child.stderr
        text = self._hide(raw.decode("utf-8", "replace"))
        if len(raw) < 2 * SAID and len(text) <= SAID:
            return text
        text = text[-SAID:]
        return text.partition("\n")[2] or text

    def _heard(self, data: bytes) -> None:
        if self.ended:
            return
        try:
            lines = self._lines.add(data)
        except TooLong:
            self._too_long()
            return
        for line in lines:
            text = line.decode("utf-8", "replace").strip().removeprefix("\ufeff")
            if text and not self.ended:
                self._intake.read(text, len(line))
                self._count()
        if self._child.code is not None:
            self._silent()

    def _count(self) -> None:
        if self.garbage > GARBAGE:
            self._over(f"wrote more than {GARBAGE} lines to its stdout that are no messages")
            self._child.stop_listening()

    def _silent(self) -> None:
        """Its stdout has ended, or it has: no call waits for an answer that can't come."""
        if self.ended:
            return
        loop = asyncio.get_running_loop()
        if self._child.code is None:
            # Most often it ends a moment later, and can then be told how.
            loop.call_later(_LAST_WORDS, self._over, "closed its output, and did not end")
        elif self._child.waits_in_pipe():
            loop.call_later(_LAST_WORDS, self._dead)
        else:
            # What was read from the pipe already is heard before this is called.
            loop.call_soon(self._dead_if_quiet)

    def _dead_if_quiet(self) -> None:
        if not self._child.waits_in_pipe():
            self._dead()

    def _dead(self) -> None:
        self._over(self._how())

    def _how(self) -> str:
        code = self._child.code or 0
        cut = " in the middle of a message" if self._lines.unfinished() else ""
        if code >= 0:
            return f"exited with code {code}{cut}"
        try:
            return f"was ended by signal {signal.Signals(-code).name}{cut}"
        except ValueError:
            return f"was ended by signal {-code}{cut}"

    def _over(self, why: str) -> None:
        if not self.ended:
            self.ended = why
            self._intake.inbox.end()

    def _too_long(self) -> None:
        trouble = Trouble("too_large", f"the server sent a line longer than {format_size(LONGEST)}")
        only = self._intake.waiting.only()
        if only is not None:
            self._intake.fail(only, trouble, CONNECTION_CLOSED)
        self._over(trouble.message.removeprefix("the server "))
        self._child.stop_listening()


class Outbox:
    """Where messages are sent: a write stream of the SDK. Lines go out whole or not at all."""

    def __init__(self, child: Child, waiting: Waiting) -> None:
        self._child = child
        self._waiting = waiting
        self._closed = False

    async def send(self, item: SessionMessage, /) -> None:
        """Send a message, once what was sent before is on its way; requests wait for that, other messages do not.

        Raises:
            anyio.ClosedResourceError: This stream was closed.
            anyio.BrokenResourceError: The server takes nothing any more.
        """
        message = item.message
        line = message.model_dump_json(by_alias=True, exclude_unset=True).encode() + b"\n"
        try:
            if isinstance(message, JSONRPCRequest):
                await self._child.room()
            if self._closed:
                raise anyio.ClosedResourceError
            self._child.write(line)
        except BrokenPipeError:
            raise anyio.BrokenResourceError from None
        self._waiting.sent(message)

    async def aclose(self) -> None:
        """Send no more."""
        self._closed = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        await self.aclose()
