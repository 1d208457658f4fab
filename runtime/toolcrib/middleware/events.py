"""Layer `events`: tells an observer when a call begins and how it ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from toolcrib.middleware.ends import asked_to_cancel, attempts_of, bug, cancelled, cancelled_within
from toolcrib.model import Call, Result
from toolcrib.protocols import CallNext, Middleware

if TYPE_CHECKING:
    from toolcrib.reloading import ToolEvent


@dataclass(frozen=True, slots=True)
class CallStarted:
    """A call passed the door of the runtime. `call.arguments` are as the caller gave them."""

    call: Call


@dataclass(frozen=True, slots=True)
class CallFinished:
    """A call ended, with the result that its caller gets; a caller that cancelled gets none."""

    call: Call
    result: Result


Observer: TypeAlias = "Callable[[CallStarted | CallFinished | ToolEvent], None]"
"""Receives the events of every call, in order, and those of reloads. It must not wait and must not raise."""


def layer(observer: Observer | None) -> Middleware | None:
    """The layer for an observer; None where nobody observes."""
    if observer is None:
        return None

    async def events(call: Call, call_next: CallNext) -> Result:
        monotonic = call.context.session.clock.monotonic
        observer(CallStarted(call))
        started = monotonic()

        def finished(result: Result) -> Result:
            told = result.with_usage(attempts_of(result), monotonic() - started)
            observer(CallFinished(call, told))
            return told

        try:
            result = await call_next(call)
        except asyncio.CancelledError:
            if asked_to_cancel():
                finished(cancelled(call, "the caller cancelled the call"))
                raise
            result = cancelled_within(call)
        except Exception as error:  # noqa: BLE001 -- what escapes the layers inside is a bug, and told as one
            result = bug(call, error)
        return finished(result)

    return events
