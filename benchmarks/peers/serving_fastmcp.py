"""FastMCP's server with functions as tools, as in its documentation.

Usage: python serving_fastmcp.py COUNT [PORT]     # HTTP at /mcp with a port, otherwise stdio
"""

from __future__ import annotations

import sys
from typing import Annotated, Any

import worker
from fastmcp import FastMCP
from pydantic import Field


def tool(number: int) -> Any:
    def weather(
        city: Annotated[str, Field(min_length=1)], days: Annotated[int, Field(ge=1, le=14)] = 1
    ) -> dict[str, Any]:
        return worker.body(city, days)

    weather.__name__ = f"tool_{number}"
    weather.__doc__ = f"The weather in a city, {number}."
    return weather


def main() -> None:
    served = FastMCP("weather")
    for number in range(int(sys.argv[1])):
        served.tool(tool(number), output_schema=worker.OUTPUT)
    if len(sys.argv) == 2:
        served.run(transport="stdio", show_banner=False)
    else:
        served.run(
            transport="http",
            host="127.0.0.1",
            port=int(sys.argv[2]),
            show_banner=False,
            log_level="warning",
            uvicorn_config={"access_log": False},
        )


main()
