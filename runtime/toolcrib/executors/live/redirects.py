"""Resolve locations that a response names, and follow redirects (RFC 9110 section 15.4)."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple
from urllib.parse import quote, urljoin, urlsplit

from toolcrib.http import HTTPRequest
from toolcrib.http.messages import DEFAULT_PORTS, HOST, origin_of

CROSSING = frozenset({"accept", "accept-language", "user-agent"})
"""The only headers that are sent to another origin. Any other header may be a credential of the first one."""

_READING = frozenset({"GET", "HEAD"})
_SAFE = "/?:@!$&'()*+,;=~-._%"
# Common servers refuse request lines of more than 8 KiB.
_LONGEST = 8192


def follow_redirect(
    request: HTTPRequest, status: int, location: str, own: Collection[str]
) -> HTTPRequest | None:
    """The request for a redirect.

    POST becomes GET for 301 and 302, and any other method for 303, as in browsers. No redirect leads from
    https to http, except between `own` origins. Only GET and HEAD without a body are sent to another origin,
    without credentials.

    Args:
        request: The redirected request.
        status: The status of the response: 301, 302, 303, 307 or 308.
        location: The `Location` header, absolute or relative.
        own: Origins that count as the same origin.

    Returns:
        The next request; None if the redirect must not be followed.
    """
    # Control characters and spaces could split the request line or hide the real host from the checks below.
    if not location.isascii() or any(character <= " " or character == "\x7f" for character in location):
        return None
    try:
        origin, scheme, host, port, path, query = resolve_location(request.url, location)
    except ValueError:
        return None
    same = origin == request.origin or {origin, request.origin} <= set(own)
    # `own` may map an https origin to a local http stand-in, which the project configured deliberately.
    if request.scheme == "https" and scheme != "https" and not same:
        return None
    method, headers, body = request.method, request.headers, request.body
    # RFC 9110 section 15.4: 303 always becomes GET; for 301 and 302 clients historically change POST only.
    if method not in _READING and (status == 303 or (method == "POST" and status in {301, 302})):
        method, body = "GET", b""
        headers = tuple(each for each in headers if not each[0].lower().startswith("content-"))
    if not same:
        if method not in _READING or body:
            return None
        headers = tuple(each for each in headers if each[0].lower() in CROSSING)
    return HTTPRequest(method, scheme, host, port, f"{path}?{query}" if query else path, headers, body)


class LinkTarget(NamedTuple):
    """A resolved location.

    Attributes:
        origin: The origin as text, such as `https://api.example.com`.
        scheme: `http` or `https`.
        host: The host in lower case, without brackets.
        port: The port.
        path: The path, percent-encoded, starting with `/`.
        query: The query, percent-encoded; empty for none.
    """

    origin: str
    scheme: str
    host: str
    port: int
    path: str
    query: str


def resolve_location(base: str, location: str) -> LinkTarget:
    """Resolve a location in a response relative to the URL of its request. Fragments are dropped.

    Raises:
        ValueError: The location is not a usable URL. The message is a predicate, such as `is not a valid
            URL`, for the caller to put a subject before.
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
    # `https://api.example.com@evil.test/` looks like the first host and leads to the second.
    if not known or "@" in parts.netloc or not path.startswith("/"):
        raise ValueError("is not an http or https URL")
    return LinkTarget(origin_of(scheme, host, port), scheme, host, port, path, query)
