"""Calls that are refused or need approval, and the answers to pending calls.

`ApprovalGate` checks the calls of a round. `check_answers` and `planned_call` handle the decisions of people.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase
from typing import Any, Final

from toolcrib.core.clock import format_duration, parse_duration
from toolcrib.core.errors import ConfigurationError, did_you_mean
from toolcrib.core.model import NOTHING, Client, Descriptor, Outcome, Result
from toolcrib.core.text import DuplicateKey, NotFinite, decode_json, truncate
from toolcrib.engine.approvals import (
    ApprovalError,
    Approvals,
    InvalidEdit,
    as_pending,
    permission_of,
)
from toolcrib.engine.session import Session
from toolcrib.executors.client import DEFERRED
from toolcrib.provider.conversations import Conversation
from toolcrib.provider.data_schema import kind_of
from toolcrib.provider.loop.calls import PlannedCall
from toolcrib.provider.loop.policy_enforcer import CallUsage, Rulebook, ToolOffer
from toolcrib.provider.messages import ToolCall
from toolcrib.provider.models.protocol import Finish
from toolcrib.security.access import AccessDecision
from toolcrib.security.approvals import Answer, Pending, UnusableApprovals, approval_permission

REFUSED_ANSWER = "answer_refused"

_SHOWN = 100
"""Maximum bytes of a name in a message; the model may have invented it."""


_ONLY: Final[Mapping[str, str | None]] = {"auto": None, "required": None, "none": ""}
"""Maps a tool choice to the only tool that may be called: None for all tools, empty for none."""


class ApprovalGate:
    """Checks the calls of one round.

    Attributes:
        offering: The tools that the model knows in this round.
    """

    offering: ToolOffer

    def __init__(self, session: Session, rulebook: Rulebook) -> None:
        self._session = session
        self._rulebook = rulebook
        self._only: str | None = None

    def enter(self, offering: ToolOffer, choice: str) -> None:
        """Start a round.

        Args:
            offering: The tools.
            choice: `auto`, `required`, `none`, or the name of the tool that must be called.
        """
        self.offering = offering
        self._only = _ONLY.get(choice, choice)

    def now(self) -> float:
        """Seconds since 1970 on the session's clock."""
        return self._session.clock.now().timestamp()

    def tool(self, name: str) -> Descriptor | None:
        """A tool of the session, offered or not; None if it is unknown."""
        return self._session.registry.get(name)

    def refusal(
        self, call: ToolCall, call_usage: CallUsage, finish: Finish, now: float
    ) -> Result | Pending | None:
        """The result that refuses a call, or the pending call; None if it is made now.

        Args:
            call: The call.
            call_usage: The calls so far.
            finish: The end of the answer that requests the call.
            now: Time of the answer, in seconds since 1970 on the session's clock.
        """
        if not finish.is_complete:
            return _unfinished(call, finish)
        known = self.offering.knows(call.name)
        refused: Result | Pending | None = call_usage.judge(call, now, known=known, only=self._only)
        if refused is None and not known:
            return self._unknown(call.name)
        if refused is None:
            refused = self._hidden(call.name)
        if refused is None and call.arguments is None:
            return unreadable_result(call)
        if refused is None and self._rulebook.of(call.name).asks:
            refused = self._asked(call)
        if refused is None:
            call_usage.begin(call, now)
        return refused

    def _unknown(self, name: str) -> Result:
        names = [each.name for each in self.offering.declared(reading=False)]
        near = did_you_mean(name, names) or f"none of the {len(names)} tools has a similar name"
        return Result.failure(Outcome.NOT_FOUND, f"unknown tool `{truncate(name, _SHOWN)}`; {near}")

    def _hidden(self, tool: str) -> Result | None:
        hidden = self.offering.hidden(tool)
        return (
            None if hidden is None else Result.failure(Outcome.UNAVAILABLE, hidden.message, code=hidden.code)
        )

    def _asked(self, call: ToolCall) -> Result | Pending | None:
        """Build the pending call for an approval; None if it is approved already."""
        # Check the arguments first: people should not be asked about a call that would fail anyway.
        prepared = self._session.check_arguments(call.name, call.arguments or {})
        if isinstance(prepared, Result):
            return prepared
        glob = next(glob for glob in self._rulebook.policy.ask if fnmatchcase(call.name, glob))
        decision = AccessDecision("ask", "tool_policy", f"ask {glob}", "", "", "medium")
        try:
            held = self._session.hold(call.name, prepared, decision, correlation=call.id)
        except UnusableApprovals as error:
            why = f"`{call.name}` needs approval, which is not possible: {error.message}"
            return Result.failure(Outcome.UNAVAILABLE, why, code=error.code)
        if held is None:
            return None
        what, details = f"`{call.name}` requires approval", as_pending(held).details
        return Pending(call.id, call.name, prepared, Outcome.NEEDS_APPROVAL.value, what, details)


