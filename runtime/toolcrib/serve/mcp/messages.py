"""Decode the messages of MCP clients, and render results of calls for them.

Decoding is strict: a request with a duplicate key is refused, because two parsers may read two different
calls.

A client gets what a model can act on. The message of a failure is passed on only if it was written for the
caller: the tool's own error, or invalid arguments. Any other message may contain files, hosts and secrets of
this machine. It goes to the log, and the client gets a fixed sentence for the kind of failure, its code, and
a few harmless details.
"""

from __future__ import annotations

import json
import mimetypes
from collections.abc import Mapping
from logging import getLogger
from secrets import token_hex
from typing import Any, Final

from mcp.types import INVALID_REQUEST, PARSE_ERROR

from toolcrib.core.clock import format_duration
from toolcrib.core.model import JSON, Content, Failure, Outcome, Result
from toolcrib.core.text import DuplicateKey, compact, decode_json, escape_terminal, truncate
from toolcrib.schema.validation import json_violation

_DEPTH: Final = 200


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


COMPLETE: Final[Mapping[str, str]] = {"resultType": "complete"}
"""Part of every result since 2026-07-28; the SDK removes it for earlier revisions."""

OUTCOME: Final = "dev.toolcrib/outcome"
"""Key in `_meta` of a failed result: outcome, code and details."""

TITLE: Final = "dev.toolcrib/title"
"""Key in `_meta` of a content part: its title. MCP has no other field for it."""

LINKS_SINCE: Final = "2025-06-18"
"""First revision with `resource_link` parts."""

ANY_VALUE_SINCE: Final = "2026-07-28"
"""First revision in which structured content may be any JSON value; before, it must be an object."""

MOST_TEXT: Final = 16 * 1024
"""Maximum length of a failure's text in bytes."""

DEEPEST: Final = 200
"""Maximum nesting of structured content: the SDK encodes 255 levels, including those of the message."""

_log = getLogger("toolcrib")

_OWN_WORDS: Final = frozenset({Outcome.TOOL_ERROR, Outcome.INVALID_ARGUMENTS})
"""Outcomes whose message was written for the caller."""

_UNSAID: Final = frozenset({"auth_failed"})
"""Exceptions to that: the message of `auth_failed` quotes the reply of a token server."""

_SENTENCES: Final[Mapping[Outcome, str]] = {
    Outcome.TOOL_ERROR: "the tool could not authenticate to its service",
    Outcome.INVALID_RESULT: "the tool returned an invalid result",
    Outcome.NOT_FOUND: "the tool does not exist any more; list the tools again",
    Outcome.UNAVAILABLE: "the tool is not available",
    Outcome.DENIED: "the call was denied",
    Outcome.NEEDS_APPROVAL: "the call needs human approval",
    Outcome.TIMEOUT: "the tool did not answer in time",
    Outcome.CANCELLED: "the call was cancelled",
    Outcome.OVERLOADED: "the tool is busy",
    Outcome.LIMIT_EXCEEDED: "the call exceeds a limit",
    Outcome.TRANSPORT_ERROR: "the connection to the tool's service failed",
    Outcome.UNKNOWN_OUTCOME: "the connection broke after the call was sent, so it may have acted; check before calling again",
    Outcome.UNMATCHED_MOCK: "the mock of the tool has no reply for these arguments",
    Outcome.INTERNAL: "internal error",
}

_FINER: Final[Mapping[str, str]] = {
    "too_many_sessions": "too many sessions are open; use one of them again",
    "client_tool_deferred": "the application that runs this server must fulfil the tool, and it has no handler for it",
    "consent_declined": "the person asked for consent declined the call",
    "rate_limited": "the tool was called too often",
    "result_too_large": "the result is too large; ask for less",
    "response_too_large": "the result is too large; ask for less",
    "too_large": "the result is too large; ask for less",
    "unidentified_response": "the result may be too large, and the call may have acted; check before you call again, and ask for less",
    "result_too_deep": "the result is nested too deep to be sent",
    "server_ending": "the server is shutting down; call again when it is back",
    "untrusted_workspace": "the tool needs something that is not trusted yet, so nothing was started, contacted or read; "
    "the operator of the server can run `toolcrib trust` in the project folder",
    "server_ended": "the server shut down before the call finished; it may have acted",
}
"""Codes with a more specific sentence than their outcome."""

