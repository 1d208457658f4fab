"""Takes connections where is listened, as many as there may be.

asyncio's own servers log a traceback for each of up to 2048 tries where no file descriptor is free, and add as many
timers that try again. They also know no bound on connections.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from ssl import SSLContext, SSLError
from typing import TYPE_CHECKING, Final

import anyio
from anyio.lowlevel import checkpoint

from toolcrib.serve.mcp.connections import Connection
from toolcrib.serve.mcp.options import Limits, Say

if TYPE_CHECKING:
    from socket import socket

CLOSING: Final = 2
"""Seconds that connections get to close once all calls have ended, and a client to answer the end of TLS."""

BACKLOG: Final = 2048
"""Connections that the system accepts ahead of us, at most."""

PAUSE: Final = 0.1
"""Seconds until the next try where no connection can be accepted."""

QUIET: Final = 1.0
"""Seconds between two lines about clients, which could fill a disk otherwise."""

_FULL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nretry-after: 1\r\nconnection: close\r\n\r\n"
)


class Acceptor:
    """Connections of clients, from their first byte to their last.

    Where as many are open as there may be, a new one takes the place of one that waits for its client: the one that
    has waited longest, of the address that holds most of them. So no address can keep others out by holding
    connections, and no request is lost that is answered now. Where none waits, the new one is refused.
    """

    def __init__(
        self, connection: Callable[..., Connection], limits: Limits, tls: SSLContext | None, say: Say
    ) -> None:
        """Accept nothing yet.

        Args:
            connection: Makes the protocol of a connection, of `peer` and `ended`.
            limits: What clients may take.
            tls: What connections are encrypted with; None for not at all.
            say: Tells people of what keeps clients out, once a second at most.
        """
        self._connection = connection
        self._limits = limits
        self._tls = tls
        self._say = say
        self._said = -QUIET
        self._loop = asyncio.get_running_loop()
        self._open: dict[Connection, asyncio.Task[None]] = {}
        self._accepting: list[asyncio.Task[None]] = []

    def start(self, listeners: Iterable[socket]) -> None:
        """Accept connections at these sockets, which are closed at the end."""
        for listener in listeners:
            listener.listen(BACKLOG)
            self._accepting.append(asyncio.create_task(self._accept(listener)))

    def close(self) -> None:
        """Accept no more, and drop who has not agreed on TLS yet; other connections go on."""
        for task in (*self._accepting, *self._open.values()):
            task.cancel()

    async def _accept(self, listener: socket) -> None:
        with listener:
            while True:
                try:
                    accepted, address = await self._loop.sock_accept(listener)
                except ConnectionError:  # the client has gone already
                    continue
                except OSError as error:  # no descriptor or memory is free
                    self._report(f"no connection can be accepted: {error.strerror}")
                    self._end_longest_wait()
                    await anyio.sleep(PAUSE)
                    continue
                self._take(accepted, address[0])
                await checkpoint()  # `sock_accept` returns at once while clients queue

    def _take(self, accepted: socket, peer: str) -> None:
        if len(self._open) >= self._limits.connections and not self._end_longest_wait():
            self._report(f"all {self._limits.connections} connections are in use; {peer} was refused")
            with accepted, suppress(OSError):
                if self._tls is None:
                    accepted.send(_FULL)
            return
        connection = self._connection(peer=peer, ended=self._forget)
        self._open[connection] = asyncio.create_task(self._connect(connection, accepted))

    async def _connect(self, connection: Connection, accepted: socket) -> None:
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
                self._report(f"{connection.peer} and the server can't agree on TLS: {_why(error)}")
        except asyncio.CancelledError:
            self._forget(connection)
            raise

    def _forget(self, connection: Connection) -> None:
        self._open.pop(connection, None)

    def _end_longest_wait(self) -> bool:
        """End a connection that waits for its client; False where none does."""
        waiting = {
            connection: connection.waits_since
            for connection in self._open
            if connection.waits_since is not None
        }
        if not waiting:
            return False
        held = Counter(connection.peer for connection in waiting)
        longest = max(waiting, key=lambda connection: (held[connection.peer], -waiting[connection]))
        if not self._open.pop(longest).cancel():
            longest.transport.abort()
        return True

    def _report(self, text: str) -> None:
        now = self._loop.time()
        if now - self._said >= QUIET:
            self._said = now
            self._say(text)


def _why(error: SSLError) -> str:
    if error.reason == "HTTP_REQUEST":
        return "it was asked with http://, and serves https://"
    return (error.reason or str(error)).replace("_", " ").lower()
