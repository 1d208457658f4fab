"""Start, changes and end of a server: the line printed at start, the files that are watched, and the signals that stop it."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import aclosing, asynccontextmanager, contextmanager
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from toolcrib.core.errors import ConfigurationError
from toolcrib.engine import engine_of
from toolcrib.serve.http_common.listen_address import Say

if TYPE_CHECKING:
    from toolcrib.engine.runtime import Runtime


def opening_line(runtime: Runtime, toolset: str, where: str, *notes: str) -> str:
    """`serving 12 tools (10 mock, 2 live) at http://127.0.0.1:8000/mcp; profile ci; 1 problem`.

    Args:
        runtime: The tools.
        toolset: Name of the only toolset that is served; empty for all listed tools.
        where: How clients reach the server.
        notes: What else the user should know.
    """
    cards = runtime.registry.query(toolset=toolset or None)
    modes = Counter(card.mode or "unbound" for card in cards)
    told = ", ".join(f"{many} {name}" for name, many in modes.most_common())
    parts = [f"serving {_many(len(cards), 'tool')}{f' ({told})' if told else ''} {where}"]
    if toolset:
        parts.append(f"toolset {toolset}")
    settings = engine_of(runtime).settings
    if settings is not None and settings.profile:
        parts.append(f"profile {settings.profile}")
    if runtime.problems:
        parts.append(f"{_many(len(runtime.problems), 'problem')}: run `toolcrib validate`")
    return "; ".join([*parts, *notes])


def _many(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def toolset_names(runtime: Runtime, toolset: str) -> list[str]:
    """The toolsets that paths may name: all, or the only one that is served."""
    known = list(runtime.registry.toolsets)
    return [name for name in known if name == toolset] if toolset else known


INTERRUPTED: Final = 130
"""Exit status after the third signal."""


class Shutdown:
    """Requests to stop the server.

    Attributes:
        asked: Set by the first signal: stop when the calls in flight have finished.
        hurried: Set by the second: stop now. The third ends the process without clean-up.
    """

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        self.hurried = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    @contextmanager
    def by_signals(self) -> Iterator[None]:
        """Handle SIGTERM and SIGINT within the block, which must run in the main thread."""
        # Not `loop.add_signal_handler`: its handlers wait for the loop, and the third signal must work while
        # it is blocked.
        before = {number: signal.signal(number, self._heard) for number in (signal.SIGTERM, signal.SIGINT)}
        try:
            yield
        finally:
            # After a second signal the process is about to exit, and a third one must not print a traceback of its end.
            if not self.hurried.is_set():
                for number, listener in before.items():
                    signal.signal(number, listener)

    def _heard(self, _number: int, _frame: FrameType | None) -> None:
        if self.hurried.is_set():
            os._exit(INTERRUPTED)
        # Only the thread-safe call wakes the loop from its selector.
        self._loop.call_soon_threadsafe(self.ask)

    def ask(self) -> None:
        """Stop gracefully; on the second call, stop immediately."""
        if self.asked.is_set():
            self.hurried.set()
        self.asked.set()

    async def unless_hurried(self, work: Coroutine[Any, Any, None]) -> None:
        """Wait for a coroutine; cancel it if the server must stop immediately."""
        tasks = [asyncio.ensure_future(work), asyncio.ensure_future(self.hurried.wait())]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()  # no effect on a finished task
            await asyncio.wait(tasks)
        if not tasks[0].cancelled():
            tasks[0].result()


@asynccontextmanager
async def opened(runtime: Runtime) -> AsyncIterator[Shutdown]:
    """Enter a runtime. From then on signals ask the server to stop; the second one also stops the closing of the runtime.

    What is left then is cancelled with the event loop, and processes are killed.
    """
    # Until it is open, Ctrl-C ends the command at once: there are no calls to wait for.
    await runtime.__aenter__()
    shutdown = Shutdown()
    with shutdown.by_signals(), frequent_thread_switches():
        try:
            yield shutdown
        finally:
            # The calls of clients have had their time to end.
            await shutdown.unless_hurried(runtime.aclose(drain=0))


SWITCH_INTERVAL: Final = 0.0002
"""Seconds after which a thread that computes gives way to the event loop. Python's default is 5 ms, which every request would
wait for while another one's megabytes are read or validated; and once more for each connection that it reads."""


@contextmanager
def frequent_thread_switches() -> Iterator[None]:
    """Let the event loop run soon within the block while other threads compute."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(min(before, SWITCH_INTERVAL))
    try:
        yield
    finally:
        sys.setswitchinterval(before)


YOUNG: Final = 10_000
"""Number of new containers that starts a garbage collection; Python's default is 700, fewer than ten calls make."""


@contextmanager
def frozen_heap() -> Iterator[Callable[[], None]]:
    """Leave what exists out of garbage collections within the block.

    Tools and modules live as long as the server. Without this, the collector visits their hundred thousand objects
    again and again: 60 ms at a time, and a seventh of the time of a short call.

    Yields:
        Call it when tools have been replaced: it collects the old ones and leaves out the new ones.
    """
    thresholds, frozen = gc.get_threshold(), gc.get_freeze_count()

    def renew() -> None:
        gc.unfreeze()
        gc.collect()
        gc.freeze()

    if frozen:  # the program that embeds the server does this itself
        yield lambda: None
        return
    gc.freeze()
    gc.set_threshold(max(YOUNG, thresholds[0]), *thresholds[1:])
    try:
        yield renew
    finally:
        gc.set_threshold(*thresholds)
        gc.unfreeze()


@asynccontextmanager
async def announced_changes(
    runtime: Runtime, say: Say, announce: Callable[[], Awaitable[None]], *, watch: bool
) -> AsyncIterator[None]:
    """Watch files (if configured) and announce changes of the tools within the block.

    The tools are left out of garbage collections meanwhile.

    Args:
        runtime: The tools.
        say: Prints a line for the user: each reload.
        announce: Called once after a burst of changes.
        watch: Whether files are watched.
    """
    changed = asyncio.Event()
    unfollow = engine_of(runtime).follow(changed.set)
    with frozen_heap() as renew_heap:
        tasks = [asyncio.create_task(_announced(changed, announce, renew_heap))]
        if watch:
            tasks.append(asyncio.create_task(_followed(runtime, say)))
        try:
            yield
        finally:
            unfollow()
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)


async def _announced(
    changed: asyncio.Event, announce: Callable[[], Awaitable[None]], renew_heap: Callable[[], None]
) -> None:
    # Setting the event again while it is set is free: a burst of changes is announced once.
    while await changed.wait():
        changed.clear()
        await announce()
        renew_heap()


async def _followed(runtime: Runtime, say: Say) -> None:
    try:
        async with aclosing(runtime.watch()) as reports:
            async for report in reports:
                say(f"reloaded: {report}")
    except ConfigurationError as error:
        say(f"files are not watched: {error.message}")
