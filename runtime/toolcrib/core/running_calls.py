"""The calls that are waiting for something: what an operator sees of them, and what cancels them.

Calls that end without waiting are not here: nothing could look at them meanwhile.
"""

from __future__ import annotations

import asyncio
from asyncio import CancelledError, current_task, get_running_loop
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from toolcrib.core.model import JSON, Call, Progress, Usage

RUNNING = "running"
"""Stage of a call whose tool runs."""

DISCOVERY = "discovery"
"""Stage of a call that waits until the server of its tool has listed its tools."""

APPROVAL = "approval"
"""Stage of a call that waits for a person."""

QUEUE = "queue"
"""Stage of a call that waits for a place among the calls of its tool or origin."""

RETRY = "retry"
"""Stage of a call that waits between two attempts."""


_AFTER_CANCEL: Final = 1.0
"""Seconds that cancelled calls have to end when everything is closed: a tool may ignore its cancellation."""


class Traffic:
    """What a call has sent and received so far, in all attempts.

    Attributes:
        requests: Number of requests.
        sent_bytes: Bytes of the requests.
        received_bytes: Bytes of the responses.
    """

    __slots__ = ("received_bytes", "requests", "sent_bytes")

    def __init__(self) -> None:
        self.requests = self.sent_bytes = self.received_bytes = 0

    def values(self) -> dict[str, int]:
        """The counters by name, as in `Usage`."""
        return {name: getattr(self, name) for name in ("requests", "sent_bytes", "received_bytes")}


class CallInProgress:
    """A call that has started and not ended. The layers and the mode of its tool record here how far it is.

    Attributes:
        call: The call.
        stage: What it waits for: `running`, `discovery`, `approval`, `queue` or `retry`.
        attempt: Number of the current attempt, from 1.
        progress: The last progress that its tool reported; None if it has reported none.
        measure: Returns what was measured of its process so far, by name as in `Usage`; None if nothing is.
        traffic: What it has sent and received; None if its mode counts nothing.
        cancelled: Whether `RunningCalls` has cancelled it.
        closing: Whether it did because the runtime is being closed.
    """

    __slots__ = (
        "_before",
        "_ended",
        "_loop",
        "_reached",
        "_task",
        "attempt",
        "call",
        "cancelled",
        "closing",
        "measure",
        "progress",
        "stage",
        "started",
        "traffic",
    )

    def __init__(self, call: Call, started: float, stage: str) -> None:
        task = current_task()
        assert task is not None  # noqa: S101 -- a call that may wait is awaited in a task
        self._task = task
        self._before = task.cancelling()
        self._loop = get_running_loop()
        self._reached = self._ended = False
        self.call = call
        self.started = started
        self.stage = stage
        self.attempt = 1
        self.progress: Progress | None = None
        self.measure: Callable[[], Mapping[str, Any]] | None = None
        self.traffic: Traffic | None = None
        self.cancelled = self.closing = False

    @contextmanager
    def within(self, stage: str) -> Iterator[None]:
        """Set the stage within the block."""
        before, self.stage = self.stage, stage
        try:
            yield
        finally:
            self.stage = before

    async def recover(self, error: BaseException | None = None) -> bool:
        """Take back the cancellation of the task, so that its caller continues. Call it once the call has ended.

        Args:
            error: How the call ended; None if it returned.

        Returns:
            Whether nothing but `RunningCalls.cancel` has ended the call.
        """
        self._ended = True
        if not self._reached or not isinstance(error, CancelledError | None):
            return False
        alone = self._task.uncancel() <= self._before
        # A call that cancels itself may end before the cancellation has reached it; it must not reach the caller.
        if alone:
            with suppress(CancelledError):
                await asyncio.sleep(0)  # noqa: TID251 -- yields to the event loop; no time passes
        return alone

    @property
    def may_end(self) -> bool:
        """Whether the call may end while the current task waits for it: not in that task itself, or in a closed loop."""
        return self._task is not current_task() and not self._loop.is_closed()

    def cancel(self) -> None:
        """Cancel the call, in any thread."""
        self.cancelled = True
        try:
            in_its_loop = get_running_loop() is self._loop
        except RuntimeError:  # this thread runs none
            in_its_loop = False
        if in_its_loop:
            self._cancel()
        else:
            # A closed loop runs no call any more.
            with suppress(RuntimeError):
                self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        # It may have ended since, and its task must go on then.
        if not self._ended:
            self._reached = True
            self._task.cancel()


def in_stage(call: Call, stage: str) -> AbstractContextManager[object]:
    """A context manager for the part of a call that waits for something else than its tool."""
    entry = call.context.session.in_progress(call.id)
    return nullcontext() if entry is None else entry.within(stage)


def traffic_of(call: Call) -> Traffic | None:
    """The counters of what a call sends and receives; None if nobody looks at the call."""
    entry = call.context.session.in_progress(call.id)
    if entry is None:
        return None
    if entry.traffic is None:
        entry.traffic = Traffic()
    return entry.traffic


