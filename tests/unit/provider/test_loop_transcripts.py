"""What is written down: after every round, and however a turn ends."""

from __future__ import annotations

import asyncio
import json
from contextlib import aclosing

import pytest

from in_memory import runtime_of
from loop_models import TOOLS, Model, asks, loop, says, watched
from toolcrib import ClosedRuntime, ConfigurationError
from toolcrib.provider import (
    CallDelta,
    JSONLSink,
    Message,
    ProviderError,
    Stop,
    TextDelta,
    ToolPolicy,
    load_transcript,
    user,
)


class Notes:
    """Remembers what it is given, and how much each time."""

    def __init__(self) -> None:
        self.messages: list[Message] = []
        self.portions: list[list[str]] = []

    async def append(self, messages) -> None:
        self.messages += messages
        self.portions.append([message.role for message in messages])


def results(messages) -> list[tuple[str, str]]:
    return [(result.id, result.outcome.value) for message in messages for result in message.results]


async def test_each_message_is_written_once_after_its_round():
    notes = Notes()
    middleware = loop(
        Model(asks("slow", "get_order"), asks("slow"), says("a")), sink=notes, system="Be brief."
    )
    conversation = await middleware.run("1")
    assert notes.portions == [
        ["system", "user", "assistant", "tool", "tool"],
        ["assistant", "tool"],
        ["assistant"],
    ]
    conversation = await middleware.run(conversation.saying("2"))
    assert notes.portions[3:] == [["user", "assistant"]]
    assert tuple(notes.messages) == conversation.messages


async def test_a_turn_that_waits_is_written_and_so_is_its_end():
    notes, policy = Notes(), ToolPolicy(ask=("refund_*",))
    suspended = await loop(Model(asks(("refund_order", {"amount": 1}), "slow")), policy, sink=notes).run("1")
    assert notes.portions == [["user", "assistant", "tool"]]
    await loop(Model(says("a")), policy, sink=notes).run(suspended, {"call_1": {"approve": True}})
    assert notes.portions[1:] == [["tool"], ["assistant"]]
    assert results(notes.messages) == [("call_2", "ok"), ("call_1", "ok")]


async def test_a_provider_that_fails_leaves_all_before_written():
    def fail(_request):
        raise ProviderError("gone")

    for error, expected in ((fail, ["user"]), (Model, ["user"])):
        notes = Notes()
        middleware = loop(Model(asks("slow"), error), sink=notes)
        if error is fail:
            assert (await middleware.run("1")).stop is Stop.PROVIDER_FAILED
        else:
            with pytest.raises(TypeError):  # a bug of the provider's is the caller's to see
                await middleware.run("1")
        assert notes.portions == [[*expected, "assistant", "tool"]]
    notes = Notes()
    await loop(Model(fail), sink=notes).run("1")
    assert notes.portions == [["user"]]


async def test_a_cancelled_turn_is_written_whole():
    notes = Notes()
    tools = runtime_of(TOOLS, clock=None)
    task = asyncio.create_task(
        loop(Model(asks("get_order", "slow", "slower")), tools=tools, sink=notes).run("1")
    )
    while not notes.portions and tools.default_session.calls != 3:
        await asyncio.wait([task], timeout=0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert notes.portions == [["user", "assistant", "tool", "tool", "tool"]]
    assert results(notes.messages) == [("call_1", "ok"), ("call_2", "cancelled"), ("call_3", "cancelled")]
    told = notes.messages[-1].results[0].text
    assert told == "the call of `slower` was cancelled; it had begun, and may have acted"


async def test_whoever_stops_watching_cancels():
    notes = Notes()
    tools = runtime_of(TOOLS, clock=None)
    middleware = loop(Model(asks("slow", "get_order")), ToolPolicy(max_parallel=1), tools, sink=notes)
    async with aclosing(middleware.stream("1")) as items:
        async for item in items:
            if getattr(item, "status", "") == "running":
                break
    assert results(notes.messages) == [("call_1", "cancelled"), ("call_2", "cancelled")]
    assert notes.messages[-1].results[0].text == "the call of `get_order` was cancelled"
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_waiting_for_the_model_may_be_cancelled():
    notes, asked = Notes(), asyncio.Event()

    class Silent:
        async def respond(self, request):
            yield TextDelta("half")
            asked.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(loop(Silent(), sink=notes).run("1"))
    await asked.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert notes.messages == [user("1")]


async def test_a_provider_that_cancels_itself_ends_the_turn():
    class Hasty:
        async def respond(self, request):
            yield CallDelta(0, "x", "slow")
            raise asyncio.CancelledError

    events, conversation = await watched(loop(Hasty()), "1")
    assert conversation.stop is Stop.CANCELLED
    assert conversation.messages == (user("1"),)
    assert [(event.type, event.status) for event in events[-2:]] == [
        ("call_updated", "failed"),
        ("turn_ended", ""),
    ]


async def test_a_turn_over_a_closed_runtime_is_written_and_raises():
    notes = Notes()
    tools = runtime_of(TOOLS)
    middleware = loop(Model(asks("slow", "get_order")), tools=tools, sink=notes)
    await tools.aclose()
    with pytest.raises(ClosedRuntime):
        await middleware.run("1")
    assert results(notes.messages) == [("call_1", "cancelled"), ("call_2", "cancelled")]


async def test_a_sink_that_fails_is_told():
    class Full:
        async def append(self, messages):
            raise OSError("no space")

    with pytest.raises(OSError, match="no space"):
        await loop(Model(asks("slow")), sink=Full()).run("1")


async def test_a_file_has_a_line_for_each_message(tmp_path):
    file = tmp_path / "talk.jsonl"
    middleware = loop(Model(asks("get_order", text="é"), says("\u2028b")), sink=JSONLSink(file))
    conversation = await middleware.run("half of a character: \ud83d")
    assert load_transcript(file) == conversation.messages
    lines = file.read_text(encoding="utf-8").split("\n")
    assert [json.loads(line)["role"] for line in lines[:-1]] == ["user", "assistant", "tool", "assistant"]
    assert '"é"' in lines[1]
    again = await loop(Model(says("c"))).run([*load_transcript(file), user("more")])
    assert again.text == "c"
    file.write_text('{"role": "user", "content": "a"}\n\n{"role": ', encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"talk\.jsonl:3: "):
        load_transcript(file)
