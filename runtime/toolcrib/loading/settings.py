"""Settings of a project and its profile, and the place where each was written.

The settings are plain data, so that the index can store them. Importing this module imports nothing that reads
documents. `limits` are stored key by key, so that a profile can override single limits of a project or descriptor.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from toolcrib.core.clock import format_duration, parse_duration
from toolcrib.core.errors import Problem
from toolcrib.core.model import JSON, NOTHING, Breaker, Descriptor, Limits, Rate
from toolcrib.core.text import format_size, parse_size
from toolcrib.security.access import read_access

PROFILE_VARIABLE = "TOOLCRIB_PROFILE"
"""The environment variable that selects a profile if neither the command line nor the code does."""


class Settings(NamedTuple):
    """The active settings. `Settings(*tuple(settings))` is equal to `settings`: everything in it is plain data.

    Attributes:
        profile: Name of the profile; empty for none.
        chosen_by: Where it was chosen: `--profile`, `TOOLCRIB_PROFILE`, or a place in the project file.
        modes: Tool glob -> mode; the first match applies.
        defaults: Key of a descriptor -> value as in `Descriptor`, for tools that do not set the key themselves.
        switches: (tool globs, whether they are enabled, place, flag); the last match applies:
            `registry.catalog.Rule(*switch)`.
        toolset: Name of the toolset that is offered; empty for all tools.
        tools: Tool globs of that toolset.
        places: `modes.<glob>`, `defaults.<key>`, `toolset`, `origins.<origin>`, `limits.<key>`, `servers.<name>` or
            `lock`, `sandbox` -> where it was written: `toolcrib.yaml:12 (profile ci)`.
        egress: `host:port` that tools may reach although the address is private or otherwise special.
        origins: Origin as written in descriptors -> the origin that is called instead.
        limits: Key of `limits`, with dots (`breaker.failures`) -> value as written, for tools that do not set it
            themselves.
        servers: Name of an MCP server -> `tuple(server)`, which `Server(*values)` restores.
        lock: Policy for a remote tool that changed: `warn` or `block`; empty if not configured.
        access: Who may call what: `AccessSettings.as_plain`, which `read_access` reads; empty for no limits.
        budgets: Name of a budget -> the budget as written, and its place as `at`.
        approvals: Settings of pending approvals, as written.
        sandbox: Where programs run: `bubblewrap` or `none`; empty if not configured.
        telemetry: What is recorded of calls, as written.
        journal: Settings of the journal, as written; `store` is `off` or the address of a server.
        limit_rules: Name of a rule of `limits.rules` -> the rule as written, and its place as `at`.
    """

    profile: str
    chosen_by: str
    modes: Mapping[str, str]
    defaults: Mapping[str, JSON]
    switches: tuple[tuple[tuple[str, ...], bool, str, str], ...]
    toolset: str
    tools: tuple[str, ...]
    places: Mapping[str, str]
    egress: tuple[str, ...] = ()
    origins: Mapping[str, str] = NOTHING
    limits: Mapping[str, JSON] = NOTHING
    servers: Mapping[str, tuple[Any, ...]] = NOTHING
    lock: str = ""
    access: tuple[Any, ...] = ()
    budgets: Mapping[str, Mapping[str, JSON]] = NOTHING
    approvals: Mapping[str, JSON] = NOTHING
    sandbox: str = ""
    telemetry: Mapping[str, JSON] = NOTHING
    journal: Mapping[str, JSON] = NOTHING
    limit_rules: Mapping[str, Mapping[str, JSON]] = NOTHING


NO_SETTINGS = Settings("", "", {}, {}, (), "", (), {}, (), {}, {}, {}, "", (), {}, {}, "", {}, {}, {})
"""The settings outside projects."""


def chosen_profile(asked: str | None, environment: Mapping[str, str] = os.environ) -> tuple[str | None, str]:
    """The requested profile and its origin: the argument, else `TOOLCRIB_PROFILE` unless empty."""
    if asked is not None:
        return asked, "--profile"
    named = environment.get(PROFILE_VARIABLE)
    return (named, PROFILE_VARIABLE) if named else (None, "")


def apply_settings(tool: Descriptor, settings: Settings) -> Descriptor:
    """Apply settings to a tool; `origin.settings` records where each changed value came from.

    Defaults apply to keys that neither the tool's document nor its pack sets. The first matching glob sets the mode:
    a tool named without wildcards always gets it, and is unavailable without a block for it; a glob skips tools
    without such a block.
    """
    origin = tool.origin
    changes: dict[str, Any] = {
        key: value
        for key, value in settings.defaults.items()
        if key not in origin.written and key not in origin.settings
    }
    told = {key: settings.places[f"defaults.{key}"] for key in changes}
    if settings.limits:
        limits = without_limits(settings.limits, {*origin.written, *origin.settings})
        if limits:
            changes["limits"] = with_limits(tool.limits, limits)
            told |= {f"limits.{key}": settings.places[f"limits.{key}"] for key in limits}
    glob = first_match(tool.name, settings.modes)
    if glob is not None and settings.modes[glob] != tool.mode:
        # A tool that is named exactly gets the mode even without a block: the resulting error tells the user
        # about the mistake.
        mode = settings.modes[glob]
        if mode in tool.bindings or glob == tool.name:
            changes["mode"], told["mode"] = mode, settings.places[f"modes.{glob}"]
    if not changes:
        return tool
    return tool._replace(**changes, origin=origin._replace(settings={**origin.settings, **told}))


def has_same_egress(one: Settings | None, other: Settings | None) -> bool:
    """Whether two settings allow the same hosts, programs, origins, and servers under the same lock and in the same sandbox."""
    return _reach(one) == _reach(other)


def _reach(settings: Settings | None) -> tuple[object, ...]:
    if settings is None:
        return _reach(NO_SETTINGS)
    # The last field is the place in the file, which does not change what the server is.
    servers = {name: plain[:-1] for name, plain in settings.servers.items()}
    access = read_access(settings.access)._replace(rules=(), places=NOTHING)
    return tuple(settings.egress), dict(settings.origins), servers, settings.lock, access, settings.sandbox


def first_match(name: str, globs: Iterable[str]) -> str | None:
    """The first glob that matches a name, if any."""
    return next((glob for glob in globs if fnmatchcase(name, glob)), None)


OFF = "off"

_BELOW = "limits."

_SIZES = frozenset({"input_size", "output_size", "memory", "written_bytes"})


def flatten_limits(said: Mapping[str, Any]) -> dict[str, JSON]:
    """Flatten `limits` to keys with dots: `{"breaker": {"failures": 3}}` becomes `{"breaker.failures": 3}`.

    The `rules` of a project are no limits of single tools, and left out.
    """
    flat: dict[str, JSON] = {}
    for key, value in said.items():
        if key == "rules":
            continue
        if isinstance(value, dict):
            flat |= {f"{key}.{inner}": item for inner, item in value.items()}
        else:
            flat[key] = value
    return flat


def keys_overlap(key: str, other: str) -> bool:
    """Whether two keys with dots overlap, like `breaker` and `breaker.failures`."""
    return key == other or key.startswith(f"{other}.") or other.startswith(f"{key}.")


def overlay_limits(lower: Mapping[str, JSON], upper: Mapping[str, JSON]) -> dict[str, JSON]:
    """Merge flat limits; those of `upper` replace the overlapping ones of `lower`."""
    # `breaker: off` above must remove `breaker.failures` below, so keys are compared by overlap, not by equality.
    left = {key: value for key, value in lower.items() if not any(keys_overlap(key, said) for said in upper)}
    return {**left, **upper}


def without_limits(limits: Mapping[str, JSON], told: Iterable[str]) -> dict[str, JSON]:
    """The flat limits that do not overlap with the names that a tool sets: `limits.breaker` ..."""
    said = [name.removeprefix(_BELOW) for name in told if name.startswith(_BELOW)]
    return {key: value for key, value in limits.items() if not any(keys_overlap(key, each) for each in said)}


def parse_limits(said: Mapping[str, Any]) -> Limits:
    """The limits of a document that its schema has accepted, on top of the built-in ones."""
    return with_limits(Limits(), flatten_limits(said))


def with_limits(limits: Limits, said: Mapping[str, JSON]) -> Limits:
    """Replace some limits, given with dots and as documents write them."""
    for key, value in said.items():
        name, _, part = key.partition(".")
        if part:
            # A breaker that is switched off below is None; setting one of its keys switches it on again.
            block: Any = getattr(limits, name) or Breaker()
            limits = limits._replace(**{name: block._replace(**{part: _read(value)})})
        else:
            limits = limits._replace(**{name: read_limit(name, value)})
    return limits


def read_limit(name: str, value: JSON) -> Any:
    """Parse a limit: a number, a size, `off`, a rate (`10/1m`), a share (`20%`) or a duration."""
    return parse_size(value) if name in _SIZES and isinstance(value, str | int | float) else _read(value)


def _read(value: JSON) -> Any:
    if not isinstance(value, str):
        return value
    if value == OFF:
        return None
    if "/" in value:
        calls, _, time = value.partition("/")
        return Rate(int(calls), parse_duration(time))
    # Durations never end with `%` and never contain `/`, so the form of a text is unambiguous.
    return float(value[:-1]) / 100 if value.endswith("%") else parse_duration(value)


def format_limits(limits: Limits) -> dict[str, JSON]:
    """The limits as a document writes them, with dots; the inverse of `with_limits`."""
    said: dict[str, JSON] = {
        "rate": _rate(limits.rate),
        "concurrency": limits.concurrency,
        "queue": limits.queue,
        "attempts": limits.attempts,
        "backoff.first": format_duration(limits.backoff.first),
        "backoff.longest": format_duration(limits.backoff.longest),
        "retry_budget": f"{limits.retry_budget * 100:.4g}%",
        "breaker": OFF if limits.breaker is None else None,
        "cache": limits.cache,
        "input_size": format_size(limits.input_size),
        "output_size": format_size(limits.output_size),
        "output_items": limits.output_items,
        "memory": None if limits.memory is None else format_size(limits.memory),
        "cpu_time": None if limits.cpu_time is None else format_duration(limits.cpu_time),
        "open_files": limits.open_files,
        "written_bytes": None if limits.written_bytes is None else format_size(limits.written_bytes),
        "processes": limits.processes,
        "origin.rate": _rate(limits.origin.rate),
        "origin.concurrency": limits.origin.concurrency,
        "origin.queue": limits.origin.queue,
    }
    if limits.breaker is not None:
        failures, within, open_for = limits.breaker
        said |= {"breaker.failures": failures, "breaker.within": format_duration(within)}
        said["breaker.open_for"] = format_duration(open_for)
    return {key: value for key, value in said.items() if value is not None}


def _rate(rate: Rate | None) -> str | None:
    return None if rate is None else f"{rate.calls}/{format_duration(rate.seconds)}"


def tool_limits(tool: Descriptor) -> dict[str, JSON]:
    """The limits of a tool that are set explicitly, with dots and as documents write them."""
    told = {*tool.origin.written, *tool.origin.settings}
    return {name: value for name, value in format_limits(tool.limits).items() if f"{_BELOW}{name}" in told}


def check_limits(said: Mapping[str, Any], pointer: str) -> Iterator[Problem]:
    """The problems of `limits` that the schema cannot find; `pointer` is that of the enclosing object."""
    if "limits" not in said:
        return
    limits = parse_limits(said["limits"])
    times = {
        "rate": limits.rate and limits.rate.seconds,
        "origin.rate": limits.origin.rate and limits.origin.rate.seconds,
        "breaker.within": limits.breaker and limits.breaker.within,
        "breaker.open_for": limits.breaker and limits.breaker.open_for,
        "cpu_time": limits.cpu_time,
    }
    for key, seconds in times.items():
        if seconds == 0:
            message = f"`{key}` must be longer than 0s"
            yield _out_of_range(message, f"{pointer}/limits/{key.replace('.', '/')}", "write `1s` or longer")
    if limits.backoff.first > limits.backoff.longest:
        first, longest = (format_duration(seconds) for seconds in limits.backoff)
        message = f"`first` is {first}, longer than `longest`, which is {longest}"
        yield _out_of_range(message, f"{pointer}/limits/backoff", "set both; the defaults are 200ms and 10s")


def _out_of_range(message: str, pointer: str, hint: str) -> Problem:
    return Problem(code="out_of_range", message=message, pointer=pointer, hint=hint)
