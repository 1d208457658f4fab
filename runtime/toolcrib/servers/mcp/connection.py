"""One server that was started: a session of the SDK over a link, from its start to its end in one task.

`tools/call` is written here and not by the SDK's session, and the answer is taken as it is: other layers judge it, and a
schema that the SDK can't read hides no tool. Everything else (the handshake, what the server asks, subscriptions) is left
to the session. Which protocol is spoken is negotiated where that is left open (MCP 2026-07-28, versioning).
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final, Literal

import anyio
from mcp import types
from mcp.client.session import ClientRequestContext, ClientSession
from mcp.client.subscriptions import SubscriptionLost, listen
from mcp.shared.dispatcher import CallOptions, OnNotify, OnNotifyIntercept, OnRequest
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import (
    MCP_METHOD_HEADER,
    MCP_NAME_HEADER,
    MCP_PROTOCOL_VERSION_HEADER,
    encode_header_value,
    find_invalid_x_mcp_header,
    mcp_param_headers,
    x_mcp_header_map,
)
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    PROTOCOL_VERSION_META_KEY,
    UNSUPPORTED_PROTOCOL_VERSION,
)
from mcp.types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

import toolcrib
from toolcrib.core.clock import RealClock
from toolcrib.core.model import JSON, NOTHING, Progress
from toolcrib.core.server_config import Catalogue, LockVerdict, Server
from toolcrib.servers.mcp.failures import (
    CONNECTION_CLOSED,
    HEADER_MISMATCH,
    METHOD_NOT_FOUND,
    ConnectionLoss,
    IdleTimeout,
    InvalidAnswer,
    ProtocolError,
    clean_text,
)
from toolcrib.servers.mcp.server_requests import ServerRequestHooks
from toolcrib.servers.mcp.tool_list import list_tools
from toolcrib.servers.mcp.transports import CallTrace, Link, trace_call

Era = Literal["auto", "handshake", "modern"]

_PROBE_SHARE: Final = 3
"""The part of the time to start in which a server must have answered which protocol it speaks."""


class McpDispatcher(JSONRPCDispatcher[Any]):
    """The SDK's dispatcher, which says what this client can do, and when it is over.

    Args:
        read: What comes.
        write: What is sent.
        capabilities: What the server is told that it may ask.
        over: Set when nothing more comes.
        patience: Seconds in which the server must have begun to speak.
    """

    def __init__(
        self, read: Any, write: Any, *, capabilities: dict[str, Any], over: anyio.Event, patience: float
    ) -> None:
        super().__init__(read, write)
        self._capabilities = capabilities
        self._over = over
        self._patience = patience

    async def run(
        self,
        on_request: OnRequest,
        on_notify: OnNotify,
        on_notify_intercept: OnNotifyIntercept | None = None,
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        """Hear until nothing more comes."""
        try:
            await super().run(on_request, on_notify, on_notify_intercept, task_status=task_status)
        finally:
            self._over.set()

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None, **more: Any
    ) -> dict[str, Any]:
        """Ask. The SDK's session claims capabilities by which callbacks there are; ours are always there."""
        if method == "tools/call":
            return await super().send_raw_request(method, params, opts, **more)
        if method == "initialize":
            params = {**(params or {}), "capabilities": self._capabilities}
        else:
            params = self._stamped(params)
        if method != "server/discover":
            return await super().send_raw_request(method, params, opts, **more)
        options: CallOptions = {**(opts or {}), "timeout": self._patience / _PROBE_SHARE}
        answer = await super().send_raw_request(method, params, options, **more)
        answer.setdefault("resultType", "complete")  # as of a result that does not say, 2026-07-28 basic
        return answer

    def _stamped(self, params: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        meta = (params or {}).get("_meta")
        if not isinstance(meta, dict) or CLIENT_CAPABILITIES_META_KEY not in meta:
            return params
        return {**(params or {}), "_meta": {**meta, CLIENT_CAPABILITIES_META_KEY: self._capabilities}}


async def negotiate_version(session: ClientSession, era: Era, over: anyio.Event) -> None:
    """Come to terms with a server.

    Raises:
        MCPError: It refused; or the connection ended, or it did not answer in time.
        RuntimeError: It speaks no protocol that is known here.
        pydantic.ValidationError: What it answered is no answer.
    """
    if era == "handshake":
        await session.initialize()
        return
    try:
        await session.discover()
    except (MCPError, RuntimeError, ValidationError) as error:
        # Whatever else it says, it may be a server of before; one that is gone is none.
        if era == "modern" or over.is_set() or _speaks_other_modern(error):
            raise
        await _shake_hands(session)


async def _shake_hands(session: ClientSession) -> None:
    try:
        await session.initialize()
    except MCPError as error:
        if error.code != UNSUPPORTED_PROTOCOL_VERSION:
            raise
        await session.discover()  # it took its time to say that it is a modern one


def _speaks_other_modern(error: Exception) -> bool:
    """Whether a server says that it speaks modern protocols alone, and none that is known here."""
    if not isinstance(error, MCPError) or error.code != UNSUPPORTED_PROTOCOL_VERSION:
        return False
    supported = error.data.get("supported") if isinstance(error.data, dict) else None
    return isinstance(supported, list) and not any(each in HANDSHAKE_PROTOCOL_VERSIONS for each in supported)


class IdleTimer:
    """How long a server may be silent within a call; it is not silent while it waits for an answer of ours.

    Args:
        seconds: How long; 0 for any time.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._timers: set[asyncio.Timeout] = set()
        self._quiet = 0

    async def bear(
        self, exchange: Callable[[Callable[[], None] | None], Awaitable[dict[str, Any]]]
    ) -> dict[str, Any]:
        """Wait for an exchange, which is given what to call whenever something is heard.

        Raises:
            IdleTimeout: Nothing was heard for too long.
        """
        if not self._seconds:
            return await exchange(None)
        timer = asyncio.timeout(self._seconds)
        try:
            async with timer:
                self._timers.add(timer)
                answer = await exchange(lambda: self._wind(timer))
        except TimeoutError:
            if timer.expired():
                raise IdleTimeout from None
            raise
        finally:
            self._timers.discard(timer)
        return answer

    def quiet(self) -> _Pause:
        """Within, it is us who let the server wait."""
        return _Pause(self)

    def hold(self, by: int) -> None:
        """More or fewer answers are waited for."""
        self._quiet += by
        for timer in self._timers:
            self._wind(timer)

    def _wind(self, timer: asyncio.Timeout) -> None:
        with suppress(RuntimeError):  # it has expired, or is over
            when = None if self._quiet else asyncio.get_running_loop().time() + self._seconds
            timer.reschedule(when)


class _Pause:
    def __init__(self, timer: IdleTimer) -> None:
        self._timer = timer

    def __enter__(self) -> None:
        self._timer.hold(1)

    def __exit__(self, *_error: object) -> None:
        self._timer.hold(-1)


_log = logging.getLogger("toolcrib")

_TRACE: Final = frozenset({"traceparent", "tracestate", "baggage"})
"""W3C trace context, as `_meta` carries it (MCP 2026-07-28, SEP-414)."""

_MOST_ROUNDS: Final = 10
"""How often a server may ask back within one call (2026-07-28, input required)."""

_CALM: Final = 0.1
"""Seconds between two looks at a list that changes again and again."""

_RENEWED_AFTER: Final = 0.2
_RENEWED_AT_MOST: Final = 10.0

OnProgress = Callable[[Progress], None]


class ServerConnection:
    """A server that runs, or can be reached.

    Attributes:
        catalogue: What it offers, as it listed it last.
        verdict: What a lock says of that.
        calls: How many calls are under way.
        ended: Whether it is of no more use.
        modern: Whether it speaks a protocol from 2026-07-28 on.
    """

    def __init__(
        self,
        server: Server,
        link: Link,
        hooks: ServerRequestHooks,
        judge: Callable[[Catalogue], LockVerdict],
        listed: Callable[[Catalogue], None],
    ) -> None:
        """Hold what a connection needs; `run` makes it.

        Args:
            server: The server.
            link: The way to it.
            hooks: What answers its questions.
            judge: Says what a lock has against what it offers.
            listed: Told whenever it has listed its tools.
        """
        self.catalogue = Catalogue(server.name)
        self.verdict = LockVerdict()
        self.calls = 0
        self.ended = False
        self.modern = False
        self._server = server
        self._link = link
        self._hooks = hooks
        self._judge = judge
        self._listed_now = listed
        self._over = anyio.Event()
        self._doubt: anyio.Event | None = None
        self._doubted = anyio.Event()
        self._leaving = False
        self._idle_timer = IdleTimer(server.idle_timeout)
        self._wire: McpDispatcher
        self._asking: ClientSession
        self._headers: dict[str, str] = {}
        self._meta: dict[str, Any] = {}
        self._mirrored: dict[str, dict[tuple[str, ...], str]] = {}

    @property
    def alive(self) -> bool:
        """Whether another call may use it."""
        return not (self.ended or self._link.ended or self._over.is_set())

    async def run(self, ready: Callable[[Exception | None], None], era: Any) -> None:
        """Start, tell that it is ready or why not, and stay until it is over or left.

        Args:
            ready: Told once the tools are listed (None), or why they are not.
            era: Which protocol to speak.

        Raises:
            Exception: What the link raises when it is entered.
        """
        try:
            async with self._link as (read, write):
                self._wire = McpDispatcher(
                    read,
                    write,
                    capabilities=self._hooks.capabilities,
                    over=self._over,
                    patience=self._server.start_timeout,
                )
                async with self._session() as session:
                    self._asking = session
                    failure = await self._started(session, era)
                    ready(failure)
                    if failure is None:
                        await self._stay(session)
        finally:
            self.ended = True
            self._settle()

    def leave(self) -> None:
        """End it once no call is under way."""
        self._leaving = True
        if not self.calls:
            self._over.set()

    def stop(self) -> None:
        """End it now."""
        self._over.set()

    async def call(
        self,
        tool: str,
        arguments: dict[str, JSON],
        *,
        progress: OnProgress | None = None,
        trace: Mapping[str, str] = NOTHING,
    ) -> dict[str, Any]:
        """Call a tool once, and return the answer as it came.

        Args:
            tool: The server's name for it.
            arguments: What it gets.
            progress: Told how far it is.
            trace: Headers of W3C trace context, passed on as `_meta`.

        Raises:
            ProtocolError: The server answered with an error of the protocol.
            ConnectionLoss: No answer can come any more.
            IdleTimeout: Nothing was heard for longer than the server may be silent.
            InvalidAnswer: The server asks for more than may be asked.
            asyncio.CancelledError: The call was given up; the server is told.
        """
        if not self.calls:
            self._hooks.unanswered.clear()
        self.calls += 1
        try:
            with trace_call() as call_trace:
                try:
                    return await self._idle_timer.bear(
                        lambda heard: self._exchange(tool, arguments, _told(progress, heard), trace)
                    )
                except MCPError as error:
                    raise self._failure(error, call_trace) from None
        finally:
            self.calls -= 1
            if self._leaving and not self.calls:
                self._over.set()

    def unanswered(self, said: str) -> str:
        """What the server has asked and nobody answered, for a call that failed with these words; empty for nothing."""
        return self._hooks.told_of(said)

    async def trusted(self) -> None:
        """Wait until the list is no longer in doubt: it changed, and was not read again."""
        if self._doubt is not None:
            await self._doubt.wait()

    async def relisted(self) -> None:
        """Read the list again, where there still is somebody to ask."""
        if self.alive:
            self._mark()
            await self.trusted()

    def _session(self) -> ClientSession:
        hooks, quiet = self._hooks, self._idle_timer.quiet
        info = types.Implementation(name="toolcrib", version=toolcrib.__version__)

        async def elicit(context: Any, params: Any) -> Any:
            with quiet():
                return await hooks.elicit(context, params)

        async def sample(context: Any, params: Any) -> Any:
            with quiet():
                return await hooks.sample(context, params)

        return ClientSession(
            dispatcher=self._wire,
            client_info=info,
            elicitation_callback=elicit,
            sampling_callback=sample,
            list_roots_callback=hooks.roots,
            message_handler=self._on_message,
        )

    async def _started(self, session: ClientSession, era: Any) -> Exception | None:
        """Come to terms, and list the tools; what went wrong is returned, so that no group of the SDK wraps it up."""
        with trace_call() as call_trace:
            try:
                with anyio.fail_after(self._server.start_timeout):
                    await negotiate_version(session, era, self._over)
                    self._know(session)
                    self._put_in_force(await self._listed(session))
            except MCPError as error:
                return self._failure(error, call_trace)
            except (TimeoutError, RuntimeError, ValidationError, InvalidAnswer) as error:
                return error
        return None

    def _know(self, session: ClientSession) -> None:
        """Note what every call carries in the protocol that was agreed on."""
        version = session.protocol_version or ""
        self.modern = version in MODERN_PROTOCOL_VERSIONS
        self._headers = {MCP_PROTOCOL_VERSION_HEADER: version}
        if self.modern:
            self._headers[MCP_METHOD_HEADER] = "tools/call"
            self._meta = {
                PROTOCOL_VERSION_META_KEY: version,
                CLIENT_INFO_META_KEY: {"name": "toolcrib", "version": toolcrib.__version__},
                CLIENT_CAPABILITIES_META_KEY: self._hooks.capabilities,
            }

    async def _stay(self, session: ClientSession) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._keep_listed, session)
            if self.modern and _tells_changes(session):
                tasks.start_soon(self._subscribe, session)
            await self._over.wait()
            tasks.cancel_scope.cancel()

    async def _exchange(
        self, tool: str, arguments: dict[str, JSON], heard: Any, trace: Mapping[str, str]
    ) -> dict[str, Any]:
        """Send a call, and answer what the server asks back within it (2026-07-28, input required)."""
        params: dict[str, Any] = {"name": tool, "arguments": arguments}
        meta = (
            {**self._meta, **{name: trace[name] for name in _TRACE if name in trace}} if trace else self._meta
        )
        if meta:
            params["_meta"] = meta
        answer = await self._sent(tool, params, heard)
        rounds = 0
        while answer.get("resultType") == "input_required" and self.modern:
            rounds += 1
            if rounds > _MOST_ROUNDS:
                raise InvalidAnswer(f"it requested input more than {_MOST_ROUNDS} times", answer)
            more = await self._input(answer)
            rest = {
                key: value for key, value in params.items() if key not in {"inputResponses", "requestState"}
            }
            params = {**rest, **more}
            answer = await self._sent(tool, params, heard)
        return answer

    async def _sent(self, tool: str, params: dict[str, Any], heard: Any) -> dict[str, Any]:
        try:
            return await self._wire.send_raw_request("tools/call", params, self._options(tool, params, heard))
        except MCPError as error:
            if error.code != HEADER_MISMATCH or not self.modern:
                raise
            # The server did nothing: what it says of its headers is not what it listed before.
            self._put_in_force(await self._listed(self._asking))
            return await self._wire.send_raw_request("tools/call", params, self._options(tool, params, heard))

    def _options(self, tool: str, params: dict[str, Any], heard: Any) -> CallOptions:
        headers = self._headers
        if self.modern:
            mirrored = self._mirrored.get(tool)
            headers = {**headers, MCP_NAME_HEADER: encode_header_value(tool)}
            if mirrored:
                headers.update(mcp_param_headers(mirrored, params["arguments"]))
        options: CallOptions = {"headers": headers}
        if heard is not None:
            options["on_progress"] = heard
        return options

    async def _input(self, answer: dict[str, Any]) -> dict[str, Any]:
        """What the server asks back, answered as one that asks by itself is."""
        try:
            asked = types.InputRequiredResult.model_validate(answer, by_name=False)
        except ValidationError:
            raise InvalidAnswer("its request for input is not valid", answer) from None
        responses: dict[str, Any] = {}
        for key, request in (asked.input_requests or {}).items():
            context = ClientRequestContext(session=self._asking, request_id=key)
            response = await self._asking.dispatch_input_request(context, request)
            if isinstance(response, types.ErrorData):
                raise MCPError.from_error_data(response)
            responses[key] = response.model_dump(by_alias=True, mode="json", exclude_none=True)
        if not responses:
            await RealClock().sleep(_CALM)  # it only wants to be asked again
        state = {} if asked.request_state is None else {"requestState": asked.request_state}
        return {**({"inputResponses": responses} if responses else {}), **state}

    def _failure(self, error: MCPError, call_trace: CallTrace) -> Exception:
        """What an error of the SDK comes to; it also tells so of what never came from the server."""
        secrets = self._link.secrets
        if call_trace.trouble is None and error.code != CONNECTION_CLOSED:
            return ProtocolError(error.code, secrets.hide_in_text(error.message), secrets.hide_in(error.data))
        trouble = call_trace.trouble
        if trouble is not None:  # of a redirect it tells where it leads
            trouble = trouble._replace(message=secrets.hide_in_text(trouble.message))
        over = trouble is not None and trouble.code == "session_over"
        # A server that does not know the session does nothing, and a new one is begun (2025-11-25, basic/transports).
        return ConnectionLoss(self._link.ended, begun=call_trace.begun and not over, trouble=trouble)

    async def _listed(self, session: ClientSession) -> Catalogue:
        """The tools as they are now."""

        async def ask(cursor: str | None) -> dict[str, Any]:
            params: dict[str, Any] = {} if cursor is None else {"cursor": cursor}
            headers = {**self._headers, **({MCP_METHOD_HEADER: "tools/list"} if self.modern else {})}
            if self._meta:
                params["_meta"] = self._meta
            try:
                return await self._wire.send_raw_request("tools/list", params or None, {"headers": headers})
            except MCPError as error:
                if error.code == METHOD_NOT_FOUND and cursor is None:
                    return {"tools": []}
                raise

        check = find_invalid_x_mcp_header if self.modern else lambda _schema: None
        secrets = self._link.secrets
        return await list_tools(self._server.name, ask, info=_info(session), secrets=secrets, check=check)

    def _put_in_force(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        self.verdict = self._judge(catalogue)
        if self.modern:
            maps = ((name, x_mcp_header_map(tool["inputSchema"])) for name, tool in catalogue.tools.items())
            self._mirrored = {name: mirrored for name, mirrored in maps if mirrored}
        self._listed_now(catalogue)

    async def _on_message(self, message: object) -> None:
        if isinstance(message, types.ToolListChangedNotification):
            self._mark()

    def _mark(self) -> None:
        """The list is not what it was: until it is read again no call is sent."""
        if self._doubt is None:
            self._doubt = anyio.Event()
        self._doubted.set()

    def _settle(self) -> None:
        if self._doubt is not None:
            self._doubt.set()
            self._doubt = None

    async def _keep_listed(self, session: ClientSession) -> None:
        """Read the list again whenever it has changed; changes that come meanwhile are one."""
        while True:
            await self._doubted.wait()
            self._doubted = anyio.Event()
            try:
                self._put_in_force(await self._listed(session))
            except (MCPError, InvalidAnswer) as error:
                name, why = self._server.name, clean_text(self._link.secrets.hide_in_text(str(error)))
                _log.warning("cannot refresh the tools of the server `%s`: %s", name, why)
            # Whoever waited has a list from after the change; a server that changes without end holds nobody for ever.
            self._settle()
            if self._doubted.is_set():
                self._doubt = anyio.Event()
            await RealClock().sleep(_CALM)

    async def _subscribe(self, session: ClientSession) -> None:
        """Be told of changes (2026-07-28, subscriptions); what is lost is renewed, and what was missed is read."""
        pause, renewed = _RENEWED_AFTER, False
        while not self._over.is_set():
            try:
                async with listen(session, tools_list_changed=True) as changes:
                    if not changes.honored.tools_list_changed:
                        return
                    if renewed:
                        self._mark()
                    else:  # what changed since the list was read was told to nobody
                        self._doubted.set()
                    pause = _RENEWED_AFTER
                    async for _change in changes:
                        self._mark()
            except MCPError as error:
                if error.code == METHOD_NOT_FOUND:
                    return
            except SubscriptionLost:
                pass
            renewed = True
            await RealClock().sleep(pause)
            pause = min(_RENEWED_AT_MOST, pause * 2)


def _told(progress: OnProgress | None, heard: Callable[[], None] | None) -> Any:
    """What the SDK calls with progress; None where nobody wants to know."""
    if progress is None and heard is None:
        return None

    async def on_progress(done: float, total: float | None, message: str | None) -> None:
        if heard is not None:
            heard()
        if progress is not None and math.isfinite(done):
            whole = total if total is not None and math.isfinite(total) else None
            progress(Progress(done, whole, message or ""))

    return on_progress


def _tells_changes(session: ClientSession) -> bool:
    capabilities = session.server_capabilities
    return bool(capabilities and capabilities.tools and capabilities.tools.list_changed)


def _info(session: ClientSession) -> dict[str, str]:
    """What the server says of itself."""
    server = session.server_info
    told = {
        "name": server.name if server else None,
        "version": server.version if server else None,
        "title": server.title if server else None,
        "instructions": session.instructions,
        "protocol": session.protocol_version,
    }
    return {key: value for key, value in told.items() if value}
