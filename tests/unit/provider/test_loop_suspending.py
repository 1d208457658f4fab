"""Calls that wait for somebody: the turn is suspended as plain data, and goes on with all answers together."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from in_memory import runtime_of
from loop_models import FREE, TOOLS, Model, asks, check_whole, ends, loop, outcomes, says, watched
from toolcrib import ConfigurationError, Executors, Outcome, Result, VirtualClock
from toolcrib.executors.client import ClientExecutor
from toolcrib.executors.mock import MockExecutor
from toolcrib.provider import (
    Answer,
    Config,
    Conversation,
    FolderClaims,
    ProviderMiddleware,
    Stop,
    ToolPolicy,
    View,
)

ASKING = ToolPolicy(ask=("refund_*",))
REFUND = ("refund_order", {"amount": 5})
OK = ("ok", "")
WAITS = ("waits", "needs_approval")

CLIENT = """
name: locate
input_schema: {type: object, properties: {exact: {type: boolean}}}
output_schema: {type: object, required: [lat], properties: {lat: {type: number}}}
client: {consent: {required: true, message: Where are you?}}
---
name: plain
input_schema: {type: object}
mock: {result: 1}
"""

BOTH = Executors({"client": ClientExecutor, "mock": MockExecutor})


def elsewhere(conversation: Conversation) -> Conversation:
    """The same in another process: all that is left of it is JSON."""
    return Conversation.parse(json.loads(json.dumps(conversation.as_json())))


def client_loop(model, policy=FREE, **config) -> ProviderMiddleware:
    return ProviderMiddleware(model, runtime_of(CLIENT, executors=BOTH), policy, Config(**config))


async def test_what_the_policy_asks_about_waits_and_siblings_are_kept():
    model = Model(asks("get_order", REFUND, "slow", text="Hm."), says("Refunded."))
    suspended = await loop(model, ASKING).run("refund it")
    assert suspended.stop is Stop.PENDING
    assert suspended.detail == "waiting: `refund_order` (call_2: needs_approval)"
    assert ends(suspended) == [OK, WAITS, OK]
    (pending,) = suspended.pending
    assert (pending.id, pending.tool, pending.arguments) == ("call_2", "refund_order", {"amount": 5})
    assert [message.role for message in suspended.messages] == ["user", "assistant", "tool", "tool"]
    check_whole(suspended)

    ended = await loop(model, ASKING).run(elsewhere(suspended), {"call_2": Answer.approve()})
    assert (ended.stop, ended.text, ended.pending) == (Stop.ANSWERED, "Refunded.", ())
    assert ends(ended) == [OK, OK, OK]
    assert [message.results[0].text for message in ended.messages[2:5]] == [
        '{"id":null,"status":"paid"}',
        '{"refunded":5}',
        "slow",
    ]
    assert model.requests[1].messages == ended.messages[:-1]
    check_whole(ended)


async def test_other_arguments_are_judged_again_and_told_to_the_model():
    suspended = await loop(Model(asks(REFUND)), ASKING).run("refund it")
    for arguments, outcome in (({"amount": 3}, Outcome.OK), ({"amount": 0}, Outcome.INVALID_ARGUMENTS)):
        ended = await loop(Model(), ASKING).run(suspended, {"call_1": {"approve": {"arguments": arguments}}})
        assert outcomes(ended) == [outcome]
        assert ended.calls[0].arguments == arguments
        (result,) = ended.messages[2].results
        assert result.text.startswith(f'[called with {{"amount":{arguments["amount"]}}}, as was decided]\n')
        assert ended.messages[1].calls[0].arguments == {"amount": 5}


async def test_a_rejection_is_a_result():
    suspended = await loop(Model(asks(REFUND, REFUND)), ASKING).run("refund it")
    answers = {"call_1": {"reject": "too much"}, "call_2": {"reject": ""}}
    ended = await loop(Model(), ASKING).run(suspended, answers)
    assert ends(ended) == [("denied", "rejected")] * 2
    assert [message.results[0].text for message in ended.messages[2:4]] == [
        "rejected: `refund_order` was not called: too much",
        "rejected: `refund_order` was not called",
    ]


async def test_bad_arguments_bother_nobody():
    conversation = await loop(
        Model(asks(("refund_order", {"amount": 0}), ("refund_order", "{"))), ASKING
    ).run("a")
    assert ends(conversation) == [("invalid_arguments", ""), ("invalid_arguments", "not_json")]
    mended = await loop(Model(asks(("refund_order", {"amount": "7"}))), ASKING).run("a")
    assert mended.pending[0].arguments == {"amount": 7}


async def test_all_that_wait_are_answered_together_or_nothing_happens():
    suspended = await loop(Model(asks(REFUND, REFUND, REFUND)), ASKING).run("a")
    middleware = loop(Model(), ASKING)
    wrong = {"call_1": {"approve": False}, "call_3": {"result": 1}, "call_4": {"approve": True}}
    with pytest.raises(ConfigurationError) as caught:
        await middleware.run(suspended, wrong)
    told = str(caught.value)
    assert caught.value.code == "invalid_answers"
    assert "unknown pending call `call_4`" in told
    assert "`call_1`: invalid answer to a pending call" in told
    assert "missing answer for `call_2` (`refund_order`)" in told
    assert (
        "`call_3`: `refund_order` waits with `needs_approval`; `result` and `error` are valid only for a call"
        in told
    )
    with pytest.raises(ConfigurationError, match="missing answer for `call_1`"):
        await middleware.run(suspended.saying("never mind"))
    with pytest.raises(ConfigurationError, match="unknown pending call `x`"):
        await middleware.run("hello", {"x": Answer.approve()})
    ended = await middleware.run(suspended, dict.fromkeys(("call_1", "call_2", "call_3"), Answer.approve()))
    assert ends(ended) == [OK] * 3


async def test_a_layer_of_the_user_may_ask_and_sees_the_approval():
    async def guard(call, call_next):
        if "approve:refund_order" in call.context.grants or call.tool.name != "refund_order":
            return await call_next(call)
        return Result.failure(
            Outcome.NEEDS_APPROVAL, "who says so?", code="second_pair_of_eyes", details={"level": 2}
        )

    def tools():
        return runtime_of(TOOLS, middleware=[guard])

    suspended = await loop(Model(asks("slow", REFUND)), tools=tools()).run("a")
    (pending,) = suspended.pending
    assert (pending.code, pending.message, pending.details) == (
        "second_pair_of_eyes",
        "who says so?",
        {"level": 2},
    )
    ended = await loop(Model(), tools=tools()).run(elsewhere(suspended), {pending.id: {"approve": True}})
    assert ends(ended) == [OK, OK]
    check_whole(ended)


async def test_who_is_asked_again_waits_again():
    async def stubborn(_call, _call_next):
        return Result.failure(Outcome.NEEDS_APPROVAL, "never")

    tools = runtime_of(TOOLS, middleware=[stubborn])
    suspended = await loop(Model(asks("slow")), tools=tools).run("a")
    again = await loop(Model(), tools=tools).run(suspended, {"call_1": {"approve": True}})
    assert (again.stop, [each.id for each in again.pending]) == (Stop.PENDING, ["call_1"])
    check_whole(again)


async def test_rules_hold_for_what_is_approved_later():
    policy = ToolPolicy(ask=("refund_*",), max_calls=1)
    suspended = await loop(Model(asks(REFUND, "slow")), policy).run("a")
    assert ends(suspended) == [WAITS, OK]
    ended = await loop(Model(), policy).run(suspended, {"call_1": {"approve": True}})
    assert ends(ended) == [("limit_exceeded", "max_calls"), OK]
    assert ended.stop is Stop.MAX_CALLS
    exclusive = ToolPolicy(ask=("refund_*",), exclusive=(("refund_*", "replace_*"),))
    suspended = await loop(Model(asks(REFUND, "replace_order")), exclusive).run("a")
    ended = await loop(Model(), exclusive).run(suspended, {"call_1": {"approve": True}})
    assert ends(ended) == [("denied", "exclusive_tools"), OK]


async def test_a_bound_that_was_exceeded_ends_the_turn_once_nothing_waits():
    policy = ToolPolicy(ask=("refund_*",), max_calls_per_tool={"slow": 1})
    model = Model(asks(REFUND, "slow", "slow"))
    suspended = await loop(model, policy).run("a")
    assert suspended.stop is Stop.PENDING
    ended = await loop(model, policy).run(suspended, {"call_1": {"approve": True}})
    assert (ended.stop, len(model.requests)) == (Stop.MAX_CALLS_PER_TOOL, 1)
    stopping = ToolPolicy(ask=("refund_*",), stop_on_tool=("refund_*",))
    suspended = await loop(Model(asks(REFUND)), stopping).run("a")
    ended = await loop(Model(), stopping).run(suspended, {"call_1": {"approve": True}})
    assert ended.stop is Stop.STOP_ON_TOOL


async def test_the_user_may_speak_along_with_the_answers():
    suspended = await loop(Model(asks("slow", REFUND)), ASKING).run("a")
    model = Model(says("Fine."))
    ended = await loop(model, ASKING).run(suspended.saying("no, leave it"), {"call_2": {"reject": "later"}})
    assert [message.role for message in ended.messages] == [
        "user",
        "assistant",
        "tool",
        "tool",
        "user",
        "assistant",
    ]
    assert ended.stop is Stop.ANSWERED
    check_whole(ended)


async def test_rounds_of_the_turn_go_on_counting():
    policy = ToolPolicy(ask=("refund_*",), max_rounds=2, tool_choice="required")
    model = Model(asks(REFUND), asks("slow"))
    suspended = await loop(model, policy).run("a")
    ended = await loop(model, policy).run(suspended, {"call_1": {"approve": True}})
    assert (ended.stop, ended.rounds) == (Stop.MAX_ROUNDS, 2)
    assert [request.tool_choice for request in model.requests] == ["required", "auto"]


async def test_events_go_on_where_they_stopped():
    view = View()
    events, suspended = await watched(loop(Model(asks("slow", REFUND)), ASKING), "a")
    for event in events:
        view.apply(event)
    assert [(each.id, each.status) for each in view.segments[1:]] == [
        ("call_1", "completed"),
        ("call_2", "waiting"),
    ]
    more, _ended = await watched(loop(Model(), ASKING), elsewhere(suspended), {"call_2": {"approve": True}})
    assert [event.type for event in more] == ["call_updated", "call_updated", "text", "closed", "turn_ended"]
    for event in more:
        assert view.apply(event)
    assert (view.segments[2].status, view.segments[2].text) == ("completed", '{"refunded":5}')
    assert view.missing is None


async def test_a_client_tool_that_nobody_fulfils_waits_for_its_result():
    suspended = await client_loop(Model(asks("locate", "plain"))).run("where am I?")
    (pending,) = suspended.pending
    assert (pending.code, pending.details["message"]) == ("client_tool_deferred", "Where are you?")
    check_whole(suspended)
    for answer, end in (
        ({"result": {"lat": 59.9}}, OK),
        ({"result": {"lat": "north"}}, ("invalid_result", "")),
        ({"error": {"code": "no_signal", "message": "under ground"}}, ("tool_error", "no_signal")),
        ({"reject": "private"}, ("denied", "consent_declined")),
    ):
        ended = await client_loop(Model()).run(elsewhere(suspended), {"call_1": answer})
        assert ends(ended) == [end, OK]
        assert ended.stop is Stop.ANSWERED
        check_whole(ended)


async def test_a_client_of_the_configuration_fulfils_calls_or_defers_them():
    async def client(call):
        return call.defer() if call.arguments else {"lat": 1.5}

    model = Model(asks("locate", ("locate", {"exact": True})))
    suspended = await client_loop(model, client=client).run("a")
    assert ends(suspended) == [OK, ("waits", "client_tool_deferred")]
    ended = await client_loop(Model(), client=client).run(suspended, {"call_2": {"result": {"lat": 2}}})
    assert [record.value for record in ended.calls] == [{"lat": 1.5}, {"lat": 2}]


async def test_an_approval_and_then_a_result():
    policy = ToolPolicy(ask=("locate",))
    suspended = await client_loop(Model(asks("locate")), policy).run("a")
    assert suspended.pending[0].code == "needs_approval"
    deferred = await client_loop(Model(), policy).run(suspended, {"call_1": {"approve": True}})
    assert deferred.pending[0].code == "client_tool_deferred"
    ended = await client_loop(Model(), policy).run(deferred, {"call_1": {"result": {"lat": 1}}})
    assert ends(ended) == [OK]
    with pytest.raises(ConfigurationError, match="waits with `needs_approval`"):
        await client_loop(Model(), policy).run(suspended, {"call_1": {"result": {"lat": 1}}})


DECLINING = """
name: locate
input_schema: {type: object}
client: {consent: {required: true, decline_strategy: error}, timeout: 10s}
"""


@pytest.mark.parametrize(
    ("strategy", "end", "told"),
    [
        ("fallback}, fallback: {lat: 0", OK, '{"lat":0}'),
        ("retry", ("denied", "consent_declined"), "it may be requested again"),
        ("error", ("denied", "consent_declined"), "was declined: not now"),
    ],
)
async def test_who_declines_to_fulfil_a_call_gets_what_the_tool_says_of_that(strategy, end, told):
    runtime = runtime_of(DECLINING.replace("error", strategy), executors=BOTH)
    suspended = await loop(Model(asks("locate")), tools=runtime).run("a")
    ended = await loop(Model(), tools=runtime).run(suspended, {"call_1": {"reject": "not now"}})
    assert ends(ended) == [end]
    assert told in ended.messages[2].results[0].text


@pytest.mark.parametrize("answer", [{"result": 1}, {"error": {"code": "no_signal"}}])
async def test_a_result_that_comes_too_late_is_none(answer):
    clock = VirtualClock()
    runtime = runtime_of(DECLINING, executors=BOTH, clock=clock)
    suspended = await loop(Model(asks("locate")), tools=runtime).run("a")
    await clock.advance(10)
    in_time = await loop(Model(), tools=runtime).run(suspended, {"call_1": {"result": 1}})
    await clock.advance(1)
    late = await loop(Model(), tools=runtime).run(suspended, {"call_1": answer})
    declined = await loop(Model(), tools=runtime).run(suspended, {"call_1": {"reject": ""}})
    assert ends(in_time) + ends(late) + ends(declined) == [
        OK,
        ("timeout", ""),
        ("denied", "consent_declined"),
    ]
    assert "fulfilled after 11s; its timeout is 10s" in late.messages[2].results[0].text


async def test_a_conversation_is_resumed_once_whoever_tries(tmp_path: Path):
    made = []

    async def count(call, call_next):
        made.append(call.tool.name)
        return await call_next(call)

    claims = FolderClaims(tmp_path / "claims")
    middleware = loop(Model(asks(REFUND)), ASKING, runtime_of(TOOLS, middleware=[count]), claim=claims)
    suspended = await middleware.run("a")
    assert suspended.id
    assert elsewhere(suspended).id == suspended.id
    with pytest.raises(ConfigurationError):  # what is wrong claims nothing
        await middleware.run(suspended, {"call_1": "yes"})
    yes = {"call_1": {"approve": True}}
    ended, refused = sorted(
        await asyncio.gather(
            middleware.run(suspended, yes), middleware.run(elsewhere(suspended), yes), return_exceptions=True
        ),
        key=lambda end: isinstance(end, ConfigurationError),
    )
    assert (ended.stop, ended.id, made) == (Stop.ANSWERED, suspended.id, ["refund_order"])
    assert refused.code == "already_answered"
    assert refused.message == "the pending calls were already answered: `call_1`"
    other = await loop(Model(asks(REFUND)), ASKING).run("a")
    assert ends(await middleware.run(other, yes)) == [OK]


async def test_a_call_that_waits_once_more_is_answered_once_more(tmp_path: Path):
    policy, claims = ToolPolicy(ask=("locate",)), FolderClaims(tmp_path)
    suspended = await client_loop(Model(asks("locate")), policy, claim=claims).run("a")
    approved = await client_loop(Model(), policy, claim=claims).run(suspended, {"call_1": {"approve": True}})
    ended = await client_loop(Model(), policy, claim=claims).run(approved, {"call_1": {"result": {"lat": 1}}})
    assert ends(ended) == [OK]
    with pytest.raises(ConfigurationError, match="already answered"):
        await client_loop(Model(), policy, claim=claims).run(approved, {"call_1": {"result": {"lat": 1}}})


async def test_what_is_claimed_in_part_is_not_claimed(tmp_path: Path):
    claims = FolderClaims(tmp_path)
    assert await claims.claim(["b"])
    assert not await claims.claim(["a", "b"])
    assert await claims.claim(["a"])


CLAIMING = """
import asyncio, sys
sys.path[:0] = {path!r}
from toolcrib.provider import FolderClaims
print(asyncio.run(FolderClaims({folder!r}).claim(["one", "two"])))
"""


@pytest.mark.exhaustive
def test_one_of_two_processes_claims(root: Path, tmp_path: Path):
    program = CLAIMING.format(path=[str(root / "runtime")], folder=str(tmp_path))
    processes = [
        subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    assert sorted(process.communicate()[0] for process in processes) == ["False\n", "True\n"]


@pytest.mark.parametrize(
    ("junk", "told"),
    [
        ("yes", "`call_1`: invalid answer to a pending call"),
        (None, "`call_1`: invalid answer to a pending call"),
        (Answer("yes"), "`call_1`: invalid answer to a pending call"),
        ({"reject": None}, "`call_1`: invalid answer to a pending call"),
        ({"error": {"code": "x", "message": 5}}, "`call_1`: invalid answer to a pending call"),
    ],
)
async def test_what_is_no_answer_is_told(junk, told):
    suspended = await loop(Model(asks(REFUND)), ASKING).run("a")
    with pytest.raises(ConfigurationError, match=told) as caught:
        await loop(Model(), ASKING).run(suspended, {"call_1": junk})
    assert caught.value.code == "invalid_answers"
    with pytest.raises(ConfigurationError, match="expected an object of answers"):
        await loop(Model(), ASKING).run(suspended, ["call_1"])


async def test_all_that_is_wrong_with_a_conversation_is_told_at_once():
    suspended = await loop(Model(asks(REFUND)), ASKING).run("a")
    whole = suspended.as_json()
    wrong = {
        "cost": "x",
        "seen": -3,
        "stop": "zzz",
        "extra": 1,
        "spilled": {"a": 5},
        "rounds": None,
        "tokens": {"input": True},
        "calls": [{}],
        "messages": [{"role": "user", "text": "a"}],
    }
    with pytest.raises(ConfigurationError) as caught:
        Conversation.parse({**whole, **wrong})
    told = caught.value.message.split("\n- ")[1:]
    for fault in (
        "`/cost`: expected a non-negative finite number, got a string",
        "`/seen`: expected a non-negative integer, got -3",
        "`/rounds`: expected a non-negative integer, got null",
        "`/spilled/a`: expected a string, got 5",
        "`/tokens/input`: expected a non-negative integer, got a boolean",
        "`/calls/0`: missing `tool`",
        "`/messages/0`: missing `parts`",
    ):
        assert fault in told
    assert any(each.startswith("unknown key `extra`") for each in told)
    assert any(each.startswith("`/stop`: expected one of answered, pending") for each in told)
    for part, fault in (
        ({"seen": 99}, "expected at most 2, the number of messages, got 99"),
        ({"calls": []}, "has no open call `call_1`"),
        ({"calls": whole["calls"] * 2}, "is used by 2 calls"),
        ({"stop": "answered"}, "calls if and only if"),
    ):
        with pytest.raises(ConfigurationError, match=fault):
            Conversation.parse({**whole, **part})
    with pytest.raises(ConfigurationError, match="expected an object, got a list"):
        Conversation.parse([])  # type: ignore[arg-type]


PROGRAM = """
import asyncio, json, sys
sys.path[:0] = {path!r}
from loop_models import Model, loop, says
from toolcrib.provider import Conversation, ToolPolicy

