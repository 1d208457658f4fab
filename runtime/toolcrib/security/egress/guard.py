"""The guard: decides which connections are made, and makes them."""

from __future__ import annotations

import socket
from collections.abc import Collection, Iterable
from typing import TypedDict

from toolcrib.security.egress.hosts import Host, is_port, matches, place_of, read_allowed, read_host, shown
from toolcrib.security.egress.ip_ranges import fault_of, read_address
from toolcrib.security.egress.sockets import (
    Dial,
    Resolve,
    Unreachable,
    dial_first,
    family_of,
    look_up,
    open_socket,
)
from toolcrib.security.egress.sockets import dial as dial_address


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


class Resolved(TypedDict):
    """One address, shaped as the resolvers of aiohttp answer."""

    hostname: str
    host: str
    port: int
    family: int
    proto: int
    flags: int


class Guard:
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
        self._dial = dial_address if dial is None else dial

    def also(self, allow: Iterable[str]) -> Guard:
        """A guard that makes the same decisions and connections, and allows more.

        Args:
            allow: Entries as the class takes them.

        Raises:
            ValueError: As the class does.
        """
        return Guard([*self._allow, *allow], resolve=self._resolve, dial=self._dial)

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
        return any(matches(read, pattern) for pattern in hosts)

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
            Unreachable: The name has no address.
        """
        read = self._checked(host, port, hosts)
        if read.literal:
            return [read.name]
        try:
            found = await self._resolve(read.name, port)
        except OSError:
            found = ()
        if not found:
            raise Unreachable(f"no address was found for the name `{read.name}`", code="name_not_found")
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
            Unreachable: The name has no address, or none of them could be connected to.
        """
        addresses = await self.addresses(host, port, hosts)
        try:
            return await dial_first(self._dial, addresses, port)
        except OSError as error:
            place = place_of(read_host(host).name, port)
            raise Unreachable(f"no connection to `{place}`: {error}", code="connect_failed") from None

    async def resolved(self, host: str, port: int, hosts: Collection[str]) -> list[Resolved]:
        """`addresses`, shaped as the resolvers of aiohttp answer; raises the same."""
        return [
            Resolved(
                hostname=host,
                host=address,
                port=port,
                family=family_of(address),
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for address in await self.addresses(host, port, hosts)
        ]

    def check_address(self, host: str, port: int, address: str) -> None:
        """Judge an address that somebody is about to dial for a host.

        Raises:
            EgressRefused: The address is not good for this host and port, or what was given is no address.
        """
        self._judged(_read(host, port), port, address)

    def open_socket(self, host: str, port: int, address: str) -> socket.socket:
        """A socket for an address that somebody is about to dial for a host: non-blocking, not yet connected.

        Raises:
            EgressRefused: As `check_address` does.
            OSError: The system gives no socket.
        """
        self.check_address(host, port, address)
        return open_socket(address)

    def _checked(self, host: str, port: int, hosts: Collection[str]) -> Host:
        read = _read(host, port)
        if not any(matches(read, pattern) for pattern in hosts):
            raise _unnamed(read, hosts)
        if read.literal:
            self._judge(read, port, read.name, written=host)
        return read

    def _judged(self, host: Host, port: int, text: str) -> str:
        """The canonical text of an address of a host, if it may be dialled."""
        try:
            address = str(read_address(text))
        except ValueError:
            message = f"`{place_of(host.name, port)}` was looked up, and `{shown(text)}` is no address"
            raise EgressRefused(message, code="address_refused", hint="see to the resolver") from None
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
        fault = fault_of(address)
        if fault:
            raise _refusal(host, port, address, written, fault)


def _read(host: str, port: int) -> Host:
    try:
        read = read_host(host)
    except ValueError as error:
        hint = "write a name or an address, without scheme, user name or port"
        raise EgressRefused(str(error), code="bad_address", hint=hint) from None
    if not is_port(port):
        message = f"`{place_of(read.name, port)}` has no port between 1 and 65535"
        raise EgressRefused(message, code="bad_address", hint="name the port on which the service listens")
    return read


def _unnamed(host: Host, hosts: Collection[str]) -> EgressRefused:
    named = [shown(pattern) for pattern in hosts]
    listed = ", ".join(f"`{pattern}`" for pattern in named) or "none is named"
    entries = ", ".join(f'"{pattern}"' for pattern in [*named, host.name])
    return EgressRefused(
        f"`{host.name}` is not among the hosts that this tool may reach ({listed})",
        code="host_not_named",
        hint=f"if it may reach this one, name it in the descriptor: `hosts: [{entries}]`",
    )


def _refusal(host: Host, port: int, address: str, written: str, fault: str) -> EgressRefused:
    place = place_of(host.name, port)
    if address != host.name:
        what = f"`{place}` resolves to {address}, {fault}"
    elif written.strip("[]").lower() != host.name:
        what = f"`{shown(written)}` is {address}, {fault}"
    else:
        what = f"`{place}` is {fault}"
    return EgressRefused(
        f"{what}, which tools may not reach",
        code="address_refused",
        hint=f'name it in `egress: {{allow: ["{place}"]}}` of toolcrib.yaml',
    )
