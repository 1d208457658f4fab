"""HTTP transports for MCP servers: streamable HTTP (2025-03-26 and later) and the older HTTP with SSE.

Both send through an `EndpointClient`, over sockets that the egress guard dials. The client knows the URL, headers and
authentication of a server, and maps a failed exchange to an `ExchangeFailure`.

For streamable HTTP, the SDK calls an httpx2 client, which calls `LinkTransport`. If an exchange fails, the transport
answers its request with an error and records the cause in the `CallTrace` of the call.

With SSE (2024-11-05, basic/transports, "HTTP with SSE"), one event stream delivers all messages. Its first event names
the URL that messages are posted to.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack
from contextvars import ContextVar
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias
from urllib.parse import urljoin, urlsplit

import anyio
import httpx2
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import (
    CONNECTION_CLOSED,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    RequestId,
)

from toolcrib.core.clock import RealClock
from toolcrib.core.message_splitter import MessageSplitter, OversizedMessage
from toolcrib.core.server_config import Server
from toolcrib.core.text import format_size
from toolcrib.http import HTTPError, HTTPFailure, HTTPRequest
from toolcrib.http.client import StreamedResponse
from toolcrib.http.event_stream import EventStream, StreamEvent
from toolcrib.http.headers import OF_THE_CONNECTION, SENDER_WRITES
from toolcrib.http.messages import origin_of, parse_origin
from toolcrib.security.egress import EgressRefused
from toolcrib.security.hosts import printable
from toolcrib.servers.endpoint import EndpointClient, ExchangeFailure
from toolcrib.servers.mcp.incoming_messages import (
    GARBAGE,
    Intake,
    MessageHead,
    PendingRequests,
    log_invalid_message,
    log_stray_response,
    parse_messages,
    read_head,
    trouble_of_invalid,
    trouble_of_oversized,
)
from toolcrib.servers.mcp.transports import (
    CALL_TRACE,
    CallTrace,
    LinkTrouble,
    StartFailure,
    Streams,
)

if TYPE_CHECKING:
    pass

_UNKNOWN_SESSION = -32000
"""The error code that servers of the TypeScript SDK return, with status 400, for an unknown session."""


def is_session_over(status: int, body: bytes) -> bool:
    """Whether the server refused a request because it does not know the session.

    The specification demands status 404 (2025-11-25, basic/transports, "Session Management").
    """
    if status == 404:
        return True
    error = _error_in(body) if status == 400 else None
    if error is None or error.get("code") != _UNKNOWN_SESSION:
        return False
    # -32000 is a generic server error; only the message distinguishes an unknown session.
    return "session" in str(error.get("message", "")).lower()


def trouble_in_status(
    status: int, headers: Mapping[str, str], body: bytes, *, proves: bool
) -> LinkTrouble | None:
    """The trouble that a status code reports; None if it is a success, or if the body contains a JSON-RPC error.

    Args:
        status: The final status code.
        headers: The response headers.
        body: The response body.
        proves: Whether the request carried credentials.
    """
    if status in (401, 403):
        hint = (
            "check that the credentials in `auth` are still valid"
            if proves
            else "add credentials to `auth` of the server"
        )
        return LinkTrouble("unauthorized", f"the server answered with status {status}", hint)
    if 300 <= status < 400:
        return LinkTrouble(
            "http_status", f"the server redirects{_to(headers)} (status {status})", "correct its `url`"
        )
    if status == 202 or (200 <= status < 300 and not _is_json(headers)):
        what = "no response" if status == 202 else "neither JSON nor an event stream"
        return LinkTrouble(
            "http_status", f"the server answered a request with status {status} and {what}", _SEE
        )
    if status < 400 or (_is_json(headers) and _error_in(body) is not None):
        return None
    return LinkTrouble(
        "http_status", f"the server answered with status {status}", _SEE if status in (404, 405) else ""
    )


_SEE = "check that `url` is the MCP endpoint of the server, and check `transport`"


def _is_json(headers: Mapping[str, str]) -> bool:
    return headers.get("content-type", "").lower().startswith("application/json")


def _to(headers: Mapping[str, str]) -> str:
    # Only the host: the path and query of a redirect may carry a token.
    try:
        host = urlsplit(headers.get("location", "")).hostname
    except ValueError:
        return ""
    return f" to `{printable(host)}`" if host else ""


def _error_in(body: bytes) -> dict[str, Any] | None:
    try:
        read = json.loads(body)
    except (ValueError, RecursionError):
        return None
    error = read.get("error") if isinstance(read, dict) else None
    return error if isinstance(error, dict) else None


_PATIENCE = 10.0
"""Read timeout in seconds for messages without a response: the next message waits for their status."""

_FREE = 10
_PAUSE = 1.0
"""Seconds before each stream after the first `_FREE` ones: the SDK reconnects as soon as the server allows."""

_PARTING = 2.0
"""Timeout in seconds for the request that ends a session."""

_EVENT_END = re.compile(rb"(?>\r\n|\n|\r)(?:\r\n|\n|\r)")
"""An event ends with an empty line. The atomic group keeps CRLF from counting as two line ends."""

_LARGER = "an event larger than"

_JSON = {"content-type": "application/json"}
_NOT_OURS = SENDER_WRITES | OF_THE_CONNECTION | {"accept-encoding", "user-agent", "cookie"}
_GIVEN_UP = HTTPError(HTTPFailure.CONNECTION_BROKEN, "the call was cancelled", sent=True)

_MESSAGE: ContextVar[JSONRPCMessage | None] = ContextVar("the message that is being sent", default=None)
"""The message that the SDK sends in this context. A context variable reaches the tasks that the SDK starts."""


class StreamableHttpLink:
    """The `Link` over streamable HTTP. It can be entered once, and sends nothing before the first message.

    Args:
        caller: The HTTP client of the server.
    """

    def __init__(self, caller: EndpointClient) -> None:
        self._caller = caller
        self._transport = LinkTransport(caller, self._lost)
        self._stack: AsyncExitStack
        self.ended = ""
        self.refusal: EgressRefused | None = None
        self.garbage = 0
        self.pid: int | None = None

    def said(self) -> str:
        """Nothing: what it writes to stderr stays with it."""
        return ""

    async def __aenter__(self) -> Streams:
        """Prepare to send."""
        endpoint = self._caller.endpoint
        async with AsyncExitStack() as stack:
            stack.push_async_callback(self._caller.aclose)
            # Without `trust_env=False`, HTTP_PROXY and `.netrc` would bypass the egress guard and add credentials.
            client = httpx2.AsyncClient(transport=self._transport, trust_env=False, timeout=None)
            await stack.enter_async_context(client)
            # `EventStreamBody` limits the event size: it can attribute the failure to its call, the SDK cannot.
            streams = streamable_http_client(endpoint.url, http_client=client, max_sse_event_size=None)
            read, write = await stack.enter_async_context(streams)
            self._stack = stack.pop_all()
        return read, StreamableHttpOutbox(write, self._transport)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        """End the session, and close every connection."""
        self.ended = self.ended or "was disconnected"
        await self._stack.__aexit__(kind, error, trace)

    def _lost(self, why: str, refusal: EgressRefused | None) -> None:
        self.ended = self.ended or why
        self.refusal = self.refusal or refusal


class StreamableHttpOutbox:
    """The SDK's write stream; it also tells the transport which message a request carries."""

    def __init__(self, inner: Any, transport: LinkTransport) -> None:
        self._inner = inner
        self._transport = transport

    async def send(self, item: SessionMessage, /) -> None:
        """Send a message. A cancellation also aborts the exchange of its request, in case the server ignores it."""
        message = item.message
        token = _MESSAGE.set(message)
        try:
            await self._inner.send(item)
        finally:
            _MESSAGE.reset(token)
            if isinstance(message, JSONRPCNotification) and message.method == "notifications/cancelled":
                self._transport.give_up((message.params or {}).get("requestId"))

    async def aclose(self) -> None:
        """Send no more."""
        await self._inner.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        await self.aclose()


