"""Where an answer may lead a request: the hops of a redirect (RFC 9110 section 15.4)."""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import urljoin

from toolcrib.http import Request
from toolcrib.http.messages import origin_of, parse_origin

CROSSING = frozenset({"accept", "accept-language", "user-agent"})
"""Headers that may cross to another origin. Of all others nobody knows whom they are meant for."""

_READING = frozenset({"GET", "HEAD"})


def hop(request: Request, status: int, location: str, own: Collection[str]) -> Request | None:
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
    place = _place(request, location)
    if place is None:
        return None
    scheme, host, port, target = place
    origin = origin_of(scheme, host, port)
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
    return Request(method, scheme, host, port, target, headers, body)


def _place(request: Request, location: str) -> tuple[str, str, int, str] | None:
    """Scheme, host, port and target of where an answer points; None where that is no address of http."""
    if not location.isascii() or any(character <= " " or character == "\x7f" for character in location):
        return None
    try:
        address, _hash, _fragment = urljoin(request.url, location).partition("#")
        before, divider, after = address.partition("//")
        authority, slash, rest = after.partition("/")
        authority, question, query = authority.partition("?")
        scheme, host, port = parse_origin(f"{before}{divider}{authority}")
    except ValueError:
        return None
    return scheme, host, port, f"/{question}{query}{slash if question else ''}{rest}"
