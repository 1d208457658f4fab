"""How long an answer may be given again: RFC 9111 for a private cache that guesses nothing."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from toolcrib.core.model import JSON
from toolcrib.http.messages import HTTPRequest, HTTPResponse

_METHODS = frozenset({"GET", "HEAD"})
_STATUSES = frozenset({200, 203, 204})
_NOT_MODIFIED = 304

_LONGEST = 2**31
"""Seconds; what is longer counts as this (section 1.2.2)."""

_DIRECTIVE = re.compile(r'([!#$%&\'*+.^_`|~0-9A-Za-z-]+)\s*(?:=\s*("(?:[^"\\]|\\.)*"|[^,\s"]*))?[^,]*(?:,|$)')


def freshness(request: HTTPRequest, response: HTTPResponse, now: datetime) -> dict[str, JSON] | None:
    """How long an answer holds, and what asks whether it still does.

    Directives for shared caches are passed over, and where neither `max-age` nor `Expires` says so an answer does
    not hold without asking (no heuristics, section 4.2.2).

    Args:
        request: What was sent.
        response: The answer, or a 304 to a conditional request.
        now: The time of day when it came, with its time zone.

    Returns:
        `lifetime` and `age` in seconds, and `validators`: request header -> value. `lifetime` is None where a 304
        says nothing new of it. None where the answer must not be kept, or keeping it would spare nothing.
    """
    if request.method not in _METHODS or response.status not in _STATUSES | {_NOT_MODIFIED}:
        return None
    asked = _directives(value for name, value in request.headers if name.lower() == "cache-control")
    told = _directives(value for name, value in response.headers if name == "cache-control")
    if "no-store" in asked or "no-store" in told or _varies_by_anything(response):
        return None
    age = _age(response, now)
    lifetime = _lifetime(told, response, now)
    if "no-cache" in asked or _asks_for_nothing_kept(request, asked):
        lifetime = 0.0
    elif "max-age" in asked and lifetime is not None:
        lifetime = min(lifetime, _seconds(asked["max-age"]))
    if lifetime is None and response.status != _NOT_MODIFIED:
        lifetime = 0.0
    validators = _validators(response)
    if lifetime is not None and lifetime <= age and not validators:
        return None
    return {"lifetime": lifetime, "age": age, "validators": validators}


def _directives(fields: Iterable[str]) -> dict[str, list[str]]:
    """The directives of `Cache-Control` by lower-case name, with all values that each has (section 5.2)."""
    found: dict[str, list[str]] = {}
    for field in fields:
        for match in _DIRECTIVE.finditer(field):
            found.setdefault(match[1].lower(), []).append((match[2] or "").strip('"'))
    return found


def _seconds(values: list[str]) -> float:
    """The seconds of a directive; 0.0, which is stale, where they are no number or contradict each other (4.2.1)."""
    (value, *others) = dict.fromkeys(values)
    if others or not re.fullmatch(r"[0-9]+", value):
        return 0.0
    return float(min(int(value[:20]), _LONGEST))


def _asks_for_nothing_kept(request: HTTPRequest, asked: dict[str, list[str]]) -> bool:
    """`Pragma: no-cache` of old clients, where there is no `Cache-Control` (section 5.4)."""
    return not asked and any(
        name.lower() == "pragma" and "no-cache" in value.lower() for name, value in request.headers
    )


def _varies_by_anything(response: HTTPResponse) -> bool:
    """`Vary: *` (section 4.1). Other headers follow from the arguments and from who calls, by which answers are kept."""
    return any(name == "vary" and "*" in value for name, value in response.headers)


def _lifetime(told: dict[str, list[str]], response: HTTPResponse, now: datetime) -> float | None:
    """Seconds for which the answer is fresh from its origin (section 4.2.1); None where nothing says so."""
    if "no-cache" in told:
        return 0.0
    if "max-age" in told:
        return _seconds(told["max-age"])
    expires = [value for name, value in response.headers if name == "expires"]
    if not expires:
        return None
    moments = [_moment(value) for value in dict.fromkeys(expires)]
    if len(moments) > 1 or moments[0] is None:  # `Expires: 0` says that it is stale already (section 5.3)
        return 0.0
    since = _moment(response.header("date")) or now
    return min(max((moments[0] - since).total_seconds(), 0.0), float(_LONGEST))


def _age(response: HTTPResponse, now: datetime) -> float:
    """Seconds that the answer was old when it came (section 4.2.3)."""
    sent = _moment(response.header("date"))
    apparent = 0.0 if sent is None else max((now - sent).total_seconds(), 0.0)
    ages = list(_numbers(response))
    return max(apparent, *ages) if ages else apparent


def _numbers(response: HTTPResponse) -> Iterator[float]:
    for name, value in response.headers:
        if name == "age" and re.fullmatch(r"[0-9]+", value.strip()):
            yield float(min(int(value.strip()[:20]), _LONGEST))


def _moment(text: str | None) -> datetime | None:
    """A time of day as headers write it (RFC 9110, section 5.6.7); None for anything else."""
    if text is None:
        return None
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def _validators(response: HTTPResponse) -> dict[str, JSON]:
    """What a conditional request carries (section 4.3.1): the tag, and the date where it is one."""
    found: dict[str, JSON] = {}
    tag, changed = response.header("etag"), response.header("last-modified")
    if tag is not None and re.fullmatch(r'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"', tag):
        found["If-None-Match"] = tag
    if changed is not None and _moment(changed) is not None:
        found["If-Modified-Since"] = changed
    return found