suspended = Conversation.parse(json.load(sys.stdin))
answers = {{each.id: {{"approve": True}} for each in suspended.pending}}
ended = asyncio.run(loop(Model(says("Done.")), ToolPolicy(ask=("refund_*",))).run(suspended, answers))
json.dump(ended.as_json(), sys.stdout)
"""


def test_another_process_goes_on(root: Path):
    suspended = asyncio.run(loop(Model(asks("slow", REFUND)), ASKING).run("a"))
    program = PROGRAM.format(path=[str(root / "tests"), str(root / "runtime")])
    done = subprocess.run(
        [sys.executable, "-c", program],
        input=json.dumps(suspended.as_json()),
        capture_output=True,
        text=True,
        check=True,
    )
    ended = Conversation.parse(json.loads(done.stdout))
    assert (ended.stop, ended.text) == (Stop.ANSWERED, "Done.")
    assert ends(ended) == [OK, OK]
    check_whole(ended)


async def test_a_call_has_one_id_wherever_it_is_told():
    """In the conversation, for whoever fulfils it, in events and in layers; the runtime's own id is another one."""
    asked, seen = [], []

    async def client(call):
        asked.append(call.id)
        return call.defer()

    async def layer(call, call_next):
        seen.append((call.tool.name, call.context.correlation))
        return await call_next(call)

    runtime = runtime_of(CLIENT, executors=BOTH, observer=seen.append, middleware=[layer])
    session = runtime.session(correlation="request-7", client=client)
    answer = asks("locate", "plain", "locate")
    suspended = await ProviderMiddleware(Model(answer), session, FREE, Config()).run("where am I?")
    assert asked == [pending.id for pending in suspended.pending] == ["call_1", "call_3"]
    layered = [item for item in seen if type(item) is tuple]
    assert sorted(layered) == [("locate", "call_1"), ("locate", "call_3"), ("plain", "call_2")]
    told = [item.call.context.correlation for item in seen if hasattr(item, "call")]
    assert sorted(told) == ["call_1", "call_1", "call_2", "call_2", "call_3", "call_3"]

    asked.clear()
    await session.call("locate", {})
    assert asked[0].startswith(session.id), "a call of its own has no id but the runtime's"