class PendingExchange:
    """A JSON-RPC request that awaits its response.

    Attributes:
        number: The request ID.
        call_trace: Records the state of the call.
        scope: Cancelled when the request is cancelled before its response is a stream.
        given_up: Whether the request was cancelled.
        incoming: The response, once it is a stream.
        waiting: The request, as the one that the response may answer.
    """

    def __init__(self, number: RequestId, call_trace: CallTrace) -> None:
        self.number = number
        self.call_trace = call_trace
        self.waiting = PendingRequests()
        self.waiting.add(number, call_trace)
        self.scope = anyio.CancelScope()
        self.given_up = False
        self.incoming: StreamedResponse | None = None
        call_trace.trouble = None

    def give_up(self) -> None:
        """Stop waiting for the response."""
        self.given_up = True
        if self.incoming is None:
            self.scope.cancel()
        else:
            # `scope` ends with the response headers: only closing the connection ends a body.
            self.incoming.hang_up(_GIVEN_UP)

    def error(self, message: str) -> bytes:
        """A JSON-RPC error in place of the response."""
        return self.answer(ErrorData(code=CONNECTION_CLOSED, message=message))

    def answer(self, error: ErrorData) -> bytes:
        """A JSON-RPC error as the response."""
        return JSONRPCError(jsonrpc="2.0", id=self.number, error=error).model_dump_json().encode()


