"""Parse hosts of URLs, host patterns and entries of `egress.allow`, and classify IP addresses as public or not."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# The first network that contains an address decides, so metadata addresses come before their networks. An empty kind
# means that the address itself is permitted. The list follows IANA's IPv4 and IPv6 Special-Purpose Address Registries;
# `is_global` of the standard library misses several of their networks.
_PUBLIC = ""
_METADATA = "a cloud metadata address"
_NETWORKS = [
    (ipaddress.ip_network(network), kind)
    for network, kind in (
        ("169.254.169.254/32", _METADATA),
        ("169.254.170.2/32", _METADATA),
        ("100.100.100.200/32", _METADATA),
        ("168.63.129.16/32", _METADATA),  # Azure's WireServer, inside a public network
        ("0.0.0.0/8", "an unspecified address"),
        ("10.0.0.0/8", "a private address"),
        ("100.64.0.0/10", "a carrier-grade NAT address"),
        ("127.0.0.0/8", "a loopback address"),
        ("169.254.0.0/16", "a link-local address"),
        ("172.16.0.0/12", "a private address"),
        ("192.0.0.0/24", "a reserved address"),
        ("192.0.2.0/24", "a documentation address"),
        ("192.88.99.0/24", "a reserved address"),
        ("192.168.0.0/16", "a private address"),
        ("198.18.0.0/15", "a benchmark address"),
        ("198.51.100.0/24", "a documentation address"),
        ("203.0.113.0/24", "a documentation address"),
        ("224.0.0.0/4", "a multicast address"),
        ("255.255.255.255/32", "the broadcast address"),
        ("240.0.0.0/4", "a reserved address"),
        ("0.0.0.0/0", _PUBLIC),
        ("::/128", "the unspecified address"),
        ("::1/128", "a loopback address"),
        ("::ffff:0:0/96", _PUBLIC),  # IPv4-mapped: the inner IPv4 address is checked
        ("64:ff9b::/96", _PUBLIC),  # NAT64: the inner IPv4 address is checked
        ("fd00:ec2::254/128", _METADATA),
        ("fd20:ce::254/128", _METADATA),
        ("fc00::/7", "a private address"),
        ("fe80::/10", "a link-local address"),
        ("fec0::/10", "a site-local address"),
        ("ff00::/8", "a multicast address"),
        ("2001::/32", _PUBLIC),  # Teredo: both inner IPv4 addresses are checked
        ("2001:2::/48", "a benchmark address"),
        ("2001::/23", "a reserved address"),
        ("2001:db8::/32", "a documentation address"),
        ("3fff::/20", "a documentation address"),
        ("2000::/3", _PUBLIC),
        # Unallocated networks, ::/96 (deprecated) and 64:ff9b:1::/48, whose inner address has no fixed position.
        ("::/0", "a reserved address"),
    )
]
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
# The unreserved characters of RFC 6874: zones appear in messages, and Python accepts almost any text after `%`.
_ZONE = re.compile(r"[A-Za-z0-9._~-]{1,64}")


def read_address(text: str) -> Address:
    """Parse an IP address. An IPv4-mapped address (RFC 4291 section 2.5.5.2) becomes the IPv4 address.

    Args:
        text: The address in the form of `inet_pton`, with an optional zone: `fe80::1%eth0`.

    Raises:
        ValueError: The text is not an IP address.
    """
    address = ipaddress.ip_address(text)
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address.scope_id is not None and not _ZONE.fullmatch(address.scope_id):
        raise ValueError("not a valid IPv6 zone")
    mapped = address.ipv4_mapped
    return address if mapped is None else mapped


@lru_cache(maxsize=4096)
def why_not_public(address: str) -> str:
    """Explain why an address is not public.

    Args:
        address: The address in canonical text.

    Returns:
        `a loopback address`, `another form of 127.0.0.1, a loopback address`, and so on; empty for a public address.

    Raises:
        ValueError: The text is not an IP address.
    """
    read = ipaddress.ip_address(address)
    kind = _kind_of(read)
    if kind or isinstance(read, ipaddress.IPv4Address):
        return kind
    # A gateway forwards these forms to the inner IPv4 address, so `64:ff9b::7f00:1` may reach a private service.
    faults = ((inner, _kind_of(inner)) for inner in _inside(read))
    return next((f"another form of {inner}, {fault}" for inner, fault in faults if fault), "")


def is_metadata(address: str) -> bool:
    """Whether an address, in any form, is a cloud metadata address, which serves the credentials of the machine."""
    return why_not_public(address).endswith(_METADATA)


def _kind_of(address: Address) -> str:
    return next(kind for network, kind in _NETWORKS if address in network)


def _inside(address: ipaddress.IPv6Address) -> list[ipaddress.IPv4Address]:
    """The IPv4 addresses embedded in an address: mapped, 6to4 (RFC 3056), Teredo (RFC 4380), NAT64 (RFC 6052)."""
    low = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    nat64 = low if address in _NAT64 else None
    inside = (address.ipv4_mapped, address.sixtofour, nat64, *(address.teredo or ()))
    return [each for each in inside if each is not None]


# RFC 1035 section 2.3.4 permits 255 octets on the wire, which are 253 characters of text.
_LONGEST = 253
# The underscore is not valid in a host name (RFC 952), but containers and service discovery use it.
_LABEL = re.compile(r"[a-z0-9_-]{1,63}")
_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")
_PORT = re.compile(r"[0-9]{1,5}")
_LOOPBACK = re.compile(r"127(?:\.[0-9]{1,3}){3}")
_PORTS = range(1, 65536)


class Host(NamedTuple):
    """A normalised host.

    Attributes:
        name: A host name in lower-case ASCII without a trailing dot, or an address in canonical text without brackets.
        literal: Whether the host is an IP address.
    """

    name: str
    literal: bool


@lru_cache(maxsize=4096)
def read_host(text: str) -> Host:
    """Parse the host of a URL, without its port.

    Capital letters, one trailing dot, brackets and non-ASCII names (UTS 46, IDNA 2008) are normalised. All spellings
    that resolvers accept as an IPv4 address are addresses: `127.1`, `0x7f.1`, `0177.0.0.1`, `2130706433`.
    `::ffff:127.0.0.1` becomes `127.0.0.1`.

    Raises:
        ValueError: The text is not a valid host.
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
    # A host whose last label is a number is an IPv4 address or invalid (WHATWG URL, "ends in a number").
    if _NUMBER.fullmatch(labels[-1]):
        return Host(_ipv4(text, labels), literal=True)
    return Host(name, literal=False)


