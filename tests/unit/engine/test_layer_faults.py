"""Layer `faults`: what each kind makes of an attempt, and what is told of it."""

from __future__ import annotations

import asyncio

import pytest

from faulty import REPEATABLE, acted, failing, ordered
from in_memory import runtime_of
from toolcrib import Call, CallContext, Executors, Outcome, Result, VirtualClock
from toolcrib.core.model import InjectedFault
from toolcrib.engine.middleware import faults
from toolcrib.engine.middleware.faults import fired, why_not_due
from toolcrib.engine.middleware.layer import LayerContext, SharedState
from toolcrib.executors.mock import MockExecutor
from toolcrib.testing import FunctionExecutor


def told(result):
    return result.meta["fault"]


def fake(answer, faults, more="", **options):
    """A session with one tool `tool` that a Python function answers, made to fail."""
    executors = Executors({"fake": lambda: FunctionExecutor(answer), "mock": MockExecutor})
    text = f"name: tool\ninput_schema: {{}}\n{more}\nfake: {{}}\n"
    return failing(text, faults, executors=executors, **options)


async def test_a_fault_that_happened_is_told_beside_the_result():
    session = failing(ordered(), "- {name: cut, tool: tool, inject: disconnect, when: {call: 1}}")
    result = await session.call("tool")
    assert told(result) == {"name": "cut", "kind": "disconnect", "also_due": []}
    assert "fault" not in (await session.call("tool")).meta
    assert fired(session) == {"cut": 1}


async def test_the_first_fault_that_is_due_happens_and_names_the_others():
    session = failing(
        ordered(),
        """
        - {name: never, tool: tool, inject: hang, when: {call: 9}}
        - {name: one, tool: tool, inject: disconnect, when: {first: 1}}
        - {name: two, tool: tool, inject: timeout, when: {first: 1}}
        - {name: three, tool: tool, inject: empty}
        """,
    )
    assert told(await session.call("tool")) == {
        "name": "one",
        "kind": "disconnect",
        "also_due": ["two", "three"],
    }
    assert told(await session.call("tool"))["name"] == "three"
    assert fired(session) == {"never": 0, "one": 1, "two": 0, "three": 1}
    assert why_not_due(session, "two") == (
        "fault `two` never happened: it was due on call 1 of `tool`, but `one` came first"
    )


@pytest.mark.parametrize("kind", ["timeout", "hang"])
@pytest.mark.parametrize("more", ["", REPEATABLE])
async def test_the_deadline_ends_what_takes_too_long_and_nothing_was_done(kind, more):
    session = failing(ordered(more=more), f"- {{tool: tool, inject: {kind}}}")
    result = await session.call("tool")
    assert (result.outcome, result.usage) == (Outcome.TIMEOUT, (1, 10.0))
    assert result.error.details == {
        "limit": "timeout",
        "value": "10s",
        "measured": 10.0,
        "at": "tools.yaml:5",
    }
    assert result.error.retryable
    assert told(result)["kind"] == kind
    assert acted(session) == 0


async def test_a_caller_who_gives_a_hanging_call_up_is_not_told_that_it_may_have_acted():
    session = failing(ordered(), "- {tool: tool, inject: hang}")
    call = asyncio.ensure_future(session.call("tool"))
    await session.clock.sleep(1)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert (acted(session), fired(session)) == (0, {"hang": 1})


async def test_without_a_deadline_a_fault_still_ends():
    """Nobody stands around the layer here."""
    session = failing(ordered(), "- {tool: tool, inject: hang}")
    (tool,) = session.registry.values()
    bound = session._runtime.chain_for(tool).bound
    layer = faults.layer(LayerContext(tool, bound, SharedState()), bound.execute)
    call = Call(tool, {}, CallContext(session))
    result = await layer(call)
    assert (result.outcome, session.clock.monotonic()) == (Outcome.TIMEOUT, 10.001)


async def test_slow_is_in_time_or_not():
    session = failing(
        ordered(),
        "- {tool: tool, inject: {slow: 3s}, when: {call: 1}}\n- {name: late, tool: tool, inject: {slow: 11s}}",
    )
    quick, late = [await session.call("tool") for _ in range(2)]
    assert (quick.outcome, quick.usage, told(quick)["kind"]) == (Outcome.OK, (1, 3.0), "slow")
    assert (late.outcome, late.usage.duration, told(late)["name"]) == (Outcome.TIMEOUT, 10.0, "late")
    assert "may_have_acted" not in late.error.details
    assert acted(session) == 1


