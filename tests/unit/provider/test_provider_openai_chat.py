"""OpenAI's chat completions: what is sent, byte by byte, and what is made of the answers."""

from __future__ import annotations

import asyncio
import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from http_servers import answering_json
from sampling import examples
from served_models import ASKED, events, in_chunks, message, said, speaking, text_of
from toolcrib.core.errors import ConfigurationError
from toolcrib.core.model import Content, Outcome
from toolcrib.formats.providers import Declaration
from toolcrib.provider import (
    Finish,
    Message,
    ProviderError,
    Reasoning,
    Request,
    Text,
    TextDelta,
    Tokens,
    ToolCall,
    ToolResult,
    system,
    user,
)
from toolcrib.provider.models.installed_providers import open_provider

DEFINITION = {"type": "function", "function": {"name": "get", "parameters": {"type": "object"}}}
TOOL = Declaration("get", "get", "", {"type": "object"}, DEFINITION)
MODEL: Any = open_provider("openai", model="m-1", reasoning_field="reasoning_content")


def body(*messages: Message, **more: Any) -> dict[str, Any]:
    return MODEL.body(Request(messages, **more))


def messages(*of: Message) -> list[Any]:
    return body(*of)["messages"]


def choice(finish: str | None = None, **delta: Any) -> dict[str, Any]:
    return {"model": "m-2", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}


def test_a_conversation_as_it_is_sent() -> None:
    assert messages(
        system("Be brief."),
        user("Get x."),
        Message(
            "assistant",
            (
                Reasoning("Hm.", {"type": "thinking", "signature": "s"}),
                Text("Let me "),
                ToolCall("a", "pack.get", {"x": 1}, '{ "x": 1 }', "get"),
                Text("look."),
                ToolCall("b", "get", None, "{junk"),
                ToolCall("c", "get", {}, ""),
            ),
        ),
        Message("tool", (ToolResult("a", "pack.get", Outcome.OK, "1"),)),
        Message("tool", (ToolResult("b", "get", Outcome.INVALID_ARGUMENTS, "no JSON"),)),
        Message("assistant", (Text("It is 1."),)),
        Message("assistant", ()),
    ) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Get x."},
        {
            "role": "assistant",
            "content": "Let me look.",
            "reasoning_content": "Hm.",
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "get", "arguments": '{ "x": 1 }'}},
                {
                    "id": "b",
                    "type": "function",
                    "function": {"name": "get", "arguments": '{"INVALID_JSON":"{junk"}'},
                },
                {"id": "c", "type": "function", "function": {"name": "get", "arguments": "{}"}},
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": "1"},
        {"role": "tool", "tool_call_id": "b", "content": "no JSON"},
        {"role": "assistant", "content": "It is 1."},
        {"role": "assistant", "content": ""},
    ]
    plain: Any = open_provider("openai", model="m-1")
    thought = Message("assistant", (Reasoning("Hm."), ToolCall("a", "get", {}, "")))
    [told] = plain.body(Request((thought,)))["messages"]
    assert told.keys() == {"role", "content", "tool_calls"}
    assert told["content"] is None


