"""The connection to one running server: an SDK session over a link, from start to end in one task.

This module sends `tools/call` and `tools/list` itself and returns the raw response: other layers validate it, and a
schema that the SDK cannot parse hides no tool. The SDK session does the rest: handshake, requests of the server,
subscriptions. With era `auto`, the protocol version is negotiated (MCP 2026-07-28, versioning). A server with a hook is asked
for a handshake first: only after one may it send requests of its own, and most servers that ask something do so.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import cache
from inspect import signature
from typing import Any, Final, Literal

import anyio
from mcp import types
from mcp.client.session import ClientRequestContext, ClientSession
from mcp.client.subscriptions import SubscriptionLost, listen
from mcp.shared.dispatcher import CallOptions, Dispatcher, OnNotify, OnNotifyIntercept, OnRequest
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
from toolcrib.core.dependencies import UNSUPPORTED_VERSION, MissingMember
from toolcrib.core.errors import NotReady
from toolcrib.core.model import JSON, NOTHING, OUTPUT_SIZE, Progress
from toolcrib.core.process_limits import measure_processes
from toolcrib.core.running_calls import Traffic
from toolcrib.core.server_config import Catalogue, LockVerdict, Server
from toolcrib.servers.environment import record_nothing
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
from toolcrib.servers.mcp.transports import CALL_TRACE, CallTrace, Link, trace_call

Era = Literal["auto", "handshake", "modern"]

_PROBE_SHARE: Final = 3
"""Divisor of the start timeout: `server/discover` gets a third of it, the rest is left for a handshake."""


class McpDispatcher(JSONRPCDispatcher[Any]):
    """The SDK's dispatcher, which also announces our capabilities and signals the end of the connection.

    It notes requests of the server that its protocol version does not allow.

    Args:
        read: Stream of incoming messages.
        write: Stream of outgoing messages.
        hooks: Have the client capabilities to announce, and explain requests that are refused.
        over: Set when the connection ends.
        patience: Start timeout of the server in seconds.
        record: Called with the method, its parameters, the seconds that a request or notification took, and its answer or error.
    """

    def __init__(
        self,
        read: Any,
        write: Any,
        *,
        hooks: ServerRequestHooks,
        over: anyio.Event,
        patience: float,
        record: Callable[[str, Mapping[str, Any] | None, float, Any], None],
    ) -> None:
        super().__init__(read, write)
        self._record = record
        self._hooks = hooks
        self._capabilities = hooks.capabilities
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
        """Dispatch incoming messages until the stream ends."""

        async def answer(context: Any, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
            try:
                return await on_request(context, method, params)
            except MCPError as error:
                if error.code == METHOD_NOT_FOUND:
                    self._hooks.note_misplaced(method)
                raise

        try:
            await super().run(answer, on_notify, on_notify_intercept, task_status=task_status)
        finally:
            self._over.set()

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None, **more: Any
    ) -> dict[str, Any]:
        """Send a request."""
        started = time.monotonic()
        try:
            answer = await self._sent(method, params, opts, **more)
        except BaseException as error:
            self._record(method, params, time.monotonic() - started, error)
            raise
        self._record(method, params, time.monotonic() - started, answer)
        return answer

    async def notify(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None, **more: Any
    ) -> None:
        """Send a notification."""
        started = time.monotonic()
        await super().notify(method, params, opts, **more)
        self._record(method, params, time.monotonic() - started, None)

    async def _sent(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None, **more: Any
    ) -> dict[str, Any]:
        # The SDK session derives capabilities from its callbacks. Ours are always set, so that an unanswered request
        # can be explained; the announced capabilities must depend on the configured hooks instead.
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
        # A missing `resultType` means "complete" (2026-07-28, basic).
        answer.setdefault("resultType", "complete")
        return answer

    def _stamped(self, params: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        meta = (params or {}).get("_meta")
        if not isinstance(meta, dict) or CLIENT_CAPABILITIES_META_KEY not in meta:
            return params
        return {**(params or {}), "_meta": {**meta, CLIENT_CAPABILITIES_META_KEY: self._capabilities}}


async def negotiate_version(
    session: ClientSession, era: Era, over: anyio.Event, *, asks: bool = False
) -> None:
    """Agree on a protocol version with a server.

    Args:
        session: The session.
        era: The era to use.
        over: Set when the connection ends.
        asks: Whether a hook answers requests of the server; `auto` then prefers the handshake.

    Raises:
        MCPError: The server refused, the connection ended, or the server did not respond in time.
        RuntimeError: The server supports no version that toolcrib supports.
        pydantic.ValidationError: The response is not valid.
    """
    if era == "handshake":
        await session.initialize()
        return
    if era == "auto" and asks:
        await _shake_hands_or_discover(session, over)
        return
    try:
        await session.discover()
    except (MCPError, RuntimeError, ValidationError) as error:
        # An older server may answer an unknown method with any error. A dead one needs no second attempt.
        if era == "modern" or over.is_set() or _speaks_other_modern(error):
            raise
        await _shake_hands(session)


async def _shake_hands_or_discover(session: ClientSession, over: anyio.Event) -> None:
    try:
        await session.initialize()
    except (MCPError, RuntimeError, ValidationError) as refusal:
        if over.is_set():
            raise
        try:
            await session.discover()
        except (MCPError, RuntimeError, ValidationError):
            raise refusal from None


async def _shake_hands(session: ClientSession) -> None:
    try:
        await session.initialize()
    except MCPError as error:
        if error.code != UNSUPPORTED_PROTOCOL_VERSION:
            raise
        # A modern server that was too slow for the first `discover` refuses the handshake.
        await session.discover()


def _speaks_other_modern(error: Exception) -> bool:
    """Whether a server supports only modern versions, and none that toolcrib supports."""
    if not isinstance(error, MCPError) or error.code != UNSUPPORTED_PROTOCOL_VERSION:
        return False
    supported = error.data.get("supported") if isinstance(error.data, dict) else None
    return isinstance(supported, list) and not any(each in HANDSHAKE_PROTOCOL_VERSIONS for each in supported)


class IdleTimer:
    """Idle timeout of calls. It is paused while the server waits for a response of ours.

    Args:
        seconds: The timeout; 0 for none.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._timers: set[asyncio.Timeout] = set()
        self._quiet = 0

    async def bear(
        self, exchange: Callable[[Callable[[], None] | None], Awaitable[dict[str, Any]]]
    ) -> dict[str, Any]:
        """Run an exchange, passing it a function to call at each sign of life.

        Raises:
            IdleTimeout: The server was silent for too long.
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
        """A context manager that pauses the timeout."""
        return _Pause(self)

    def hold(self, by: int) -> None:
        """Change the number of responses that the server waits for."""
        self._quiet += by
        for timer in self._timers:
            self._wind(timer)

    def _wind(self, timer: asyncio.Timeout) -> None:
        with suppress(RuntimeError):  # asyncio refuses to reschedule a timeout that has expired or ended
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
"""Maximum number of input requests within one call (2026-07-28, input required)."""

_CALM: Final = 0.1
"""Seconds between two reads of a list that keeps changing."""

_RENEWED_AFTER: Final = 0.2
_RENEWED_AT_MOST: Final = 10.0

OnProgress = Callable[[Progress], None]


@cache
def check_sdk() -> None:
    """Check once that the SDK has what a connection uses beyond its client.

    `McpDispatcher` announces the capabilities. Under another name the SDK would announce all of them without asking it.

    Raises:
        NotReady: Something is missing.
    """
    for owner, names in (
        (ClientSession, ("initialize", "discover", "dispatch_input_request", "protocol_version")),
        (ClientSession, ("server_capabilities", "server_info", "instructions")),
        (JSONRPCDispatcher, ("run", "send_raw_request", "notify")),
    ):
        for name in names:
            # `Dispatcher` is the protocol of the dispatcher: its methods do nothing.
            if getattr(owner, name, None) is getattr(Dispatcher, name, None):
                raise _unsupported(f"{owner.__name__}.{name}")
    try:
        signature(ClientSession).bind_partial(dispatcher=None, message_handler=None)
    except TypeError:
        raise _unsupported("ClientSession(dispatcher=...)") from None


def _unsupported(member: str) -> NotReady:
    lack = MissingMember("mcp", member)
    return NotReady(f"MCP servers cannot be used: {lack.message}", code=UNSUPPORTED_VERSION, hint=lack.hint)


class ServerConnection:
    """The connection to a server.

    Attributes:
        catalogue: The tools that the server listed last.
        verdict: The lock's verdict on them.
        calls: Number of calls in progress.
        ended: Whether the connection has ended.
        modern: Whether the protocol version is 2026-07-28 or later.
    """

    def __init__(
        self,
        server: Server,
        link: Link,
        hooks: ServerRequestHooks,
        judge: Callable[[Catalogue], LockVerdict],
        listed: Callable[[Catalogue], None],
    ) -> None:
        """Prepare a connection; `run` opens it.

        Args:
            server: The server.
            link: The link to it.
            hooks: Answers the server's requests.
            judge: Checks its tools against a lock.
            listed: Called each time it has listed its tools.
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
        self._opening: CallTrace | None = None
        self._headers: dict[str, str] = {}
        self._meta: dict[str, Any] = {}
        self._mirrored: dict[str, dict[tuple[str, ...], str]] = {}

    @property
    def alive(self) -> bool:
        """Whether a new call may use the connection."""
        return not (self.ended or self._link.ended or self._over.is_set())

    async def run(self, ready: Callable[[Exception | None], None], era: Any) -> None:
        """Open the connection, report whether it is ready, and keep it until it ends.

        Args:
            ready: Called with None once the tools are listed, or with the failure.
            era: The protocol era to use.

        Raises:
            Exception: The link failed to open.
        """
        try:
            async with self._link as (read, write):
                self._wire = McpDispatcher(
                    read,
                    write,
                    hooks=self._hooks,
                    over=self._over,
                    patience=self._server.start_timeout,
                    record=self._record_operation,
                )
                began = time.monotonic()
                async with self._session() as session:
                    self._asking = session
                    failure = await self._started(session, era)
                    ready(failure)
                    if failure is None:
                        await self._stay(session)
                        self._record_session(time.monotonic() - began)
        finally:
            self.ended = True
            self._settle()

    def measured(self) -> dict[str, Any]:
        """The memory and number of processes of a server over stdio, by name as in `Usage`; empty over HTTP.

        Other calls may run in the same process, so how much of its processor time a call has used is unknown.
        """
        pid = self._link.pid
        if pid is None:
            return {}
        used = measure_processes(pid)
        return {"memory": used.memory, "processes": used.processes}

    def leave(self) -> None:
        """End the connection after the calls in progress."""
        self._leaving = True
        if not self.calls:
            self._over.set()

    def stop(self) -> None:
        """End the connection immediately."""
        self._over.set()

    async def call(
        self,
        tool: str,
        arguments: dict[str, JSON],
        *,
        progress: OnProgress | None = None,
        wanted: bool = True,
        trace: Mapping[str, str] = NOTHING,
        most: int = OUTPUT_SIZE,
        annotate: Callable[[Mapping[str, str | int]], None] = lambda _attributes: None,
        traffic: Traffic | None = None,
    ) -> dict[str, Any]:
        """Call a tool once, and return the raw response.

        Args:
            tool: The server's name for the tool.
            arguments: The arguments.
            progress: Called with each progress notification.
            wanted: Whether to request them; the idle timeout requests them, too.
            trace: W3C trace context headers, passed on in `_meta`.
            most: Maximum size of the response in bytes.
            annotate: Receives attributes of the request, by the conventions of OpenTelemetry.
            traffic: Counts what is sent and received.

        Raises:
            ProtocolError: The server returned a JSON-RPC error.
            ConnectionLoss: The connection broke, so no response can arrive.
            IdleTimeout: The server was silent for longer than its idle timeout.
            InvalidAnswer: The server requested input too often, or in an invalid form.
            asyncio.CancelledError: The call was cancelled; the server is notified.
        """
        if not self.calls:
            self._hooks.unanswered.clear()
        self.calls += 1
        try:
            with trace_call(most, traffic) as call_trace:
                try:
                    return await self._idle_timer.bear(
                        lambda heard: self._exchange(
                            tool, arguments, _told(progress, heard, wanted=wanted), trace
                        )
                    )
                except MCPError as error:
                    raise self._failure(error, call_trace) from None
                finally:
                    annotate(self._attributes_of(call_trace))
        finally:
            self.calls -= 1
            if self._leaving and not self.calls:
                self._over.set()

    def _attributes_of(self, call_trace: CallTrace) -> dict[str, str | int]:
        given: dict[str, str | int] = {
            "mcp.method.name": "tools/call",
            "mcp.session.id": call_trace.session,
            "jsonrpc.request.id": str(call_trace.request),
        }
        return {
            **{key: value for key, value in given.items() if value},
            **self._transport_attributes(call_trace),
        }

    def _record_operation(
        self, method: str, params: Mapping[str, Any] | None, seconds: float, end: Any
    ) -> None:
        """Record the duration of a request or notification, by the conventions of OpenTelemetry for MCP."""
        record = self._link.record
        if record is record_nothing:
            return
        attributes = {**self._transport_attributes(CALL_TRACE.get()), "mcp.method.name": method}
        if method == "tools/call":
            attributes["gen_ai.operation.name"] = "execute_tool"
            attributes["gen_ai.tool.name"] = str((params or {}).get("name"))
        if isinstance(end, MCPError):
            attributes["error.type"] = attributes["rpc.response.status_code"] = str(end.code)
        elif isinstance(end, BaseException):
            attributes["error.type"] = type(end).__name__
        elif isinstance(end, dict) and end.get("isError") is True:
            attributes["error.type"] = "tool_error"
        record("mcp.client.operation.duration", seconds, attributes)

    def _record_session(self, seconds: float) -> None:
        failed = {"error.type": "connection_lost"} if self._link.ended else {}
        attributes = {**self._transport_attributes(self._opening), **failed}
        self._link.record("mcp.client.session.duration", seconds, attributes)

    def _transport_attributes(self, call_trace: CallTrace | None) -> dict[str, str | int]:
        """The attributes of the server that have few values."""
        over_http = self._server.transport != "stdio"
        host, port = (None if call_trace is None else call_trace.address) or ("", 0)
        given: dict[str, str | int] = {
            "mcp.protocol.version": self._headers.get(MCP_PROTOCOL_VERSION_HEADER, ""),
            "network.transport": "tcp" if over_http else "pipe",
            "network.protocol.name": "http" if over_http else "",
            "server.address": self._link.secrets.hide_in_text(host),
            "server.port": port,
        }
        return {key: value for key, value in given.items() if value}

    def unanswered(self, said: str) -> str:
        """Explain which requests of the server had no hook, for a call that failed with this text; empty if none."""
        return self._hooks.told_of(said, modern=self.modern)

    async def trusted(self) -> None:
        """Wait until a changed tool list has been read again."""
        if self._doubt is not None:
            await self._doubt.wait()

    async def relisted(self) -> None:
        """Read the tool list again, if the connection is alive."""
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
        """Negotiate the version and list the tools; None, or the failure."""
        # Returned, not raised: the SDK's task group would wrap an exception into an ExceptionGroup.
        with trace_call() as call_trace:
            self._opening = call_trace
            try:
                with anyio.fail_after(self._server.start_timeout):
                    await negotiate_version(session, era, self._over, asks=self._hooks.asks)
                    self._know(session)
                    self._put_in_force(await self._listed(session))
            except MCPError as error:
                return self._failure(error, call_trace)
            except (TimeoutError, RuntimeError, ValidationError, InvalidAnswer) as error:
                return error
        return None

    def _know(self, session: ClientSession) -> None:
        """Set the headers and `_meta` that the negotiated version requires in every call."""
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
        """Send a call, and answer the input requests within it (2026-07-28, input required)."""
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
            # The mirrored headers come from an outdated schema. The server rejected the call unexecuted, so repeating
            # it with the current list is safe even for a tool with side effects.
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
        """The responses to an input request, through the same hooks as server-initiated requests."""
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
            await RealClock().sleep(_CALM)  # the server asks for nothing but a retry: do not spin
        state = {} if asked.request_state is None else {"requestState": asked.request_state}
        return {**({"inputResponses": responses} if responses else {}), **state}

    def _failure(self, error: MCPError, call_trace: CallTrace) -> Exception:
        # The SDK raises MCPError both for a server's error and for its own connection failures.
        secrets = self._link.secrets
        if call_trace.trouble is None and error.code != CONNECTION_CLOSED:
            return ProtocolError(error.code, secrets.hide_in_text(error.message), secrets.hide_in(error.data))
        trouble = call_trace.trouble
        if trouble is not None:  # it may quote the target of a redirect
            trouble = trouble._replace(message=secrets.hide_in_text(trouble.message))
        over = trouble is not None and trouble.code == "session_over"
        # A server that does not know the session executes nothing; the client starts a new one (2025-11-25,
        # basic/transports), so the call may be repeated.
        return ConnectionLoss(self._link.ended, begun=call_trace.begun and not over, trouble=trouble)

    async def _listed(self, session: ClientSession) -> Catalogue:
        async def ask(cursor: str | None) -> dict[str, Any]:
            params: dict[str, Any] = {} if cursor is None else {"cursor": cursor}
            headers = {**self._headers, **({MCP_METHOD_HEADER: "tools/list"} if self.modern else {})}
            if self._meta:
                params["_meta"] = self._meta
            try:
                return await self._wire.send_raw_request("tools/list", params or None, {"headers": headers})
            except MCPError as error:
                # A server with only resources or prompts need not implement `tools/list`.
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
        """Mark the tool list as outdated: calls wait until it is read again."""
        if self._doubt is None:
            self._doubt = anyio.Event()
        self._doubted.set()

    def _settle(self) -> None:
        if self._doubt is not None:
            self._doubt.set()
            self._doubt = None

    async def _keep_listed(self, session: ClientSession) -> None:
        """Read the tool list after each change. Changes during a read cause one more read."""
        while True:
            await self._doubted.wait()
            self._doubted = anyio.Event()
            try:
                self._put_in_force(await self._listed(session))
            except (MCPError, InvalidAnswer) as error:
                name, why = self._server.name, clean_text(self._link.secrets.hide_in_text(str(error)))
                _log.warning("cannot refresh the tools of the server `%s`: %s", name, why)
            # Waiting calls have a list from after their change. Waiting for a calm list instead would block them
            # forever if the server changes it without end.
            self._settle()
            if self._doubted.is_set():
                self._doubt = anyio.Event()
            await RealClock().sleep(_CALM)

    async def _subscribe(self, session: ClientSession) -> None:
        """Subscribe to tool list changes (2026-07-28, subscriptions), and renew a lost subscription."""
        pause, renewed = _RENEWED_AFTER, False
        while not self._over.is_set():
            try:
                async with listen(session, tools_list_changed=True) as changes:
                    if not changes.honored.tools_list_changed:
                        return
                    if renewed:
                        self._mark()
                    else:  # a change between the first list and this subscription was not announced
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


def _told(progress: OnProgress | None, heard: Callable[[], None] | None, *, wanted: bool) -> Any:
    """The progress callback for the SDK; None if progress is not requested."""
    if heard is None and (progress is None or not wanted):
        return None

    async def on_progress(done: float, total: float | None, message: str | None) -> None:
        if heard is not None:
            heard()
        # JSON has no NaN or infinity: passing one on would break the next reader.
        if progress is not None and math.isfinite(done):
            whole = total if total is not None and math.isfinite(total) else None
            progress(Progress(done, whole, message or ""))

    return on_progress


def _tells_changes(session: ClientSession) -> bool:
    capabilities = session.server_capabilities
    return bool(capabilities and capabilities.tools and capabilities.tools.list_changed)


def _info(session: ClientSession) -> dict[str, str]:
    """The server information from the handshake, without empty values."""
    server = session.server_info
    told = {
        "name": server.name if server else None,
        "version": server.version if server else None,
        "title": server.title if server else None,
        "instructions": session.instructions,
        "protocol": session.protocol_version,
    }
    return {key: value for key, value in told.items() if value}
