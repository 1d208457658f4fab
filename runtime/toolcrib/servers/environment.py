"""What modes may reach: the network, secrets and servers, as the project and its profile configure them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from toolcrib.core.model import NOTHING
from toolcrib.core.server_config import Catalogue, LockVerdict, Server
from toolcrib.http.messages import origin_of, parse_origin
from toolcrib.security.egress import EgressGuard, read_host
from toolcrib.security.secrets import SecretResolver
from toolcrib.security.trust import Trust

LockJudge = Callable[[Server, Catalogue | None], LockVerdict]
"""Checks a server against a lock: before it is started (no catalogue), and whenever it has listed its tools."""


def accept_all(_server: Server, _catalogue: Catalogue | None) -> LockVerdict:
    """The judge where nothing is locked."""
    return LockVerdict()


class NetworkEnvironment(NamedTuple):
    """Handed to every mode that reaches out (`Executor.world`), anew at each reload.

    Attributes:
        guard: The one way to a socket.
        secrets: The one way to a secret; knows what must be masked.
        origins: Origin as descriptors write it -> the origin that is meant instead: `https://api.example.com`
            -> `http://127.0.0.1:8080`.
        servers: The MCP servers, by name.
        judge: What a lock says of them.
        trust: What may be started, contacted and looked up at all.
    """

    guard: EgressGuard
    secrets: SecretResolver
    origins: Mapping[str, str] = NOTHING
    servers: Mapping[str, Server] = NOTHING
    judge: LockJudge = accept_all
    trust: Trust = Trust()

    @classmethod
    def ordinary(cls) -> NetworkEnvironment:
        """The environment outside projects: public addresses, and secrets from environment variables."""
        return cls(EgressGuard(), SecretResolver())

    @classmethod
    def of(cls, egress: Iterable[str], origins: Mapping[str, str]) -> NetworkEnvironment:
        """The environment of a project: `host:port` entries, and origins in place of others, each as it was written.

        Raises:
            ValueError: One of them is none; the message says how to write it.
        """
        normal = {normal_origin(key): normal_origin(value) for key, value in origins.items()}
        return cls(EgressGuard(egress), SecretResolver(), normal)

    def instead_of(self, origin: str) -> str:
        """The origin that is called where a descriptor names this one, which is in its normal form."""
        return self.origins.get(origin, origin)


def normal_origin(text: str) -> str:
    """An origin as requests tell it: in lower case, IPv6 addresses in their short form, no port that goes without saying.

    One slash may stand behind it, as browsers show origins.

    Raises:
        ValueError: It is no origin; the message says how to write one, behind its last semicolon.
    """
    try:
        scheme, host, port = parse_origin(text)
        read = read_host(host)
    except ValueError:
        raise ValueError(f"{_fault_of(text)}; {_ORIGINS_ARE}") from None
    # Names stay as they are: `api.example.com.` is asked for with its dot.
    return origin_of(scheme, read.name if ":" in host or not host.isascii() else host, port)


_ORIGINS_ARE = "write an origin as a scheme, a host and an optional port: `http://127.0.0.1:8080`"


def _fault_of(text: str) -> str:
    if "@" in text:
        return "an origin cannot contain a user name"
    try:
        parts = urlsplit(text)
    except ValueError:
        return f"`{text}` is not a valid origin"
    if parts.netloc and parts.path.strip("/"):
        return f"`{text}` is not a valid origin: an origin has no path"
    if parts.netloc and (parts.query or parts.fragment):
        return f"`{text}` is not a valid origin: an origin has no query"
    return f"`{text}` is not a valid origin"