def test_what_a_user_shows() -> None:
    shown = user(
        "Look:",
        Content("image", data="aGk=", mime_type="image/png"),
        Content("image", uri="https://example.com/a.png"),
        Content("image", data="aGk=", mime_type="image/tiff", title="scan"),
        Content("audio", data="aGk=", mime_type="audio/wav"),
        Content("resource", data="aGk=", mime_type="application/pdf", title="a.pdf"),
        Content("resource", text="plain", mime_type="text/plain"),
        Content("resource", uri="file:///a"),
    )
    assert messages(shown)[0]["content"] == [
        {"type": "text", "text": "Look:"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
        {"type": "text", "text": "[image image/tiff scan]"},
        {"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}},
        {
            "type": "file",
            "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,aGk="},
        },
        {"type": "text", "text": "plain"},
        {"type": "text", "text": "[resource file:///a]"},
    ]


def test_images_of_results_are_shown_behind_the_round() -> None:
    image = Content("image", data="aGk=", mime_type="image/png")
    sound = Content("audio", data="aGk=", mime_type="audio/wav")
    said = (
        user("Draw."),
        Message("assistant", (ToolCall("a", "draw", {}, ""), ToolCall("b", "sing", {}, ""))),
        Message("tool", (ToolResult("a", "draw", Outcome.OK, "[image image/png]", (image, image)),)),
        Message("tool", (ToolResult("b", "sing", Outcome.OK, "[audio audio/wav]", (sound,)),)),
    )
    results = [
        {"role": "tool", "tool_call_id": "a", "content": "[image image/png]"},
        {"role": "tool", "tool_call_id": "b", "content": "[audio audio/wav]"},
    ]
    address = {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}}
    which = {"type": "text", "text": "From the result of `draw` (a):"}
    shown = [*results, {"role": "user", "content": [which, address, address]}]
    assert messages(*said)[2:] == shown
    answered = Message("assistant", (Text("There."),))
    assert messages(*said, answered)[2:] == [*shown, {"role": "assistant", "content": "There."}]
    blind: Any = open_provider("openai", model="m-1", images=False)
    assert blind.body(Request(said))["messages"][2:] == results
    assert blind.body(Request((user("hi", image),)))["messages"][0]["content"] == [
        {"type": "text", "text": "hi"},
        {"type": "text", "text": "[image image/png]"},
    ]


def test_ids_that_no_service_takes_are_replaced_the_same_in_both_places() -> None:
    odd = "call 1/ü" * 20
    sent = messages(
        Message("assistant", (ToolCall(odd, "get", {}, ""),)),
        Message("tool", (ToolResult(odd, "get", Outcome.OK, "1"),)),
    )
    identity = sent[0]["tool_calls"][0]["id"]
    assert sent[1]["tool_call_id"] == identity
    assert len(identity) == 37


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, {"tools": [DEFINITION]}),
        ({"parallel": False}, {"tools": [DEFINITION], "parallel_tool_calls": False}),
        ({"tool_choice": "required"}, {"tools": [DEFINITION], "tool_choice": "required"}),
        (
            {"tool_choice": "get"},
            {
                "tools": [DEFINITION],
                "tool_choice": {"type": "function", "function": {"name": "get"}},
            },
        ),
        ({"tool_choice": "none"}, {}),
        ({"tool_choice": "none", "aware": True}, {"tools": [DEFINITION], "tool_choice": "none"}),
        ({"tools": (), "aware": True, "parallel": False}, {}),
        ({"settings": {"temperature": 0}}, {"temperature": 0, "tools": [DEFINITION]}),
        (
            {"streaming": True},
            {"stream": True, "stream_options": {"include_usage": True}, "tools": [DEFINITION]},
        ),
        (
            {"streaming": True, "settings": {"stream_options": {}}},
            {"stream": True, "stream_options": {}, "tools": [DEFINITION]},
        ),
    ],
)
def test_how_tools_are_offered(options: dict[str, Any], told: dict[str, Any]) -> None:
    sent = body(user("hi"), **{"tools": (TOOL,), **options})
    assert sent == {"model": "m-1", **told, "messages": [{"role": "user", "content": "hi"}]}
    assert list(sent)[-1] == "messages"  # what stays the same comes first


def test_what_is_no_setting() -> None:
    with pytest.raises(ConfigurationError, match="`messages` cannot be a provider setting") as raised:
        body(settings={"temperature": 0, "messages": []})
    assert raised.value.code == "reserved_setting"


async def test_the_request_on_the_wire() -> None:
    answer = {"model": "m-2", "choices": [{"message": {"content": "Hi."}, "finish_reason": "stop"}]}
    async with speaking("openai", answering_json(answer)) as (provider, server):
        request = Request((user("Grüße"),), (TOOL,))
        assert await said(provider, request) == [TextDelta("Hi."), Finish("stop", Tokens(), "m-2")]
        await said(provider, request)
    first, second = server.requests
    assert first.body == second.body
    assert (
        first.body
        == (
            '{"model":"m-1","tools":[{"type":"function","function":{"name":"get","parameters":{"type":"object"}}}],'
            '"messages":[{"role":"user","content":"Grüße"}]}'
        ).encode()
    )
    assert (first.method, first.target) == ("POST", "/v1/chat/completions")
    assert first.header("content-type") == "application/json"
    assert server.accepted == 1


