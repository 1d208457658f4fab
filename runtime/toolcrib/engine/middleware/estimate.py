"""Layer `estimate`: observes what calls of a tool take, and refuses those that would surely exceed a limit.

Every limit is checked when it is exceeded. This layer only spares calls that could not succeed, and the effect that they may
have had before they failed. It needs proof: at least 20 successful calls, all of them above the limit. These are calls
of other callers with laxer limits, or of the time before a limit was changed.
"""

from __future__ import annotations

from functools import partial

from toolcrib.core.clock import format_duration
from toolcrib.core.limit_reports import limit_details, limit_phrase
from toolcrib.core.model import JSON, Call, Outcome, Result
from toolcrib.core.protocols import CallNext
from toolcrib.core.text import compact, format_size
from toolcrib.engine.middleware.call_failures import without_attempts
from toolcrib.engine.middleware.layer import LayerContext, never_waits, off_loop
from toolcrib.engine.statistics import ToolObservations, observations_of
from toolcrib.schema.validation.json_values import DEPTH, is_large

_PROBE = 60.0
"""Seconds after which a call is made although it would be refused: the tool may have become faster."""

_EACH = 64
"""Number of results whose size is measured one after the other; after that, every 16th."""


def is_observed(context: LayerContext) -> bool:
    """Whether the duration or size of calls of a tool is limited or estimated by a document."""
    declared = _declared(context)
    return context.bound.waits and not declared.isdisjoint({"timeout", "limits.output_size", "estimate"})


def _declared(context: LayerContext) -> set[str]:
    # The limits of some callers are decided by what was observed in the calls of all.
    of_callers = {key if key == "timeout" else f"limits.{key}" for key in context.limits_of_callers}
    return {*context.tool.origin.written, *context.tool.origin.settings, *of_callers}


def layer(context: LayerContext, call_next: CallNext) -> CallNext | None:
    """Build the layer of a tool; None if no document limits or estimates it."""
    if not is_observed(context):
        return None
    tool, lock = context.tool, context.shared.lock
    timeout = context.timeout
    sized = tool.estimate.output is not None or "limits.output_size" in _declared(context)

    @never_waits
    async def estimate(call: Call) -> Result:
        clock = call.context.session.clock
        seen = observations_of(context.shared, tool.name, clock)
        started = clock.monotonic()
        refused = refused_by_estimate(context, seen, timeout)
        if refused is not None and not _is_probe(seen, started):
            return refused
        result = await call_next(call)
        if result.outcome is Outcome.OK:
            size = None
            if sized and (seen.output.count < _EACH or not seen.duration.count % 16):
                measure = partial(_size, result.value)
                size = await off_loop(call, measure) if is_large(result.value, DEPTH) else measure()
            with lock:
                seen.duration.add(clock.monotonic() - started)
                if size is not None:
                    seen.output.add(size)
        return result

    return estimate


def _size(value: JSON) -> int:
    return len(compact(value).encode())


def _is_probe(seen: ToolObservations, now: float) -> bool:
    if seen.probed is not None and now - seen.probed < _PROBE:
        return False
    seen.probed = now
    return True


def refused_by_estimate(context: LayerContext, seen: ToolObservations, timeout: float) -> Result | None:
    """The result of a call that would surely exceed a limit, judging by earlier calls; None for others."""
    tool, most = context.tool, context.tool.limits.output_size
    if seen.duration.proves_more_than(timeout):
        name, value, observed = "timeout", format_duration(timeout), seen.duration
        least, verb = format_duration(round(observed.least, 3)), "took"
    elif seen.output.proves_more_than(most):
        name, value, observed = "output_size", format_size(most), seen.output
        least, verb = f"{int(observed.least):,} bytes", "returned"
    else:
        return None
    details = limit_details(tool, name, most if name == "output_size" else value, observed.least)
    return without_attempts(
        Result.failure(
            Outcome.LIMIT_EXCEEDED,
            f"`{tool.name}` was not called: each of {observed.count} successful calls {verb} at least {least}, and "
            f"{limit_phrase(tool, name, value)}",
            code="estimate_exceeds_limit",
            details={**details, "source": "observed", "observations": observed.count},
        )
    )