async def test_slow_is_drawn_for_each_attempt_the_same_each_time():
    def run(seed):
        return failing(
            ordered(), "- {tool: tool, inject: {slow: {min: 1s, max: 9s}}}", session={"seed": seed, "id": "s"}
        )

    async def durations(seed):
        session = run(seed)
        return [(await session.call("tool")).usage.duration for _ in range(3)]

    first = await durations(1)
    assert first == await durations(1)
    assert first != await durations(2)
    assert len(set(first)) == 3


async def test_a_lost_reply_is_asked_for_again_where_that_has_no_second_effect():
    session = failing(ordered(more=REPEATABLE), "- {tool: tool, inject: lost_ack, when: {attempt: 1}}")
    result = await session.call("tool")
    assert (result.outcome, result.value["n"], result.usage.attempts) == (Outcome.OK, 2, 2)


async def test_a_reply_that_is_no_reply_can_not_be_lost():
    async def down(_call):
        return Result.failure(Outcome.TRANSPORT_ERROR, "no route", code="no_route")

    session = fake(down, "- {tool: tool, inject: lost_ack}")
    result = await session.call("tool")
    assert (result.outcome, result.error.code, dict(result.meta)) == (Outcome.TRANSPORT_ERROR, "no_route", {})
    assert why_not_due(session, "lost_ack") == (
        "fault `lost_ack` never happened: it was due on call 1 of `tool`, but the tool itself ended"
        " with `transport_error`, so there is no answer to alter"
    )


@pytest.mark.parametrize("kind", ["empty", "{violate_schema: any}", "{inject_text: {at: /id, text: hi}}"])
async def test_an_error_of_the_tool_passes_what_spoils_good_answers(kind):
    async def broken(_call):
        return Result.failure(Outcome.TOOL_ERROR, "out of paper")

    more = "output_schema: {type: object, required: [id], properties: {id: {type: string}}}"
    session = fake(broken, f"- {{name: f, tool: tool, inject: {kind}}}", more)
    assert (await session.call("tool")).message == "out of paper"
    assert fired(session) == {"f": 0}


@pytest.mark.parametrize(
    ("kind", "code"), [("lost_ack", "reply_lost"), ("truncated", "truncated"), ("not_json", "not_json")]
)
async def test_an_error_of_the_tool_is_an_answer_that_can_be_lost(kind, code):
    async def broken(_call):
        return Result.failure(Outcome.TOOL_ERROR, "out of paper")

    assert (await fake(broken, f"- {{tool: tool, inject: {kind}}}").call("tool")).error.code == code


async def test_an_answer_that_was_invalid_already_is_told_as_it_is():
    async def odd(_call):
        return Result.success({"id": 7})

    more = "output_schema: {type: object, required: [id], properties: {id: {type: string}}}"
    session = fake(odd, "- {name: f, tool: tool, inject: {violate_schema: missing_id}}", more)
    result = await session.call("tool")
    assert result.error.details["violations"][0]["pointer"] == "/id"
    assert result.raw_value == {"id": 7}
    assert fired(session) == {"f": 0}


async def test_a_violation_that_can_not_be_made_of_the_answer_is_a_mistake_of_the_fault():
    async def number(_call):
        return Result.success(5)

    more = "output_schema: {anyOf: [{type: integer}, {type: object, required: [a]}]}"
    session = fake(number, "- {name: f, tool: tool, inject: {violate_schema: missing_a}}", more)
    result = await session.call("tool")
    assert (result.outcome, result.error.code) == (Outcome.INTERNAL, "fault_failed")
    assert "the fault `f` of `tool` failed at tools.yaml:" in result.message
    assert result.error.details["cause"] == "fault_not_possible"


async def test_any_violation_is_drawn_the_same_for_the_same_seed():
    async def drawn(seed):
        session = failing(
            ordered(), "- {tool: tool, inject: violate_schema}", session={"seed": seed, "id": "s"}
        )
        return [told(await session.call("tool"))["violation"] for _ in range(6)]

    assert await drawn(4) == await drawn(4)
    assert len({*(await drawn(4)), *(await drawn(5))}) > 2


