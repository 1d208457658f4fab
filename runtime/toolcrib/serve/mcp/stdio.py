"""MCP over stdin and stdout.

The SDK's own transport reads lines in a thread pool, and a process cannot exit while a thread of the pool
blocks in a read. This transport reads and writes in two daemon threads, answers lines that are not JSON-RPC,
and knows which requests are still unanswered when the input ends.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import TYPE_CHECKING, Final, NamedTuple, Self

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
from toolcrib.serve.http_common.listen_address import MOST_BODY, Say
from toolcrib.serve.mcp.andy_messages import as_mcp
from toolcrib.serve.mcp.options import Options
from toolcrib.serve.mcp.server import ToolServer, notify_changes
from toolcrib.serve.mcp.tool_list import EncodedPages

if TYPE_CHECKING:
    from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream

    from toolcrib.engine.runtime import Runtime

_CHUNK: Final = 1 << 16
_AHEAD: Final = 16
"""Number of chunks read ahead of the protocol."""

_STDIN, _STDOUT, _STDERR = 0, 1, 2


class OversizedLine(NamedTuple):
    """Marks a line that was skipped because it is too long.

    Attributes:
        limit: Maximum length of a line in bytes.
    """

    limit: int


class StdioPipes:
    """A pipe to read lines from and one to write to.

    Attributes:
        broken: Set once nothing can be written any more.
        error: The cause; None while writing works, and if the reader closed its end.
    """

    def __init__(self, source: int, target: int, *, limit: int = MOST_BODY) -> None:
        """Start reading and writing two file descriptors.

        Args:
            source: Descriptor to read from.
            target: Descriptor to write to.
            limit: Maximum length of a line in bytes.
        """
        self.broken = asyncio.Event()
        self.error: OSError | None = None
        self._source, self._target, self._limit = source, target, limit
        self._loop = asyncio.get_running_loop()
        self._room = threading.Semaphore(_AHEAD)
        self._chunks: asyncio.Queue[bytes] = asyncio.Queue()
        self._outgoing: SimpleQueue[tuple[bytes, asyncio.Future[None]]] = SimpleQueue()
        for work in (self._reading, self._writing):
            # Daemons: a blocked `os.read` cannot be interrupted, and a thread in it would keep the process
            # alive.
            threading.Thread(target=work, name=f"toolcrib-stdio{work.__name__}", daemon=True).start()

    @classmethod
    @contextmanager
    def claimed(cls) -> Iterator[Self]:
        """Take over stdin and stdout: within the block, `print` writes to stderr and reading stdin meets its end.

        Raises:
            OSError: One of them is closed.
        """
        # A library that prints would break the protocol, and one that reads stdin would swallow messages.
        # Redirecting the descriptors also covers C code and child processes, which `sys.stdout` does not.
        source, target = os.dup(_STDIN), os.dup(_STDOUT)
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, _STDIN)
        os.close(nothing)
        os.dup2(_STDERR, _STDOUT)
        try:
            yield cls(source, target)
        finally:
            os.dup2(source, _STDIN)
            os.dup2(target, _STDOUT)

    async def lines(self) -> AsyncIterator[bytes | OversizedLine]:
        """Yield the lines without their line ends, skipping blank ones, until the input ends or `stop` is called."""
        rest: list[bytes] = []
        length, passing = 0, False
        while chunk := await self._chunks.get():
            self._room.release()
            *ended, last = chunk.split(b"\n")
            for part in ended:
                line = b"".join((*rest, part))
                rest, length = [], 0
                if passing:
                    passing = False
                elif len(line) > self._limit:
                    yield OversizedLine(self._limit)
                elif line.strip():
                    yield line
            length += len(last)
            if passing or length > self._limit:
                if not passing:
                    yield OversizedLine(self._limit)
                rest, length, passing = [], 0, True
            else:
                rest.append(last)
        line = b"".join(rest)
        if line.strip():
            yield line

    def stop(self) -> None:
        """Stop reading: `lines` ends after the lines that are already read."""
        # An empty chunk marks the end.
        self._chunks.put_nowait(b"")

    async def write(self, data: bytes) -> None:
        """Write all of the data; do nothing after an earlier write failed."""
        if self.broken.is_set():
            return
        written = self._loop.create_future()
        self._outgoing.put((data, written))
        await written

    def _reading(self) -> None:
        while self._room.acquire():
            try:
                chunk = os.read(self._source, _CHUNK)
            except OSError:
                chunk = b""
            if not self._tell(lambda chunk=chunk: self._chunks.put_nowait(chunk)) or not chunk:
                return

    def _writing(self) -> None:
        while True:
            data, written = self._outgoing.get()
            try:
                _write_all(self._target, data)
            # The client closed its end. That is the normal way to stop a stdio server, so `error` stays None.
            except BrokenPipeError:
                self._tell(self.broken.set)
            except OSError as error:
                self.error = error
                self._tell(self.broken.set)
            if not self._tell(lambda written=written: written.done() or written.set_result(None)):
                return

    def _tell(self, what: object) -> bool:
        # The threads outlive the loop; a closed loop raises RuntimeError.
        try:
            self._loop.call_soon_threadsafe(what)  # type: ignore[arg-type]
        except RuntimeError:
            return False
        return True


def _write_all(target: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(target, view) :]


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
