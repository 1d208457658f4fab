"""Where a response may lead: the addresses that it names, and redirects (RFC 9110 section 15.4)."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple
from urllib.parse import quote, urljoin, urlsplit

from toolcrib.http import HTTPRequest
from toolcrib.http.messages import DEFAULT_PORTS, HOST, origin_of

CROSSING = frozenset({"accept", "accept-language", "user-agent"})
"""Headers that may cross to another origin. Of all others nobody knows whom they are meant for."""

_READING = frozenset({"GET", "HEAD"})
_SAFE = "/?:@!$&'()*+,;=~-._%"
_LONGEST = 8192


def follow_redirect(
    request: HTTPRequest, status: int, location: str, own: Collection[str]
) -> HTTPRequest | None:
    """The request to where an answer points.

    POST becomes GET where the status says so, as everywhere; other methods stay. Nothing goes from https to http,
    and to another origin only what reads, with neither body nor credentials.

    Args:
        request: What was answered.
        status: The answer's: 301, 302, 303, 307 or 308.
        location: Where it points, absolute or relative.
        own: Origins that count as one with each other.

    Returns:
        None for what is not followed.
    """
    if not location.isascii() or any(character <= " " or character == "\x7f" for character in location):
        return None
    try:
        origin, scheme, host, port, path, query = resolve_location(request.url, location)
    except ValueError:
        return None
    same = origin == request.origin or {origin, request.origin} <= set(own)
    if request.scheme == "https" and scheme != "https" and not same:
        return None
    method, headers, body = request.method, request.headers, request.body
    if method not in _READING and (status == 303 or (method == "POST" and status in {301, 302})):
        method, body = "GET", b""
        headers = tuple(each for each in headers if not each[0].lower().startswith("content-"))
    if not same:
        if method not in _READING or body:
            return None
        headers = tuple(each for each in headers if each[0].lower() in CROSSING)
    return HTTPRequest(method, scheme, host, port, f"{path}?{query}" if query else path, headers, body)


class LinkTarget(NamedTuple):
    """Where an answer points.

    Attributes:
        origin: As text.
        scheme: `http` or `https`.
        host: Lower case, without brackets.
        port: The port.
        path: Percent-encoded, beginning with `/`.
        query: Percent-encoded; empty for none.
    """

    origin: str
    scheme: str
    host: str
    port: int
    path: str
    query: str


def resolve_location(base: str, location: str) -> LinkTarget:
    """Where a location of an answer leads, absolute or relative to the address that was asked; no fragment.

    Raises:
        ValueError: It is no address that may be called; its text goes on behind the name of the thing.
    """
    if len(location) > _LONGEST:
        raise ValueError(f"exceeds {_LONGEST:,} characters")
    try:
        parts = urlsplit(urljoin(base, location))
        scheme, host = parts.scheme, (parts.hostname or "").lower()
        port = DEFAULT_PORTS.get(scheme, 0) if parts.port is None else parts.port
        path, query = quote(parts.path or "/", safe=_SAFE), quote(parts.query, safe=_SAFE)
    except ValueError:
        raise ValueError("is not a valid URL") from None
    known = scheme in DEFAULT_PORTS and HOST.fullmatch(host) is not None
    if not known or "@" in parts.netloc or not path.startswith("/"):
        raise ValueError("is not an http or https URL")
    return LinkTarget(origin_of(scheme, host, port), scheme, host, port, path, query)
