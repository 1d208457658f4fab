"""Trajectories and verdicts in few words: what tests of assertions are made of."""

from __future__ import annotations

import asyncio
from typing import Any

from toolcrib import Outcome
from toolcrib.loading.scenarios.assertions import check_assertions, compile_guardrails
from toolcrib.loading.scenarios.model import Assertion
from toolcrib.provider.conversations import CallRecord, Conversation
from toolcrib.provider.messages import Message, Text, user
from toolcrib.scenarios.assertions import (
    NOBODY,
    AssertionContext,
    AssertionVerdict,
    Trajectory,
    evaluate_assertion,
)


def called(tool: str, *, outcome: str | None = "ok", turn: int = 1, **more: Any) -> CallRecord:
    """A call that reached its tool, unless told otherwise; `args` and `value` as in a scenario."""
    arguments = more.pop("args", {})
    return CallRecord(
        id=more.pop("id", tool),
        tool=tool,
        arguments=arguments,
        turn=turn,
        round=more.pop("round", 1),
        outcome=None if outcome is None else Outcome(outcome),
        reached=more.pop("reached", True),
        **more,
    )


def stopped(tool: str, outcome: str = "denied", **more: Any) -> CallRecord:
    """A call that was asked for and did not reach its tool."""
    return called(tool, outcome=outcome, reached=False, **more)


def way(*calls: CallRecord, say: str | list[str] = (), **more: Any) -> Trajectory:
    """What an agent called, and said."""
    guardrails = compile_guardrails(more.pop("guardrails", ()))
    texts = (say,) if isinstance(say, str) else tuple(say)
    return Trajectory(calls=calls, texts=texts, guardrails=guardrails, **more)


def conversation(*turns: tuple[str, list[CallRecord], list[str]], **more: Any) -> Conversation:
    """What the user said, what was called, and what the assistant said, turn by turn."""
    messages: list[Message] = []
    calls: list[CallRecord] = []
    for number, (asked, asked_for, said) in enumerate(turns, 1):
        messages += [user(asked), *(Message("assistant", (Text(text),)) for text in said)]
        calls += [call._replace(turn=number) for call in asked_for]
    return Conversation(messages=tuple(messages), calls=tuple(calls), **more)


def settled(kind: str, params: dict[str, Any] | None = None, **more: Any) -> Assertion:
    """An assertion without a fault."""
    problems = []
    found = check_assertions([{"type": kind, "params": params or {}, **more}], "", problems)
    assert [str(problem) for problem in problems] == []
    return found[0]


def judged(
    kind: str,
    params: dict[str, Any] | None,
    trajectory: Trajectory,
    surroundings: AssertionContext = NOBODY,
    **more: Any,
) -> AssertionVerdict:
    """What comes of an assertion."""
    return asyncio.run(evaluate_assertion(settled(kind, params, **more), trajectory, surroundings))