def _unfinished(call: ToolCall, finish: Finish) -> Result:
    """Build the result of a call in an incomplete answer."""
    # No call of such an answer is safe: cut-off arguments can still be valid JSON, such as `{}`.
    why = f"`{truncate(call.name, _SHOWN)}` was not called: the answer that requested it"
    if finish.reason == "refused":
        return Result.failure(Outcome.DENIED, f"{why} was refused", code=REFUSED_ANSWER)
    why += " was cut off, so none of its calls are made; write a shorter answer"
    return Result.failure(Outcome.LIMIT_EXCEEDED, why, code="answer_cut_off")


def unreadable_result(call: ToolCall) -> Result:
    """Build the result of a call whose arguments are not a JSON object."""
    why = f"invalid arguments for `{call.name}`: {_why_no_object(call.written)}"
    return Result.failure(Outcome.INVALID_ARGUMENTS, why, code="not_json")


def _why_no_object(written: str) -> str:
    """Explain why arguments cannot be read, without showing them."""
    try:
        value = decode_json(written)
    except json.JSONDecodeError as error:
        return f"expected a JSON object, got invalid JSON: {error.msg} at character {error.pos}"
    except (DuplicateKey, NotFinite) as error:
        return str(error)
    except (ValueError, RecursionError):
        return "expected a JSON object, got a number that is too long or nesting that is too deep"
    if isinstance(value, dict):
        return "the nesting is too deep, or a value is not valid JSON, such as a lone surrogate"
    kind = {list: "a list", str: "a string", bool: "a boolean"}.get(type(value), "a number")
    return f"expected a JSON object, got {kind}"


REJECTED = "rejected"


def approval_id(pending: Pending) -> str:
    """The ID of the stored approval of a pending call; empty if it has none."""
    facts = pending.details.get("approval")
    id_ = facts.get("id") if isinstance(facts, dict) else None
    return id_ if isinstance(id_, str) else ""


def stored_answers(conversation: Conversation, approvals: Approvals) -> dict[str, Answer]:
    """The answers that pending calls got elsewhere, such as by `toolcrib approvals`, by ID of the call.

    Raises:
        UnusableApprovals: The store of approvals is corrupt, newer than this program, or not private.
    """
    found: dict[str, Answer] = {}
    for pending in conversation.pending:
        approval = approvals.find(approval_id(pending)) if approval_id(pending) else None
        if approval is None:
            continue
        if approval.resolution is not None:
            found[pending.id] = approval.resolution.answer
        elif approvals.state(approval) == "expired":
            found[pending.id] = Answer.expire()
    return found


def settle_answers(
    conversation: Conversation,
    answers: Mapping[str, Answer],
    stored: Collection[str],
    approvals: Approvals,
    session: Session,
) -> None:
    """Store the answers to pending calls, and claim the calls that are made now.

    Args:
        conversation: The conversation.
        answers: The answers, by ID of the call.
        stored: The IDs of the calls whose answers are stored already.
        approvals: The approvals of the runtime.
        session: The session that makes the calls.

    Raises:
        ApprovalError: Another process has answered a call meanwhile (`already_answered`).
        ConfigurationError: Edited arguments are invalid or forbidden; no answer was stored.
        UnusableApprovals: As `stored_answers`.
    """
    ids = {pending.id: approval_id(pending) for pending in conversation.pending}
    known = {id_: each for id_, each in ids.items() if each and approvals.find(each) is not None}
    wrong = []
    for id_, approval in known.items():
        if id_ not in stored:
            try:
                approvals.check(approval, answers[id_])
            except InvalidEdit as error:
                wrong.append(f"`{id_}`: {error.message}")
    if wrong:
        raise _refused(wrong)
    for id_, approval in known.items():
        if id_ not in stored and answers[id_].kind in _DECIDING:
            approvals.answer(approval, answers[id_])
    for id_, approval in known.items():
        # A rejection is taken as well: this conversation knows of it, and the next equal call must ask again.
        taken = answers[id_].kind in _DECIDING and approvals.take(approval, session)
        if answers[id_].kind == "approve" and not taken:
            raise ApprovalError(
                f"the approved call `{id_}` was made already",
                code="already_answered",
                hint="continue with the conversation that those answers produced",
            )


