"""Layer `deadline`: one deadline for the queue and all attempts of a call, on the session's clock."""

from __future__ import annotations

from toolcrib.core.call_progress import CallProgress, progress_of
from toolcrib.core.clock import format_duration
from toolcrib.core.model import Call, Outcome, Result, Usage
from toolcrib.core.protocols import CallNext
from toolcrib.engine.middleware.call_failures import may_have_acted, without_attempts
from toolcrib.engine.middleware.layer import LayerContext


def layer(context: LayerContext, call_next: CallNext) -> CallNext | None:
    """Build the layer of a tool; None if its calls never wait."""
    tool, bound = context.tool, context.bound
    if not bound.waits:
        return None
    own: float | None = getattr(bound, "timeout", None)
    seconds = tool.timeout if own is None else own

    async def deadline(call: Call) -> Result:
        clock = call.context.session.clock
        try:
            async with clock.timeout(seconds) as timer:
                return await call_next(call._replace(deadline=clock.monotonic() + seconds))
        except TimeoutError:
            # The tool itself may raise TimeoutError; that is an error of the tool, not the deadline.
            if not timer.expired():
                raise
            return _late(call, seconds, progress_of(call.id))

    return deadline


def _late(call: Call, seconds: float, given: CallProgress) -> Result:
    acted = bool(given.attempts) and given.reached and may_have_acted(call.tool)
    text = format_duration(seconds)
    queued = f"; it waited in the queue of `{given.queue}`" if given.queue else ""
    late = Result.failed(
        Outcome.TIMEOUT,
        f"`{call.tool.name}` did not answer within {text}{queued}",
        details={
            "timeout": text,
            **({"queue": given.queue} if queued else {}),
            **({"may_have_acted": True} if acted else {}),
        },
        # Another attempt could repeat the effect of the first one.
        retryable=not acted,
    )._replace(meta=given.meta)
    return late._replace(usage=Usage(given.attempts)) if given.attempts else without_attempts(late)
