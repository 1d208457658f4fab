"""Header rules: valid names and values, the headers of a request as sent and of a response as received.

Response headers are checked before the body is read. `Retry-After` is parsed here, too.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import quote

from toolcrib.core.model import JSON
from toolcrib.http.messages import DEFAULT_PORTS, HOST, HTTPError, HTTPFailure, HTTPRequest, bad_response

COOKIE_SAFE: Final = "!#$&'()*+-./:<=>?@[]^_`{|}~"
"""Characters allowed in a cookie value (RFC 6265 section 4.1.1), without `%`, which starts an escape."""

_NOT_IN_HEADER: Final = re.compile(r"[^\t\x20-\x7e\x80-\xff]")
_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
"""A token (RFC 9110 section 5.6.2)."""

_SENT_BY_US: Final = "the client sets it when it sends the request; remove it"

FORBIDDEN: Final = {
    **dict.fromkeys(
        ["host", "content-length", "transfer-encoding", "accept-encoding", "expect", "content-encoding"],
        _SENT_BY_US,
    ),
    **dict.fromkeys(
        ["connection", "keep-alive", "proxy-connection", "te", "trailer", "upgrade", "http2-settings"],
        "it belongs to the connection, which the client manages; remove it",
    ),
    "proxy-authorization": "requests are not sent through a proxy; remove it",
    "cookie": "write `cookies: {name: value}`",
}
"""Lower-case name -> why a block cannot set it (framing and hop-by-hop headers: RFC 9110 sections 7.6.1, 8.6, 10.1)."""


class NameFault(NamedTuple):
    """What is wrong with a header name: code, message and hint of the problem."""

    code: str
    message: str
    hint: str


def is_token(name: str) -> bool:
    """Whether a name is a token: visible ASCII without separators (RFC 9110 section 5.6.2)."""
    return _TOKEN.fullmatch(name) is not None


def fault_of_name(name: str) -> NameFault | None:
    """What is wrong with a header name; None if it is valid."""
    if not is_token(name):
        hint = "use letters, digits and `-`; a header name cannot be an expression"
        return NameFault(code="wrong_form", message=f"invalid header name `{name}`", hint=hint)
    if name.lower() in FORBIDDEN:
        message = f"the header `{name}` cannot be set here"
        return NameFault(code="reserved_header", message=message, hint=FORBIDDEN[name.lower()])
    return None


def header_fault(text: str) -> str:
    """What is wrong with a header value; empty if it is valid. The text never quotes the value, which may be secret."""
    match = _NOT_IN_HEADER.search(text)
    if match is None:
        return ""
    if match[0] in "\r\n":
        return "contains a line break, which is not allowed in a header"
    if match[0] < " " or match[0] == "\x7f":
        return "contains a control character, which is not allowed in a header"
    return "contains a character outside Latin-1, which is not allowed in a header"


def cookie_fault(text: str) -> str:
    """What is wrong with a cookie value that is sent unencoded; empty if it is valid."""
    if quote(text, safe=COOKIE_SAFE + "%", errors="replace") == text:
        return ""
    return "contains a character that ends a cookie value: a space, quote, comma, semicolon, backslash or similar"


SENDER_WRITES = frozenset({"content-length", "host"})
"""Headers that the client derives from the request. A second, different value enables request smuggling."""

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
"""Connection-specific headers (RFC 9110 section 7.6.1), which only the client may set."""

_ANTICIPATES_CONTENT = frozenset({"POST", "PUT", "PATCH", "DELETE"})
_METHOD = re.compile(r"[A-Z]{1,32}")
_RAW_TOKEN = re.compile(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_TARGET = re.compile(r"/[!-\"$-~]*")  # visible ASCII but `#`
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")
_RAW_VALUE = re.compile(rb"[\t\x20-\x7e\x80-\xff]*")


def request_headers(request: HTTPRequest) -> list[tuple[str, str]]:
    """The headers of a request, in order, including those that the client adds.

    `Accept-Encoding: gzip` is added unless set; `Content-Length` is added if there is a body or the method
    anticipates one (RFC 9110 section 8.6). A repeated name keeps its first spelling.

    Raises:
        HTTPError: `bad_request`: a part contains characters that would break the framing. Values are never shown.
    """
    # Checked here again, although documents are checked at load: arguments, secrets and hooks fill in values
    # later.
    _check_first_line(request)
    lines = [("Host", _host_line(request.scheme, request.host, request.port))]
    spelt: dict[str, str] = {}
    for name, value in request.headers:
        spelling = spelt.setdefault(_lower(name), name)
        if not _VALUE.fullmatch(value):
            raise _refused(
                f"the value of the header `{name}` contains characters that are not allowed in a header"
            )
        lines.append((spelling, value.strip(" \t")))
    if "accept-encoding" not in spelt:
        lines.append(("Accept-Encoding", "gzip"))
    if request.body or request.method in _ANTICIPATES_CONTENT:
        lines.append(("Content-Length", str(len(request.body))))
    return lines


def request_target(request: HTTPRequest) -> str:
    """The target as sent; a question mark without a query is dropped."""
    target = request.target
    return target[:-1] if target.find("?") == len(target) - 1 else target


def _check_first_line(request: HTTPRequest) -> None:
    if not _METHOD.fullmatch(request.method):
        raise _refused("the method must be one word in upper case")
    if request.scheme not in DEFAULT_PORTS:
        raise _refused("the scheme is neither http nor https")
    if not HOST.fullmatch(request.host):
        raise _refused("the host must be a name or an address in lower-case ASCII")
    if not _TARGET.fullmatch(request.target):
        raise _refused("path and query must be percent-encoded and begin with `/`")


# A process sends the same few header names again and again; the cache saves a regex match for each.
@lru_cache(maxsize=1024)
def _lower(name: str) -> str:
    """A valid header name in lower case."""
    if not _TOKEN.fullmatch(name):
        raise _refused("a header name contains characters that are not allowed (RFC 9110 section 5.1)")
    lower = name.lower()
    if lower in SENDER_WRITES:
        raise _refused(f"the header `{name}` cannot be set: the client derives it from the request")
    if lower in OF_THE_CONNECTION:
        raise _refused(f"the header `{name}` cannot be set: it belongs to the connection")
    return lower


@lru_cache(maxsize=1024)
def _host_line(scheme: str, host: str, port: int) -> str:
    shown = f"[{host}]" if ":" in host else host
    return shown if DEFAULT_PORTS[scheme] == port else f"{shown}:{port}"


def _refused(message: str) -> HTTPError:
    return HTTPError(HTTPFailure.BAD_REQUEST, message, sent=False)


def response_headers(raw: Sequence[tuple[bytes, bytes]]) -> tuple[tuple[str, str], ...]:
    """The headers of a response: names in lower case, values decoded as latin-1.

    Raises:
        HTTPError: `bad_response`: a name or value contains invalid characters (RFC 9110 section 5).
    """
    headers = []
    for name, value in raw:
        if not _RAW_TOKEN.fullmatch(name) or not _RAW_VALUE.fullmatch(value):
            raise bad_response("a response header contains characters that are not allowed")
        headers.append((name.decode("ascii").lower(), value.decode("latin-1").strip(" \t")))
    return tuple(headers)


LONGEST = 365 * 24 * 3600
"""Maximum delay in seconds; longer ones are capped."""

_SECONDS = re.compile(r"[0-9]+")


def seconds_to_wait(headers: Mapping[str, JSON], now: datetime | None) -> int | None:
    """The delay of `Retry-After` (RFC 9110 section 10.2.3) in seconds, 0 to `LONGEST`; None if missing or invalid.

    Args:
        headers: The response headers by lower-case name.
        now: The time that a date is compared with; None for the `date` of the response.
    """
    told = str(headers.get("retry-after", "")).strip()
    if _SECONDS.fullmatch(told):
        # int() of thousands of digits is slow, and raises beyond 4,300.
        return LONGEST if len(told) > 9 else min(int(told), LONGEST)
    until = _date(told)
    since = now or _date(str(headers.get("date", "")))
    if until is None or since is None:
        return None
    return min(max(math.ceil((until - since).total_seconds()), 0), LONGEST)


def _date(text: str) -> datetime | None:
    """Parse an HTTP date (RFC 9110 section 5.6.7) in any of its three forms; None if invalid."""
    from email.utils import parsedate_to_datetime  # noqa: PLC0415 -- slow to import, and dates are rare

    # parsedate_to_datetime also accepts dates that begin with a number, which HTTP does not have.
    if not text[:1].isalpha():
        return None
    try:
        date = parsedate_to_datetime(text[:64])
    except (ValueError, TypeError, OverflowError):
        return None
    return date if date.tzinfo is not None else date.replace(tzinfo=UTC)
