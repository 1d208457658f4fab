"""The calls that clients wait for, so that a server that stops lets them finish."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Final

from toolcrib.core.model import Outcome, Result


class CallsInFlight:
    """The calls in flight.

    Attributes:
        ending: Whether new calls are refused.
    """

    def __init__(self) -> None:
        self.ending = False
        self._tasks: set[asyncio.Task[Result]] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    async def run(self, call: Coroutine[Any, Any, Result]) -> Result:
        """Run a call in a task of its own; once the server is ending, refuse it."""
        if self.ending:
            call.close()
            return ENDING
        # Whoever serves may cancel the waiting coroutine again and again until it ends. The call runs in a task of its
        # own, so it is cancelled once and can clean up.
        task = asyncio.ensure_future(call)
        self._begun(task)
        try:
            await asyncio.wait([task])
        finally:
            task.cancel()  # no effect on a finished task
        return _CUT_OFF if task.cancelled() else task.result()

    def _begun(self, task: asyncio.Task[Result]) -> None:
        self._tasks.add(task)
        self._idle.clear()
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[Result]) -> None:
        self._tasks.discard(task)
        if not self._tasks:
            self._idle.set()

    async def drained(self, seconds: float, hurry: asyncio.Event) -> int:
        """Refuse new calls, let those in flight finish, and cancel the rest.

        Args:
            seconds: Time to finish.
            hurry: Ends that time early.

        Returns:
            Number of cancelled calls.
        """
        self.ending = True
        waits = [asyncio.ensure_future(self._idle.wait()), asyncio.ensure_future(hurry.wait())]
        await asyncio.wait(waits, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for wait in waits:
            wait.cancel()
        left = [*self._tasks]
        for task in left:
            task.cancel()
        if left:
            # A tool that ignores its cancellation must not block the shutdown.
            await asyncio.wait(left, timeout=1.0)
        return len(left)


ENDING: Final = Result.failure(
    Outcome.UNAVAILABLE, "the server is shutting down", code="server_ending", retryable=True
)

_CUT_OFF: Final = Result.failure(
    Outcome.CANCELLED, "the server shut down before the call finished", code="server_ended"
)
