"""The egress guard's decisions: hosts, patterns, addresses in every wrapping and spelling. Nothing here is dialled."""

from __future__ import annotations

import asyncio
import ipaddress
import re
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sampling import sample
from toolcrib.security.egress import (
    EgressGuard,
    EgressRefused,
    Host,
    UnreachableHost,
    read_allowed,
    read_glob,
    read_host,
    why_not_public,
)

ANY = ("*",)

TABLE = [
    # loopback, unspecified
    ("127.0.0.1", "loopback"),
    ("127.255.255.254", "loopback"),
    ("0.0.0.0", "unspecified"),
    ("0.255.255.255", "unspecified"),
    ("::1", "loopback"),
    ("::", "unspecified"),
    # private
    ("10.0.0.1", "private"),
    ("172.16.0.1", "private"),
    ("172.31.255.255", "private"),
    ("192.168.1.1", "private"),
    ("fc00::1", "private"),
    ("fd12:3456:789a::1", "private"),
    # link-local, metadata
    ("169.254.0.1", "link-local"),
    ("169.254.169.254", "metadata"),
    ("169.254.170.2", "metadata"),
    ("100.100.100.200", "metadata"),
    ("168.63.129.16", "metadata"),
    ("fd00:ec2::254", "metadata"),
    ("fd20:ce::254", "metadata"),
    ("fe80::1", "link-local"),
    ("fe80::1%eth0", "link-local"),
    ("febf::1", "link-local"),
    ("fec0::1", "site-local"),
    # shared, benchmark, documentation
    ("100.64.0.1", "carrier-grade NAT"),
    ("100.127.255.255", "carrier-grade NAT"),
    ("198.18.0.1", "benchmark"),
    ("198.19.255.255", "benchmark"),
    ("2001:2::1", "benchmark"),
    ("192.0.2.1", "documentation"),
    ("198.51.100.1", "documentation"),
    ("203.0.113.1", "documentation"),
    ("2001:db8::1", "documentation"),
    ("3fff::1", "documentation"),
    # multicast, broadcast, reserved
    ("224.0.0.1", "multicast"),
    ("239.255.255.250", "multicast"),
    ("ff02::1", "multicast"),
    ("255.255.255.255", "broadcast"),
    ("240.0.0.1", "reserved"),
    ("192.0.0.8", "reserved"),
    ("192.0.0.192", "reserved"),
    ("192.88.99.1", "reserved"),
    ("100::1", "reserved"),
    ("2001:10::1", "reserved"),
    ("2001:1ff::1", "reserved"),
    ("4000::1", "reserved"),
    ("5f00::1", "reserved"),
    # standing for another address
    ("::ffff:10.0.0.1", "10.0.0.1, a private"),
    ("::127.0.0.1", "reserved"),
    ("::8.8.8.8", "reserved"),
    ("::ffff:0:127.0.0.1", "reserved"),
    ("64:ff9b::127.0.0.1", "127.0.0.1, a loopback"),
    ("64:ff9b::169.254.169.254", "169.254.169.254, a cloud metadata"),
    ("64:ff9b:1::1", "reserved"),
    ("64:ff9b:1:808:8:800::", "reserved"),
    ("2002:7f00:1::1", "127.0.0.1, a loopback"),
    ("2002:a00:1::1", "10.0.0.1, a private"),
    ("2001:0:7f00:1::f7f7:f7f7", "127.0.0.1, a loopback"),
    ("2001:0:808:808::80ff:fffe", "127.0.0.1, a loopback"),
    # good
    ("8.8.8.8", ""),
    ("1.1.1.1", ""),
    ("9.255.255.255", ""),
    ("11.0.0.0", ""),
    ("100.63.255.255", ""),
    ("100.128.0.0", ""),
    ("128.0.0.0", ""),
    ("168.63.129.15", ""),
    ("169.253.255.255", ""),
    ("172.15.255.255", ""),
    ("172.32.0.0", ""),
    ("192.0.1.0", ""),
    ("192.31.196.1", ""),
    ("192.169.0.0", ""),
    ("198.17.255.255", ""),
    ("198.20.0.0", ""),
    ("223.255.255.255", ""),
    ("2606:4700:4700::1111", ""),
    ("2001:200::1", ""),
    ("2a00:1450:4001::1", ""),
    ("3ffe:ffff::1", ""),
    ("::ffff:8.8.8.8", ""),
    ("64:ff9b::8.8.8.8", ""),
    ("2002:808:808::1", ""),
    ("2001:0:808:808::f7f7:f7f7", ""),
]

