"""Start a runtime: load the project from a valid index or from files, and apply the profile.

A start from the index must stay fast, so this module imports nothing that reads documents.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NamedTuple

from toolcrib.core.errors import ConfigurationError, Problem, UnknownMode, did_you_mean
from toolcrib.core.model import NOTHING, Descriptor
from toolcrib.core.protocols import Kinds
from toolcrib.core.server_config import Catalogue, Server, listed_agents
from toolcrib.core.text import first_sentence
from toolcrib.core.user_folders import working_folder
from toolcrib.executors import Executors
from toolcrib.loading.cache.header import Listing, Listings, index_key
from toolcrib.loading.cache.index import (
    CachedProject,
    Index,
    SettingsByProfile,
    default_index,
    project_profiles,
)
from toolcrib.loading.settings import Settings, apply_settings, chosen_profile, first_match
from toolcrib.loading.snapshot import LoadedProject, PendingDescriptor
from toolcrib.registry.catalog import CAPABILITIES, Card, Rule, flags_of
from toolcrib.registry.registry import Registry, how_many
from toolcrib.security.trust import Trust, TrustPolicy, WorkspaceContents

if TYPE_CHECKING:
    from toolcrib.loading.python_sources import ModuleTools, PythonSource


def apply_profile(
    stock: LoadedProject, settings: Settings, modes: Mapping[str, str], kinds: Kinds, *, insists: bool = False
) -> Registry:
    """Apply a profile and the caller's modes to the tools of a project.

    If the settings select an unknown mode or toolset, no tool is offered.

    Args:
        stock: The loaded project.
        settings: Settings of the project under the selected profile.
        modes: Maps a tool glob to a mode; the first match wins and overrides the profile.
        kinds: The installed modes.
        insists: Raise for an unknown mode or toolset in the settings, too.

    Raises:
        UnknownMode: The caller selects a mode that is not installed and that no tool has a block for.
        ConfigurationError: `insists` is set, and the settings select an unknown mode or toolset.
    """
    registry = stock.registry
    check_modes(registry, modes, kinds)
    # A misspelt `mock` must not leave the tools in their own mode, which may have real effects.
    vain = _asked_in_vain(stock, settings, kinds)
    if vain is not None and insists:
        raise vain[0]
    if settings.modes or settings.defaults or settings.limits:
        registry = registry.changed(
            tool=lambda tool: apply_settings(tool, settings), card=lambda card: _card_in(card, settings.modes)
        )
    if settings.limit_rules:
        from toolcrib.loading.limit_rules import fixed_limits  # noqa: PLC0415 -- few projects have such rules

        registry = registry.changed(tool=fixed_limits(settings.limit_rules))
    registry = with_modes(registry, modes).with_toolsets(stock.toolsets)
    if settings.switches:
        registry = registry.with_rules(Rule(*switch) for switch in settings.switches)
    if settings.toolset in registry.toolsets:
        registry = registry.within(settings.toolset)
    if settings.access:
        from toolcrib.engine.access_control import ANYONE, access_control  # noqa: PLC0415 -- few projects have rules
        from toolcrib.security.access import read_access  # noqa: PLC0415 -- as above

        control = access_control(read_access(settings.access), kinds, stock.servers, settings.origins)
        registry = registry.seen_by(control.look(ANYONE))
    if stock.project_error:
        return registry.closed(f"{stock.project_error} has errors", stock.project_error)
    if vain is None:
        return registry
    error, place = vain
    return registry.closed("; ".join(filter(None, (error.message, error.hint))), place)


def completed_tools(registry: Registry, kinds: Executors) -> Iterator[Descriptor]:
    """Yield the tools whose schemas only their binding knows, such as those of Python functions in files."""
    cards = registry.cards
    modes = {card.mode for card in cards.values()}
    modes = {mode for mode in modes if mode is not None and kinds.may_complete(mode)}
    for name in [name for name, card in cards.items() if card.mode in modes]:
        if kinds.completes(tool := registry[name]):
            yield tool


def check_offer(registry: Registry, stock: LoadedProject) -> Iterator[Problem]:
    """Yield a warning if there are tools but all of them are disabled or outside the active toolset."""
    if (
        registry
        and not registry.why_closed
        # Without an editor, its tools do not exist.
        and not registry.for_client(CAPABILITIES).query()
    ):
        why = registry.why_hidden(next(iter(registry)))
        message = f"none of the {len(registry)} tools is offered: {why}"
        hint = "run `toolcrib list --all` to see why"
        problem = Problem(code="nothing_offered", message=message, hint=hint, severity="warning")
        yield problem.at(stock.project_file, 1, 1)


def _asked_in_vain(
    stock: LoadedProject, settings: Settings, kinds: Kinds
) -> tuple[ConfigurationError, str] | None:
    """The error for an unknown mode or toolset in the settings, and the place that selects it."""
    unknown = _unknown_mode(stock.registry, settings.modes, kinds)
    if unknown is not None:
        glob, hint = unknown
        place = settings.places[f"modes.{glob}"]
        message = f"{place} selects the unknown mode `{settings.modes[glob]}`"
        return UnknownMode(message, hint=hint), place
    known = [toolset.name for toolset in stock.toolsets]
    if not settings.toolset or settings.toolset in known:
        return None
    place = settings.places["toolset"]
    message = f"{place} selects the unknown toolset `{settings.toolset}`"
    hint = did_you_mean(settings.toolset, known)
    return ConfigurationError(message, code="unknown_toolset", hint=hint), place


def listings_of(stock: LoadedProject, profiles: SettingsByProfile, kinds: Executors) -> Listings | None:
    """The rows of `toolcrib list` under each profile; None if there are errors to report."""
    if stock.project_error or any(problem.severity == "error" for problem in stock.problems):
        return None
    if any(completed_tools(stock.registry, kinds)):
        return None  # a list shows what the cache of definitions says about them
    named = profiles.named
    return (
        _listing(stock, profiles.default, kinds),
        None
        if named is None
        else {name: _listing(stock, settings, kinds) for name, settings in named.items()},
    )


def _listing(stock: LoadedProject, settings: Settings, kinds: Executors) -> Listing | None:
    try:
        registry = apply_profile(stock, settings, NOTHING, kinds)
    except ConfigurationError:
        return None  # a list under this profile reads the documents and reports the error
    cards = registry.query()
    variables: set[str] = set()
    for card in cards:
        needed: tuple[str, ...] | None = ()
        if card.mode is not None and kinds.checks_machine(card.mode):
            needed = kinds.required_variables(card.mode, registry[card.name], stock.servers)
        if card.requires or needed is None:
            return None  # the environment decides, which may change without a change of the files
        variables.update(needed)
    rows = [
        (
            card.name,
            card.mode,
            card.mode in card.modes,
            ", ".join(flags_of(card)),
            ", ".join(card.arguments),
            first_sentence(card.description),
        )
        for card in cards
    ]
    return rows, len(registry) - len(cards), sorted(variables)


def check_modes(registry: Registry, modes: Mapping[str, str], kinds: Kinds) -> None:
    """Refuse a mode that no tool can be in; a misspelt mode would silently have no effect.

    A tool named without wildcards needs no check: it becomes unavailable, with the reason.

    Raises:
        UnknownMode: The mode is not installed and no tool has a block for it.
    """
    unknown = _unknown_mode(registry, modes, kinds)
    if unknown is not None:
        glob, hint = unknown
        raise UnknownMode(f"unknown mode `{modes[glob]}`", hint=hint)


def _unknown_mode(registry: Registry, modes: Mapping[str, str], kinds: Kinds) -> tuple[str, str] | None:
    """The first glob that selects an unknown mode, and a hint."""
    if not modes:
        return None
    known = known_modes(registry, kinds)
    for glob, mode in modes.items():
        if mode not in known and glob not in registry:
            there = ", ".join(f"`{name}`" for name in sorted(known)) or "none"
            return glob, did_you_mean(mode, known) or f"known modes: {there}"
    return None


def known_modes(registry: Registry, kinds: Kinds) -> set[str]:
    """The modes that are installed or that a tool has a block for."""
    return {*kinds.modes, *(mode for card in registry.cards.values() for mode in card.modes)}


def idle_modes(registry: Registry, modes: Mapping[str, str]) -> Iterator[ConfigurationError]:
    """Yield an error for each glob that matches no tool, with near misses; `*` never is an error."""
    for glob in modes:
        if glob != "*" and not any(fnmatchcase(name, glob) for name in registry):
            hint = did_you_mean(glob.strip("*?"), registry) or how_many(registry)
            message = f"`{glob}` in `modes` matches no tool and has no effect"
            yield ConfigurationError(message, code="unknown_tool", hint=hint)


def with_modes(registry: Registry, modes: Mapping[str, str]) -> Registry:
    """Select modes for the tools of a registry: tool glob -> mode, the first match wins.

    A tool named without wildcards always gets the mode, and is unavailable if it has no block for it. A glob
    with wildcards skips tools without such a block.
    """
    if not modes:
        return registry
    return registry.changed(tool=lambda tool: _tool_in(tool, modes), card=lambda card: _card_in(card, modes))


def named_mode(name: str, modes: Mapping[str, str]) -> str | None:
    """The mode that the first matching glob names for a tool, whether or not it has a block for it; None if none matches."""
    glob = first_match(name, modes)
    return None if glob is None else modes[glob]


def _tool_in(tool: Descriptor, modes: Mapping[str, str]) -> Descriptor:
    mode = _mode_of(tool.name, tool.mode, tool.bindings, modes)
    return tool if mode == tool.mode else tool._replace(mode=mode)


def _card_in(card: Card, modes: Mapping[str, str]) -> Card:
    mode = _mode_of(card.name, card.mode, card.modes, modes)
    return card if mode == card.mode else card._replace(mode=mode)


def _mode_of(name: str, mode: str | None, blocks: Iterable[str], modes: Mapping[str, str]) -> str | None:
    glob = first_match(name, modes)
    if glob is None or (modes[glob] not in blocks and glob != name):
        return mode
    return modes[glob]


class OpenRequest(NamedTuple):
    """The arguments with which a runtime was opened, so that a reload can use them again.

    Attributes:
        paths: Folders, packs, files or projects; empty to search from the working directory.
        also: Further paths to read in any case.
        profile: Name of a profile; None for the one of the environment or the project.
        modes: Maps a tool glob to a mode.
        indexed: Whether the index may be read and written.
        watched: Whether to watch files while the runtime is open in an `async with` block.
        servers: MCP servers in addition to those in files.
        trust: What is trusted without a stored decision.
        remembers: Whether cached tool lists of servers and definitions of Python tools may be used; for commands that
            only list.
        modules: Python sources in addition to those in files.
        access: The access settings of the program, on top of those in files (`AccessSettings.as_plain`).
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
    modules: tuple[str, ...] = ()
    access: tuple[Any, ...] = ()


