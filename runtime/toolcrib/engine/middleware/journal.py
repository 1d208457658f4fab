"""Layer `journal`: records the calls that leave the process. Those that may change something are recorded before they act."""

from __future__ import annotations

from collections.abc import Awaitable, Coroutine
from typing import Any

from toolcrib.core.model import ANSWERS, Call, Outcome, Result, TrustedAnswer
from toolcrib.engine.call_journal import unavailable
from toolcrib.engine.middleware.call_failures import cancelled_by_caller, result_of_error
from toolcrib.engine.middleware.layer import Answer, LayerContext, Link, results_of
from toolcrib.security.journal import UnusableJournal, now


def layer(context: LayerContext, call_next: Link) -> Link:
    """Build the layer of a tool."""
    journal, rest = context.journal, results_of(call_next)
    assert journal is not None  # noqa: S101 -- only tools with a journal have the layer

    def reading(call: Call) -> Answer | Awaitable[Answer]:
        started = now()
        try:
            answer = call_next(call)
        except BaseException as error:
            journal.record_later(call, started, _ended(call, error))
            raise
        # The type first: `isinstance` takes five times as long, and the answers of mocks are trusted.
        if type(answer) is not TrustedAnswer and not isinstance(answer, ANSWERS):
            return read_later(call, answer, started)
        writing = journal.record(call, started, answer)
        return answer if writing is None else recorded(answer, writing)

    async def read_later(call: Call, rest: Awaitable[Answer], started: float) -> Answer:
        try:
            answer = await rest
        except BaseException as error:
            journal.record_later(call, started, _ended(call, error))
            raise
        writing = journal.record(call, started, answer)
        return answer if writing is None else await recorded(answer, writing)

    async def recorded(answer: Answer, writing: Coroutine[Any, Any, None]) -> Answer:
        await writing
        return answer

    async def changing(call: Call) -> Result:
        try:
            entry = await journal.begin(call)
        except UnusableJournal as error:
            return unavailable(call, error)
        try:
            result = await rest(call)
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
