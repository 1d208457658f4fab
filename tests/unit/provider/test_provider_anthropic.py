"""Anthropic's messages: what is sent, and what is made of the answers."""

from __future__ import annotations

from typing import Any

import pytest

from http_servers import answering_json
from served_models import ASKED, events, message, said, speaking
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
    Tokens,
    ToolCall,
    ToolResult,
    system,
    user,
)
from toolcrib.provider.models.installed_providers import open_provider

DEFINITION = {"name": "get", "input_schema": {"type": "object"}}
TOOL = Declaration("get", "get", "", {"type": "object"}, DEFINITION)
MODEL: Any = open_provider("anthropic", model="m-1")
SIGNED = {"type": "thinking", "signature": "sig"}
HIDDEN = {"type": "redacted_thinking", "data": "xyz"}


def body(*messages: Message, **more: Any) -> dict[str, Any]:
    return MODEL.body(Request(messages, **more))


def result(identity: str, *, outcome: Outcome = Outcome.OK, text: str = "1", **more: Any) -> Message:
    return Message("tool", (ToolResult(identity, "get", outcome, text, **more),))


SAID = Message(
    "assistant",
    (
        Reasoning("Hm.", SIGNED),
        Reasoning("", HIDDEN),
        Reasoning("Not to be handed back.", {"type": "reasoning"}),
        Text("Let me look."),
        ToolCall("a", "pack.get", {"x": 1}, '{ "x": 1 }', "get"),
        Text("  "),
        ToolCall("b", "get", None, "{junk"),
    ),
)


def test_a_conversation_as_it_is_sent() -> None:
    sent = body(
        system("Be brief."),
        user("Get "),
        user("x."),
        SAID,
        result("a", content=(Content("image", data="aGk=", mime_type="image/png"), Content("text", "1"))),
        result("b", outcome=Outcome.INVALID_ARGUMENTS, text="no JSON"),
        system("And polite."),
        user("Well?"),
        Message("assistant", ()),
        user("Well?"),
    )
    assert sent == {
        "model": "m-1",
        "max_tokens": 8192,
        "system": "Be brief.\n\nAnd polite.",
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "Get "}, {"type": "text", "text": "x."}]},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": "sig"},
                    HIDDEN,
                    {"type": "text", "text": "Let me look."},
                    {"type": "tool_use", "id": "a", "name": "get", "input": {"x": 1}},
                    {"type": "tool_use", "id": "b", "name": "get", "input": {"INVALID_JSON": "{junk"}},
                ],
            },
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "a",
                        "content": [
                            {"type": "text", "text": "1"},
                            {
                                "type": "image",
                                "source": {"type": "base64", "media_type": "image/png", "data": "aGk="},
                            },
                        ],
                    },
                    {"type": "tool_result", "tool_use_id": "b", "content": "no JSON", "is_error": True},
                    {"type": "text", "text": "Well?"},
                    {"type": "text", "text": "Well?"},
                ],
            },
        ],
    }


def test_what_a_user_shows() -> None:
    shown = user(
        Content("image", data="aGk=", mime_type="image/webp"),
        Content("image", uri="https://example.com/a.png"),
        Content("resource", data="aGk=", mime_type="application/pdf"),
        Content("audio", data="aGk=", mime_type="audio/wav"),
        Content("resource", text="plain"),
    )
    data = {"type": "base64", "data": "aGk="}
    assert body(shown)["messages"][0]["content"] == [
        {"type": "image", "source": {**data, "media_type": "image/webp"}},
        {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
        {"type": "document", "source": {**data, "media_type": "application/pdf"}},
        {"type": "text", "text": "[audio audio/wav]"},
        {"type": "text", "text": "plain"},
    ]


NAMED_ANEW = [{"name": "get", "input_schema": {"type": "object"}}]


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({}, {"tools": [DEFINITION]}),
        (
            {"parallel": False},
            {"tools": [DEFINITION], "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}},
        ),
        ({"tool_choice": "required"}, {"tools": [DEFINITION], "tool_choice": {"type": "any"}}),
        (
            {"tool_choice": "get", "parallel": False},
            {
                "tools": [DEFINITION],
                "tool_choice": {"type": "tool", "name": "get", "disable_parallel_tool_use": True},
            },
        ),
        ({"tool_choice": "none"}, {}),
        (
            {"tool_choice": "none", "aware": True},
            {"tools": [DEFINITION], "tool_choice": {"type": "none"}},
        ),
        ({"tools": (), "aware": True}, {"tools": NAMED_ANEW, "tool_choice": {"type": "none"}}),
        ({"tools": ()}, {}),
        ({"streaming": True}, {"stream": True, "tools": [DEFINITION]}),
        ({"settings": {"max_tokens": 9}}, {"max_tokens": 9, "tools": [DEFINITION]}),
    ],
)
def test_how_tools_are_offered(options: dict[str, Any], told: dict[str, Any]) -> None:
    call = Message("assistant", (ToolCall("a", "pack.get", {}, "", "get"),))
    sent = body(call, **{"tools": (TOOL,), **options})
    assert sent == {
        "model": "m-1",
        "max_tokens": 8192,
        **told,
        "messages": [
            {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "get", "input": {}}]}
        ],
    }


