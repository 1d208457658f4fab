"""The tool loop with providers against aimock: a conversation of two turns, with calls of a mocked tool."""

from __future__ import annotations

from typing import Any

import pytest

from aimock import Aimock
from in_memory import runtime_of
from sampling import sample
from toolcrib.provider import Config, Conversation, Event, ProviderMiddleware, Stop
from toolcrib.provider.models.installed_providers import open_provider

TOOLS = """
    name: math.add
    description: The sum of two numbers.
    input_schema:
      type: object
      properties: {a: {type: number}, b: {type: number}}
      required: [a, b]
    output_schema: {type: number}
    mock: {result: "{{ args.a + args.b }}"}
    ---
    name: add
    description: Another sum.
    input_schema:
      type: object
      properties: {a: {type: number}, b: {type: number}}
      required: [a, b]
    mock: {result: "{{ args.a + args.b }}"}
"""
NAMES = ["openai", "openai_responses", "anthropic"]


async def turn(loop: ProviderMiddleware, said: Any, *, streaming: bool) -> tuple[Conversation, list[Event]]:
    if not streaming:
        return await loop.run(said), []
    *events, conversation = [item async for item in loop.stream(said)]
    assert isinstance(conversation, Conversation)
    return conversation, events


@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("streaming", [False, True])
@pytest.mark.parametrize("name", sample(NAMES, one_in=3))
async def test_a_conversation_of_two_turns(aimock: Aimock, name: str, streaming: bool, strict: bool) -> None:
    options = {"strict": strict} if name != "anthropic" else {}
    before = len(aimock.journal())
    runtime = runtime_of(TOOLS)
    provider: Any = open_provider(name, model="m", base_url=aimock.url(name), world=aimock.world, **options)
    loop = ProviderMiddleware(provider, runtime, config=Config(system="Be brief."))
    conversation, events = await turn(loop, "add two numbers", streaming=streaming)
    assert (conversation.stop, conversation.text) == (Stop.ANSWERED, "The sum is 5.")
    conversation, more = await turn(loop, conversation.saying("and again"), streaming=streaming)
    await provider.aclose()
    assert (conversation.stop, conversation.text) == (Stop.ANSWERED, "Still 5.")
    assert [(call.tool, call.arguments, call.value) for call in conversation.calls] == [
        ("add", {"a": 2, "b": 3}, 5),
        ("add", {"a": 3, "b": 2}, 5),
    ]
    assert (conversation.rounds, conversation.turns) == (4, 2)
    assert bool(events and more) == streaming
    sent = aimock.journal()[before:]
    declared = [[tool["function"]["name"] for tool in entry["body"]["tools"]] for entry in sent]
    assert declared == [["add", "math_add"]] * 4
    results = [message for message in sent[-1]["body"]["messages"] if message["role"] == "tool"]
    assert [(result["content"], result["tool_call_id"]) for result in results] == [
        ("5", call.id) for call in conversation.calls
    ]


@pytest.mark.parametrize("name", NAMES)
async def test_a_service_that_fails_ends_the_turn(aimock: Aimock, name: str) -> None:
    provider: Any = open_provider(name, model="m", base_url=aimock.url(name), world=aimock.world)
    conversation = await ProviderMiddleware(provider, runtime_of(TOOLS)).run("too much")
    await provider.aclose()
    assert conversation.stop is Stop.PROVIDER_FAILED
    assert "answered 429: Rate limit reached" in conversation.detail
    assert [message.text for message in conversation.messages] == ["too much"]
