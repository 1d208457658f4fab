"""Connecting to an origin: the egress guard dials, TLS is spoken where the scheme asks for it, both within one time."""

from __future__ import annotations

import asyncio
import logging
import os
import select
import ssl
from collections.abc import Callable, Collection
from typing import TypeVar

from toolcrib.http.messages import ExchangeBounds, HTTPError, HTTPFailure, HTTPRequest
from toolcrib.security.egress import EgressGuard, UnreachableHost

P = TypeVar("P", bound=asyncio.BaseProtocol)

IDLE_SECONDS = 30.0
"""How long a connection without work is kept, by the machine's own clock."""

IDLE_MOST = 100
"""How many connections without work are kept for one owner at one origin."""


class Connector:
    """Opens connections for one client.

    Args:
        guard: The one way to a socket.
    """

    def __init__(self, guard: EgressGuard) -> None:
        self._guard = guard
        self._context: ssl.SSLContext | None = None

    async def open(
        self, request: HTTPRequest, bounds: ExchangeBounds, hosts: Collection[str], protocol: Callable[[], P]
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
            message = f"connecting to `{host}` timed out after {bounds.connect:g} s"
            raise HTTPError(HTTPFailure.CONNECT_TIMEOUT, message, sent=False) from None
        except ssl.SSLError as error:
            raise tls_failed(host, error) from None
        except UnreachableHost as error:
            raise HTTPError(HTTPFailure.CONNECT_FAILED, error.message, sent=False) from None
        except OSError:
            message = f"cannot connect to `{host}`"
            raise HTTPError(HTTPFailure.CONNECT_FAILED, message, sent=False) from None

    async def _open(
        self, request: HTTPRequest, bounds: ExchangeBounds, hosts: Collection[str], protocol: Callable[[], P]
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


# X509_V_ERR_... of OpenSSL's x509_vfy.h, in our own words: the library's may quote what the server sent.
_REASONS = {
    9: "is not valid yet",
    10: "has expired",
    18: "is self-signed",
    19: "has a self-signed root that is not trusted",
    20: "was issued by an unknown authority",
    21: "was issued by an unknown authority",
    23: "is revoked",
    26: "is not issued for servers",
    62: "was issued for other names",
    64: "was issued for other addresses",
}


def client_context() -> ssl.SSLContext:
    """How TLS is spoken: certificates and names are checked, HTTP/1.1 is asked for.

    The roots are those of `SSL_CERT_FILE` or `SSL_CERT_DIR` where the environment names one, else certifi's.

    Raises:
        HTTPError: `tls_failed`: what the environment names can't be read.
    """
    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    try:
        if file or folder:
            context = ssl.create_default_context(cafile=file or None, capath=folder or None)
        else:
            import certifi  # noqa: PLC0415 -- only where nothing else is named

            context = ssl.create_default_context(cafile=certifi.where())
    except OSError:
        named = f"SSL_CERT_FILE ({file})" if file else f"SSL_CERT_DIR ({folder})"
        message = f"cannot read the certificates in {named}"
        raise HTTPError(HTTPFailure.TLS_FAILED, message, sent=False) from None
    context.set_alpn_protocols(["http/1.1"])
    return context


def tls_failed(host: str, error: ssl.SSLError) -> HTTPError:
    """The error of a handshake, without OpenSSL's text."""
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = _REASONS.get(error.verify_code, "cannot be trusted")
        message = f"the certificate of `{host}` {reason}"
    else:
        message = f"the TLS handshake with `{host}` failed"
    return HTTPError(HTTPFailure.TLS_FAILED, message, sent=False)


def keep_quiet(name: str) -> None:
    """Let a library's log print no header and no address, unless somebody gave it a level by name."""
    logger = logging.getLogger(name)
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.WARNING)


if hasattr(select, "poll"):

    def readable(number: int) -> bool:
        """Whether a read from this file descriptor would not wait."""
        watch = select.poll()
        watch.register(number, select.POLLIN)
        return bool(watch.poll(0))

else:

    def readable(number: int) -> bool:
        """Whether a read from this file descriptor would not wait."""
        return bool(select.select([number], [], [], 0)[0])
