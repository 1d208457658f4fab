"""Calls of the handshake era that are answered at once get one JSON body in place of a stream of events.

Either is an answer that every client takes (MCP 2025-11-25, transports, sending messages). A stream can hold progress
before the answer, and is kept alive by pings while a call takes its time; it costs as much as all the rest of a call. The
SDK chooses for a whole server, by asking whether something is true: that something here is of the request at hand.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Final, cast

from toolcrib.core.model import JSON

_BRIEF: ContextVar[bool] = ContextVar("the request gets one JSON body", default=False)


class _OfTheRequest:
    def __bool__(self) -> bool:
        return _BRIEF.get()


OF_THE_REQUEST: Final = cast("bool", _OfTheRequest())
"""For `json_response` of the SDK's session manager: true within a request that `chosen` has found to be brief."""


def choose(message: JSON, at_once: Callable[[str], bool]) -> None:
    """Choose how the request of this task is answered.

    Only for calls within a session: what opens one must not be brief, since that would hold for all that the
    session's own task sends.

    Args:
        message: The request.
        at_once: Whether a tool, by the name that clients call it, is one that never waits.
    """
    if _is_brief(message, at_once):
        _BRIEF.set(True)


def _is_brief(message: JSON, at_once: Callable[[str], bool]) -> bool:
    if not isinstance(message, dict) or message.get("method") != "tools/call" or "id" not in message:
        return False
    params = message.get("params")
    name = params.get("name") if isinstance(params, dict) else None
    if not isinstance(params, dict) or not isinstance(name, str):
        return False
    meta = params.get("_meta")
    return not (isinstance(meta, dict) and "progressToken" in meta) and at_once(name)
