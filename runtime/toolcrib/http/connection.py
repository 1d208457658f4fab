"""Connections of httpcore, and their stream over a plain asyncio transport, with the bound of headers and the time of silence."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import cast

import httpcore

from toolcrib.http.connect import readable
from toolcrib.http.messages import ExchangeBounds, HTTPError, HTTPFailure, bad_response

_START = b"HTTP/"


class HTTPConnection(httpcore.AsyncHTTP11Connection):
    """httpcore's connection, which also tells what stands behind an answer."""

    def surplus(self) -> bool:
        """Whether more was sent than the answer."""
        return bool(self._h11_state.trailing_data[0])


class SocketStream(httpcore.AsyncNetworkStream, asyncio.Protocol):
    """One connection. What was sent over it comes out of `read` in order; errors come out as `HTTPError`.

    Args:
        opened: Where it stands as long as it is open.

    Attributes:
        gone: Done once it is closed.
        received: Bytes of the exchange under way that came.
        told_end: Whether the end of the connection was read in this exchange.
        trouble: Why nothing more is read, once that is so.
    """

    def __init__(self, opened: set[SocketStream]) -> None:
        self._loop = asyncio.get_running_loop()
        self._opened = opened
        self._transport: asyncio.Transport | None = None
        self._chunks: deque[bytes] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._full = False
        self._ended = False
        self._asked = False
        self._head_left: int | None = 0
        self._start = b""
        self.gone = self._loop.create_future()
        self.received = 0
        self.told_end = False
        self.trouble: HTTPError | None = None

    def begin(self, bounds: ExchangeBounds) -> None:
        """Make ready for an exchange."""
        self._asked = True
        self._head_left = bounds.headers
        self._start = b""
        self.received = 0
        self.told_end = False

    def rest(self) -> None:
        """Have no exchange under way: whatever comes now ends the connection."""
        self._asked = False

    def head_ended(self) -> None:
        """What is read from now on is the body."""
        self._head_left = None

    def quiet(self) -> bool:
        """Whether it is open and nothing came that nobody asked for."""
        if self._ended or self._chunks or self._transport is None or self._transport.is_closing():
            return False
        return not readable(self._transport.get_extra_info("socket").fileno())

    def hang_up(self, trouble: HTTPError | None = None) -> None:
        """Close at once; what is read afterwards raises the trouble."""
        if self.trouble is None:
            self.trouble = trouble
        if self._transport is not None:
            self._transport.abort()

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """The next bytes; none at the end of the connection."""
        if self._head_left is not None:
            if self._head_left <= 0:
                self.hang_up(
                    HTTPError(HTTPFailure.HEADERS_TOO_LARGE, "the response headers are too large", sent=True)
                )
            max_bytes = min(max_bytes, self._head_left)
        if not self._chunks and not self._ended and self.trouble is None:
            await self._wait(timeout, "sent nothing")
        if self.trouble is not None:
            raise self.trouble
        if not _START.startswith(self._start):
            raise bad_response("it does not begin with `HTTP/`")
        if not self._chunks:
            self.told_end = True
            return b""
        return self._taken(max_bytes)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send; wait where the server does not keep up, unless it is answering already."""
        if not buffer:
            return
        if self._transport is None or self._transport.is_closing():
            raise httpcore.WriteError
        self._transport.write(buffer)
        while self._full and not self._ended:
            if self._chunks:
                raise httpcore.WriteError  # httpcore then reads the answer that came early
            await self._wait(timeout, "did not read the request")
        if self._chunks and self._full:
            raise httpcore.WriteError
        if self._full and self.trouble is None:
            self.trouble = HTTPError(
                HTTPFailure.WRITE_FAILED, "the connection closed while the request was being sent", sent=True
            )
            raise self.trouble

    async def aclose(self) -> None:
        """Close at once: nothing that was not read will be."""
        self.hang_up()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio."""
        self._transport = cast("asyncio.Transport", transport)  # a stream is connected by one
        self._opened.add(self)

    def data_received(self, data: bytes) -> None:
        """Called by asyncio. Whoever asked takes it in the next turn of the loop; it does not pile up."""
        self._chunks.append(data)
        if not self._asked:
            self.hang_up()
            return
        self.received += len(data)
        if len(self._start) < 5:
            self._start = (self._start + data)[:5]
        self._wake()

    def eof_received(self) -> None:
        """Called by asyncio; the transport closes itself then."""
        self._ended = True
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:  # noqa: ARG002 -- asyncio's signature
        """Called by asyncio."""
        self._ended = True
        self._opened.discard(self)
        self._wake()
        self.gone.set_result(None)

    def pause_writing(self) -> None:
        """Called by asyncio."""
        self._full = True

    def resume_writing(self) -> None:
        """Called by asyncio."""
        self._full = False
        self._wake()

    def _taken(self, most: int) -> bytes:
        chunk = self._chunks.popleft()
        if len(chunk) > most:
            self._chunks.appendleft(chunk[most:])
            chunk = chunk[:most]
        if self._head_left is not None:
            self._head_left -= len(chunk)
        return chunk

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _wait(self, timeout: float | None, what: str) -> None:
        self._waiter = self._loop.create_future()
        alarm = None if timeout is None else self._loop.call_later(timeout, self._silent, timeout, what)
        try:
            await self._waiter
        finally:
            self._waiter = None
            if alarm is not None:
                alarm.cancel()

    def _silent(self, timeout: float, what: str) -> None:
        message = f"the server {what} for {timeout:g} s"
        self.hang_up(HTTPError(HTTPFailure.READ_TIMEOUT, message, sent=True))
        self._wake()
