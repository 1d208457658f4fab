"""The end of a server: what the first, the second and the third signal do."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import pytest

from in_memory import always, fake
from toolcrib import ClosedRuntime, RealClock, Result
from toolcrib.serve.http_common.lifecycle import SWITCH_INTERVAL, Shutdown, opened


async def test_work_that_hangs_is_cancelled_by_the_second_request_to_stop():
    shutdown, cancelled = Shutdown(), asyncio.Event()

    async def hang():
        try:
            await asyncio.Event().wait()
        finally:
            cancelled.set()

    waiting = asyncio.create_task(shutdown.unless_hurried(hang()))
    await asyncio.wait([waiting], timeout=0)
    shutdown.ask()
    await asyncio.wait([waiting], timeout=0.05)
    assert not waiting.done()
    shutdown.ask()
    async with asyncio.timeout(60):
        await waiting
    assert cancelled.is_set()


async def test_what_the_work_raises_is_raised():
    async def fail():
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        await Shutdown().unless_hurried(fail())


async def test_a_runtime_is_closed_after_the_block_and_signals_are_as_before():
    runtime = fake(always(Result.success(1)), clock=RealClock())
    before = signal.getsignal(signal.SIGTERM)
    async with opened(runtime) as shutdown:
        assert (await runtime.call("tool")).value == 1
        os.kill(os.getpid(), signal.SIGTERM)
        async with asyncio.timeout(60):
            await shutdown.asked.wait()
        assert not shutdown.hurried.is_set()
    assert signal.getsignal(signal.SIGTERM) is before
    with pytest.raises(ClosedRuntime):
        await runtime.call("tool")


async def test_threads_that_compute_give_way_sooner_while_a_runtime_is_served():
    before = sys.getswitchinterval()
    async with opened(fake(always(Result.success(1)), clock=RealClock())):
        assert sys.getswitchinterval() == pytest.approx(min(before, SWITCH_INTERVAL))
    assert sys.getswitchinterval() == before
