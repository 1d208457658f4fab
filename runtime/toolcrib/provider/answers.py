"""What somebody says of the calls that wait, checked and made into calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from toolcrib.errors import ConfigurationError, did_you_mean
from toolcrib.model import Client, Outcome, Result
from toolcrib.provider.calls import Planned
from toolcrib.provider.conversations import Answer, Conversation
from toolcrib.provider.messages import ToolCall

REJECTED = "rejected"

FULFILLED = "client"
"""The mode of the tools that the caller fulfils."""


def approval_of(tool: str) -> frozenset[str]:
    """The permission that the approval of a call gives it."""
    return frozenset({f"approve:{tool}"})


def checked(
    conversation: Conversation, answers: Mapping[str, Any], is_fulfilled: Callable[[str], bool]
) -> dict[str, Answer]:
    """The answers to all calls that wait, by their ids.

    Args:
        conversation: Where they wait.
        answers: Id of a call -> what is said of it.
        is_fulfilled: Whether the caller fulfils a tool, so that it can give the result.

    Raises:
        ConfigurationError: One is missing, is no answer, is of a call that does not wait, or can't be given of this
            call. All of that is told at once, and nothing has happened.
    """
    waiting = {each.id: each for each in conversation.pending}
    wrong = [
        f"`{id_}` waits for no answer. {did_you_mean(id_, waiting)}".rstrip(". ")
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
        if answer.kind in {"result", "error"} and not is_fulfilled(pending.tool):
            wrong.append(
                f"`{id_}`: `{pending.tool}` is not in mode `client`, so that only its call can give a result"
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


def rejection(tool: str, answer: Answer) -> Result:
    """The result of a call that somebody does not want."""
    why = f": {answer.message}" if answer.message else ""
    return Result.failed(Outcome.DENIED, f"`{tool}` was not called, as was decided{why}", code=REJECTED)


def planned(call: ToolCall, answer: Answer) -> Planned:
    """The call that somebody approves, or has fulfilled."""
    return Planned(call, approval_of(call.name), None if answer.kind == "approve" else _given(answer))


def _given(answer: Answer) -> Client:
    """A client that gives the answer."""

    async def give(_call: Any) -> Any:
        if answer.kind == "error":
            return Result.failed(Outcome.TOOL_ERROR, answer.message or answer.code, code=answer.code)
        return answer.value

    return give