class LinkTransport(httpx2.AsyncBaseTransport):
    """Sends the requests of an httpx2 client to one server.

    Args:
        caller: The HTTP client of the server.
        lost: Called when the link becomes unusable, with the reason and the refusal of the egress guard, if any.
    """

    def __init__(self, caller: EndpointClient, lost: Callable[[str, EgressRefused | None], None]) -> None:
        self._caller = caller
        self._lost = lost
        self._gone = False
        self._streams = 0
        self._under_way: dict[object, PendingExchange] = {}

    def give_up(self, number: object) -> None:
        """Stop waiting for the response to a request."""
        exchange = self._under_way.get(number)
        if exchange is not None:
            exchange.give_up()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Called by httpx2."""
        if request.method == "GET":
            await self._pace()
        message = _MESSAGE.get()
        if not isinstance(message, JSONRPCRequest):
            return await self._passed(request)
        call_trace = CALL_TRACE.get() or CallTrace()
        before = call_trace.trouble
        if message.method == "tools/call":
            call_trace.request = message.id
        exchange = PendingExchange(message.id, call_trace)
        self._under_way[message.id] = exchange
        with exchange.scope:
            try:
                return await self._asked(request, exchange, called=message.method == "tools/call")
            except ExchangeFailure as failed:
                # An exception here would end the SDK's session and fail every other call of the link.
                return self._broken(exchange, failed)
            finally:
                if exchange.incoming is None:
                    self._settled(exchange)
                if request.method == "GET" and call_trace.trouble is not None:
                    # A failed attempt to resume must not hide why the stream broke off in the first place.
                    call_trace.trouble = before
        self._settled(exchange)
        return _answered(exchange.error(_GIVEN_UP.message))

    async def _pace(self) -> None:
        # A server that ends each stream with `retry: 0` would otherwise keep the SDK in a tight loop.
        self._streams += 1
        if self._streams > _FREE:
            await RealClock().sleep(_PAUSE)

    async def _passed(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request that awaits no JSON-RPC response: a notification, the listening GET, or the session DELETE."""
        leaving = request.method == "DELETE"
        # The session is over, or the server unreachable: a DELETE could only delay the shutdown.
        if leaving and self._gone:
            return httpx2.Response(503)
        silence = None if request.method == "GET" else _PATIENCE
        try:
            with anyio.fail_after(_PARTING if leaving else None):
                incoming = await self._caller.send(await self._ours(request), silence=silence)
            if _is_stream(incoming):
                incoming.check_stream()
                return _response(incoming, stream=EventStreamBody(incoming, self._caller.name, None, None))
            return await _whole(incoming)
        except ExchangeFailure as failed:
            if request.method == "POST":
                self._tell(failed)
        except (HTTPError, TimeoutError):
            pass  # nothing waits for this response
        return httpx2.Response(503)

    async def _asked(
        self, request: httpx2.Request, exchange: PendingExchange, *, called: bool
    ) -> httpx2.Response:
        def sending() -> None:
            exchange.call_trace.begun = exchange.call_trace.begun or called

        incoming = await self._caller.send(
            await self._ours(request), silence=None, sending=sending, most=exchange.call_trace.most
        )
        try:
            if _is_stream(incoming):
                incoming.check_stream()
                exchange.incoming = incoming
                body = EventStreamBody(incoming, self._caller.name, exchange, self._settled)
                return _response(incoming, stream=body)
            answer = await _whole(incoming)
        except HTTPError as error:
            await incoming.aclose()
            raise ExchangeFailure.by(error) from None
        if answer.is_success and _is_json(answer.headers):
            answer = self._checked(exchange, answer)
        self._judge(request, answer, exchange.call_trace)
        return answer

    def _checked(self, exchange: PendingExchange, answer: httpx2.Response) -> httpx2.Response:
        """The response to a request, if it is valid and has the ID of the request.

        Raises:
            ExchangeFailure: It is not.
        """
        # The SDK would pass a response with another ID to the request that has it.
        try:
            first, *others = parse_messages(answer.content.decode())
        except UnicodeDecodeError as error:
            raise ExchangeFailure(trouble_of_invalid(error), sent=True) from None
        if isinstance(first, ValueError):
            raise ExchangeFailure(trouble_of_invalid(first), sent=True)
        if isinstance(first, JSONRPCError) and first.id is None and not others:
            return _answered(exchange.answer(first.error))
        if others or not isinstance(first, JSONRPCResponse | JSONRPCError):
            raise ExchangeFailure(LinkTrouble("protocol_violation", "the body is not a response"), sent=True)
        if exchange.waiting.find(first.id) is None:
            raise ExchangeFailure(
                LinkTrouble("protocol_violation", "the response has the ID of another request"), sent=True
            )
        return answer

    def _judge(self, request: httpx2.Request, answer: httpx2.Response, call_trace: CallTrace) -> None:
        """Record the trouble that an HTTP status reports."""
        in_session = "mcp-session-id" in request.headers
        if in_session and is_session_over(answer.status_code, answer.content):
            call_trace.trouble = LinkTrouble("session_over", "the server no longer knows this session")
            self._gone = True
            self._lost("ended the session", None)
        else:
            call_trace.trouble = trouble_in_status(
                answer.status_code, answer.headers, answer.content, proves=self._caller.proves
            )

    def _broken(self, exchange: PendingExchange, failed: ExchangeFailure) -> httpx2.Response:
        self._tell(failed)
        exchange.call_trace.trouble = failed.trouble
        return _answered(exchange.error(failed.trouble.message))

    def _tell(self, failed: ExchangeFailure) -> None:
        if failed.lost:
            self._gone = True
            self._lost(f"cannot be reached: {failed.trouble.message}", failed.refusal)

    def _settled(self, exchange: PendingExchange) -> None:
        if self._under_way.get(exchange.number) is exchange:
            del self._under_way[exchange.number]

    async def _ours(self, request: httpx2.Request) -> HTTPRequest:
        """The request as sent: host and headers of the endpoint, path of the SDK's request (it follows redirects)."""
        # The SDK cannot override `Host` or the framing headers: those of the checked endpoint apply.
        headers = [
            (name.decode("ascii"), value.decode("latin-1"))
            for name, value in request.headers.raw
            if name.decode("ascii").lower() not in _NOT_OURS
        ]
        target = request.url.raw_path.decode("ascii")
        ours = self._caller.endpoint.request(request.method, headers, await request.aread(), target)
        upgraded = request.url.scheme == "https" and ours.scheme == "http"
        return ours._replace(scheme="https", port=443) if upgraded else ours


