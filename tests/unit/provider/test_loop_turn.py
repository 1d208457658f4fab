"""The loop: rounds of an answer, its calls, their results; what the model is asked and told."""

from __future__ import annotations

import asyncio
import json

import pytest

from in_memory import mocked, runtime_of
from keeping import session_of
from loop_models import TOOLS, Model, asks, check_whole, ends, loop, outcomes, says, talk, watched
from toolcrib import ConfigurationError, Content, Outcome, ProviderMiddleware, Result, Runtime, Toolset
from toolcrib.core.model import Partial, Progress
from toolcrib.provider import (
    CallDelta,
    Config,
    Conversation,
    Finish,
    Message,
    ProviderError,
    Reasoning,
    ReasoningDelta,
    Stop,
    Text,
    TextDelta,
    Tokens,
    ToolCall,
    ToolPolicy,
    ToolResult,
    View,
    system,
    user,
)


async def test_a_model_that_calls_nothing_is_asked_once():
    model = Model(says("Hello."))
    conversation = await talk(model)
    assert conversation.stop is Stop.ANSWERED
    assert conversation.text == "Hello."
    assert conversation.messages == (user("hello"), Message("assistant", (Text("Hello."),)))
    assert len(model.requests) == conversation.rounds == 1
    assert not model.requests[0].aware


async def test_results_go_back_to_the_model_until_it_has_its_answer():
    model = Model(asks(("get_order", {"id": "a"}), text="Let me look."), says("It is paid."))
    conversation = await talk(model)
    (call,) = conversation.messages[1].calls
    (result,) = conversation.messages[2].results
    assert call == ToolCall("call_1", "get_order", {"id": "a"}, '{"id": "a"}')
    assert (result.id, result.name, result.outcome) == ("call_1", "get_order", Outcome.OK)
    assert result.text == '{"id":"a","status":"paid"}'
    assert model.requests[1].messages == conversation.messages[:3]
    assert model.requests[1].aware
    (record,) = conversation.calls
    assert (record.turn, record.round, record.value) == (1, 1, {"id": "a", "status": "paid"})
    assert record.reached
    check_whole(conversation)


async def test_results_stand_in_the_order_of_the_calls_whatever_ends_first():
    conversation = await talk(Model(asks("slower", "get_order", "slow", "failing")))
    assert [result.text for message in conversation.messages for result in message.results] == [
        "slower",
        '{"id":null,"status":"paid"}',
        "slow",
        "it is broken",
    ]
    check_whole(conversation)


async def test_a_failure_cancels_no_sibling_and_time_is_shared():
    conversation = await talk(Model(asks("slow", "failing", "slower", ("lying", {"x": 1}))))
    assert outcomes(conversation) == [
        Outcome.OK,
        Outcome.TOOL_ERROR,
        Outcome.OK,
        Outcome.INVALID_RESULT,
    ]
    assert [record.duration for record in conversation.calls] == [2.0, 0.0, 5.0, 0.0]
    assert len({record.at for record in conversation.calls}) == 1


async def test_an_invalid_result_never_reaches_the_model_as_valid():
    conversation = await talk(Model(asks(("lying", {"x": 4711}), ("lying", {"x": "fine"}))))
    bad, good = (message.results[0] for message in conversation.messages if message.role == "tool")
    assert (bad.outcome, good.outcome) == (Outcome.INVALID_RESULT, Outcome.OK)
    assert bad.text.startswith("the result of `lying` does not match its output schema")
    assert conversation.calls[0].value is None
    assert good.text == '{"status":"fine"}'


async def test_arguments_are_repaired_and_refused_as_in_all_calls():
    conversation = await talk(Model(asks(("get_order", {"n": "5"}), ("get_order", {"n": "five", "x": 1}))))
    good, bad = (message.results[0] for message in conversation.messages if message.role == "tool")
    assert good.outcome is Outcome.OK
    assert bad.outcome is Outcome.INVALID_ARGUMENTS
    assert bad.text.splitlines()[0] == "invalid arguments for `get_order`:"
    assert all(line.startswith("/") for line in bad.text.splitlines()[1:])
    assert [record.reached for record in conversation.calls] == [True, False]


