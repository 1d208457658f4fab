"""Mode `client`: who fulfils a call, how it may be answered, and what becomes of each answer."""

from __future__ import annotations

import asyncio
import logging

import pytest

from in_memory import runtime_of
from toolcrib import (
    CallTimeout,
    ClientCall,
    ConfigurationError,
    Content,
    Executors,
    Outcome,
    Progress,
    Result,
    VirtualClock,
    run_scenario,
)
from toolcrib.core.clock import RealClock
from toolcrib.executors.client import ClientExecutor
from toolcrib.executors.mock import MockExecutor

KINDS = Executors({"client": ClientExecutor, "mock": MockExecutor})

OUTPUT = "{type: object, properties: {lat: {type: number}}, required: [lat], additionalProperties: false}"


def tools(block="{}", more="", *, output=OUTPUT, **options):
    text = f"""
name: locate
title: Where you are
input_schema:
  type: object
  properties: {{accuracy: {{type: string, enum: [high, low], default: low}}}}
  additionalProperties: false
output_schema: {output}
{more}
client: {block}
"""
    return runtime_of(text, executors=KINDS, **options)


def answering(answer):
    async def client(_call):
        return answer

    return client


async def declining(call):
    return call.decline("not today")


async def test_without_a_client_a_call_waits_for_somebody():
    runtime = tools(
        "{consent: {required: true, message: May I look?}, categories: [location, home], timeout: 90s}"
    )
    result = await runtime.call("locate", {})
    assert (result.outcome, result.error.code) == (Outcome.NEEDS_APPROVAL, "client_tool_deferred")
    assert result.error.details == {
        "consent": True,
        "message": "May I look?",
        "categories": ["location", "home"],
        "timeout": "90s",
    }
    assert result.usage.attempts == 0
    assert "`locate` is fulfilled by the client" in result.message


async def test_bad_arguments_ask_nobody():
    asked = []

    async def client(call):
        asked.append(call)

    result = await tools(client=client).call("locate", {"accuracy": "best"})
    assert (result.outcome, asked) == (Outcome.INVALID_ARGUMENTS, [])


async def test_the_client_is_told_everything():
    asked = []

    async def client(call):
        asked.append(call)
        return {"lat": 59.9}

    block = "{consent: {required: true, message: May I look?}, categories: [location], timeout: 2m}"
    runtime = tools(block)
    result = await runtime.session(id="s", user="ada", client=client).call("locate", {})
    assert (result.outcome, result.value, result.usage.attempts) == (Outcome.OK, {"lat": 59.9}, 1)
    (call,) = asked
    assert isinstance(call, ClientCall)
    assert (call.tool, call.arguments) == ("locate", {"accuracy": "low"})
    assert (call.consent, call.message, call.categories, call.timeout) == (
        True,
        "May I look?",
        ("location",),
        120.0,
    )
    assert (call.context.user, call.call.tool.title) == ("ada", "Where you are")
    assert call.id.startswith("s-")


@pytest.mark.parametrize(
    ("block", "consent", "message"),
    [
        ("{}", False, ""),
        ("{consent: {message: Just so you know}}", False, "Just so you know"),
        ("{consent: {required: true}}", True, "Allow `Where you are`?"),
        ("{consent: {required: true, message: May I?}}", True, "May I?"),
    ],
)
async def test_what_a_person_is_asked(block, consent, message):
    asked = []

    async def client(call):
        asked.append((call.consent, call.message))
        return {"lat": 1}

    await tools(block, client=client).call("locate", {})
    assert asked == [(consent, message)]


async def test_the_nearest_client_counts():
    runtime = tools(client=answering({"lat": 1}))
    session = runtime.session(client=answering({"lat": 2}))

    async def values():
        return [
            (await runtime.call("locate", {})).value["lat"],
            (await runtime.session().call("locate", {})).value["lat"],
            (await session.call("locate", {})).value["lat"],
            (await session.call("locate", {}, client=answering({"lat": 3}))).value["lat"],
        ]

    assert await values() == [1, 1, 2, 3]
    assert await values() == [1, 1, 2, 3]


async def test_a_stream_has_its_client_too_and_what_that_tells():
    async def client(call):
        call.context.emit(Progress(1, 2, "asking"))
        return {"lat": 4}

    events = [event async for event in tools().session().stream("locate", {}, client=client)]
    assert events[0] == Progress(1, 2, "asking")
    assert [event.value for event in events[1:]] == [{"lat": 4}]


