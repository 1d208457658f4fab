"""Answers of services that end before their end: none of their calls is made, and the conversation can go on."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import product
from typing import Any

import pytest

from http_servers import answering_each, answering_json
from in_memory import runtime_of
from loop_models import check_whole, ends, loop, watched
from sampling import sample
from served_models import events, speaking
from toolcrib.provider import Conversation, Stop

TOOLS = """
name: delete_all
input_schema: {type: object, properties: {folder: {type: string, default: /}}}
mock: {result: {deleted: true}}
---
name: get_order
input_schema: {type: object, properties: {id: {type: string}}}
mock: {result: {status: paid}}
"""

Call = tuple[str, str, str]
"""Id, name, and as much of the arguments as came."""


def chat_whole(calls: list[Call], reason: str | None) -> Any:
    told = [{"id": id_, "type": "function", "function": {"name": n, "arguments": a}} for id_, n, a in calls]
    message = {"role": "assistant", "content": "Let me see.", "tool_calls": told}
    return answering_json({"model": "m", "choices": [{"message": message, "finish_reason": reason}]})


def chat_events(calls: list[Call], reason: str | None, *, ended: bool = True) -> Any:
    def choice(finish: str | None = None, **delta: Any) -> dict[str, Any]:
        return {"model": "m", "choices": [{"delta": delta, "finish_reason": finish}]}

    told: list[Any] = [choice(content="Let me see.")]
    for index, (id_, name, arguments) in enumerate(calls):
        told.append(choice(tool_calls=[{"index": index, "id": id_, "function": {"name": name}}]))
        told.append(choice(tool_calls=[{"index": index, "function": {"arguments": arguments}}]))
    end = [choice(reason), "[DONE]"] if reason else []
    return events(*told, *end, ended=ended)


def messages_whole(calls: list[Call], reason: str | None) -> Any:
    blocks = [
        {"type": "tool_use", "id": id_, "name": name, "input": json.loads(arguments or "{}")}
        for id_, name, arguments in calls
    ]
    content = [{"type": "text", "text": "Let me see."}, *blocks]
    return answering_json({"model": "m", "content": content, "stop_reason": reason})


def messages_events(calls: list[Call], reason: str | None, *, ended: bool = True) -> Any:
    def block(index: int, begin: Mapping[str, Any], *pieces: Mapping[str, Any]) -> list[Any]:
        return [
            {"type": "content_block_start", "index": index, "content_block": begin},
            *({"type": "content_block_delta", "index": index, "delta": piece} for piece in pieces),
            {"type": "content_block_stop", "index": index},
        ]

    said = {"type": "text_delta", "text": "Let me see."}
    told = [{"type": "message_start", "message": {"model": "m"}}, *block(0, {"type": "text"}, said)]
    for index, (id_, name, arguments) in enumerate(calls, start=1):
        piece = {"type": "input_json_delta", "partial_json": arguments}
        told += block(index, {"type": "tool_use", "id": id_, "name": name, "input": {}}, piece)
    delta = {"type": "message_delta", "delta": {"stop_reason": reason}}
    return events(*told, *([delta, {"type": "message_stop"}] if reason else []), ended=ended)


def _response(reason: str | None) -> dict[str, Any]:
    details = {"incomplete_details": {"reason": reason}} if reason != "in_progress" else {}
    return {"model": "m", "status": "incomplete" if details else "in_progress", **details}


def responses_whole(calls: list[Call], reason: str | None) -> Any:
    said = {"type": "message", "content": [{"type": "output_text", "text": "Let me see."}]}
    told = [
        {"type": "function_call", "call_id": id_, "name": name, "arguments": a, "status": "incomplete"}
        for id_, name, a in calls
    ]
    return answering_json({**_response(reason), "output": [said, *told]})


def responses_events(calls: list[Call], reason: str | None, *, ended: bool = True) -> Any:
    def event(kind: str, index: int, **more: Any) -> dict[str, Any]:
        return {"type": f"response.{kind}", "output_index": index, **more}

    told = [event("output_text.delta", 0, delta="Let me see.")]
    for index, (id_, name, arguments) in enumerate(calls, start=1):
        item = {"type": "function_call", "call_id": id_, "name": name, "arguments": ""}
        told.append(event("output_item.added", index, item=item))
        told.append(event("function_call_arguments.delta", index, delta=arguments))
    end = [{"type": "response.incomplete", "response": _response(reason)}] if reason else []
    return events(*told, *end, ended=ended)


WHOLE = {"openai": chat_whole, "anthropic": messages_whole, "openai_responses": responses_whole}
STREAMED = {"openai": chat_events, "anthropic": messages_events, "openai_responses": responses_events}
DONE = {
    "openai": {"choices": [{"message": {"content": "Done."}, "finish_reason": "stop"}]},
    "anthropic": {"content": [{"type": "text", "text": "Done."}], "stop_reason": "end_turn"},
    "openai_responses": {
        "status": "completed",
        "output": [{"type": "message", "content": [{"type": "output_text", "text": "Done."}]}],
    },
}

CUT = {
    "nothing": [("a", "delete_all", "")],
    "an empty object": [("a", "delete_all", "{}")],
    "half of a text": [("a", "delete_all", '{"folder": "/tm')],
    "one behind a whole one": [("a", "get_order", '{"id": "7"}'), ("b", "delete_all", "")],
}
REASONS = [
    ("openai", "length", Stop.LENGTH),
    ("openai", "content_filter", Stop.REFUSED),
    ("openai", "tired", Stop.LENGTH),
    ("anthropic", "max_tokens", Stop.LENGTH),
    ("anthropic", "model_context_window_exceeded", Stop.LENGTH),
    ("anthropic", "refusal", Stop.REFUSED),
    ("anthropic", "pause_turn", Stop.LENGTH),
    ("anthropic", "stop_sequence", Stop.LENGTH),
    ("openai_responses", "max_output_tokens", Stop.LENGTH),
    ("openai_responses", "content_filter", Stop.REFUSED),
    ("openai_responses", "tired", Stop.LENGTH),
    ("openai_responses", "in_progress", Stop.LENGTH),
]


async def cut_short(name: str, handler: Any, *, streamed: bool) -> tuple[Conversation, Conversation, Any]:
    """A turn that is cut short, the next one, and what the service was sent for that."""
    made: list[str] = []

    async def watch(call: Any, call_next: Any) -> Any:
        made.append(call.tool.name)
        return await call_next(call)

    runtime = runtime_of(TOOLS, middleware=[watch])
    async with speaking(name, answering_each(handler, answering_json(DONE[name]))) as (provider, server):
        middleware = loop(provider, tools=runtime, streaming=streamed)
        first = await middleware.run("Tidy up.")
        assert made == []
        check_whole(first)
        second = await middleware.run(Conversation.parse(first.as_json()).saying("And now?"))
        assert (made, second.stop, second.text) == ([], Stop.ANSWERED, "Done.")
    return first, second, server.requests[1].json


def ids_on_the_wire(name: str, sent: Any) -> tuple[list[str], list[str]]:
    """The ids of the calls that a service is told of, and those of their results."""
    if name == "openai_responses":
        items = [item for item in sent["input"] if "call_id" in item]
        calls = [item["call_id"] for item in items if item["type"] == "function_call"]
        return calls, [item["call_id"] for item in items if item["type"] == "function_call_output"]
    if name == "openai":
        calls = [call["id"] for message in sent["messages"] for call in message.get("tool_calls", ())]
        return calls, [m["tool_call_id"] for m in sent["messages"] if m["role"] == "tool"]
    blocks = [b for m in sent["messages"] if isinstance(m["content"], list) for b in m["content"]]
    calls = [block["id"] for block in blocks if block["type"] == "tool_use"]
    return calls, [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]


@pytest.mark.parametrize(("why", "cut", "streamed"), sample(product(REASONS, CUT, [True, False]), 5))
async def test_no_call_of_an_unfinished_answer_is_made(why, cut, streamed):
    name, reason, stop = why
    calls = CUT[cut]
    if not streamed and name == "anthropic" and cut == "half of a text":
        calls = [("a", "delete_all", "{}")]  # an answer that does not stream has whole objects alone
    form = (STREAMED if streamed else WHOLE)[name]
    first, _second, sent = await cut_short(name, form(calls, reason), streamed=streamed)
    code = ("denied", "answer_refused") if stop is Stop.REFUSED else ("limit_exceeded", "answer_cut_off")
    assert (first.stop, ends(first)) == (stop, [code] * len(calls))
    assert all(f"`{tool}` ({id_})" in first.detail for id_, tool, _ in calls)
    assert first.text == "Let me see."
    asked, told = ids_on_the_wire(name, sent)
    assert asked == told == [id_ for id_, _, _ in calls]


@pytest.mark.parametrize("ended", [True, False])
@pytest.mark.parametrize("cut", sample(CUT, one_in=3))
@pytest.mark.parametrize("name", STREAMED)
async def test_no_call_of_a_stream_that_breaks_off_is_made(name, cut, ended):
    handler = STREAMED[name](CUT[cut], None, ended=ended)
    first, _second, sent = await cut_short(name, handler, streamed=True)
    assert first.stop is Stop.PROVIDER_FAILED
    assert first.failure["code"] == ("answer_cut_off" if ended else "connection_broken")
    assert all(f"`{tool}` ({id_})" in first.detail for id_, tool, _ in CUT[cut])
    assert (first.calls, first.text) == ((), "Let me see.")
    assert ids_on_the_wire(name, sent) == ([], [])


@pytest.mark.parametrize(("name", "form"), [("openai", chat_whole), ("anthropic", messages_whole)])
async def test_calls_of_an_answer_that_does_not_say_why_it_ended_are_not_made(name, form):
    first, _second, _sent = await cut_short(name, form(CUT["nothing"], None), streamed=False)
    assert (first.stop, ends(first)) == (Stop.LENGTH, [("limit_exceeded", "answer_cut_off")])


async def test_events_of_a_call_that_was_cut_off():
    handler = chat_events(CUT["nothing"], "length")
    async with speaking("openai", handler) as (provider, _server):
        seen, conversation = await watched(loop(provider, tools=runtime_of(TOOLS)), "Tidy up.")
    (record,) = conversation.calls
    assert (record.reached, record.attempts) == (False, 0)
    last = [event for event in seen if event.type == "call_updated"][-1]
    assert (last.status, last.outcome) == ("failed", "limit_exceeded")
    assert (seen[-1].type, seen[-1].stop) == ("turn_ended", "length")


async def test_what_was_thought_before_an_answer_was_cut_off_is_not_sent_back_alone():
    thought = {"type": "reasoning", "id": "rs_1", "status": "incomplete", "summary": []}
    cut = answering_json({**_response("max_output_tokens"), "output": [thought]})
    first, _second, sent = await cut_short("openai_responses", cut, streamed=False)
    assert (first.stop, first.text) == (Stop.LENGTH, "")
    assert [item.get("type", item["role"]) for item in sent["input"]] == ["user", "user"]
