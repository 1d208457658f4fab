"""MCP over stdin and stdout.

The SDK's own transport gives every line to a pool of threads, which keeps a process from ending while one of them
reads. This one reads and writes in two threads that nobody waits for, answers lines that are no JSON-RPC, and knows
which requests still wait for an answer when the input ends.
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
    JSONRPCNotification,
    JSONRPCRequest,
    JSONRPCResponse,
    jsonrpc_message_adapter,
)
from pydantic import ValidationError

from toolcrib.serve.mcp.banner import opening_line
from toolcrib.serve.mcp.change_notifier import announcing
from toolcrib.serve.mcp.messages import InvalidMessage, parse_message
from toolcrib.serve.mcp.options import Options, Say, StdoutError
from toolcrib.serve.mcp.pipes import Pipes, TooLong
from toolcrib.serve.mcp.preencoded import Splices
from toolcrib.serve.mcp.server import Face
from toolcrib.serve.mcp.shutdown import Ending

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

    from toolcrib.engine.runtime import Runtime

GRACE: Final = 1.0
"""Seconds that requests get once the input has ended: the client is about to go, and kills who tarries."""

CLOSING: Final = 2.0
"""Seconds that what was answered has to be read."""

_LISTEN: Final = "subscriptions/listen"


async def serve_stdio(runtime: Runtime, options: Options, say: Say) -> None:
    """Serve the one client at the other end of stdin and stdout, until it or a signal ends that.

    Args:
        runtime: The tools, entered.
        options: What is offered, and how.
        say: Tells people what goes on, on stderr.

    Raises:
        StdoutError: stdout can't be written to. A client that went away is no error.
        OSError: stdin or stdout is closed.
    """
    face = Face(runtime, options)
    face.splices = Splices()
    ending = Ending()
    with Pipes.claimed() as pipes, ending.by_signals(), anyio.CancelScope() as scope:
        to_server, from_client = anyio.create_memory_object_stream[SessionMessage | Exception](0)
        to_client, from_server = anyio.create_memory_object_stream[SessionMessage](0)
        say(opening_line(runtime, options, "over stdio"))
        exchange = _Exchange(pipes, face, face.splices)
        async with announcing(runtime, face, options, say), anyio.create_task_group() as group:
            group.start_soon(exchange.write, from_server)
            group.start_soon(exchange.read, to_server, ending, options.drain, scope)
            await face.server.run(from_client, to_client, face.server.create_initialization_options())
    if pipes.error is not None:
        raise StdoutError(*pipes.error.args)


class _Exchange:
    """Messages on their way between the pipes and the SDK, and the requests that are not answered yet."""

    def __init__(self, pipes: Pipes, face: Face, splices: Splices) -> None:
        self._pipes = pipes
        self._face = face
        self._splices = splices
        self._asked: dict[str, str] = {}
        self._settled = asyncio.Event()

    async def read(
        self,
        to_server: MemoryObjectSendStream[SessionMessage | Exception],
        ending: Ending,
        drain: float,
        scope: anyio.CancelScope,
    ) -> None:
        """Hand on what the client says. When it has said all, or a signal came, let what is under way end."""
        stopped = asyncio.create_task(_first_of(ending.asked, self._pipes.broken))
        stopped.add_done_callback(lambda _task: self._pipes.stop())
        async with to_server:
            async for line in self._pipes.lines():
                message = await self._parsed(line)
                if message is not None:
                    await to_server.send(SessionMessage(message))
            await self._settle(drain if ending.asked.is_set() else min(drain, GRACE), ending)
            scope.deadline = anyio.current_time() + CLOSING
        stopped.cancel()

    async def _parsed(self, line: bytes | TooLong) -> JSONRPCRequest | JSONRPCNotification | None:
        """The message of a line; None for an answer to us, who asked nothing, and for what is none, which is answered."""
        if isinstance(line, TooLong):
            await self._refuse(INVALID_REQUEST, f"The message is longer than {line.limit} bytes")
            return None
        try:
            raw = parse_message(line)
        except InvalidMessage as error:
            await self._refuse(error.code, str(error), error.request)
            return None
        try:
            message = jsonrpc_message_adapter.validate_python(raw, by_name=False)
        except ValidationError:
            await self._refuse(INVALID_REQUEST, "Invalid Request")
            return None
        if isinstance(message, JSONRPCRequest):
            self._asked[repr(message.id)] = message.method
            return message
        if not isinstance(message, JSONRPCNotification):
            return None
        if message.method == "notifications/cancelled":  # a request that is cancelled gets no answer
            self._answered((message.params or {}).get("requestId"))
        return message

    async def write(self, from_server: MemoryObjectReceiveStream[SessionMessage]) -> None:
        """Hand on what the SDK says; when the client is gone nothing waits for an answer any more."""
        async with from_server:
            async for told in from_server:
                message = told.message
                try:
                    data = message.model_dump_json(by_alias=True, exclude_unset=True).encode()
                except ValueError:  # a value that JSON has no form for
                    data = _error(getattr(message, "id", None), INTERNAL_ERROR, "Internal error")
                await self._pipes.write(self._splices.into(data) + b"\n")
                if isinstance(message, JSONRPCResponse | JSONRPCError):
                    self._answered(message.id)

    async def _refuse(self, number: int, text: str, request: str | int | None = None) -> None:
        await self._pipes.write(_error(request, number, text) + b"\n")

    def _answered(self, number: object) -> None:
        self._asked.pop(repr(number), None)
        if all(method == _LISTEN for method in self._asked.values()):
            self._settled.set()

    async def _settle(self, seconds: float, ending: Ending) -> None:
        """Wait until every request is answered, cancel the calls that are left, and end the streams of changes."""
        self._settled.clear()
        self._answered(None)
        if self._pipes.broken.is_set():
            seconds = 0
        await _first_of(self._settled, ending.hurried, self._pipes.broken, seconds=seconds)
        await self._face.calls.drained(0, ending.hurried)
        self._face.close()


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
