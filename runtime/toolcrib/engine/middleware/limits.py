"""Layer `limits`: how many calls of a tool, and of its origin, pass in a time and at once; the others wait, or not."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import partial
from threading import RLock
from weakref import WeakSet

from toolcrib.core.clock import format_duration
from toolcrib.core.errors import attach_progress
from toolcrib.core.model import JSON, Bounds, Call, Outcome, Rate, Result
from toolcrib.core.protocols import CallNext, Clock
from toolcrib.engine.middleware.call_failures import without_attempts
from toolcrib.engine.middleware.layer import LayerContext


def layer(context: LayerContext, call_next: CallNext) -> CallNext:
    """The layer of a tool."""
    tool, bound = context.tool, context.reaching
    bounds = Bounds(tool.limits.rate, tool.limits.concurrency, tool.limits.queue)
    lock = context.shared.lock
    declared = context.shared.slot(f"bounds of {bound.origin}", partial(DeclaredBounds, lock)).add(
        tool.limits.origin
    )
    make = partial(Limiter, lock)
    own_key, shared_key = f"limiter of tool {tool.name}", f"limiter of origin {bound.origin}"

    async def limits(call: Call) -> Result:
        clock = call.context.session.clock
        own = LimiterUse(tool.name, context.shared.slot(own_key, make, clock), bounds)
        shared = LimiterUse(
            bound.origin, context.shared.slot(shared_key, make, clock), declared.among.strictest
        )
        with lock:
            now = clock.monotonic()
            passes = own.limiter.is_open(own.bounds, now) and shared.limiter.is_open(shared.bounds, now)
            if passes:
                own.limiter.enter(own.bounds, now)
                shared.limiter.enter(shared.bounds, now)
        if not passes:
            refused = await _admitted(call, own, shared, lock)
            if refused is not None:
                return refused
        try:
            return await call_next(call)
        finally:
            with lock:
                shared.limiter.leave()
                own.limiter.leave()

    return limits


class LimiterUse:
    """One of the two limiters that a call passes.

    Attributes:
        name: Of the tool or the origin.
        limiter: Its limiter.
        bounds: What it lets pass.
    """

    __slots__ = ("bounds", "limiter", "name")

    def __init__(self, name: str, limiter: Limiter, bounds: Bounds) -> None:
        self.name = name
        self.limiter = limiter
        self.bounds = bounds


class OriginBounds:
    """The bounds that one tool declares for its origin; it counts as long as the chain of the tool is kept."""

    __slots__ = ("__weakref__", "among", "bounds")

    def __init__(self, bounds: Bounds, among: DeclaredBounds) -> None:
        self.bounds = bounds
        self.among = among


class DeclaredBounds:
    """The bounds that the tools of an origin declare for it.

    Args:
        lock: Guards it.
    """

    def __init__(self, lock: RLock) -> None:
        self._lock = lock
        self._declared: WeakSet[OriginBounds] = WeakSet()
        self._counted = 0
        self._strictest = Bounds()

    def add(self, bounds: Bounds) -> OriginBounds:
        """Add one. It counts until it is gone."""
        declared = OriginBounds(bounds, self)
        with self._lock:
            self._declared.add(declared)
            self._count()
        return declared

    @property
    def strictest(self) -> Bounds:
        """The least of each bound, as far as anybody names one."""
        if (
            len(self._declared) != self._counted
        ):  # some are gone: a tool has others now, and its old calls are over
            with self._lock:
                self._count()
        return self._strictest

    def _count(self) -> None:
        declared = [each.bounds for each in self._declared]
        self._counted = len(declared)
        self._strictest = Bounds(
            rate=min((each.rate for each in declared if each.rate), key=_calls_a_second, default=None),
            concurrency=_least(each.concurrency for each in declared),
            queue=_least(each.queue for each in declared),
        )


def _calls_a_second(rate: Rate) -> tuple[float, int]:
    return rate.calls / rate.seconds, rate.calls


def _least(numbers: Iterable[int | None]) -> int | None:
    return min((number for number in numbers if number is not None), default=None)


async def _admitted(call: Call, own: LimiterUse, shared: LimiterUse, lock: RLock) -> Result | None:
    """Wait until the call may pass both limiters, and pass them; or the result that it ends with.

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
            side.limiter.waiting += 1
    try:
        async with own.limiter.front(clock):
            delay = await own.limiter.opening(own.bounds, clock, call.deadline)
            if delay:
                return _too_soon(own, delay)
            awaited = shared
            async with shared.limiter.front(clock):
                delay = await shared.limiter.opening(shared.bounds, clock, call.deadline)
                if delay:
                    return _too_soon(shared, delay)
                with lock:
                    for side in sides:
                        side.limiter.enter(side.bounds, clock.monotonic())
                return None
    except asyncio.CancelledError as error:
        attach_progress(error, attempts=0, queue=awaited.name)
        raise
    finally:
        with lock:
            for side in sides:
                side.limiter.waiting -= 1


def _hopeless(call: Call, own: LimiterUse, shared: LimiterUse) -> Result | None:
    """The result of a call that need not wait: its turn would come too late, or too many wait already."""
    clock = call.context.session.clock
    now = clock.monotonic()
    for side, ahead in ((own, own.limiter.waiting), (shared, shared.limiter.line)):
        delay = side.limiter.delay(side.bounds.rate, now, ahead)
        if delay and call.deadline is not None and now + delay >= call.deadline:
            return _too_soon(side, delay)
    for side in (own, shared):
        if side.bounds.queue is not None and side.limiter.waiting >= side.bounds.queue:
            return _full(side)
    return None


