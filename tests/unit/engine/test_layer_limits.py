"""Layer `limits`: rates, places and queues of tools and their origins."""

from __future__ import annotations

import asyncio
import gc
from threading import RLock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from reaching import ORIGIN, Reached, Script, reaching
from sampling import examples
from toolcrib import CallFinished, Outcome, RealClock, Result, VirtualClock
from toolcrib.core.model import Annotations, Bounds, Limits, Rate
from toolcrib.engine.middleware import build_chain
from toolcrib.engine.middleware.layer import LayerContext, SharedState
from toolcrib.engine.middleware.limits import DeclaredBounds, Limiter


def gather(runtime, *names, clock=None):
    async def run():
        session = runtime if clock is None else runtime.session(clock=clock)
        return await asyncio.gather(*(session.call(name) for name in names))

    return asyncio.run(run())


def ends(results):
    return [result.outcome.value for result in results]


# Places


def test_so_many_calls_are_under_way_at_once():
    script = Script(takes=1)
    results = gather(reaching(script, "limits: {concurrency: 3}"), *["tool"] * 10)
    assert script.most_inside == 3
    assert ends(results) == ["ok"] * 10
    assert script.times == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3]


def test_without_a_word_ten_calls_are_under_way_and_a_hundred_wait():
    script = Script(takes=1)
    results = gather(reaching(script), *["tool"] * 115)
    assert script.most_inside == 10
    assert ends(results) == ["ok"] * 110 + ["overloaded"] * 5


def test_a_full_queue_is_told_at_once():
    script = Script(takes=1)
    *_, last = gather(reaching(script, "limits: {concurrency: 1, queue: 2}"), *["tool"] * 4)
    assert (last.outcome, last.error.code) == (Outcome.OVERLOADED, "queue_full")
    assert last.message == "the queue of `tool` is full: 1 running, 2 waiting (at most 2)"
    assert last.error.details == {
        "limit": "queue",
        "of": "tool",
        "value": 2,
        "measured": 2,
        "at": "tools.yaml:3",
        "under_way": 1,
    }
    assert last.error.retryable
    assert last.usage == (0, 0.0)


def test_no_queue_at_all():
    script = Script(takes=1)
    assert ends(gather(reaching(script, "limits: {concurrency: 1, queue: 0}"), "tool", "tool")) == [
        "ok",
        "overloaded",
    ]


def test_the_order_of_arrival_is_that_of_the_answers():
    script = Script(takes=1)
    runtime = reaching(script, "limits: {concurrency: 1}")
    gather(runtime, *["tool"] * 20)
    numbers = [int(call.id.rpartition("-")[2]) for call in script.calls]
    assert numbers == sorted(numbers)


def test_the_tools_of_an_origin_share_its_places():
    script = Script(takes=1)
    runtime = reaching(
        script, "limits: {origin: {concurrency: 2}}", "", "fake: {origin: 'https://b.example'}"
    )
    gather(runtime, "tool")  # the first call of a tool makes its saying known
    script.most_inside = 0
    gather(runtime, *["tool", "tool_2"] * 5)
    assert script.most_inside == 2
    script.most_inside = 0
    gather(runtime, *["tool", "tool_2", "tool_3"] * 5)
    assert script.most_inside == 2 + 5


def test_an_origins_queue_counts_the_calls_of_all_tools():
    script = Script(takes=1)
    more = "limits: {concurrency: 1, origin: {concurrency: 1, queue: 3}}"
    *_, last = gather(reaching(script, more, more), "tool", "tool", "tool_2", "tool_2", "tool_2")
    assert last.message == f"the queue of `{ORIGIN}` is full: 1 running, 3 waiting (at most 3)"


def test_tools_of_an_origin_take_turns():
    script = Script(takes=1)
    more = "limits: {origin: {concurrency: 1}}"
    gather(reaching(script, more, more), *["tool"] * 4, "tool_2", "tool_2")
    names = [call.tool.name for call in script.calls]
    assert names == ["tool", "tool", "tool_2", "tool", "tool_2", "tool"]


def test_a_tool_that_waits_for_itself_keeps_no_place_of_its_origin():
    script = Script(takes=1)
    runtime = reaching(script, "limits: {rate: 1/10s, origin: {concurrency: 1}}", "")
    gather(runtime, "tool", "tool", "tool_2", "tool_2")
    assert [call.tool.name for call in script.calls] == ["tool", "tool_2", "tool_2", "tool"]
    assert script.times == [0, 1, 2, 10]


