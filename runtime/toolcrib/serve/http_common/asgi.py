"""Parts of ASGI applications: reading a body within its limit, JSON without surprises, and short answers."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final, TypeAlias

from toolcrib.core.model import JSON
from toolcrib.core.text import DuplicateKey, decode_json
from toolcrib.schema.validation import json_violation
from toolcrib.serve.http_common.listen_address import MOST_BODY
from toolcrib.serve.http_common.request_guard import GuardAnswer, Headers

Message: TypeAlias = MutableMapping[str, Any]
Send: TypeAlias = Callable[[Message], Awaitable[None]]
Receive: TypeAlias = Callable[[], Awaitable[Message]]
Scope: TypeAlias = dict[str, Any]

HEALTH: Final = "/healthz"
"""Path of the health check, which needs no token."""

INVALID_REQUEST: Final = -32600
PARSE_ERROR: Final = -32700
"""Codes of JSON-RPC 2.0, section 5.1."""

_DEPTH: Final = 200
_JSON: Final = (b"content-type", b"application/json")
_PLAIN: Final = (b"x-content-type-options", b"nosniff")


class InvalidMessage(Exception):
    """A text that is not a valid message; `str()` is the reason.

    Attributes:
        code: JSON-RPC error code.
        request: The request's `id`, if it can be read.
    """

    def __init__(self, code: int, message: str, request: str | int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.request = request


def parse_message(text: bytes) -> JSON:
    """The JSON value of a message.

    Raises:
        InvalidMessage: It is not valid JSON, is nested deeper than 200 levels, or has a duplicate key.
    """
    try:
        value = decode_json(text)
    except DuplicateKey as error:
        raise InvalidMessage(INVALID_REQUEST, f"Invalid Request: {error}", _request_in(text)) from None
    except (ValueError, RecursionError):
        raise InvalidMessage(PARSE_ERROR, "Parse error") from None
    # Numbers and nesting that JSON can spell but other parsers cannot read are refused as well.
    if json_violation(value, depth=_DEPTH) is not None:
        raise InvalidMessage(PARSE_ERROR, "Parse error")
    return value


def _request_in(text: bytes) -> str | int | None:
    try:
        # `json` keeps the last of two equal keys. That is good enough here: the `id` only addresses the
        # error.
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    number = value.get("id") if isinstance(value, dict) else None
    return number if isinstance(number, str | int) and json_violation(number) is None else None


async def read_body(receive: Receive) -> tuple[bytes | None, Receive]:
    """Read the body of a request, and make a `receive` that returns the same messages again.

    The body is None if it exceeds the limit or the client disconnects. The next reader then handles that.
    """
    heard: deque[Message] = deque()
    size, whole = 0, False
    while not whole and size <= MOST_BODY:
        message = await receive()
        heard.append(message)
        if message["type"] != "http.request":
            break
        size += len(message.get("body", b""))
        whole = not message.get("more_body")
    body = b"".join(each.get("body", b"") for each in heard) if whole and size <= MOST_BODY else None

    async def again() -> Message:
        return heard.popleft() if heard else await receive()

    return body, again


async def send_answer(send: Send, answer: GuardAnswer, *, body: bool = True) -> None:
    """Send a short answer, without its body for `HEAD`."""
    length = (b"content-length", str(len(answer.body)).encode())
    told = [*answer.headers, _PLAIN, length, *([_JSON] if answer.body else [])]
    await send({"type": "http.response.start", "status": answer.status, "headers": told})
    await send({"type": "http.response.body", "body": answer.body if body else b""})


def sends_headers(send: Send, headers: Headers) -> Send:
    """A `send` that adds headers to the response."""

    async def shared(message: Message) -> None:
        if message["type"] == "http.response.start":
            message = {**message, "headers": [*message["headers"], *headers]}
        await send(message)

    return shared


def health(method: str, tools: int) -> GuardAnswer:
    """The answer to a health check."""
    if method not in {"GET", "HEAD"}:
        return GuardAnswer(405, headers=((b"allow", b"GET, HEAD"),))
    return GuardAnswer(200, json.dumps({"status": "ok", "tools": tools}).encode())
