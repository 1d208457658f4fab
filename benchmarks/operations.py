"""Operation: bounded statistics, and the delay of mocked calls beside tools that hang and that answer megabytes.

python benchmarks/operations.py
"""

from __future__ import annotations

import asyncio
import gc
import subprocess
import sys
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial

from http_server import LARGE_SIZE, serving
from rounds import Row, interleaved, line

from toolcrib import JSON, Executors, Runtime, parse_registry
from toolcrib.serve.http_common.lifecycle import frequent_thread_switches

FEW, MANY = 1_000, 100_000
"""Calls whose statistics are compared."""

TOOLS, CALLERS = 2, 2

SAMPLES = 300
"""Mocked calls in a round."""

PERIOD = 0.002
"""Seconds between two of them."""

AT_ONCE = 10
"""Calls of another tool at once: all that its limits allow."""


def statistics_size(calls: int) -> float:
    """Bytes that the statistics of so many calls take in a process of their own."""
    words = [sys.executable, __file__, "statistics", str(calls)]
    return float(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


async def _make_calls(calls: int) -> int:
    """Make so many calls, and return the bytes that are left of them."""
    documents: list[dict[str, JSON]] = [
        {"name": f"tool_{number}", "mock": {"result": number}} for number in range(TOOLS)
    ]
    kinds = Executors.installed()
    runtime = Runtime(parse_registry("benchmark.json", documents, kinds=kinds), executors=kinds)
    sessions = [runtime.session(caller=f"caller_{number}") for number in range(CALLERS)]
    ways = [(session, f"tool_{number}") for session in sessions for number in range(TOOLS)]
    for session, tool in ways:
        await session.call(tool)
    gc.collect()
    tracemalloc.start()
    for number in range(calls):
        session, tool = ways[number % len(ways)]
        await session.call(tool)
    assert runtime.statistics.calls == calls + len(ways)
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def statistics(rounds: int) -> Row:
    """The memory of statistics after many calls and after few, by the same callers of the same tools."""
    sizes = interleaved({str(calls): partial(statistics_size, calls) for calls in (FEW, MANY)}, rounds)
    return Row(
        f"memory of the statistics of {MANY:,} calls of {TOOLS} tools by {CALLERS} callers",
        f"statistics of {FEW:,} calls",
        sizes[str(MANY)],
        sizes[str(FEW)],
        10.0,
        unit="B",
    )


def _tools(origin: str) -> list[dict[str, JSON]]:
    limits: dict[str, JSON] = {"concurrency": AT_ONCE, "attempts": 1}
    others: dict[str, JSON] = {
        "mode": "live",
        "timeout": "10m",
        "limits": limits,
        "annotations": {"read_only": True},
    }
    return [
        {"name": "mock", "mock": {"result": {"text": "{{ args.text }}"}}, "input_schema": TEXT},
        {"name": "silent", **others, "live": {"url": f"{origin}/silent"}},
        {"name": "large", **others, "live": {"url": f"{origin}/large"}},
    ]


TEXT: dict[str, JSON] = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


async def _p99(runtime: Runtime) -> float:
    """The delay that 99 % of the mocked calls did not exceed, from when each was due to its end."""
    loop = asyncio.get_running_loop()
    took, due = [], loop.time()
    for _ in range(SAMPLES):
        due = max(due + PERIOD, loop.time())
        await asyncio.sleep(due - loop.time())
        await runtime.call("mock", {"text": "x"})
        took.append(loop.time() - due)
    return sorted(took)[int(SAMPLES * 0.99)]


@asynccontextmanager
async def _busy(runtime: Runtime, large: int) -> AsyncIterator[None]:
    """Within the block, all places of a tool are taken by calls that hang, and so many calls answer megabytes all the time."""

    async def again() -> None:
        while True:
            (await runtime.call("large")).raise_for_outcome()

    async def hang() -> None:
        await runtime.call("silent")

    tasks = [asyncio.create_task(again()) for _ in range(large)]
    tasks += [asyncio.create_task(hang()) for _ in range(AT_ONCE)]
    try:
        yield
        assert not any(task.done() for task in tasks)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def beside(rounds: int) -> Iterator[Row]:
    """The 99th percentile of a mocked call beside two other tools, and alone, with threads as `toolcrib serve` sets them."""
    kinds = Executors.installed()
    with serving() as port, asyncio.Runner() as runner:
        documents = _tools(f"http://127.0.0.1:{port}")
        registry = parse_registry("benchmark.json", documents, kinds=kinds)
        runtime = Runtime(registry, executors=kinds, egress=[f"127.0.0.1:{port}"])

        async def measured(large: int) -> float:
            async with AsyncExitStack() as stack:
                if large:
                    await stack.enter_async_context(_busy(runtime, large))
                return await _p99(runtime)

        def a_round(large: int) -> float:
            return runner.run(measured(large))

        with frequent_thread_switches():
            times = interleaved({str(large): partial(a_round, large) for large in (0, 1, AT_ONCE)}, rounds)
        runner.run(runtime.aclose())
    for large, goal in ((1, 5.0), (AT_ONCE, None)):
        what = f"{AT_ONCE} calls that hang and {large} at a time that {'answers' if large == 1 else 'answer'}"
        measure = f"p99 of a mocked call beside {what} {LARGE_SIZE >> 20} MiB"
        yield Row(measure, "alone", times[str(large)], times["0"], goal)


def rows(rounds: int = 10) -> Iterator[Row]:
    """All measures of this file."""
    yield statistics(rounds)
    yield from beside(rounds)


if __name__ == "__main__":
    if sys.argv[1:2] == ["statistics"]:
        print(asyncio.run(_make_calls(int(sys.argv[2]))))
    else:
        for row in rows():
            print(line(row), flush=True)
