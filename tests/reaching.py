"""A mode whose tools reach out, as far as the layers can tell: what tests of reliability are made of."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from textwrap import dedent
from typing import Any

from in_memory import runtime_of
from toolcrib import Call, Executors, Outcome, Result, Runtime
from toolcrib.core.model import JSON, Descriptor

Answer = Callable[[Call], Awaitable[Result]]

ORIGIN = "https://api.example.com"


@dataclass
class Reached:
    """A bound tool that a Python function answers; it reaches out."""

    answer: Answer
    origin: str
    repeatable: bool
    waits: bool = True

    async def execute(self, call: Call) -> Result:
        return await self.answer(call)

    def explain(self, _call: Call) -> JSON:
        return {"origin": self.origin}


class ReachingExecutor:
    """Mode `fake`: the block may say `origin` and `once`, which means that calls are not repeatable."""

    def __init__(self, answer: Answer, *, waits: bool = True) -> None:
        self._answer = answer
        self._waits = waits

    @property
    def block_schema(self) -> Any:
        return {"type": "object"}

    def check(self, _descriptor: Descriptor) -> tuple[()]:
        return ()

    def bind(self, descriptor: Descriptor) -> Reached:
        block: Any = descriptor.bindings["fake"]
        return Reached(self._answer, block.get("origin", ORIGIN), not block.get("once"), self._waits)

    async def aclose(self) -> None:
        pass


def reaching(answer: Answer, *more: str, waits: bool = True, **options: Any) -> Runtime:
    """A runtime with the tools `tool`, `tool_2` ..., one for each text of `more`, on virtual time."""
    executors = Executors({"fake": lambda: ReachingExecutor(answer, waits=waits)})
    texts = []
    for number, keys in enumerate(more or ("",), 1):
        name = "tool" if number == 1 else f"tool_{number}"
        text = f"name: {name}\ninput_schema: {{}}\n{dedent(keys).strip()}\n"
        texts.append(text if "fake:" in keys else f"{text}fake: {{}}\n")
    return runtime_of("---\n".join(texts), executors=executors, **options)


def failed(status: int = 503, *, retryable: bool = True, **details: JSON) -> Result:
    """A result as of HTTP."""
    return Result.failure(
        Outcome.TOOL_ERROR,
        f"status {status}",
        code=f"http_{status}",
        details={"status": status, **details},
        retryable=retryable,
    )


def broken(*, retryable: bool = True) -> Result:
    """A result of a connection that broke."""
    return Result.failure(Outcome.TRANSPORT_ERROR, "broken", code="connection_broken", retryable=retryable)


class Script:
    """Answers one after the other, the last one again and again; knows the calls and their times."""

    def __init__(self, *answers: Result, takes: float = 0.0) -> None:
        self.calls: list[Call] = []
        self.times: list[float] = []
        self.inside = 0
        self.most_inside = 0
        self.begun = asyncio.Event()
        self._answers = answers or (Result.success(1),)
        self._takes = takes

    async def __call__(self, call: Call) -> Result:
        clock = call.context.session.clock
        self.calls.append(call)
        self.times.append(clock.monotonic())
        self.begun.set()
        answer = self._answers[min(len(self.calls), len(self._answers)) - 1]
        self.inside += 1
        self.most_inside = max(self.inside, self.most_inside)
        try:
            if self._takes:
                await clock.sleep(self._takes)
        finally:
            self.inside -= 1
        return answer
