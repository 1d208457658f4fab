"""Open a project: find its file and sources, read them, link the documents and check the settings."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from toolcrib.core.errors import ConfigurationError, Problem, did_you_mean
from toolcrib.core.model import NO_FIXTURE, NOTHING, Fixture, Origin, Toolset
from toolcrib.core.pointers import file_and_line, pointer_step
from toolcrib.core.protocols import Kinds
from toolcrib.core.server_config import LOCK_FILE, Catalogue, Server, listed_agents
from toolcrib.engine.discovery import DiscoveredTools, is_of_unlisted, server_of, with_servers
from toolcrib.engine.startup import known_modes
from toolcrib.engine.workspaces import models_of
from toolcrib.loading.access import check_rules
from toolcrib.loading.budgets import check_arguments
from toolcrib.loading.document_checks import DocumentChecker
from toolcrib.loading.documents.document import read_documents
from toolcrib.loading.fingerprints import FileTracker, Permits
from toolcrib.loading.format_contract import formats_of
from toolcrib.loading.packs import Pack, check_requirements
from toolcrib.loading.project_discovery import PROJECT_FILES
from toolcrib.loading.projects import (
    Project,
    SourceEntry,
    candidate_folders,
    other_project_files,
    parse_project_file,
    project_file,
    second_project_file,
    unknown_name_problem,
)
from toolcrib.loading.python_sources import ModuleTools, PythonSource, module_of
from toolcrib.loading.reader import LoadedDocuments
from toolcrib.loading.reload import ALSO_BROKEN, PreviousLoad, keep_last_good
from toolcrib.loading.scenarios.model import NO_PROVIDER, Scenario
from toolcrib.loading.scenarios.scenario_links import check_links, tools_of, with_namespace
from toolcrib.loading.snapshot import LoadedProject, sorted_problems
from toolcrib.loading.sources import SourcePath, files_beside, load, parse, real_path
from toolcrib.loading.tool_requirements import settle_capabilities
from toolcrib.registry.catalog import Card, idle_globs, idle_toolset_globs
from toolcrib.registry.names import full_name
from toolcrib.registry.registry import Registry, without_duplicates
from toolcrib.security.tool_policy import allows

if TYPE_CHECKING:
    from toolcrib.core.model import Descriptor
    from toolcrib.loading.pack_integrity import LockedPacks

DEFAULT_PATHS = ("descriptors", "packs")
"""Folders to read if no path is given and no project is found; missing ones are skipped."""

ATTEMPTS = 3
"""Maximum number of readings in a reload while files keep changing. A file that moves into a folder that was
already listed would be missed by a single reading."""


def open_project(
    paths: Sequence[str],
    also: Sequence[str],
    kinds: Kinds,
    before: LoadedProject | None = None,
    *,
    servers: Mapping[str, Server] = NOTHING,
    offered: Mapping[str, Catalogue] = NOTHING,
    modules: Sequence[str] = (),
    imported: Mapping[PythonSource, ModuleTools] | None = None,
    permits: Permits | None = None,
    remembers: bool = False,
) -> LoadedProject:
    """Read everything in some paths and link it.

    Args:
        paths: Folders, packs, files, projects, or files that name MCP servers. Default: the project that
            contains the working directory; without a project, its folders `descriptors` and `packs`.
        also: Further paths to read in any case.
        kinds: The block schemas and checks of the modes.
        before: The active project of a reload; broken documents keep their last good version.
        servers: MCP servers in addition to those in files.
        offered: Maps the name of a server to its current tools, if it was listed. Overrides the lock file.
        modules: Python sources in addition to those in files.
        imported: The tools of the Python sources that were imported.
        permits: Decides whether the path of a file of rows may use an environment variable (default: always).
        remembers: Whether cached tool lists may be used for servers that are neither listed nor locked, and cached
            definitions for Python sources that are not imported.

    Raises:
        ConfigurationError: Two of the paths are projects.
    """
    # Only a reload reads again: at the first start, no earlier version exists that a missed file could
    # replace.
    for _ in range(1 if before is None else ATTEMPTS):
        trail = FileTracker(permits=permits)
        chosen = _SourceSelection(kinds, trail, before)
        chosen.add(paths, also, needed=not modules)
        chosen.servers.update(servers)
        chosen.add_modules(modules)
        fixture = chosen.project.fixture if chosen.project is not None else NO_FIXTURE
        locked = chosen.locked_packs()
        loaded = load(chosen.sources, kinds, trail, fixture=fixture, stored=chosen.stored, locked=locked)
        brought = _with_servers(loaded, chosen, offered, remembers=remembers)
        found = _module_tools(chosen, imported or {}, remembers=remembers)
        loaded, owners = _with_modules(brought.loaded, found, fixture)
        if before is None or trail.closed().unchanged():
            break
    loaded = replace(loaded, problems=(*chosen.problems, *loaded.problems))
    if before is not None:
        loaded = keep_last_good(loaded, PreviousLoad(before.registry, before.scenarios, before.packs))
    return link_all(
        loaded,
        kinds,
        LoadedProject(
            Registry(),
            projects=() if chosen.project is None else (chosen.project,),
            project_file=chosen.file,
            project_error=chosen.error,
            sources=tuple(source.path for source in chosen.sources),
            seen=trail.closed(),
            data=tuple(trail.data),
            permitted=tuple(trail.permitted),
            withheld=tuple(trail.withheld),
            servers=MappingProxyType(chosen.servers),
            lock_file=chosen.lock_file if chosen.servers else "",
            unlisted=brought.unlisted,
            waiting=brought.waiting,
            unbound=brought.unbound,
            locked=brought.locked,
            remembered=brought.remembered,
            python=tuple(chosen.python),
            unimported=tuple(source for source in chosen.python if source not in found),
            recalled={
                source.name: (tools.when, tools.changed) for source, tools in found.items() if tools.when
            },
            owners=owners,
        ),
        installed=() if locked is None else locked.names,
    )


def _module_tools(
    chosen: _SourceSelection, imported: Mapping[PythonSource, ModuleTools], *, remembers: bool
) -> dict[PythonSource, ModuleTools]:
    """The tools of the Python sources, as far as they are known."""
    found = {source: imported[source] for source in chosen.python if source in imported}
    for source in chosen.python if remembers else ():
        if source not in found:
            from toolcrib.loading.cache.definitions import load_definitions  # noqa: PLC0415 -- few projects have any

            known = load_definitions(source.module, source.root)
            if known is not None:
                read = [
                    parse(file, dict(document), chosen.kinds, line=line)
                    for document, file, line in known.tools
                ]
                tools = tuple(tool for each in read for tool in each.tools)
                found[source] = ModuleTools(tools, (), known.when, known.changed)
    return found


def _with_modules(
    loaded: LoadedDocuments, found: Mapping[PythonSource, ModuleTools], fixture: Fixture
) -> tuple[LoadedDocuments, dict[str, PythonSource]]:
    """Add the tools of Python sources. They have the fixture of the project, as its own tools outside packs have it."""
    own = {tool.name for tool in loaded.tools}
    tools, owners = [*loaded.tools], dict[str, PythonSource]()
    for source, (brought, _problems, _when, _changed) in found.items():
        for tool in brought:
            origin = tool.origin._replace(namespace=source.namespace)
            name = full_name(source.namespace, tool.name)
            tools.append(tool._replace(name=name, fixture=fixture, origin=origin))
            if name not in own:
                owners.setdefault(name, source)
    problems = [problem for each in found.values() for problem in each.problems]
    return replace(loaded, tools=tuple(tools), problems=(*loaded.problems, *problems)), owners


def _with_servers(
    loaded: LoadedDocuments, chosen: _SourceSelection, offered: Mapping[str, Catalogue], *, remembers: bool
) -> DiscoveredTools:
    """Add the tools of the servers, from their answers, the lock file or the cache."""
    chosen.add_servers(loaded)
    if not chosen.servers:
        return DiscoveredTools(loaded)
    from toolcrib.servers.lock import read_lock  # noqa: PLC0415 -- few projects have servers

    chosen.trail.file(chosen.lock_file)
    lock, problems = read_lock(chosen.lock_file)
    loaded = replace(loaded, problems=(*loaded.problems, *problems))
    chosen.servers |= listed_agents(chosen.servers, offered)
    known = {**lock.known(chosen.servers), **offered}
    when: dict[str, str] = {}
    if remembers:
        from toolcrib.servers.tool_list_cache import load_tool_lists  # noqa: PLC0415 -- as above

        asked = chosen.servers
        # Once more for the agents of cached directories.
        while asked:
            before = load_tool_lists(server for name, server in asked.items() if name not in known)
            known, when = {**before.offered, **known}, {**when, **before.when}
            asked = listed_agents(chosen.servers, known)
            chosen.servers |= asked
    brought = _keeping(with_servers(loaded, chosen.servers, known, chosen.kinds), chosen)
    locked = tuple(name for name in known if name not in offered)
    return brought._replace(locked=locked, remembered=when)


def _keeping(brought: DiscoveredTools, chosen: _SourceSelection) -> DiscoveredTools:
    """Give imported tools the fixture of the project, as its own tools outside packs have it."""
    project = chosen.project
    if project is None or project.fixture is NO_FIXTURE:
        return brought
    tools = tuple(
        tool if tool.origin.pack else tool._replace(fixture=project.fixture) for tool in brought.loaded.tools
    )
    return brought._replace(loaded=replace(brought.loaded, tools=tools))


class _SourceSelection:
    """The sources to read, from the paths and the project."""

    def __init__(self, kinds: Kinds, trail: FileTracker, before: LoadedProject | None) -> None:
        self.kinds = kinds
        self.trail = trail
        self._before = before if before is not None and not before.project_error else None
        self.project: Project | None = None
        self.file = ""
        self.error = ""
        self.sources: list[SourcePath] = []
        self.problems: list[Problem] = []
        self.servers: dict[str, Server] = {}
        self.python: list[PythonSource] = []
        self.stored: set[str] = set()
        self._beside = ""
        self._found = False

    @property
    def lock_file(self) -> str:
        """Path of the lock file, next to the project file or the file that names the servers."""
        return os.path.join(
            os.path.dirname(self.file or self._beside),
            LOCK_FILE,
        )

    def locked_packs(self) -> LockedPacks | None:
        """The packs in the lock of the project; None for none. A lock with errors is reported."""
        # Without a project, a file of this name belongs to the paths only if they were found beside it.
        if not (self.file or self._found):
            return None
        path = os.path.join(os.path.dirname(self.file), LOCK_FILE)
        self.trail.file(path)
        if not os.path.lexists(path):
            return None
        from toolcrib.loading.pack_integrity import LockedPacks  # noqa: PLC0415 -- few projects have a lock
        from toolcrib.security.trust_decisions import default_store  # noqa: PLC0415 -- as above
        from toolcrib.servers.lock import read_lock  # noqa: PLC0415 -- as above

        lock, problems = read_lock(path)
        self.problems += problems
        if not lock.packs:
            return None
        store = default_store()
        if store.folder:
            # A publisher that the user trusts or revokes counts at once.
            self.trail.file(store.folder)
            self.trail.folder(store.folder, inner=False)
        return LockedPacks(path, lock.packs, store)

    def add(self, paths: Sequence[str], also: Sequence[str], *, needed: bool = True) -> None:
        """Add the paths, or what is found without paths, then the further paths, without duplicates.

        Args:
            paths: The paths.
            also: The further paths.
            needed: Whether it is an error if nothing is found and there are no further paths.
        """
        self._found = not paths
        if not paths:
            self._add_found(needed=needed and not also)
        for path in (*paths, *also):
            if self._add_servers_of(path):
                continue
            file = self._project_at(path)
            if file is None or not self._add_project(file):
                self.sources.append(SourcePath(path))
        self.sources = _without_doubles(self.sources, self.trail)

    def add_modules(self, modules: Iterable[str]) -> None:
        """Add Python sources that no file names."""
        for name in modules:
            if not any(source.name == name for source in self.python):
                self._add_module(
                    name, root=os.path.dirname(self.file) or ".", file=self.file or ".", place=""
                )

    def _add_module(self, name: str, *, root: str, file: str, place: str, namespace: str = "") -> None:
        module, problem = module_of(name)
        if problem is not None:
            self.problems.append(_at(problem, place))
        else:
            self.python.append(PythonSource(name, module, root, file, place, namespace))

    def _add_servers_of(self, path: str) -> bool:
        """Add the servers of a file that names MCP servers; False if the path is not such a file."""
        if not path.endswith(".json"):
            return False
        from toolcrib.loading.servers import (  # noqa: PLC0415 -- few paths name servers
            is_servers_file,
            read_servers_file,
        )

        self.trail.file(path)
        formats = formats_of(self.kinds)
        if not is_servers_file(path, formats):
            return False
        self._beside = self._beside or path
        servers, problems = read_servers_file(path, formats)
        self.servers.update(servers)
        self.problems += problems
        return True

    def add_servers(self, loaded: LoadedDocuments) -> None:
        """Add the servers that foreign documents configure; those of the project and of the program come first."""
        self.servers = {**self._last_servers(loaded), **self.servers}
        if not loaded.servers:
            return
        from toolcrib.loading.servers import merge_servers, parse_servers  # noqa: PLC0415 -- few documents have servers

        blocks, duplicates = merge_servers(loaded.servers)
        first = next(iter(blocks.values())).spot().source
        servers, problems = parse_servers({}, below=blocks)
        self._beside = self._beside or first
        self.problems += (*duplicates, *map(_without_variables, problems))
        self.servers = {**servers, **self.servers}

    def _last_servers(self, loaded: LoadedDocuments) -> Mapping[str, Server]:
        """The servers that documents with errors configured before a reload: their tools stay active as well."""
        if self._before is None or not self._before.servers:
            return NOTHING
        broken = {
            problem.source
            for problem in loaded.problems
            if problem.severity == "error" or problem.code in ALSO_BROKEN
        }
        before = self._before.servers.items()
        return {name: server for name, server in before if file_and_line(server.place())[0] in broken}

    def _add_found(self, *, needed: bool) -> None:
        for folder in _places_to_look():
            file = self._project_at(folder)
            if file is not None:
                if self._add_project(file):
                    return
                break
        there = [path for path in DEFAULT_PATHS if self._is_there(path)]
        self.sources += [SourcePath(path) for path in there or DEFAULT_PATHS[: 1 if needed else 0]]

    def _is_there(self, path: str) -> bool:
        if not (os.path.isdir(path) or _is_barred(path)):
            self.trail.file(path)
        # Check again: the folder may have been created just before its absence was recorded.
        return os.path.isdir(path) or _is_barred(path)

    def _is_absent(self, path: str) -> bool:
        if not (os.path.exists(path) or _is_barred(path)):
            self.trail.file(path)
        return not (os.path.exists(path) or _is_barred(path))  # again, as in `_is_there`

    def _project_at(self, path: str) -> str | None:
        """The project file that a path names or that its folder contains, if any."""
        if os.path.basename(path) in PROJECT_FILES:
            self.trail.file(path)
            if os.path.isfile(path) or self._was_it(path):
                return path
        files = [os.path.normpath(os.path.join(path, name)) for name in PROJECT_FILES]
        for file in files:
            self.trail.file(file)
        return project_file(path) or next(filter(self._was_it, files), None)

    def _was_it(self, file: str) -> bool:
        """Whether this was the project file before and is now unreadable, so that it may still exist."""
        return self._before is not None and file == self._before.project_file and _is_barred(file)

    def _add_project(self, file: str) -> bool:
        """Add a project; False if it cannot be used, such as a new project that is broken or vanished."""
        if self.file:
            message = f"`{self.file}` and `{file}` are both projects, but only one can be active"
            raise ConfigurationError(message, hint="pass one of them, and the folders of the other")
        self.file = file
        for name in PROJECT_FILES:
            self.trail.file(Path(file).with_name(name))
        self.trail.file(file)
        shape = DocumentChecker("project", self.kinds)
        files = files_beside(file, self.stored, self.trail)
        documents = read_documents(Path(file), file)
        project, problems = parse_project_file(
            file, *documents, shape, self.trail.anything, files=files, formats=formats_of(self.kinds)
        )
        problems += [second_project_file(other, file) for other in other_project_files(file)]
        self.problems += (*problems, *project.faults)
        errors = [problem for problem in problems if problem.severity == "error"]
        own = next((problem for problem in errors if problem.source == file), None)
        vanished = any(problem.code == "file_vanished" for problem in problems)
        found: Project | None = project
        # A reload keeps the last good project. Without one, none is used: the tools would run without its
        # `disable` list and egress rules.
        if (errors or vanished) and self._before is not None:
            found = self._before.project
        elif vanished:
            found, self.file = None, ""
        elif own is not None:
            self.error = f"{own.source}:{own.line}"
        if found is None:
            return False
        self.project = found
        self.servers.update(found.servers)
        for entry in found.sources:
            self._add_entry(entry, found)
        return True

    def _add_entry(self, entry: SourceEntry, project: Project) -> None:
        root, ignore = project.root, project.ignore
        path = os.path.normpath(os.path.join(root, entry.path))
        if entry.pack:
            from toolcrib.loading.packs import find_installed  # noqa: PLC0415 -- few projects need it

            installed, problems = find_installed(entry.pack, entry.version)
            self.problems += [_at(problem, entry.place) for problem in problems]
            if installed is not None:
                self.sources.append(SourcePath(str(installed), entry.namespace))
        elif entry.python:
            file = self.file
            self._add_module(entry.python, root=root, file=file, place=entry.place, namespace=entry.namespace)
        elif not self._is_absent(path):
            self.sources.append(SourcePath(path, entry.namespace, ignore, root))
        elif not entry.optional:
            self.problems.append(_missing(path, entry))


def _without_doubles(sources: Sequence[SourcePath], trail: FileTracker) -> list[SourcePath]:
    """Remove sources that another source contains."""
    # A link may lead elsewhere later, so a removed one is still tracked.
    kept: dict[Path, SourcePath] = {}
    for source in sources:
        kept.setdefault(real_path(source.path), source)
    left = [source for place, source in kept.items() if not any(_holds(other, place) for other in kept)]
    for source in sources:
        if source not in left and _is_linked(source.path):
            trail.file(source.path)
    return left


def _is_linked(path: str) -> bool:
    """Whether a path leads through a symbolic link."""
    return str(real_path(path)) != os.path.normpath(os.path.join(real_path("."), path))


def _is_barred(path: str) -> bool:
    """Whether a path cannot be inspected, such as without permission."""
    # Such a path counts as existing: a folder whose permissions change for a moment must not lose its tools.
    try:
        os.stat(path)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return False
    except OSError:
        return True
    return False


def _places_to_look() -> list[str]:
    """Folders to search for a project; none if the working directory was removed."""
    try:
        return list(candidate_folders("."))
    except FileNotFoundError:
        return []


def _holds(folder: Path, place: Path) -> bool:
    """Whether reading a folder also reads a path inside it; hidden folders are skipped."""
    if folder == place or not place.is_relative_to(folder):
        return False
    return not any(part.startswith(".") for part in place.relative_to(folder).parts)


def _without_variables(problem: Problem) -> Problem:
    """The problem of a server in a foreign document, in which `${VAR}` is literal."""
    if problem.code != "literal_secret":
        return problem
    return problem._replace(hint="configure the server in `toolcrib.yaml`, where `${VAR}` is looked up")


def _missing(path: str, entry: SourceEntry) -> Problem:
    message = f"`{path}` does not exist"
    hint = "source paths are relative to the project folder"
    return _at(Problem(code="path_not_found", message=message, hint=hint), entry.place)


def _at(problem: Problem, place: str) -> Problem:
    return problem.at(*file_and_line(place), 1)


def link_all(
    loaded: LoadedDocuments,
    kinds: Kinds,
    stock: LoadedProject | None = None,
    *,
    installed: Collection[str] = (),
) -> LoadedProject:
    """Link loaded documents; refuse duplicate tools (the first one wins) and invalid scenarios.

    Args:
        loaded: The loaded documents.
        kinds: The block schemas and checks of the modes.
        stock: Base for the result; its registry, scenarios and problems are replaced.
        installed: Names of the packs in the lock.
    """
    unlisted = stock.unlisted if stock is not None else ()
    unimported = stock is not None and bool(stock.unimported)
    tools, duplicates = without_duplicates(loaded.tools)
    servers = stock.servers if stock is not None else NOTHING
    tools, undeclared = settle_capabilities(tools, kinds, servers)
    tools, unneeded = refuse_undeclared(tools, loaded.packs, kinds, installed)
    loaded = replace(loaded, refused={**loaded.refused, **unneeded})
    registry = Registry(tools)
    problems = [
        *loaded.problems,
        *duplicates,
        *undeclared,
        *unneeded.values(),
        *check_requirements(loaded.packs, loaded.refused_packs),
        *_duplicate_scenarios(loaded.scenarios),
    ]
    scenarios, postponed, unprovided = [], [], []
    refused = [
        *((scenario.name, problem) for scenario, problem in loaded.refused_scenarios),
        *loaded.hindered_scenarios,
    ]
    for scenario in loaded.scenarios:
        full = with_namespace(scenario, registry.cards)
        if unlisted and _awaits_servers(full, registry, unlisted):
            postponed.append(full)  # its tools may exist once the servers are listed
            continue
        faults = check_links(full, registry, kinds, loaded.refused, loaded.unread)
        if full.agent is not None:
            from toolcrib.loading.scenarios.agent_checks import check_prompt  # noqa: PLC0415 -- most scenarios have none

            faults += check_prompt(full, loaded.packs)
        if unimported and any(fault.code == "unknown_tool" for fault in faults):
            postponed.append(full)  # its tools may exist once the modules are imported
            continue
        problems += faults
        error = next((fault for fault in faults if fault.severity == "error"), None)
        if error is not None:
            refused.append((full.name, error))
        elif full.agent is not None and full.agent.provider == NO_PROVIDER:
            unprovided.append(full)
        else:
            scenarios.append(full)
    for scenario, _problem in loaded.refused_scenarios:
        problems += check_links(
            with_namespace(scenario, registry.cards), registry, kinds, loaded.refused, loaded.unread
        )
    stock = (stock or LoadedProject(registry))._replace(
        registry=registry,
        packs=loaded.packs,
        scenarios=tuple(scenarios),
        problems=sorted_problems(problems),
        refused=loaded.refused,
        ignored=loaded.ignored,
        refused_scenarios=tuple(refused),
        postponed=tuple(postponed),
        unprovided=tuple(unprovided),
        of_providers=loaded.of_providers,
        unread=loaded.unread,
        models=tuple(model for scenario in loaded.scenarios for model in models_of(scenario)),
    )
    stock = stock._replace(toolsets=_toolsets(stock))
    # Documents that extend others share parts; report a problem in a shared part only once.
    return stock._replace(problems=sorted_problems(dict.fromkeys((*problems, *check_settings(stock, kinds)))))


def _duplicate_scenarios(scenarios: Iterable[Scenario]) -> Iterator[Problem]:
    """Yield a warning for each scenario that has the name of an earlier one of its pack, or outside packs."""
    names: dict[tuple[str, str], Origin] = {}
    for scenario in scenarios:
        origin = scenario.origin
        first = names.setdefault((origin.pack, scenario.name), origin)
        # Several arenas may run the same scenario.
        if (first.source, first.line) != (origin.source, origin.line):
            yield Problem(
                code="duplicate_scenario",
                message=f"another scenario is called `{scenario.name}` too ({first.place()})",
                hint="rename one of them: `toolcrib run NAME` runs both",
                severity="warning",
            ).at(origin.source, origin.line, 1)


def _awaits_servers(scenario: Scenario, registry: Registry, unlisted: Collection[str]) -> bool:
    """Whether a scenario can only be checked against the tools of servers that are not listed yet."""

    def awaited(name: str) -> bool:
        return name not in registry and server_of(name, unlisted) is not None

    if any(map(awaited, tools_of(scenario))):
        return True
    if scenario.agent is None:
        return False
    policy = scenario.agent.policy
    if policy.tool_choice != "required" or any(allows(policy, tool) for tool in registry.cards):
        return awaited(policy.tool_choice)
    return any(is_of_unlisted(glob, unlisted) for glob in policy.allow)


def refuse_undeclared(
    tools: Iterable[Descriptor], packs: Iterable[Pack], kinds: Kinds, installed: Collection[str] = ()
) -> tuple[list[Descriptor], dict[str, Problem]]:
    """Refuse the tools of packs that need what their pack does not declare.

    A pack declares nothing, or everything that its tools use; an installed one everything. What an override adds belongs
    to its project.

    Args:
        tools: All tools.
        packs: All packs.
        kinds: The modes.
        installed: Names of the packs in the lock.

    Returns:
        The other tools; and name of a refused tool -> its problem.
    """
    declaring = {
        pack.name: pack
        for pack in packs
        if pack.name in installed or not {*_DECLARING}.isdisjoint(pack.requires)
    }
    kept: list[Descriptor] = []
    refused: dict[str, Problem] = {}
    for tool in tools:
        pack = declaring.get(tool.origin.pack)
        problem = None if pack is None or tool.origin.overrides else _undeclared(tool, pack, kinds)
        if problem is None:
            kept.append(tool)
        else:
            refused[tool.name] = problem
    return kept, refused


_DECLARING = ("commands", "environment", "files", "hosts", "keyring", "network", "paths", "python")
"""Keys of `requires` that declare what tools use."""


def _undeclared(tool: Descriptor, pack: Pack, kinds: Kinds) -> Problem | None:
    from toolcrib.security.trust import Workspace, declaration_hint, describe_need  # noqa: PLC0415 -- as above
    from toolcrib.security.trust_needs import merge_needs, undeclared_entries  # noqa: PLC0415 -- as above

    root = os.path.realpath(os.path.dirname(pack.origin.source))
    workspace = Workspace(root, "pack", pack.name)
    for mode in tool.bindings:
        needs = merge_needs(kinds.needs_of(mode, tool, workspace))
        lacking = [each for each in needs if undeclared_entries(each, pack.requires)]
        if lacking:
            pointer, place = f"/{mode}", pack.origin.place("/requires")
            listed = ", ".join(dict.fromkeys(map(describe_need, lacking)))
            message = f"`{tool.name}` would {listed}, which `requires` of the pack `{pack.name}` does not declare ({place})"
            hint = declaration_hint(lacking, pack.requires)
            problem = Problem(code="undeclared_need", message=message, pointer=pointer, hint=hint)
            return problem.at(tool.origin.file_of(pointer), *tool.origin.locate(pointer))
    return None


def check_settings(stock: LoadedProject, kinds: Kinds) -> list[Problem]:
    """Check the settings of a project, its profiles and the toolsets against the tools.

    All profiles are checked, including inactive ones, so that errors appear before a profile is used.
    """
    cards = stock.registry.cards

    def settled(globs: Iterable[str]) -> list[str]:
        """The globs that cannot match a tool of a server or module that is not known yet."""
        known = not stock.unimported
        return [glob for glob in globs if known and not is_of_unlisted(glob, stock.unlisted)]

    toolsets_now = [each._replace(tools=tuple(settled(each.tools))) for each in stock.toolsets]
    problems = idle_toolset_globs(cards, toolsets_now)
    for origin, pointer, what, glob in _globs_of_prompts(stock.packs):
        for idle in idle_globs(cards, settled([glob]), of=what):
            problems.append(_placed(idle._replace(pointer=pointer), origin))
    project = stock.project
    if project is None:
        return problems
    place = project.origin.place
    for pointer, what, glob in _globs_of_project(project):
        problems += idle_globs(cards, settled([glob]), of=what, place=place(pointer))
    problems += _check_amounts(project, stock.registry)
    problems += _check_access_rules(project, stock, settled)
    if project.limit_rules or any(profile.limit_rules for profile in project.profiles.values()):
        from toolcrib.loading.limit_rules import idle_limit_rules  # noqa: PLC0415 -- few projects have such rules
        from toolcrib.loading.projects import settings_of  # noqa: PLC0415 -- as above

        found = [
            settings_of(project, name).limit_rules for name in ("", *project.profiles) if not project.broken
        ]
        # A rule that a profile inherits is reported once.
        rules = {rule["at"]: {name: rule} for each in found for name, rule in each.items()}
        for one in rules.values():
            problems += idle_limit_rules(one, stock.registry, settled)
    toolsets = {toolset.name for toolset in stock.toolsets}
    known = known_modes(stock.registry, kinds)
    for name, profile in project.profiles.items():
        base = f"/profiles/{pointer_step(name)}"
        told = [] if not profile.toolset or profile.toolset in toolsets else [profile.toolset]
        faults = [
            unknown_name_problem("toolset", toolset, sorted(toolsets), f"{base}/toolset") for toolset in told
        ]
        for glob, mode in profile.modes.items():
            pointer = f"{base}/modes/{pointer_step(glob)}"
            faults += _faults_of_mode(cards, glob, mode, known, pointer)
            problems += idle_globs(cards, settled([glob]), of="`modes`", place=place(pointer))
        problems += [
            fault.at(project.origin.source, *project.origin.locate(fault.pointer)) for fault in faults
        ]
    return problems


def _check_access_rules(
    project: Project, stock: LoadedProject, settled: Callable[[Iterable[str]], list[str]]
) -> Iterator[Problem]:
    """Yield a warning for each access rule without effect, in the project and in each profile."""
    # An unknown capability, which is an error, would be reported again as a rule that matches no tool.
    if project.broken:
        return

    def is_settled(glob: str) -> bool:
        return settled([glob]) == [glob]

    registry, rules = stock.registry, project.access.rules
    yield from check_rules((), rules, registry, is_settled)
    for name, profile in project.profiles.items():
        *extended, _own = project.lineage(name) or [profile]
        inherited = [*rules, *(rule for part in extended for rule in part.access.rules)]
        yield from check_rules(inherited, profile.access.rules, registry, is_settled)


def _check_amounts(project: Project, registry: Registry) -> Iterator[Problem]:
    """Yield a warning for each budget whose amount some of its tools cannot have."""
    if project.broken:
        return
    for pointer, name, budget in _budgets_of(project):
        problem = check_arguments(name, budget, registry)
        if problem is not None:
            at = pointer + problem.pointer
            yield problem._replace(pointer=at).at(project.origin.source, *project.origin.locate(at))


def _budgets_of(project: Project) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield the budgets of a project and its profiles: pointer, name, budget."""
    owners: list[tuple[str, Mapping[str, Any]]] = [("", project.budgets)]
    owners += [
        (f"/profiles/{pointer_step(name)}", profile.budgets) for name, profile in project.profiles.items()
    ]
    for base, budgets in owners:
        for name, budget in budgets.items():
            # Else it is `off`.
            if isinstance(budget, dict):
                yield f"{base}/budgets/{pointer_step(name)}", name, budget