async def test_unknown_tools_and_junk_get_a_result_and_the_loop_goes_on():
    model = Model(
        asks("get_ordr", ("get_order", '{"id": "a"'), ("get_order", "[1]"), ("get_order", '{"n": NaN}'), "")
    )
    conversation = await talk(model)
    assert ends(conversation) == [
        ("not_found", ""),
        ("invalid_arguments", "not_json"),
        ("invalid_arguments", "not_json"),
        ("invalid_arguments", "not_json"),
        ("not_found", ""),
    ]
    texts = [message.results[0].text for message in conversation.messages if message.role == "tool"]
    assert texts[0] == "unknown tool `get_ordr`; did you mean `get_order` or `refund_order`?"
    assert "character 10" in texts[1]
    assert "got a list" in texts[2]
    assert "NaN" in texts[3]
    assert conversation.stop is Stop.ANSWERED
    check_whole(conversation)


@pytest.mark.parametrize("written", ["", "null", "  ", "{}"])
async def test_no_arguments_are_an_empty_object(written):
    conversation = await talk(Model(asks(("get_order", written))))
    assert conversation.calls[0].arguments == {}
    assert outcomes(conversation) == [Outcome.OK]


async def test_whole_numbers_keep_all_their_digits():
    tools = """
    name: echo
    input_schema: {type: object}
    mock: {result: "{{ args }}"}
    """
    conversation = await talk(
        Model(asks(("echo", '{"n": 12345678901234567890123, "t": "<&>é"}'))), tools=tools
    )
    assert conversation.messages[2].results[0].text == '{"n":12345678901234567890123,"t":"<&>é"}'


async def test_ids_are_unique_over_the_conversation():
    twice = [
        CallDelta(0, "x", "get_order", "{}"),
        CallDelta(1, "y", "slow", "{}"),
        CallDelta(2, "", "slow"),
        Finish(),
    ]
    model = Model(twice, twice)
    conversation = await talk(model)
    assert [record.id for record in conversation.calls] == ["x", "y", "call_1", "x_2", "y_2", "call_2"]
    check_whole(conversation)


async def test_a_late_id_is_the_id_and_the_order_of_events_is_true():
    late = [
        TextDelta("a"),
        CallDelta(0, "", "get_order", '{"id"'),
        TextDelta("b"),
        CallDelta(0, "late", "", ': "1"}'),
        CallDelta(1, "", "slow", "{}"),
        TextDelta("c"),
        Finish(),
    ]
    events, conversation = await watched(loop(Model(late)), "hello")
    assert [record.id for record in conversation.calls] == ["late", "call_1"]
    view = View()
    for event in events:
        view.apply(event)
    assert [(part.kind, part.text if part.kind != "call" else part.id) for part in view.segments[1:-1]] == [
        ("text", "a"),
        ("call", "late"),
        ("text", "b"),
        ("call", "call_1"),
        ("text", "c"),
    ]
    assert [type(part) for part in conversation.messages[1].parts] == [Text, ToolCall, Text, ToolCall, Text]


async def test_reasoning_is_kept_with_what_the_provider_wants_back():
    answer = [ReasoningDelta("hm", {"signature": "s"}), *asks("get_order")]
    conversation = await talk(Model(answer))
    assert conversation.messages[1].parts[0] == Reasoning("hm", {"signature": "s"})


async def test_names_that_no_provider_takes_are_aliased_and_mapped_back():
    tools = """
    name: shop.get
    input_schema: {type: object}
    mock: {result: 1}
    """
    model = Model(asks("shop_get"), asks("shop.get"))
    conversation = await talk(model, ToolPolicy(tool_choice="shop.get"), tools=tools)
    assert [declared.name for declared in model.requests[0].tools] == ["shop_get"]
    assert [request.tool_choice for request in model.requests] == ["shop_get", "auto", "auto"]
    assert [record.tool for record in conversation.calls] == ["shop.get", "shop.get"]
    assert [call.alias for message in conversation.messages for call in message.calls] == ["shop_get", ""]


async def test_tools_are_declared_in_one_order_and_only_those_that_are_offered():
    tools = runtime_of(TOOLS)
    model = Model()
    await talk(model, ToolPolicy(allow=("get_*", "refund_*", "slow*"), deny=("slower",)), tools=tools)
    assert [each.name for each in model.requests[0].tools] == ["get_order", "refund_order", "slow"]


