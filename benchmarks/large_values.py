"""Large invalid values: the time to validate them, the delay of other requests, and the overrun of a deadline.

    python benchmarks/large_values.py [--compare RUNTIME]

`--compare` is the folder `runtime` of another commit, whose mocked call is compared with that of this one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, Final

import calls
from http_server import LATE_ITEMS, serving
from mcp_raw import HttpClient, ready
from mcp_server import environment, free_port, running
from rounds import Round, Row, interleaved, line

from toolcrib import Executors, Outcome, Runtime, parse_registry

ITEMS: Final = 200_000
DEADLINE: Final = 1.0
"""Seconds; the server answers 30 ms before, which is less than judging its answer takes."""

TOOL: Final[dict[str, Any]] = {
    "name": "sum",
    "input_schema": {
        "type": "object",
        "properties": {"items": {"type": "array", "items": {"type": "integer"}}},
    },
    "mock": {"result": 1},
}

_CALLS: Final = 4_000


def judged(loop: asyncio.AbstractEventLoop, rounds: int) -> Row:
    """A call with 200,000 invalid items, and one with as many valid ones."""
    tools = calls.runtime_of(TOOL)

    def timed(item: object, outcome: Outcome) -> Round:
        arguments: Any = {"items": [item] * ITEMS}

        async def one() -> float:
            started = perf_counter()
            result = await tools.call("sum", arguments)
            took = perf_counter() - started
            assert result.outcome is outcome, result
            return took

        return lambda: loop.run_until_complete(one())

    times = interleaved({"bad": timed("x", Outcome.INVALID_ARGUMENTS), "good": timed(1, Outcome.OK)}, rounds)
    return Row(f"mocked call with {ITEMS:,} invalid items", "valid items", times["bad"], times["good"], 1.5)


def overrun(loop: asyncio.AbstractEventLoop, rounds: int) -> Row:
    """A call whose response, 781 KiB of invalid items, arrives just before its deadline."""
    kinds = Executors.installed()
    with serving() as port:
        origin = f"http://127.0.0.1:{port}"
        tool: dict[str, Any] = {
            "name": "late",
            "mode": "live",
            "timeout": f"{DEADLINE:g}s",
            "annotations": {"read_only": True},
            "limits": {"attempts": 1, "breaker": "off"},
            "output_schema": {"type": "array", "items": {"type": "integer"}},
            "live": {"url": f"{origin}/late"},
        }
        tools = Runtime(
            parse_registry("benchmark.json", [tool], kinds=kinds),
            executors=kinds,
            egress=[f"127.0.0.1:{port}"],
        )

        async def one() -> float:
            started = perf_counter()
            result = await tools.call("late")
            took = perf_counter() - started
            assert result.outcome in {Outcome.TIMEOUT, Outcome.INVALID_RESULT}, result
            return max(took, DEADLINE)

        took = [loop.run_until_complete(one()) for _ in range(rounds + 1)][1:]
        loop.run_until_complete(tools.aclose())
    measure = f"live call with a response of {LATE_ITEMS:,} invalid items, 30 ms before the deadline"
    return Row(measure, "the deadline", took, [DEADLINE] * rounds, 1.1)


def health(rounds: int) -> Row:
    """The longest wait for `/healthz` while a request of 3.9 MB is validated, and on an idle server."""
    arguments = {"items": ["x" * 16] * ITEMS}
    with TemporaryDirectory() as folder:
        Path(folder, "sum.tool.yaml").write_text(json.dumps(TOOL), encoding="utf-8")
        port = free_port()
        words = [str(Path(sys.executable).parent / "toolcrib"), "serve", "mcp", folder]
        words += ["--transport", "http", "--port", str(port)]
        with running(words, environment(Path(folder))) as process, asyncio.Runner() as runner:
            runner.run(ready(port, process))
            client = runner.run(HttpClient(port, "2025-11-25").open())
            request = client.request("tools/call", {"name": "sum", "arguments": arguments})
            times = interleaved(
                {
                    "judging": lambda: runner.run(_longest_wait(port, client.exchange(request))),
                    "idle": lambda: runner.run(_longest_wait(port, asyncio.sleep(0.2))),
                },
                rounds,
            )
            runner.run(client.close())
    measure = (
        f"longest wait for /healthz, while an invalid request of {len(request) / 1e6:.1f} MB is validated"
    )
    return Row(measure, "idle server", times["judging"], times["idle"], None)


async def _longest_wait(port: int, meanwhile: Any) -> float:
    """The longest wait for `/healthz` until something else has ended."""
    task = asyncio.ensure_future(meanwhile)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    longest = 0.0
    while not task.done():
        started = perf_counter()
        writer.write(f"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode())
        head = await reader.readuntil(b"\r\n\r\n")
        length = int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0])
        await reader.readexactly(length)
        longest = max(longest, perf_counter() - started)
        await asyncio.sleep(0.001)
    writer.close()
    await task
    return longest


_WORKER = """
import asyncio, sys
import calls
loop = asyncio.new_event_loop()
tools = calls.runtime_of(calls.weather())
one = calls.a_round(loop, lambda: tools.call("weather", calls.ARGUMENTS), int(sys.argv[1]))
for _line in sys.stdin:
    print(one(), flush=True)
"""


@contextmanager
def _worker(runtime: Path) -> Iterator[Round]:
    """A process that makes mocked calls with the package in a folder."""
    places = os.pathsep.join([str(runtime), str(Path(__file__).parent)])
    words = [sys.executable, "-c", _WORKER, str(_CALLS)]
    variables: Mapping[str, str] = {**os.environ, "PYTHONPATH": places}
    with subprocess.Popen(
        words, env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as process:
        source, target = process.stdout, process.stdin
        assert source is not None
        assert target is not None

        def one() -> float:
            target.write("\n")
            target.flush()
            return float(source.readline())

        yield one
        target.close()


def compared(other: Path, rounds: int) -> Row:
    """A mocked call of this version and of another."""
    with _worker(Path(__file__).parents[1] / "runtime") as ours, _worker(other) as theirs:
        times = interleaved({"ours": ours, "theirs": theirs}, rounds)
    return Row("mocked call", str(other), times["ours"], times["theirs"], 1.02)


def rows(rounds: int = 30) -> Iterator[Row]:
    """All measures of this file that need no other version."""
    loop = asyncio.new_event_loop()
    try:
        yield judged(loop, rounds)
        yield overrun(loop, rounds)
        yield health(rounds)
    finally:
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--compare", type=Path)
    given = parser.parse_args()
    measures = partial(compared, given.compare.absolute(), given.rounds) if given.compare else None
    for row in rows(given.rounds) if measures is None else [measures()]:
        print(line(row), flush=True)


if __name__ == "__main__":
    main()
