"""Calls that are not made at once: refused, waiting for an approval, and the answers to those that wait.

`ApprovalGate` judges the calls of a round, `check_answers` and `planned_call` take what somebody decided, and a `Claim`
makes sure that a suspended conversation is resumed once where several processes may try.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Protocol

from toolcrib.core.clock import format_duration, parse_duration
from toolcrib.core.errors import ConfigurationError, did_you_mean
from toolcrib.core.model import Call, CallContext, Client, Descriptor, Outcome, Result
from toolcrib.core.text import DuplicateKey, NotFinite, decode_json, truncate
from toolcrib.engine.middleware.arguments import ArgumentCheck
from toolcrib.engine.session import Session
from toolcrib.executors.client import DEFERRED
from toolcrib.provider.conversations import Answer, Conversation, Pending
from toolcrib.provider.data_schema import kind_of
from toolcrib.provider.loop.calls import PlannedCall
from toolcrib.provider.loop.policy_enforcer import CallUsage, Rulebook, ToolOffer
from toolcrib.provider.messages import ToolCall
from toolcrib.provider.models.protocol import Finish

REFUSED_ANSWER = "answer_refused"

_SHOWN = 100
"""Bytes of a name that is shown to the model that made it up."""


class ApprovalGate:
    """Judges calls of one round.

    Attributes:
        offering: The tools, as the model knows them in this round.
    """

    offering: ToolOffer

    def __init__(self, session: Session, rulebook: Rulebook) -> None:
        self._session = session
        self._rulebook = rulebook
        self._only: str | None = None

    def enter(self, offering: ToolOffer, choice: str) -> None:
        """A round begins.

        Args:
            offering: The tools.
            choice: `auto`, `required`, `none`, or the name of the tool that must be called.
        """
        self.offering = offering
        self._only = {"auto": None, "required": None, "none": ""}.get(choice, choice)

    def now(self) -> float:
        """Seconds since 1970 on the session's clock."""
        return self._session.clock.now().timestamp()

    def tool(self, name: str) -> Descriptor | None:
        """A tool of the session, offered or not; None for one that is not there."""
        return self._session.registry.get(name)

    def refusal(self, call: ToolCall, call_usage: CallUsage, finish: Finish) -> Result | Pending | None:
        """Why a call is not made, or what it waits for; None where it is made now."""
        if not finish.is_complete:
            return _unfinished(call, finish)
        now, known = self.now(), self.offering.knows(call.name)
        refused = call_usage.judge(call, now, known=known, only=self._only)
        if refused is None and not known:
            return self._unknown(call.name)
        refused = refused or self._hidden(call.name)
        if refused is None and call.arguments is None:
            return _unreadable(call)
        if refused is None and self._rulebook.of(call.name).asks:
            return self._asked(call)
        if refused is None:
            call_usage.begin(call, now)
        return refused

    def _unknown(self, name: str) -> Result:
        names = [each.name for each in self.offering.declared(reading=False)]
        near = did_you_mean(name, names) or f"none of the {len(names)} tools has a similar name"
        return Result.failed(Outcome.NOT_FOUND, f"unknown tool `{truncate(name, _SHOWN)}`; {near}")

    def _hidden(self, tool: str) -> Result | None:
        hidden = self.offering.hidden(tool)
        return (
            None if hidden is None else Result.failed(Outcome.UNAVAILABLE, hidden.message, code=hidden.code)
        )

    def _asked(self, call: ToolCall) -> Result | Pending:
        """A call that somebody is asked about; bad arguments bother nobody."""
        tool, arguments = self._session.registry[call.name], call.arguments or {}
        repaired = ArgumentCheck(tool).repaired(Call(tool, arguments, CallContext(self._session)))
        if isinstance(repaired, Result):
            return repaired
        prepared = repaired[0].arguments
        what = f"`{call.name}` requires approval"
        return Pending(call.id, call.name, prepared, Outcome.NEEDS_APPROVAL.value, what)


def _unfinished(call: ToolCall, finish: Finish) -> Result:
    """The result of a call in an answer that did not come to its end.

    Nobody knows which of its calls are whole: arguments that are cut off may still be a JSON object, above all `{}`.
    """
    why = f"`{truncate(call.name, _SHOWN)}` was not called: the answer that requested it"
    if finish.reason == "refused":
        return Result.failed(Outcome.DENIED, f"{why} was refused", code=REFUSED_ANSWER)
    why += " was cut off, so none of its calls are made; write a shorter answer"
    return Result.failed(Outcome.LIMIT_EXCEEDED, why, code="answer_cut_off")


