"""The SDK's low-level server over a runtime: one for every client, every transport and both eras of MCP.

A request comes through the SDK, which checks it, and goes to the runtime; the result is translated to MCP. In the handshake
era (2025-11-25 and before) a connection has a session of the runtime of its own. Since 2026-07-28 requests belong to no
connection, and share one. Progress of a call is reported, and calls can be cancelled and drained. Files are followed while
tools are served, and clients are notified when the list changes.
"""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import aclosing, asynccontextmanager
from logging import getLogger
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import anyio
from mcp import MCPError
from mcp.server import CacheHint, NotificationOptions, Server, ServerRequestContext
from mcp.server.connection import Connection
from mcp.server.context import CallNext, HandlerResult
from mcp.server.models import InitializationOptions
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler, ToolsListChanged
from mcp.types import INTERNAL_ERROR, INVALID_PARAMS, CallToolRequestParams, PaginatedRequestParams
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic import ValidationError

from toolcrib import __version__
from toolcrib.core.errors import ConfigurationError
from toolcrib.core.model import JSON, NOTHING, Outcome, Partial, Progress, Result
from toolcrib.engine import engine_of
from toolcrib.engine.session import Session
from toolcrib.serve.mcp.messages import COMPLETE, render_result
from toolcrib.serve.mcp.options import Options, Say
from toolcrib.serve.mcp.tool_list import PAGES, EncodedPages, ListingCache, ToolListing

if TYPE_CHECKING:
    from toolcrib.engine.runtime import Runtime

Report: TypeAlias = Callable[[float, float | None, str | None], Awaitable[None]]
"""Tells a client how far its call is: progress, total, message."""


class CallsInFlight:
    """The calls under way.

    Attributes:
        ending: Whether no further call is taken.
    """

    def __init__(self) -> None:
        self.ending = False
        self._tasks: set[asyncio.Task[Result]] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    async def run(
        self,
        session: Session,
        name: str,
        arguments: Mapping[str, JSON] | None,
        trace: Mapping[str, str],
        report: Report | None,
    ) -> Result:
        """Call a tool.

        Cancelling who waits for it cancels the call, once: the call then ends in its own time. The SDK would
        cancel again whatever the call does to clean up, so a call that may wait has a task of its own.

        Args:
            session: Whose call it is.
            name: Name of the tool.
            arguments: As the client gave them.
            trace: Trace headers to pass on.
            report: Receives progress; None where nobody asked for it.
        """
        if self.ending:
            return _ENDING
        if report is None:
            at_once = session.call_at_once(name, arguments)
            if at_once is not None:
                return at_once
            task = asyncio.ensure_future(session.call(name, arguments, trace=trace))
        else:
            task = asyncio.ensure_future(_watched(session.stream(name, arguments, trace=trace), report))
        self._begun(task)
        try:
            await asyncio.wait([task])
        finally:
            task.cancel()  # does nothing to one that is done
        return _CUT_OFF if task.cancelled() else task.result()

    def _begun(self, task: asyncio.Task[Result]) -> None:
        self._tasks.add(task)
        self._idle.clear()
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Result]) -> None:
        self._tasks.discard(task)
        if not self._tasks:
            self._idle.set()

    async def drained(self, seconds: float, hurry: asyncio.Event) -> int:
        """Take no further call, let those under way end, and cancel what is left.

        Args:
            seconds: How long they get.
            hurry: Ends that time early.

        Returns:
            How many were cancelled.
        """
        self.ending = True
        waits = [asyncio.ensure_future(self._idle.wait()), asyncio.ensure_future(hurry.wait())]
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        left = [*self._tasks]
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left, timeout=1.0)
        return len(left)


_ENDING = Result.failed(
    Outcome.UNAVAILABLE, "the server is about to end", code="server_ending", retryable=True
)

_CUT_OFF = Result.failed(Outcome.CANCELLED, "the server ended before the call did", code="server_ended")


