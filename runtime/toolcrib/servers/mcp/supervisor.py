"""Starts servers when they are first needed, once for all callers that share them, and restarts those that died.

A server that keeps dying is restarted later and later, and then left alone for a while.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping
from contextvars import Context
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from toolcrib.core.clock import RealClock, format_duration
from toolcrib.core.errors import DocumentError, NotReady, ToolcribError
from toolcrib.core.model import JSON, Outcome
from toolcrib.core.pointers import keys_of
from toolcrib.core.protocols import Clock
from toolcrib.core.server_config import Catalogue, LockVerdict, Server
from toolcrib.security.egress import EgressRefused
from toolcrib.security.secrets import MissingSecret, SecretResolver, variables_of
from toolcrib.security.trust import Untrusted
from toolcrib.servers.environment import LockJudge, NetworkEnvironment
from toolcrib.servers.mcp.failures import (
    ConnectionLoss,
    InvalidAnswer,
    ProtocolError,
    ServerUnavailable,
    clean_text,
)
from toolcrib.servers.mcp.server_requests import load_functions
from toolcrib.servers.mcp.transports import Link, StartFailure, open_link

if TYPE_CHECKING:
    from toolcrib.http.auth import TokenCache
    from toolcrib.servers.mcp.connection import ServerConnection

MISSING_EXTRA = "pip install 'toolcrib[mcp]'"
"""The way out where the SDK is not installed."""

_OF_THE_EXTRA = frozenset(("mcp", "mcp_types", "httpx2", "anyio", "pydantic"))
"""The packages of the extra that are imported here."""

_LAST_WORDS = 2000
"""Characters that are told of what a server wrote to stderr."""


def missing_extra() -> ServerUnavailable:
    """The error where the SDK is not installed."""
    message = "MCP servers need the package `mcp`, which is not installed"
    return ServerUnavailable(message, code="missing_extra", hint=MISSING_EXTRA, retryable=False)


def missing_secret(server: Server, error: MissingSecret) -> ServerUnavailable:
    """The error of a server for which something is not there to be looked up."""
    place = server.place(next(iter(keys_of(error.pointer)), ""))
    where = f" ({place})" if place else ""
    message = f"cannot start the server `{server.name}`: {error.message}{where}"
    return ServerUnavailable(message, code=error.code, hint=error.hint, retryable=False)


def check_lock(server: Server, verdict: LockVerdict) -> ServerUnavailable | None:
    """The error of a server that a lock refuses as a whole; None where it does not."""
    why = verdict.refused.get("*")
    if why is None:
        return None
    return ServerUnavailable(
        why,
        code="definition_changed",
        outcome=Outcome.DENIED,
        details={"server": server.name},
        retryable=False,
    )


def untrusted_server(error: Untrusted) -> ServerUnavailable:
    """The error of a server whose start nobody has agreed to."""
    details: dict[str, JSON] = {"workspace": error.request.workspace.root, "hash": error.request.hash}
    return ServerUnavailable(
        error.message,
        code=error.code,
        hint=error.hint,
        outcome=Outcome.DENIED,
        details=details,
        retryable=False,
    )


def describe_failure(server: Server, failure: Exception, link: Link | None) -> ServerUnavailable:
    """The error of a server that could not be started."""
    if _is_of_the_extra(failure):
        return missing_extra()
    if isinstance(failure, MissingSecret):
        return missing_secret(server, failure)
    refusal = failure if isinstance(failure, EgressRefused) else None if link is None else link.refusal
    if refusal is not None:
        message = f"the server `{server.name}`: {refusal.message}"
        return ServerUnavailable(
            message, code=refusal.code, hint=refusal.hint, outcome=Outcome.DENIED, retryable=False
        )
    if isinstance(failure, Untrusted):
        return untrusted_server(failure)
    if isinstance(failure, NotReady | DocumentError):
        return ServerUnavailable(failure.message, code=failure.code, hint=failure.hint, retryable=False)
    if isinstance(failure, StartFailure):
        return ServerUnavailable(failure.message, hint=failure.hint)
    what, hint = _what(server, failure)
    words = _last_words(link)
    return ServerUnavailable(f"cannot start the server `{server.name}`: it {what}{words}", hint=hint)


def unwrap_group(error: Exception) -> Exception:
    """The error that a group of one holds: task groups wrap up whatever ends them."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def is_expected_failure(failure: Exception) -> bool:
    """Whether a failure is one of those that a start may end with; any other one is a bug.

    The SDK raises RuntimeError where no version of the protocol is shared, and ValueError for what is no answer.
    """
    return isinstance(failure, _FORESEEN) or _is_of_the_extra(failure)