REFUSED_4 = [
    "0.0.0.0/8",
    "10.0.0.0/8",
    "100.64.0.0/10",
    "127.0.0.0/8",
    "169.254.0.0/16",
    "172.16.0.0/12",
    "192.0.0.0/24",
    "192.0.2.0/24",
    "192.88.99.0/24",
    "192.168.0.0/16",
    "198.18.0.0/15",
    "198.51.100.0/24",
    "203.0.113.0/24",
    "224.0.0.0/4",
    "240.0.0.0/4",
    "255.255.255.255/32",
    "168.63.129.16/32",
]
REFUSED_6 = [
    "::/128",
    "::1/128",
    "::/96",
    "64:ff9b:1::/48",
    "100::/64",
    "100:0:0:1::/64",
    "2001:1::/32",
    "2001:2::/48",
    "2001:3::/32",
    "2001:10::/28",
    "2001:20::/28",
    "2001:30::/28",
    "2001:100::/24",
    "2001:db8::/32",
    "3fff::/20",
    "4000::/2",
    "5f00::/16",
    "8000::/1",
    "fc00::/7",
    "fe80::/10",
    "fec0::/10",
    "ff00::/8",
    "::ffff:0:0:0/96",
]

TEREDO_SERVER = int(ipaddress.ip_address("8.8.8.8")) << 64
WRAPPINGS = {
    "mapped": lambda inner: 0xFFFF << 32 | inner,
    "compatible": lambda inner: inner,
    "translated": lambda inner: 0xFFFF << 48 | inner,
    "NAT64": lambda inner: 0x64FF9B << 96 | inner,
    "local NAT64, 96": lambda inner: 0x64FF9B0001 << 80 | inner,
    "local NAT64, 48": lambda inner: 0x64FF9B0001 << 80 | inner >> 16 << 64 | (inner & 0xFFFF) << 40,
    "6to4": lambda inner: 0x2002 << 112 | inner << 80 | 1,
    "Teredo client": lambda inner: 0x20010000 << 96 | TEREDO_SERVER | (inner ^ 0xFFFFFFFF),
    "Teredo server": lambda inner: 0x20010000 << 96 | inner << 64 | 0xF7F7F7F7,
}


def octets(number):
    return list(number.to_bytes(4, "big"))


SPELLINGS = {
    "dotted": lambda n: ".".join(map(str, octets(n))),
    "decimal": str,
    "hexadecimal": hex,
    "capitals": lambda n: hex(n).upper(),
    "octal": lambda n: f"0{n:o}",
    "padded": lambda n: f"000{n:o}",
    "hexadecimal parts": lambda n: ".".join(map(hex, octets(n))),
    "octal parts": lambda n: ".".join(f"0{part:03o}" for part in octets(n)),
    "two parts": lambda n: f"{n >> 24}.{n & 0xFFFFFF}",
    "three parts": lambda n: f"{n >> 24}.{n >> 16 & 255}.{n & 0xFFFF}",
    "trailing dot": lambda n: ".".join(map(str, octets(n))) + ".",
    "full-width digits": lambda n: ".".join(map(str, octets(n))).translate(
        {48 + i: 0xFF10 + i for i in range(10)}
    ),
    "ideographic dots": lambda n: "。".join(map(str, octets(n))),
    "mathematical digits": lambda n: str(n).translate({48 + i: 0x1D7CE + i for i in range(10)}),
    "mapped": lambda n: f"::ffff:{ipaddress.ip_address(n)}",
    "mapped, bracketed": lambda n: f"[::FFFF:{n >> 16:x}:{n & 0xFFFF:x}]",
    "mapped, in full": lambda n: f"0:0:0:0:0:ffff:{n >> 16:04x}:{n & 0xFFFF:04x}",
}


def inside(network):
    return st.integers(int(network[0]), int(network[-1]))