async def _watched(events: AsyncIterator[Progress | Partial | Result], report: Report) -> Result:
    """The result of a call, with what comes before it reported.

    MCP wants progress that grows with each notification. What does not grow, and a piece of the result, which MCP
    knows no other way to send early, has its text passed on with the least greater number.
    """
    last = -math.inf
    async for event in events:
        if isinstance(event, Result):
            return event
        if isinstance(event, Partial):
            progress, total, text = last, None, event.content.text or ""
        else:
            progress, total, text = event.progress, event.total, event.message
        if progress <= last:
            if not text:
                continue
            progress = math.nextafter(last, math.inf) if last > -math.inf else 0.0
        last = progress
        await report(progress, total, text or None)
    raise AssertionError("a stream ends with a result")


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


class ToolServer:
    """A runtime as an MCP server.

    Attributes:
        sdk: The SDK's server; transports run it.
        calls: The calls under way.
        pages: Where a transport that is one stream exchanges texts for pages; None where each request has its own.
    """

    def __init__(self, runtime: Runtime, options: Options, *, shared: bool = True) -> None:
        """Serve a runtime.

        Args:
            runtime: The tools.
            options: What is offered, and how.
            shared: Whether lists may be kept by caches that serve several clients: not where clients prove who
                they are.
        """
        self.calls = CallsInFlight()
        self.pages: EncodedPages | None = None
        self._runtime = runtime
        self._options = options
        self._listings = ListingCache(options)
        self._connections: dict[Connection, Session] = {}
        self._stateless = runtime.session(caller="mcp")
        self._changes = options.watch or bool(runtime.servers)
        self._bus = InMemorySubscriptionBus()
        self._listen = ListenHandler(self._bus)
        fresh = FRESH_CHANGING if self._changes else FRESH
        self.sdk = self._made(CacheHint(fresh, "public" if shared else "private"))

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
        pages = self.pages if ctx.request is None else ctx.request.scope.get(PAGES)
        if pages is None:
            listed["tools"] = json.loads(b"[" + page.data + b"]")
        else:
            listed["tools"] = [pages.put(page.data)] if page.data else []
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
        return render_result(name, result, revision=revision, declared=declared)

    def answers_at_once(self, name: str) -> bool:
        """Whether a tool, by the name that clients call it, was called before and never waits."""
        listing = self._listings.of(self._runtime.registry, self._options.toolset)
        return self._stateless.answers_at_once(listing.named.get(name, name))

    def _may_appear(self, ctx: Context, name: str) -> bool:
        """Whether a tool may be that of a server which could not be asked yet; a call asks it again."""
        return not self._toolset(ctx) and engine_of(self._runtime).awaited(name) is not None

    def _input_schema(self, name: str) -> Mapping[str, JSON] | None:
        """The schema against which the SDK judges `Mcp-Param-*` headers (MCP 2026-07-28, transports)."""
        return self._listings.of(self._runtime.registry, self._options.toolset).input_of(name)

    def _listing(self, ctx: Context) -> ToolListing:
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


def _unknown(name: str, listing: ToolListing) -> MCPError:
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


@asynccontextmanager
async def notify_changes(
    runtime: Runtime, server: ToolServer, options: Options, say: Say
) -> AsyncIterator[None]:
    """Within the block clients are told of changes, and files are followed, if that is wanted."""
    changed = asyncio.Event()
    unfollow = engine_of(runtime).follow(changed.set)
    tasks = [asyncio.create_task(_announced(changed, server))]
    if options.watch:
        tasks.append(asyncio.create_task(_followed(runtime, say)))
    try:
        yield
    finally:
        unfollow()
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def _announced(changed: asyncio.Event, server: ToolServer) -> None:
    """One notice for however many tools that change together."""
    while await changed.wait():
        changed.clear()
        await server.announce()


async def _followed(runtime: Runtime, say: Say) -> None:
    try:
        async with aclosing(runtime.watch()) as reports:
            async for report in reports:
                say(f"reloaded: {report}")
    except ConfigurationError as error:
        say(f"files are not followed: {error.message}")
