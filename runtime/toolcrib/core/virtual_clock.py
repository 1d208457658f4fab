"""A clock for virtual time, which jumps instead of waiting.

Virtual time stops while a call works. It jumps to the next timer when every active call is parked, which means that
it sleeps or waits for another call. During external I/O (`outside`), virtual time runs like real time.
"""

from __future__ import annotations

import asyncio
import math
import time
from bisect import bisect_left, insort
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, contextmanager
from contextvars import ContextVar, Token
from datetime import UTC, datetime, timedelta
from types import TracebackType

from toolcrib.core.clock import START

_NANO = 1_000_000_000

_SETTLING_TURNS = 8
"""Turns of the event loop to wait before time jumps.

A wake-up passes through several tasks before the next call starts, and a gather or a task group takes two turns.
Without the delay, time could jump past the start of that call.
"""


class _Activity:
    """An active call. It stops time unless it is parked or only waits for its own nested calls."""

    __slots__ = ("alarmed", "calls", "parent", "parked", "schedule")

    def __init__(self, schedule: _Schedule, parent: _Activity | None, *, parked: int = 0) -> None:
        self.schedule = schedule
        self.parent = parent
        self.calls = 0
        self.parked = parked
        self.alarmed = False

    @property
    def busy(self) -> bool:
        return self.alarmed or not (self.calls or self.parked)


_current: ContextVar[_Activity | None] = ContextVar("toolcrib_activity", default=None)

_WAKE, _EXPIRE = 0, 1
_Timer = tuple[int, int, int, Callable[[], None]]
"""Due time (nanoseconds), kind, registration number, action.

At the same time, sleepers wake before timeouts expire, so a block that takes exactly its timeout succeeds.
"""


class _Schedule:
    """Timers, active calls, and the rule for when time jumps."""

    # Time is an integer of nanoseconds, so that sums of sleeps such as three thirds have no rounding errors.
    def __init__(self) -> None:
        self.timers: list[_Timer] = []
        self.nobody = _Activity(self, None, parked=1)
        self.elapsed = 0
        self._anchor = 0
        self._registered = 0
        self._busy = 0
        self.outside = 0
        self._held = False
        self._settling: asyncio.AbstractEventLoop | None = None
        self._tick: asyncio.TimerHandle | None = None

    def time(self) -> int:
        """Return nanoseconds since the clock was created."""
        return self.elapsed + (time.monotonic_ns() - self._anchor if self.outside else 0)

    def activity(self) -> _Activity:
        """Return the call that the running code belongs to."""
        # The innermost call can belong to another clock, so the parents are searched.
        activity = _current.get()
        while activity is not None and activity.schedule is not self:
            activity = activity.parent
        return activity or self.nobody

    def change(
        self, activity: _Activity, *, parked: int = 0, calls: int = 0, alarmed: bool | None = None
    ) -> None:
        before = activity.busy
        activity.parked += parked
        activity.calls += calls
        if alarmed is not None:
            activity.alarmed = alarmed
        self._busy += activity.busy - before

    def begin(self, activity: _Activity, parent: _Activity) -> None:
        self.change(parent, calls=1)
        self._busy += activity.busy

    def end(self, activity: _Activity, parent: _Activity) -> None:
        self._busy -= activity.busy
        self.change(parent, calls=-1)
        self.consider()

    def calm(self, activity: _Activity | None) -> None:
        """Clear the alarm of a call that sleeps again, for example while it cleans up after a timeout."""
        while activity is not None:
            if activity.alarmed:
                activity.schedule.change(activity, alarmed=False)
            activity = activity.parent

    def register(self, seconds: float, kind: int, action: Callable[[], None]) -> _Timer | None:
        """Register a timer; None for an infinite time, which is never due."""
        if seconds == math.inf:
            return None
        self._registered += 1
        timer = (self.time() + round(max(seconds, 0) * _NANO), kind, self._registered, action)
        insort(self.timers, timer)
        if self.timers[0] is timer:
            self._arm()
        return timer

    def forget(self, timer: _Timer | None) -> None:
        """Remove a timer that has not fired."""
        if timer is None:
            return
        place = bisect_left(self.timers, timer)
        if place < len(self.timers) and self.timers[place] is timer:
            del self.timers[place]

    def hold(self) -> None:
        """Stop automatic jumps until `release`; only `fire_next` and `move_to` change the time."""
        self._held = True

    def release(self) -> None:
        self._held = False
        self._arm()
        self.consider()

    def move_to(self, moment: int) -> None:
        """Set the time, which never decreases."""
        self.elapsed += max(0, moment - self.time())

    def fire_next(self) -> None:
        """Move to the earliest due time and fire its timers of one kind, sleepers before timeouts."""
        due, kind = self.timers[0][:2]
        self.move_to(due)
        while self.timers and self.timers[0][:2] == (due, kind):
            self.timers.pop(0)[3]()

    def go_outside(self) -> None:
        if not self.outside:
            self._anchor = time.monotonic_ns()
        self.outside += 1
        self._arm()

    def come_inside(self) -> None:
        self.elapsed, self._anchor = self.time(), time.monotonic_ns()
        self.outside -= 1
        self._arm()
        self.consider()

    def consider(self) -> None:
        """Schedule a jump if no call stops time."""
        if self._stands():
            return
        loop = asyncio.get_running_loop()
        # A loop that was stopped with a pending jump never runs it, so another loop schedules its own.
        if self._settling is not loop:
            self._settling = loop
            loop.call_soon(self._jump, loop, _SETTLING_TURNS)

    def _stands(self) -> bool:
        return bool(self._busy or self.outside or self._held or not self.timers)

    def _jump(self, loop: asyncio.AbstractEventLoop, turns: int) -> None:
        if self._stands():
            self._settling = None
        elif turns and not _is_idle(loop):
            loop.call_soon(self._jump, loop, turns - 1)
        else:
            self._settling = None
            self.fire_next()
            self.consider()

    def _arm(self) -> None:
        """Fire the next timer in real time if a call waits for external I/O."""
        if self._tick is not None:
            self._tick.cancel()
            self._tick = None
        if self.outside and self.timers and not self._held:
            gap = max(0, self.timers[0][0] - self.time()) / _NANO
            self._tick = asyncio.get_running_loop().call_later(gap, self._on_tick)

    def _on_tick(self) -> None:
        while self.timers and self.timers[0][0] <= self.time():
            self.fire_next()
        self._arm()