def _too_soon(side: LimiterUse, delay: float) -> Result:
    rate = side.bounds.rate
    assert rate is not None  # noqa: S101 -- nothing else delays
    told = f"{rate.calls}/{format_duration(rate.seconds)}"
    seconds = round(delay, 3)
    details: dict[str, JSON] = {"limit": side.name, "rate": told, "retry_after": seconds}
    return without_attempts(
        Result.failed(
            Outcome.LIMIT_EXCEEDED,
            f"the rate limit of `{side.name}` is {told}; retry after {format_duration(seconds)}",
            code="rate_limited",
            details=details,
            retryable=True,
        )
    )


def _full(side: LimiterUse) -> Result:
    limiter = side.limiter
    details: dict[str, JSON] = {"limit": side.name, "under_way": limiter.inside, "waiting": limiter.waiting}
    return without_attempts(
        Result.failed(
            Outcome.OVERLOADED,
            f"the queue of `{side.name}` is full: {limiter.inside} running, {limiter.waiting} waiting",
            code="queue_full",
            details=details,
            retryable=True,
        )
    )


_NOW = 1e-9
"""Seconds that are no wait: clocks count nanoseconds, and sums of floats miss them by less."""


class Limiter:
    """What bounds the calls of a tool, or of an origin, in whatever threads and event loops they are.

    Args:
        lock: Guards it, and limiters that are passed together with it. `front` and `opening` take it by themselves; who
            calls or reads anything else holds it.

    Attributes:
        inside: Calls that passed and are not back.
        waiting: Calls that mean to pass and have to wait, in the line of this limiter or of one before it.
    """

    __slots__ = ("_freed", "_line", "_lock", "_passed", "inside", "waiting")

    def __init__(self, lock: RLock) -> None:
        self.inside = 0
        self.waiting = 0
        self._lock = lock
        self._line: OrderedDict[asyncio.Future[None], None] = OrderedDict()
        self._passed: deque[float] = deque()
        self._freed: asyncio.Future[None] | None = None

    @property
    def line(self) -> int:
        """How many calls stand in its own line."""
        return len(self._line)

    def is_open(self, bounds: Bounds, now: float) -> bool:
        """Whether a call that comes now passes at once."""
        return not self._line and self._has_place(bounds) and not self.delay(bounds.rate, now)

    def enter(self, bounds: Bounds, now: float) -> None:
        """Pass. Every call that did leaves once."""
        self.inside += 1
        if bounds.rate is not None:
            self._passed.append(now)
            self._trim(bounds.rate)

    def leave(self) -> None:
        """Come back."""
        self.inside -= 1
        if self._freed is not None and not _wake(self._freed):
            self._call_first()

    def delay(self, rate: Rate | None, now: float, ahead: int = 0) -> float:
        """Seconds until the rate lets a call pass that has so many others before it; 0.0 for at once.

        In no stretch of `rate.seconds` do more than `rate.calls` calls pass.
        """
        if rate is None:
            return 0.0
        self._trim(rate)
        passed = self._passed
        missing = len(passed) + ahead - rate.calls
        if missing < 0:
            return 0.0
        rounds, place = divmod(missing, rate.calls)
        before = passed[place] if place < len(passed) else now
        wait = max(before + rate.seconds - now, 0.0) + rate.seconds * rounds
        return wait if wait > _NOW else 0.0

    @asynccontextmanager
    async def front(self, clock: Clock) -> AsyncIterator[None]:
        """Stand in line; in the block nobody is before this call. Whoever leaves the block leaves no gap."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._lock:
            self._line[turn] = None
            self._call_first()
        try:
            if not turn.done():
                with clock.waiting():
                    await turn
            yield
        finally:
            with self._lock:
                self._line.pop(turn, None)
                self._call_first()

    async def opening(self, bounds: Bounds, clock: Clock, latest: float | None) -> float:
        """Wait at the front of the line until the call may pass.

        Returns:
            0.0; or, at once, the seconds that the rate would take where that is not before `latest`.
        """
        while True:
            with self._lock:
                freed = self._awaited(bounds)
                now = clock.monotonic()
                delay = self.delay(bounds.rate, now)
            if freed is not None:
                await self._place(freed, clock)
            elif not delay or (latest is not None and now + delay >= latest):
                return delay
            else:
                await clock.sleep(delay)

    def _has_place(self, bounds: Bounds) -> bool:
        return bounds.concurrency is None or self.inside < bounds.concurrency

    def _awaited(self, bounds: Bounds) -> asyncio.Future[None] | None:
        """What is done as soon as somebody leaves; None where there is a place."""
        if self._has_place(bounds):
            return None
        self._freed = asyncio.get_running_loop().create_future()
        return self._freed

    async def _place(self, freed: asyncio.Future[None], clock: Clock) -> None:
        try:
            with clock.waiting():
                await freed
        finally:
            with self._lock:
                self._freed = None

    def _call_first(self) -> None:
        """Wake the first in line. Whose event loop was closed over it stands in nobody's way."""
        while self._line:
            first = next(iter(self._line))
            if _wake(first):
                return
            del self._line[first]

    def _trim(self, rate: Rate) -> None:
        while len(self._passed) > rate.calls:
            self._passed.popleft()


def _wake(waiter: asyncio.Future[None]) -> bool:
    """Let a waiter go on, in its own event loop; False where that is closed."""
    loop = waiter.get_loop()
    if loop is _running_loop():
        _finish(waiter)
        return True
    try:
        loop.call_soon_threadsafe(_finish, waiter)
    except RuntimeError:
        return False
    return True


def _running_loop() -> asyncio.AbstractEventLoop | None:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _finish(waiter: asyncio.Future[None]) -> None:
    if not waiter.done():
        waiter.set_result(None)