async def test_a_whole_answer() -> None:
    answer = {
        "model": "m-2",
        "choices": [
            {
                "message": {
                    "reasoning_content": "Hm.",
                    "content": [{"type": "text", "text": "Let me "}, {"type": "text", "text": "look."}],
                    "tool_calls": [
                        {"id": "a", "function": {"name": "get", "arguments": '{"n": 12345678901234567890}'}},
                        {"id": "b", "function": {"name": "get", "arguments": {"x": 1}}},
                        {"id": "c", "function": {"name": "get", "arguments": None}},
                    ],
                },
                "finish_reason": "stop",
            }
        ],
        "usage": {
            "prompt_tokens": 10,
            "completion_tokens": 7,
            "prompt_tokens_details": {"cached_tokens": 4},
            "completion_tokens_details": {"reasoning_tokens": 3},
        },
    }
    async with speaking("openai", answering_json(answer)) as (provider, _):
        deltas = await said(provider, ASKED._replace(streaming=False))
        assert deltas[-1] == Finish("tool_calls", Tokens(10, 7, 4, 0, 3), "m-2")
        assert (await message(provider)).parts == (
            Reasoning("Hm."),
            Text("Let me look."),
            ToolCall("a", "get", {"n": 12345678901234567890}, '{"n": 12345678901234567890}'),
            ToolCall("b", "get", {"x": 1}, '{"x":1}'),
            ToolCall("c", "get", {}, ""),
        )


async def test_a_call_as_it_was_written_once() -> None:
    call = {"name": "get", "arguments": '{"x": 1}'}
    whole = {"message": {"content": None, "function_call": call}, "finish_reason": "function_call"}
    async with speaking("openai", answering_json({"choices": [whole]})) as (provider, _):
        assert (await message(provider)).parts == (ToolCall("", "get", {"x": 1}, '{"x": 1}'),)
        assert (await said(provider))[-1].reason == "tool_calls"
    pieces = [{"name": "get", "arguments": ""}, {"arguments": '{"x"'}, {"arguments": ": 1}"}]
    told = [choice(function_call=piece) for piece in pieces]
    async with speaking("openai", events(*told, choice("function_call"), "[DONE]")) as (provider, _):
        assert (await message(provider)).parts == (ToolCall("", "get", {"x": 1}, '{"x": 1}'),)
    both = {"message": {"function_call": call, "tool_calls": [{"id": "a", "function": call}]}}
    async with speaking("openai", answering_json({"choices": [both]})) as (provider, _):
        assert [each.id for each in (await message(provider)).calls] == ["a"]


@pytest.mark.parametrize(
    ("told", "finish"),
    [
        ({"finish_reason": "length", "message": {"content": "a"}}, "length"),
        ({"finish_reason": "content_filter", "message": {"content": "a"}}, "refused"),
        ({"finish_reason": "stop", "message": {"content": None, "refusal": "No."}}, "refused"),
        ({"finish_reason": None, "message": {"content": "a"}}, "stop"),
        ({"finish_reason": "tired", "message": {"content": "a"}}, "tired"),
    ],
)
async def test_why_an_answer_ends(told: dict[str, Any], finish: str) -> None:
    async with speaking("openai", answering_json({"choices": [told]})) as (provider, _):
        text, end = await said(provider)
    assert (text.text, end.reason) == ("No." if "refusal" in told["message"] else "a", finish)


