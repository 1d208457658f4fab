"""One at a time, whichever event loop or thread it is in."""

from __future__ import annotations

import asyncio
from threading import Lock


class Turn:
    """`async with turn`: whoever comes meanwhile waits, also in another event loop, and no loop stands still for it."""

    def __init__(self) -> None:
        self._taken = Lock()

    async def __aenter__(self) -> None:
        if self._taken.acquire(blocking=False):
            return
        waiting = asyncio.get_running_loop().run_in_executor(None, self._taken.acquire)
        try:
            await asyncio.shield(waiting)
        except asyncio.CancelledError:
            waiting.add_done_callback(lambda _taken: self._taken.release())
            raise

    async def __aexit__(self, *_exception: object) -> None:
        self._taken.release()
