"""FastMCP's client and its server in the same process."""

from __future__ import annotations

from typing import Any

import worker
from fastmcp import Client, FastMCP


def tool(number: int) -> Any:
    def weather(city: str, days: int = 1) -> dict[str, Any]:
        """The weather in a city."""
        return worker.body(city, days)

    weather.__name__ = f"tool_{number}"
    return weather


async def prepared() -> None:
    server, crowded = FastMCP("weather"), FastMCP("crowded")
    server.tool(tool(0))
    for number in range(worker.MANY):
        crowded.tool(tool(number))
    async with Client(server) as client, Client(crowded) as lister:

        async def call() -> None:
            result = await client.call_tool("tool_0", worker.ARGUMENTS)
            assert result.data["temp"] == 18.5

        async def listing() -> None:
            assert len(await lister.list_tools()) == worker.MANY

        await worker.serve(("fastmcp", "mcp", "pydantic"), {"call": call, "list": listing})


worker.main(prepared)
