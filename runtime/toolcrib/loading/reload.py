"""Reloading: what a reload keeps of the version before, what it changes, and waiting until files change.

A file that is broken now, or empty, keeps its last good version, marked stale: it may be half written. Deleting a file
removes its tools. File events (the extra `watch`) only wake an early look: some file systems have none, and queues
overflow. The comparison with what was noted decides, so without events a change is noticed later.
"""

from __future__ import annotations

import asyncio
import logging
import os
import stat
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple, TypeAlias

from toolcrib.core.errors import ConfigurationError, Problem
from toolcrib.core.model import NOTHING, Descriptor
from toolcrib.core.pointers import file_and_line
from toolcrib.core.protocols import Clock
from toolcrib.loading.documents.files import ARCHIVE, PACK_FILES
from toolcrib.loading.fingerprints import FileFingerprints, FileTracker
from toolcrib.loading.packs import Pack
from toolcrib.loading.reader import LoadedDocuments
from toolcrib.loading.scenarios.model import Scenario
from toolcrib.registry.registry import Registry


class ToolAppeared(NamedTuple):
    """A reload found a tool that was not there before."""

    tool: Descriptor


class ToolChanged(NamedTuple):
    """A reload found a tool changed; running calls end on the version before."""

    before: Descriptor
    tool: Descriptor


class ToolGone(NamedTuple):
    """A reload found that a tool is no longer there."""

    before: Descriptor


ToolEvent = ToolAppeared | ToolChanged | ToolGone


class ReloadReport(NamedTuple):
    """The changes of a reload.

    Attributes:
        revision: Number of the registry that is in force now.
        appeared: Names of tools that are new, or are offered again.
        changed: Names of tools that are not what they were.
        gone: Names of tools that are no longer there, or are not offered any more.
        stale: Name of a tool whose file is broken now -> why; its last good version stays in force.
        problems: All that is wrong with the documents as they are now.
        files: Paths whose change was the occasion, where a watch knows them.
        duration: Seconds that reading and checking took.
    """

    revision: int
    appeared: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    stale: Mapping[str, str] = NOTHING
    problems: tuple[Problem, ...] = ()
    files: tuple[str, ...] = ()
    duration: float = 0.0

    def __str__(self) -> str:
        """One line for people: `2 tools changed (get_forecast, search); 1 stale (broken: ...)`."""
        parts = [
            f"{len(names)} {what} ({', '.join(names)})"
            for what, names in (("appeared", self.appeared), ("changed", self.changed), ("gone", self.gone))
            if names
        ]
        parts += [f"`{name}` is unchanged: {why}" for name, why in self.stale.items()]
        return "; ".join(parts) or "nothing changed"


def has_same_meaning(before: Descriptor, tool: Descriptor) -> bool:
    """Whether two descriptors of one name mean the same; where in its file a document stands does not matter."""
    return _meaning(before) == _meaning(tool)


def _meaning(tool: Descriptor) -> tuple[object, ...]:
    origin = tool.origin
    settings = (tool.mode, tool.timeout, tool.coerce, tool.on_invalid_result)
    kept = [(each.id, each.digest, each.fault) for each in tool.fixture.collections.values()]
    beginning = (kept, [*tool.fixture.machines.values()])
    return (tool.name, origin.digest, origin.source, origin.pack, origin.stale, settings, beginning)


class PreviousLoad(NamedTuple):
    """The version before, as far as a reload may keep it."""

    tools: Registry
    scenarios: Sequence[Scenario]
    packs: Sequence[Pack]


def keep_last_good(loaded: LoadedDocuments, before: PreviousLoad) -> LoadedDocuments:
    """The documents that were read, with the last good version of those that are broken now; all problems stay.

    Of a broken file those tools and scenarios are kept that it does not define any more, and what it changed of
    others; of a folder that can't be read, and of a pack whose `pack.yaml` or archive is broken, everything is, as
    it was. So is everything in a folder where a broken `pack.yaml` appears. Rows that are broken now stay as they were.
    """
    loaded = replace(loaded, tools=tuple(_with_last_rows(tool, before.tools) for tool in loaded.tools))
    read = {pack.origin.source for pack in loaded.packs}
    # A pack file holds no tools, so those of its pack are there; a PromptPack holds all of them.
    told = [each for each in loaded.problems if each.source not in read or not _is_pack_file(each.source)]
    broken = _BrokenFiles(told, before.packs)
    if not broken:
        return loaded
    tools = {tool.name: tool for tool in reversed(loaded.tools)}
    kept = {}
    for card in before.tools.cards.values():
        last, now = before.tools[card.name], tools.get(card.name)
        if last.origin.overrides:
            why = broken.why_overridden(last, now)
        else:
            why = broken.why(card.source, card.pack) if now is None else ""
        if why:
            kept[card.name] = _stale(last, why)
    scenarios = list(loaded.scenarios)
    played = {(scenario.origin.source, scenario.name) for scenario in scenarios}
    for scenario in before.scenarios:
        origin = scenario.origin
        if broken.why(origin.source, origin.pack) and (origin.source, scenario.name) not in played:
            scenarios.append(scenario)
    good = [tool for tool in loaded.tools if tool.name not in kept]
    return replace(
        loaded,
        tools=(*good, *kept.values()),
        scenarios=tuple(scenarios),
        packs=(*loaded.packs, *(pack for pack, _why in broken.packs if pack.origin.source not in read)),
    )


