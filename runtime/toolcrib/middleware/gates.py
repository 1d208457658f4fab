"""A gate: calls pass it first come, first served, each when there is a place inside and the rate allows it."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from toolcrib.model import Bounds, Rate
from toolcrib.protocols import Clock

_NOW = 1e-9
"""Seconds that are no wait: clocks count nanoseconds, and sums of floats miss them by less."""


class Gate:
    """What bounds the calls of a tool, or of an origin.

    Attributes:
        inside: Calls that passed and are not back.
        waiting: Calls that mean to pass and have to wait, in the line of this gate or of one before it.
    """

    __slots__ = ("_freed", "_line", "_passed", "inside", "waiting")

    def __init__(self) -> None:
        self.inside = 0
        self.waiting = 0
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
        _wake(self._freed)

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
        self._line[turn] = None
        try:
            if next(iter(self._line)) is not turn:
                with clock.waiting():
                    await turn
            yield
        finally:
            del self._line[turn]
            _wake(next(iter(self._line), None))

    async def opening(self, bounds: Bounds, clock: Clock, latest: float | None) -> float:
        """Wait at the front of the line until the call may pass.

        Returns:
            0.0; or, at once, the seconds that the rate would take where that is not before `latest`.
        """
        while True:
            if not self._has_place(bounds):
                await self._place(clock)
                continue
            now = clock.monotonic()
            delay = self.delay(bounds.rate, now)
            if not delay or (latest is not None and now + delay >= latest):
                return delay
            await clock.sleep(delay)

    def _has_place(self, bounds: Bounds) -> bool:
        return bounds.concurrency is None or self.inside < bounds.concurrency

    async def _place(self, clock: Clock) -> None:
        self._freed = asyncio.get_running_loop().create_future()
        try:
            with clock.waiting():
                await self._freed
        finally:
            self._freed = None

    def _trim(self, rate: Rate) -> None:
        while len(self._passed) > rate.calls:
            self._passed.popleft()


def _wake(waiter: asyncio.Future[None] | None) -> None:
    if waiter is not None and not waiter.done():
        waiter.set_result(None)