def test_what_stays_the_same_may_be_cached() -> None:
    other = TOOL._replace(definition={**DEFINITION, "name": "put"})
    sent = body(system("Be brief."), user("hi"), tools=(TOOL, other), settings={"prompt_caching": True})
    cached = {"cache_control": {"type": "ephemeral"}}
    assert sent["tools"] == [DEFINITION, {**DEFINITION, "name": "put", **cached}]
    assert sent["system"] == [{"type": "text", "text": "Be brief.", **cached}]
    assert "prompt_caching" not in sent
    assert "cache_control" not in other.definition
    with pytest.raises(ConfigurationError, match="`prompt_caching` must be true or false"):
        body(user("hi"), settings={"prompt_caching": "yes"})
    with pytest.raises(ConfigurationError, match="`system` cannot be a provider setting"):
        body(user("hi"), settings={"system": "Be brief."})


CALL = {"type": "tool_use", "id": "a", "name": "get", "input": {"n": 12345678901234567890}}
THOUGHT = {"type": "thinking", "thinking": "Hm.", "signature": "sig"}
USAGE = {
    "input_tokens": 3,
    "cache_read_input_tokens": 4,
    "cache_creation_input_tokens": 5,
    "output_tokens": 7,
}
PARTS = (
    Reasoning("Hm.", SIGNED),
    Reasoning("", HIDDEN),
    Text("Hi."),
    ToolCall("a", "get", {"n": 12345678901234567890}, '{"n":12345678901234567890}'),
)


async def test_a_whole_answer() -> None:
    content = [THOUGHT, HIDDEN, {"type": "text", "text": "Hi."}, CALL]
    answer = {"model": "m-2", "content": content, "stop_reason": "tool_use", "usage": USAGE}
    async with speaking("anthropic", answering_json(answer)) as (provider, server):
        assert (await said(provider))[-1] == Finish("tool_calls", Tokens(12, 7, 4, 5), "m-2")
        assert (await message(provider)).parts == PARTS
    assert server.requests[0].target == "/v1/messages"
    assert server.requests[0].header("anthropic-version") == "2023-06-01"


@pytest.mark.parametrize(
    ("told", "reason"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("refusal", "refused"),
        ("pause_turn", "pause_turn"),
        (None, "stop"),
    ],
)
async def test_why_an_answer_ends(told: str | None, reason: str) -> None:
    async with speaking("anthropic", answering_json({"content": [], "stop_reason": told})) as (provider, _):
        assert await said(provider) == [Finish(reason)]


def start(index: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def piece(index: int, kind: str, **more: Any) -> dict[str, Any]:
    return {"type": "content_block_delta", "index": index, "delta": {"type": kind, **more}}


def stop(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


PIECES = [
    {"type": "message_start", "message": {"model": "m-2", "usage": {**USAGE, "output_tokens": 1}}},
    start(0, type="thinking", thinking="", signature=""),
    {"type": "ping"},
    piece(0, "thinking_delta", thinking="H"),
    piece(0, "thinking_delta", thinking="m."),
    piece(0, "signature_delta", signature="s"),
    piece(0, "signature_delta", signature="ig"),
    stop(0),
    start(1, **HIDDEN),
    stop(1),
    start(2, type="text", text=""),
    piece(2, "text_delta", text="H"),
    piece(2, "text_delta", text="i."),
    stop(2),
    start(3, type="tool_use", id="a", name="get", input={}),
    piece(3, "input_json_delta", partial_json=""),
    piece(3, "input_json_delta", partial_json='{"n":'),
    piece(3, "input_json_delta", partial_json="12345678901234567890}"),
    stop(3),
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 7}},
    {"type": "a_later_invention"},
    {"type": "message_stop"},
]


@pytest.mark.parametrize("named", [False, True])
async def test_an_answer_in_events(named: bool) -> None:
    async with speaking("anthropic", events(*PIECES, named=named)) as (provider, server):
        assert (await said(provider))[-1] == Finish("tool_calls", Tokens(12, 7, 4, 5), "m-2")
        assert (await message(provider)).parts == PARTS
        assert server.accepted == 1


async def test_a_call_that_begins_whole() -> None:
    pieces = [start(0, **CALL), stop(0), PIECES[-3], PIECES[-1]]
    async with speaking("anthropic", events(*pieces)) as (provider, _):
        assert (await message(provider)).calls == (PARTS[-1],)


@pytest.mark.parametrize(
    ("pieces", "code", "text"),
    [
        (PIECES[:-1], "answer_cut_off", "ended prematurely"),
        (
            [PIECES[0], {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}],
            "provider_overloaded",
            "Overloaded",
        ),
        (
            [PIECES[0], start(0, type="server_tool_use")],
            "bad_answer",
            "of the unknown type `server_tool_use`",
        ),
    ],
)
async def test_what_breaks_off_is_an_error(pieces: list[Any], code: str, text: str) -> None:
    async with speaking("anthropic", events(*pieces)) as (provider, _):
        with pytest.raises(ProviderError, match=text) as raised:
            await said(provider, ASKED)
    assert (raised.value.code, raised.value.retryable) == (code, True)


async def test_an_answer_that_is_none() -> None:
    async with speaking("anthropic", answering_json({"id": "x"})) as (provider, _):
        with pytest.raises(ProviderError, match="has no `content`"):
            await said(provider)
