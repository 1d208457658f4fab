"""Run the SDK's low-level server over a runtime: one object for all clients, transports and MCP revisions.

The SDK validates a request, the runtime answers it, and the result is translated to MCP. In handshake
revisions (2025-11-25 and before) each connection has its own session of the runtime. Since 2026-07-28
requests belong to no connection, and `ClientSessions` finds their session. The server reports progress, cancels and drains calls,
watches files, and notifies clients when the list of tools changes.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from logging import getLogger
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import anyio
from mcp import MCPError
from mcp.server import CacheHint, NotificationOptions, Server, ServerRequestContext
from mcp.server.connection import Connection
from mcp.server.context import CallNext, HandlerResult
from mcp.server.models import InitializationOptions
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp.types import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    CallToolRequestParams,
    PaginatedRequestParams,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic import ValidationError

from toolcrib import __version__
from toolcrib.core.errors import ConfigurationError
from toolcrib.core.model import JSON, NOTHING, Approver, Outcome, Partial, Progress, Result
from toolcrib.engine import engine_of
from toolcrib.engine.access_control import Principal
from toolcrib.engine.middleware.arguments import DEPTH
from toolcrib.engine.session import Session
from toolcrib.engine.telemetry import describe_request, mcp_durations
from toolcrib.registry.catalog import DENIED
from toolcrib.registry.registry import Registry
from toolcrib.schema.validation.json_values import is_large
from toolcrib.serve.http_common.calls_in_flight import CallsInFlight
from toolcrib.serve.http_common.lifecycle import announced_changes
from toolcrib.serve.http_common.listen_address import Say
from toolcrib.serve.http_common.trace_context import trace_in
from toolcrib.serve.mcp.andy_messages import selected, with_answer, with_members
from toolcrib.serve.mcp.approvals import FormApprover, InputRequests, can_elicit
from toolcrib.serve.mcp.client_sessions import (
    CALLER,
    LONGEST_NAME,
    META_KEY,
    OPEN_SESSION,
    ClientSessions,
    InvalidName,
)
from toolcrib.serve.mcp.immediate_requests import ImmediateRequests
from toolcrib.serve.mcp.messages import COMPLETE, render_result
from toolcrib.serve.mcp.open_sessions import SESSION_HEADER
from toolcrib.serve.mcp.options import Options
from toolcrib.serve.mcp.sdk_connection import connection_of, missing_connection
from toolcrib.serve.mcp.tool_list import PAGES, EncodedPages, ListingCache, ToolListing

if TYPE_CHECKING:
    from toolcrib.engine.runtime import Runtime

Report: TypeAlias = Callable[[float, float | None, str | None], Awaitable[None]]
"""Reports the progress of a call to a client: progress, total, message."""


async def _watched(events: AsyncIterator[Progress | Partial | Result], report: Report) -> Result:
    """Report the events of a call, and return its result.

    Partial results have no message of their own in MCP, so their text is sent as progress.
    """
    last = -math.inf
    async for event in events:
        if isinstance(event, Result):
            return event
        if isinstance(event, Partial):
            progress, total, text = last, None, event.content.text or ""
        else:
            progress, total, text = event.progress, event.total, event.message
        # MCP, progress: the value MUST increase with each notification. A text without a greater value gets
        # the smallest greater one.
        if progress <= last:
            if not text:
                continue
            progress = math.nextafter(last, math.inf) if last > -math.inf else 0.0
        last = progress
        await report(progress, total, text or None)
    raise AssertionError("a stream ends with a result")


Context = ServerRequestContext[Any, Any]

TOOLSET: Final = "toolcrib.toolset"
"""Key of the toolset from the path, in the scope of an HTTP request."""

PRINCIPAL: Final = "toolcrib.principal"
"""Key of the client's principal in the scope of an HTTP request."""

IDEMPOTENCY_KEY: Final = "dev.toolcrib/idempotency-key"
"""Key in `_meta` of the idempotency key of a call."""

KEY_HEADER: Final = b"idempotency-key"
"""HTTP header of the idempotency key of a call."""

LONGEST_KEY: Final = 200
"""Maximum length of a client's idempotency key, in characters."""

