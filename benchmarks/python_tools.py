"""Python functions as tools: in the event loop, and in worker processes.

python benchmarks/python_tools.py
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from subprocess import DEVNULL, PIPE, Popen, run
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Annotated, Any

from pydantic import BaseModel, Field, TypeAdapter
from rounds import Round, Row, interleaved, line

from toolcrib import Executors, Registry, Runtime, parse_registry

CALLS = 100
"""Calls in one round: few, since other load of a machine changes from one millisecond to the next."""

COLLECT_EVERY = 200
"""Number of such rounds between two garbage collections."""

ARGUMENTS: dict[str, Any] = {"city": "Lisbon", "days": 3}


class Weather(BaseModel):
    """The result of the function."""

    city: str
    days: int
    temp: float


class WeatherArguments(BaseModel):
    """The arguments of the function, for the validation by hand."""

    city: str
    days: Annotated[int, Field(ge=1, le=14)] = 3


LISBON = Weather(city="Lisbon", days=3, temp=18.5)


async def get_weather(city: str, days: Annotated[int, Field(ge=1, le=14)] = 3) -> Weather:  # noqa: ARG001 -- it does nothing
    """Return the weather of a city."""
    return LISBON


RESULT = TypeAdapter(Weather)


async def weather_by_hand(arguments: dict[str, Any]) -> Any:
    """The function with pydantic's validation of its arguments and of its result."""
    given = WeatherArguments.model_validate(arguments)
    result = await get_weather(given.city, given.days)
    return RESULT.dump_python(RESULT.validate_python(result), mode="json")


def a_round(loop: asyncio.AbstractEventLoop, call: Callable[[], Awaitable[object]], count: int) -> Round:
    """A round of consecutive calls; its time is that of one call."""

    async def calls() -> float:
        started = perf_counter()
        for _ in range(count):
            await call()
        return (perf_counter() - started) / count

    return lambda: loop.run_until_complete(calls())


def typed_call(loop: asyncio.AbstractEventLoop, rounds: int = 60) -> Row:
    """A function that does nothing, as a tool and with hand-written validation."""
    tools = Runtime(Registry())
    tools.add(get_weather)
    result = loop.run_until_complete(tools.call("get_weather", ARGUMENTS))
    assert result.value == loop.run_until_complete(weather_by_hand(ARGUMENTS)), result
    times = interleaved(
        {
            "ours": a_round(loop, partial(tools.call, "get_weather", ARGUMENTS), CALLS),
            # Rounds of about the same time: a shorter one would be affected less by other load.
            "by hand": a_round(loop, partial(weather_by_hand, ARGUMENTS), 2 * CALLS),
        },
        rounds * COLLECT_EVERY,
        collect_every=COLLECT_EVERY,
    )
    loop.run_until_complete(tools.aclose())
    what = "typed asynchronous function"
    return Row(what, "hand-written, with pydantic both ways", times["ours"], times["by hand"], 1.6)


MODULE = """
def get_weather(city: str, days: int = 3) -> dict[str, str | int | float]:
    return {"city": city, "days": days, "temp": 18.5}
"""

ECHO = """
import json, sys
for line in sys.stdin.buffer:
    sys.stdout.buffer.write(json.dumps(json.loads(line)).encode() + b"\\n")
    sys.stdout.buffer.flush()
"""

DESCRIPTOR = """
name: get_weather
mode: python
python: {call: "benchmarked_tools:get_weather", worker: process}
"""

WARM_CALLS = 200
"""Calls of a worker process in one round."""


def warm_worker(loop: asyncio.AbstractEventLoop, rounds: int = 40) -> Iterator[Row]:
    """A call in a warm worker process, and a process that echoes the same JSON over pipes."""
    with TemporaryDirectory() as folder:
        Path(folder, "benchmarked_tools.py").write_text(MODULE, encoding="utf-8")
        sys.path.append(folder)
        kinds = Executors.installed()
        tools = Runtime(parse_registry("benchmark.yaml", DESCRIPTOR, kinds=kinds), executors=kinds)
        result = loop.run_until_complete(tools.call("get_weather", ARGUMENTS))
        assert result.value == {"city": "Lisbon", "days": 3, "temp": 18.5}, result
        pipe = asyncio.subprocess.PIPE
        start = asyncio.create_subprocess_exec(sys.executable, "-c", ECHO, stdin=pipe, stdout=pipe)
        echo = loop.run_until_complete(start)
        blocking = Popen([sys.executable, "-c", ECHO], stdin=PIPE, stdout=PIPE)

        async def echoed() -> Any:
            assert echo.stdin is not None
            assert echo.stdout is not None
            echo.stdin.write(json.dumps(ARGUMENTS).encode() + b"\n")
            return json.loads(await echo.stdout.readline())

        async def echoed_blocking() -> Any:
            assert blocking.stdin is not None
            assert blocking.stdout is not None
            blocking.stdin.write(json.dumps(ARGUMENTS).encode() + b"\n")
            blocking.stdin.flush()
            return json.loads(blocking.stdout.readline())

        times = interleaved(
            {
                "ours": a_round(loop, partial(tools.call, "get_weather", ARGUMENTS), WARM_CALLS),
                "pipe": a_round(loop, echoed, WARM_CALLS),
                "blocking": a_round(loop, echoed_blocking, WARM_CALLS),
            },
            rounds,
        )
        loop.run_until_complete(tools.aclose())
        blocking.communicate()
        assert echo.stdin is not None
        echo.stdin.close()
        loop.run_until_complete(echo.wait())
        sys.path.remove(folder)
    what = "function in a warm worker process"
    yield Row(
        what, "round trip over asyncio's pipes to a process that echoes", times["ours"], times["pipe"], 2
    )
    yield Row(what, "the same over blocking pipes", times["ours"], times["blocking"], None)


ENTRY_POINTS = "[toolcrib.tools]\nbenchmark = benchmarked_tools\n"
METADATA = "Metadata-Version: 2.1\nName: benchmarked-tools\nVersion: 1.0\n"


def version_with_tools(rounds: int = 240) -> Row:
    """`toolcrib --version` where a distribution offers typed tools, and where none does."""
    # The starts of two processes vary by some 10 %: with fewer rounds, the interval would be wider than the goal.
    command = [str(Path(sys.executable).with_name("toolcrib")), "--version"]
    with TemporaryDirectory() as installed, TemporaryDirectory() as empty:
        Path(installed, "benchmarked_tools.py").write_text(MODULE, encoding="utf-8")
        described = Path(installed, "benchmarked_tools-1.0.dist-info")
        described.mkdir()
        (described / "METADATA").write_text(METADATA, encoding="utf-8")
        (described / "entry_points.txt").write_text(ENTRY_POINTS, encoding="utf-8")

        def a_start(folder: str) -> float:
            variables = {**os.environ, "PYTHONPATH": folder}
            started = perf_counter()
            run(command, env=variables, stdout=DEVNULL, check=True)
            return perf_counter() - started

        times = interleaved(
            {"installed": partial(a_start, installed), "none": partial(a_start, empty)}, rounds
        )
    what = "toolcrib --version with typed tools installed"
    return Row(what, "the same without them", times["installed"], times["none"], 1.02)


def rows() -> Iterator[Row]:
    """The rows."""
    loop = asyncio.new_event_loop()
    yield typed_call(loop)
    yield from warm_worker(loop)
    yield version_with_tools()
    loop.close()


if __name__ == "__main__":
    for row in rows():
        print(line(row))
