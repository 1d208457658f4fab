"""Bounds of a policy: which call exceeds them, what it and the model are told, and why the turn ended."""

from __future__ import annotations

import pytest

from in_memory import runtime_of
from loop_models import TOOLS, Endless, Model, asks, check_whole, ends, loop, outcomes, says, talk
from toolcrib import Outcome
from toolcrib.provider import Finish, Prices, Stop, TextDelta, Tokens, ToolPolicy

FREELY = {"max_identical": None, "max_failures": None}


def reached(conversation) -> int:
    return sum(record.reached for record in conversation.calls)


async def test_rounds_of_a_turn():
    model = Endless(("get_order", {"id": "a"}))
    middleware = loop(model, ToolPolicy(max_rounds=3, **FREELY))
    conversation = await middleware.run("go")
    assert conversation.stop is Stop.MAX_ROUNDS
    assert conversation.detail == "a turn is limited to 3 requests"
    assert len(model.requests) == conversation.rounds == 3
    assert outcomes(conversation) == [Outcome.OK] * 3
    check_whole(conversation)
    unasked = await middleware.run(conversation)  # the same turn has none left
    assert (unasked.stop, unasked.messages) == (Stop.MAX_ROUNDS, conversation.messages)
    assert (await middleware.run(conversation.saying("on"))).rounds == 6


async def test_an_endless_model_ends_without_any_policy():
    conversation = await talk(Endless("slow"))
    assert conversation.stop is Stop.MAX_IDENTICAL
    rounds = [0]

    def another(_request):
        rounds[0] += 1
        return asks(("get_order", {"n": rounds[0]}))

    conversation = await talk(Model(*[another] * 100))
    assert (conversation.stop, conversation.rounds) == (Stop.MAX_ROUNDS, 50)


@pytest.mark.parametrize(
    ("policy", "stop"),
    [
        (ToolPolicy(max_calls=3, **FREELY), Stop.MAX_CALLS),
        (ToolPolicy(max_calls_per_turn=3, **FREELY), Stop.MAX_CALLS_PER_TURN),
        (ToolPolicy(max_calls_per_tool={"get_*": 3}, **FREELY), Stop.MAX_CALLS_PER_TOOL),
        (ToolPolicy(max_calls_per_minute=3, **FREELY), Stop.MAX_CALLS_PER_MINUTE),
        (ToolPolicy(max_identical=3), Stop.MAX_IDENTICAL),
    ],
)
async def test_the_call_that_exceeds_a_bound_and_those_behind_it_are_not_made(policy, stop):
    model = Endless("get_order", "get_order")
    conversation = await talk(model, policy)
    assert conversation.stop is stop
    assert ends(conversation) == [("ok", "")] * 3 + [("limit_exceeded", stop.value)]
    assert conversation.detail == conversation.calls[-1].message
    assert reached(conversation) == 3
    assert len(model.requests) == 2
    check_whole(conversation)
    wide = await talk(Model(asks(*["get_order"] * 6, "slow")), policy)
    assert ends(wide)[3:] == [("limit_exceeded", stop.value)] * 4
    assert "the turn has ended" in wide.calls[-1].message


async def test_bounds_of_the_conversation_last_and_those_of_a_turn_begin_again():
    model = Model(asks("get_order", "slow"), says("a"), asks("get_order", "slow"), says("b"))
    middleware = loop(model, ToolPolicy(max_calls=3, max_calls_per_turn=2))
    first = await middleware.run("1")
    second = await middleware.run(first.saying("2"))
    assert (first.stop, second.stop) == (Stop.ANSWERED, Stop.MAX_CALLS)
    assert ends(second) == [("ok", "")] * 3 + [("limit_exceeded", "max_calls")]


async def test_what_does_not_reach_its_tool_spends_nothing():
    model = Model(
        asks(("get_order", {"x": 1}), "nope", ("get_order", "{")),
        asks("get_order"),
        asks("get_order"),
        asks("slow"),
    )
    conversation = await talk(model, ToolPolicy(max_calls=2))
    assert outcomes(conversation)[3:] == [Outcome.OK, Outcome.OK, Outcome.LIMIT_EXCEEDED]


async def test_each_tool_has_its_own_bound_and_the_first_glob_counts():
    policy = ToolPolicy(max_calls_per_tool={"get_order": 2, "*": 1})
    conversation = await talk(Model(asks("get_order", "slow", "get_order", "slow")), policy)
    assert ends(conversation) == [("ok", "")] * 3 + [("limit_exceeded", "max_calls_per_tool")]
    none = await talk(Model(asks("slow")), ToolPolicy(max_calls_per_tool={"slow": 0}))
    assert none.calls[0].message == "not called: `slow` is limited to 0 calls"


