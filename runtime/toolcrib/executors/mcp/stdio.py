"""A server as a process of ours: one JSON-RPC message a line, over its stdin and stdout (2025-11-25, basic/transports)."""

from __future__ import annotations

import asyncio
import json
import signal
from collections import deque
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import (
    CONNECTION_CLOSED,
    PARSE_ERROR,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
    jsonrpc_message_adapter,
)

from toolcrib.executors.mcp.children import SAID, Child
from toolcrib.executors.mcp.commands import command_of
from toolcrib.executors.mcp.links import PASSAGE, Passage, Trouble
from toolcrib.servers import Server
from toolcrib.world import World

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

    from toolcrib.egress import EgressRefused

LONGEST = 4 * 1024 * 1024
"""Bytes of a line."""

GARBAGE = 100
"""How many lines may be no messages."""

_FULL = 1024 * 1024
"""Bytes of messages that were not taken yet from which on no more are heard; they wait in the pipe."""

_LAST_WORDS = 1.0
"""Seconds for which what a dead server wrote is heard, where somebody else still holds its stdout."""

_BEGINNING = 256


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


class Inbox:
    """Messages that came and wait to be taken: a read stream of the SDK.

    Args:
        child: Is told to wait where too much was not taken.
    """

    def __init__(self, child: Child) -> None:
        self._child = child
        self._messages: deque[tuple[SessionMessage | Exception, int]] = deque()
        self._held = 0
        self._ended = False
        self._arrived = asyncio.Event()

    def put(self, message: JSONRPCMessage, size: int) -> None:
        """Let a message wait, of so many bytes."""
        if self._ended:
            return
        self._messages.append((SessionMessage(message), size))
        self._held += size
        self._arrived.set()
        if self._held > _FULL:
            self._child.listen(on=False)

    def end(self) -> None:
        """Nothing more comes."""
        self._ended = True
        self._arrived.set()

    async def receive(self) -> SessionMessage | Exception:
        """The next message.

        Raises:
            anyio.EndOfStream: None comes any more.
        """
        while not self._messages:
            if self._ended:
                raise anyio.EndOfStream
            self._arrived.clear()
            await self._arrived.wait()
        message, size = self._messages.popleft()
        if self._held > _FULL >= self._held - size:
            self._child.listen(on=True)
        self._held -= size
        return message

    async def aclose(self) -> None:
        """Take no more."""
        self.end()
        self._messages.clear()

    def __aiter__(self) -> Inbox:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        try:
            return await self.receive()
        except anyio.EndOfStream:
            raise StopAsyncIteration from None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        await self.aclose()


class Waiting:
    """Requests that were not answered yet."""

    def __init__(self) -> None:
        self._passages: dict[RequestId, Passage | None] = {}

    def add(self, request: JSONRPCRequest) -> None:
        """A request is being sent; its call may have reached the server from now on."""
        passage = PASSAGE.get()
        if passage is not None and request.method == "tools/call":
            passage.begun = True
        self._passages[request.id] = passage

    def drop(self, number: object) -> None:
        """A request was answered, or is not waited for any more."""
        for key in (number, str(number), _whole(number)):
            if isinstance(key, int | str) and self._passages.pop(key, self) is not self:
                return

    def only(self) -> RequestId | None:
        """The one request that waits; none where there are several."""
        return next(iter(self._passages)) if len(self._passages) == 1 else None

    def failed(self, number: RequestId, trouble: Trouble, code: int) -> JSONRPCError:
        """What ends a request whose answer can't come."""
        passage = self._passages.pop(number, None)
        if passage is not None:
            passage.trouble = trouble
        return JSONRPCError(jsonrpc="2.0", id=number, error=ErrorData(code=code, message=trouble.message))

    def __contains__(self, number: object) -> bool:
        return number in self._passages


