"""What the expressions of a mock can read, and the session's memory of one mocked tool."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from toolcrib.clock import format_time
from toolcrib.model import JSON, Call, Descriptor
from toolcrib.subschemas import closed_names
from toolcrib.text import compact

Scope = Mapping[str, JSON]

NAMES = ("args", "attempt", "call", "now", "seed", "session")
"""The names that expressions of a mock may read."""


def names_for(tool: Descriptor) -> Mapping[str, Collection[str] | None]:
    """The names that expressions of a tool's mock may read, with their keys where these are known.

    The keys of `args` are known where the input schema is closed.
    """
    known = closed_names(tool.input_schema)
    return {**dict.fromkeys(NAMES), "args": known, "session": ("id", "calls")}


def as_text(value: JSON) -> str:
    """What an expression answered, as text: a text as it is, anything else as JSON."""
    return value if isinstance(value, str) else compact(value)


class MockState:
    """What a session remembers of one mocked tool.

    Attributes:
        calls: How often the tool was called in the session; attempts of one call count once.
        used: Key of a list of replies -> how many of them were given.
    """

    __slots__ = ("calls", "used")

    def __init__(self) -> None:
        self.calls = 0
        self.used: dict[str, int] = {}


_READERS: dict[str, Callable[[Call, int], JSON]] = {
    "args": lambda call, _number: call.arguments,
    "attempt": lambda call, _number: call.attempt,
    "call": lambda _call, number: number,
    "now": lambda call, _number: format_time(call.context.session.clock.now()),
    "seed": lambda call, _number: call.context.session.seed,
    "session": lambda call, _number: {"id": call.context.session.id, "calls": call.context.session.calls},
}


def scope_of(names: frozenset[str]) -> Callable[[Call, int], Scope]:
    """How to make the scope of a call: only what is read is worked out."""
    if names <= {"args"}:
        return lambda call, _number: {"args": call.arguments}
    readers = [(name, _READERS[name]) for name in sorted(names)]
    return lambda call, number: {name: read(call, number) for name, read in readers}
