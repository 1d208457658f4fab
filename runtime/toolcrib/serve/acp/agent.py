"""The agent: the methods of the protocol, over the sessions of one editor.

The SDK has a router that calls methods of an object. It answers methods that a subclass of its `Agent` does not have with
success, passes the keys of `_meta` as arguments, and sends the text of exceptions to the client. This module uses the SDK's
connection and its messages, and has its own table of methods.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from acp import PROTOCOL_VERSION
from acp.exceptions import RequestError
from acp.meta import AGENT_METHODS
from acp.schema import (
    CancelNotification,
    CloseSessionRequest,
    DeleteSessionRequest,
    InitializeRequest,
    ListSessionsRequest,
    LoadSessionRequest,
    NewSessionRequest,
    PromptRequest,
    ResumeSessionRequest,
    SetSessionModeRequest,
)
from pydantic import BaseModel, ValidationError

from toolcrib import __version__
from toolcrib.core.errors import ConfigurationError, ToolcribError, did_you_mean
from toolcrib.core.text import escape_terminal
from toolcrib.provider.conversations import new_id
from toolcrib.schema.validation.violations import shorten
from toolcrib.serve.acp.connection import (
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    NOT_FOUND,
    Editor,
    as_json,
)
from toolcrib.serve.acp.connection_observer import ConnectionObserver
from toolcrib.serve.acp.editor_agent import EditorAgent
from toolcrib.serve.acp.recordings import Recorder
from toolcrib.serve.acp.session import MODES, AgentSession
from toolcrib.serve.acp.updates import META, prompt_parts
from toolcrib.serve.http_common.lifecycle import Shutdown, opening_line
from toolcrib.serve.http_common.listen_address import Say
from toolcrib.serve.http_common.stdio_pipes import StdioPipes
from toolcrib.serve.http_common.trace_context import trace_in

if TYPE_CHECKING:
    from toolcrib.engine.runtime import Runtime

UNKNOWN_CONVERSATION: Final = "unknown_conversation"

LONGEST_LINE: Final = 128 << 20
"""Maximum length of a message in bytes: prompts carry images and files."""

_log = logging.getLogger("toolcrib")


class AcpAgent:
    """An agent for one editor.

    Args:
        runtime: The tools; already entered.
        options: The model, and which tools it may use.
        say: Prints a line for the user, on stderr.
        pipes: stdin and stdout.
        observer: Sees every message.
    """

    def __init__(
        self,
        runtime: Runtime,
        options: EditorAgent,
        say: Say,
        pipes: StdioPipes,
        observer: ConnectionObserver,
    ) -> None:
        self._runtime = runtime
        self._options = options
        self._say = say
        self._editor = Editor(self._handle, pipes, observer)
        self._sessions: dict[str, AgentSession] = {}
        self._capabilities: frozenset[str] | None = None
        self._methods: Mapping[
            str, tuple[type[BaseModel], Callable[[Any], Awaitable[dict[str, Any] | None]]]
        ] = {
            AGENT_METHODS["initialize"]: (InitializeRequest, self._initialize),
            AGENT_METHODS["session_new"]: (NewSessionRequest, self._new),
            **(
                {
                    AGENT_METHODS["session_load"]: (LoadSessionRequest, self._load),
                    AGENT_METHODS["session_resume"]: (ResumeSessionRequest, self._resume),
                    AGENT_METHODS["session_list"]: (ListSessionsRequest, self._list),
                    AGENT_METHODS["session_delete"]: (DeleteSessionRequest, self._delete),
                }
                if options.store is not None
                else {}
            ),
            AGENT_METHODS["session_close"]: (CloseSessionRequest, self._close),
            AGENT_METHODS["session_set_mode"]: (SetSessionModeRequest, self._set_mode),
            AGENT_METHODS["session_prompt"]: (PromptRequest, self._prompt),
            AGENT_METHODS["session_cancel"]: (CancelNotification, self._cancel),
        }

    async def serve(self) -> None:
        """Answer the editor until it disconnects."""
        await self._editor.listen()

    async def aclose(self) -> None:
        """Cancel what is running, and release the sessions."""
        await asyncio.gather(*(session.close() for session in self._sessions.values()))
        await self._editor.close()

    # Messages.

    async def _handle(self, method: str, params: Any, is_notification: bool) -> dict[str, Any] | None:
        """Answer a request, or act on a notification; unknown notifications are ignored, as the protocol requires."""
        if method not in self._methods:
            if is_notification:
                return None
            near = did_you_mean(method, self._methods)
            told = f"Method not found: `{shorten(method)}`"
            raise RequestError(METHOD_NOT_FOUND, f"{told}; {near}" if near else told, {"method": method})
        kind, answer = self._methods[method]
        try:
            request = kind.model_validate(params)
        except ValidationError as error:
            faults = [
                {"at": "/".join(["", *map(str, each["loc"])]), "message": each["msg"]}
                for each in error.errors(include_url=False, include_context=False, include_input=False)
            ]
            told = f"invalid parameters of `{method}`: {faults[0]['at'] or '/'}: {faults[0]['message']}"
            raise RequestError(INVALID_PARAMS, told, {"faults": faults}) from None
        try:
            return await answer(request)
        except (RequestError, ConnectionError):
            raise
        except ToolcribError as error:
            raise RequestError(INTERNAL_ERROR, error.message, {"code": error.code}) from error
        except Exception as error:  # the SDK would send its text to the editor
            _log.exception("a bug in `%s` of ACP", method)
            raise RequestError(INTERNAL_ERROR, "Internal error") from error

    async def _initialize(self, request: InitializeRequest) -> dict[str, Any]:
        self._capabilities = _announced(request)
        project = self._runtime.project
        return {
            # The agent answers with a version that it speaks; there is only one.
            "protocolVersion": PROTOCOL_VERSION,
            "agentCapabilities": {
                "promptCapabilities": {"image": True, "audio": True, "embeddedContext": True},
                "loadSession": self._options.store is not None,
                "sessionCapabilities": {
                    "close": {},
                    **({"list": {}, "resume": {}, "delete": {}} if self._options.store is not None else {}),
                },
            },
            "agentInfo": {
                "name": self._options.name,
                "title": (project.name if project is not None else "") or self._options.name,
                "version": __version__,
            },
            "authMethods": [],
        }

    async def _new(self, request: NewSessionRequest) -> dict[str, Any]:
        session = self._opened(new_id(), request.cwd, request.mcp_servers)
        return {"sessionId": session.id, "modes": session.modes(), "_meta": {META: session.facts()}}

    def _opened(self, id_: str, cwd: str, servers: Any) -> AgentSession:
        if self._capabilities is None:
            raise RequestError(INVALID_REQUEST, "send `initialize` before opening a session")
        if not os.path.isabs(cwd):
            raise RequestError(INVALID_PARAMS, f"`cwd` must be an absolute path, got `{shorten(cwd)}`")
        if servers:
            named = ", ".join(f"`{escape_terminal(each.name)}`" for each in servers)
            self._say(
                f"the MCP servers of the editor are not used: {named}; add them to `servers` of the project"
            )
        session = AgentSession(
            self._editor, self._runtime, self._options, id=id_, cwd=cwd, capabilities=self._capabilities
        )
        self._sessions[id_] = session
        return session

    async def _load(self, request: LoadSessionRequest) -> dict[str, Any]:
        session, shown = await self._reopened(request.session_id, request.cwd, request.mcp_servers)
        await session.replay(shown)
        return {"modes": session.modes(), "_meta": {META: session.facts()}}

    async def _resume(self, request: ResumeSessionRequest) -> dict[str, Any]:
        session, _shown = await self._reopened(request.session_id, request.cwd, request.mcp_servers)
        return {"modes": session.modes(), "_meta": {META: session.facts()}}

    async def _reopened(self, id_: str, cwd: str, servers: Any) -> tuple[AgentSession, list[dict[str, Any]]]:
        before = self._sessions.get(id_)
        if before is not None:
            # The editor has forgotten its session, or shows it once more.
            await before.close()
        session = self._opened(id_, cwd, servers)
        try:
            return session, session.restore()
        except ConfigurationError as error:
            del self._sessions[id_]
            await session.close()
            raise _unusable(error) from None

    async def _list(self, request: ListSessionsRequest) -> dict[str, Any]:
        store = self._options.store
        known = () if store is None else store.list()
        return {
            "sessions": [
                {
                    "sessionId": each.id,
                    "cwd": each.cwd,
                    "title": each.title,
                    "updatedAt": datetime.fromtimestamp(each.updated, UTC).isoformat(),
                }
                for each in known
                if request.cwd in {None, each.cwd}
            ]
        }

    async def _close(self, request: CloseSessionRequest) -> dict[str, Any]:
        session = self._session(request.session_id)
        del self._sessions[session.id]
        await session.close()
        return {}

    async def _delete(self, request: DeleteSessionRequest) -> dict[str, Any]:
        store, session = self._options.store, self._sessions.pop(request.session_id, None)
        assert store is not None  # noqa: S101 -- the agent has the method only with a store
        if session is not None:
            await session.close()
        try:
            store.delete(request.session_id)
        except ConfigurationError as error:
            # A session in which nothing was said is not stored.
            if session is not None and error.code == UNKNOWN_CONVERSATION:
                return {}
            raise _unusable(error) from None
        return {}

    async def _set_mode(self, request: SetSessionModeRequest) -> dict[str, Any]:
        session = self._session(request.session_id)
        if request.mode_id not in MODES:
            near = did_you_mean(request.mode_id, MODES) or f"the modes are {', '.join(MODES)}"
            raise RequestError(INVALID_PARAMS, f"unknown mode `{shorten(request.mode_id)}`; {near}")
        session.mode = request.mode_id
        return {}

    async def _prompt(self, request: PromptRequest) -> dict[str, Any]:
        session = self._session(request.session_id)
        try:
            parts = prompt_parts(request.prompt)
        except ValueError as error:
            raise RequestError(INVALID_PARAMS, str(error)) from None
        if not any(part.strip() if isinstance(part, str) else True for part in parts):
            raise RequestError(INVALID_PARAMS, "the prompt is empty")
        blocks = [as_json(block) for block in request.prompt]
        return await session.prompt(parts, blocks, trace_in(request.field_meta or {}))

    async def _cancel(self, request: CancelNotification) -> None:
        # A notification has no answer, so a session that does not exist (any more) is only logged.
        session = self._sessions.get(request.session_id)
        if session is None:
            _log.warning(
                "`session/cancel` of the unknown session `%s`", shorten(escape_terminal(request.session_id))
            )
            return
        session.cancel()

    def _session(self, id_: str) -> AgentSession:
        session = self._sessions.get(id_)
        if session is None:
            raise RequestError(NOT_FOUND, f"unknown session `{shorten(id_)}`", {"sessionId": id_})
        return session


def _unusable(error: ConfigurationError) -> RequestError:
    """The error of a stored session that cannot be used."""
    number = NOT_FOUND if error.code == UNKNOWN_CONVERSATION else INTERNAL_ERROR
    return RequestError(number, f"{error.message}; {error.hint}", {"code": error.code})


def _announced(request: InitializeRequest) -> frozenset[str]:
    """The capabilities of a client, as `requires` of tools names them."""
    has = request.client_capabilities
    files = None if has is None else has.fs
    return frozenset(
        name
        for name, is_so in (
            ("client.fs.read_text_file", files is not None and files.read_text_file),
            ("client.fs.write_text_file", files is not None and files.write_text_file),
            ("client.terminal", has is not None and has.terminal),
        )
        if is_so
    )


async def serve_pipes(
    runtime: Runtime, options: EditorAgent, say: Say, pipes: StdioPipes, shutdown: Shutdown
) -> None:
    """Serve the editor at the other end of pipes until it disconnects or a signal arrives.

    Args:
        runtime: The tools; already entered.
        options: The model, and which tools it may use.
        say: Prints a line for the user, on stderr.
        pipes: stdin and stdout. If stdout cannot be written to, serving ends, and `pipes.error` has the reason.
        shutdown: The requests to stop.
    """
    observer = ConnectionObserver(
        recorder=None if options.record is None else Recorder(options.record, by="agent", name="editor"),
        warn=lambda finding: say(f"ACP: {escape_terminal(str(finding))}"),
        patience=options.patience,
    )
    agent = AcpAgent(runtime, options, say, pipes, observer)
    say(opening_line(runtime, "", "to an editor over ACP"))
    ends = [
        asyncio.create_task(work)
        for work in (agent.serve(), shutdown.asked.wait(), pipes.broken.wait(), observer.watch())
    ]
    try:
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    finally:
        pipes.stop()
        await agent.aclose()
        observer.ended("the agent was stopped" if shutdown.asked.is_set() else "the editor disconnected")
        observer.close()
        for task in ends[1:]:
            task.cancel()
        await asyncio.wait(ends)
