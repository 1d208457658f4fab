"""Answers that are read as they come: event streams, and what may take as long as it likes.

The same messages, judged alike, over the same kind of connections as the client's.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Collection
from functools import partial
from typing import cast

import httpcore

from toolcrib.http.connect import IDLE_SECONDS, Dialler, keep_quiet
from toolcrib.http.connection import Exchanger, Wire
from toolcrib.http.headers_wire import (
    answer_lines,
    bad_response,
    body_of,
    broken,
    request_lines,
    request_target,
)
from toolcrib.http.messages import Bounds, Fault, HTTPError, Request, closed
from toolcrib.security.egress import Guard

_ENDLESS = 1 << 62
_VERSIONS = (b"HTTP/1.1", b"HTTP/1.0")


class Incoming:
    """An answer whose head was read; it has to be closed by whoever has it.

    Attributes:
        status: The final status code.
        headers: (name in lower case, value) in order.
    """

    def __init__(
        self,
        request: Request,
        bounds: Bounds,
        answer: httpcore.Response,
        wire: Wire,
        settle: Callable[[], None],
    ) -> None:
        self.status = answer.status
        self.headers = answer_lines(answer.headers)
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
        body = body_of(self._method, self.status, self.headers, self._bounds)
        while chunk := await self.chunk():
            if body is not None:
                body.add(chunk)
        return b"" if body is None else body.whole()

    def check_stream(self) -> None:
        """Refuse to read as a stream what is none.

        Raises:
            HTTPError: Its headers contradict each other, or it has a content coding: nobody asked for one.
        """
        body_of(self._method, self.status, self.headers, self._bounds._replace(body=_ENDLESS))
        if self.header("content-encoding").lower() not in ("", "identity"):
            message = "the answer is a stream with a content coding, which is not undone here"
            raise HTTPError(Fault.UNSUPPORTED_CODING, message, sent=True)

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
            self._wire.hang_up(closed())
        try:
            # Left in the middle, httpcore's generators would be closed by a task of the loop: they are read to an end.
            while await anext(self._body, b""):
                pass
        except (httpcore.NetworkError, httpcore.ProtocolError, HTTPError):
            pass  # of a connection that was hung up on
        await self._answer.aclose()
        self._settle()


class Streamer:
    """Sends requests of one owner to the origins that it may reach, for one event loop.

    Args:
        guard: The one way to a socket.
        idle: Seconds for which a connection without work is kept.
    """

    def __init__(self, guard: Guard, idle: float = IDLE_SECONDS) -> None:
        self._dialler = Dialler(guard)
        self._idle_for = idle
        self._idle: list[tuple[str, Exchanger, Wire, float]] = []
        self._wires: set[Wire] = set()
        self._closed = False
        keep_quiet("httpcore")

    async def send(
        self,
        request: Request,
        bounds: Bounds,
        *,
        hosts: Collection[str],
        silence: float | None = None,
        sending: Callable[[], None] | None = None,
    ) -> Incoming:
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
            answer = await _answer(connection, wire, raw)
            return Incoming(
                request, bounds, answer, wire, partial(self._settle, request.origin, connection, wire)
            )
        except BaseException:
            wire.hang_up()
            raise

    async def aclose(self) -> None:
        """Close every connection; no more are made."""
        self._closed = True
        self._idle.clear()
        for wire in list(self._wires):
            wire.hang_up(closed())
        for wire in list(self._wires):
            await wire.gone

    async def _made(self, request: Request, bounds: Bounds, hosts: Collection[str]) -> tuple[Exchanger, Wire]:
        if self._closed:
            raise closed()
        wire = await self._dialler.open(request, bounds, hosts, lambda: Wire(self._wires))
        origin = httpcore.Origin(request.scheme.encode(), request.host.encode(), request.port)
        return Exchanger(origin, wire), wire

    def _kept(self, origin: str) -> tuple[Exchanger, Wire] | None:
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

    def _settle(self, origin: str, connection: Exchanger, wire: Wire) -> None:
        if self._closed or connection.surplus() or not connection.is_idle():
            wire.hang_up()
            return
        wire.rest()
        self._idle.append((origin, connection, wire, time.monotonic()))


async def _answer(connection: Exchanger, wire: Wire, raw: httpcore.Request) -> httpcore.Response:
    try:
        answer = await connection.handle_async_request(raw)
    except (httpcore.NetworkError, httpcore.ProtocolError):
        raise wire.trouble or _fault(wire) from None
    wire.head_ended()
    if answer.extensions["http_version"] not in _VERSIONS:
        raise bad_response("its version is neither 1.0 nor 1.1")
    return answer


def _raw(request: Request, silence: float | None) -> httpcore.Request:
    url = httpcore.URL(
        scheme=request.scheme.encode(),
        host=request.host.encode(),
        port=request.port,
        target=request_target(request).encode("ascii"),
    )
    return httpcore.Request(
        request.method,
        url,
        headers=[(name.encode("ascii"), value.encode("latin-1")) for name, value in request_lines(request)],
        content=request.body or None,
        extensions={"timeout": {"read": silence, "write": silence}},
    )


def _fault(wire: Wire) -> HTTPError:
    return broken() if wire.told_end else bad_response("it can't be read")
