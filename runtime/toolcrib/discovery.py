"""What the servers of a runtime were asked, and what they answered."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING

from toolcrib.errors import NotReady, Problem
from toolcrib.importing import server_of
from toolcrib.servers import Catalogue, Server

if TYPE_CHECKING:
    from toolcrib.registry import Registry
    from toolcrib.stock import Stock

Ask = Callable[[str], Awaitable[Catalogue]]
"""Starts a server, if it does not run, and returns what it offers; raises NotReady."""


class Discovery:
    """The answers of the servers, as long as they hold good.

    Attributes:
        offered: Name of a server -> what it offers.
        down: Name of a server that could not be asked -> why.
    """

    def __init__(self) -> None:
        self.offered: dict[str, Catalogue] = {}
        self.down: dict[str, NotReady] = {}

    async def ask(self, names: Iterable[str], ask: Ask) -> bool:
        """Ask some servers at once what they offer, and return whether anything is known now that was not.

        One that has said so is not asked again.
        """
        before = dict(self.offered)

        async def one(name: str) -> None:
            self.down.pop(name, None)
            try:
                self.offered[name] = await ask(name)
            except NotReady as error:
                self.down[name] = error

        await asyncio.gather(*(one(name) for name in names if name not in before))
        return self.offered != before

    def forget(self, servers: Mapping[str, Server], before: Mapping[str, Server]) -> bool:
        """Drop the answers of servers that are not what they were, and return whether there were any."""
        gone = {name for name in {*self.offered, *self.down} if servers.get(name) != before.get(name)}
        for name in gone:
            self.offered.pop(name, None)
            self.down.pop(name, None)
        return bool(gone)

    def problems(self, servers: Mapping[str, Server]) -> list[Problem]:
        """A warning for each server that could not be asked."""
        return [_problem(servers[name], error) for name, error in self.down.items() if name in servers]


def awaited(stock: Stock, registry: Registry, name: str) -> str | None:
    """The server that must be asked before a tool of this name can be called; None for none."""
    waiting = stock.waiting.get(name)
    if waiting is not None:
        card = registry.cards.get(name)
        return waiting.server if card is not None and card.mode == waiting.mode else None
    return None if name in registry else server_of(name, stock.unlisted)


def all_awaited(stock: Stock, registry: Registry) -> tuple[str, ...]:
    """The servers that must be asked before it is known which tools there are, and what they take."""
    named = (awaited(stock, registry, name) for name in stock.waiting)
    return tuple(sorted({*stock.unlisted, *(server for server in named if server is not None)}))


def _problem(server: Server, error: NotReady) -> Problem:
    source, _, line = server.place().rpartition(":")
    problem = Problem(code=error.code, message=error.message, hint=error.hint, severity="warning")
    return problem.at(source, int(line) if line.isdigit() else 1, 1)
