"""A function tool of the OpenAI Agents SDK: arguments are checked, the result is not."""

from __future__ import annotations

import json
from typing import Any

import worker
from agents import function_tool
from agents.tool_context import ToolContext


@function_tool
async def weather(city: str, days: int = 1) -> dict[str, Any]:
    """The weather in a city."""
    return worker.body(city, days)


async def prepared() -> None:
    written = json.dumps(worker.ARGUMENTS)
    context = ToolContext(None, tool_name="weather", tool_call_id="call_1", tool_arguments=written)

    async def call() -> None:
        assert (await weather.on_invoke_tool(context, written))["temp"] == 18.5

    await worker.serve(("openai-agents", "pydantic"), {"call": call})


worker.main(prepared)
