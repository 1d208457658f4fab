"""What a project and a profile put in force, and where each part of it was written.

Plain data, so that an index can keep it; read without the modules that read documents.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any, NamedTuple

from toolcrib.core.model import JSON, NOTHING, Descriptor

if TYPE_CHECKING:
    from toolcrib.core.server_config import Server

PROFILE_VARIABLE = "TOOLCRIB_PROFILE"
"""The environment variable that names a profile where the command line or the code names none."""


class Settings(NamedTuple):
    """What is in force. `Settings(*tuple(settings))` is the same again: all in it is plain data.

    Attributes:
        profile: Name of the profile; empty for none.
        chosen_by: What chose it: `--profile`, `TOOLCRIB_PROFILE`, or a place in the project's file.
        modes: Tool glob -> mode; the first that fits counts.
        defaults: Key of a descriptor -> value as a `Descriptor` has it, for tools that do not say so themselves.
        switches: (tool globs, whether they are enabled, place); the last that fits counts: `registry.catalog.Rule(*switch)`.
        toolset: Name of the toolset that is offered; empty for all tools.
        tools: Tool globs of that toolset.
        places: `modes.<glob>`, `defaults.<key>`, `toolset`, `origins.<origin>`, `limits.<key>` -> where it was
            written: `toolcrib.yaml:12 (profile ci)`; also `servers.<name>` and `lock`.
        egress: `host:port` that tools may reach although the address is special.
        origins: Origin as descriptors write it -> the one that is called instead.
        limits: Key of `limits`, with dots (`breaker.failures`), -> value as it is written, for tools that do not
            say so themselves.
        servers: Name of an MCP server -> `tuple(server)`; `servers_in` makes servers of them.
        lock: What becomes of a remote tool that changed: `warn` or `block`; empty where nothing is said.
    """

    profile: str
    chosen_by: str
    modes: Mapping[str, str]
    defaults: Mapping[str, JSON]
    switches: tuple[tuple[tuple[str, ...], bool, str], ...]
    toolset: str
    tools: tuple[str, ...]
    places: Mapping[str, str]
    egress: tuple[str, ...] = ()
    origins: Mapping[str, str] = NOTHING
    limits: Mapping[str, JSON] = NOTHING
    servers: Mapping[str, tuple[Any, ...]] = NOTHING
    lock: str = ""


NO_SETTINGS = Settings("", "", {}, {}, (), "", (), {}, (), {}, {}, {}, "")
"""What is in force outside projects."""


def chosen_profile(asked: str | None, environment: Mapping[str, str] = os.environ) -> tuple[str | None, str]:
    """The profile that is asked for, and what asks for it: the argument, else `TOOLCRIB_PROFILE` unless empty."""
    if asked is not None:
        return asked, "--profile"
    named = environment.get(PROFILE_VARIABLE)
    return (named, PROFILE_VARIABLE) if named else (None, "")


def apply_settings(tool: Descriptor, settings: Settings) -> Descriptor:
    """The tool with what is in force; `origin.settings` says where each changed value came from.

    Defaults are for keys that neither the tool's document nor its pack gives. The mode follows the first glob
    that fits: a tool that is named without wildcards gets it in any case, and is unavailable if it has no
    block for it; a glob passes over tools without one.
    """
    origin = tool.origin
    changes: dict[str, Any] = {
        key: value
        for key, value in settings.defaults.items()
        if key not in origin.written and key not in origin.settings
    }
    told = {key: settings.places[f"defaults.{key}"] for key in changes}
    if settings.limits:
        from toolcrib.loading.limits import unsaid, with_limits  # noqa: PLC0415 -- most projects say nothing of limits

        limits = unsaid(settings.limits, {*origin.written, *origin.settings})
        if limits:
            changes["limits"] = with_limits(tool.limits, limits)
            told |= {f"limits.{key}": settings.places[f"limits.{key}"] for key in limits}
    glob = first_fit(tool.name, settings.modes)
    if glob is not None and settings.modes[glob] != tool.mode:
        mode = settings.modes[glob]
        if mode in tool.bindings or glob == tool.name:
            changes["mode"], told["mode"] = mode, settings.places[f"modes.{glob}"]
    if not changes:
        return tool
    return tool._replace(**changes, origin=origin._replace(settings={**origin.settings, **told}))


def servers_in(settings: Settings) -> dict[str, Server]:
    """The MCP servers that are in force, by name."""
    if not settings.servers:
        return {}
    from toolcrib.core.server_config import Server  # noqa: PLC0415 -- most projects name none

    return {name: Server(*plain) for name, plain in settings.servers.items()}


def same_reach(one: Settings | None, other: Settings | None) -> bool:
    """Whether two settings let tools reach the same: hosts, origins, and servers under the same lock."""
    return _reach(one) == _reach(other)


def _reach(settings: Settings | None) -> tuple[object, ...]:
    if settings is None:
        return _reach(NO_SETTINGS)
    # Where a server is written does not matter to what it is.
    servers = {name: plain[:-1] for name, plain in settings.servers.items()}
    return tuple(settings.egress), dict(settings.origins), servers, settings.lock


def first_fit(name: str, globs: Iterable[str]) -> str | None:
    """The first glob that fits a name; None where none does."""
    return next((glob for glob in globs if fnmatchcase(name, glob)), None)