class EventStreamBody(httpx2.AsyncByteStream):
    """An event stream for the SDK to read. Events that are too large or not valid do not reach it.

    Args:
        incoming: The response.
        server: Name of the server, for logs.
        exchange: The request it responds to; None for the listening stream.
        settled: Called when the stream is closed.
    """

    def __init__(
        self,
        incoming: StreamedResponse,
        server: str,
        exchange: PendingExchange | None,
        settled: Callable[[PendingExchange], None] | None,
    ) -> None:
        self._incoming = incoming
        self._server = server
        self._exchange = exchange
        self._settled = settled
        self._waiting = PendingRequests() if exchange is None else exchange.waiting
        self._splitter = MessageSplitter(_EVENT_END, self._waiting.limit)
        self._events = EventStream(sys.maxsize)
        self._over = False

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self

    async def __anext__(self) -> bytes:
        """The next bytes."""
        passed = b""
        while not (passed or self._over):
            try:
                chunk = await self._incoming.chunk()
            except HTTPError as error:
                return self._broken(error)
            if not chunk:
                message = "the stream ended before the response arrived"
                self._note(LinkTrouble(HTTPFailure.CONNECTION_BROKEN.value, message))
                break
            for part in self._splitter.add(chunk):
                passed += self._smaller(part) if isinstance(part, OversizedMessage) else self._checked(part)
        if not passed:
            raise StopAsyncIteration
        return passed

    async def aclose(self) -> None:
        """Called by httpx2."""
        await self._incoming.aclose()
        if self._exchange is not None and self._settled is not None:
            self._settled(self._exchange)

    def _checked(self, part: bytes) -> bytes:
        """An event for the SDK; empty if it is not valid, or responds to another request."""
        if self._over:
            return b""
        for event in self._events.add(part):
            if event.type != "message" or not event.data:
                continue
            message, *others = parse_messages(event.data)
            if isinstance(message, ValueError) or others:
                error = message if isinstance(message, ValueError) else ValueError("a batch")
                log_invalid_message(self._server)
                if self._waiting.meant_by(event.data, error) is None:
                    return b""
                return self._replaced(trouble_of_invalid(error))
            # The SDK takes any response on the stream of a request for the response to this request.
            if (
                self._exchange is not None
                and isinstance(message, JSONRPCResponse | JSONRPCError)
                and message.id is not None
                and self._waiting.find(message.id) is None
            ):
                log_stray_response(self._server)
                return b""
        # A final CR may be half of a CRLF, and the SDK would wait for the other half.
        return part + b"\n" if part.endswith(b"\r") else part

    def _smaller(self, message: OversizedMessage) -> bytes:
        """What the SDK gets in place of an event that is too large."""
        if self._over:
            return b""
        head = read_event_head(message)
        numbers = self._waiting.answered_by(head)
        trouble = trouble_of_oversized(self._server, message, _LARGER, len(numbers))
        if numbers:
            return self._replaced(trouble._replace(code=HTTPFailure.RESPONSE_TOO_LARGE.value))
        rest = head.without_content()
        return b"" if rest is None else _event_of(rest.model_dump_json(exclude_unset=True).encode())

    def _broken(self, error: HTTPError) -> bytes:
        self._over = True
        if self._exchange is not None and self._exchange.given_up:
            return _event_of(self._exchange.error(error.message))
        self._note(LinkTrouble(error.fault.value, error.message, measured=error.measured))
        raise httpx2.ReadError(error.message) from None

    def _replaced(self, trouble: LinkTrouble) -> bytes:
        # An error response ends the request; after a broken stream the SDK would reconnect to resume it.
        self._over = True
        self._note(trouble)
        return b"" if self._exchange is None else _event_of(self._exchange.error(trouble.message))

    def _note(self, trouble: LinkTrouble) -> None:
        if self._exchange is not None:
            self._exchange.call_trace.trouble = trouble


