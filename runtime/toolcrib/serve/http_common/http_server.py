"""HTTP server: connections within limits, with uvicorn between them and an application.

uvicorn sets no time limit for a request, and asyncio's own servers have no limit for connections.
`ClientConnection` and `Acceptor` add both.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from enum import Enum, auto
from functools import partial
from inspect import signature
from operator import attrgetter
from ssl import SSLContext, SSLError
from stat import S_IROTH
from typing import TYPE_CHECKING, Any, Final

import anyio
import uvicorn
from anyio.lowlevel import checkpoint
from httptools import HttpParserError, HttpParserUpgrade
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from toolcrib.core.dependencies import UNSUPPORTED_VERSION, MissingMember, imports_of_extra
from toolcrib.core.errors import ConfigurationError
from toolcrib.serve.http_common.lifecycle import Shutdown
from toolcrib.serve.http_common.listen_address import (
    MOST_BODY,
    NEW_TOKEN,
    SHORTEST_TOKEN,
    CertificateFiles,
    ClientLimits,
    ListenAddress,
    Say,
    is_loopback,
)
from toolcrib.serve.http_common.request_guard import PageAccess, RequestGuard

if TYPE_CHECKING:
    from socket import socket

MOST_HEAD: Final = 64 * 1024
"""Maximum size of the head of a request in bytes."""

MOST_FRAMED: Final = 8 * MOST_BODY
"""Maximum size of a body in bytes with the framing of its chunks and with trailers."""


class _Reading(Enum):
    """The part of a request that comes next."""

    START = auto()
    HEAD = auto()
    BODY = auto()


class ClientConnection(HttpToolsProtocol):
    """A connection that is aborted if its client takes too long to send the head or the body of a request.

    Attributes:
        peer: Address of the client.
        waits_since: Time of the loop since when the server waits for the client: for TLS, for a request or for the
            rest of one. None while a request is answered.
    """

    def __init__(
        self,
        *,
        limits: ClientLimits | None,
        peer: str,
        ended: Callable[[ClientConnection], None],
        **given: Any,
    ) -> None:
        """Wait for requests.

        Args:
            limits: Limits for clients; None if its time cannot be limited.
            peer: Address of the client.
            ended: Called once the connection is closed.
            given: uvicorn's own arguments for a protocol.
        """
        super().__init__(**given)
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self.peer = peer
        self.waits_since: float | None = self._loop.time()
        self._limits = limits
        self._ended = ended
        self._reading = _Reading.START
        self._received = 0
        self._awaited: tuple[object, object, bool] | None = None
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Called by asyncio: wait for the first request."""
        self._transport = transport
        super().connection_made(transport)
        self._watch()

    def data_received(self, data: bytes) -> None:
        """Called by asyncio: parse data, and set the deadline for what comes next."""
        self._received += len(data)
        self._unset_keepalive_if_required()
        try:
            self._parse(data)
        except HttpParserError:
            self.send_400_response("Invalid HTTP request received.")
        else:
            # The parser has no limits: it collects headers, and a trailer of any length.
            if self._received > (MOST_HEAD if self._reading is _Reading.HEAD else MOST_FRAMED):
                self.send_400_response("The request is too large.")
        self._watch()

    def _parse(self, data: bytes) -> None:
        while True:
            try:
                return self.parser.feed_data(data)
            except HttpParserUpgrade as stopped:
                if self._opens_websocket():
                    self._stop()
                    return self.handle_websocket_upgrade()
                # A server may ignore `Upgrade` (RFC 9110, 7.8), and Java's HttpClient sends it with every request. The
                # parser skips the body of such a request, so it gets its head again without that header.
                kept = [(name, value) for name, value in self.headers if name != b"upgrade"]
                if len(kept) == len(self.headers):  # CONNECT
                    raise HttpParserError from None
                lines = b"".join([b"%s: %s\r\n" % header for header in kept])
                spoken = self.parser.get_http_version().encode()
                head = b"%s %s HTTP/%s\r\n%s\r\n" % (self.parser.get_method(), self.url, spoken, lines)
                data = head + data[stopped.args[0] :]

    def _opens_websocket(self) -> bool:
        asked = [value.lower() for name, value in self.headers if name == b"upgrade"]
        return asked == [b"websocket"] and self.config.ws_protocol_class is not None

    def handle_websocket_upgrade(self) -> None:
        """Hand the connection to a WebSocket, which is limited like every other connection."""
        from toolcrib.serve.http_common.websocket_connection import WebSocketConnection  # noqa: PLC0415 -- an extra

        assert self._transport is not None  # noqa: S101 -- it has received data
        self.connections.discard(self)
        lines = b"".join([b"%s: %s\r\n" % header for header in self.headers])
        head = b"%s %s HTTP/1.1\r\n%s\r\n" % (self.parser.get_method(), self.url, lines)
        socket = WebSocketConnection(
            config=self.config,
            server_state=self.server_state,
            app_state=self.app_state,
            ended=partial(self._ended, self),
        )
        socket.connection_made(self._transport)
        socket.data_received(head)
        self._transport.set_protocol(socket)

    def on_message_begin(self) -> None:
        """Called by the parser: a head begins."""
        self._reading = _Reading.HEAD
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called by the parser: a header or a trailer."""
        # A trailer would get into the headers, which have been checked by now. The parser keeps the blanks after a value,
        # which are not part of it (RFC 9110, 5.5).
        if self._reading is _Reading.HEAD:
            super().on_header(name, value.rstrip(b" \t"))

    def on_headers_complete(self) -> None:
        """Called by the parser: a body begins, which may be empty."""
        if not self.parser.should_upgrade():
            self._reading, self._received = _Reading.BODY, 0
            super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Called by the parser: a request is complete."""
        if not self.parser.should_upgrade():
            self._reading, self._received = _Reading.START, 0
            super().on_message_complete()

    def on_response_complete(self) -> None:
        """Called by uvicorn: set the deadline for the next request."""
        super().on_response_complete()
        self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called by asyncio: cancel the deadline."""
        self._stop()
        self._ended(self)
        super().connection_lost(exc)

    def abort(self) -> None:
        """Close the connection immediately, if it is made."""
        if self._transport is not None:
            self._transport.abort()

    def _watch(self) -> None:
        if self._limits is None or self._transport is None:
            self.waits_since = None  # unknown, so it is never closed to make room for another one
            return
        # The deadline is set once per state, not per received byte: a client that sends a byte now and then
        # (Slowloris) gains no time.
        kept = self.timeout_keep_alive_task is not None  # uvicorn closes an idle connection itself
        cycle: Any = self.cycle  # None before the first request
        answering = cycle is not None and not cycle.response_complete
        awaits_body = self._reading is _Reading.BODY and not self.pipeline
        awaited = (awaits_body, cycle, kept) if awaits_body or not answering else None
        if awaited == self._awaited or self._transport.is_closing():
            return
        self._stop()
        self._awaited = awaited
        if awaited is None:
            return
        self.waits_since = self._loop.time()
        if awaits_body:
            self._deadline = self._loop.call_later(self._limits.body, self.abort)
        elif not kept:
            self._deadline = self._loop.call_later(self._limits.head, self.abort)

    def _stop(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        self._awaited = self._deadline = self.waits_since = None


CLOSING: Final = 2
"""Seconds to close connections after the last call, and for a client to confirm the end of TLS."""

BACKLOG: Final = 2048
"""Maximum length of the system's queue of connections that are not accepted yet."""

