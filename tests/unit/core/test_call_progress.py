"""How far a cancelled call had progressed is known to its layers, and is not written on the exception that ends it."""

from __future__ import annotations

import asyncio

import pytest

from reaching import Script, reaching
from toolcrib import CallFinished, Outcome, VirtualClock


def test_the_exception_that_ends_a_waiting_call_carries_nothing_of_ours():
    events = []
    script = Script(takes=60)
    runtime = reaching(script, "limits: {concurrency: 1}", observer=events.append)

    async def run():
        session = runtime.session()  # on real time
        first = asyncio.ensure_future(session.call("tool"))
        await script.begun.wait()
        waiting = asyncio.ensure_future(session.call("tool"))
        await asyncio.wait([waiting], timeout=0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError) as caught:
            await waiting
        first.cancel()
        await asyncio.wait([first])
        return caught.value

    assert vars(asyncio.run(run())) == {}
    queued, running = (event.result for event in events if isinstance(event, CallFinished))
    assert (queued.outcome, queued.usage.attempts) == (Outcome.CANCELLED, 0)
    assert (running.outcome, running.usage.attempts) == (Outcome.CANCELLED, 1)
    assert running.error.details == {"may_have_acted": True}
    assert queued.error.details == {}


def test_a_call_does_not_report_the_progress_of_the_one_before_it():
    script = Script(takes=60)
    runtime = reaching(script, "timeout: 5s\nlimits: {concurrency: 1}", "timeout: 7s")

    async def run():
        session = runtime.session(clock=VirtualClock())
        first = asyncio.ensure_future(session.call("tool"))
        await script.begun.wait()
        queued = await session.call("tool")  # in this task, like the next one
        later = await session.call("tool_2")
        await first
        return queued, later

    queued, later = asyncio.run(run())
    assert queued.message == "`tool` did not answer within 5s; it waited in the queue of `tool`"
    assert (later.message, later.usage.attempts) == ("`tool_2` did not answer within 7s", 1)
    assert (later.error.details["value"], later.error.details["may_have_acted"]) == ("7s", True)
