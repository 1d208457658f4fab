"""Messages that come from a server: told apart from what is none, and kept until they are taken."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

import anyio
from mcp.shared.message import SessionMessage
from mcp_types import (
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

from toolcrib.core.text import DuplicateKey, unique_members
from toolcrib.servers.mcp.transports import CALL_TRACE, CallTrace, LinkTrouble

GARBAGE = 100
"""How many lines may be no messages."""

_FULL = 1024 * 1024
"""Bytes of messages that were not taken yet from which on no more are heard."""

_BEGINNING = 256


class Inbox:
    """Messages that came and wait to be taken: a read stream of the SDK.

    Args:
        listen: As `Intake` takes it.
    """

    def __init__(self, listen: Callable[[bool], None]) -> None:
        self._listen = listen
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
            self._listen(False)

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
            self._listen(True)
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


class PendingRequests:
    """Requests that were not answered yet."""

    def __init__(self) -> None:
        self._traces: dict[RequestId, CallTrace | None] = {}

    def sent(self, message: JSONRPCMessage) -> None:
        """A message is on its way: a request, whose call may have reached the server from now on, or one called off."""
        if isinstance(message, JSONRPCRequest):
            call_trace = CALL_TRACE.get()
            if call_trace is not None and message.method == "tools/call":
                call_trace.begun = True
            self._traces[message.id] = call_trace
        elif isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            self.drop((message.params or {}).get("requestId"))

    def drop(self, number: object) -> None:
        """A request was answered, or is not waited for any more."""
        for key in (number, str(number), _whole(number)):
            if isinstance(key, int | str) and self._traces.pop(key, self) is not self:
                return

    def only(self) -> RequestId | None:
        """The one request that waits; none where there are several."""
        return next(iter(self._traces)) if len(self._traces) == 1 else None

    def failed(self, number: RequestId, trouble: LinkTrouble, code: int) -> JSONRPCError:
        """What ends a request whose answer can't come."""
        call_trace = self._traces.pop(number, None)
        if call_trace is not None:
            call_trace.trouble = trouble
        return JSONRPCError(jsonrpc="2.0", id=number, error=ErrorData(code=code, message=trouble.message))

    def __contains__(self, number: object) -> bool:
        return number in self._traces


def _whole(number: object) -> object:
    return int(number) if isinstance(number, str) and number.isdecimal() and len(number) < 20 else None


class Intake:
    """What comes from a server, and the requests that wait for it.

    Args:
        listen: Called with false where no more should be heard for now, with true where it should again.

    Attributes:
        inbox: The messages.
        waiting: The requests.
        garbage: How many lines were no messages.
    """

    def __init__(self, listen: Callable[[bool], None]) -> None:
        self.inbox = Inbox(listen)
        self.waiting = PendingRequests()
        self.garbage = 0

    def read(self, text: str, size: int) -> None:
        """Take a line or an event in, of so many bytes."""
        for message in parse_messages(text):
            if isinstance(message, ValueError):
                self._no_message(text, message)
            else:
                self._take(message, size)

    def fail(self, number: RequestId, trouble: LinkTrouble, code: int) -> None:
        """End a request whose answer can't come."""
        self.inbox.put(self.waiting.failed(number, trouble, code), 0)

    def _take(self, message: JSONRPCMessage, size: int) -> None:
        if isinstance(message, JSONRPCError) and message.id is None:
            # The server could not read the number of what it answers: with one request under way there is no doubt.
            message.id = self.waiting.only()
        if isinstance(message, JSONRPCResponse | JSONRPCError):
            self.waiting.drop(message.id)
        self.inbox.put(message, size)

    def _no_message(self, text: str, error: ValueError) -> None:
        self.garbage += 1
        number = self._meant(text, error)
        if number is not None:
            message = "the response is not a valid MCP message"
            if isinstance(error, DuplicateKey):
                message += f": {error}"
            self.fail(number, LinkTrouble("protocol_violation", message), PARSE_ERROR)

    def _meant(self, text: str, error: ValueError) -> RequestId | None:
        """The request that a broken message is an answer to, as far as can be seen."""
        try:
            read: Any = json.loads(text)
        except (ValueError, RecursionError):
            return self.waiting.only() if '"jsonrpc"' in text[:_BEGINNING] else None
        if isinstance(read, list) and isinstance(error, DuplicateKey):
            return self.waiting.only()
        if not isinstance(read, dict) or "method" in read or not read.keys() & {"result", "error"}:
            return None
        number = read.get("id")
        return number if isinstance(number, int | str) and number in self.waiting else self.waiting.only()


def parse_messages(text: str) -> list[JSONRPCMessage | ValueError]:
    """The messages of a line: one, or those of a batch (2025-03-26); what is wrong in place of what is none.

    What is nested deeper than 200 levels is none: the SDK's parser ends there.
    """
    try:
        check_duplicate_keys(text)
        return [jsonrpc_message_adapter.validate_json(text, by_name=False)]
    except ValueError as error:
        if isinstance(error, DuplicateKey) or not text.startswith("["):
            return [error]
    try:
        batch = json.loads(text)
    except (ValueError, RecursionError):
        return [ValueError("not valid JSON")]
    return [_message_of(each) for each in batch] or [ValueError("the batch is empty")]


def check_duplicate_keys(text: str | bytes) -> None:
    """Refuse a JSON text with a key that is there twice; what is wrong else, the SDK's parser says.

    As by that, `NaN` is passed over: one tool whose definition holds it takes no other away.

    Raises:
        DuplicateKey: An object has a key twice.
    """
    try:
        json.loads(text, object_pairs_hook=unique_members)
    except DuplicateKey:
        raise
    except (ValueError, RecursionError):
        pass


def _message_of(value: object) -> JSONRPCMessage | ValueError:
    try:
        return jsonrpc_message_adapter.validate_python(value, by_name=False)
    except ValueError as error:
        return error