async def test_a_minute_is_any_sixty_seconds_of_the_session():
    tools = runtime_of(TOOLS)
    clock = tools._engine.default_session.clock
    middleware = loop(Model(asks("get_order"), says("a")), ToolPolicy(max_calls_per_minute=2), tools)
    conversation = await middleware.run("1")
    for passed, stop in ((30, Stop.ANSWERED), (29.9, Stop.MAX_CALLS_PER_MINUTE), (0.1, Stop.ANSWERED)):
        await clock.advance(passed)
        model = Model(asks("get_order"), says("b"))
        again = loop(model, ToolPolicy(max_calls_per_minute=2, max_identical=None), tools)
        conversation = await again.run(conversation.saying("2"))
        assert conversation.stop is stop


async def test_equal_calls_count_in_a_row_whatever_the_order_of_their_keys():
    def again(keys):
        return asks(("get_order", dict(keys)))

    one, two = [("id", "a"), ("n", 1)], [("n", 1), ("id", "a")]
    conversation = await talk(Model(again(one), again(two), again(one)), ToolPolicy(max_identical=2))
    assert conversation.stop is Stop.MAX_IDENTICAL
    assert conversation.calls[-1].message.endswith("was requested more than 2 times in a row")
    between = await talk(Model(again(one), asks("slow"), again(two)), ToolPolicy(max_identical=1))
    assert between.stop is Stop.ANSWERED


@pytest.mark.parametrize(("one", "other", "stop"), [(1, 1.0, Stop.MAX_IDENTICAL), (1, True, Stop.ANSWERED)])
async def test_arguments_are_compared_as_json_values(one, other, stop):
    model = Model(asks(("get_order", {"id": [one]})), asks(("get_order", {"id": [other]})), says("a"))
    assert (await talk(model, ToolPolicy(max_identical=1, max_failures=None))).stop is stop


async def test_equal_calls_of_another_turn_are_no_repetition():
    model = Model(asks("get_order"), says("a"), asks("get_order"), says("b"))
    middleware = loop(model, ToolPolicy(max_identical=1))
    conversation = await middleware.run((await middleware.run("1")).saying("2"))
    assert conversation.stop is Stop.ANSWERED


async def test_who_polls_may_ask_the_same_again_and_again():
    model = Model(*[asks("slow")] * 8)
    conversation = await talk(model, ToolPolicy(max_identical=2, polling=("slow",)))
    assert outcomes(conversation) == [Outcome.OK] * 8


async def test_calls_that_are_refused_again_and_again_end_the_turn_too():
    conversation = await talk(Endless(("slow", {"x": 1})), ToolPolicy(deny=("slow",), max_identical=2))
    assert ends(conversation)[-2:] == [("denied", "tool_not_allowed"), ("limit_exceeded", "max_identical")]


async def test_failures_count_by_tool_and_cause_until_the_tool_succeeds():
    def calls(*names):
        return [asks((name, {"n": number})) for number, name in enumerate(names)]

    policy = ToolPolicy(max_failures=2)
    conversation = await talk(Model(*calls("failing", "failing", "get_order", "failing")), policy)
    assert conversation.stop is Stop.MAX_FAILURES
    assert conversation.calls[-1].message == "not called: `failing` has failed 2 times with `broken`"
    assert reached(conversation) == 3
    bad, good = ("lying", {"x": 1}), ("lying", {"x": "a"})
    mended = await talk(Model(asks(bad), asks(good), asks(bad), asks(good), asks(bad)), policy)
    assert mended.stop is Stop.ANSWERED
    causes = [asks(("get_order", {"x": 1})), asks(("get_order", "{")), asks(("get_order", {"x": 2}))]
    mixed = await talk(Model(*causes, asks("get_order")), policy)
    assert ends(mixed)[-1] == ("limit_exceeded", "max_failures")


async def test_another_turn_forgives_failures():
    model = Model(asks("failing"), asks("failing"), says("a"), asks("failing"), says("b"))
    middleware = loop(model, ToolPolicy(max_failures=2))
    conversation = await middleware.run((await middleware.run("1")).saying("2"))
    assert conversation.stop is Stop.ANSWERED


async def test_max_parallel_bounds_what_is_under_way():
    running, most = [0], [0]

    async def counting(call, call_next):
        running[0] += 1
        most[0] = max(most[0], running[0])
        result = await call_next(call)
        running[0] -= 1
        return result

    tools = runtime_of(TOOLS, middleware=[counting])
    model = Model(asks(*["slow"] * 7))
    conversation = await talk(model, ToolPolicy(max_parallel=3, polling=("slow",)), tools)
    assert (most[0], running[0]) == (3, 0)
    start = conversation.calls[0].at
    assert [record.at - start for record in conversation.calls] == [0, 0, 0, 2, 2, 2, 4]
    assert model.requests[0].parallel


async def test_one_at_a_time_is_one_after_the_other():
    model = Model(asks("slower", "get_order", "slow"))
    conversation = await talk(model, ToolPolicy(max_parallel=1))
    start = conversation.calls[0].at
    assert [record.at - start for record in conversation.calls] == [0, 5, 5]
    assert not model.requests[0].parallel