def read_event_head(message: OversizedMessage) -> MessageHead:
    """What the beginning of an event tells about its message."""
    event = next(iter(EventStream(sys.maxsize).add(message.head + b"\n\n")), None)
    if event is None:
        return MessageHead()
    # Events of other types are not messages, so they answer nothing.
    return read_head(event.data) if event.type == "message" else MessageHead(answers_nothing=True)


def _event_of(message: bytes) -> bytes:
    return b"event: message\ndata: " + message + b"\n\n"


def _is_stream(incoming: StreamedResponse) -> bool:
    return 200 <= incoming.status < 300 and incoming.header("content-type").lower().startswith(
        "text/event-stream"
    )


async def _whole(incoming: StreamedResponse) -> httpx2.Response:
    try:
        body = await incoming.whole()
    finally:
        await incoming.aclose()
    return _response(incoming, content=body)


def _response(incoming: StreamedResponse, **body: Any) -> httpx2.Response:
    # The body is decoded already, so its coding and length no longer apply. A cookie would carry state between calls.
    dropped = {"content-encoding", "content-length", "transfer-encoding", "set-cookie"}
    headers = [(name, value) for name, value in incoming.headers if name not in dropped]
    return httpx2.Response(incoming.status, headers=headers, **body)


def _answered(body: bytes) -> httpx2.Response:
    return httpx2.Response(200, headers=_JSON, content=body)


