"""`Runtime.running` and `Runtime.cancel`: what runs can be seen and ended from outside."""

from __future__ import annotations

import asyncio
import threading

import pytest

from in_memory import runtime_of
from reaching import Script, failed, reaching
from toolcrib import (
    CallFinished,
    ConfigurationError,
    Executors,
    Outcome,
    Progress,
    RealClock,
    Result,
    VirtualClock,
)

SLOW = "name: slow\nmock: {result: done, latency: 1h}\n"

DEADLINE = 60


def real(text, **options):
    """A runtime whose slow mocks take their time."""
    return runtime_of(text, executors=Executors.installed(), clock=RealClock(), **options)


async def until(condition) -> None:
    async with asyncio.timeout(DEADLINE):
        while not condition():
            await RealClock().sleep(0)


def started(session, *names):
    return [asyncio.create_task(session.call(name)) for name in names]


def test_two_calls_of_one_correlation_are_listed_and_both_are_cancelled():
    async def run():
        runtime = real(SLOW)
        session = runtime.session(id="s", user="ada", caller="agent", correlation="c-1")
        tasks = started(session, "slow", "slow")
        await until(lambda: len(runtime.running()) == 2)
        first, second = runtime.running()
        assert first.id != second.id
        for call in (first, second):
            assert call[1:6] == ("slow", "c-1", "s", "ada", "agent")
            assert call.stage == "running"
            assert call.elapsed >= 0
            assert call.started.tzinfo is not None
            assert call.usage.attempts == 1
            assert call.as_json()["tool"] == "slow"
        assert runtime.cancel(correlation="other") == 0
        assert runtime.cancel(correlation="c-1") == 2
        # A second time, there is nothing left to cancel.
        assert runtime.cancel(correlation="c-1") == 0
        results = await asyncio.gather(*tasks)
        assert [result.outcome for result in results] == [Outcome.CANCELLED] * 2
        assert [result.error.code for result in results] == ["cancelled_by_operator"] * 2
        assert results[0].message == "an operator cancelled the call"
        assert runtime.running() == ()
        assert runtime.statistics.totals.codes == {"cancelled_by_operator": 2}

    asyncio.run(run())


@pytest.mark.parametrize(
    ("selection", "count"),
    [
        ({"session": "one"}, 2),
        ({"caller": "agent"}, 1),
        ({"tool": "slow"}, 2),
        ({"tool": "slow", "session": "two"}, 1),
        ({"all": True}, 3),
        ({"all": True, "caller": "nobody"}, 0),
        ({"id": "no-such-id"}, 0),
        ({"caller": ""}, 2),
    ],
)
def test_calls_are_selected_by_everything_that_is_given(selection, count):
    async def run():
        runtime = real(f"{SLOW}---\nname: other\nmock: {{result: 1, latency: 1h}}\n")
        one = runtime.session(id="one")
        tasks = [
            *started(one, "slow", "other"),
            *started(runtime.session(id="two", caller="agent"), "slow"),
        ]
        await until(lambda: len(runtime.running()) == 3)
        assert runtime.cancel(**selection) == count
        await until(lambda: len(runtime.running()) == 3 - count)
        runtime.cancel(all=True)
        await asyncio.gather(*tasks)

    asyncio.run(run())


def test_nothing_is_cancelled_by_accident():
    with pytest.raises(ConfigurationError, match="which calls"):
        real(SLOW).cancel()


def test_the_task_of_the_caller_goes_on():
    async def run():
        runtime = real(SLOW)

        async def caller():
            result = await runtime.call("slow")
            await RealClock().sleep(0)
            return result.outcome, asyncio.current_task().cancelling()

        task = asyncio.create_task(caller())
        await until(runtime.running)
        runtime.cancel(all=True)
        assert await task == (Outcome.CANCELLED, 0)

    asyncio.run(run())


def test_a_caller_that_is_cancelled_as_well_is_still_cancelled():
    async def run():
        runtime = real(SLOW)
        task = asyncio.create_task(runtime.call("slow"))
        await until(runtime.running)
        runtime.cancel(all=True)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert runtime.statistics.totals.outcomes == {"cancelled": 1}

    asyncio.run(run())