NETWORKS_4 = [ipaddress.ip_network(text) for text in REFUSED_4]
NETWORKS_6 = [ipaddress.ip_network(text) for text in REFUSED_6]
BAD_4 = st.sampled_from(NETWORKS_4).flatmap(inside)
BAD_6 = st.sampled_from(NETWORKS_6).flatmap(inside)


class Names:
    """A resolver that answers what it was told, one answer a look-up, the last one for ever; and counts."""

    def __init__(self, *answers):
        self.answers = list(answers)
        self.asked = []

    async def __call__(self, name, port):
        self.asked.append((name, port))
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, OSError):
            raise answer
        return answer


class Recorder:
    """A dialler that never dials."""

    def __init__(self):
        self.dialled = []

    async def __call__(self, address, port):
        self.dialled.append((address, port))
        raise ConnectionRefusedError


def refused(guard, host, port=443, hosts=ANY):
    with pytest.raises(EgressRefused) as caught:
        guard.check(host, port, hosts)
    assert caught.value.hint
    assert str(caught.value) == caught.value.message
    return caught.value


def addresses(guard, host, port=443, hosts=ANY):
    return asyncio.run(guard.addresses(host, port, hosts))


# Addresses


@pytest.mark.parametrize(("address", "kind"), TABLE)
def test_an_address_is_good_or_said_to_be_something(address, kind):
    assert kind in why_not_public(address)
    assert bool(kind) == bool(why_not_public(address))


@pytest.mark.parametrize(("address", "kind"), sample(TABLE, one_in=3))
def test_a_literal_is_refused_or_dialled_as_it_stands(address, kind):
    dialler = Recorder()
    guard = EgressGuard(resolve=Names(OSError()), dial=dialler)
    with pytest.raises(EgressRefused if kind else UnreachableHost):
        asyncio.run(guard.connect(address, 443, ANY))
    assert dialler.dialled == ([] if kind else [(read_host(address).name, 443)])


@pytest.mark.parametrize(("address", "kind"), sample(TABLE, one_in=3))
def test_a_name_is_refused_by_its_address(address, kind):
    dialler = Recorder()
    guard = EgressGuard(resolve=Names([address]), dial=dialler)
    with pytest.raises(EgressRefused if kind else UnreachableHost) as caught:
        asyncio.run(guard.connect("api.example.com", 443, ANY))
    assert caught.value.code == ("address_refused" if kind else "connect_failed")
    assert len(dialler.dialled) == (not kind)


@pytest.mark.parametrize("network", sample(NETWORKS_4 + NETWORKS_6, one_in=3), ids=str)
def test_a_refused_network_is_refused_from_end_to_end(network):
    assert why_not_public(str(network[0]))
    assert why_not_public(str(network[-1]))


@given(BAD_4, st.sampled_from(sorted(WRAPPINGS)))
def test_every_refused_address_is_refused_in_every_wrapping(number, wrapping):
    wrapped = str(ipaddress.IPv6Address(WRAPPINGS[wrapping](number)))
    assert why_not_public(str(ipaddress.IPv4Address(number)))
    assert why_not_public(wrapped)
    assert why_not_public(f"{wrapped}%eth0")
    refused(EgressGuard(), wrapped)
    refused(EgressGuard(), f"[{wrapped}]")
    with pytest.raises(EgressRefused):
        addresses(EgressGuard(resolve=Names([wrapped])), "api.example.com", 443)


@given(BAD_4, st.sampled_from(sorted(SPELLINGS)))
def test_every_refused_address_is_refused_in_every_spelling(number, spelling):
    written = SPELLINGS[spelling](number)
    address = str(ipaddress.IPv4Address(number))
    assert read_host(written) == Host(address, literal=True)
    assert refused(EgressGuard(), written).code == "address_refused"
    port = 8080
    EgressGuard([f"{address}:{port}"]).check(written, port, ANY)


@given(BAD_6)
def test_every_refused_ipv6_address_is_refused_in_every_spelling(number):
    address = ipaddress.IPv6Address(number)
    for written in (str(address), address.exploded, address.exploded.upper(), f"[{address}]", f"{address}%1"):
        assert refused(EgressGuard(), written).code == "address_refused"


@given(st.ip_addresses(v=6))
def test_no_address_outside_the_public_space_is_good(address):
    public = ("2000::/3", "64:ff9b::/96", "::ffff:0:0/96")
    if not any(address in ipaddress.ip_network(network) for network in public):
        assert why_not_public(str(address))