@pytest.mark.parametrize(
    ("at", "answer", "planted"),
    [
        ("", "fine", "fine hi"),
        ("", None, "hi"),
        ("/a", {"a": "x"}, {"a": "x hi"}),
        ("/a", {"a": ""}, {"a": "hi"}),
        ("/a", {"a": None}, {"a": "hi"}),
        ("/a", {"b": 1}, {"b": 1, "a": "hi"}),
        ("/a", {"a": ["x"]}, {"a": ["x", "hi"]}),
        ("/a/-", {"a": ["x"]}, {"a": ["x", "hi"]}),
        ("/a/0", {"a": ["x"]}, {"a": ["x hi"]}),
        ("/a/0/b~1c", {"a": [{"b/c": "x"}]}, {"a": [{"b/c": "x hi"}]}),
    ],
)
async def test_a_text_is_planted_in_the_answer(at, answer, planted):
    async def answers(_call):
        return Result.success(answer)

    session = fake(answers, f"- {{tool: tool, inject: {{inject_text: {{at: '{at}', text: hi}}}}}}")
    assert (await session.call("tool")).value == planted


@pytest.mark.parametrize(
    ("at", "answer"),
    [("/a", {"a": 7}), ("/a", {"a": {}}), ("/a/b", {"a": "x"}), ("/a/3", {"a": []}), ("/x/y", {})],
)
async def test_a_text_that_finds_no_place_is_a_mistake_of_the_fault(at, answer):
    async def answers(_call):
        return Result.success(answer)

    session = fake(answers, f"- {{tool: tool, inject: {{inject_text: {{at: {at}, text: hi}}}}}}")
    result = await session.call("tool")
    assert (result.outcome, result.error.code) == (Outcome.INTERNAL, "fault_failed")
    assert f"cannot insert text at `{at}`" in result.message
    assert "the tool has already acted" in result.message
    assert why_not_due(session, "inject_text") == (
        f"fault `inject_text` never happened: it was due on call 1 of `tool`, but it failed: cannot insert text"
        f" at `{at}` in the result of `tool`; the tool has already acted"
    )


@pytest.mark.parametrize(
    "kind", ["inject_text: {at: '/id', text: '{{ args.absent }}'}", "error: '{{ args.absent }}'"]
)
async def test_an_expression_of_a_fault_fails_before_the_tool_acts(kind):
    session = failing(ordered(), f"- {{name: f, tool: tool, inject: {{{kind}}}}}")
    result = await session.call("tool")
    assert (result.error.code, acted(session), fired(session)) == ("fault_failed", 0, {"f": 0})
    assert "already acted" not in result.message
    assert why_not_due(session, "f").startswith(
        "fault `f` never happened: it was due on call 1 of `tool`, but it failed"
    )


async def test_a_call_that_is_given_up_while_the_tool_acts_has_no_reply_to_lose():
    async def endless(call):
        await call.context.session.clock.sleep(100)
        return Result.success()

    session = fake(endless, "- {name: f, tool: tool, inject: lost_ack}", "timeout: 10s")
    assert (await session.call("tool")).outcome is Outcome.TIMEOUT
    assert why_not_due(session, "f") == (
        "fault `f` never happened: it was due on call 1 of `tool`, but the call was cancelled before the tool answered"
    )


async def test_planted_texts_and_errors_read_the_call():
    async def echo(call):
        return Result.success("page")

    session = fake(
        echo,
        """
        - {tool: tool, inject: {inject_text: {at: "", text: "call {{ call }} of {{ args.who }}"}}, when: {call: 1}}
        - {tool: tool, inject: {error: {code: "no_{{ args.who }}", message: "attempt {{ attempt }}"}}}
        """,
    )
    assert (await session.call("tool", {"who": "Ann"})).value == "page call 1 of Ann"
    failure = (await session.call("tool", {"who": "Bob"})).error
    assert (failure.code, failure.message) == ("no_Bob", "attempt 1")


