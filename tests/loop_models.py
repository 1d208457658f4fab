"""Models that tests of the tool loop make up: what they answer is a list, or worked out from what they are asked."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from in_memory import runtime_of
from toolcrib import Outcome, ProviderMiddleware, Runtime, Session
from toolcrib.provider import (
    CallDelta,
    Config,
    Conversation,
    Delta,
    Event,
    Finish,
    Request,
    TextDelta,
    ToolPolicy,
)

Answer = Sequence[Delta]

ASKING, SAID, FREE = Finish("tool_calls"), Finish(), ToolPolicy()

TOOLS = """
name: get_order
input_schema: {type: object, properties: {id: {type: string}, n: {type: integer}}, additionalProperties: false}
output_schema: {type: object, required: [status]}
mock: {result: {id: "{{ args['id'] }}", status: paid}}
---
name: refund_order
input_schema: {type: object, properties: {id: {type: string}, amount: {type: integer, minimum: 1}}}
mock: {result: {refunded: "{{ args['amount'] }}"}}
---
name: replace_order
input_schema: {type: object}
mock: {result: replaced}
---
name: slow
input_schema: {type: object}
mock: {result: slow, latency: 2s}
---
name: slower
input_schema: {type: object}
mock: {result: slower, latency: 5s}
---
name: failing
input_schema: {type: object}
mock: {error: {code: broken, message: it is broken}}
---
name: lying
input_schema: {type: object}
output_schema: {type: object, properties: {status: {type: string}}}
mock: {result: {status: "{{ args['x'] }}"}}
"""
"""Tools of all kinds: prompt ones, slow ones, failing ones."""


class Model:
    """Answers what is on its list, then says `done`. It remembers what it was asked."""

    def __init__(self, *answers: Answer | Callable[[Request], Answer]) -> None:
        self.requests: list[Request] = []
        self._answers = list(answers)

    async def respond(self, request: Request) -> AsyncIterator[Delta]:
        self.requests.append(request)
        answer = self._answers.pop(0) if self._answers else [TextDelta("done"), Finish()]
        for delta in answer(request) if callable(answer) else answer:
            yield delta


def asks(*calls: tuple[str, Any] | str, text: str = "", finish: Finish = ASKING) -> list[Delta]:
    """An answer that asks for calls: names, or pairs of a name and arguments."""
    deltas: list[Delta] = [TextDelta(text)] if text else []
    for slot, call in enumerate(calls):
        name, arguments = (call, {}) if isinstance(call, str) else call
        written = arguments if isinstance(arguments, str) else json.dumps(arguments)
        deltas.append(CallDelta(slot, "", name, written))
    return [*deltas, finish]


def says(text: str, finish: Finish = SAID) -> list[Delta]:
    """An answer of text."""
    return [TextDelta(text), finish]


class Endless(Model):
    """Asks for the same calls again and again."""

    def __init__(self, *calls: tuple[str, Any] | str, finish: Finish = ASKING) -> None:
        super().__init__()
        self._same = asks(*calls, finish=finish)

    async def respond(self, request: Request) -> AsyncIterator[Delta]:
        self.requests.append(request)
        for delta in self._same:
            yield delta


def loop(
    model: Any, policy: ToolPolicy = FREE, tools: Runtime | Session | str = TOOLS, **config: Any
) -> ProviderMiddleware:
    """A loop over tools, on virtual time."""
    runtime = runtime_of(tools) if isinstance(tools, str) else tools
    return ProviderMiddleware(model, runtime, policy, Config(**config))


async def talk(
    model: Any, policy: ToolPolicy = FREE, tools: Runtime | Session | str = TOOLS, **config: Any
) -> Conversation:
    """One turn."""
    return await loop(model, policy, tools, **config).run("hello")


async def watched(
    middleware: ProviderMiddleware, messages: Any, answers: Mapping[str, Any] | None = None
) -> tuple[list[Event], Conversation]:
    """One turn, with all that happens in it."""
    *events, conversation = [item async for item in middleware.stream(messages, answers or {})]
    assert isinstance(conversation, Conversation)
    return [event for event in events if isinstance(event, Event)], conversation


def ends(conversation: Conversation) -> list[tuple[str, str]]:
    """Outcome and code of each call, in order; the outcome is its code."""
    return [
        (str(record.outcome or "waits"), "" if record.code == record.outcome else record.code)
        for record in conversation.calls
    ]


def outcomes(conversation: Conversation) -> list[Outcome | None]:
    """How each call ended."""
    return [record.outcome for record in conversation.calls]


def check_whole(conversation: Conversation) -> None:
    """Every id has exactly one result, or waits; results stand in the order of the calls, right behind them."""
    calls = [call.id for message in conversation.messages for call in message.calls]
    assert len(calls) == len({*calls})
    assert [record.id for record in conversation.calls] == calls
    waiting = {each.id for each in conversation.pending}
    expected = [
        part.id for message in conversation.messages for part in message.calls if part.id not in waiting
    ]
    results = [part.id for message in conversation.messages for part in message.results]
    assert results == expected
    open_: list[str] = []
    for message in conversation.messages:
        if message.role == "tool":
            (result,) = message.results
            assert result.id == open_.pop(0)
        else:
            assert not open_
            open_ = [call.id for call in message.calls if call.id not in waiting]
    assert not open_
