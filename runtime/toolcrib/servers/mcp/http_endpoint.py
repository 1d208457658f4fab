"""The HTTP endpoint of a server, and one exchange with it: address, headers, authentication, and how an exchange fails."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from toolcrib import __version__
from toolcrib.core.clock import RealClock
from toolcrib.core.model import OUTPUT_SIZE
from toolcrib.core.server_config import Server
from toolcrib.http import ExchangeBounds, HTTPError, HTTPFailure, HTTPRequest, open_client
from toolcrib.http.auth import AuthContext, AuthFailure, RequestAuth, TokenCache, compile_server_auth
from toolcrib.http.client import StreamedResponse, StreamingClient
from toolcrib.http.headers import header_fault
from toolcrib.http.messages import parse_origin
from toolcrib.security.egress import EgressGuard, EgressRefused, is_metadata, read_host
from toolcrib.security.hosts import place_of, shown
from toolcrib.servers.environment import NetworkEnvironment, normal_origin
from toolcrib.servers.mcp.transports import ServerTexts, StartFailure, Trouble

if TYPE_CHECKING:
    from toolcrib.http.client import HTTPClient

BOUNDS = ExchangeBounds(body=OUTPUT_SIZE)
"""What an answer may take: 16 MiB, 64 KiB of headers, 5 s for the connection."""

_HINTS = {
    HTTPFailure.CONNECT_FAILED: "see whether it runs, and `url`",
    HTTPFailure.CONNECT_TIMEOUT: "see whether it runs, and `url`",
    HTTPFailure.TLS_FAILED: "see to its certificate, or name the one that signs it in SSL_CERT_FILE",
}


class ExchangeFailure(Exception):
    """An exchange failed.

    Attributes:
        trouble: How.
        sent: Whether any of it may have reached the server.
        refusal: What the egress guard has against it.
        lost: Whether there is no way to the server now.
    """

    def __init__(
        self,
        trouble: Trouble,
        *,
        sent: bool,
        refusal: EgressRefused | None = None,
        lost: bool = False,
    ) -> None:
        super().__init__(trouble.message)
        self.trouble = trouble
        self.sent = sent
        self.refusal = refusal
        self.lost = lost

    @classmethod
    def by(cls, error: HTTPError | EgressRefused | AuthFailure) -> ExchangeFailure:
        """What an error of the exchange, the guard or the authentication comes to."""
        if isinstance(error, HTTPError):
            trouble = Trouble(error.fault.value, error.message, _HINTS.get(error.fault, ""))
            return cls(trouble, sent=error.sent, lost=error.fault in _HINTS)
        if isinstance(error, EgressRefused):
            return cls(Trouble(error.code, error.message, error.hint), sent=False, refusal=error, lost=True)
        return cls(Trouble("auth_failed", error.message), sent=False)


class ServerEndpoint(NamedTuple):
    """Where a server is, and what every request to it has. Its `repr` shows the origin.

    Attributes:
        scheme: `http` or `https`.
        host: As it is dialled: `origins` of the project may have put it in place of what is written.
        port: Likewise.
        target: Path and query, as written.
        headers: (name, value), looked up.
        written: The origin as it was written.
        guard: Allows what the project does, and what is written in the url itself without a name: localhost, or an address
            unless it is one where clouds keep credentials.
    """

    scheme: str
    host: str
    port: int
    target: str
    headers: tuple[tuple[str, str], ...]
    written: str
    guard: EgressGuard

    def __repr__(self) -> str:
        return f"Endpoint({self.request('GET').origin})"

    @property
    def url(self) -> str:
        """The whole address."""
        return self.request("GET").url

    def request(
        self, method: str, headers: Sequence[tuple[str, str]] = (), body: bytes = b"", target: str = ""
    ) -> HTTPRequest:
        """A request to the server; `headers` go before its own of the same name."""
        taken = {name.lower() for name, _ in headers}
        usual = [*self.headers, ("User-Agent", f"toolcrib/{__version__}")]
        own = [(name, value) for name, value in usual if name.lower() not in taken]
        lines = {name.lower(): (name, value) for name, value in reversed(own)}
        return HTTPRequest(
            method,
            self.scheme,
            self.host,
            self.port,
            target or self.target,
            (*headers, *lines.values(), ("Accept-Encoding", "identity")),
            body,
        )


def resolve_endpoint(server: Server, world: NetworkEnvironment) -> ServerEndpoint:
    """Where a server is, with everything looked up.

    Raises:
        MissingSecret: Something is not there.
        StartFailed: What is looked up makes no address, or no header.
    """
    texts = ServerTexts(server, world.vault)
    url = texts.address(server.url, "/url")
    headers = [(name, texts.named(name, text, f"/headers/{name}")) for name, text in server.headers.items()]
    texts.check()
    for name, value in headers:
        if fault := header_fault(value):
            message = f"the header `{name}` of the server `{server.name}` {fault}"
            raise StartFailure(message, hint="see to what is looked up for it")
    start, mark, query = url.partition("#")[0].partition("?")
    scheme, _, rest = start.partition("://")
    authority, slash, path = rest.partition("/")
    try:
        written = normal_origin(f"{scheme.lower()}://{authority}")
        _, host, port = parse_origin(written)
        read = read_host(host)
    except ValueError:
        message = f"the `url` of the server `{server.name}` is no address"
        raise StartFailure(
            message, hint="write `https://host/mcp`, and see to what is looked up for it"
        ) from None
    aimed = parse_origin(world.instead_of(written))
    by_itself = read.name == "localhost" or (read.literal and not is_metadata(read.name))
    guard = world.guard.also([place_of(read.name, port)] if by_itself else [])
    return ServerEndpoint(
        *aimed, f"/{path}{mark}{query}" if slash or mark else "/", tuple(headers), written, guard
    )


class EndpointClient:
    """Sends requests to one server, and renews what proves who asks where it is refused.

    Args:
        server: The server.
        world: What may be reached.
        tokens: Shared by links, so that the same credentials get one token.

    Raises:
        MissingSecret: Something that `${...}` names is not there.
        StartFailed: What is looked up makes no address, or no header.
    """

    def __init__(self, server: Server, world: NetworkEnvironment, tokens: TokenCache | None) -> None:
        self.endpoint = resolve_endpoint(server, world)
        self._streamer = StreamingClient(self.endpoint.guard)
        self._client: HTTPClient = open_client(self.endpoint.guard)
        way = AuthContext(self._client, RealClock(), [self.endpoint.request("GET").origin], _aim(world))
        self._auth: RequestAuth | None = compile_server_auth(server, world.vault, way, tokens=tokens)
        self.proves = self._auth is not None

    async def send(
        self, request: HTTPRequest, *, silence: float | None, sending: Callable[[], None] | None = None
    ) -> StreamedResponse:
        """Send a request, and read the head of its answer.

        Args:
            request: To the endpoint, or to another path of its origin.
            silence: Seconds for which nothing may come.
            sending: Called before any of it is sent.

        Raises:
            Failed: It failed.
        """
        try:
            return await self._sent(request, silence, sending)
        except (HTTPError, EgressRefused, AuthFailure) as error:
            raise ExchangeFailure.by(error) from None

    async def _sent(
        self, request: HTTPRequest, silence: float | None, sending: Callable[[], None] | None
    ) -> StreamedResponse:
        hosts = (self.endpoint.host,)
        if self._auth is None:
            return await self._streamer.send(request, BOUNDS, hosts=hosts, silence=silence, sending=sending)
        ready = await self._auth.applied(request)
        answer = await self._streamer.send(ready, BOUNDS, hosts=hosts, silence=silence, sending=sending)
        if answer.status != 401:
            return answer
        try:
            new = await self._auth.renewed(ready)
        except BaseException:
            await answer.aclose()
            raise
        if not new:
            return answer
        await answer.aclose()
        ready = await self._auth.applied(request)
        return await self._streamer.send(ready, BOUNDS, hosts=hosts, silence=silence, sending=sending)

    async def aclose(self) -> None:
        """Close every connection."""
        await self._streamer.aclose()
        await self._client.aclose()


def _aim(world: NetworkEnvironment) -> Callable[[HTTPRequest], HTTPRequest]:
    def aimed(request: HTTPRequest) -> HTTPRequest:
        scheme, host, port = parse_origin(world.instead_of(request.origin))
        return request._replace(scheme=scheme, host=host, port=port)

    return aimed


_UNKNOWN_SESSION = -32000
"""The code that servers of the TypeScript SDK answer with, and status 400, where they do not know a session."""


def is_session_over(status: int, body: bytes) -> bool:
    """Whether a request with a session was refused for that (2025-11-25, basic/transports, "Session Management")."""
    if status == 404:
        return True
    error = _error_in(body) if status == 400 else None
    if error is None or error.get("code") != _UNKNOWN_SESSION:
        return False
    return "session" in str(error.get("message", "")).lower()


def trouble_in_status(
    status: int, headers: Mapping[str, str], body: bytes, *, proves: bool
) -> Trouble | None:
    """What is wrong; None where the body says it, or nothing is.

    Args:
        status: The final status code.
        headers: Those of the answer.
        body: Its body.
        proves: Whether the request had what proves who asks.
    """
    if status in (401, 403):
        hint = (
            "see whether what `auth` names is still good"
            if proves
            else "name credentials in `auth` of the server"
        )
        return Trouble("unauthorized", f"the server answered with status {status}", hint)
    if 300 <= status < 400:
        return Trouble(
            "http_status", f"the server redirects{_to(headers)} (status {status})", "correct its `url`"
        )
    if status == 202 or (200 <= status < 300 and not _is_json(headers)):
        what = "no answer" if status == 202 else "neither JSON nor a stream of events"
        return Trouble("http_status", f"the server answered a request with status {status} and {what}", _SEE)
    if status < 400 or (_is_json(headers) and _error_in(body) is not None):
        return None
    return Trouble(
        "http_status", f"the server answered with status {status}", _SEE if status in (404, 405) else ""
    )


_SEE = "see whether `url` is where the server speaks MCP, and `transport`"


def _is_json(headers: Mapping[str, str]) -> bool:
    return headers.get("content-type", "").lower().startswith("application/json")


def _to(headers: Mapping[str, str]) -> str:
    """Where to, without what may be secret."""
    try:
        host = urlsplit(headers.get("location", "")).hostname
    except ValueError:
        return ""
    return f" to `{shown(host)}`" if host else ""


def _error_in(body: bytes) -> dict[str, Any] | None:
    try:
        read = json.loads(body)
    except (ValueError, RecursionError):
        return None
    error = read.get("error") if isinstance(read, dict) else None
    return error if isinstance(error, dict) else None
