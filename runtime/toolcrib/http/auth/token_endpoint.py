"""Addresses that tokens are asked for at."""

from __future__ import annotations

from typing import NamedTuple
from urllib.parse import urlsplit

from toolcrib.http import Request
from toolcrib.http.messages import DEFAULT_PORTS


class Address(NamedTuple):
    """Where tokens are asked for.

    Attributes:
        scheme: `http` or `https`.
        host: Lower case, without brackets.
        port: The port.
        target: Path and query.
    """

    scheme: str
    host: str
    port: int
    target: str

    @property
    def shown(self) -> str:
        """The address without its query."""
        return Request("POST", self.scheme, self.host, self.port, self.target.partition("?")[0]).url


def address_of(text: str) -> Address | None:
    """The address that a text is; None where it is none, or has a user name or a fragment."""
    fit = text.isascii() and text.isprintable() and not any(each in text for each in ' "<>\\^`{|}#')
    try:
        parts = urlsplit(text)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if not fit or parts.scheme not in DEFAULT_PORTS or not host or "@" in parts.netloc or port == 0:
        return None
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return Address(parts.scheme, host, port or DEFAULT_PORTS[parts.scheme], target)
