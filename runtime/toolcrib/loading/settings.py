"""The settings that a project and a profile put in force, and where each of them was written.

Plain data, so that the index can keep it; importing this module imports nothing that reads documents. `limits` are kept
key by key, so that those of a profile are laid over those of a project or descriptor.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from toolcrib.core.clock import format_duration, parse_duration
from toolcrib.core.errors import Problem
from toolcrib.core.model import JSON, NOTHING, Breaker, Descriptor, Limits, Rate
from toolcrib.core.text import format_size, parse_size

PROFILE_VARIABLE = "TOOLCRIB_PROFILE"
"""The environment variable that names a profile where the command line or the code names none."""


class Settings(NamedTuple):
    """Settings in force. `Settings(*tuple(settings))` is equal to `settings`: everything in it is plain data.

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
        servers: Name of an MCP server -> `tuple(server)`, of which `Server(*values)` makes it again.
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
"""The settings outside projects."""


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
        limits = without_limits(settings.limits, {*origin.written, *origin.settings})
        if limits:
            changes["limits"] = with_limits(tool.limits, limits)
            told |= {f"limits.{key}": settings.places[f"limits.{key}"] for key in limits}
    glob = first_match(tool.name, settings.modes)
    if glob is not None and settings.modes[glob] != tool.mode:
        mode = settings.modes[glob]
        if mode in tool.bindings or glob == tool.name:
            changes["mode"], told["mode"] = mode, settings.places[f"modes.{glob}"]
    if not changes:
        return tool
    return tool._replace(**changes, origin=origin._replace(settings={**origin.settings, **told}))


def has_same_egress(one: Settings | None, other: Settings | None) -> bool:
    """Whether two settings let tools reach the same: hosts, origins, and servers under the same lock."""
    return _reach(one) == _reach(other)


def _reach(settings: Settings | None) -> tuple[object, ...]:
    if settings is None:
        return _reach(NO_SETTINGS)
    # Where a server is written does not matter to what it is.
    servers = {name: plain[:-1] for name, plain in settings.servers.items()}
    return tuple(settings.egress), dict(settings.origins), servers, settings.lock


def first_match(name: str, globs: Iterable[str]) -> str | None:
    """The first glob that fits a name; None where none does."""
    return next((glob for glob in globs if fnmatchcase(name, glob)), None)


OFF = "off"

_BELOW = "limits."

_SIZES = frozenset({"input_size", "output_size"})


def flatten_limits(said: Mapping[str, Any]) -> dict[str, JSON]:
    """The keys under `limits` by names with dots: `{"breaker": {"failures": 3}}` is `{"breaker.failures": 3}`."""
    flat: dict[str, JSON] = {}
    for key, value in said.items():
        if isinstance(value, dict):
            flat |= {f"{key}.{inner}": item for inner, item in value.items()}
        else:
            flat[key] = value
    return flat


def keys_overlap(key: str, other: str) -> bool:
    """Whether two names with dots speak of the same: `breaker` does of `breaker.failures`."""
    return key == other or key.startswith(f"{other}.") or other.startswith(f"{key}.")


def overlay_limits(lower: Mapping[str, JSON], upper: Mapping[str, JSON]) -> dict[str, JSON]:
    """Two sayings as one, by names with dots: what the upper one speaks of is as it says."""
    left = {key: value for key, value in lower.items() if not any(keys_overlap(key, said) for said in upper)}
    return {**left, **upper}


def without_limits(limits: Mapping[str, JSON], told: Iterable[str]) -> dict[str, JSON]:
    """The limits, by names with dots, of which nothing that is told of a tool speaks: `limits.breaker` ..."""
    said = [name.removeprefix(_BELOW) for name in told if name.startswith(_BELOW)]
    return {key: value for key, value in limits.items() if not any(keys_overlap(key, each) for each in said)}


def parse_limits(said: Mapping[str, Any]) -> Limits:
    """The limits that a document writes, with the built-in ones. Their shape is right."""
    return with_limits(Limits(), flatten_limits(said))


def with_limits(limits: Limits, said: Mapping[str, JSON]) -> Limits:
    """The limits with others in place, these by names with dots and as documents write them."""
    for key, value in said.items():
        name, _, part = key.partition(".")
        if part:
            block: Any = getattr(limits, name) or Breaker()
            limits = limits._replace(**{name: block._replace(**{part: _read(value)})})
        else:
            read: Callable[[Any], Any] = parse_size if name in _SIZES else _read
            limits = limits._replace(**{name: read(value)})
    return limits


def _read(value: JSON) -> Any:
    """A number as it is; a rate, a share, a duration or `off` by its form."""
    if not isinstance(value, str):
        return value
    if value == OFF:
        return None
    if "/" in value:
        calls, _, time = value.partition("/")
        return Rate(int(calls), parse_duration(time))
    return float(value[:-1]) / 100 if value.endswith("%") else parse_duration(value)


def format_limits(limits: Limits) -> dict[str, JSON]:
    """The limits as a document writes them, by names with dots; `with_limits` reads them again."""
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
    """The limits of a tool that somebody says, by names with dots and as documents write them."""
    told = {*tool.origin.written, *tool.origin.settings}
    return {name: value for name, value in format_limits(tool.limits).items() if f"{_BELOW}{name}" in told}


def check_limits(said: Mapping[str, Any], pointer: str) -> Iterator[Problem]:
    """Problems of `limits` beyond their shape; `pointer` leads to the object that holds them."""
    if "limits" not in said:
        return
    limits = parse_limits(said["limits"])
    times = {
        "rate": limits.rate and limits.rate.seconds,
        "origin.rate": limits.origin.rate and limits.origin.rate.seconds,
        "breaker.within": limits.breaker and limits.breaker.within,
        "breaker.open_for": limits.breaker and limits.breaker.open_for,
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
