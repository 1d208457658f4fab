"""Start servers on first use, share them between callers, and restart those that exit.

Restarts are delayed by an exponential backoff, and paused for a server that keeps exiting.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context
from importlib.util import find_spec
from typing import TYPE_CHECKING, Final
from weakref import WeakKeyDictionary

from toolcrib.core.clock import RealClock, format_duration
from toolcrib.core.dependencies import UNSUPPORTED_VERSION, missing_import
from toolcrib.core.errors import DocumentError, NotReady, ToolcribError
from toolcrib.core.model import JSON, Outcome
from toolcrib.core.pointers import keys_of
from toolcrib.core.protocols import Clock
from toolcrib.core.server_config import Catalogue, LockVerdict, Server
from toolcrib.security.egress import EgressRefused
from toolcrib.security.secrets import MissingSecret, SecretResolver, missing_variables
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
"""The hint if the SDK is not installed."""

_OF_THE_EXTRA = frozenset(("mcp", "mcp_types", "httpx2", "anyio", "pydantic"))
"""The packages of the extra `mcp` that toolcrib imports."""

_LAST_WORDS = 2000
"""Characters of a server's stderr that a message quotes."""


def missing_extra() -> ServerUnavailable:
    """The error if the SDK is not installed."""
    message = "MCP servers need the package `mcp`, which is not installed"
    return ServerUnavailable(message, code="missing_extra", hint=MISSING_EXTRA, retryable=False)


def _not_importable(error: ImportError) -> ServerUnavailable:
    lack = missing_import(error)
    if lack is None:
        return missing_extra()
    message = f"MCP servers cannot be used: {lack.message}"
    return ServerUnavailable(message, code=UNSUPPORTED_VERSION, hint=lack.hint, retryable=False)


def missing_secrets(server: Server, errors: Sequence[MissingSecret]) -> ServerUnavailable:
    """The error of a server for all of its missing variables."""
    told: dict[str, None] = {}
    for error in errors:
        place, message = server.place(next(iter(keys_of(error.pointer)), "")), error.message
        where = f" ({place})" if place else ""
        told[f"cannot start the server `{server.name}`: {message}{where}"] = None
    hints = "; ".join(dict.fromkeys(error.hint for error in errors if error.hint))
    return ServerUnavailable("; ".join(told), code=errors[0].code, hint=hints, retryable=False)


def check_lock(server: Server, verdict: LockVerdict) -> ServerUnavailable | None:
    """The error of a server that the lock refuses as a whole; None if it does not."""
    why = verdict.refused.get("*")
    if why is None:
        return None
    return ServerUnavailable(
        why,
        code=verdict.code,
        outcome=Outcome.DENIED,
        details={"server": server.name},
        retryable=False,
    )