@given(st.ip_addresses())
def test_what_the_standard_library_holds_for_special_is_refused(address):
    standing_for_another = ("::ffff:0:0/96", "64:ff9b::/96", "2001::/32", "2002::/16")
    if not any(address in ipaddress.ip_network(network) for network in standing_for_another) and (
        address.is_private or address.is_reserved or address.is_multicast or address.is_link_local
    ):
        assert why_not_public(str(address))


# Hosts


@pytest.mark.parametrize(
    ("written", "name"),
    [
        ("API.Example.COM", "api.example.com"),
        ("api.example.com.", "api.example.com"),
        ("Bücher.example", "xn--bcher-kva.example"),
        ("faß.example", "xn--fa-hia.example"),
        ("xn--bcher-kva.example", "xn--bcher-kva.example"),
        ("api。example。com", "api.example.com"),
        ("api.example.com", "api.example.com"),
        ("my_service", "my_service"),
        ("localhost", "localhost"),
        ("1e3.example", "1e3.example"),
        ("0x7f.example", "0x7f.example"),
        ("127.0.0.1.example.com", "127.0.0.1.example.com"),
        ("a" * 63 + ".example", "a" * 63 + ".example"),
    ],
)
def test_a_name_is_normalised(written, name):
    assert read_host(written) == Host(name, literal=False)


@pytest.mark.parametrize(
    ("written", "address"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("127.1", "127.0.0.1"),
        ("0x7f.1", "127.0.0.1"),
        ("0x7F.0.0.0X1", "127.0.0.1"),
        ("0177.0.0.1", "127.0.0.1"),
        ("2130706433", "127.0.0.1"),
        ("017700000001", "127.0.0.1"),
        ("0x7f000001", "127.0.0.1"),
        ("127.0.0.1.", "127.0.0.1"),
        ("0", "0.0.0.0"),
        ("0.0", "0.0.0.0"),
        ("①②⑦.⓪.⓪.①", "127.0.0.1"),
        ("１２７。０。０。１", "127.0.0.1"),
        ("[::1]", "::1"),
        ("::1", "::1"),
        ("0:0:0:0:0:0:0:1", "::1"),
        ("::FFFF:127.0.0.1", "127.0.0.1"),
        ("fe80::1%eth0", "fe80::1%eth0"),
        ("2606:4700::AB", "2606:4700::ab"),
    ],
)
def test_a_literal_is_read_as_the_resolver_would(written, address):
    assert read_host(written) == Host(address, literal=True)


@pytest.mark.parametrize(
    "written",
    [
        "",
        ".",
        "..",
        ".example.com",
        "a..b",
        "example.com..",
        "a b",
        " example.com",
        "example.com\n",
        "example.com\x00.evil.com",
        "example.com\r\nX: y",
        "exam\tple.com",
        "example.com/path",
        "example.com\\.evil.com",
        "example.com#",
        "example.com?",
        "%31%32%37.0.0.1",
        "127.0.0.1%eth0",
        "*.example.com",
        "a℀b.example",
        "http://example.com",
        "example.com:80",
        "[example.com]",
        "[127.0.0.1]",
        "[::1",
        "::1]",
        "[[::1]]",
        "::1%",
        "::1%a b",
        "::1%a%b",
        "::1%\n",
        "::g",
        "1:2:3",
        "256.0.0.1",
        "1.2.3.256",
        "1.2.65536",
        "1.16777216",
        "4294967296",
        "0x100000000",
        "1.2.3.4.5",
        "08.0.0.1",
        "0x",
        "127.0.0.0x",
        "example.1",
        "example.0x1f",
        "1..2",
        "١٢٧.٠.٠.١",
        "-ü.example",
        "\ud800.example",
        "ü" * 300,
        "a" * 64 + ".example",
        ".".join(["a" * 60] * 5),
        "9" * 5000,
    ],
)
def test_what_is_no_host_is_refused(written):
    with pytest.raises(ValueError, match="is not a valid host"):
        read_host(written)
    error = refused(EgressGuard(), written)
    assert error.code == "bad_address"
    assert error.message.isascii() or "…" in error.message
    assert error.message.isprintable()
    assert len(error.message) < 120


