"""The HTTP client: httpcore's HTTP/1.1 over connections that the egress guard dialled, and a pool of our own."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterable, Collection
from typing import NamedTuple, cast

import httpcore

from toolcrib.http.connect import IDLE_MOST, IDLE_SECONDS, Dialler, keep_quiet
from toolcrib.http.connection import Exchanger, Wire
from toolcrib.http.headers_wire import (
    answer_lines,
    bad_response,
    body_of,
    broken,
    request_lines,
    request_target,
)
from toolcrib.http.messages import Bounds, HTTPError, Request, Response, closed
from toolcrib.http.per_loop import PerLoop
from toolcrib.security.egress import Guard

_VERSIONS = (b"HTTP/1.1", b"HTTP/1.0")


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

    def __init__(self, request: Request, wire: Wire) -> None:
        self.origin = httpcore.Origin(request.scheme.encode(), request.host.encode(), request.port)
        self.http = Exchanger(self.origin, wire)
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
        self._wires: set[Wire] = set()
        self._sweep: asyncio.TimerHandle | None = None
        self.closed = False

    def made(self) -> Wire:
        """A wire that is closed with the pool."""
        return Wire(self._wires)

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

    def __init__(self, guard: Guard, idle: float = IDLE_SECONDS) -> None:
        self._dialler = Dialler(guard)
        self._pools = PerLoop(lambda: _Pool(idle))
        keep_quiet("httpcore")

    async def send(
        self,
        request: Request,
        bounds: Bounds,
        *,
        hosts: Collection[str],
        owner: str,
        repeatable: bool,
    ) -> Response:
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
        raw = _raw(request, bounds)
        pool = await self._pools.get()
        key = _Key(owner, request.scheme, request.host, request.port, tuple(hosts))
        response, connection = None, pool.take(key)
        if connection is not None:
            try:
                response = await _exchange(connection, request, raw, bounds)
            except _Stale:
                if not repeatable or pool.closed:
                    raise broken() from None
        if response is None or connection is None:
            wire = await self._dialler.open(request, bounds, hosts, pool.made)
            if pool.closed:
                wire.hang_up()
                raise closed()
            connection = _Connection(request, wire)
            response = await _exchange(connection, request, raw, bounds)
        pool.settle(key, connection)
        return response

    async def aclose(self) -> None:
        """Close every connection, for good: later exchanges are refused."""
        await self._pools.aclose()


def _raw(request: Request, bounds: Bounds) -> httpcore.Request:
    headers = [(name.encode("ascii"), value.encode("latin-1")) for name, value in request_lines(request)]
    url = httpcore.URL(
        scheme=request.scheme.encode(),
        host=request.host.encode(),
        port=request.port,
        target=request_target(request).encode("ascii"),
    )
    timeouts = {"read": bounds.read, "write": bounds.read}
    content = request.body or None
    return httpcore.Request(
        request.method, url, headers=headers, content=content, extensions={"timeout": timeouts}
    )


async def _exchange(
    connection: _Connection, request: Request, raw: httpcore.Request, bounds: Bounds
) -> Response:
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
    connection: _Connection, request: Request, raw: httpcore.Request, bounds: Bounds
) -> Response:
    wire = connection.wire
    answer = await connection.http.handle_async_request(raw)
    wire.head_ended()
    if answer.extensions["http_version"] not in _VERSIONS:
        raise bad_response("its version is neither 1.0 nor 1.1")
    headers = answer_lines(answer.headers)
    body = body_of(request.method, answer.status, headers, bounds)
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
    return Response(answer.status, headers, b"" if body is None else body.whole())


def _fault(wire: Wire) -> HTTPError:
    return broken() if wire.told_end else bad_response("it can't be read")
