"""The chain: which layer stands where, and the user's layers in it."""

from __future__ import annotations

import asyncio

import pytest

from in_memory import always, fake, mocked, runtime_of
from toolcrib import CallFinished, CallStarted, ConfigurationError, Outcome, Result
from toolcrib.engine.middleware import build_chain, middleware_named
from toolcrib.engine.middleware.events import Observers
from toolcrib.engine.middleware.layer import LayerContext, SharedState
from toolcrib.testing import FunctionExecutor

INTEGER = "input_schema: {properties: {n: {type: integer}}}\noutput_schema: {type: integer}\n"


def call(runtime, **arguments):
    return asyncio.run(runtime.call("tool", arguments))


async def answers_n(call):
    return Result.success(call.arguments["n"])


def test_layers_stand_in_the_documented_order():
    tool = runtime_of(mocked("result: 1")).registry["tool"]
    bound = FunctionExecutor(always(Result.success())).bind(tool)

    async def mine(call, call_next):
        return await call_next(call)

    context = LayerContext(
        tool, bound, SharedState(), user=[mine, mine], observers=Observers(lambda _event: None)
    )
    assert build_chain(context).layers == ("events", "user", "user", "arguments", "deadline", "results")


def test_layers_that_a_tool_does_not_use_are_not_in_its_chain():
    tool = runtime_of(mocked("result: 1")).registry["tool"]
    bound = FunctionExecutor(always(Result.success()), waits=False).bind(tool)
    assert build_chain(LayerContext(tool, bound, SharedState())).layers == ("arguments", "results")


def test_the_first_layer_is_the_outermost():
    seen = []

    def noting(name):
        async def layer(call, call_next):
            seen.append(f"{name} in")
            result = await call_next(call)
            seen.append(f"{name} out")
            return result

        return layer

    runtime = fake(always(Result.success(1)), middleware=[noting("a"), noting("b")])
    assert call(runtime).value == 1
    assert seen == ["a in", "b in", "b out", "a out"]


def test_users_layers_stand_between_the_events_and_the_arguments():
    seen = []

    async def outer(call, call_next):
        seen.append(("outer", dict(call.arguments)))
        return await call_next(call._replace(arguments={"n": "4"}))

    async def inner(call, call_next):
        seen.append(("inner", dict(call.arguments)))
        return await call_next(call)

    def observer(event):
        seen.append(type(event))

    runtime = fake(answers_n, INTEGER, middleware=[outer, inner], observer=observer)
    result = call(runtime, n="3")
    assert result.value == 4
    assert result.meta["repairs"][0]["before"] == '"4"'
    assert seen == [CallStarted, ("outer", {"n": "3"}), ("inner", {"n": "4"}), CallFinished]


def test_what_a_users_layer_changes_is_still_checked():
    async def spoils(call, call_next):
        return await call_next(call._replace(arguments={"n": "many"}))

    assert call(fake(answers_n, INTEGER, middleware=[spoils]), n=1).outcome is Outcome.INVALID_ARGUMENTS


def test_a_users_layer_may_answer_itself():
    async def answers(_call, _call_next):
        return Result.failure(Outcome.DENIED, "not today")

    async def reached(_call):
        raise AssertionError("it was called")

    result = call(fake(reached, middleware=[answers]))
    assert (result.outcome, result.usage.attempts) == (Outcome.DENIED, 0)


def test_a_users_layer_may_call_twice():
    async def twice(call, call_next):
        first = await call_next(call)
        second = await call_next(call._replace(attempt=2))
        return second._replace(value=[first.value, second.value])

    async def attempt(call):
        return Result.success(call.attempt)

    assert call(fake(attempt, middleware=[twice])).value == [1, 2]


def test_a_users_layer_that_raises_is_a_bug_told_as_one():
    async def broken(_call, _call_next):
        raise KeyError("hunter2")

    result = call(fake(answers_n, middleware=[broken]))
    assert result.outcome is Outcome.INTERNAL
    assert "hunter2" not in str(result)


async def forgets(call, call_next):
    await call_next(call)


async def writes_a_set(call, call_next):
    return (await call_next(call)).with_meta(seen={call.id})


async def fails_with_a_set(_call, _call_next):
    return Result.failure(Outcome.DENIED, "no", details={"who": {1}})


async def answers_a_set(_call, _call_next):
    return Result.success({1})


def answers_at_once(_call, _call_next):
    return Result.success(1)


async def answers_a_text(_call, _call_next):
    return "text"


class Layer:
    async def __call__(self, call, call_next):
        await call_next(call)


@pytest.mark.parametrize("observer", [None, lambda _event: None])
@pytest.mark.parametrize(
    ("layer", "name", "fault"),
    [
        (forgets, "forgets", "returned None instead of a `Result`; is a `return` missing?"),
        (Layer(), "Layer", "returned None instead of a `Result`; is a `return` missing?"),
        (answers_a_text, "answers_a_text", "returned a `str` instead of a `Result`"),
        (answers_at_once, "answers_at_once", "is not an `async` function: it returned a `Result`"),
        (writes_a_set, "writes_a_set", "returned a value that is not valid JSON: expected a JSON value"),
        (
            fails_with_a_set,
            "fails_with_a_set",
            "returned a value that is not valid JSON: expected a JSON value",
        ),
        (answers_a_set, "answers_a_set", "returned a value that is not valid JSON: expected a JSON value"),
    ],
)
def test_a_users_layer_that_returns_no_sound_result_is_named(layer, name, fault, observer):
    result = call(fake(answers_n, middleware=[layer], observer=observer), n=1)
    assert result.outcome is Outcome.INTERNAL
    assert result.message == f"the middleware `{name}` {fault}"
    assert result.error.details == {"middleware": name}


def test_users_layers_see_calls_of_tools_that_cannot_run():
    async def explains(call, call_next):
        result = await call_next(call)
        return result.with_meta(seen=True)

    result = call(runtime_of("name: tool\ninput_schema: {}\n", middleware=[explains]))
    assert (result.outcome, result.meta) == (Outcome.UNAVAILABLE, {"seen": True})


def test_a_middleware_that_nobody_offers_is_refused_by_name():
    with pytest.raises(ConfigurationError, match="unknown middleware `zzz`"):
        middleware_named("zzz")
    with pytest.raises(ConfigurationError):
        runtime_of(mocked("result: 1"), middleware=["zzz"])
