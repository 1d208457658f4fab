"""Calls of a server's tool by toolcrib and by the SDK's client, in the same process and to the same server.

toolcrib validates arguments and results; the SDK validates results.

    python on_toolcrib_mcp.py FOLDER PORT PYTHON     # what starts the server over stdio
"""

from __future__ import annotations

import json
import sys
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path

import worker
from mcp import Client, StdioServerParameters

from toolcrib import Runtime

SERVER = Path(__file__).with_name("serving_mcp.py")


def tool(server: str) -> dict[str, object]:
    return {
        "name": f"over_{server}",
        "description": "The weather in a city.",
        "input_schema": worker.INPUT,
        "output_schema": worker.OUTPUT,
        "mcp": {"server": server, "tool": "tool_0"},
    }


def project(folder: Path, port: str, python: str) -> None:
    """Write a project with the server, twice."""
    servers = {
        "http": {"url": f"http://127.0.0.1:{port}/mcp"},
        "stdio": {"command": python, "args": [str(SERVER), "10"]},
    }
    settings = {"project": "weather", "servers": servers, "egress": {"allow": [f"127.0.0.1:{port}"]}}
    (folder / "toolcrib.yaml").write_text(json.dumps(settings), encoding="utf-8")
    (folder / "descriptors").mkdir()
    for server in servers:
        path = folder / "descriptors" / f"over_{server}.tool.json"
        path.write_text(json.dumps(tool(server)), encoding="utf-8")


async def ours(tools: Runtime, name: str) -> None:
    result = await tools.call(name, worker.ARGUMENTS)
    assert result.value["temp"] == 18.5, result


async def theirs(client: Client) -> None:
    result = await client.call_tool("tool_0", worker.ARGUMENTS)
    assert result.structured_content["temp"] == 18.5, result


async def prepared() -> None:
    folder, port, python = sys.argv[1:]
    project(Path(folder), port, python)
    over_stdio = StdioServerParameters(command=python, args=[str(SERVER), "10"])
    async with AsyncExitStack() as stack:
        tools = await stack.enter_async_context(Runtime.open(folder))
        http = await stack.enter_async_context(Client(f"http://127.0.0.1:{port}/mcp"))
        stdio = await stack.enter_async_context(Client(over_stdio))
        contenders = {
            "ours_http": partial(ours, tools, "over_http"),
            "ours_stdio": partial(ours, tools, "over_stdio"),
            "sdk_http": partial(theirs, http),
            "sdk_stdio": partial(theirs, stdio),
        }
        await worker.serve(("toolcrib", "mcp", "httpx2"), contenders)


worker.main(prepared)
