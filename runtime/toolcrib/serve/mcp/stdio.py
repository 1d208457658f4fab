"""MCP over stdin and stdout.

This transport answers lines that are not JSON-RPC, and knows which requests are still unanswered when the input ends.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import anyio
from mcp.shared.message import SessionMessage
from mcp.types import (
    INTERNAL_ERROR,
    INVALID_REQUEST,
    ErrorData,
    JSONRPCError,
    JSONRPCMessage,
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

from toolcrib.serve.http_common.asgi import InvalidMessage, parse_message
from toolcrib.serve.http_common.lifecycle import Shutdown, opening_line
from toolcrib.serve.http_common.listen_address import Say
from toolcrib.serve.http_common.stdio_pipes import OversizedLine, StdioPipes
from toolcrib.serve.mcp.andy_messages import as_mcp
from toolcrib.serve.mcp.options import Options
from toolcrib.serve.mcp.server import ToolServer, notify_changes
from toolcrib.serve.mcp.tool_list import EncodedPages

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

    from toolcrib.engine.runtime import Runtime

GRACE: Final = 1.0
"""Seconds for open requests after the end of input: the client is about to exit and kills servers that linger."""

CLOSING: Final = 2.0
"""Seconds for the client to read the last answers."""

_LISTEN: Final = "subscriptions/listen"


async def serve_stdio(
    runtime: Runtime, options: Options, say: Say, pipes: StdioPipes, shutdown: Shutdown
) -> None:
    """Serve the client at the other end of stdin and stdout until it disconnects or a signal arrives.

    Args:
        runtime: The tools; already entered.
        options: Which tools are served, and how.
        say: Prints a line for the user, on stderr.
        pipes: stdin and stdout. If stdout cannot be written to, serving ends, and `pipes.error` has the reason.
        shutdown: The requests to stop.
    """
    server = ToolServer(runtime, options)
    server.pages = EncodedPages()
    with anyio.CancelScope() as scope:
        to_server, from_client = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        to_client, from_server = anyio.create_memory_object_stream[SessionMessage](0)
        say(opening_line(runtime, options.toolset, "over stdio"))
        lack = server.missing_connection
        if lack is not None:
            say(
                "warning: clients with a revision before 2026-07-28 are not notified when the list of tools changes, "
                f"because {lack.message}; run `{lack.hint}`"
            )
        exchange = _Exchange(pipes, server, server.pages)
        async with notify_changes(runtime, server, options, say), anyio.create_task_group() as group:
            group.start_soon(exchange.write, from_server)
            group.start_soon(exchange.read, to_server, shutdown, options.drain, scope)
            await server.sdk.run(from_client, to_client, server.sdk.create_initialization_options())


class _Exchange:
    """Messages between the pipes and the SDK, and the requests that are not answered yet."""

    def __init__(self, pipes: StdioPipes, server: ToolServer, pages: EncodedPages) -> None:
        self._pipes = pipes
        self._server = server
        self._pages = pages
        self._asked: dict[str, str] = {}
        self._sent: set[str] = set()
        self._settled = asyncio.Event()

    async def read(
        self,
        to_server: MemoryObjectSendStream[SessionMessage | Exception],
        shutdown: Shutdown,
        drain: float,
        scope: anyio.CancelScope,
    ) -> None:
        """Pass messages on. After the end of input or a signal, let open requests finish."""
        stopped = asyncio.create_task(_first_of(shutdown.asked, self._pipes.broken))
        stopped.add_done_callback(lambda _task: self._pipes.stop())
        async with to_server:
            async for line in self._pipes.lines():
                message = await self._parsed(line)
                if message is not None:
                    await to_server.send(SessionMessage(message))
            await self._settle(drain if shutdown.asked.is_set() else min(drain, GRACE), shutdown)
            scope.deadline = anyio.current_time() + CLOSING
        stopped.cancel()

    async def _parsed(self, line: bytes | OversizedLine) -> JSONRPCMessage | None:
        if isinstance(line, OversizedLine):
            await self._refuse(INVALID_REQUEST, f"The message exceeds {line.limit} bytes")
            return None
        try:
            raw = parse_message(line)
            if self._server.compat:
                raw = as_mcp(raw)
        except InvalidMessage as error:
            await self._refuse(error.code, str(error), error.request)
            return None
        try:
            message = jsonrpc_message_adapter.validate_python(raw, by_name=False)
        except ValidationError:
            await self._refuse(INVALID_REQUEST, "Invalid Request")
            return None
        if isinstance(message, JSONRPCRequest):
            # `repr`: the ids `1` and `"1"` belong to two requests (JSON-RPC 2.0, 4).
            self._asked[repr(message.id)] = message.method
            return message
        if not isinstance(message, JSONRPCNotification):
            # The response to an elicitation. Any other response has no receiver and is dropped.
            sent = repr(message.id) in self._sent
            self._sent.discard(repr(message.id))
            return message if sent else None
        if message.method == "notifications/cancelled":  # a request that is cancelled gets no answer
            self._answered((message.params or {}).get("requestId"))
        return message

    async def write(self, from_server: MemoryObjectReceiveStream[SessionMessage]) -> None:
        """Write the SDK's messages. Once the pipe is broken, no request counts as open."""
        async with from_server:
            async for told in from_server:
                message = told.message
                try:
                    data = message.model_dump_json(by_alias=True, exclude_unset=True).encode()
                except ValueError:  # a value that JSON has no form for
                    data = _error(getattr(message, "id", None), INTERNAL_ERROR, "Internal error")
                if isinstance(message, JSONRPCRequest):
                    # Before it is written: the client may respond before this coroutine continues.
                    self._sent.add(repr(message.id))
                await self._pipes.write(self._pages.into(data) + b"\n")
                if isinstance(message, JSONRPCResponse | JSONRPCError):
                    self._answered(message.id)

    async def _refuse(self, number: int, text: str, request: str | int | None = None) -> None:
        await self._pipes.write(_error(request, number, text) + b"\n")

    def _answered(self, number: object) -> None:
        self._asked.pop(repr(number), None)
        # A subscription is answered only when it is closed, so it must not delay the end.
        if all(method == _LISTEN for method in self._asked.values()):
            self._settled.set()

    async def _settle(self, seconds: float, shutdown: Shutdown) -> None:
        """Wait until every request is answered, cancel the remaining calls, and close subscriptions."""
        self._settled.clear()
        self._answered(None)
        if self._pipes.broken.is_set():
            seconds = 0
        await _first_of(self._settled, shutdown.hurried, self._pipes.broken, seconds=seconds)
        await self._server.calls.drained(0, shutdown.hurried)
        self._server.close()


async def _first_of(*events: asyncio.Event, seconds: float | None = None) -> None:
    waits = [asyncio.ensure_future(event.wait()) for event in events]
    try:
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()


def _error(request: str | int | None, number: int, text: str) -> bytes:
    told = JSONRPCError(jsonrpc="2.0", id=request, error=ErrorData(code=number, message=text))
    return told.model_dump_json(by_alias=True, exclude_unset=True).encode()
