"""Calls of the handshake era that are answered at once get one JSON body in place of a stream of events.

Either is an answer that every client takes (MCP 2025-11-25, transports, sending messages). A stream can hold progress
before the answer, and is kept alive by pings while a call takes its time; it costs as much as all the rest of a call. The
SDK chooses for a whole server, by asking whether something is true: that something here is of the request at hand.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from typing import Any, Final, TypeAlias, cast

from toolcrib.serve.mcp.splicing import Message

Receive: TypeAlias = Callable[[], Awaitable[Message]]

_BRIEF: ContextVar[bool] = ContextVar("the request gets one JSON body", default=False)


class _OfTheRequest:
    def __bool__(self) -> bool:
        return _BRIEF.get()


OF_THE_REQUEST: Final = cast("bool", _OfTheRequest())
"""For `json_response` of the SDK's session manager: true within a request that `chosen` has found to be brief."""


async def chosen(receive: Receive, at_once: Callable[[str], bool]) -> Receive:
    """Look at the request of this task, and choose how it is answered.

    Only what is a call within a session is looked at: what opens one must not be brief, since that would hold for
    all that the session's own task sends.

    Args:
        receive: Gives the request.
        at_once: Whether a tool, by the name that clients call it, is one that never waits.

    Returns:
        What gives it again, from its beginning.
    """
    first: Message | None = await receive()
    if first is not None and not first.get("more_body") and _is_brief(first.get("body", b""), at_once):
        _BRIEF.set(True)

    async def again() -> Message:
        nonlocal first
        if first is None:
            return await receive()
        told, first = first, None
        return told

    return again


def _is_brief(body: bytes, at_once: Callable[[str], bool]) -> bool:
    if b'"tools/call"' not in body:
        return False
    try:
        message: Any = json.loads(body)
    except (ValueError, RecursionError):
        return False  # the SDK says what is wrong with it
    if not isinstance(message, dict) or message.get("method") != "tools/call" or "id" not in message:
        return False
    params = message.get("params")
    if not isinstance(params, dict) or not isinstance(params.get("name"), str):
        return False
    meta = params.get("_meta")
    return not (isinstance(meta, dict) and "progressToken" in meta) and at_once(params["name"])
