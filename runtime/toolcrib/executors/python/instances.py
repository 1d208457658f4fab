"""The instances of `Tool` classes: one for all calls, a pool, or one for each call.

Each instance is initialised once, and closed once, also if calls are cancelled, `close` raises or the config changes.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, cast

from toolcrib.core.clock import CrossLoopLock
from toolcrib.core.model import JSON
from toolcrib.executors.python.declarations import Implementation, Tool

AnyTool = Tool[Any, Any]


class Resource(Protocol):
    """What an executor holds for the calls of some tools: instances, or worker processes."""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to close."""
        ...

    def retire(self) -> None:
        """Close everything once its running calls have ended; later calls use another resource."""
        ...

    def aclose(self) -> Awaitable[None]:
        """Close everything now."""
        ...


class InitialiseFailed(Exception):
    """`initialise` raised an exception, which is the cause of this one."""


class ToolInstances:
    """The instances of one class with one config.

    Args:
        implementation: The class, or the instance that the program gave.
        config: The config as JSON.
        policy: `shared`, `pool` or `call`; see the key `instances` of the block.
    """

    def __init__(self, implementation: Implementation, config: JSON, policy: str) -> None:
        self._target = implementation.target
        self._provided = implementation.provided
        self._config_type = implementation.config
        self._config = config
        self._shared = policy == "shared"
        self._pooled = policy == "pool"
        self._idle: list[AnyTool] = []
        self._open: dict[int, AnyTool] = {}  # those that are initialised and not closed
        self._running: dict[int, int] = {}  # id of an instance -> number of its calls
        self._retired = False
        self._lock = CrossLoopLock()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._making: set[asyncio.Task[Any]] = set()
        self.ready: AnyTool | None = None
        """The shared instance, once it is initialised."""

    async def take(self) -> AnyTool:
        """An instance for one call; give it back with `give_back`.

        Raises:
            InitialiseFailed: `initialise` raised an exception.
        """
        if self.ready is not None:
            return self._begin(self.ready)
        return self._begin(self._idle.pop()) if self._idle else await self._made_for_call()

    def _begin(self, instance: AnyTool) -> AnyTool:
        self._running[id(instance)] = self._running.get(id(instance), 0) + 1
        return instance

    async def _made_for_call(self) -> AnyTool:
        # A task of its own: an instance whose `initialise` is cancelled halfway could be neither used nor closed.
        making = self._task(self._share() if self._shared else self._make())
        self._making.add(making)
        making.add_done_callback(self._making.discard)
        try:
            return await asyncio.shield(making)
        except asyncio.CancelledError:
            making.add_done_callback(self._keep_unused)
            raise

    def _keep_unused(self, making: asyncio.Task[AnyTool]) -> None:
        """Keep or close the instance that was made for a call that was cancelled meanwhile."""
        if not making.cancelled() and making.exception() is None:
            self.give_back(making.result())

    async def _share(self) -> AnyTool:
        async with self._lock:
            if self.ready is not None:
                return self._begin(self.ready)
            made = await self._make()
            self.ready = None if self._retired else made
            return made

    async def _make(self) -> AnyTool:
        try:
            target = self._target
            made = cast("AnyTool", target(**self._provided) if isinstance(target, type) else target)
            declared = self._config_type
            await _ended(made.initialise(self._config if declared is None else declared.read(self._config)))
        # The code is the user's, and must not end the program either.
        except (Exception, SystemExit) as error:
            raise InitialiseFailed(str(error)) from error
        self._open[id(made)] = made
        # In the same step: a change of the config must not close it before its first call.
        return self._begin(made)

    def give_back(self, instance: AnyTool) -> Awaitable[None] | None:
        """Return an instance after a call. If this closes the instance, the result can be awaited."""
        left = self._running[id(instance)] = self._running[id(instance)] - 1
        if left:
            return None
        del self._running[id(instance)]
        return self._settle(instance)

    def _settle(self, instance: AnyTool) -> Awaitable[None] | None:
        if id(instance) in self._running:
            return None
        if self._retired or not (self._shared or self._pooled):
            return self._task(self._close(instance))
        if self._pooled and id(instance) in self._open:
            self._idle.append(instance)
        return None

    async def _close(self, instance: AnyTool) -> Exception | None:
        """Close an instance unless that was done before; the exception that it raised is logged."""
        if self._open.pop(id(instance), None) is None:
            return None
        try:
            await _ended(instance.close())
        # The code is the user's, and one failure must not keep the others open.
        except (Exception, SystemExit) as error:
            import logging  # noqa: PLC0415 -- not needed unless there is something to log

            name = type(instance).__name__
            logging.getLogger("toolcrib").warning("`close` of `%s` raised an exception", name, exc_info=error)
            return error if isinstance(error, Exception) else RuntimeError(f"`sys.exit({error})` in `{name}`")
        return None

    @property
    def empty(self) -> bool:
        """Whether there is nothing to close."""
        return not self._open and not self._tasks

    def retire(self) -> None:
        """Close every instance once its calls have ended."""
        self._retired, self.ready, self._idle = True, None, []
        for each in [*self._open.values()]:
            self._settle(each)

    async def aclose(self) -> None:
        """Close all instances now.

        Raises:
            ExceptionGroup: The exceptions of instances that failed to close; the others are closed.
        """
        self._retired, self.ready, self._idle = True, None, []
        mine = asyncio.get_running_loop()
        tasks = [each for each in self._tasks if each.get_loop() is mine]
        # An `initialise` that never ends must not keep the runtime open; a `close` that has begun is awaited.
        for task in self._making.intersection(tasks):
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        errors = [error for each in [*self._open.values()] if (error := await self._close(each)) is not None]
        if errors:
            raise ExceptionGroup("cannot close all tools", errors)

    def _task(self, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


async def _ended(answer: Any) -> None:
    if inspect.isawaitable(answer):
        await answer


class ResourceTable:
    """The resources of one executor, each with the tools that use it."""

    def __init__(self) -> None:
        self._open: dict[object, tuple[Resource, set[str]]] = {}
        self._retired: list[Resource] = []

    @property
    def empty(self) -> bool:
        """Whether there is nothing to close."""
        return not self._open and not self._retired

    def get(self, key: object, tool: str, make: Callable[[], Resource]) -> Resource:
        """The resource of a key.

        Args:
            key: Tools with an equal key share the resource.
            tool: The tool that uses it.
            make: Creates it at first use.
        """
        found = self._open.get(key)
        if found is None:
            # `setdefault`, because another thread may have created one in the meantime.
            found = self._open.setdefault(key, (make(), set()))
        found[1].add(tool)
        return found[0]

    def retire(self, tool: str) -> None:
        """Retire what only this tool uses. Needs a running event loop."""
        self._retired = [each for each in self._retired if not each.empty]
        for key, (resource, users) in [*self._open.items()]:
            if tool in users:
                users.discard(tool)
                if not users:
                    del self._open[key]
                    resource.retire()
                    self._retired.append(resource)

    async def aclose(self) -> None:
        """Close all resources.

        Raises:
            ExceptionGroup: The exceptions of resources that failed to close; the others are closed.
        """
        opened, self._open = [resource for resource, _users in self._open.values()], {}
        retired, self._retired = self._retired, []
        errors: list[Exception] = []
        for resource in (*opened, *retired):
            try:
                await resource.aclose()
            except Exception as error:  # noqa: BLE001 -- one failure must not keep the others open
                errors += error.exceptions if isinstance(error, ExceptionGroup) else [error]
        if errors:
            raise ExceptionGroup("cannot close all tools", errors)