FRESH_CHANGING: Final = 5_000
"""How long clients may cache the list if it can change, in ms; subscribers are notified immediately."""

FRESH: Final = 60_000
"""How long clients may cache the list if only a restart changes it, in ms."""

_SLOWEST_NOTICE: Final = 5.0

_log = getLogger("toolcrib")


class ToolServer:
    """A runtime as an MCP server.

    Attributes:
        sdk: The SDK's server, run by the transports.
        calls: The calls in flight.
        immediate: Requests over HTTP that never wait.
        pages: The placeholders of a transport with a single stream; None if each request has its own.
        compat: Whose messages the transports translate to MCP; empty for none.
        missing_connection: What the installed SDK lacks to tell the connections of requests apart, if anything.
    """

    def __init__(self, runtime: Runtime, options: Options, *, shared: bool = True) -> None:
        """Serve a runtime.

        Args:
            runtime: The tools.
            options: Which tools are served, and how.
            shared: Whether shared caches may keep lists: not if clients authenticate.

        Raises:
            ConfigurationError: A tool cannot be served with sessions by handle.
        """
        self.calls = CallsInFlight()
        self.pages: EncodedPages | None = None
        self.compat = options.compat
        self.missing_connection = missing_connection()
        self._runtime = runtime
        self._options = options
        self._listings = ListingCache(options, engine_of(runtime).keeps_state)
        self._record = mcp_durations(engine_of(runtime).telemetry)
        self._connections: dict[Connection, Session] = {}
        self._clients = ClientSessions(runtime, options)
        self._told: set[str] = set()
        self._inputs = InputRequests(runtime.approvals)
        self._changes = options.watch or bool(runtime.servers)
        self._bus = InMemorySubscriptionBus()
        self._listen = ListenHandler(self._bus)
        fresh = FRESH_CHANGING if self._changes else FRESH
        self.sdk = self._made(CacheHint(fresh, "public" if shared else "private"))
        self.immediate = ImmediateRequests(self.sdk)
        for conflict in self._listing_of(options.toolset, "", modern=True).conflicts.values():
            raise ConfigurationError(conflict.message, code="session_conflict", hint=conflict.hint)

    def _made(self, hint: CacheHint) -> Server[Any]:
        project = self._runtime.project
        server = _Server(
            self._runtime.name,
            version=__version__,
            description=(project.description if project is not None else "") or None,
            cache_hints={"tools/list": hint, "server/discover": hint},
            get_tool_input_schema=self._input_schema,
            on_list_tools=self._list_nothing,  # type: ignore[arg-type]
            on_call_tool=self._call_or_failure if self.compat else self._call,  # type: ignore[arg-type]
            on_subscriptions_listen=self._listen if self._changes else None,
        )
        server.changes = self._changes
        server.middleware.append(self._guarded)
        return server

    # Requests of clients.

    async def _guarded(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Wrap every message: add the page to a list, and hide the text of unexpected exceptions."""
        # Opens the session, so that clients are notified of changes before their first call.
        self._session(ctx)
        if engine_of(self._runtime).telemetry.trace == "calls":
            # The SDK has opened the span of the request, and knows nothing of its transport.
            describe_request(_attributes_of(ctx))
            return await self._recorded(ctx, call_next)
        return await self._handled(ctx, call_next)

    async def _recorded(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Record the duration of a message, by the conventions of OpenTelemetry for MCP."""
        attributes = {key: value for key, value in _attributes_of(ctx).items() if key in _FEW_VALUES}
        attributes |= {"mcp.method.name": ctx.method, "mcp.protocol.version": ctx.protocol_version}
        name = str((ctx.params or {}).get("name")) if ctx.method == "tools/call" else ""
        # The name of an unknown tool may be anything, and each would be a series of its own.
        if name and name in self._listing(ctx).named:
            attributes |= {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
        started = time.monotonic()
        try:
            result = await self._handled(ctx, call_next)
            if isinstance(result, dict) and result.get("isError") is True:
                attributes["error.type"] = "tool_error"
        except MCPError as error:
            attributes["rpc.response.status_code"] = str(error.code)
            if error.code not in _ERRORS_OF_CLIENTS:
                attributes["error.type"] = str(error.code)
            if error.code == METHOD_NOT_FOUND:  # its name may be anything, too
                attributes["mcp.method.name"] = "_OTHER"
            raise
        except ValidationError:
            attributes["rpc.response.status_code"] = str(INVALID_PARAMS)
            raise
        except BaseException as error:
            attributes["error.type"] = type(error).__name__
            raise
        finally:
            self._record("mcp.server.operation.duration", time.monotonic() - started, attributes)
        return result

    async def _handled(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        try:
            if ctx.method != "tools/list":
                answered = await call_next(ctx)
                return with_members(answered) if self.compat else answered
            return self._with_page(ctx, await call_next(ctx))
        except (MCPError, ValidationError):
            raise
        except Exception as error:  # the SDK would send its text to clients of handshake revisions
            _log.exception("a bug in `%s` of MCP", ctx.method)
            raise MCPError(INTERNAL_ERROR, "Internal error") from error

    async def _list_nothing(self, _ctx: Context, _params: PaginatedRequestParams) -> dict[str, Any]:
        # An empty list for the SDK to validate and complete; `_with_page` adds the tools.
        return {**COMPLETE, "tools": []}

    def _with_page(self, ctx: Context, listed: HandlerResult) -> HandlerResult:
        # A middleware may return anything: the SDK does not validate its result again.
        if not isinstance(listed, dict):
            return listed
        cursor = (ctx.params or {}).get("cursor")
        try:
            page = self._listed(ctx).page(ctx.protocol_version, cursor)
        except ValueError:
            raise MCPError(
                INVALID_PARAMS, "Invalid cursor: use the nextCursor of a page unchanged, or none"
            ) from None
        pages = self.pages if ctx.request is None else ctx.request.scope.get(PAGES)
        if pages is None:
            # Transports without placeholders, such as the SDK's in-memory one, get the tools themselves.
            listed["tools"] = json.loads(b"[" + page.data + b"]")
        else:
            listed["tools"] = [pages.put(page.data)] if page.data else []
        return listed if page.cursor is None else {**listed, "nextCursor": page.cursor}

    def _listed(self, ctx: Context) -> ToolListing:
        """The listing of a request: all tools, or those that its filters select."""
        listing = self._listing(ctx)
        if not self.compat:
            return listing
        names = set(listing.names)
        try:
            return listing.of_names(
                selected((card for card in listing.registry.query() if card.name in names), ctx.params or {})
            )
        except ValueError as error:
            raise MCPError(INVALID_PARAMS, str(error)) from None

    async def _call(self, ctx: Context, params: CallToolRequestParams) -> dict[str, Any]:
        listing = self._listing(ctx)
        name = listing.named.get(params.name)
        if name is None:
            if not (self._may_appear(ctx, params.name) or self._is_denied(ctx, params.name)):
                # No call is made, but statistics count it like those that find no tool in other ways.
                unknown = _unknown(params.name, listing)
                statistics = engine_of(self._runtime).call_statistics
                series = statistics.series("", CALLER, _principal_of(ctx))
                statistics.add(series, Result.failure(Outcome.NOT_FOUND, unknown.message))
                raise unknown
            # Only its server knows whether the tool is there and takes the handle of a session.
            if _is_modern(ctx) and self._options.sessions == "handle":
                await engine_of(self._runtime).discover(
                    *filter(None, [engine_of(self._runtime).awaited(params.name)])
                )
                listing = self._listing(ctx)
                name = listing.named.get(params.name)
        name = name or params.name
        if not self._options.offers(name):
            raise _unknown(params.name, listing)
        modern = _is_modern(ctx)
        answered = (
            self._inputs.answered(params, _principal_of(ctx), name)
            if modern and params.request_state
            else None
        )
        approval, problem = ("", "") if answered is None else answered
        result = await self._result_of(ctx, listing, name, params.arguments, approval)
        if modern and result.outcome is Outcome.NEEDS_APPROVAL and can_elicit(ctx):
            # A form that the user closed is not shown again: the client gets the error result.
            required = (
                None
                if answered is not None and not problem
                else self._inputs.required(result, _principal_of(ctx), problem, shared=self._shared(ctx))
            )
            if required is not None:
                return required
        if result.outcome is Outcome.NOT_FOUND:  # the tool was removed after the lookup above
            raise _unknown(params.name, self._listing(ctx))
        revision = ctx.protocol_version
        declared = self._listing(ctx).has_output(name, revision)
        rendered = render_result(name, result, revision=revision, declared=declared)
        return with_answer(rendered, result) if self.compat else rendered

    async def _call_or_failure(self, ctx: Context, params: CallToolRequestParams) -> dict[str, Any]:
        """Call a tool; for an unknown one, Andy.Acp has a failed result and not an error of the protocol."""
        try:
            return await self._call(ctx, params)
        except _UnknownTool as unknown:
            text = {"type": "text", "text": unknown.message}
            rendered = {**COMPLETE, "content": [text], "isError": True}
            return with_answer(rendered, Result.failure(Outcome.NOT_FOUND, unknown.message))

    async def _result_of(
        self,
        ctx: Context,
        listing: ToolListing,
        name: str,
        arguments: Mapping[str, JSON] | None,
        approval: str = "",
    ) -> Result:
        meta: Mapping[str, Any] = ctx.meta or NOTHING
        key = _key_of(ctx, meta)
        if not _is_modern(ctx):
            if META_KEY in meta:
                raise MCPError(
                    INVALID_PARAMS,
                    f"{META_KEY} needs MCP 2026-07-28: a connection with a handshake has one session",
                )
            approver = FormApprover(ctx) if can_elicit(ctx) else None
            session = self._session(ctx)
            return await self._run(session, name, arguments, ctx, approver=approver, key=key)
        principal = _principal_of(ctx)
        if listing.adds(name):
            return _NO_ARGUMENTS if arguments else self._clients.open(principal)
        try:
            found = self._clients.of_call(principal, arguments, meta, keeps_state=name in listing.by_handle)
        except InvalidName:
            raise MCPError(
                INVALID_PARAMS, f"{META_KEY} must be a text of 1 to {LONGEST_NAME} characters"
            ) from None
        if isinstance(found, Result):
            return found
        session, arguments = found
        if approval:
            return await self.calls.run(session.resume(approval, idempotency_key=key))
        return await self._run(session, name, arguments, ctx, key=key)

    async def _run(
        self,
        session: Session,
        name: str,
        arguments: Mapping[str, JSON] | None,
        ctx: Context,
        *,
        approver: Approver | None = None,
        key: str,
    ) -> Result:
        """Call a tool.

        Args:
            session: The session of the client.
            name: Name of the tool.
            arguments: The client's arguments.
            ctx: The request; its progress is reported if the client asked for it.
            approver: Asks the client's user if the call needs approval; None if it cannot.
            key: The idempotency key of the call; empty for none.
        """
        meta: Mapping[str, Any] = ctx.meta or NOTHING
        trace = trace_in(meta)
        if meta.get("progress_token") is not None:
            events = session.stream(name, arguments, trace=trace, approver=approver, idempotency_key=key)
            return await self.calls.run(_watched(events, ctx.session.report_progress))
        # A tool that never waits needs no task, but a repeated call may wait for the first one.
        if not key and not self.calls.ending:
            at_once = session.call_at_once(name, arguments, trace=trace)
            if at_once is not None:
                return at_once
        return await self.calls.run(
            session.call(name, arguments, trace=trace, approver=approver, idempotency_key=key)
        )

    def answers_at_once(self, name: str, arguments: JSON) -> bool:
        """Whether a call never waits. Its tool, under a name that clients use, was called before."""
        listing = self._listing_of(self._options.toolset, "")
        at_once = self._clients.own("").answers_at_once(listing.named.get(name, name))
        # Large arguments are checked in a thread, in which the client may cancel the call.
        return at_once and not is_large(arguments, DEPTH)

    def _may_appear(self, ctx: Context, name: str) -> bool:
        # A server that was unreachable at start may still provide the tool; calling it contacts the server
        # again.
        return not self._toolset(ctx) and engine_of(self._runtime).awaited(name) is not None

    def _input_schema(self, name: str) -> Mapping[str, JSON] | None:
        """The schema for the SDK's check of `Mcp-Param-*` headers (MCP 2026-07-28, transports)."""
        # The SDK does not say which client asks, and the headers of a tool are the same for all.
        return self._listing_of(self._options.toolset, None, modern=True).input_of(name)

    def _listing(self, ctx: Context) -> ToolListing:
        return self._listing_of(self._toolset(ctx), _principal_of(ctx), modern=_is_modern(ctx))

    def _listing_of(self, toolset: str, principal: str | None, *, modern: bool = False) -> ToolListing:
        """The listing for a principal, or of all tools for None."""
        current = self._runtime.registry
        seen = current if principal is None else self._seen_by(principal)
        by_handle = modern and self._options.sessions == "handle"
        return self._listings.of(seen, toolset, by_handle=by_handle, current=current)

    def _seen_by(self, principal: str) -> Registry:
        """The tools that access lets a principal see."""
        return engine_of(self._runtime).seen_by(self._runtime.registry, Principal(CALLER, principal))

    def _is_denied(self, ctx: Context, name: str) -> bool:
        """Whether access hides a tool from clients. A call of it is made, so that it is denied and recorded."""
        toolset = self._toolset(ctx)
        registry = self._seen_by(_principal_of(ctx))
        registry = registry.within(toolset) if toolset else registry
        own = registry.named_by_alias(name) if name not in registry else name
        hidden = None if own is None else registry.hidden(own)
        return hidden is not None and hidden.code == DENIED

    def _toolset(self, ctx: Context) -> str:
        asked = ctx.request.scope.get(TOOLSET, "") if ctx.request is not None else ""
        return asked or self._options.toolset

    def count(self) -> int:
        """Number of tools that are listed, within the served toolset."""
        return len(self._listing_of(self._options.toolset, "").names)

    def conflicts(self) -> Iterator[str]:
        """Why tools that came after the start are not listed; each reason once."""
        for conflict in self._listing_of(self._options.toolset, "", modern=True).conflicts.values():
            if conflict.message not in self._told:
                self._told.add(conflict.message)
                yield f"not served to clients of MCP 2026-07-28: {conflict.message}; {conflict.hint}"

    # Sessions.

    def _session(self, ctx: Context) -> Session:
        if _is_modern(ctx):
            return self._clients.own(_principal_of(ctx))
        # `ctx.session` is a new object for each request. Only the connection lasts, and it knows when it
        # ends.
        if self.missing_connection is not None:
            return self._only_session(ctx)
        connection = connection_of(ctx.session)
        session = self._connections.get(connection)
        return self._opened(connection, ctx) if session is None else session

    def _shared(self, ctx: Context) -> str:
        """ID of the session that all clients without a token share; empty for a client with a session of its own."""
        principal = _principal_of(ctx)
        # Over stdio there is one client.
        return "" if ctx.request is None or principal else self._clients.own(principal).id

    def _only_session(self, ctx: Context) -> Session:
        """The session where connections cannot be told apart: over stdio there is one client."""
        # Over HTTP `check_connections` has refused to start.
        if ctx.request is not None:
            raise MCPError(INTERNAL_ERROR, "This server cannot keep the sessions of clients apart")
        return self._clients.own("")

    def _opened(self, connection: Connection, ctx: Context) -> Session:
        principal = _principal_of(ctx)
        attributes = {key: value for key, value in _attributes_of(ctx).items() if key in _FEW_VALUES}
        attributes["mcp.protocol.version"] = ctx.protocol_version
        # The SDK lets no other principal use the connection.
        session = self._connections[connection] = self._runtime.session(caller=CALLER, user=principal)
        self.immediate.add(connection)
        started = time.monotonic()

        async def ended() -> None:
            self._record("mcp.server.session.duration", time.monotonic() - started, attributes)
            self._connections.pop(connection, None)
            self.immediate.remove(connection)
            await session.aclose()

        connection.exit_stack.push_async_callback(ended)
        return session

    # Notifications.

    async def announce(self) -> None:
        """Notify every client once that the list has changed."""
        await self._bus.publish(ToolsListChanged())
        async with anyio.create_task_group() as group:
            # A copy: connections open and close while notices are sent.
            for connection in [*self._connections]:
                group.start_soon(_notify, connection)

    def close(self) -> None:
        """Close all subscriptions."""
        self._listen.close()
        self._clients.close()


class _Server(Server[Any]):
    # The SDK builds these options for HTTP sessions without arguments, and then declares that the list never
    # changes.

    changes = False

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        told = notification_options or NotificationOptions(tools_changed=self.changes)
        return super().create_initialization_options(told, experimental_capabilities, extensions)


_FEW_VALUES: Final = frozenset({"network.transport", "network.protocol.name", "network.protocol.version"})
"""The attributes of a request that metrics have, too."""

_ERRORS_OF_CLIENTS: Final = frozenset(
    {PARSE_ERROR, INVALID_REQUEST, METHOD_NOT_FOUND, INVALID_PARAMS, -32002}  # the last: resource not found
)
"""The codes that say what a client did wrong: no errors of the server by the conventions of OpenTelemetry."""


def _attributes_of(ctx: Context) -> Mapping[str, str | int]:
    """What the conventions of OpenTelemetry for MCP say of the transport of a request."""
    if ctx.request is None:
        return {"network.transport": "pipe"}
    scope = ctx.request.scope
    session = next((value for name, value in scope["headers"] if name == SESSION_HEADER), b"")
    host, port = scope.get("client") or ("", 0)
    given: dict[str, str | int] = {
        "network.transport": "tcp",
        "network.protocol.name": "http",
        "network.protocol.version": scope["http_version"],
        "mcp.session.id": session.decode("latin-1"),
        "client.address": host,
        "client.port": port,
    }
    return {key: value for key, value in given.items() if value}


def _is_modern(ctx: Context) -> bool:
    return ctx.protocol_version not in HANDSHAKE_PROTOCOL_VERSIONS


def _principal_of(ctx: Context) -> str:
    return ctx.request.scope.get(PRINCIPAL, "") if ctx.request is not None else ""


_NO_ARGUMENTS: Final = Result.failure(Outcome.INVALID_ARGUMENTS, f"`{OPEN_SESSION}` takes no arguments")


async def _notify(connection: Connection) -> None:
    # A client that does not read must not delay the others.
    if connection.initialized.is_set():
        with anyio.move_on_after(_SLOWEST_NOTICE):
            await connection.send_tool_list_changed()


class _UnknownTool(MCPError):
    """MCP, server/tools, error handling: an unknown tool is a protocol error, not a failed result."""


def _unknown(name: str, listing: ToolListing) -> _UnknownTool:
    # The name is the client's: it may contain lone surrogates, and may be megabytes long.
    shown = name.encode(errors="replace").decode()
    shown = shown if len(shown) <= 128 else f"{shown[:128]}…"
    near = listing.near(shown)
    return _UnknownTool(INVALID_PARAMS, f"Unknown tool: {shown}", {"didYouMean": near} if near else None)


def _key_of(ctx: Context, meta: Mapping[str, Any]) -> str:
    """The idempotency key of a call, from `_meta` or the HTTP header; empty for none."""
    headers = [] if ctx.request is None else ctx.request.scope.get("headers", [])
    # draft-ietf-httpapi-idempotency-key-header: the value is a string in quotes; many clients send none.
    given = [value.decode("latin-1").strip('"') for name, value in headers if name == KEY_HEADER]
    given += [meta[IDEMPOTENCY_KEY]] if IDEMPOTENCY_KEY in meta else []
    if not given:
        return ""
    key = given[0]
    if not isinstance(key, str) or not 0 < len(key) <= LONGEST_KEY or not key.isprintable():
        raise MCPError(
            INVALID_PARAMS, f"{IDEMPOTENCY_KEY} must be a text of 1 to {LONGEST_KEY} printable characters"
        )
    if any(other != key for other in given):
        raise MCPError(INVALID_PARAMS, f"{IDEMPOTENCY_KEY} and the header Idempotency-Key differ; send one")
    # All clients have the same caller: a key belongs to the token that was presented with it.
    principal = _principal_of(ctx)
    return f"{principal}/{key}" if principal else key


def notify_changes(
    runtime: Runtime, server: ToolServer, options: Options, say: Say
) -> AbstractAsyncContextManager[None]:
    """Watch files (if configured) and notify clients of changes within the block."""

    async def announce() -> None:
        for reason in server.conflicts():
            say(reason)
        await server.announce()

    return announced_changes(runtime, say, announce, watch=options.watch)