def measure_call(call: Call, measure: Callable[[], Mapping[str, Any]]) -> None:
    """Let those who look at a running call measure its process with a function; see `CallInProgress.measure`."""
    entry = call.context.session.in_progress(call.id)
    if entry is not None:
        entry.measure = measure


class RunningCall(NamedTuple):
    """A call that is running now.

    Attributes:
        id: ID of the execution, unique within the runtime.
        tool: Name of the tool.
        correlation: ID of the call in another system.
        session: Name of its session.
        user: User on whose behalf it is made.
        caller: Agent, interface or program that makes it.
        started: When it started, on the clock of its session.
        elapsed: Seconds since then.
        stage: What it waits for: `running` (its tool), `discovery` (the list of a server), `approval` (a person),
            `queue` (a place) or `retry` (the next attempt).
        progress: The last progress that its tool reported; None if it has reported none.
        usage: Attempts and elapsed seconds, and what was measured of its process and its requests so far.
    """

    id: str
    tool: str
    correlation: str
    session: str
    user: str
    caller: str
    started: datetime
    elapsed: float
    stage: str
    progress: Progress | None
    usage: Usage

    def as_json(self) -> dict[str, JSON]:
        """Return the call as a JSON object."""
        return {
            **self._asdict(),
            "started": self.started.isoformat(timespec="milliseconds"),
            "elapsed": round(self.elapsed, 6),
            "progress": None if self.progress is None else self.progress._asdict(),
            "usage": self.usage.as_json(),
        }


class RunningCalls:
    """The calls of a runtime that are waiting for something, in any thread and event loop."""

    def __init__(self) -> None:
        self._calls: dict[str, CallInProgress] = {}
        self._told: list[Callable[[], None]] = []

    def __len__(self) -> int:
        return len(self._calls)

    def add(self, call: Call, started: float, stage: str = RUNNING) -> CallInProgress:
        """Add a call of the current task, which has started at a time of its session's clock."""
        entry = self._calls[call.id] = CallInProgress(call, started, stage)
        return entry

    def remove(self, call_id: str) -> None:
        """Remove a call that has ended."""
        del self._calls[call_id]
        for tell in self._told:
            tell()

    def get(self, call_id: str) -> CallInProgress | None:
        """The call with an ID; None if it is not waiting."""
        return self._calls.get(call_id)

    def listed(self) -> tuple[RunningCall, ...]:
        """All calls, the oldest first."""
        listed = [_listed(entry) for entry in self._entries()]
        return tuple(sorted(listed, key=lambda call: -call.elapsed))

    def cancel(self, matches: Callable[[Call], bool]) -> int:
        """Cancel the calls that match, and return how many. Each ends with the outcome `cancelled`."""
        found = [entry for entry in self._entries() if not entry.cancelled and matches(entry.call)]
        for entry in found:
            entry.cancel()
        return len(found)

    async def drain(self, seconds: float) -> int:
        """Wait until no call is left, cancel the others, and return how many were cancelled.

        The calls of the current task are not waited for: it could not wait for itself.

        Args:
            seconds: How long calls may go on. If they are cancelled, they have a further second to end.
        """
        loop, ended = get_running_loop(), asyncio.Event()

        def tell() -> None:
            # Calls may end in other threads, whose loops outlive this one.
            with suppress(RuntimeError):
                loop.call_soon_threadsafe(ended.set)

        self._told.append(tell)
        try:
            await self._until_few(ended, loop.time() + seconds)
            left = self._others()
            for entry in left:
                entry.closing = True
                entry.cancel()
            await self._until_few(ended, loop.time() + _AFTER_CANCEL)
        finally:
            self._told.remove(tell)
        return len(left)

    async def _until_few(self, ended: asyncio.Event, deadline: float) -> None:
        """Wait until only calls of the current task are left."""
        while self._others() and (left := deadline - get_running_loop().time()) > 0:
            ended.clear()
            with suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), left)

    def _others(self) -> list[CallInProgress]:
        return [entry for entry in self._entries() if entry.may_end]

    def _entries(self) -> list[CallInProgress]:
        # `list` is atomic: other threads may add and remove calls meanwhile.
        return list(self._calls.values())


def _listed(entry: CallInProgress) -> RunningCall:
    call = entry.call
    context = call.context
    clock = context.session.clock
    elapsed = clock.monotonic() - entry.started
    usage = Usage(entry.attempt if entry.stage in {RUNNING, RETRY} else entry.attempt - 1, elapsed)
    measured = {} if entry.measure is None else {**entry.measure()}
    if entry.traffic is not None:
        measured |= entry.traffic.values()
    return RunningCall(
        id=call.id,
        tool=call.tool.name,
        correlation=context.correlation,
        session=context.session.id,
        user=context.user,
        caller=context.caller,
        started=clock.now() - timedelta(seconds=elapsed),
        elapsed=elapsed,
        stage=entry.stage,
        progress=entry.progress,
        usage=usage.measured(measured) if measured else usage,
    )
