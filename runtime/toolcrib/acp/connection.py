"""The connection to an agent: the requests that a client makes, and the way of the agent's requests to their handler.

The SDK numbers requests, matches their answers, and runs the handler.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from acp import PROTOCOL_VERSION
from acp.connection import Connection, MethodHandler
from acp.exceptions import RequestError
from acp.meta import AGENT_METHODS, CLIENT_METHODS
from acp.schema import (
    AuthenticateRequest,
    CancelNotification,
    ClientCapabilities,
    Implementation,
    InitializeRequest,
    InitializeResponse,
    LoadSessionRequest,
    LoadSessionResponse,
    NewSessionRequest,
    NewSessionResponse,
    PromptRequest,
    ResumeSessionRequest,
    ResumeSessionResponse,
    SetSessionModeRequest,
)
from pydantic import BaseModel, ValidationError

from toolcrib import __version__
from toolcrib.acp.agent import AgentFailure
from toolcrib.acp.agent_process import AgentProcess
from toolcrib.core.model import JSON
from toolcrib.schema.validation.violations import shorten
from toolcrib.serve.acp.connection import as_json

AUTH_REQUIRED: Final = -32000

_EARLIER: Final[Mapping[str, tuple[Any, type[BaseModel]]]] = {
    "load": (LoadSessionRequest, LoadSessionResponse),
    "resume": (ResumeSessionRequest, ResumeSessionResponse),
}


class _Transport:
    """A transport of the SDK's connection, which never sees updates of sessions and answers to no request.

    The connection would handle each update in a task of its own; the lines of the process are seen in order.
    """

    def __init__(self, process: AgentProcess) -> None:
        self._process = process
        self._requests: set[JSON] = set()

    async def send(self, message: dict[str, Any]) -> None:
        if "method" in message:
            self._requests.add(message.get("id"))
            await self._process.send(message)
            return
        # The agent may end while its request is answered.
        with suppress(ConnectionError):
            await self._process.send(message)

    async def receive(self) -> dict[str, Any] | None:
        while (message := await self._process.receive()) is not None:
            method, number = message.get("method"), message.get("id")
            if method is None and isinstance(number, str | int) and number in self._requests:
                self._requests.discard(number)
                return message
            if isinstance(method, str) and method != CLIENT_METHODS["session_update"]:
                return message
        return None

    async def close(self) -> None:
        await self._process.close()


class AcpConnection:
    """The methods of an agent.

    Every method raises AgentFailure if the agent refuses, answers without the form of the protocol, or ends.

    Args:
        process: The agent.
        handle: Answers the agent's requests.
    """

    def __init__(self, process: AgentProcess, handle: MethodHandler) -> None:
        self._process = process
        transport: Any = _Transport(process)
        self._connection = Connection(handle, transport, listening=False)
        self._listening = asyncio.create_task(self._connection.main_loop())

    async def close(self) -> None:
        """Stop answering the agent."""
        await self._connection.close()
        self._listening.cancel()
        await asyncio.wait({self._listening})

    async def ended(self) -> None:
        """Wait until the agent has ended and everything that it wrote was read."""
        await asyncio.wait({self._listening})

    version: Final = PROTOCOL_VERSION
    """The version of the protocol that is spoken."""

    async def initialize(self, capabilities: ClientCapabilities, name: str) -> dict[str, Any]:
        """Agree about the version of the protocol, and about what both sides can do."""
        request = InitializeRequest(
            protocol_version=PROTOCOL_VERSION,
            client_capabilities=capabilities,
            client_info=Implementation(name=name, version=__version__),
        )
        return await self._request("initialize", request, InitializeResponse)

    async def authenticate(self, method: str) -> None:
        """Log in with one of the methods that the agent announced."""
        await self._send("authenticate", AuthenticateRequest(method_id=method))

    async def open_session(self, how: str, session: str, cwd: str, servers: Sequence[Any]) -> dict[str, Any]:
        """Open a session.

        Args:
            how: `new`, `load` for an earlier session whose updates are repeated first, or `resume` for one without them.
            session: ID of the earlier session.
            cwd: Working directory.
            servers: The MCP servers that the agent may use.
        """
        if how == "new":
            return await self._request(
                "session_new", NewSessionRequest(cwd=cwd, mcp_servers=[*servers]), NewSessionResponse
            )
        asks, told = _EARLIER[how]
        return await self._request(
            f"session_{how}", asks(session_id=session, cwd=cwd, mcp_servers=[*servers]), told
        )

    async def set_mode(self, session: str, mode: str) -> None:
        """Change the mode of a session."""
        await self._send("session_set_mode", SetSessionModeRequest(session_id=session, mode_id=mode))

    async def prompt(self, session: str, blocks: Sequence[Any]) -> dict[str, Any]:
        """Send a message of the user, and return the answer at the end of the turn as it is on the wire."""
        told = await self._send("session_prompt", PromptRequest(session_id=session, prompt=[*blocks]))
        if not isinstance(told, dict) or not isinstance(told.get("stopReason"), str):
            raise _invalid("session_prompt", "stopReason", "it is missing")
        return told

    async def cancel(self, session: str) -> None:
        """Cancel the turn of a session."""
        request = CancelNotification(session_id=session)
        try:
            await self._connection.send_notification(AGENT_METHODS["session_cancel"], as_json(request))
        except ConnectionError:
            raise await self._gone() from None

    async def _send(self, method: str, request: BaseModel) -> Any:
        try:
            return await self._connection.send_request(AGENT_METHODS[method], as_json(request))
        except RequestError as error:
            raise _refusal(AGENT_METHODS[method], error) from None
        except ConnectionError:
            raise await self._gone() from None

    async def _request(self, method: str, request: BaseModel, kind: type[BaseModel]) -> dict[str, Any]:
        told = await self._send(method, request)
        try:
            # Some agents answer `session/load` with null.
            return as_json(kind.model_validate({} if told is None else told))
        except ValidationError as error:
            fault = error.errors()[0]
            where = ".".join(map(str, fault["loc"]))
            raise _invalid(method, where, str(fault["msg"])) from None

    async def _gone(self) -> AgentFailure:
        await self._process.gone()
        how = self._process.ended
        words = self._process.last_words()
        said = f"; its last output on stderr:\n{words[-2000:]}" if words else ""
        return AgentFailure(
            f"the agent {how}{said}", code="agent_ended", hint="the next prompt starts it again"
        )


def _invalid(method: str, where: str, why: str) -> AgentFailure:
    message = f"the agent answered `{AGENT_METHODS[method]}` without a valid `{where}`: {why}"
    return AgentFailure(message, code="invalid_response")


def _refusal(method: str, error: RequestError) -> AgentFailure:
    details = "" if error.data is None else f" ({shorten(str(error.data))})"
    code = "authentication_needed" if error.code == AUTH_REQUIRED else "agent_refused"
    return AgentFailure(f"the agent refused `{method}`: {error}{details} [{error.code}]", code=code)
