"""Describe a loaded project for trust decisions: its workspaces, and the needs of everything in them."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache, partial
from typing import TYPE_CHECKING

from toolcrib.core.model import JSON, NOTHING, Descriptor, Origin
from toolcrib.core.pointers import file_and_line
from toolcrib.executors import Executors
from toolcrib.loading.documents.files import ARCHIVE, PACK_FILES
from toolcrib.loading.project_discovery import find_project
from toolcrib.loading.scenarios.model import NO_PROVIDER
from toolcrib.loading.scenarios.scenario_links import tools_of
from toolcrib.loading.snapshot import LoadedProject, Model
from toolcrib.security.trust import (
    ModuleHome,
    PackContent,
    ServerHome,
    Trust,
    TrustSubject,
    Workspace,
    WorkspaceContents,
    subject_of_data,
    subject_of_module,
    subject_of_server,
)
from toolcrib.security.trust_needs import Need, needs_of_agent, needs_of_settings

if TYPE_CHECKING:
    from toolcrib.loading.projects import Project
    from toolcrib.loading.python_sources import PythonSource
    from toolcrib.loading.scenarios.model import Scenario


def contents_of(
    stock: LoadedProject,
    executors: Executors,
    trust: Trust,
    paths: Sequence[str] = (),
    own: Collection[str] = (),
    *,
    base: str,
) -> WorkspaceContents:
    """Describe a loaded project for `Trust`. Needs are computed on demand.

    Args:
        stock: The loaded project.
        executors: The modes.
        trust: The trust that uses the contents; it knows which workspace a server belongs to.
        paths: The paths that the user passed; empty if the project was found from the working directory.
        own: Names of servers that the program passed itself.
        base: The working directory at loading time; empty if it was deleted.
    """
    workspaces = tuple(_workspaces(stock, paths, base))

    def subjects() -> Iterator[TrustSubject]:
        yield from _subjects(stock, executors, trust)
        if len(workspaces) > 1:
            yield from _crossing(stock, executors, trust)

    return WorkspaceContents(
        base=base,
        workspaces=workspaces,
        subjects=subjects,
        settings=tuple(_settings(stock)),
        settings_file=stock.project_file,
        packs=cache(partial(_pack_content, stock, base)),
        servers=_homes(stock, own),
        own=own,
        modules={name: home_of_module(source) for name, source in stock.owners.items()},
    )


def home_of_module(source: PythonSource) -> ModuleHome:
    """A Python source, as trust sees it."""
    return ModuleHome(source.name, source.module, source.file, source.place)


def _workspaces(stock: LoadedProject, paths: Sequence[str], base: str) -> Iterator[Workspace]:
    found: list[Workspace] = []
    if stock.project_file:
        folder = os.path.dirname(stock.project_file) or "."
        found.append(Workspace(_real(base, folder), "project", folder))
    elif base and not paths:
        found.append(Workspace(os.path.realpath(base), "folder", "."))
    # Packs of `--pack`, and sources outside the project folder.
    for source in stock.sources:
        own = workspace_at(source, base)
        holding = [each for each in found if each.holds(_real(base, source))]
        # Agreeing to a folder without a project file does not cover the projects and packs inside it.
        whole = own.kind in {"project", "pack"}
        if not holding or (whole and all(each.kind == "folder" for each in holding)):
            found.append(own)
    for server in stock.servers.values():
        file = file_and_line(server.place())[0]
        if file and not any(each.holds(_real(base, file)) for each in found):
            found.append(Workspace(_real(base, file), "servers", file))
    yield from dict.fromkeys(found)


def _real(base: str, path: str) -> str:
    whole = os.path.join(base, path)
    # `realpath` of a relative path would raise if the working directory was deleted.
    return os.path.realpath(whole) if os.path.isabs(whole) else whole


def workspace_at(path: str, base: str) -> Workspace:
    """The workspace of a path: the project that contains it, else the pack, else the path itself."""
    real = _real(base, path)
    folder = real if os.path.isdir(real) else os.path.dirname(real)
    if real.lower().endswith(ARCHIVE):
        return Workspace(real, "pack", path)
    project = find_project(folder)
    if project is not None:
        root = os.path.dirname(project)
        whole = os.path.realpath(root)
        return Workspace(whole, "project", path if real == whole else root, partial=real != whole)
    pack = next((each for each in _upwards(folder) if _is_pack(each)), None)
    if pack is not None:
        return Workspace(pack, "pack", path if pack == real else pack, partial=real != pack)
    return Workspace(real, "folder", path)


_LEVELS = 4
"""Number of folders to search upwards for the pack of a path; loading uses the same number."""


def _upwards(folder: str) -> Iterator[str]:
    for _ in range(_LEVELS):
        yield folder
        folder = os.path.dirname(folder)


def _is_pack(folder: str) -> bool:
    return any(os.path.isfile(os.path.join(folder, name)) for name in PACK_FILES)


# Subjects: the tools, servers, models and data files that need something.


def _subjects(stock: LoadedProject, executors: Executors, trust: Trust) -> Iterator[TrustSubject]:
    contents = trust.contents
    for name, server in stock.servers.items():
        if name not in contents.own:
            yield subject_of_server(server, contents.servers[name])
    for module in stock.python:
        yield subject_of_module(home_of_module(module))
    for tool in stock.registry.values():
        yield subject_of_tool(tool, executors, trust)
    for user, source, place, said in stock.models:
        yield subject_of_model(user, (source,), place, said)
    if stock.project is not None and stock.project.chat:
        yield subject_of_chat(stock.project)
    for source, path, name in stock.data:
        yield subject_of_data(source, path, name)


def _homes(stock: LoadedProject, own: Collection[str]) -> Mapping[str, ServerHome]:
    named = stock.project.servers if stock.project else NOTHING
    found = {}
    for name, server in stock.servers.items():
        file = file_and_line(server.place())[0]
        home = "" if name in own else stock.project_file if name in named else file or server.root
        found[name] = ServerHome(home, file or f"server {name}")
    return found


def subject_of_tool(
    tool: Descriptor, executors: Executors, trust: Trust, mode: str | None = None
) -> TrustSubject:
    """A tool as a trust subject, in one mode or in all of its modes.

    A tool of a server needs nothing in the workspace of that server: starting the server asks for trust
    already. In any other workspace it does need trust, so that files of one folder cannot control the servers
    of another.
    """
    home = trust.contents.modules.get(tool.name)
    if home is not None:
        return subject_of_module(home, f"tool {tool.name}")
    modes = tool.bindings if mode is None else (mode,)
    remotes = {each: executors.remote_of(each, tool.name, tool.bindings.get(each)) for each in modes}

    servers = trust.contents.servers

    def needs(workspace: Workspace) -> Iterator[Need]:
        for each, remote in remotes.items():
            # A tool that names no server may get any of them, so its needs must not depend on the one that is known.
            open_ = remote is not None and (not remote.server or f"{each}.server" in tool.origin.settings)
            named = [*servers] if remote is None or open_ else [*remote.servers]
            if remote is None or not named or not all(trust.is_home(name, workspace) for name in named):
                # Sources are named relative to the working directory of that time.
                yield from executors.needs_of(each, tool, workspace._replace(base=trust.contents.base))

    homes = [servers[remote.server] for remote in remotes.values() if remote and remote.server in servers]
    imported = next((home.file for home in homes if home.source == tool.origin.source), None)
    files = _files_of(tool.origin)
    if imported is not None:  # the tool has no file of its own: it belongs to the file that names its server
        files = tuple(filter(None, (imported, *files[1:])))
    settled = any(not executors.is_contained(each) for each in modes)
    return TrustSubject(f"tool {tool.name}", files, needs, settings=settled)


def models_of(scenario: Scenario) -> Iterator[Model]:
    """Yield the models of a scenario (agent and judge), except a model chosen on the command line."""
    agent = scenario.agent
    if agent is None:
        return
    own = {"provider": agent.provider, "base_url": agent.base_url, "api_key": agent.api_key}
    judge = {key: agent.judge.get(key) for key in own} if agent.judge else {}
    for said, pointer in ((own if not agent.chosen else {}, "/agent"), (judge, "/agent/judge")):
        if said and said["provider"] not in {"scripted", "direct", NO_PROVIDER}:
            name = f"scenario {scenario.base or scenario.name}"
            yield name, scenario.origin.source, scenario.origin.place(pointer), said


def subject_of_model(user: str, files: tuple[str, ...], place: str, said: Mapping[str, JSON]) -> TrustSubject:
    """A model of a scenario, with its service and API key, as a trust subject."""
    return TrustSubject(
        user, files, lambda _workspace: needs_of_agent(said, user=user, place=place), settings=True
    )


def subject_of_chat(project: Project) -> TrustSubject:
    """The model that a project names for conversations, as a trust subject."""
    origin = project.origin
    return subject_of_model("chat", (origin.source,), origin.place("/chat"), dict(project.chat))


def subjects_of_scenario(scenario: Scenario) -> Iterator[TrustSubject]:
    """Yield the models of a scenario as trust subjects."""
    for user, _source, place, said in models_of(scenario):
        yield subject_of_model(user, _files_of(scenario.origin), place, said)


def _crossing(stock: LoadedProject, executors: Executors, trust: Trust) -> Iterator[TrustSubject]:
    """Yield scenarios as subjects of the tools that they call: they need everything that those tools need."""
    # Otherwise the scenarios of an untrusted pack could call the trusted tools of a project.
    tools = [tool for tool in stock.registry.values() if not all(map(executors.is_contained, tool.bindings))]
    for scenario in stock.scenarios if tools else ():
        named = None if scenario.agent is not None else tools_of(scenario)
        for tool in tools:
            if named is None or tool.name in named:
                own = subject_of_tool(tool, executors, trust)
                yield own._replace(user=f"scenario {scenario.name}", files=_files_of(scenario.origin))


def _files_of(origin: Origin) -> tuple[str, ...]:
    """The files of a document, including those that it overrides."""
    return tuple(dict.fromkeys((origin.source, *(file_and_line(place)[0] for place in origin.overrides))))


def _settings(stock: LoadedProject) -> Iterator[Need]:
    """Yield the network access that the project and its profiles grant to tools."""
    project = stock.project
    if project is None:
        return
    place = project.origin.place
    yield from needs_of_settings(
        project.egress,
        project.origins,
        sandbox=project.sandbox,
        journal=str(project.journal.get("store", "")),
        user="project",
        place=place(),
    )
    for name, profile in project.profiles.items():
        yield from needs_of_settings(
            profile.egress,
            profile.origins,
            sandbox=profile.sandbox,
            journal=str(profile.journal.get("store", "")),
            user=f"profile {name}",
            place=place(),
        )


def _pack_content(stock: LoadedProject, base: str, root: str) -> PackContent:
    def lies_within(origin: Origin) -> bool:
        path = _real(base, origin.source)
        return path == root or path.startswith(root.rstrip(os.sep) + os.sep)

    packs = [pack for pack in stock.packs if lies_within(pack.origin)]
    origins = [tool.origin for tool in stock.registry.values()]
    origins += [scenario.origin for scenario in stock.scenarios] + [pack.origin for pack in packs]
    digests = tuple(sorted(origin.digest for origin in origins if lies_within(origin)))
    if not packs:
        return PackContent(os.path.basename(root), NOTHING, digests)
    first = packs[0]
    return PackContent(f"{first.name} {first.version}", first.requires, digests, first.origin.place())
