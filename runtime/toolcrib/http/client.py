"""The HTTP clients: httpcore's HTTP/1.1 over connections that the egress guard dialled, and pools of our own.

`HTTPClient` reads answers whole; `StreamingClient` hands them out as they come: event streams, and whatever may take as
long as it likes. Both write requests and check answers alike.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Collection
from functools import partial
from threading import Lock
from typing import Generic, NamedTuple, Protocol, TypeVar, cast

import httpcore

from toolcrib.http.connect import IDLE_MOST, IDLE_SECONDS, Connector, keep_quiet
from toolcrib.http.connection import HTTPConnection, SocketStream
from toolcrib.http.headers import request_headers, request_target, response_headers
from toolcrib.http.messages import (
    ExchangeBounds,
    HTTPError,
    HTTPFailure,
    HTTPRequest,
    HTTPResponse,
    bad_response,
    client_closed,
    connection_broken,
)
from toolcrib.http.response_body import body_reader
from toolcrib.security.egress import EgressGuard

_VERSIONS = (b"HTTP/1.1", b"HTTP/1.0")
_ENDLESS = 1 << 62


class _Stale(Exception):
    """A kept connection was dead before any byte of the answer came."""


class _Key(NamedTuple):
    """Whose connections may be reused for what."""

    owner: str
    scheme: str
    host: str
    port: int
    hosts: tuple[str, ...]


class _Connection:
    """A connection to one origin.

    Attributes:
        used: Whether an exchange went over it already.
        since: When it had no work any more.
    """

    __slots__ = ("http", "origin", "since", "used", "wire")

    def __init__(self, request: HTTPRequest, wire: SocketStream) -> None:
        self.origin = httpcore.Origin(request.scheme.encode(), request.host.encode(), request.port)
        self.http = HTTPConnection(self.origin, wire)
        self.wire = wire
        self.used = False
        self.since = 0.0


class _Pool:
    """The connections of one event loop.

    Args:
        patience: Seconds for which one without work is kept.

    Attributes:
        closed: Whether no more of them may be made.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience
        self._idle: dict[_Key, list[_Connection]] = {}
        self._wires: set[SocketStream] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self.closed = False

    def made(self) -> SocketStream:
        """A wire that is closed with the pool."""
        return SocketStream(self._wires)

    def take(self, key: _Key) -> _Connection | None:
        """The connection that was used last, if it is still good."""
        idle = self._idle.get(key)
        while idle:
            connection = idle.pop()
            if connection.since > time.monotonic() - self._patience and connection.wire.quiet():
                return connection
            connection.wire.hang_up()
        return None

    def settle(self, key: _Key, connection: _Connection) -> None:
        """Keep a connection for the next exchange, if it can have one."""
        good = connection.http.is_idle() and not connection.http.surplus()
        idle = self._idle.setdefault(key, [])
        if self.closed or not good or len(idle) >= IDLE_MOST:
            connection.wire.hang_up()
            return
        connection.wire.rest()
        connection.since = time.monotonic()
        idle.append(connection)
        if self._sweep is None:
            self._sweep = asyncio.get_running_loop().call_later(self._patience, self._drop_the_old)

    async def aclose(self) -> None:
        self.closed = True
        if self._sweep is not None:
            self._sweep.cancel()
        self._idle.clear()
        gone = [wire.gone for wire in self._wires]
        for wire in self._wires:
            wire.hang_up()
        if gone:
            await asyncio.wait(gone)

    def _drop_the_old(self) -> None:
        self._sweep = None
        oldest = time.monotonic() - self._patience
        for key, idle in list(self._idle.items()):
            for connection in idle:
                if connection.since <= oldest:
                    connection.wire.hang_up()
            idle[:] = [connection for connection in idle if connection.since > oldest]
            if not idle:
                del self._idle[key]
        if self._idle:
            self._sweep = asyncio.get_running_loop().call_later(self._patience, self._drop_the_old)


