"""The machine's time, the times and durations that documents write, and a lock across event loops.

Virtual time: `virtual_clock.py`.
"""

from __future__ import annotations

import math
import re
import time
from contextlib import nullcontext
from datetime import UTC, datetime
from threading import Lock

TYPE_CHECKING = False

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable
    from contextlib import AbstractAsyncContextManager, AbstractContextManager
    from typing import TypeVar

    from toolcrib.core.protocols import Clock

    T = TypeVar("T")

DURATION_PATTERN = r"^[0-9]+(\.[0-9]+)?(ms|s|m|h|d)$"
"""What a duration in a document looks like, as a JSON Schema `pattern`."""

START = datetime(2030, 1, 1, tzinfo=UTC)
"""Where virtual time begins unless a document says otherwise."""

_DURATION = r"([0-9]+(?:\.[0-9]+)?)(ms|s|m|h|d)"
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def format_time(moment: datetime) -> str:
    """A time of day as RFC 3339 writes it, `Z` for UTC."""
    return moment.isoformat().replace("+00:00", "Z")


def parse_duration(text: str) -> float:
    """The seconds of a duration such as `250ms`, `5s`, `1.5m`, `1h`, `2d`.

    Raises:
        ValueError: The text is no duration; the message says what one looks like.
    """
    match = re.fullmatch(_DURATION, text, re.ASCII)
    if match is None:
        raise ValueError(
            f"`{text}` is not a valid duration; write a number and a unit: `250ms`, `5s`, `1.5m`, `1h`, `2d`"
        )
    number, unit = float(match[1]), match[2]
    return number / 1000 if unit == "ms" else number * _SECONDS[unit]


def format_duration(seconds: float) -> str:
    """A finite number of seconds as a duration: whole days, hours, minutes, else `12.5s` or `250ms`."""
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


async def run_in_thread(clock: Clock, work: Callable[[], T]) -> T:
    """What `work` returns, which runs in a thread so that the event loop goes on.

    Cancelling the caller takes effect at once; the work then runs to its end, and nobody gets what it returns.
    """
    import asyncio  # noqa: PLC0415 -- a call that waits for nothing needs none of it

    with clock.outside():
        return await asyncio.to_thread(work)


_NOTHING_TO_DO = nullcontext()


class RealClock:
    """The clock of the machine."""

    def now(self) -> datetime:
        """The time of day in UTC."""
        return datetime.now(UTC)

    monotonic = staticmethod(time.monotonic)
    """Seconds since some moment; never goes back."""

    async def sleep(self, seconds: float) -> None:
        """Wait; a negative time is none."""
        import asyncio  # noqa: PLC0415 -- a call that waits for nothing needs none of it

        await asyncio.sleep(max(seconds, 0))  # noqa: TID251 -- this is the one place where time passes

    def timeout(self, seconds: float) -> AbstractAsyncContextManager[asyncio.Timeout]:
        """Raise TimeoutError inside the block when it takes longer; an infinite time never ends."""
        import asyncio  # noqa: PLC0415 -- as above

        return asyncio.timeout(None if math.isinf(seconds) else seconds)

    def working(self) -> AbstractContextManager[object]:
        """Nothing: real time needs no account of who works."""
        return _NOTHING_TO_DO

    def waiting(self) -> AbstractContextManager[object]:
        """Nothing: real time passes anyway."""
        return _NOTHING_TO_DO

    def outside(self) -> AbstractContextManager[object]:
        """Nothing: real time is always the world's."""
        return _NOTHING_TO_DO


class CrossLoopLock:
    """`async with lock`: one at a time, in whichever event loop or thread, without blocking an event loop."""

    def __init__(self) -> None:
        self._taken = Lock()

    async def __aenter__(self) -> None:
        if self._taken.acquire(blocking=False):
            return
        import asyncio  # noqa: PLC0415 -- as above

        waiting = asyncio.get_running_loop().run_in_executor(None, self._taken.acquire)
        try:
            await asyncio.shield(waiting)
        except asyncio.CancelledError:
            waiting.add_done_callback(lambda _taken: self._taken.release())
            raise

    async def __aexit__(self, *_exception: object) -> None:
        self._taken.release()
