"""Layer `circuit_breaker`: pauses calls to an origin that fails repeatedly."""

from __future__ import annotations

import asyncio
from collections import deque

from toolcrib.core.clock import format_duration
from toolcrib.core.model import JSON, Breaker, Call, Outcome, Result
from toolcrib.core.protocols import CallNext
from toolcrib.engine.middleware.call_failures import BEFORE_ANY_ATTEMPT, without_attempts
from toolcrib.engine.middleware.layer import LayerContext, never_waits

_WHILE_PROBING = 1.0
"""Seconds to wait while another call probes the origin; the end of the probe is unknown."""


def layer(context: LayerContext, call_next: CallNext) -> CallNext | None:
    """Build the layer of a tool; None if its breaker is off, so that its attempts do not count."""
    numbers, origin, shared = context.tool.limits.breaker, context.reaching.origin, context.shared
    if numbers is None:
        return None
    key = _key(origin)

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
            # A cancellation at the deadline means that the origin did not answer; one by the caller means
            # nothing.
            failed = _is_late(call, clock.monotonic()) or None
            raise
        finally:
            with shared.lock:
                circuit.end(numbers, clock.monotonic(), failed=failed, probe=probe)
        return result

    return breaker


def _key(origin: str) -> str:
    return f"circuit of {origin}"


def refused_now(context: LayerContext, call: Call) -> Result | None:
    """The result of a call that the circuit of its origin would refuse now; None for others."""
    origin, clock = context.reaching.origin, call.context.session.clock
    if context.tool.limits.breaker is None:
        return None
    with context.shared.lock:
        wait = context.shared.slot(_key(origin), Circuit, clock).wait(clock.monotonic())
    return _open(origin, wait) if wait else None


class Circuit:
    """Recent failures of an origin, and whether its circuit is open."""

    __slots__ = ("_failures", "_open_until", "_probing")

    def __init__(self) -> None:
        self._failures: deque[float] = deque()
        self._open_until: float | None = None
        self._probing = False

    def wait(self, now: float) -> float:
        """Seconds to wait before the next attempt; 0.0 if one may start now."""
        if self._open_until is None:
            return 0.0
        left = self._open_until - now
        if left > 0:
            return left
        return _WHILE_PROBING if self._probing else 0.0

    def begin(self) -> bool:
        """Start an attempt and return whether it is the probe of an open circuit."""
        # Only one probe at a time: an origin that is recovering must not get the whole load at once.
        self._probing = self._open_until is not None
        return self._probing

    def end(self, numbers: Breaker, now: float, *, failed: bool | None, probe: bool) -> None:
        """End an attempt; `failed` is None if it says nothing about the origin."""
        if probe:
            self._probing = False
            if failed is not None:
                self._failures.clear()
                self._open_until = now + numbers.open_for if failed else None
        elif self._open_until is not None or failed is None:
            return  # an attempt that started before the circuit opened is outdated
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
"""Seconds by which an event-loop timer may fire before its deadline."""


def _is_late(call: Call, now: float) -> bool:
    return call.deadline is not None and now >= call.deadline - _NEARLY


_BROKEN = frozenset({Outcome.TRANSPORT_ERROR, Outcome.UNKNOWN_OUTCOME, Outcome.TIMEOUT})
_SAYS_NOTHING = BEFORE_ANY_ATTEMPT | {Outcome.CANCELLED, Outcome.INTERNAL}


def _failed(result: Result) -> bool | None:
    """Whether the origin failed; None if the attempt says nothing about it."""
    if result.outcome is Outcome.OK:
        return False
    if result.outcome in _SAYS_NOTHING:
        return None
    if result.outcome in _BROKEN:
        return True
    error = result.error
    if error is not None and error.code == "auth_failed":
        return None  # the status in its details is that of the token server, which is another origin
    # Only server errors count: a 4xx shows that the origin works and that the request is wrong.
    status = error.details.get("status") if error is not None and error.retryable else None
    return isinstance(status, int) and status >= 500


def _open(origin: str, wait: float) -> Result:
    seconds = round(wait, 3)
    details: dict[str, JSON] = {"origin": origin, "retry_after": seconds}
    return without_attempts(
        Result.failure(
            Outcome.OVERLOADED,
            f"the circuit of `{origin}` is open after repeated failures; retry after {format_duration(seconds)}",
            code="circuit_open",
            details=details,
            retryable=True,
        )
    )
