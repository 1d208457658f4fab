"""HTTP requests to one remote server: its URL, headers and authentication, over sockets that the egress guard dials."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from toolcrib import __version__
from toolcrib.core.clock import RealClock
from toolcrib.core.model import OUTPUT_SIZE
from toolcrib.core.running_calls import Traffic
from toolcrib.core.server_config import Server
from toolcrib.http import ExchangeBounds, HTTPError, HTTPFailure, HTTPRequest, open_client
from toolcrib.http.auth import AuthContext, AuthFailure, RequestAuth, TokenCache, compile_server_auth
from toolcrib.http.client import StreamedResponse, StreamingClient
from toolcrib.http.headers import header_fault
from toolcrib.http.messages import parse_origin
from toolcrib.security.egress import EgressGuard, EgressRefused, is_metadata, read_host
from toolcrib.security.hosts import host_and_port
from toolcrib.servers.environment import NetworkEnvironment, normal_origin
from toolcrib.servers.mcp.transports import CALL_TRACE, LinkTrouble, ServerTexts, StartFailure

if TYPE_CHECKING:
    from toolcrib.http.client import HTTPClient

BOUNDS = ExchangeBounds()
"""Limits of a response: 64 KiB of headers, 5 s to connect. The limit of the body is that of the call."""

_HINTS = {
    HTTPFailure.CONNECT_FAILED: "check that the server is running and that `url` is correct",
    HTTPFailure.CONNECT_TIMEOUT: "check that the server is running and that `url` is correct",
    HTTPFailure.TLS_FAILED: "check its certificate, or set SSL_CERT_FILE to the certificate that signs it",
}


class ExchangeFailure(Exception):
    """An exchange failed.

    Attributes:
        trouble: The cause.
        sent: Whether any of the request may have reached the server.
        refusal: The refusal of the egress guard, if any.
        lost: Whether the server cannot be reached.
    """

    def __init__(
        self,
        trouble: LinkTrouble,
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
        """Convert an error of the exchange, the egress guard or the authentication."""
        if isinstance(error, HTTPError):
            trouble = LinkTrouble(error.fault.value, error.message, _HINTS.get(error.fault, ""))
            return cls(trouble, sent=error.sent, lost=error.fault in _HINTS)
        if isinstance(error, EgressRefused):
            return cls(
                LinkTrouble(error.code, error.message, error.hint), sent=False, refusal=error, lost=True
            )
        return cls(LinkTrouble("auth_failed", error.message), sent=False)


class ServerEndpoint(NamedTuple):
    """The URL of a server and the headers of every request to it. Its `repr` shows only the origin.

    Attributes:
        scheme: `http` or `https`.
        host: The host to dial, after the project's `origins` are applied.
        port: The port to dial, after the project's `origins` are applied.
        target: Path and query, as configured.
        headers: (name, value), with variables resolved.
        written: The configured origin.
        guard: Allows the hosts of the project, and the configured host if it is localhost or an IP address other than
            a cloud metadata address.
    """

    scheme: str
    host: str
    port: int
    target: str
    headers: tuple[tuple[str, str], ...]
    written: str
    guard: EgressGuard

    def __repr__(self) -> str:
        # Path, query and headers may contain secrets.
        return f"{type(self).__name__}({self.request('GET').origin})"

    @property
    def url(self) -> str:
        """The full URL."""
        return self.request("GET").url

    def request(
        self, method: str, headers: Sequence[tuple[str, str]] = (), body: bytes = b"", target: str = ""
    ) -> HTTPRequest:
        """A request to the server. `headers` override configured headers of the same name."""
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
            # `check_stream` refuses an encoded event stream, so none may be negotiated.
            (*headers, *lines.values(), ("Accept-Encoding", "identity")),
            body,
        )


def resolve_endpoint(server: Server, world: NetworkEnvironment) -> ServerEndpoint:
    """Resolve the URL and headers of a server.

    Raises:
        MissingSecret: A variable is missing.
        StartFailure: The resolved URL or a resolved header is not valid.
    """
    texts = ServerTexts(server, world.secrets)
    url = texts.address(server.url, "/url")
    headers = [(name, texts.named(name, text, f"/headers/{name}")) for name, text in server.headers.items()]
    texts.check()
    for name, value in headers:
        if fault := header_fault(value):
            message = f"the header `{name}` of the {server.kind} `{server.name}` {fault}"
            raise StartFailure(message, hint="check the value that is looked up for it")
    start, mark, query = url.partition("#")[0].partition("?")
    scheme, _, rest = start.partition("://")
    authority, slash, path = rest.partition("/")
    try:
        written = normal_origin(f"{scheme.lower()}://{authority}")
        _, host, port = parse_origin(written)
        read = read_host(host)
    except ValueError:
        message = f"the `url` of the {server.kind} `{server.name}` is not a valid URL"
        raise StartFailure(
            message, hint="write `https://host/mcp`, and check the values that are looked up for it"
        ) from None
    aimed = parse_origin(world.instead_of(written))
    # Trust in the server covers a literal address in its `url`. A name could resolve to any address, and a metadata
    # address hands out cloud credentials, so both still need an `egress` entry.
    by_itself = read.name == "localhost" or (read.literal and not is_metadata(read.name))
    guard = world.guard.also([host_and_port(read.name, port)] if by_itself else [])
    return ServerEndpoint(
        *aimed, f"/{path}{mark}{query}" if slash or mark else "/", tuple(headers), written, guard
    )


class EndpointClient:
    """Sends requests to one server, and renews its credentials after a 401.

    Args:
        server: The server.
        world: The network environment.
        tokens: A cache shared between links, so that the same credentials fetch one token.

    Raises:
        MissingSecret: A variable named by `${...}` is missing.
        StartFailure: The resolved URL or a resolved header is not valid.
    """

    def __init__(self, server: Server, world: NetworkEnvironment, tokens: TokenCache | None) -> None:
        self.name = server.name
        self.endpoint = resolve_endpoint(server, world)
        self._streamer = StreamingClient(self.endpoint.guard)
        self._client: HTTPClient = open_client(self.endpoint.guard)
        way = AuthContext(self._client, RealClock(), [self.endpoint.request("GET").origin], _aim(world))
        self._auth: RequestAuth | None = compile_server_auth(server, world.secrets, way, tokens=tokens)
        self.proves = self._auth is not None

    async def send(
        self,
        request: HTTPRequest,
        *,
        silence: float | None,
        sending: Callable[[], None] | None = None,
        most: int = OUTPUT_SIZE,
        traffic: Traffic | None = None,
    ) -> StreamedResponse:
        """Send a request, and read the status and headers of its response.

        Args:
            request: A request to the endpoint, or to another path of its origin.
            silence: Read timeout in seconds; None for no timeout.
            sending: Called before the first byte is sent.
            most: Maximum size of the body in bytes, unless it is read as a stream.
            traffic: Counts what is sent and received, unless the call of an MCP tool does.

        Raises:
            ExchangeFailure: The exchange failed.
        """
        call_trace = CALL_TRACE.get()
        if call_trace is not None:
            call_trace.address = request.host, request.port
            call_trace.session = dict(request.headers).get("mcp-session-id", "")
            traffic = call_trace.traffic
        send: Callable[[HTTPRequest], Awaitable[StreamedResponse]] = partial(
            self._streamer.send,
            bounds=BOUNDS._replace(body=most),
            hosts=(self.endpoint.host,),
            silence=silence,
            sending=sending,
            traffic=traffic,
        )
        try:
            return await self._sent(request, send)
        except (HTTPError, EgressRefused, AuthFailure) as error:
            raise ExchangeFailure.by(error) from None

    async def _sent(
        self,
        request: HTTPRequest,
        send: Callable[[HTTPRequest], Awaitable[StreamedResponse]],
    ) -> StreamedResponse:
        if self._auth is None:
            return await send(request)
        ready = await self._auth.applied(request)
        answer = await send(ready)
        # Only 401 asks for other credentials; 403 refuses valid ones (RFC 9110, section 15.5).
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
        return await send(ready)

    async def aclose(self) -> None:
        """Close every connection."""
        await self._streamer.aclose()
        await self._client.aclose()


def _aim(world: NetworkEnvironment) -> Callable[[HTTPRequest], HTTPRequest]:
    def aimed(request: HTTPRequest) -> HTTPRequest:
        scheme, host, port = parse_origin(world.instead_of(request.origin))
        return request._replace(scheme=scheme, host=host, port=port)

    return aimed