_TOLD: Final = ("retry_after", "may_have_acted", "status", "timeout", "rate", "violations")
"""Details that reveal nothing about this machine."""

_HIDDEN_DETAILS: Final = frozenset({"violations"})
"""Exceptions: passed on only if they are about the client's own arguments."""


def render_result(name: str, result: Result, *, revision: str, declared: bool) -> dict[str, Any]:
    """A result of `tools/call`.

    The text form of the value comes first, followed by the tool's own parts. A part that only repeats the value is
    omitted. A tool that returns parts and no value gets no text form. Structured content is included for an object,
    and for any declared value if the revision allows it.

    Args:
        name: Name of the tool.
        result: The result of the call.
        revision: The negotiated MCP revision.
        declared: Whether the definition of the tool has an output schema in this revision.
    """
    if result.outcome is not Outcome.OK:
        return _failed(name, result, revision)
    value = result.value
    if value is None and result.content:
        return {**COMPLETE, "content": _parts(result.content, revision, None)}
    try:
        text = value if isinstance(value, str) else compact(value)
    except ValueError:
        return _failed(name, _TOO_DEEP, revision)
    content = [{"type": "text", "text": text}, *_parts(result.content, revision, text)]
    told: dict[str, Any] = {**COMPLETE, "content": content}
    if isinstance(value, dict) or (declared and value is not None and revision >= ANY_VALUE_SINCE):
        if _is_too_deep(value, text):
            return _failed(name, _TOO_DEEP, revision)
        told["structuredContent"] = value
    return told


_TOO_DEEP: Final = Result.failed(Outcome.LIMIT_EXCEEDED, "nested too deep", code="result_too_deep")


def _failed(name: str, result: Result, revision: str) -> dict[str, Any]:
    failure = result.error or Failure(result.outcome.value, result.message)
    own = result.outcome in _OWN_WORDS and failure.code not in _UNSAID
    told: dict[str, JSON] = {
        "outcome": result.outcome.value,
        "code": failure.code,
        "retryable": failure.retryable,
    }
    if own:
        text = result.message or failure.code
    else:
        # The same id is in the client's error and in the log, so that an operator finds the reason of a
        # report.
        told["call"] = token_hex(4)
        text = _sentence(result.outcome, failure, str(told["call"]))
        # One line without control characters: the message may quote a remote server.
        why = escape_terminal(" ".join(result.message.split()))
        _log.warning("call %s of `%s` ended `%s`: %s", told["call"], name, result.outcome, why)
    details = {
        key: failure.details[key]
        for key in _TOLD
        if key in failure.details and (own or key not in _HIDDEN_DETAILS)
    }
    told["details"] = details
    if result.outcome is Outcome.NEEDS_APPROVAL and _approval_of(failure):
        facts: Any = failure.details["approval"]
        details["approval"] = {key: facts[key] for key in ("id", "expires") if key in facts}
    # Lone surrogates are valid in `str` and in JSON escapes, but cannot be encoded as UTF-8.
    text = truncate(text.encode(errors="replace").decode(), MOST_TEXT)
    parts = _parts(result.content, revision, text) if own else []
    content = [{"type": "text", "text": text}, *parts]
    return {**COMPLETE, "content": content, "isError": True, "_meta": {OUTCOME: told}}


