"""Connections for aiohttp that the guard dialled and that count what comes.

aiohttp lets a connector of one's own make the connections (`BaseConnector._create_connection`, as its own connectors for
Unix sockets and pipes do), so no look-up and no socket of its own is ever in play, and addresses take no other way
than names. What is sent over a connection passes `FastWire` before aiohttp's parser: headers are bounded there, and
whatever stands behind an answer ends the connection's use.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from aiohttp import BaseConnector, ClientPayloadError, ClientRequest, ClientTimeout
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.http import HttpProcessingError

from toolcrib.http.connect import Dialler
from toolcrib.http.headers_wire import bad_response
from toolcrib.http.messages import Bounds, Fault, HTTPError, Request
from toolcrib.http.socket_state import readable

if TYPE_CHECKING:
    from aiohttp.tracing import Trace

_END = b"\r\n\r\n"
_START = b"HTTP/"


class Exchange:
    """What one exchange tells its connection, and learns of it.

    Attributes:
        request: What is sent.
        bounds: What it may take.
        hosts: Globs of the hosts that may be reached.
        wire: The connection, once there is one.
        reused: Whether an exchange went over it before.
        anew: Whether only a new connection will do.
    """

    __slots__ = ("anew", "bounds", "hosts", "request", "reused", "wire")

    def __init__(self, request: Request, bounds: Bounds, hosts: Collection[str]) -> None:
        self.request = request
        self.bounds = bounds
        self.hosts = hosts
        self.wire: FastWire | None = None
        self.reused = False
        self.anew = False


EXCHANGE: ContextVar[Exchange] = ContextVar("toolcrib_exchange")
"""The exchange of the running task; aiohttp hands nothing of ours through to its connector."""


class FastWire(ResponseHandler):
    """One connection, as aiohttp talks to it.

    Args:
        loop: Its event loop.
        opened: Where it stands as long as it is open.

    Attributes:
        received: Bytes of the exchange under way that came.
        used: Whether an exchange began on it.
        trouble: Why it was given up, where that was our doing.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, opened: set[FastWire]) -> None:
        super().__init__(loop)
        self._opened = opened
        self.received = 0
        self.used = False
        self.trouble: HTTPError | None = None
        self._surplus = False
        self._ended = False
        self._patience = 0.0
        self._alarm: asyncio.TimerHandle | None = None
        self._answer: Any = None
        self._head_left = 0
        self._framing = 0
        self._framing_most = 0
        self._body_left: int | None = None
        self._last = b""

    def begin(self, bounds: Bounds) -> None:
        """Make ready for an exchange."""
        self.used = True
        self.received = 0
        self._patience = bounds.read
        self._answer = None
        self._head_left = self._framing_most = bounds.headers
        self._framing = 0
        self._body_left = None
        self._last = b""

    def quiet(self) -> bool:
        """Whether it is open and nothing came that nobody asked for."""
        transport = self.transport
        if self._surplus or self._ended or transport is None or transport.is_closing():
            return False
        return not readable(transport.get_extra_info("socket").fileno())

    @property
    def should_close(self) -> bool:
        """Asked by aiohttp at the end of an exchange."""
        return self._surplus or super().should_close

    def hang_up(self, trouble: HTTPError | None = None) -> None:
        """Close at once."""
        if self.trouble is None:
            self.trouble = trouble
        if self.transport is not None:
            self.transport.abort()

    def close(self) -> None:
        """Close at once: TLS takes no leave either."""
        transport = self.transport
        super().close()
        if transport is not None:
            transport.abort()

    def feed_data(self, data: Any, size: int = 0) -> None:
        """Called by the parser for each head, (message, body): interim answers come before the answer."""
        if self._answer is not None:
            self._surplus = True
            return
        if data[0].code >= 200:
            self._answer = data
        super().feed_data(data, size)

    def data_received(self, data: bytes) -> None:
        """Called by asyncio, and by aiohttp without any bytes where the parser goes on."""
        if data:
            if self._over():
                self._surplus = True
                self.hang_up()
                return
            self.received += len(data)
            self._quell()
        rest = data
        while rest and self._answer is None and self.trouble is None:
            rest = self._feed_head(rest)
        if self.trouble is None and (rest or not data):
            self._feed_body(rest)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Called by asyncio."""
        super().connection_made(transport)
        self._opened.add(self)

    def eof_received(self) -> None:
        """Called by asyncio; the transport closes itself then."""
        self._ended = True
        super().eof_received()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Called by asyncio."""
        self._ended = True
        self._quell()
        if self.writing_paused and not self.received and self.trouble is None:
            message = "the connection broke while the request was sent"
            self.trouble = HTTPError(Fault.WRITE_FAILED, message, sent=True)
        self._opened.discard(self)
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """Called by asyncio where the server does not keep up."""
        super().pause_writing()
        self._alarm = self._loop.call_later(self._patience, self._silent)

    def resume_writing(self) -> None:
        """Called by asyncio."""
        super().resume_writing()
        self._quell()

    def _quell(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None

    def _silent(self) -> None:
        message = f"the server took nothing of the request for {self._patience:g} s"
        self.hang_up(HTTPError(Fault.READ_TIMEOUT, message, sent=True))

    def _over(self) -> bool:
        """Whether no exchange is under way, or the whole answer is there."""
        return not self.used or (self._answer is not None and self._answer[1].is_eof())

    def _feed(self, data: bytes) -> None:
        super().data_received(data)
        if isinstance(self.exception(), HttpProcessingError):
            self._give_up(bad_response("it can't be read"))

    def _give_up(self, trouble: HTTPError) -> None:
        """Hang up, and wake whoever waits for the body: of what it can't read, aiohttp's parser tells nobody."""
        if self._answer is not None and not self._over():
            self._answer[1].set_exception(ClientPayloadError())
        self.hang_up(trouble)

    def _feed_head(self, data: bytes) -> bytes:
        """Hand on the rest of one head, so that its end is known; gives what stands behind it."""
        if self._head_left <= 0:
            self.hang_up(
                HTTPError(Fault.HEADERS_TOO_LARGE, "the headers of the answer do not end", sent=True)
            )
            return b""
        if not _START.startswith(data[: len(_START)]) and not data.startswith(_START) and not self._last:
            self._give_up(bad_response("it does not begin as one"))
            return b""
        before = len(self._last)
        found = (self._last + data[: self._head_left]).find(_END)
        end = self._head_left if found < 0 else found + len(_END) - before
        head, rest = data[:end], data[end:]
        self._head_left -= len(head)
        self._last = b"" if found >= 0 else (self._last + head)[-3:]
        self._feed(head)
        if self._answer is not None:
            self._body_left = None if found < 0 else self._length()
            self._last = b""
        return rest

    def _length(self) -> int | None:
        """How many bytes of body come; none where its end is not known beforehand."""
        message, payload = self._answer
        if payload.is_eof():
            return 0
        length = message.headers.get("Content-Length", "")
        return int(length) if not message.chunked and length.isdecimal() else None

    def _feed_body(self, data: bytes) -> None:
        if self._body_left is None:
            self._feed_open_end(data)
            return
        self._surplus = len(data) > self._body_left
        part = data[: self._body_left]
        self._body_left -= len(part)
        if part or not data:
            self._feed(part)
        if self._surplus:
            self.hang_up()

    def _feed_open_end(self, data: bytes) -> None:
        """Hand on some of a body whose end only the parser knows. What only frames it is bounded like headers."""
        _, payload = self._answer
        before = payload.total_bytes
        self._feed(data)
        self._framing = 0 if payload.total_bytes > before else self._framing + len(data)
        self._last = (self._last + data[-4:])[-4:]
        if self._over():
            self._surplus = self._last != _END
        elif self._framing > self._framing_most:
            self._give_up(bad_response("what frames its body does not end"))
        if self._surplus:
            self.hang_up()


class GuardedConnector(BaseConnector):
    """The connections of one owner in one event loop.

    Args:
        dialler: Opens them.
        idle: Seconds for which one without work is kept.
    """

    def __init__(self, dialler: Dialler, idle: float) -> None:
        super().__init__(keepalive_timeout=idle, limit=0)
        self._dialler = dialler
        self.wires: set[FastWire] = set()

    async def connect(self, req: ClientRequest, traces: list[Trace], timeout: ClientTimeout) -> Connection:
        """A kept connection that is still good, or a new one."""
        exchange = EXCHANGE.get()
        while True:
            connection = await super().connect(req, traces, timeout)
            wire = connection.protocol
            assert isinstance(wire, FastWire)  # noqa: S101 -- `_create_connection` makes no other
            exchange.wire, exchange.reused = wire, wire.used
            if not wire.used or (not exchange.anew and wire.quiet()):
                wire.begin(exchange.bounds)
                return connection
            connection.close()

    async def _create_connection(
        self,
        req: ClientRequest,  # noqa: ARG002 -- aiohttp's signature, as are the next two
        traces: list[Trace],  # noqa: ARG002
        timeout: ClientTimeout,  # noqa: ARG002
    ) -> ResponseHandler:
        exchange = EXCHANGE.get()
        return await self._dialler.open(exchange.request, exchange.bounds, exchange.hosts, self._made)

    def _made(self) -> FastWire:
        return FastWire(self._loop, self.wires)