def untrusted_server(error: Untrusted) -> ServerUnavailable:
    """The error of a server that is not trusted yet."""
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
    if isinstance(failure, ImportError) and _is_of_the_extra(failure):
        return _not_importable(failure)
    if isinstance(failure, MissingSecret):
        return missing_secrets(server, [failure])
    # Over HTTP the link reports a refusal as a lost connection and keeps the original.
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
    """The single error in a group, if it has just one: task groups wrap even a single exception."""
    while isinstance(error, ExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def is_expected_failure(failure: Exception) -> bool:
    """Whether a server may cause this failure at its start; any other failure is a bug."""
    # The SDK raises RuntimeError without a common protocol version, and ValueError for an invalid response.
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
    """Whether a package of the extra is missing. Any other failed import is a bug."""
    name = (failure.name or "") if isinstance(failure, ImportError) else ""
    return name.partition(".")[0] in _OF_THE_EXTRA


def _what(server: Server, failure: Exception) -> tuple[str, str]:
    """What the server did instead of starting, and a hint."""
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
    """Check that the extra, the hooks and the variables of a server are available, without starting it.

    Raises:
        NotReady: The extra, a hook or variables are missing. One error reports all missing variables.
    """
    if find_spec("mcp") is None:
        raise missing_extra()
    load_functions(server)
    missing = missing_variables(server.texts(), "", secrets, reads=True, known=server.known_variables())
    if missing:
        raise missing_secrets(server, missing)


MOST: Final = 5
"""Starts within `WINDOW`."""

WINDOW: Final = 60.0
"""Seconds."""

FIRST: Final = 0.2
"""Seconds between the end of a server and its second start; doubles with each further start."""

LONGEST: Final = 10.0
"""Maximum delay between two starts, in seconds."""

_NEARLY: Final = 0.001
"""Shorter waits, in seconds, are skipped: float sums are inexact, and clocks have a limited resolution."""


class RestartBackoff:
    """The restart backoff of one server on one clock: its starts within the last minute."""

    __slots__ = ("_began", "_ended")

    def __init__(self) -> None:
        self._began: deque[float] = deque()
        self._ended = 0.0

    def began(self, now: float) -> None:
        """Record a start."""
        self._began.append(now)

    def ended(self, now: float) -> None:
        """Record that the server exited or failed to start."""
        self._ended = now

    def forgiven(self) -> None:
        """Discard the last start: its end was requested, or has a cause that a restart does not change."""
        if self._began:
            self._began.pop()

    def resting(self, now: float) -> float:
        """Seconds until the pause after too many starts ends; 0.0 outside of a pause."""
        self._forget(now)
        return self._began[0] + WINDOW - now if len(self._began) >= MOST else 0.0

    def wait(self, now: float) -> float:
        """Seconds to wait before the next start; 0.0 for none."""
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
    """The restart backoffs of one server, one for each clock."""

    def __init__(self) -> None:
        self._real = RestartBackoff()
        self._others: WeakKeyDictionary[Clock, RestartBackoff] = WeakKeyDictionary()

    def on(self, clock: Clock) -> RestartBackoff:
        """Those that count for a clock."""
        if isinstance(clock, RealClock):  # each session has its own instance, and all show the same time
            return self._real
        return self._others.setdefault(clock, RestartBackoff())


_log = logging.getLogger("toolcrib")

Changed = Callable[[str, Catalogue], None]
"""Called in the event loop with the first tool list of a server, and with each different one."""


class Supervisor:
    """Owns the connection to one server in one event loop, for all callers that share it.

    Attributes:
        server: The server.
        link_to: Opens a link to it.
        loop: The event loop of the connection.
        connection: The current connection; None if there is none. It may have broken since.
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
        """Create a supervisor without a connection.

        Args:
            server: The server.
            judge: Checks it against the lock.
            link_to: Opens a link to it.
            loop: The event loop of the connection.
            changed: Called with its first tool list, and with each different one.
            warned: The warnings that were logged already.
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
        """The connection. The first caller starts it, and all callers wait for it.

        Raises:
            ServerUnavailable: The server cannot be started now, or is not allowed to.
        """
        while (starting := self._starting) is None:
            if self.connection is not None and self.connection.alive:
                return self.connection
            await self._cleared(clock)
            # Another caller may have started the server during the await above.
            if self._starting is None and self.connection is None:
                wait = self._wait(clock)
                if wait:
                    await clock.sleep(wait)
                else:
                    self._start(clock)
        # Without the shield, one cancelled call would cancel the start for all callers.
        with clock.outside():
            outcome = await asyncio.shield(starting)
        # A new instance for each caller: raising a shared one would grow its traceback.
        if isinstance(outcome, ServerUnavailable):
            raise outcome.again()
        return outcome

    def leave(self) -> None:
        """End the server after the calls in progress."""
        for life in self._lives:
            life.leave()

    async def end(self) -> None:
        """End the server immediately, with the calls in progress."""
        tasks = [life.task for life in self._lives if life.task is not None]
        for life in self._lives:
            life.end()
        if tasks:
            await asyncio.wait(tasks)

    async def _cleared(self, clock: Clock) -> None:
        """Discard a broken connection, and wait until its process and tasks have ended."""
        # Two processes of one server could compete for a port or a file. A life with calls in progress, which only
        # HTTP has, is not awaited: one slow call would block all new ones.
        if self.connection is not None:
            self._starts.on(clock).ended(clock.monotonic())
            self.connection.leave()
            self.connection = None
        tasks = [life.task for life in self._lives if life.task is not None and not life.busy]
        if tasks:
            with clock.outside():
                await asyncio.wait(tasks)

    def _wait(self, clock: Clock) -> float:
        """Seconds until the next start.

        Raises:
            ServerUnavailable: The server exited too often, and restarts are paused.
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
        # An empty context: the context variables of the first call, such as its trace, must not apply to later calls.
        name = f"mcp {self.server.name}"
        life.task = asyncio.create_task(self._own(life), name=name, context=Context())
        life.task.add_done_callback(lambda _task: self._over(life, clock))
        self._lives.add(life)

    async def _own(self, life: _Life) -> None:
        # One task for the whole life: anyio requires a cancel scope to be left in the task that entered it.
        down = await self._lived(life)
        if down is not None:
            self.say(down)

    def _over(self, life: _Life, clock: Clock) -> None:
        # A done callback also runs for a task that was cancelled before its first step.
        self._lives.discard(life)
        starts = self._starts.on(clock)
        starts.ended(clock.monotonic())
        if life.wanted or (self._why is not None and not self._why.retryable):
            starts.forgiven()
        if self.connection is life.connection:
            self.connection = None
        self.say(ServerUnavailable(f"the server `{self.server.name}` was stopped before it was ready"))

    async def _lived(self, life: _Life) -> ServerUnavailable | None:
        """Run one connection from start to end; the error if it did not start."""
        # The lock is checked first: a changed command must not run even once.
        refused = check_lock(self.server, self.judged(None))
        if refused is not None:
            return refused
        failure = await life.lived(self._era)
        asks = self.server.elicitation or self.server.sampling  # the handshake was its first message already
        if failure is not None and life.broke_off and self._era == "auto" and not asks:
            # Some servers exit if the first message is not a handshake. Remember it for the next start.
            self._era = "handshake"
            failure = await life.lived("handshake")
        if failure is not None:
            return describe_failure(self.server, failure, life.link)
        self._why = None if life.wanted else self._died(life.link)
        return None

    def _died(self, link: Link | None) -> ServerUnavailable:
        """Log the unexpected end of a working connection, and return its error."""
        why = (link.ended if link is not None else "") or "ended"
        _log.info("the server `%s` %s", self.server.name, why)
        return ServerUnavailable(f"the server `{self.server.name}` {why}")

    def ready(self, connection: ServerConnection) -> None:
        """Publish a working connection."""
        self.connection = connection
        self._why = None
        self.say(connection)

    def judged(self, catalogue: Catalogue | None) -> LockVerdict:
        """The lock's verdict on a tool list, or before the start on the endpoint. Each warning is logged once."""
        verdict = self._judge(self.server, catalogue)
        for warning in verdict.warnings:
            if warning not in self._warned:
                self._warned.add(warning)
                _log.warning("%s", warning)
        return verdict

    def listed(self, catalogue: Catalogue) -> None:
        """Report a tool list, if it differs from the last one."""
        before, self._listed = self._listed, catalogue
        if before is None or before._replace(info=catalogue.info) != catalogue:
            self._changed(self.server.name, catalogue)

    def say(self, outcome: ServerConnection | ServerUnavailable) -> None:
        """Pass the outcome of a start to the waiting callers. Later outcomes of the same start are ignored."""
        waiting, self._starting = self._starting, None
        if waiting is None:
            return
        if isinstance(outcome, ServerUnavailable):
            self._why = outcome
        if not waiting.done():
            waiting.set_result(outcome)


class _Life:
    """One run of a server, from its start to its end.

    Attributes:
        task: The task of the run; None before it begins.
        link: The link to the server; None before it is opened.
        connection: The connection; None before it is ready.
        broke_off: Whether the server exited before it was ready.
        wanted: Whether the end was requested.
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
        """Whether calls are in progress."""
        return self.connection is not None and self.connection.calls > 0

    def leave(self) -> None:
        """End after the calls in progress."""
        # A run that is not ready yet continues: its callers still wait for it.
        self.wanted = True
        if self.connection is not None:
            self.connection.leave()

    def end(self) -> None:
        """End immediately."""
        self.wanted = True
        if self.connection is not None:
            self.connection.stop()
        elif self.task is not None:
            self.task.cancel()

    async def lived(self, era: str) -> Exception | None:
        """Run the connection; the error if it never became ready."""
        supervisor, self._failure, self.broke_off = self._supervisor, None, False
        try:
            from toolcrib.servers.mcp.connection import ServerConnection, check_sdk  # noqa: PLC0415 -- needs the extra, slow to import
            from toolcrib.servers.mcp.server_requests import ServerRequestHooks  # noqa: PLC0415 -- as above

            check_sdk()
            # `link_to` checks trust. Hooks import project code, so they must come after it.
            self.link = supervisor.link_to(supervisor.server)
            hooks = ServerRequestHooks(supervisor.server)
            self._making = ServerConnection(
                supervisor.server, self.link, hooks, supervisor.judged, supervisor.listed
            )
            await self._making.run(self._ready, era)
        except Exception as error:  # noqa: BLE001 -- the SDK and transports raise arbitrary exceptions and groups
            if self.connection is None:
                return self._failed(error)
            _log.debug("the server `%s` ended with an error", supervisor.server.name, exc_info=error)
        return self._failure

    def _failed(self, error: Exception) -> Exception:
        # Closing a failed connection may raise another error; the first one is the cause.
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
        else:  # the process still runs: report the failure before the up to 5 s that ending it takes
            self._supervisor.say(describe_failure(self._supervisor.server, failure, link))


_ORDER = ("up", "starting", "resting", "down", "idle")
"""States by precedence, for a server with several connections."""


class ServerPool:
    """The running servers of one network environment in this process.

    Each server runs once per event loop, or once per session if its scope is `session`.

    Args:
        world: The network environment.
        tokens: Returns the token cache for HTTP servers, which outlives the environment.
        changed: Called with the first tool list of a server, and with each different one.
    """

    def __init__(self, world: NetworkEnvironment, tokens: Callable[[], TokenCache], changed: Changed) -> None:
        self.world = world
        self._tokens = tokens
        self._changed = changed
        self._supervisors: dict[tuple[str, int, str], Supervisor] = {}
        self._warned: set[str] = set()
        self._retired = False

    async def get(self, server: str, session_id: str, clock: Clock) -> ServerConnection:
        """The connection to a server, started if needed.

        Args:
            server: Name of a server of the environment.
            session_id: ID of the calling session.
            clock: Clock of the session; it times the restart backoff.

        Raises:
            ServerUnavailable: The server cannot be started now, or is not allowed to.
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
            # A reload during the start: serve this call, then end, since nothing else will end it.
            if self._retired:
                connection.leave()
        return connection

    def _made(self, key: tuple[str, int, str], loop: asyncio.AbstractEventLoop) -> Supervisor:
        for other, supervisor in list(self._supervisors.items()):
            # Also keeps keys valid: a new loop may have the `id` of a closed one.
            if supervisor.loop.is_closed():
                del self._supervisors[other]
        world, tokens = self.world, self._tokens

        def to(server: Server) -> Link:
            return open_link(server, world, None if server.transport == "stdio" else tokens())

        made = Supervisor(
            world.servers[key[0]], world.judge, to, loop=loop, changed=self._changed, warned=self._warned
        )
        return self._supervisors.setdefault(key, made)

    def states(self) -> Mapping[str, str]:
        """Server name -> `idle`, `starting`, `up`, `down` or `resting`. Starts no server."""
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
        """End the servers that belong to this session alone."""
        await self._close([key for key in self._supervisors if key[2] and key[2] == session_id])

    def retire(self) -> None:
        """End each server after its calls in progress, because another environment is active."""
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
    """End a server in its own event loop, which may belong to another thread."""
    if supervisor.loop is asyncio.get_running_loop():
        await supervisor.end()
    elif supervisor.loop.is_running():
        await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(supervisor.end(), supervisor.loop))
