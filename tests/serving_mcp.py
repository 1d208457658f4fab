"""`toolcrib serve mcp` as a process of its own, and real clients of it.

async with serve(folder) as served:            # over HTTP at a free port
    async with client(served.url, "legacy") as one: ...
async with client(stdio(folder), "2026-07-28") as one: ...
"""

from __future__ import annotations

import asyncio
import atexit
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any, NamedTuple

import pytest
from mcp import Client, MCPDeprecationWarning, StdioServerParameters, stdio_client

from commands import toolcrib_command
from sampling import one_of_each

PATIENCE = 60.0
"""Seconds after which a test gives up to wait for what must come."""

NOWHERE = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 -- as long as there are clients
"""Where servers that clients start say what they say."""
atexit.register(NOWHERE.close)

ERAS = ("legacy", "2026-07-28")
"""The handshake, and what needs none."""

each_era = one_of_each("era", ERAS)
each_way = pytest.mark.parametrize("way", ["stdio", "http"])
each_way_and_era = one_of_each(
    ("way", "era"), [("stdio", ERAS[0]), ("stdio", ERAS[1]), ("http", ERAS[0]), ("http", ERAS[1])]
)
quiet_sdk = pytest.mark.filterwarnings(
    f"ignore::{MCPDeprecationWarning.__module__}.{MCPDeprecationWarning.__qualname__}"
)

BASICS = """
    name: add
    description: Adds two numbers.
    input_schema:
      type: object
      properties: {a: {type: number}, b: {type: number}}
      required: [a, b]
    output_schema: {type: object, properties: {sum: {type: number}}, required: [sum]}
    mock: {result: {sum: "{{ args.a + args.b }}"}}
    ---
    name: echo
    description: Says what it is told.
    input_schema: {type: object, properties: {text: {type: string}}, required: [text]}
    mock: {result: "{{ args.text }}"}
    ---
    name: slow
    description: Takes its time.
    input_schema: {type: object, properties: {}}
    mock: {result: {done: true}, latency: 30s}
"""


def command(*words: str | Path) -> list[str]:
    return toolcrib_command("serve", "mcp", *words)


def write(folder: Path, text: str, name: str = "all.tool.yaml") -> Path:
    """A folder with a file of tools in it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(dedent(text), encoding="utf-8")
    return folder


class Served:
    """A server that runs.

    Attributes:
        process: Its process.
        line: What it said when it began.
        url: Where MCP is; empty over stdio.
    """

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.process = process
        self.line = ""
        self.url = ""
        self.said: list[str] = []
        self._new = asyncio.Event()
        self._listening = asyncio.create_task(self._listen())

    @property
    def port(self) -> int:
        found = re.search(r":(\d+)/mcp", self.url)
        assert found
        return int(found[1])

    async def _listen(self) -> None:
        assert self.process.stderr is not None
        async for line in self.process.stderr:
            self.said.append(line.decode())
            self._new.set()

    async def until_said(self, pattern: str) -> str:
        """The first line on stderr that fits."""
        async with asyncio.timeout(PATIENCE):
            while True:
                self._new.clear()
                for line in self.said:
                    if re.search(pattern, line):
                        return line
                assert not self._listening.done() or not self.said, "".join(self.said)
                await self._new.wait()

    async def next_said(self) -> None:
        """Wait for another line on stderr."""
        self._new.clear()
        async with asyncio.timeout(PATIENCE):
            await self._new.wait()

    async def end(self, number: int = signal.SIGTERM) -> int:
        """The exit code after a signal."""
        if self.process.returncode is None:
            self.process.send_signal(number)
        return await self.ended()

    async def ended(self) -> int:
        async with asyncio.timeout(PATIENCE):
            code = await self.process.wait()
            await self._listening
        return code


@asynccontextmanager
async def process(
    *words: str | Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    files: int | None = None,
) -> AsyncIterator[Served]:
    """`toolcrib serve mcp` with these words; it is killed at the end of the block if it still runs.

    `files` is how many it may open.
    """
    limited = [] if files is None else ["sh", "-c", f'ulimit -n {files}; exec "$@"', "sh"]
    started = await asyncio.create_subprocess_exec(
        *limited,
        *(
            command(*words)
            if files is None
            else [sys.executable, "-m", "toolcrib", "serve", "mcp", *map(str, words)]
        ),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=1 << 24,
        stderr=asyncio.subprocess.PIPE,
        env={**os.environ, **(env or {})},
        cwd=cwd,
    )
    served = Served(started)
    try:
        yield served
    finally:
        if started.returncode is None:
            started.kill()
        await served.ended()
        for pipe in (started.stdin, started.stdout):
            transport: Any = getattr(pipe, "_transport", None)
            if transport is not None:
                transport.close()


@asynccontextmanager
async def serve(*words: str | Path, **options: Any) -> AsyncIterator[Served]:
    """A server over HTTP that listens; the options are those of `process`."""
    async with process(*words, "--transport", "http", "--port", "0", **options) as served:
        served.line = await served.until_said(r"serving .* at https?://")
        found = re.search(r"https?://[^\s;]+/mcp", served.line)
        assert found
        served.url = found[0]
        yield served


class Standing(NamedTuple):
    """A server over HTTP for several tests, each of which has an event loop of its own.

    Attributes:
        folder: What it serves.
        url: Where MCP is.
        port: Where it listens.
    """

    folder: Path
    url: str
    port: int


@contextmanager
def standing(folder: Path) -> Iterator[Standing]:
    """A server over HTTP that listens, and ends well when it is told to."""
    words = command(folder, "--transport", "http", "--port", "0")
    with subprocess.Popen(words, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as started:
        try:
            assert started.stderr is not None
            found = next(filter(None, (re.search(r"http://\S+:(\d+)/mcp", line) for line in started.stderr)))
            yield Standing(folder, found[0], int(found[1]))
        finally:
            started.terminate()
            _said, logged = started.communicate(timeout=PATIENCE)
        assert started.returncode == 0, logged


def stdio(
    *words: str | Path, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> StdioServerParameters:
    """How a client starts a server of its own."""
    program, *args = command(*words)
    return StdioServerParameters(command=program, args=args, env={**os.environ, **(env or {})}, cwd=cwd)


@asynccontextmanager
async def client(target: Any, era: str, **options: Any) -> AsyncIterator[Client]:
    """The SDK's client."""
    if isinstance(target, StdioServerParameters):
        async with Client(stdio_client(target, errlog=NOWHERE), mode=era, **options) as one:
            yield one
    else:
        async with Client(target, mode=era, **options) as one:
            yield one


