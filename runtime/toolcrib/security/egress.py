"""The egress guard decides which hosts and addresses tools may reach, and opens every socket.

Each connection resolves its host name once. Every resolved address must be permitted, and the guard dials exactly the
addresses that it checked. Literal addresses, in any spelling, are checked without a look-up. Addresses that are not
public are refused unless the project's `egress.allow` names them.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence

from toolcrib.security.access import HOST_NOT_ALLOWED, report_refusal
from toolcrib.security.hosts import (
    Host,
    host_and_port,
    host_matches,
    is_loopback,
    is_metadata,
    is_port,
    matches_any_host,
    printable,
    read_address,
    read_allowed,
    read_glob,
    read_host,
    read_host_pattern,
    why_not_public,
)

__all__ = [
    "HEAD_START",
    "Dial",
    "EgressGuard",
    "EgressRefused",
    "Host",
    "Resolve",
    "UnreachableHost",
    "connect_address",
    "dial_first",
    "family_of",
    "is_loopback",
    "is_metadata",
    "look_up",
    "open_socket",
    "read_allowed",
    "read_glob",
    "read_host",
    "why_not_public",
]

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""(name, port) -> the addresses of a host name as text, best first. Raises OSError if it has no address."""
Dial = Callable[[str, int], Awaitable[socket.socket]]
"""(address, port) -> a connected, non-blocking socket. Raises OSError on failure; closes the socket if cancelled."""

HEAD_START = 0.25
"""Seconds before the next address is tried in parallel: the connection attempt delay of RFC 8305 section 5."""

_SHOWN = 3


class UnreachableHost(OSError):
    """The connection is permitted, but the host cannot be resolved or reached.

    Attributes:
        code: `name_not_found` or `connect_failed`.
        message: What was tried, without the text of the operating system.
    """

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


async def look_up(name: str, port: int) -> list[str]:
    """Resolve a host name with the system's resolver, in a thread.

    Raises:
        OSError: The name has no address.
    """
    loop = asyncio.get_running_loop()
    # Bytes, because `socket` encodes text with Python's `idna` codec, which implements only IDNA 2003.
    found = await loop.getaddrinfo(name.encode("ascii"), port, type=socket.SOCK_STREAM)
    return [_text(place) for *_, place in found]


def _text(place: tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]) -> str:
    zone = place[3] if len(place) == 4 else 0
    return f"{place[0]}%{zone}" if zone else str(place[0])


def family_of(address: str) -> socket.AddressFamily:
    """The address family of an IP address in canonical text."""
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def open_socket(address: str) -> socket.socket:
    """Create an unconnected, non-blocking socket with TCP_NODELAY for an address.

    Raises:
        OSError: The system cannot create it.
    """
    opened = socket.socket(family_of(address), socket.SOCK_STREAM)
    opened.setblocking(False)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return opened


async def connect_address(address: str, port: int) -> socket.socket:
    """Connect to an IP address. Host names are not accepted, because they would be resolved without a check.

    Raises:
        OSError: The connection failed.
    """
    place = _place(address, port)
    opened = open_socket(address)
    try:
        await asyncio.get_running_loop().sock_connect(opened, place)
    # Cancellation is a BaseException, and it must close the socket, too.
    except BaseException:
        opened.close()
        raise
    return opened


def _place(address: str, port: int) -> tuple[str, int] | tuple[str, int, int, int]:
    if ":" not in address:
        return address, port
    bare, _, zone = address.partition("%")
    scope = int(zone) if zone.isdigit() else socket.if_nametoindex(zone) if zone else 0
    return bare, port, 0, scope


async def dial_first(dial: Dial, addresses: Iterable[str], port: int) -> socket.socket:
    """Connect to the first address that accepts.

    Addresses are tried in order. The next attempt starts as soon as one fails, or in parallel after `HEAD_START`.
    No socket stays open if this is cancelled.

    Raises:
        OSError: All addresses failed; the text gives the reason for the first few.
    """
    left = list(addresses)
    attempts: dict[asyncio.Task[socket.socket], str] = {}
    failures: list[str] = []
    try:
        while left or attempts:
            if left:
                address = left.pop(0)
                attempts[asyncio.create_task(_attempt(dial, address, port))] = address
            connection = await _first_of(attempts, failures, HEAD_START if left else None)
            if connection is not None:
                return connection
    finally:
        # `cancel` has no effect on an attempt that has already connected: without the callback its socket leaks.
        for attempt in attempts:
            attempt.add_done_callback(_close)
            attempt.cancel()
    rest = len(failures) - _SHOWN
    raise OSError("; ".join(failures[:_SHOWN]) + (f"; and {rest} more" if rest > 0 else ""))


async def _attempt(dial: Dial, address: str, port: int) -> socket.socket:
    # `create_task` requires a coroutine; a `Dial` may return any awaitable.
    return await dial(address, port)