def _unreadable(call: ToolCall) -> Result:
    """The result of a call whose arguments are no JSON object."""
    why = f"invalid arguments for `{call.name}`: {_why_no_object(call.written)}"
    return Result.failed(Outcome.INVALID_ARGUMENTS, why, code="not_json")


def _why_no_object(written: str) -> str:
    """What is wrong with arguments that can't be read; what is in them is not shown."""
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


def approval_permission(tool: str) -> frozenset[str]:
    """The permission that the approval of a call gives it."""
    return frozenset({f"approve:{tool}"})


def check_answers(conversation: Conversation, answers: Mapping[str, Any]) -> dict[str, Answer]:
    """The answers to all calls that wait, by their ids.

    Args:
        conversation: Where they wait.
        answers: Id of a call -> what is said of it.

    Raises:
        ConfigurationError: One is missing, is no answer, is of a call that does not wait, or can't be given of this
            call. All of that is told at once, and nothing has happened.
    """
    if not isinstance(answers, Mapping):
        raise _refused([f"expected an object of answers keyed by call id, got {kind_of(answers)}"])
    waiting = {each.id: each for each in conversation.pending}
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
"""What is said of a call by whoever has fulfilled it."""


def rejection_result(tool: str, answer: Answer) -> Result:
    """The result of a call that somebody does not want."""
    why = f": {answer.message}" if answer.message else ""
    return Result.failed(Outcome.DENIED, f"`{tool}` was not called{why}", code=REJECTED)


def answer_refusal(call: ToolCall, answer: Answer, pending: Pending, waited: float) -> Result | None:
    """The result of a call that is not made after all; None where it is.

    A call that the caller declines to fulfil is made: its tool says what becomes of it then.

    Args:
        call: The call.
        answer: What is said of it.
        pending: What was asked.
        waited: Seconds since it began.
    """
    if pending.code != DEFERRED:
        return rejection_result(call.name, answer) if answer.kind == "reject" else None
    timeout = pending.details.get("timeout")
    if answer.kind in _FULFILLING and isinstance(timeout, str) and waited > parse_duration(timeout):
        why = (
            f"`{call.name}` was fulfilled after {format_duration(round(waited, 3))}; its timeout is {timeout}"
        )
        return Result.failed(Outcome.TIMEOUT, why)
    return None


def planned_call(call: ToolCall, answer: Answer) -> PlannedCall:
    """The call that somebody approves, has fulfilled, or declines to fulfil."""
    return PlannedCall(
        call, approval_permission(call.name), None if answer.kind == "approve" else _given(answer)
    )


def _given(answer: Answer) -> Client:
    """A client that gives the answer."""

    async def give(call: Any) -> Any:
        if answer.kind == "reject":
            return call.decline(answer.message)
        if answer.kind == "error":
            return Result.failed(Outcome.TOOL_ERROR, answer.message or answer.code, code=answer.code)
        return answer.value

    return give


class Claim(Protocol):
    """Says who is the first to go on."""

    async def claim(self, ids: Sequence[str], /) -> bool:
        """Whether nobody has asked for these before; then they belong to whoever asks now, for ever.

        It is asked when everything else about a resumption is right, and before any call is made. What it raises
        ends the resumption; nothing has happened then.

        Args:
            ids: `<conversation>/<call>@<event>` of each call that is answered: the same for whoever goes on from the
                same place, and another where the call waits once more.
        """
        ...


class FolderClaims:
    """Claims in a folder that threads, processes and machines may share: one file for each, made exclusively.

    A process that ends between its claim and the calls keeps it: they are then made at most once, not exactly once.
    Whoever knows that they were not made may remove their files, of which each has in it what it is for.

    Attributes:
        path: The folder; it is made with the first claim.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    async def claim(self, ids: Sequence[str], /) -> bool:
        """Whether no file of these was there.

        Raises:
            OSError: A file can't be made; none of them is left.
        """
        self.path.mkdir(parents=True, exist_ok=True)
        made: list[Path] = []
        try:
            for id_ in sorted(ids):
                place = self.path / sha256(id_.encode("utf-8", "surrogatepass")).hexdigest()
                _make(place, id_)
                made.append(place)
        except OSError as error:
            for place in made:
                place.unlink()
            if isinstance(error, FileExistsError):
                return False
            raise
        return True


def _make(place: Path, name: str) -> None:
    with place.open("x", encoding="utf-8", errors="backslashreplace") as file:
        file.write(f"{name}\n")
