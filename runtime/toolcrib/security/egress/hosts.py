"""Hosts as URLs name them, patterns of hosts, and entries of `egress.allow`."""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache
from typing import NamedTuple

from toolcrib.security.egress.ip_ranges import read_address

_LONGEST = 253
_LABEL = re.compile(r"[a-z0-9_-]{1,63}")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_PORT = re.compile(r"[0-9]{1,5}")
_LOOPBACK = re.compile(r"127(?:\.[0-9]{1,3}){3}")
_PORTS = range(1, 65536)


class Host(NamedTuple):
    """A host, normalised.

    Attributes:
        name: A name in lower-case ASCII without a trailing dot, or an address in its canonical text without brackets.
        literal: Whether it is an address.
    """

    name: str
    literal: bool


@lru_cache(maxsize=4096)
def read_host(text: str) -> Host:
    """Read the host of a URL, without its port.

    Capital letters, one trailing dot, brackets and names beyond ASCII (UTS 46, IDNA 2008) are normalised. Whatever a
    resolver would take for an IPv4 address is one: `127.1`, `0x7f.1`, `0177.0.0.1`, `2130706433`; and
    `::ffff:127.0.0.1` is `127.0.0.1`.

    Raises:
        ValueError: It is no host.
    """
    if ":" in text:
        bare = text[1:-1] if text.startswith("[") and text.endswith("]") else text
        try:
            return Host(str(read_address(bare)), literal=True)
        except ValueError:
            raise _no_host(text) from None
    name = (text if text.isascii() else _in_ascii(text)).lower().removesuffix(".")
    labels = name.split(".")
    if len(name) > _LONGEST or not all(map(_LABEL.fullmatch, labels)):
        raise _no_host(text)
    # A last label that is a number makes it an IPv4 address or nothing (WHATWG URL, "ends in a number").
    if _NUMBER.fullmatch(labels[-1]):
        return Host(_ipv4(text, labels), literal=True)
    return Host(name, literal=False)


def is_loopback(host: str) -> bool:
    """Whether a host, as it is written, is this machine."""
    name = host.removesuffix(".")
    return (
        name in ("localhost", "::1") or name.endswith(".localhost") or _LOOPBACK.fullmatch(name) is not None
    )


def _in_ascii(text: str) -> str:
    import idna  # noqa: PLC0415 -- its tables are large, and most hosts are written in ASCII

    if len(text) > _LONGEST:
        raise _no_host(text)
    try:
        return idna.encode(text, uts46=True).decode("ascii")
    except UnicodeError:
        raise _no_host(text) from None


def _ipv4(text: str, labels: list[str]) -> str:
    """Read the parts as `inet_aton` does: hexadecimal, octal or decimal; the last one fills what is left."""
    try:
        *leading, last = [_part(label) for label in labels]
    except ValueError:
        raise _no_host(text) from None
    if len(leading) > 3 or any(part > 255 for part in leading) or last >= 256 ** (4 - len(leading)):
        raise _no_host(text)
    number = sum(part << (24 - 8 * place) for place, part in enumerate(leading)) + last
    return str(ipaddress.IPv4Address(number))


def _part(label: str) -> int:
    if not _NUMBER.fullmatch(label):
        raise ValueError(label)
    if label.startswith("0x"):
        return int(label, 16)
    return int(label, 8) if label.startswith("0") else int(label)


def _no_host(text: str) -> ValueError:
    if "@" in text:
        return ValueError("a user name or password may not stand in a host")
    return ValueError(f"`{shown(text)}` is no host")


def shown(text: str) -> str:
    """A text that somebody else wrote, short and without control characters."""
    printable = ascii(text)[1:-1]
    return printable if len(printable) <= 80 else f"{printable[:79]}…"


def place_of(host: str, port: int) -> str:
    """A host and its port as a URL writes them."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_port(port: int) -> bool:
    """Whether something may listen there."""
    return port in _PORTS


@lru_cache(maxsize=4096)
def read_glob(text: str) -> str:
    """Read a pattern of hosts: a host, `*.example.com` for what lies below `example.com`, or `*` for every host.

    Returns:
        The pattern, normalised as hosts are.

    Raises:
        ValueError: It is no pattern.
    """
    if text == "*":
        return text
    if not text.startswith("*."):
        return read_host(text).name
    parent = read_host(text[2:])
    if parent.literal:
        raise ValueError(f"nothing lies below an address, as `{shown(text)}` would have it")
    return f"*.{parent.name}"


def matches(host: Host, pattern: str) -> bool:
    """Whether a pattern of hosts, as `read_glob` reads it, names a host; what is no pattern names none."""
    try:
        glob = read_glob(pattern)
    except ValueError:
        return False
    below = glob.startswith("*.") and not host.literal and host.name.endswith(glob[1:])
    return below or glob in ("*", host.name)


def read_allowed(entry: str) -> tuple[str, int]:
    """Read one entry of `egress.allow`: `host:port`, `[::1]:8080`, `*.corp.example:443`.

    Returns:
        The pattern of hosts, and the port.

    Raises:
        ValueError: It is no such entry; the message says how to write it.
    """
    host, _, port = entry.rpartition(":")
    if "@" in entry:
        fault = "an entry names a host and a port, no user"
    elif not host or "/" in entry or not _PORT.fullmatch(port) or not is_port(int(port)):
        fault = f"`{shown(entry)}` names no host and port"
    elif ":" in host and not host.startswith("["):
        fault = f"the IPv6 address in `{shown(entry)}` has no brackets"
    elif host == "*":
        fault = f"`{shown(entry)}` would allow every address"
    else:
        try:
            return read_glob(host), int(port)
        except ValueError as error:
            fault = str(error)
    raise ValueError(f'{fault}; write `"api.corp.example:443"`, `"*.corp.example:443"` or `"[::1]:8080"`')
