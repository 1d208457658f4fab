"""What a reader takes from an arena: tools on their way, scenarios, and files of tools that may still have to be read."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import NamedTuple

from toolcrib.core.errors import Problem
from toolcrib.core.model import Origin
from toolcrib.core.protocols import Files
from toolcrib.formats.promptkit.arenas import read_arena, written_tools
from toolcrib.formats.promptkit.foreign_descriptors import normalise
from toolcrib.formats.promptkit.source_nodes import Composed, Node
from toolcrib.loading.builder import Draft, Home
from toolcrib.loading.documents.document import Document, parse_documents
from toolcrib.loading.documents.files import key_of, read_bytes
from toolcrib.loading.scenarios.scenario import Scenario


def once(scenarios: Sequence[Scenario]) -> tuple[list[Scenario], list[Problem]]:
    """The scenarios, each of those that several arenas name once; and what is left out.

    One whose answers are scripted goes before one that a model answers, else the first.
    """
    best: dict[tuple[str, int, str], Scenario] = {}
    for scenario in scenarios:
        key = _key(scenario)
        known = best.get(key)
        if known is None or (_asks_model(known) and not _asks_model(scenario)):
            best[key] = scenario
    kept = [scenario for scenario in scenarios if best[_key(scenario)] is scenario]
    message = "several arenas name this scenario; it runs once"
    hint = "a scenario whose answers are scripted goes before one that a model answers, else the first"
    left = {_key(scenario): scenario for scenario in scenarios if best[_key(scenario)] is not scenario}
    notice = Problem(code="one_provider", message=message, hint=hint, severity="notice")
    return kept, [notice.at(each.origin.source, each.origin.line, 1) for each in left.values()]


def _key(scenario: Scenario) -> tuple[str, int, str]:
    return scenario.origin.source, scenario.origin.line, scenario.name


def _asks_model(scenario: Scenario) -> bool:
    return scenario.agent is not None and scenario.agent.provider != "scripted"


class NamedFile(NamedTuple):
    """A file of tools that an arena names.

    Attributes:
        key: By which a reader knows the file.
        path: The file, relative to the arena's.
        source: The same as a person names it.
        at: Where it is named.
        where: Where the arena lies.
    """

    key: str
    path: str
    source: str
    at: Node
    where: Home

    @property
    def own_key(self) -> str:
        """By which a reader knows the file as one that is named, and not met in a folder."""
        return f"{self.key}#named"

    def read(self) -> tuple[list[Document], list[Problem]]:
        """Its documents, and what is wrong with it."""
        found: list[Problem] = []
        content = read_bytes(Origin(files=self.where.files), self.path, self.at.pointer, found)
        if found:
            return [], [self.at.document.place(problem) for problem in found]
        return parse_documents(self.source, content)


class Joined(NamedTuple):
    """What is taken.

    Attributes:
        drafts: The tools that the arena writes itself.
        scenarios: Its scenarios.
        files: The files of tools that it names.
        problems: Everything else that there is to say of it.
    """

    drafts: Sequence[Draft]
    scenarios: Sequence[Composed]
    files: Sequence[NamedFile]
    problems: list[Problem]


def join_arena(document: Document, where: Home) -> Joined:
    """Read an arena and the files that it names."""
    arena = read_arena(document, where.files)
    drafts, problems = [], list(arena.problems)
    for manifest in arena.tools if where.tools else ():
        documents, told = normalise(manifest, where.files) or ([], [])
        problems += told
        drafts += [Draft(own, where, told, manifest) for own in documents]
    files = [
        NamedFile(key_of(where.files, path), path, source, at, where)
        for path, source, at in (arena.tool_files if where.tools else ())
    ]
    scenarios = [
        each for each in arena.scenarios if where.only in ("", each.source) or _same(each.source, where.only)
    ]
    return Joined(drafts, scenarios, files, problems)


def _same(file: str, other: str) -> bool:
    """Whether two names are of one file."""
    return os.path.realpath(file) == os.path.realpath(other)


def tools_of(document: Document, files: Files | None) -> tuple[list[Document], list[Problem]]:
    """The tools that an arena writes itself, in our form, and what is wrong with them."""
    read = [normalise(manifest, files) or ([], []) for manifest in written_tools(document)]
    return [own for owns, _told in read for own in owns], [each for _owns, told in read for each in told]