PAUSE: Final = 0.1
"""Seconds until the next try after a connection could not be accepted."""

QUIET: Final = 1.0
"""Minimum time between two lines about clients, in seconds: they could otherwise fill a disk."""

_FULL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nretry-after: 1\r\nconnection: close\r\n\r\n"
)


class Acceptor:
    """Accepts connections of clients, within a limit.

    At the limit, a new connection replaces one that waits for its client: the longest waiting one of the
    address that holds most of those. An address thus cannot keep others out by holding connections, and no
    request that is being answered is lost. If no connection waits, the new one is refused.
    """

    def __init__(
        self,
        connection: Callable[..., ClientConnection],
        limits: ClientLimits,
        tls: SSLContext | None,
        say: Say,
    ) -> None:
        """Prepare to accept connections.

        Args:
            connection: Makes the protocol of a connection from `peer` and `ended`.
            limits: Limits for clients.
            tls: TLS context; None for plain HTTP.
            say: Prints what keeps clients out, at most one line per second.
        """
        self._connection = connection
        self._limits = limits
        self._tls = tls
        self._say = say
        self._said = -QUIET
        self._loop = asyncio.get_running_loop()
        self._open: dict[ClientConnection, asyncio.Task[None]] = {}
        self._accepting: list[asyncio.Task[None]] = []

    def start(self, listeners: Iterable[socket]) -> None:
        """Accept connections on these sockets, and close the sockets at the end."""
        for listener in listeners:
            listener.listen(BACKLOG)
            self._accepting.append(asyncio.create_task(self._accept(listener)))

    def close(self) -> None:
        """Accept no more, and drop connections during their TLS handshake; others continue."""
        for task in (*self._accepting, *self._open.values()):
            task.cancel()

    async def _accept(self, listener: socket) -> None:
        with listener:
            while True:
                # Not `loop.create_server`: without a free file descriptor, it logs a traceback for each of up
                # to 2048 tries and adds as many timers for another one.
                try:
                    accepted, address = await self._loop.sock_accept(listener)
                except ConnectionError:  # the client has already disconnected
                    continue
                except OSError as error:  # out of file descriptors or memory
                    self._report(f"cannot accept connections: {error.strerror}")
                    self._end_longest_wait()
                    await anyio.sleep(PAUSE)
                    continue
                self._take(accepted, address[0])
                await checkpoint()  # `sock_accept` does not suspend while clients queue

    def _take(self, accepted: socket, peer: str) -> None:
        if len(self._open) >= self._limits.connections and not self._end_longest_wait():
            self._report(f"all {self._limits.connections} connections are in use; {peer} was refused")
            with accepted, suppress(OSError):
                # TLS has no room for an answer before the handshake.
                if self._tls is None:
                    accepted.send(_FULL)
            return
        connection = self._connection(peer=peer, ended=self._forget)
        self._open[connection] = asyncio.create_task(self._connect(connection, accepted))

    async def _connect(self, connection: ClientConnection, accepted: socket) -> None:
        try:
            await self._loop.connect_accepted_socket(
                lambda: connection,
                accepted,
                ssl=self._tls,
                ssl_handshake_timeout=None if self._tls is None else self._limits.head,
                ssl_shutdown_timeout=None if self._tls is None else CLOSING,
            )
        except OSError as error:
            self._forget(connection)
            if isinstance(error, SSLError):
                self._report(f"TLS handshake with {connection.peer} failed: {_why(error)}")
        except asyncio.CancelledError:
            self._forget(connection)
            raise

    def _forget(self, connection: ClientConnection) -> None:
        self._open.pop(connection, None)

    def _end_longest_wait(self) -> bool:
        """Close a connection that waits for its client; False if there is no such connection."""
        waiting = {
            connection: connection.waits_since
            for connection in self._open
            if connection.waits_since is not None
        }
        if not waiting:
            return False
        held = Counter(connection.peer for connection in waiting)
        longest = max(waiting, key=lambda connection: (held[connection.peer], -waiting[connection]))
        # During the handshake there is no transport to abort yet; cancelling its task closes the socket. A
        # task that has finished cannot be cancelled.
        if not self._open.pop(longest).cancel():
            longest.abort()
        return True

    def _report(self, text: str) -> None:
        now = self._loop.time()
        if now - self._said >= QUIET:
            self._said = now
            self._say(text)


