"""The tasks of peers, kept for a limited time and in bounded number."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from a2a.server.context import ServerCallContext
from a2a.server.tasks import InMemoryTaskStore, TaskStore
from a2a.types import ListTasksRequest, ListTasksResponse, Task

from toolcrib.servers.a2a.tasks import TERMINAL


class _KeptTask(NamedTuple):
    """A task that is kept.

    Attributes:
        owner: The context of a request of its owner.
        until: When it is dropped, in seconds of the clock.
        running: Whether it has not ended.
    """

    owner: ServerCallContext
    until: float
    running: bool


class BoundedTaskStore(TaskStore):
    """The tasks of each peer. A task is dropped some time after its last change, or earlier to make room for a new one."""

    def __init__(self, now: Callable[[], float], *, age: float, most: int) -> None:
        """Keep no task yet.

        Args:
            now: The time in seconds.
            age: Seconds for which a task is kept after its last change.
            most: Maximum number of tasks.
        """
        self._now = now
        self._age = age
        self._most = most
        self._tasks = InMemoryTaskStore()
        # All last equally long, so the first ends first.
        self._kept: dict[str, _KeptTask] = {}
        self._running = 0

    @property
    def full(self) -> bool:
        """Whether all tasks that may be kept are in progress."""
        return self._running >= self._most

    def __len__(self) -> int:
        """Return the number of tasks that are kept."""
        return len(self._kept)

    async def save(self, task: Task, context: ServerCallContext) -> None:
        """Keep a task."""
        known = self._kept.pop(task.id, None)
        running = task.status.state not in TERMINAL
        self._running += running - (known is not None and known.running)
        self._kept[task.id] = _KeptTask(context, self._now() + self._age, running)
        await self._tasks.save(task, context)
        await self._make_room()

    async def get(self, task_id: str, context: ServerCallContext) -> Task | None:
        """A task of a peer; None if the peer has none with this ID."""
        await self._make_room()
        return await self._tasks.get(task_id, context)

    async def list(self, params: ListTasksRequest, context: ServerCallContext) -> ListTasksResponse:
        """A page of the tasks of a peer."""
        await self._make_room()
        return await self._tasks.list(params, context)

    async def delete(self, task_id: str, context: ServerCallContext) -> None:
        """Drop a task."""
        known = self._kept.pop(task_id, None)
        if known is not None:
            self._running -= known.running
            await self._tasks.delete(task_id, context)

    async def _make_room(self) -> None:
        now = self._now()
        while self._kept and next(iter(self._kept.values())).until <= now:
            await self._drop(next(iter(self._kept)))
        while len(self._kept) > self._most:
            ended = (id_ for id_, kept in self._kept.items() if not kept.running)
            await self._drop(next(ended, next(iter(self._kept))))

    async def _drop(self, task_id: str) -> None:
        await self.delete(task_id, self._kept[task_id].owner)