class StartupState(NamedTuple):
    """The result of a start.

    Attributes:
        executors: The modes.
        stock: The loaded project, before any profile.
        registry: The active tools.
        settings: The settings that were applied.
    """

    executors: Executors
    stock: LoadedProject
    registry: Registry
    settings: Settings


def start(asked: OpenRequest, executors: Executors | None = None, trust: Trust | None = None) -> StartupState:
    """Load a project from the index, or read it.

    Args:
        asked: What to read, and the profile and modes to apply.
        executors: The modes (default: all installed ones). Custom modes disable the index.
        trust: Receives the contents, and decides which files of rows may be read (default: all).

    Raises:
        ConfigurationError: Two of the paths are projects, or the profile or a mode is unknown.
    """
    # An index records the block schemas of the installed modes and the servers in files, so neither custom
    # modes nor servers of the program can use it.
    plain = executors is None and not asked.servers and not asked.modules
    index = default_index() if asked.indexed and plain else None
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
    asked: OpenRequest,
    executors: Executors,
    before: LoadedProject,
    offered: Mapping[str, Catalogue] = NOTHING,
    trust: Trust | None = None,
    *,
    imported: Mapping[PythonSource, ModuleTools] | None = None,
) -> StartupState:
    """Read a project again; broken documents keep their last good version.

    Args:
        asked: What to read, and the profile and modes to apply.
        executors: The modes.
        before: The active project.
        offered: Maps each listed MCP server to what it offers.
        trust: As for `start`.
        imported: The tools of the Python sources that were imported.

    Raises:
        ConfigurationError: Two of the paths are projects, or the profile or a mode is unknown.
    """
    return _read(asked, executors, trust or Trust(), before=before, offered=offered, imported=imported)


