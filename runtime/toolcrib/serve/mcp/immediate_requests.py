"""Requests that never wait in sessions of handshake revisions, answered without the SDK's transport.

The transport takes a request through three memory streams and three tasks, so that it can be cancelled and its answer can
be an event stream. A request that never waits needs neither, and all that is two thirds of the server's work for it. It
goes directly to the `ServerRunner` of its session, as every request does since 2026-07-28. There the SDK still validates
request and result, and runs its middleware. What is not clearly such a request goes through the transport, which refuses
what is invalid.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple, NoReturn

import anyio
from mcp.server import Server
from mcp.server.connection import Connection
from mcp.server.runner import ServerRunner
from mcp.shared.dispatcher import CallOptions
from mcp.shared.exceptions import NoBackChannelError
from mcp.shared.jsonrpc_dispatcher import handler_exception_to_error_data
from mcp.shared.message import ServerMessageMetadata
from mcp.shared.transport_context import TransportContext
from mcp.types import JSONRPCError, JSONRPCResponse, RequestId
from mcp_types.version import LATEST_HANDSHAKE_VERSION

from toolcrib.core.dependencies import MissingMember
from toolcrib.core.model import JSON

_MEMBERS: Final = frozenset({"jsonrpc", "id", "method", "params"})
_TRANSPORT: Final = TransportContext(kind="streamable-http", can_send_request=False)


def is_plain_request(message: Mapping[str, JSON]) -> bool:
    """Whether a message is a request as JSON-RPC defines it, without members of its own."""
    number = message.get("id")
    return (
        message.keys() <= _MEMBERS
        and message.get("jsonrpc") == "2.0"
        and (type(number) is str or type(number) is int)
        and isinstance(message.get("method"), str)
    )


def takes_json(headers: Mapping[bytes, bytes]) -> bool:
    """Whether a request is JSON and its client accepts JSON."""
    accepted = [part.partition(b";")[0].strip().lower() for part in headers.get(b"accept", b"").split(b",")]
    given = headers.get(b"content-type", b"").partition(b";")[0].rstrip().lower()
    return given == b"application/json" and b"application/json" in accepted


class ScopedRequest(NamedTuple):
    """The HTTP request of a message, as far as `ToolServer` reads it.

    Attributes:
        scope: Its ASGI scope.
    """

    scope: dict[str, Any]


class ImmediateRequests:
    """The open sessions of handshake revisions, and the answers to their requests that never wait.

    Attributes:
        lack: What the installed SDK lacks for this, if anything. No session is then known.
    """

    def __init__(self, server: Server[Any]) -> None:
        """Know no session yet.

        Args:
            server: The SDK's server.
        """
        self._server = server
        self._runners: dict[str, ServerRunner[Any]] = {}
        self.lack = self._missing()

    def _missing(self) -> MissingMember | None:
        try:
            runner = self._runner(Connection.from_envelope(LATEST_HANDSHAKE_VERSION, None, None))
        except TypeError:
            return MissingMember("mcp", "ServerRunner(server=, connection=, lifespan_state=)")
        return None if hasattr(runner, "on_request") else MissingMember("mcp", "ServerRunner.on_request")

    def _runner(self, connection: Connection) -> ServerRunner[Any]:
        return ServerRunner(server=self._server, connection=connection, lifespan_state={})

    def add(self, connection: Connection) -> None:
        """A session has begun. Ignored if it has no ID: over stdio."""
        if connection.session_id is not None and self.lack is None:
            self._runners[connection.session_id] = self._runner(connection)

    def remove(self, connection: Connection) -> None:
        """A session has ended."""
        if connection.session_id is not None:
            self._runners.pop(connection.session_id, None)

    def has(self, session: str) -> bool:
        """Whether a session is open."""
        return session in self._runners

    async def answer(self, session: str, message: dict[str, Any], scope: dict[str, Any]) -> bytes:
        """The answer to a request in an open session, as JSON.

        Args:
            session: ID of the session.
            message: A plain request that never waits.
            scope: ASGI scope of the HTTP request.
        """
        number = message["id"]
        exchange = _Exchange(number, ServerMessageMetadata(request_context=ScopedRequest(scope)))
        reply: JSONRPCResponse | JSONRPCError
        try:
            result = await self._runners[session].on_request(
                exchange, message["method"], message.get("params")
            )
            reply = JSONRPCResponse(jsonrpc="2.0", id=number, result=result)
        except Exception as error:
            found = handler_exception_to_error_data(error)
            if found is None:
                raise
            reply = JSONRPCError(jsonrpc="2.0", id=number, error=found)
        return reply.model_dump_json(by_alias=True, exclude_unset=True).encode()


class _Exchange:
    """A request whose answer is a single JSON body, which has no room for other messages: the SDK's `DispatchContext`."""

    transport = _TRANSPORT
    can_send_request = False

    def __init__(self, number: RequestId, metadata: ServerMessageMetadata) -> None:
        self.request_id = number
        self.message_metadata = metadata

    @property
    def cancel_requested(self) -> anyio.Event:
        # Never set: such a request ends before another message is read.
        return anyio.Event()

    async def send_raw_request(
        self, method: str, _params: Mapping[str, Any] | None, _options: CallOptions | None = None
    ) -> NoReturn:
        raise NoBackChannelError(method)

    async def notify(
        self, _method: str, _params: Mapping[str, Any] | None, _options: CallOptions | None = None
    ) -> None:
        pass

    async def progress(
        self, _progress: float, _total: float | None = None, _message: str | None = None
    ) -> None:
        pass
