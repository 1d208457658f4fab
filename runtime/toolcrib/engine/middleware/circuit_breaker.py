"""Layer `circuit_breaker`: an origin that fails again and again is left alone for a while."""

from __future__ import annotations

import asyncio
from collections import deque

from toolcrib.core.clock import format_duration
from toolcrib.core.model import JSON, Breaker, Call, Outcome, Result
from toolcrib.core.protocols import CallNext
from toolcrib.engine.middleware.call_failures import BEFORE_ANY_ATTEMPT, without_attempts
from toolcrib.engine.middleware.layer import LayerContext, never_waits

_WHILE_PROBING = 1.0
"""Seconds after which to ask again while one attempt finds out how an origin is."""


def layer(context: LayerContext, call_next: CallNext) -> CallNext | None:
    """The layer of a tool; None where its breaker is off: then its attempts neither count nor are stopped."""
    numbers, origin, shared = context.tool.limits.breaker, context.reaching.origin, context.shared
    if numbers is None:
        return None
    key = f"circuit of {origin}"

    @never_waits
    async def breaker(call: Call) -> Result:
        clock = call.context.session.clock
        circuit = shared.slot(key, Circuit, clock)
        with shared.lock:
            wait = circuit.wait(clock.monotonic())
            probe = not wait and circuit.begin()
        if wait:
            return _open(origin, wait)
        failed = None
        try:
            result = await call_next(call)
            failed = _failed(result)
        except asyncio.CancelledError:
            # If the deadline ended it, and not the caller, then the origin kept silent.
            failed = _is_late(call, clock.monotonic()) or None
            raise
        finally:
            with shared.lock:
                circuit.end(numbers, clock.monotonic(), failed=failed, probe=probe)
        return result

    return breaker


class Circuit:
    """How an origin fared of late."""

    __slots__ = ("_failures", "_open_until", "_probing")

    def __init__(self) -> None:
        self._failures: deque[float] = deque()
        self._open_until: float | None = None
        self._probing = False

    def wait(self, now: float) -> float:
        """Seconds after which to ask again; 0.0 where an attempt may be made now."""
        if self._open_until is None:
            return 0.0
        left = self._open_until - now
        if left > 0:
            return left
        return _WHILE_PROBING if self._probing else 0.0

    def begin(self) -> bool:
        """Begin an attempt. Returns whether it is the one that finds out how the origin is."""
        self._probing = self._open_until is not None
        return self._probing

    def end(self, numbers: Breaker, now: float, *, failed: bool | None, probe: bool) -> None:
        """End an attempt; `failed` is None where it says nothing of the origin."""
        if probe:
            self._probing = False
            if failed is not None:
                self._failures.clear()
                self._open_until = now + numbers.open_for if failed else None
        elif self._open_until is not None or failed is None:
            return  # what began before the breaker opened says nothing new
        elif failed:
            self._count(numbers, now)
        else:
            self._failures.clear()

    def _count(self, numbers: Breaker, now: float) -> None:
        self._failures.append(now)
        while self._failures[0] < now - numbers.within or len(self._failures) > numbers.failures:
            self._failures.popleft()
        if len(self._failures) == numbers.failures:
            self._open_until = now + numbers.open_for


_NEARLY = 0.01
"""Seconds by which a timer may be before the deadline that it stands for."""


def _is_late(call: Call, now: float) -> bool:
    return call.deadline is not None and now >= call.deadline - _NEARLY


_BROKEN = frozenset({Outcome.TRANSPORT_ERROR, Outcome.UNKNOWN_OUTCOME, Outcome.TIMEOUT})
_SAYS_NOTHING = BEFORE_ANY_ATTEMPT | {Outcome.CANCELLED, Outcome.INTERNAL}


def _failed(result: Result) -> bool | None:
    """Whether the origin failed; None where it was not asked."""
    if result.outcome is Outcome.OK:
        return False
    if result.outcome in _SAYS_NOTHING:
        return None
    if result.outcome in _BROKEN:
        return True
    error = result.error
    if error is not None and error.code == "auth_failed":
        return None  # what its details tell is how another server fared, that of the tokens
    status = error.details.get("status") if error is not None and error.retryable else None
    return isinstance(status, int) and status >= 500


def _open(origin: str, wait: float) -> Result:
    seconds = round(wait, 3)
    details: dict[str, JSON] = {"origin": origin, "retry_after": seconds}
    return without_attempts(
        Result.failed(
            Outcome.OVERLOADED,
            f"the circuit of `{origin}` is open after repeated failures; retry after {format_duration(seconds)}",
            code="circuit_open",
            details=details,
            retryable=True,
        )
    )