async def test_an_answer_in_events() -> None:
    handler = events(
        choice(role="assistant", content=""),
        choice(reasoning="Hm."),
        choice(content="Let me"),
        choice(tool_calls=[{"index": 1, "id": "b", "function": {"name": "put", "arguments": ""}}]),
        choice(tool_calls=[{"index": 0, "function": {"arguments": '{"x'}}]),
        choice(content=" look."),
        choice(tool_calls=[{"index": 0, "id": "a", "function": {"name": "get", "arguments": '":1'}}]),
        choice(
            tool_calls=[
                {"index": 1, "function": {"arguments": "{}"}},
                {"index": 0, "function": {"arguments": "}"}},
            ]
        ),
        choice("tool_calls"),
        {"choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 2}},
        "[DONE]",
        "what comes then is not read",
    )
    async with speaking("openai", handler) as (provider, server):
        assert (await message(provider)).parts == (
            Reasoning("Hm."),
            Text("Let me"),
            ToolCall("b", "put", {}, "{}"),
            ToolCall("a", "get", {"x": 1}, '{"x":1}'),
            Text(" look."),
        )
        assert (await said(provider))[-1] == Finish("tool_calls", Tokens(5, 2), "m-2")
        assert server.accepted == 1  # the connection is used again


async def test_calls_without_a_number() -> None:
    calls = [
        {"id": "a", "function": {"name": "get", "arguments": '{"x":1}'}},
        {"id": "b", "function": {"name": "get", "arguments": '{"x":2}'}},
    ]
    handler = events(*(choice(tool_calls=[call]) for call in calls), choice("tool_calls"), "[DONE]")
    async with speaking("openai", handler) as (provider, _):
        assert [call.arguments for call in (await message(provider)).calls] == [{"x": 1}, {"x": 2}]
    async with speaking("openai", events(choice("stop", tool_calls=calls), "[DONE]")) as (provider, _):
        assert [call.id for call in (await message(provider)).calls] == ["a", "b"]


async def test_events_that_were_not_asked_for_and_those_that_do_not_come() -> None:
    async with speaking("openai", events(choice("stop", content="a"), "[DONE]")) as (provider, _):
        assert await said(provider, ASKED._replace(streaming=False)) == [
            TextDelta("a"),
            Finish("stop", Tokens(), "m-2"),
        ]
    whole = answering_json({"choices": [{"message": {"content": "a"}, "finish_reason": "stop"}]})
    async with speaking("openai", whole) as (provider, _):
        assert await said(provider) == [TextDelta("a"), Finish()]


@pytest.mark.parametrize(
    ("told", "ended", "code", "text"),
    [
        ([choice(content="a")], True, "answer_cut_off", "ended prematurely"),
        (["[DONE]"], True, "answer_cut_off", "ended prematurely"),
        ([choice(content="a")], False, "connection_broken", "connection"),
        ([choice(content="a"), "{"], True, "bad_answer", "an event is not valid JSON"),
        ([choice(content="a"), "[]"], True, "bad_answer", "an event is not a JSON object"),
        ([choice(content="a"), '{"choices": NaN}'], True, "bad_answer", "an event is not valid JSON"),
        (
            [choice(content="a"), {"error": {"message": "Too busy", "type": "server_error"}}],
            True,
            "provider_failed",
            "Too busy",
        ),
    ],
)
async def test_what_breaks_off_is_an_error(told: list[Any], ended: bool, code: str, text: str) -> None:
    async with speaking("openai", events(*told, ended=ended)) as (provider, _):
        with pytest.raises(ProviderError, match=text) as raised:
            await said(provider)
    assert (raised.value.code, raised.value.retryable) == (code, True)


async def test_an_end_without_the_mark_is_an_end() -> None:
    async with speaking("openai", events(choice("stop", content="a"))) as (provider, _):
        assert (await message(provider)).text == "a"
    async with speaking("openai", events(choice("stop", content="a"), "[DONE]", ended=False)) as (
        provider,
        _,
    ):
        assert (await message(provider)).text == "a"


STREAM = text_of(
    choice(content="Grüße 😀"),
    choice(tool_calls=[{"index": 0, "id": "a", "function": {"name": "get", "arguments": '{"n":'}}]),
    choice(tool_calls=[{"index": 0, "function": {"arguments": ' "東京"}'}}]),
    choice("tool_calls"),
    "[DONE]",
).replace(b"\\u00fc", "ü".encode())


@settings(max_examples=examples(10))
@given(st.lists(st.integers(1, len(STREAM) - 1), max_size=8, unique=True))
def test_it_makes_no_difference_where_the_events_are_cut(cuts: list[int]) -> None:
    places = [0, *sorted(cuts), len(STREAM)]
    chunks = [STREAM[start:end] for start, end in itertools.pairwise(places)]

    async def parts() -> Any:
        async with speaking("openai", in_chunks(chunks)) as (provider, _):
            return (await message(provider)).parts

    assert asyncio.run(parts()) == (
        Text("Grüße 😀"),
        ToolCall("a", "get", {"n": "東京"}, '{"n": "東京"}'),
    )
