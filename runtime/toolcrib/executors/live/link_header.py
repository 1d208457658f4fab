"""Links to the next page: the `Link` header (RFC 8288), and how a link is followed without leaving the API."""

from __future__ import annotations

import re
from collections.abc import Collection
from urllib.parse import parse_qsl

from toolcrib.executors.live.redirects import CROSSING, pointed_at
from toolcrib.http.messages import RequestDraft

_TARGET = re.compile(r"\s*<([^>]*)>")
_PARAMETER = re.compile(r'\s*;\s*([^\s=;,"<>]+)(?:\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s;,"]*)))?')
_SEPARATOR = re.compile(r"\s*(,|$)")


class LinkRefused(Exception):
    """A link is not followed. Its text names scheme and host at most."""


def next_link(header: str) -> str | None:
    """The target of the first link with the relation `next`; None where there is none.

    Of a link that is written wrongly, and of all behind it, nothing is taken. A link with an `anchor` speaks of
    another page (section 3.2) and is passed over.
    """
    at = 0
    while (target := _TARGET.match(header, at)) is not None:
        parameters: dict[str, str] = {}
        at = target.end()
        while (found := _PARAMETER.match(header, at)) is not None:
            value = re.sub(r"\\(.)", r"\1", found[2]) if found[2] is not None else found[3] or ""
            parameters.setdefault(found[1].lower(), value)  # only the first `rel` counts (section 3.3)
            at = found.end()
        if "next" in parameters.get("rel", "").lower().split() and "anchor" not in parameters:
            return target[1]
        separator = _SEPARATOR.match(header, at)
        if separator is None or not separator[1]:
            return None
        at = separator.end()
    return None


def followed(draft: RequestDraft, target: str, *, foreign: bool, own: Collection[str] = ()) -> RequestDraft:
    """The request to where a link of an answer points.

    Args:
        draft: The request that was answered, without what authentication adds.
        target: The link, absolute or relative to that request.
        foreign: Whether another origin may be asked at all; the guard of connections judges its host then.
        own: Further origins that count as that of the draft.

    Raises:
        LinkRefused: It leads elsewhere, or is no link.
    """
    try:
        origin, scheme, host, port, path, query = pointed_at(draft.finished().url, target.strip())
    except ValueError as error:
        raise LinkRefused(f"the link to the next page {error}") from None
    following = draft.copied()
    following.path, following.query = path, [piece for piece in query.split("&") if piece]
    if origin == draft.origin or origin in own:
        return following
    if not foreign:
        raise LinkRefused(f"the link to the next page leads to another origin, {origin}")
    if draft.scheme == "https" and scheme != "https":
        raise LinkRefused(f"the link to the next page leads from https to {origin}")
    following.scheme, following.host, following.port = scheme, host, port
    following.headers = [(name, value) for name, value in draft.headers if name.lower() in CROSSING]
    following.cookies, following.body = [], b""
    return following


def parameter_of(draft: RequestDraft, name: str) -> str | None:
    """The last value that a parameter has in the query of a request; None where it has none."""
    values = [value for key, value in parse_qsl("&".join(draft.query), keep_blank_values=True) if key == name]
    return values[-1] if values else None