class HTTPClient:
    """Sends requests over connections that the egress guard dialled. It follows no redirect and keeps no cookie.

    Args:
        guard: The one way to a socket.
        idle: Seconds for which a connection without work is kept.
    """

    def __init__(self, guard: EgressGuard, idle: float = IDLE_SECONDS) -> None:
        self._dialler = Connector(guard)
        self._pools = PerLoop(lambda: _Pool(idle))
        keep_quiet("httpcore")

    async def send(
        self,
        request: HTTPRequest,
        bounds: ExchangeBounds,
        *,
        hosts: Collection[str],
        owner: str,
        repeatable: bool,
    ) -> HTTPResponse:
        """One exchange. When it is cancelled, its connection is closed.

        Args:
            request: What to send.
            bounds: What it may take.
            hosts: Globs of the hosts that may be reached.
            owner: Whose connections may be reused: no other owner's request follows on them.
            repeatable: Whether the request may arrive twice. Then it is sent once more, on a new connection, where a
                kept one turned out dead before any byte of the answer came (RFC 9112 section 9.3.1).

        Raises:
            HTTPError: It failed; `connect_failed` once the client is closed.
            EgressRefused: The guard refused the connection; nothing was sent.
        """
        raw = _raw(request, bounds.read)
        pool = await self._pools.get()
        key = _Key(owner, request.scheme, request.host, request.port, tuple(hosts))
        response, connection = None, pool.take(key)
        if connection is not None:
            try:
                response = await _exchange(connection, request, raw, bounds)
            except _Stale:
                if not repeatable or pool.closed:
                    raise connection_broken() from None
        if response is None or connection is None:
            wire = await self._dialler.open(request, bounds, hosts, pool.made)
            if pool.closed:
                wire.hang_up()
                raise client_closed()
            connection = _Connection(request, wire)
            response = await _exchange(connection, request, raw, bounds)
        pool.settle(key, connection)
        return response

    async def aclose(self) -> None:
        """Close every connection, for good: later exchanges are refused."""
        await self._pools.aclose()


def _raw(request: HTTPRequest, silence: float | None) -> httpcore.Request:
    headers = [(name.encode("ascii"), value.encode("latin-1")) for name, value in request_headers(request)]
    url = httpcore.URL(
        scheme=request.scheme.encode(),
        host=request.host.encode(),
        port=request.port,
        target=request_target(request).encode("ascii"),
    )
    timeouts = {"read": silence, "write": silence}
    content = request.body or None
    return httpcore.Request(
        request.method, url, headers=headers, content=content, extensions={"timeout": timeouts}
    )


async def _head(connection: HTTPConnection, wire: SocketStream, raw: httpcore.Request) -> httpcore.Response:
    answer = await connection.handle_async_request(raw)
    wire.head_ended()
    if answer.extensions["http_version"] not in _VERSIONS:
        raise bad_response("its version is neither 1.0 nor 1.1")
    return answer


async def _exchange(
    connection: _Connection, request: HTTPRequest, raw: httpcore.Request, bounds: ExchangeBounds
) -> HTTPResponse:
    wire, used = connection.wire, connection.used
    connection.used = True
    wire.begin(bounds)
    try:
        return await _converse(connection, request, raw, bounds)
    except (httpcore.NetworkError, httpcore.ProtocolError):
        wire.hang_up()
        if used and wire.told_end and not wire.received:
            raise _Stale from None
        raise wire.trouble or _fault(wire) from None
    except BaseException:
        wire.hang_up()
        raise


async def _converse(
    connection: _Connection, request: HTTPRequest, raw: httpcore.Request, bounds: ExchangeBounds
) -> HTTPResponse:
    wire = connection.wire
    answer = await _head(connection.http, wire, raw)
    headers = response_headers(answer.headers)
    body = body_reader(request.method, answer.status, headers, bounds)
    async for chunk in cast("AsyncIterable[bytes]", answer.stream):
        # Left in the middle, httpcore's generators would be closed by a task of the loop: they are read to an end.
        if body is not None and wire.trouble is None:
            try:
                body.add(chunk)
            except HTTPError as error:
                wire.hang_up(error)
    await answer.aclose()
    if wire.trouble is not None:
        raise wire.trouble
    return HTTPResponse(answer.status, headers, b"" if body is None else body.whole())


def _fault(wire: SocketStream) -> HTTPError:
    return connection_broken() if wire.told_end else bad_response("it cannot be parsed")