async def test_a_toolset_bounds_what_is_offered_and_what_can_be_called():
    runtime = runtime_of(TOOLS)
    registry = runtime.registry.with_toolsets([Toolset("small", tools=("get_*",))])
    session = runtime.session(registry=registry)
    model = Model(asks("get_order", "slow"))
    conversation = await talk(model, tools=session, toolset="small")
    assert [each.name for each in model.requests[0].tools] == ["get_order"]
    assert ends(conversation) == [("ok", ""), ("unavailable", "not_in_toolset")]
    with pytest.raises(ConfigurationError, match="unknown toolset `smal`"):
        loop(model, tools=session, toolset="smal")


async def test_system_comes_first_and_that_of_the_messages_counts():
    model = Model()
    conversation = await talk(model, system="Be brief.")
    assert conversation.messages[0] == system("Be brief.")
    again = await loop(model, system="Be long.").run(conversation.saying("more"))
    assert [message.text for message in again.messages if message.role == "system"] == ["Be brief."]
    given = await loop(model, system="Be long.").run([system("Mine."), user("hello")])
    assert given.messages[0].text == "Mine."


async def test_settings_reach_the_provider_and_streaming_follows_who_asks():
    model = Model()
    middleware = loop(model, settings={"temperature": 0})
    await middleware.run("a")
    await watched(middleware, "b")
    assert [(each.settings, each.streaming) for each in model.requests] == [
        ({"temperature": 0}, False),
        ({"temperature": 0}, True),
    ]
    fixed = loop(model, streaming=False)
    await watched(fixed, "c")
    assert not model.requests[-1].streaming


async def test_run_and_stream_give_the_same_conversation():
    def model():
        return Model(asks("slow", "get_order", "nope", text="a"), asks(("get_order", "{")), says("b"))

    ran = await talk(model())
    _events, streamed = await watched(loop(model()), "hello")
    assert streamed.id != ran.id
    assert streamed._replace(id=ran.id) == ran


async def test_events_tell_what_the_conversation_holds():
    middleware = loop(Model(asks("slow", "failing", text="a"), says("b")))
    events, conversation = await watched(middleware, "hello")
    assert [event.seq for event in events] == [*range(1, len(events) + 1)]
    view = View()
    for event in events:
        view.apply(event)
    assert [(each.kind, each.text, each.status) for each in view.segments] == [
        ("user", "hello", ""),
        ("text", "a", ""),
        ("call", "slow", "completed"),
        ("call", "it is broken", "failed"),
        ("text", "b", ""),
    ]
    assert view.stop == "answered"
    more, _conversation = await watched(middleware, conversation.saying("and?"))
    assert more[0].seq == events[-1].seq + 1
    assert (more[0].type, more[0].text) == ("user", "and?")


async def test_a_conversation_goes_on_turn_after_turn():
    model = Model(asks("get_order"), says("one"), asks("get_order"), says("two"))
    middleware = loop(model)
    first = await middleware.run("a")
    second = await middleware.run(first.saying("b"))
    assert [record.turn for record in second.calls] == [1, 2]
    assert second.messages[: len(first.messages)] == first.messages
    assert (second.turns, second.rounds) == (2, 4)
    check_whole(second)
    assert Conversation.parse(json.loads(json.dumps(second.as_json()))) == second


async def test_tokens_and_the_model_are_kept():
    finish = Finish("tool_calls", Tokens(10, 5, cached=2), "gpt-x-2030")
    conversation = await talk(
        Model(asks("get_order", finish=finish), says("a", Finish(tokens=Tokens(20, 1))))
    )
    assert conversation.tokens == Tokens(30, 6, cached=2)
    assert conversation.model == "gpt-x-2030"


@pytest.mark.parametrize(
    ("reason", "stop", "detail"),
    [
        ("stop", Stop.ANSWERED, ""),
        ("length", Stop.LENGTH, ""),
        ("refused", Stop.REFUSED, ""),
        ("pause_turn", Stop.LENGTH, ""),
        ("pause", Stop.ANSWERED, "the provider reports `pause`"),
    ],
)
async def test_the_end_of_an_answer_is_that_of_the_turn(reason, stop, detail):
    conversation = await talk(Model(says("a", Finish(reason))))
    assert (conversation.stop, conversation.detail) == (stop, detail)


