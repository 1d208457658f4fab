"""What the expressions of faults can read."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from toolcrib.core.clock import format_time
from toolcrib.core.model import JSON, Call, Descriptor
from toolcrib.core.subschemas import closed_names
from toolcrib.expressions.compiler import alone

Keeping = Callable[[Call, str], JSON]
"""What the session's mocks keep for a call: its `store` or its `state`."""


def names_for(tool: Descriptor | None = None) -> Mapping[str, Collection[str] | None]:
    """The names that expressions of a tool's faults may read, with their keys where these are known.

    Without a tool nobody knows the keys.
    """
    names: dict[str, Collection[str] | None] = dict.fromkeys((*_READERS, "state", "store"))
    names["session"] = ("id", "calls")
    if tool is not None:
        names["args"] = closed_names(tool.input_schema)
        names["state"] = tuple(tool.fixture.machines)
        names["store"] = tuple(tool.fixture.collections)
        names |= {alone("store", name): None for name in tool.fixture.collections}
    return names


_READERS: dict[str, Callable[[Call, int], JSON]] = {
    "args": lambda call, _number: call.arguments,
    "attempt": lambda call, _number: call.attempt,
    "call": lambda _call, number: number,
    "now": lambda call, _number: format_time(call.context.session.clock.now()),
    "seed": lambda call, _number: call.context.session.seed,
    "session": lambda call, _number: {"id": call.context.session.id, "calls": call.context.session.calls},
}


def scope_of(names: frozenset[str], keeping: Keeping) -> Callable[[Call, int], Mapping[str, JSON]]:
    """How to make the scope of an attempt: only what is read is worked out."""
    wanted = sorted(names)

    def scope(call: Call, number: int) -> Mapping[str, JSON]:
        return {
            name: _READERS[name](call, number) if name in _READERS else keeping(call, name) for name in wanted
        }

    return scope
