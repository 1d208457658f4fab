"""From what was asked for to what a runtime holds: taken from the index where that holds good, else read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from toolcrib.core.model import NOTHING
from toolcrib.core.server_config import Catalogue, Server
from toolcrib.core.user_folders import working_folder
from toolcrib.engine.profiles import in_force, listings_of
from toolcrib.executors import Executors
from toolcrib.loading.cache.header import index_key
from toolcrib.loading.cache.index import CachedProject, Index, default_index, project_profiles
from toolcrib.loading.settings import Settings, chosen_profile
from toolcrib.loading.snapshot import LoadedProject, PendingDescriptor
from toolcrib.registry.registry import Registry
from toolcrib.security.trust import Contents, Trust, TrustPolicy


class Asked(NamedTuple):
    """How a runtime was opened, so that it can be opened again.

    Attributes:
        paths: Folders, packs, files, projects; none for what is found without.
        also: Read besides, in any case.
        profile: Name of a profile; None for the one that the environment or the project names.
        modes: Tool glob -> mode.
        indexed: Whether an index may be read and written.
        watched: Whether files are watched while the runtime is used as `async with`.
        servers: MCP servers besides those that are named in files.
        trust: What is trusted without a stored decision.
        remembers: Whether what a server answered some time ago will do where it is not asked now: for lists.
    """

    paths: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    profile: str | None = None
    modes: Mapping[str, str] = NOTHING
    indexed: bool = True
    watched: bool = False
    servers: Mapping[str, Server] = NOTHING
    trust: TrustPolicy = TrustPolicy()
    remembers: bool = False


class Started(NamedTuple):
    """What a runtime holds.

    Attributes:
        executors: The modes.
        stock: What was read, before any profile; its problems are told together with those of the profile.
        registry: The tools in force.
        settings: What put them in force.
    """

    executors: Executors
    stock: LoadedProject
    registry: Registry
    settings: Settings


def start(asked: Asked, executors: Executors | None = None, trust: Trust | None = None) -> Started:
    """Take what was asked for from the index, or read it.

    Args:
        asked: What to read, and what to put in force.
        executors: The modes; the installed ones unless given, and then there is no index.
        trust: Learns what was read, and says what may be read besides; all may unless given.

    Raises:
        ConfigurationError: Two of the paths are projects, or there is no such profile or mode.
    """
    index = default_index() if asked.indexed and executors is None and not asked.servers else None
    key = index_key(asked.paths, asked.also) if index is not None else None
    trust = trust or Trust()
    if index is None or key is None:
        return _read(asked, executors or Executors.installed(), trust)
    recalled = index.recall(key)
    settings = recalled.profiles.chosen(*chosen_profile(asked.profile)) if recalled is not None else None
    found = (
        _recalled(asked, recalled, settings, trust) if recalled is not None and settings is not None else None
    )
    if found is not None:
        return found
    return _read(asked, Executors.installed(), trust, index, key)


def start_again(
    asked: Asked,
    executors: Executors,
    before: LoadedProject,
    offered: Mapping[str, Catalogue] = NOTHING,
    trust: Trust | None = None,
) -> Started:
    """Read again what was asked for before: what is broken now keeps its last good version.

    Args:
        asked: What to read, and what to put in force.
        executors: The modes.
        before: What was in force until now.
        offered: Name of an MCP server -> what it offers now, where it was asked.
        trust: As for `start`.

    Raises:
        ConfigurationError: Two of the paths are projects, or there is no such profile or mode.
    """
    return _read(asked, executors, trust or Trust(), before=before, offered=offered)


def start_over(
    given: LoadedProject,
    servers: Mapping[str, Server],
    executors: Executors,
    offered: Mapping[str, Catalogue] = NOTHING,
) -> tuple[Registry, LoadedProject]:
    """The tools that a program gave, with those of servers that it gave.

    Args:
        given: The tools, and what else is known of them.
        servers: The servers, by name.
        executors: The modes.
        offered: Name of a server -> what it offers, where it was asked.
    """
    from toolcrib.engine.server_tools import with_servers  # noqa: PLC0415 -- few runtimes have servers
    from toolcrib.loading.reader import LoadedDocuments  # noqa: PLC0415 -- as above

    brought = with_servers(LoadedDocuments(tools=tuple(given.registry.values())), servers, offered, executors)
    registry = Registry(brought.loaded.tools)
    stock = given._replace(
        registry=registry,
        problems=(*given.problems, *brought.loaded.problems),
        servers=servers,
        unlisted=brought.unlisted,
        waiting=brought.waiting,
    )
    return registry, stock


def _recalled(asked: Asked, recalled: CachedProject, settings: Settings, trust: Trust) -> Started | None:
    """What an index kept; None where other rows may be read now than when it was written."""
    executors = Executors.of_modes(recalled.modes)
    stock = recalled.stock(executors)
    _shown(stock, asked, executors, trust)
    if not all(trust.permits_data(*data) for data in stock.permitted):
        return None
    if any(trust.permits_data(*data) for data in stock.withheld):
        return None
    return _started(asked, executors, stock, settings)


def _shown(stock: LoadedProject, asked: Asked, executors: Executors, trust: Trust) -> None:
    """Let trust know what was read, once it asks."""
    base = working_folder()

    def contents() -> Contents:
        from toolcrib.engine.workspaces import contents_of  # noqa: PLC0415 -- mocks ask for no trust

        return contents_of(stock, executors, trust, asked.paths, asked.servers, base=base)

    trust.show(contents)


def _read(
    asked: Asked,
    executors: Executors,
    trust: Trust,
    index: Index | None = None,
    key: bytes = b"",
    *,
    before: LoadedProject | None = None,
    offered: Mapping[str, Catalogue] = NOTHING,
) -> Started:
    from toolcrib.engine.open_project import read_stock  # noqa: PLC0415 -- as above
    from toolcrib.loading.projects import settings_of  # noqa: PLC0415 -- a start from an index reads no documents

    def read() -> LoadedProject:
        found = read_stock(
            asked.paths,
            asked.also,
            executors,
            before,
            servers=asked.servers,
            offered=offered,
            permits=None if trust.policy.everything else trust.permits_data,
            remembers=asked.remembers,
        )
        _shown(found, asked, executors, trust)
        return found

    stock = read()
    if True in {trust.agrees_to_data(*data) for data in stock.withheld}:
        stock = read()  # with the rows that may be read after all
    stock = stock._replace(waiting=_waiting(stock, executors, trust))
    if index is not None and not executors.broken and _is_whole(stock):
        profiles = project_profiles(stock)
        listings = listings_of(stock, profiles, executors)
        targets, built_in = executors.targets, executors.built_in
        index.keep(key, stock, targets, profiles, built_in=built_in, listings=listings)
    settings = settings_of(stock.project, *chosen_profile(asked.profile))
    # A reload that can't be put in force leaves everything as it was.
    return _started(asked, executors, stock, settings, insists=before is not None)


def _waiting(stock: LoadedProject, executors: Executors, trust: Trust) -> Mapping[str, PendingDescriptor]:
    """What waits for servers, but for tools that may not use theirs: a pack from elsewhere starts no server of a project."""
    if trust.policy.everything or not stock.waiting:
        return stock.waiting
    from toolcrib.engine.workspaces import subject_of_tool  # noqa: PLC0415 -- few descriptors wait for a server

    return {
        name: waiting
        for name, waiting in stock.waiting.items()
        if trust.is_trusted(subject_of_tool(stock.registry[name], executors, trust, waiting.mode))
    }


def _is_whole(stock: LoadedProject) -> bool:
    """Whether files alone say what there is: of what a server is to be asked, an index can't say when it changes."""
    named = stock.project.servers if stock.project is not None else NOTHING
    known = not stock.unlisted and not stock.waiting and not stock.remembered
    return known and stock.servers == named


def _started(
    asked: Asked, executors: Executors, stock: LoadedProject, settings: Settings, *, insists: bool = False
) -> Started:
    registry = in_force(stock, settings, asked.modes, executors, insists=insists)
    return Started(executors, stock, registry, settings)
