"""Real and virtual time."""

from __future__ import annotations

import asyncio
import gc
import math
import re
import threading
import time
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolcrib.core.clock import (
    DURATION_PATTERN,
    START,
    RealClock,
    format_duration,
    parse_duration,
    run_in_thread,
)
from toolcrib.core.protocols import Clock
from toolcrib.core.virtual_clock import VirtualClock


async def call(clock: VirtualClock, *naps: float, log: list | None = None, name: str = "") -> float:
    """A call that sleeps; gives the virtual moment at which it ended."""
    with clock.working():
        for nap in naps:
            await clock.sleep(nap)
            if log is not None:
                log.append((clock.monotonic(), name))
    return clock.monotonic()


def both_are_clocks() -> list[Clock]:
    """Checked by mypy: both satisfy the contract."""
    return [RealClock(), VirtualClock()]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("250ms", 0.25),
        ("5s", 5.0),
        ("1.5m", 90.0),
        ("1h", 3600.0),
        ("2d", 172800.0),
        ("0s", 0.0),
        ("0.5ms", 0.0005),
    ],
)
def test_durations_carry_units(text, seconds):
    assert parse_duration(text) == seconds
    assert re.search(DURATION_PATTERN, text)
    assert parse_duration(format_duration(seconds)) == seconds


@pytest.mark.parametrize(
    "text", ["", "5", "5 s", "s", "-5s", "1h30m", ".5s", "5.s", "5S", "٥s", "5s\n", "1e3s"]
)
def test_a_text_that_is_no_duration_is_refused_with_examples(text):
    with pytest.raises(ValueError, match="250ms"):
        parse_duration(text)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0s"),
        (0.25, "250ms"),
        (90, "90s"),
        (61.5, "61.5s"),
        (120, "2m"),
        (7200, "2h"),
        (86400, "1d"),
        (-5, "-5s"),
    ],
)
def test_durations_are_written_for_people(seconds, text):
    assert format_duration(seconds) == text


@given(st.integers(0, 10**9))
def test_every_number_of_milliseconds_survives_being_written(milliseconds):
    assert parse_duration(format_duration(milliseconds / 1000)) == pytest.approx(milliseconds / 1000)


def test_real_time_passes():
    async def main():
        clock = RealClock()
        before = clock.monotonic()
        with clock.working(), clock.outside(), clock.waiting():
            await clock.sleep(0.001)
            await clock.sleep(-1)
        assert clock.monotonic() - before >= 0.001
        assert abs(clock.now() - datetime.now(UTC)) < timedelta(seconds=5)

    asyncio.run(main())


def test_a_real_timeout_ends_what_takes_longer():
    async def main():
        clock = RealClock()
        with pytest.raises(TimeoutError):
            async with clock.timeout(0.001):
                await asyncio.Event().wait()
        async with clock.timeout(math.inf):
            pass

    asyncio.run(main())


def test_virtual_time_starts_at_zero_and_at_a_fixed_day():
    clock = VirtualClock()
    assert clock.monotonic() == 0.0
    assert clock.now() == START == datetime(2030, 1, 1, tzinfo=UTC)


def test_the_start_is_given_in_any_zone_and_read_in_utc():
    clock = VirtualClock(datetime(2031, 5, 6, 14, tzinfo=timezone(timedelta(hours=2))))
    assert clock.now().isoformat() == "2031-05-06T12:00:00+00:00"
    with pytest.raises(ValueError, match="time zone"):
        VirtualClock(datetime(2031, 5, 6))  # noqa: DTZ001


def test_a_sleep_outside_any_call_jumps_at_once():
    async def main():
        clock = VirtualClock()
        await clock.sleep(3600)
        return clock.monotonic(), clock.now()

    assert asyncio.run(main()) == (3600.0, START + timedelta(hours=1))


def test_a_sleep_of_no_time_lets_others_run_and_moves_nothing():
    async def main():
        clock = VirtualClock()
        await clock.sleep(0)
        await clock.sleep(-1)
        return clock.monotonic()

    assert asyncio.run(main()) == 0.0


def test_hours_take_no_time():
    began = time.perf_counter()
    assert asyncio.run(call(VirtualClock(), *[3600] * 100)) == 360000.0
    assert time.perf_counter() - began < 60