_FORESEEN = (
    ToolcribError,
    ConnectionLoss,
    ProtocolError,
    InvalidAnswer,
    EgressRefused,
    OSError,
    RuntimeError,
    ValueError,
)


def _is_of_the_extra(failure: Exception) -> bool:
    """Whether something of the extra is not there; what else can't be imported is a bug."""
    name = (failure.name or "") if isinstance(failure, ImportError) else ""
    return name.partition(".")[0] in _OF_THE_EXTRA


def _what(server: Server, failure: Exception) -> tuple[str, str]:
    """What it did instead, and the way out."""
    if isinstance(failure, TimeoutError):
        time = format_duration(server.start_timeout)
        return (
            f"did not answer within {time}",
            "raise `timeouts: {start: ...}` of the server if it needs longer",
        )
    if isinstance(failure, ConnectionLoss):
        trouble = failure.trouble
        return (
            (failure.why or "closed the connection", "")
            if trouble is None
            else (f"did not answer: {trouble.message}", trouble.hint)
        )
    if isinstance(failure, ProtocolError):
        return f"answered with the error {failure.number}: {clean_text(failure.message)}", ""
    if isinstance(failure, InvalidAnswer):
        return f"does not speak MCP: {failure.message}", ""
    if is_expected_failure(failure):
        return "speaks no supported version of MCP", "set `era` to choose the protocol"
    return f"hit a bug in toolcrib ({type(failure).__name__}); the log of `toolcrib` has the traceback", ""


def _last_words(link: Link | None) -> str:
    said = link.said().strip() if link is not None else ""
    if not said:
        return ""
    cut = said if len(said) <= _LAST_WORDS else "..." + said[-_LAST_WORDS:]
    return f"; its stderr ends with:\n{clean_text(cut)}"


def check_ready(server: Server, secrets: SecretResolver) -> None:
    """Nothing, where all is there that a server needs to be started.

    Raises:
        NotReady: The extra is missing; or a hook; or something that `${...}` names, all of it at once.
    """
    if find_spec("mcp") is None:
        raise missing_extra()
    load_functions(server)
    missing: dict[str, ServerUnavailable] = {}
    for key in _WITH_VARIABLES:
        written: Any = getattr(server, key)
        for pointer, variable in variables_of(_plain(written), f"/{key}"):
            try:
                secrets.look_up(variable, secret=False)
            except MissingSecret as error:
                down = missing_secret(server, error.at(pointer))
                missing.setdefault(down.message, down)
    if missing:
        message = "; ".join(missing)
        hints = "; ".join(dict.fromkeys(down.hint for down in missing.values() if down.hint))
        raise ServerUnavailable(message, code=next(iter(missing.values())).code, hint=hints, retryable=False)


_WITH_VARIABLES = ("command", "args", "env", "cwd", "url", "headers", "auth")


def _plain(value: Any) -> JSON:
    """A member of a server as JSON."""
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, tuple) else value


MOST: Final = 5
"""Starts within `WINDOW`."""

WINDOW: Final = 60.0
"""Seconds."""

FIRST: Final = 0.2
"""Seconds between the end of a server and its second start; doubles with each one that follows."""

LONGEST: Final = 10.0
"""Seconds, at most, between two starts."""

_NEARLY: Final = 0.001
"""Seconds that need not be waited for: sums of times are not exact, and clocks have a smallest step."""


class RestartBackoff:
    """The starts of one server within the last minute, on one clock."""

    __slots__ = ("_began", "_ended")

    def __init__(self) -> None:
        self._began: deque[float] = deque()
        self._ended = 0.0

    def began(self, now: float) -> None:
        """It is started."""
        self._began.append(now)

    def ended(self, now: float) -> None:
        """It could not be started, or died."""
        self._ended = now

    def forgiven(self) -> None:
        """Its end was wanted, or says nothing of it."""
        if self._began:
            self._began.pop()

    def resting(self, now: float) -> float:
        """Seconds until it is tried again at all; 0.0 where it may be."""
        self._forget(now)
        return self._began[0] + WINDOW - now if len(self._began) >= MOST else 0.0

    def wait(self, now: float) -> float:
        """Seconds to wait before it is started; 0.0 for none."""
        self._forget(now)
        if not self._began:
            return 0.0
        pause: float = min(LONGEST, FIRST * 2 ** (len(self._began) - 1))
        left = self._ended + pause - now
        return left if left > _NEARLY else 0.0

    def _forget(self, now: float) -> None:
        while self._began and self._began[0] <= now - WINDOW:
            self._began.popleft()


