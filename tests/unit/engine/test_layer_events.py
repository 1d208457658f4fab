"""Layer `events`: what an observer is told."""

from __future__ import annotations

import asyncio

import pytest

from holding import opened
from in_memory import always, fake, mocked, runtime_of
from toolcrib import CallFinished, CallStarted, Outcome, RealClock, Result, VirtualClock


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
    runtime = fake(always(Result.success()), observer=events.append)

    async def many():
        await asyncio.gather(*(runtime.session(id="same").call("tool") for _ in range(10)))

    asyncio.run(many())
    ids = [event.call.id for event in events if isinstance(event, CallFinished)]
    assert len(set(ids)) == 10


ENDS = """
name: work
description: Ends in many ways.
timeout: 5s
limits: {output_items: 2}
input_schema: {type: object, properties: {way: {}}, required: [way]}
output_schema: {type: [string, array]}
mock:
  rules:
    - {when: {args: {way: slow}}, reply: {result: late, latency: 1m}}
    - {when: {args: {way: fails}}, reply: {error: {code: broken, message: It is broken.}}}
    - {reply: {result: "{{ args.way }}"}}
"""


def test_each_way_to_end_has_a_code_of_its_own_one_event_and_one_count(tmp_path):
    events = []

    async def run():
        access = "access: {rules: [{deny: {tool: work, args: {way: secret}}}]}"
        async with opened(tmp_path, access, ENDS, clock=VirtualClock(), observer=events.append) as runtime:
            results = [
                await runtime.call("work", {"way": way}) for way in ("slow", "fails", "secret", 7, [1, 2, 3])
            ]
            results.append(await runtime.call("work", {}))
            clock = VirtualClock()
            call = asyncio.ensure_future(runtime.session(clock=clock).call("work", {"way": "slow"}))
            await clock.sleep(1)
            call.cancel()
            await asyncio.wait([call])
            return results, runtime.statistics

    results, statistics = asyncio.run(run())
    codes = [result.error.code for result in results]
    assert codes == [
        "timeout",
        "broken",
        "access_rule",
        "invalid_result",
        "too_many_items",
        "invalid_arguments",
    ]
    finished = [event for event in events if isinstance(event, CallFinished)]
    assert [event.result.error.code for event in finished] == [*codes, "cancelled"]
    assert len({event.call.id for event in finished}) == len(finished) == 7
    assert statistics.totals.codes == dict.fromkeys(sorted([*codes, "cancelled"]), 1)