def _sentence(outcome: Outcome, failure: Failure, call: str) -> str:
    text = _FINER.get(failure.code, _SENTENCES[outcome])
    if outcome is Outcome.NEEDS_APPROVAL and (id_ := _approval_of(failure)):
        return f"{text} ({failure.code}): the approval is `{id_}`; {_how_to_answer(failure, id_)}"
    if outcome is Outcome.INTERNAL:
        return f"{text}, call id {call}"
    if failure.code != outcome.value:
        text += f" ({failure.code})"
    if failure.code == "access_rule" and failure.details.get("reason"):
        # The author of the rule wrote it for whoever calls.
        text += f": {failure.details['reason']}"
    details = failure.details
    wait = details.get("retry_after")
    if isinstance(wait, int | float):
        text += f"; retry after {format_duration(wait)}"
    elif failure.retryable:
        text += "; the same call may succeed later"
    if details.get("may_have_acted") and outcome is not Outcome.UNKNOWN_OUTCOME:
        text += "; it may have acted, so check before calling again"
    return text


def _approval_of(failure: Failure) -> str:
    facts = failure.details.get("approval")
    id_ = facts.get("id") if isinstance(facts, dict) else None
    return id_ if isinstance(id_, str) else ""


def _how_to_answer(failure: Failure, id_: str) -> str:
    """How a client that cannot be asked gets its call approved."""
    facts: Any = failure.details["approval"]
    if facts.get("kept") == "memory":
        return "the program that runs this server can approve it; then call again with the same arguments"
    return (
        f"the operator of the server can run `toolcrib approvals approve {id_}` in the project folder; "
        "then call again with the same arguments"
    )


def _is_too_deep(value: JSON, text: str) -> bool:
    # Structured content that is nested too deep raises in the SDK's encoder. Counting brackets first keeps
    # the walk away from nearly every result.
    if text.count("[") + text.count("{") <= DEEPEST:
        return False
    level: list[JSON] = [value]
    for _ in range(DEEPEST):
        level = [
            inner
            for item in level
            if isinstance(item, dict | list)
            for inner in (item.values() if isinstance(item, dict) else item)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


def _parts(content: tuple[Content, ...], revision: str, text: str | None) -> list[dict[str, Any]]:
    parts = (_part(part, index, revision) for index, part in enumerate(content))
    return [part for part in parts if part != {"type": "text", "text": text}]


def _part(part: Content, index: int, revision: str) -> dict[str, Any]:
    if part.type == "text":
        told: dict[str, Any] = {"type": "text", "text": part.text or ""}
    elif part.type != "resource" and part.data is not None:
        told = {"type": part.type, "data": part.data, "mimeType": _mime_type(part)}
    elif part.text is None and part.data is None:
        return _link(part, index, revision)
    else:
        told = {"type": "resource", "resource": _resource(part, index)}
    return {**told, "_meta": {TITLE: part.title}} if part.title else told


def _resource(part: Content, index: int) -> dict[str, Any]:
    told: dict[str, Any] = {"uri": part.uri or f"urn:toolcrib:part:{index}"}
    if part.mime_type is not None:
        told["mimeType"] = part.mime_type
    return told | ({"text": part.text} if part.text is not None else {"blob": part.data})


def _link(part: Content, index: int, revision: str) -> dict[str, Any]:
    uri = part.uri or f"urn:toolcrib:part:{index}"
    name = part.title or uri.rstrip("/").rpartition("/")[2] or uri
    if revision < LINKS_SINCE:
        return {"type": "text", "text": uri if name in uri else f"{name}: {uri}"}
    told: dict[str, Any] = {"type": "resource_link", "uri": uri, "name": name}
    if part.title is not None:
        told["title"] = part.title
    return told if part.mime_type is None else {**told, "mimeType": part.mime_type}


def _mime_type(part: Content) -> str:
    # MCP requires `mimeType` on images and audio.
    guessed = mimetypes.guess_type(part.uri)[0] if part.uri else None
    return part.mime_type or guessed or ("image/png" if part.type == "image" else "audio/wav")
