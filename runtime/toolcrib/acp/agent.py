"""An agent that is driven: its process, its session and its turns."""

from __future__ import annotations

import asyncio
import logging
import os
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self, TypeVar

from toolcrib.acp.agent_process import AgentProcess, Observer, WireLine, agent_command
from toolcrib.acp.permissions import check_agent_policy
from toolcrib.acp.tool_server import AgentToolServer
from toolcrib.core.dependencies import imports_of_extra
from toolcrib.core.errors import ConfigurationError, Problem, ToolcribError
from toolcrib.core.model import JSON, NOTHING, Content
from toolcrib.engine import engine_of
from toolcrib.provider import Event
from toolcrib.schema.validation.violations import shorten
from toolcrib.security.path_access import EVERYWHERE
from toolcrib.security.tool_policy import NO_POLICY, ToolPolicy
from toolcrib.serve.acp.connection_observer import ConnectionObserver
from toolcrib.serve.acp.connection_timeline import SessionEvent, Side
from toolcrib.serve.acp.diagnosis import PATIENCE, ConnectionFinding
from toolcrib.serve.acp.recordings import Recorder
from toolcrib.serve.acp.sdk_import import import_sdk
from toolcrib.serve.acp.session_timeline import STOP_REASONS
from toolcrib.serve.mcp.options import Options

if TYPE_CHECKING:
    from toolcrib.acp.client_methods import ClientMethods
    from toolcrib.acp.connection import AcpConnection
    from toolcrib.acp.permissions import Ask
    from toolcrib.engine.runtime import Runtime

T = TypeVar("T")

START_TIMEOUT: Final = 60.0
"""Seconds in which an agent must answer the requests that open a session."""

CANCEL_TIMEOUT: Final = 10.0
"""Seconds in which an agent must end a cancelled turn; then its process is ended."""

MOST_PROBLEMS: Final = 1000
"""Number of problems that an agent keeps; older ones are dropped."""

_STOP_OF_FAILURE: Final[Mapping[str, str]] = {"agent_ended": "lost", "agent_timeout": "timeout"}

_log = logging.getLogger("toolcrib")


class AgentFailure(ToolcribError):
    """An agent refused a request, answered without the form of the protocol, did not answer in time, or ended."""

    code = "agent_failed"


class TurnResult(NamedTuple):
    """How a turn of an agent ended.

    Attributes:
        stop: The reason: `end_turn`, `max_tokens`, `max_turn_requests`, `refusal` or `cancelled`, as in the protocol; `failed` if
            the agent refused the prompt, `timeout` if the turn took too long, or `lost` if the agent died.
        failure: What failed, as `{code, message, hint}`; empty if nothing did.
        usage: Tokens that the agent reports: `{totalTokens, inputTokens, ...}`.
        session: ID of the session.
    """

    stop: str
    failure: Mapping[str, str] = NOTHING
    usage: Mapping[str, JSON] = NOTHING
    session: str = ""

    @property
    def ok(self) -> bool:
        """Whether the agent has completed its answer."""
        return self.stop == "end_turn"


class Turn:
    """One turn of an agent. Iterate over it for its events; afterwards, `result` says how it ended.

    An iterator that is closed early cancels the turn; `contextlib.aclosing` closes it at once.

    Attributes:
        result: How the turn ended; None while it runs.
    """

    def __init__(self, agent: Agent, parts: Sequence[str | Content], timeout: float | None) -> None:
        self._agent = agent
        self._parts = parts
        self._timeout = timeout
        self.result: TurnResult | None = None

    async def __aiter__(self) -> AsyncIterator[Event]:
        """Run the turn, and yield its events.

        Raises:
            ConfigurationError: Another turn is running, the agent does not accept a part of the prompt, or it cannot be
                started again.
        """
        events: asyncio.Queue[Event | None] = asyncio.Queue()
        run = asyncio.create_task(self._agent._run(events.put_nowait, self._parts, self._timeout))  # noqa: SLF001 -- its other half
        run.add_done_callback(lambda _task: events.put_nowait(None))
        try:
            while (event := await events.get()) is not None:
                yield event
            self.result = run.result()
        finally:
            if not run.done():
                await self._agent.cancel()
                await asyncio.wait({run})

    async def cancel(self) -> None:
        """Cancel the turn. The iteration goes on until the agent has ended it."""
        await self._agent.cancel()