def _with_last_rows(tool: Descriptor, before: Registry) -> Descriptor:
    """The tool with the last good rows of the collections that are broken now."""
    now = tool.fixture.collections
    broken = {name: found.fault for name, found in now.items() if found.fault}
    last = before.get(tool.name) if broken else None
    if last is None:
        return tool
    there = last.fixture.collections
    kept = {name: there[name] for name in broken if name in there and not there[name].fault}
    if not kept:
        return tool
    fixture = tool.fixture._replace(collections=MappingProxyType({**now, **kept}))
    return _stale(tool._replace(fixture=fixture), broken[next(iter(kept))])


_ALSO_BROKEN = frozenset({"unrecognised_file", "file_vanished"})
"""Codes that are no errors at the first read: an empty file, one that moved since its folder was listed."""


_OF_OTHERS = frozenset({"path_not_found", "nothing_to_override"})
"""Codes that do not blame the file that they name, but mean that something is gone."""


class _BrokenFiles:
    """Files and folders that can't be read now or describe nothing any more, and the packs that need them."""

    def __init__(self, problems: Iterable[Problem], packs: Sequence[Pack]) -> None:
        self._problems: dict[str, Problem] = {}
        for problem in problems:
            told = problem.severity == "error" or problem.code in _ALSO_BROKEN
            if told and problem.code not in _OF_OTHERS:
                self._problems.setdefault(problem.source, problem)
        self.packs = [(pack, why) for pack in packs if (why := self._of(pack.origin.source))]

    def __bool__(self) -> bool:
        return bool(self._problems)

    def _of(self, source: str) -> str:
        """Why a file is broken, or the archive or a folder that it lies in; empty if none is."""
        found = (self._problems.get(path) for path in (source, *_above(source)))
        return next((str(problem) for problem in found if problem is not None), "")

    def why(self, source: str, pack: str) -> str:
        """Why the last good version of what a file held is kept; empty if it is not."""
        if not pack:
            # Where a pack file appears that is broken, nobody knows yet what will be in the pack.
            return self._of(source) or next(filter(None, map(self._of_pack_file, _above(source))), "")
        of_pack = (why for known, why in self.packs if known.name == pack and _is_in(source, known))
        return self._of(source) or next(of_pack, "")

    def _of_pack_file(self, folder: str) -> str:
        paths = (name if folder == "." else f"{folder}{os.sep}{name}" for name in PACK_FILES)
        found = (self._problems.get(path) for path in paths)
        return next((str(problem) for problem in found if problem is not None), "")

    def why_overridden(self, last: Descriptor, now: Descriptor | None) -> str:
        """Why the last good version of a tool is kept that was put together from several files; empty if it is not."""
        files = _files_of(last)
        # Without the lowest of them there is no tool; an override that is gone changes the tool that is there.
        lost = files - _files_of(now) if now is not None else {_file_of(last.origin.overrides[-1])}
        if not lost or any(_is_gone(file) for file in lost):
            return ""
        # What an override makes wrong is told in whichever of the files it stands.
        return next((why for file in sorted(files) if (why := self._why_in_any_pack(file))), "")

    def _why_in_any_pack(self, source: str) -> str:
        return self.why(source, "") or next((why for pack, why in self.packs if _is_in(source, pack)), "")


def _files_of(tool: Descriptor) -> set[str]:
    """The files of a tool: its own, and those of the documents that it is laid over."""
    return {tool.origin.source, *map(_file_of, tool.origin.overrides)}


def _file_of(place: str) -> str:
    return file_and_line(place)[0]


def _above(path: str) -> Iterator[str]:
    """The folders (and the archive) that a path leads through, the nearest first."""
    while os.path.basename(path) != os.pardir and (above := os.path.dirname(path) or ".") != path:
        yield above
        path = above


def _is_pack_file(source: str) -> bool:
    return os.path.basename(source) in PACK_FILES


def _is_in(source: str, pack: Pack) -> bool:
    """Whether a file lies in the folder or archive of a pack."""
    return next(_above(pack.origin.source), ".") in _above(source)


def _is_gone(file: str) -> bool:
    """Whether a file is there no more; of one in an archive nobody can tell."""
    try:
        return not stat.S_ISREG(os.stat(file).st_mode)
    except NotADirectoryError:
        return f"{ARCHIVE}/" not in file.lower()
    except OSError as error:
        return isinstance(error, FileNotFoundError)


