"""Layer `limits`: rate and concurrency limits of a tool and its origin, with a queue."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from functools import partial
from threading import RLock
from weakref import WeakSet

from toolcrib.core.call_progress import record_progress
from toolcrib.core.clock import format_duration
from toolcrib.core.model import JSON, Bounds, Call, Outcome, Rate, Result
from toolcrib.core.protocols import CallNext, Clock
from toolcrib.core.running_calls import QUEUE, in_stage
from toolcrib.engine.middleware.call_failures import without_attempts
from toolcrib.engine.middleware.layer import LayerContext


def layer(context: LayerContext, call_next: CallNext) -> CallNext:
    """Build the layer of a tool."""
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
        # Both limiters are entered under one lock: otherwise a call could occupy a slot of its tool while it
        # has none of the origin.
        with lock:
            now = clock.monotonic()
            passes = own.limiter.is_open(own.bounds, now) and shared.limiter.is_open(shared.bounds, now)
            if passes:
                own.limiter.enter(own.bounds, now)
                shared.limiter.enter(shared.bounds, now)
        if not passes:
            with in_stage(call, QUEUE):
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
        name: Name of the tool or the origin.
        limiter: The limiter.
        bounds: The limits to apply.
    """

    __slots__ = ("bounds", "limiter", "name")

    def __init__(self, name: str, limiter: Limiter, bounds: Bounds) -> None:
        self.name = name
        self.limiter = limiter
        self.bounds = bounds


class OriginBounds:
    """The limits that one tool declares for its origin; they count until the chain of the tool is dropped."""

    __slots__ = ("__weakref__", "among", "bounds")

    def __init__(self, bounds: Bounds, among: DeclaredBounds) -> None:
        self.bounds = bounds
        self.among = among


class DeclaredBounds:
    """The limits that the tools of an origin declare for it.

    Args:
        lock: Lock that guards this object.
    """

    def __init__(self, lock: RLock) -> None:
        self._lock = lock
        # Weak: a reload replaces chains, and the limits of a replaced tool must no longer apply.
        self._declared: WeakSet[OriginBounds] = WeakSet()
        self._counted = 0
        self._strictest = Bounds()

    def add(self, bounds: Bounds) -> OriginBounds:
        """Add the limits of a tool; keep the returned object as long as they apply."""
        declared = OriginBounds(bounds, self)
        with self._lock:
            self._declared.add(declared)
            self._count()
        return declared

    @property
    def strictest(self) -> Bounds:
        """The strictest value of each limit; None where no tool declares one."""
        # The size differs once the chain of a replaced tool was garbage-collected.
        if len(self._declared) != self._counted:
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
    """Wait until the call may pass both limiters. Returns the result of a call that cannot.

    Only the first call in the queue of its tool joins the queue of the origin. So it never occupies a slot
    that it cannot use yet, and the tools of an origin take turns.
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
    except asyncio.CancelledError:
        # The deadline outside turns this into a timeout, and names the queue in its message.
        record_progress(call.id, attempts=0, queue=awaited.name)
        raise
    finally:
        with lock:
            for side in sides:
                side.limiter.waiting -= 1


def _hopeless(call: Call, own: LimiterUse, shared: LimiterUse) -> Result | None:
    """Fail a call early if its turn would come after its deadline, or if the queue is full."""
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
    assert rate is not None  # noqa: S101 -- only a rate causes a delay
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
"""Seconds below which a delay counts as zero: rounding errors of sums of floats stay below it."""


class Limiter:
    """Limits the calls of a tool or of an origin across threads and event loops.

    Args:
        lock: Guards this limiter and the limiters that are passed together with it. `front` and `opening`
            acquire it themselves; the caller must hold it for everything else.

    Attributes:
        inside: Number of running calls.
        waiting: Number of calls that wait, in the queue of this limiter or of the one before it.
    """

    __slots__ = ("_freed", "_line", "_lock", "_passed", "inside", "waiting")

    def __init__(self, lock: RLock) -> None:
        self.inside = 0
        self.waiting = 0
        self._lock = lock
        # An OrderedDict, because a cancelled call leaves the middle of the queue in constant time.
        self._line: OrderedDict[asyncio.Future[None], None] = OrderedDict()
        self._passed: deque[float] = deque()
        self._freed: asyncio.Future[None] | None = None

    @property
    def line(self) -> int:
        """Number of calls in the limiter's own queue."""
        return len(self._line)

    def is_open(self, bounds: Bounds, now: float) -> bool:
        """Whether a new call passes without waiting."""
        # A free slot is not enough: a new call must not overtake those in the queue.
        return not self._line and self._has_place(bounds) and not self.delay(bounds.rate, now)

    def enter(self, bounds: Bounds, now: float) -> None:
        """Count a call as running. Each call must `leave` exactly once."""
        self.inside += 1
        if bounds.rate is not None:
            self._passed.append(now)
            self._trim(bounds.rate)

    def leave(self) -> None:
        """Count a call as finished and wake the next one."""
        self.inside -= 1
        if self._freed is not None and not _wake(self._freed):
            self._call_first()

    def delay(self, rate: Rate | None, now: float, ahead: int = 0) -> float:
        """Seconds until the rate allows a call with `ahead` calls before it; 0.0 if it may pass immediately.

        A sliding window: no interval of `rate.seconds` has more than `rate.calls` calls.
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
        """Wait in the queue; inside the block, this call is the first. The next one moves up at the end."""
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        with self._lock:
            self._line[turn] = None
            self._call_first()
        try:
            if not turn.done():
                # A virtual clock may advance while this call waits for another one.
                with clock.waiting():
                    await turn
            yield
        finally:
            with self._lock:
                self._line.pop(turn, None)
                self._call_first()

    async def opening(self, bounds: Bounds, clock: Clock, latest: float | None) -> float:
        """Wait at the front of the queue until the call may pass.

        Returns:
            0.0. If the rate would delay the call to `latest` or later, the delay in seconds, without waiting.
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
        """A future that `leave` completes; None if a slot is free."""
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
        """Wake the first call in the queue; drop calls whose event loop was closed."""
        while self._line:
            first = next(iter(self._line))
            if _wake(first):
                return
            del self._line[first]

    def _trim(self, rate: Rate) -> None:
        while len(self._passed) > rate.calls:
            self._passed.popleft()


def _wake(waiter: asyncio.Future[None]) -> bool:
    """Complete a future in its own event loop; False if that loop is closed."""
    loop = waiter.get_loop()
    # Futures are not thread-safe: one of another loop may only be completed from within that loop.
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
    # It may have been cancelled since it was scheduled; `set_result` would then raise InvalidStateError.
    if not waiter.done():
        waiter.set_result(None)