class RestartBackoffs:
    """The starts of one server, for each clock: what waits on virtual time does not wait for others."""

    def __init__(self) -> None:
        self._real = RestartBackoff()
        self._others: WeakKeyDictionary[Clock, RestartBackoff] = WeakKeyDictionary()

    def on(self, clock: Clock) -> RestartBackoff:
        """Those that count for a clock."""
        if isinstance(clock, RealClock):  # each session has one of its own, and all tell the same time
            return self._real
        return self._others.setdefault(clock, RestartBackoff())


_log = logging.getLogger("toolcrib")

Changed = Callable[[str, Catalogue], None]
"""Called in the event loop when the list of a server turned out different."""


class Supervisor:
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
        judge: LockJudge,
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
        self.connection: ServerConnection | None = None
        self._judge = judge
        self._changed = changed
        self._warned = warned
        self._starts = RestartBackoffs()
        self._clock: Clock | None = None
        self._starting: asyncio.Future[ServerConnection | ServerUnavailable] | None = None
        self._lives: set[_Life] = set()
        self._era: str = server.era
        self._listed: Catalogue | None = None
        self._why: ServerUnavailable | None = None

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

    async def started(self, clock: Clock) -> ServerConnection:
        """The connection; started by the first that asks, and awaited by all.

        Raises:
            ServerUnavailable: It can't be started now, or may not be.
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
        if isinstance(outcome, ServerUnavailable):
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
            ServerUnavailable: It has died so often that it is left alone.
        """
        starts, now = self._starts.on(clock), clock.monotonic()
        rest = starts.resting(now)
        if not rest:
            return starts.wait(now)
        seconds = round(rest, 3)
        last = f"; last failure: {self._why.message}" if self._why is not None else ""
        raise ServerUnavailable(
            f"the server `{self.server.name}` exited repeatedly and is not restarted for now; "
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
        self.say(ServerUnavailable(f"the server `{self.server.name}` was stopped before it was ready"))

    async def _lived(self, life: _Life) -> ServerUnavailable | None:
        """One connection, from its start to its end; why it could not be started, where that is so."""
        refused = check_lock(self.server, self._judge(self.server, None))
        if refused is not None:
            return refused
        failure = await life.lived(self._era)
        if failure is not None and life.broke_off and self._era == "auto":
            # Some servers end when the first message is no handshake; the next start need not find out again.
            self._era = "handshake"
            failure = await life.lived("handshake")
        if failure is not None:
            return describe_failure(self.server, failure, life.link)
        self._why = None if life.wanted else self._died(life.link)
        return None

    def _died(self, link: Link | None) -> ServerUnavailable:
        """A connection that was good is over, and nobody wanted that."""
        why = (link.ended if link is not None else "") or "ended"
        _log.info("the server `%s` %s", self.server.name, why)
        return ServerUnavailable(f"the server `{self.server.name}` {why}")

    def ready(self, connection: ServerConnection) -> None:
        """A connection is good."""
        self.connection = connection
        self._why = None
        self.say(connection)

    def judged(self, catalogue: Catalogue) -> LockVerdict:
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

    def say(self, outcome: ServerConnection | ServerUnavailable) -> None:
        """Let those know that wait; only the first word counts."""
        waiting, self._starting = self._starting, None
        if waiting is None:
            return
        if isinstance(outcome, ServerUnavailable):
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

    def __init__(self, supervisor: Supervisor) -> None:
        self.task: asyncio.Task[None] | None = None
        self.link: Link | None = None
        self.connection: ServerConnection | None = None
        self.broke_off = False
        self.wanted = False
        self._supervisor = supervisor
        self._making: ServerConnection | None = None
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
        supervisor, self._failure, self.broke_off = self._supervisor, None, False
        try:
            from toolcrib.servers.mcp.connection import ServerConnection  # noqa: PLC0415 -- needs the extra, and is slow
            from toolcrib.servers.mcp.server_requests import ServerRequestHooks  # noqa: PLC0415 -- as above

            self.link = supervisor.link_to(
                supervisor.server
            )  # asks for trust; hooks are code, which is imported after that
            hooks = ServerRequestHooks(supervisor.server)
            self._making = ServerConnection(
                supervisor.server, self.link, hooks, supervisor.judged, supervisor.listed
            )
            await self._making.run(self._ready, era)
        except Exception as error:  # noqa: BLE001 -- what lies below the protocol raises what it likes, in groups too
            if self.connection is None:
                return self._failed(error)
            _log.debug("the server `%s` ended with an error", supervisor.server.name, exc_info=error)
        return self._failure

    def _failed(self, error: Exception) -> Exception:
        """Why it was never ready: what was told of it, or else the error that ended it."""
        if self._failure is not None:
            return self._failure
        found = unwrap_group(error)
        if not is_expected_failure(found):
            _log.error("a bug in starting the server `%s`", self._supervisor.server.name, exc_info=found)
        return found

    def _ready(self, failure: Exception | None) -> None:
        link, making = self.link, self._making
        assert link is not None  # noqa: S101 -- it was entered
        assert making is not None  # noqa: S101 -- it says so
        self._failure = failure
        if failure is None:
            self.connection = making
            self._supervisor.ready(making)
        elif link.ended:
            self.broke_off = self._supervisor.server.transport == "stdio"
        else:  # it still runs: nobody needs to wait until it has ended
            self._supervisor.say(describe_failure(self._supervisor.server, failure, link))


_ORDER = ("up", "starting", "resting", "down", "idle")
"""States; of several that one server has in several places, the first of these is told."""


class ServerPool:
    """The servers of one network environment, as this process uses them.

    Each runs once for each event loop, and for each session where the server says so.

    Args:
        world: What may be reached.
        tokens: Gives the tokens that servers over HTTP were given; they outlive the environment.
        changed: Told what a server lists first, and whenever it lists other tools than before.
    """

    def __init__(self, world: NetworkEnvironment, tokens: Callable[[], TokenCache], changed: Changed) -> None:
        self.world = world
        self._tokens = tokens
        self._changed = changed
        self._supervisors: dict[tuple[str, int, str], Supervisor] = {}
        self._warned: set[str] = set()
        self._retired = False

    async def get(self, server: str, session_id: str, clock: Clock) -> ServerConnection:
        """The connection to a server, which is started if need be.

        Args:
            server: Its name; it is one of the environment's.
            session_id: Of the session that calls.
            clock: Of the session; what waits between two starts goes by it.

        Raises:
            ServerUnavailable: It can't be started now, or may not be.
        """
        known = self.world.servers[server]
        loop = asyncio.get_running_loop()
        key = (server, id(loop), session_id if known.scope == "session" else "")
        supervisor = self._supervisors.get(key)
        if supervisor is None:
            supervisor = self._made(key, loop)
        connection = supervisor.connection
        if connection is None or not connection.alive:
            connection = await supervisor.started(clock)
            if self._retired:
                connection.leave()
        return connection

    def _made(self, key: tuple[str, int, str], loop: asyncio.AbstractEventLoop) -> Supervisor:
        for other, supervisor in list(self._supervisors.items()):
            if supervisor.loop.is_closed():  # what ran in it has ended with it
                del self._supervisors[other]
        world, tokens = self.world, self._tokens

        def to(server: Server) -> Link:
            return open_link(server, world, None if server.transport == "stdio" else tokens())

        made = Supervisor(
            world.servers[key[0]], world.judge, to, loop=loop, changed=self._changed, warned=self._warned
        )
        return self._supervisors.setdefault(key, made)

    def states(self) -> Mapping[str, str]:
        """Name of a server -> `idle`, `starting`, `up`, `down` or `resting`. Nothing is started to find out."""
        found: dict[str, str] = dict.fromkeys(self.world.servers, "idle")
        for supervisor in list(self._supervisors.values()):
            name = supervisor.server.name
            found[name] = min(found[name], supervisor.state, key=_ORDER.index)
        return found

    @property
    def empty(self) -> bool:
        """Whether there is nothing to close."""
        return not self._supervisors

    async def release(self, session_id: str) -> None:
        """End the servers that only this session had."""
        await self._close([key for key in self._supervisors if key[2] and key[2] == session_id])

    def retire(self) -> None:
        """Another environment is in force: end each server once its calls are over."""
        self._retired = True
        for supervisor in list(self._supervisors.values()):
            if not supervisor.loop.is_closed():
                supervisor.loop.call_soon_threadsafe(supervisor.leave)

    async def aclose(self) -> None:
        """End every server."""
        await self._close(list(self._supervisors))

    async def _close(self, keys: list[tuple[str, int, str]]) -> None:
        supervisors = [self._supervisors.pop(key) for key in keys]
        await asyncio.gather(*(_closed(supervisor) for supervisor in supervisors))


async def _closed(supervisor: Supervisor) -> None:
    """End a server where it lives, which may be the loop of another thread."""
    if supervisor.loop is asyncio.get_running_loop():
        await supervisor.end()
    elif supervisor.loop.is_running():
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(supervisor.end(), supervisor.loop))