async def test_the_turn_ends_after_a_tool_that_stops_it():
    model = Model(asks("get_order", "refund_order", "slow"))
    conversation = await talk(model, ToolPolicy(stop_on_tool=("refund_*",)))
    assert (conversation.stop, conversation.detail) == (Stop.STOP_ON_TOOL, "`refund_order` was called")
    assert outcomes(conversation) == [Outcome.OK] * 3
    assert len(model.requests) == 1
    check_whole(conversation)


async def test_a_stopping_tool_that_fails_may_be_mended():
    model = Model(asks(("refund_order", {"amount": 0})), asks(("refund_order", {"amount": 2})))
    conversation = await talk(model, ToolPolicy(stop_on_tool=("refund_order",)))
    assert outcomes(conversation) == [Outcome.INVALID_ARGUMENTS, Outcome.OK]
    assert conversation.stop is Stop.STOP_ON_TOOL


COSTLY = Finish("tool_calls", Tokens(input=1_000_000, output=100_000, cached=400_000, cache_writes=100_000))
PRICES = Prices(input=1.0, output=10.0, cached=0.5, cache_writes=2.0)


def test_prices_tell_the_kinds_of_tokens_apart():
    assert PRICES.cost(COSTLY.tokens) == pytest.approx(0.5 + 1.0 + 0.2 + 0.2)
    assert Prices(input=1.0).cost(COSTLY.tokens) == pytest.approx(1.0)
    assert Prices(input=1.0).cost(Tokens(input=1, cached=5)) > 0


async def test_cost_is_checked_after_each_answer_and_its_calls_are_not_made():
    model = Model(asks("get_order", finish=COSTLY), asks("get_order", finish=COSTLY), says("never"))
    conversation = await talk(model, ToolPolicy(max_cost=2.0), prices=PRICES)
    assert conversation.stop is Stop.MAX_COST
    assert ends(conversation) == [("ok", ""), ("limit_exceeded", "max_cost")]
    assert conversation.cost == pytest.approx(3.8)
    check_whole(conversation)


async def test_cost_is_checked_before_each_request_also_of_later_turns():
    middleware = loop(Model(says("a", COSTLY)), ToolPolicy(max_cost=1.9), prices=PRICES)
    first = await middleware.run("1")
    assert (first.stop, first.text) == (Stop.ANSWERED, "a")
    second = await middleware.run(first.saying("2"))
    assert (second.stop, second.rounds) == (Stop.MAX_COST, 1)
    assert second.detail == "the conversation has cost 1.9 dollars; the limit is 1.9 dollars"
    assert (await talk(Model(), ToolPolicy(max_cost=0), prices=PRICES)).rounds == 0


class Free(Model):
    free = True


async def test_a_cost_that_nobody_knows_is_too_much():
    conversation = await talk(Free(asks("get_order", finish=COSTLY)), ToolPolicy(max_cost=100))
    assert conversation.stop is Stop.MAX_COST
    assert "is unknown" in conversation.detail
    free = await talk(Free(asks("get_order"), [TextDelta("a"), Finish()]), ToolPolicy(max_cost=100))
    assert free.stop is Stop.ANSWERED


async def test_an_answer_whose_tokens_nobody_tells_is_too_much_where_answers_cost_something():
    class Reaching(Model):
        world = None

    policy = ToolPolicy(max_cost=100)
    called = await talk(Reaching(asks("get_order")), policy, prices=PRICES)
    assert (called.stop, ends(called)) == (Stop.MAX_COST, [("limit_exceeded", "max_cost")])
    said = await talk(Reaching(says("a")), policy, prices=PRICES)
    assert (said.stop, said.text) == (Stop.MAX_COST, "a")
    for conversation in (called, said):
        assert "the cost of the conversation is unknown because the provider reports no token counts" in (
            conversation.detail
        )
        check_whole(conversation)
    assert (await talk(Reaching(says("a")), prices=PRICES)).stop is Stop.ANSWERED
    told = await talk(Reaching(says("a", Finish(tokens=Tokens(1)))), policy, prices=PRICES)
    assert told.stop is Stop.ANSWERED


@pytest.mark.parametrize(
    ("policy", "what"),
    [
        (ToolPolicy(max_failures=3), "unknown"),
        (ToolPolicy(max_failures=3, deny=("*",)), "forbidden"),
    ],
)
async def test_calls_for_nothing_count_together_whatever_their_names(policy, what):
    known = ("slow", "slower", "failing", "lying", "get_order")
    names = known if policy.deny else [f"made_up_{number}" for number in range(5)]
    conversation = await talk(Model(*map(asks, names)), policy)
    assert conversation.stop is Stop.MAX_FAILURES
    assert conversation.detail == f"not called: {what} tools were requested 3 times"
    assert len(conversation.calls) == 4
