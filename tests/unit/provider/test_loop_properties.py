"""What holds of every conversation, whatever a model does: one that ignores the declarations is among them."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from functools import cache
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st

from in_memory import runtime_of
from loop_models import TOOLS, Model, check_whole, loop, watched
from sampling import examples
from toolcrib import Outcome, Runtime, Session, VirtualClock
from toolcrib.provider import (
    CallDelta,
    Conversation,
    Delta,
    Finish,
    Message,
    ProviderError,
    ReasoningDelta,
    Stop,
    TextDelta,
    Tokens,
    ToolPolicy,
    View,
)
from toolcrib.security.tool_policy import check_policy

NAMES = ("get_order", "refund_order", "replace_order", "slow", "slower", "failing", "lying")

names = st.sampled_from([*NAMES, *NAMES, "get_ordr", "", "read_result", "a b"])
written = st.sampled_from(
    [
        "{}",
        "",
        '{"id": "a"}',
        '{"amount": 1}',
        '{"amount": "2"}',
        '{"amount": 0}',
        "{",
        "[1]",
        "null",
        '{"n": NaN}',
        '{"x": "b"}',
    ]
)
ids = st.sampled_from(["", "", "x", "y", "call_1", "call_2"])
calls = st.tuples(ids, names, written)


@st.composite
def answers(draw: Any) -> list[Delta]:
    """Text, thoughts and calls in any order; the pieces of calls may come mixed."""
    deltas: list[Delta] = []
    late: list[Delta] = []
    for slot, what in enumerate(draw(st.lists(st.one_of(st.text("ab", max_size=3), calls), max_size=5))):
        if isinstance(what, str):
            deltas.append(TextDelta(what) if slot % 2 else ReasoningDelta(what))
            continue
        identity, name, arguments = what
        cut = draw(st.integers(0, len(arguments)))
        early = draw(st.booleans())
        deltas.append(CallDelta(slot, identity if early else "", name, arguments[:cut]))
        late.append(CallDelta(slot, "" if early else identity, "", arguments[cut:]))
    finish = Finish(draw(st.sampled_from(["tool_calls", "stop", "length", "refused"])), Tokens(10, 10))
    return [*deltas, *late, finish]


bounds = st.none() | st.integers(0, 4)
globs = st.lists(st.sampled_from(["get_*", "refund_order", "slow*", "failing", "*"]), max_size=2).map(tuple)
policies = st.builds(
    ToolPolicy,
    tool_choice=st.sampled_from(["auto", "required", "none"]),
    deny=globs,
    ask=st.just(()) | globs,
    max_rounds=st.integers(1, 4),
    max_calls=bounds,
    max_calls_per_turn=bounds,
    max_calls_per_tool=st.dictionaries(st.sampled_from(["get_*", "*"]), st.integers(0, 2), max_size=1),
    max_calls_per_minute=bounds,
    max_parallel=st.integers(1, 3),
    max_identical=st.none() | st.integers(1, 2),
    max_failures=st.none() | st.integers(1, 2),
    stop_on_tool=st.just(()) | globs,
    requires_before=st.just({}) | st.just({"refund_order": ("get_order",)}),
    exclusive=st.just(()) | st.just((("refund_order", "replace_order"),)),
    cooldown=st.just({}) | st.just({"*": 3.0}),
).filter(lambda policy: not check_policy(policy, NAMES))


def fail(_request: Any) -> list[Delta]:
    raise ProviderError("gone")


class Watch:
    """A layer that counts what is under way, and a sink that keeps what it gets."""

    def __init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        self.running = self.most = 0
        self.messages: list[Message] = []

    async def __call__(self, call: Any, call_next: Any) -> Any:
        self.running += 1
        self.most = max(self.most, self.running)
        try:
            return await call_next(call)
        finally:
            self.running -= 1

    async def append(self, messages: Any) -> None:
        self.messages += messages


WATCH = Watch()


@cache
def watched_tools() -> Runtime:
    return runtime_of(TOOLS, middleware=[WATCH])


@cache
def tools() -> Runtime:
    return runtime_of(TOOLS)


def fresh(runtime: Runtime) -> Session:
    return runtime.session(clock=VirtualClock())


def check_bounds(conversation: Conversation, policy: ToolPolicy) -> None:
    reached = [record for record in conversation.calls if record.reached]
    by_tool = Counter(record.tool for record in reached)
    for most, count in (
        (policy.max_calls, len(reached)),
        (policy.max_calls_per_turn, max(Counter(record.turn for record in reached).values(), default=0)),
        (policy.max_calls_per_minute, max_within_a_minute([record.at for record in reached])),
        (policy.max_calls_per_tool.get("*"), max(by_tool.values(), default=0)),
        (policy.max_calls_per_tool.get("get_*"), by_tool["get_order"]),
    ):
        assert most is None or count <= most
    rounds = Counter((record.turn, record.round) for record in conversation.calls)
    assert all(number <= policy.max_rounds for _turn, number in rounds)
    assert policy.exclusive == () or not {"refund_order", "replace_order"} <= by_tool.keys()
    if policy.tool_choice == "none":
        assert not any(record.round == 1 for record in reached if record.tool not in waited(conversation))


def waited(conversation: Conversation) -> set[str]:
    return {each.tool for each in conversation.pending}


def max_within_a_minute(times: list[float]) -> int:
    return max((sum(0 <= other - at < 60 for other in times) for at in times), default=0)


@settings(max_examples=examples(80))
@given(
    st.lists(st.one_of(answers(), st.just(fail)), max_size=8),
    policies,
    st.booleans(),
    st.randoms(use_true_random=False),
)
def test_every_conversation_is_whole_and_ends_within_its_bounds(script, policy, streamed, chance):
    asyncio.run(converse(script, policy, streamed, chance))


async def converse(script: Any, policy: ToolPolicy, streamed: bool, chance: Any) -> None:
    WATCH.begin()
    middleware = loop(Model(*script), policy, fresh(watched_tools()), sink=WATCH)
    conversation, given_ = Conversation.of("one"), {}
    view = View()
    for number in range(4):
        if streamed:
            events, conversation = await watched(middleware, conversation, given_)
            for event in events:
                assert view.apply(event)
        else:
            conversation = await middleware.run(conversation, given_)
        check_one(conversation, policy, WATCH)
        given_ = {
            each.id: chance.choice(
                [{"approve": True}, {"reject": "no"}, {"approve": {"arguments": {"amount": 3}}}]
            )
            for each in conversation.pending
        }
        read = Conversation.parse(json.loads(json.dumps(conversation.as_json())))
        assert read == conversation
        conversation = read if given_ else read.saying(f"and {number}?")
    if streamed:
        assert view.missing is None
        assert {each.id for each in view.segments if each.kind == "call"} >= {
            each.id for each in conversation.calls
        }


def check_one(conversation: Conversation, policy: ToolPolicy, watch: Watch) -> None:
    check_whole(conversation)
    check_bounds(conversation, policy)
    assert conversation.stop is not None
    assert (conversation.stop is Stop.PENDING) == bool(conversation.pending)
    assert watch.most <= policy.max_parallel
    assert watch.running == 0
    assert sorted(map(repr, watch.messages)) == sorted(map(repr, conversation.messages))
    results = {result.id: result for message in conversation.messages for result in message.results}
    for record in conversation.calls:
        if record.id in results:
            assert results[record.id].outcome is record.outcome
            assert (record.outcome is Outcome.OK) == (record.code == "")
        if record.outcome is Outcome.OK and record.tool == "lying":
            assert record.arguments is not None
            assert isinstance(record.value, dict)
            assert isinstance(record.value["status"], str)


@settings(max_examples=examples(20))
@given(st.lists(answers(), max_size=5), policies)
def test_run_and_stream_give_the_same(script, policy):
    async def both() -> tuple[Conversation, Conversation]:
        ran = await loop(Model(*script), policy, fresh(tools())).run("one")
        _events, streamed = await watched(loop(Model(*script), policy, fresh(tools())), "one")
        return ran, streamed

    ran, streamed = asyncio.run(both())
    assert ran._replace(id="") == streamed._replace(id="")


@settings(max_examples=examples(20))
@example([("", "", ""), ("", "get_order", "{}")], [])
@example([("", "", ""), ("", "get_order", "{}")], ["a", "b"])
@given(st.lists(calls, min_size=1, max_size=4), st.lists(st.text("ab", min_size=1, max_size=2), max_size=3))
def test_no_text_is_lost_or_told_twice(asked, texts):
    deltas: list[Delta] = []
    for number, (identity, name, arguments) in enumerate(asked):
        deltas += [TextDelta(text) for text in texts[number : number + 1]]
        deltas += [CallDelta(number, "", name, arguments), CallDelta(number, identity)]
    deltas += [*map(TextDelta, texts[len(asked) :]), Finish()]
    events, conversation = asyncio.run(
        watched(loop(Model(deltas), ToolPolicy(max_rounds=1), fresh(tools())), "go")
    )
    view = View()
    for event in events:
        view.apply(event)
    told = [(each.id or each.text) for each in view.segments[1:]]
    held = [getattr(part, "id", None) or getattr(part, "text", "") for part in conversation.messages[1].parts]
    assert told == held