async def test_an_answer_of_nothing_is_no_message():
    conversation = await talk(Model([Finish()]))
    assert conversation.messages == (user("hello"),)
    assert (conversation.stop, conversation.detail) == (Stop.ANSWERED, "the model returned an empty answer")
    assert conversation.text == ""


async def test_an_answer_without_an_end_ends():
    conversation = await talk(Model([TextDelta("a")]))
    assert (conversation.stop, conversation.text) == (Stop.ANSWERED, "a")


@pytest.mark.parametrize(
    ("reason", "stop", "end", "why"),
    [
        ("length", Stop.LENGTH, ("limit_exceeded", "answer_cut_off"), "the answer was cut off"),
        ("refused", Stop.REFUSED, ("denied", "answer_refused"), "the answer was refused"),
        (
            "pause",
            Stop.LENGTH,
            ("limit_exceeded", "answer_cut_off"),
            "the answer was cut off (the provider reports `pause`)",
        ),
    ],
)
async def test_calls_of_an_answer_that_did_not_come_to_its_end_are_not_made(reason, stop, end, why):
    conversation = await talk(Model(asks("get_order", ("slow", '{"a'), finish=Finish(reason))))
    assert (conversation.stop, ends(conversation)) == (stop, [end, end])
    assert conversation.detail == f"{why}; its calls were not made: `get_order` (call_1), `slow` (call_2)"
    check_whole(conversation)


async def test_calls_of_an_answer_without_an_end_are_not_made():
    conversation = await talk(Model(asks("get_order")[:-1]))
    assert (conversation.stop, ends(conversation)) == (Stop.LENGTH, [("limit_exceeded", "answer_cut_off")])


async def test_a_provider_that_fails_ends_the_turn_and_all_before_is_kept():
    def fail(_request):
        yield TextDelta("ha")
        yield CallDelta(0, "", "get_order")
        yield TextDelta("l")
        yield ReasoningDelta("hm")
        yield TextDelta("f\ud83d")
        raise ProviderError(
            "the model is overloaded", code="overloaded", retryable=True, hint="wait", details={"status": 529}
        )

    model = Model(asks("get_order"), fail)
    events, conversation = await watched(loop(model), "hello")
    assert conversation.stop is Stop.PROVIDER_FAILED
    assert conversation.detail == "the model is overloaded (overloaded); wait"
    assert conversation.failure == {
        "code": "overloaded",
        "message": "the model is overloaded",
        "hint": "wait",
        "retryable": True,
        "details": {"status": 529},
    }
    assert Conversation.parse(json.loads(json.dumps(conversation.as_json()))) == conversation
    assert [message.role for message in conversation.messages] == ["user", "assistant", "tool", "assistant"]
    assert conversation.messages[-1].parts == (Text("ha"), Text("l"), Text("f\ufffd"))
    assert "".join(event.text for event in events if event.type == "text") == "half\ufffd"
    assert events[-1].stop == "provider_failed"
    again = await loop(Model(says("now"))).run(conversation)
    assert (again.stop, again.text, again.failure) == (Stop.ANSWERED, "now", {})
    check_whole(again)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["text"], "yielded a `str`, which is not a part of an answer (invalid_answer)"),
        ([TextDelta("a"), None], "yielded a `NoneType`, which is not a part of an answer (invalid_answer)"),
        ([{"text": "a"}], "yielded a `dict`, which is not a part of an answer (invalid_answer)"),
        ([CallDelta(0, "x", None)], "yielded a `CallDelta` with fields of the wrong type (invalid_answer)"),
        ([Finish(tokens=Tokens(None))], "yielded a `Finish` with fields of the wrong type (invalid_answer)"),
    ],
)
async def test_what_is_no_piece_of_an_answer_fails_the_turn(given, told):
    conversation = await talk(Model(given))
    assert conversation.stop is Stop.PROVIDER_FAILED
    assert told in conversation.detail


async def test_a_provider_that_is_no_generator_fails_the_turn():
    class Listing:
        async def respond(self, request):
            return [TextDelta("a")]

    conversation = await talk(Listing())
    assert conversation.stop is Stop.PROVIDER_FAILED
    assert "`respond` of the provider `Listing` returned a `coroutine`" in conversation.detail


