"""Answers as services really send them: failures after the head, sloppy ends, other statuses and content types."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from http_servers import answering, answering_each, answering_raw, raw_answer
from in_memory import runtime_of
from sampling import examples, sample
from served_models import ASKED, EVENT_STREAM, Waiting, events, in_chunks, resetting, said, speaking, text_of
from toolcrib.core.model import Outcome
from toolcrib.provider import (
    Finish,
    ProviderError,
    ProviderMiddleware,
    Reasoning,
    Stop,
    Text,
    TextDelta,
    ToolCall,
)
from toolcrib.provider.models.assembler import Assembler

NAMES = ["openai", "openai_responses", "anthropic"]


def chunk(finish: str | None = None, index: int = 0, **delta: Any) -> dict[str, Any]:
    return {"choices": [{"index": index, "delta": delta, "finish_reason": finish}]}


def item(kind: str, index: int = 0, **more: Any) -> dict[str, Any]:
    return {"type": f"response.{kind}", "output_index": index, **more}


def block(kind: str, index: int = 0, **more: Any) -> dict[str, Any]:
    return {"type": f"content_block_{kind}", "index": index, **more}


CALLED = {"type": "function_call", "call_id": "a", "name": "get", "arguments": ""}

PREAMBLE: dict[str, list[Any]] = {
    "openai": [chunk(role="assistant", content="")],
    "openai_responses": [
        {"type": "response.created", "response": {"status": "in_progress"}},
        item("output_item.added", item={"type": "message", "content": []}),
        item("output_text.delta", delta=""),
    ],
    "anthropic": [
        {"type": "message_start", "message": {"model": "m-1", "usage": {"input_tokens": 3}}},
        {"type": "ping"},
        block("start", content_block={"type": "text", "text": ""}),
    ],
}
"""Events before the first piece of an answer."""

TEXT: dict[str, Any] = {
    "openai": chunk(content="Hi."),
    "openai_responses": item("output_text.delta", delta="Hi."),
    "anthropic": block("delta", delta={"type": "text_delta", "text": "Hi."}),
}
THOUGHT: dict[str, Any] = {
    "openai": chunk(reasoning="Hm."),
    "openai_responses": item("reasoning_text.delta", 1, delta="Hm."),
    "anthropic": block("delta", 1, delta={"type": "thinking_delta", "thinking": "Hm."}),
}
CALL: dict[str, list[Any]] = {
    "openai": [
        chunk(tool_calls=[{"index": 0, "id": "a", "function": {"name": "get", "arguments": ""}}]),
        chunk(tool_calls=[{"index": 0, "function": {"arguments": '{"x":'}}]),
        chunk(tool_calls=[{"index": 0, "function": {"arguments": "1}"}}]),
    ],
    "openai_responses": [
        item("output_item.added", 2, item=CALLED),
        item("function_call_arguments.delta", 2, delta='{"x":'),
        item("function_call_arguments.delta", 2, delta="1}"),
    ],
    "anthropic": [
        block("start", 2, content_block={"type": "tool_use", "id": "a", "name": "get", "input": {}}),
        block("delta", 2, delta={"type": "input_json_delta", "partial_json": '{"x":'}),
        block("delta", 2, delta={"type": "input_json_delta", "partial_json": "1}"}),
    ],
}
END: dict[str, list[Any]] = {
    "openai": [chunk("stop"), "[DONE]"],
    "openai_responses": [{"type": "response.completed", "response": {"status": "completed"}}],
    "anthropic": [
        {"type": "message_delta", "delta": {"stop_reason": "end_turn"}},
        {"type": "message_stop"},
    ],
}
WHOLE: dict[str, Any] = {
    "openai": {"choices": [{"message": {"content": "Hi."}, "finish_reason": "stop"}]},
    "openai_responses": {
        "status": "completed",
        "output": [{"type": "message", "content": [{"type": "output_text", "text": "Hi."}]}],
    },
    "anthropic": {"content": [{"type": "text", "text": "Hi."}], "stop_reason": "end_turn"},
}


def good(name: str) -> list[Any]:
    """The events of an answer."""
    return [*PREAMBLE[name], TEXT[name], *END[name]]


def pieces(deltas: list[Any]) -> list[Any]:
    """What an answer says, without the end, which differs in the tokens and the model."""
    return [delta for delta in deltas if not isinstance(delta, Finish)]


# Failures after the head of a successful response.

OVERLOADED: list[tuple[str, Any]] = [
    ("openai", {"error": {"message": "Overloaded", "type": "server_error", "code": None}}),
    ("openai", {"error": {"message": "Overloaded", "code": 503}}),
    ("openai", {"error": "Overloaded", "code": "529"}),
    ("openai_responses", {"type": "error", "code": "server_is_overloaded", "message": "Overloaded"}),
    ("openai_responses", {"type": "error", "error": {"type": "server_error", "message": "Overloaded"}}),
    (
        "openai_responses",
        {
            "type": "response.failed",
            "response": {"status": "failed", "error": {"code": "server_error", "message": "Overloaded"}},
        },
    ),
    ("anthropic", {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
    ("anthropic", {"type": "error", "error": {"type": "api_error", "message": "Overloaded"}}),
]


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize(("name", "overloaded"), sample(OVERLOADED, one_in=2))
async def test_an_overload_in_the_first_events_is_tried_again(
    name: str, overloaded: Any, begun: bool
) -> None:
    clock = Waiting()
    told = [*(PREAMBLE[name] if begun else ()), overloaded]
    handler = answering_each(events(*told), events(*told), events(*good(name)))
    async with speaking(name, handler, clock=clock, attempts=3) as (provider, server):
        assert pieces(await said(provider)) == [TextDelta("Hi.")]
    assert [request.body for request in server.requests] == [server.requests[0].body] * 3
    assert clock.waits == [0.5, 1.0]


@pytest.mark.parametrize("name", NAMES)
async def test_an_event_that_is_named_error_is_one(name: str) -> None:
    named = b'event: error\ndata: {"type": "overloaded_error", "message": "Overloaded"}\n\n'
    handler = answering_each(in_chunks([named]), events(*good(name)))
    async with speaking(name, handler, clock=Waiting(), attempts=2) as (provider, _):
        assert pieces(await said(provider)) == [TextDelta("Hi.")]
    unknown = in_chunks([b"event: error\ndata: the upstream is gone\n\n"])
    async with speaking(name, unknown, clock=Waiting(), attempts=2) as (provider, server):
        with pytest.raises(ProviderError, match="the upstream is gone") as raised:
            await said(provider)
    assert (raised.value.code, raised.value.retryable) == ("provider_failed", False)
    assert len(server.requests) == 1


@pytest.mark.parametrize(("name", "overloaded"), OVERLOADED)
async def test_an_overload_as_a_whole_answer_is_tried_again(name: str, overloaded: Any) -> None:
    failed = {"output": [], **overloaded.get("response", overloaded)}
    handler = answering_each(
        answering(200, {"Content-Type": "application/json"}, json.dumps(failed).encode()),
        answering(200, {"Content-Type": "application/json"}, json.dumps(WHOLE[name]).encode()),
    )
    async with speaking(name, handler, clock=Waiting(), attempts=2) as (provider, server):
        assert pieces(await said(provider)) == [TextDelta("Hi.")]
    assert len(server.requests) == 2


@pytest.mark.parametrize(("name", "overloaded"), OVERLOADED)
async def test_attempts_after_the_head_have_an_end(name: str, overloaded: Any) -> None:
    async with speaking(name, events(overloaded), clock=Waiting(), attempts=2) as (provider, server):
        with pytest.raises(ProviderError, match="Overloaded") as raised:
            await said(provider)
    assert raised.value.code in ("provider_overloaded", "provider_failed")
    assert raised.value.retryable
    assert len(server.requests) == 2


@pytest.mark.parametrize("name", NAMES)
async def test_a_refusal_in_the_first_event_is_final(name: str) -> None:
    refused = {"error": {"type": "invalid_request_error", "message": "No such model"}}
    async with speaking(name, events(refused), clock=Waiting(), attempts=3) as (provider, server):
        with pytest.raises(ProviderError, match="No such model") as raised:
            await said(provider)
    assert (raised.value.code, raised.value.retryable) == ("request_refused", False)
    assert len(server.requests) == 1


STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
CHUNKED = STREAM_HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
JSON_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
LENGTH = b"Content-Length: 1000\r\n\r\n"


@pytest.mark.parametrize("cut", [answering_raw, resetting])
@pytest.mark.parametrize(
    "sent",
    [
        CHUNKED,
        STREAM_HEAD + b"\r\n",
        STREAM_HEAD + LENGTH,
        STREAM_HEAD + b"\r\n: keep-alive\n\n",
        STREAM_HEAD + b'\r\ndata: {"type":',
        JSON_HEAD + b"\r\n",
        JSON_HEAD + LENGTH,
        JSON_HEAD + LENGTH + b"\n\n",
        JSON_HEAD + b"Transfer-Encoding: chunked\r\n\r\n",
    ],
)
@pytest.mark.parametrize("name", sample(NAMES, one_in=4))
async def test_a_connection_that_is_lost_after_the_head_is_tried_again(
    name: str, sent: bytes, cut: Any
) -> None:
    clock = Waiting()
    handler = answering_each(cut(sent), cut(sent), events(*good(name)))
    async with speaking(name, handler, clock=clock, attempts=3) as (provider, server):
        assert pieces(await said(provider)) == [TextDelta("Hi.")]
    assert len(server.requests) == 3
    assert clock.waits == [0.5, 1.0]


@pytest.mark.parametrize("cut", [answering_raw, resetting])
@pytest.mark.parametrize("name", NAMES)
async def test_a_connection_that_is_lost_before_the_first_piece_is_tried_again(name: str, cut: Any) -> None:
    begun = STREAM_HEAD + b"\r\n" + text_of(*PREAMBLE[name])
    async with speaking(
        name, answering_each(cut(begun), events(*good(name))), clock=Waiting(), attempts=2
    ) as (provider, server):
        assert pieces(await said(provider)) == [TextDelta("Hi.")]
    assert len(server.requests) == 2


@pytest.mark.parametrize("cut", [answering_raw, resetting])
async def test_a_lost_connection_has_an_error_of_its_own(cut: Any) -> None:
    for sent, by_end in ((CHUNKED, "connection_broken"), (STREAM_HEAD + b"\r\n", "answer_cut_off")):
        async with speaking("openai", cut(sent)) as (provider, _):
            with pytest.raises(ProviderError) as raised:
                await said(provider)
        assert raised.value.code == ("connection_broken" if cut is resetting else by_end)
        assert raised.value.retryable


@pytest.mark.parametrize("fails", ["error", "end", "reset"])
@pytest.mark.parametrize("what", ["text", "thought", "call"])
@pytest.mark.parametrize("name", sample(NAMES, one_in=3))
async def test_after_a_piece_was_delivered_nothing_is_tried_again(name: str, what: str, fails: str) -> None:
    told = {"text": TEXT[name], "thought": THOUGHT[name], "call": CALL[name][0]}[what]
    body = text_of(*PREAMBLE[name], told)
    if fails == "error":
        body += text_of({"error": {"type": "overloaded_error", "message": "Overloaded"}})
    sent = STREAM_HEAD + b"\r\n" + body
    handler = resetting(sent) if fails == "reset" else answering_raw(sent)
    async with speaking(name, handler, clock=Waiting(), attempts=3) as (provider, server):
        with pytest.raises(ProviderError) as raised:
            await said(provider)
    code = {"error": "provider_overloaded", "end": "answer_cut_off", "reset": "connection_broken"}[fails]
    assert (raised.value.code, raised.value.retryable) == (code, True)
    assert len(server.requests) == 1


async def test_pieces_before_a_failure_are_delivered_once() -> None:
    sent = [*PREAMBLE["openai"], TEXT["openai"], {"error": {"code": 503, "message": "Busy"}}]
    async with speaking("openai", events(*sent), clock=Waiting(), attempts=3) as (provider, _):
        answer = provider.respond(ASKED)
        assert await anext(answer) == TextDelta("Hi.")
        with pytest.raises(ProviderError, match="Busy"):
            await anext(answer)


@pytest.mark.parametrize("name", NAMES)
async def test_an_answer_that_cannot_be_read_is_not_paid_for_again(name: str) -> None:
    for handler in (events("{"), answering(200, {"Content-Type": "text/html"}, b"<p>Hi.</p>")):
        async with speaking(name, handler, clock=Waiting(), attempts=3) as (provider, server):
            with pytest.raises(ProviderError) as raised:
                await said(provider)
        assert raised.value.code == "bad_answer"
        assert len(server.requests) == 1


async def test_who_leaves_before_the_first_piece_hangs_up() -> None:
    async def silent(reader: Any, writer: Any, _head: Any) -> None:
        writer.write(CHUNKED)
        begun.set()
        await reader.read()

    begun = asyncio.Event()
    async with speaking("openai", silent, attempts=3) as (provider, server):
        task = asyncio.create_task(said(provider))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await server.all_closed()
    assert len(server.requests) == 1


# Ends without a reason.


async def heard(name: str, *told: Any) -> tuple[tuple[Any, ...], Finish]:
    assembler = Assembler()
    async with speaking(name, events(*told)) as (provider, _):
        for delta in await said(provider):
            list(assembler.add(delta))
    assert assembler.finish is not None
    return assembler.parts(), assembler.finish


@pytest.mark.parametrize("name", NAMES)
async def test_what_arrived_before_the_mark_is_the_answer(name: str) -> None:
    parts, finish = await heard(name, *PREAMBLE[name], TEXT[name], "[DONE]")
    assert (parts, finish.reason) == ((Text("Hi."),), "stop")
    parts, finish = await heard(name, THOUGHT[name], TEXT[name], *CALL[name], "[DONE]")
    call = ToolCall("a", "get", {"x": 1}, '{"x":1}')
    assert (parts, finish.reason) == ((Reasoning("Hm."), Text("Hi."), call), "length")


@pytest.mark.parametrize("some", [1, 2])
@pytest.mark.parametrize("name", NAMES)
async def test_a_call_without_the_rest_of_its_arguments_is_not_kept(name: str, some: int) -> None:
    handler = events(TEXT[name], *CALL[name][:some], "[DONE]")
    async with speaking(name, handler, clock=Waiting(), attempts=3) as (provider, server):
        with pytest.raises(ProviderError) as raised:
            await said(provider)
    assert (raised.value.code, raised.value.retryable, len(server.requests)) == ("answer_cut_off", True, 1)


async def test_a_reason_without_the_last_event_counts_before_the_mark() -> None:
    reason = {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 7}}
    parts, finish = await heard("anthropic", *CALL["anthropic"], reason, "[DONE]")
    assert (finish.reason, finish.tokens.output) == ("tool_calls", 7)
    assert len(parts) == 1


@pytest.mark.parametrize("name", NAMES)
async def test_nothing_but_the_mark_is_no_answer(name: str) -> None:
    handler = answering_each(events(*PREAMBLE[name], "[DONE]"), events(*good(name)))
    async with speaking(name, handler, clock=Waiting(), attempts=2) as (provider, server):
        assert pieces(await said(provider)) == [TextDelta("Hi.")]
    assert len(server.requests) == 2


@pytest.mark.parametrize("name", NAMES)
async def test_a_turn_that_ends_with_the_mark(name: str) -> None:
    tools = runtime_of("{name: get, input_schema: {type: object}, mock: {result: 1}}")
    async with speaking(name, events(*PREAMBLE[name], TEXT[name], "[DONE]")) as (provider, _):
        conversation = await ProviderMiddleware(provider, tools).run("Hello")
    assert (conversation.stop, conversation.text) == (Stop.ANSWERED, "Hi.")
    async with speaking(name, events(TEXT[name], *CALL[name], "[DONE]")) as (provider, _):
        conversation = await ProviderMiddleware(provider, tools).run("Hello")
    (record,) = conversation.calls
    assert (conversation.stop, record.tool, record.reached) == (Stop.LENGTH, "get", False)
    assert (record.outcome, record.code) == (Outcome.LIMIT_EXCEEDED, "answer_cut_off")
    assert conversation.messages[1].text == "Hi."
    async with speaking(name, events(TEXT[name], *CALL[name][:-1], "[DONE]")) as (provider, _):
        conversation = await ProviderMiddleware(provider, tools).run("Hello")
    assert (conversation.stop, conversation.text, conversation.calls) == (Stop.PROVIDER_FAILED, "Hi.", ())


# Several choices.


@pytest.mark.parametrize(
    "told",
    [
        [chunk(content="Hi."), chunk(index=1, content="No."), chunk("stop"), chunk("length", index=1)],
        [chunk("stop", content="Hi."), chunk("length", index=1, content="No.")],
        [
            {"choices": [*chunk(index=1, content="No.")["choices"], *chunk(content="Hi.")["choices"]]},
            {"choices": [*chunk("length", index=1)["choices"], *chunk("stop")["choices"]]},
        ],
        [chunk(content="H"), chunk(index=1, content="N"), chunk(content="i."), chunk("stop")],
        [chunk(index=4, content="Hi."), chunk(index=5, content="No."), chunk("stop", index=4)],
    ],
)
async def test_one_of_several_choices_is_read(told: list[Any]) -> None:
    parts, finish = await heard("openai", *told, "[DONE]")
    assert (parts, finish.reason) == ((Text("Hi."),), "stop")


async def test_calls_of_several_choices_do_not_mix() -> None:
    other = [{"index": 0, "id": "b", "function": {"name": "put", "arguments": "{}"}}]
    told = [piece for call in CALL["openai"] for piece in (call, chunk(index=1, tool_calls=other))]
    parts, finish = await heard("openai", *told, chunk("length", index=1), chunk("tool_calls"), "[DONE]")
    assert parts == (ToolCall("a", "get", {"x": 1}, '{"x":1}'),)
    assert finish.reason == "tool_calls"


async def test_one_of_several_choices_of_a_whole_answer_is_read() -> None:
    first, second = (
        {"index": index, "message": {"content": text}, "finish_reason": reason}
        for index, text, reason in ((0, "Hi.", "stop"), (1, "No.", "length"))
    )
    for choices in ([first, second], [second, first]):
        handler = answering(200, {}, json.dumps({"choices": choices}).encode())
        async with speaking("openai", handler) as (provider, _):
            assert await said(provider) == [TextDelta("Hi."), Finish("stop")]


# Other statuses and content types.

KINDS = [
    EVENT_STREAM,
    "TEXT/EVENT-STREAM",
    "text/plain",
    "text/plain; charset=utf-8",
    "application/json",
    None,
]


@pytest.mark.parametrize("status", [200, 201, 202, 203, 206, 299])
@pytest.mark.parametrize("kind", sample(KINDS, one_in=5))
@pytest.mark.parametrize("name", NAMES)
async def test_answers_of_any_type_and_status_of_success_are_read(
    name: str, kind: str | None, status: int
) -> None:
    typed = {} if kind is None else {"Content-Type": kind}
    whole = answering(status, typed, json.dumps(WHOLE[name]).encode())
    for handler in (in_chunks([text_of(*good(name))], status=status, kind=kind), whole):
        async with speaking(name, handler) as (provider, _):
            assert pieces(await said(provider)) == [TextDelta("Hi.")]


@pytest.mark.parametrize(
    "start",
    [
        b"\xef\xbb\xbf",
        b"\n\n",
        b"\r\n\r\n",
        b": keep-alive\n\n",
        b":\n\n",
        b"id: 1\n",
        b"retry: 5\n",
        b"id\n",
        b"event: x\n",
    ],
)
async def test_streams_that_are_declared_as_text_may_begin_with_any_field(start: bytes) -> None:
    handler = in_chunks([start + text_of(*good("openai"))], kind="text/plain")
    async with speaking("openai", handler) as (provider, _):
        assert pieces(await said(provider)) == [TextDelta("Hi.")]


@pytest.mark.parametrize("status", [204, 205, 304])
async def test_a_response_without_a_body_is_no_answer(status: int) -> None:
    async with speaking("openai", answering_raw(raw_answer(status)), attempts=3) as (provider, server):
        with pytest.raises(ProviderError, match=f"answered {status}") as raised:
            await said(provider)
    assert (raised.value.code, len(server.requests)) == ("request_refused", 1)


# Wherever the bytes are cut.

OTHER_CHOICE = [chunk(index=1, content="No."), chunk("length", index=1)]
BYTES: dict[str, bytes] = {
    "whole": b"\n" + json.dumps(WHOLE["anthropic"]).encode(),
    "cut off": text_of(*PREAMBLE["openai"]),
    "several": text_of(*PREAMBLE["openai"], TEXT["openai"], *OTHER_CHOICE, *CALL["openai"], *END["openai"]),
    "marked": b"\xef\xbb\xbf" + text_of(*PREAMBLE["anthropic"], TEXT["anthropic"], "[DONE]"),
    "overloaded": b": hold on\r\n\r\n" + text_of(*PREAMBLE["anthropic"], OVERLOADED[-1][1], named=True),
    "late": text_of(TEXT["openai_responses"], OVERLOADED[3][1]),
    "junk": b"<p>No.</p>",
}
SERVICES = {
    "whole": "anthropic",
    "marked": "anthropic",
    "overloaded": "anthropic",
    "late": "openai_responses",
}


async def outcome(which: str, chunks: list[bytes], kind: str | None) -> Any:
    """What comes of an answer in these pieces: the parts, the end or the error, and how often it was asked."""
    name = SERVICES.get(which, "openai")
    assembler, ended = Assembler(), ""
    async with speaking(name, in_chunks(chunks, kind=kind), clock=Waiting(), attempts=2) as (
        provider,
        server,
    ):
        try:
            async for delta in provider.respond(ASKED):
                list(assembler.add(delta))
        except ProviderError as error:
            ended = error.code
    return assembler.parts(), assembler.finish, ended, len(server.requests)


@pytest.mark.parametrize("which", sample(BYTES, one_in=3))
@settings(max_examples=examples(6))
@given(st.data())
def test_it_makes_no_difference_where_an_answer_is_cut(which: str, data: st.DataObject) -> None:
    sent = BYTES[which]
    cuts = data.draw(
        st.lists(st.integers(1, min(len(sent) - 1, 12)) | st.integers(1, len(sent) - 1), unique=True)
    )
    kind = data.draw(st.sampled_from(KINDS if which != "junk" else KINDS[2:]))
    places = [0, *sorted(cuts), len(sent)]
    pieces = [sent[start:end] for start, end in itertools.pairwise(places)]
    assert asyncio.run(outcome(which, pieces, kind)) == asyncio.run(outcome(which, [sent], kind))
    parts, _finish, ended, requests = asyncio.run(outcome(which, pieces, kind))
    assert (ended, requests) == {
        "cut off": ("answer_cut_off", 2),
        "overloaded": ("provider_failed", 2),
        "late": ("provider_overloaded", 1),
        "junk": ("bad_answer", 1),
    }.get(which, ("", 1))
    assert (Text("Hi.") in parts) is (which not in ("cut off", "overloaded", "junk"))
