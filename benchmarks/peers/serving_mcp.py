"""The SDK's low-level server, bare: tools as JSON Schema, and handlers that check neither arguments nor results.

python serving_mcp.py COUNT [PORT]     # over HTTP at /mcp where there is a port, else over stdio
"""

from __future__ import annotations

import json
import sys

import anyio
import worker
from mcp.server import Server
from mcp.server.stdio import stdio_server
from mcp.types import CallToolResult, ListToolsResult, TextContent, Tool


def server(count: int) -> Server:
    tools = [
        Tool(
            name=f"tool_{number}",
            description=f"The weather in a city, {number}.",
            input_schema=worker.INPUT,
            output_schema=worker.OUTPUT,
        )
        for number in range(count)
    ]

    async def list_tools(_ctx, _params) -> ListToolsResult:
        return ListToolsResult(tools=tools)

    async def call_tool(_ctx, params) -> CallToolResult:
        answer = worker.body(**params.arguments)
        return CallToolResult(
            content=[TextContent(type="text", text=json.dumps(answer))], structured_content=answer
        )

    return Server("weather", version="1", on_list_tools=list_tools, on_call_tool=call_tool)


async def over_stdio(served: Server) -> None:
    async with stdio_server() as (reading, writing):
        await served.run(reading, writing, served.create_initialization_options())


def main() -> None:
    served = server(int(sys.argv[1]))
    if len(sys.argv) == 2:
        anyio.run(over_stdio, served)
        return
    import uvicorn  # noqa: PLC0415 -- only where it serves HTTP

    uvicorn.run(served.streamable_http_app(), host="127.0.0.1", port=int(sys.argv[2]), log_level="warning")


main()