Stream: TypeAlias = AsyncGenerator[StreamEvent | OversizedMessage, None]

_STREAM_HEADERS = (("Accept", "text/event-stream"), ("Cache-Control", "no-store"))
_POST_HEADERS = (("Content-Type", "application/json"),)

_HINT = "check that `url` is the server's event stream (often `/sse`), and check `transport`"


class SseLink:
    """The `Link` over HTTP with SSE. It can be entered once.

    Args:
        server: The server.
        caller: The HTTP client of the server.
    """

    def __init__(self, server: Server, caller: EndpointClient) -> None:
        self._server = server
        self._caller = caller
        self._intake = Intake(server.name, self._listen)
        self._go_on = asyncio.Event()
        self._go_on.set()
        self._stack: AsyncExitStack
        self._reading: asyncio.Task[None]
        self.ended = ""
        self.refusal: EgressRefused | None = None

    @property
    def pid(self) -> int | None:
        """See `Link`."""
        return None

    @property
    def garbage(self) -> int:
        """Number of events that were not valid messages."""
        return self._intake.garbage

    def said(self) -> str:
        """Nothing: what it writes to stderr stays with it."""
        return ""

    async def __aenter__(self) -> Streams:
        """Connect, and read the message endpoint.

        Raises:
            StartFailure: The server sent no event stream, or no valid message endpoint in time.
        """
        stack = AsyncExitStack()
        async with stack:
            stack.push_async_callback(self._caller.aclose)
            try:
                async with asyncio.timeout(self._server.start_timeout):
                    events, target = await self._begun(stack)
            except TimeoutError:
                seconds = f"{self._server.start_timeout:g} s"
                raise self._no_start(f"did not send its message endpoint within {seconds}", _HINT) from None
            self._stack = stack.pop_all()
        self._reading = asyncio.ensure_future(self._read(events))
        return self._intake.inbox, SseOutbox(self._caller, self._intake, target)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        """Close every connection."""
        self._over("was disconnected")
        self._reading.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait([self._reading])
            await self._stack.aclose()

    async def _begun(self, stack: AsyncExitStack) -> tuple[Stream, str]:
        incoming = await self._opened()
        stack.push_async_callback(incoming.aclose)
        events = _read_events(incoming, self._intake.waiting)
        stack.push_async_callback(events.aclose)
        return events, await self._target(incoming, events)

    async def _opened(self) -> StreamedResponse:
        try:
            incoming = await self._caller.send(
                self._caller.endpoint.request("GET", _STREAM_HEADERS), silence=None
            )
        except ExchangeFailure as failed:
            self.refusal = failed.refusal
            self._over(f"cannot be reached: {failed.trouble.message}")
            raise self._no_start(
                f"cannot be reached: {failed.trouble.message}", failed.trouble.hint
            ) from None
        if incoming.status == 200 and incoming.header("content-type").lower().startswith("text/event-stream"):
            return incoming
        trouble = trouble_in_status(incoming.status, dict(incoming.headers), b"", proves=self._caller.proves)
        await incoming.aclose()
        if trouble is None:
            trouble = LinkTrouble("http_status", "the server did not answer with an event stream")
        raise self._no_start(trouble.message.removeprefix("the server "), trouble.hint)

    async def _target(self, incoming: StreamedResponse, events: Stream) -> str:
        """Path and query that messages are posted to."""
        try:
            incoming.check_stream()
        except HTTPError as error:
            raise self._no_start(f"did not answer with an event stream: {error.message}", _HINT) from None
        try:
            event = await anext(events, None)
        except HTTPError as error:
            raise self._no_start(f"closed its stream: {error.message}", _HINT) from None
        if isinstance(event, OversizedMessage):
            size = format_size(event.limit)
            raise self._no_start(f"sent {_LARGER} {size} before its message endpoint", _HINT)
        if event is None or event.type != "endpoint":
            raise self._no_start("did not send its message endpoint", _HINT)
        asked = self._caller.endpoint.request("GET")
        try:
            parts = urlsplit(urljoin(asked.url, event.data.strip()))
            origin = origin_of(*parse_origin(f"{parts.scheme}://{parts.netloc}"))
        except ValueError:
            raise self._no_start("sent an invalid message endpoint", _HINT) from None
        # Messages carry the server's credentials: a compromised stream could otherwise send them to any host.
        if origin not in (asked.origin, self._caller.endpoint.written):
            raise self._no_start("sent a message endpoint with a different origin", _HINT)
        return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")

    async def _read(self, events: Stream) -> None:
        try:
            async for event in events:
                if isinstance(event, OversizedMessage):
                    self._intake.discard(event, _LARGER, read_event_head(event))
                elif event.type == "message" and event.data:
                    self._intake.read(event.data, len(event.data))
                if self.garbage > GARBAGE:
                    self._over(f"sent more than {GARBAGE} events that are not MCP messages")
                    return
                await self._go_on.wait()
        except HTTPError as error:
            self._over(f"aborted its stream: {error.message}")
        else:
            self._over("ended its stream")

    def _listen(self, on: bool) -> None:
        if on:
            self._go_on.set()
        else:
            self._go_on.clear()

    def _over(self, why: str) -> None:
        if not self.ended:
            self.ended = why
            self._intake.inbox.end()

    def _no_start(self, why: str, hint: str) -> StartFailure:
        return StartFailure(f"the server `{self._server.name}` {why}", hint=hint)