def test_parallel_calls_sleep_side_by_side():
    async def main():
        clock, log = VirtualClock(), []
        ends = await asyncio.gather(
            call(clock, 5, 1, log=log, name="a"),
            call(clock, 2, 2, log=log, name="b"),
            call(clock, 3, log=log, name="c"),
        )
        return ends, log

    ends, log = asyncio.run(main())
    assert ends == [6.0, 4.0, 3.0]
    assert log == [(2.0, "b"), (3.0, "c"), (4.0, "b"), (5.0, "a"), (6.0, "a")]


def test_what_is_due_together_wakes_in_the_order_of_registration():
    async def main():
        clock, log = VirtualClock(), []
        await asyncio.gather(*(call(clock, 1, 1, log=log, name=name) for name in "dacb"))
        return "".join(name for _, name in log)

    assert asyncio.run(main()) == "dacbdacb"


def test_thirds_add_up_without_drift():
    assert asyncio.run(call(VirtualClock(), *[0.1] * 10)) == 1.0


def test_time_stands_still_while_a_call_works():
    async def main():
        clock, gate = VirtualClock(), asyncio.Event()

        async def worker():
            with clock.working():
                await gate.wait()
                return clock.monotonic()

        sleeper = asyncio.create_task(call(clock, 10))
        work = asyncio.create_task(worker())
        for _ in range(50):
            await clock.sleep(0)
        assert not sleeper.done()
        gate.set()
        return await work, await sleeper

    assert asyncio.run(main()) == (0.0, 10.0)


def test_a_call_that_waits_for_another_says_so_and_holds_nothing_back():
    async def main():
        clock, one_at_a_time = VirtualClock(), asyncio.Semaphore(1)

        async def limited():
            with clock.working():
                with clock.waiting():
                    await one_at_a_time.acquire()
                try:
                    await clock.sleep(5)
                finally:
                    one_at_a_time.release()
                return clock.monotonic()

        return await asyncio.gather(limited(), limited(), limited())

    assert asyncio.run(main()) == [5.0, 10.0, 15.0]


def test_a_call_within_a_call_is_one_that_its_parent_waits_for():
    async def main():
        clock = VirtualClock()
        with clock.working():
            ends = await asyncio.gather(call(clock, 1), call(clock, 4))
            await clock.sleep(1)
        return ends, clock.monotonic()

    assert asyncio.run(main()) == ([1.0, 4.0], 5.0)


def test_tasks_of_one_call_sleep_side_by_side():
    async def main():
        clock = VirtualClock()
        with clock.working():
            await asyncio.gather(clock.sleep(3), clock.sleep(2))
        return clock.monotonic()

    assert asyncio.run(main()) == 3.0


def test_the_next_call_of_an_agent_begins_before_time_jumps():
    """What a wake-up sets in motion passes through tasks; a long sleeper must not win meanwhile."""

    async def main():
        clock = VirtualClock()

        async def agent():
            for _ in range(3):
                await asyncio.gather(call(clock, 1), call(clock, 1))
            return clock.monotonic()

        async with asyncio.TaskGroup() as group:
            slow = group.create_task(call(clock, 100))
            quick = group.create_task(agent())
        return quick.result(), slow.result()

    assert asyncio.run(main()) == (3.0, 100.0)


def test_two_clocks_know_nothing_of_each_other():
    async def main():
        outer, inner = VirtualClock(), VirtualClock()
        with outer.working():
            assert await call(inner, 5) == 5.0
            with inner.working():
                await outer.sleep(1)
        return outer.monotonic(), inner.monotonic()

    assert asyncio.run(main()) == (1.0, 5.0)


def test_a_timeout_ends_what_takes_longer():
    async def main():
        clock = VirtualClock()
        with pytest.raises(TimeoutError), clock.working():
            async with clock.timeout(5):
                await clock.sleep(60)
        assert clock.monotonic() == 5.0
        await clock.sleep(1)
        return clock.monotonic()

    assert asyncio.run(main()) == 6.0


def test_an_endless_sleep_ends_by_a_timeout_and_endless_time_never_expires():
    async def main():
        clock = VirtualClock()
        with pytest.raises(TimeoutError):
            async with clock.timeout(2):
                await clock.sleep(math.inf)
        async with clock.timeout(math.inf):
            await clock.sleep(1)
        return clock.monotonic()

    assert asyncio.run(main()) == 3.0


def test_a_block_that_takes_exactly_its_time_is_in_time():
    async def main():
        clock = VirtualClock()
        async with clock.timeout(0.3):
            await clock.sleep(0.1)
            await clock.sleep(0.2)
        return clock.monotonic()

    assert asyncio.run(main()) == 0.3


