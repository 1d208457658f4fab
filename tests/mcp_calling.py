"""MCP tools over real servers: what tests of mode `mcp` are made of."""

from __future__ import annotations

import asyncio
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Self

import mcp_sdk_server
from mcp_sdk_server import address_of, listening_on, web_server
from toolcrib import Executors, RealClock
from toolcrib.core.server_config import Catalogue, Server
from toolcrib.engine.runtime import loaded_runtime
from toolcrib.executors.mcp import McpExecutor
from toolcrib.loading.sources import parse


class Calling:
    """A runtime with one descriptor for each tool that is named, and its executor.

    Args:
        server: The server.
        tools: Names of its tools, which are those of the descriptors; or whole documents without `mode`.
        judge: What a lock says; nothing unless given.
        secrets: What knows secrets; the environment unless given.
        options: Of the runtime.
    """

    def __init__(
        self, server: Server, *tools: Any, judge: Any = None, secrets: Any = None, **options: Any
    ) -> None:
        self.executor = Hearing()
        executors = Executors({"mcp": lambda: self.executor})
        documents = [document(server, tool) for tool in tools]
        loaded = parse("tools.json", documents, executors)
        assert [str(problem) for problem in loaded.problems if problem.severity == "error"] == []
        options = {"clock": RealClock(), "servers": {server.name: server}, **options}
        self.runtime = loaded_runtime(loaded, executors=executors, **options)
        others = {"judge": judge, "secrets": secrets}
        given = {name: value for name, value in others.items() if value is not None}
        self.runtime._engine._world = self.executor.world = self.runtime._engine.world._replace(**given)
        self.call = self.runtime.call

    async def __aenter__(self) -> Self:
        await self.runtime.__aenter__()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.runtime.aclose()


class Hearing(McpExecutor):
    """The executor, which also keeps what it tells of lists that changed."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: asyncio.Queue[Catalogue] = asyncio.Queue()

    def _tell(self, server: str, catalogue: Catalogue) -> None:
        self.heard.put_nowait(catalogue)
        super()._tell(server, catalogue)


def document(server: Server, tool: Any) -> dict[str, Any]:
    """The document of a tool; anything goes in and out unless it says so."""
    if isinstance(tool, str):
        return {
            "name": tool,
            "input_schema": {"type": "object"},
            "mode": "mcp",
            "mcp": {"server": server.name},
        }
    block = {"server": server.name, **tool.get("mcp", {})}
    return {"input_schema": {"type": "object"}, "mode": "mcp", **tool, "mcp": block}


@contextmanager
def over_http(port: int = 0) -> Iterator[str]:
    """The address of the SDK's server over streamable HTTP, in a thread."""
    with listening_on(port) as listening:
        web = web_server()
        thread = threading.Thread(target=web.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield address_of(listening)
        finally:
            web.should_exit = web.force_exit = True
            thread.join()


@contextmanager
def over_http_from_a_process() -> Iterator[tuple[str, Callable[[], None]]]:
    """The same as a process, which can be killed: its address, and what kills it."""
    command = [mcp_sdk_server.PYTHON, mcp_sdk_server.__file__, "--http"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip(), process.kill
        finally:
            process.kill()


def http_server(url: str, **fields: Any) -> Server:
    """The server at an address."""
    return Server("sdk", "http", url=url, **fields)
