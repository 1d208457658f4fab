"""Look-ups and connections: the only lines that touch the network."""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Awaitable, Callable, Iterable, Sequence

Resolve = Callable[[str, int], Awaitable[Sequence[str]]]
"""(name, port) -> its addresses as text, best first; OSError where there are none."""
Dial = Callable[[str, int], Awaitable[socket.socket]]
"""(address, port) -> a connected, non-blocking socket; OSError where there is none. Cancelled, it leaves no socket."""

HEAD_START = 0.25
"""Seconds for which an address is tried alone before the next one is tried beside it (RFC 8305 section 5)."""

_SHOWN = 3


class Unreachable(OSError):
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


async def dial(address: str, port: int) -> socket.socket:
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
