"""What the MCP servers of a runtime are asked, what they answer, and what of it is in force."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Literal, Protocol

from toolcrib.core.errors import NotReady, Problem, did_you_mean
from toolcrib.core.model import Outcome
from toolcrib.core.pointers import file_and_line
from toolcrib.core.server_config import Catalogue, Server
from toolcrib.engine.server_tools import server_of
from toolcrib.servers.lock import Lock, read_lock

if TYPE_CHECKING:
    from toolcrib.core.clock import CrossLoopLock
    from toolcrib.executors import Executors
    from toolcrib.loading.snapshot import LoadedProject
    from toolcrib.registry.registry import Registry
    from toolcrib.servers.environment import LockJudge


class Owner(Protocol):
    """What a discovery asks of the runtime whose servers it knows."""

    closed: bool

    @property
    def registry(self) -> Registry:
        """The tools in force."""
        ...

    @property
    def stock(self) -> LoadedProject:
        """What was read; the servers among it."""
        ...

    @property
    def executors(self) -> Executors:
        """The modes."""
        ...

    @property
    def lock_policy(self) -> Literal["warn", "block"]:
        """What becomes of tools that are not what was locked."""
        ...

    @property
    def changing(self) -> CrossLoopLock:
        """Held by whoever puts other tools in force."""
        ...

    def catalogue(self, server: str) -> Awaitable[Catalogue]:
        """Start a server, if it does not run, and return what it offers; raises NotReady."""
        ...

    async def read_again(self) -> object:
        """Put in force what is known now."""
        ...


class Discovery:
    """The answers of the servers of one runtime, as long as they hold good.

    Attributes:
        offered: Name of a server -> what it offers.
        down: Name of a server that could not be asked -> why.
    """

    def __init__(self, owner: Owner) -> None:
        self.offered: dict[str, Catalogue] = {}
        self.down: dict[str, NotReady] = {}
        self._owner = owner
        self._taking: set[asyncio.Task[None]] = set()

    async def ask(self, names: Iterable[str]) -> tuple[Problem, ...]:
        """Ask some servers at once, put in force what they offer, and return an error for each that can't be asked.

        One that has answered is not asked again, nor one of which what is locked stays in force in any case.
        """
        async with self._owner.changing:
            wanted = [name for name in names if name not in self.offered and not self._is_frozen(name)]
            before = {name: self._known(name) for name in wanted}
            await asyncio.gather(*map(self._ask, wanted))
            if any(self._known(name) != said for name, said in before.items()):
                await self._owner.read_again()
            return self.problems()

    async def _ask(self, name: str) -> None:
        self.down.pop(name, None)
        try:
            self.offered[name] = await self._owner.catalogue(name)
        except NotReady as error:
            self.down[name] = error

    def hear(self, server: str, catalogue: Catalogue) -> None:
        """Hear what a server offers; where something else of it is in force, that is put in force soon."""
        known = self._known(server)
        if server not in self._owner.stock.servers or known is None or catalogue.says() == known:
            return  # of what nobody took anything from, nothing is to be changed
        task = asyncio.get_running_loop().create_task(self._take(server, catalogue))
        self._taking.add(task)
        task.add_done_callback(self._taking.discard)

    async def _take(self, server: str, catalogue: Catalogue) -> None:
        async with self._owner.changing:
            if self._owner.closed or catalogue.says() == self._known(server) or self._is_frozen(server):
                return
            self.offered[server] = catalogue
            await self._owner.read_again()

    def _known(self, server: str) -> Mapping[str, Any] | None:
        """The tools of a server as they are in force; None where nothing is known of it."""
        known = self.offered.get(server) or self._locked().get(server)
        return None if known is None else known.says()

    def _is_frozen(self, server: str) -> bool:
        """Whether what is locked stays in force, whatever the server says."""
        return self._owner.lock_policy == "block" and server in self._locked()

    def _locked(self) -> Mapping[str, Catalogue]:
        """What the servers offered when they were locked, of those that are still the same."""
        return self.lock().known(self._owner.stock.servers)

    def awaited(self, name: str) -> str | None:
        """The server that must be asked before a tool of this name can be called; None for none."""
        stock, registry = self._owner.stock, self._owner.registry
        return awaited(stock, registry, name) or self._doubted(name)

    def _doubted(self, name: str) -> str | None:
        """The server of a tool that is known from a lock alone, where that one only warns.

        What is locked may be out of date, and then it is not to judge the arguments of calls.
        """
        stock, registry = self._owner.stock, self._owner.registry
        left = [name for name in stock.locked if name not in self.offered and name not in self.down]
        if not left or self._owner.lock_policy == "block":
            return None
        tool = registry.get(name)
        if tool is None or tool.mode is None:
            return server_of(name, left)
        remote = self._owner.executors.remote_of(tool.mode, name, tool.bindings.get(tool.mode))
        return remote.server if remote is not None and remote.server in left else None

    def lock(self) -> Lock:
        """What is locked, as its file says it now."""
        file = self._owner.stock.lock_file
        return read_lock(file)[0] if file else Lock()

    def judge(self) -> LockJudge:
        """What the lock says of the servers, as the profile wants it answered."""
        return self.lock().judge(self._owner.lock_policy)

    def forget(self, before: Mapping[str, Server]) -> bool:
        """Drop the answers of servers that are not what they were before, and return whether there were any."""
        now = self._owner.stock.servers
        gone = {name for name in {*self.offered, *self.down} if now.get(name) != before.get(name)}
        for name in gone:
            self.offered.pop(name, None)
            self.down.pop(name, None)
        return bool(gone)

    def problems(self) -> tuple[Problem, ...]:
        """An error for each server that could not be asked."""
        servers = self._owner.stock.servers
        return tuple(_problem(servers[name], error) for name, error in self.down.items() if name in servers)

    def why_unheard(self, name: str, server: str) -> tuple[str, str | None, Outcome]:
        """Why a tool can't be called of which only its server knows what it takes, with what code and outcome."""
        down = self.down.get(server)
        if down is None:
            why = f"the server `{server}` of `{name}` was not asked yet what it offers"
            return why, None, Outcome.UNAVAILABLE
        return str(down), down.code, Outcome.DENIED if down.denied else Outcome.UNAVAILABLE

    def cancel(self) -> None:
        """Put nothing more in force."""
        for task in self._taking:
            task.cancel()


def awaited(stock: LoadedProject, registry: Registry, name: str) -> str | None:
    """The server that must be asked before a tool of this name can be called; None for none."""
    waiting = stock.waiting.get(name)
    if waiting is not None:
        card = registry.cards.get(name)
        return waiting.server if card is not None and card.mode == waiting.mode else None
    return None if name in registry else server_of(name, stock.unlisted)


def all_awaited(stock: LoadedProject, registry: Registry) -> tuple[str, ...]:
    """The servers that must be asked before it is known which tools there are, and what they take."""
    named = (awaited(stock, registry, name) for name in stock.waiting)
    return tuple(sorted({*stock.unlisted, *(server for server in named if server is not None)}))


def unknown_server(name: str, servers: Mapping[str, Server]) -> tuple[str, str]:
    """That there is no such server, and what may be meant."""
    known = ", ".join(f"`{each}`" for each in servers) or "none"
    return f"there is no server `{name}`", did_you_mean(name, servers) or f"the servers are: {known}"


def _problem(server: Server, error: NotReady) -> Problem:
    source, line = file_and_line(server.place())
    problem = Problem(code=error.code, message=error.message, hint=error.hint)
    return problem.at(source, line or 1, 1)
