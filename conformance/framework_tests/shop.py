"""The tools that all frameworks are given, and the page that each of them has."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

import toolcrib
from docs.blocks import run_page
from toolcrib import Content, Executors, Outcome, Partial, Progress, Result, Runtime
from toolcrib.core.server_config import Server

ROOT = Path(__file__).resolve().parents[2]

MOCKS = """
name: draw
output_schema: {type: string}
mock: {result: drawn, content: [{type: image, data: aGVsbG8=, mime_type: image/png}]}
---
name: broken
input_schema: {type: object, properties: {number: {type: integer, default: 0}}}
mock: {result: "{{ 1 / args.number }}"}
---
name: ask_person
client: {}
input_schema: {type: object, properties: {question: {type: string}}, required: [question]}
output_schema: {type: string}
---
name: find.items
description: Find items.
input_schema:
  type: object
  properties:
    config: {$ref: "#/$defs/filter"}
  additionalProperties: false
  $defs:
    filter: {type: object, properties: {self: {type: string}, kind: {const: book}}}
mock: {result: {found: "{{ args }}"}}
"""

COUNTED = [Progress(1, 2, "first"), Partial(Content("text", text="half")), Progress(2, 2, "second")]

CALLS: list[str] = []
"""What the tools were called with, in the order of the calls."""


@toolcrib.tool
def get_forecast(city: str, days: Annotated[int, Field(ge=1, le=7)] = 3) -> dict[str, Any]:
    """Return the forecast of a city.

    Args:
        city: Name of the city.
        days: Number of days.
    """
    if city == "Atlantis":
        raise LookupError("this city is under water")
    return {"city": city, "days": days}


@toolcrib.tool
async def count() -> AsyncIterator[Any]:
    """Count to two."""
    for event in COUNTED:
        yield event
    yield "counted"


@toolcrib.tool
def refund(order: str) -> str:
    """Refund an order."""
    CALLS.append(order)
    return f"refunded {order}"


class Hanging:
    """A tool that never ends, and knows how it ended after all."""

    def __init__(self) -> None:
        self.started = asyncio.Event()
        self.cancelled = asyncio.Event()

    async def __call__(self) -> str:
        self.started.set()
        try:
            await asyncio.Event().wait()
        finally:
            self.cancelled.set()
        raise AssertionError


async def approval(call: toolcrib.Call, call_next: toolcrib.CallNext) -> Any:
    """Middleware that lets nobody refund without approval."""
    if call.tool.name == "refund" and "approve:refund" not in call.context.grants:
        return Result.failure(Outcome.NEEDS_APPROVAL, f"refund {call.arguments['order']}?")
    return await call_next(call)


def new_runtime(**options: Any) -> Runtime:
    """A runtime with all tools."""
    CALLS.clear()
    kinds = Executors.installed()
    registry = toolcrib.parse_registry("shop.yaml", MOCKS, kinds=kinds)
    runtime = Runtime(registry, executors=kinds, **{"middleware": [approval], **options})
    for each in (get_forecast, count, refund):
        runtime.add(each)
    return runtime


def hanging_tool(timeout: str = "30s") -> tuple[Any, Hanging]:
    """A tool `hang`, and what happens to it."""
    state = Hanging()

    @toolcrib.tool(timeout=timeout)
    async def hang() -> str:
        """Wait for ever."""
        return await state()

    return hang, state


def with_listing_server(folder: Path) -> Runtime:
    """A runtime with an MCP server that was not asked for its tools yet."""
    schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    tools = folder / "tools.json"
    tools.write_text(json.dumps([{"name": "echo", "inputSchema": schema}]), encoding="utf-8")
    program = ROOT / "tests" / "listing_server.py"
    server = Server("docs", command=sys.executable, args=(str(program), str(tools), "1"), imports=True)
    text = "name: say\nmcp: {server: docs, tool: echo}\n"
    kinds = Executors.installed()
    return Runtime(
        toolcrib.parse_registry("say.yaml", text, kinds=kinds), executors=kinds, servers={"docs": server}
    )


def run_how_to(name: str, folder: Path) -> None:
    """Run the blocks of a how-to in this environment."""
    variables = {
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        "HOME": str(folder),
        "PIP_QUIET": "2",
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        **{key: value for key, value in os.environ.items() if key.startswith(("PIP_", "SSL_"))},
    }
    # Not `-W error`: the frameworks use what their dependencies deprecate.
    assert run_page(ROOT / "docs" / "how-to" / name, folder, variables, warnings="default")
