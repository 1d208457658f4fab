"""A2A over HTTP: the routes of the agent and of its toolsets behind the guard, and a graceful shutdown.

The SDK handles the bindings, the tasks and their streams. The agent is at `/a2a`, a toolset at `/a2a/TOOLSET`; JSON-RPC is posted to
that path, and the operations of HTTP+JSON are below it.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import aclosing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import parse_qs, unquote

from a2a.auth.user import User
from a2a.extensions.common import get_requested_extensions
from a2a.server.context import ServerCallContext
from a2a.server.routes import create_jsonrpc_routes, create_rest_routes
from a2a.server.routes.common import ServerCallContextBuilder
from a2a.utils.constants import VERSION_HEADER
from a2a.utils.errors import VersionNotSupportedError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.routing import Match, Route, Router

from toolcrib.core.errors import near_misses
from toolcrib.serve.a2a.agent_options import AgentOptions
from toolcrib.serve.a2a.cards import LEGACY_VERSION, VERSION, Cards, EncodedCard
from toolcrib.serve.a2a.request_check import (
    error_answer,
    full_states,
    in_http_json,
    refused_body,
    refused_query,
)
from toolcrib.serve.a2a.request_handler import CARD, RequestHandler
from toolcrib.serve.a2a.task_store import BoundedTaskStore
from toolcrib.serve.a2a.tool_executor import LEGACY, TOOLSET, TRACE, ToolExecutor
from toolcrib.serve.http_common.asgi import (
    HEALTH,
    INVALID_REQUEST,
    Receive,
    Scope,
    Send,
    health,
    read_body,
    send_answer,
    sends_headers,
)
from toolcrib.serve.http_common.http_server import bind_address
from toolcrib.serve.http_common.lifecycle import Shutdown, announced_changes, opening_line, toolset_names
from toolcrib.serve.http_common.listen_address import ListenAddress, Say
from toolcrib.serve.http_common.request_guard import GuardAnswer, Headers, PageAccess, RequestGuard, refusal
from toolcrib.servers.a2a.cards import EXTENSION, WELL_KNOWN
from toolcrib.servers.a2a.messages import EXTENSIONS_HEADER

if TYPE_CHECKING:
    from toolcrib.core.protocols import Clock
    from toolcrib.engine.runtime import Runtime

PATH: Final = "/a2a"

PAGE_ACCESS: Final = PageAccess(
    b"GET, POST",
    frozenset({"a2a-extensions", "a2a-version", "if-none-match", "last-event-id", "x-a2a-extensions"}),
    b"a2a-extensions, etag, www-authenticate",
)
"""What pages of allowed origins may send and read."""

FRESH_CHANGING: Final = 5
"""How long peers may use a card without asking again if it can change, in seconds."""

FRESH: Final = 60
"""How long peers may use a card without asking again if only a restart changes it, in seconds."""

_VERSION: Final = VERSION_HEADER.lower()
_TRACE: Final = ("traceparent", "tracestate", "baggage")
_LONGEST_TRACE: Final = 8192

_PRINCIPAL: Final = "toolcrib.principal"
_TOOLSET: Final = "toolcrib.toolset"
_CARD: Final = "toolcrib.card"
"""Keys in the scope of a request: what `_RequestContexts` passes on."""

_RPC: Final = "/rpc"
_REST: Final = "/rest"
"""Paths of the bindings within the SDK's routes."""

_TASKS: Final = f"{_REST}/tasks"

_OPERATIONS: Final = ("/message:send", "/message:stream", "/tasks", "/extendedAgentCard")
"""Beginnings of the paths of HTTP+JSON (A2A 1.0, section 11.3)."""

_UNKNOWN_PATH: Final = "Unknown path; the agent is at /a2a, and its toolsets at /a2a/TOOLSET"

_LEGACY_OPERATIONS: Final = "/v1/"
"""Beginning of the paths of HTTP+JSON in A2A 0.3."""


