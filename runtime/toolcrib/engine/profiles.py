"""What a profile and a caller put in force: modes, defaults, and which tools are offered.

A call that is answered from an index passes here, so nothing that reads documents is imported.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase

from toolcrib.core.errors import ConfigurationError, Problem, UnknownMode, did_you_mean
from toolcrib.core.model import NOTHING, Descriptor
from toolcrib.core.protocols import Kinds
from toolcrib.core.text import first_sentence
from toolcrib.loading.cache.header import Listing, Listings
from toolcrib.loading.cache.index import SettingsByProfile
from toolcrib.loading.settings import Settings, apply_settings, first_match
from toolcrib.loading.snapshot import LoadedProject
from toolcrib.registry.catalog import Card, flags_of
from toolcrib.registry.registry import Registry, how_many


def in_force(
    stock: LoadedProject, settings: Settings, modes: Mapping[str, str], kinds: Kinds, *, insists: bool = False
) -> Registry:
    """The tools of a stock as a profile and the caller want them.

    Where the settings ask for a mode or toolset that there is not, no tool is offered, for
    its own mode may be the one that touches something real.

    Args:
        stock: What was read.
        settings: What the project says under the profile that was chosen.
        modes: Tool glob -> mode, before the modes of the profile; the first that fits counts.
        kinds: What the installed modes are.
        insists: Raise for what the settings ask for in vain, too.

    Raises:
        UnknownMode: A mode that the caller asks for is neither installed nor written anywhere.
        ConfigurationError: `insists`, and there is no such mode or toolset.
    """
    registry = stock.registry
    check_modes(registry, modes, kinds)
    vain = _asked_in_vain(stock, settings, kinds)
    if vain is not None and insists:
        raise vain[0]
    if settings.modes or settings.defaults or settings.limits:
        registry = registry.changed(
            tool=lambda tool: apply_settings(tool, settings), card=lambda card: _card_in(card, settings.modes)
        )
    registry = with_modes(registry, modes).with_toolsets(stock.toolsets)
    for globs, offered, place in settings.switches:
        registry = (
            registry.enabled(*globs, place=place) if offered else registry.disabled(*globs, place=place)
        )
    if settings.toolset in registry.toolsets:
        registry = registry.within(settings.toolset)
    if stock.project_error:
        return registry.closed(f"{stock.project_error} has errors", stock.project_error)
    if vain is None:
        return registry
    error, place = vain
    return registry.closed("; ".join(filter(None, (error.message, error.hint))), place)


def check_offer(registry: Registry, stock: LoadedProject) -> Iterator[Problem]:
    """A warning where there are tools, and each is disabled or outside the toolset in force."""
    if registry and not registry.query() and not registry.why_closed:
        why = registry.why_hidden(next(iter(registry)))
        message = f"no tool is offered, of {len(registry)}: {why}"
        hint = "`toolcrib list --all` shows why for each"
        problem = Problem(code="nothing_offered", message=message, hint=hint, severity="warning")
        yield problem.at(stock.project_file, 1, 1)


def _asked_in_vain(
    stock: LoadedProject, settings: Settings, kinds: Kinds
) -> tuple[ConfigurationError, str] | None:
    """The mode or toolset which the settings ask for and nobody wrote, and where they do."""
    unknown = _unknown_mode(stock.registry, settings.modes, kinds)
    if unknown is not None:
        glob, hint = unknown
        place = settings.places[f"modes.{glob}"]
        message = f"{place} asks for the mode `{settings.modes[glob]}`, which does not exist"
        return UnknownMode(message, hint=hint), place
    known = [toolset.name for toolset in stock.toolsets]
    if not settings.toolset or settings.toolset in known:
        return None
    place = settings.places["toolset"]
    message = f"{place} asks for the toolset `{settings.toolset}`, which does not exist"
    hint = did_you_mean(settings.toolset, known)
    return ConfigurationError(message, code="unknown_toolset", hint=hint), place


def listings_of(stock: LoadedProject, profiles: SettingsByProfile, kinds: Kinds) -> Listings | None:
    """What a list shows under each profile; None where it has errors to tell."""
    if stock.project_error or any(problem.severity == "error" for problem in stock.problems):
        return None
    named = profiles.named
    return (
        _listing(stock, profiles.default, kinds),
        None
        if named is None
        else {name: _listing(stock, settings, kinds) for name, settings in named.items()},
    )


def _listing(stock: LoadedProject, settings: Settings, kinds: Kinds) -> Listing | None:
    try:
        registry = in_force(stock, settings, NOTHING, kinds)
    except ConfigurationError:
        return None  # whoever asks for it is told by the long way
    cards = registry.query()
    rows = [
        (
            card.name,
            card.mode,
            card.mode in card.modes,
            ", ".join(flags_of(card)),
            first_sentence(card.description),
        )
        for card in cards
    ]
    return rows, len(registry) - len(cards)


def check_modes(registry: Registry, modes: Mapping[str, str], kinds: Kinds) -> None:
    """Refuse a mode that no tool can be in; a misspelt one would change nothing, and nobody would notice.

    A tool that is named without wildcards needs no check: it becomes unavailable and says why.

    Raises:
        UnknownMode: The mode is neither installed nor the name of a block of any tool.
    """
    unknown = _unknown_mode(registry, modes, kinds)
    if unknown is not None:
        glob, hint = unknown
        raise UnknownMode(f"there is no mode `{modes[glob]}`", hint=hint)


def _unknown_mode(registry: Registry, modes: Mapping[str, str], kinds: Kinds) -> tuple[str, str] | None:
    """The first glob that stands for a mode which no tool can be in, and what is meant instead."""
    if not modes:
        return None
    known = known_modes(registry, kinds)
    for glob, mode in modes.items():
        if mode not in known and glob not in registry:
            there = ", ".join(f"`{name}`" for name in sorted(known)) or "none"
            return glob, did_you_mean(mode, known) or f"the modes are: {there}"
    return None


def known_modes(registry: Registry, kinds: Kinds) -> set[str]:
    """The modes that are installed, or that some tool has a block for."""
    return {*kinds.modes, *(mode for card in registry.cards.values() for mode in card.modes)}


def idle_modes(registry: Registry, modes: Mapping[str, str]) -> Iterator[ConfigurationError]:
    """An error for each glob that fits no tool, with near misses; `*` may stand for no tool at all."""
    for glob in modes:
        if glob != "*" and not any(fnmatchcase(name, glob) for name in registry):
            hint = did_you_mean(glob.strip("*?"), registry) or how_many(registry)
            message = f"`{glob}` in `modes` fits no tool, so it changes nothing"
            yield ConfigurationError(message, code="unknown_tool", hint=hint)


def with_modes(registry: Registry, modes: Mapping[str, str]) -> Registry:
    """The registry with other modes in force: tool glob -> mode, the first that fits counts.

    A tool that is named without wildcards gets the mode in any case, and is unavailable if it has no block
    for it; a glob passes over tools without one.
    """
    if not modes:
        return registry
    return registry.changed(tool=lambda tool: _tool_in(tool, modes), card=lambda card: _card_in(card, modes))


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
