"""A minimal MCP client, so that the time of a call is the time of the server.

It sends bytes that were prepared before the measurement, and parses a response only as far as needed to recognize it.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, Self

Era = Literal["2025-11-25", "2026-07-28"]
"""The last revision with a handshake and sessions, and the first one without them."""

CLIENT = {"name": "raw", "version": "1"}
INITIALIZE = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": CLIENT}
OF_THE_REQUEST = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientInfo": CLIENT,
    "io.modelcontextprotocol/clientCapabilities": {},
}
"""`_meta` of every request since 2026-07-28."""

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_SESSION = re.compile(rb"\r\nmcp-session-id: *(\S+)", re.IGNORECASE)
_CURSOR = re.compile(rb'"nextCursor": ?("(?:[^"\\]|\\.)*")')
_PATIENCE = 60.0


class Answer(NamedTuple):
    """The head of a response, and its body without framing: JSON, or server-sent events with JSON."""

    head: bytes
    body: bytes

    @property
    def message(self) -> Any:
        """The last message in the body."""
        text = self.body
        if b"text/event-stream" in self.head:
            text = [line for line in text.splitlines() if line.startswith(b"data: {")][-1][6:]
        return json.loads(text)


class HttpClient:
    """A client with one persistent connection."""

    def __init__(self, port: int, era: Era) -> None:
        self._port = port
        self._era: Era = era
        self._lines: dict[str, str] = {
            "Host": f"127.0.0.1:{port}",
            "Content-Type": "application/json",
            "Accept": "application/json, text/event-stream",
        }

    async def open(self) -> Self:
        """Connect, and initialize if the revision has a handshake."""
        await self._connect()
        if self._era == "2026-07-28":
            self._lines["MCP-Protocol-Version"] = self._era
            return self
        answer = await self.exchange(self.request("initialize", INITIALIZE))
        assert answer.message["result"]["protocolVersion"] == self._era, answer
        self._lines["MCP-Protocol-Version"] = self._era
        session = _SESSION.search(answer.head)
        if session is not None:
            self._lines["Mcp-Session-Id"] = session[1].decode()
        done = await self.exchange(self._post({"jsonrpc": "2.0", "method": "notifications/initialized"}))
        assert b" 202 " in done.head.splitlines()[0], done
        return self

    async def _connect(self) -> None:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 24)

    async def refreshed(self) -> None:
        """Reconnect if the server closed the idle connection; the session continues."""
        if self._reader.at_eof():
            self._writer.close()
            await self._connect()

    def request(self, method: str, params: Mapping[str, Any]) -> bytes:
        """The bytes of a request. They can be sent repeatedly, since a client has one request in flight."""
        if self._era == "2026-07-28":
            params = {**params, "_meta": OF_THE_REQUEST}
            self._lines["Mcp-Method"] = method
            self._lines["Mcp-Name"] = params.get("name", "")
            if not self._lines["Mcp-Name"]:
                del self._lines["Mcp-Name"]
        return self._post({"jsonrpc": "2.0", "id": 1, "method": method, "params": params})

    def _post(self, message: Any) -> bytes:
        body = json.dumps(message, separators=(",", ":")).encode()
        lines = "".join(f"{name}: {value}\r\n" for name, value in self._lines.items())
        return f"POST /mcp HTTP/1.1\r\n{lines}Content-Length: {len(body)}\r\n\r\n".encode() + body

    async def exchange(self, request: bytes) -> Answer:
        """Send a request and read the whole response."""
        self._writer.write(request)
        reader = self._reader
        head = await reader.readuntil(b"\r\n\r\n")
        length = _LENGTH.search(head)
        if length is not None:
            return Answer(head, await reader.readexactly(int(length[1])))
        pieces = []
        while size := int(await reader.readline(), 16):
            pieces.append(await reader.readexactly(size))
            await reader.readexactly(2)
        await reader.readexactly(2)
        return Answer(head, b"".join(pieces))

    async def list_all(self) -> list[bytes]:
        """The bodies of all pages of `tools/list`."""
        bodies = []
        cursor: dict[str, Any] = {}
        while True:
            answer = await self.exchange(self.request("tools/list", cursor))
            bodies.append(answer.body)
            found = _CURSOR.match(answer.body, answer.body.rfind(b'"nextCursor"'))
            if found is None:
                return bodies
            cursor = {"cursor": json.loads(found[1])}

    async def close(self) -> None:
        """Close the connection."""
        self._writer.close()


async def ready(port: int, process: subprocess.Popen[Any]) -> None:
    """Wait until a server listens.

    Raises:
        SystemExit: It ended, or did not listen within a minute.
    """
    until = time.monotonic() + _PATIENCE
    while process.poll() is None and time.monotonic() < until:
        try:
            _reader, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.05)
            continue
        writer.close()
        return
    raise SystemExit(f"{process.args!r} does not listen on {port}; it ended with {process.poll()}")


_FIRST = (
    {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE},
    {"jsonrpc": "2.0", "method": "notifications/initialized"},
)


def first_answer(words: Sequence[str], environment: Mapping[str, str], call: Mapping[str, Any]) -> float:
    """Seconds from the start of a stdio server, through the handshake, to the result of a first call."""
    started = time.perf_counter()
    with subprocess.Popen(
        [*words],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        opening, done = (json.dumps(message) for message in _FIRST)
        process.stdin.write(f"{opening}\n")
        process.stdin.flush()
        line = process.stdout.readline()
        assert '"protocolVersion"' in line, (words, line)
        asking = {"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": call}
        process.stdin.write(f"{done}\n{json.dumps(asking)}\n")
        process.stdin.flush()
        line = process.stdout.readline()
        took = time.perf_counter() - started
        assert "18.5" in line, (words, line)
        process.stdin.close()
        process.wait(_PATIENCE)
    return took
