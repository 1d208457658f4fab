"""The loaded project: files linked and checked. A runtime is created from it, and the index stores it."""

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
    from toolcrib.loading.python_sources import PythonSource
    from toolcrib.loading.scenarios.model import Scenario


class PendingDescriptor(NamedTuple):
    """A descriptor whose schema comes from a server that was not asked yet.

    Attributes:
        server: Name of the server.
        mode: The mode whose block names the server; in other modes the descriptor is complete.
        others: Further servers that must be asked: all that may offer the tool if the block names none, or those that it
            prefers after the first one.
    """

    server: str
    mode: str
    others: tuple[str, ...] = ()


Model: TypeAlias = "tuple[str, str, str, Mapping[str, JSON]]"
"""A model that a scenario names: `scenario NAME`, the document, `file:line`, and its settings."""


class LoadedProject(NamedTuple):
    """The content of some paths, linked and checked, before any profile is applied.

    Attributes:
        registry: The tools in their own modes.
        packs: The packs in load order.
        scenarios: The scenarios that match the tools, in load order.
        problems: All problems, sorted by file and line.
        refused: Name of a tool whose document was rejected -> its first problem.
        projects: The valid parts of the project; empty outside projects.
        project_file: The project file, as the user named it; empty outside projects.
        project_error: The place of the first error of that file; no tool is offered then, because settings are unknown.
        toolsets: Those of the packs, then those of the project, with the full names of their tools.
        sources: The sources in load order, as the user named them.
        ignored: Files that a glob of `ignore` excludes.
        seen: Fingerprints of the files that were read; None if changes cannot be detected (content from memory).
        servers: The MCP servers, by name.
        lock_file: The lock file of these servers; empty if there are none.
        unlisted: Servers whose imported tools are not known yet.
        waiting: Name of a tool -> the server and the mode for which it waits, because the server's schema is not known yet.
        unbound: Name of a tool whose block names no server -> why none could be chosen.
        locked: Servers whose tools are known from the lock file only.
        data: Row files whose paths name a variable: the document, the path as written, the variable.
        models: Models that scenarios name: `scenario NAME`, the document, `file:line`, and `provider, base_url, api_key` as
            written.
        permitted: Those of `data` whose variable is set and was looked up, because the workspace is trusted.
        withheld: Those of `data` whose variable is set but was not looked up, because the workspace is not trusted.
        remembered: Name of a server that did not answer -> time of its cached answer.
        refused_scenarios: Name of each rejected scenario, with its first problem.
        postponed: Scenarios that call tools of `unlisted` servers and cannot be checked yet.
        unread: `file:line` of the first error of each file that is unreadable as a whole.
        unprovided: Scenarios that only run with a provider from the command line.
        of_providers: The problems that have no effect if the agents get such a provider.
        python: The Python sources, in load order.
        unimported: Those of them whose tools are not known.
        recalled: Name of a Python source whose tools are known from the cache only -> time of their import, and whether
            its files have changed since.
        owners: Name of a tool from a Python source -> that source.
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
    unbound: Mapping[str, Problem] = NOTHING
    locked: tuple[str, ...] = ()
    data: tuple[tuple[str, str, str], ...] = ()
    models: tuple[Model, ...] = ()
    permitted: tuple[tuple[str, str, str], ...] = ()
    withheld: tuple[tuple[str, str, str], ...] = ()
    remembered: Mapping[str, str] = NOTHING
    refused_scenarios: tuple[tuple[str, Problem], ...] = ()
    postponed: tuple[Scenario, ...] = ()
    unread: tuple[str, ...] = ()
    unprovided: tuple[Scenario, ...] = ()
    of_providers: tuple[Problem, ...] = ()
    python: tuple[PythonSource, ...] = ()
    unimported: tuple[PythonSource, ...] = ()
    recalled: Mapping[str, tuple[str, bool]] = NOTHING
    owners: Mapping[str, PythonSource] = NOTHING

    @property
    def project(self) -> Project | None:
        """The valid parts of the project; None outside projects."""
        return next(iter(self.projects), None)


def sorted_problems(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Problems in order of file and line, each with those that follow from it; what most others follow from comes first."""
    # `sorted` is stable, so problems at one position keep the order in which the checks found them.
    ordered = sorted(problems, key=lambda problem: (problem.source, problem.line, problem.column))
    causes = {_place(problem): problem.cause for problem in ordered if problem.cause}
    if not causes:
        return tuple(ordered)
    own = {_place(problem) for problem in ordered if not problem.cause}
    following: dict[str, list[Problem]] = {}
    first = []
    for problem in ordered:
        cause, passed = problem.cause, set[str]()
        while cause not in own and cause in causes and cause not in passed:
            passed.add(cause)
            cause = causes[cause]
        if problem.cause and cause in own:
            following.setdefault(cause, []).append(problem)
        else:
            first.append(problem)
    first.sort(key=lambda problem: -len(following.get(_place(problem), ())))
    return tuple(each for problem in first for each in (problem, *following.pop(_place(problem), ())))


def _place(problem: Problem) -> str:
    return f"{problem.source}:{problem.line}"


def log_problems(problems: Iterable[Problem]) -> None:
    """Log problems that do not stop loading: notices at INFO, all others at WARNING."""
    # Deferred: `logging` is slow to import, and most starts log nothing.
    import logging  # noqa: PLC0415

    log = logging.getLogger("toolcrib")
    for problem in problems:
        log.log(logging.INFO if problem.severity == "notice" else logging.WARNING, "%s", problem)
