"""Rules of a policy: what may be called, in what order, how soon again; and that declarations are not trusted."""

from __future__ import annotations

import pytest

from in_memory import runtime_of
from loop_models import TOOLS, Model, asks, check_whole, ends, loop, outcomes, says, talk
from toolcrib import Outcome
from toolcrib.provider import Conversation, Stop, ToolPolicy

OK = ("ok", "")


async def test_a_denied_tool_is_neither_declared_nor_called():
    model = Model(asks("get_order", "refund_order", "slow"))
    conversation = await talk(model, ToolPolicy(allow=("get_*", "refund_*"), deny=("refund_*",)))
    assert [declared.name for declared in model.requests[0].tools] == ["get_order"]
    assert ends(conversation) == [OK, ("denied", "tool_not_allowed"), ("denied", "tool_not_allowed")]
    assert conversation.calls[1].message == "the policy does not allow `refund_order`"
    assert conversation.stop is Stop.ANSWERED
    check_whole(conversation)


async def test_a_denied_tool_is_denied_also_with_arguments_that_nobody_can_read():
    conversation = await talk(Model(asks(("slow", "{"))), ToolPolicy(deny=("slow",)))
    assert ends(conversation) == [("denied", "tool_not_allowed")]


async def test_no_tool_in_the_first_round_means_none_is_declared_and_none_is_called():
    model = Model(asks("get_order"), asks("get_order"))
    conversation = await talk(model, ToolPolicy(tool_choice="none"))
    assert [(bool(each.tools), each.tool_choice) for each in model.requests] == [
        (False, "none"),
        (True, "auto"),
        (True, "auto"),
    ]
    assert ends(conversation) == [("denied", "tool_not_allowed"), OK]


@pytest.mark.parametrize("choice", ["required", "get_order"])
async def test_a_forced_choice_returns_to_auto_after_the_first_round_of_each_turn(choice):
    model = Model(asks("get_order"), says("a"))
    middleware = loop(model, ToolPolicy(tool_choice=choice))
    await middleware.run((await middleware.run("1")).saying("2"))
    assert [each.tool_choice for each in model.requests] == [choice, "auto", choice]


async def test_only_the_tool_that_must_be_called_may_be_in_that_round():
    model = Model(asks("slow", "get_order"), asks("slow"))
    conversation = await talk(model, ToolPolicy(tool_choice="get_order"))
    assert ends(conversation) == [("denied", "tool_not_allowed"), OK, OK]
    assert "only `get_order` can" in conversation.calls[0].message


async def test_a_tool_must_have_ended_well_in_a_round_before():
    policy = ToolPolicy(requires_before={"refund_*": ("get_order", "slo*")})
    refund = ("refund_order", {"amount": 1})
    model = Model(
        asks(refund, ("get_order", {"x": 1})),
        asks("get_order", ("refund_order", {"amount": 2})),
        asks(refund),
        asks("slower"),
        asks(("refund_order", {"amount": 3})),
    )
    conversation = await talk(model, policy)
    before = ("denied", "call_required_before")
    assert ends(conversation) == [before, ("invalid_arguments", ""), OK, before, before, OK, OK]
    told = "`refund_order` can be called only after `get_order` and `slo*` succeeded"
    assert conversation.calls[0].message == told
    assert conversation.calls[4].message == "`refund_order` can be called only after `slo*` succeeded"


async def test_what_all_tools_wait_for_does_not_wait_for_itself():
    model = Model(asks("slow"), asks("get_order"), asks("slow"))
    conversation = await talk(model, ToolPolicy(requires_before={"*": ("get_order",)}))
    assert ends(conversation) == [("denied", "call_required_before"), OK, OK]


async def test_tools_that_exclude_each_other():
    policy = ToolPolicy(exclusive=(("refund_*", "replace_*"), ("slow", "slower")))
    bad, good = ("refund_order", {"amount": 0}), ("refund_order", {"amount": 1})
    conversation = await talk(Model(asks(bad), asks("replace_order", good), asks(good, "slow")), policy)
    exclusive = ("denied", "exclusive_tools")
    assert ends(conversation) == [("invalid_arguments", ""), OK, exclusive, exclusive, OK]
    told = "`refund_order` cannot be called because `replace_order` was called"
    assert conversation.calls[2].message == told
    again = loop(Model(asks("replace_order", "slower")), policy)
    later = await again.run(Conversation.parse(conversation.as_json()).saying("more"))
    assert ends(later)[5:] == [OK, exclusive]


async def test_a_tool_rests_between_two_calls():
    tools = runtime_of(TOOLS)
    clock = tools._engine.default_session.clock
    policy = ToolPolicy(cooldown={"get_*": 5.0, "*": 0.0}, max_identical=None)
    model = Model(
        asks("get_order", "get_order"), asks("slow"), asks("get_order"), asks("slower"), asks("get_order")
    )
    conversation = await talk(model, policy, tools)
    rests = ("denied", "cooldown")
    assert ends(conversation) == [OK, rests, OK, rests, OK, OK]
    assert [record.message for record in conversation.calls if record.code == "cooldown"] == [
        "`get_order` can be called again in 5s",
        "`get_order` can be called again in 3s",
    ]
    assert clock.monotonic() == 7.0


async def test_a_time_that_another_clock_told_binds_nobody():
    policy = ToolPolicy(cooldown={"*": 5.0}, max_calls_per_minute=1)
    tools = runtime_of(TOOLS)
    await tools._engine.default_session.clock.advance(1000)
    conversation = await loop(Model(asks("get_order"), says("a")), policy, tools).run("1")
    elsewhere = loop(Model(asks("get_order"), says("b")), policy)
    assert outcomes(await elsewhere.run(conversation.saying("2"))) == [Outcome.OK] * 2


async def test_rules_hold_in_another_process_that_goes_on():
    policy = ToolPolicy(requires_before={"refund_order": ("get_order",)}, max_calls=2)
    first = await loop(Model(asks("get_order"), says("a")), policy).run("1")
    read = Conversation.parse(first.as_json())
    refund = ("refund_order", {"amount": 1})
    second = await loop(Model(asks(refund), asks("slow")), policy).run(read.saying("2"))
    assert ends(second) == [OK, OK, ("limit_exceeded", "max_calls")]
