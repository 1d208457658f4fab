"""OpenAI's responses: what is sent, and what is made of the answers."""

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
    TextDelta,
    Tokens,
    ToolCall,
    ToolResult,
    system,
    user,
)
from toolcrib.provider.models.installed_providers import open_provider

DEFINITION = {"type": "function", "name": "get", "parameters": {"type": "object"}, "strict": False}
TOOL = Declaration("get", "get", "", {"type": "object"}, DEFINITION)
MODEL: Any = open_provider("openai_responses", model="m-1")
THOUGHT = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Hm."}]}
SECRET = {"type": "reasoning", "id": "rs_2", "summary": [], "encrypted_content": "xyz"}


def body(*messages: Message, **more: Any) -> dict[str, Any]:
    return MODEL.body(Request(messages, **more))


SAID = Message(
    "assistant",
    (
        Reasoning("Hm.", THOUGHT),
        Reasoning("", SECRET),
        Reasoning("", {"type": "thinking", "signature": "s"}),
        Text("Let me look."),
        ToolCall("a", "pack.get", {"x": 1}, '{ "x": 1 }', "get"),
        Text("And more."),
    ),
)
SENT = [
    {"role": "assistant", "content": "Let me look."},
    {"type": "function_call", "call_id": "a", "name": "get", "arguments": '{ "x": 1 }'},
    {"role": "assistant", "content": "And more."},
]


def test_a_conversation_as_it_is_sent() -> None:
    image = Content("image", data="aGk=", mime_type="image/png")
    sent = body(
        system("Be brief."),
        user("Get x."),
        user("This:", image, Content("resource", data="aGk=", mime_type="application/pdf", title="a.pdf")),
        SAID,
        Message("tool", (ToolResult("a", "pack.get", Outcome.OK, "1"),)),
        Message("tool", (ToolResult("a", "pack.get", Outcome.OK, "1", (image, Content("text", "t"))),)),
    )
    assert sent == {
        "model": "m-1",
        "input": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Get x."},
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "This:"},
                    {"type": "input_image", "image_url": "data:image/png;base64,aGk=", "detail": "auto"},
                    {
                        "type": "input_file",
                        "filename": "a.pdf",
                        "file_data": "data:application/pdf;base64,aGk=",
                    },
                ],
            },
            THOUGHT,
            SECRET,
            *SENT,
            {"type": "function_call_output", "call_id": "a", "output": "1"},
            {
                "type": "function_call_output",
                "call_id": "a",
                "output": [
                    {"type": "input_text", "text": "1"},
                    {"type": "input_image", "image_url": "data:image/png;base64,aGk=", "detail": "auto"},
                ],
            },
        ],
    }


def test_thoughts_that_are_kept_nowhere_are_not_named() -> None:
    assert body(SAID, settings={"store": False}) == {
        "model": "m-1",
        "store": False,
        "input": [SECRET, *SENT],
    }


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"parallel": False}, {"tools": [DEFINITION], "parallel_tool_calls": False}),
        ({"tool_choice": "required"}, {"tools": [DEFINITION], "tool_choice": "required"}),
        (
            {"tool_choice": "get"},
            {"tools": [DEFINITION], "tool_choice": {"type": "function", "name": "get"}},
        ),
        ({"tool_choice": "none"}, {}),
        ({"tool_choice": "none", "aware": True}, {"tools": [DEFINITION], "tool_choice": "none"}),
        ({"settings": {"max_tokens": 9}}, {"max_output_tokens": 9, "tools": [DEFINITION]}),
        ({"streaming": True}, {"stream": True, "tools": [DEFINITION]}),
    ],
)
def test_how_tools_are_offered(options: dict[str, Any], told: dict[str, Any]) -> None:
    sent = body(user("hi"), **{"tools": (TOOL,), **options})
    assert sent == {"model": "m-1", **told, "input": [{"role": "user", "content": "hi"}]}


def test_what_is_no_setting() -> None:
    with pytest.raises(ConfigurationError, match="`previous_response_id` cannot be a provider setting"):
        body(settings={"previous_response_id": "r"})


CALL = {"type": "function_call", "id": "fc", "call_id": "a", "name": "get", "arguments": '{"n":1}'}
TEXT = {"type": "message", "content": [{"type": "output_text", "text": "Hi."}]}
USAGE = {
    "input_tokens": 10,
    "output_tokens": 7,
    "input_tokens_details": {"cached_tokens": 4},
    "output_tokens_details": {"reasoning_tokens": 3},
}
WHOLE = {
    "status": "completed",
    "model": "m-2",
    "output": [THOUGHT, TEXT, CALL],
    "usage": USAGE,
    "error": None,
}


async def test_a_whole_answer() -> None:
    async with speaking("openai_responses", answering_json(WHOLE)) as (provider, server):
        assert (await said(provider))[-1] == Finish("tool_calls", Tokens(10, 7, 4, 0, 3), "m-2")
        assert (await message(provider)).parts == (
            Reasoning("Hm.", THOUGHT),
            Text("Hi."),
            ToolCall("a", "get", {"n": 1}, '{"n":1}'),
        )
    assert server.requests[0].target == "/v1/responses"