async def _first_of(
    attempts: dict[asyncio.Task[socket.socket], str], failures: list[str], patience: float | None
) -> socket.socket | None:
    """Wait until an attempt ends or `patience` seconds pass; failed attempts move from `attempts` to `failures`."""
    done, _ = await asyncio.wait(attempts, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
    for attempt in done:
        address = attempts.pop(attempt)
        try:
            return attempt.result()
        except OSError as error:
            failures.append(f"{address} {_what_happened(error)}")
    return None


def _close(attempt: asyncio.Task[socket.socket]) -> None:
    # Reading `exception()` also prevents asyncio's "Task exception was never retrieved".
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result().close()


def _what_happened(error: OSError) -> str:
    # The text of an OSError depends on the platform and the locale, so messages use the name of its number.
    if isinstance(error, ConnectionRefusedError):
        return "refused the connection"
    if isinstance(error, TimeoutError):
        return "did not answer"
    return f"failed with {errno.errorcode.get(error.errno or 0, type(error).__name__)}"


class EgressRefused(Exception):
    """A connection that tools may not make.

    The text contains no secret: a host with a user name or password is not shown.

    Attributes:
        code: `host_not_named`, `host_not_allowed`, `address_refused`, or `bad_address` (invalid host or port).
        message: What is refused, and why.
        hint: How to permit or correct it.
    """

    def __init__(self, message: str, *, code: str, hint: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint


class EgressGuard:
    """Checks connections against the egress rules and opens them.

    Args:
        allow: Hosts that may be reached although they are not public, in the form of `read_allowed`. An entry with a
            host name permits all addresses of this host on the entry's port. An entry with an address permits this
            address, regardless of the host name that resolves to it.
        only: The hosts that may be reached at all, in the form of `read_host_pattern`; None for all. Other hosts are
            reported to `report_refusal`.
        audit: Whether hosts that are not in `only` are reported, and not refused.
        resolve: Resolves host names. Default: the system's resolver.
        dial: Opens connections. Default: `connect_address`.

    Raises:
        ValueError: Some entries of `allow` are invalid; the message lists all of them.
    """

    def __init__(
        self,
        allow: Iterable[str] = (),
        *,
        only: Iterable[str] | None = None,
        audit: bool = False,
        resolve: Resolve | None = None,
        dial: Dial | None = None,
    ) -> None:
        self._allow = tuple(allow)
        self._listed = None if only is None else tuple(only)
        self._only = None if self._listed is None else tuple(map(read_host_pattern, self._listed))
        self._audit = audit
        entries: set[tuple[str, int]] = set()
        faults: list[str] = []
        for entry in self._allow:
            try:
                entries.add(read_allowed(entry))
            except ValueError as error:
                faults.append(str(error))
        if faults:
            raise ValueError("\n".join(faults))
        self._exact = frozenset(entries)
        self._below = tuple((glob[1:], port) for glob, port in sorted(entries) if glob.startswith("*."))
        self._resolve = look_up if resolve is None else resolve
        self._dial = connect_address if dial is None else dial

    def also(self, allow: Iterable[str]) -> EgressGuard:
        """Return a guard with the same resolver and dialer that allows more hosts.

        Args:
            allow: Additional entries, in the form that the class accepts.

        Raises:
            ValueError: Some entries are invalid.
        """
        return EgressGuard(
            [*self._allow, *allow],
            only=self._listed,
            audit=self._audit,
            resolve=self._resolve,
            dial=self._dial,
        )

    def check(self, host: str, port: int, hosts: Collection[str]) -> None:
        """Check a host as far as this is possible without a look-up.

        Args:
            host: The host of a URL.
            port: 1 to 65535.
            hosts: Patterns of the hosts that may be reached, in the form of `read_glob`.

        Raises:
            EgressRefused: `hosts` does not match the host, the host is an address that tools may not reach, or the host
                or port is invalid.
        """
        self._checked(host, port, hosts)

    def report_reuse(self, host: str, port: int) -> None:
        """Report a request over an open connection to a host that only audit mode permits."""
        if self._audit:
            self._check_listed(_read(host, port), port)

    def is_named(self, host: str, port: int, hosts: Collection[str]) -> bool:
        """Whether `hosts` matches a host, without a check of its addresses.

        Raises:
            EgressRefused: The host or port is invalid.
        """
        read = _read(host, port)
        return any(host_matches(read, pattern) for pattern in hosts)

    async def addresses(self, host: str, port: int, hosts: Collection[str]) -> list[str]:
        """Resolve a host once and return its addresses if all of them are permitted.

        Args:
            host: The host of a URL. A literal address is not looked up.
            port: 1 to 65535.
            hosts: Patterns of the hosts that may be reached.

        Returns:
            Addresses as text, without duplicates, in the order of the look-up.

        Raises:
            EgressRefused: `check` refuses the host, or one of its addresses is not permitted.
            UnreachableHost: The name has no address.
        """
        read = self._checked(host, port, hosts)
        if read.literal:
            return [read.name]
        try:
            found = await self._resolve(read.name, port)
        except OSError:
            found = ()
        if not found:
            raise UnreachableHost(f"cannot resolve the host name `{read.name}`", code="name_not_found")
        # One private address refuses the whole host: an attacker's DNS server may mix it with public ones and let
        # the public ones time out.
        return list(dict.fromkeys([self._judged(read, port, address) for address in found]))

    async def connect(self, host: str, port: int, hosts: Collection[str]) -> socket.socket:
        """Connect to a host. Its addresses are tried in order. No socket stays open if this is cancelled.

        Args:
            host: The host of a URL.
            port: 1 to 65535.
            hosts: Patterns of the hosts that may be reached.

        Returns:
            A connected, non-blocking socket.

        Raises:
            EgressRefused: `addresses` refuses the host; nothing was dialled.
            UnreachableHost: The name has no address, or all of its addresses failed.
        """
        # Dial the checked addresses, never the name: a second look-up may return others (DNS rebinding).
        addresses = await self.addresses(host, port, hosts)
        try:
            return await dial_first(self._dial, addresses, port)
        except OSError as error:
            place = host_and_port(read_host(host).name, port)
            raise UnreachableHost(f"cannot connect to `{place}`: {error}", code="connect_failed") from None

    def _checked(self, host: str, port: int, hosts: Collection[str]) -> Host:
        read = _read(host, port)
        if not any(host_matches(read, pattern) for pattern in hosts):
            raise _unnamed(read, hosts)
        self._check_listed(read, port)
        if read.literal:
            self._judge(read, port, read.name, written=host)
        return read

    def _check_listed(self, host: Host, port: int) -> None:
        if self._only is None or matches_any_host(host, port, self._only):
            return
        refusal = _unlisted(host, port)
        # Reported here and not where the error arrives: the tool may handle it.
        report = report_refusal.get()
        if report is not None:
            report("hosts", refusal.message)
        if not self._audit:
            raise refusal

    def _judged(self, host: Host, port: int, text: str) -> str:
        """The canonical text of a resolved address, if it may be dialled."""
        try:
            address = str(read_address(text))
        except ValueError:
            message = f"`{host_and_port(host.name, port)}` resolved to `{printable(text)}`, which is not an IP address"
            raise EgressRefused(message, code="address_refused", hint="check the resolver") from None
        if not self._names(host, port):
            self._judge(host, port, address, written=host.name)
        return address

    def _names(self, host: Host, port: int) -> bool:
        """Whether `allow` matches a host by name, which permits all of its addresses."""
        if host.literal:
            return False
        below = any(port == each and host.name.endswith(suffix) for suffix, each in self._below)
        return below or (host.name, port) in self._exact

    def _judge(self, host: Host, port: int, address: str, *, written: str) -> None:
        if (address, port) in self._exact:
            return
        fault = why_not_public(address)
        if fault:
            raise _refusal(host, port, address, written, fault)


def _read(host: str, port: int) -> Host:
    try:
        read = read_host(host)
    except ValueError as error:
        hint = "write a host name or an IP address, without scheme, user name or port"
        raise EgressRefused(str(error), code="bad_address", hint=hint) from None
    if not is_port(port):
        message = f"`{host_and_port(read.name, port)}` needs a port between 1 and 65535"
        raise EgressRefused(message, code="bad_address", hint="add the port that the service listens on")
    return read


def _unnamed(host: Host, hosts: Collection[str]) -> EgressRefused:
    named = [printable(pattern) for pattern in hosts]
    listed = ", ".join(f"`{pattern}`" for pattern in named) or "none are declared"
    entries = ", ".join(f'"{pattern}"' for pattern in [*named, host.name])
    return EgressRefused(
        f"`{host.name}` is not among the hosts that this tool may reach ({listed})",
        code="host_not_named",
        hint=f"if the tool may reach it, add it to the descriptor: `hosts: [{entries}]`",
    )


def _unlisted(host: Host, port: int) -> EgressRefused:
    place = host_and_port(host.name, port)
    return EgressRefused(
        f"`{place}` is not among the hosts that `access` allows",
        code=HOST_NOT_ALLOWED,
        hint=f"if tools may reach it, add `{host.name}` to `access.hosts` in toolcrib.yaml",
    )


def _refusal(host: Host, port: int, address: str, written: str, fault: str) -> EgressRefused:
    place = host_and_port(host.name, port)
    if address != host.name:
        what = f"`{place}` resolves to {address}, {fault}"
    elif written.strip("[]").lower() != host.name:
        what = f"`{printable(written)}` is {address}, {fault}"
    else:
        what = f"`{place}` is {fault}"
    return EgressRefused(
        f"{what}, which tools may not reach",
        code="address_refused",
        hint=f'add it to `egress: {{allow: ["{place}"]}}` in toolcrib.yaml',
    )
