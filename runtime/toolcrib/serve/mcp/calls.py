"""Calls of clients, from their beginning to a result: their progress told, cancelled and drained in order."""

from __future__ import annotations

import asyncio
import math
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from typing import TypeAlias

from toolcrib.core.model import JSON, Outcome, Partial, Progress, Result
from toolcrib.engine.session import Session

Report: TypeAlias = Callable[[float, float | None, str | None], Awaitable[None]]
"""Tells a client how far its call is: progress, total, message."""


class Calls:
    """The calls under way.

    Attributes:
        ending: Whether no further call is taken.
    """

    def __init__(self) -> None:
        self.ending = False
        self._tasks: set[asyncio.Task[Result]] = set()
        self._idle = asyncio.Event()
        self._idle.set()

    async def run(
        self,
        session: Session,
        name: str,
        arguments: Mapping[str, JSON] | None,
        trace: Mapping[str, str],
        report: Report | None,
    ) -> Result:
        """Call a tool.

        Cancelling who waits for it cancels the call, once: the call then ends in its own time. The SDK would
        cancel again whatever the call does to clean up, so a call that may wait has a task of its own.

        Args:
            session: Whose call it is.
            name: Name of the tool.
            arguments: As the client gave them.
            trace: Trace headers to pass on.
            report: Receives progress; None where nobody asked for it.
        """
        if self.ending:
            return _ENDING
        if report is None:
            at_once = session.call_at_once(name, arguments)
            if at_once is not None:
                return at_once
            task = asyncio.ensure_future(session.call(name, arguments, trace=trace))
        else:
            task = asyncio.ensure_future(_watched(session.stream(name, arguments, trace=trace), report))
        self._begun(task)
        try:
            await asyncio.wait([task])
        finally:
            task.cancel()  # does nothing to one that is done
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
        """Take no further call, let those under way end, and cancel what is left.

        Args:
            seconds: How long they get.
            hurry: Ends that time early.

        Returns:
            How many were cancelled.
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
            await asyncio.wait(left, timeout=1.0)
        return len(left)


_ENDING = Result.failed(
    Outcome.UNAVAILABLE, "the server is about to end", code="server_ending", retryable=True
)

_CUT_OFF = Result.failed(Outcome.CANCELLED, "the server ended before the call did", code="server_ended")


async def _watched(events: AsyncIterator[Progress | Partial | Result], report: Report) -> Result:
    """The result of a call, with what comes before it reported.

    MCP wants progress that grows with each notification. What does not grow, and a piece of the result, which MCP
    knows no other way to send early, has its text passed on with the least greater number.
    """
    last = -math.inf
    async for event in events:
        if isinstance(event, Result):
            return event
        if isinstance(event, Partial):
            progress, total, text = last, None, event.content.text or ""
        else:
            progress, total, text = event.progress, event.total, event.message
        if progress <= last:
            if not text:
                continue
            progress = math.nextafter(last, math.inf) if last > -math.inf else 0.0
        last = progress
        await report(progress, total, text or None)
    raise AssertionError("a stream ends with a result")