def test_a_place_is_given_back_whatever_happens():
    async def answer(_call):
        raise KeyError("x")

    runtime = reaching(answer, "limits: {concurrency: 1, queue: 0, origin: {concurrency: 1}}")

    async def run():
        return [(await runtime.call("tool")).outcome.value for _ in range(3)]

    assert asyncio.run(run()) == ["internal"] * 3


# Rates


def test_so_many_calls_pass_in_a_time_and_the_others_wait():
    script = Script()
    results = gather(reaching(script, "limits: {rate: 3/1s}"), *["tool"] * 7)
    assert ends(results) == ["ok"] * 7
    assert script.times == [0, 0, 0, 1, 1, 1, 2]


def test_a_call_that_would_come_too_late_ends_at_once():
    script = Script()
    results = gather(reaching(script, "timeout: 5s\nlimits: {rate: 2/4s}"), *["tool"] * 5)
    late = results[-1]
    assert ends(results) == ["ok"] * 4 + ["limit_exceeded"]
    assert (late.error.code, late.error.retryable) == ("rate_limited", True)
    assert late.message == "the rate limit of `tool` is 2/4s, 2 used; retry after 8s"
    assert late.error.details == {
        "limit": "rate",
        "of": "tool",
        "value": "2/4s",
        "measured": 2,
        "at": "tools.yaml:4",
        "retry_after": 8.0,
    }
    assert late.usage == (0, 0.0)


def test_the_rate_of_an_origin_is_shared():
    script = Script()
    more = "limits: {origin: {rate: 2/1s}}"
    gather(reaching(script, more, more), *["tool", "tool_2"] * 3)
    assert script.times == [0, 0, 1, 1, 2, 2]


def test_the_rate_of_an_origin_may_be_too_late_as_well():
    script = Script()
    late = gather(reaching(script, "limits: {origin: {rate: 1/1m}}"), "tool", "tool")[-1]
    assert late.message == f"the rate limit of `{ORIGIN}` is 1/1m, 1 used; retry after 1m"


def test_what_turns_out_too_late_only_in_the_queue_ends_there():
    script = Script(takes=2)
    more = "timeout: 5s\nlimits: {concurrency: 1, origin: {rate: 2/9s}}"
    results = gather(reaching(script, more, more), "tool", "tool", "tool_2")
    assert ends(results) == ["ok", "limit_exceeded", "ok"]
    assert results[1].message == f"the rate limit of `{ORIGIN}` is 2/9s, 2 used; retry after 7s"
    assert results[1].usage == (0, 2.0)


def test_a_rate_that_turns_out_too_slow_in_the_line_of_the_tool_is_told_there():
    times = iter([2, 2, 0])

    async def answer(call):
        await call.context.session.clock.sleep(next(times))
        return Result.success()

    runtime = reaching(answer, "timeout: 5s\nlimits: {concurrency: 1, rate: 2/4s}")
    results = gather(runtime, *["tool"] * 4)
    assert ends(results) == ["ok"] * 3 + ["limit_exceeded"]
    assert results[-1].message == "the rate limit of `tool` is 2/4s, 2 used; retry after 2s"
    assert results[-1].usage == (0, 4.0)


def test_a_line_that_is_too_long_for_the_rate_is_not_joined():
    script = Script(takes=2)
    late = gather(reaching(script, "timeout: 5s\nlimits: {rate: 1/2s}"), *["tool"] * 4)[-1]
    assert late.message == "the rate limit of `tool` is 1/2s, 1 used; retry after 6s"
    assert late.usage == (0, 0.0)


def test_a_tool_without_a_deadline_waits_for_its_rate():
    script = Script()
    assert ends(gather(reaching(script, "limits: {rate: 1/1h}", waits=False), "tool", "tool")) == ["ok", "ok"]
    assert script.times == [0, 3600]


# The deadline and cancelled callers


def test_a_timeout_names_the_queue_in_which_it_came():
    script = Script(takes=20)
    runtime = reaching(script, "timeout: 25s\nlimits: {concurrency: 1}")
    results = gather(runtime, "tool", "tool", "tool")
    assert ends(results) == ["ok", "timeout", "timeout"]
    last = results[2]
    assert last.message == "`tool` did not answer within 25s; it waited in the queue of `tool`"
    assert last.error.details == {
        "limit": "timeout",
        "value": "25s",
        "measured": 25.0,
        "at": "tools.yaml:3",
        "queue": "tool",
    }
    assert last.error.retryable
    assert last.usage == (0, 25.0)
    second = results[1]
    assert second.message == "`tool` did not answer within 25s"
    assert second.usage == (1, 25.0)


