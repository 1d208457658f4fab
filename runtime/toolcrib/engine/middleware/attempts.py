"""Layer `attempts`: an event in the span of a call for each of its attempts."""

from __future__ import annotations

from toolcrib.core.model import Call, Outcome, Result
from toolcrib.core.protocols import CallNext
from toolcrib.engine.middleware.call_failures import observed
from toolcrib.engine.middleware.layer import LayerContext, never_waits
from toolcrib.engine.telemetry import CALL_SPAN


def layer(context: LayerContext, call_next: CallNext) -> CallNext | None:
    """Build the layer of a tool; None without spans."""
    if context.telemetry.trace != "calls":
        return None

    @never_waits
    async def attempts(call: Call) -> Result:
        span = CALL_SPAN.get()
        monotonic = call.context.session.clock.monotonic
        started = monotonic()

        def finished(result: Result) -> Result:
            ended = {"toolcrib.attempt.number": call.attempt, "toolcrib.outcome": result.outcome.value}
            failed = {} if result.outcome is Outcome.OK else {"error.type": result.outcome.value}
            attributes = {**ended, **failed, "toolcrib.attempt.duration": monotonic() - started}
            if span is not None:
                span.add_event("toolcrib.attempt", attributes)
            return result

        return await observed(call, call, call_next, finished)

    return attempts
