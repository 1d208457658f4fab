"""What belongs to one event loop: a runtime may be used in several, one after the other or at once in several threads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from threading import Lock
from typing import Generic, Protocol, TypeVar

from toolcrib.http.messages import closed


class Closing(Protocol):
    """What can be closed."""

    async def aclose(self) -> None:
        """Close it."""
        ...


T = TypeVar("T", bound=Closing)


class PerLoop(Generic[T]):
    """One thing for each event loop, closed when its loop comes to its end.

    Args:
        make: Makes the thing, in its loop.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._closed = False
        self._changing = Lock()
        self._kept: dict[asyncio.AbstractEventLoop, tuple[T, AsyncGenerator[None, None]]] = {}

    async def get(self) -> T:
        """The thing of the running loop.

        Raises:
            HTTPError: `connect_failed`: all of it was closed.
        """
        if self._closed:
            raise closed()
        loop = asyncio.get_running_loop()
        kept = self._kept.get(loop)
        return await self._begin(loop) if kept is None else kept[0]

    async def aclose(self) -> None:
        """Close the thing of the running loop, and have those of other loops closed by them. No more are made."""
        running = asyncio.get_running_loop()
        with self._changing:
            self._closed = True
            kept = list(self._kept.items())
        for loop, (_, keeper) in kept:
            if loop is running:
                await keeper.aclose()
            elif loop.is_running():
                asyncio.run_coroutine_threadsafe(keeper.aclose(), loop)

    async def _begin(self, loop: asyncio.AbstractEventLoop) -> T:
        thing = self._make()
        keeper = self._until_the_end(loop, thing)
        await anext(keeper)
        with self._changing:
            for other in [each for each in list(self._kept) if each.is_closed()]:
                self._kept.pop(other, None)
            refused = self._closed
            if not refused:
                self._kept[loop] = thing, keeper
        if refused:
            await keeper.aclose()
            raise closed()
        return thing

    async def _until_the_end(self, loop: asyncio.AbstractEventLoop, thing: T) -> AsyncGenerator[None, None]:
        """Waits to be closed: by us, or by the loop, which closes its asynchronous generators before it goes."""
        try:
            yield
        finally:
            self._kept.pop(loop, None)
            await thing.aclose()
