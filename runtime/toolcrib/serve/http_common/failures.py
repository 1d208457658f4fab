"""What a client is told of a failed call.

A client gets what a model can act on. The message of a failure is passed on only if it was written for the
caller: the tool's own error, or invalid arguments. Any other message may contain files, hosts and secrets of
this machine. It goes to the log, and the client gets a fixed sentence for the kind of failure, its code, and
a few harmless details.
"""

from __future__ import annotations

from collections.abc import Mapping
from logging import getLogger
from secrets import token_hex
from typing import Any, Final, NamedTuple

from toolcrib.core.clock import format_duration
from toolcrib.core.model import JSON, Failure, Outcome, Result
from toolcrib.core.text import escape_terminal, truncate

MOST_TEXT: Final = 16 * 1024
"""Maximum length of a failure's text in bytes."""

_log = getLogger("toolcrib")

_OWN_WORDS: Final = frozenset({Outcome.TOOL_ERROR, Outcome.INVALID_ARGUMENTS})
"""Outcomes whose message was written for the caller."""

RAISED: Final = "tool_exception"
"""Code of a failure of which the client only learns that the tool raised an exception."""

_UNSAID: Final = frozenset({"auth_failed", RAISED})
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
    RAISED: "the tool raised an exception",
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


class ExplainedFailure(NamedTuple):
    """What a client is told of a failed call.

    Attributes:
        text: A text for a model.
        facts: `outcome`, `code`, `retryable` and `details`; `call`, the ID of the log record, if the reason is only there.
        own_words: Whether the text is that of the tool, or about the arguments.
    """

    text: str
    facts: dict[str, JSON]
    own_words: bool


def explain_failure(name: str, result: Result) -> ExplainedFailure:
    """Say what a client may know of a failed call, and log the rest.

    Args:
        name: Name of the tool.
        result: The result of the call, which is not `ok`.
    """
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
    return ExplainedFailure(truncate(text.encode(errors="replace").decode(), MOST_TEXT), told, own)


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
