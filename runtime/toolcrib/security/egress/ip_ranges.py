"""Addresses: which are public, what the others are, and which stand for another one."""

from __future__ import annotations

import ipaddress
import re
from functools import lru_cache

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# The first network that holds an address speaks; an empty word means that nothing is against it by itself.
# IANA's IPv4 and IPv6 Special-Purpose Address Registries; `is_global` of the standard library misses several of them.
_PUBLIC = ""
_METADATA = "a cloud metadata address"
_NETWORKS = [
    (ipaddress.ip_network(network), kind)
    for network, kind in (
        ("169.254.169.254/32", _METADATA),
        ("169.254.170.2/32", _METADATA),
        ("100.100.100.200/32", _METADATA),
        ("168.63.129.16/32", _METADATA),  # Azure's; it lies among public addresses
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
        ("::ffff:0:0/96", _PUBLIC),  # stands for an IPv4 address, which is judged
        ("64:ff9b::/96", _PUBLIC),  # likewise
        ("fd00:ec2::254/128", _METADATA),
        ("fd20:ce::254/128", _METADATA),
        ("fc00::/7", "a private address"),
        ("fe80::/10", "a link-local address"),
        ("fec0::/10", "a site-local address"),
        ("ff00::/8", "a multicast address"),
        ("2001::/32", _PUBLIC),  # Teredo: stands for two IPv4 addresses, which are judged
        ("2001:2::/48", "a benchmark address"),
        ("2001::/23", "a reserved address"),
        ("2001:db8::/32", "a documentation address"),
        ("3fff::/20", "a documentation address"),
        ("2000::/3", _PUBLIC),
        # What is not yet given out; also ::/96 (deprecated) and 64:ff9b:1::/48, whose inner address has no fixed place.
        ("::/0", "a reserved address"),
    )
]
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_ZONE = re.compile(r"[A-Za-z0-9._~-]{1,64}")


def read_address(text: str) -> Address:
    """Read an address; one that is mapped (RFC 4291 section 2.5.5.2) as the IPv4 address that it is.

    Args:
        text: As `inet_pton` reads it, perhaps with a zone: `fe80::1%eth0`.

    Raises:
        ValueError: It is no address.
    """
    address = ipaddress.ip_address(text)
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address.scope_id is not None and not _ZONE.fullmatch(address.scope_id):
        raise ValueError("this is no zone of an address")
    mapped = address.ipv4_mapped
    return address if mapped is None else mapped


@lru_cache(maxsize=4096)
def fault_of(address: str) -> str:
    """What is against an address.

    Args:
        address: In its usual text.

    Returns:
        `a loopback address`, `another form of 127.0.0.1, a loopback address`, and so on; empty for a public address.

    Raises:
        ValueError: It is no address.
    """
    read = ipaddress.ip_address(address)
    kind = _kind_of(read)
    if kind or isinstance(read, ipaddress.IPv4Address):
        return kind
    faults = ((inner, _kind_of(inner)) for inner in _inside(read))
    return next((f"another form of {inner}, {fault}" for inner, fault in faults if fault), "")


def is_metadata(address: str) -> bool:
    """Whether an address in its usual text is one where a cloud keeps credentials of its machines, in any form."""
    return fault_of(address).endswith(_METADATA)


def _kind_of(address: Address) -> str:
    return next(kind for network, kind in _NETWORKS if address in network)


def _inside(address: ipaddress.IPv6Address) -> list[ipaddress.IPv4Address]:
    """The IPv4 addresses for which an address stands: mapped, 6to4 (RFC 3056), Teredo (RFC 4380), NAT64 (RFC 6052)."""
    low = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    nat64 = low if address in _NAT64 else None
    inside = (address.ipv4_mapped, address.sixtofour, nat64, *(address.teredo or ()))
    return [each for each in inside if each is not None]
