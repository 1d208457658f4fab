"""The servers that run: each started when it is first needed, shared by whoever may share it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from toolcrib.core.protocols import Clock
from toolcrib.core.server_config import Server
from toolcrib.servers.environment import World
from toolcrib.servers.mcp.supervisor import Berth, Changed
from toolcrib.servers.mcp.transports import Link, open_link

if TYPE_CHECKING:
    from toolcrib.http.auth import Tokens
    from toolcrib.servers.mcp.connection import Connection

_ORDER = ("up", "starting", "resting", "down", "idle")
"""States; of several that one server has in several places, the first of these is told."""


class Connections:
    """The servers of one World, as this process uses them.

    Each runs once for each event loop, and for each session where the server says so.

    Args:
        world: What may be reached.
        tokens: Gives the tokens that servers over HTTP were given; they outlive the World.
        changed: Told what a server lists first, and whenever it lists other tools than before.
    """

    def __init__(self, world: World, tokens: Callable[[], Tokens], changed: Changed) -> None:
        self.world = world
        self._tokens = tokens
        self._changed = changed
        self._berths: dict[tuple[str, int, str], Berth] = {}
        self._warned: set[str] = set()
        self._retired = False

    async def get(self, server: str, session_id: str, clock: Clock) -> Connection:
        """The connection to a server, which is started if need be.

        Args:
            server: Its name; it is one of the World's.
            session_id: Of the session that calls.
            clock: Of the session; what waits between two starts goes by it.

        Raises:
            Down: It can't be started now, or may not be.
        """
        known = self.world.servers[server]
        loop = asyncio.get_running_loop()
        key = (server, id(loop), session_id if known.scope == "session" else "")
        berth = self._berths.get(key)
        if berth is None:
            berth = self._made(key, loop)
        connection = berth.connection
        if connection is None or not connection.alive:
            connection = await berth.started(clock)
            if self._retired:
                connection.leave()
        return connection

    def _made(self, key: tuple[str, int, str], loop: asyncio.AbstractEventLoop) -> Berth:
        for other, berth in list(self._berths.items()):
            if berth.loop.is_closed():  # what ran in it has ended with it
                del self._berths[other]
        world, tokens = self.world, self._tokens

        def to(server: Server) -> Link:
            return open_link(server, world, None if server.transport == "stdio" else tokens())

        made = Berth(
            world.servers[key[0]], world.judge, to, loop=loop, changed=self._changed, warned=self._warned
        )
        return self._berths.setdefault(key, made)

    def states(self) -> Mapping[str, str]:
        """Name of a server -> `idle`, `starting`, `up`, `down` or `resting`. Nothing is started to find out."""
        found: dict[str, str] = dict.fromkeys(self.world.servers, "idle")
        for berth in list(self._berths.values()):
            name = berth.server.name
            found[name] = min(found[name], berth.state, key=_ORDER.index)
        return found

    @property
    def empty(self) -> bool:
        """Whether there is nothing to close."""
        return not self._berths

    async def release(self, session_id: str) -> None:
        """End the servers that only this session had."""
        await self._close([key for key in self._berths if key[2] and key[2] == session_id])

    def retire(self) -> None:
        """Another World is in force: end each server once its calls are over."""
        self._retired = True
        for berth in list(self._berths.values()):
            if not berth.loop.is_closed():
                berth.loop.call_soon_threadsafe(berth.leave)

    async def aclose(self) -> None:
        """End every server."""
        await self._close(list(self._berths))

    async def _close(self, keys: list[tuple[str, int, str]]) -> None:
        berths = [self._berths.pop(key) for key in keys]
        await asyncio.gather(*(_closed(berth) for berth in berths))


async def _closed(berth: Berth) -> None:
    """End a server where it lives, which may be the loop of another thread."""
    if berth.loop is asyncio.get_running_loop():
        await berth.end()
    elif berth.loop.is_running():
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(berth.end(), berth.loop))