async def test_a_bug_of_a_provider_ends_the_turn_and_only_the_log_has_its_text(caplog):
    def fail(_request):
        yield TextDelta("half")
        raise ValueError("the key is 1234")

    conversation = await talk(Model(asks("get_order"), fail))
    assert (conversation.stop, conversation.text) == (Stop.PROVIDER_FAILED, "half")
    assert conversation.detail.startswith("a bug in the provider `Model`: ValueError;")
    assert conversation.failure["details"] == {"exception": "ValueError"}
    assert "1234" not in json.dumps(conversation.as_json())
    assert "the key is 1234" in caplog.text


async def test_an_error_of_the_product_says_itself_what_is_wrong():
    def fail(_request):
        raise ConfigurationError("no key", code="missing_key", hint="set it")

    conversation = await talk(Model(fail))
    assert conversation.detail == "no key (missing_key); set it"


async def test_others_have_their_turn_between_rounds_and_calls():
    async def other():
        return None

    async def converse():
        task, seen = asyncio.create_task(other()), []

        def ask(_request):
            seen.append(task.done())
            return asks("nope")

        await talk(Model(*[ask] * 40), ToolPolicy(max_rounds=40, max_identical=None, max_failures=None))
        return seen

    assert await converse() == [False] * 16 + [True] * 24
    events = loop(Model(asks(*["get_order"] * 40)), ToolPolicy(max_identical=None)).stream("1")
    late, seen = None, []
    async for event in events:
        if getattr(event, "status", "") == "running":
            late = late or asyncio.create_task(other())
            seen.append(late.done())
    assert seen == [False] * 16 + [True] * 24


async def test_calls_tell_of_their_progress():
    tools = """
    name: long
    input_schema: {type: object}
    mock: {result: 1, latency: 2s}
    """

    async def reporting(call, call_next):
        call.context.emit(Progress(1, 4))
        call.context.emit(Progress(2, None, "half way"))
        call.context.emit(Partial(Content("text", text="a piece")))
        return await call_next(call)

    runtime = runtime_of(tools, middleware=[reporting])
    events, conversation = await watched(loop(Model(asks("long")), tools=runtime), "1")
    told = [(event.status, event.text) for event in events if event.type == "call_updated" and event.text]
    assert told == [("", "1 of 4"), ("", "half way"), ("", "a piece"), ("completed", "1")]
    assert outcomes(conversation) == [Outcome.OK]


@pytest.mark.parametrize(
    ("choice", "detail"),
    [
        ("required", "the model had to call a tool but called nothing"),
        ("get_order", "the model had to call `get_order` but called nothing"),
        ("auto", ""),
    ],
)
async def test_a_choice_that_the_model_ignores_is_told(choice, detail):
    conversation = await talk(Model(says("no")), ToolPolicy(tool_choice=choice))
    assert (conversation.stop, conversation.detail) == (Stop.ANSWERED, detail)


async def test_parts_that_are_too_large_are_described():
    tools = """
    name: draw
    input_schema: {type: object}
    mock: {result: 1}
    """
    large, small = (Content("image", data=each, mime_type="image/png") for each in ("A" * 80, "A" * 40))

    async def drawing(call, call_next):
        return Result.success(None, content=(small, large, small))

    runtime = runtime_of(tools, middleware=[drawing])
    conversation = await talk(Model(asks("draw")), tools=runtime, content_limit=100)
    (result,) = conversation.messages[2].results
    assert result.content == (small, small)
    note = "[image image/png: 80 bytes of base64, too large to show]"
    assert result.text.split("\n") == ["[image image/png]", note, "[image image/png]"]
    assert conversation.calls[0].content == (small, large, small)
    with pytest.raises(ConfigurationError, match="content_limit: out_of_range"):
        loop(Model(), content_limit=-1)


