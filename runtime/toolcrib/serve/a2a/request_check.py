"""Checks of requests that the SDK does not make, and errors in the form of their binding."""

from __future__ import annotations

import json
import re
from typing import Any, Final
from urllib.parse import parse_qs

from a2a.types import TaskState

from toolcrib.serve.http_common.asgi import INVALID_REQUEST, PARSE_ERROR, InvalidMessage, parse_message
from toolcrib.serve.http_common.listen_address import MOST_BODY
from toolcrib.serve.http_common.request_guard import GuardAnswer, Headers

CONTENT_TYPE_NOT_SUPPORTED: Final = -32005
"""Code of A2A 1.0, section 5.4."""

INVALID_PARAMS: Final = -32602
"""Code of JSON-RPC 2.0, section 5.1."""

_MEDIA_TYPES: Final = frozenset({b"application/json", b"application/a2a+json"})

_STATES: Final = (*TaskState.keys(), *TaskState.values())

_SHORT_STATE: Final = re.compile(rb"(?<![^&])status=([a-z_-]+)(?![^&])")

_REASONS: Final = {
    CONTENT_TYPE_NOT_SUPPORTED: "CONTENT_TYPE_NOT_SUPPORTED",
    INVALID_PARAMS: "INVALID_PARAMS",
    INVALID_REQUEST: "INVALID_REQUEST",
    PARSE_ERROR: "INVALID_REQUEST",
}

_NAMES: Final = {401: "UNAUTHENTICATED", 403: "PERMISSION_DENIED", 404: "NOT_FOUND", 405: "UNIMPLEMENTED"}
"""Names of google.rpc for HTTP status codes; those of all others are `INVALID_ARGUMENT`."""


def refused_body(headers: Headers, body: bytes | None, *, rpc: bool) -> GuardAnswer | None:
    """The refusal of a body; None if the SDK may read it.

    Args:
        headers: The headers of the request.
        body: The body; None if it exceeds the limit.
        rpc: Whether it is a request of JSON-RPC, and not of HTTP+JSON.
    """
    if body is None:
        return error_answer(413, INVALID_REQUEST, f"The body exceeds {MOST_BODY} bytes", rpc=rpc)
    if not body and not rpc:
        return None
    media = next((value for name, value in headers if name == b"content-type"), b"")
    if media.partition(b";")[0].strip().lower() not in _MEDIA_TYPES:
        text = "The content type must be application/json"
        return error_answer(415, CONTENT_TYPE_NOT_SUPPORTED, text, rpc=rpc)
    try:
        message = parse_message(body)
    except InvalidMessage as error:
        # JSON-RPC over HTTP answers errors of its own with status 200, as the SDK does.
        return error_answer(200 if rpc else 400, error.code, str(error), rpc=rpc, request=error.request)
    if not rpc or not isinstance(message, dict):
        return None
    # The SDK reads any empty value as no parameters, and an unknown state as none.
    params, request = message.get("params", {}), message.get("id")
    if not isinstance(params, dict):
        invalid = "`params` must be an object"
    else:
        invalid = _invalid_state(params.get("status")) if message.get("method") == "ListTasks" else ""
    if not invalid:
        return None
    answered = request if isinstance(request, str | int) else None
    return error_answer(200, INVALID_PARAMS, invalid, rpc=True, request=answered)


def refused_query(query: bytes) -> GuardAnswer | None:
    """The refusal of the parameters of a list of tasks that the SDK would read as absent; None if there are none."""
    given = parse_qs(full_states(query).decode("latin-1"))
    found = [_invalid_state(state) for state in given.get("status", ())]
    found += [
        f"includeArtifacts: {json.dumps(value)} is neither true nor false"
        for value in given.get("includeArtifacts", ())
        if value not in {"true", "false"}
    ]
    text = "; ".join(each for each in found if each)
    return error_answer(400, INVALID_PARAMS, text, rpc=False) if text else None


def full_states(query: bytes) -> bytes:
    """A query with full names of states: A2A 1.0, section 11.5, also writes `status=working`."""
    return _SHORT_STATE.sub(lambda short: b"status=TASK_STATE_" + short[1].upper().replace(b"-", b"_"), query)


def _invalid_state(state: object) -> str:
    """What is wrong with the state that tasks are listed by; empty if it is valid."""
    if state is None or state in _STATES:
        return ""
    states = ", ".join(TaskState.keys()[1:])
    return f"status: {json.dumps(state)} is not a state; use one of {states}"


def error_answer(
    status: int, code: int, text: str, *, rpc: bool, request: str | int | None = None
) -> GuardAnswer:
    """An error in the form of its binding (A2A 1.0, sections 9.5 and 11.6).

    Args:
        status: HTTP status.
        code: JSON-RPC error code.
        text: What is wrong.
        rpc: Whether the binding is JSON-RPC, and not HTTP+JSON.
        request: The `id` of the request of JSON-RPC, if it is known.
    """
    detail = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": _REASONS[code],
        "domain": "a2a-protocol.org",
        "metadata": {},
    }
    if rpc:
        error = {"code": code, "message": text, "data": [detail]}
        return GuardAnswer(status, json.dumps({"jsonrpc": "2.0", "id": request, "error": error}).encode())
    return GuardAnswer(status, _http_json(status, text, details=[detail]))


def in_http_json(answer: GuardAnswer) -> GuardAnswer:
    """A refusal of the guard in the form of HTTP+JSON; any other answer unchanged."""
    told = json.loads(answer.body) if answer.body else {}
    if "error" not in told:
        return answer
    return answer._replace(body=_http_json(answer.status, told["error"]["message"]))


def _http_json(status: int, text: str, **more: Any) -> bytes:
    name = _NAMES.get(status, "INVALID_ARGUMENT")
    return json.dumps({"error": {"code": status, "status": name, "message": text, **more}}).encode()
