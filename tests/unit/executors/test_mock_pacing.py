"""Latency and progress of a mock, on virtual time."""

from __future__ import annotations

import asyncio
import statistics

import pytest

from in_memory import loaded, mocked, runtime_of
from toolcrib import Progress, Result, VirtualClock


def durations(latency, calls=1, **options):
    """How long so many calls of one session take, each by itself."""
    runtime = runtime_of(mocked(f"result: 1\nlatency: {latency}", more="timeout: 10m"), **options)

    async def measured():
        return [(await runtime.call("tool")).usage.duration for _ in range(calls)]

    return asyncio.run(measured())


@pytest.mark.parametrize(("latency", "seconds"), [("120ms", 0.12), ("2s", 2), ("1.5m", 90), ("0s", 0)])
def test_a_fixed_latency_is_waited(latency, seconds):
    assert durations(latency) == [seconds]


def test_a_range_is_drawn_evenly():
    drawn = durations("{min: 100ms, max: 300ms}", 200)
    assert 0.1 <= min(drawn) < 0.12
    assert 0.28 < max(drawn) <= 0.3
    assert 0.19 < statistics.mean(drawn) < 0.21


def test_a_curve_keeps_its_median_and_its_tail():
    drawn = sorted(durations("{median: 100ms, p99: 1s}", 600))
    assert 0.085 < statistics.median(drawn) < 0.115
    assert 0.6 < drawn[round(0.99 * 600)] < 1.6
    assert drawn[0] > 0


def test_a_curve_may_have_a_longest():
    drawn = durations("{median: 100ms, p99: 1s, max: 150ms}", 100)
    assert max(drawn) == pytest.approx(0.15)
    assert min(drawn) < 0.1


def test_a_curve_of_nothing_takes_no_time():
    assert durations("{median: 0s, p99: 1s}", 3) == [0, 0, 0]


def test_draws_are_the_same_for_the_same_seed_and_differ_by_call_session_and_seed():
    latency = "{min: 0s, max: 100s}"
    first = durations(latency, 5, seed=1)
    assert durations(latency, 5, seed=1) == first
    assert len(set(first)) == 5
    assert not set(first) & set(durations(latency, 5, seed=2))


def test_an_inserted_call_changes_no_other_ones_latency():
    text = "name: a\nmock: {result: 1, latency: {min: 0s, max: 20s}}\n---\nname: b\nmock: {result: 1}\n"

    async def measured(names):
        session = runtime_of(text).session(id="x", clock=VirtualClock())
        return [(await session.call(name)).usage.duration for name in names]

    alone = asyncio.run(measured("aaa"))
    mixed = asyncio.run(measured("abaab"))
    assert [duration for duration in mixed if duration] == alone


@pytest.mark.parametrize(
    ("latency", "pointer"),
    [("{min: 2s, max: 1s}", "/mock/latency/max"), ("{median: 2s, p99: 1s}", "/mock/latency/p99")],
)
def test_bounds_in_the_wrong_order_are_found_when_the_tool_is_loaded(latency, pointer):
    (problem,) = loaded(mocked(f"result: 1\nlatency: {latency}")).problems
    assert (problem.code, problem.pointer) == ("out_of_range", pointer)
    assert "`1s`" in problem.message
    assert "`2s`" in problem.message


def test_calls_side_by_side_wait_at_the_same_time():
    runtime = runtime_of(mocked("result: 1\nlatency: 10s"))

    async def both():
        clock = VirtualClock()
        session = runtime.session(clock=clock)
        await asyncio.gather(session.call("tool"), session.call("tool"))
        return clock.monotonic()

    assert asyncio.run(both()) == 10


def test_each_reply_has_its_own_pace():
    runtime = runtime_of(
        mocked("sequence: [{result: 1}, {result: 2, latency: 3s}, {error: no, latency: 5s}]")
    )

    async def measured():
        return [(await runtime.call("tool")).usage.duration for _ in range(3)]

    assert asyncio.run(measured()) == [0, 3, 5]


def stamped(block, arguments):
    """What a stream gives, each with the virtual time of its arrival."""
    clock = VirtualClock()
    runtime = runtime_of(mocked(block), clock=clock)

    async def watched():
        return [
            (clock.monotonic(), event.value if isinstance(event, Result) else event)
            async for event in runtime.stream("tool", arguments)
        ]

    return asyncio.run(watched())


def test_progress_arrives_in_order_after_its_waits():
    block = """
        result: done
        progress:
        - {progress: 0.5, total: 2, message: "at {{ args.where }}", after: 1s}
        - {progress: 1, message: "{{ args.where }}"}
        - {progress: 2, total: 2, after: 500ms}
        latency: 250ms
    """
    events = [event for _time, event in stamped(block, {"where": ["a", True]})]
    assert events == [
        Progress(0.5, 2, 'at ["a",true]'),
        Progress(1, None, '["a",true]'),
        Progress(2, 2, ""),
        "done",
    ]


def test_progress_without_waits_takes_no_time():
    runtime = runtime_of(mocked("result: 1\nprogress: [{progress: 1}]"))
    assert asyncio.run(runtime.call("tool")).usage.duration == 0


def test_waits_of_progress_and_the_latency_add_up():
    runtime = runtime_of(
        mocked("result: 1\nprogress: [{progress: 1, after: 1s}, {progress: 2, after: 2s}]\nlatency: 4s")
    )
    assert asyncio.run(runtime.call("tool")).usage.duration == 7