async def test_an_expression_that_fails_is_told_with_its_line():
    session = failing(ordered(), "- {name: f, tool: tool, inject: {error: '{{ args.absent }}'}}")
    result = await session.call("tool")
    assert (result.outcome, result.error.code) == (Outcome.INTERNAL, "fault_failed")
    assert "args" in result.message
    session = failing(ordered(), "- {name: f, tool: tool, inject: empty, when: {if: '{{ args.absent }}'}}")
    assert (await session.call("tool")).error.code == "fault_failed"


async def test_a_limit_counts_what_it_lets_through_in_any_stretch_of_time():
    session = failing(ordered(), "- {tool: tool, inject: {rate_limit: {limit: 2, per: 1m}}}")
    clock = session.clock

    async def outcome():
        result = await session.call("tool")
        return "ok" if result.error is None else result.error.details["retry_after"]

    seen = []
    for wait in (0, 10, 10, 40, 0, 9.5, 0.5):
        await clock.advance(wait)
        seen.append(await outcome())
    # 0 ok, 10 ok, 20 refused, 60 ok (the first is out), 60 refused, 69.5 refused, 70 ok
    assert seen == ["ok", "ok", 40.0, "ok", 10.0, 0.5, "ok"]
    assert acted(session) == 4


async def test_what_is_refused_above_a_limit_is_tried_again_when_it_says_so():
    session = failing(
        ordered(more=f"{REPEATABLE}\n        timeout: 2m").replace("timeout: 10s", ""),
        "- {tool: tool, inject: {rate_limit: {limit: 1, per: 30s}}}",
    )
    first, second = [await session.call("tool") for _ in range(2)]
    assert (first.usage.attempts, second.usage.attempts, second.outcome) == (1, 2, Outcome.OK)
    assert 30 <= second.usage.duration < 41


async def test_an_attempt_that_another_fault_keeps_away_is_not_counted_by_a_limit():
    session = failing(
        ordered(),
        """
        - {name: cut, tool: tool, inject: disconnect, when: {first: 2}}
        - {name: quota, tool: tool, inject: {rate_limit: {limit: 1, per: 1m}}}
        """,
    )
    outcomes = [(await session.call("tool")).outcome.value for _ in range(4)]
    assert outcomes == ["transport_error", "transport_error", "ok", "tool_error"]


async def test_a_delivery_that_comes_twice_acts_twice_and_is_answered_once():
    session = failing(ordered(), "- {tool: tool, inject: duplicate_delivery}")
    result = await session.call("tool")
    assert (result.value["n"], result.usage.attempts, acted(session)) == (1, 1, 2)
    assert told(result)["second"] == "ok"


async def test_equal_arguments_are_answered_as_before_by_a_stale_tool_without_a_store():
    numbers = iter(range(1, 10))

    async def counting(call):
        return Result.success({"n": next(numbers), **call.arguments})

    session = fake(counting, "- {tool: tool, inject: stale, when: {first: 1}}")
    values = [(await session.call("tool", {"a": a})).value["n"] for a in (1, 2, 1, 1)]
    assert values == [1, 2, 1, 3]
    assert fired(session) == {"stale": 1}


async def test_nobody_can_change_what_is_remembered():
    async def listing(_call):
        return Result.success({"rows": [1]})

    session = fake(listing, "- {tool: tool, inject: stale}")
    for _ in range(3):
        value = (await session.call("tool")).value
        assert value == {"rows": [1]}
        value["rows"].append(2)


async def test_each_session_has_its_own_faults():
    text = "- {tool: tool, inject: disconnect, when: {first: 1}}"
    one, other = failing(ordered(), text), failing(ordered(), text)
    await one.call("tool")
    assert (fired(one), fired(other)) == ({"disconnect": 1}, {})
    assert why_not_due(other, "disconnect") == "fault `disconnect` was never due: no call reached its tools"
    assert why_not_due(one, "disconnect") == ""


async def test_a_static_mock_with_faults_has_the_layers_of_tools_that_reach_out():
    session = failing(ordered(), "- {tool: tool, inject: disconnect}")
    (tool,) = session.registry.values()
    chain = session._runtime.chain_for(tool)
    assert chain.layers[-2:] == ("results", "faults")
    assert {"deadline", "limits", "circuit_breaker"} <= {*chain.layers}
    assert (chain.bound.origin, chain.bound.repeatable, chain.bound.waits) == ("mock:tool", False, True)


