"""The form in which the user of a client decides about a call that waits for approval."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from toolcrib.core.model import JSON, Outcome, Result
from toolcrib.core.text import compact, decode_json
from toolcrib.security.approvals import Answer, Pending, Scope

_LONGEST: Final = 4_000
"""Maximum length of a question, in characters."""

# MCP, elicitation: only top-level properties of primitive types. An argument is edited as JSON text.
FORM: Final[dict[str, Any]] = {
    "type": "object",
    "properties": {
        "decision": {
            "type": "string",
            "title": "Decision",
            "enum": ["approve", "approve for this session", "reject"],
        },
        "reason": {"type": "string", "title": "Reason", "description": "Why you reject the call."},
        "arguments": {
            "type": "string",
            "title": "Arguments",
            "description": "Other arguments for the call, as a JSON object. Values shown as *** stay as they are.",
        },
    },
    "required": ["decision"],
}
"""JSON Schema of the form in which a person decides."""

FORM_FOR_ONE_CALL: Final[dict[str, Any]] = {
    **FORM,
    "properties": {
        **FORM["properties"],
        "decision": {**FORM["properties"]["decision"], "enum": ["approve", "reject"]},
    },
}
"""The schema for a client whose session others share: its user cannot decide for them."""


def question(pending: Pending, problem: str = "") -> str:
    """The message of the form."""
    lines = [pending.message, f"{pending.tool} {compact(pending.arguments)}", *([problem] if problem else [])]
    text = "\n".join(lines).encode(errors="replace").decode()
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def answer_in_form(said: Mapping[str, Any], schema: dict[str, Any] = FORM) -> Answer:
    """The answer in a filled form.

    Args:
        said: The form.
        schema: Its schema.

    Raises:
        ValueError: The form is invalid.
    """
    decision, reason = said.get("decision"), said.get("reason")
    if decision == "reject":
        return Answer.reject(reason if isinstance(reason, str) else "")
    known = schema["properties"]["decision"]["enum"]
    if decision not in known:
        raise ValueError(f"`decision` must be one of: {', '.join(f'`{each}`' for each in known)}")
    scope: Scope = "once" if decision == "approve" else "session"
    written = said.get("arguments")
    if not isinstance(written, str) or not written.strip():
        return Answer.approve(scope=scope)
    edited = decode_json(written)
    if not isinstance(edited, dict):
        raise ValueError("`arguments` must be a JSON object")  # noqa: TRY004 -- the form is the text of a person
    return Answer.approve(edited, scope=scope)


def approval_in(result: Result) -> str:
    """The ID of the approval that a call waits for; empty for any other result."""
    if result.outcome is not Outcome.NEEDS_APPROVAL or result.error is None:
        return ""
    facts: JSON | Mapping[str, JSON] = result.error.details.get("approval")
    id_ = facts.get("id") if isinstance(facts, dict) else None
    return id_ if isinstance(id_, str) else ""
