"""The faster sender, of the extra `fast`: aiohttp over connections that the guard dialled."""

from __future__ import annotations

import inspect
import io
from collections.abc import Collection
from functools import lru_cache
from threading import Lock
from typing import Any

import aiohttp
from aiohttp import ClientSession, ClientTimeout
from yarl import URL

from toolcrib.http.aiohttp_connector import EXCHANGE, Exchange, FastWire, GuardedConnector
from toolcrib.http.connect import IDLE_MOST, IDLE_SECONDS, Dialler, keep_quiet
from toolcrib.http.headers_wire import (
    answer_lines,
    bad_response,
    body_of,
    broken,
    request_lines,
    request_target,
)
from toolcrib.http.messages import Bounds, Fault, HTTPError, Request, Response, Sender, closed
from toolcrib.http.per_loop import PerLoop
from toolcrib.security.egress import Guard

_VERSIONS = (aiohttp.HttpVersion11, aiohttp.HttpVersion10)
_LARGE = 1024 * 1024
"""From this size on aiohttp wants a body as a file."""

# `FastWire` bounds what comes before the body; aiohttp's own bounds, of single lines and their number, only have to
# be wider. Which of them there are depends on its version.
_WIDE: dict[str, Any] = {
    name: 64 * _LARGE
    for name in ("max_line_size", "max_field_size", "max_headers")
    if name in inspect.signature(ClientSession).parameters
}


class _Broken(Exception):
    """The connection ended too early. None of aiohttp's errors, because those it would answer by sending again."""


class _Client:
    """One owner's session in one event loop."""

    def __init__(self, dialler: Dialler, idle: float) -> None:
        self.active = 0
        self.connector = GuardedConnector(dialler, idle)
        self.session = ClientSession(
            connector=self.connector,
            cookie_jar=aiohttp.DummyCookieJar(),
            auto_decompress=False,
            trust_env=False,
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
            middlewares=(_once,),
            **_WIDE,
        )

    def settle(self, wire: FastWire | None) -> None:
        """Close a connection that has no work now, where enough others have none either."""
        wires = self.connector.wires
        if wire is not None and len(wires) - self.active > IDLE_MOST:
            wires.discard(wire)
            wire.hang_up()


class _Clients:
    """All sessions of one event loop."""

    def __init__(self, dialler: Dialler, idle: float) -> None:
        self._dialler = dialler
        self._idle = idle
        self._clients: dict[tuple[str, tuple[str, ...]], _Client] = {}

    def of(self, owner: str, hosts: tuple[str, ...]) -> _Client:
        client = self._clients.get((owner, hosts))
        if client is None:
            client = self._clients[owner, hosts] = _Client(self._dialler, self._idle)
        return client

    async def aclose(self) -> None:
        for client in self._clients.values():
            await client.session.close()
        self._clients.clear()


class FastSender:
    """Sends with aiohttp.

    Args:
        guard: The one way to a socket.
        idle: Seconds for which a connection without work is kept.
    """

    def __init__(self, guard: Guard, idle: float = IDLE_SECONDS) -> None:
        self._guard = guard
        dialler = Dialler(guard)
        self._clients = PerLoop(lambda: _Clients(dialler, idle))
        self._exact: Sender | None = None
        self._making_exact = Lock()
        keep_quiet("aiohttp")

    async def send(
        self,
        request: Request,
        bounds: Bounds,
        *,
        hosts: Collection[str],
        owner: str,
        repeatable: bool,
    ) -> Response:
        """As `Sender.send` says."""
        lines = request_lines(request)
        clients = await self._clients.get()
        if not all(value.isascii() for _, value in lines):
            # aiohttp would write it in UTF-8; a header is Latin-1.
            exact = self._for_latin_1()
            return await exact.send(request, bounds, hosts=hosts, owner=owner, repeatable=repeatable)
        client = clients.of(owner, tuple(hosts))
        exchange = Exchange(request, bounds, hosts)
        token = EXCHANGE.set(exchange)
        client.active += 1
        try:
            return await _sent(client, exchange, _options(request, lines, bounds), repeatable=repeatable)
        finally:
            client.active -= 1
            EXCHANGE.reset(token)
            client.settle(exchange.wire)

    async def aclose(self) -> None:
        """As `Sender.aclose` says."""
        await self._clients.aclose()
        if self._exact is not None:
            await self._exact.aclose()

    def _for_latin_1(self) -> Sender:
        from toolcrib.http.client import StockSender  # noqa: PLC0415 -- few headers need it

        with self._making_exact:
            if self._exact is None:
                self._exact = StockSender(self._guard)
            return self._exact


async def _once(request: aiohttp.ClientRequest, handler: aiohttp.ClientHandlerType) -> aiohttp.ClientResponse:
    """Keep aiohttp from sending again by itself: it would, also where a new connection broke."""
    try:
        return await handler(request)
    except (aiohttp.ClientOSError, aiohttp.ServerDisconnectedError):
        raise _Broken from None


def _options(request: Request, lines: list[tuple[str, str]], bounds: Bounds) -> dict[str, Any]:
    return {
        "method": request.method,
        "url": URL(request.origin + request_target(request), encoded=True),
        "headers": lines,
        "data": io.BytesIO(request.body) if len(request.body) >= _LARGE else request.body or None,
        "allow_redirects": False,
        "timeout": _silence(bounds.read),
    }


@lru_cache(maxsize=64)
def _silence(seconds: float) -> ClientTimeout:
    """Only silence is aiohttp's to watch; it rounds what lies above the threshold."""
    return ClientTimeout(total=None, sock_read=seconds, ceil_threshold=float("inf"))


async def _sent(
    client: _Client, exchange: Exchange, options: dict[str, Any], *, repeatable: bool
) -> Response:
    while True:
        try:
            return await _exchanged(client.session, exchange, options)
        except TimeoutError:
            message = f"the server sent nothing for {exchange.bounds.read:g} s"
            raise HTTPError(Fault.READ_TIMEOUT, message, sent=True) from None
        except (_Broken, aiohttp.ClientError):
            wire = exchange.wire
            if wire is None:
                raise closed() from None
            if wire.trouble is not None:
                raise wire.trouble from None
            # A kept connection was found dead before any byte of the answer came.
            dead = exchange.reused and not wire.received
            if not (dead and repeatable) or client.session.closed:
                raise broken() from None
            exchange.anew = True


async def _exchanged(session: ClientSession, exchange: Exchange, options: dict[str, Any]) -> Response:
    answer = await session.request(**options)
    try:
        return await _read(answer, exchange)
    except BaseException:
        if exchange.wire is not None:
            exchange.wire.hang_up()  # aiohttp may have kept it for the next exchange already
        raise
    finally:
        answer.close()


async def _read(answer: aiohttp.ClientResponse, exchange: Exchange) -> Response:
    if answer.version not in _VERSIONS:
        raise bad_response("its version is neither 1.0 nor 1.1")
    headers = answer_lines(answer.raw_headers)
    body = body_of(exchange.request.method, answer.status, headers, exchange.bounds)
    if body is None:
        return Response(answer.status, headers, b"")
    while chunk := await answer.content.readany():
        body.add(chunk)
    return Response(answer.status, headers, body.whole())
