"""What somebody says of the calls that wait, checked and made into calls."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolcrib.core.clock import format_duration, parse_duration
from toolcrib.core.errors import ConfigurationError, did_you_mean
from toolcrib.core.model import Client, Outcome, Result
from toolcrib.executors.client.client_call import DEFERRED
from toolcrib.provider.conversations import Answer, Conversation, Pending
from toolcrib.provider.data_schema import kind_of
from toolcrib.provider.loop.calls import Planned
from toolcrib.provider.messages import ToolCall

REJECTED = "rejected"


def approval_of(tool: str) -> frozenset[str]:
    """The permission that the approval of a call gives it."""
    return frozenset({f"approve:{tool}"})


def checked(conversation: Conversation, answers: Mapping[str, Any]) -> dict[str, Answer]:
    """The answers to all calls that wait, by their ids.

    Args:
        conversation: Where they wait.
        answers: Id of a call -> what is said of it.

    Raises:
        ConfigurationError: One is missing, is no answer, is of a call that does not wait, or can't be given of this
            call. All of that is told at once, and nothing has happened.
    """
    if not isinstance(answers, Mapping):
        raise _refused([f"expected an object of answers by the ids of calls, got {kind_of(answers)}"])
    waiting = {each.id: each for each in conversation.pending}
    wrong = [
        f"`{id_}` waits for no answer. {did_you_mean(str(id_), waiting)}".rstrip(". ")
        for id_ in answers
        if id_ not in waiting
    ]
    found: dict[str, Answer] = {}
    for id_, pending in waiting.items():
        if id_ not in answers:
            wrong.append(f"`{id_}` (`{pending.tool}`) waits, and nothing is said of it")
            continue
        try:
            answer = found[id_] = Answer.parse(answers[id_])
        except ConfigurationError as error:
            wrong.append(f"`{id_}`: {error.message}; {error.hint}")
            continue
        if answer.kind in _FULFILLING and pending.code != DEFERRED:
            wrong.append(
                f"`{id_}`: `{pending.tool}` waits with `{pending.code}`, and only a call that its caller is to fulfil (`{DEFERRED}`) is given a result"
            )
    if wrong:
        raise _refused(wrong)
    return found


def _refused(wrong: list[str]) -> ConfigurationError:
    return ConfigurationError(
        "the calls that wait are answered all together:\n" + "\n".join(f"- {each}" for each in wrong),
        code="invalid_answers",
        hint='pass `answers={id: {"approve": true}}`, or `reject`, `result`, `error`, of every one of `pending`',
    )


_FULFILLING = frozenset({"result", "error"})
"""What is said of a call by whoever has fulfilled it."""


def rejection(tool: str, answer: Answer) -> Result:
    """The result of a call that somebody does not want."""
    why = f": {answer.message}" if answer.message else ""
    return Result.failed(Outcome.DENIED, f"`{tool}` was not called, as was decided{why}", code=REJECTED)


def refused(call: ToolCall, answer: Answer, pending: Pending, waited: float) -> Result | None:
    """The result of a call that is not made after all; None where it is.

    A call that the caller declines to fulfil is made: its tool says what becomes of it then.

    Args:
        call: The call.
        answer: What is said of it.
        pending: What was asked.
        waited: Seconds since it began.
    """
    if pending.code != DEFERRED:
        return rejection(call.name, answer) if answer.kind == "reject" else None
    timeout = pending.details.get("timeout")
    if answer.kind in _FULFILLING and isinstance(timeout, str) and waited > parse_duration(timeout):
        why = f"`{call.name}` was fulfilled {format_duration(round(waited, 3))} after it began, and its caller may take {timeout}"
        return Result.failed(Outcome.TIMEOUT, why)
    return None


def planned(call: ToolCall, answer: Answer) -> Planned:
    """The call that somebody approves, has fulfilled, or declines to fulfil."""
    return Planned(call, approval_of(call.name), None if answer.kind == "approve" else _given(answer))


def _given(answer: Answer) -> Client:
    """A client that gives the answer."""

    async def give(call: Any) -> Any:
        if answer.kind == "reject":
            return call.decline(answer.message)
        if answer.kind == "error":
            return Result.failed(Outcome.TOOL_ERROR, answer.message or answer.code, code=answer.code)
        return answer.value

    return give
