"""The network environment of modes: the hosts, secrets and servers that the project and its profile configure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple
from urllib.parse import urlsplit

from toolcrib.core.model import NOTHING
from toolcrib.core.server_config import Catalogue, LockVerdict, Server
from toolcrib.http.messages import origin_of, parse_origin
from toolcrib.security.egress import EgressGuard, read_host
from toolcrib.security.path_access import EVERYWHERE, PathAccess
from toolcrib.security.secrets import SecretResolver
from toolcrib.security.trust import Trust

LockJudge = Callable[[Server, Catalogue | None], LockVerdict]
"""Checks a server against a lock: before it starts (no catalogue), and each time it lists its tools."""


RecordDuration = Callable[[str, float, Mapping[str, str | int]], None]
"""Records a duration: name of the metric, seconds, and attributes, by the conventions of OpenTelemetry."""


def record_nothing(_name: str, _seconds: float, _attributes: Mapping[str, str | int]) -> None:
    """Receives durations that nobody wants."""


def accept_all(_server: Server, _catalogue: Catalogue | None) -> LockVerdict:
    """The judge used without a lock: accepts every server and tool."""
    return LockVerdict()


class NetworkEnvironment(NamedTuple):
    """The network access of modes (`Executor.world`), replaced at each reload.

    Attributes:
        guard: Opens every socket.
        secrets: Resolves every secret, and knows which texts to mask.
        origins: Origin in a descriptor -> the origin to call instead, such as `https://api.example.com`
            -> `http://127.0.0.1:8080`.
        servers: The MCP servers, by name.
        judge: Checks servers against the lock.
        sandbox: Where programs run: `bubblewrap` or `none`; empty for the default of each mode.
        paths: Folders in which programs and worker processes may use files.
        record: Records how long requests to MCP servers and their sessions took.
        trust: Decides which servers may be started or contacted, and which secrets may be resolved.
    """

    guard: EgressGuard
    secrets: SecretResolver
    origins: Mapping[str, str] = NOTHING
    servers: Mapping[str, Server] = NOTHING
    judge: LockJudge = accept_all
    trust: Trust = Trust()
    sandbox: str = ""
    record: RecordDuration = record_nothing
    paths: PathAccess = EVERYWHERE

    @classmethod
    def ordinary(cls) -> NetworkEnvironment:
        """The environment outside projects: public addresses, and secrets from environment variables."""
        return cls(EgressGuard(), SecretResolver())

    @classmethod
    def of(
        cls,
        egress: Iterable[str],
        origins: Mapping[str, str],
        hosts: Iterable[str] | None = None,
        *,
        audit: bool = False,
    ) -> NetworkEnvironment:
        """The environment of a project.

        Args:
            egress: The allowed `host:port` entries, as configured.
            origins: Replaced origin -> origin to call, as configured.
            hosts: Patterns of the hosts that may be reached at all, as configured; None for all.
            audit: Whether other hosts are reported, and not refused.

        Raises:
            ValueError: An entry is not valid; the message explains the format.
        """
        normal = {normal_origin(key): normal_origin(value) for key, value in origins.items()}
        return cls(EgressGuard(egress, only=hosts, audit=audit), SecretResolver(), normal)

    def instead_of(self, origin: str) -> str:
        """The origin to call for one in a descriptor, which must be in normal form."""
        return self.origins.get(origin, origin)


def normal_origin(text: str) -> str:
    """An origin in normal form: lower case, short IPv6 addresses, no default port.

    A trailing slash is accepted, since browsers show origins with one.

    Raises:
        ValueError: The text is not a valid origin; the part after the last semicolon of the message is a hint.
    """
    try:
        scheme, host, port = parse_origin(text)
        read = read_host(host)
    except ValueError:
        raise ValueError(f"{_fault_of(text)}; {_ORIGINS_ARE}") from None
    # A plain name keeps its trailing dot: `api.example.com.` skips the search domains of the resolver.
    return origin_of(scheme, read.name if ":" in host or not host.isascii() else host, port)


_ORIGINS_ARE = "write an origin as a scheme, a host and an optional port: `http://127.0.0.1:8080`"


def _fault_of(text: str) -> str:
    # Checked first, and without quoting the text: it may contain a password.
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
