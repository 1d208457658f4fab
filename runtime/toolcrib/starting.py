"""From what was asked for to what a runtime holds: taken from the index where that holds good, else read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from toolcrib.executors import Executors
from toolcrib.in_force import in_force, listings_of
from toolcrib.index import Index, Recalled, default_index, key_of, profiles_of
from toolcrib.loading.settings import Settings, chosen_profile
from toolcrib.model import NOTHING
from toolcrib.registry import Registry
from toolcrib.stock import Stock


class Asked(NamedTuple):
    """How a runtime was opened, so that it can be opened again.

    Attributes:
        paths: Folders, packs, files, projects; none for what is found without.
        also: Read besides, in any case.
        profile: Name of a profile; None for the one that the environment or the project names.
        modes: Tool glob -> mode.
        indexed: Whether an index may be read and written.
        watched: Whether files are watched while the runtime is used as `async with`.
    """

    paths: tuple[str, ...] = ()
    also: tuple[str, ...] = ()
    profile: str | None = None
    modes: Mapping[str, str] = NOTHING
    indexed: bool = True
    watched: bool = False


class Started(NamedTuple):
    """What a runtime holds.

    Attributes:
        executors: The modes.
        stock: What was read, before any profile; its problems are told together with those of the profile.
        registry: The tools in force.
        settings: What put them in force.
    """

    executors: Executors
    stock: Stock
    registry: Registry
    settings: Settings


def start(asked: Asked, executors: Executors | None = None) -> Started:
    """Take what was asked for from the index, or read it.

    Args:
        asked: What to read, and what to put in force.
        executors: The modes; the installed ones unless given, and then there is no index.

    Raises:
        ConfigurationError: Two of the paths are projects, or there is no such profile or mode.
    """
    index = default_index() if asked.indexed and executors is None else None
    key = key_of(asked.paths, asked.also) if index is not None else None
    if index is None or key is None:
        return _read(asked, executors or Executors.installed())
    recalled = index.recall(key)
    settings = recalled.profiles.chosen(*chosen_profile(asked.profile)) if recalled is not None else None
    if recalled is not None and settings is not None:
        return _recalled(asked, recalled, settings)
    return _read(asked, Executors.installed(), index, key)


def start_again(asked: Asked, executors: Executors, before: Stock) -> Started:
    """Read again what was asked for before: what is broken now keeps its last good version.

    Args:
        asked: What to read, and what to put in force.
        executors: The modes.
        before: What was in force until now.

    Raises:
        ConfigurationError: Two of the paths are projects, or there is no such profile or mode.
    """
    return _read(asked, executors, before=before)


def _recalled(asked: Asked, recalled: Recalled, settings: Settings) -> Started:
    executors = Executors.named(recalled.targets)
    return _started(asked, executors, recalled.stock(executors), settings)


def _read(
    asked: Asked,
    executors: Executors,
    index: Index | None = None,
    key: bytes = b"",
    before: Stock | None = None,
) -> Started:
    from toolcrib.loading.projects import settings_of  # noqa: PLC0415 -- a start from an index reads no documents
    from toolcrib.opening import read_stock  # noqa: PLC0415 -- as above

    stock = read_stock(asked.paths, asked.also, executors, before)
    if index is not None and not executors.broken:
        profiles = profiles_of(stock)
        listings = listings_of(stock, profiles, executors)
        index.keep(key, stock, executors.targets, profiles, listings=listings)
    settings = settings_of(stock.project, *chosen_profile(asked.profile))
    # A reload that can't be put in force leaves everything as it was.
    return _started(asked, executors, stock, settings, insists=before is not None)


def _started(
    asked: Asked, executors: Executors, stock: Stock, settings: Settings, *, insists: bool = False
) -> Started:
    registry = in_force(stock, settings, asked.modes, executors, insists=insists)
    return Started(executors, stock, registry, settings)
