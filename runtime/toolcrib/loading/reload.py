"""Reload changed files: wait for changes, keep the last good version of broken files, and report the differences.

A file that is broken or empty may be half written, so its last good version stays active, marked stale. Deleting a
file removes its tools. File events (the extra `watch`) only trigger an early check, because some file systems have
none and event queues overflow. Changes are detected by comparing fingerprints; without events they are noticed later.
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
    """A reload found a new tool."""

    tool: Descriptor


class ToolChanged(NamedTuple):
    """A reload found a changed tool; running calls finish on the previous version."""

    before: Descriptor
    tool: Descriptor


class ToolGone(NamedTuple):
    """A reload found that a tool does not exist any more."""

    before: Descriptor


class ToolEnabled(NamedTuple):
    """A tool that exists is offered again."""

    tool: Descriptor


class ToolDisabled(NamedTuple):
    """A tool that exists is not offered any more; calls of it end with the reason.

    Attributes:
        tool: The tool.
        reason: The setting that disables it, and its place.
    """

    tool: Descriptor
    reason: str


ToolEvent = ToolAppeared | ToolChanged | ToolGone | ToolEnabled | ToolDisabled


class ReloadReport(NamedTuple):
    """The changes of a reload.

    Attributes:
        revision: Revision of the registry that is active after the reload.
        appeared: Names of tools that are new, or are offered again.
        changed: Names of changed tools.
        gone: Names of tools that are deleted, or are not offered any more.
        stale: Name of a tool whose file is broken -> reason; its last good version stays active.
        problems: All problems of the current documents.
        files: Paths whose change caused the reload, if a watch reported them.
        duration: Seconds spent reading and checking.
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
        """A one-line summary for people, such as `1 changed (search); `greet` is unchanged: ...`."""
        parts = [
            f"{len(names)} {what} ({', '.join(names)})"
            for what, names in (("appeared", self.appeared), ("changed", self.changed), ("gone", self.gone))
            if names
        ]
        parts += [f"`{name}` is unchanged: {why}" for name, why in self.stale.items()]
        return "; ".join(parts) or "nothing changed"


def has_same_meaning(before: Descriptor, tool: Descriptor) -> bool:
    """Whether two descriptors of one name are equivalent; their position in the file does not matter."""
    return _meaning(before) == _meaning(tool)


def _meaning(tool: Descriptor) -> tuple[object, ...]:
    origin = tool.origin
    # A profile can change these without a change of the document's digest.
    settings = (tool.mode, tool.timeout, tool.coerce, tool.on_invalid_result)
    kept = [(each.id, each.digest, each.fault) for each in tool.fixture.collections.values()]
    beginning = (kept, [*tool.fixture.machines.values()])
    return (tool.name, origin.digest, origin.source, origin.pack, origin.stale, settings, beginning)


class PreviousLoad(NamedTuple):
    """The parts of the previous version that a reload may keep."""

    tools: Registry
    scenarios: Sequence[Scenario]
    packs: Sequence[Pack]


def keep_last_good(loaded: LoadedDocuments, before: PreviousLoad) -> LoadedDocuments:
    """The loaded documents, with the last good version of those that are broken now; all problems stay.

    - A broken file keeps the tools and scenarios that it no longer defines, and its overrides of other tools.
    - An unreadable folder, a pack with a broken `pack.yaml` or archive, and a folder in which a broken `pack.yaml`
      appears keep everything.
    - Broken rows keep their previous content.
    """
    loaded = replace(loaded, tools=tuple(_with_last_rows(tool, before.tools) for tool in loaded.tools))
    read = {pack.origin.source for pack in loaded.packs}
    # An error in the pack file of a pack that loaded does not affect its tools, which are in other files. A PromptPack
    # contains its tools itself.
    told = [each for each in loaded.problems if each.source not in read or not _is_pack_file(each.source)]
    broken = _BrokenFiles(told, before.packs)
    if not broken:
        return loaded
    # Of duplicate names the first tool counts, as in the registry; reversed, it is the last to be stored.
    tools = {tool.name: tool for tool in reversed(loaded.tools)}
    kept = {}
    for card in before.tools.cards.values():
        last, now = before.tools[card.name], tools.get(card.name)
        if last.origin.overrides:
            why = broken.why_overridden(last, now)
        else:
            why = broken.why(card.source, card.pack) if now is None else ""
        if why:
            # A plain copy with a reason, so that lists and `show` can say why the tool is old.
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
    """The tool, with the last good rows for collections that are broken now."""
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


ALSO_BROKEN = frozenset({"unrecognised_file", "file_vanished"})
"""Codes that are not errors in a first load, but mean a broken file in a reload: an empty or a moved file."""


_OF_OTHERS = frozenset({"path_not_found", "nothing_to_override"})
"""Codes that do not mean that the file itself is broken, but that something else is missing."""