_DECIDING = frozenset({"approve", "reject", "expire"})


def check_answers(conversation: Conversation, answers: Mapping[str, Any]) -> dict[str, Answer]:
    """Parse the answers to all pending calls.

    Args:
        conversation: The conversation with the pending calls.
        answers: Maps the ID of a call to its answer.

    Raises:
        ConfigurationError: An answer is missing or invalid, is for a call that is not pending, or does not
            apply to its call. The error lists all faults, and no call was made.
    """
    if answers is NOTHING and not conversation.pending:
        return {}
    if not isinstance(answers, Mapping):
        raise _refused([f"expected an object of answers keyed by call id, got {kind_of(answers)}"])
    waiting = {each.id: each for each in conversation.pending}
    # All answers are checked before the first one is applied: a call that was made cannot be taken back.
    wrong = [
        f"unknown pending call `{id_}`; {did_you_mean(str(id_), waiting)}".removesuffix("; ")
        for id_ in answers
        if id_ not in waiting
    ]
    found: dict[str, Answer] = {}
    for id_, pending in waiting.items():
        if id_ not in answers:
            wrong.append(f"missing answer for `{id_}` (`{pending.tool}`)")
            continue
        try:
            answer = found[id_] = Answer.parse(answers[id_])
        except ConfigurationError as error:
            wrong.append(f"`{id_}`: {error.message}; {error.hint}")
            continue
        if answer.kind in _FULFILLING and pending.code != DEFERRED:
            wrong.append(
                f"`{id_}`: `{pending.tool}` waits with `{pending.code}`; `result` and `error` are valid only for a call that waits with `{DEFERRED}`"
            )
    if wrong:
        raise _refused(wrong)
    return found


def _refused(wrong: list[str]) -> ConfigurationError:
    return ConfigurationError(
        "invalid answers to the pending calls:\n" + "\n".join(f"- {each}" for each in wrong),
        code="invalid_answers",
        hint='answer every call in `pending`, such as `answers={id: {"approve": true}}`; the other kinds are `reject`, `result` and `error`',
    )


_FULFILLING = frozenset({"result", "error"})
"""Kinds of answers of a client that fulfilled the call itself."""


_REFUSING = frozenset({"reject", "expire"})
"""Kinds of answers after which a call that needs approval is not made."""


def rejection_result(tool: str, answer: Answer) -> Result:
    """Build the result of a rejected call."""
    if answer.kind == "expire":
        why = f"`{tool}` was not called: it was not approved in time"
        return Result.failure(Outcome.DENIED, why, code="approval_expired")
    why = f": {answer.message}" if answer.message else ""
    return Result.failure(Outcome.DENIED, f"`{tool}` was not called{why}", code=REJECTED)


def answer_refusal(call: ToolCall, answer: Answer, pending: Pending, waited: float) -> Result | None:
    """The result of an answered call that is not made; None if it is made.

    A call that the client declines to fulfil is made, because its tool defines what happens then.

    Args:
        call: The call.
        answer: The answer.
        pending: The pending call.
        waited: Seconds since the call started.
    """
    if pending.code != DEFERRED:
        return rejection_result(call.name, answer) if answer.kind in _REFUSING else None
    timeout = pending.details.get("timeout")
    if answer.kind in _FULFILLING and isinstance(timeout, str) and waited > parse_duration(timeout):
        why = (
            f"`{call.name}` was fulfilled after {format_duration(round(waited, 3))}; its timeout is {timeout}"
        )
        return Result.failure(Outcome.TIMEOUT, why)
    return None


def planned_call(call: ToolCall, answer: Answer, pending: Pending | None = None) -> PlannedCall:
    """Plan a call that was approved, fulfilled, or declined by its client.

    Args:
        call: The call.
        answer: The answer.
        pending: The pending call; None if it is not known.
    """
    held = "" if pending is None else approval_id(pending)
    grants = approval_permission(call.name) | ({permission_of(held)} if held else set())
    return PlannedCall(call, grants, None if answer.kind == "approve" else _given(answer))


def _given(answer: Answer) -> Client:
    """Build a client that returns the answer."""

    async def give(call: Any) -> Any:
        if answer.kind in _REFUSING:
            return call.decline(
                answer.message or ("there was no answer in time" if answer.kind == "expire" else "")
            )
        if answer.kind == "error":
            return Result.failure(Outcome.TOOL_ERROR, answer.message or answer.code, code=answer.code)
        return answer.value

    return give
