"""Layer `events`: tells an observer when a call begins and how it ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from toolcrib.model import Call, Outcome, Result
from toolcrib.protocols import CallNext, Middleware


@dataclass(frozen=True, slots=True)
class CallStarted:
    """A call passed the door of the runtime. `call.arguments` are as the caller gave them."""

    call: Call


@dataclass(frozen=True, slots=True)
class CallFinished:
    """A call ended, with the result that its caller gets."""

    call: Call
    result: Result


Observer = Callable[[CallStarted | CallFinished], None]
"""Receives the events of every call, in order. It must not wait and must not raise."""


def layer(observer: Observer | None) -> Middleware | None:
    """The layer for an observer; None where nobody observes."""
    if observer is None:
        return None

    async def events(call: Call, call_next: CallNext) -> Result:
        observer(CallStarted(call))
        try:
            result = await call_next(call)
        except asyncio.CancelledError:
            observer(CallFinished(call, Result.failed(Outcome.CANCELLED, "the caller cancelled the call")))
            raise
        observer(CallFinished(call, result))
        return result

    return events
