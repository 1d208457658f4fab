"""The key `limits` of descriptors, projects and profiles: said key by key, so that one saying is laid over another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from toolcrib.core.clock import format_duration, parse_duration
from toolcrib.core.errors import Problem
from toolcrib.core.model import JSON, Breaker, Descriptor, Limits, Rate
from toolcrib.core.text import format_size, parse_size

OFF = "off"

_BELOW = "limits."

_SIZES = frozenset({"input_size", "output_size"})


def spread(said: Mapping[str, Any]) -> dict[str, JSON]:
    """What stands under `limits` by names with dots: `{"breaker": {"failures": 3}}` is `{"breaker.failures": 3}`."""
    flat: dict[str, JSON] = {}
    for key, value in said.items():
        if isinstance(value, dict):
            flat |= {f"{key}.{inner}": item for inner, item in value.items()}
        else:
            flat[key] = value
    return flat


def overlaps(key: str, other: str) -> bool:
    """Whether two names with dots speak of the same: `breaker` does of `breaker.failures`."""
    return key == other or key.startswith(f"{other}.") or other.startswith(f"{key}.")


def laid_over(lower: Mapping[str, JSON], upper: Mapping[str, JSON]) -> dict[str, JSON]:
    """Two sayings as one, by names with dots: what the upper one speaks of is as it says."""
    left = {key: value for key, value in lower.items() if not any(overlaps(key, said) for said in upper)}
    return {**left, **upper}


def unsaid(limits: Mapping[str, JSON], told: Iterable[str]) -> dict[str, JSON]:
    """The limits, by names with dots, of which nothing that is told of a tool speaks: `limits.breaker` ..."""
    said = [name.removeprefix(_BELOW) for name in told if name.startswith(_BELOW)]
    return {key: value for key, value in limits.items() if not any(overlaps(key, each) for each in said)}


def limits_of(said: Mapping[str, Any]) -> Limits:
    """The limits that a document writes, with the built-in ones. Their shape is right."""
    return with_limits(Limits(), spread(said))


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


def written(limits: Limits) -> dict[str, JSON]:
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


def said_of(tool: Descriptor) -> dict[str, JSON]:
    """The limits of a tool that somebody says, by names with dots and as documents write them."""
    told = {*tool.origin.written, *tool.origin.settings}
    return {name: value for name, value in written(tool.limits).items() if f"{_BELOW}{name}" in told}


def check_limits(said: Mapping[str, Any], pointer: str) -> Iterator[Problem]:
    """What is wrong with `limits` beyond their shape; `pointer` leads to what holds them."""
    if "limits" not in said:
        return
    limits = limits_of(said["limits"])
    times = {
        "rate": limits.rate and limits.rate.seconds,
        "origin.rate": limits.origin.rate and limits.origin.rate.seconds,
        "breaker.within": limits.breaker and limits.breaker.within,
        "breaker.open_for": limits.breaker and limits.breaker.open_for,
    }
    for key, seconds in times.items():
        if seconds == 0:
            message = f"`{key}` needs a time longer than 0s"
            yield _out_of_range(message, f"{pointer}/limits/{key.replace('.', '/')}", "write `1s` or longer")
    if limits.backoff.first > limits.backoff.longest:
        first, longest = (format_duration(seconds) for seconds in limits.backoff)
        message = f"`first` is {first}, longer than `longest`, which is {longest}"
        yield _out_of_range(
            message, f"{pointer}/limits/backoff", "write both: 200ms and 10s are the built-in ones"
        )


def _out_of_range(message: str, pointer: str, hint: str) -> Problem:
    return Problem(code="out_of_range", message=message, pointer=pointer, hint=hint)