@asynccontextmanager
async def connected(way: str, era: str, *words: str | Path, **options: Any) -> AsyncIterator[Client]:
    """A client of a server that was started with these words, over stdio or HTTP."""
    if way == "stdio":
        async with client(stdio(*words), era, **options) as one:
            yield one
        return
    async with serve(*words) as served, client(served.url, era, **options) as one:
        yield one


def texts(result: Any) -> list[str]:
    return [block.text for block in result.content]


MODERN_META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}


def request(
    method: str, params: Mapping[str, Any] | None = None, number: int = 1, *, modern: bool = True
) -> dict[str, Any]:
    """A JSON-RPC request."""
    told = dict(params or {})
    if modern:
        told["_meta"] = {**MODERN_META, **told.get("_meta", {})}
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": told}


def headers_of(message: Mapping[str, Any], **more: str) -> dict[str, str]:
    """The headers that a request of 2026-07-28 has over HTTP."""
    told = {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "mcp-protocol-version": "2026-07-28",
        "mcp-method": message["method"],
    }
    name = message["params"].get("name")
    return told | ({"mcp-name": name} if name is not None else {}) | more


async def answers(served: Served) -> list[dict[str, Any]]:
    """All that a server says over stdio, until it ends."""
    assert served.process.stdout is not None
    async with asyncio.timeout(PATIENCE):
        return [json.loads(line) async for line in served.process.stdout]


async def said_raw(port: int, raw: bytes, **options: Any) -> bytes:
    """What a server answers to bytes, until it closes the connection; options are those of `open_connection`."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port, **options)
    try:
        writer.write(raw)
        async with asyncio.timeout(PATIENCE):
            return await reader.read()
    finally:
        writer.close()
        await writer.wait_closed()


def as_http(method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> bytes:
    """A request, byte by byte; the connection is closed after it."""
    told = {"connection": "close", **({"content-length": str(len(body))} if body else {}), **headers}
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in told.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body


def in_chunks(message: Mapping[str, Any], trailer: bytes, **headers: str) -> bytes:
    """A request whose body is one chunk, followed by a trailer."""
    body = json.dumps(message).encode()
    told = headers_of(message) | {"host": "localhost", "transfer-encoding": "chunked", **headers}
    return as_http("POST", "/mcp", told) + b"%x\r\n%s\r\n0\r\n%s\r\n" % (len(body), body, trailer)


def status_of(raw: bytes) -> int:
    return int(raw.split(b" ", 2)[1])


def json_of(raw: bytes) -> Any:
    return json.loads(raw.partition(b"\r\n\r\n")[2])
