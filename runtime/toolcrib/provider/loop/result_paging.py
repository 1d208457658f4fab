"""Results as a model reads them: all of a short one; of a long one the beginning, and a handle for the rest.

The whole text of a long result is kept in the conversation. From then on a tool is declared that gives pieces of it,
`read_result`; its calls are judged like all calls, in a runtime of its own.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import cached_property
from typing import Any

from toolcrib.core.errors import did_you_mean
from toolcrib.core.model import Annotations, Content, Descriptor, Outcome, Result
from toolcrib.core.protocols import Clock
from toolcrib.core.text import part_text, text_for_model
from toolcrib.engine.runtime import Runtime
from toolcrib.executors import Executors
from toolcrib.executors.client import ClientExecutor
from toolcrib.registry.registry import Registry

READ_RESULT = "read_result"

LEAST_LIMIT = 256
"""Bytes of a result that a model is shown at least."""

_UNBOUNDED = 1 << 62
_NOTE = 160
"""Bytes that the note about a piece takes at most."""


def told(result: Result, limit: int, spilled: Mapping[str, str], reader: str) -> tuple[str, str, str]:
    """What a model reads of a result.

    Args:
        result: The result.
        limit: Bytes of UTF-8 at most.
        spilled: What is kept already.
        reader: The tool that reads what is kept.

    Returns:
        The text; and where it was too long, a handle and the whole. Those are empty where it was not.
    """
    whole = text_for_model(result, _UNBOUNDED)
    if len(whole) * 4 <= limit or (size := len(whole.encode(errors="replace"))) <= limit:
        return whole, "", ""
    handle = f"result_{len(spilled) + 1}"
    shown = beginning(whole, limit - _NOTE - len(reader))
    note = (
        f"… [cut: {len(shown)} of {len(whole)} characters ({size} bytes in all); go on with "
        f'{reader}(handle="{handle}", offset={len(shown)})]'
    )
    return shown + note, handle, whole


def within(result: Result, limit: int) -> Result:
    """The result without the parts that don't fit: what each of them is stands in its place.

    Args:
        result: The result.
        limit: Bytes of base64 that all its parts may have together.
    """
    parts, room = [], limit
    for part in result.content:
        size = len(part.data or "")
        if size > room:
            described = part_text(part._replace(text=None)).removesuffix("]")
            note = f"{described}: {size} bytes of base64, too many to be shown]"
            parts.append(Content("text", text=f"{part.text}\n{note}" if part.text else note))
        else:
            room -= size
            parts.append(part)
    return result._replace(content=tuple(parts)) if result.content else result


def beginning(text: str, limit: int) -> str:
    """As much of the text as so many bytes hold, at least one character."""
    return text[:limit].encode(errors="replace")[:limit].decode(errors="ignore") or text[:1]


def media(result: Result) -> tuple[Content, ...]:
    """The parts of a result that are more than text."""
    return tuple(part for part in result.content if part.text is None)


def tool_named(name: str, limit: int) -> Descriptor:
    """The tool that reads what is kept."""
    offset: dict[str, Any] = {
        "type": "integer",
        "minimum": 0,
        "default": 0,
        "description": "Characters to leave out.",
    }
    most: dict[str, Any] = {
        "type": "integer",
        "minimum": 1,
        "description": f"Characters to read at most; no more than {limit} bytes are given at once.",
    }
    handle: dict[str, Any] = {"type": "string", "description": "As the result that was cut tells it."}
    return Descriptor(
        name,
        description="Reads on in a result that was too long to be shown whole.",
        input_schema={
            "type": "object",
            "properties": {"handle": handle, "offset": offset, "limit": most},
            "required": ["handle"],
            "additionalProperties": False,
        },
        output_schema={"type": "string"},
        annotations=Annotations(read_only=True, destructive=False, idempotent=True, open_world=False),
        mode="client",
        bindings={"client": {}},
    )


class Reader:
    """Calls the tool that reads what is kept.

    Attributes:
        tool: The tool.
    """

    def __init__(self, name: str, limit: int, clock: Clock) -> None:
        self.tool = tool_named(name, limit)
        self._limit = limit
        self._clock = clock

    @cached_property
    def _runtime(self) -> Runtime:
        executors = Executors({"client": ClientExecutor})
        return Runtime(Registry([self.tool]), executors=executors, clock=self._clock)

    def call(self, arguments: Mapping[str, Any], spilled: Mapping[str, str]) -> Awaitable[Result]:
        """Read a piece: its text, with a note that says where it goes on."""
        session = self._runtime.engine.default_session
        return session.call(self.tool.name, arguments, client=self._from(spilled))

    def _from(self, spilled: Mapping[str, str]) -> Callable[[Any], Awaitable[Result]]:
        async def read(call: Any) -> Result:
            handle, offset = call.arguments["handle"], call.arguments["offset"]
            if handle not in spilled:
                near = did_you_mean(handle, spilled) or "handles are told where a result is cut"
                message = f"there is no result `{handle}`; {near}"
                return Result.failed(Outcome.TOOL_ERROR, message, code="unknown_handle")
            whole = spilled[handle]
            if offset >= len(whole):
                message = f"`{handle}` has {len(whole)} characters, and none behind {offset}"
                return Result.failed(Outcome.TOOL_ERROR, message, code="offset_too_large")
            wanted = whole[offset : offset + call.arguments.get("limit", len(whole))]
            piece = beginning(wanted, self._limit - _NOTE)
            end = offset + len(piece)
            then = f"go on with offset={end}" if end < len(whole) else "this is the end"
            note = f"[characters {offset} to {end} of {len(whole)}; {then}]"
            return Result.ok(piece, content=(Content("text", text=note),))

        return read