def incomplete(reason: str) -> dict[str, Any]:
    return {"status": "incomplete", "output": [TEXT], "incomplete_details": {"reason": reason}}


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (incomplete("max_output_tokens"), "length"),
        (incomplete("content_filter"), "refused"),
        (incomplete("tired"), "tired"),
        ({"output": [{"type": "message", "content": [{"type": "refusal", "refusal": "No."}]}]}, "refused"),
        ({"output": [TEXT]}, "stop"),
    ],
)
async def test_why_an_answer_ends(answer: dict[str, Any], reason: str) -> None:
    async with speaking("openai_responses", answering_json(answer)) as (provider, _):
        assert (await said(provider))[-1].reason == reason


@pytest.mark.parametrize(
    ("answer", "code", "text"),
    [
        ({"status": "failed", "output": [], "error": {"code": "server_error", "message": "Oh"}}, None, "Oh"),
        ({"status": "cancelled", "output": []}, None, "the response has the status `cancelled`"),
        ({"status": "completed"}, "bad_answer", "has no `output`"),
        ({"output": [{"type": "web_search_call"}]}, "bad_answer", "of the unknown type `web_search_call`"),
    ],
)
async def test_an_answer_that_is_none(answer: dict[str, Any], code: str | None, text: str) -> None:
    async with speaking("openai_responses", answering_json(answer)) as (provider, _):
        with pytest.raises(ProviderError, match=text) as raised:
            await said(provider)
    assert raised.value.code == (code or "provider_failed")


def event(kind: str, index: int, **more: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", "output_index": index, **more}


PIECES = [
    {"type": "response.created", "response": {"status": "in_progress", "error": None}},
    event("output_item.added", 0, item={"type": "reasoning", "id": "rs_1", "summary": []}),
    event("reasoning_summary_part.added", 0, summary_index=0),
    event("reasoning_summary_text.delta", 0, delta="Hm"),
    event("reasoning_summary_text.delta", 0, delta="."),
    event("output_item.done", 0, item=THOUGHT),
    event("output_item.added", 1, item={"type": "message", "content": []}),
    event("output_text.delta", 1, delta="H"),
    event("output_text.delta", 1, delta="i."),
    event("output_item.done", 1, item=TEXT),
    event("output_item.added", 2, item={**CALL, "arguments": ""}),
    event("function_call_arguments.delta", 2, delta='{"n"'),
    event("function_call_arguments.delta", 2, delta=":1}"),
    event("function_call_arguments.done", 2, arguments='{"n":1}'),
    event("output_item.done", 2, item=CALL),
    {"type": "response.completed", "response": WHOLE},
]


@pytest.mark.parametrize("named", [False, True])
async def test_an_answer_in_events(named: bool) -> None:
    async with speaking("openai_responses", events(*PIECES, named=named)) as (provider, server):
        assert (await said(provider))[-1] == Finish("tool_calls", Tokens(10, 7, 4, 0, 3), "m-2")
        assert (await message(provider)).parts == (
            Reasoning("Hm.", THOUGHT),
            Text("Hi."),
            ToolCall("a", "get", {"n": 1}, '{"n":1}'),
        )
        assert server.accepted == 1


async def test_items_that_come_without_pieces() -> None:
    whole = [each for each in PIECES if "delta" not in each]
    done = [each for each in PIECES if each["type"] in ("response.output_item.done", "response.completed")]
    for told in (whole, done):
        async with speaking("openai_responses", events(*told)) as (provider, _):
            parts = (await message(provider)).parts
            assert parts[:2] == (Reasoning("Hm.", THOUGHT), Text("Hi."))
            assert parts[2:] == (ToolCall("a", "get", {"n": 1}, '{"n":1}'),)


async def test_several_thoughts_have_a_line_between_them() -> None:
    thought = {**THOUGHT, "summary": [{"text": "One."}, {"text": "Two."}]}
    pieces = [
        event("reasoning_summary_text.delta", 0, delta="One."),
        event("reasoning_summary_part.added", 0, summary_index=1),
        event("reasoning_summary_text.delta", 0, delta="Two."),
        event("output_item.done", 0, item=thought),
        PIECES[-1],
    ]
    async with speaking("openai_responses", events(*pieces)) as (provider, _):
        assert (await message(provider)).parts == (Reasoning("One.\n\nTwo.", thought),)


@pytest.mark.parametrize(
    ("pieces", "code", "text"),
    [
        (PIECES[:-1], "answer_cut_off", "ended prematurely"),
        ([PIECES[0], "[DONE]"], "answer_cut_off", "ended prematurely"),
        (
            [PIECES[7], event("output_item.done", 1, item={**TEXT, "content": []})],
            "bad_answer",
            "differ from the completed item",
        ),
        (
            [PIECES[7], {"type": "error", "code": "rate_limit_exceeded", "message": "Slow"}],
            "rate_limited",
            "Slow",
        ),
        (
            [{"type": "response.failed", "response": {"status": "failed", "error": {"message": "Oh"}}}],
            "provider_failed",
            "Oh",
        ),
    ],
)
async def test_what_breaks_off_is_an_error(pieces: list[Any], code: str, text: str) -> None:
    async with speaking("openai_responses", events(*pieces)) as (provider, _):
        with pytest.raises(ProviderError, match=text) as raised:
            await said(provider, ASKED)
    assert raised.value.code == code


async def test_a_refusal_in_pieces() -> None:
    pieces = [event("refusal.delta", 0, delta="No."), {"type": "response.completed", "response": {}}]
    async with speaking("openai_responses", events(*pieces)) as (provider, _):
        assert await said(provider) == [TextDelta("No."), Finish("refused")]
