"""A typed Python function: arguments and result are validated."""

from __future__ import annotations

from typing import Any

import worker

from toolcrib import Registry, Runtime, tool


@tool
async def weather(city: str, days: int = 1) -> dict[str, Any]:
    """The weather in a city."""
    return worker.body(city, days)


async def prepared() -> None:
    tools = Runtime(Registry())
    tools.add(weather)

    async def call() -> None:
        result = await tools.call("weather", worker.ARGUMENTS)
        assert result.value["temp"] == 18.5

    await worker.serve(("toolcrib", "pydantic"), {"call": call})


worker.main(prepared)
