"""Routes of the HTTP face: `/mcp`, `/mcp/TOOLSET` and `/healthz`, each behind the guard.

What is left to say of MCP over HTTP, sessions, events and the two eras, is the SDK's.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

from toolcrib.core.errors import near_misses
from toolcrib.serve.mcp.guard import Answer, Guard, Headers, refusal
from toolcrib.serve.mcp.json_replies import OF_THE_REQUEST, choose
from toolcrib.serve.mcp.messages import InvalidMessage, Receive, parse_message, read_body
from toolcrib.serve.mcp.options import MOST_BODY
from toolcrib.serve.mcp.preencoded import KEY, Message, Send, Splices, splicing
from toolcrib.serve.mcp.server import TOOLSET, Face
from toolcrib.serve.mcp.sessions import Sessions

Scope: TypeAlias = dict[str, Any]

PATH: Final = "/mcp"
HEALTH: Final = "/healthz"

IDLE: Final = 30 * 60.0
"""Seconds after which a session of the handshake era is over that nobody uses."""

_JSON: Final = (b"content-type", b"application/json")
_PLAIN: Final = (b"x-content-type-options", b"nosniff")


class Web:
    """The ASGI application.

    Attributes:
        sessions: The SDK's side; it must run while requests come.
    """

    def __init__(
        self,
        face: Face,
        guard: Guard,
        toolsets: Callable[[], Sequence[str]],
        tools: Callable[[], int],
        most_sessions: int,
    ) -> None:
        """Serve a face.

        Args:
            face: The MCP server.
            guard: Who may ask.
            toolsets: The names of the toolsets that paths may ask for, as they are now.
            tools: How many tools are offered now.
            most_sessions: How many sessions of the handshake era may be open.
        """
        self.sessions = Sessions(
            face.server,
            json_response=OF_THE_REQUEST,
            max_request_body_size=MOST_BODY,
            max_sessions=most_sessions,
            session_idle_timeout=IDLE,
        )
        self._answers_at_once = face.answers_at_once
        self._guard = guard
        self._toolsets = toolsets
        self._tools = tools

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
            return
        path: str = scope["path"]
        headers: Headers = scope["headers"]
        shared = self._guard.shares_with(headers)
        if shared:
            send = _sharing(send, shared)
        answer = self._guard.judged(scope["method"], headers, public=path == HEALTH) or self._routed(
            scope, path
        )
        if answer is not None:
            await _answered(send, answer, body=scope["method"] != "HEAD")
            return
        if scope["method"] == "POST":
            body, receive = await read_body(receive)
            answer = None if body is None else self._judged(body, headers)
            if answer is not None:
                await _answered(send, answer)
                return
        splices = scope[KEY] = Splices()
        try:
            await self.sessions.handle_request(scope, _whole(receive), _without_echo(splicing(send, splices)))
        except _ClientGone:
            return

    def _judged(self, body: bytes, headers: Headers) -> Answer | None:
        """The answer to what is no JSON or has a key twice; what else is wrong with a request, the SDK says."""
        try:
            message = parse_message(body)
        except InvalidMessage as error:
            told = {"code": error.code, "message": str(error)}
            return Answer(400, json.dumps({"jsonrpc": "2.0", "id": error.request, "error": told}).encode())
        if _in_session(headers):
            choose(message, self._answers_at_once)
        return None

    def _routed(self, scope: Scope, path: str) -> Answer | None:
        """An answer of our own; None for what goes to MCP."""
        if path == PATH:
            return None
        if path == HEALTH:
            return self._health(scope["method"])
        base, _, toolset = path.rpartition("/")
        if base != PATH or not toolset:
            return refusal(404, "There is nothing here; MCP is served at /mcp and /mcp/TOOLSET")
        name, known = unquote(toolset), self._toolsets()
        if name not in known:
            near = near_misses(name, known)
            return refusal(404, "There is no such toolset", data={"didYouMean": near} if near else None)
        scope[TOOLSET] = name
        return None

    def _health(self, method: str) -> Answer:
        if method not in {"GET", "HEAD"}:
            return Answer(405, headers=((b"allow", b"GET, HEAD"),))
        return Answer(200, json.dumps({"status": "ok", "tools": self._tools()}).encode())


class _ClientGone(Exception):
    """The client went away before its request was whole."""


def _whole(receive: Receive) -> Receive:
    """A `receive` that raises `_ClientGone`: the SDK raises what nobody catches, and it is logged with its traceback."""
    whole = False

    async def received() -> Message:
        nonlocal whole
        message = await receive()
        if message["type"] == "http.disconnect" and not whole:
            raise _ClientGone
        whole = whole or not message.get("more_body")
        return message

    return received


def _in_session(headers: Headers) -> bool:
    """Whether a request belongs to a session of the handshake era."""
    return any(name == b"mcp-session-id" for name, _value in headers)


async def _answered(send: Send, answer: Answer, *, body: bool = True) -> None:
    length = (b"content-length", str(len(answer.body)).encode())
    told = [*answer.headers, _PLAIN, length, *([_JSON] if answer.body else [])]
    await send({"type": "http.response.start", "status": answer.status, "headers": told})
    await send({"type": "http.response.body", "body": answer.body if body else b""})


def _sharing(send: Send, headers: Headers) -> Send:
    async def shared(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *headers]}
        await send(message)

    return shared


def _without_echo(send: Send) -> Send:
    """A `send` that says of a malformed request only that it is one: the SDK repeats what was wrong with it."""
    held: list[Message] = []

    async def plain(message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] == 400:
            held.append(message)
        elif held:
            start = held.pop()
            body = _said_shortly(message.get("body", b""))
            told = [(name, value) for name, value in start["headers"] if name != b"content-length"]
            told.append((b"content-length", str(len(body)).encode()))
            await send({**start, "headers": told})
            await send({**message, "body": body})
        else:
            await send(message)

    return plain


_ECHOING: Final = {"Validation error": (-32600, "Invalid Request"), "Parse error": (-32700, "Parse error")}


def _said_shortly(body: bytes) -> bytes:
    try:
        told = json.loads(body)
        lead = told["error"]["message"].partition(":")[0]
    except (ValueError, KeyError, TypeError, AttributeError):
        return body
    if lead not in _ECHOING:
        return body
    code, message = _ECHOING[lead]
    return json.dumps(
        {"jsonrpc": "2.0", "id": told.get("id"), "error": {"code": code, "message": message}}
    ).encode()
