"""Layer `limits`: rate and concurrency limits of a tool, its origin and the rules of a project, with queues."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from threading import RLock
from typing import TYPE_CHECKING
from weakref import WeakSet

from toolcrib.core.call_progress import record_progress
from toolcrib.core.clock import format_duration
from toolcrib.core.limit_reports import place_of_limit
from toolcrib.core.model import JSON, Bounds, Call, Descriptor, Outcome, Rate, Result
from toolcrib.core.protocols import CallNext, Clock
from toolcrib.core.running_calls import QUEUE, in_stage
from toolcrib.engine.middleware.call_failures import without_attempts
from toolcrib.engine.middleware.layer import LayerContext, has_own_limits

if TYPE_CHECKING:
    from toolcrib.loading.limit_rules import LimitRule


def layer(context: LayerContext, call_next: CallNext) -> CallNext:
    """Build the layer of a tool."""
    lock, passed = context.shared.lock, limiters_of(context)

    async def limits(call: Call) -> Result:
        uses = passed(call)
        # All limiters are entered under one lock: otherwise a call could occupy a slot of its tool while it
        # has none of the origin.
        with lock:
            now = call.context.session.clock.monotonic()
            passes = True
            for use in uses:  # not `all`, whose generator is measurable in a call
                if not use.limiter.is_open(use.bounds, now):
                    passes = False
                    break
            else:
                for use in uses:
                    use.limiter.enter(use.bounds, now)
        if not passes:
            with in_stage(call, QUEUE):
                refused = await _admitted(call, uses, lock)
            if refused is not None:
                return refused
        try:
            return await call_next(call)
        finally:
            with lock:
                # The last one first: whoever waits there is the first in the queues before it.
                for use in reversed(uses):
                    use.limiter.leave()

    return limits


class LimiterUse:
    """One of the limiters that a call passes.

    Attributes:
        name: Name of the tool, the rule or the origin.
        limiter: The limiter.
        bounds: The limits to apply.
        owner: What declares them: the tool of the call, or a rule.
        per: What shares a limiter of a rule; else empty.
    """

    __slots__ = ("bounds", "limiter", "name", "owner", "per")

    def __init__(
        self, name: str, limiter: Limiter, bounds: Bounds, owner: Descriptor | LimitRule, per: str = ""
    ) -> None:
        self.name = name
        self.limiter = limiter
        self.bounds = bounds
        self.owner = owner
        self.per = per

    def place(self, limit: str) -> str:
        """Where a limit is declared; empty for a built-in default, or if another tool of the origin declares it."""
        if not isinstance(self.owner, Descriptor):
            return self.owner.place
        prefix = "" if self.name == self.owner.name else "origin."
        return place_of_limit(self.owner, prefix + limit)

    def state(self, now: float) -> Iterator[dict[str, JSON]]:
        """Its limits, with the number of calls that use them."""
        rate, bounds = self.bounds.rate, self.bounds
        if rate is not None:
            used = self.limiter.passed_within(rate, now)
            yield _details(self, "rate", _rate_text(rate), used)
        if bounds.concurrency is not None:
            yield _details(self, "concurrency", bounds.concurrency, self.limiter.inside)
        if bounds.queue is not None:
            yield _details(self, "queue", bounds.queue, self.limiter.waiting)

    @property
    def phrase(self) -> str:
        """The owner of the limits in a sentence: `` `crm` (per session) ``."""
        return f"`{self.name}` (per {self.per})" if self.per else f"`{self.name}`"


_BEFORE_THE_TOOL = ("session", "user", "caller", "tool")


def limiters_of(context: LayerContext) -> Callable[[Call], list[LimiterUse]]:
    """A function that returns the limiters that a call of a tool passes, in their order."""
    tool, shared, rules = context.tool, context.shared, context.shared_rules
    make = partial(Limiter, shared.lock)
    # The first call in the queue of a limiter may wait for the next one, and those behind it with it. So the limiters of
    # few calls come first: a session that has to wait must not keep the others waiting.
    first = sorted(
        (rule for rule in rules if rule.per in _BEFORE_THE_TOOL),
        key=lambda rule: _BEFORE_THE_TOOL.index(rule.per),
    )
    last = [rule for rule in rules if rule.per not in _BEFORE_THE_TOOL]

    def of_rule(rule: LimitRule, call: Call) -> LimiterUse:
        caller = call.context
        key = f"limiter of rule {rule.name}"
        if rule.per == "session":
            limiter = caller.session.slot(key, make)
        else:
            name = {"user": caller.user, "caller": caller.caller, "tool": tool.name}.get(rule.per)
            key = key if name is None else f"{key} of {rule.per} {name}"
            limiter = shared.slot(key, make, caller.session.clock)
        assert rule.bounds is not None  # noqa: S101 -- only such rules are shared
        return LimiterUse(rule.name, limiter, rule.bounds, rule, rule.per)

    if not has_own_limits(context):
        return lambda call: [of_rule(rule, call) for rule in (*first, *last)]

    bounds = Bounds(tool.limits.rate, tool.limits.concurrency, tool.limits.queue)
    origin = context.reaching.origin
    declared = shared.slot(f"bounds of {origin}", partial(DeclaredBounds, shared.lock)).add(
        tool.limits.origin
    )
    own_key, origin_key = f"limiter of tool {tool.name}", f"limiter of origin {origin}"

    def passed(call: Call) -> list[LimiterUse]:
        clock = call.context.session.clock
        own = LimiterUse(tool.name, shared.slot(own_key, make, clock), bounds, tool)
        others = LimiterUse(origin, shared.slot(origin_key, make, clock), declared.among.strictest, tool)
        if not rules:  # almost every tool
            return [own, others]
        return [
            *(of_rule(rule, call) for rule in first),
            own,
            *(of_rule(rule, call) for rule in last),
            others,
        ]

    return passed


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


async def _admitted(call: Call, uses: Sequence[LimiterUse], lock: RLock) -> Result | None:
    """Wait until the call may pass all limiters. Returns the result of a call that cannot.

    Only the first call in the queue of a limiter joins the queue of the next one. So it never occupies a slot
    that it cannot use yet, and the tools of an origin take turns.
    """
    clock = call.context.session.clock
    awaited = uses[0]
    with lock:
        refused = refused_now(call, uses, clock.monotonic())
        if refused is not None:
            return refused
        for use in uses:
            use.limiter.waiting += 1
    try:
        async with AsyncExitStack() as fronts:
            for awaited in uses:
                await fronts.enter_async_context(awaited.limiter.front(clock))
                delay = await awaited.limiter.opening(awaited.bounds, clock, call.deadline)
                if delay:
                    return _too_soon(awaited, delay, clock.monotonic())
            with lock:
                for use in uses:
                    use.limiter.enter(use.bounds, clock.monotonic())
            return None
    except asyncio.CancelledError:
        # The deadline outside turns this into a timeout, and names the queue in its message.
        record_progress(call.id, attempts=0, queue=awaited.name)
        raise
    finally:
        with lock:
            for use in uses:
                use.limiter.waiting -= 1


def refused_now(call: Call, uses: Sequence[LimiterUse], now: float) -> Result | None:
    """The result of a call whose turn would come after its deadline, or that finds a full queue; None for others."""
    for number, use in enumerate(uses):
        # Calls that wait in the first queue pass before this one; those of a later queue may be of other tools.
        ahead = use.limiter.line if number else use.limiter.waiting
        delay = use.limiter.delay(use.bounds.rate, now, ahead)
        if delay and call.deadline is not None and now + delay >= call.deadline:
            return _too_soon(use, delay, now)
    for use in uses:
        if use.bounds.queue is not None and use.limiter.waiting >= use.bounds.queue:
            return _full(use)
    return None


def _details(use: LimiterUse, limit: str, value: JSON, measured: int) -> dict[str, JSON]:
    place = use.place(limit)
    return {
        "limit": limit,
        "of": use.name,
        **({"per": use.per} if use.per else {}),
        "value": value,
        "measured": measured,
        **({"at": place} if place else {}),
    }


def _rate_text(rate: Rate) -> str:
    return f"{rate.calls}/{format_duration(rate.seconds)}"


def _too_soon(use: LimiterUse, delay: float, now: float) -> Result:
    rate = use.bounds.rate
    assert rate is not None  # noqa: S101 -- only a rate causes a delay
    told = _rate_text(rate)
    seconds, calls = round(delay, 3), use.limiter.passed_within(rate, now)
    details = {**_details(use, "rate", told, calls), "retry_after": seconds}
    return without_attempts(
        Result.failure(
            Outcome.LIMIT_EXCEEDED,
            f"the rate limit of {use.phrase} is {told}, {calls} used; retry after {format_duration(seconds)}",
            code="rate_limited",
            details=details,
            retryable=True,
        )
    )


def _full(use: LimiterUse) -> Result:
    limiter, queue = use.limiter, use.bounds.queue
    details = {**_details(use, "queue", queue, limiter.waiting), "under_way": limiter.inside}
    return without_attempts(
        Result.failure(
            Outcome.OVERLOADED,
            f"the queue of {use.phrase} is full: {limiter.inside} running, {limiter.waiting} waiting (at most {queue})",
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

    def passed_within(self, rate: Rate, now: float) -> int:
        """Number of calls that have passed in the period of a rate that ends now."""
        return sum(1 for passed in self._passed if passed > now - rate.seconds)

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
