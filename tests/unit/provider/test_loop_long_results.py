"""Results that are too long to be shown at once: the beginning, and a tool that reads on."""

from __future__ import annotations

import asyncio
import json

from hypothesis import given, settings
from hypothesis import strategies as st

from in_memory import runtime_of
from loop_models import Model, asks, ends, loop, says
from sampling import examples
from toolcrib import Outcome, Runtime
from toolcrib.provider import Conversation, ToolPolicy

TOOLS = """
name: long
input_schema: {type: object}
mock: {result: "{{ args.text }}"}
---
name: strict
input_schema: {type: object, properties: {n: {type: integer}}}
mock: {error: {code: broken, message: MESSAGE}}
""".replace("MESSAGE", "x" * 400)


def results(conversation) -> list[str]:
    return [result.text for message in conversation.messages for result in message.results]


async def test_a_short_result_is_shown_whole():
    text = "a" * 256
    model = Model(asks(("long", {"text": text})))
    conversation = await loop(model, tools=TOOLS, result_limit=256).run("1")
    assert results(conversation) == [text]
    assert conversation.spilled == {}
    assert [each.name for each in model.requests[1].tools] == ["long", "strict"]


async def test_of_a_long_one_the_beginning_is_shown_and_how_to_go_on():
    model = Model(
        asks(("long", {"text": "é" * 300})),
        asks(("read_result", {"handle": "result_1", "offset": 47, "limit": 10})),
        asks(("read_result", {"handle": "result_1", "offset": 290})),
    )
    conversation = await loop(model, tools=TOOLS, result_limit=256).run("1")
    first, second, third = results(conversation)
    shown = first.index("…")
    assert first[:shown] == "é" * shown
    note = f'truncated: {shown} of 300 characters (600 bytes in total); continue with read_result(handle="result_1", offset={shown})'
    assert note in first
    assert len(first.encode()) <= 256
    assert second == "é" * 10 + "\n[characters 47 to 57 of 300; continue with offset=57]"
    assert third == "é" * 10 + "\n[characters 290 to 300 of 300; end of the result]"
    assert [[each.name for each in request.tools] for request in model.requests[:2]] == [
        ["long", "strict"],
        ["long", "strict", "read_result"],
    ]
    assert [record.tool for record in conversation.calls] == ["long", "read_result", "read_result"]
    assert conversation.calls[1].value == "é" * 10


async def test_reading_on_is_judged_like_any_call():
    calls = [
        ("read_result", {"handle": "result_2"}),
        ("read_result", {"handle": "result_1", "offset": 999}),
        ("read_result", {"handle": "result_1", "offset": -1}),
        ("read_result", {}),
        ("read_result", {"handle": "result_1", "offset": "5", "limit": 1}),
    ]
    model = Model(asks(("long", {"text": "a" * 300})), asks(*calls))
    policy = ToolPolicy(allow=("long",), tool_choice="long", max_calls=4)
    conversation = await loop(model, policy, tools=TOOLS, result_limit=256).run("1")
    assert ends(conversation)[1:] == [
        ("tool_error", "unknown_handle"),
        ("tool_error", "offset_too_large"),
        ("invalid_arguments", ""),
        ("limit_exceeded", "max_calls"),
        ("limit_exceeded", "max_calls"),
    ]
    assert "did you mean `result_1`" in results(conversation)[1]


async def test_failures_may_be_long_too():
    conversation = await loop(Model(asks("strict")), tools=TOOLS, result_limit=256).run("1")
    assert ends(conversation) == [("tool_error", "broken")]
    assert len(results(conversation)[0]) < 256
    assert conversation.spilled["result_1"].endswith("x" * 400)


async def test_another_process_reads_on():
    first = await loop(
        Model(asks(("long", {"text": "a" * 300})), says("b")), tools=TOOLS, result_limit=256
    ).run("1")
    read = Conversation.parse(json.loads(json.dumps(first.as_json())))
    model = Model(asks(("read_result", {"handle": "result_1"}), ("long", {"text": "c" * 300})))
    second = await loop(model, tools=TOOLS, result_limit=256).run(read.saying("2"))
    assert "read_result" in [each.name for each in model.requests[0].tools]
    assert [record.outcome for record in second.calls] == [Outcome.OK] * 3
    assert [*second.spilled] == ["result_1", "result_2"]


async def test_a_tool_of_that_name_keeps_it():
    tools = TOOLS + "---\nname: read_result\ninput_schema: {type: object}\nmock: {result: mine}\n"
    model = Model(
        asks(("long", {"text": "a" * 300})), asks("read_result", ("read_result_2", {"handle": "result_1"}))
    )
    conversation = await loop(model, tools=tools, result_limit=256).run("1")
    assert 'read_result_2(handle="result_1"' in results(conversation)[0]
    assert conversation.calls[1].value == "mine"
    assert [record.outcome for record in conversation.calls] == [Outcome.OK] * 3


async def test_a_tool_of_that_name_that_a_reload_brings_gets_it(tmp_path):
    head, *_ = TOOLS.split("---")
    (tmp_path / "long.tool.yaml").write_text(head)
    long = ("long", {"text": "a" * 300})
    async with Runtime.open(tmp_path, index=False) as runtime:
        own, others = ("read_result_2", {"handle": "result_2"}), ("read_result", {})
        model = Model(asks(long), says("a"), asks(long), asks(own, others))
        middleware = loop(model, ToolPolicy(deny=("read*",)), runtime, result_limit=256)
        first = await middleware.run("1")
        mine = tmp_path / "read_result.tool.yaml"
        mine.write_text("name: read_result\ninput_schema: {type: object}\nmock: {result: mine}\n")
        await runtime.reload()
        second = await middleware.run(first.saying("2"))
    assert [[each.name for each in request.tools] for request in model.requests] == [
        ["long"],
        ["long", "read_result"],
        *[["long", "read_result_2"]] * 3,
    ]
    assert 'read_result_2(handle="result_2"' in results(second)[1]
    assert ends(second)[2:] == [("ok", ""), ("denied", "tool_not_allowed")]


@settings(max_examples=examples(15))
@given(
    st.text(st.characters(codec="utf-8"), min_size=150, max_size=900).filter(
        lambda text: len(text.encode()) > 300
    ),
    st.integers(256, 300),
    st.integers(20, 400),
)
def test_the_whole_text_is_recovered_page_by_page(text, limit, wanted):
    def read_on(request):
        last = request.messages[-1].results[0].text
        offset = int(last.rsplit("offset=", 1)[1].rstrip(")]")) if "offset=" in last else None
        return (
            says("done")
            if offset is None
            else asks(("read_result", {"handle": "result_1", "offset": offset, "limit": wanted}))
        )

    async def read() -> Conversation:
        tools = runtime_of(TOOLS)
        model = Model(asks(("long", {"text": text})), *[read_on] * 100)
        return await loop(model, ToolPolicy(max_rounds=100), tools, result_limit=limit).run("1")

    conversation = asyncio.run(read())
    shown = results(conversation)
    pages = [
        shown[0][: shown[0].rindex("… [truncated")],
        *(str(record.value) for record in conversation.calls[1:]),
    ]
    assert "".join(pages) == text
    assert all(len(each.encode()) <= limit for each in shown)