class _Peer(User):
    """The principal of a request."""

    def __init__(self, principal: str) -> None:
        self._principal = principal

    @property
    def is_authenticated(self) -> bool:
        return bool(self._principal)

    @property
    def user_name(self) -> str:
        return self._principal


class _RequestContexts(ServerCallContextBuilder):
    def build(self, request: Request) -> ServerCallContext:
        headers, scope = dict(request.headers), request.scope
        version = headers.get(_VERSION, "")
        # The SDK compares the major version only. A patch version does not count (A2A 1.0, section 3.6).
        if version and re.sub(r"(?<=\d\.\d)\.\d+$", "", version) not in {VERSION, LEGACY_VERSION}:
            raise VersionNotSupportedError(f"A2A {version} is not supported; use {VERSION}")
        state = {
            "headers": headers,
            LEGACY: version in {"", LEGACY_VERSION},
            TOOLSET: scope[_TOOLSET],
            TRACE: _trace_of(headers),
            CARD: scope[_CARD],
        }
        extensions = get_requested_extensions(request.headers.getlist(EXTENSIONS_HEADER))
        return ServerCallContext(user=_Peer(scope[_PRINCIPAL]), state=state, requested_extensions=extensions)


def _trace_of(headers: dict[str, str]) -> dict[str, str]:
    # A live tool sends them as headers; their values came from headers.
    return {key: headers[key] for key in _TRACE if len(headers.get(key, "x" * 9999)) <= _LONGEST_TRACE}


class _Route(NamedTuple):
    """Where a request goes.

    Attributes:
        toolset: The toolset of the path; empty for none.
        path: The path of the agent or of the toolset.
        kind: `card`, or the path within the SDK's routes.
    """

    toolset: str
    path: str
    kind: str


