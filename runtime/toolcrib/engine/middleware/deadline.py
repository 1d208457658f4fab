"""Layer `deadline`: one deadline for the queue and all attempts of a call, on the session's clock."""

from __future__ import annotations

from collections.abc import Awaitable
from inspect import iscoroutinefunction

from toolcrib.core.call_progress import CallProgress, progress_of
from toolcrib.core.clock import format_duration
from toolcrib.core.limit_reports import in_parentheses, limit_details
from toolcrib.core.model import ANSWERS, Call, Outcome, Result, TrustedAnswer, Usage
from toolcrib.engine.middleware.call_failures import may_have_acted, without_attempts
from toolcrib.engine.middleware.layer import Answer, LayerContext, Link


def layer(context: LayerContext, call_next: Link) -> Link | None:
    """Build the layer of a tool; None if its calls never wait."""
    if not (context.bound.waits or context.shared_rules):
        return None
    seconds = context.timeout

    # An `EagerTool` needs no deadline, and only layers that wait read it: the copy of the call can be saved.
    unread = context.begin is not None and not iscoroutinefunction(call_next)

    def deadline(call: Call) -> Answer | Awaitable[Answer]:
        began = call.context.session.clock.monotonic()
        answer = call_next(call if unread else call.with_deadline(began + seconds))
        # A timer could not interrupt code that does not wait, so a call that has ended already needs none.
        # The type first: `isinstance` takes five times as long, and most answers are trusted.
        if type(answer) is TrustedAnswer or isinstance(answer, ANSWERS):
            return answer
        return in_time(call, answer, began)

    async def in_time(call: Call, rest: Awaitable[Answer], began: float) -> Answer:
        clock = call.context.session.clock
        passed = clock.monotonic() - began
        try:
            async with clock.timeout(seconds - passed) as timer:
                return await rest
        except TimeoutError:
            # The tool itself may raise TimeoutError; that is an error of the tool, not the deadline.
            if not timer.expired():
                raise
            return _late(call, seconds, clock.monotonic() - began, progress_of(call.id))

    return deadline


def _late(call: Call, seconds: float, elapsed: float, given: CallProgress) -> Result:
    acted = bool(given.attempts) and given.reached and may_have_acted(call.tool)
    text = format_duration(seconds)
    # The author of a descriptor knows its timeout, but not always that of a project or profile.
    place = call.tool.origin.settings.get("timeout", "")
    queued = f"; it waited in the queue of `{given.queue}`" if given.queue else ""
    late = Result.failure(
        Outcome.TIMEOUT,
        f"`{call.tool.name}` did not answer within {text}{in_parentheses(place)}{queued}",
        details={
            **limit_details(call.tool, "timeout", text, round(elapsed, 3)),
            **({"queue": given.queue} if queued else {}),
            **({"may_have_acted": True} if acted else {}),
        },
        # Another attempt could repeat the effect of the first one.
        retryable=not acted,
    )._replace(meta=given.meta)
    return late._replace(usage=Usage(given.attempts)) if given.attempts else without_attempts(late)