@pytest.mark.parametrize(
    "written", ["me:hunter2@example.com", "hunter2\\@127.0.0.1", "ü:hunter2@example.com", "@a"]
)
def test_a_user_is_no_part_of_a_host_and_is_not_shown(written):
    error = refused(EgressGuard(), written)
    assert error.code == "bad_address"
    assert "user name or password" in error.message
    assert "hunter2" not in error.message + error.hint


@pytest.mark.parametrize("port", [0, -1, 65536, 99999])
def test_a_port_that_is_none_is_refused(port):
    error = refused(EgressGuard(), "api.example.com", port)
    assert error.code == "bad_address"
    assert str(port) in error.message


@given(st.text() | st.from_regex(re.compile(r"(0x?)?[0-9a-f]{1,9}(\.(0x?)?[0-9a-f]{1,4}){0,4}\.?", re.ASCII)))
def test_any_text_is_a_host_in_one_form_or_none(text):
    try:
        host = read_host(text)
    except ValueError:
        return
    assert host.name.isascii()
    assert read_host(host.name) == host


@given(st.from_regex(r"(0x)?0?[0-9a-fA-F]{1,4}(\.(0x|0X)?0?[0-9a-f]{1,4}){0,3}", fullmatch=True))
def test_what_the_system_takes_for_an_address_is_that_address(text):
    try:
        packed = socket.inet_aton(text)
    except OSError:
        return
    assert read_host(text) == Host(socket.inet_ntoa(packed), literal=True)


# Which hosts a tool may reach


@pytest.mark.parametrize(
    ("host", "pattern"),
    [
        ("api.example.com", "api.example.com"),
        ("API.example.com.", "api.Example.com"),
        ("a.example.com", "*.example.com"),
        ("a.b.example.com", "*.example.com"),
        ("bücher.example", "xn--bcher-kva.example"),
        ("xn--bcher-kva.example", "Bücher.example"),
        ("a.bücher.example", "*.Bücher.example"),
        ("anything.at.all", "*"),
        ("8.8.8.8", "*"),
        ("8.8.8.8", "8.8.8.8"),
        ("134744072", "8.8.8.8"),
        ("2606:4700::1", "[2606:4700::1]"),
        ("[2606:4700:0::1]", "2606:4700::1"),
    ],
)
def test_a_pattern_names_hosts(host, pattern):
    EgressGuard().check(host, 443, ["other.example", pattern])


@pytest.mark.parametrize(
    ("host", "pattern"),
    [
        ("example.com", "*.example.com"),
        ("evilexample.com", "*.example.com"),
        ("example.com.evil.com", "*.example.com"),
        ("api.example.com.evil.com", "api.example.com"),
        ("xapi.example.com", "api.example.com"),
        ("api.example.com", "example.com"),
        ("8.8.8.8", "*.8.8"),
        ("8.8.8.8", "*.8"),
        ("8.8.8.8", "8.8.8.*"),
        ("api.example.com", "api.*"),
        ("api.example.com", "*example.com"),
        ("api.example.com", "**.example.com"),
        ("api.example.com", "*.*.com"),
        ("api.example.com", "api.example.com:443"),
        ("api.example.com", "https://api.example.com"),
        ("api.example.com", ""),
    ],
)
def test_a_pattern_names_no_others(host, pattern):
    error = refused(EgressGuard(), host, 443, [pattern])
    assert error.code == "host_not_named"


def test_an_unnamed_host_is_told_with_what_is_named():
    error = refused(EgressGuard(), "Evil.example", 443, ("api.example.com", "*.cdn.example.com"))
    assert error.message == (
        "`evil.example` is not among the hosts that this tool may reach (`api.example.com`, `*.cdn.example.com`)"
    )
    assert error.hint == (
        "if the tool may reach it, add it to the descriptor: "
        '`hosts: ["api.example.com", "*.cdn.example.com", "evil.example"]`'
    )
    assert "none are declared" in refused(EgressGuard(["localhost:80"]), "localhost", 80, ()).message


def test_an_unnamed_host_is_not_looked_up():
    names = Names(["8.8.8.8"])
    with pytest.raises(EgressRefused):
        addresses(EgressGuard(resolve=names), "evil.example", hosts=["api.example.com"])
    assert names.asked == []


