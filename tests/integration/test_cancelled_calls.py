"""A thousand cancelled calls of each mode leave nothing behind: no task, no socket, no process, no place."""

from __future__ import annotations

import asyncio
import inspect
import json
import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import exec_tools
from a2a_agents import agent_in_a_thread
from http_servers import serving
from in_memory import runtime_of
from live_tools import live_runtime, live_tool, open_files
from mcp_calling import Calling, http_server, over_http
from mcp_sdk_server import sdk_server
from sampling import THOROUGH
from toolcrib import Executors, Outcome, RealClock, Registry, Runtime
from toolcrib.core.process_tree import children_of

AT_ONCE = 10 if THOROUGH else 3
"""Calls at once, and the places that there are for them: a place that is not given back fails the next round."""

ROUNDS = 1000 // AT_ONCE if THOROUGH else 2

LIMITS = {"concurrency": AT_ONCE, "queue": 0}

DEADLINE = 60


async def until(condition: Callable[[], Any]) -> None:
    async with asyncio.timeout(DEADLINE):
        while not (await found if inspect.isawaitable(found := condition()) else found):
            await RealClock().sleep(0.002)


def processes() -> list[int]:
    """The processes below this one."""
    found = children_of(os.getpid())
    return found + [each for child in found for each in children_of(child)]


def quiet() -> tuple[int, int, int]:
    """Tasks, open files and processes."""
    return len(asyncio.all_tasks()), open_files(), len(processes())


async def settled() -> tuple[int, int, int]:
    """Tasks, open files and processes once they have not changed for a while."""
    before, same = quiet(), 0
    async with asyncio.timeout(DEADLINE):
        while same < 50:
            await RealClock().sleep(0.002)
            now = quiet()
            before, same = now, same + 1 if now == before else 0
    return before


async def cancel_again_and_again(
    runtime: Runtime,
    tool: str,
    began: Callable[[int], object],
    arguments: dict[str, Any] | None = None,
    *,
    idle: int = 0,
) -> None:
    """Cancel calls that act already, again and again, and check that nothing is left of them.

    Args:
        runtime: What calls.
        tool: Name of a tool that never answers, with `AT_ONCE` places and no queue.
        began: Whether a number of calls has reached the tool, counted from the beginning.
        arguments: Arguments of the calls.
        idle: Number of sockets that may be open for the next calls, besides those after the first round.
    """
    session = runtime.session(id="cancelled")
    lasting = quiet()
    for number in range(1, ROUNDS + 1):
        calls = [asyncio.create_task(session.call(tool, arguments)) for _ in range(AT_ONCE)]
        await until(lambda: len(runtime.running()) == AT_ONCE)
        await until(partial(began, number * AT_ONCE))
        assert {call.stage for call in runtime.running()} == {"running"}
        assert runtime.cancel(session="cancelled") == AT_ONCE
        results = await asyncio.gather(*calls)
        assert {(result.outcome, result.error.code) for result in results} == {
            (Outcome.CANCELLED, "cancelled_by_operator")
        }
        assert runtime.running() == ()
        if number == 1:  # which opens what lasts, such as the connection to a server
            tasks, sockets, children = await settled()
            lasting = tasks, sockets + idle, children
    await until(lambda: all(now <= then for now, then in zip(quiet(), lasting, strict=True)))
    assert runtime.statistics.tools[tool].outcomes == {"cancelled": ROUNDS * AT_ONCE}


async def run_and_close(
    runtime: Runtime, tool: str, began: Callable[[int], object], arguments: dict[str, Any] | None = None
) -> None:
    before = quiet()
    async with runtime:
        await cancel_again_and_again(runtime, tool, began, arguments)
    await until(lambda: all(now <= then for now, then in zip(quiet(), before, strict=True)))


def test_mock():
    text = "name: slow\nmock: {result: 1, latency: 1h}\n"
    runtime = runtime_of(text, executors=Executors.installed(), clock=RealClock())
    asyncio.run(run_and_close(runtime, "slow", lambda _count: True))


def test_live():
    async def run():
        arrived = 0

        async def never(reader, _writer, _head):
            nonlocal arrived
            arrived += 1
            await reader.read()  # until the client hangs up

        more = f"limits: {json.dumps(LIMITS)}"
        async with serving(never) as server:
            text = live_tool("{method: GET, url: 'https://api.example.com/slow'}", more=more)
            await run_and_close(live_runtime(text, server), "tool", lambda count: arrived == count)

    asyncio.run(run())


async def cancel_calls_of(server):
    tool = {"name": "slow", "limits": LIMITS}
    async with Calling(server, tool, "cancelled") as calling:

        async def counted(key):
            return json.loads((await calling.call("cancelled")).value)[key]

        async def began(count):
            return await counted("slow") == count

        async def ended():
            return await counted("cancelled") == ROUNDS * AT_ONCE

        await cancel_again_and_again(calling.runtime, "slow", began, {"delay": 1000})
        await until(ended)  # in the server, too


def test_mcp_over_http():
    with over_http() as url:
        asyncio.run(cancel_calls_of(http_server(url)))


def test_mcp_over_stdio():
    asyncio.run(cancel_calls_of(sdk_server()))