def test_a_timeout_names_the_queue_of_the_origin():
    script = Script(takes=40)
    results = gather(reaching(script, "limits: {origin: {concurrency: 1}}", waits=True), "tool", "tool")
    assert results[1].error.details == {
        "limit": "timeout",
        "value": "30s",
        "measured": 30.0,
        "queue": ORIGIN,
    }


@pytest.mark.exhaustive
def test_a_thousand_cancelled_waiters_leave_nothing():
    script = Script(takes=1)
    runtime = reaching(script, "limits: {concurrency: 2, queue: 2000, origin: {concurrency: 2}}", "")

    async def run():
        tasks = [asyncio.ensure_future(runtime.call("tool")) for _ in range(1002)]
        await script.begun.wait()
        for task in tasks[2:]:
            task.cancel()
        await asyncio.wait(tasks)
        await asyncio.gather(*(runtime.call("tool") for _ in range(4)))
        return [task.cancelled() for task in tasks]

    cancelled = asyncio.run(run())
    assert cancelled == [False] * 2 + [True] * 1000
    assert (script.most_inside, script.inside, len(script.calls)) == (2, 0, 6)
    assert script.times == [0, 0, 1, 1, 2, 2]
    gc.collect()
    gates = [each for each in gc.get_objects() if isinstance(each, Limiter)]
    assert [(gate.inside, gate.waiting, gate.line) for gate in gates] == [(0, 0, 0)] * len(gates)


def test_a_cancelled_call_gives_its_place_to_the_next():
    script = Script(takes=5)
    runtime = reaching(script, "limits: {concurrency: 1}")

    async def run():
        first, second = (asyncio.ensure_future(runtime.call("tool")) for _ in range(2))
        await script.begun.wait()
        first.cancel()
        return await second

    assert asyncio.run(run()).outcome is Outcome.OK
    assert script.times == [0, 0]


def test_the_front_of_a_line_that_is_cancelled_lets_the_next_one_go_on():
    script = Script(takes=10)
    runtime = reaching(script, "limits: {rate: 1/2s}")

    async def run():
        tasks = [asyncio.ensure_future(runtime.call("tool")) for _ in range(3)]
        await script.begun.wait()
        tasks[1].cancel()
        return await tasks[2]

    assert asyncio.run(run()).outcome is Outcome.OK
    assert script.times == [0, 2]


def test_observers_are_told_that_a_cancelled_waiter_did_nothing():
    seen = []
    script = Script(takes=5)
    runtime = reaching(script, "limits: {concurrency: 1}", observer=seen.append)

    async def run():
        tasks = [asyncio.ensure_future(runtime.call("tool")) for _ in range(2)]
        await script.begun.wait()
        for task in reversed(tasks):
            task.cancel()
            await asyncio.wait([task])

    asyncio.run(run())
    waiting, running = (event.result for event in seen if isinstance(event, CallFinished))
    assert (waiting.usage.attempts, waiting.error.details) == (0, {})
    assert (running.usage.attempts, running.error.details) == (1, {"may_have_acted": True})


# Whose they are


def test_sessions_on_real_time_share_and_those_on_virtual_time_do_not():
    script = Script()
    runtime = reaching(script, "limits: {rate: 1/10m}\ntimeout: 1s", clock=RealClock())

    def call(clock):
        return gather(runtime, "tool", clock=clock)[0].outcome.value

    assert [call(RealClock()), call(RealClock()), call(VirtualClock()), call(VirtualClock())] == [
        "ok",
        "limit_exceeded",
        "ok",
        "ok",
    ]


def test_sessions_on_one_virtual_clock_share():
    script, clock = Script(), VirtualClock()
    runtime = reaching(script, "limits: {rate: 1/10m}\ntimeout: 1s")
    assert [gather(runtime, "tool", clock=clock)[0].outcome.value for _ in range(2)] == [
        "ok",
        "limit_exceeded",
    ]


def test_the_state_of_a_clock_goes_with_it():
    shared = SharedState()
    clock = VirtualClock()
    piece = shared.slot("x", list, clock)
    assert shared.slot("x", list, clock) is piece
    assert shared.slot("x", list, VirtualClock()) is not piece
    assert shared.slot("x", list, RealClock()) is shared.slot("x", list, RealClock()) is not piece
    assert shared.slot("x", list) is shared.slot("x", list) is not piece