@pytest.mark.parametrize(
    ("text", "glob"),
    [
        ("*", "*"),
        ("*.Example.com.", "*.example.com"),
        ("API.example.com", "api.example.com"),
        ("[::1]", "::1"),
    ],
)
def test_a_pattern_is_normalised(text, glob):
    assert read_glob(text) == glob


@pytest.mark.parametrize("text", ["*.127.0.0.1", "*.1", "*.[::1]", "*.", "*a.example", "a b", ""])
def test_what_is_no_pattern_is_refused(text):
    with pytest.raises(ValueError, match=r"not a valid host|has no subdomains"):
        read_glob(text)


# What a project allows


@pytest.mark.parametrize(
    ("entry", "read"),
    [
        ("127.0.0.1:8080", ("127.0.0.1", 8080)),
        ("LocalHost.:80", ("localhost", 80)),
        ("[::1]:8080", ("::1", 8080)),
        ("[0:0::1]:8080", ("::1", 8080)),
        ("*.Corp.example:443", ("*.corp.example", 443)),
        ("0x7f.1:65535", ("127.0.0.1", 65535)),
        ("bücher.example:1", ("xn--bcher-kva.example", 1)),
    ],
)
def test_an_allowed_entry_names_host_and_port(entry, read):
    assert read_allowed(entry) == read


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ("", "is not a host and a port"),
        ("localhost", "is not a host and a port"),
        ("8080", "is not a host and a port"),
        (":8080", "is not a host and a port"),
        ("localhost:", "is not a host and a port"),
        ("localhost:http", "is not a host and a port"),
        ("localhost:*", "is not a host and a port"),
        ("localhost:0", "is not a host and a port"),
        ("localhost:65536", "is not a host and a port"),
        ("localhost:+80", "is not a host and a port"),
        ("localhost:８０", "is not a host and a port"),
        ("http://localhost:8080", "is not a host and a port"),
        ("10.0.0.0/8:443", "is not a host and a port"),
        ("[::1]", "is not a host and a port"),
        ("::1:8080", "needs brackets"),
        ("*:443", "would allow every address"),
        ("*.10.0.0.1:443", "an IP address has no subdomains"),
        ("a b:443", "is not a valid host"),
        ("[localhost]:443", "is not a valid host"),
        ("me:hunter2@localhost:80", "without a user name"),
    ],
)
def test_what_is_no_entry_is_refused_with_the_way_to_write_it(entry, said):
    with pytest.raises(ValueError, match=said) as caught:
        EgressGuard([entry])
    assert '"[::1]:8080"' in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_all_faults_of_a_list_are_told_at_once():
    with pytest.raises(ValueError, match="localhost") as caught:
        EgressGuard(["localhost", "127.0.0.1:80", "*:1"])
    assert len(str(caught.value).splitlines()) == 2


@pytest.mark.parametrize(
    ("allow", "host", "port", "answer"),
    [
        ("127.0.0.1:8080", "127.0.0.1", 8080, None),
        ("127.0.0.1:8080", "127.1", 8080, None),
        ("127.0.0.1:8080", "::ffff:127.0.0.1", 8080, None),
        ("127.0.0.1:8080", "localhost", 8080, ["127.0.0.1"]),
        ("[::1]:8080", "[::1]", 8080, None),
        ("[::ffff:127.0.0.1]:8080", "127.0.0.1", 8080, None),
        ("[fe80::1%eth0]:80", "fe80::1%eth0", 80, None),
        ("[64:ff9b::127.0.0.1]:80", "64:ff9b::7f00:1", 80, None),
        ("localhost:8080", "localhost", 8080, ["127.0.0.1", "::1"]),
        ("localhost:8080", "LOCALHOST.", 8080, ["127.0.0.1"]),
        ("db.corp.example:443", "db.corp.example", 443, ["10.0.0.5", "169.254.169.254"]),
        ("*.corp.example:443", "a.b.corp.example", 443, ["10.0.0.5", "8.8.8.8"]),
        ("10.0.0.5:443", "api.example.com", 443, ["8.8.8.8", "10.0.0.5"]),
    ],
)
def test_what_is_allowed_is_good(allow, host, port, answer):
    guard = EgressGuard([allow], resolve=Names(OSError() if answer is None else answer))
    assert addresses(guard, host, port) == ([read_host(host).name] if answer is None else answer)


