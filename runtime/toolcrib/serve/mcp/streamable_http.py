"""MCP over HTTP: listening, serving, and ending without losing a call."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from stat import S_IROTH
from typing import TYPE_CHECKING, Any, Final

import uvicorn

from toolcrib.core.errors import ConfigurationError
from toolcrib.serve.mcp.acceptor import CLOSING, Acceptor
from toolcrib.serve.mcp.banner import opening_line
from toolcrib.serve.mcp.change_notifier import announcing
from toolcrib.serve.mcp.connections import Connection
from toolcrib.serve.mcp.guard import Guard
from toolcrib.serve.mcp.options import (
    NEW_TOKEN,
    SHORTEST_TOKEN,
    Address,
    Limits,
    Options,
    Say,
    is_loopback,
)
from toolcrib.serve.mcp.routes import PATH, Web
from toolcrib.serve.mcp.server import Face
from toolcrib.serve.mcp.shutdown import Ending

if TYPE_CHECKING:
    from socket import socket
    from ssl import SSLContext

    from toolcrib.engine.runtime import Runtime

KEPT: Final = 60
"""Seconds that a connection is kept which nobody uses; a client that sends when it is closed loses its call."""

RESERVE: Final = 124
"""File descriptors that connections leave to everything else: files that are read anew, outgoing calls, servers that are
started. Where the process may open few files at all, half of them."""


async def serve_http(runtime: Runtime, options: Options, address: Address, say: Say) -> None:
    """Serve until a signal comes, and let calls in flight end.

    Args:
        runtime: The tools, entered.
        options: What is offered, and how.
        address: Where, and for whom.
        say: Tells people where it is served, and what goes on.

    Raises:
        ConfigurationError: The address can't be listened at, must not without a long token, or not with this
            certificate.
    """
    address = address.checked()
    tls = None
    if address.tls is not None:
        from toolcrib.serve.mcp.tls import tls_context  # noqa: PLC0415 -- slow to import

        tls = tls_context(address.tls)
    limits = _within_descriptors(address.limits)
    listeners = await _listeners(address)
    ports = sorted({listener.getsockname()[1] for listener in listeners})
    face = Face(runtime, options, shared=not address.token)
    guard = Guard(address, ports)
    web = Web(face, guard, lambda: _toolsets(runtime, options), face.count, limits.sessions)
    server = _Uvicorn(_config(web), limits, tls, say)
    ending = Ending()
    with ending.by_signals():
        # The sessions end before the connections that wait for them are closed.
        async with server.closed_at_last(), web.sessions.run(), announcing(runtime, face, options, say):
            await server.listen(listeners, ending)
            say(opening_line(runtime, options, f"at {_url(address, ports[0])}"))
            for warning in _warnings(address, limits):
                say(warning)
            await ending.asked.wait()
            server.stop_listening()
            cut = await face.calls.drained(options.drain, ending.hurried)
            if cut:
                say(f"cancelled {cut} call{'' if cut == 1 else 's'} in flight")
            face.close()


def _within_descriptors(limits: Limits) -> Limits:
    """The limits, with no more connections than the process may have files open, but for a reserve."""
    try:
        from resource import RLIM_INFINITY, RLIMIT_NOFILE, getrlimit  # noqa: PLC0415 -- not on Windows
    except ImportError:
        return limits
    files, _hard = getrlimit(RLIMIT_NOFILE)
    if files == RLIM_INFINITY:
        return limits
    return limits._replace(connections=min(limits.connections, files - min(files // 2, RESERVE)))


def _warnings(address: Address, limits: Limits) -> Iterator[str]:
    """What people should know who start the server."""
    if limits.connections < address.limits.connections:
        yield (
            f"warning: at most {limits.connections} connections are accepted, not {address.limits.connections}, "
            "because the process may open few files; allow more with `ulimit -n 1024`"
        )
    if address.has_short_token:
        yield (
            f"warning: the token has less than {SHORTEST_TOKEN} characters and can be guessed; make a longer one: "
            f"{NEW_TOKEN}"
        )
    if address.tls is not None and address.tls.key.stat().st_mode & S_IROTH:
        yield f"warning: every user of this machine can read the key `{address.tls.key}`; use `chmod 600`"


def _config(web: Web) -> uvicorn.Config:
    return uvicorn.Config(
        web,
        http="h11",
        lifespan="off",
        ws="none",
        log_config=None,
        log_level="error",  # of a malformed request its client is told, and nobody else
        access_log=False,
        server_header=False,
        proxy_headers=False,
        timeout_keep_alive=KEPT,
        timeout_graceful_shutdown=CLOSING,
    )


class _Uvicorn(uvicorn.Server):
    """uvicorn without its signals, which would end streams of events whose calls are still under way, and its listening."""

    def __init__(self, config: uvicorn.Config, limits: Limits, tls: SSLContext | None, say: Say) -> None:
        super().__init__(config)
        self.servers = []
        self._limits = limits
        self._acceptor = Acceptor(self._connection, limits, tls, say)
        self._serving: asyncio.Task[None] | None = None
        self._listening = asyncio.Event()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket] | None = None) -> None:
        await self.lifespan.startup()
        self._acceptor.start(sockets or [])
        self.started = True
        self._listening.set()

    def _connection(self, **given: Any) -> Connection:
        return Connection(
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
            limits=self._limits,
            **given,
        )

    async def listen(self, listeners: list[socket], ending: Ending) -> None:
        """Answer requests from now on; where that ends by itself, everything does."""
        self._serving = asyncio.create_task(self.serve(sockets=listeners))
        for tell in (self._listening.set, ending.ask):
            self._serving.add_done_callback(partial(_told, tell))
        await self._listening.wait()

    def stop_listening(self) -> None:
        """Take no further connection; those that are there go on."""
        self._acceptor.close()

    @asynccontextmanager
    async def closed_at_last(self) -> AsyncIterator[None]:
        """Behind the block every connection is closed."""
        try:
            yield
        finally:
            self._acceptor.close()
            self.should_exit = True
            if self._serving is not None:
                await self._serving


def _told(tell: Callable[[], None], _task: asyncio.Task[None]) -> None:
    tell()


async def _listeners(address: Address) -> list[socket]:
    """Sockets that are bound, all of them, or an error that says why not."""
    loop = asyncio.get_running_loop()
    shown = f"{address.host}:{address.port}"
    try:
        bound = await loop.create_server(asyncio.Protocol, address.host, address.port, start_serving=False)
    except (OSError, OverflowError) as error:
        why = getattr(error, "strerror", None) or str(error)
        raise ConfigurationError(
            f"nothing can be served at {shown}: {why}",
            code="address_not_free",
            hint="choose another `--host` or `--port`; `--port 0` takes any that is free",
        ) from None
    try:
        listeners = [listener.dup() for listener in bound.sockets]
    finally:
        bound.close()
    if not all(is_loopback(listener.getsockname()[0]) for listener in listeners):
        address.check_token()
    return listeners


def _toolsets(runtime: Runtime, options: Options) -> list[str]:
    known = list(runtime.registry.toolsets)
    return [name for name in known if name == options.toolset] if options.toolset else known


def _url(address: Address, port: int) -> str:
    host = f"[{address.host}]" if ":" in address.host else address.host
    return f"{address.scheme}://{host}:{port}{PATH}"
