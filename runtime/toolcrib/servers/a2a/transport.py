"""httpx for the SDK's client: every request goes through the `EndpointClient` of an agent, so that the egress guard dials it.

A failed exchange raises `ExchangeFailure`, which the SDK does not catch.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextvars import ContextVar
from typing import Final

import httpx

from toolcrib.core.model import OUTPUT_SIZE
from toolcrib.core.running_calls import Traffic
from toolcrib.core.text import format_size
from toolcrib.http import HTTPError
from toolcrib.http.client import StreamedResponse
from toolcrib.http.headers import OF_THE_CONNECTION, SENDER_WRITES
from toolcrib.servers.endpoint import EndpointClient, ExchangeFailure
from toolcrib.servers.mcp.transports import LinkTrouble

_NOT_OURS: Final = SENDER_WRITES | OF_THE_CONNECTION | {"accept-encoding", "user-agent", "cookie"}

_ENVELOPE: Final = 64 * 1024
"""Room for what surrounds a value of the permitted size, in bytes."""


class RequestTrace:
    """What the transport records about one call.

    Attributes:
        begun: Whether any part of a request may have reached the agent.
        most: Maximum size of a response, or of an event of a stream, in bytes.
        traffic: Counts what is sent and received; None to count nothing.
    """

    __slots__ = ("begun", "most", "traffic")

    def __init__(self, most: int = OUTPUT_SIZE, traffic: Traffic | None = None) -> None:
        self.begun = False
        self.traffic = traffic
        # The value occurs up to twice: as data, and as exact text.
        self.most = 2 * most + _ENVELOPE


REQUEST_TRACE: ContextVar[RequestTrace | None] = ContextVar("the trace of an A2A call", default=None)
"""The trace in which the transport records the requests of this context."""


class AgentTransport(httpx.AsyncBaseTransport):
    """Sends the requests of an httpx client to one agent.

    Args:
        endpoint: The client of the agent's endpoint.
    """

    def __init__(self, endpoint: EndpointClient) -> None:
        self._endpoint = endpoint

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Called by httpx."""
        headers = [
            (name.decode("ascii"), value.decode("latin-1"))
            for name, value in request.headers.raw
            if name.decode("ascii").lower() not in _NOT_OURS
        ]
        # The origin is that of the checked endpoint, whatever the SDK asks for.
        target = request.url.raw_path.decode("ascii")
        message = self._endpoint.endpoint.request(request.method, headers, await request.aread(), target)
        trace = REQUEST_TRACE.get() or RequestTrace()
        answer = await self._endpoint.send(
            message, silence=None, sending=_marks(trace), most=trace.most, traffic=trace.traffic
        )
        return httpx.Response(answer.status, headers=[*answer.headers], stream=_Body(answer, trace.most))


def _marks(trace: RequestTrace) -> Callable[[], None]:
    def sending() -> None:
        trace.begun = True

    return sending


class _Body(httpx.AsyncByteStream):
    """The body of a response as it arrives. A response, or one event of a stream, is bounded."""

    def __init__(self, answer: StreamedResponse, most: int) -> None:
        self._answer = answer
        self._most = most
        self._streams = answer.header("content-type").startswith("text/event-stream")

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size, last = 0, b""
        try:
            self._answer.check_stream()
            while chunk := await self._answer.chunk():
                size += len(chunk)
                if self._streams:
                    # An empty line ends an event; it may be split between two chunks.
                    end = max((last + chunk).rfind(line) for line in (b"\n\n", b"\r\n\r\n", b"\r\r"))
                    size = size if end < 0 else len(last) + len(chunk) - end
                    last = chunk[-3:]
                if size > self._most:
                    what = "an event" if self._streams else "the response"
                    message = f"{what} is larger than {format_size(self._most)}"
                    raise ExchangeFailure(LinkTrouble("response_too_large", message), sent=True)
                yield chunk
        except HTTPError as error:
            raise ExchangeFailure.by(error) from None

    async def aclose(self) -> None:
        """Called by httpx."""
        await self._answer.aclose()
