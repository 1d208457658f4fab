"""When a server may be started again: sooner at first, then later, and not at all where it keeps dying."""

from __future__ import annotations

from collections import deque
from typing import Final
from weakref import WeakKeyDictionary

from toolcrib.core.clock import RealClock
from toolcrib.core.protocols import Clock

MOST: Final = 5
"""Starts within `WINDOW`."""

WINDOW: Final = 60.0
"""Seconds."""

FIRST: Final = 0.2
"""Seconds between the end of a server and its second start; doubles with each one that follows."""

LONGEST: Final = 10.0
"""Seconds, at most, between two starts."""

_NEARLY: Final = 0.001
"""Seconds that need not be waited for: sums of times are not exact, and clocks have a smallest step."""


class Starts:
    """The starts of one server within the last minute, on one clock."""

    __slots__ = ("_began", "_ended")

    def __init__(self) -> None:
        self._began: deque[float] = deque()
        self._ended = 0.0

    def began(self, now: float) -> None:
        """It is started."""
        self._began.append(now)

    def ended(self, now: float) -> None:
        """It could not be started, or died."""
        self._ended = now

    def forgiven(self) -> None:
        """Its end was wanted, or says nothing of it."""
        if self._began:
            self._began.pop()

    def resting(self, now: float) -> float:
        """Seconds until it is tried again at all; 0.0 where it may be."""
        self._forget(now)
        return self._began[0] + WINDOW - now if len(self._began) >= MOST else 0.0

    def wait(self, now: float) -> float:
        """Seconds to wait before it is started; 0.0 for none."""
        self._forget(now)
        if not self._began:
            return 0.0
        pause: float = min(LONGEST, FIRST * 2 ** (len(self._began) - 1))
        left = self._ended + pause - now
        return left if left > _NEARLY else 0.0

    def _forget(self, now: float) -> None:
        while self._began and self._began[0] <= now - WINDOW:
            self._began.popleft()


class StartsByClock:
    """The starts of one server, for each clock: what waits on virtual time does not wait for others."""

    def __init__(self) -> None:
        self._real = Starts()
        self._others: WeakKeyDictionary[Clock, Starts] = WeakKeyDictionary()

    def on(self, clock: Clock) -> Starts:
        """Those that count for a clock."""
        if isinstance(clock, RealClock):  # each session has one of its own, and all tell the same time
            return self._real
        return self._others.setdefault(clock, Starts())