@pytest.mark.parametrize(
    ("allow", "host", "port", "answer"),
    [
        ("127.0.0.1:8080", "127.0.0.1", 8081, []),
        ("127.0.0.1:8080", "127.0.0.2", 8080, []),
        ("127.0.0.1:8080", "64:ff9b::7f00:1", 8080, []),
        ("127.0.0.1:8080", "localhost", 8080, ["127.0.0.1", "::1"]),
        ("127.0.0.1:8080", "localhost", 8081, ["127.0.0.1"]),
        ("localhost:8080", "127.0.0.1", 8080, []),
        ("localhost:8080", "evil.example", 8080, ["127.0.0.1"]),
        ("localhost:8080", "localhost", 8081, ["127.0.0.1"]),
        ("localhost:8080", "a.localhost", 8080, ["127.0.0.1"]),
        ("*.corp.example:443", "corp.example", 443, ["10.0.0.5"]),
        ("*.corp.example:443", "evilcorp.example", 443, ["10.0.0.5"]),
        ("*.corp.example:443", "a.corp.example", 444, ["10.0.0.5"]),
        ("10.0.0.5:443", "api.example.com", 443, ["10.0.0.5", "10.0.0.6"]),
    ],
)
def test_nothing_else_becomes_good(allow, host, port, answer):
    dialler = Recorder()
    guard = EgressGuard([allow], resolve=Names(answer), dial=dialler)
    with pytest.raises(EgressRefused) as caught:
        asyncio.run(guard.connect(host, port, ANY))
    assert caught.value.code == "address_refused"
    assert dialler.dialled == []


def test_allowing_a_host_does_not_name_it_for_a_tool():
    assert (
        refused(EgressGuard(["localhost:80"]), "localhost", 80, ["api.example.com"]).code == "host_not_named"
    )


# What is looked up, and what is dialled


@pytest.mark.parametrize(
    "bad", ["127.0.0.1", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "fe80::1%2", "10.1.2.3", "::1"]
)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_one_bad_address_among_good_ones_refuses_them_all(bad, place):
    answer = ["8.8.8.8", "2606:4700::1"]
    answer.insert(place, bad)
    names, dialler = Names(answer), Recorder()
    with pytest.raises(EgressRefused):
        asyncio.run(EgressGuard(resolve=names, dial=dialler).connect("api.example.com", 443, ANY))
    assert names.asked == [("api.example.com", 443)]
    assert dialler.dialled == []


def test_a_name_is_looked_up_once_and_what_was_judged_is_dialled():
    names, dialler = Names(["8.8.8.8"], ["127.0.0.1"]), Recorder()
    guard = EgressGuard(resolve=names, dial=dialler)
    with pytest.raises(UnreachableHost):
        asyncio.run(guard.connect("Flip.example.", 443, ANY))
    assert names.asked == [("flip.example", 443)]
    with pytest.raises(EgressRefused):
        asyncio.run(guard.connect("flip.example", 443, ANY))
    assert dialler.dialled == [("8.8.8.8", 443)]


def test_addresses_keep_their_order_and_none_comes_twice():
    guard = EgressGuard(
        resolve=Names(["8.8.8.8", "2606:4700:0::1", "::ffff:8.8.8.8", "2606:4700::1", "1.1.1.1"])
    )
    assert addresses(guard, "api.example.com") == ["8.8.8.8", "2606:4700::1", "1.1.1.1"]


@pytest.mark.parametrize(
    "answer", ["", "api.example.com", "127.1", "0x7f000001", "8.8.8.8\n", "fe80::1%a b", "1" * 99]
)
@pytest.mark.parametrize("allow", [[], ["api.example.com:443"]])
def test_an_answer_that_is_no_address_is_refused(answer, allow):
    dialler = Recorder()
    with pytest.raises(EgressRefused, match="is not an IP address") as caught:
        asyncio.run(
            EgressGuard(allow, resolve=Names([answer]), dial=dialler).connect("api.example.com", 443, ANY)
        )
    assert caught.value.code == "address_refused"
    assert dialler.dialled == []


