"""Parse the messages of a server, and queue them until the SDK reads them.

Invalid output is counted. If it replaces a response, the pending call fails without waiting for its timeout. A message
that is too large is discarded while it is read; its beginning tells which request it answers, and only that one fails.
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections import deque
from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, NamedTuple, Self

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

from toolcrib.core.message_splitter import HEAD, OversizedMessage
from toolcrib.core.model import OUTPUT_SIZE
from toolcrib.core.text import DuplicateKey, format_size, unique_members
from toolcrib.servers.mcp.transports import CALL_TRACE, CallTrace, LinkTrouble

_log = logging.getLogger("toolcrib")

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
        self._lasting: set[RequestId] = set()

    def sent(self, message: JSONRPCMessage, size: int = 0) -> None:
        """Record that a message was sent: a request becomes pending, a cancelled one is dropped.

        Args:
            message: The message.
            size: Its bytes; 0 if they are counted elsewhere.
        """
        if isinstance(message, JSONRPCRequest):
            call_trace = CALL_TRACE.get()
            if size and call_trace is not None and call_trace.traffic is not None:
                call_trace.traffic.requests += 1
                call_trace.traffic.sent_bytes += size
            # Only `tools/call` can have an effect on the server; a `ping` or `tools/list` cannot.
            if call_trace is not None and message.method == "tools/call":
                call_trace.begun, call_trace.request = True, message.id
            self.add(message.id, call_trace)
            # A subscription is answered when it ends (2026-07-28, subscriptions), so a response of unknown origin
            # belongs to another request.
            if message.method == "subscriptions/listen":
                self._lasting.add(message.id)
        elif isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
            self.drop((message.params or {}).get("requestId"))

    def add(self, number: RequestId, call_trace: CallTrace | None) -> None:
        """Record a request."""
        self._traces[number] = call_trace

    def find(self, number: object) -> RequestId | None:
        """Return the ID of the pending request that a received ID matches, or None."""
        # The SDK treats the IDs 7 and "7" as equal. Python also treats 1 and True as equal.
        keys = () if isinstance(number, bool) else (number, str(number), _whole(number))
        return next((key for key in keys if isinstance(key, int | str) and key in self._traces), None)

    def drop(self, number: object, size: int = 0) -> bool:
        """Remove a request that was answered, by that many bytes, or cancelled; whether it was pending."""
        key = self.find(number)
        if key is None:
            return False
        call_trace = self._traces.pop(key)
        if call_trace is not None and call_trace.traffic is not None:
            call_trace.traffic.received_bytes += size
        self._lasting.discard(key)
        return True

    def only(self) -> RequestId | None:
        """The ID of the pending request; None if there is not exactly one."""
        numbers = self._expected()
        return numbers[0] if len(numbers) == 1 else None

    def answered_by(self, head: MessageHead) -> list[RequestId]:
        """The IDs of the requests that the message with this beginning may answer."""
        if head.answers_nothing:
            return []
        if head.number is None:
            return self._expected()
        key = self.find(head.number)
        return [] if key is None else [key]

    def limit(self, data: bytes | None = None) -> int:
        """The maximum size of a message in bytes.

        Args:
            data: The beginning of the message; None for the smallest limit that a message may have now.
        """
        if data is None:
            return min((OUTPUT_SIZE, *map(self._limit_of, self._traces)))
        numbers = self.answered_by(read_head(data))
        return max(map(self._limit_of, numbers), default=OUTPUT_SIZE)

    def failed(self, number: RequestId, trouble: LinkTrouble, code: int) -> JSONRPCError:
        """Remove a request whose response cannot arrive, and return the error message that ends it.

        Args:
            number: ID of the request.
            trouble: The reason, which is also recorded in the trace of the call.
            code: The JSON-RPC error code.
        """
        call_trace = self._traces.pop(number, None)
        self._lasting.discard(number)
        if call_trace is not None:
            call_trace.trouble = trouble
        return JSONRPCError(jsonrpc="2.0", id=number, error=ErrorData(code=code, message=trouble.message))

    def meant_by(self, text: str, error: ValueError) -> RequestId | None:
        """The ID of the request that a broken message responds to; None if unknown.

        Args:
            text: The message.
            error: Why it is not valid.
        """
        try:
            read: Any = json.loads(text)
        except (ValueError, RecursionError):
            if '"jsonrpc"' not in text[:_BEGINNING]:
                return None
            numbers = self.answered_by(read_head(text))
            return numbers[0] if len(numbers) == 1 else None
        # The parser stops at the first duplicate key, so the broken member of the batch is unknown.
        if isinstance(read, list) and isinstance(error, DuplicateKey):
            return self.only()
        # Requests and notifications respond to nothing, and neither do logs that are written as JSON.
        if not isinstance(read, dict) or "method" in read or not read.keys() & {"result", "error"}:
            return None
        number = read.get("id")
        usable = isinstance(number, int | str) and not isinstance(number, bool)
        # `id` may be the key that occurs twice.
        if not usable or (isinstance(error, DuplicateKey) and read_head(text).number != number):
            return self.only()
        return self.find(number)

    def _expected(self) -> list[RequestId]:
        return [number for number in self._traces if number not in self._lasting]

    def _limit_of(self, number: RequestId) -> int:
        call_trace = self._traces[number]
        return OUTPUT_SIZE if call_trace is None else call_trace.most


def _whole(number: object) -> object:
    # The ID comes from the server, and `int` raises an exception for more than 4,300 digits.
    return int(number) if isinstance(number, str) and number.isdecimal() and len(number) < 20 else None


class Intake:
    """Parses the output of a server, and matches it with the pending requests.

    Args:
        server: Name of the server, for logs.
        listen: Called with False to pause reading from the server, and with True to resume.

    Attributes:
        inbox: The received messages.
        waiting: The pending requests.
        garbage: Number of messages that were invalid.
    """

    def __init__(self, server: str, listen: Callable[[bool], None]) -> None:
        self.inbox = Inbox(listen)
        self.waiting = PendingRequests()
        self.garbage = 0
        self._server = server

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

    def discard(self, message: OversizedMessage, what: str, head: MessageHead) -> None:
        """End the requests that an oversized message may answer.

        Args:
            message: The message.
            what: What it is, such as `a line longer than`.
            head: What its beginning tells.
        """
        numbers = self.waiting.answered_by(head)
        trouble = trouble_of_oversized(self._server, message, what, len(numbers))
        for number in numbers:
            self.fail(number, trouble, CONNECTION_CLOSED)
        rest = head.without_content()
        if rest is not None:
            self._take(rest, 0)

    def _take(self, message: JSONRPCMessage, size: int) -> None:
        if isinstance(message, JSONRPCError) and message.id is None:
            # A server that could not read the ID of a request answers with null (JSON-RPC 2.0, section 5).
            # The SDK drops such a response, and the caller would wait for its timeout.
            message.id = self.waiting.only()
        if isinstance(message, JSONRPCResponse | JSONRPCError) and not self.waiting.drop(message.id, size):
            log_stray_response(self._server)  # the SDK drops it, too
        self.inbox.put(message, size)

    def _no_message(self, text: str, error: ValueError) -> None:
        self.garbage += 1
        log_invalid_message(self._server)
        number = self.waiting.meant_by(text, error)
        if number is not None:
            self.fail(number, trouble_of_invalid(error), PARSE_ERROR)


def trouble_of_invalid(error: ValueError) -> LinkTrouble:
    """The trouble of a request whose response is not valid."""
    message = "the response is not a valid MCP message"
    if isinstance(error, DuplicateKey):
        message += f": {error}"
    return LinkTrouble("protocol_violation", message)


def trouble_of_oversized(server: str, message: OversizedMessage, what: str, count: int) -> LinkTrouble:
    """Log that an oversized message was discarded, and return the trouble of the requests that it may answer.

    Args:
        server: Name of the server.
        message: The message.
        what: What it is, such as `a line longer than`.
        count: Number of the requests.
    """
    size = format_size(message.limit)
    # A request that ends reports it by its outcome.
    level = logging.DEBUG if count else logging.WARNING
    _log.log(level, "the server `%s` sent %s %s, which was discarded", server, what, size)
    fault = f"the server sent {what} {size}"
    if count <= 1:
        return LinkTrouble("too_large", fault, measured=message.limit + 1)
    fault += f" without an `id` in its first {format_size(HEAD)}, while {count} requests waited"
    return LinkTrouble("unidentified_response", fault)


def log_invalid_message(server: str) -> None:
    """Log output that is not a valid message."""
    _log.debug("the server `%s` sent output that is not a valid MCP message", server)


def log_stray_response(server: str) -> None:
    """Log a response to no pending request: answered twice, answered after it was cancelled, or with another ID."""
    _log.debug("the server `%s` sent a response to no pending request", server)


class MessageHead(NamedTuple):
    """What the beginning of a JSON-RPC message tells about it.

    Attributes:
        number: Its ID; None if the beginning holds no valid one.
        method: Its method; empty if the beginning holds none.
        answers_nothing: Whether it is a request or notification.
    """

    number: RequestId | None = None
    method: str = ""
    answers_nothing: bool = False

    def without_content(self) -> JSONRPCMessage | None:
        """The request or notification without its parameters; None if it is unknown.

        The SDK refuses such a request, so the server does not wait for the response, and a notification that only
        announces a change still counts.
        """
        if not self.method:
            return None
        if self.number is None:
            return JSONRPCNotification(jsonrpc="2.0", method=self.method)
        return JSONRPCRequest(jsonrpc="2.0", id=self.number, method=self.method)


def read_head(data: bytes | str) -> MessageHead:
    """Read the members of a JSON-RPC message whose end is missing. Members of nested objects do not count."""
    text = data.decode("utf-8", "replace") if isinstance(data, bytes) else data
    number: RequestId | None = None
    method, kinds = "", set[str]()
    for key, value in _read_members(text.lstrip("\ufeff \t\r\n")):
        if key == "id" and number is None and isinstance(value, int | str) and not isinstance(value, bool):
            number = value
        elif key == "method":
            method = value if isinstance(value, str) else ""
        kinds.add(key)
        if number is not None and kinds & {"result", "error"}:
            break  # a large result follows, which need not be searched
    return MessageHead(number, method, bool(kinds & {"method", "params"}))


_KEY = re.compile(r'[\s,]*("[^"\\]*(?:\\.[^"\\]*)*")\s*:\s*', re.DOTALL)
_VALUE = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|[^\s,"{}\[\]]+(?=[\s,}])', re.DOTALL)
_MARK = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"|["{}\[\]]', re.DOTALL)


def _read_members(text: str) -> Iterator[tuple[str, object]]:
    """The members of an object; the value of one that is nested, cut off or invalid is None."""
    at: int | None = 1 if text.startswith("{") else None
    while at is not None and (key := _KEY.match(text, at)):
        name, at = _decoded(key[1]), key.end()
        if not isinstance(name, str):
            return
        value = _VALUE.match(text, at)
        yield name, None if value is None else _decoded(value[0])
        at = _after_nested(text, at) if value is None else value.end()


def _decoded(text: str) -> object:
    try:
        return json.loads(text)
    except ValueError:
        return None


def _after_nested(text: str, at: int) -> int | None:
    """The end of the object or list at a position; None if the text ends within it."""
    depth = 0
    for mark in _MARK.finditer(text, at):
        if mark[0] == '"':  # the text ends within this string
            return None
        depth += {"{": 1, "[": 1, "}": -1, "]": -1}.get(mark[0], 0)
        if depth <= 0:
            return mark.end()
    return None


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
