"""How tools are served over MCP: what a caller may choose. Nothing here needs the SDK."""

from __future__ import annotations

from collections.abc import Callable
from ipaddress import ip_address
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

from toolcrib.core.errors import ConfigurationError
from toolcrib.core.model import INPUT_SIZE

Say: TypeAlias = Callable[[str], None]
"""Tells people something, on one line; never on the stream that carries the protocol."""

PAGE_TOOLS: Final = 1000
"""Tools on a page of `tools/list` at most."""

PAGE_BYTES: Final = 768 * 1024
"""Bytes of JSON on such a page, unless one tool alone is longer: clients refuse events of more than 1 MiB."""

MOST_BODY: Final = INPUT_SIZE
"""Bytes of a message from a client."""

DRAIN: Final = 10.0
"""Seconds that calls in flight get when the server is told to end."""

SHORTEST_TOKEN: Final = 16
"""Characters of a token, at least, where other machines can reach the address."""

NEW_TOKEN: Final = "python -c 'import secrets; print(secrets.token_urlsafe(32))'"  # noqa: S105 -- no token
"""The command that makes a good one."""

ANYWHERE: Final = frozenset({"", "*", "0.0.0.0", "::"})  # noqa: S104 -- what is compared with, not bound to
"""Hosts that mean every address of the machine."""


class StdoutError(OSError):
    """Over stdio, the client can't be written to, though it has not gone away."""


class Options(NamedTuple):
    """What is offered, and how.

    Attributes:
        toolset: Name of the only toolset that is served; empty for everything that is offered.
        inline_refs: Whether schemas are freed of references, for clients that do not follow them.
        watch: Whether files are followed, and clients told of changes.
        page_tools: Tools on a page of `tools/list` at most.
        drain: Seconds that calls in flight get at the end.
    """

    toolset: str = ""
    inline_refs: bool = False
    watch: bool = True
    page_tools: int = PAGE_TOOLS
    drain: float = DRAIN


class ClientLimits(NamedTuple):
    """What clients over HTTP may take.

    Attributes:
        connections: Connections at a time; fewer where the process may not open enough files.
        sessions: Sessions of the handshake era at a time.
        head: Seconds until the head of a request must be there, from the connection or its first byte on; and until
            TLS must be agreed on.
        body: Seconds until its body must be there, from its head on.
    """

    connections: int = 900
    sessions: int = 1000
    head: float = 10.0
    body: float = 30.0


class CertificateFiles(NamedTuple):
    """What TLS is served with.

    Attributes:
        certificate: PEM file of the certificate, with its chain.
        key: PEM file of its key, not encrypted.
    """

    certificate: Path
    key: Path


class ListenAddress(NamedTuple):
    """Where HTTP is served, and for whom.

    Attributes:
        host: Address or name to listen at.
        port: Port to listen at; 0 for any that is free.
        token: What a client must present (RFC 6750); empty for nothing, which only loopback allows.
        hosts: Values of `Host` that are answered besides those of the address itself.
        origins: Values of `Origin` of pages in browsers that may call.
        limits: What clients may take.
        tls: Serve https with these; None serves http.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    token: str = ""
    hosts: tuple[str, ...] = ()
    origins: tuple[str, ...] = ()
    limits: ClientLimits = ClientLimits()
    tls: CertificateFiles | None = None

    @property
    def scheme(self) -> str:
        """`https` or `http`."""
        return "http" if self.tls is None else "https"

    def checked(self) -> ListenAddress:
        """The same address, if it may be served so.

        Raises:
            ConfigurationError: Other machines could call without a token, or with one that is too short; or a host
                or origin that is allowed is none, or any.
        """
        for value in (*self.hosts, *self.origins):
            _check_exact(value)
        for origin in self.origins:
            _check_origin(origin)
        if self.token and not (self.token.isascii() and self.token.isprintable() and " " not in self.token):
            raise ConfigurationError(
                "the token has characters that no header can carry", hint="use letters, digits and `-._~+/=`"
            )
        if not is_loopback(self.host):
            self.check_token()
        return self

    def check_token(self) -> None:
        """Check that the token keeps out strangers, at an address that other machines can reach.

        Raises:
            ConfigurationError: There is none, or it is too short.
        """
        if not self.token:
            raise ConfigurationError(
                f"other machines can reach `{self.host}`, so clients must prove who they are",
                code="token_needed",
                hint="name a token by `--token-env NAME` or `--token-file FILE`, or serve at 127.0.0.1",
            )
        if self.has_short_token:
            raise ConfigurationError(
                f"other machines can reach `{self.host}`, and the token has {len(self.token)} of at least "
                f"{SHORTEST_TOKEN} characters",
                code="token_too_short",
                hint=f"make a longer one: {NEW_TOKEN}",
            )

    @property
    def has_short_token(self) -> bool:
        """Whether there is a token that could be guessed."""
        return 0 < len(self.token) < SHORTEST_TOKEN


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address; of a name other than `localhost` nobody knows."""
    try:
        return ip_address(host.strip("[]").partition("%")[0]).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def _check_exact(value: str) -> None:
    if "*" in value or not value.strip():
        raise ConfigurationError(
            f"`{value}` would allow more than one; hosts and origins are allowed one by one",
            hint="write `--allow-host mcp.example.com` or `--allow-origin https://app.example.com`",
        )


def _check_origin(origin: str) -> None:
    scheme, separator, rest = origin.partition("://")
    if not separator or not scheme or not rest or "/" in rest:
        raise ConfigurationError(
            f"`{origin}` is no origin", hint="write scheme, host and port: `https://app.example.com`"
        )