def test_a_timeout_of_no_time_refuses_every_sleep():
    async def main():
        clock = VirtualClock()
        with pytest.raises(TimeoutError):
            async with clock.timeout(-1):
                await clock.sleep(1)
        return clock.monotonic()

    assert asyncio.run(main()) == 0.0


def test_a_timeout_that_was_not_needed_leaves_nothing_behind():
    async def main():
        clock = VirtualClock()
        async with clock.timeout(50):
            pass
        await clock.sleep(60)
        return clock.monotonic()

    assert asyncio.run(main()) == 60.0


def test_nested_timeouts_end_at_the_nearer_one():
    async def main():
        clock = VirtualClock()
        async with clock.timeout(10):
            with pytest.raises(TimeoutError):
                async with clock.timeout(3):
                    await clock.sleep(60)
            await clock.sleep(6)
        return clock.monotonic()

    assert asyncio.run(main()) == 9.0


def test_nobody_else_wakes_while_a_cancellation_is_on_its_way():
    """Deep tasks take many turns to be cancelled; time must wait for them."""

    async def main():
        clock, seen = VirtualClock(), []

        async def deep(levels):
            if levels:
                await asyncio.gather(asyncio.create_task(deep(levels - 1)))
            else:
                await clock.sleep(60)

        async def cancelled():
            with clock.working():
                try:
                    async with clock.timeout(5):
                        await deep(12)
                except TimeoutError:
                    seen.append(clock.monotonic())

        await asyncio.gather(cancelled(), call(clock, 100))
        return seen

    assert asyncio.run(main()) == [5.0]


def test_a_call_may_sleep_while_it_cleans_up_after_its_timeout():
    async def main():
        clock = VirtualClock()
        with clock.working(), pytest.raises(TimeoutError):  # noqa: PT012
            async with clock.timeout(5):
                try:
                    await clock.sleep(60)
                finally:
                    await clock.sleep(1)
        return clock.monotonic()

    assert asyncio.run(main()) == 6.0


def test_cancelling_a_sleeper_takes_it_out():
    async def main():
        clock = VirtualClock()
        gate = asyncio.Event()

        async def busy():
            with clock.working():
                await gate.wait()

        worker = asyncio.create_task(busy())
        sleeper = asyncio.create_task(call(clock, 60))
        await clock.sleep(0)
        sleeper.cancel()
        with pytest.raises(asyncio.CancelledError):
            await sleeper
        gate.set()
        await worker
        await clock.sleep(1)
        return clock.monotonic()

    assert asyncio.run(main()) == 1.0


def test_a_cancellation_from_outside_is_not_a_timeout():
    async def main():
        clock = VirtualClock()

        async def guarded():
            async with clock.timeout(5):
                await asyncio.Event().wait()

        task = asyncio.create_task(guarded())
        await asyncio.sleep(0)  # noqa: TID251
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        return clock.monotonic()

    assert asyncio.run(main()) == 0.0


def test_the_world_takes_real_time():
    async def main():
        clock = VirtualClock()
        began = time.perf_counter()
        with clock.working(), clock.outside():
            await RealClock().sleep(0.02)
        inside = clock.monotonic()
        assert 0.02 <= inside <= time.perf_counter() - began + 0.001
        await clock.sleep(10)
        return clock.monotonic() - inside

    assert asyncio.run(main()) == pytest.approx(10.0)


def test_a_timeout_over_the_world_is_real():
    async def main():
        clock = VirtualClock()
        with clock.working():
            async with clock.timeout(1):
                with clock.outside():
                    await RealClock().sleep(0.01)
            with pytest.raises(TimeoutError):  # noqa: PT012
                async with clock.timeout(0.01):
                    with clock.outside():
                        await asyncio.Event().wait()
        return clock.monotonic()

    assert asyncio.run(main()) >= 0.02


def test_sleepers_wake_in_real_time_while_somebody_is_outside():
    async def main():
        clock, log, slept = VirtualClock(), [], asyncio.Event()

        async def fetch():
            with clock.working(), clock.outside():
                await slept.wait()
                log.append("fetched")

        async def nap():
            await call(clock, 0.01, log=log, name="slept")
            slept.set()

        await asyncio.gather(fetch(), nap(), call(clock, 500, log=log, name="late"))
        return [entry if isinstance(entry, str) else entry[1] for entry in log]

    assert asyncio.run(main()) == ["slept", "fetched", "late"]