def _whole(number: object) -> object:
    return int(number) if isinstance(number, str) and number.isdecimal() and len(number) < 20 else None


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
        self._waiting = Waiting()
        self._child = Child(self._heard, self._silent)
        self._inbox = Inbox(self._child)
        self.ended = ""
        self.garbage = 0

    async def __aenter__(self) -> TransportStreams:
        """Start the process.

        Raises:
            StartFailed: It can't be started.
        """
        await self._child.start(self._command)
        return self._inbox, Outbox(self._child, self._waiting)

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
                await ending
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
            self._read(line)
        if self._child.code is not None:
            self._silent()

    def _silent(self) -> None:
        """Its stdout has ended, or it has: no call waits for an answer that can't come."""
        child = self._child
        if self.ended:
            return
        if child.code is None:
            # Most often it ends a moment later, and can then be told how.
            asyncio.get_running_loop().call_later(
                _LAST_WORDS, self._over, "closed its output, and did not end"
            )
        elif child.waits_in_pipe():
            asyncio.get_running_loop().call_later(_LAST_WORDS, self._over, self._how())
        else:
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
            self._inbox.end()

    def _too_long(self) -> None:
        trouble = Trouble("too_large", f"the server sent a line longer than {LONGEST // 1024 // 1024} MiB")
        only = self._waiting.only()
        if only is not None:
            self._inbox.put(self._waiting.failed(only, trouble, CONNECTION_CLOSED), 0)
        self._over(trouble.message.removeprefix("the server "))
        self._child.stop_listening()

    def _read(self, line: bytes) -> None:
        text = line.decode("utf-8", "replace").strip().removeprefix("\ufeff")
        if not text or self.ended:
            return
        for message in messages_in(text):
            if message is None:
                self._no_message(text)
            else:
                self._take(message, len(line))

    def _take(self, message: JSONRPCMessage, size: int) -> None:
        if isinstance(message, JSONRPCError) and message.id is None:
            # The server could not read the number of what it answers: with one request under way there is no doubt.
            message.id = self._waiting.only()
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            self._waiting.drop(message.id)
        self._inbox.put(message, size)

    def _no_message(self, text: str) -> None:
        self.garbage += 1
        number = self._meant(text)
        if number is not None:
            trouble = Trouble(
                "protocol_violation", "what the server answered is no valid message of the protocol"
            )
            self._inbox.put(self._waiting.failed(number, trouble, PARSE_ERROR), 0)
        if self.garbage > GARBAGE:
            self._over(f"wrote more than {GARBAGE} lines to its stdout that are no messages")
            self._child.stop_listening()

    def _meant(self, text: str) -> RequestId | None:
        """The request that a broken message is an answer to, as far as can be seen."""
        try:
            read: Any = json.loads(text)
        except (ValueError, RecursionError):
            return self._waiting.only() if '"jsonrpc"' in text[:_BEGINNING] else None
        if not isinstance(read, dict) or "method" in read or not read.keys() & {"result", "error"}:
            return None
        number = read.get("id")
        return number if isinstance(number, int | str) and number in self._waiting else self._waiting.only()


def messages_in(text: str) -> list[JSONRPCMessage | None]:
    """The messages of a line: one, or those of a batch (2025-03-26); None for what is none.

    What is nested deeper than 200 levels is none: the SDK's parser ends there.
    """
    try:
        return [jsonrpc_message_adapter.validate_json(text, by_name=False)]
    except ValueError:
        pass
    if not text.startswith("["):
        return [None]
    try:
        batch = json.loads(text)
    except (ValueError, RecursionError):
        return [None]
    return [_message_of(each) for each in batch] or [None]


def _message_of(value: object) -> JSONRPCMessage | None:
    try:
        return jsonrpc_message_adapter.validate_python(value, by_name=False)
    except ValueError:
        return None


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
        if isinstance(message, JSONRPCRequest):
            self._waiting.add(message)
        elif isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            self._waiting.drop((message.params or {}).get("requestId"))

    async def aclose(self) -> None:
        """Send no more."""
        self._closed = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        await self.aclose()