def start_over(
    given: LoadedProject,
    servers: Mapping[str, Server],
    executors: Executors,
    offered: Mapping[str, Catalogue] = NOTHING,
) -> tuple[Registry, LoadedProject]:
    """Link the tools and the servers that a program passed to `Runtime`.

    Args:
        given: The tools as a project.
        servers: The servers by name.
        executors: The modes.
        offered: Maps each listed server to what it offers.
    """
    from toolcrib.engine.discovery import with_servers  # noqa: PLC0415 -- few runtimes have servers
    from toolcrib.loading.reader import LoadedDocuments  # noqa: PLC0415 -- as above
    from toolcrib.loading.tool_requirements import settle_capabilities  # noqa: PLC0415 -- as above

    servers = {**servers, **listed_agents(servers, offered)}
    brought = with_servers(LoadedDocuments(tools=tuple(given.registry.values())), servers, offered, executors)
    tools, undeclared = settle_capabilities(brought.loaded.tools, executors, servers)
    registry = Registry(tools)
    stock = given._replace(
        registry=registry,
        problems=(*given.problems, *brought.loaded.problems, *undeclared),
        servers=servers,
        unlisted=brought.unlisted,
        waiting=brought.waiting,
        unbound=brought.unbound,
    )
    return registry, stock


def _recalled(
    asked: OpenRequest, recalled: CachedProject, settings: Settings, trust: Trust
) -> StartupState | None:
    """Start from an index; None if trust in the files of rows has changed since it was written."""
    executors = Executors.of_modes(recalled.modes)
    stock = recalled.load(executors)
    _shown(stock, asked, executors, trust)
    if not all(trust.permits_data(*data) for data in stock.permitted):
        return None
    if any(trust.permits_data(*data) for data in stock.withheld):
        return None
    return _started(asked, executors, stock, settings)