def test_a_nearer_timer_is_seen_while_outside():
    async def main():
        clock = VirtualClock()
        with clock.outside(), clock.outside():
            far = asyncio.create_task(call(clock, 300))
            await clock.sleep(0.005)
        return await far

    assert asyncio.run(main()) == pytest.approx(300, abs=60)


def test_advancing_wakes_all_that_is_due_in_order():
    async def main():
        clock, log, gate = VirtualClock(), [], asyncio.Event()

        async def busy():
            with clock.working():
                await gate.wait()

        tasks = [asyncio.create_task(busy())]
        tasks += [
            asyncio.create_task(call(clock, *naps, log=log, name=name))
            for naps, name in [((3, 3), "a"), ((2,), "b")]
        ]
        await clock.advance(5)
        assert clock.monotonic() == 5.0
        assert log == [(2.0, "b"), (3.0, "a")]
        gate.set()
        await asyncio.gather(*tasks)
        return log[-1]

    assert asyncio.run(main()) == (6.0, "a")


@pytest.mark.parametrize("seconds", [-1, math.inf, math.nan])
def test_time_is_advanced_forwards_and_by_finite_steps(seconds):
    with pytest.raises(ValueError, match="finite number"):
        asyncio.run(VirtualClock().advance(seconds))


def test_a_clock_outlives_the_loop_that_was_stopped_with_a_jump_pending():
    clock = VirtualClock()

    async def leave_early():
        asyncio.create_task(clock.sleep(5))  # noqa: RUF006
        await asyncio.sleep(0)  # noqa: TID251

    asyncio.run(leave_early())
    assert clock.monotonic() == 0.0
    assert asyncio.run(call(clock, 7)) == 7.0


@given(st.lists(st.lists(st.integers(1, 50), min_size=1, max_size=4), min_size=1, max_size=5))
def test_each_call_ends_at_the_sum_of_its_naps(plans):
    async def main():
        clock = VirtualClock()
        return await asyncio.gather(*(call(clock, *naps) for naps in plans))

    assert asyncio.run(main()) == [float(sum(naps)) for naps in plans]


@pytest.mark.parametrize("turns", range(14))
def test_a_sleeper_may_be_cancelled_at_any_turn_of_the_loop(turns):
    async def main():
        clock = VirtualClock()
        sleeper = asyncio.create_task(call(clock, 60))
        for _ in range(turns):
            await clock.sleep(0)
        sleeper.cancel()
        await asyncio.wait([sleeper])
        before = clock.monotonic()
        assert before in {0.0, 60.0}
        await clock.sleep(1)
        return clock.monotonic() - before

    assert asyncio.run(main()) == 1.0


async def test_one_thread_computes_at_a_time_and_a_cancelled_caller_keeps_its_place():
    began, free, order = threading.Event(), threading.Event(), []

    def hold():
        began.set()
        free.wait(60)
        order.append("first")

    first = asyncio.create_task(run_in_thread(RealClock(), hold))
    await asyncio.to_thread(began.wait, 60)
    second = asyncio.create_task(run_in_thread(RealClock(), lambda: order.append("second")))
    first.cancel()
    async with asyncio.timeout(60):
        with pytest.raises(asyncio.CancelledError):
            await first
    # The loop goes round many times, and the second one still waits for the thread of the first.
    for _ in range(50):
        await RealClock().sleep(0)
    assert order == []
    free.set()
    async with asyncio.timeout(60):
        await second
    assert order == ["first", "second"]


async def test_work_in_a_thread_sees_the_context_and_may_fail():
    value = ContextVar("value", default=0)
    value.set(7)
    assert await run_in_thread(RealClock(), value.get) == 7
    with pytest.raises(ZeroDivisionError):
        await run_in_thread(RealClock(), lambda: 1 // 0)
    assert await run_in_thread(RealClock(), lambda: "goes on") == "goes on"


async def test_an_error_after_the_caller_was_cancelled_is_no_report_of_asyncio(caplog):
    free = threading.Event()

    def fail():
        free.wait(60)
        raise ValueError("nobody awaits it")

    task = asyncio.create_task(run_in_thread(RealClock(), fail))
    await RealClock().sleep(0)
    await RealClock().sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    free.set()
    await run_in_thread(RealClock(), lambda: None)
    gc.collect()
    assert caplog.records == []