class StreamedResponse:
    """An answer whose head was read; it has to be closed by whoever has it.

    Attributes:
        status: The final status code.
        headers: (name in lower case, value) in order.
    """

    def __init__(
        self,
        request: HTTPRequest,
        bounds: ExchangeBounds,
        answer: httpcore.Response,
        wire: SocketStream,
        settle: Callable[[], None],
    ) -> None:
        self.status = answer.status
        self.headers = response_headers(answer.headers)
        self._method = request.method
        self._bounds = bounds
        self._answer = answer
        self._wire = wire
        self._settle = settle
        self._body: AsyncIterator[bytes] = aiter(cast("AsyncIterator[bytes]", answer.stream))
        self._read = False

    def header(self, name: str) -> str:
        """The value of a header, named in lower case; the first of several, empty where there is none."""
        return next((value for each, value in self.headers if each == name), "")

    async def whole(self) -> bytes:
        """The body, its content coding undone.

        Raises:
            HTTPError: It is larger than the bound, is not what its headers say, or breaks off.
        """
        body = body_reader(self._method, self.status, self.headers, self._bounds)
        while chunk := await self.chunk():
            if body is not None:
                body.add(chunk)
        return b"" if body is None else body.whole()

    def check_stream(self) -> None:
        """Refuse to read as a stream what is none.

        Raises:
            HTTPError: Its headers contradict each other, or it has a content coding: nobody asked for one.
        """
        body_reader(self._method, self.status, self.headers, self._bounds._replace(body=_ENDLESS))
        if self.header("content-encoding").lower() not in ("", "identity"):
            message = "unsupported content coding: a streamed response must be sent without one"
            raise HTTPError(HTTPFailure.UNSUPPORTED_CODING, message, sent=True)

    async def chunk(self) -> bytes:
        """What comes next, as it was sent; nothing at the end.

        Raises:
            HTTPError: It breaks off, or `hang_up` was called.
        """
        try:
            chunk = await anext(self._body, b"")
        except (httpcore.NetworkError, httpcore.ProtocolError):
            raise self._wire.trouble or _fault(self._wire) from None
        if self._wire.trouble is not None:
            raise self._wire.trouble
        self._read = not chunk
        return chunk

    def hang_up(self, trouble: HTTPError) -> None:
        """Close the connection; whoever reads gets the trouble."""
        self._wire.hang_up(trouble)

    async def aclose(self) -> None:
        """Be done with it. The connection is kept if the answer was read to its end."""
        if not self._read:
            self._wire.hang_up(client_closed())
        try:
            # Left in the middle, httpcore's generators would be closed by a task of the loop: they are read to an end.
            while await anext(self._body, b""):
                pass
        except (httpcore.NetworkError, httpcore.ProtocolError, HTTPError):
            pass  # of a connection that was hung up on
        await self._answer.aclose()
        self._settle()