async def test_a_tool_without_faults_has_none_of_it():
    session = failing(ordered() + "---\n" + ordered(name="other"), "- {tool: other, inject: disconnect}")
    chain = session._runtime.chain_for(session.registry["tool"])
    assert chain.at_once
    assert (await session.call("tool")).outcome is Outcome.OK


async def test_an_origin_that_fails_again_and_again_is_left_alone():
    session = failing(ordered(), "- {tool: tool, inject: disconnect, when: {first: 5}}")
    results = [await session.call("tool") for _ in range(6)]
    assert [result.outcome.value for result in results] == ["transport_error"] * 5 + ["overloaded"]
    await session.clock.advance(31)
    assert (await session.call("tool")).outcome is Outcome.OK


async def test_a_dry_run_says_which_fault_would_come_first_and_changes_nothing():
    session = failing(
        ordered(),
        """
        - {name: third, tool: tool, inject: hang, when: {call: 3}}
        - {name: once, tool: tool, inject: disconnect, when: {first: 1}}
        """,
    )
    expected = [
        {
            "name": "third",
            "kind": "hang",
            "due": False,
            "because": ["it waits for call 3, but this is call 1"],
        },
        {"name": "once", "kind": "disconnect", "due": True, "because": []},
    ]
    for _ in range(2):
        assert (await session.dry_run("tool")).value["plan"]["faults"] == expected
    await session.call("tool")
    again = (await session.dry_run("tool")).value["plan"]["faults"]
    assert again[1]["because"] == ["it applies only to the first 1 matching attempt"]


async def test_faults_that_are_wrong_keep_a_tool_from_being_bound():
    runtime = runtime_of(ordered(), clock=VirtualClock())
    wrong = InjectedFault("f", "tool", {"violate_schema": "missing_nothing"})
    registry = runtime.registry.with_tools([runtime.registry["tool"]._replace(faults=(wrong,))])
    result = await runtime.session(registry=registry).call("tool")
    assert (result.outcome, result.error.code) == (Outcome.UNAVAILABLE, "not_bound")
    assert "unknown violation `missing_nothing`" in result.message


async def test_what_happens_to_a_later_attempt_is_told_with_all_attempts():
    session = failing(
        ordered(more=REPEATABLE),
        "- {tool: tool, inject: disconnect, when: {attempt: 1}}\n- {tool: tool, inject: hang, when: {attempt: 2}}",
    )
    result = await session.call("tool")
    assert (result.outcome, result.usage, told(result)["kind"]) == (Outcome.TIMEOUT, (2, 10.0), "hang")


async def test_where_an_error_of_a_fault_stands_is_told():
    session = failing(ordered(), "- {tool: tool, inject: {error: {code: c, message: '{{ args.absent }}'}}}")
    at = (await session.call("tool")).error.details["at"]
    assert int(at.rpartition(":")[2]) > 10


async def test_a_violation_that_the_tool_lets_pass_reaches_the_caller():
    session = failing(
        ordered(more="on_invalid_result: pass"), "- {tool: tool, inject: {violate_schema: missing_id}}"
    )
    result = await session.call("tool")
    assert (result.outcome, result.value) == (Outcome.OK, {"n": 1})


@pytest.mark.parametrize(
    ("mock", "faults"),
    [
        ("{fault: disconnect}", "- {tool: tool, inject: hang, when: {call: 99}}"),
        ("{result: 1}", "- {tool: tool, inject: disconnect}"),
    ],
)
async def test_what_failed_is_tried_again_after_the_time_that_its_limits_say(mock, faults):
    limits = "limits: {attempts: 3, backoff: {first: 2s, longest: 3s}, breaker: 'off'}"
    text = f"name: tool\ninput_schema: {{}}\ntimeout: 1m\n{REPEATABLE}\n{limits}\nmock: {mock}\n"
    session = failing(text, faults, session={"id": "s", "seed": 1})
    usages = [(await session.call("tool")).usage for _ in range(5)]
    assert [usage.attempts for usage in usages] == [3] * 5
    assert all(0 < usage.duration < 2 + 3 for usage in usages)
    assert sum(usage.duration for usage in usages) == session.clock.monotonic()
    assert len({usage.duration for usage in usages}) == 5
