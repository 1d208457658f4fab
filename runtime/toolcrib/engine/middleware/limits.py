"""Layer `limits`: how many calls of a tool, and of its origin, pass in a time and at once; the others wait, or not."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from functools import partial
from threading import RLock
from weakref import WeakSet

from toolcrib.core.clock import format_duration
from toolcrib.core.errors import attach_progress
from toolcrib.core.model import JSON, Bounds, Call, Descriptor, Outcome, Rate, Result
from toolcrib.core.protocols import CallNext, Middleware, Reaching
from toolcrib.engine.middleware.call_failures import untried
from toolcrib.engine.middleware.rate_limiter import Gate
from toolcrib.engine.middleware.shared_state import Commons


def layer(tool: Descriptor, bound: Reaching, commons: Commons) -> Middleware:
    """The layer of a tool."""
    bounds = Bounds(tool.limits.rate, tool.limits.concurrency, tool.limits.queue)
    lock = commons.lock
    saying = commons.slot(f"bounds of {bound.origin}", partial(Sayings, lock)).add(tool.limits.origin)
    gate = partial(Gate, lock)
    own_key, shared_key = f"gate of tool {tool.name}", f"gate of origin {bound.origin}"

    async def limits(call: Call, call_next: CallNext) -> Result:
        clock = call.context.session.clock
        own = Side(tool.name, commons.slot(own_key, gate, clock), bounds)
        shared = Side(bound.origin, commons.slot(shared_key, gate, clock), saying.among.strictest)
        with lock:
            now = clock.monotonic()
            passes = own.gate.is_open(own.bounds, now) and shared.gate.is_open(shared.bounds, now)
            if passes:
                own.gate.enter(own.bounds, now)
                shared.gate.enter(shared.bounds, now)
        if not passes:
            refused = await _admitted(call, own, shared, lock)
            if refused is not None:
                return refused
        try:
            return await call_next(call)
        finally:
            with lock:
                shared.gate.leave()
                own.gate.leave()

    return limits


class Side:
    """One of the two gates of a call.

    Attributes:
        name: Of the tool or the origin.
        gate: Its gate.
        bounds: What it lets pass.
    """

    __slots__ = ("bounds", "gate", "name")

    def __init__(self, name: str, gate: Gate, bounds: Bounds) -> None:
        self.name = name
        self.gate = gate
        self.bounds = bounds


class Saying:
    """What one tool says of its origin; it counts as long as the chain of the tool is kept."""

    __slots__ = ("__weakref__", "among", "bounds")

    def __init__(self, bounds: Bounds, among: Sayings) -> None:
        self.bounds = bounds
        self.among = among


class Sayings:
    """What the tools of an origin say of it.

    Args:
        lock: Guards it.
    """

    def __init__(self, lock: RLock) -> None:
        self._lock = lock
        self._said: WeakSet[Saying] = WeakSet()
        self._counted = 0
        self._strictest = Bounds()

    def add(self, bounds: Bounds) -> Saying:
        """Add one. It counts until it is gone."""
        saying = Saying(bounds, self)
        with self._lock:
            self._said.add(saying)
            self._count()
        return saying

    @property
    def strictest(self) -> Bounds:
        """The least of each bound, as far as anybody names one."""
        if (
            len(self._said) != self._counted
        ):  # some are gone: a tool has others now, and its old calls are over
            with self._lock:
                self._count()
        return self._strictest

    def _count(self) -> None:
        said = [each.bounds for each in self._said]
        self._counted = len(said)
        self._strictest = Bounds(
            rate=min((each.rate for each in said if each.rate), key=_calls_a_second, default=None),
            concurrency=_least(each.concurrency for each in said),
            queue=_least(each.queue for each in said),
        )


def _calls_a_second(rate: Rate) -> tuple[float, int]:
    return rate.calls / rate.seconds, rate.calls


def _least(numbers: Iterable[int | None]) -> int | None:
    return min((number for number in numbers if number is not None), default=None)


async def _admitted(call: Call, own: Side, shared: Side, lock: RLock) -> Result | None:
    """Wait until the call may pass both gates, and pass them; or the result that it ends with.

    Only the first in the line of its tool stands in the line of the origin: it takes a place there when it can use
    it, and the tools of an origin take turns.
    """
    clock = call.context.session.clock
    sides = (own, shared)
    awaited = own
    with lock:
        refused = _hopeless(call, own, shared)
        if refused is not None:
            return refused
        for side in sides:
            side.gate.waiting += 1
    try:
        async with own.gate.front(clock):
            delay = await own.gate.opening(own.bounds, clock, call.deadline)
            if delay:
                return _too_soon(own, delay)
            awaited = shared
            async with shared.gate.front(clock):
                delay = await shared.gate.opening(shared.bounds, clock, call.deadline)
                if delay:
                    return _too_soon(shared, delay)
                with lock:
                    for side in sides:
                        side.gate.enter(side.bounds, clock.monotonic())
                return None
    except asyncio.CancelledError as error:
        attach_progress(error, attempts=0, queue=awaited.name)
        raise
    finally:
        with lock:
            for side in sides:
                side.gate.waiting -= 1


def _hopeless(call: Call, own: Side, shared: Side) -> Result | None:
    """The result of a call that need not wait: its turn would come too late, or too many wait already."""
    clock = call.context.session.clock
    now = clock.monotonic()
    for side, ahead in ((own, own.gate.waiting), (shared, shared.gate.line)):
        delay = side.gate.delay(side.bounds.rate, now, ahead)
        if delay and call.deadline is not None and now + delay >= call.deadline:
            return _too_soon(side, delay)
    for side in (own, shared):
        if side.bounds.queue is not None and side.gate.waiting >= side.bounds.queue:
            return _full(side)
    return None


def _too_soon(side: Side, delay: float) -> Result:
    rate = side.bounds.rate
    assert rate is not None  # noqa: S101 -- nothing else delays
    told = f"{rate.calls}/{format_duration(rate.seconds)}"
    seconds = round(delay, 3)
    details: dict[str, JSON] = {"limit": side.name, "rate": told, "retry_after": seconds}
    return untried(
        Result.failed(
            Outcome.LIMIT_EXCEEDED,
            f"the rate of `{side.name}` is {told}; retry after {format_duration(seconds)}",
            code="rate_limited",
            details=details,
            retryable=True,
        )
    )


def _full(side: Side) -> Result:
    gate = side.gate
    details: dict[str, JSON] = {"limit": side.name, "under_way": gate.inside, "waiting": gate.waiting}
    return untried(
        Result.failed(
            Outcome.OVERLOADED,
            f"the queue of `{side.name}` is full: {gate.inside} under way, {gate.waiting} waiting",
            code="queue_full",
            details=details,
            retryable=True,
        )
    )