def _globs_of_project(project: Project) -> Iterator[tuple[str, str, str]]:
    """Yield the tool globs of switches and budgets, in a project and its profiles: pointer, subject, glob."""
    lists: list[tuple[str, str, Sequence[str]]] = [("/disable", "`disable`", project.disable)]
    for name, profile in project.profiles.items():
        base = f"/profiles/{pointer_step(name)}"
        lists += [(f"{base}/disable", "`disable`", profile.disable)]
        lists += [(f"{base}/enable", "`enable`", profile.enable)]
    lists += [
        (f"{pointer}/tools", f"the budget `{name}`", budget["tools"])
        for pointer, name, budget in _budgets_of(project)
    ]
    for pointer, what, globs in lists:
        yield from ((f"{pointer}/{index}", what, glob) for index, glob in enumerate(globs))


def _placed(problem: Problem, origin: Origin) -> Problem:
    from toolcrib.loading.cache.document_codec import document_of_origin  # noqa: PLC0415 -- few packs have such problems

    return document_of_origin(origin).place(problem)


def _globs_of_prompts(packs: Iterable[Pack]) -> Iterator[tuple[Origin, str, str, str]]:
    """Yield the tool globs in prompts: origin of the pack, pointer, subject, glob."""
    for pack in packs:
        for prompt in pack.prompts.values():
            for pointer, what, glob in prompt.within(pack.namespace).named_globs:
                yield pack.origin, pointer, what, glob


def _faults_of_mode(
    cards: Mapping[str, Card], glob: str, mode: str, known: Collection[str], pointer: str
) -> Iterator[Problem]:
    if mode not in known:
        hint = did_you_mean(mode, known) or f"known modes: {', '.join(f'`{each}`' for each in sorted(known))}"
        yield Problem(code="unknown_mode", message=f"unknown mode `{mode}`", pointer=pointer, hint=hint)
    elif glob in cards and mode not in cards[glob].modes:
        message = f"`{glob}` has no `{mode}:` block, so it cannot be called under this profile"
        there = ", ".join(f"`{each}`" for each in cards[glob].modes) or "none"
        yield Problem(
            code="binding_missing",
            message=message,
            pointer=pointer,
            hint=f"its modes are: {there}",
            severity="warning",
        )


def _toolsets(stock: LoadedProject) -> tuple[Toolset, ...]:
    """The toolsets of the packs, then those of the project, with the full names of their tools."""
    packs = [toolset for pack in stock.packs for toolset in pack.toolsets_within(pack.namespace)]
    return (*packs, *(stock.project.toolsets if stock.project is not None else ()))
