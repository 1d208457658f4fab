"""Layer `events`: what an observer is told."""

from __future__ import annotations

import asyncio

import pytest

from in_memory import always, fake, mocked, runtime_of
from toolcrib import CallFinished, CallStarted, Outcome, RealClock, Result


def observed(runtime_with, *arguments):
    """What the observer got, and what the caller got."""
    events = []
    runtime = runtime_with(events.append)

    async def calls():
        return [await runtime.call("tool", given) for given in arguments]

    return events, asyncio.run(calls())


def test_an_observer_sees_each_call_begin_and_end_with_the_result_of_its_caller():
    text = mocked("result: 1\nlatency: 250ms", inputs="{properties: {n: {type: integer}}}")
    events, results = observed(lambda tell: runtime_of(text, observer=tell), {"n": "3"}, {"n": "x"})
    assert [type(event) for event in events] == [CallStarted, CallFinished] * 2
    assert events[0].call.arguments == {"n": "3"}
    assert [events[1].result, events[3].result] == results
    assert [result.outcome for result in results] == [Outcome.OK, Outcome.INVALID_ARGUMENTS]
    assert events[1].result.usage == (1, 0.25)
    assert events[3].result.usage == (0, 0.0)
    assert events[0].call is events[1].call


def test_an_observer_sees_calls_of_tools_that_cannot_run():
    text = "name: tool\ninput_schema: {}\n"
    events, _results = observed(lambda tell: runtime_of(text, observer=tell), {})
    assert events[1].result.outcome is Outcome.UNAVAILABLE


async def broken(_call):
    raise ValueError("hunter2")


def test_a_call_that_ends_by_a_bug_ends_for_the_observer_too(caplog):
    events, results = observed(lambda tell: fake(broken, observer=tell), {})
    assert events[1].result == results[0]
    assert results[0].outcome is Outcome.INTERNAL
    assert len(caplog.records) == 1


async def gives_up(_call):
    raise asyncio.CancelledError


def test_a_cancellation_from_within_is_a_result_for_both():
    events, results = observed(lambda tell: fake(gives_up, observer=tell), {})
    assert events[1].result == results[0]
    assert results[0].outcome is Outcome.CANCELLED
    assert results[0].error.details == {"may_have_acted": True}


@pytest.mark.parametrize(
    ("annotations", "details"),
    [("{}", {"may_have_acted": True}), ("{read_only: true}", {}), ("{idempotent: true}", {})],
)
def test_a_caller_that_cancels_gets_the_cancellation_and_the_observer_the_outcome(annotations, details):
    events = []

    async def waits(call):
        await call.context.session.clock.sleep(3600)

    runtime = fake(waits, f"annotations: {annotations}", observer=events.append, clock=RealClock())

    async def cancel():
        task = asyncio.ensure_future(runtime.call("tool"))
        while not events:
            await runtime.session().clock.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    assert asyncio.run(cancel())
    assert [type(event) for event in events] == [CallStarted, CallFinished]
    assert events[1].result.outcome is Outcome.CANCELLED
    assert events[1].result.message == "the caller cancelled the call"
    assert events[1].result.error.details == details


def test_calls_side_by_side_are_told_apart_by_their_ids():
    events = []
    runtime = fake(always(Result.ok()), observer=events.append)

    async def many():
        await asyncio.gather(*(runtime.session(id="same").call("tool") for _ in range(10)))

    asyncio.run(many())
    ids = [event.call.id for event in events if isinstance(event, CallFinished)]
    assert len(set(ids)) == 10