class StreamingClient:
    """Sends requests of one owner to the origins that it may reach, for one event loop.

    Args:
        guard: The one way to a socket.
        idle: Seconds for which a connection without work is kept.
    """

    def __init__(self, guard: EgressGuard, idle: float = IDLE_SECONDS) -> None:
        self._dialler = Connector(guard)
        self._idle_for = idle
        self._idle: list[tuple[str, HTTPConnection, SocketStream, float]] = []
        self._wires: set[SocketStream] = set()
        self._closed = False
        keep_quiet("httpcore")

    async def send(
        self,
        request: HTTPRequest,
        bounds: ExchangeBounds,
        *,
        hosts: Collection[str],
        silence: float | None = None,
        sending: Callable[[], None] | None = None,
    ) -> StreamedResponse:
        """Send a request, and read the head of its answer. When it is cancelled, its connection is closed.

        Args:
            request: What to send.
            bounds: What the answer may take; not its `read`.
            hosts: Globs of the hosts that may be reached.
            silence: Seconds for which nothing may come, before the head or within the body; None for any time.
            sending: Called before the first byte is sent: before that, nothing can have reached the server.

        Raises:
            HTTPError: It failed. Whether the server may have it all the same, `sent` tells.
            EgressRefused: The guard refused the connection; nothing was sent.
        """
        raw = _raw(request, silence)
        kept = self._kept(request.origin)
        connection, wire = await self._made(request, bounds, hosts) if kept is None else kept
        wire.begin(bounds)
        if sending is not None:
            sending()
        try:
            answer = await _head(connection, wire, raw)
            return StreamedResponse(
                request, bounds, answer, wire, partial(self._settle, request.origin, connection, wire)
            )
        except (httpcore.NetworkError, httpcore.ProtocolError):
            wire.hang_up()
            raise wire.trouble or _fault(wire) from None
        except BaseException:
            wire.hang_up()
            raise

    async def aclose(self) -> None:
        """Close every connection; no more are made."""
        self._closed = True
        self._idle.clear()
        for wire in list(self._wires):
            wire.hang_up(client_closed())
        for wire in list(self._wires):
            await wire.gone

    async def _made(
        self, request: HTTPRequest, bounds: ExchangeBounds, hosts: Collection[str]
    ) -> tuple[HTTPConnection, SocketStream]:
        if self._closed:
            raise client_closed()
        wire = await self._dialler.open(request, bounds, hosts, lambda: SocketStream(self._wires))
        origin = httpcore.Origin(request.scheme.encode(), request.host.encode(), request.port)
        return HTTPConnection(origin, wire), wire

    def _kept(self, origin: str) -> tuple[HTTPConnection, SocketStream] | None:
        """The connection that was used last, if it is still good; those that are not are closed."""
        oldest = time.monotonic() - self._idle_for
        found = None
        for entry in reversed(self._idle[:]):
            to, connection, wire, since = entry
            if since <= oldest or not wire.quiet():
                self._idle.remove(entry)
                wire.hang_up()
            elif found is None and to == origin:
                self._idle.remove(entry)
                found = connection, wire
        return found

    def _settle(self, origin: str, connection: HTTPConnection, wire: SocketStream) -> None:
        if self._closed or connection.surplus() or not connection.is_idle():
            wire.hang_up()
            return
        wire.rest()
        self._idle.append((origin, connection, wire, time.monotonic()))


class AsyncClosable(Protocol):
    """What can be closed."""

    async def aclose(self) -> None:
        """Close it."""
        ...


T = TypeVar("T", bound=AsyncClosable)


class PerLoop(Generic[T]):
    """One thing for each event loop, closed when its loop comes to its end.

    A runtime may be used in several loops, one after the other or at once in several threads.

    Args:
        make: Makes the thing, in its loop.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._closed = False
        self._changing = Lock()
        self._kept: dict[asyncio.AbstractEventLoop, tuple[T, AsyncGenerator[None, None]]] = {}

    async def get(self) -> T:
        """The thing of the running loop.

        Raises:
            HTTPError: `connect_failed`: all of it was closed.
        """
        if self._closed:
            raise client_closed()
        loop = asyncio.get_running_loop()
        kept = self._kept.get(loop)
        return await self._begin(loop) if kept is None else kept[0]

    async def aclose(self) -> None:
        """Close the thing of the running loop, and have those of other loops closed by them. No more are made."""
        running = asyncio.get_running_loop()
        with self._changing:
            self._closed = True
            kept = list(self._kept.items())
        for loop, (_, keeper) in kept:
            if loop is running:
                await keeper.aclose()
            elif loop.is_running():
                asyncio.run_coroutine_threadsafe(keeper.aclose(), loop)

    async def _begin(self, loop: asyncio.AbstractEventLoop) -> T:
        thing = self._make()
        keeper = self._until_the_end(loop, thing)
        await anext(keeper)
        with self._changing:
            for other in [each for each in list(self._kept) if each.is_closed()]:
                self._kept.pop(other, None)
            refused = self._closed
            if not refused:
                self._kept[loop] = thing, keeper
        if refused:
            await keeper.aclose()
            raise client_closed()
        return thing

    async def _until_the_end(self, loop: asyncio.AbstractEventLoop, thing: T) -> AsyncGenerator[None, None]:
        """Waits to be closed: by us, or by the loop, which closes its asynchronous generators before it goes."""
        try:
            yield
        finally:
            self._kept.pop(loop, None)
            await thing.aclose()
