"""The egress guard: which hosts and addresses tools may reach, and the one place where a socket is dialled.

A name is looked up once for each connection. Every address that the look-up gives must be good, and what was judged is
what is dialled: a name that answers differently a moment later changes nothing. Literal addresses, in whatever
spelling, are judged without a look-up. What is not public is refused unless the project's `egress.allow` names it.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence

from toolcrib.security.hosts import (
    Host,
    host_and_port,
    host_matches,
    is_loopback,
    is_metadata,
    is_port,
    printable,
    read_address,
    read_allowed,
    read_glob,
    read_host,
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
"""(name, port) -> its addresses as text, best first; OSError where there are none."""
Dial = Callable[[str, int], Awaitable[socket.socket]]
"""(address, port) -> a connected, non-blocking socket; OSError where there is none. Cancelled, it leaves no socket."""

HEAD_START = 0.25
"""Seconds for which an address is tried alone before the next one is tried beside it (RFC 8305 section 5)."""

_SHOWN = 3


class UnreachableHost(OSError):
    """Nothing was refused, and yet no connection came about.

    Attributes:
        code: `name_not_found` or `connect_failed`.
        message: What was tried, in our own words.
    """

    def __init__(self, message: str, *, code: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message


async def look_up(name: str, port: int) -> list[str]:
    """Ask the system's resolver, in a thread of its own.

    Raises:
        OSError: The name has no address.
    """
    loop = asyncio.get_running_loop()
    # Bytes, because a text would go through a codec that knows only an older kind of internationalised names.
    found = await loop.getaddrinfo(name.encode("ascii"), port, type=socket.SOCK_STREAM)
    return [_text(place) for *_, place in found]


def _text(place: tuple[str, int] | tuple[str, int, int, int] | tuple[int, bytes]) -> str:
    zone = place[3] if len(place) == 4 else 0
    return f"{place[0]}%{zone}" if zone else str(place[0])


def family_of(address: str) -> socket.AddressFamily:
    """The family of an address in its usual text."""
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def open_socket(address: str) -> socket.socket:
    """A socket for an address: non-blocking, without delay of small packets, not connected.

    Raises:
        OSError: The system gives none.
    """
    opened = socket.socket(family_of(address), socket.SOCK_STREAM)
    opened.setblocking(False)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return opened


async def connect_address(address: str, port: int) -> socket.socket:
    """Connect to an address; not to a name, which would be looked up.

    Raises:
        OSError: There is no connection.
    """
    place = _place(address, port)
    opened = open_socket(address)
    try:
        await asyncio.get_running_loop().sock_connect(opened, place)
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
    """The first connection that comes about.

    Addresses are tried in order: the next one as soon as one fails, or after a head start beside it. When this is
    cancelled, no socket stays open.

    Raises:
        OSError: There is none; the text says of each address why.
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
        for attempt in attempts:
            attempt.add_done_callback(_close)
            attempt.cancel()
    rest = len(failures) - _SHOWN
    raise OSError("; ".join(failures[:_SHOWN]) + (f"; and {rest} more" if rest > 0 else ""))


async def _attempt(dial: Dial, address: str, port: int) -> socket.socket:
    return await dial(address, port)


async def _first_of(
    attempts: dict[asyncio.Task[socket.socket], str], failures: list[str], patience: float | None
) -> socket.socket | None:
    """Wait until an attempt ends or the patience does; attempts that have failed leave `attempts` for `failures`."""
    done, _ = await asyncio.wait(attempts, timeout=patience, return_when=asyncio.FIRST_COMPLETED)
    for attempt in done:
        address = attempts.pop(attempt)
        try:
            return attempt.result()
        except OSError as error:
            failures.append(f"{address} {_what_happened(error)}")
    return None


def _close(attempt: asyncio.Task[socket.socket]) -> None:
    """Close what an attempt reached that nobody waits for any more."""
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result().close()


