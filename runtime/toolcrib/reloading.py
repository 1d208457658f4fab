"""What a reload keeps of the version before, and what it changes.

A file that is broken now, or empty, keeps its last good version, marked stale: it may be written in this moment. A
file that is gone takes its tools with it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from toolcrib.errors import Problem
from toolcrib.loading.files import ARCHIVE
from toolcrib.loading.packs import Pack
from toolcrib.loading.reader import Loaded
from toolcrib.loading.scenarios import Scenario
from toolcrib.model import NOTHING, Descriptor
from toolcrib.registry import Registry


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
    """What a reload changed.

    Attributes:
        revision: Number of the registry that is in force now.
        appeared: Names of tools that are new.
        changed: Names of tools that are not what they were.
        gone: Names of tools that are no longer there.
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
        parts += [f"`{name}` stays as it was: {why}" for name, why in self.stale.items()]
        return "; ".join(parts) or "nothing changed"


def is_same(before: Descriptor, tool: Descriptor) -> bool:
    """Whether two descriptors of one name mean the same; where in its file a document stands does not matter."""
    return _meaning(before) == _meaning(tool)


def _meaning(tool: Descriptor) -> tuple[object, ...]:
    origin = tool.origin
    settings = (tool.mode, tool.timeout, tool.coerce, tool.on_invalid_result)
    return (tool.name, origin.digest, origin.source, origin.pack, origin.stale, settings)


class Before(NamedTuple):
    """What was in force until now, as far as a reload may keep it."""

    tools: Registry
    scenarios: Sequence[Scenario]
    packs: Sequence[Pack]


def keep_last_good(loaded: Loaded, before: Before) -> Loaded:
    """What was read, with the last good version of what is broken now; all problems stay told.

    Of a broken file those tools and scenarios are kept that it does not define any more; of a pack whose
    `pack.yaml` or archive is broken everything is, as the pack had it.
    """
    broken = _Broken(loaded.problems, before.packs)
    if not broken:
        return loaded
    tools = [tool for tool in loaded.tools if not broken.pack_of(tool.origin.source)]
    scenarios = [scenario for scenario in loaded.scenarios if not broken.pack_of(scenario.origin.source)]
    names = {tool.name for tool in tools}
    played = {(scenario.origin.source, scenario.name) for scenario in scenarios}
    for card in before.tools.cards.values():
        why = broken.why(card.source, card.pack)
        if why and card.name not in names:
            tools.append(_stale(before.tools[card.name], why))
    for scenario in before.scenarios:
        origin = scenario.origin
        if broken.why(origin.source, origin.pack) and (origin.source, scenario.name) not in played:
            scenarios.append(scenario)
    return replace(
        loaded, tools=tuple(tools), scenarios=tuple(scenarios), packs=(*loaded.packs, *broken.packs)
    )


class _Broken:
    """The files that have errors now or describe nothing any more, and the packs that they take down."""

    def __init__(self, problems: Iterable[Problem], packs: Sequence[Pack]) -> None:
        self._files: dict[str, Problem] = {}
        for problem in problems:
            if problem.severity == "error" or problem.code == "unrecognised_file":
                self._files.setdefault(problem.source, problem)
        self.packs = [pack for pack in packs if self._of(pack.origin.source)]
        self._packs = {pack.name: str(self._of(pack.origin.source)) for pack in self.packs}
        self._folders = tuple(_folder(pack.origin.source) for pack in self.packs)

    def __bool__(self) -> bool:
        return bool(self._files)

    def _of(self, source: str) -> Problem | None:
        """The first error of a file, or of the archive that it lies in; None where the file is gone."""
        archive, packed, _path = source.partition(f"{ARCHIVE}/")
        file = archive + ARCHIVE if packed else source
        problem = self._files.get(source) or (self._files.get(file) if packed else None)
        return problem if problem is not None and os.path.isfile(file) else None  # noqa: PTH113 -- sources are texts

    def pack_of(self, source: str) -> bool:
        """Whether a file lies in a pack that is broken."""
        return source.startswith(self._folders) if self._folders else False

    def why(self, source: str, pack: str) -> str:
        """Why the last good version of what a file held is kept; empty if it is not."""
        problem = self._of(source)
        return self._packs.get(pack, "") if problem is None else str(problem)


def _folder(source: str) -> str:
    """The folder of a pack file, with the slash at its end."""
    return source[: source.rfind("/") + 1] or f".{os.sep}"


def _stale(tool: Descriptor, why: str) -> Descriptor:
    return replace(tool, origin=replace(tool.origin, stale=why.splitlines()[0]))


def compare(before: Registry, after: Registry) -> tuple[ToolEvent, ...]:
    """What changed from one registry to the next, in the order of names."""
    events: list[ToolEvent] = []
    for name in sorted({*before, *after}):
        old, new = before.get(name), after.get(name)
        if old is None and new is not None:
            events.append(ToolAppeared(new))
        elif old is not None and new is None:
            events.append(ToolGone(old))
        elif old is not None and new is not None and not is_same(old, new):
            events.append(ToolChanged(old, new))
    return tuple(events)


def report_of(
    registry: Registry,
    events: Iterable[ToolEvent],
    problems: tuple[Problem, ...],
    files: tuple[str, ...],
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
        files=files,
        duration=duration,
    )
