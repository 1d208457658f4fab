"""Servers on loopback that say exactly what a test writes down, byte by byte.

    async with serving(answering(200, {"Content-Type": "text/plain"}, b"hello")) as server:
        ...  # server.port, server.origin, server.accepted, server.requests

A handler is `async def handler(reader, writer, head)`: it is called once for each request whose head and body were
read, and writes raw bytes. The connection stays open for the next request, until the handler closes the writer,
either side goes away, or the request said `Connection: close`.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit


class Head(NamedTuple):
    """A request as it stood on the wire.

    Attributes:
        method: As it was sent.
        target: Path and query, not decoded.
        headers: (name as it was sent, value) in order.
        body: By `Content-Length`; empty without one.
        raw: The bytes of the request line and the headers.
        connection: The number of the connection that it came over, from 1.
    """

    method: str
    target: str
    headers: tuple[tuple[str, str], ...]
    body: bytes
    raw: bytes
    connection: int

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def query(self) -> list[tuple[str, str]]:
        """The parameters in order, decoded."""
        return parse_qsl(urlsplit(self.target).query, keep_blank_values=True)

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    def header(self, name: str) -> str | None:
        """The values of a header in any spelling, joined by `, `; none if it was not sent."""
        values = [value for each, value in self.headers if each.lower() == name.lower()]
        return ", ".join(values) if values else None


Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter, Head], Awaitable[None]]
Headers = Mapping[str, str] | Iterable[tuple[str, str]]


class Server:
    """A server that runs.

    Attributes:
        port: Where it listens on 127.0.0.1.
        accepted: How many connections were made.
        open: How many of them are open now.
        requests: Every request that was read, in order.
        stop_listening: Takes no more connections, as a server that is down.
    """

    def __init__(self, handler: Handler, *, secure: bool, greeting: bytes, reads: bool) -> None:
        self.handler = handler
        self._reads = reads
        self.port = 0
        self.accepted = 0
        self.open = 0
        self.requests: list[Head] = []
        self.scheme = "https" if secure else "http"
        self.stop_listening: Callable[[], None] = lambda: None
        self._greeting = greeting
        self._tasks: set[asyncio.Task[None]] = set()
        self._none_open = asyncio.Event()
        self._none_open.set()

    @property
    def origin(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}"

    async def all_closed(self) -> None:
        """Wait until no connection is open."""
        async with asyncio.timeout(60):
            await self._none_open.wait()

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        task = asyncio.get_running_loop().create_task(self._converse(reader, writer, self.accepted))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _converse(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, connection: int
    ) -> None:
        self.open += 1
        self._none_open.clear()
        try:
            writer.write(self._greeting)
            if not self._reads:
                await self.handler(reader, writer, Head("", "", (), b"", b"", connection))
                return
            while (head := await read_head(reader, connection)) is not None:
                self.requests.append(head)
                await self.handler(reader, writer, head)
                await writer.drain()
                if writer.is_closing() or (head.header("connection") or "").lower() == "close":
                    break
        except (ConnectionError, ssl.SSLError, asyncio.IncompleteReadError):
            pass  # the other side went away, as it may
        finally:
            await self._hang_up(writer)

    async def _hang_up(self, writer: asyncio.StreamWriter) -> None:
        try:
            writer.close()
            with suppress(ConnectionError, ssl.SSLError):
                await writer.wait_closed()
        finally:
            writer.transport.abort()
            self.open -= 1
            if not self.open:
                self._none_open.set()


async def read_head(reader: asyncio.StreamReader, connection: int = 1) -> Head | None:
    """The next request with its body; none where the connection ended before one."""
    try:
        raw = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError:
        return None
    request_line, *lines = raw.decode("latin-1").split("\r\n")[:-2]
    method, target, _ = request_line.split(" ", 2)
    headers = tuple((name, value.strip()) for name, _, value in (line.partition(":") for line in lines))
    length = next((int(value) for name, value in headers if name.lower() == "content-length"), 0)
    return Head(method, target, headers, await reader.readexactly(length), raw, connection)


@asynccontextmanager
async def serving(
    handler: Handler,
    *,
    tls: ssl.SSLContext | None = None,
    host: str = "127.0.0.1",
    port: int = 0,
    greeting: bytes = b"",
    reads: bool = True,
) -> AsyncIterator[Server]:
    """A server on a free port of loopback, for as long as the block runs.

    Args:
        handler: What answers each request.
        tls: Serve https with it.
        host: The loopback address to listen on.
        port: The port to listen on; a free one unless given.
        greeting: Bytes that are sent before any request was read.
        reads: Whether requests are read at all; if not, the handler is called once for each connection, which ends
            with it.
    """
    server = Server(handler, secure=tls is not None, greeting=greeting, reads=reads)
    listening = await asyncio.start_server(server.accept, host, port, ssl=tls)
    server.stop_listening = listening.close
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
        await server.stop()


def raw_answer(status: int = 200, headers: Headers = (), body: bytes = b"") -> bytes:
    """The bytes of an answer with a right `Content-Length`, unless the headers name one or a transfer coding."""
    listed = list(headers.items() if isinstance(headers, Mapping) else headers)
    given = {name.lower() for name, _ in listed}
    if not given & {"content-length", "transfer-encoding"} and status not in {204, 304}:
        listed.append(("Content-Length", str(len(body))))
    phrase = HTTPStatus(status).phrase if status in HTTPStatus._value2member_map_ else "Odd"
    lines = [f"HTTP/1.1 {status} {phrase}", *(f"{name}: {value}" for name, value in listed), "", ""]
    return "\r\n".join(lines).encode("latin-1") + body


@contextmanager
def answered_by(handler: Handler) -> Iterator[Server]:
    """A server for a command that has its own event loop; the answer is the server."""
    ready, done = threading.Event(), asyncio.Event()
    held: list[tuple[Server, asyncio.AbstractEventLoop]] = []

    async def run() -> None:
        async with serving(handler) as server:
            held.append((server, asyncio.get_running_loop()))
            ready.set()
            await done.wait()

    thread = threading.Thread(target=asyncio.run, args=(run(),))
    thread.start()
    assert ready.wait(60)
    try:
        yield held[0][0]
    finally:
        held[0][1].call_soon_threadsafe(done.set)
        thread.join(60)


def answering(status: int = 200, headers: Headers = (), body: bytes = b"") -> Handler:
    """A handler that gives the same answer to every request; to HEAD without the body."""
    raw = raw_answer(status, headers, body)

    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: Head) -> None:
        writer.write(raw[: len(raw) - len(body)] if head.method == "HEAD" else raw)

    return answer


def answering_json(value: Any, status: int = 200, headers: Headers = ()) -> Handler:
    """A handler that answers every request with one JSON value."""
    listed = list(headers.items() if isinstance(headers, Mapping) else headers)
    return answering(status, [("Content-Type", "application/json"), *listed], json.dumps(value).encode())


def answering_raw(raw: bytes, *, close: bool = True) -> Handler:
    """A handler that writes these bytes, and by default hangs up then."""

    async def answer(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter, _head: Head) -> None:
        writer.write(raw)
        await writer.drain()
        if close:
            writer.close()

    return answer


def answering_each(*handlers: Handler) -> Handler:
    """A handler that takes the given ones in turn, and stays with the last."""
    turns = iter(handlers)
    current: list[Handler] = []

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: Head) -> None:
        current[:] = [next(turns, *current)]
        await current[0](reader, writer, head)

    return answer


def answering_by(choose: Callable[[Head], Handler | bytes]) -> Handler:
    """A handler that looks at the request first: the function gives another handler, or the bytes to write."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, head: Head) -> None:
        chosen = choose(head)
        if isinstance(chosen, bytes):
            writer.write(chosen)
        else:
            await chosen(reader, writer, head)

    return answer
