"""Mode `mcp` as far as the engine can tell: servers that offer what a test says, without any process."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from toolcrib import Executors, Outcome, Result
from toolcrib.core.clock import RealClock
from toolcrib.core.errors import ServerDown
from toolcrib.core.protocols import Remote
from toolcrib.core.server_config import Catalogue
from toolcrib.executors.mock import MockExecutor

NOW: dict[str, Any] = {
    "name": "now",
    "description": "The time in a zone.",
    "inputSchema": {
        "type": "object",
        "properties": {"zone": {"type": "string"}, "form": {"type": "string"}},
        "required": ["zone"],
        "additionalProperties": False,
    },
    "annotations": {"readOnlyHint": True},
}


def definition(name: str, **more: Any) -> dict[str, Any]:
    """A tool without arguments, as a server lists it."""
    return {"name": name, "description": f"Does {name}.", "inputSchema": {"type": "object"}, **more}


def offer(server: str, *tools: dict[str, Any]) -> Catalogue:
    """What a server offers."""
    return Catalogue(server, {tool["name"]: tool for tool in tools})


@dataclass
class _Bound:
    block: dict[str, Any]
    waits: bool = True

    async def execute(self, call: Any) -> Result:
        tool = self.block.get("tool", call.tool.name)
        return Result.success({"server": self.block["server"], "tool": tool, "args": call.arguments})

    def explain(self, _call: Any) -> Any:
        return dict(self.block)


class Offering:
    """An executor whose servers are a mapping that a test changes at will.

    Attributes:
        offers: Name of a server -> what it offers; one that is not there is down.
        asked: The servers that were asked, in order.
        released: The sessions that are over.
    """

    def __init__(self, *offers: Catalogue) -> None:
        self.offers = {each.server: each for each in offers}
        self.asked: list[str] = []
        self.released: list[str] = []
        self.world: Any = None
        self.changed: Callable[[str, Catalogue], None] | None = None
        self.block_schema = {"type": "object", "properties": {"server": {"type": "string"}}}

    def check(self, _tool: Any) -> list[Any]:
        return []

    def remote(self, name: str, block: dict[str, Any]) -> Remote:
        return Remote(block.get("server", ""), block.get("tool", name), frozenset(block.get("args", {})))

    def bind(self, tool: Any) -> _Bound:
        return _Bound(tool.bindings["mcp"])

    async def catalogue(self, server: str) -> Catalogue:
        self.asked.append(server)
        await RealClock().sleep(0)
        if server not in self.offers:
            raise ServerDown(f"the server `{server}` can't be started", hint="mend it")
        return self.offers[server]

    async def release(self, session_id: str) -> None:
        self.released.append(session_id)

    async def aclose(self) -> None:
        pass

    def executors(self) -> Executors:
        """This mode and mocks."""
        return Executors({"mcp": lambda: self, "mock": MockExecutor})


def outcome(result: Result) -> tuple[Outcome, str | None]:
    """The outcome, and the finer code."""
    return result.outcome, result.error.code if result.error is not None else None
