"""MCP over HTTP: the routes `/mcp`, `/mcp/TOOLSET` and `/healthz` behind the guard, and a graceful shutdown.

The SDK handles sessions, events and the MCP revisions.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final, cast
from urllib.parse import unquote

from anyio import current_time
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser
from mcp.server.auth.provider import AccessToken
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from toolcrib.core.dependencies import MissingMember
from toolcrib.core.errors import near_misses
from toolcrib.core.model import JSON
from toolcrib.serve.http_common.asgi import (
    HEALTH,
    InvalidMessage,
    Message,
    Receive,
    Scope,
    Send,
    health,
    parse_message,
    read_body,
    send_answer,
    sends_headers,
)
from toolcrib.serve.http_common.http_server import bind_address
from toolcrib.serve.http_common.lifecycle import Shutdown, opening_line, toolset_names
from toolcrib.serve.http_common.listen_address import MOST_BODY, ListenAddress, Say
from toolcrib.serve.http_common.request_guard import GuardAnswer, Headers, PageAccess, RequestGuard, refusal
from toolcrib.serve.mcp.andy_messages import as_mcp
from toolcrib.serve.mcp.immediate_requests import is_plain_request, takes_json
from toolcrib.serve.mcp.open_sessions import SESSION_HEADER, UNUSED, OpenSessions, ending_scope
from toolcrib.serve.mcp.options import Options
from toolcrib.serve.mcp.sdk_connection import check_connections
from toolcrib.serve.mcp.server import (
    IDEMPOTENCY_KEY,
    KEY_HEADER,
    PRINCIPAL,
    TOOLSET,
    ToolServer,
    notify_changes,
)
from toolcrib.serve.mcp.tool_list import PAGES, EncodedPages

if TYPE_CHECKING:
    from toolcrib.engine.runtime import Runtime

_JSON_REPLY: ContextVar[bool] = ContextVar("the request gets one JSON body", default=False)
"""Whether a request that never waits gets one JSON body instead of an event stream.

Every client accepts both (MCP 2025-11-25, transports, sending messages). A stream can report progress before
the answer, and pings keep it alive during a long call. It costs as much as the rest of a call.
"""


# The SDK chooses for a whole server, with `if self.json_response:`. This object answers for the request at
# hand.
class _JsonForThisRequest:
    def __bool__(self) -> bool:
        return _JSON_REPLY.get()


JSON_FOR_THIS_REQUEST: Final = cast("bool", _JsonForThisRequest())
"""For `json_response` of the SDK's session manager: true in requests for which `McpApp` chose JSON."""


def _never_waits(message: JSON, at_once: Callable[[str, JSON], bool]) -> bool:
    """Whether a message is a list of tools or a call that is answered immediately, without progress."""
    if not isinstance(message, dict) or "id" not in message:
        return False
    params = message.get("params", {})
    if not isinstance(params, dict):
        return False
    meta = params.get("_meta")
    if isinstance(meta, dict) and ("progressToken" in meta or IDEMPOTENCY_KEY in meta):
        return False
    if message.get("method") == "tools/list":
        return True
    name = params.get("name")
    return (
        message.get("method") == "tools/call"
        and isinstance(name, str)
        and at_once(name, params.get("arguments"))
    )


PATH: Final = "/mcp"

PAGE_ACCESS: Final = PageAccess(
    b"GET, POST, DELETE",
    frozenset(
        {
            "idempotency-key",
            "last-event-id",
            "mcp-method",
            "mcp-name",
            "mcp-protocol-version",
            "mcp-session-id",
        }
    ),
    b"mcp-session-id, mcp-protocol-version, www-authenticate",
    prefix="mcp-param-",
)
"""What pages of allowed origins may send and read."""

_JSON: Final = (b"content-type", b"application/json")