def _is_idle(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether an event loop has nothing else to run; False if the loop does not expose it."""
    # Private attributes of asyncio's own loops, and only a shortcut: other loops wait for all settling turns.
    ready, scheduled = getattr(loop, "_ready", None), getattr(loop, "_scheduled", None)
    return ready is not None and scheduled is not None and not ready and not scheduled


class VirtualClock:
    """A clock that jumps instead of waiting. `monotonic()` starts at 0.0 and `now()` at `start`.

    The order is deterministic: timers fire by due time, then by registration. A clock serves one event loop at a
    time. A call that waits for anything other than this clock must use `waiting()` or `outside()`; otherwise it
    stops time forever.
    """

    def __init__(self, start: datetime = START) -> None:
        if start.tzinfo is None:
            raise ValueError(f"the start `{start}` has no time zone; add one, such as `tzinfo=UTC`")
        self._start = start.astimezone(UTC)
        self._schedule = _Schedule()

    def now(self) -> datetime:
        """Return the current virtual time, in UTC."""
        return self._start + timedelta(microseconds=self._schedule.time() // 1000)

    def monotonic(self) -> float:
        """Return virtual seconds since the clock was created."""
        schedule = self._schedule
        # Every call reads the time twice, so the common case avoids a method call.
        return (schedule.time() if schedule.outside else schedule.elapsed) / _NANO

    async def sleep(self, seconds: float) -> None:
        """Wait for virtual time to pass; `math.inf` waits until the task is cancelled."""
        if seconds <= 0:
            await asyncio.sleep(0)  # noqa: TID251 -- the clock itself must yield to the event loop
            return
        schedule = self._schedule
        activity = schedule.activity()
        schedule.calm(activity)
        future = asyncio.get_running_loop().create_future()
        parked = _Parked(activity)

        def wake() -> None:
            if not future.done():
                parked.leave()
                future.set_result(None)

        timer = schedule.register(seconds, _WAKE, wake)
        try:
            parked.enter()
            await future
        finally:
            schedule.forget(timer)
            parked.leave()

    def timeout(self, seconds: float) -> AbstractAsyncContextManager[asyncio.Timeout]:
        """Return a context manager that raises TimeoutError if its block takes longer in virtual time."""
        return _VirtualTimeout(self._schedule, seconds)

    def working(self) -> AbstractContextManager[object]:
        """Return a context manager for an active call: time stops until it sleeps. Calls can be nested."""
        return _Working(self._schedule)

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Mark the call as waiting for another one, for example in a queue: time can advance."""
        parked = _Parked(self._schedule.activity())
        parked.enter()
        try:
            yield
        finally:
            parked.leave()

    @contextmanager
    def outside(self) -> Iterator[None]:
        """Mark external I/O: until it ends, virtual time runs like real time."""
        self._schedule.go_outside()
        try:
            yield
        finally:
            self._schedule.come_inside()

    async def advance(self, seconds: float) -> None:
        """Advance time and fire all timers that become due, in order.

        Raises:
            ValueError: `seconds` is negative or not finite.
        """
        if not 0 <= seconds < math.inf:
            raise ValueError(f"cannot advance time by {seconds} seconds; use a finite number of at least 0")
        schedule = self._schedule
        target = schedule.time() + round(seconds * _NANO)
        schedule.hold()
        try:
            await _settle()
            while schedule.timers and schedule.timers[0][0] <= target:
                schedule.fire_next()
                await _settle()
            schedule.move_to(target)
        finally:
            schedule.release()


async def _settle() -> None:
    for _ in range(_SETTLING_TURNS):
        await asyncio.sleep(0)  # noqa: TID251 -- the clock itself must yield to the event loop


class _Parked:
    """Marks a call as parked until `leave`, which can be called more than once."""

    __slots__ = ("_activity", "_inside")

    def __init__(self, activity: _Activity) -> None:
        self._activity = activity
        self._inside = False

    def enter(self) -> None:
        self._inside = True
        schedule = self._activity.schedule
        schedule.change(self._activity, parked=1)
        schedule.consider()

    def leave(self) -> None:
        if self._inside:
            self._inside = False
            self._activity.schedule.change(self._activity, parked=-1)


class _Working:
    """Context manager of an active call, which is the current call for all code that runs in it."""

    __slots__ = ("_activity", "_parent", "_schedule", "_token")

    def __init__(self, schedule: _Schedule) -> None:
        self._schedule = schedule
        self._parent: _Activity
        self._activity: _Activity
        self._token: Token[_Activity | None]

    def __enter__(self) -> None:
        self._parent = self._schedule.activity()
        # The current call may belong to another clock. It stays in the chain, so that its nested calls find it.
        self._activity = _Activity(self._schedule, _current.get())
        self._schedule.begin(self._activity, self._parent)
        self._token = _current.set(self._activity)

    def __exit__(self, *_error: object) -> None:
        _current.reset(self._token)
        self._schedule.end(self._activity, self._parent)


class _VirtualTimeout:
    """`asyncio.timeout` in virtual time. asyncio does the cancellation; only the time of expiry differs."""

    def __init__(self, schedule: _Schedule, seconds: float) -> None:
        self._schedule = schedule
        self._seconds = seconds
        self._timeout = asyncio.timeout(None)
        self._timer: _Timer | None = None
        self._activity: _Activity

    async def __aenter__(self) -> asyncio.Timeout:
        self._activity = self._schedule.activity()
        await self._timeout.__aenter__()
        self._timer = self._schedule.register(self._seconds, _EXPIRE, self._expire)
        return self._timeout

    def _expire(self) -> None:
        # The cancellation takes several turns of the loop to arrive. Until then the call counts as working, so
        # that no other timer fires first.
        self._schedule.change(self._activity, alarmed=True)
        self._timeout.reschedule(asyncio.get_running_loop().time())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._schedule.forget(self._timer)
        if self._activity.alarmed:
            self._schedule.change(self._activity, alarmed=False)
            self._schedule.consider()
        await self._timeout.__aexit__(kind, error, trace)