def test_a2a(tmp_path):
    arrived = 0

    async def never(_turn):
        nonlocal arrived
        arrived += 1
        await asyncio.Event().wait()

    slow = {"name": "slow", "limits": LIMITS, "a2a": {"agent": "crm", "tool": "note"}}
    with agent_in_a_thread(never) as agent:
        project = {"project": "p", "sources": ["slow.json"], "agents": {"crm": {"card": agent.base}}}
        (tmp_path / "slow.json").write_text(json.dumps(slow), encoding="utf-8")
        (tmp_path / "toolcrib.yaml").write_text(json.dumps(project), encoding="utf-8")
        runtime = Runtime.open(tmp_path, index=False, strict=True)
        states = agent.store.states

        async def run():
            before = quiet()
            async with runtime:
                # Both ends of two connections for each call: its stream, and its cancellation.
                idle = 4 * AT_ONCE
                await cancel_again_and_again(runtime, "slow", lambda count: arrived == count, idle=idle)
                # A busy agent answers a cancellation after the call has ended. It is still asked then.
                await until(lambda: {*states.values()} == {"TASK_STATE_CANCELED"})
            await until(lambda: all(now <= then for now, then in zip(quiet(), before, strict=True)))

        asyncio.run(run())
        assert len(states) == ROUNDS * AT_ONCE


def test_client():
    async def run():
        arrived = 0

        async def client(_call):
            nonlocal arrived
            arrived += 1
            await asyncio.Event().wait()

        text = f"name: slow\nlimits: {json.dumps(LIMITS)}\nclient: {{}}\n"
        runtime = runtime_of(text, executors=Executors.installed(), clock=RealClock(), client=client)
        await run_and_close(runtime, "slow", lambda count: arrived == count)

    asyncio.run(run())


def test_exec_for_each_call():
    document = exec_tools.document("slow", exec=["sleep", "1000"], limits=LIMITS)
    runtime = Runtime(exec_tools.registry_of(document), sandbox="none")
    asyncio.run(run_and_close(runtime, "slow", lambda _count: len(processes()) >= AT_ONCE))


def test_exec_that_stays_running(tmp_path):
    asked = tmp_path / "asked"
    # `tee` writes each request to the file, and then to stdout, where it is not an answer.
    block = {
        "command": ["tee", str(asked)],
        "wire": "promptkit",
        "lifetime": "runtime",
        "concurrency": AT_ONCE,
    }
    document = exec_tools.document("slow", exec=block, limits=LIMITS)
    runtime = Runtime(exec_tools.registry_of(document), sandbox="none")
    asyncio.run(run_and_close(runtime, "slow", lambda count: exec_tools.text_of(asked).count("\n") == count))


def test_exec_that_serves_one_call_at_a_time(tmp_path):
    asked = tmp_path / "asked"
    block = {"command": ["tee", "-a", str(asked)], "wire": "promptkit", "lifetime": "runtime"}
    document = exec_tools.document("slow", exec=block)
    runtime = Runtime(exec_tools.registry_of(document), sandbox="none")
    # One of them runs, and the others wait for it; the program is ended with the call.
    asyncio.run(run_and_close(runtime, "slow", lambda count: reached(asked, count // AT_ONCE)))


def reached(file: Path, count: int) -> bool:
    return exec_tools.text_of(file).count("\n") >= count


def test_python_in_the_event_loop():
    async def run():
        arrived = 0

        async def slow() -> None:
            nonlocal arrived
            arrived += 1
            await asyncio.Event().wait()

        runtime = Runtime(Registry())
        runtime.add(slow)
        await run_and_close(runtime, "slow", lambda count: arrived == count)

    asyncio.run(run())


def test_python_in_threads():
    async def run():
        lock = threading.Lock()
        gate, arrived = threading.Event(), 0

        def slow() -> None:
            nonlocal arrived
            with lock:
                arrived += 1
                mine = gate
            mine.wait(DEADLINE)

        runtime = Runtime(Registry())
        runtime.add(slow)
        session = runtime.session(id="cancelled")
        before = quiet()
        for _ in range(ROUNDS):
            known = arrived
            calls = [asyncio.create_task(session.call("slow")) for _ in range(AT_ONCE)]
            # Those for which there is no thread are cancelled before they begin.
            await until(lambda: arrived > known)  # noqa: B023 -- awaited in this turn
            assert runtime.cancel(tool="slow") == AT_ONCE
            assert {result.outcome for result in await asyncio.gather(*calls)} == {Outcome.CANCELLED}
            assert runtime.running() == ()
            # The code in threads runs on until it ends by itself.
            with lock:
                gate.set()
                gate = threading.Event()
        assert runtime.statistics.tools["slow"].outcomes == {"cancelled": ROUNDS * AT_ONCE}
        gate.set()
        await runtime.aclose()
        await until(lambda: all(now <= then for now, then in zip(quiet(), before, strict=True)))

    asyncio.run(run())


def test_python_workers(tmp_path):
    began = tmp_path / "began"
    (tmp_path / "slow_tools.py").write_text(
        "import time\n\n\ndef slow(began: str) -> None:\n"
        "    with open(began, 'a') as file:\n        file.write('.')\n    time.sleep(1000)\n",
        encoding="utf-8",
    )
    (tmp_path / "tools.yaml").write_text(
        f"name: slow\nlimits: {json.dumps(LIMITS)}\npython: {{call: 'slow_tools:slow', worker: process}}\n",
        encoding="utf-8",
    )
    runtime = Runtime.open(tmp_path, index=False, sandbox="none", strict=True)
    reached = run_and_close(
        runtime, "slow", lambda count: len(exec_tools.text_of(began)) == count, {"began": str(began)}
    )
    asyncio.run(reached)
