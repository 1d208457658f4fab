"""httpx over guarded connections: every connection of the client is opened by the egress guard."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import NoReturn

import httpx

from toolcrib.core.model import Call
from toolcrib.core.protocols import Clock
from toolcrib.core.running_calls import Traffic, traffic_of
from toolcrib.executors.python.services import ANY_HOST
from toolcrib.http.client import PerLoop, StreamedResponse, StreamingClient
from toolcrib.http.headers import OF_THE_CONNECTION, SENDER_WRITES
from toolcrib.http.messages import (
    DEFAULT_PORTS,
    ExchangeBounds,
    HTTPError,
    HTTPFailure,
    HTTPRequest,
    parse_origin,
)
from toolcrib.servers.environment import NetworkEnvironment

_OURS = SENDER_WRITES | OF_THE_CONNECTION | {"accept-encoding"}

_TIMEOUT = httpx.Timeout(15.0, connect=5.0)
"""Seconds, as for tools in mode `live`. The deadline of the call applies, too."""


class HTTPConnections:
    """The connections of Python tools in a runtime, for httpx clients.

    Args:
        world: The network environment.
    """

    def __init__(self, world: NetworkEnvironment) -> None:
        # It keeps the environment alive, so that the id of its guard is not reused.
        self.world = world
        self._clients = PerLoop(lambda: StreamingClient(world.guard))

    empty = False

    def client(self, call: Call) -> httpx.AsyncClient:
        """A new client for a call, without cookies. It shares the connections; closing it is not necessary."""
        return httpx.AsyncClient(transport=GuardedTransport(self, call), timeout=_TIMEOUT, trust_env=False)

    def blocking_client(self, call: Call, loop: asyncio.AbstractEventLoop) -> httpx.Client:
        """The same for a thread; its requests run in an event loop."""
        transport = BlockingTransport(GuardedTransport(self, call), loop)
        return httpx.Client(transport=transport, timeout=_TIMEOUT, trust_env=False)

    async def send(
        self, request: HTTPRequest, bounds: ExchangeBounds, silence: float | None, traffic: Traffic | None
    ) -> StreamedResponse:
        """Send a request, to the origin that replaces its own, if any. `traffic` counts it."""
        origin = self.world.instead_of(request.origin)
        if origin != request.origin:
            scheme, host, port = parse_origin(origin)
            request = request._replace(scheme=scheme, host=host, port=port)
        client = await self._clients.get()
        return await client.send(request, bounds, hosts=ANY_HOST, silence=silence, traffic=traffic)

    def retire(self) -> None:
        """Nothing: the connections belong to no single tool."""

    async def aclose(self) -> None:
        """Close all connections."""
        await self._clients.aclose()


class GuardedTransport(httpx.AsyncBaseTransport):
    """Sends the requests of a client over guarded connections.

    Args:
        connections: The connections.
        call: The call, whose usage counts the requests, and whose clock learns of the waits.
    """

    def __init__(self, connections: HTTPConnections, call: Call) -> None:
        self._connections = connections
        self._call = call
        self._clock = call.context.session.clock

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Called by httpx."""
        body = request.content if hasattr(request, "_content") else await request.aread()
        answer = await self.exchange(request, body)
        return httpx.Response(
            answer.status, headers=[*answer.headers], stream=_BodyStream(answer, request, self._clock)
        )

    async def exchange(self, request: httpx.Request, body: bytes) -> StreamedResponse:
        """Send a request, and read the headers of the response.

        Raises:
            httpx.TransportError: The exchange failed.
            EgressRefused: The guard refused the connection.
        """
        limits = request.extensions.get("timeout", {})
        bounds = ExchangeBounds()
        if limits.get("connect") is not None:
            bounds = bounds._replace(connect=limits["connect"])
        if traffic_of(self._call) is None:
            # A call is in sight from the first time that it waits.
            await asyncio.sleep(0)  # noqa: TID251 -- gives way once; no time passes
        try:
            with self._clock.outside():
                return await self._connections.send(
                    _message(request, body), bounds, limits.get("read"), traffic_of(self._call)
                )
        except HTTPError as error:
            _translate(error, request)


class BlockingTransport(httpx.BaseTransport):
    """Sends the requests of a client in a thread through the event loop of the runtime.

    Args:
        transport: The transport of the event loop.
        loop: The event loop.
    """

    def __init__(self, transport: GuardedTransport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        """Called by httpx."""
        request.read()  # a body that is read in this thread can be sent from the other one
        exchange = self._whole(request)
        return asyncio.run_coroutine_threadsafe(exchange, self._loop).result()

    async def _whole(self, request: httpx.Request) -> httpx.Response:
        answer = await self._transport.handle_async_request(request)
        # Not decoded: httpx decodes the content of a response by its headers.
        chunks = [chunk async for chunk in answer.stream]  # type: ignore[union-attr] # it is the stream of `GuardedTransport`
        await answer.aclose()
        return httpx.Response(answer.status_code, headers=answer.headers, content=b"".join(chunks))


class _BodyStream(httpx.AsyncByteStream):
    """The body of a response as it arrives."""

    def __init__(self, answer: StreamedResponse, request: httpx.Request, clock: Clock) -> None:
        self._answer = answer
        self._request = request
        self._clock = clock

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while True:
            try:
                with self._clock.outside():
                    chunk = await self._answer.chunk()
            except HTTPError as error:
                _translate(error, self._request)
            if not chunk:
                return
            yield chunk

    async def aclose(self) -> None:
        """Called by httpx."""
        await self._answer.aclose()


def _message(request: httpx.Request, body: bytes) -> HTTPRequest:
    url = request.url
    host = url.raw_host.decode("ascii").lower()
    scheme = url.scheme
    if scheme not in DEFAULT_PORTS or not host:
        raise httpx.UnsupportedProtocol(
            f"`{scheme}://{host}` is not an http or https address", request=request
        )
    headers = tuple(
        (name.decode("ascii"), value.decode("latin-1"))
        for name, value in request.headers.raw
        if name.decode("ascii").lower() not in _OURS
    )
    port = url.port or DEFAULT_PORTS[scheme]
    return HTTPRequest(
        request.method.upper(), scheme, host, port, url.raw_path.decode("ascii"), headers, body
    )


_KINDS: dict[HTTPFailure, type[httpx.TransportError]] = {
    HTTPFailure.CONNECT_FAILED: httpx.ConnectError,
    HTTPFailure.TLS_FAILED: httpx.ConnectError,
    HTTPFailure.CONNECT_TIMEOUT: httpx.ConnectTimeout,
    HTTPFailure.READ_TIMEOUT: httpx.ReadTimeout,
    HTTPFailure.WRITE_FAILED: httpx.WriteError,
    HTTPFailure.CONNECTION_BROKEN: httpx.ReadError,
    HTTPFailure.BAD_REQUEST: httpx.LocalProtocolError,
}


def _translate(error: HTTPError, request: httpx.Request) -> NoReturn:
    kind = _KINDS.get(error.fault, httpx.RemoteProtocolError)
    raise kind(error.message, request=request) from None