def test_it_is_called_without_an_event_loop():
    with tools(client=answering({"lat": 5})) as runtime:
        assert runtime._engine.default_session.call_at_once("locate", {}) is None
        assert runtime.call_sync("locate", {}).value == {"lat": 5}


@pytest.mark.parametrize(
    "given",
    [
        lambda runtime: runtime.session(client=3),
        lambda runtime: runtime.session().call("locate", {}, client=3),
    ],
)
def test_a_client_that_is_none_is_told(given):
    with pytest.raises(ConfigurationError, match="must be a coroutine function, got a `int`"):
        given(tools())
    with pytest.raises(ConfigurationError, match="must be a coroutine function, got a `int`"):
        tools(client=3)


@pytest.mark.parametrize(
    "answer", [{}, {"lat": "north"}, {"lat": 1, "lng": 2}, None, float("nan"), {1: 2}, {"lat": object()}]
)
async def test_an_answer_that_does_not_fit_is_no_answer(answer):
    result = await tools(client=answering(answer)).call("locate", {})
    assert (result.outcome, result.value) == (Outcome.INVALID_RESULT, None)
    whole = await tools(client=answering(Result.success(answer))).call("locate", {})
    assert whole.outcome is Outcome.INVALID_RESULT


async def test_an_answer_without_an_end_is_no_answer():
    endless = {}
    endless["lat"] = endless
    result = await tools(client=answering(endless)).call("locate", {})
    assert result.outcome is Outcome.INVALID_RESULT


async def test_a_result_is_passed_on():
    part = Content("image", data="aGk=", mime_type="image/png")
    whole = Result.success({"lat": 6}, content=(part,), meta={"source": "gps"})
    result = await tools(client=answering(whole)).call("locate", {})
    assert (result.value, result.content, result.meta) == ({"lat": 6}, (part,), {"source": "gps"})
    failed = Result.failure(Outcome.TOOL_ERROR, "no signal", code="no_signal")
    result = await tools(client=answering(failed)).call("locate", {})
    assert (result.outcome, result.error.code, result.usage.attempts) == (Outcome.TOOL_ERROR, "no_signal", 1)


async def test_arguments_and_answers_are_each_ones_own():
    kept = {"lat": 7}

    async def client(call):
        call.arguments["accuracy"] = "spoiled"
        return kept

    arguments = {"accuracy": "high"}
    result = await tools(client=client).call("locate", arguments)
    result.value["lat"] = 8
    assert (arguments, kept) == ({"accuracy": "high"}, {"lat": 7})


@pytest.mark.parametrize(
    ("strategy", "told", "retryable"),
    [
        ("error", "`locate` was declined: not today", False),
        ("retry", "`locate` was declined: not today; it may be requested again", True),
        ("fallback", "`locate` was declined: not today; continue without it", False),
    ],
)
async def test_what_becomes_of_a_no(strategy, told, retryable):
    runtime = tools(f"{{consent: {{decline_strategy: {strategy}}}}}", client=declining)
    result = await runtime.call("locate", {})
    assert (result.outcome, result.error.code) == (Outcome.DENIED, "consent_declined")
    assert (result.message, result.error.retryable) == (told, retryable)
    assert (result.error.details, result.usage.attempts) == ({"reason": "not today"}, 0)


async def test_a_no_without_a_reason_and_without_a_strategy_is_an_error():
    async def client(call):
        return call.decline()

    result = await tools(client=client).call("locate", {})
    assert (result.message, result.error.retryable) == ("`locate` was declined", False)


async def test_a_no_is_answered_with_the_fallback_where_there_is_one():
    block = "{consent: {decline_strategy: fallback}, fallback: {lat: 0}}"
    runtime = tools(block, client=declining)
    result = await runtime.call("locate", {})
    assert (result.outcome, result.value) == (Outcome.OK, {"lat": 0})
    assert result.meta == {"client": {"declined": True, "reason": "not today"}}
    result.value["lat"] = 1
    assert (await runtime.call("locate", {})).value == {"lat": 0}


async def test_a_fallback_may_be_nothing():
    block = "{consent: {decline_strategy: fallback}, fallback: null}"
    result = await tools(block, output="{}", client=declining).call("locate", {})
    assert (result.outcome, result.value) == (Outcome.OK, None)


async def test_a_client_may_leave_it_for_later():
    async def client(call):
        return call.defer()

    result = await tools("{categories: [location]}", client=client).call("locate", {})
    assert (result.outcome, result.error.code) == (Outcome.NEEDS_APPROVAL, "client_tool_deferred")
    assert result.error.details["categories"] == ["location"]


