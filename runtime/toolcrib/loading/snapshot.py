"""The loaded project: the content of files, linked and checked. A runtime is made from it, and the index keeps it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from toolcrib.core.model import JSON, NOTHING, Toolset
from toolcrib.registry.registry import Registry

if TYPE_CHECKING:
    from toolcrib.core.errors import Problem
    from toolcrib.core.server_config import Server
    from toolcrib.loading.fingerprints import FileFingerprints
    from toolcrib.loading.packs import Pack
    from toolcrib.loading.projects import Project
    from toolcrib.loading.scenarios.model import Scenario


class PendingDescriptor(NamedTuple):
    """A descriptor whose schema is not known until its server is asked.

    Attributes:
        server: Name of the server.
        mode: The mode whose block names the server; in another one the descriptor does not wait.
    """

    server: str
    mode: str


Model: TypeAlias = "tuple[str, str, str, Mapping[str, JSON]]"
"""A model that a scenario names: by whom, the document, `file:line`, and its settings."""


class LoadedProject(NamedTuple):
    """Everything that some paths hold, linked and checked, before any profile is applied.

    Attributes:
        registry: The tools under their own modes.
        packs: In order of reading.
        scenarios: Those that fit the tools, in order of reading.
        problems: Everything that is wrong, in order of file and line.
        refused: Name of a tool whose document was refused -> its first problem.
        projects: The project, as far as its file is good; empty outside projects.
        project_file: Its file, as it was named; empty outside projects.
        project_error: The place of the first error of that file; then no tool is offered, because the settings are unknown.
        toolsets: Those of the packs, then those of the project, under the full names of their tools.
        sources: What was read, in order, as it was named.
        ignored: Files that a glob of `ignore` leaves out.
        seen: Fingerprints of the files that were read; None where a change can't be noticed (content from memory).
        servers: The MCP servers, by name.
        lock_file: The lock file of these servers; empty where there are none.
        unlisted: Servers whose tools are imported, and not known yet.
        waiting: Name of a tool -> the server and the mode for which it waits, because the server's schema is not known yet.
        locked: Servers whose tools are known from the lock file alone.
        data: Files of rows whose paths name a variable: the document, the path as it is written, the variable.
        models: Models that scenarios name: by whom, the document, `file:line`, and `provider, base_url, api_key` as written.
        permitted: Those of `data` whose variable is set and was looked up, because somebody has agreed to it.
        withheld: Those of `data` whose variable is set and was not looked up, because nobody has.
        remembered: Name of a server of which only that is known which it answered some time ago -> when.
        refused_scenarios: Name of each scenario that is refused, with its first problem.
        postponed: Scenarios that call tools of `unlisted` servers, so that it is not known yet whether they fit.
        unread: `file:line` of the first error of each file of which nothing could be read.
    """

    registry: Registry
    packs: Sequence[Pack] = ()
    scenarios: Sequence[Scenario] = ()
    problems: tuple[Problem, ...] = ()
    refused: Mapping[str, Problem] = NOTHING
    projects: Sequence[Project] = ()
    project_file: str = ""
    project_error: str = ""
    toolsets: tuple[Toolset, ...] = ()
    sources: tuple[str, ...] = ()
    ignored: tuple[str, ...] = ()
    seen: FileFingerprints | None = None
    servers: Mapping[str, Server] = NOTHING
    lock_file: str = ""
    unlisted: tuple[str, ...] = ()
    waiting: Mapping[str, PendingDescriptor] = NOTHING
    locked: tuple[str, ...] = ()
    data: tuple[tuple[str, str, str], ...] = ()
    models: tuple[Model, ...] = ()
    permitted: tuple[tuple[str, str, str], ...] = ()
    withheld: tuple[tuple[str, str, str], ...] = ()
    remembered: Mapping[str, str] = NOTHING
    refused_scenarios: tuple[tuple[str, Problem], ...] = ()
    postponed: tuple[Scenario, ...] = ()
    unread: tuple[str, ...] = ()

    @property
    def project(self) -> Project | None:
        """The project, as far as its file is good; None outside projects."""
        return next(iter(self.projects), None)


def sorted_problems(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Problems in order of file and line."""
    return tuple(sorted(problems, key=lambda problem: (problem.source, problem.line, problem.column)))


def log_problems(problems: Iterable[Problem]) -> None:
    """Write to the log what is wrong and stops nothing: a notice as information, anything else as a warning."""
    import logging  # noqa: PLC0415 -- a start from the index imports this module, and most starts log nothing

    log = logging.getLogger("toolcrib")
    for problem in problems:
        log.log(logging.INFO if problem.severity == "notice" else logging.WARNING, "%s", problem)