class _BrokenFiles:
    """Files and folders that are broken or empty now, and the packs that need them."""

    def __init__(self, problems: Iterable[Problem], packs: Sequence[Pack]) -> None:
        self._problems: dict[str, Problem] = {}
        for problem in problems:
            told = problem.severity == "error" or problem.code in ALSO_BROKEN
            if told and problem.code not in _OF_OTHERS:
                self._problems.setdefault(problem.source, problem)
        self.packs = [(pack, why) for pack in packs if (why := self._of(pack.origin.source))]

    def __bool__(self) -> bool:
        return bool(self._problems)

    def _of(self, source: str) -> str:
        """Why a file, its archive or a folder above it is broken; empty if none is."""
        found = (self._problems.get(path) for path in (source, *_above(source)))
        return next((str(problem) for problem in found if problem is not None), "")

    def why(self, source: str, pack: str) -> str:
        """Why the last good version of a file's tools is kept; empty if it is not."""
        if not pack:
            # While a new pack file is broken, it is unknown which files the pack will contain.
            return self._of(source) or next(filter(None, map(self._of_pack_file, _above(source))), "")
        of_pack = (why for known, why in self.packs if known.name == pack and _is_in(source, known))
        return self._of(source) or next(of_pack, "")

    def _of_pack_file(self, folder: str) -> str:
        paths = (name if folder == "." else f"{folder}{os.sep}{name}" for name in PACK_FILES)
        found = (self._problems.get(path) for path in paths)
        return next((str(problem) for problem in found if problem is not None), "")

    def why_overridden(self, last: Descriptor, now: Descriptor | None) -> str:
        """Why the last good version of a tool with overrides is kept; empty if it is not."""
        files = _files_of(last)
        # Without the overridden document there is no tool; a deleted override legitimately changes the tool.
        lost = files - _files_of(now) if now is not None else {_file_of(last.origin.overrides[-1])}
        if not lost or any(_is_gone(file) for file in lost):
            return ""
        # A problem that an override causes is reported in the file that contains the part.
        return next((why for file in sorted(files) if (why := self._why_in_any_pack(file))), "")

    def _why_in_any_pack(self, source: str) -> str:
        return self.why(source, "") or next((why for pack, why in self.packs if _is_in(source, pack)), "")


def _files_of(tool: Descriptor) -> set[str]:
    """The files of a tool: its own, and those of the documents that it overrides."""
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
    """Whether a file is in the folder or archive of a pack."""
    return next(_above(pack.origin.source), ".") in _above(source)


def _is_gone(file: str) -> bool:
    """Whether a file is deleted; False for a file in an archive, which `stat` cannot see."""
    try:
        return not stat.S_ISREG(os.stat(file).st_mode)
    except NotADirectoryError:
        return f"{ARCHIVE}/" not in file.lower()
    except OSError as error:
        return isinstance(error, FileNotFoundError)


def _stale(tool: Descriptor, why: str) -> Descriptor:
    return tool._replace(origin=tool.origin._replace(stale=why.splitlines()[0]))


def compare_registries(before: Registry, after: Registry) -> tuple[ToolEvent, ...]:
    """The differences in offered tools between two registries, sorted by name."""
    events: list[ToolEvent] = []
    for name in sorted({*before, *after}):
        old, new = _offered(before, name), _offered(after, name)
        if old is None and new is not None:
            events.append(ToolEnabled(new) if name in before else ToolAppeared(new))
        elif old is not None and new is None:
            disabled = ToolDisabled(after[name], after.why_hidden(name)) if name in after else None
            events.append(ToolGone(old) if disabled is None else disabled)
        elif old is not None and new is not None and not has_same_meaning(old, new):
            events.append(ToolChanged(old, new))
    return tuple(events)


def _offered(registry: Registry, name: str) -> Descriptor | None:
    return registry.get(name) if name in registry and registry.hidden(name) is None else None


def _each_once(paths: Iterable[str]) -> Iterator[str]:
    """The paths without duplicates that name one file relatively and absolutely."""
    # Absolute paths last, so that a path that the user named relatively is reported that way.
    told = set()
    for path in sorted(paths, key=os.path.isabs):
        try:
            place = os.path.abspath(path)
        except FileNotFoundError:  # the working directory was deleted
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
    """The report of a reload after which `registry` is active."""
    events = tuple(events)
    return ReloadReport(
        revision=registry.revision,
        appeared=tuple(event.tool.name for event in events if isinstance(event, ToolAppeared | ToolEnabled)),
        changed=tuple(event.tool.name for event in events if isinstance(event, ToolChanged)),
        gone=tuple(
            event.before.name if isinstance(event, ToolGone) else event.tool.name
            for event in events
            if isinstance(event, ToolGone | ToolDisabled)
        ),
        stale={card.name: card.stale for card in registry.cards.values() if card.stale},
        problems=problems,
        files=tuple(sorted(_each_once(files))),
        duration=duration,
    )