def _stale(tool: Descriptor, why: str) -> Descriptor:
    return tool._replace(origin=tool.origin._replace(stale=why.splitlines()[0]))


def compare_registries(before: Registry, after: Registry) -> tuple[ToolEvent, ...]:
    """The differences of the offered tools between two registries, in the order of names."""
    events: list[ToolEvent] = []
    for name in sorted({*before, *after}):
        old, new = _offered(before, name), _offered(after, name)
        if old is None and new is not None:
            events.append(ToolAppeared(new))
        elif old is not None and new is None:
            events.append(ToolGone(old))
        elif old is not None and new is not None and not has_same_meaning(old, new):
            events.append(ToolChanged(old, new))
    return tuple(events)


def _offered(registry: Registry, name: str) -> Descriptor | None:
    return registry.get(name) if registry.hidden(name) is None else None


def _each_once(paths: Iterable[str]) -> Iterator[str]:
    """The paths without those that name again what another one named."""
    told = set()
    for path in sorted(paths, key=os.path.isabs):
        try:
            place = os.path.abspath(path)
        except FileNotFoundError:  # the working directory is gone
            place = path
        if place not in told:
            told.add(place)
            yield path


def reload_report(
    registry: Registry,
    events: Iterable[ToolEvent],
    problems: tuple[Problem, ...],
    files: Iterable[str],
    duration: float,
) -> ReloadReport:
    """The report of a reload after which `registry` is in force."""
    events = tuple(events)
    return ReloadReport(
        revision=registry.revision,
        appeared=tuple(event.tool.name for event in events if isinstance(event, ToolAppeared)),
        changed=tuple(event.tool.name for event in events if isinstance(event, ToolChanged)),
        gone=tuple(event.before.name for event in events if isinstance(event, ToolGone)),
        stale={card.name: card.stale for card in registry.cards.values() if card.stale},
        problems=problems,
        files=tuple(sorted(_each_once(files))),
        duration=duration,
    )


log = logging.getLogger("toolcrib")

Awatch: TypeAlias = Callable[..., AsyncIterator[Iterable[tuple[object, str]]]]

RESTS = 19
"""A look is followed by a rest of so many times its length: looking costs at most 5 % of the time."""

PATIENCE = 20
"""Files that never rest are reported after so many times the quiet that was waited for."""


async def watch_changes(
    seen: Callable[[], FileFingerprints],
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
    """The source of file events; None where it is not installed."""
    try:
        from watchfiles import awatch  # noqa: PLC0415 -- an extra
    except ImportError as error:
        hint = "pip install 'toolcrib[watch]'"
        if insists:
            message = f"file events need the extra `watch`: {error}"
            raise ConfigurationError(message, code="missing_extra", hint=hint) from None
        log.info("file events are unavailable, polling files instead; %s", hint)
        return None
    return awatch


class _Watcher:
    """Looks, and remembers what was told."""

    def __init__(self, seen: Callable[[], FileFingerprints], clock: Clock, wake: asyncio.Event) -> None:
        self._given = seen
        self._clock = clock
        self._wake = wake
        self._before: FileFingerprints | None = None
        self._fresh = FileFingerprints({}, {}, {})
        self._told: FileFingerprints | None = None
        self._ended = clock.monotonic()
        self._cost = 0.0

    def seen(self) -> FileFingerprints:
        """The fingerprints that count as unchanged now."""
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
        """The changed paths, once they rest; empty where nothing changed, or where it was reported already."""
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


def _compared(seen: FileFingerprints) -> tuple[FileFingerprints, list[str]]:
    """The fingerprints for the next comparison, and the paths that differ now."""
    fresh = seen.refreshed()
    return (seen, seen.changed()) if fresh is None else (fresh, [])


def _noted(paths: list[str]) -> FileFingerprints:
    trail = FileTracker()
    for path in paths:
        trail.file(path)
    return trail.closed()


class _Listener:
    """Sets an event when something happens in the folders that matter."""

    def __init__(self, wake: asyncio.Event, awatch: Awatch | None) -> None:
        self._wake = wake
        self._awatch = awatch
        self._seen: FileFingerprints | None = None
        self._folders: frozenset[str] = frozenset()
        self._deaf = False
        self._task: asyncio.Task[None] | None = None

    async def listen(self, seen: FileFingerprints) -> None:
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
            log.info("file events are unavailable, polling files instead: %s", error)

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


def _folders_of(seen: FileFingerprints) -> frozenset[str]:
    """The folders in which a change shows, as far as they exist."""
    folders = {path for path, (_state, names) in seen.folders.items() if names is not None}
    folders |= {os.path.dirname(path) or "." for path in (*seen.files, *seen.folders)}
    return frozenset(folder for folder in folders if os.path.isdir(folder))
