"""Live tools over loopback servers: what tests of mode `live` are made of."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from textwrap import dedent, indent
from typing import Any

from http_servers import Handler, Server, serving
from in_memory import runtime_of
from toolcrib import Executors, RealClock, Runtime
from toolcrib.executors.live import LiveExecutor
from toolcrib.executors.mock import MockExecutor

API = "https://api.example.com"
"""What descriptors of tests name; the runtimes of tests call their own server instead."""


def live_executors() -> Executors:
    return Executors({"live": LiveExecutor, "mock": MockExecutor})


def live_tool(block: str, *, inputs: str = "{}", output: str = "", more: str = "") -> str:
    """A document of the tool `tool`; the block is indented YAML, the schemas are flow YAML."""
    lines = ["name: tool", f"input_schema: {inputs}", *([f"output_schema: {output}"] if output else [])]
    return "\n".join([*lines, dedent(more).strip(), "live:", indent(dedent(block).strip("\n"), "  "), ""])


def live_runtime(text: str, server: Server, **options: Any) -> Runtime:
    """A runtime whose tools call a server of the test where they name `API`."""
    options = {
        "clock": RealClock(),
        "egress": [f"127.0.0.1:{server.port}"],
        "origins": {API: server.origin},
        **options,
    }
    return runtime_of(text, executors=live_executors(), **options)


@asynccontextmanager
async def calling(text: str, handler: Handler, **options: Any) -> AsyncIterator[tuple[Runtime, Server]]:
    """A runtime and the server that its tools call."""
    async with serving(handler) as server, live_runtime(text, server, **options) as runtime:
        yield runtime, server


def open_files() -> int:
    """How many file descriptors this process holds: its sockets are among them."""
    return sum(1 for _each in Path("/proc/self/fd").iterdir())


def others() -> int:
    """How many tasks there are beside the one that asks."""
    return len(asyncio.all_tasks()) - 1
