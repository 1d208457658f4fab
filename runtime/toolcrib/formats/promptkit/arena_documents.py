"""An arena in our own form: tools, scenarios, and files of tools that may still have to be read."""

from __future__ import annotations

import os
from collections.abc import Sequence

from toolcrib.core.errors import Problem
from toolcrib.core.protocols import Files
from toolcrib.formats.promptkit import convert_descriptor
from toolcrib.formats.promptkit.arenas import read_arena, written_tools
from toolcrib.formats.promptkit.foreign_descriptors import normalise
from toolcrib.loading.builder import Home
from toolcrib.loading.documents.document import Document
from toolcrib.loading.formats import Conversion, ForeignTool, NamedFile
from toolcrib.loading.scenarios.scenario import Scenario


def without_repeats(scenarios: Sequence[Scenario]) -> tuple[list[Scenario], list[Problem]]:
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


def convert_arena(document: Document, where: Home) -> Conversion:
    """Read an arena and the files that it names."""
    arena = read_arena(document, where.files)
    tools, problems = list[ForeignTool](), list(arena.problems)
    for manifest in arena.tools if where.tools else ():
        converted = convert_descriptor(manifest, where)
        problems += converted.problems
        tools += converted.tools
    files = [
        NamedFile(path, source, at.document, at.pointer, where)
        for path, source, at in (arena.tool_files if where.tools else ())
    ]
    scenarios = [
        each for each in arena.scenarios if where.only in ("", each.source) or _same(each.source, where.only)
    ]
    return Conversion(tools=tools, scenarios=scenarios, files=files, problems=problems)


def _same(file: str, other: str) -> bool:
    """Whether two names are of one file."""
    return os.path.realpath(file) == os.path.realpath(other)


def tools_of(document: Document, files: Files | None) -> tuple[list[Document], list[Problem]]:
    """The tools that an arena writes itself, in our form, and what is wrong with them."""
    read = [normalise(manifest, files) or ([], []) for manifest in written_tools(document)]
    return [own for owns, _told in read for own in owns], [each for _owns, told in read for each in told]
