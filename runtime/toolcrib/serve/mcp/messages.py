"""Messages of MCP clients, and results of calls as they are sent to clients.

Messages are read strictly: a request with a key that is there twice is refused, for two readers may read two calls.

Of a failure, a client gets what a model can act on. A failure's own text is passed on only where it was written for the
caller: what the tool said, and what is wrong with the arguments. Every other text may name files, hosts and secrets of the
machine; it goes to the log, and the client gets a sentence for the kind of failure, with the code and those details that
say no more than what to do.
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
    """A text is no message. Its text says why.

    Attributes:
        code: Of JSON-RPC.
        request: The number of the request, where it can be read.
    """

    def __init__(self, code: int, message: str, request: str | int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.request = request


def parse_message(text: bytes) -> JSON:
    """The JSON value of a message.

    Raises:
        InvalidMessage: It is no JSON, nested deeper than 200 levels, or has a key twice.
    """
    try:
        value = decode_json(text)
    except DuplicateKey as error:
        raise InvalidMessage(INVALID_REQUEST, f"Invalid Request: {error}", _request_in(text)) from None
    except (ValueError, RecursionError):
        raise InvalidMessage(PARSE_ERROR, "Parse error") from None
    if json_violation(value, depth=_DEPTH) is not None:
        raise InvalidMessage(PARSE_ERROR, "Parse error")
    return value


def _request_in(text: bytes) -> str | int | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    number = value.get("id") if isinstance(value, dict) else None
    return number if isinstance(number, str | int) and json_violation(number) is None else None


COMPLETE: Final[Mapping[str, str]] = {"resultType": "complete"}
"""What every result says since 2026-07-28; the SDK takes it out for the revisions before."""

OUTCOME: Final = "dev.toolcrib/outcome"
"""Where `_meta` of a failed result says its outcome, code and details."""

TITLE: Final = "dev.toolcrib/title"
"""Where `_meta` of a part says its caption; MCP has no other place for it."""

LINKS_SINCE: Final = "2025-06-18"
"""The revision that brought links to resources."""

ANY_VALUE_SINCE: Final = "2026-07-28"
"""From this revision on structured content is any JSON value; before it is an object."""

MOST_TEXT: Final = 16 * 1024
"""Bytes that a failure says at most."""

DEEPEST: Final = 200
"""Levels of lists and objects in structured content: the SDK encodes 255, and its message takes some."""

_log = getLogger("toolcrib")

_OWN_WORDS: Final = frozenset({Outcome.TOOL_ERROR, Outcome.INVALID_ARGUMENTS})
"""Outcomes whose message was written for whoever called."""

_UNSAID: Final = frozenset({"auth_failed"})
"""Codes whose message is not for them in spite of that: it tells how a server of tokens fared."""

_SENTENCES: Final[Mapping[Outcome, str]] = {
    Outcome.TOOL_ERROR: "the tool could not prove to its service who is calling",
    Outcome.INVALID_RESULT: "the tool gave an answer that is not valid for it",
    Outcome.NOT_FOUND: "there is no such tool any more; list the tools again",
    Outcome.UNAVAILABLE: "the tool is not available now",
    Outcome.DENIED: "the call was denied",
    Outcome.NEEDS_APPROVAL: "the call needs the approval of a person",
    Outcome.TIMEOUT: "the tool did not answer in time",
    Outcome.CANCELLED: "the call was cancelled",
    Outcome.OVERLOADED: "the tool is busy",
    Outcome.LIMIT_EXCEEDED: "the call goes beyond a limit",
    Outcome.TRANSPORT_ERROR: "the connection to the tool's service failed",
    Outcome.UNKNOWN_OUTCOME: "the connection broke after the call was sent, so it may have acted; find out before calling again",
    Outcome.UNMATCHED_MOCK: "the mock of the tool has no answer for these arguments",
    Outcome.INTERNAL: "internal error",
}

_FINER: Final[Mapping[str, str]] = {
    "client_tool_deferred": "the tool is fulfilled by whoever runs the server, and nobody does so now",
    "consent_declined": "the person who was asked declined the call",
    "rate_limited": "the tool was called too often",
    "result_too_large": "the tool's answer is too large; ask for less",
    "response_too_large": "the tool's answer is too large; ask for less",
    "result_too_deep": "the tool's answer is nested too deep to be sent",
    "server_ending": "the server is about to end; call again when it is back",
    "untrusted_workspace": "nobody has agreed to what this tool needs, so nothing was started, contacted or read; "
    "whoever runs the server agrees with `toolcrib trust`, in the folder of the project",
    "server_ended": "the server ended before the call did, which may have acted",
}
"""What a code says more than its outcome."""

_TOLD: Final = ("retry_after", "may_have_acted", "status", "timeout", "rate", "violations")
"""Details that lead nowhere into the machine."""

_HIDDEN_DETAILS: Final = frozenset({"violations"})
"""Of these only where they are about what the caller sent."""


def render_result(name: str, result: Result, *, revision: str, declared: bool) -> dict[str, Any]:
    """A result of `tools/call`.

    The text form of the value comes first, then the tool's own parts; a part that only repeats the value is left
    out, and a tool that answers with parts alone gets no text form. Structured content is there for an object,
    and where a definition declares it, as far as the revision knows it.

    Args:
        name: Name of the tool.
        result: What came of the call.
        revision: The revision of MCP that is spoken.
        declared: Whether the definition of the tool, in this revision, has an output schema.
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
        told["call"] = token_hex(4)
        text = _sentence(result.outcome, failure, str(told["call"]))
        why = escape_terminal(" ".join(result.message.split()))
        _log.warning("call %s of `%s` ended `%s`: %s", told["call"], name, result.outcome, why)
    told["details"] = {
        key: failure.details[key]
        for key in _TOLD
        if key in failure.details and (own or key not in _HIDDEN_DETAILS)
    }
    text = truncate(text.encode(errors="replace").decode(), MOST_TEXT)
    parts = _parts(result.content, revision, text) if own else []
    content = [{"type": "text", "text": text}, *parts]
    return {**COMPLETE, "content": content, "isError": True, "_meta": {OUTCOME: told}}