log = logging.getLogger("toolcrib")

Awatch: TypeAlias = Callable[..., AsyncIterator[Iterable[tuple[object, str]]]]

RESTS = 19
"""A check is followed by a pause of this many times its duration, so that checks take at most 5 % of the time."""

PATIENCE = 20
"""Files that never stop changing are reported after this many quiet periods."""


async def watch_changes(
    seen: Callable[[], FileFingerprints],
    *,
    clock: Clock,
    poll: float = 1.0,
    quiet: float = 0.1,
    events: bool | None = None,
) -> AsyncGenerator[list[str], None]:
    """Yield the changed paths, sorted, each time files changed and then stayed unchanged for `quiet` seconds.

    Several quick changes, or a file that an editor writes in parts, are one report. A reported change is not
    reported again unless the file changes again or `seen` returns new fingerprints. Closing the iterator or
    cancelling the task that waits for it stops all background work.

    Args:
        seen: Returns the fingerprints that count as unchanged. Called before every check, so it follows reloads.
        clock: The clock; its time does not stand still while this waits, even in a simulation.
        poll: Seconds between checks without events; longer if a check takes long.
        quiet: Seconds without changes before a change is reported.
        events: Whether to use file events: True requires them, False disables them, None uses them if installed.

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
    """The source of file events; None if it is not installed."""
    try:
        # Optional: the extra `watch` installs it.
        from watchfiles import awatch  # noqa: PLC0415
    except ImportError as error:
        hint = "pip install 'toolcrib[watch]'"
        if insists:
            message = f"file events need the extra `watch`: {error}"
            raise ConfigurationError(message, code="missing_extra", hint=hint) from None
        log.info("file events are unavailable, polling files instead; %s", hint)
        return None
    return awatch


class _Watcher:
    """Checks for changes, and remembers what was reported."""

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
        """Wait for an event, at most `poll` seconds, but at least long enough to keep checks at 5 % of the time."""
        least = RESTS * self._cost
        with suppress(TimeoutError):
            async with self._clock.timeout(max(poll, least)):
                await self._wake.wait()
        await self._clock.sleep(self._ended + least - self._clock.monotonic())

    async def quieted(self, quiet: float) -> list[str]:
        """The changed paths, once they stop changing; empty if nothing changed or all of it was reported."""
        paths = await self._look()
        for _ in range(PATIENCE):
            # In a thread: `stat` on a network file system can take seconds, and calls go on meanwhile.
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
    """Sets an event when something changes in the relevant folders."""

    def __init__(self, wake: asyncio.Event, awatch: Awatch | None) -> None:
        self._wake = wake
        self._awatch = awatch
        self._seen: FileFingerprints | None = None
        self._folders: frozenset[str] = frozenset()
        self._deaf = False
        self._task: asyncio.Task[None] | None = None

    async def listen(self, seen: FileFingerprints) -> None:
        """Listen to the folders of these files, if they are other folders than before or were replaced."""
        if self._awatch is None or (seen is self._seen and not self._deaf):
            return
        self._seen = seen
        folders = _folders_of(seen)
        if self._deaf or folders != self._folders:
            await self.aclose()
            self._folders, self._deaf = folders, False
            self._task = asyncio.create_task(self._hear(self._awatch, sorted(folders)))
            # Scheduled after the task, so the next check finds what changed before it listened.
            asyncio.get_running_loop().call_soon(self._wake.set)

    async def _hear(self, awatch: Awatch, folders: list[str]) -> None:
        here = {_full(folder) for folder in folders}
        try:
            # Not recursive: `node_modules` alone can exhaust the inotify watches of the user. No filter,
            # because the comparison decides.
            async for changed in awatch(*folders, watch_filter=None, recursive=False, debounce=100):
                # A watch is bound to the inode: a folder that was replaced or moved sends no more events.
                self._deaf = self._deaf or any(_full(path) in here for _change, path in changed)
                self._wake.set()
        except (OSError, RuntimeError) as error:
            # Too many watches, or a deleted folder. Polling continues, and a change of folders tries events again.
            self._folders = frozenset()
            log.info("file events are unavailable, polling files instead: %s", error)

    async def aclose(self) -> None:
        """Stop listening."""
        if self._task is not None:
            self._task.cancel()
            # Waits without raising: the task ends with CancelledError or with an error that was logged.
            await asyncio.wait([self._task])


def _full(path: str) -> str:
    """An absolute path; the path as named if it is relative and the working directory was deleted."""
    try:
        return os.path.abspath(path)
    except FileNotFoundError:
        return path


def _folders_of(seen: FileFingerprints) -> frozenset[str]:
    """The existing folders in which a change becomes visible."""
    folders = {path for path, (_state, names) in seen.folders.items() if names is not None}
    folders |= {os.path.dirname(path) or "." for path in (*seen.files, *seen.folders)}
    return frozenset(folder for folder in folders if os.path.isdir(folder))