async def _read_events(incoming: StreamedResponse, waiting: PendingRequests) -> Stream:
    """The events of a stream.

    Raises:
        HTTPError: The stream broke off.
    """
    splitter, parser = MessageSplitter(_EVENT_END, waiting.limit), EventStream(sys.maxsize)
    while chunk := await incoming.chunk():
        for part in splitter.add(chunk):
            if isinstance(part, OversizedMessage):
                yield part
            else:
                for event in parser.add(part):
                    yield event


class SseOutbox:
    """The SDK's write stream: posts each message."""

    def __init__(self, caller: EndpointClient, intake: Intake, target: str) -> None:
        self._caller = caller
        self._intake = intake
        self._target = target
        self._closed = False

    async def send(self, item: SessionMessage, /) -> None:
        """Post a message. A request that cannot be posted is answered with an error.

        Raises:
            anyio.ClosedResourceError: This stream is closed.
        """
        if self._closed:
            raise anyio.ClosedResourceError
        message = item.message
        body = message.model_dump_json(by_alias=True, exclude_unset=True).encode()
        request = self._caller.endpoint.request("POST", _POST_HEADERS, body, self._target)
        asked = isinstance(message, JSONRPCRequest)
        try:
            sent = self._intake.waiting.sent
            answer = await self._caller.send(
                request, silence=None if asked else _PATIENCE, sending=lambda: sent(message)
            )
            try:
                told = await answer.whole()
            finally:
                await answer.aclose()
        except ExchangeFailure as failed:
            trouble: LinkTrouble | None = failed.trouble
        except HTTPError as error:
            trouble = ExchangeFailure.by(error).trouble
        else:
            good = 200 <= answer.status < 300
            trouble = (
                None
                if good
                else trouble_in_status(answer.status, dict(answer.headers), told, proves=self._caller.proves)
            )
        if trouble is not None and isinstance(message, JSONRPCRequest):
            call_trace = CALL_TRACE.get()
            if call_trace is not None:
                call_trace.trouble = trouble
            self._intake.fail(message.id, trouble, CONNECTION_CLOSED)

    async def aclose(self) -> None:
        """Send no more."""
        self._closed = True

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        await self.aclose()