def _what_happened(error: OSError) -> str:
    if isinstance(error, ConnectionRefusedError):
        return "refused the connection"
    if isinstance(error, TimeoutError):
        return "did not answer"
    return f"failed with {errno.errorcode.get(error.errno or 0, type(error).__name__)}"


class EgressRefused(Exception):
    """A connection that tools may not make. Its text holds no secret: a host with a user name is not shown.

    Attributes:
        code: `host_not_named`, `address_refused`, or `bad_address` (what was given is no host or no port).
        message: What is refused, and why.
        hint: The way out.
    """

    def __init__(self, message: str, *, code: str, hint: str) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.hint = hint


class EgressGuard:
    """Decides which connections are made, and makes them.

    Args:
        allow: What may be reached although it is not public, as `read_allowed` reads it. An entry with a host makes
            every address of this host good, on its port; one with an address makes this address good, whatever name
            leads to it.
        resolve: Looks names up; the system's resolver by default.
        dial: Makes connections; by default to the address that it is given, with TCP_NODELAY.

    Raises:
        ValueError: Entries of `allow` can't be read; the message tells of all of them.
    """

    def __init__(
        self, allow: Iterable[str] = (), *, resolve: Resolve | None = None, dial: Dial | None = None
    ) -> None:
        self._allow = tuple(allow)
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
        """A guard that makes the same decisions and connections, and allows more.

        Args:
            allow: Entries as the class takes them.

        Raises:
            ValueError: As the class does.
        """
        return EgressGuard([*self._allow, *allow], resolve=self._resolve, dial=self._dial)

    def check(self, host: str, port: int, hosts: Collection[str]) -> None:
        """Refuse what can be refused without a look-up.

        Args:
            host: As a URL names it.
            port: 1 to 65535.
            hosts: Patterns of the hosts that may be reached, as `read_glob` reads them.

        Raises:
            EgressRefused: `hosts` does not name the host, it is an address that tools may not reach, or no host at all.
        """
        self._checked(host, port, hosts)

    def is_named(self, host: str, port: int, hosts: Collection[str]) -> bool:
        """Whether `hosts` names a host, wherever that lies.

        Raises:
            EgressRefused: It is no host at all.
        """
        read = _read(host, port)
        return any(host_matches(read, pattern) for pattern in hosts)

    async def addresses(self, host: str, port: int, hosts: Collection[str]) -> list[str]:
        """The addresses that may be dialled for a host, from one look-up; an address is not looked up.

        Args:
            host: As `check` takes it.
            port: As `check` takes it.
            hosts: As `check` takes them.

        Returns:
            Addresses as text, in the order of the look-up, none twice.

        Raises:
            EgressRefused: As `check` does, or one of the addresses is not good.
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
        return list(dict.fromkeys([self._judged(read, port, address) for address in found]))

    async def connect(self, host: str, port: int, hosts: Collection[str]) -> socket.socket:
        """Connect to a host: its addresses are tried in order. When this is cancelled, no socket stays open.

        Args:
            host: As `check` takes it.
            port: As `check` takes it.
            hosts: As `check` takes them.

        Returns:
            A connected, non-blocking socket.

        Raises:
            EgressRefused: As `addresses` does; nothing was dialled.
            UnreachableHost: The name has no address, or none of them could be connected to.
        """
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
        if read.literal:
            self._judge(read, port, read.name, written=host)
        return read

    def _judged(self, host: Host, port: int, text: str) -> str:
        """The canonical text of an address of a host, if it may be dialled."""
        try:
            address = str(read_address(text))
        except ValueError:
            message = f"`{host_and_port(host.name, port)}` resolved to `{printable(text)}`, which is not an IP address"
            raise EgressRefused(message, code="address_refused", hint="check the resolver") from None
        if not self._names(host, port):
            self._judge(host, port, address, written=host.name)
        return address

    def _names(self, host: Host, port: int) -> bool:
        """Whether `allow` names a host by its name, which makes all its addresses good."""
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
