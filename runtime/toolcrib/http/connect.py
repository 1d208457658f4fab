"""Connections: the guard dials, TLS is spoken where the scheme asks for it, both within one time."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable, Collection
from typing import TypeVar

from toolcrib.http.messages import Bounds, Fault, HTTPError, Request
from toolcrib.http.tls import client_context, tls_failed
from toolcrib.security.egress import Guard, Unreachable

P = TypeVar("P", bound=asyncio.BaseProtocol)

IDLE_SECONDS = 30.0
"""How long a connection without work is kept, by the machine's own clock."""

IDLE_MOST = 100
"""How many connections without work are kept for one owner at one origin."""


class Dialler:
    """Opens connections for one sender.

    Args:
        guard: The one way to a socket.
    """

    def __init__(self, guard: Guard) -> None:
        self._guard = guard
        self._context: ssl.SSLContext | None = None

    async def open(
        self, request: Request, bounds: Bounds, hosts: Collection[str], protocol: Callable[[], P]
    ) -> P:
        """Connect to the origin of a request, and speak TLS if it is https.

        When it is cancelled, no socket stays open.

        Args:
            request: Where to.
            bounds: `connect` covers look-up, connection and TLS.
            hosts: Globs of the hosts that may be reached.
            protocol: Makes what the connection talks to.

        Raises:
            HTTPError: `connect_failed`, `connect_timeout` or `tls_failed`.
            EgressRefused: The guard refused.
        """
        host = request.host
        try:
            async with asyncio.timeout(bounds.connect):
                return await self._open(request, bounds, hosts, protocol)
        except TimeoutError:
            message = f"no connection to `{host}` within {bounds.connect:g} s"
            raise HTTPError(Fault.CONNECT_TIMEOUT, message, sent=False) from None
        except ssl.SSLError as error:
            raise tls_failed(host, error) from None
        except Unreachable as error:
            raise HTTPError(Fault.CONNECT_FAILED, error.message, sent=False) from None
        except OSError:
            message = f"the connection to `{host}` failed while it was made"
            raise HTTPError(Fault.CONNECT_FAILED, message, sent=False) from None

    async def _open(
        self, request: Request, bounds: Bounds, hosts: Collection[str], protocol: Callable[[], P]
    ) -> P:
        connection = await self._guard.connect(request.host, request.port, hosts)
        try:
            loop = asyncio.get_running_loop()
            if request.scheme != "https":
                return (await loop.create_connection(protocol, sock=connection))[1]
            _, made = await loop.create_connection(
                protocol,
                sock=connection,
                ssl=self._tls(),
                server_hostname=request.host.rstrip("."),
                ssl_handshake_timeout=bounds.connect + 1,
            )
        except BaseException:
            connection.close()
            raise
        return made

    def _tls(self) -> ssl.SSLContext:
        if self._context is None:
            self._context = client_context()
        return self._context


def keep_quiet(name: str) -> None:
    """Let a library's log print no header and no address, unless somebody gave it a level by name."""
    logger = logging.getLogger(name)
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.WARNING)
