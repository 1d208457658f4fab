"""What the names and values of headers and cookies may hold."""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import quote

COOKIE_SAFE: Final = "!#$&'()*+-./:<=>?@[]^_`{|}~"
"""What RFC 6265 section 4.1.1 lets stand in a cookie's value, without `%`, which begins what is encoded."""

_NOT_IN_HEADER: Final = re.compile(r"[^\t\x20-\x7e\x80-\xff]")
_TOKEN: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
"""A name (RFC 9110 section 5.6.2)."""

_SENT_BY_US: Final = "it is written from the request itself when it is sent; leave it out"

FORBIDDEN: Final = {
    **dict.fromkeys(
        ["host", "content-length", "transfer-encoding", "accept-encoding", "expect", "content-encoding"],
        _SENT_BY_US,
    ),
    **dict.fromkeys(
        ["connection", "keep-alive", "proxy-connection", "te", "trailer", "upgrade", "http2-settings"],
        "it speaks of one connection, which is not the descriptor's; leave it out",
    ),
    "proxy-authorization": "no proxy is spoken to; leave it out",
    "cookie": "write `cookies: {name: value}`",
}
"""Lower-case name -> why a block can't write it (framing and hop by hop: RFC 9110 sections 7.6.1, 8.6, 10.1)."""


class NameFault(NamedTuple):
    """What is wrong with a name: code and message of the problem, and the way out."""

    code: str
    message: str
    hint: str


def is_token(name: str) -> bool:
    """Whether a name is one: visible ASCII without separators (RFC 9110 section 5.6.2)."""
    return _TOKEN.fullmatch(name) is not None


def fault_of_name(name: str) -> NameFault | None:
    """What is wrong with the name of a header; None if nothing is."""
    if not is_token(name):
        hint = "a name has letters, digits and `-`, and is never computed"
        return NameFault(code="wrong_form", message=f"`{name}` is no name of a header", hint=hint)
    if name.lower() in FORBIDDEN:
        message = f"the header `{name}` can't be written here"
        return NameFault(code="reserved_header", message=message, hint=FORBIDDEN[name.lower()])
    return None


def header_fault(text: str) -> str:
    """What is wrong with the value of a header; empty if nothing is. The value is not in it."""
    match = _NOT_IN_HEADER.search(text)
    if match is None:
        return ""
    if match[0] in "\r\n":
        return "holds a line break, which can't stand in a header"
    if match[0] < " " or match[0] == "\x7f":
        return "holds a control character, which can't stand in a header"
    return "holds a character beyond Latin-1, which can't stand in a header"


def cookie_fault(text: str) -> str:
    """What is wrong with a cookie's value that is sent as it is written; empty if nothing is."""
    if quote(text, safe=COOKIE_SAFE + "%", errors="replace") == text:
        return ""
    return (
        "holds what ends a cookie's value: a blank, quote, comma, semicolon, backslash, control or non-ASCII"
    )