def _sentence(outcome: Outcome, failure: Failure, call: str) -> str:
    text = _FINER.get(failure.code, _SENTENCES[outcome])
    if outcome is Outcome.INTERNAL:
        return f"{text}, call id {call}"
    if failure.code != outcome.value:
        text += f" ({failure.code})"
    details = failure.details
    wait = details.get("retry_after")
    if isinstance(wait, int | float):
        text += f"; retry after {format_duration(wait)}"
    elif failure.retryable:
        text += "; the same call may succeed later"
    if details.get("may_have_acted") and outcome is not Outcome.UNKNOWN_OUTCOME:
        text += "; it may have acted, so find out before calling again"
    return text


def _is_too_deep(value: JSON, text: str) -> bool:
    """Whether a value can't be encoded by the SDK; looked at closely only where its text has so many brackets."""
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
    """The parts, without those that only repeat a text."""
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
    """What has an address and no content of its own."""
    uri = part.uri or f"urn:toolcrib:part:{index}"
    name = part.title or uri.rstrip("/").rpartition("/")[2] or uri
    if revision < LINKS_SINCE:
        return {"type": "text", "text": uri if name in uri else f"{name}: {uri}"}
    told: dict[str, Any] = {"type": "resource_link", "uri": uri, "name": name}
    if part.title is not None:
        told["title"] = part.title
    return told if part.mime_type is None else {**told, "mimeType": part.mime_type}


def _mime_type(part: Content) -> str:
    guessed = mimetypes.guess_type(part.uri)[0] if part.uri else None
    return part.mime_type or guessed or ("image/png" if part.type == "image" else "audio/wav")