@pytest.mark.parametrize("answer", [[], (), socket.gaierror(-2, "secret text"), OSError("secret text")])
def test_a_name_without_address_is_told_in_our_words(answer):
    with pytest.raises(UnreachableHost) as caught:
        addresses(EgressGuard(resolve=Names(answer)), "nowhere.example")
    assert isinstance(caught.value, OSError)
    assert caught.value.code == "name_not_found"
    assert caught.value.message == str(caught.value) == "cannot resolve the host name `nowhere.example`"


def test_what_a_dialler_meets_is_told_by_its_kind():
    faults = {
        "1.1.1.1": ConnectionRefusedError(111, "secret text"),
        "1.1.1.2": TimeoutError("secret text"),
        "1.1.1.3": OSError(101, "secret text"),
        "1.1.1.4": OSError("secret text"),
        "1.1.1.5": OSError("secret text"),
    }

    async def dial(address, port):
        raise faults[address]

    guard = EgressGuard(resolve=Names(list(faults)), dial=dial)
    with pytest.raises(UnreachableHost) as caught:
        asyncio.run(guard.connect("api.example.com", 443, ANY))
    assert caught.value.code == "connect_failed"
    assert caught.value.message == (
        "cannot connect to `api.example.com:443`: 1.1.1.1 refused the connection; 1.1.1.2 did not answer; "
        "1.1.1.3 failed with ENETUNREACH; and 2 more"
    )


def test_a_dialler_that_has_a_fault_of_its_own_is_not_hidden():
    async def dial(address, port):
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(EgressGuard(dial=dial).connect("8.8.8.8", 443, ANY))


# What is said


@pytest.mark.parametrize(
    ("host", "message", "entry"),
    [
        ("127.0.0.1", "`127.0.0.1:8080` is a loopback address, which tools may not reach", "127.0.0.1:8080"),
        ("[::1]", "`[::1]:8080` is a loopback address, which tools may not reach", "[::1]:8080"),
        ("FE80::1", "`[fe80::1]:8080` is a link-local address, which tools may not reach", "[fe80::1]:8080"),
        ("0x7f.1", "`0x7f.1` is 127.0.0.1, a loopback address, which tools may not reach", "127.0.0.1:8080"),
        (
            "64:ff9b::10.0.0.1",
            "`64:ff9b::10.0.0.1` is 64:ff9b::a00:1, another form of 10.0.0.1, a private address, which tools may not reach",
            "[64:ff9b::a00:1]:8080",
        ),
        (
            "2002:7f00:1::",
            "`[2002:7f00:1::]:8080` is another form of 127.0.0.1, a loopback address, which tools may not reach",
            "[2002:7f00:1::]:8080",
        ),
        (
            "255.255.255.255",
            "`255.255.255.255:8080` is the broadcast address, which tools may not reach",
            None,
        ),
    ],
)
def test_a_refused_literal_is_told_with_the_way_out(host, message, entry):
    error = refused(EgressGuard(), host, 8080)
    assert error.message == message
    if entry is not None:
        assert error.hint == f'add it to `egress: {{allow: ["{entry}"]}}` in toolcrib.yaml'
        EgressGuard([entry]).check(host, 8080, ANY)


def test_a_refused_name_is_told_with_its_address():
    with pytest.raises(EgressRefused) as caught:
        addresses(EgressGuard(resolve=Names(["8.8.8.8", "10.0.0.5"])), "Internal.corp")
    assert caught.value.message == (
        "`internal.corp:443` resolves to 10.0.0.5, a private address, which tools may not reach"
    )
    assert caught.value.hint == 'add it to `egress: {allow: ["internal.corp:443"]}` in toolcrib.yaml'


def test_a_guard_that_allows_more_leaves_the_first_as_it_was():
    dialled = []

    async def dial(address, port):
        dialled.append((address, port))
        return socket.socket()

    first = EgressGuard(["10.0.0.1:80"], dial=dial)
    more = first.also(["127.0.0.1:3105", "localhost:3105"])
    more.check("10.0.0.1", 80, ANY)
    more.check("127.0.0.1", 3105, ANY)
    asyncio.run(more.connect("127.0.0.1", 3105, ANY)).close()
    assert dialled == [("127.0.0.1", 3105)]
    for guard, port in ((first, 3105), (more, 3106)):
        with pytest.raises(EgressRefused):
            guard.check("127.0.0.1", port, ANY)
    with pytest.raises(ValueError, match="would allow every address"):
        first.also(["*:80"])
