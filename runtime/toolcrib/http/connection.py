"""HTTP connections and their byte stream over an asyncio transport, with header limit and read timeout."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from functools import cache
from typing import cast

import httpcore

from toolcrib.core.dependencies import MissingMember
from toolcrib.core.file_descriptors import readable
from toolcrib.core.running_calls import Traffic
from toolcrib.http.messages import ExchangeBounds, HTTPError, HTTPFailure, bad_response

_START = b"HTTP/"

_AT_ONCE = 1 << 16
"""Bytes that are received from a connection, and read of a body, before other tasks run. What has arrived already is read
without waiting, so a body of megabytes would otherwise be read in one turn of the event loop, and asyncio receives 256 KiB."""


class HTTPConnection(httpcore.AsyncHTTP11Connection):
    """httpcore's connection, extended by a check for data after the response."""

    def surplus(self) -> bool:
        """Whether the server sent bytes after the end of the response."""
        # httpcore has no public accessor for h11's trailing data. Where it cannot be seen, there may be some: the
        # connection is closed then, because a byte too many would be read as the next response.
        try:
            trailing, _closed = self._h11_state.trailing_data
        except (AttributeError, TypeError, ValueError):
            _warn_of_no_reuse()
            return True
        return bool(trailing)


@cache
def _warn_of_no_reuse() -> None:
    lack = MissingMember("httpcore", "AsyncHTTP11Connection._h11_state.trailing_data")
    logging.getLogger("toolcrib.http").warning(
        "connections are not reused, because %s; %s", lack.message, lack.hint
    )


class SocketStream(httpcore.AsyncNetworkStream, asyncio.BufferedProtocol):
    """The byte stream of one connection. Errors are raised as `HTTPError`.

    Args:
        opened: Contains the stream while it is open.

    Attributes:
        gone: Future that is done once the connection is closed.
        received: Bytes received in the current exchange.
        told_end: Whether the end of the connection was read in the current exchange.
        trouble: The error that reads raise, once set.
    """

    # A plain protocol instead of anyio's streams, which httpcore uses by default: only a protocol notices
    # data that arrives while the connection is idle, and it can count the bytes of the headers.

    def __init__(self, opened: set[SocketStream]) -> None:
        self._loop = asyncio.get_running_loop()
        self._opened = opened
        self._transport: asyncio.Transport | None = None
        self._buffer = memoryview(bytearray(_AT_ONCE))
        self._chunks: deque[bytes] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._at_once = 0
        self._full = False
        self._ended = self._reset = False
        self._asked = False
        self._head_left: int | None = 0
        self._start = b""
        self.gone = self._loop.create_future()
        self.received = 0
        self.told_end = False
        self.trouble: HTTPError | None = None
        self._traffic: Traffic | None = None

    def begin(self, bounds: ExchangeBounds, traffic: Traffic | None = None) -> None:
        """Start an exchange, whose bytes `traffic` counts."""
        self._traffic = traffic
        if traffic is not None:
            traffic.requests += 1
        self._asked = True
        self._head_left = bounds.headers
        self._start = b""
        self.received = 0
        self.told_end = False

    def rest(self) -> None:
        """End the exchange; data that arrives while idle closes the connection."""
        self._asked = False
        self._traffic = None

    def head_ended(self) -> None:
        """Mark the end of the headers: the header limit no longer applies."""
        self._head_left = None

    def quiet(self) -> bool:
        """Whether the connection is open and no unsolicited data has arrived."""
        if self._ended or self._chunks or self._transport is None or self._transport.is_closing():
            return False
        # asyncio may not have read the socket yet: an end of stream or stray bytes can wait in the kernel.
        return not readable(self._transport.get_extra_info("socket").fileno())

    def hang_up(self, trouble: HTTPError | None = None) -> None:
        """Close immediately; later reads raise `trouble`."""
        if self.trouble is None:
            self.trouble = trouble
        if self._transport is not None:
            self._transport.abort()

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        """The next bytes; empty at the end of the connection."""
        if self._head_left is not None:
            if self._head_left <= 0:
                self.hang_up(
                    HTTPError(HTTPFailure.HEADERS_TOO_LARGE, "the response headers are too large", sent=True)
                )
            max_bytes = min(max_bytes, self._head_left)
        if not self._chunks and not self._ended and self.trouble is None:
            await self._wait(timeout, "sent nothing")
        elif self._at_once >= _AT_ONCE:
            self._at_once = 0
            await asyncio.sleep(0)  # noqa: TID251 -- lets other tasks run; no time passes
        if self.trouble is not None:
            raise self.trouble
        # h11 buffers a line of any other protocol (SSH, SMTP) until its limit; this fails after five bytes.
        if not _START.startswith(self._start):
            raise bad_response("it does not begin with `HTTP/`")
        if not self._chunks:
            self.told_end = True
            # The end of a connection can be the end of a body, but a reset cannot.
            if self._reset:
                raise httpcore.ReadError
            return b""
        return self._taken(max_bytes)

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:
        """Send bytes, waiting while the server reads too slowly, unless it is already responding."""
        if not buffer:
            return
        if self._transport is None or self._transport.is_closing():
            raise httpcore.WriteError
        self._transport.write(buffer)
        if self._traffic is not None:
            self._traffic.sent_bytes += len(buffer)
        while self._full and not self._ended:
            if self._chunks:
                # httpcore then reads the response that arrived early, such as a 413 for a large upload.
                raise httpcore.WriteError
            await self._wait(timeout, "did not read the request")
        if self._chunks and self._full:
            raise httpcore.WriteError
        if self._full and self.trouble is None:
            self.trouble = HTTPError(
                HTTPFailure.WRITE_FAILED, "the connection closed while the request was being sent", sent=True
            )
            raise self.trouble

    async def aclose(self) -> None:
        """Close immediately; unread data is lost."""
        self.hang_up()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio."""
        self._transport = cast("asyncio.Transport", transport)
        self._opened.add(self)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 -- all of it
        """Called by asyncio."""
        return self._buffer

    def buffer_updated(self, nbytes: int) -> None:
        """Called by asyncio."""
        data = bytes(self._buffer[:nbytes])
        # Reading is never paused: a waiting reader takes the chunk in the next turn of the loop.
        self._chunks.append(data)
        if not self._asked:
            self.hang_up()
            return
        self.received += len(data)
        if self._traffic is not None:
            self._traffic.received_bytes += len(data)
        if len(self._start) < 5:
            self._start = (self._start + data)[:5]
        self._wake()

    def eof_received(self) -> None:
        """Called by asyncio; returning None closes the transport."""
        self._ended = True
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio."""
        self._ended = True
        self._reset = isinstance(exc, ConnectionResetError)
        self._opened.discard(self)
        self._wake()
        # Whoever waited for it may have been cancelled meanwhile, and the future with them.
        if not self.gone.done():
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
        self._at_once += len(chunk)
        return chunk

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    async def _wait(self, timeout: float | None, what: str) -> None:
        self._at_once = 0
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
