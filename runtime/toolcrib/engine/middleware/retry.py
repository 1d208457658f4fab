"""Layer `retry`: repeats calls that failed temporarily, if a repetition has no second effect."""

from __future__ import annotations

import asyncio
import random
from functools import partial
from threading import RLock
from typing import TYPE_CHECKING

from toolcrib.core.call_progress import record_progress
from toolcrib.core.clock import RealClock, format_duration
from toolcrib.core.model import JSON, Call, Limits, Outcome, Result
from toolcrib.core.protocols import CallNext
from toolcrib.core.running_calls import RETRY, in_stage
from toolcrib.engine.middleware.call_failures import attempts_of
from toolcrib.engine.middleware.layer import LayerContext

if TYPE_CHECKING:
    from tenacity import RetryCallState

RESERVE = 10.0
"""Repetitions that an origin may use in addition to its share of the calls."""

RESERVE_COMES_BACK = 10.0
"""Seconds after which one repetition of the reserve is available again."""


def layer(context: LayerContext, call_next: CallNext) -> CallNext | None:
    """Build the layer of a tool; None if its calls are attempted only once."""
    limits, bound, shared = context.tool.limits, context.reaching, context.shared
    if limits.attempts == 1 or not bound.repeatable:
        return None
    key = f"retry budget of {bound.origin}"

    async def retry(call: Call) -> Result:
        clock = call.context.session.clock
        budget = shared.slot(key, partial(RetryBudget, shared.lock), clock)
        budget.earn(limits.retry_budget, clock.monotonic())
        result = await call_next(call)
        if not _may_pass(result):
            return result
        return await _Attempts(call, call_next, result, limits, budget).go_on()

    return retry


class RetryBudget:
    """Limits the repetitions of an origin to a share of its calls, plus a reserve for quiet times.

    Without a budget, an origin that fails under load would get several times that load from retries.

    Args:
        lock: Lock that guards this object.
    """

    __slots__ = ("_left", "_lock", "_since")

    def __init__(self, lock: RLock) -> None:
        self._lock = lock
        self._left = RESERVE
        self._since: float | None = None

    def earn(self, share: float, now: float) -> None:
        """Add the share of a new call, and the part of the reserve that has come back since the last one."""
        with self._lock:
            since = now if self._since is None else self._since
            self._left = min(RESERVE, self._left + share + (now - since) / RESERVE_COMES_BACK)
            self._since = now

    def spend(self) -> bool:
        """Use one repetition; False if none is left."""
        with self._lock:
            if self._left < 1:
                return False
            self._left -= 1
            return True


_PASSING = frozenset({Outcome.TRANSPORT_ERROR, Outcome.TOOL_ERROR})


def _may_pass(result: Result) -> bool:
    """Whether the failure is temporary."""
    return result.error is not None and result.error.retryable and result.outcome in _PASSING


class _Attempts:
    """The attempts of one call whose first attempt failed."""

    def __init__(
        self, call: Call, call_next: CallNext, first: Result, limits: Limits, budget: RetryBudget
    ) -> None:
        self._call = call
        self._call_next = call_next
        self._first: Result | None = first
        self._limits = limits
        self._budget = budget
        self._made = 1
        self._stopped_by = ""

    async def go_on(self) -> Result:
        """Repeat the call until it succeeds, fails permanently, or no further attempt is allowed."""
        from tenacity import AsyncRetrying, retry_if_result  # noqa: PLC0415 -- most calls are attempted once

        attempts = AsyncRetrying(
            sleep=self._sleep,
            retry=retry_if_result(_may_pass),
            wait=self._wait,
            stop=self._stops,
            retry_error_callback=_result_of,
        )
        try:
            result: Result = await attempts(self._attempt)
        except asyncio.CancelledError:
            record_progress(self._call.id, attempts=self._made)
            raise
        tried = self._made - 1 + attempts_of(result)  # zero for the last one if the breaker stopped it
        return self._told(result)._replace(usage=result.usage.counted(tried, 0.0))

    async def _attempt(self) -> Result:
        # The first attempt was made before tenacity was imported; hand its result over.
        first, self._first = self._first, None
        if first is not None:
            return first
        self._made += 1
        entry = self._call.context.session.in_progress(self._call.id)
        if entry is not None:
            entry.attempt = self._made
        return await self._call_next(self._call._replace(attempt=self._made))

    async def _sleep(self, seconds: float) -> None:
        with in_stage(self._call, RETRY):
            await self._call.context.session.clock.sleep(seconds)

    def _wait(self, state: RetryCallState) -> float:
        """The delay that the server asks for, plus exponential backoff with full jitter."""
        # The jitter keeps callers that failed together from returning together.
        first, longest = self._limits.backoff
        told = _retry_after(_result_of(state))
        time = first if told else min(longest, first * 2 ** (self._made - 1))
        return told + time * self._share()

    def _share(self) -> float:
        session = self._call.context.session
        if isinstance(session.clock, RealClock):
            return random.random()  # noqa: S311 -- must differ between processes; no cryptographic use
        # On virtual time, a scenario must be reproducible: draw from the seed of the session.
        from toolcrib.schema.keyed_random import KeyedRandom  # noqa: PLC0415 -- only for virtual time
        from toolcrib.simulation.store import call_counter_of  # noqa: PLC0415 -- as above

        tool = self._call.tool.name
        number = call_counter_of(session, tool).of(self._call)
        return KeyedRandom(session.seed, "backoff", session.id, tool, number, self._made).number(0, 1)

    def _stops(self, state: RetryCallState) -> bool:
        deadline = self._call.deadline
        now = self._call.context.session.clock.monotonic()
        # The budget is last, because asking it spends a repetition.
        if self._made >= self._limits.attempts:
            self._stopped_by = "attempts"
        elif deadline is not None and now + state.upcoming_sleep >= deadline:
            self._stopped_by = "deadline"
        elif not self._budget.spend():
            self._stopped_by = "budget"
        return bool(self._stopped_by)

    def _told(self, result: Result) -> Result:
        """Add to a failure what prevented another attempt."""
        error = result.error
        if error is None or self._stopped_by in {"", "attempts"}:
            return result
        message, seconds = error.message, _retry_after(result)
        told = f"retry after {format_duration(seconds)}"
        if seconds and self._stopped_by == "deadline" and told not in message:
            message = f"{message}; {told}"
        details: dict[str, JSON] = {**error.details, "retry": self._stopped_by}
        return result._replace(message=message, error=error._replace(message=message, details=details))


def _result_of(state: RetryCallState) -> Result:
    assert state.outcome is not None  # noqa: S101 -- tenacity calls this after an attempt
    result: Result = state.outcome.result()
    return result


def _retry_after(result: Result) -> float:
    """Seconds that the server asks to wait; 0.0 if it does not."""
    told = None if result.error is None else result.error.details.get("retry_after")
    return max(0.0, told) if isinstance(told, int | float) else 0.0
