"""The connection to an editor: JSON lines in both directions, and the requests that an agent makes."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

from acp.connection import Connection, MethodHandler
from acp.exceptions import RequestError
from acp.meta import CLIENT_METHODS
from acp.schema import (
    CreateTerminalRequest,
    CreateTerminalResponse,
    KillTerminalRequest,
    PermissionOption,
    ReadTextFileRequest,
    ReadTextFileResponse,
    ReleaseTerminalRequest,
    RequestPermissionRequest,
    RequestPermissionResponse,
    TerminalOutputRequest,
    TerminalOutputResponse,
    ToolCallUpdate,
    WaitForTerminalExitRequest,
    WaitForTerminalExitResponse,
    WriteTextFileRequest,
)
from pydantic import BaseModel, ValidationError

from toolcrib.core.model import NOTHING
from toolcrib.core.text import compact
from toolcrib.serve.acp.connection_observer import ConnectionObserver
from toolcrib.serve.http_common.asgi import InvalidMessage, parse_message
from toolcrib.serve.http_common.stdio_pipes import OversizedLine, StdioPipes

M = TypeVar("M", bound=BaseModel)

INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
NOT_FOUND: Final = -32002

_SHOWN: Final = 200
"""Bytes of an invalid line that an observer sees."""


class LineTransport:
    """Messages as lines of JSON: a transport of the SDK's connection.

    A line that is not a message is answered with its error, and the next line is read. The observer sees every message of both
    sides.
    """

    def __init__(self, pipes: StdioPipes, observer: ConnectionObserver) -> None:
        self._pipes = pipes
        self._lines = pipes.lines()
        self._observer = observer
        self._over = False

    async def send(self, message: dict[str, Any]) -> None:
        """Write a message.

        Raises:
            ConnectionError: The editor has disconnected.
        """
        if not self._over:  # what is answered then reaches nobody
            self._observer.message("agent", message)
        try:
            data = compact(message).encode()
        except ValueError:  # a lone surrogate has no UTF-8 form and must be escaped
            data = json.dumps(message).encode()
        await self._pipes.write(data + b"\n")
        if self._pipes.broken.is_set():
            raise ConnectionError("the editor has disconnected")

    async def receive(self) -> dict[str, Any] | None:
        """The next message; None once the editor has disconnected."""
        async for line in self._lines:
            if isinstance(line, OversizedLine):
                await self._refuse(b"", INVALID_REQUEST, f"The message exceeds {line.limit} bytes")
                continue
            try:
                message = parse_message(line)
            except InvalidMessage as error:
                await self._refuse(line, error.code, str(error), error.request)
                continue
            if isinstance(message, dict):
                self._observer.message("client", message)
                return message
            await self._refuse(line, INVALID_REQUEST, "Invalid Request")
        self._over = True
        return None

    async def close(self) -> None:
        """Do nothing: the pipes belong to the caller."""

    async def _refuse(self, line: bytes, number: int, text: str, request: str | int | None = None) -> None:
        self._observer.invalid_line("client", text, line[:_SHOWN].decode(errors="replace"))
        with suppress(ConnectionError):
            await self.send({"jsonrpc": "2.0", "id": request, "error": {"code": number, "message": text}})


def as_json(model: BaseModel) -> dict[str, Any]:
    """A message of the protocol without the fields that are not set."""
    told: dict[str, Any] = model.model_dump(mode="json", by_alias=True, exclude_none=True)
    return told


class Editor:
    """The editor, with the methods that the protocol gives it.

    Every method raises RequestError if the editor refuses, and ConnectionError if it has disconnected. An answer that does
    not have the form of the protocol counts as a refusal.

    Args:
        handler: Answers the requests of the editor.
        pipes: stdin and stdout.
        observer: Sees every message.
    """

    def __init__(self, handler: MethodHandler, pipes: StdioPipes, observer: ConnectionObserver) -> None:
        self._connection = Connection(handler, LineTransport(pipes, observer), listening=False)

    async def listen(self) -> None:
        """Answer requests until the editor disconnects."""
        await self._connection.main_loop()

    async def close(self) -> None:
        """Cancel what is being answered."""
        await self._connection.close()

    async def update(
        self, session: str, update: Mapping[str, Any], meta: Mapping[str, str] = NOTHING
    ) -> None:
        """Report an update of a session."""
        params: dict[str, Any] = {"sessionId": session, "update": dict(update)}
        if meta:
            params["_meta"] = dict(meta)
        await self._connection.send_notification(CLIENT_METHODS["session_update"], params)

    async def ask(
        self,
        session: str,
        call: ToolCallUpdate,
        options: Sequence[PermissionOption],
        meta: Mapping[str, str] = NOTHING,
    ) -> RequestPermissionResponse:
        """Ask the user to permit a call."""
        request = RequestPermissionRequest(session_id=session, tool_call=call, options=[*options])
        return await self._request("session_request_permission", request, RequestPermissionResponse, meta)

    async def read(self, session: str, path: str, line: int | None = None, limit: int | None = None) -> str:
        """The text of a file, with the unsaved changes of the editor.

        Args:
            session: ID of the session.
            path: Absolute path.
            line: First line, from 1.
            limit: Maximum number of lines.
        """
        request = ReadTextFileRequest(session_id=session, path=path, line=line, limit=limit)
        return (await self._request("fs_read_text_file", request, ReadTextFileResponse)).content

    async def write(self, session: str, path: str, content: str) -> None:
        """Replace the text of a file, or create it."""
        request = WriteTextFileRequest(session_id=session, path=path, content=content)
        await self._send("fs_write_text_file", request)

    async def start(self, session: str, command: Sequence[str], cwd: str, limit: int) -> str:
        """Start a program with its arguments in a terminal, and return the terminal."""
        program, *arguments = command
        request = CreateTerminalRequest(
            session_id=session, command=program, args=arguments, cwd=cwd, output_byte_limit=limit
        )
        return (await self._request("terminal_create", request, CreateTerminalResponse)).terminal_id

    async def output(self, session: str, terminal: str) -> TerminalOutputResponse:
        """What a terminal shows, and how its command ended."""
        request = TerminalOutputRequest(session_id=session, terminal_id=terminal)
        return await self._request("terminal_output", request, TerminalOutputResponse)

    async def wait(self, session: str, terminal: str) -> WaitForTerminalExitResponse:
        """Wait until the command of a terminal ends."""
        request = WaitForTerminalExitRequest(session_id=session, terminal_id=terminal)
        return await self._request("terminal_wait_for_exit", request, WaitForTerminalExitResponse)

    async def kill(self, session: str, terminal: str) -> None:
        """End the command of a terminal, whose output can still be read."""
        await self._send("terminal_kill", KillTerminalRequest(session_id=session, terminal_id=terminal))

    async def release(self, session: str, terminal: str) -> None:
        """Give a terminal back."""
        await self._send("terminal_release", ReleaseTerminalRequest(session_id=session, terminal_id=terminal))

    async def _send(self, method: str, request: BaseModel, meta: Mapping[str, str] = NOTHING) -> Any:
        params = as_json(request)
        if meta:
            params["_meta"] = dict(meta)
        return await self._connection.send_request(CLIENT_METHODS[method], params)

    async def _request(
        self, method: str, request: BaseModel, kind: type[M], meta: Mapping[str, str] = NOTHING
    ) -> M:
        answer = await self._send(method, request, meta)
        try:
            return kind.model_validate(answer)
        except ValidationError as error:
            fault = error.errors()[0]
            where = ".".join(map(str, fault["loc"]))
            raise RequestError(
                INVALID_PARAMS,
                f"the client answered `{CLIENT_METHODS[method]}` without a valid `{where}`: {fault['msg']}",
            ) from None


async def finished(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Cancel tasks and wait until they have ended."""
    for task in tasks:
        task.cancel()
    if tasks:
        await asyncio.wait(tasks)
