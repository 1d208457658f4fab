"""The methods of a client: what an agent may ask of toolcrib. Requests that are not announced are refused."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from acp.exceptions import RequestError
from acp.meta import CLIENT_METHODS
from acp.schema import (
    ClientCapabilities,
    CreateTerminalRequest,
    FileSystemCapabilities,
    KillTerminalRequest,
    ReadTextFileRequest,
    ReleaseTerminalRequest,
    TerminalOutputRequest,
    WaitForTerminalExitRequest,
    WriteTextFileRequest,
)
from pydantic import BaseModel, ValidationError

from toolcrib.acp.files import AgentFiles
from toolcrib.acp.permissions import (
    Ask,
    PermissionOption,
    PermissionQuestion,
    Permissions,
    ReportedCall,
    option_for,
    parse_options,
)
from toolcrib.acp.terminals import AgentTerminals
from toolcrib.core.errors import did_you_mean
from toolcrib.schema.validation.violations import shorten
from toolcrib.serve.acp.connection import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    METHOD_NOT_FOUND,
    NOT_FOUND,
)

_log = logging.getLogger("toolcrib")

DENIED: Final = -32001
"""Code of the error for a call that is denied, if the agent offers no option that says so."""


class ClientOffer(NamedTuple):
    """What a client does for an agent.

    Attributes:
        reads: Whether it reads files.
        writes: Whether it writes files.
        terminals: Whether it runs commands.
    """

    reads: bool = True
    writes: bool = True
    terminals: bool = True

    def capabilities(self) -> ClientCapabilities:
        """The offer as it is announced."""
        files = FileSystemCapabilities(read_text_file=self.reads, write_text_file=self.writes)
        return ClientCapabilities(fs=files, terminal=self.terminals)


class TurnView:
    """What the methods need to know about the sessions and turns of an agent.

    Attributes:
        session: ID of the session; empty before there is one.
        calls: The reported calls by ID.
        cancelled: Set when the turn is cancelled or over; None while no turn runs.
    """

    def __init__(self) -> None:
        self.session = ""
        self.calls: dict[str, ReportedCall] = {}
        self.cancelled: asyncio.Event | None = None

    def follow(self, message: Any) -> None:
        """Remember what a message of the agent says about a call."""
        params = message.get("params") if message.get("method") == CLIENT_METHODS["session_update"] else None
        update = params.get("update") if isinstance(params, dict) else None
        if not isinstance(update, dict):
            return
        id_ = update.get("toolCallId")
        if update.get("sessionUpdate") in {"tool_call", "tool_call_update"} and isinstance(id_, str):
            self.calls[id_] = self.calls.get(id_, ReportedCall(id_)).updated(update)


class ClientMethods:
    """Answers the requests of an agent.

    Args:
        offer: What is announced.
        files: Reads and writes files.
        permissions: Decides about calls.
        ask: Asks a person; None if nobody can be asked.
        view: The session and its turn.
        report: Receives the code and the message of what the agent did wrong.
        cwd: Working directory of commands.
    """

    def __init__(
        self,
        offer: ClientOffer,
        files: AgentFiles,
        permissions: Permissions,
        *,
        ask: Ask | None,
        view: TurnView,
        report: Callable[[str, str], None],
        cwd: str,
    ) -> None:
        self._files = files
        self._permissions = permissions
        self._ask = ask
        self.view = view
        self._report = report
        self._cwd = cwd
        self.terminals = AgentTerminals(files)
        self._methods: dict[str, tuple[type[BaseModel], Callable[[Any], Awaitable[dict[str, Any]]]]] = {}
        if offer.reads:
            self._methods[CLIENT_METHODS["fs_read_text_file"]] = (ReadTextFileRequest, self._read)
        if offer.writes:
            self._methods[CLIENT_METHODS["fs_write_text_file"]] = (WriteTextFileRequest, self._write)
        if offer.terminals:
            self._methods |= {
                CLIENT_METHODS["terminal_create"]: (CreateTerminalRequest, self._create),
                CLIENT_METHODS["terminal_output"]: (TerminalOutputRequest, self._output),
                CLIENT_METHODS["terminal_wait_for_exit"]: (WaitForTerminalExitRequest, self._wait),
                CLIENT_METHODS["terminal_kill"]: (KillTerminalRequest, self._kill),
                CLIENT_METHODS["terminal_release"]: (ReleaseTerminalRequest, self._release),
            }

    async def close(self) -> None:
        """Release all terminals."""
        await self.terminals.close()

    async def handle(self, method: str, params: Any, is_notification: bool) -> dict[str, Any] | None:
        """Answer a request; unknown notifications are ignored, as the protocol requires."""
        if is_notification:
            return None
        try:
            if method == CLIENT_METHODS["session_request_permission"]:
                return await self._permit(params)
            return await self._answer(method, params)
        except RequestError:
            raise
        except Exception as error:  # the SDK would send its text to the agent
            _log.exception("a bug in `%s` of ACP", method)
            raise RequestError(INTERNAL_ERROR, "Internal error") from error

    async def _answer(self, method: str, params: Any) -> dict[str, Any]:
        if method not in self._methods:
            near = did_you_mean(method, self._methods)
            told = f"Method not found: `{shorten(method)}`"
            if method in CLIENT_METHODS.values():
                told += ", which this client has not announced"
            raise RequestError(METHOD_NOT_FOUND, f"{told}; {near}" if near else told, {"method": method})
        kind, answer = self._methods[method]
        try:
            request: Any = kind.model_validate(params)
        except ValidationError as error:
            fault = error.errors(include_url=False, include_context=False, include_input=False)[0]
            where = "/".join(["", *map(str, fault["loc"])]) or "/"
            raise RequestError(
                INVALID_PARAMS, f"invalid parameters of `{method}`: {where}: {fault['msg']}"
            ) from None
        self._check_session(request.session_id)
        return await answer(request)

    def _check_session(self, session: Any) -> None:
        if session != self.view.session:
            shown = shorten(str(session))
            self._problem("unknown_session", f"the agent sent a request of the unknown session `{shown}`")
            raise RequestError(NOT_FOUND, f"unknown session `{shown}`")

    # Files.

    async def _read(self, request: ReadTextFileRequest) -> dict[str, Any]:
        self._check_rules(
            ReportedCall("", kind="read", arguments={"path": request.path}, paths=(request.path,))
        )
        return {"content": self._files.read(request.path, request.line, request.limit)}

    async def _write(self, request: WriteTextFileRequest) -> dict[str, Any]:
        self._check_rules(
            ReportedCall("", kind="edit", arguments={"path": request.path}, paths=(request.path,))
        )
        self._files.write(request.path, request.content)
        return {}

    def _check_rules(self, call: ReportedCall) -> None:
        """Refuse what the rules deny. Agents ask for permission before, so that nobody is asked here."""
        why = self._permissions.why_denied(call)
        if why:
            raise RequestError(DENIED, f"refused: {why}")

    # Terminals.

    async def _create(self, request: CreateTerminalRequest) -> dict[str, Any]:
        why = self._permissions.why_command_denied(" ".join([request.command, *(request.args or ())]))
        if why:
            raise RequestError(DENIED, f"refused: {why}")
        env = {each.name: each.value for each in request.env or ()}
        terminal = await self.terminals.create(
            request.command, request.args or (), env, request.cwd or self._cwd, request.output_byte_limit
        )
        return {"terminalId": terminal}

    async def _output(self, request: TerminalOutputRequest) -> dict[str, Any]:
        return self.terminals.find(request.terminal_id).output()

    async def _wait(self, request: WaitForTerminalExitRequest) -> dict[str, Any]:
        return await self.terminals.find(request.terminal_id).wait()

    async def _kill(self, request: KillTerminalRequest) -> dict[str, Any]:
        await self.terminals.find(request.terminal_id).kill()
        return {}

    async def _release(self, request: ReleaseTerminalRequest) -> dict[str, Any]:
        await self.terminals.release(request.terminal_id)
        return {}

    # Permissions.

    async def _permit(self, params: Any) -> dict[str, Any]:
        if not isinstance(params, dict) or not isinstance(params.get("toolCall"), dict):
            raise RequestError(INVALID_PARAMS, "`session/request_permission` needs a `toolCall`")
        told: dict[str, Any] = params["toolCall"]
        self._check_session(params.get("sessionId"))
        id_ = told.get("toolCallId")
        if not isinstance(id_, str):
            raise RequestError(INVALID_PARAMS, "`toolCall` needs a `toolCallId`")
        options, unknown = parse_options(params.get("options"))
        for kind in unknown:
            self._problem(
                "unknown_option",
                f"the agent offers an option of the unknown kind `{kind}`; it is never selected",
            )
        cancelled = self.view.cancelled
        if cancelled is None:
            self._problem(
                "stray_permission", f"the agent asks about the call `{shorten(id_)}` while no turn runs"
            )
            return {"outcome": {"outcome": "cancelled"}}
        call = self.view.calls[id_] = self.view.calls.get(id_, ReportedCall(id_)).updated(told)
        # The protocol: a client answers `cancelled` to every open question of a cancelled turn, and to no other.
        deciding = asyncio.ensure_future(self._decide(call, options))
        ending = asyncio.ensure_future(cancelled.wait())
        try:
            await asyncio.wait({deciding, ending}, return_when=asyncio.FIRST_COMPLETED)
            if cancelled.is_set():
                return {"outcome": {"outcome": "cancelled"}}
            option, why = deciding.result()
        finally:
            for task in (deciding, ending):
                task.cancel()
            await asyncio.wait({deciding, ending})
        if option is None:
            raise RequestError(DENIED, f"the call is not permitted: {why}")
        return {"outcome": {"outcome": "selected", "optionId": option.id}}

    async def _decide(
        self, call: ReportedCall, options: list[PermissionOption]
    ) -> tuple[PermissionOption | None, str]:
        """The option to select, and why; None if no option says what was decided."""
        effect, why = self._permissions.decide(call)
        if effect == "ask":
            if self._ask is None:
                effect, why = "deny", why or "no user was available to ask"
            else:
                selected = await self._ask(PermissionQuestion(call, tuple(options), why))
                if selected is not None and selected in options:
                    return selected, "a person decided"
                if selected is not None:
                    self._problem(
                        "unknown_option", f"the selected option `{shorten(selected.id)}` was not offered"
                    )
                effect, why = "deny", "a person rejected it"
        option = option_for(effect, options)
        if option is None and effect == "allow":
            # Nothing permits only this call, and nobody has permitted more.
            option, why = option_for("deny", options), "the agent offers no option that allows it once"
        return option, why

    def _problem(self, code: str, message: str) -> None:
        self._report(code, message)