def test_a_tool_that_calls_a_tool_loses_only_the_inner_call():
    async def run():
        runtime = real(SLOW)

        async def outer() -> str:
            result = await runtime.call("slow")
            return result.outcome.value

        runtime.add(outer)
        task = asyncio.create_task(runtime.call("outer"))
        await until(lambda: len(runtime.running()) == 2)
        assert [call.tool for call in runtime.running()] == ["outer", "slow"]
        assert runtime.cancel(tool="slow") == 1
        assert (await task).value == "cancelled"

        task = asyncio.create_task(runtime.call("outer"))
        await until(lambda: len(runtime.running()) == 2)
        assert runtime.cancel(all=True) == 2
        assert (await task).outcome is Outcome.CANCELLED

    asyncio.run(run())


def test_a_call_that_cancels_itself_ends_and_its_caller_goes_on():
    async def run():
        runtime = real("")

        async def suicidal() -> int:
            await RealClock().sleep(0)
            return runtime.cancel(tool="suicidal")

        runtime.add(suicidal)
        result = await runtime.call("suicidal")
        # It has ended before the cancellation reached it.
        assert result.value == 1
        await RealClock().sleep(0)
        assert asyncio.current_task().cancelling() == 0

    asyncio.run(run())


def test_calls_of_another_thread_are_cancelled():
    runtime = real(SLOW)
    results: list[Result] = []
    thread = threading.Thread(target=lambda: results.append(runtime.call_sync("slow")))
    thread.start()
    while not runtime.running():
        pass
    assert runtime.cancel(tool="slow") == 1
    thread.join(DEADLINE)
    assert [result.outcome for result in results] == [Outcome.CANCELLED]
    runtime.close()


def test_observers_see_the_end_that_the_caller_gets():
    async def run():
        seen = []
        runtime = real(SLOW, observer=seen.append)
        task = asyncio.create_task(runtime.call("slow"))
        await until(runtime.running)
        runtime.cancel(all=True)
        result = await task
        ended = [event.result for event in seen if isinstance(event, CallFinished)]
        assert [each.error for each in ended] == [result.error]

    asyncio.run(run())


def test_the_last_progress_is_listed():
    async def run():
        runtime = real(
            "name: slow\nmock:\n  result: 1\n  latency: 1h\n  progress: [{progress: 1, total: 4, message: begun}]\n"
        )
        task = asyncio.create_task(runtime.call("slow"))
        await until(lambda: runtime.running() and runtime.running()[0].progress)
        assert runtime.running()[0].progress == Progress(1, 4, "begun")
        runtime.cancel(all=True)
        await task

    asyncio.run(run())


def test_the_stage_says_what_a_call_waits_for():
    async def run():
        script = Script(failed(), Result.success(1), takes=10)
        runtime = reaching(script, "limits: {concurrency: 1}", clock=RealClock())
        tasks = started(runtime, "tool", "tool")
        await until(lambda: [call.stage for call in runtime.running()] == ["running", "queue"])
        assert [call.usage.attempts for call in runtime.running()] == [1, 0]
        runtime.cancel(all=True)
        await asyncio.gather(*tasks)

    asyncio.run(run())


def test_a_call_between_two_attempts():
    async def run():
        stages = []

        class Clock(VirtualClock):
            async def sleep(self, seconds):
                stages.extend(call.stage for call in runtime.running())
                await super().sleep(seconds)

        runtime = reaching(Script(failed(), Result.success(1)), "limits: {backoff: {first: 1s, longest: 1s}}")
        result = await runtime.session(clock=Clock()).call("tool")
        assert result.usage.attempts == 2
        assert "retry" in stages

    asyncio.run(run())


def test_a_call_that_waits_for_a_person():
    async def run():
        asked = asyncio.Event()

        async def approver(_pending):
            asked.set()
            await asyncio.Event().wait()

        runtime = real("name: pay\nrequires_confirmation: true\nmock: {result: paid}\n", approver=approver)
        task = asyncio.create_task(runtime.call("pay"))
        await asked.wait()
        (call,) = runtime.running()
        assert (call.stage, call.usage.attempts) == ("approval", 0)
        assert runtime.cancel(id=call.id) == 1
        assert (await task).outcome is Outcome.CANCELLED

    asyncio.run(run())
