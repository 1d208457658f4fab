"""Observers: several of them, pairs of start and end, progress, and tools that are enabled and disabled."""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from in_memory import fake, mocked, runtime_of
from toolcrib import (
    CallFinished,
    CallProgressed,
    CallStarted,
    Content,
    Outcome,
    Partial,
    Progress,
    Result,
    Runtime,
    ToolDisabled,
    ToolEnabled,
)
from toolcrib.core.errors import ConfigurationError
from toolcrib.engine import engine_of

ONE = mocked("result: 1")


async def test_every_observer_receives_every_event_in_order():
    first, second = [], []
    runtime = runtime_of(ONE, observer=[first.append, second.append])
    await runtime.call("tool")
    assert [type(event) for event in first] == [CallStarted, CallFinished]
    assert first == second


async def test_an_observer_that_fails_keeps_nothing_from_the_others(caplog):
    def broken(_event):
        raise ValueError("broken")

    seen = []
    runtime = runtime_of(ONE, observer=[broken, seen.append])
    assert (await runtime.call("tool")).value == 1
    assert [type(event) for event in seen] == [CallStarted, CallFinished]
    assert [record.message for record in caplog.records] == ["an observer failed"] * 2


async def test_observers_come_and_go():
    seen, other = [], []
    runtime = runtime_of(ONE)
    await runtime.call("tool")
    stop = runtime.observe(seen.append)
    stop_other = runtime.observe(other.append)
    await runtime.call("tool")
    stop()
    stop()
    await runtime.call("tool")
    stop_other()
    await runtime.call("tool")
    assert (len(seen), len(other)) == (2, 4)


async def test_calls_have_no_layer_while_nobody_observes():
    runtime = runtime_of(ONE)
    layers = engine_of(runtime).chain_for(runtime.registry["tool"]).layers
    stop = runtime.observe(lambda _event: None)
    observed = engine_of(runtime).chain_for(runtime.registry["tool"]).layers
    stop()
    assert observed == ("events", *layers)
    assert engine_of(runtime).chain_for(runtime.registry["tool"]).layers == layers


async def test_sessions_with_their_own_tools_are_observed_too():
    seen = []
    runtime = runtime_of(ONE)
    session = runtime.session(registry=runtime.registry.within(None))
    await session.call("tool")
    runtime.observe(seen.append)
    await session.call("tool")
    assert [type(event) for event in seen] == [CallStarted, CallFinished]


async def test_who_sees_a_call_start_sees_it_end():
    begun, go = asyncio.Event(), asyncio.Event()

    async def slow(_call):
        begun.set()
        await go.wait()
        return Result.success(1)

    early, late = [], []
    runtime = fake(slow)
    stop = runtime.observe(early.append)
    task = asyncio.create_task(runtime.call("tool"))
    await begun.wait()
    stop()
    runtime.observe(late.append)
    go.set()
    await task
    assert [type(event) for event in early] == [CallStarted, CallFinished]
    assert late == []


async def test_progress_and_partial_results_are_events_of_their_call():
    parts = [Progress(1, 2, "half"), Partial(Content("text", "a"))]

    async def working(call):
        for part in parts:
            call.context.emit(part)
        return Result.success(1)

    seen = []
    runtime = fake(working, observer=seen.append)
    streamed = [event async for event in runtime.stream("tool")]
    assert [type(event) for event in seen] == [CallStarted, CallProgressed, CallProgressed, CallFinished]
    assert [event.update for event in seen[1:3]] == parts == streamed[:2]
    assert {event.call.id for event in seen} == {seen[0].call.id}


@pytest.mark.parametrize("error", [ValueError, asyncio.CancelledError, KeyboardInterrupt, SystemExit])
def test_a_call_has_exactly_one_end_however_it_ends(error):
    async def ends(_call):
        raise error

    seen = []

    async def call():
        runtime = fake(ends, observer=seen.append)
        await runtime.call("tool")

    with suppress(KeyboardInterrupt, SystemExit, asyncio.CancelledError):
        asyncio.run(call())
    assert [type(event) for event in seen] == [CallStarted, CallFinished]


async def test_a_cancelled_call_has_exactly_one_end():
    begun = asyncio.Event()

    async def endless(_call):
        begun.set()
        await asyncio.Event().wait()

    seen = []
    task = asyncio.create_task(fake(endless, observer=seen.append).call("tool"))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert [type(event) for event in seen] == [CallStarted, CallFinished]
    assert seen[1].result.outcome is Outcome.CANCELLED


TWO = "name: a_tool\nmock: {result: 1}\n---\nname: b_tool\nmock: {result: 2}\n"


async def test_tools_are_disabled_and_enabled_in_a_running_program():
    seen, heard = [], []
    runtime = runtime_of(TWO, observer=seen.append)
    engine_of(runtime).follow(lambda: heard.append(1))
    runtime.disable("a_*")
    assert [card.name for card in runtime.registry.query()] == ["b_tool"]
    result = await runtime.call("a_tool")
    assert (result.outcome, result.error.code) == (Outcome.UNAVAILABLE, "disabled")
    assert result.message == "`a_tool` is disabled by `a_*` in the program"
    runtime.enable("a_tool")
    assert (await runtime.call("a_tool")).value == 1
    switched = [event for event in seen if isinstance(event, ToolDisabled | ToolEnabled)]
    assert [(type(event), event.tool.name) for event in switched] == [
        (ToolDisabled, "a_tool"),
        (ToolEnabled, "a_tool"),
    ]
    assert switched[0].reason == "`a_tool` is disabled by `a_*` in the program"
    assert len(heard) == 2


async def test_a_switch_that_changes_nothing_is_no_event():
    seen = []
    runtime = runtime_of(TWO, observer=seen.append)
    revision = runtime.registry.revision
    runtime.enable("a_tool")
    assert seen == []
    assert runtime.registry.revision == revision + 1


async def test_a_reload_keeps_what_the_program_disabled(tmp_path):
    (tmp_path / "tools.yaml").write_text(TWO)
    async with Runtime.open(tmp_path, index=False) as runtime:
        runtime.disable("b_tool")
        await runtime.reload()
        assert [card.name for card in runtime.registry.query()] == ["a_tool"]


def test_a_name_that_no_tool_has_is_refused():
    with pytest.raises(ConfigurationError) as raised:
        runtime_of(TWO).disable("a_tol")
    assert str(raised.value) == "`a_tol` matches no tool\n    hint: did you mean `a_tool` or `b_tool`?"