async def test_what_is_no_conversation_is_refused_with_all_its_faults():
    half = [user("a"), Message("assistant", (ToolCall("x", "get_order", {}), ToolCall("x", "slow", {})))]
    with pytest.raises(ConfigurationError) as caught:
        await loop(Model()).run(half)
    assert caught.value.code == "invalid_conversation"
    assert "the id `x` is used by 2 calls" in str(caught.value)
    assert "the call `x` has no result" in str(caught.value)
    with pytest.raises(ConfigurationError, match="the conversation has no message to answer"):
        await loop(Model()).run([])
    with pytest.raises(ConfigurationError, match="invalid message"):
        await loop(Model()).run([{"role": "robot", "content": "a"}])


async def test_messages_may_be_plain_data():
    conversation = await loop(Model()).run([{"role": "user", "content": "a"}])
    assert conversation.messages[0] == user("a")


async def test_content_parts_are_kept_for_providers_that_take_them():
    tools = """
    name: draw
    input_schema: {type: object}
    mock: {result: 1}
    """
    picture = Content("image", data="aGk=", mime_type="image/png", title="a dot")

    async def drawing(call, call_next):
        return Result.success({"drawn": True}, content=(picture, Content("text", text="here")))

    conversation = await talk(Model(asks("draw")), tools=runtime_of(tools, middleware=[drawing]))
    (result,) = conversation.messages[2].results
    assert result.content == (picture,)
    assert result.text == '{"drawn":true}\n[image image/png a dot]\nhere'


async def test_a_user_may_say_more_than_text():
    picture = Content("image", uri="https://example.com/a.png")
    model = Model()
    await loop(model).run(user("what is this?", picture))
    assert model.requests[0].messages[0].parts == (Text("what is this?"), picture)
    events, _conversation = await watched(loop(Model()), [user(picture)])
    assert (events[0].type, events[0].text) == ("user", "[image https://example.com/a.png]")


async def test_a_default_session_is_used_or_the_one_that_is_given():
    tools = """
    name: count
    input_schema: {type: object}
    mock: {result: "{{ call }}"}
    """
    runtime = runtime_of(tools)
    await talk(Model(asks("count")), tools=runtime)
    assert (await runtime.call("count")).value == 2
    session = runtime.session(clock=runtime._engine.default_session.clock)
    conversation = await talk(Model(asks("count")), tools=session)
    assert conversation.calls[0].value == 1


async def test_each_runtime_asks_a_model_within_its_own_world():
    model = Model()
    for runtime in (runtime_of(TOOLS), runtime_of(TOOLS)):
        await talk(model, tools=runtime)
        assert model.requests[-1].world is runtime._engine.world


async def test_an_unknown_dialect_is_refused_with_the_near_ones():
    class Speaking(Model):
        dialect = "opnai"

    with pytest.raises(ConfigurationError, match="did you mean `openai`"):
        loop(Speaking())


async def test_tools_that_a_reload_brings_are_declared_in_the_next_round(tmp_path):
    file = tmp_path / "a.tool.yaml"
    file.write_text("name: one\ninput_schema: {type: object}\nmock: {result: 1}\n")
    async with Runtime.open(tmp_path, index=False) as tools:
        model = Model()
        middleware = ProviderMiddleware(model, tools, config=Config())
        await middleware.run("a")
        file.write_text("name: two\ninput_schema: {type: object}\nmock: {result: 1}\n")
        await tools.reload()
        await middleware.run("b")
    assert [[each.name for each in request.tools] for request in model.requests] == [["one"], ["two"]]


async def test_a_choice_that_a_reload_took_away_is_no_choice(tmp_path):
    file = tmp_path / "a.tool.yaml"
    file.write_text("name: one\ninput_schema: {type: object}\nmock: {result: 1}\n")
    async with Runtime.open(tmp_path, index=False) as tools:
        model = Model()
        middleware = ProviderMiddleware(model, tools, ToolPolicy(tool_choice="one"))
        file.write_text("name: two\ninput_schema: {type: object}\nmock: {result: 1}\n")
        await tools.reload()
        await middleware.run("a")
    assert [(request.tool_choice, len(request.tools)) for request in model.requests] == [("auto", 1)]


async def test_named_states_are_told_as_they_were_when_a_call_began():
    block = "rules: [{when: {state: {till: closed}}, reply: {effects: [{goto: {till: open}}], result: 1}}, {reply: {result: 2}}]"
    conversation = await talk(Model(asks("tool", "tool")), tools=session_of(mocked(block)))
    assert [record.states["till"] for record in conversation.calls] == ["closed", "open"]