def test_of_several_sayings_the_strictest_counts_as_long_as_somebody_says_it():
    sayings = DeclaredBounds(RLock())
    kept = sayings.add(Bounds(Rate(60, 60.0), 20, None))
    strict = sayings.add(Bounds(Rate(1, 2.0), None, 5))
    sayings.add(Bounds())
    assert sayings.strictest == Bounds(Rate(1, 2.0), 20, 5)
    del strict
    gc.collect()
    assert sayings.strictest == Bounds(Rate(60, 60.0), 20, None)
    again = sayings.add(Bounds(Rate(1, 1.0), 30, None))
    assert sayings.strictest == Bounds(Rate(1, 1.0), 20, None)
    assert (kept.among, again.among) == (sayings, sayings)


# Laws

RATES = st.builds(Rate, st.integers(1, 5), st.sampled_from([0.1, 1.0, 2.5]))
PAUSES = st.lists(st.sampled_from([0.0, 0.0, 0.05, 0.1, 0.3, 1.0, 3.0]), min_size=1, max_size=25)


def written(rate):
    return f"{rate.calls}/{rate.seconds:g}s"


@settings(deadline=None, max_examples=examples(60))
@given(
    RATES,
    st.none() | RATES,
    st.integers(1, 4),
    st.none() | st.integers(1, 4),
    PAUSES,
    st.sampled_from([0.0, 0.07, 0.5]),
    st.sets(st.integers(0, 24)),
)
def test_neither_places_nor_rates_are_ever_exceeded_and_arrival_is_order(
    rate, shared_rate, places, shared_places, pauses, takes, cancelled
):
    script = Script(takes=takes)
    origin = "".join(
        (
            f"rate: {written(shared_rate)}, " if shared_rate else "",
            f"concurrency: {shared_places}" if shared_places else "",
        )
    )
    more = f"timeout: 10m\nlimits: {{rate: {written(rate)}, concurrency: {places}, origin: {{{origin}}}}}"
    runtime = reaching(script, more)
    clock = VirtualClock()
    session = runtime.session(clock=clock)

    async def one(pause, gives_up):
        with clock.working():
            await clock.sleep(pause)
            try:
                async with clock.timeout(0.2 if gives_up else 10_000):
                    return await session.call("tool")
            except TimeoutError:
                return None

    async def run():
        moments = [sum(pauses[: number + 1]) for number in range(len(pauses))]
        return await asyncio.gather(*(one(at, number in cancelled) for number, at in enumerate(moments)))

    results = asyncio.run(run())
    assert all(result is None or result.outcome is Outcome.OK for result in results)
    assert script.most_inside <= min(places, shared_places or places)
    assert script.inside == 0
    for bound in filter(None, (rate, shared_rate)):
        for first, over in zip(script.times, script.times[bound.calls :], strict=False):
            assert over - first >= bound.seconds - 1e-6
    numbers = [int(call.id.rpartition("-")[2]) for call in script.calls]
    assert numbers == sorted(numbers)


@given(RATES, st.lists(st.floats(0, 5), max_size=20), st.integers(0, 12))
def test_a_rate_tells_beforehand_how_long_it_takes(rate, pauses, ahead):
    """What is foretold to the last one of a line is what comes about."""
    gate, now, bounds = Limiter(RLock()), 0.0, Bounds(rate)
    for pause in pauses:
        now += max(pause, gate.delay(rate, now))
        gate.enter(bounds, now)
    foretold = gate.delay(rate, now, ahead)
    moment = now
    for _ in range(ahead):
        moment += gate.delay(rate, moment)
        gate.enter(bounds, moment)
    assert moment + gate.delay(rate, moment) == pytest.approx(now + foretold, abs=1e-6)


def test_layers_stand_only_where_they_are_used():
    tool = reaching(Script()).registry["tool"]
    reads = tool._replace(annotations=Annotations(read_only=True))
    alone = tool._replace(limits=Limits(attempts=1, breaker=None, cache=0), annotations=reads.annotations)

    def names(tool, *, repeatable):
        bound = Reached(Script(), ORIGIN, repeatable=repeatable)
        return [*build_chain(LayerContext(tool, bound, SharedState())).layers]

    assert names(tool, repeatable=True) == [
        "arguments",
        "deadline",
        "limits",
        "retry",
        "circuit_breaker",
        "results",
    ]
    assert names(reads, repeatable=False) == [
        "arguments",
        "cache",
        "deadline",
        "limits",
        "circuit_breaker",
        "results",
    ]
    assert names(alone, repeatable=True) == ["arguments", "deadline", "limits", "results"]
