"""Tools that keep state, served to clients with and without tokens on a clock that tests move.

async with serving(notebook(tmp_path), Options(sessions="handle"), tokens=TOKENS) as server:
    handle = await server.opened(TOKENS[0])
    await server.call("add_note", {"text": "a", "session": handle}, token=TOKENS[0])
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
from anyio.lowlevel import checkpoint
from mcp import Client
from mcp.client.streamable_http import streamable_http_client

from serving_mcp import PATIENCE, as_http, headers_of, json_of, request, said_raw, write
from toolcrib import Runtime
from toolcrib.core.clock import RealClock
from toolcrib.serve.http_common.listen_address import ListenAddress
from toolcrib.serve.mcp import Options, serve_http

TOKENS = ("token-of-ada-1234567890", "token-of-bob-1234567890")

PROJECT = """
    project: notebook
    sources: [descriptors]
    toolsets: {plain: [echo], noting: ["*_note*"]}
    store: {notes: []}
"""

TOOLS = """
    name: add_note
    description: Adds a note.
    input_schema: {type: object, properties: {text: {type: string}}, required: [text], additionalProperties: false}
    mock: {effects: [{insert: notes, value: {text: "{{ args.text }}"}}], result: noted}
    ---
    name: list_notes
    description: Lists the notes.
    mock: {crud: {list: notes}}
    ---
    name: next_step
    description: Says what comes next.
    mock: {sequence: [{result: first}, {result: second}, {result: third}]}
    ---
    name: echo
    description: Says what it is told.
    input_schema: {type: object, properties: {text: {type: string}}, required: [text], additionalProperties: false}
    mock: {result: "{{ args.text }}"}
"""

STATEFUL = ["add_note", "list_notes", "next_step"]


def notebook(folder: Path, tools: str = TOOLS) -> Path:
    """A project with tools that keep state, and one that does not."""
    write(folder, PROJECT, "toolcrib.yaml")
    write(folder / "descriptors", tools)
    return folder


class MovedClock(RealClock):
    """A clock that stands still until it is moved."""

    def __init__(self) -> None:
        self.time = 0.0
        self._moved = asyncio.Event()

    def monotonic(self) -> float:  # type: ignore[override]
        return self.time

    async def sleep(self, seconds: float) -> None:
        until = self.time + seconds
        while self.time < until:
            await self._moved.wait()

    async def move(self, seconds: float) -> None:
        """Let time pass, and let everybody who waited for it go on."""
        self.time += seconds
        self._moved.set()
        self._moved = asyncio.Event()
        for _ in range(5):
            await checkpoint()


class NotebookServer:
    """A server over HTTP in this process.

    Attributes:
        runtime: What it serves.
        url: Where MCP is.
        port: Where it listens.
        clock: Its clock.
        said: What it says to people.
    """

    def __init__(self, folder: Path, clock: MovedClock) -> None:
        self.runtime = Runtime.open(folder, clock=clock)
        self.url = ""
        self.port = 0
        self.clock = clock
        self.said: list[str] = []
        self._new = asyncio.Event()

    def say(self, line: str) -> None:
        self.said.append(line)
        self._new.set()

    async def until_said(self, part: str) -> str:
        async with asyncio.timeout(PATIENCE):
            while True:
                self._new.clear()
                for line in self.said:
                    if part in line:
                        return line
                await self._new.wait()

    async def raw(
        self, message: Mapping[str, Any], token: str = "", *, path: str = "/mcp", **more: str
    ) -> bytes:
        told = headers_of(message, host=f"127.0.0.1:{self.port}", **more)
        proof = {"authorization": f"Bearer {token}"} if token else {}
        return await said_raw(self.port, as_http("POST", path, told | proof, json.dumps(message).encode()))

    async def answer(self, method: str, params: Mapping[str, Any], token: str = "", **more: Any) -> Any:
        """The JSON-RPC answer to a request of 2026-07-28."""
        return json_of(await self.raw(request(method, params), token, **more))

    async def call(
        self, name: str, arguments: Mapping[str, Any] | None = None, token: str = "", session: Any = None
    ) -> Any:
        """The result of a call; `session` is named in `_meta`."""
        meta = {} if session is None else {"_meta": {"dev.toolcrib/session": session}}
        answer = await self.answer("tools/call", {"name": name, "arguments": arguments or {}, **meta}, token)
        return answer["result"]

    async def opened(self, token: str = "") -> str:
        """The handle of a new session."""
        handle: str = (await self.call("open_session", token=token))["structuredContent"]["session"]
        return handle

    async def notes(
        self, arguments: Mapping[str, Any] | None = None, token: str = "", session: Any = None
    ) -> list[str]:
        """The texts of the notes in a session."""
        result = await self.call("list_notes", arguments, token, session)
        assert not result.get("isError"), result
        return [row["text"] for row in json.loads(result["content"][0]["text"])]

    async def listed(self, token: str = "", path: str = "/mcp") -> dict[str, Any]:
        """Name -> definition."""
        answer = await self.answer("tools/list", {}, token, path=path)
        return {tool["name"]: tool for tool in answer["result"]["tools"]}

    @asynccontextmanager
    async def client(self, era: str, token: str = "", **more: Any) -> AsyncIterator[Client]:
        """The SDK's client."""
        headers = {"authorization": f"Bearer {token}"} if token else {}
        async with (
            httpx2.AsyncClient(headers=headers, trust_env=False) as http,
            Client(streamable_http_client(self.url, http_client=http), mode=era, **more) as one,
        ):
            yield one


@asynccontextmanager
async def serving(
    folder: Path,
    options: Options | None = None,
    tokens: tuple[str, ...] = (),
    users: tuple[str, ...] = (),
) -> AsyncIterator[NotebookServer]:
    """A server of the tools of a folder."""
    server = NotebookServer(folder, MovedClock())
    options = Options(watch=False) if options is None else options
    address = ListenAddress(port=0, tokens=tokens, users=users)
    task = asyncio.create_task(serve_http(server.runtime, options, address, server.say))
    try:
        line = await server.until_said(" at http://")
        server.url = line.partition(" at ")[2].partition(";")[0]
        server.port = urlsplit(server.url).port or 0
        yield server
    finally:
        task.cancel()
        await asyncio.wait([task])


def code_of(result: Any) -> str:
    """The code of a failed result."""
    assert result["isError"], result
    code: str = result["_meta"]["dev.toolcrib/outcome"]["code"]
    return code