class A2aApp:
    """The ASGI application."""

    def __init__(
        self,
        executor: ToolExecutor,
        handler: RequestHandler,
        cards: Cards,
        guard: RequestGuard,
        *,
        toolsets: Callable[[], Sequence[str]],
        options: AgentOptions,
        authenticated: bool,
    ) -> None:
        """Route requests.

        Args:
            executor: Makes the calls.
            handler: Answers requests of every binding.
            cards: The cards.
            guard: Checks requests.
            toolsets: Returns the names of the toolsets that paths may use.
            options: What is served.
            authenticated: Whether peers must authenticate.
        """
        contexts = _RequestContexts()
        legacy = options.legacy
        rest = create_rest_routes(handler, contexts, enable_v0_3_compat=legacy, path_prefix=_REST)
        routes = [
            *create_jsonrpc_routes(handler, _RPC, contexts, enable_v0_3_compat=legacy),
            # Without the paths of tenants, which would hide that a method is not allowed.
            *(route for route in rest if isinstance(route, Route)),
        ]
        self._router = Router(routes, redirect_slashes=False)
        self._executor = executor
        self._cards = cards
        self._guard = guard
        self._toolsets = toolsets
        self._options = options
        self._authenticated = authenticated
        fresh = FRESH_CHANGING if options.watch else FRESH
        shared = "private" if authenticated else "public"
        self._freshness = f"{shared}, max-age={fresh}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        headers: Headers = scope["headers"]
        shared = self._guard.shares_with(headers)
        # Wraps `send` first, because a page may read refusals as well.
        if shared:
            send = sends_headers(send, shared)
        route = self._route(scope["method"], scope["path"])
        # Peers read a card to learn how to authenticate. Whoever presents a token is checked there, too.
        bare = (
            self._authenticated
            and isinstance(route, _Route)
            and route.kind == "card"
            and not any(name == b"authorization" for name, _value in headers)
        )
        public = bare or scope["path"] == HEALTH
        refused = self._guard.check(scope["method"], headers, public=public)
        if refused is not None or isinstance(route, GuardAnswer):
            told = refused or route
            assert isinstance(told, GuardAnswer)  # noqa: S101 -- for the type checker
            if isinstance(route, GuardAnswer) or route.kind != _RPC:
                told = in_http_json(told)
            await send_answer(send, told, body=scope["method"] != "HEAD")
            return
        principal = "" if bare else self._guard.principal_of(headers)
        url = self._origin(scope) + route.path
        if route.kind == "card":
            card = self._cards.bare(route.toolset, url) if bare else self._card(principal, route, url)
            await self._send_card(scope, send, card)
            return
        rpc = route.kind == _RPC
        if scope["method"] == "POST":
            # The body is read before the SDK sees the request: its parser accepts duplicate keys.
            body, receive = await read_body(receive)
            unreadable = refused_body(headers, body, rpc=rpc)
        else:
            unreadable = refused_query(scope["query_string"]) if route.kind == _TASKS else None
        if unreadable is not None:
            await send_answer(send, unreadable)
            return
        scope = self._inner(scope, route) | {
            _PRINCIPAL: principal,
            _TOOLSET: route.toolset,
            _CARD: lambda: self._card(principal, route, url).parsed(),
        }
        asked = [value.decode("latin-1") for name, value in headers if name == b"a2a-extensions"]
        if asked and EXTENSION in get_requested_extensions(asked):
            send = sends_headers(send, [(b"a2a-extensions", EXTENSION.encode())])
        try:
            await self._router(scope, receive, send)
        except HTTPException as error:
            # Raised by the router, because the scope names an application.
            methods = self._methods(scope)
            text = f"{scope['method']} is not allowed here; use {methods}" if methods else _UNKNOWN_PATH
            told = error_answer(error.status_code, INVALID_REQUEST, text, rpc=rpc)
            await send_answer(send, told._replace(headers=((b"allow", methods.encode()),) if methods else ()))

    def _methods(self, scope: Scope) -> str:
        """The methods of a path within the SDK's routes; empty if there is no such path."""
        found = [route for route in self._router.routes if route.matches(scope)[0] is not Match.NONE]
        methods = {method for route in found if isinstance(route, Route) for method in route.methods or ()}
        return ", ".join(sorted(methods))

    def _route(self, method: str, path: str) -> _Route | GuardAnswer:
        if path == HEALTH:
            return health(
                method, len(self._executor.seen_by("").query(toolset=self._options.toolset or None))
            )
        if path in WELL_KNOWN:
            return _Route("", PATH, "card")
        if path == PATH or path.startswith(f"{PATH}/"):
            rest = path.removeprefix(PATH)
            name, _, below = rest.removeprefix("/").partition("/")
            toolset = unquote(name)
            below = f"/{below}" if below else ""
            # A toolset may have the name of an operation.
            if toolset in self._toolsets() and (kind := self._kind(below)):
                return _Route(toolset, f"{PATH}/{name}", kind)
            if kind := self._kind(rest):
                return _Route("", PATH, kind)
            near = near_misses(toolset, self._toolsets())
            if near:
                return refusal(404, f"Unknown toolset; did you mean {' or '.join(near)}?")
        return refusal(404, _UNKNOWN_PATH)

    def _kind(self, below: str) -> str:
        """What is at a path below that of an agent; empty for nothing."""
        if below in WELL_KNOWN:
            return "card"
        if not below:
            return _RPC
        legacy = self._options.legacy and below.startswith(_LEGACY_OPERATIONS)
        return _REST + below if legacy or below.startswith(_OPERATIONS) else ""

    def _origin(self, scope: Scope) -> str:
        if self._options.url:
            return self._options.url.rstrip("/")
        # The guard has compared it with the names of this server.
        host = next(value for name, value in scope["headers"] if name == b"host")
        return f"{scope['scheme']}://{host.decode('latin-1')}"

    def _card(self, principal: str, route: _Route, url: str) -> EncodedCard:
        return self._cards.of(self._executor.seen_by(principal), route.toolset or self._options.toolset, url)

    async def _send_card(self, scope: Scope, send: Send, card: EncodedCard) -> None:
        told = [(b"etag", card.etag), (b"cache-control", self._freshness), (b"vary", b"authorization, host")]
        if scope["method"] not in {"GET", "HEAD"}:
            await send_answer(send, GuardAnswer(405, headers=((b"allow", b"GET, HEAD"),)))
            return
        asked = b",".join(value for name, value in scope["headers"] if name == b"if-none-match")
        tags = {tag.strip().removeprefix(b"W/") for tag in asked.split(b",")}
        if tags & {card.etag, b"*"}:
            await send_answer(send, GuardAnswer(304, headers=tuple(told)))
            return
        await send_answer(send, GuardAnswer(200, card.body, tuple(told)), body=scope["method"] != "HEAD")

    def _inner(self, scope: Scope, route: _Route) -> Scope:
        """The scope of a request within the SDK's routes."""
        headers: Headers = scope["headers"]
        version = VERSION_HEADER.lower().encode()
        # A2A 1.0, section 3.6.1: a peer may send the version as a parameter.
        if not any(name == version for name, _value in headers):
            given = parse_qs(scope["query_string"].decode("latin-1")).get(VERSION_HEADER)
            headers = [*headers, (version, given[0].encode("latin-1", "replace"))] if given else headers
        path = route.kind
        query = full_states(scope["query_string"]) if path == _TASKS else scope["query_string"]
        inner = {"path": path, "raw_path": path.encode(), "root_path": "", "query_string": query}
        return scope | inner | {"headers": headers, "app": self}


