"""Sessions and streams: isolation, ids, seeds, time; progress, then one result; leaving early."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from in_memory import always, fake, mocked, runtime_of
from sampling import examples
from toolcrib import Call, Content, Outcome, Partial, Progress, RealClock, Registry, Result, VirtualClock

COUNTING = mocked('result: "{{ call }}"')


def run(work):
    return asyncio.run(work)


async def values(session, times, name="tool"):
    return [(await session.call(name)).value for _ in range(times)]


# Sessions.


def test_each_session_counts_its_own_calls():
    runtime = runtime_of(COUNTING)

    async def two():
        one, other = runtime.session(), runtime.session()
        return [
            *await values(one, 2),
            *await values(other, 1),
            *await values(one, 1),
            *await values(runtime, 1),
        ]

    assert run(two()) == [1, 2, 1, 3, 1]


def test_sessions_of_one_name_are_still_two():
    runtime = runtime_of(COUNTING)

    async def two():
        return [*await values(runtime.session(id="a"), 2), *await values(runtime.session(id="a"), 1)]

    assert run(two()) == [1, 2, 1]


@settings(deadline=None, max_examples=examples(25))
@given(st.lists(st.sampled_from("ab"), max_size=12))
def test_calls_of_other_sessions_change_nothing_however_they_mix(order):
    runtime = runtime_of(mocked("sequence: [{result: 1}, {result: 2}, {result: 3}]\nafter_last: cycle"))
    sessions = {"a": runtime.session(), "b": runtime.session()}

    async def mixed():
        return [(name, (await sessions[name].call("tool")).value) for name in order]

    seen = run(mixed())
    for name in "ab":
        mine = [value for who, value in seen if who == name]
        assert mine == [1 + number % 3 for number in range(len(mine))]


def test_a_session_numbers_calls_of_all_its_tools():
    runtime = runtime_of(
        'name: one\nmock: {result: "{{ session.calls }}"}\n---\nname: two\nmock: {result: "{{ [call, session.calls, session.id] }}"}\n'
    )

    async def both():
        session = runtime.session(id="mine")
        return [(await session.call(name)).value for name in ("one", "one", "two")], session.calls

    assert run(both()) == ([1, 2, [1, 3, "mine"]], 3)


def test_a_call_to_nothing_is_not_counted():
    runtime = runtime_of(COUNTING)

    async def nothing():
        session = runtime.session()
        await session.call("nothing")
        return session.calls

    assert run(nothing()) == 0


def test_who_calls_reaches_the_tool():
    seen = []

    async def answer(call: Call):
        seen.append(call.context)
        return Result.success()

    runtime = fake(answer)
    session = runtime.session(user="ada", caller="agent", correlation="trace-7", seed=9)
    run(session.call("tool"))
    (context,) = seen
    assert (context.user, context.caller, context.correlation) == ("ada", "agent", "trace-7")
    assert context.session is session
    assert session.seed == 9


def test_ids_of_calls_are_unique_within_the_runtime():
    seen = []

    async def answer(call: Call):
        seen.append(call.id)
        return Result.success()

    runtime = fake(answer)

    async def many():
        sessions = [runtime, runtime.session(), runtime.session(id="x"), runtime.session(id="x")]
        await asyncio.gather(*(session.call("tool") for session in sessions for _ in range(5)))

    run(many())
    assert len(set(seen)) == len(seen) == 20


def test_unnamed_sessions_get_different_names():
    runtime = runtime_of(COUNTING)
    assert len({runtime.session().id for _ in range(5)}) == 5


def test_a_session_may_have_tools_of_its_own_also_none():
    runtime = runtime_of(COUNTING)
    other = runtime_of("name: tool\nmock: {result: mine}\n").registry

    async def both():
        mine = await runtime.session(registry=other).call("tool")
        none = await runtime.session(registry=Registry()).call("tool")
        return mine.value, none.outcome, (await runtime.call("tool")).value

    assert run(both()) == ("mine", Outcome.NOT_FOUND, 1)


def test_a_session_has_its_own_time():
    runtime = runtime_of(mocked("result: 1\nlatency: 1h"))

    async def both():
        one, other = runtime.session(clock=VirtualClock()), runtime.session(clock=VirtualClock())
        await one.call("tool")
        return one.clock.monotonic(), other.clock.monotonic()

    assert run(both()) == (30.0, 0.0)


def test_without_a_clock_time_is_the_machines():
    runtime = runtime_of(COUNTING, clock=None)
    assert isinstance(runtime.session().clock, RealClock)
    assert 0 <= run(runtime.call("tool")).usage.duration < 5


def test_a_slot_is_made_once_a_session():
    runtime = runtime_of(COUNTING)
    session, other = runtime.session(), runtime.session()
    mine = session.slot("notes", list)
    mine.append(1)
    assert session.slot("notes", list) == [1]
    assert other.slot("notes", list) == []


# Streams.


async def events_of(stream):
    return [event async for event in stream]


def test_a_stream_is_progress_and_then_exactly_one_result():
    runtime = runtime_of(
        mocked(
            """
            result: done
            progress: [{progress: 1, total: 2, message: "half of {{ args.what }}", after: 1s}, {progress: 2, total: 2}]
            latency: 1s
            """
        )
    )
    events = run(events_of(runtime.stream("tool", {"what": "it"})))
    assert events[:2] == [Progress(1, 2, "half of it"), Progress(2, 2, "")]
    (result,) = events[2:]
    assert (result.value, result.usage.duration) == ("done", 2.0)


def test_partial_answers_arrive_before_the_result():
    async def answer(call: Call):
        call.context.emit(Partial(Content("text", text="so far")))
        return Result.success("so far and on")

    events = run(events_of(fake(answer).session().stream("tool")))
    assert [type(event) for event in events] == [Partial, Result]


def test_the_result_of_a_stream_is_that_of_a_call():
    async def both():
        streamed = await events_of(runtime_of(COUNTING).stream("tool"))
        return streamed, await runtime_of(COUNTING).call("tool")

    streamed, called = run(both())
    assert streamed == [called]


@pytest.mark.parametrize("name", ["nothing", "tool"])
def test_a_stream_of_a_failed_call_is_its_result(name):
    runtime = fake(always(Result.failure(Outcome.TOOL_ERROR, "no")))
    (event,) = run(events_of(runtime.stream(name)))
    assert event.outcome in {Outcome.NOT_FOUND, Outcome.TOOL_ERROR}


def test_what_is_emitted_after_the_result_is_lost():
    kept = []

    async def answer(call: Call):
        kept.append(call.context.emit)
        return Result.success()

    async def late():
        events = []
        async for event in fake(answer).stream("tool"):
            events.append(event)
            kept[0](Progress(1))
        return events

    assert len(run(late())) == 1


def test_a_plain_call_emits_into_the_void():
    async def answer(call: Call):
        call.context.emit(Progress(1))
        return Result.success(1)

    assert run(fake(answer).call("tool")).value == 1


def forever(ended):
    async def answer(call: Call):
        call.context.emit(Progress(1))
        try:
            await call.context.session.clock.sleep(1e9)
        except asyncio.CancelledError:
            ended.append(call.id)
            raise

    return answer


def test_leaving_a_stream_early_cancels_the_call():
    ended = []

    async def leave():
        stream = fake(forever(ended), clock=RealClock()).stream("tool")
        async for event in stream:
            assert event == Progress(1)
            break
        await stream.aclose()
        return len(ended)

    assert run(leave()) == 1


def test_cancelling_the_reader_of_a_stream_cancels_the_call():
    ended = []
    runtime = fake(forever(ended), clock=RealClock())

    async def cancel():
        begun = asyncio.Event()

        async def read():
            async for _event in runtime.stream("tool"):
                begun.set()

        task = asyncio.ensure_future(read())
        await begun.wait()
        task.cancel()
        await asyncio.wait([task])
        return task.cancelled()

    assert run(cancel())
    assert len(ended) == 1


def test_cancelling_the_caller_cancels_the_executor_and_raises():
    ended = []
    runtime = fake(forever(ended), clock=RealClock())

    async def cancel():
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01):
                await runtime.call("tool")
        return await runtime.session().call("nothing")

    assert run(cancel()).outcome is Outcome.NOT_FOUND
    assert len(ended) == 1


async def test_a_call_may_say_itself_what_it_is_tied_to():
    seen = []
    runtime = runtime_of(COUNTING, observer=lambda event: seen.append(event.call.context.correlation))
    session = runtime.session(correlation="request-7")
    await session.call("tool", {}, correlation="call_1")
    async for _ in session.stream("tool", {}, correlation="call_2"):
        pass
    await session.call("tool", {})
    assert (seen[::2], seen[1::2]) == (["call_1", "call_2", "request-7"],) * 2
    assert session.correlation == "request-7"
