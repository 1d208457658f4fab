"""Freshness of responses: RFC 9111 for a private cache without heuristics."""

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
"""Maximum lifetime in seconds; larger values are capped (section 1.2.2)."""

_DIRECTIVE = re.compile(r'([!#$%&\'*+.^_`|~0-9A-Za-z-]+)\s*(?:=\s*("(?:[^"\\]|\\.)*"|[^,\s"]*))?[^,]*(?:,|$)')


def freshness(request: HTTPRequest, response: HTTPResponse, now: datetime) -> dict[str, JSON] | None:
    """How long a response stays fresh, and the headers that revalidate it.

    Directives for shared caches are ignored. Without `max-age` or `Expires` a response is stale immediately
    (no heuristics, section 4.2.2).

    Args:
        request: The request.
        response: Its response, or a 304 to a conditional request.
        now: The time at which the response arrived, with its time zone.

    Returns:
        `lifetime` and `age` in seconds, and `validators`: request header -> value. `lifetime` is None if a 304 does
        not change it. None if the response must not be stored, or storing it would save nothing.
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
    """The directives of `Cache-Control` by lower-case name, each with all its values (section 5.2)."""
    found: dict[str, list[str]] = {}
    for field in fields:
        for match in _DIRECTIVE.finditer(field):
            found.setdefault(match[1].lower(), []).append((match[2] or "").strip('"'))
    return found


def _seconds(values: list[str]) -> float:
    """The seconds of a directive; 0.0 if the values are invalid or differ."""
    # Section 4.2.1: conflicting or invalid freshness information makes a response stale.
    (value, *others) = dict.fromkeys(values)
    if others or not re.fullmatch(r"[0-9]+", value):
        return 0.0
    return float(min(int(value[:20]), _LONGEST))


def _asks_for_nothing_kept(request: HTTPRequest, asked: dict[str, list[str]]) -> bool:
    """Whether the request has `Pragma: no-cache`."""
    # Section 5.4: `Pragma` counts only without `Cache-Control`.
    return not asked and any(
        name.lower() == "pragma" and "no-cache" in value.lower() for name, value in request.headers
    )


def _varies_by_anything(response: HTTPResponse) -> bool:
    """Whether the response has `Vary: *` (section 4.1)."""
    # Other values of `Vary` need no check: cached responses are keyed by tool, arguments and caller, and all
    # request headers follow from these.
    return any(name == "vary" and "*" in value for name, value in response.headers)


def _lifetime(told: dict[str, list[str]], response: HTTPResponse, now: datetime) -> float | None:
    """The freshness lifetime in seconds (section 4.2.1); None if the response does not state one."""
    if "no-cache" in told:
        return 0.0
    if "max-age" in told:
        return _seconds(told["max-age"])
    expires = [value for name, value in response.headers if name == "expires"]
    if not expires:
        return None
    moments = [_moment(value) for value in dict.fromkeys(expires)]
    # An invalid date such as `Expires: 0` means "already expired" (section 5.3).
    if len(moments) > 1 or moments[0] is None:
        return 0.0
    since = _moment(response.header("date")) or now
    return min(max((moments[0] - since).total_seconds(), 0.0), float(_LONGEST))


def _age(response: HTTPResponse, now: datetime) -> float:
    """The age of the response in seconds when it arrived (section 4.2.3)."""
    sent = _moment(response.header("date"))
    apparent = 0.0 if sent is None else max((now - sent).total_seconds(), 0.0)
    ages = list(_numbers(response))
    return max(apparent, *ages) if ages else apparent


def _numbers(response: HTTPResponse) -> Iterator[float]:
    for name, value in response.headers:
        if name == "age" and re.fullmatch(r"[0-9]+", value.strip()):
            yield float(min(int(value.strip()[:20]), _LONGEST))


def _moment(text: str | None) -> datetime | None:
    """Parse an HTTP date (RFC 9110 section 5.6.7); None if invalid."""
    if text is None:
        return None
    try:
        moment = parsedate_to_datetime(text)
    except (ValueError, OverflowError):
        return None
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment


def _validators(response: HTTPResponse) -> dict[str, JSON]:
    """The headers of a conditional request (section 4.3.1)."""
    # Both values come from the server and are sent back, so they must have the form of a tag and of a date.
    found: dict[str, JSON] = {}
    tag, changed = response.header("etag"), response.header("last-modified")
    if tag is not None and re.fullmatch(r'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"', tag):
        found["If-None-Match"] = tag
    if changed is not None and _moment(changed) is not None:
        found["If-Modified-Since"] = changed
    return found
