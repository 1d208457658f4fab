"""Servers over HTTP as it was before 2025-03-26 (2024-11-05, basic/transports, "HTTP with SSE").

One stream of events brings all messages. Its first event names the address that messages are posted to.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeAlias
from urllib.parse import urljoin, urlsplit

import anyio
import httpx2
from mcp.shared.message import SessionMessage
from mcp_types import CONNECTION_CLOSED, JSONRPCRequest

from toolcrib.core.server_config import Server
from toolcrib.http import HTTPError
from toolcrib.http.client import StreamedResponse
from toolcrib.http.event_stream import StreamEvent
from toolcrib.http.messages import origin_of, parse_origin
from toolcrib.servers.mcp.http_endpoint import Caller, Failed, trouble_of
from toolcrib.servers.mcp.incoming_messages import GARBAGE, Intake
from toolcrib.servers.mcp.streamable_http import Events
from toolcrib.servers.mcp.transports import PASSAGE, StartFailed, Trouble

if TYPE_CHECKING:
    from mcp.client._transport import TransportStreams

    from toolcrib.security.egress import EgressRefused

Stream: TypeAlias = AsyncGenerator[StreamEvent, None]

_STREAM = (("Accept", "text/event-stream"), ("Cache-Control", "no-store"))
_MESSAGE = (("Content-Type", "application/json"),)

_HINT = "see whether `url` is the server's stream of events (often `/sse`), and `transport`"

_PATIENCE = 10.0
"""Seconds of silence after a message that is no request."""


class EventLink:
    """The link over a stream of events: see `Link`. It can be entered once.

    Args:
        server: The server.
        caller: The way to it.
    """

    def __init__(self, server: Server, caller: Caller) -> None:
        self._server = server
        self._caller = caller
        self._intake = Intake(self._listen)
        self._go_on = asyncio.Event()
        self._go_on.set()
        self._stack: AsyncExitStack
        self._reading: asyncio.Task[None]
        self.ended = ""
        self.refusal: EgressRefused | None = None

    @property
    def garbage(self) -> int:
        """How many events were no messages."""
        return self._intake.garbage

    def said(self) -> str:
        """Nothing: what it writes to stderr stays with it."""
        return ""

    async def __aenter__(self) -> TransportStreams:
        """Connect, and learn where messages go.

        Raises:
            StartFailed: There is no stream, or it does not begin as one.
        """
        stack = AsyncExitStack()
        async with stack:
            stack.push_async_callback(self._caller.aclose)
            try:
                async with asyncio.timeout(self._server.start_timeout):
                    events, target = await self._begun(stack)
            except TimeoutError:
                seconds = f"{self._server.start_timeout:g} s"
                raise self._no_start(f"did not say where messages go within {seconds}", _HINT) from None
            self._stack = stack.pop_all()
        self._reading = asyncio.ensure_future(self._read(events))
        return self._intake.inbox, Outbox(self._caller, self._intake, target)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        """Close every connection."""
        self._over("was left")
        self._reading.cancel()
        with anyio.CancelScope(shield=True):
            await asyncio.wait([self._reading])
            await self._stack.aclose()

    async def _begun(self, stack: AsyncExitStack) -> tuple[Stream, str]:
        incoming = await self._opened()
        stack.push_async_callback(incoming.aclose)
        events = _read_events(incoming)
        stack.push_async_callback(events.aclose)
        return events, await self._target(incoming, events)

    async def _opened(self) -> StreamedResponse:
        try:
            incoming = await self._caller.send(self._caller.endpoint.request("GET", _STREAM), silence=None)
        except Failed as failed:
            self.refusal = failed.refusal
            self._over(f"can't be reached: {failed.trouble.message}")
            raise self._no_start(f"can't be reached: {failed.trouble.message}", failed.trouble.hint) from None
        if incoming.status == 200 and incoming.header("content-type").lower().startswith("text/event-stream"):
            return incoming
        trouble = trouble_of(incoming.status, dict(incoming.headers), b"", proves=self._caller.proves)
        await incoming.aclose()
        if trouble is None:
            trouble = Trouble("http_status", "the server answered with something that is no stream of events")
        raise self._no_start(trouble.message.removeprefix("the server "), trouble.hint)

    async def _target(self, incoming: StreamedResponse, events: Stream) -> str:
        """Path and query that messages are posted to; another origin than the server's own is refused."""
        try:
            incoming.check_stream()
            event = await anext(events, None)
        except HTTPError as error:
            raise self._no_start(f"answered with no stream: {error.message}", _HINT) from None
        except httpx2.ReadError as error:
            raise self._no_start(f"closed its stream: {error}", _HINT) from None
        if event is None or event.type != "endpoint":
            raise self._no_start("did not say where messages go", _HINT)
        asked = self._caller.endpoint.request("GET")
        try:
            parts = urlsplit(urljoin(asked.url, event.data.strip()))
            origin = origin_of(*parse_origin(f"{parts.scheme}://{parts.netloc}"))
        except ValueError:
            raise self._no_start("wants messages at what is no address", _HINT) from None
        if origin not in (asked.origin, self._caller.endpoint.written):
            raise self._no_start("wants messages at another origin than its own", _HINT)
        return (parts.path or "/") + (f"?{parts.query}" if parts.query else "")

    async def _read(self, events: Stream) -> None:
        try:
            async for event in events:
                if event.type == "message" and event.data:
                    self._intake.read(event.data, len(event.data))
                if self.garbage > GARBAGE:
                    self._over(f"sent more than {GARBAGE} events that are no messages")
                    return
                await self._go_on.wait()
        except httpx2.ReadError as error:
            self._over(f"broke off its stream: {error}")
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

    def _no_start(self, why: str, hint: str) -> StartFailed:
        return StartFailed(f"the server `{self._server.name}` {why}", hint=hint)


async def _read_events(incoming: StreamedResponse) -> Stream:
    """The events of a stream.

    Raises:
        httpx2.ReadError: It broke off, or an event is too large or not valid.
    """
    chunks = Events(incoming, None, None)
    async for _chunk in chunks:
        for event in chunks.complete:
            yield event


class Outbox:
    """Where messages are sent: a write stream of the SDK."""

    def __init__(self, caller: Caller, intake: Intake, target: str) -> None:
        self._caller = caller
        self._intake = intake
        self._target = target
        self._closed = False

    async def send(self, item: SessionMessage, /) -> None:
        """Post a message. A request that can't be posted is answered with an error.

        Raises:
            anyio.ClosedResourceError: This stream was closed.
        """
        if self._closed:
            raise anyio.ClosedResourceError
        message = item.message
        body = message.model_dump_json(by_alias=True, exclude_unset=True).encode()
        request = self._caller.endpoint.request("POST", _MESSAGE, body, self._target)
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
        except Failed as failed:
            trouble: Trouble | None = failed.trouble
        except HTTPError as error:
            trouble = Failed.by(error).trouble
        else:
            good = 200 <= answer.status < 300
            trouble = (
                None
                if good
                else trouble_of(answer.status, dict(answer.headers), told, proves=self._caller.proves)
            )
        if trouble is not None and isinstance(message, JSONRPCRequest):
            passage = PASSAGE.get()
            if passage is not None:
                passage.trouble = trouble
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
