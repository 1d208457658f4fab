"""Layer `limits` in several threads at once, each with an event loop of its own."""

from __future__ import annotations

import asyncio
import threading

import pytest

from reaching import reaching
from toolcrib import Outcome, RealClock, Result
from toolcrib.core.model import Bounds
from toolcrib.engine.middleware.limits import Limiter


class Doors:
    """Answers a call as soon as it is let out; knows how many were inside at most."""

    def __init__(self):
        self.came = threading.Semaphore(0)
        self.out = threading.Semaphore(0)
        self.inside = self.most = 0
        self._counting = threading.Lock()

    async def __call__(self, _call):
        with self._counting:
            self.inside += 1
            self.most = max(self.most, self.inside)
        self.came.release()
        await asyncio.to_thread(self.out.acquire)
        with self._counting:
            self.inside -= 1
        return Result.success(1)


def in_threads(runtime, number, *, calls=1):
    found = []

    async def run():
        found.extend(await asyncio.gather(*(runtime.call("tool") for _ in range(calls))))

    threads = [threading.Thread(target=lambda: asyncio.run(run())) for _ in range(number)]
    for thread in threads:
        thread.start()
    return threads, found


@pytest.mark.parametrize("limits", ["{concurrency: 1}", "{origin: {concurrency: 1}}"])
def test_who_waits_in_another_thread_is_woken(limits):
    doors = Doors()
    runtime = reaching(doors, f"limits: {limits}\ntimeout: 1m", clock=RealClock())
    threads, found = in_threads(runtime, 3)
    for _ in threads:
        doors.came.acquire()
        doors.out.release()
    for thread in threads:
        thread.join()
    assert [result.outcome for result in found] == [Outcome.OK] * 3
    assert doors.most == 1


def test_places_hold_for_the_calls_of_many_threads():
    doors = Doors()
    runtime = reaching(doors, "limits: {concurrency: 3, queue: 1000}\ntimeout: 1m", clock=RealClock())
    doors.out.release(160)
    threads, found = in_threads(runtime, 8, calls=20)
    for thread in threads:
        thread.join()
    assert [result.outcome for result in found] == [Outcome.OK] * 160
    assert 1 <= doors.most <= 3
    assert doors.inside == 0


def test_who_was_left_waiting_in_a_closed_event_loop_stands_in_nobodys_way():
    gate, clock, one = Limiter(threading.RLock()), RealClock(), Bounds(concurrency=1)
    gate.enter(one, 0.0)

    async def passes():
        async with gate.front(clock):
            return await gate.opening(one, clock, None)

    async def left_behind():
        await asyncio.gather(passes(), passes())

    gone = asyncio.new_event_loop()
    task = gone.create_task(left_behind())
    gone.call_soon(gone.stop)
    gone.run_forever()
    gone.run_until_complete(asyncio.wait([task], timeout=0))
    assert gate.line == 2
    gone.close()

    async def later():
        waits = asyncio.ensure_future(passes())
        await asyncio.wait([waits], timeout=0)
        gate.leave()
        return await waits

    assert asyncio.run(later()) == 0.0
