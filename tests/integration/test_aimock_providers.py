"""The providers against aimock, a real server: two turns with tool calls each, and what it was sent."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import Any

import pytest

from aimock import Aimock
from sampling import sample
from served_models import Waiting
from toolcrib.core.model import NOTHING, Outcome
from toolcrib.formats.providers import Declaration
from toolcrib.provider import (
    Finish,
    Message,
    ProviderError,
    Reasoning,
    Request,
    Text,
    TextDelta,
    ToolCall,
    ToolResult,
    system,
    user,
)
from toolcrib.provider.models.assembler import Assembler
from toolcrib.provider.models.installed_providers import open_provider

NAMES = ["openai", "openai_responses", "anthropic"]
BOTH = [False, True]
SCHEMA = {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}}


def declared(provider: str, name: str) -> Declaration:
    forms: dict[str, dict[str, Any]] = {
        "openai": {"type": "function", "function": {"name": name, "parameters": SCHEMA}},
        "openai_responses": {"type": "function", "name": name, "parameters": SCHEMA, "strict": False},
        "anthropic": {"name": name, "input_schema": SCHEMA},
    }
    return Declaration(name, name, "", SCHEMA, forms[provider])


@asynccontextmanager
async def opened(server: Aimock, name: str, **options: Any) -> Any:
    provider = open_provider(
        name, model="model-1", base_url=server.url(name), world=server.world, **{"attempts": 1, **options}
    )
    try:
        yield provider
    finally:
        await provider.aclose()


async def answer(provider: Any, request: Request) -> tuple[Message, Finish]:
    assembler = Assembler()
    async for delta in provider.respond(request):
        list(assembler.add(delta))
    assert assembler.finish is not None
    return Message("assistant", assembler.parts()), assembler.finish


async def collect(deltas: Any, into: list[Any]) -> None:
    async for delta in deltas:
        into.append(delta)  # noqa: PERF401 -- what came before an error stays


def requested(name: str, *messages: Message, streaming: bool = False) -> Request:
    aware = any(message.role == "tool" for message in messages)
    tools = (declared(name, "add"), declared(name, "echo"))
    return Request(messages, tools, streaming=streaming, aware=aware)


def results(message: Message, text: str) -> list[Message]:
    return [Message("tool", (ToolResult(call.id, call.name, Outcome.OK, text),)) for call in message.calls]


@pytest.mark.parametrize("streaming", BOTH)
@pytest.mark.parametrize("name", NAMES)
async def test_two_turns_with_calls(aimock: Aimock, name: str, streaming: bool) -> None:
    before = len(aimock.journal())
    messages: list[Message] = [system("Be brief."), user("add two numbers")]
    async with opened(aimock, name) as provider:
        for asked, arguments, said in [
            ("and again", {"a": 2, "b": 3}, "The sum is 5."),
            ("", {"a": 3, "b": 2}, "Still 5."),
        ]:
            call, end = await answer(provider, requested(name, *messages, streaming=streaming))
            assert [(part.name, part.arguments) for part in call.calls] == [("add", arguments)]
            assert (end.reason, end.model) == ("tool_calls", "model-1")
            messages += [call, *results(call, "5")]
            text, end = await answer(provider, requested(name, *messages, streaming=streaming))
            assert (text.text, end.reason) == (said, "stop")
            messages += [text, *([user(asked)] if asked else [])]
    sent = aimock.journal()[before:]
    assert [entry["response"]["status"] for entry in sent] == [200] * 4
    assert [len(entry["body"]["tools"]) for entry in sent] == [2] * 4
    assert [bool(entry["body"].get("stream")) for entry in sent] == [streaming] * 4
    assert [len(entry["body"]["messages"]) for entry in sent] == [2, 4, 6, 8]
    roles = ["system", "user", "assistant", "tool", "assistant", "user", "assistant", "tool"]
    last = sent[-1]["body"]["messages"]
    assert [message["role"] for message in last] == roles
    assert [message["tool_call_id"] for message in last if message["role"] == "tool"] == [
        call.id for message in messages for call in message.calls
    ]
    assert all("authorization" not in entry["headers"] for entry in sent)


@pytest.mark.parametrize("streaming", BOTH)
@pytest.mark.parametrize("name", NAMES)
async def test_several_calls_at_once(aimock: Aimock, name: str, streaming: bool) -> None:
    async with opened(aimock, name) as provider:
        said, end = await answer(provider, requested(name, user("two at once"), streaming=streaming))
        assert (said.text, end.reason) == ("Let me see.", "tool_calls")
        assert [(call.name, call.arguments) for call in said.calls] == [
            ("add", {"a": 1, "b": 2.5}),
            ("echo", {"text": "hi 😀"}),
        ]
        assert len({call.id for call in said.calls}) == 2
        told = requested(name, user("two at once"), said, *results(said, "done"), streaming=streaming)
        last, _ = await answer(provider, told)
        assert last.parts == (Text("Both are done."),)


@pytest.mark.parametrize("name", ["openai_responses", "anthropic"])
async def test_parts_keep_their_order(aimock: Aimock, name: str) -> None:
    async with opened(aimock, name) as provider:
        said, _ = await answer(provider, requested(name, user("interleaved"), streaming=True))
    first, call, last = said.parts
    assert (first, last) == (Text("First. "), Text("Then."))
    assert isinstance(call, ToolCall)
    assert call.arguments == {"a": 1, "b": 12345}


@pytest.mark.parametrize("name", NAMES)
async def test_characters_that_come_in_halves(aimock: Aimock, name: str) -> None:
    async with opened(aimock, name) as provider:
        said, end = await answer(provider, requested(name, user("greet"), streaming=True))
    assert (said.text, end.reason) == ("Grüße aus 東京 😀😀😀!", "length")


@pytest.mark.parametrize("streaming", BOTH)
@pytest.mark.parametrize("name", NAMES)
async def test_thoughts_are_read_and_handed_back(aimock: Aimock, name: str, streaming: bool) -> None:
    async with opened(aimock, name) as provider:
        said, _ = await answer(provider, requested(name, user("think"), streaming=streaming))
        thought = said.parts[0]
        assert isinstance(thought, Reasoning)
        assert thought.text == "A tool has to be called. 🤔"
        assert (thought.data is None) == (name == "openai")
        last, _ = await answer(provider, requested(name, user("think"), said, *results(said, "3")))
    assert last.text == "I have thought."


@pytest.mark.parametrize("streaming", sample(BOTH, one_in=2))
@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("chaos", "code", "retryable"),
    [
        ("malformed", "bad_answer", True),
        ("disconnect", "connection_broken", True),
        ("ratelimit", "rate_limited", True),
        ("drop", "provider_failed", True),
    ],
)
async def test_faults_are_told(
    aimock: Aimock,
    name: str,
    streaming: bool,
    chaos: str,
    code: str,
    retryable: bool,
) -> None:
    async with opened(aimock, name, headers={f"X-Aimock-Chaos-{chaos}": "1"}) as provider:
        with pytest.raises(ProviderError) as raised:
            await answer(provider, requested(name, user("add two numbers"), streaming=streaming))
    assert (raised.value.code, raised.value.retryable) == (code, retryable)
    assert aimock.origin in raised.value.message


@pytest.mark.parametrize("name", NAMES)
async def test_an_answer_that_breaks_off_is_no_answer(aimock: Aimock, name: str) -> None:
    deltas: list[Any] = []
    async with opened(aimock, name) as provider:
        with pytest.raises(ProviderError) as raised:
            await collect(provider.respond(requested(name, user("cut off"), streaming=True)), deltas)
    assert raised.value.code in ("answer_cut_off", "connection_broken")
    said = "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
    assert len(said) < 20
    assert "This answer is long enough".startswith(said)


@pytest.mark.parametrize("name", NAMES)
async def test_what_the_service_says_of_errors_is_told(aimock: Aimock, name: str) -> None:
    before = len(aimock.journal())
    async with opened(aimock, name, attempts=3, clock=Waiting()) as provider:
        with pytest.raises(ProviderError, match="answered 429: Rate limit reached") as raised:
            await answer(provider, requested(name, user("too much")))
        assert raised.value.details["retry_after"] == 90  # longer than anybody waits
        assert raised.value.hint == "retry after 90s"
        with pytest.raises(ProviderError, match="answered 400: No such parameter") as raised:
            await answer(provider, requested(name, user("wrong")))
        assert (raised.value.code, raised.value.retryable) == ("request_refused", False)
        with pytest.raises(ProviderError, match="answered 503: ") as raised:
            await answer(provider, Request((user("nobody knows this"),), settings=NOTHING))
    assert len(aimock.journal()) == before + 2 + 3  # only the last one may be better the next time
