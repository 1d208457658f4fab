"""The SDK's low-level server over a runtime: one for every client, every transport and both eras of MCP.

A request comes through the SDK, which checks it, and goes to the runtime; what comes back is told in the words of
MCP. In the handshake era (2025-11-25 and before) a connection has a session of the runtime of its own. Since
2026-07-28 requests belong to no connection, and share one.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from logging import getLogger
from typing import TYPE_CHECKING, Any, Final

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
    CallToolRequestParams,
    PaginatedRequestParams,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic import ValidationError

from toolcrib import __version__
from toolcrib.core.model import JSON, NOTHING, Outcome
from toolcrib.engine.session import Session
from toolcrib.serve.mcp.calls import Calls
from toolcrib.serve.mcp.options import Options
from toolcrib.serve.mcp.preencoded import KEY, Splices
from toolcrib.serve.mcp.results import COMPLETE, wire_result
from toolcrib.serve.mcp.tool_list import Listing, Listings

if TYPE_CHECKING:
    from toolcrib.engine.runtime import Runtime

Context = ServerRequestContext[Any, Any]

TOOLSET: Final = "toolcrib.toolset"
"""Where the scope of an HTTP request names the toolset that its path asks for."""

FRESH_CHANGING: Final = 5_000
"""Milliseconds for which a list is fresh that may change: clients that subscribe are told at once."""

FRESH: Final = 60_000
"""Milliseconds for which a list is fresh that only a new start changes."""

_TRACE: Final = ("traceparent", "tracestate", "baggage")
_LONGEST_TRACE: Final = 8192
_SLOWEST_NOTICE: Final = 5.0

_log = getLogger("toolcrib")


class Face:
    """A runtime as an MCP server.

    Attributes:
        server: The SDK's server; transports run it.
        calls: The calls under way.
        splices: Where a transport that is one stream exchanges texts for pages; None where each request has its own.
    """

    def __init__(self, runtime: Runtime, options: Options, *, shared: bool = True) -> None:
        """Serve a runtime.

        Args:
            runtime: The tools.
            options: What is offered, and how.
            shared: Whether lists may be kept by caches that serve several clients: not where clients prove who
                they are.
        """
        self.calls = Calls()
        self.splices: Splices | None = None
        self._runtime = runtime
        self._options = options
        self._listings = Listings(options)
        self._connections: dict[Connection, Session] = {}
        self._stateless = runtime.session(caller="mcp")
        self._changes = options.watch or bool(runtime.servers)
        self._bus = InMemorySubscriptionBus()
        self._listen = ListenHandler(self._bus)
        fresh = FRESH_CHANGING if self._changes else FRESH
        self.server = self._made(CacheHint(fresh, "public" if shared else "private"))

    def _made(self, hint: CacheHint) -> Server[Any]:
        project = self._runtime.project
        server = _Server(
            project.name if project is not None and project.name else "toolcrib",
            version=__version__,
            description=(project.description if project is not None else "") or None,
            cache_hints={"tools/list": hint, "server/discover": hint},
            get_tool_input_schema=self._input_schema,
            on_list_tools=self._list_nothing,  # type: ignore[arg-type]
            on_call_tool=self._call,  # type: ignore[arg-type]
            on_subscriptions_listen=self._listen if self._changes else None,
        )
        server.changes = self._changes
        server.middleware.append(self._guarded)
        return server

    # What clients ask.

    async def _guarded(self, ctx: Context, call_next: CallNext) -> HandlerResult:
        """Around every message: a list gets its page, and nothing that is raised is told but what is meant to be.

        The SDK writes the text of an exception to clients of the handshake era.
        """
        self._session(ctx)  # so that a client that has not called yet is told of changes too
        try:
            if ctx.method != "tools/list":
                return await call_next(ctx)
            return self._with_page(ctx, await call_next(ctx))
        except (MCPError, ValidationError):
            raise
        except Exception as error:  # whatever it is, its text is not for clients
            _log.exception("a bug in `%s` of MCP", ctx.method)
            raise MCPError(INTERNAL_ERROR, "Internal error") from error

    async def _list_nothing(self, _ctx: Context, _params: PaginatedRequestParams) -> dict[str, Any]:
        """A list for the SDK to check and to complete; `_with_page` puts the tools into it."""
        return {**COMPLETE, "tools": []}

    def _with_page(self, ctx: Context, listed: HandlerResult) -> HandlerResult:
        """The result of `tools/list` with its tools. A middleware owns what it returns: the SDK looks no more at it."""
        if not isinstance(listed, dict):
            return listed
        cursor = (ctx.params or {}).get("cursor")
        try:
            page = self._listing(ctx).page(ctx.protocol_version, cursor)
        except ValueError:
            raise MCPError(
                INVALID_PARAMS, "Invalid cursor: use the nextCursor of a page as it was given, or none"
            ) from None
        splices = self.splices if ctx.request is None else ctx.request.scope.get(KEY)
        if splices is None:
            listed["tools"] = json.loads(b"[" + page.data + b"]")
        else:
            listed["tools"] = [splices.put(page.data)] if page.data else []
        return listed if page.cursor is None else {**listed, "nextCursor": page.cursor}

    async def _call(self, ctx: Context, params: CallToolRequestParams) -> dict[str, Any]:
        listing = self._listing(ctx)
        name = listing.named.get(params.name)
        if name is None and not self._may_appear(ctx, params.name):
            raise _unknown(params.name, listing)
        name = name or params.name
        meta: Mapping[str, Any] = ctx.meta or NOTHING
        report = ctx.session.report_progress if meta.get("progress_token") is not None else None
        result = await self.calls.run(self._session(ctx), name, params.arguments, _trace_of(meta), report)
        if result.outcome is Outcome.NOT_FOUND:  # it went between the look and the call
            raise _unknown(params.name, self._listing(ctx))
        revision = ctx.protocol_version
        declared = self._listing(ctx).has_output(name, revision)
        return wire_result(name, result, revision=revision, declared=declared)

    def answers_at_once(self, name: str) -> bool:
        """Whether a tool, by the name that clients call it, was called before and never waits."""
        listing = self._listings.of(self._runtime.registry, self._options.toolset)
        return self._stateless.answers_at_once(listing.named.get(name, name))

    def _may_appear(self, ctx: Context, name: str) -> bool:
        """Whether a tool may be that of a server which could not be asked yet; a call asks it again."""
        return not self._toolset(ctx) and self._runtime.engine.awaited(name) is not None

    def _input_schema(self, name: str) -> Mapping[str, JSON] | None:
        """The schema against which the SDK judges `Mcp-Param-*` headers (MCP 2026-07-28, transports)."""
        return self._listings.of(self._runtime.registry, self._options.toolset).input_of(name)

    def _listing(self, ctx: Context) -> Listing:
        return self._listings.of(self._runtime.registry, self._toolset(ctx))

    def _toolset(self, ctx: Context) -> str:
        asked = ctx.request.scope.get(TOOLSET, "") if ctx.request is not None else ""
        return asked or self._options.toolset

    def count(self) -> int:
        """How many tools are offered now, within the toolset that is served."""
        return len(self._listings.of(self._runtime.registry, self._options.toolset).names)

    # Sessions.

    def _session(self, ctx: Context) -> Session:
        if ctx.protocol_version not in HANDSHAKE_PROTOCOL_VERSIONS:
            return self._stateless
        # `ctx.session` is made anew for each request; only the connection behind it lasts, and says when it ends.
        connection = ctx.session._connection  # noqa: SLF001
        session = self._connections.get(connection)
        return self._opened(connection) if session is None else session

    def _opened(self, connection: Connection) -> Session:
        session = self._connections[connection] = self._runtime.session(caller="mcp")

        async def ended() -> None:
            self._connections.pop(connection, None)
            await session.aclose()

        connection.exit_stack.push_async_callback(ended)
        return session

    # What clients are told unasked.

    async def announce(self) -> None:
        """Tell every client, once, that the list has changed."""
        await self._bus.publish(ToolsListChanged())
        async with anyio.create_task_group() as group:
            for connection in [*self._connections]:
                group.start_soon(_notify, connection)

    def close(self) -> None:
        """End the streams of those who wait for changes."""
        self._listen.close()


class _Server(Server[Any]):
    """A server that says to clients of the handshake era whether its list may change; HTTP asks without saying."""

    changes = False

    def create_initialization_options(
        self,
        notification_options: NotificationOptions | None = None,
        experimental_capabilities: dict[str, dict[str, Any]] | None = None,
        extensions: dict[str, dict[str, Any]] | None = None,
    ) -> InitializationOptions:
        told = notification_options or NotificationOptions(tools_changed=self.changes)
        return super().create_initialization_options(told, experimental_capabilities, extensions)


async def _notify(connection: Connection) -> None:
    """Tell one client; one that does not read holds nobody up."""
    if connection.initialized.is_set():
        with anyio.move_on_after(_SLOWEST_NOTICE):
            await connection.send_tool_list_changed()


def _unknown(name: str, listing: Listing) -> MCPError:
    """MCP, server/tools, error handling: an unknown tool is a protocol error."""
    shown = name.encode(errors="replace").decode()
    shown = shown if len(shown) <= 128 else f"{shown[:128]}…"
    near = listing.near(shown)
    return MCPError(INVALID_PARAMS, f"Unknown tool: {shown}", {"didYouMean": near} if near else None)


def _trace_of(meta: Mapping[str, Any]) -> Mapping[str, str]:
    """The trace headers of a request (MCP 2026-07-28, `_meta`; W3C Trace Context and Baggage), if headers can carry them."""
    found = {key: meta[key] for key in _TRACE if key in meta}
    return {
        key: value
        for key, value in found.items()
        if isinstance(value, str) and len(value) <= _LONGEST_TRACE and value.isascii() and value.isprintable()
    } or NOTHING