def _shown(stock: LoadedProject, asked: OpenRequest, executors: Executors, trust: Trust) -> None:
    """Pass the contents of the project to trust, which computes them only when it needs them."""
    base = working_folder()

    def contents() -> WorkspaceContents:
        from toolcrib.engine.workspaces import contents_of  # noqa: PLC0415 -- mocks need no trust

        return contents_of(stock, executors, trust, asked.paths, asked.servers, base=base)

    trust.show(contents)


def _read(
    asked: OpenRequest,
    executors: Executors,
    trust: Trust,
    index: Index | None = None,
    key: bytes = b"",
    *,
    before: LoadedProject | None = None,
    offered: Mapping[str, Catalogue] = NOTHING,
    imported: Mapping[PythonSource, ModuleTools] | None = None,
) -> StartupState:
    from toolcrib.engine.open_project import open_project  # noqa: PLC0415 -- as above
    from toolcrib.loading.projects import settings_of  # noqa: PLC0415 -- a start from an index reads no documents

    def read() -> LoadedProject:
        found = open_project(
            asked.paths,
            asked.also,
            executors,
            before,
            servers=asked.servers,
            offered=offered,
            modules=asked.modules,
            imported=imported,
            permits=None if trust.policy.everything else trust.permits_data,
            remembers=asked.remembers,
        )
        _shown(found, asked, executors, trust)
        return found

    stock = read()
    if True in {trust.agrees_to_data(*data) for data in stock.withheld}:
        stock = read()  # with the rows that may be read after all
    # Before tools are left out for a lack of trust, which an index must not preserve.
    whole = _is_whole(stock)
    stock = stock._replace(waiting=_waiting(stock, executors, trust))
    if index is not None and not executors.broken and whole:
        profiles = project_profiles(stock)
        listings = listings_of(stock, profiles, executors)
        targets, built_in = executors.targets, executors.built_in
        index.keep(key, stock, targets, profiles, built_in=built_in, listings=listings)
    settings = settings_of(stock.project, *chosen_profile(asked.profile))
    # A reload insists: if its settings are invalid, it raises and the active tools stay.
    return _started(asked, executors, stock, settings, insists=before is not None)


def _waiting(stock: LoadedProject, executors: Executors, trust: Trust) -> Mapping[str, PendingDescriptor]:
    """The tools that wait for a server, without those that are not trusted to use it."""
    # A third-party pack must not start the servers of a project merely by being loaded.
    if trust.policy.everything or not stock.waiting:
        return stock.waiting
    from toolcrib.engine.workspaces import subject_of_tool  # noqa: PLC0415 -- few descriptors wait for a server

    return {
        name: waiting
        for name, waiting in stock.waiting.items()
        if trust.is_trusted(subject_of_tool(stock.registry[name], executors, trust, waiting.mode))
    }


def _is_whole(stock: LoadedProject) -> bool:
    """Whether the project depends on files alone."""
    # An index is validated by file fingerprints, which cannot show that the answer of a server has changed.
    named = stock.project.servers if stock.project is not None else NOTHING
    known = not stock.unlisted and not stock.waiting and not stock.remembered and not stock.python
    return known and stock.servers == named


def _started(
    asked: OpenRequest,
    executors: Executors,
    stock: LoadedProject,
    settings: Settings,
    *,
    insists: bool = False,
) -> StartupState:
    if asked.access:
        from toolcrib.loading.access import overlay_access  # noqa: PLC0415 -- few programs have rules
        from toolcrib.security.access import read_access  # noqa: PLC0415 -- as above

        access = overlay_access(read_access(settings.access), read_access(asked.access))
        settings = settings._replace(access=access.as_plain())
    registry = apply_profile(stock, settings, asked.modes, executors, insists=insists)
    return StartupState(executors, stock, registry, settings)
