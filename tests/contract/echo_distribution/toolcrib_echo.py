"""Mode `echo`: answers the text that it is given. It knows of toolcrib what is public, and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from toolcrib import JSON, BoundTool, Call, CallNext, Descriptor, Problem, Result

BLOCK_SCHEMA: dict[str, JSON] = {
    "title": "Echo",
    "description": "What stands before the text.",
    "type": "object",
    "properties": {"prefix": {"$ref": "#/$defs/prefix"}},
    "required": ["prefix"],
    "additionalProperties": False,
    "$defs": {"prefix": {"type": "string", "title": "Prefix", "maxLength": 5}},
}


class EchoExecutor:
    """The executor; it counts how often it was closed."""

    block_schema = BLOCK_SCHEMA

    def __init__(self) -> None:
        self.closed = 0

    def check(self, descriptor: Descriptor) -> Sequence[Problem]:
        """A prefix of blanks is seen by nobody."""
        if _prefix(descriptor).strip():
            return []
        return [Problem(code="invisible_prefix", message="the prefix shows nothing", pointer="/echo/prefix")]

    def bind(self, descriptor: Descriptor) -> BoundTool:
        """The tool, ready to echo."""
        return _Echo(_prefix(descriptor))

    async def aclose(self) -> None:
        """Nothing is held."""
        self.closed += 1


def _prefix(descriptor: Descriptor) -> str:
    block: Any = descriptor.bindings["echo"]
    return block["prefix"]


@dataclass
class _Echo:
    prefix: str
    waits: bool = False

    async def execute(self, call: Call) -> Result:
        return Result.success(f"{self.prefix}{call.arguments['text']}")

    def explain(self, call: Call) -> JSON:
        return {"mode": "echo", "prefix": self.prefix}


async def shout(call: Call, call_next: CallNext) -> Result:
    """A middleware: answers are louder."""
    result = await call_next(call)
    return result._replace(value=str(result.value).upper())
