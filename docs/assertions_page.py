"""The page of assertions: what each kind takes, and an example that holds and one that fails."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from toolcrib.core.model import Content, Outcome, Result
from toolcrib.loading.prompts import Guardrail
from toolcrib.loading.scenarios.assertions import (
    ALIASES,
    SPELLINGS,
    assertion_kinds,
    check_assertions,
    compile_guardrails,
)
from toolcrib.loading.scenarios.model import Assertion
from toolcrib.provider.conversations import CallRecord
from toolcrib.provider.messages import Message, Text
from toolcrib.provider.models.protocol import Delta, Finish, Request, TextDelta, Tokens
from toolcrib.scenarios.assertions import AssertionContext, AssertionVerdict, Trajectory, evaluate_assertion

EXAMPLES: Mapping[str, dict[str, Any]] = json.loads(
    (Path(__file__).parent / "assertion_examples.json").read_text(encoding="utf-8")
)
"""Kind -> parameters, with a conversation in which they hold and one in which they fail."""

STOPPED = frozenset({"ok", "invalid_arguments", "not_found", "denied", "limit_exceeded"})
"""Outcomes that say nothing of whether a call of an example reached its tool, or that it did not."""


class Answering:
    """A model that always says the same."""

    def __init__(self, text: str) -> None:
        self.text = text

    async def respond(self, _request: Request) -> AsyncIterator[Delta]:
        """Say it."""
        yield TextDelta(self.text)
        yield Finish()


def settled(kind: str) -> Assertion:
    """The assertion of an example."""
    problems: list[Any] = []
    found = check_assertions([{"type": kind, "params": EXAMPLES[kind]["params"]}], "", problems)
    assert not problems, (kind, problems)
    return found[0]


def trajectory_of(told: Mapping[str, Any]) -> Trajectory:
    """The conversation of an example."""
    texts = tuple(told.get("texts", ()))
    return Trajectory(
        texts=texts,
        calls=tuple(record(index, call) for index, call in enumerate(told.get("calls", ()))),
        messages=tuple(Message("assistant", (Text(text),)) for text in texts),
        tokens=Tokens(**told.get("tokens", {})),
        cost=told.get("cost", 0.0),
        guardrails=compile_guardrails(Guardrail(**each) for each in told.get("guardrails", ())),
    )


def record(index: int, call: Mapping[str, Any]) -> CallRecord:
    """A call of an example."""
    outcome = Outcome(call.get("outcome", "ok"))
    return CallRecord(
        id=f"call_{index}",
        tool=call["tool"],
        arguments=call.get("args", {}),
        turn=1,
        round=index + 1,
        outcome=outcome,
        value=call.get("value"),
        content=tuple(Content(**part) for part in call.get("content", ())),
        code=call.get("code", ""),
        message=call.get("message", ""),
        reached=outcome not in STOPPED,
        states=call.get("states", {}),
    )


def judged(kind: str, case: str) -> AssertionVerdict:
    """What comes of an example: of the case `holds` or `fails`."""
    told = EXAMPLES[kind][case]

    async def call_tool(_name: str, _arguments: dict[str, Any]) -> Result:
        return Result.success(told["answer"])

    around = AssertionContext(call_tool, Answering(told["judge"]) if "judge" in told else None)
    return asyncio.run(evaluate_assertion(settled(kind), trajectory_of(told), around))


def other_names(kind: str) -> list[str]:
    """What else a kind is called."""
    return [f"`{name}`" for name, alias in ALIASES.items() if alias.kind == kind]


def other_spellings(kind: str) -> list[str]:
    """What else the parameters of a kind are called."""
    return [f"`{name}` for `{own}`" for name, own in SPELLINGS.get(kind, {}).items()]


def section(kind: str, table: str) -> str:
    """One kind: what it means, its parameters, its examples."""
    schema = assertion_kinds()[kind]
    names, spellings = other_names(kind), other_spellings(kind)
    example = {"type": kind, "params": EXAMPLES[kind]["params"]}
    parts = [
        f"## {kind}\n",
        f"{schema['description']}\n",
        *([f"Aliases: {', '.join(names)}.\n"] if names else []),
        *([f"{table}\n"] if schema["properties"] else []),
        *([f"Parameter aliases: {', '.join(spellings)}.\n"] if spellings else []),
        f"```yaml\n- {json.dumps(example, ensure_ascii=False)}\n```\n",
        f"Example of a failure:\n\n```text\n{judged(kind, 'fails').message}\n```\n",
    ]
    return "\n".join(parts)