async def test_a_call_that_the_policy_holds_is_answered_elsewhere_too(tmp_path: Path):
    middleware = loop(Model(asks(REFUND)), ASKING, runtime_of(TOOLS))
    suspended = await middleware.run("a")
    facts = suspended.pending[0].details["approval"]
    assert (facts["code"], facts["rule"], facts["tool"]) == ("tool_policy", "ask refund_*", "refund_order")
    approvals = middleware._session.approvals
    approvals.answer(facts["id"], Answer.approve(), by="operator")
    with pytest.raises(ConfigurationError, match="already answered") as error:
        await middleware.run(elsewhere(suspended), {"call_1": {"reject": "no"}})
    assert error.value.code == "already_answered"
    assert ends(await middleware.run(elsewhere(suspended))) == [OK]
    with pytest.raises(ConfigurationError) as error:
        await middleware.run(elsewhere(suspended))
    assert error.value.code == "already_answered"


async def test_an_approval_for_the_session_covers_later_calls_of_the_model():
    middleware = loop(Model(asks(REFUND), says("Done."), asks(REFUND)), ASKING, runtime_of(TOOLS))
    suspended = await middleware.run("a")
    ended = await middleware.run(suspended, {"call_1": {"approve": {"scope": "session"}}})
    assert ended.stop is Stop.ANSWERED
    assert (await middleware.run(ended.saying("again"))).stop is Stop.ANSWERED
