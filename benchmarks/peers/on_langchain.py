"""StructuredTool of LangChain: arguments are checked, results are not."""

from __future__ import annotations

from typing import Any

import worker
from langchain_core.tools import StructuredTool


async def weather(city: str, days: int = 1) -> dict[str, Any]:
    """The weather in a city."""
    return worker.body(city, days)


async def prepared() -> None:
    tool = StructuredTool.from_function(coroutine=weather)

    async def call() -> None:
        assert (await tool.ainvoke(worker.ARGUMENTS))["temp"] == 18.5

    await worker.serve(("langchain-core", "pydantic"), {"call": call})


worker.main(prepared)
