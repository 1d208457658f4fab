"""The system clock, times and durations as text, and a lock that works across event loops.

`virtual_clock` contains the clock for virtual time.
"""

from __future__ import annotations

import math
import re
import time
from contextlib import nullcontext
from contextvars import copy_context
from datetime import UTC, datetime
from threading import Lock
from weakref import WeakKeyDictionary

# `typing` is not imported at run time: every start of the command line imports this module.
TYPE_CHECKING = False

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager, AbstractContextManager
    from typing import TypeVar

    from toolcrib.core.protocols import Clock

    T = TypeVar("T")

DURATION_PATTERN = r"^[0-9]+(\.[0-9]+)?(ms|s|m|h|d)$"
"""JSON Schema `pattern` of a duration."""

START = datetime(2030, 1, 1, tzinfo=UTC)
"""Default start of virtual time."""

_DURATION = r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)"
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def format_time(moment: datetime) -> str:
    """Format a time as RFC 3339, with `Z` for UTC."""
    return moment.isoformat().replace("+00:00", "Z")


def parse_duration(text: str) -> float:
    """Parse a duration such as `250ms`, `5s`, `1.5m`, `1h` or `2d`.

    Returns:
        The duration in seconds.

    Raises:
        ValueError: The text is not a valid duration. The message lists examples.
    """
    match = re.fullmatch(_DURATION, text, re.ASCII)
    if match is None:
        raise ValueError(
            f"`{text}` is not a valid duration; write a number and a unit: `250ms`, `5s`, `1.5m`, `1h`, `2d`"
        )
    number, unit = float(match[1]), match[2]
    # Division, because 0.001 has no exact binary form: `9ms` must be the same number as `0.009s`.
    return number / 1000 if unit == "ms" else number * _SECONDS[unit]


def format_duration(seconds: float) -> str:
    """Format a finite number of seconds: in whole days, hours or minutes, otherwise as `12.5s` or `250ms`."""
    if seconds < 0:
        return "-" + format_duration(-seconds)
    if 0 < seconds < 1:
        return f"{_plain(seconds * 1000)}ms"
    for unit in ("d", "h", "m"):
        if seconds and seconds % _SECONDS[unit] == 0:
            return f"{int(seconds // _SECONDS[unit])}{unit}"
    return f"{_plain(seconds)}s"


def _plain(number: float) -> str:
    return f"{number:.3f}".rstrip("0").rstrip(".")


COMPUTING_THREADS = 1
"""Threads of an event loop that compute at once. Only one runs at a time anyway (GIL), and each of them may be the one that the
event loop waits for, 5 ms by default, whenever it has something to do."""

_computing: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


async def run_in_thread(clock: Clock, work: Callable[[], T]) -> T:
    """Run a function that computes for long in a thread, and return its result. At most `COMPUTING_THREADS` run at once.

    Cancelling the caller takes effect immediately. The function still runs to its end, because a thread cannot be
    stopped, and its result is discarded.
    """
    # Importing asyncio takes tens of milliseconds, and a call that never waits does not need it.
    import asyncio  # noqa: PLC0415 -- see above

    with clock.outside():
        loop = asyncio.get_running_loop()
        places = _computing.setdefault(loop, asyncio.Semaphore(COMPUTING_THREADS))
        await places.acquire()
        # Not `to_thread`: a cancelled caller would free the place of a thread that still runs.
        running = loop.run_in_executor(None, copy_context().run, work)

        def ended(done: asyncio.Future[T]) -> None:
            places.release()
            # Otherwise asyncio reports an error that nobody awaits any more.
            if not done.cancelled():
                done.exception()

        running.add_done_callback(ended)
        return await asyncio.shield(running)


_NOTHING_TO_DO = nullcontext()


class RealClock:
    """The system clock."""

    def now(self) -> datetime:
        """Return the current time in UTC."""
        return datetime.now(UTC)

    timestamp = staticmethod(time.time)
    """Return the current time in seconds since 1970; quicker than `now`."""

    monotonic = staticmethod(time.monotonic)
    """Return seconds since an arbitrary moment. The value never decreases."""

    async def sleep(self, seconds: float) -> None:
        """Wait. Negative values count as 0."""
        import asyncio  # noqa: PLC0415 -- a call that never waits does not need it

        await asyncio.sleep(max(seconds, 0))  # noqa: TID251 -- the clock itself must wait

    def timeout(self, seconds: float) -> AbstractAsyncContextManager[asyncio.Timeout]:
        """Return a context manager that raises TimeoutError if its block takes longer; infinity never expires."""
        import asyncio  # noqa: PLC0415 -- a call that never waits does not need it

        # None means no timeout, so that no timer for infinity is scheduled in the event loop.
        return asyncio.timeout(None if math.isinf(seconds) else seconds)

    def working(self) -> AbstractContextManager[object]:
        """Do nothing: real time does not stop for calls."""
        return _NOTHING_TO_DO

    def waiting(self) -> AbstractContextManager[object]:
        """Do nothing: real time does not depend on calls."""
        return _NOTHING_TO_DO

    def outside(self) -> AbstractContextManager[object]:
        """Do nothing: real time also passes during external I/O."""
        return _NOTHING_TO_DO


class CrossLoopLock:
    """A lock for `async with` that excludes other event loops and threads, without blocking an event loop."""

    # `asyncio.Lock` is bound to one event loop, but a runtime can be called from several threads with their own.

    def __init__(self) -> None:
        self._taken = Lock()

    async def __aenter__(self) -> None:
        if self._taken.acquire(blocking=False):
            return
        import asyncio  # noqa: PLC0415 -- a lock that is free does not need it

        waiting = asyncio.get_running_loop().run_in_executor(None, self._taken.acquire)
        # The thread goes on to acquire the lock even if the caller is cancelled, so it must then release it.
        try:
            await asyncio.shield(waiting)
        except asyncio.CancelledError:
            waiting.add_done_callback(lambda _taken: self._taken.release())
            raise

    async def __aexit__(self, *_exception: object) -> None:
        self._taken.release()