def _why(error: SSLError) -> str:
    if error.reason == "HTTP_REQUEST":
        return "the client used http://, but the server uses https://"
    return (error.reason or str(error)).replace("_", " ").lower()


KEPT: Final = 60
"""Seconds until an unused connection is closed. A request that arrives at that moment is lost, so it is not short."""

RESERVE: Final = 124
"""File descriptors reserved for other uses (reloaded files, outgoing calls, child processes), or half of them if the
process may open only a few files."""


LARGEST_FRAME: Final = 64 * 1024
"""Maximum size of what a front end may send over a WebSocket, in bytes."""


def _config(app: Any, *, websockets: bool = False) -> uvicorn.Config:
    return uvicorn.Config(
        app,
        http="httptools",
        lifespan="off",
        ws="websockets-sansio" if websockets else "none",
        ws_max_size=LARGEST_FRAME,
        log_config=None,
        log_level="error",  # malformed requests are the client's problem
        access_log=False,
        server_header=False,
        # `X-Forwarded-For` is written by the client, and the limits count connections by peer.
        proxy_headers=False,
        timeout_keep_alive=KEPT,
        timeout_graceful_shutdown=CLOSING,
    )


class HttpServer(uvicorn.Server):
    """uvicorn without its signal handlers, which would close event streams during a call, and without its listener."""

    def __init__(
        self,
        app: Any,
        limits: ClientLimits,
        tls: SSLContext | None,
        say: Say,
        *,
        timed: bool = True,
        websockets: bool = False,
    ) -> None:
        """Serve an application.

        Args:
            app: The ASGI application.
            limits: Limits for clients.
            tls: TLS context; None for plain HTTP.
            say: Prints what keeps clients out.
            timed: Whether the time of clients can be limited, as `check_uvicorn` has found.
            websockets: Whether the application accepts WebSockets, which needs the extra `web`.
        """
        super().__init__(_config(app, websockets=websockets))
        self.servers = []
        self._limits = limits
        self._timed = timed
        self._acceptor = Acceptor(self._connection, limits, tls, say)
        self._serving: asyncio.Task[None] | None = None
        self._listening = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Called by uvicorn."""
        yield

    async def startup(self, sockets: list[socket] | None = None) -> None:
        """Called by uvicorn."""
        self._acceptor.start(sockets or [])
        self.started = True
        self._listening.set()

    def _connection(self, **given: Any) -> ClientConnection:
        return ClientConnection(
            config=self.config,
            server_state=self.server_state,
            app_state={},  # what a lifespan would leave for requests; there is none
            limits=self._limits if self._timed else None,
            **given,
        )

    async def listen(self, listeners: list[socket], shutdown: Shutdown) -> None:
        """Answer requests from now on. If uvicorn stops by itself, shut everything down."""
        self._serving = asyncio.create_task(self.serve(sockets=listeners))
        for tell in (self._listening.set, shutdown.ask):
            # The first callback ends the wait below if `serve` fails before it listens.
            self._serving.add_done_callback(partial(_told, tell))
        await self._listening.wait()

    def stop_listening(self) -> None:
        """Accept no more connections; open ones continue."""
        self._acceptor.close()

    @asynccontextmanager
    async def closed_at_last(self) -> AsyncIterator[None]:
        """Close every connection after the block."""
        try:
            yield
        finally:
            self._acceptor.close()
            self.should_exit = True
            if self._serving is not None:
                await self._serving


_EXTENDED: Final = (
    "on_message_begin",
    "on_header",
    "on_headers_complete",
    "on_message_complete",
    "on_response_complete",
    "send_400_response",
    "_unset_keepalive_if_required",
)
"""What `ClientConnection` extends or calls."""


async def check_uvicorn() -> MissingMember | None:
    """Check that uvicorn has what `HttpServer` and `ClientConnection` use beyond its documentation.

    Returns:
        What is missing to limit the time of clients; None if nothing is.

    Raises:
        ConfigurationError: It lacks what nothing can be served without.
    """
    takes: tuple[tuple[str, Callable[..., object], tuple[str, ...]], ...] = (
        ("Server.startup", getattr(uvicorn.Server, "startup", _absent), ("sockets",)),
        ("Server.serve", getattr(uvicorn.Server, "serve", _absent), ("sockets",)),
        ("Server.capture_signals", getattr(uvicorn.Server, "capture_signals", _absent), ()),
        ("HttpToolsProtocol", HttpToolsProtocol, ("config", "server_state", "app_state")),
        *((f"HttpToolsProtocol.{name}", getattr(HttpToolsProtocol, name, _absent), ()) for name in _EXTENDED),
    )
    for name, member, arguments in takes:
        if member is _absent:
            raise _unsupported(MissingMember("uvicorn", name))
        for argument in arguments:
            try:
                signature(member).bind_partial(**{argument: None})
            except TypeError:
                raise _unsupported(MissingMember("uvicorn", f"{name}({argument}=...)")) from None
    server = uvicorn.Server(_config(_no_app))
    for name in ("server_state", "should_exit", "started"):
        if not hasattr(server, name):
            raise _unsupported(MissingMember("uvicorn", f"Server.{name}"))
    protocol = HttpToolsProtocol(config=server.config, server_state=server.server_state, app_state={})
    for name in ("parser", "headers", "pipeline", "cycle", "timeout_keep_alive_task"):
        try:
            attrgetter(name)(protocol)
        except AttributeError:
            return MissingMember("uvicorn", f"HttpToolsProtocol.{name}")
    return None


def _absent() -> None:
    """Stands for a missing member."""


async def _no_app(_scope: object, _receive: object, _send: object) -> None:
    """An application that is never called."""


def _unsupported(lack: MissingMember) -> ConfigurationError:
    return ConfigurationError(
        f"cannot serve over HTTP: {lack.message}", code=UNSUPPORTED_VERSION, hint=lack.hint
    )


def check_time_limits(lack: MissingMember | None, listeners: Iterable[socket]) -> Iterator[str]:
    """What to say where the time of clients cannot be limited.

    Raises:
        ConfigurationError: Other machines can reach a listener: they could hold connections for as long as they like.
    """
    if lack is None:
        return
    if not all(is_loopback(listener.getsockname()[0]) for listener in listeners):
        raise ConfigurationError(
            f"cannot limit the time of clients, and other machines can reach this address: {lack.message}",
            code=UNSUPPORTED_VERSION,
            hint=f"{lack.hint}, or serve on 127.0.0.1",
        )
    yield (
        f"warning: the time that clients take for a request is not limited, because {lack.message}; "
        f"run `{lack.hint}`"
    )


def _told(tell: Callable[[], None], _task: asyncio.Task[None]) -> None:
    tell()


def limits_within_descriptors(limits: ClientLimits) -> ClientLimits:
    """The limits, with no more connections than the process may open files, minus a reserve."""
    try:
        from resource import RLIM_INFINITY, RLIMIT_NOFILE, getrlimit  # noqa: PLC0415 -- not on Windows
    except ImportError:
        return limits
    files, _hard = getrlimit(RLIMIT_NOFILE)
    if files == RLIM_INFINITY:
        return limits
    return limits._replace(connections=min(limits.connections, files - min(files // 2, RESERVE)))


async def bind_listeners(address: ListenAddress) -> list[socket]:
    """Bind sockets to every address of the host name.

    Raises:
        ConfigurationError: An address cannot be bound, or is reachable by other machines and needs a (longer) token.
    """
    loop = asyncio.get_running_loop()
    shown = f"{address.host}:{address.port}"
    try:
        # Binds all addresses of a name, with the socket options of the platform. Its sockets close with it,
        # hence the duplicates below.
        bound = await loop.create_server(asyncio.Protocol, address.host, address.port, start_serving=False)
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise ConfigurationError(
            f"cannot listen on {shown}: {why}",
            code="address_not_free",
            hint="use another `--host` or `--port`; `--port 0` chooses a free one",
        ) from None
    try:
        listeners = [listener.dup() for listener in bound.sockets]
    finally:
        bound.close()
    # A name such as `localhost` can resolve to a public address, so the bound addresses are checked, too.
    if not all(is_loopback(listener.getsockname()[0]) for listener in listeners):
        address.check_tokens()
    return listeners


class BoundAddress:
    """An address that is bound, and whose requests are not answered yet.

    Attributes:
        guard: Checks requests to it.
        limits: Limits for its clients.
        warnings: What its user should know.
    """

    def __init__(
        self,
        address: ListenAddress,
        listeners: list[socket],
        pages: PageAccess,
        tls: SSLContext | None,
        lack: MissingMember | None,
    ) -> None:
        self._address = address
        self._listeners = listeners
        self._tls = tls
        self._timed = lack is None
        self._ports = sorted({listener.getsockname()[1] for listener in listeners})
        self.guard = RequestGuard(address, self._ports, pages)
        self.limits = limits_within_descriptors(address.limits)
        self.warnings = (*check_time_limits(lack, listeners), *_warnings(address, self.limits))

    def url(self, path: str = "") -> str:
        """The URL of a path at this address."""
        host = f"[{self._address.host}]" if ":" in self._address.host else self._address.host
        return f"{self._address.scheme}://{host}:{self._ports[0]}{path}"

    def server(self, app: Any, say: Say, *, websockets: bool = False) -> HttpServer:
        """The server of an ASGI application, which may accept WebSockets; `listen` starts it."""
        return HttpServer(app, self.limits, self._tls, say, timed=self._timed, websockets=websockets)

    async def listen(self, server: HttpServer, shutdown: Shutdown) -> None:
        """Answer requests from now on. If uvicorn stops by itself, shut everything down."""
        await server.listen(self._listeners, shutdown)


async def bind_address(address: ListenAddress, pages: PageAccess) -> BoundAddress:
    """Bind an address.

    Args:
        address: Where to listen, and which clients may call.
        pages: What pages of allowed origins may send and read.

    Raises:
        ConfigurationError: The address cannot be listened on or needs a (longer) token, the certificate is unusable, or the
            installed uvicorn lacks what serving needs.
    """
    address = address.checked()
    tls = None if address.tls is None else _tls_context(address.tls)
    lack = await check_uvicorn()
    listeners = await bind_listeners(address)
    try:
        return BoundAddress(address, listeners, pages, tls, lack)
    except ConfigurationError:
        for listener in listeners:
            listener.close()
        raise


def _tls_context(files: CertificateFiles) -> SSLContext:
    with imports_of_extra("encryption", cannot="serve HTTPS", doing="serving HTTPS"):
        from toolcrib.serve.http_common.tls import tls_context  # noqa: PLC0415 -- slow to import

    return tls_context(files)


def _warnings(address: ListenAddress, limits: ClientLimits) -> Iterator[str]:
    if limits.connections < address.limits.connections:
        yield (
            f"warning: the process may open only few files, so at most {limits.connections} connections are accepted "
            f"instead of {address.limits.connections}; raise the limit with `ulimit -n 1024`"
        )
    if address.has_short_token:
        yield (
            f"warning: the token has fewer than {SHORTEST_TOKEN} characters and can be guessed; generate a longer one: "
            f"`{NEW_TOKEN}`"
        )
    if address.tls is not None and address.tls.key.stat().st_mode & S_IROTH:
        yield f"warning: every user of this machine can read the key `{address.tls.key}`; run `chmod 600` on it"
