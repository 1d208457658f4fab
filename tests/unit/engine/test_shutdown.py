"""What closing a runtime does to the calls that run, and in which order."""

from __future__ import annotations

import asyncio
import threading

import pytest

from in_memory import fake
from toolcrib import ClosedRuntime, Outcome, RealClock, Result


class Gate:
    """A tool that waits until it is let go.

    Attributes:
        began: Set once a call runs.
        go: Lets it end.
    """

    def __init__(self) -> None:
        self.began = asyncio.Event()
        self.go = asyncio.Event()

    async def __call__(self, _call):
        self.began.set()
        await self.go.wait()
        return Result.success("done")


async def running(gate, runtime):
    task = asyncio.create_task(runtime.call("tool"))
    async with asyncio.timeout(60):
        await gate.began.wait()
    return task


async def test_a_running_call_ends_before_the_runtime_is_closed():
    gate = Gate()
    runtime = fake(gate, clock=RealClock())
    async with runtime:
        task = await running(gate, runtime)
        asyncio.get_running_loop().call_later(0.05, gate.go.set)
    assert task.done()
    assert task.result().value == "done"


async def test_no_call_starts_while_others_end():
    gate = Gate()
    runtime = fake(gate, clock=RealClock())
    task = await running(gate, runtime)
    closing = asyncio.create_task(runtime.aclose(drain=60))
    await asyncio.wait([closing], timeout=0.05)
    assert not closing.done()
    with pytest.raises(ClosedRuntime):
        await runtime.call("tool")
    gate.go.set()
    async with asyncio.timeout(60):
        await closing
    assert task.result().value == "done"


async def test_a_call_that_takes_too_long_is_cancelled_and_its_caller_goes_on():
    gate = Gate()
    runtime = fake(gate, clock=RealClock())
    task = await running(gate, runtime)
    await runtime.aclose(drain=0.05)
    async with asyncio.timeout(60):
        result = await task
    assert (result.outcome, result.error.code) == (Outcome.CANCELLED, "runtime_closed")
    assert runtime.running() == ()


async def test_a_block_that_raises_waits_for_nothing():
    gate = Gate()
    runtime = fake(gate, clock=RealClock())

    async def fail():
        async with runtime:
            tasks.append(await running(gate, runtime))
            raise ValueError("no")

    tasks = []
    with pytest.raises(ValueError, match="no"):
        await fail()
    async with asyncio.timeout(60):
        assert (await tasks[0]).outcome is Outcome.CANCELLED


async def test_a_tool_that_ignores_its_cancellation_does_not_keep_the_runtime_open():
    go, began = asyncio.Event(), asyncio.Event()

    async def stubborn(_call):
        began.set()
        while not go.is_set():
            try:
                await go.wait()
            except asyncio.CancelledError:
                continue
        return Result.success(1)

    runtime = fake(stubborn, clock=RealClock())
    task = asyncio.create_task(runtime.call("tool"))
    async with asyncio.timeout(60):
        await began.wait()
        await runtime.aclose(drain=0)
    assert not task.done()
    go.set()
    await asyncio.wait([task])


async def test_closing_is_cancelled_while_it_waits():
    gate = Gate()
    runtime = fake(gate, clock=RealClock())
    task = await running(gate, runtime)
    closing = asyncio.create_task(runtime.aclose(drain=600))
    await asyncio.wait([closing], timeout=0.05)
    closing.cancel()
    async with asyncio.timeout(60):
        await asyncio.wait([closing])
    assert closing.cancelled()
    gate.go.set()
    await asyncio.wait([task])


async def test_a_tool_may_close_its_own_runtime():
    async def close(_call):
        await runtime.aclose(drain=600)
        return Result.success("closed")

    runtime = fake(close, clock=RealClock())
    async with asyncio.timeout(60):
        assert (await runtime.call("tool")).value == "closed"


def test_calls_of_other_threads_are_waited_for():
    began, go = threading.Event(), threading.Event()

    async def slow(_call):
        began.set()
        await asyncio.to_thread(go.wait, 60)
        return Result.success("done")

    runtime, results = fake(slow, clock=RealClock()), []
    thread = threading.Thread(target=lambda: results.append(asyncio.run(runtime.call("tool"))))
    thread.start()
    assert began.wait(60)
    threading.Timer(0.1, go.set).start()
    asyncio.run(runtime.aclose(drain=60))
    thread.join(60)
    assert [each.value for each in results] == ["done"]


def test_the_synchronous_close_cancels_what_is_left_in_other_threads():
    began = threading.Event()

    async def hang(_call):
        began.set()
        await asyncio.Event().wait()

    runtime, results = fake(hang, clock=RealClock()), []
    thread = threading.Thread(target=lambda: results.append(asyncio.run(runtime.call("tool"))))
    thread.start()
    assert began.wait(60)
    runtime.close(drain=0.05)
    thread.join(60)
    assert [each.outcome for each in results] == [Outcome.CANCELLED]


def test_a_call_that_was_left_in_a_closed_event_loop_is_not_waited_for():
    gate = Gate()
    runtime = fake(gate, clock=RealClock())
    loop = asyncio.new_event_loop()
    task = loop.create_task(runtime.call("tool"))
    while not gate.began.is_set():
        loop.run_until_complete(asyncio.wait([task], timeout=0.01))
    loop.close()
    asyncio.run(asyncio.wait_for(runtime.aclose(drain=600), 60))
    task._log_destroy_pending = False
