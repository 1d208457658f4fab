"""Where the connection to one server lies: it is started once for all that wait, and again when it has died."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextvars import Context
from typing import TYPE_CHECKING

from toolcrib.core.clock import format_duration
from toolcrib.core.protocols import Clock
from toolcrib.core.server_config import Catalogue, Server, Verdict
from toolcrib.servers.environment import Judge
from toolcrib.servers.mcp.failures import Down
from toolcrib.servers.mcp.restart_backoff import StartsByClock
from toolcrib.servers.mcp.startup_errors import down_of, is_foreseen, locked, of_group
from toolcrib.servers.mcp.transports import Link

if TYPE_CHECKING:
    from toolcrib.servers.mcp.connection import Connection

_log = logging.getLogger("toolcrib")

Changed = Callable[[str, Catalogue], None]
"""Called in the event loop when the list of a server turned out different."""


class Berth:
    """Holds the connection to one server in one event loop, for whoever shares it.

    Attributes:
        server: The server.
        link_to: Makes the way to it.
        loop: Where it lives.
        connection: The connection that is good, as far as is known; None for none.
    """

    def __init__(
        self,
        server: Server,
        judge: Judge,
        link_to: Callable[[Server], Link],
        *,
        loop: asyncio.AbstractEventLoop,
        changed: Changed,
        warned: set[str],
    ) -> None:
        """Hold no connection yet.

        Args:
            server: The server.
            judge: Says what a lock has against it.
            link_to: Makes the way to it.
            loop: Where it lives.
            changed: Told what it lists first, and whenever it lists other tools than before.
            warned: The warnings that were told already.
        """
        self.server = server
        self.link_to = link_to
        self.loop = loop
        self.connection: Connection | None = None
        self._judge = judge
        self._changed = changed
        self._warned = warned
        self._starts = StartsByClock()
        self._clock: Clock | None = None
        self._starting: asyncio.Future[Connection | Down] | None = None
        self._lives: set[_Life] = set()
        self._era: str = server.era
        self._listed: Catalogue | None = None
        self._why: Down | None = None

    @property
    def state(self) -> str:
        """`idle`, `starting`, `up`, `down` or `resting`."""
        if self._starting is not None:
            return "starting"
        if self.connection is not None:
            return "up" if self.connection.alive else "down"
        if self._clock is not None and self._starts.on(self._clock).resting(self._clock.monotonic()):
            return "resting"
        return "idle" if self._why is None else "down"

    async def started(self, clock: Clock) -> Connection:
        """The connection; started by the first that asks, and awaited by all.

        Raises:
            Down: It can't be started now, or may not be.
        """
        while (starting := self._starting) is None:
            if self.connection is not None and self.connection.alive:
                return self.connection
            await self._cleared(clock)
            if self._starting is None and self.connection is None:  # else somebody else was faster
                wait = self._wait(clock)
                if wait:
                    await clock.sleep(wait)
                else:
                    self._start(clock)
        with clock.outside():
            outcome = await asyncio.shield(starting)
        if isinstance(outcome, Down):
            raise outcome.again()
        return outcome

    def leave(self) -> None:
        """End it once no call is under way."""
        for life in self._lives:
            life.leave()

    async def end(self) -> None:
        """End it now; what is under way ends with it."""
        tasks = [life.task for life in self._lives if life.task is not None]
        for life in self._lives:
            life.end()
        if tasks:
            await asyncio.wait(tasks)

    async def _cleared(self, clock: Clock) -> None:
        """Leave a connection behind that is over; what belongs to it has ended before there is another.

        Over HTTP calls may still be under way: they are not waited for.
        """
        if self.connection is not None:
            self._starts.on(clock).ended(clock.monotonic())
            self.connection.leave()
            self.connection = None
        tasks = [life.task for life in self._lives if life.task is not None and not life.busy]
        if tasks:
            with clock.outside():
                await asyncio.wait(tasks)

    def _wait(self, clock: Clock) -> float:
        """Seconds until it may be started again.

        Raises:
            Down: It has died so often that it is left alone.
        """
        starts, now = self._starts.on(clock), clock.monotonic()
        rest = starts.resting(now)
        if not rest:
            return starts.wait(now)
        seconds = round(rest, 3)
        last = f"; the last time, {self._why.message}" if self._why is not None else ""
        raise Down(
            f"the server `{self.server.name}` ended again and again, and is left alone; "
            f"retry after {format_duration(seconds)}{last}",
            details={"retry_after": seconds},
        )

    def _start(self, clock: Clock) -> None:
        self._clock = clock
        self._starts.on(clock).began(clock.monotonic())
        self._starting = asyncio.get_running_loop().create_future()
        life = _Life(self)
        # An empty context: what belongs to the call that came first must not belong to the server.
        name = f"mcp {self.server.name}"
        life.task = asyncio.create_task(self._own(life), name=name, context=Context())
        life.task.add_done_callback(lambda _task: self._over(life, clock))
        self._lives.add(life)

    async def _own(self, life: _Life) -> None:
        """Start, hold and end a connection, all in one task: scopes of the SDK end where they began."""
        down = await self._lived(life)
        if down is not None:
            self.say(down)

    def _over(self, life: _Life, clock: Clock) -> None:
        """A life has ended, perhaps before it began."""
        self._lives.discard(life)
        starts = self._starts.on(clock)
        starts.ended(clock.monotonic())
        if life.wanted or (self._why is not None and not self._why.retryable):
            starts.forgiven()
        if self.connection is life.connection:
            self.connection = None
        self.say(Down(f"the server `{self.server.name}` was ended before it was ready"))

    async def _lived(self, life: _Life) -> Down | None:
        """One connection, from its start to its end; why it could not be started, where that is so."""
        refused = locked(self.server, self._judge(self.server, None))
        if refused is not None:
            return refused
        failure = await life.lived(self._era)
        if failure is not None and life.broke_off and self._era == "auto":
            # Some servers end when the first message is no handshake; the next start need not find out again.
            self._era = "handshake"
            failure = await life.lived("handshake")
        if failure is not None:
            return down_of(self.server, failure, life.link)
        self._why = None if life.wanted else self._died(life.link)
        return None

    def _died(self, link: Link | None) -> Down:
        """A connection that was good is over, and nobody wanted that."""
        why = (link.ended if link is not None else "") or "ended"
        _log.info("the server `%s` %s", self.server.name, why)
        return Down(f"the server `{self.server.name}` {why}")

    def ready(self, connection: Connection) -> None:
        """A connection is good."""
        self.connection = connection
        self._why = None
        self.say(connection)

    def judged(self, catalogue: Catalogue) -> Verdict:
        """What a lock says of a list; warnings are told once."""
        verdict = self._judge(self.server, catalogue)
        for warning in verdict.warnings:
            if warning not in self._warned:
                self._warned.add(warning)
                _log.warning("%s", warning)
        return verdict

    def listed(self, catalogue: Catalogue) -> None:
        """A list was put in force."""
        before, self._listed = self._listed, catalogue
        if before is None or before._replace(info=catalogue.info) != catalogue:
            self._changed(self.server.name, catalogue)

    def say(self, outcome: Connection | Down) -> None:
        """Let those know that wait; only the first word counts."""
        waiting, self._starting = self._starting, None
        if waiting is None:
            return
        if isinstance(outcome, Down):
            self._why = outcome
        if not waiting.done():
            waiting.set_result(outcome)


class _Life:
    """What one start comes to, until its end.

    Attributes:
        task: Where it takes place; None before it begins.
        link: The way to the server; None where there is none.
        connection: What it holds; None before it is ready.
        broke_off: Whether the server ended before it was ready.
        wanted: Whether it was told to end.
    """

    def __init__(self, berth: Berth) -> None:
        self.task: asyncio.Task[None] | None = None
        self.link: Link | None = None
        self.connection: Connection | None = None
        self.broke_off = False
        self.wanted = False
        self._berth = berth
        self._making: Connection | None = None
        self._failure: Exception | None = None

    @property
    def busy(self) -> bool:
        """Whether calls are under way."""
        return self.connection is not None and self.connection.calls > 0

    def leave(self) -> None:
        """End once no call is under way; what has just begun is wanted by somebody."""
        self.wanted = True
        if self.connection is not None:
            self.connection.leave()

    def end(self) -> None:
        """End now."""
        self.wanted = True
        if self.connection is not None:
            self.connection.stop()
        elif self.task is not None:
            self.task.cancel()

    async def lived(self, era: str) -> Exception | None:
        """Live; why it did not come to that, where that is so."""
        berth, self._failure, self.broke_off = self._berth, None, False
        try:
            from toolcrib.servers.mcp.connection import Connection  # noqa: PLC0415 -- needs the extra, and is slow
            from toolcrib.servers.mcp.server_requests import Hooks  # noqa: PLC0415 -- as above

            self.link = berth.link_to(
                berth.server
            )  # asks for trust; hooks are code, which is imported after that
            hooks = Hooks(berth.server)
            self._making = Connection(berth.server, self.link, hooks, berth.judged, berth.listed)
            await self._making.run(self._ready, era)
        except Exception as error:  # noqa: BLE001 -- what lies below the protocol raises what it likes, in groups too
            if self.connection is None:
                return self._failed(error)
            _log.debug("the server `%s` ended with an error", berth.server.name, exc_info=error)
        return self._failure

    def _failed(self, error: Exception) -> Exception:
        """Why it was never ready: what was told of it, or else the error that ended it."""
        if self._failure is not None:
            return self._failure
        found = of_group(error)
        if not is_foreseen(found):
            _log.error("a bug in starting the server `%s`", self._berth.server.name, exc_info=found)
        return found

    def _ready(self, failure: Exception | None) -> None:
        link, making = self.link, self._making
        assert link is not None  # noqa: S101 -- it was entered
        assert making is not None  # noqa: S101 -- it says so
        self._failure = failure
        if failure is None:
            self.connection = making
            self._berth.ready(making)
        elif link.ended:
            self.broke_off = self._berth.server.transport == "stdio"
        else:  # it still runs: nobody needs to wait until it has ended
            self._berth.say(down_of(self._berth.server, failure, link))