class McpApp:
    """The ASGI application.

    Attributes:
        sessions: The SDK's session manager; it must run while requests arrive.
    """

    def __init__(
        self,
        server: ToolServer,
        guard: RequestGuard,
        toolsets: Callable[[], Sequence[str]],
        tools: Callable[[], int],
        most_sessions: int,
    ) -> None:
        """Route requests to a server.

        Args:
            server: The MCP server.
            guard: Checks requests.
            toolsets: Returns the names of the toolsets that paths may use.
            tools: Returns the number of listed tools.
            most_sessions: Maximum number of sessions of handshake revisions.
        """
        self.sessions = StreamableHTTPSessionManager(
            server.sdk,
            json_response=JSON_FOR_THIS_REQUEST,
            max_request_body_size=MOST_BODY,
            max_sessions=most_sessions,
            session_idle_timeout=UNUSED,
        )
        self._open = OpenSessions(most_sessions, self._end_session, current_time)
        self._answers_at_once = server.answers_at_once
        self._immediate = server.immediate
        self._guard = guard
        self._toolsets = toolsets
        self._tools = tools
        self._compat = server.compat

    def warnings(self) -> Iterator[str]:
        """What the installed SDK does not do for the application."""
        # Whether the SDK still asks for each request is only seen in its answers, which are right in either form.
        if getattr(self.sessions, "json_response", None) is not JSON_FOR_THIS_REQUEST:
            lack = MissingMember("mcp", "StreamableHTTPSessionManager.json_response")
            yield f"warning: all calls are answered by event streams, which are slower, because {lack.message}"
        if self._immediate.lack is not None:
            yield f"warning: calls in sessions with a handshake are slower, because {self._immediate.lack.message}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        path: str = scope["path"]
        headers: Headers = scope["headers"]
        shared = self._guard.shares_with(headers)
        # Wraps `send` first, because a page may read refusals as well.
        if shared:
            send = sends_headers(send, shared)
        answer = self._guard.check(scope["method"], headers, public=path == HEALTH) or self._routed(
            scope, path
        )
        if answer is not None:
            await send_answer(send, answer, body=scope["method"] != "HEAD")
            return
        message: JSON = None
        if scope["method"] == "POST":
            # The body is read before the SDK sees the request: its parser accepts duplicate keys.
            rest = receive
            body, receive = await read_body(receive)
            try:
                message = None if body is None else parse_message(body)
                if self._compat:
                    translated = as_mcp(message)
                    if translated is not message:
                        message, receive = translated, _after(json.dumps(translated).encode(), rest)
            except InvalidMessage as error:
                await send_answer(send, _refused(error))
                return
        principal = scope[PRINCIPAL] = self._guard.principal_of(headers)
        if principal:
            scope["user"] = _user(principal)
        scope[PAGES] = EncodedPages()
        await self._reply(message, scope, receive, send)

    async def _reply(self, message: JSON, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that may pass, in the form that suits it."""
        session, by_handshake = _session_of(scope["headers"]), _is_handshake(scope["headers"])
        keyed = any(name == KEY_HEADER for name, _value in scope["headers"])
        at_once = not keyed and _never_waits(message, self._answers_at_once)
        if at_once and (session is not None or not by_handshake):
            if session is not None and by_handshake and self._is_immediate(message, session, scope):
                await self._answer(message, session, scope, send)
                return
            _JSON_REPLY.set(True)
        try:
            await self._pass_on(scope, _whole(receive), _without_echo(insert_pages(send, scope[PAGES])))
        except _ClientGone:
            return

    async def _pass_on(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the SDK answer a request, and follow which sessions open and end."""
        session = _session_of(scope["headers"])
        if session is None:
            if scope["method"] != "POST" or not _is_handshake(scope["headers"]):
                await self.sessions.handle_request(scope, receive, send)
                return
            with self._open.opening(scope.get("user")) as opened:
                await self._open.make_room()
                await self.sessions.handle_request(scope, receive, _followed(send, opened))
            return
        with self._open.in_use(session):
            if scope["method"] == "DELETE":
                send = _followed(send, self._open.ended)
            await self.sessions.handle_request(scope, receive, send)

    async def _end_session(self, session: bytes, user: object) -> None:
        # The client of an ended session gets 404 and opens a new one (MCP 2025-11-25, transports, session management).
        await self.sessions.handle_request(ending_scope(PATH, session, user), _no_body, _nowhere)

    def _is_immediate(self, message: Any, session: bytes, scope: Scope) -> bool:
        """Whether a request that never waits is clearly a valid one, so that the SDK's transport is not needed for it."""
        headers: Headers = scope["headers"]
        named = dict(headers)
        return (
            len(named) == len(headers)
            and takes_json(named)
            and is_plain_request(message)
            and self._immediate.has(session.decode("latin-1"))
            and self._open.passes_by(session, scope.get("user"))
        )

    async def _answer(self, message: Any, session: bytes, scope: Scope, send: Send) -> None:
        body = scope[PAGES].into(await self._immediate.answer(session.decode("latin-1"), message, scope))
        told = [_JSON, (SESSION_HEADER, session), (b"content-length", b"%d" % len(body))]
        await send({"type": "http.response.start", "status": 200, "headers": told})
        await send({"type": "http.response.body", "body": body})

    def _routed(self, scope: Scope, path: str) -> GuardAnswer | None:
        """An answer that does not come from MCP; None to pass the request on."""
        if path == PATH:
            return None
        if path == HEALTH:
            return health(scope["method"], self._tools())
        base, _, toolset = path.rpartition("/")
        if base != PATH or not toolset:
            return refusal(404, "Unknown path; MCP is served at /mcp and /mcp/TOOLSET")
        name, known = unquote(toolset), self._toolsets()
        if name not in known:
            near = near_misses(name, known)
            return refusal(404, "Unknown toolset", data={"didYouMean": near} if near else None)
        scope[TOOLSET] = name
        return None


def _refused(error: InvalidMessage) -> GuardAnswer:
    told = {"code": error.code, "message": str(error)}
    return GuardAnswer(400, json.dumps({"jsonrpc": "2.0", "id": error.request, "error": told}).encode())


@cache
def _user(principal: str) -> AuthenticatedUser:
    # With it, the SDK lets no other principal use a session of a handshake revision.
    return AuthenticatedUser(AccessToken(token="", client_id=principal, scopes=[]))


class _ClientGone(Exception):
    """The client disconnected before its request was complete."""


def _after(body: bytes, rest: Receive) -> Receive:
    """A `receive` that returns a body, and then what follows it."""
    bodies = [body]

    async def received() -> Message:
        return {"type": "http.request", "body": bodies.pop()} if bodies else await rest()

    return received


def _whole(receive: Receive) -> Receive:
    # The SDK's reader raises an exception for this that uvicorn logs with a traceback for each such client.
    whole = False

    async def received() -> Message:
        nonlocal whole
        message = await receive()
        if message["type"] == "http.disconnect" and not whole:
            raise _ClientGone
        whole = whole or not message.get("more_body")
        return message

    return received


def _session_of(headers: Headers) -> bytes | None:
    """The session of a handshake revision that a request belongs to, or that its answer opens."""
    return next((value for name, value in headers if name == SESSION_HEADER), None)


def _is_handshake(headers: Headers) -> bool:
    """Whether a request is one of a handshake revision. `initialize`, which opens a session, names none."""
    named = next((value for name, value in headers if name == b"mcp-protocol-version"), None)
    return named is None or named.decode("latin-1") in HANDSHAKE_PROTOCOL_VERSIONS


def _followed(send: Send, told: Callable[[bytes], None]) -> Send:
    """A `send` that tells the session that a successful answer names."""

    async def followed(message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] < 400:
            session = _session_of(message["headers"])
            if session is not None:
                told(session)
        await send(message)

    return followed


async def _no_body() -> Message:
    return {"type": "http.request", "body": b"", "more_body": False}


async def _nowhere(_message: Message) -> None:
    pass


def _without_echo(send: Send) -> Send:
    """A `send` that replaces the SDK's answers to malformed requests, which quote the request, with a fixed text."""
    held: list[Message] = []

    async def plain(message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] == 400:
            held.append(message)
        elif held:
            start = held.pop()
            body = _said_shortly(message.get("body", b""))
            # ASGI sends the head first, but the length is known only with the new body.
            told = [(name, value) for name, value in start["headers"] if name != b"content-length"]
            told.append((b"content-length", str(len(body)).encode()))
            await send({**start, "headers": told})
            await send({**message, "body": body})
        else:
            await send(message)

    return plain


_ECHOING: Final = {"Validation error": (-32600, "Invalid Request"), "Parse error": (-32700, "Parse error")}


def _said_shortly(body: bytes) -> bytes:
    try:
        told = json.loads(body)
        lead = told["error"]["message"].partition(":")[0]
    except (ValueError, KeyError, TypeError, AttributeError):
        return body
    if lead not in _ECHOING:
        return body
    code, message = _ECHOING[lead]
    return json.dumps(
        {"jsonrpc": "2.0", "id": told.get("id"), "error": {"code": code, "message": message}}
    ).encode()


def insert_pages(send: Send, pages: EncodedPages) -> Send:
    """An ASGI `send` that inserts pages into a JSON body, whose length it corrects, or into events."""
    held: list[Message] = []

    async def inserting(message: Message) -> None:
        if not pages and not held:
            await send(message)
        elif message["type"] == "http.response.start":
            # A body of known length follows in one message; an event stream has no length.
            if _has_length(message):
                held.append(message)
            else:
                await send(message)
        elif message["type"] == "http.response.body":
            body = pages.into(message.get("body", b""))
            while held:
                await send(_with_length(held.pop(), len(body)))
            await send({**message, "body": body})
        else:
            await send(message)

    return inserting


def _has_length(start: Message) -> bool:
    return any(name == b"content-length" for name, _value in start["headers"])


def _with_length(start: Message, length: int) -> Message:
    told = [(name, value) for name, value in start["headers"] if name != b"content-length"]
    return {**start, "headers": [*told, (b"content-length", str(length).encode())]}


async def serve_http(
    runtime: Runtime,
    options: Options,
    address: ListenAddress,
    say: Say,
    shutdown: Shutdown,
    *,
    listening: Callable[[str], None] = lambda _url: None,
) -> None:
    """Serve until a signal arrives, and let calls in flight finish.

    Args:
        runtime: The tools; already entered.
        options: Which tools are served, and how.
        address: Where to listen, and which clients may call.
        say: Prints a line for the user: the address, reloads, warnings.
        shutdown: The requests to stop.
        listening: Called with the URL once clients can connect.

    Raises:
        ConfigurationError: The address cannot be listened on or needs a (longer) token, the certificate is unusable, or a
            tool cannot be served with sessions by handle.
    """
    # Lists are the same for all clients, but with a token they must not be in shared caches.
    tool_server = ToolServer(runtime, options, shared=not address.tokens)
    check_connections(tool_server.missing_connection)
    bound = await bind_address(address, PAGE_ACCESS)
    toolsets = partial(toolset_names, runtime, options.toolset)
    app = McpApp(tool_server, bound.guard, toolsets, tool_server.count, bound.limits.sessions)
    server = bound.server(app, say)
    # The order matters: sessions end first, then the connections that wait for their answers.
    async with (
        server.closed_at_last(),
        app.sessions.run(),
        notify_changes(runtime, tool_server, options, say),
    ):
        await bound.listen(server, shutdown)
        # Clients share a session though they may belong to different people.
        shared = [_SHARED] if options.sessions == "principal" and not address.tokens else []
        say(opening_line(runtime, options.toolset, f"at {bound.url(PATH)}", *shared))
        listening(bound.url(PATH))
        for warning in (*bound.warnings, *app.warnings()):
            say(warning)
        await shutdown.asked.wait()
        server.stop_listening()
        cut = await tool_server.calls.drained(options.drain, shutdown.hurried)
        if cut:
            say(f"cancelled {cut} call{'' if cut == 1 else 's'} in flight")
        tool_server.close()


_SHARED: Final = "clients share one session: use tokens or `--sessions handle` to separate them"
