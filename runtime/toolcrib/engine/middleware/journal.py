"""Layer `journal`: records the calls that leave the process. Those that may change something are recorded before they act."""

from __future__ import annotations

from toolcrib.core.model import Call, Outcome, Result
from toolcrib.core.protocols import CallNext
from toolcrib.engine.call_journal import unavailable
from toolcrib.engine.middleware.call_failures import cancelled_by_caller, result_of_error
from toolcrib.engine.middleware.layer import LayerContext
from toolcrib.security.journal import UnusableJournal, now


def layer(context: LayerContext, call_next: CallNext) -> CallNext:
    """Build the layer of a tool."""
    journal = context.journal
    assert journal is not None  # noqa: S101 -- only tools with a journal have the layer

    async def reading(call: Call) -> Result:
        started = now()
        try:
            result = await call_next(call)
        except BaseException as error:
            journal.record_later(call, started, _ended(call, error))
            raise
        await journal.record(call, started, result)
        return result

    async def changing(call: Call) -> Result:
        try:
            entry = await journal.begin(call)
        except UnusableJournal as error:
            return unavailable(call, error)
        try:
            result = await call_next(call)
        # BaseException: a call that was cancelled may have acted.
        except BaseException as error:
            journal.end_later(entry, call, _ended(call, error))
            raise
        return await journal.end(entry, call, result)

    return reading if context.tool.annotations.read_only else changing


def _ended(call: Call, error: BaseException) -> Result:
    """The result to record for a call that raised."""
    result = result_of_error(call, error)
    if result is not None:
        return result
    cancelled = cancelled_by_caller(call)
    if call.deadline is None or call.context.session.clock.monotonic() < call.deadline:
        return cancelled
    # The layer `deadline`, outside, has cancelled the call.
    return cancelled._replace(outcome=Outcome.TIMEOUT)
