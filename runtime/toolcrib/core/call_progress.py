"""How far a cancelled call had progressed, from the layer that knows to the outer ones that report it."""

from __future__ import annotations

from collections.abc import Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import NamedTuple

from toolcrib.core.model import JSON

_NO_META: Mapping[str, JSON] = MappingProxyType({})


class CallProgress(NamedTuple):
    """How far a call had progressed when it was cancelled.

    Attributes:
        attempts: Number of attempts made.
        queue: The tool or origin whose queue the call was waiting in; empty if it was not queued.
        reached: Whether the tool may have received the call.
        meta: Entries to add to the `meta` of the result.
    """

    attempts: int = 1
    queue: str = ""
    reached: bool = True
    meta: Mapping[str, JSON] = _NO_META


# A cancelled call returns no result that could carry its progress. All layers of a call run in one context. The ID
# keeps apart the calls that are made in it one after the other.
_LAST: ContextVar[tuple[str, CallProgress] | None] = ContextVar(
    "the progress of the call cancelled last", default=None
)


def record_progress(
    call_id: str,
    *,
    attempts: int,
    queue: str = "",
    reached: bool = True,
    meta: Mapping[str, JSON] = _NO_META,
) -> None:
    """Record how far a call had progressed when it was cancelled.

    Without `meta`, the `meta` that an inner layer recorded is kept.
    """
    _LAST.set((call_id, CallProgress(attempts, queue, reached, meta or progress_of(call_id).meta)))


def progress_of(call_id: str) -> CallProgress:
    """The recorded progress of a call; the defaults of `CallProgress` if no layer recorded any."""
    last = _LAST.get()
    return last[1] if last is not None and last[0] == call_id else CallProgress()
