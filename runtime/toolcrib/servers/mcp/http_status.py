"""What the status of an answer says, where its body is no answer of the protocol."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

from toolcrib.security.egress.hosts import shown
from toolcrib.servers.mcp.transports import Trouble

_UNKNOWN_SESSION = -32000
"""The code that servers of the TypeScript SDK answer with, and status 400, where they do not know a session."""


def session_is_over(status: int, body: bytes) -> bool:
    """Whether a request with a session was refused for that (2025-11-25, basic/transports, "Session Management")."""
    if status == 404:
        return True
    error = _error_in(body) if status == 400 else None
    if error is None or error.get("code") != _UNKNOWN_SESSION:
        return False
    return "session" in str(error.get("message", "")).lower()


def trouble_of(status: int, headers: Mapping[str, str], body: bytes, *, proves: bool) -> Trouble | None:
    """What is wrong; None where the body says it, or nothing is.

    Args:
        status: The final status code.
        headers: Those of the answer.
        body: Its body.
        proves: Whether the request had what proves who asks.
    """
    if status in (401, 403):
        hint = (
            "see whether what `auth` names is still good"
            if proves
            else "name credentials in `auth` of the server"
        )
        return Trouble("unauthorized", f"the server answered with status {status}", hint)
    if 300 <= status < 400:
        return Trouble(
            "http_status", f"the server redirects{_to(headers)} (status {status})", "correct its `url`"
        )
    if status == 202 or (200 <= status < 300 and not _is_json(headers)):
        what = "no answer" if status == 202 else "neither JSON nor a stream of events"
        return Trouble("http_status", f"the server answered a request with status {status} and {what}", _SEE)
    if status < 400 or (_is_json(headers) and _error_in(body) is not None):
        return None
    return Trouble(
        "http_status", f"the server answered with status {status}", _SEE if status in (404, 405) else ""
    )


_SEE = "see whether `url` is where the server speaks MCP, and `transport`"


def _is_json(headers: Mapping[str, str]) -> bool:
    return headers.get("content-type", "").lower().startswith("application/json")


def _to(headers: Mapping[str, str]) -> str:
    """Where to, without what may be secret."""
    try:
        host = urlsplit(headers.get("location", "")).hostname
    except ValueError:
        return ""
    return f" to `{shown(host)}`" if host else ""


def _error_in(body: bytes) -> dict[str, Any] | None:
    try:
        read = json.loads(body)
    except (ValueError, RecursionError):
        return None
    error = read.get("error") if isinstance(read, dict) else None
    return error if isinstance(error, dict) else None
