"""The lines around a body: those of a request, as they are sent, and those of an answer, judged before its body is read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache

from toolcrib.http.content_encoding import Body
from toolcrib.http.messages import DEFAULT_PORTS, HOST, Bounds, Fault, HTTPError, Request

SENDER_WRITES = frozenset({"content-length", "host"})
"""Headers that follow from the rest of a request; a second opinion about them is how requests are smuggled."""

OF_THE_CONNECTION = frozenset(
    {
        "connection",
        "expect",
        "keep-alive",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)
"""Headers that speak of the connection (RFC 9110 section 7.6.1), which is the sender's, not the request's."""

_ANTICIPATES_CONTENT = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_METHOD = re.compile(r"[A-Z]{1,32}")
_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_RAW_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_TARGET = re.compile(r"/[!-\"$-~]*")  # visible ASCII but `#`
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_RAW_VALUE = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")
_LENGTH = re.compile(r"[0-9]{1,18}")
_NO_BODY = frozenset({204, 304})


def request_lines(request: Request) -> list[tuple[str, str]]:
    """The headers of a request, in order, with those that the sender writes.

    `Accept-Encoding: gzip` stands unless the request says otherwise; `Content-Length` wherever there is a body or the
    method may have one (RFC 9110 section 8.6). A name that comes again is spelt as it was the first time.

    Raises:
        HTTPError: `bad_request`: something would not stay in its place on the wire. The value is never shown.
    """
    _check_first_line(request)
    lines = [("Host", _host_line(request.scheme, request.host, request.port))]
    spelt: dict[str, str] = {}
    for name, value in request.headers:
        spelling = spelt.setdefault(_lower(name), name)
        if not _VALUE.fullmatch(value):
            raise _refused(f"the value of the header `{name}` holds characters that no header may hold")
        lines.append((spelling, value.strip(" \t")))
    if "accept-encoding" not in spelt:
        lines.append(("Accept-Encoding", "gzip"))
    if request.body or request.method in _ANTICIPATES_CONTENT:
        lines.append(("Content-Length", str(len(request.body))))
    return lines


def request_target(request: Request) -> str:
    """The target as it is sent; a question mark with no query behind it is dropped."""
    target = request.target
    return target[:-1] if target.find("?") == len(target) - 1 else target


def _check_first_line(request: Request) -> None:
    if not _METHOD.fullmatch(request.method):
        raise _refused("the method is no word in upper case")
    if request.scheme not in DEFAULT_PORTS:
        raise _refused("the scheme is neither http nor https")
    if not HOST.fullmatch(request.host):
        raise _refused("the host is no name or address in lower-case ASCII")
    if not _TARGET.fullmatch(request.target):
        raise _refused("path and query are not percent-encoded, or do not begin with `/`")


@lru_cache(maxsize=1024)
def _lower(name: str) -> str:
    """The name of a header in lower case, if a request may have it."""
    if not _TOKEN.fullmatch(name):
        raise _refused("the name of a header holds characters that no name may hold (RFC 9110 section 5.1)")
    lower = name.lower()
    if lower in SENDER_WRITES:
        raise _refused(f"the header `{name}` follows from the rest of the request and can't be set")
    if lower in OF_THE_CONNECTION:
        raise _refused(f"the header `{name}` speaks of the connection and can't be set")
    return lower


@lru_cache(maxsize=1024)
def _host_line(scheme: str, host: str, port: int) -> str:
    shown = f"[{host}]" if ":" in host else host
    return shown if DEFAULT_PORTS[scheme] == port else f"{shown}:{port}"


def _refused(message: str) -> HTTPError:
    return HTTPError(Fault.BAD_REQUEST, message, sent=False)


def answer_lines(raw: Sequence[tuple[bytes, bytes]]) -> tuple[tuple[str, str], ...]:
    """The headers of an answer: names in lower case, values read as latin-1.

    Raises:
        HTTPError: `bad_response`: a name or value holds what none may hold (RFC 9110 section 5).
    """
    headers = []
    for name, value in raw:
        if not _RAW_TOKEN.fullmatch(name) or not _RAW_VALUE.fullmatch(value):
            raise bad_response("a header of the answer holds characters that none may hold")
        headers.append((name.decode("ascii").lower(), value.decode("latin-1").strip(" \t")))
    return tuple(headers)


def body_of(method: str, status: int, headers: Sequence[tuple[str, str]], bounds: Bounds) -> Body | None:
    """What takes in the body of an answer; none where there can't be a body.

    Raises:
        HTTPError: The headers contradict each other (RFC 9112 section 6.3), announce more than the bound, or name a
            content coding that is not undone here.
    """
    if not 200 <= status <= 599:
        raise bad_response(f"the status {status} is none that ends an exchange")
    values: dict[str, list[str]] = {}
    for name, value in headers:
        if name in ("content-length", "transfer-encoding", "content-encoding"):
            values.setdefault(name, []).append(value)
    lengths = {length.strip() for each in values.get("content-length", ()) for length in each.split(",")}
    if len(lengths) > 1 or not all(map(_LENGTH.fullmatch, lengths)):
        raise bad_response("its Content-Length is no length, or several that differ")
    transfer = values.get("transfer-encoding")
    if transfer is not None and (lengths or [each.lower() for each in transfer] != ["chunked"]):
        raise bad_response("its Transfer-Encoding is not `chunked` alone")
    if method == "HEAD" or status in _NO_BODY:
        return None
    length = int(lengths.pop()) if lengths else None
    return Body(values.get("content-encoding", ()), bounds.body, length)


def bad_response(what: str) -> HTTPError:
    """The error of an answer that is no HTTP as it should be."""
    return HTTPError(Fault.BAD_RESPONSE, f"the server's answer is not valid HTTP: {what}", sent=True)


def broken() -> HTTPError:
    """The error of a connection that ended too early."""
    message = "the connection ended before the answer was complete"
    return HTTPError(Fault.CONNECTION_BROKEN, message, sent=True)
