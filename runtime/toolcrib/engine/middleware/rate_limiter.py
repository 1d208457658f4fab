"""A gate: calls pass it first come, first served, each when there is a place inside and the rate allows it."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from threading import RLock

from toolcrib.core.model import Bounds, Rate
from toolcrib.core.protocols import Clock

_NOW = 1e-9
"""Seconds that are no wait: clocks count nanoseconds, and sums of floats miss them by less."""


class Gate:
    """What bounds the calls of a tool, or of an origin, in whatever threads and event loops they are.

    Args:
        lock: Guards it, and gates that are passed together with it. `front` and `opening` take it by themselves; who
            calls or reads anything else holds it.

    Attributes:
        inside: Calls that passed and are not back.
        waiting: Calls that mean to pass and have to wait, in the line of this gate or of one before it.
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
        """Pass the gate. Every call that did leaves once."""
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
