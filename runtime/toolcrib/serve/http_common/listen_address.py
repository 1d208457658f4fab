"""Where a server over HTTP listens, and which clients may call. Nothing here needs a protocol's SDK."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from toolcrib.core.errors import ConfigurationError
from toolcrib.core.model import INPUT_SIZE

Say: TypeAlias = Callable[[str], None]
"""Prints one line for the user; never writes to the stream that carries the protocol."""

MOST_BODY: Final = INPUT_SIZE
"""Maximum size of a client's message in bytes."""

DRAIN: Final = 10.0
"""Seconds that calls in flight get when the server is asked to stop."""

SHORTEST_TOKEN: Final = 16
"""Minimum length of a token, in characters, at an address that other machines can reach."""

NEW_TOKEN: Final = "python -c 'import secrets; print(secrets.token_urlsafe(32))'"  # noqa: S105 -- a command, not a token
"""The command that generates a good token."""

ANYWHERE: Final = frozenset({"", "*", "0.0.0.0", "::"})  # noqa: S104 -- compared with, never bound to
"""Hosts that mean every address of the machine."""


class ClientLimits(NamedTuple):
    """Limits for HTTP clients.

    Attributes:
        connections: Concurrent connections; fewer if the process may not open enough files.
        sessions: Concurrent sessions of handshake revisions, of the protocols that have sessions.
        head: Seconds to receive the head of a request, counted from the connection or from its first byte; also the
            limit of the TLS handshake.
        body: Seconds to receive the body, counted from the end of the head.
    """

    connections: int = 900
    sessions: int = 1000
    head: float = 10.0
    body: float = 30.0


class CertificateFiles(NamedTuple):
    """Certificate and private key for HTTPS.

    Attributes:
        certificate: PEM file of the certificate, including its chain.
        key: PEM file of its key, not encrypted.
    """

    certificate: Path
    key: Path


class ListenAddress(NamedTuple):
    """Where to listen, and which clients may call.

    Attributes:
        host: Address or name to listen on.
        port: Port to listen on; 0 chooses a free one.
        tokens: Bearer tokens (RFC 6750), one of which clients must present; none is allowed on loopback only. Clients
            with different tokens never share a session.
        users: User of the calls of each token, for access rules, approvals and budgets (default: `token 1`, `token 2`
            and so on).
        hosts: Accepted values of `Host`, in addition to those of the address itself.
        origins: Accepted values of `Origin`: web pages that may call.
        limits: Limits for clients.
        tls: Serve HTTPS with these files; None serves HTTP.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    tokens: tuple[str, ...] = ()
    users: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    limits: ClientLimits = ClientLimits()
    tls: CertificateFiles | None = None

    @property
    def scheme(self) -> str:
        """`https` or `http`."""
        return "http" if self.tls is None else "https"

    def checked(self) -> ListenAddress:
        """Return the address itself if it is safe to serve.

        Raises:
            ConfigurationError: Other machines could call without a token, or with one that is too short; two tokens
                are equal; or an allowed host or origin is invalid or a wildcard.
        """
        for value in (*self.hosts, *self.origins):
            _check_exact(value)
        for origin in self.origins:
            _check_origin(origin)
        # A header value is visible ASCII (RFC 9110, 5.5), and a bearer token contains no space (RFC 6750,
        # 2.1).
        if not all(token.isascii() and token.isprintable() and " " not in token for token in self.tokens):
            raise ConfigurationError(
                "the token contains characters that are not allowed in a header",
                hint="use letters, digits and `-._~+/=`",
            )
        if len({*self.tokens}) < len(self.tokens):
            raise ConfigurationError(
                "two of the tokens are equal, so their clients would share a session",
                hint=f"generate another one: `{NEW_TOKEN}`",
            )
        if not is_loopback(self.host):
            self.check_tokens()
        return self

    def check_tokens(self) -> None:
        """Check that the tokens are good enough for an address that other machines can reach.

        Raises:
            ConfigurationError: There is none, or one is too short.
        """
        if not self.tokens:
            raise ConfigurationError(
                f"other machines can reach `{self.host}`, so a token is required",
                code="token_needed",
                hint="use `--token-env NAME` or `--token-file FILE`, or listen on 127.0.0.1",
            )
        if self.has_short_token:
            raise ConfigurationError(
                f"other machines can reach `{self.host}`, and the token is too short: expected at least "
                f"{SHORTEST_TOKEN} characters, got {min(map(len, self.tokens))}",
                code="token_too_short",
                hint=f"generate a longer one: `{NEW_TOKEN}`",
            )

    @property
    def has_short_token(self) -> bool:
        """Whether a token is short enough to be guessed."""
        return any(len(token) < SHORTEST_TOKEN for token in self.tokens)


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a host."""
    try:
        # `[::1%lo]`: neither the brackets nor the zone (RFC 4007, 11) matter.
        return ip_address(host.strip("[]").partition("%")[0]).is_loopback
    except ValueError:
        # No other name is resolved: it could resolve to another address when the socket is bound.
        return host.lower() == "localhost"


def _check_exact(value: str) -> None:
    if "*" in value or not value.strip():
        raise ConfigurationError(
            f"`{value}` is not a single host or origin; wildcards are not supported",
            hint="use `--allow-host mcp.example.com` or `--allow-origin https://app.example.com`",
        )


def _check_origin(origin: str) -> None:
    scheme, separator, rest = origin.partition("://")
    if not separator or not scheme or not rest or "/" in rest:
        raise ConfigurationError(
            f"`{origin}` is not a valid origin", hint="use scheme, host and port: `https://app.example.com`"
        )