async def test_what_a_client_raises_is_a_bug(caplog):
    async def client(_call):
        raise ValueError("token 123")

    with caplog.at_level(logging.CRITICAL, "toolcrib"):
        result = await tools(client=client).call("locate", {})
    assert (result.outcome, result.error.details) == (Outcome.INTERNAL, {"exception": "ValueError"})
    assert "123" not in result.message


async def test_a_client_that_is_no_coroutine_function_is_a_bug(caplog):
    with caplog.at_level(logging.CRITICAL, "toolcrib"):
        result = await tools(client=lambda _call: {"lat": 1}).call("locate", {})
    assert (result.outcome, result.error.details) == (Outcome.INTERNAL, {"exception": "TypeError"})


def sleeping(seconds):
    async def client(call):
        await call.context.session.clock.sleep(seconds)
        return {"lat": 9}

    return client


@pytest.mark.parametrize(
    ("block", "more", "seconds"),
    [
        ("{}", "", 30),
        ("{}", "timeout: 10s", 10),
        ("{timeout: 5m}", "", 300),
        ("{timeout: 2h}", "timeout: 10s", 7200),
        ("{timeout: 5s}", "timeout: 10m", 5),
    ],
)
async def test_the_caller_has_the_time_of_the_block_or_else_that_of_the_tool(block, more, seconds):
    runtime = tools(block, more)
    session = runtime.session(clock=VirtualClock())
    assert (await session.call("locate", {}, client=sleeping(seconds - 1))).value == {"lat": 9}
    late = await session.call("locate", {}, client=sleeping(seconds + 1))
    assert late.outcome is Outcome.TIMEOUT
    with pytest.raises(CallTimeout):
        late.raise_for_outcome()


async def test_a_call_that_waits_for_ever_ends_with_its_time():
    async def client(call):
        await call.context.session.clock.sleep(float("inf"))

    result = await tools("{timeout: 1s}", client=client).call("locate", {})
    assert (result.outcome, result.error.details["value"]) == (Outcome.TIMEOUT, "1s")


async def test_cancelling_a_call_cancels_its_client():
    ended = []

    async def client(_call):
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(True)

    task = asyncio.ensure_future(tools(client=client).call("locate", {}))
    await RealClock().sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended == [True]


async def test_a_client_that_cancels_itself_ends_its_call_alone():
    async def client(_call):
        raise asyncio.CancelledError

    assert (await tools(client=client).call("locate", {})).outcome is Outcome.CANCELLED


async def test_a_dry_run_says_what_would_be_asked_and_asks_nobody():
    block = (
        "{consent: {required: true, decline_strategy: fallback}, categories: [location], fallback: {lat: 0}}"
    )
    runtime = tools(block)
    plan = {
        "fulfilled_by": "nobody",
        "consent": True,
        "message": "Allow `Where you are`?",
        "categories": ["location"],
        "timeout": "30s",
        "decline_strategy": "fallback",
        "fallback": {"lat": 0},
    }
    assert (await runtime.dry_run("locate", {})).value["plan"] == plan
    told = await runtime.session(client=answering(None)).dry_run("locate", {})
    assert told.value["plan"] == {**plan, "fulfilled_by": "client"}


async def test_an_answer_that_does_not_fit_is_passed_where_the_tool_says_so():
    runtime = tools(more="on_invalid_result: pass", client=answering({"north": True}))
    assert (await runtime.call("locate", {})).value == {"north": True}


async def test_grants_reach_the_layers():
    seen = []

    async def layer(call, call_next):
        seen.append(call.context.grants)
        return await call_next(call)

    runtime = tools(client=answering({"lat": 1}), middleware=[layer])
    await runtime.session().call("locate", {}, grants={"approve:locate"})
    await runtime.session().call("locate", {})
    async for _event in runtime.session().stream("locate", {}, grants={"a", "b"}):
        pass
    assert seen == [{"approve:locate"}, frozenset(), {"a", "b"}]


async def test_a_scenario_may_let_it_fail_and_the_caller_still_has_its_time():
    text = """
name: locate
input_schema: {}
client: {timeout: 2m}
---
scenario: no_signal
steps:
  - call: locate
    expect: {outcome: transport_error}
  - call: locate
    expect: {result: {lat: 9}}
faults:
  - {name: cut, tool: locate, inject: disconnect, when: {call: 1}}
"""
    runtime = runtime_of(text, executors=KINDS, client=sleeping(60))
    (scenario,) = runtime.scenarios
    report = await run_scenario(runtime, scenario)
    assert report.passed, report