def is_loopback(host: str) -> bool:
    """Whether the text of a host names this machine."""
    name = host.removesuffix(".")
    # All names below `.localhost` are loopback (RFC 6761 section 6.3).
    return (
        name in ("localhost", "::1") or name.endswith(".localhost") or _LOOPBACK.fullmatch(name) is not None
    )


def _in_ascii(text: str) -> str:
    import idna  # noqa: PLC0415 -- its tables are large, and most hosts are ASCII

    # `idna` before 3.7 needs quadratic time for a long name (CVE-2024-3651).
    if len(text) > _LONGEST:
        raise _no_host(text)
    try:
        return idna.encode(text, uts46=True).decode("ascii")
    except UnicodeError:
        raise _no_host(text) from None


def _ipv4(text: str, labels: list[str]) -> str:
    """Parse labels like `inet_aton`: hexadecimal, octal or decimal; the last part fills the remaining bytes."""
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
    # The text is not quoted: the part before `@` may be a password.
    if "@" in text:
        return ValueError("a host cannot contain a user name or password")
    return ValueError(f"`{printable(text)}` is not a valid host")


def printable(text: str) -> str:
    """Shorten an untrusted text and escape its control characters, for a message."""
    printable = ascii(text)[1:-1]
    return printable if len(printable) <= 80 else f"{printable[:79]}…"


def host_and_port(host: str, port: int) -> str:
    """Format a host and port as in a URL, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_port(port: int) -> bool:
    """Whether a port is between 1 and 65535."""
    return port in _PORTS


@lru_cache(maxsize=4096)
def read_glob(text: str) -> str:
    """Parse a host pattern: a host, `*.example.com` for all subdomains of `example.com`, or `*` for every host.

    Returns:
        The pattern, normalised like a host.

    Raises:
        ValueError: The text is not a valid pattern.
    """
    if text == "*":
        return text
    if not text.startswith("*."):
        return read_host(text).name
    parent = read_host(text[2:])
    if parent.literal:
        raise ValueError(f"`{printable(text)}` is not a valid pattern: an IP address has no subdomains")
    return f"*.{parent.name}"


def host_matches(host: Host, pattern: str) -> bool:
    """Whether a host pattern, in the form of `read_glob`, matches a host. An invalid pattern matches no host."""
    try:
        glob = read_glob(pattern)
    except ValueError:
        return False
    # `glob[1:]` keeps the dot, so that `*.example.com` does not match `evilexample.com`.
    below = glob.startswith("*.") and not host.literal and host.name.endswith(glob[1:])
    return below or glob in ("*", host.name)


def read_host_pattern(entry: str) -> tuple[str, int | None]:
    """Parse an entry of `access.hosts`: a host pattern, with a port or without: `*.example.com`, `[::1]:8080`.

    Returns:
        The host pattern, and the port; None for all ports.

    Raises:
        ValueError: The entry is invalid; the part after the last semicolon of the message is a hint.
    """
    host, colon, port = entry.rpartition(":")
    if not colon or not _PORT.fullmatch(port) or (":" in host and not host.startswith("[")):
        host, port = entry, ""
    if "@" in entry or "/" in entry:
        fault = f"`{printable(entry)}` is not a host"
    elif port and not is_port(int(port)):
        fault = f"`{printable(entry)}` needs a port between 1 and 65535"
    else:
        try:
            return read_glob(host), int(port) if port else None
        except ValueError as error:
            fault = str(error)
    raise ValueError(f"{fault}; write `api.example.com`, `*.example.com` or `api.example.com:443`")


def matches_any_host(host: Host, port: int, patterns: Iterable[tuple[str, int | None]]) -> bool:
    """Whether one of several patterns, in the form that `read_host_pattern` returns, matches a host and port."""
    return any(wanted in {None, port} and host_matches(host, glob) for glob, wanted in patterns)


def read_allowed(entry: str) -> tuple[str, int]:
    """Parse an entry of `egress.allow`: `host:port`, `[::1]:8080`, `*.corp.example:443`.

    Returns:
        The host pattern and the port.

    Raises:
        ValueError: The entry is invalid; the message shows valid forms.
    """
    host, _, port = entry.rpartition(":")
    if "@" in entry:
        fault = "an entry consists of a host and a port, without a user name"
    elif not host or "/" in entry or not _PORT.fullmatch(port) or not is_port(int(port)):
        fault = f"`{printable(entry)}` is not a host and a port"
    elif ":" in host and not host.startswith("["):
        fault = f"the IPv6 address in `{printable(entry)}` needs brackets"
    # `*` would also permit cloud metadata addresses.
    elif host == "*":
        fault = f"`{printable(entry)}` would allow every address"
    else:
        try:
            return read_glob(host), int(port)
        except ValueError as error:
            fault = str(error)
    raise ValueError(f'{fault}; write `"api.corp.example:443"`, `"*.corp.example:443"` or `"[::1]:8080"`')
