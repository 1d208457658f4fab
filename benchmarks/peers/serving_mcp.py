"""The SDK's low-level server with tools as JSON Schema. Its handlers validate nothing unless `--validate` is given.

Usage: python serving_mcp.py COUNT [PORT] [--json] [--validate]

It serves HTTP at /mcp on the port, or stdio without one. `--json` answers with one JSON body instead of an event
stream. `--validate` checks arguments and results with the validator that toolcrib uses.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import Any

import anyio
import worker
from mcp.server import Server
from mcp.server.stdio import stdio_server
from mcp.types import CallToolResult, ListToolsResult, TextContent, Tool

Check = Callable[[Any], None]


def validators(count: int) -> dict[str, tuple[Check, Check]]:
    """Name -> checks of arguments and results, compiled once per tool, as toolcrib does."""
    import jsonschema_rs  # noqa: PLC0415 -- only with `--validate`

    def check(schema: dict[str, Any]) -> Check:
        return jsonschema_rs.validator_for(schema).validate

    return {f"tool_{number}": (check(worker.INPUT), check(worker.OUTPUT)) for number in range(count)}


def unchecked(_value: Any) -> None:
    """Accept everything."""


def server(count: int, checks: dict[str, tuple[Check, Check]]) -> Server:
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
        check_arguments, check_result = checks.get(params.name, (unchecked, unchecked))
        check_arguments(params.arguments)
        answer = worker.body(**params.arguments)
        check_result(answer)
        return CallToolResult(
            content=[TextContent(type="text", text=json.dumps(answer))], structured_content=answer
        )

    return Server("weather", version="1", on_list_tools=list_tools, on_call_tool=call_tool)


async def over_stdio(served: Server) -> None:
    async with stdio_server() as (reading, writing):
        await served.run(reading, writing, served.create_initialization_options())


def main() -> None:
    reader = argparse.ArgumentParser()
    reader.add_argument("count", type=int)
    reader.add_argument("port", type=int, nargs="?")
    reader.add_argument("--json", action="store_true")
    reader.add_argument("--validate", action="store_true")
    given = reader.parse_args()
    served = server(given.count, validators(given.count) if given.validate else {})
    if given.port is None:
        anyio.run(over_stdio, served)
        return
    import uvicorn  # noqa: PLC0415 -- only where it serves HTTP

    app = served.streamable_http_app(json_response=given.json)
    uvicorn.run(app, host="127.0.0.1", port=given.port, log_level="warning")


main()
