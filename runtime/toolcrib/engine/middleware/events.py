"""Layer `events`: notifies an observer when a call starts and how it ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from toolcrib.core.model import Call, Result
from toolcrib.core.protocols import CallNext
from toolcrib.engine.middleware.call_failures import attempts_of, cancelled_by_caller, result_of_error
from toolcrib.engine.middleware.layer import LayerContext, never_waits

if TYPE_CHECKING:
    from toolcrib.loading.reload import ToolEvent


class CallStarted(NamedTuple):
    """A call started. `call.arguments` are the caller's, before defaults and repairs.

    `call.context.correlation` is the ID of the call in another system, such as a conversation.
    """

    call: Call


class CallFinished(NamedTuple):
    """A call ended with the result that its caller gets. A caller that cancelled gets none."""

    call: Call
    result: Result


Observer: TypeAlias = "Callable[[CallStarted | CallFinished | ToolEvent], None]"
"""Receives the events of every call and reload, in order. It must not block and must not raise."""


def layer(context: LayerContext, call_next: CallNext) -> CallNext | None:
    """Build the layer of a tool; None without an observer."""
    observer = context.observer
    if observer is None:
        return None
    import asyncio  # noqa: PLC0415 -- slow to import, and mocked calls run without it

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
        # BaseException: a cancelled call has an end as well, which the observer must see.
        except BaseException as error:
            ended = result_of_error(call, error)
            if ended is None:
                if isinstance(error, asyncio.CancelledError):
                    finished(cancelled_by_caller(call))
                raise
            result = ended
        return finished(result)

    return events
