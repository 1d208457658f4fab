"""Who may ask over HTTP: what a request must show before anything else of it is read.

`Host` is judged so that no page of the web can reach a server of this machine under a name of its own (DNS
rebinding), `Origin` so that no page may call that was not allowed (MCP, transports, security), and the token so that
no other machine may. Refusals repeat nothing of the request.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from toolcrib.serve.mcp.options import ANYWHERE, ListenAddress, is_loopback

LOOPBACK_NAMES: Final = ("127.0.0.1", "localhost", "[::1]")

_ALLOWED_HEADERS: Final = frozenset(
    {
        "accept",
        "authorization",
        "content-type",
        "last-event-id",
        "mcp-method",
        "mcp-name",
        "mcp-protocol-version",
        "mcp-session-id",
    }
)
_PARAM_HEADER: Final = "mcp-param-"
_TOKEN_CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_")

Headers = list[tuple[bytes, bytes]]


class GuardAnswer(NamedTuple):
    """A short answer of our own.

    Attributes:
        status: Its HTTP status.
        body: Its body, JSON or nothing.
        headers: Its headers, without length and type.
    """

    status: int
    body: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()


def refusal(
    status: int, message: str, *headers: tuple[bytes, bytes], data: Mapping[str, Any] | None = None
) -> GuardAnswer:
    """A refusal as JSON-RPC writes an error that belongs to no request."""
    error = {"code": -32600, "message": message} | ({} if data is None else {"data": data})
    return GuardAnswer(status, json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode(), headers)


class RequestGuard:
    """What requests must show."""

    def __init__(self, address: ListenAddress, ports: Iterable[int]) -> None:
        """Judge requests to an address.

        Args:
            address: Where is listened, and who may ask.
            ports: The ports that are listened at.
        """
        ports = tuple(ports)
        self._token = address.token.encode()
        self._own_hosts = frozenset(_hosts(address, ports))
        self._own_origins = frozenset(_own_origins(address, ports))
        self._origins = frozenset(origin.encode("latin-1").lower() for origin in address.origins)

    def check(self, method: str, headers: Headers, *, public: bool) -> GuardAnswer | None:
        """What a request is answered at once; None where it may go on.

        Args:
            method: Its method.
            headers: Its headers, with names in small letters.
            public: Whether it needs no token.
        """
        host, origin, proof = _values(headers, b"host"), _values(headers, b"origin"), b""
        if len(host) != 1 or not self._is_own(host[0].lower()):
            return refusal(421, "This server does not answer for that host; --allow-host names others")
        if origin and (len(origin) != 1 or not self._may_call(origin[0].lower())):
            return refusal(403, "Pages of that origin may not call; --allow-origin names those that may")
        if method == "OPTIONS":
            return (
                _preflight(headers)
                if self.shares_with(headers)
                else GuardAnswer(405, headers=((b"allow", b"GET, POST, DELETE"),))
            )
        if self._token and not public:
            proofs = _values(headers, b"authorization")
            scheme, _, proof = (proofs[0] if len(proofs) == 1 else b"").partition(b" ")
            if scheme.lower() != b"bearer" or not hmac.compare_digest(proof.strip(), self._token):
                return refusal(401, "A bearer token is needed", (b"www-authenticate", b"Bearer"))
        return None

    def shares_with(self, headers: Headers) -> Headers:
        """The headers that let the page which asks read the answer (CORS); none where no origin was allowed."""
        origin = _values(headers, b"origin")
        if len(origin) != 1 or origin[0].lower() not in self._origins:
            return []
        exposed = b"mcp-session-id, mcp-protocol-version, www-authenticate"
        return [
            (b"access-control-allow-origin", origin[0]),
            (b"access-control-expose-headers", exposed),
            (b"vary", b"origin"),
        ]

    def _is_own(self, host: bytes) -> bool:
        return host in self._own_hosts or _is_loopback_name(host)

    def _may_call(self, origin: bytes) -> bool:
        return origin in self._own_origins or origin in self._origins


def _values(headers: Headers, wanted: bytes) -> list[bytes]:
    return [value for name, value in headers if name == wanted]


def _is_loopback_name(host: bytes) -> bool:
    """Whether a `Host` means this machine, at whatever port it was forwarded from: no other site has that name."""
    name, separator, port = host.decode("latin-1").rpartition(":")
    if not separator or not port.isdecimal():
        name = host.decode("latin-1")
    return name in LOOPBACK_NAMES


def _hosts(address: ListenAddress, ports: tuple[int, ...]) -> Iterable[bytes]:
    names = list(address.hosts)
    if address.host not in ANYWHERE:
        names.append(f"[{address.host}]" if ":" in address.host else address.host)
    for name in (name.lower() for name in names):
        yield name.encode("latin-1", "replace")
        yield from (f"{name}:{port}".encode("latin-1", "replace") for port in ports)


def _own_origins(address: ListenAddress, ports: tuple[int, ...]) -> Iterable[bytes]:
    """A page that this server itself would serve, at the addresses that only this machine has."""
    if is_loopback(address.host) or address.host in ANYWHERE:
        for name in LOOPBACK_NAMES:
            yield from (f"{address.scheme}://{name}:{port}".encode() for port in ports)


def _preflight(headers: Headers) -> GuardAnswer:
    asked = b",".join(_values(headers, b"access-control-request-headers")).decode("latin-1").lower()
    named = {name.strip() for name in asked.split(",")}
    allowed = sorted(name for name in named if name in _ALLOWED_HEADERS or _is_param(name))
    return GuardAnswer(
        204,
        headers=(
            (b"access-control-allow-methods", b"GET, POST, DELETE"),
            (b"access-control-allow-headers", ", ".join(allowed).encode()),
            (b"access-control-max-age", b"600"),
        ),
    )


def _is_param(name: str) -> bool:
    return name.startswith(_PARAM_HEADER) and _TOKEN_CHARACTERS.issuperset(name)
