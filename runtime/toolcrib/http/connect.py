"""Open connections through the egress guard, with TLS for https, within one connect timeout."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import Callable, Collection
from typing import TypeVar

from toolcrib.http.messages import ExchangeBounds, HTTPError, HTTPFailure, HTTPRequest
from toolcrib.security.egress import EgressGuard, UnreachableHost

P = TypeVar("P", bound=asyncio.BaseProtocol)

IDLE_SECONDS = 30.0
"""Seconds for which an idle connection is kept, by the machine's clock."""

IDLE_MOST = 100
"""Idle connections that are kept per owner and origin."""


class Connector:
    """Opens connections for one client.

    Args:
        guard: Opens every socket.

    Attributes:
        report_reuse: To be called before a request over a connection that is open already.
    """

    def __init__(self, guard: EgressGuard) -> None:
        self._guard = guard
        self.report_reuse = guard.report_reuse
        # Loading the root certificates takes tens of milliseconds, so the context is created once, at first
        # use.
        self._context: ssl.SSLContext | None = None

    async def open(
        self, request: HTTPRequest, bounds: ExchangeBounds, hosts: Collection[str], protocol: Callable[[], P]
    ) -> P:
        """Connect to the origin of a request, with TLS if it is https. Cancelling leaves no socket open.

        Args:
            request: Names the origin.
            bounds: `connect` covers look-up, connection and TLS together.
            hosts: Globs of the allowed hosts.
            protocol: Creates the protocol object of the connection.

        Raises:
            HTTPError: `connect_failed`, `connect_timeout` or `tls_failed`.
            EgressRefused: The guard refused the connection.
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
                # Certificates name hosts without the trailing dot of an absolute name.
                server_hostname=request.host.rstrip("."),
                # Above our own timeout, so that asyncio's never fires first with a less specific error.
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


# X509_V_ERR_* codes of OpenSSL's x509_vfy.h. OpenSSL's own texts are not shown: they may quote server data.
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
    """TLS settings of a client: certificates and host names are verified, ALPN offers HTTP/1.1.

    The root certificates come from `SSL_CERT_FILE` or `SSL_CERT_DIR` if set, otherwise from certifi.

    Raises:
        HTTPError: `tls_failed`: the configured certificates cannot be read.
    """
    file, folder = os.environ.get("SSL_CERT_FILE"), os.environ.get("SSL_CERT_DIR")
    try:
        if file or folder:
            context = ssl.create_default_context(cafile=file or None, capath=folder or None)
        else:
            import certifi  # noqa: PLC0415 -- not needed if the environment configures roots

            context = ssl.create_default_context(cafile=certifi.where())
    except OSError:
        named = f"SSL_CERT_FILE ({file})" if file else f"SSL_CERT_DIR ({folder})"
        message = f"cannot read the certificates in {named}"
        raise HTTPError(HTTPFailure.TLS_FAILED, message, sent=False) from None
    context.set_alpn_protocols(["http/1.1"])
    return context


def tls_failed(host: str, error: ssl.SSLError) -> HTTPError:
    """The error of a failed handshake, without OpenSSL's text."""
    if isinstance(error, ssl.SSLCertVerificationError):
        reason = _REASONS.get(error.verify_code, "cannot be trusted")
        message = f"the certificate of `{host}` {reason}"
    else:
        message = f"the TLS handshake with `{host}` failed"
    return HTTPError(HTTPFailure.TLS_FAILED, message, sent=False)


def keep_quiet(name: str) -> None:
    """Raise a library's log level to WARNING unless the application configured one."""
    # At DEBUG, httpcore logs headers and URLs, which contain credentials.
    logger = logging.getLogger(name)
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.WARNING)
