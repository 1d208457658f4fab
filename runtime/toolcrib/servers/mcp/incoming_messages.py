"""Parse the messages of a server, and queue them until the SDK reads them.

Invalid output is counted. If it replaces a response, the pending call fails without waiting for its timeout.
"""

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

# Servers must write only messages to stdout (2025-11-25, basic/transports), but some print banners or logs.
GARBAGE = 100
"""Number of lines or events that are tolerated although they are not messages."""

_FULL = 1024 * 1024
"""Size of unread messages in bytes beyond which reading pauses."""

_BEGINNING = 256
"""Number of characters in which a broken message must contain `"jsonrpc"`, unlike a log line."""


class Inbox:
    """A queue of received messages; a read stream for the SDK.

    Args:
        listen: See `Intake`.
    """

    def __init__(self, listen: Callable[[bool], None]) -> None:
        self._listen = listen
        self._messages: deque[tuple[SessionMessage | Exception, int]] = deque()
        self._held = 0
        self._ended = False
        self._arrived = asyncio.Event()

    def put(self, message: JSONRPCMessage, size: int) -> None:
        """Queue a message.

        Args:
            message: The message.
            size: Its size in bytes.
        """
        if self._ended:
            return
        self._messages.append((SessionMessage(message), size))
        self._held += size
        self._arrived.set()
        # The rest stays in the pipe, which blocks the server: otherwise one that sends faster than we read
        # fills our memory.
        if self._held > _FULL:
            self._listen(False)

    def end(self) -> None:
        """End the stream after the queued messages."""
        self._ended = True
        self._arrived.set()

    async def receive(self) -> SessionMessage | Exception:
        """Wait for the next message.

        Raises:
            anyio.EndOfStream: The stream has ended.
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
        """End the stream and drop the queued messages."""
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
    """Requests without a response so far."""

    def __init__(self) -> None:
        self._traces: dict[RequestId, CallTrace | None] = {}

    def sent(self, message: JSONRPCMessage) -> None:
        """Record that a message was sent: a request becomes pending, a cancelled one is dropped."""
        if isinstance(message, JSONRPCRequest):
            call_trace = CALL_TRACE.get()
            # Only `tools/call` can have an effect on the server; a `ping` or `tools/list` cannot.
            if call_trace is not None and message.method == "tools/call":
                call_trace.begun = True
            self._traces[message.id] = call_trace
        elif isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            self.drop((message.params or {}).get("requestId"))

    def drop(self, number: object) -> None:
        """Remove a request that was answered or cancelled, if it is pending."""
        # The SDK treats the IDs 7 and "7" as equal. `self` is the default because the trace may be None.
        for key in (number, str(number), _whole(number)):
            if isinstance(key, int | str) and self._traces.pop(key, self) is not self:
                return

    def only(self) -> RequestId | None:
        """The ID of the pending request; None if there is not exactly one."""
        return next(iter(self._traces)) if len(self._traces) == 1 else None

    def failed(self, number: RequestId, trouble: LinkTrouble, code: int) -> JSONRPCError:
        """Remove a request whose response cannot arrive, and return the error message that ends it.

        Args:
            number: ID of the request.
            trouble: The reason, which is also recorded in the trace of the call.
            code: The JSON-RPC error code.
        """
        call_trace = self._traces.pop(number, None)
        if call_trace is not None:
            call_trace.trouble = trouble
        return JSONRPCError(jsonrpc="2.0", id=number, error=ErrorData(code=code, message=trouble.message))

    def __contains__(self, number: object) -> bool:
        return number in self._traces


def _whole(number: object) -> object:
    # The ID comes from the server, and `int` raises an exception for more than 4,300 digits.
    return int(number) if isinstance(number, str) and number.isdecimal() and len(number) < 20 else None


class Intake:
    """Parses the output of a server, and matches it with the pending requests.

    Args:
        listen: Called with False to pause reading from the server, and with True to resume.

    Attributes:
        inbox: The received messages.
        waiting: The pending requests.
        garbage: Number of messages that were invalid.
    """

    def __init__(self, listen: Callable[[bool], None]) -> None:
        self.inbox = Inbox(listen)
        self.waiting = PendingRequests()
        self.garbage = 0

    def read(self, text: str, size: int) -> None:
        """Parse a line or an event.

        Args:
            text: The line, or the data of the event.
            size: Its size in bytes.
        """
        for message in parse_messages(text):
            if isinstance(message, ValueError):
                self._no_message(text, message)
            else:
                self._take(message, size)

    def fail(self, number: RequestId, trouble: LinkTrouble, code: int) -> None:
        """End a request whose response cannot arrive; see `PendingRequests.failed`."""
        self.inbox.put(self.waiting.failed(number, trouble, code), 0)

    def _take(self, message: JSONRPCMessage, size: int) -> None:
        if isinstance(message, JSONRPCError) and message.id is None:
            # A server that could not read the ID of a request answers with null (JSON-RPC 2.0, section 5).
            # The SDK drops such a response, and the caller would wait for its timeout.
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
        """The ID of the request that a broken message responds to; None if unknown."""
        try:
            read: Any = json.loads(text)
        except (ValueError, RecursionError):
            return self.waiting.only() if '"jsonrpc"' in text[:_BEGINNING] else None
        # The parser stops at the first duplicate key, so the broken member of the batch is unknown.
        if isinstance(read, list) and isinstance(error, DuplicateKey):
            return self.waiting.only()
        # Requests and notifications respond to nothing, and neither do logs that are written as JSON.
        if not isinstance(read, dict) or "method" in read or not read.keys() & {"result", "error"}:
            return None
        number = read.get("id")
        return number if isinstance(number, int | str) and number in self.waiting else self.waiting.only()


def parse_messages(text: str) -> list[JSONRPCMessage | ValueError]:
    """Parse a line: one message, or the messages of a batch (2025-03-26). Errors replace invalid messages.

    Messages nested deeper than about 200 levels are invalid, because the SDK's parser refuses them.
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
    # An empty batch is not a valid request (JSON-RPC 2.0, section 6).
    return [_message_of(each) for each in batch] or [ValueError("the batch is empty")]


def check_duplicate_keys(text: str | bytes) -> None:
    """Refuse a JSON text with a duplicate key. Other faults, and `NaN`, are left to the SDK's parser.

    Raises:
        DuplicateKey: An object contains a key twice.
    """
    # The SDK's parser keeps the last value silently. `NaN` must pass here: it makes one tool of a list
    # invalid, and the others stay usable.
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
