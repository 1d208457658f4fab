"""The MCP SDK's client and its MCPServer in the same process; arguments and results are validated."""

from __future__ import annotations

from typing import Any

import mcp
import worker
from mcp.server import MCPServer


async def prepared() -> None:
    server = MCPServer("weather")

    @server.tool()
    def weather(city: str, days: int = 1) -> dict[str, Any]:
        """The weather in a city."""
        return worker.body(city, days)

    async with mcp.Client(server) as client:

        async def call() -> None:
            result = await client.call_tool("weather", worker.ARGUMENTS)
            assert result.structured_content["temp"] == 18.5

        await worker.serve(("mcp", "pydantic"), {"call": call})


worker.main(prepared)
