"""How a server is told to end: by a signal, and to hurry by a second one."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Final

INTERRUPTED: Final = 130
"""How a process ends that was interrupted once too often."""


class Ending:
    """Whether the server shall end.

    Attributes:
        asked: Set by the first signal: end when what is under way is done.
        hurried: Set by the second: end now. A third ends the process as it is.
    """

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.hurried = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    @contextmanager
    def by_signals(self) -> Iterator[None]:
        """Listen to SIGTERM and SIGINT within the block, which runs in the main thread."""
        before = {number: signal.signal(number, self._heard) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            for number, listener in before.items():
                signal.signal(number, listener)

    def _heard(self, _number: int, _frame: FrameType | None) -> None:
        if self.hurried.is_set():
            os._exit(INTERRUPTED)
        self._loop.call_soon_threadsafe(self.ask)

    def ask(self) -> None:
        """End; asked again, end at once."""
        if self.asked.is_set():
            self.hurried.set()
        self.asked.set()
