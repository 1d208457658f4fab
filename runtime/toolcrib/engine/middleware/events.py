"""Layer `events`: tells an observer when a call begins and how it ended."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from toolcrib.core.model import Call, Result
from toolcrib.core.protocols import CallNext
from toolcrib.engine.middleware.call_failures import attempts_of, cancelled_result, result_of_error
from toolcrib.engine.middleware.layer import LayerContext, never_waits

if TYPE_CHECKING:
    from toolcrib.loading.reload import ToolEvent


class CallStarted(NamedTuple):
    """A call passed the door of the runtime. `call.arguments` are as the caller gave them.

    `call.context.correlation` ties it to what it is called elsewhere: of a conversation's call it is the id there.
    """

    call: Call


class CallFinished(NamedTuple):
    """A call ended, with the result that its caller gets; a caller that cancelled gets none."""

    call: Call
    result: Result


Observer: TypeAlias = "Callable[[CallStarted | CallFinished | ToolEvent], None]"
"""Receives the events of every call, in order, and those of reloads. It must not wait and must not raise."""


def layer(context: LayerContext, call_next: CallNext) -> CallNext | None:
    """The layer for an observer; None where nobody observes."""
    observer = context.observer
    if observer is None:
        return None
    import asyncio  # noqa: PLC0415 -- where nobody observes there may be no event loop

    @never_waits
    async def events(call: Call) -> Result:
        monotonic = call.context.session.clock.monotonic
        observer(CallStarted(call))
        started = monotonic()

        def finished(result: Result) -> Result:
            told = result.with_usage(attempts_of(result), monotonic() - started, call.tool.name)
            observer(CallFinished(call, told))
            return told

        try:
            result = await call_next(call)
        except BaseException as error:  # what escapes the layers inside is a bug, and told as one
            ended = result_of_error(call, error)
            if ended is None:
                if isinstance(error, asyncio.CancelledError):
                    finished(cancelled_result(call, "the caller cancelled the call", error))
                raise
            result = ended
        return finished(result)

    return events