async def test_numbers_that_are_too_long_and_objects_that_are_too_deep_are_told_so():
    long, deep = '{"n": ' + "1" * 5000 + "}", '{"a":' * 9000 + "1" + "}" * 9000
    conversation = await talk(Model(asks(("get_order", long), ("get_order", deep))))
    assert ends(conversation) == [("invalid_arguments", "not_json")] * 2
    assert "too long" in conversation.calls[0].message


@pytest.mark.parametrize(
    "damage", [{"stop": "tired"}, {"messages": 1}, {"place": None}, {"calls": [{"id": "x"}]}]
)
async def test_what_is_no_suspended_conversation_is_refused(damage):
    told = (await talk(Model())).as_json()
    with pytest.raises(ConfigurationError, match="invalid conversation"):
        Conversation.parse({**told, **damage})


CALLED = Message("assistant", (ToolCall("x", "slow", {}),))
ANSWERED = Message("tool", (ToolResult("x", "slow", Outcome.OK, "1"),))


@pytest.mark.parametrize(
    ("messages", "fault"),
    [
        ([user("a"), ANSWERED, CALLED], "the result of the call `x` comes before the call"),
        ([user("a"), CALLED, user("b"), ANSWERED], r"message 2 \(user\) is between the call `x` and its"),
        (
            [user("a"), CALLED, Message("assistant", (Text("b"),)), ANSWERED],
            r"message 2 \(assistant\) is between",
        ),
        (
            [Message("user", (*CALLED.parts, Text("a"))), ANSWERED],
            r"message 0 \(user\) cannot contain a `ToolCall`",
        ),
        (
            [user("a"), CALLED, Message("assistant", ANSWERED.parts)],
            r"message 2 \(assistant\) cannot contain a `ToolResult`",
        ),
        ([user("a"), CALLED, Message("tool", ANSWERED.parts * 2)], r"message 2 \(tool\) has 2 parts"),
        ([user()], r"message 0 \(user\) is empty"),
        ([user("a"), user(" ", "\n")], r"message 1 \(user\) is empty"),
    ],
)
async def test_messages_out_of_their_order_are_told_before_anything_is_asked(messages, fault):
    model = Model()
    with pytest.raises(ConfigurationError, match=fault) as caught:
        await loop(model).run(messages)
    assert caught.value.code == "invalid_conversation"
    assert model.requests == []


async def test_an_image_says_something():
    image = Content("image", data="AA==", mime_type="image/png")
    assert (await loop(Model()).run([user(image)])).stop is Stop.ANSWERED


@pytest.mark.parametrize(
    ("value", "faults"),
    [
        (5, ["expected a string, a message or a list of messages, got 5"]),
        ({"role": "user", "content": "a"}, ["got an object"]),
        ([5], ["expected an object, got 5"]),
        (
            [{"role": "usr", "content": "a"}],
            ["`/role`: expected one of system, user, assistant, tool, got a string"],
        ),
        ([{"role": "user", "content": "a", "name": "b"}], ["unknown key `name`"]),
        ([{"role": "user", "content": "a", "parts": []}], ["unknown key `content`"]),
        ([{"role": "user", "content": None}], ["`/content`: expected a string, got null"]),
        ([{"role": "user", "parts": [{"type": "txt", "text": "a"}, "b"]}], ["`/parts/0/type`", "`/parts/1`"]),
        (
            [
                {"role": "user", "content": "a"},
                {"role": "assistant", "parts": [{"type": "tool_call", "id": ""}]},
            ],
            ["`/1/parts/0/id`: expected a non-empty string", "`/1/parts/0`: missing `arguments`"],
        ),
        (
            [{"role": "tool", "parts": [{"type": "tool_result", "id": "x", "outcome": "good", "txt": 1}]}],
            ["`/parts/0/outcome`: expected one of ok,", "unknown key `txt`; did you mean `text`"],
        ),
    ],
)
async def test_all_that_is_wrong_with_messages_is_told_at_once(value, faults):
    with pytest.raises(ConfigurationError) as caught:
        await loop(Model()).run(value)
    assert caught.value.code == "invalid_message"
    for fault in faults:
        assert fault in caught.value.message
