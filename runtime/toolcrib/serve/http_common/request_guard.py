"""Which requests may pass, decided by their head before anything else is read.

`Host`, so that no web page can reach a local server under a name of its own (DNS rebinding); `Origin`, so that only
allowed pages may call (MCP, transports, security); and the token, so that no other machine may. Refusals repeat nothing of
the request.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from toolcrib.serve.http_common.listen_address import ANYWHERE, ListenAddress, is_loopback

LOOPBACK_NAMES: Final = ("127.0.0.1", "localhost", "[::1]")

_ANY_PROTOCOL: Final = frozenset({"accept", "authorization", "content-type"})
"""The headers that pages may send, whatever the protocol."""

_TOKEN_CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-_")

Headers = list[tuple[bytes, bytes]]


class PageAccess(NamedTuple):
    """What pages of allowed origins may send and read (Fetch, CORS protocol).

    Attributes:
        methods: HTTP methods, separated by commas.
        sends: Lower-case names of request headers, besides those of any protocol.
        prefix: Beginning of the names of further request headers; empty for none.
        reads: Names of response headers, separated by commas.
    """

    methods: bytes
    sends: frozenset[str]
    reads: bytes
    prefix: str = ""


class GuardAnswer(NamedTuple):
    """A short answer that does not come from the application.

    Attributes:
        status: HTTP status.
        body: JSON or empty.
        headers: Headers, without length and type.
    """

    status: int
    body: bytes = b""
    headers: tuple[tuple[bytes, bytes], ...] = ()


def refusal(
    status: int, message: str, *headers: tuple[bytes, bytes], data: Mapping[str, Any] | None = None
) -> GuardAnswer:
    """A refusal, as a JSON-RPC error without a request id."""
    error = {"code": -32600, "message": message} | ({} if data is None else {"data": data})
    return GuardAnswer(status, json.dumps({"jsonrpc": "2.0", "id": None, "error": error}).encode(), headers)


class RequestGuard:
    """Checks the head of a request."""

    def __init__(self, address: ListenAddress, ports: Iterable[int], pages: PageAccess) -> None:
        """Check requests to an address.

        Args:
            address: Where the server listens, and which clients may call.
            ports: The ports that it listens on.
            pages: What pages of allowed origins may send and read.
        """
        self._pages = pages
        ports = tuple(ports)
        self._tokens = tuple(token.encode() for token in address.tokens)
        self._users = address.users or tuple(f"token {index + 1}" for index in range(len(self._tokens)))
        self._own_hosts = frozenset(_hosts(address, ports))
        self._own_origins = frozenset(_own_origins(address, ports))
        self._origins = frozenset(origin.encode("latin-1").lower() for origin in address.origins)

    def check(self, method: str, headers: Headers, *, public: bool) -> GuardAnswer | None:
        """The refusal or the preflight answer to a request; None to let it pass.

        Args:
            method: HTTP method.
            headers: Headers, with lower-case names.
            public: Whether the request needs no token.
        """
        host, origin = _values(headers, b"host"), _values(headers, b"origin")
        # A second `Host` is an attempt to get a request past a proxy; RFC 9112, 3.2 requires a refusal. The
        # body names an option only, so that a page learns nothing about this machine.
        if len(host) != 1 or not self._is_own(host[0].lower()):
            return refusal(421, "Unknown host; allow it with --allow-host")
        if origin and (len(origin) != 1 or not self._may_call(origin[0].lower())):
            return refusal(403, "Unknown origin; allow it with --allow-origin")
        # Browsers send a preflight without credentials (Fetch, CORS-preflight fetch), so it is answered before the token is
        # checked.
        if method == "OPTIONS":
            return (
                self._preflight(headers)
                if self.shares_with(headers)
                else GuardAnswer(405, headers=((b"allow", self._pages.methods),))
            )
        if self._tokens and not public and self._presented(headers) is None:
            return refusal(401, "A bearer token is required", (b"www-authenticate", b"Bearer"))
        return None

    def principal_of(self, headers: Headers) -> str:
        """The principal of a request that may pass: the user of its token; empty if no token is required."""
        if not self._tokens:
            return ""
        # Most servers have a single token, and `check` has compared it already.
        index = 0 if len(self._tokens) == 1 else self._presented(headers)
        return self._users[index or 0]

    def _presented(self, headers: Headers) -> int | None:
        """The index of the token that a request presents; None without a valid one."""
        proofs = _values(headers, b"authorization")
        scheme, _, proof = (proofs[0] if len(proofs) == 1 else b"").partition(b" ")
        if scheme.lower() != b"bearer":
            return None
        proof = proof.strip()
        # In constant time, and always with all tokens: the time of `==` reveals how many characters of a guess
        # are right, and an early end would reveal which token it is.
        same = [hmac.compare_digest(proof, token) for token in self._tokens]
        return same.index(True) if True in same else None

    def shares_with(self, headers: Headers) -> Headers:
        """The CORS headers that let the calling page read the answer; empty unless its origin is allowed."""
        origin = _values(headers, b"origin")
        if len(origin) != 1 or origin[0].lower() not in self._origins:
            return []
        return [
            (b"access-control-allow-origin", origin[0]),
            (b"access-control-expose-headers", self._pages.reads),
            # Caches must not give a page the answer that allows another origin.
            (b"vary", b"origin"),
        ]

    def _preflight(self, headers: Headers) -> GuardAnswer:
        asked = b",".join(_values(headers, b"access-control-request-headers")).decode("latin-1").lower()
        named = {name.strip() for name in asked.split(",")}
        allowed = sorted(name for name in named if name in _ANY_PROTOCOL or self._may_send(name))
        return GuardAnswer(
            204,
            headers=(
                (b"access-control-allow-methods", self._pages.methods),
                (b"access-control-allow-headers", ", ".join(allowed).encode()),
                (b"access-control-max-age", b"600"),
            ),
        )

    def _may_send(self, name: str) -> bool:
        sends, prefix = self._pages.sends, self._pages.prefix
        # The name is repeated in the answer.
        return name in sends or (
            bool(prefix) and name.startswith(prefix) and _TOKEN_CHARACTERS.issuperset(name)
        )

    def _is_own(self, host: bytes) -> bool:
        return host in self._own_hosts or _is_loopback_name(host)

    def _may_call(self, origin: bytes) -> bool:
        return origin in self._own_origins or origin in self._origins


def _values(headers: Headers, wanted: bytes) -> list[bytes]:
    return [value for name, value in headers if name == wanted]


def _is_loopback_name(host: bytes) -> bool:
    # Loopback names are accepted with any port, because of port forwarding. No other site can own them, so
    # DNS rebinding cannot use them.
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
    # Pages of this server itself. Only loopback names count, since they mean this machine in every browser.
    if is_loopback(address.host) or address.host in ANYWHERE:
        for name in LOOPBACK_NAMES:
            yield from (f"{address.scheme}://{name}:{port}".encode() for port in ports)