async def serve_http(
    runtime: Runtime,
    options: AgentOptions,
    address: ListenAddress,
    say: Say,
    shutdown: Shutdown,
    *,
    clock: Clock,
) -> None:
    """Serve until a signal arrives, and let calls in flight finish.

    Args:
        runtime: The tools; already entered.
        options: Which tools are served, and how.
        address: Where to listen, and which peers may call.
        say: Prints a line for the user: the address, reloads, warnings.
        shutdown: The requests to stop.
        clock: Clock of the ages of tasks.

    Raises:
        ConfigurationError: The address cannot be listened on or needs a (longer) token, the certificate is unusable, or the
            key cannot sign cards.
    """
    sign = None
    if options.signing_key is not None:
        from toolcrib.serve.a2a.card_signature import card_signer  # noqa: PLC0415 -- needs another extra

        sign = card_signer(options.signing_key)
    authenticated = bool(address.tokens)
    cards = Cards(runtime, options, authenticated=authenticated, sign=sign)
    executor = ToolExecutor(runtime, options.toolset)
    tasks = BoundedTaskStore(clock.monotonic, age=options.task_age, most=options.most_tasks)
    bound = await bind_address(address, PAGE_ACCESS)
    with _quiet_sdk():
        toolsets = partial(toolset_names, runtime, options.toolset)
        card = cards.bare("", PATH).parsed()
        handler = RequestHandler(executor, tasks, card, required=options.required, idle=options.task_age)
        app = A2aApp(
            executor,
            handler,
            cards,
            bound.guard,
            toolsets=toolsets,
            options=options,
            authenticated=authenticated,
        )
        server = bound.server(app, say)
        async with (
            # Streams get the ends of their tasks before the tasks are dropped.
            aclosing(handler),
            server.closed_at_last(),
            announced_changes(runtime, say, _nothing, watch=options.watch),
        ):
            await bound.listen(server, shutdown)
            shared = [] if authenticated else ["peers share one session: use tokens to separate them"]
            say(opening_line(runtime, options.toolset, f"at {bound.url(PATH)}", *shared))
            for warning in bound.warnings:
                say(warning)
            await shutdown.asked.wait()
            server.stop_listening()
            cut = await executor.calls.drained(options.drain, shutdown.hurried)
            if cut:
                say(f"cancelled {cut} call{'' if cut == 1 else 's'} in flight")


async def _nothing() -> None:
    """Peers ask for the card; there is nobody to notify."""


@contextmanager
def _quiet_sdk() -> Iterator[None]:
    """Within the block, the SDK logs no invalid request, which is the peer's problem, with a traceback."""
    logger = logging.getLogger("a2a")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)
