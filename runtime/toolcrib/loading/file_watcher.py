"""Waits until files change: events wake an early look, and a look at regular intervals decides.

File events are an extra (`watch`) and never trusted: some file systems have none, and queues overflow. What
counts is the comparison with what was seen, so without events a change is only noticed later.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable
from contextlib import suppress
from typing import TypeAlias

from toolcrib.core.errors import ConfigurationError
from toolcrib.core.protocols import Clock
from toolcrib.loading.documents.file_fingerprints import Seen, Trail

log = logging.getLogger("toolcrib")

Awatch: TypeAlias = Callable[..., AsyncIterator[Iterable[tuple[object, str]]]]

RESTS = 19
"""A look is followed by a rest of so many times its length: looking costs at most 5 % of the time."""

PATIENCE = 20
"""Files that never rest are reported after so many times the quiet that was waited for."""


async def changes(
    seen: Callable[[], Seen],
    *,
    clock: Clock,
    poll: float = 1.0,
    quiet: float = 0.1,
    events: bool | None = None,
) -> AsyncGenerator[list[str], None]:
    """The paths that changed, sorted, each time that something did and then rested.

    Several quick changes are one report, and so is a file that an editor writes in parts. What was reported
    is not reported again unless it changes again, or what was seen is looked at anew. Closing the iterator,
    or cancelling who waits for it, ends everything that it began.

    Args:
        seen: What counts as unchanged; asked before every look, so whoever reads anew is followed.
        clock: Its waits are waits on the world.
        poll: Seconds between looks where nothing wakes an earlier one; more where a look takes long.
        quiet: Seconds in which nothing may change before a change is reported.
        events: Whether to listen to file events: True insists, False does without, None tries.

    Raises:
        ConfigurationError: `events` is True, and the extra `watch` is not installed.
    """
    wake = asyncio.Event()
    listener = _Listener(wake, _awatch(insists=events is True) if events is not False else None)
    watcher = _Watcher(seen, clock, wake)
    try:
        while True:
            with clock.outside():
                await listener.listen(watcher.seen())
                await watcher.rest(poll)
                paths = await watcher.quieted(quiet)
            if paths:
                yield paths
    finally:
        await listener.aclose()


def _awatch(*, insists: bool) -> Awatch | None:
    """What tells of file events; None where it is not installed."""
    try:
        from watchfiles import awatch  # noqa: PLC0415 -- an extra
    except ImportError as error:
        hint = "pip install 'toolcrib[watch]'"
        if insists:
            message = f"file events need the extra `watch`: {error}"
            raise ConfigurationError(message, code="missing_extra", hint=hint) from None
        log.info("file events are not listened to, files are looked at regularly instead; %s", hint)
        return None
    return awatch


class _Watcher:
    """Looks, and remembers what was told."""

    def __init__(self, seen: Callable[[], Seen], clock: Clock, wake: asyncio.Event) -> None:
        self._given = seen
        self._clock = clock
        self._wake = wake
        self._before: Seen | None = None
        self._fresh = Seen({}, {}, {})
        self._told: Seen | None = None
        self._ended = clock.monotonic()
        self._cost = 0.0

    def seen(self) -> Seen:
        """What counts as unchanged now."""
        given = self._given()
        if given is not self._before:
            self._before = self._fresh = given
            self._told = None
        return given

    async def rest(self, poll: float) -> None:
        """Wait for the next look: for an event, but at most for `poll`, and never so short that looking costs much."""
        least = RESTS * self._cost
        with suppress(TimeoutError):
            async with self._clock.timeout(max(poll, least)):
                await self._wake.wait()
        await self._clock.sleep(self._ended + least - self._clock.monotonic())

    async def quieted(self, quiet: float) -> list[str]:
        """What changed, once it stays as it is; nothing where nothing did, or where it was told already."""
        paths = await self._look()
        for _ in range(PATIENCE):
            noted = await asyncio.to_thread(_noted, paths)
            if not paths or (self._told is not None and noted.files == self._told.files):
                return []
            await self._clock.sleep(quiet)
            again = await self._look()
            if again == paths and await asyncio.to_thread(noted.unchanged):
                break
            paths = again
        self._told = noted
        return paths

    async def _look(self) -> list[str]:
        self.seen()
        self._wake.clear()
        began = self._clock.monotonic()
        self._fresh, paths = await asyncio.to_thread(_compared, self._fresh)
        self._ended = self._clock.monotonic()
        self._cost = self._ended - began
        return paths


def _compared(seen: Seen) -> tuple[Seen, list[str]]:
    """What is to be compared next time, and what is different now."""
    fresh = seen.refreshed()
    return (seen, seen.changed()) if fresh is None else (fresh, [])


def _noted(paths: list[str]) -> Seen:
    trail = Trail()
    for path in paths:
        trail.file(path)
    return trail.closed()


class _Listener:
    """Sets an event when something happens in the folders that matter."""

    def __init__(self, wake: asyncio.Event, awatch: Awatch | None) -> None:
        self._wake = wake
        self._awatch = awatch
        self._seen: Seen | None = None
        self._folders: frozenset[str] = frozenset()
        self._deaf = False
        self._task: asyncio.Task[None] | None = None

    async def listen(self, seen: Seen) -> None:
        """Listen to where these files lie, if it is elsewhere than before, or if another folder is there now."""
        if self._awatch is None or (seen is self._seen and not self._deaf):
            return
        self._seen = seen
        folders = _folders_of(seen)
        if self._deaf or folders != self._folders:
            await self.aclose()
            self._folders, self._deaf = folders, False
            self._task = asyncio.create_task(self._hear(self._awatch, sorted(folders)))
            # The task comes first, so a look finds what happened before it listened.
            asyncio.get_running_loop().call_soon(self._wake.set)

    async def _hear(self, awatch: Awatch, folders: list[str]) -> None:
        here = {_full(folder) for folder in folders}
        try:
            async for changed in awatch(*folders, watch_filter=None, recursive=False, debounce=100):
                # Who listened to a folder that came anew, or was away, hears nothing of it any more.
                self._deaf = self._deaf or any(_full(path) in here for _change, path in changed)
                self._wake.set()
        except (OSError, RuntimeError) as error:
            # Too many watches, a folder that is gone: the regular looks go on, and new folders are another chance.
            self._folders = frozenset()
            log.info("file events can't be had, files are looked at regularly instead: %s", error)

    async def aclose(self) -> None:
        """Stop listening."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])


def _full(path: str) -> str:
    """A path from the root; as it was named, if it is relative and the working directory was removed."""
    try:
        return os.path.abspath(path)
    except FileNotFoundError:
        return path


def _folders_of(seen: Seen) -> frozenset[str]:
    """The folders in which a change shows, as far as they exist."""
    folders = {path for path, (_state, names) in seen.folders.items() if names is not None}
    folders |= {os.path.dirname(path) or "." for path in (*seen.files, *seen.folders)}
    return frozenset(folder for folder in folders if os.path.isdir(folder))