class Agent:
    """An agent of the Agent Client Protocol, which runs as a child process. Needs the extra `acp`.

    The agent runs its own model. It uses the tools of the runtime, the files and commands below the roots as far as the rules
    permit, and asks for permission, which the policy, the rules of access or a person decide. An agent that ends is
    started again at the next prompt.

    Attributes:
        session: ID of the session; empty before the agent was started.
        info: Name and version that the agent gives: `{name, title, version}`.
        capabilities: What the agent announced, as it is on the wire.
        modes: The modes of the session: ID -> name.
        problems: What the agent did wrong and was survived; the latest ones.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        runtime: Runtime | None = None,
        tools: bool = True,
        roots: Sequence[str | os.PathLike[str]] = (),
        env: Mapping[str, str] = NOTHING,
        policy: ToolPolicy = NO_POLICY,
        approved: Sequence[str] = (),
        ask: Ask | None = None,
        writes: bool = True,
        terminals: bool = True,
        mode: str = "",
        login: str = "",
        observers: Sequence[Observer] = (),
        report: Callable[[Problem], None] | None = None,
        record: str | os.PathLike[str] | None = None,
        patience: float = PATIENCE,
        start_timeout: float = START_TIMEOUT,
        cancel_timeout: float = CANCEL_TIMEOUT,
    ) -> None:
        """Configure an agent. Entering it starts it.

        Args:
            command: Its program and arguments.
            runtime: The runtime whose tools it may use and whose rules of access apply; already entered.
            tools: Whether it may use the tools of the runtime.
            roots: The folders whose files and commands it may use; the first is its working directory (default: ours).
            env: Its environment variables, in addition to `PATH`, `HOME` and a few others.
            policy: Which calls are allowed, denied or asked about: `allow`, `deny` and `ask`. Other keys are refused.
            approved: Globs of the calls that are allowed without a question, by the name of the tool or the kind of the call.
            ask: Asks a person about the other calls. None rejects them.
            writes: Whether it may write files.
            terminals: Whether it may run commands.
            mode: ID of the mode of the session (default: the agent decides).
            login: ID of the method with which to log in (default: none, the agent is already logged in).
            observers: See every line of the protocol.
            report: Receives problems as they happen (default: they are logged).
            record: File for a recording of every message, with masked secrets.
            patience: Seconds after which a request without an answer, or a silent turn, is reported as a problem.
            start_timeout: Seconds in which it must answer each request that opens a session.
            cancel_timeout: Seconds in which it must end a cancelled turn; then its process is ended.

        Raises:
            ConfigurationError: The command is empty, a root is not a folder, or the policy cannot be applied to an agent.
        """
        folders = [os.path.realpath(each) for each in roots] or [os.getcwd()]
        for each in folders:
            if not os.path.isdir(each):
                raise ConfigurationError(
                    f"the root `{each}` is not a folder",
                    code="no_such_path",
                    hint="create it, or name another one",
                )
        self._command = agent_command(command, folders[0], env)
        self._roots = folders
        self._runtime, self._tools = runtime, tools
        check_agent_policy(policy)
        self._policy = policy
        self._approved = tuple(approved)
        self._ask = ask
        self._writes, self._terminals = writes, terminals
        self._mode, self._login = mode, login
        self._observers = tuple(observers)
        self._report = report
        self._start_timeout, self._cancel_timeout = start_timeout, cancel_timeout
        self._process: AgentProcess | None = None
        self._connection: AcpConnection | None = None
        self._methods: ClientMethods | None = None
        self._record = record
        self._wire = ConnectionObserver(warn=self._found, patience=patience)
        self._wire.listeners.append(self._event)
        self._watching: asyncio.Task[None] | None = None
        self._numbers = _EventNumbers()
        self._offer: AgentToolServer | None = None
        self._deliver: Callable[[Event], None] | None = None
        self._cancelled = asyncio.Event()
        self._opening = self._skips = False
        self._early: list[SessionEvent] = []
        self._between: list[Event] = []
        self.session = ""
        self.info: Mapping[str, JSON] = NOTHING
        self.capabilities: Mapping[str, Any] = NOTHING
        self.modes: Mapping[str, str] = NOTHING
        self.problems: deque[Problem] = deque(maxlen=MOST_PROBLEMS)

    async def __aenter__(self) -> Self:
        """Start the agent and open a session.

        Raises:
            ConfigurationError: The extra `acp` is missing, or the program does not exist.
            AgentFailure: The agent does not speak the protocol, or refuses.
        """
        await self._open("")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None, /
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Cancel the turn, and end the agent with everything that it has started."""
        await self.cancel()
        await self._end()
        self._wire.close()
        if self._offer is not None:
            await self._offer.close()
            self._offer = None

    def prompt(self, *parts: str | Content, timeout: float | None = None) -> Turn:
        """A turn: the agent answers a message of the user.

        Args:
            parts: Texts, and images as far as the agent accepts them.
            timeout: Seconds after which the turn is cancelled.
        """
        return Turn(self, parts, timeout)

    async def cancel(self) -> None:
        """Cancel the turn that runs, if any. An agent that does not end it within 10 s is ended."""
        if not self._is_running or self._connection is None or self._cancelled.is_set():
            return
        self._cancelled.set()
        with suppress(AgentFailure):
            await self._connection.cancel(self.session)

    async def resume(self, session: str) -> list[Event]:
        """Continue an earlier session of the agent, in place of the current one.

        Args:
            session: ID of the session.

        Returns:
            The events of the session so far; empty if the agent only continues it.

        Raises:
            ConfigurationError: The agent cannot continue sessions, or a turn is running.
            AgentFailure: The agent does not know the session, or fails.
        """
        if self._is_running:
            raise _turn_runs()
        history: list[Event] = []
        self._deliver = history.append
        try:
            await self._open(session)
        finally:
            self._deliver = None
        return history

    # A turn.

    @property
    def _is_running(self) -> bool:
        return self._deliver is not None

    async def _run(
        self, deliver: Callable[[Event], None], parts: Sequence[str | Content], timeout: float | None
    ) -> TurnResult:
        if self._is_running:
            raise _turn_runs()
        self._cancelled = asyncio.Event()
        self._deliver = deliver
        try:
            await self._revive()
            blocks = [self._block(part) for part in parts]
            while self._between:
                deliver(self._between.pop(0))
            return self._result(await self._prompted(blocks, timeout))
        except AgentFailure as error:
            return await self._failed(error)
        finally:
            self._cancelled.set()
            self._deliver = None

    async def _prompted(self, blocks: list[dict[str, Any]], timeout: float | None) -> dict[str, Any]:
        """Send the prompt, and wait for its answer; a cancelled turn gets a little time to end."""
        connection, methods = self._connection, self._methods
        assert connection is not None and methods is not None  # noqa: PT018, S101 -- `_revive` has set both
        methods.view.cancelled = self._cancelled
        asked = asyncio.ensure_future(connection.prompt(self.session, blocks))
        stopped = asyncio.ensure_future(self._cancelled.wait())
        try:
            await asyncio.wait({asked, stopped}, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
            if asked.done():
                return asked.result()
            is_late = not self._cancelled.is_set()
            await self.cancel()
            await asyncio.wait({asked}, timeout=self._cancel_timeout)
            if not asked.done():
                told = f"the agent did not end the cancelled turn within {self._cancel_timeout:g} s, and was ended"
                self._problem("not_cancelled", told)
                await self._end()
                await asyncio.wait({asked})
            if is_late:
                asked.exception()
                message = f"the turn did not end within {timeout:g} s, and was cancelled"
                raise AgentFailure(message, code="agent_timeout")
            return asked.result()
        finally:
            methods.view.cancelled = None
            asked.cancel()
            stopped.cancel()
            await asyncio.wait({asked, stopped})

    def _result(self, told: Mapping[str, Any]) -> TurnResult:
        reason, usage = told["stopReason"], told.get("usage")
        if reason not in STOP_REASONS:
            message = f"the agent ended the turn with the unknown stop reason `{shorten(reason)}`"
            raise AgentFailure(message, code="invalid_response")
        return TurnResult(reason, usage=usage if isinstance(usage, dict) else NOTHING, session=self.session)

    async def _failed(self, error: AgentFailure) -> TurnResult:
        stop = _STOP_OF_FAILURE.get(error.code, "failed")
        if stop == "lost":
            await self._end()
        # The user has cancelled the turn, and knows better than the agent why it ended.
        if self._cancelled.is_set() and stop != "timeout":
            return TurnResult("cancelled", session=self.session)
        failure = {"code": error.code, "message": error.message, "hint": error.hint}
        return TurnResult(stop, failure, session=self.session)

    def _block(self, part: str | Content) -> dict[str, Any]:
        if isinstance(part, str):
            return {"type": "text", "text": part}
        accepts = self.capabilities.get("promptCapabilities") or {}
        if part.type == "image" and accepts.get("image"):
            return {"type": "image", "data": part.data, "mimeType": part.mime_type}
        raise ConfigurationError(
            f"the agent accepts no {part.type} in prompts",
            code="unsupported_content",
            hint="send text, or the path of a file below a root",
        )

    # The agent.

    async def _revive(self) -> None:
        """Start an agent that has ended once more, with its session if it can continue it."""
        if self._process is not None and not self._process.ended:
            return
        session, why = self.session, "it cannot continue sessions"
        if session and self._continues():
            # What the agent repeats was delivered before it ended.
            self._skips = True
            try:
                await self._open(session)
            except AgentFailure as error:
                if error.code != "agent_refused":
                    raise
                why = error.message
            else:
                return
            finally:
                self._skips = False
        await self._open("")
        if session:
            self._problem("session_lost", f"the agent was started again without its session: {why}")

    def _continues(self) -> str:
        """The method that continues a session: `resume`, `load`, or empty for none."""
        if "resume" in (self.capabilities.get("sessionCapabilities") or {}):
            return "resume"
        return "load" if self.capabilities.get("loadSession") else ""

    async def _open(self, session: str) -> None:
        """Start the agent unless it runs, and open a session.

        Args:
            session: ID of the session to continue; empty for a new one.
        """
        self._opening = True
        try:
            if self._process is None or self._process.ended:
                await self._start()
            await self._open_session(session)
        except BaseException:
            await self._end()
            raise
        finally:
            self._opening = False
            early, self._early = self._early, []
        for event in early:
            self._event(event)

    async def _start(self) -> None:
        with imports_of_extra("acp", cannot="drive an agent", doing="driving an agent"):
            import_sdk()
            from toolcrib.acp.client_methods import ClientMethods, ClientOffer, TurnView  # noqa: PLC0415 -- an extra
            from toolcrib.acp.connection import AcpConnection  # noqa: PLC0415 -- as above
            from toolcrib.acp.files import AgentFiles  # noqa: PLC0415 -- as above
            from toolcrib.acp.permissions import Permissions  # noqa: PLC0415 -- as above

        await self._end()
        if self._record is not None and self._wire.recorder is None:
            self._wire.recorder = Recorder(Path(self._record), by="client", name=self._command.name)
        engine = None if self._runtime is None else engine_of(self._runtime)
        files = AgentFiles(self._roots, lambda: EVERYWHERE if engine is None else engine.paths)
        permissions = Permissions(
            self._policy,
            self._approved,
            None if engine is None else (lambda: engine.access),
            self._command.name,
            lambda path, writes: files.why_refused(path, "write" if writes else "read"),
        )
        offer = ClientOffer(writes=self._writes, terminals=self._terminals)
        process = AgentProcess(self._command, self._seen)
        methods = self._methods = ClientMethods(
            offer,
            files,
            permissions,
            ask=self._ask,
            view=TurnView(),
            report=self._problem,
            cwd=self._roots[0],
        )
        await process.start()
        self._process = process
        self._watching = asyncio.create_task(self._wire.watch())
        connection = self._connection = AcpConnection(process, methods.handle)
        told = await self._in_time("initialize", connection.initialize(offer.capabilities(), "toolcrib"))
        if told["protocolVersion"] != connection.version:
            message = f"the agent speaks version {told['protocolVersion']} of the protocol, not {connection.version}"
            raise AgentFailure(
                message, code="unsupported_version", hint="install another version of the agent"
            )
        self.capabilities = told.get("agentCapabilities") or {}
        self.info = told.get("agentInfo") or {}
        if self._login:
            await self._in_time("authenticate", connection.authenticate(self._login))

    async def _open_session(self, session: str) -> None:
        connection, methods = self._connection, self._methods
        assert connection is not None and methods is not None  # noqa: PT018, S101 -- `_start` has set both
        cwd, servers = self._roots[0], await self._offered()
        how = self._continues() if session else "new"
        if not how:
            raise ConfigurationError(
                "the agent cannot continue sessions",
                code="unsupported",
                hint="it announces neither `loadSession` nor `sessionCapabilities.resume`",
            )
        before = self.session
        self._numbers.begin()
        if session:
            # The agent repeats the updates of the session before it answers.
            self.session = methods.view.session = session
        try:
            opened = await self._in_time(
                f"session/{how}", connection.open_session(how, session, cwd, servers)
            )
        except AgentFailure:
            self.session = methods.view.session = before
            raise
        self.session = methods.view.session = opened.get("sessionId") or session
        modes = opened.get("modes") or {}
        self.modes = {each["id"]: each["name"] for each in modes.get("availableModes", ())}
        if self._mode:
            await self._in_time("session/set_mode", connection.set_mode(self.session, self._mode))

    async def _offered(self) -> list[Any]:
        """The MCP servers that the agent may use: the tools of the runtime."""
        if self._runtime is None or not self._tools:
            return []
        if self._offer is None:
            self._offer = AgentToolServer(
                self._runtime, Options(watch=False, policy=self._policy), self._command.name
            )
        can_http = bool((self.capabilities.get("mcpCapabilities") or {}).get("http"))
        return [await self._offer.entry(http=can_http)]

    async def _in_time(self, method: str, work: Awaitable[T]) -> T:
        try:
            async with asyncio.timeout(self._start_timeout):
                return await work
        except TimeoutError:
            raise AgentFailure(
                f"the agent did not answer `{method}` within {self._start_timeout:g} s",
                code="agent_timeout",
                hint="check that its command starts it as an agent of ACP, often with an option such as `--acp`",
            ) from None

    async def _end(self) -> None:
        """End the agent, and release what it used."""
        process, connection, methods = self._process, self._connection, self._methods
        self._process = self._connection = self._methods = None
        if connection is not None:
            await connection.close()
        if methods is not None:
            await methods.close()
        if process is not None:
            await process.end()
            # What is still open never ends.
            self._wire.ended(f"the agent {process.ended}")
        if self._watching is not None:
            self._watching.cancel()
            await asyncio.wait({self._watching})
            self._watching = None

    # What passes the wire.

    def _seen(self, line: WireLine) -> None:
        """Receive a line. Every line of both directions passes here, in order."""
        for observer in self._observers:
            observer(line)
        sender: Side = "agent" if line.direction == "in" else "client"
        if line.fault:
            self._wire.invalid_line(sender, line.fault, line.data.decode(errors="replace"), line.number)
            return
        if sender == "agent" and self._methods is not None:
            self._methods.view.follow(line.message)
        self._wire.message(sender, line.message, line.number)

    def _event(self, told: SessionEvent) -> None:
        # A session that is loaded again on a connection is `ID#2` there.
        if told.session not in {"", self.session} and not told.session.startswith(f"{self.session}#"):
            # It may arrive before the answer with the ID of the session is read. Else the session was reported as unknown.
            if self._opening:
                self._early.append(told)
            return
        if self._skips:
            self._numbers.skip(told.event)
            return
        (self._deliver or self._between.append)(self._numbers.of(told.event))

    def _found(self, finding: ConnectionFinding) -> None:
        """Receive what is wrong on the connection: each thing once."""
        if not self._skips:
            self._problem(finding.code, finding.message, finding.hint)

    def _problem(self, code: str, message: str, hint: str = "") -> None:
        problem = Problem(
            code=code, message=message, hint=hint, severity="warning", source=self._command.name
        )
        self.problems.append(problem)
        if self._report is None:
            _log.warning("%s", problem)
        else:
            self._report(problem)


class _EventNumbers:
    """Numbers the events of several timelines like those of one: an agent that is started again begins a new one."""

    def __init__(self) -> None:
        self._last = self._segments = self._base = 0

    def begin(self) -> None:
        """Another timeline begins."""
        self._base = self._segments

    def skip(self, event: Event) -> None:
        """Leave an event out: it was numbered when an earlier timeline had it."""
        self._base = min(self._base, self._segments - event.segment)

    def of(self, event: Event) -> Event:
        """The event with its number."""
        self._last += 1
        if not event.segment:
            return event._replace(seq=self._last)
        segment = self._base + event.segment
        self._segments = max(self._segments, segment)
        return event._replace(seq=self._last, segment=segment)


def _turn_runs() -> ConfigurationError:
    return ConfigurationError(
        "the agent is answering another prompt",
        code="turn_running",
        hint="wait for the end of the turn, or cancel it with `Agent.cancel()`",
    )
