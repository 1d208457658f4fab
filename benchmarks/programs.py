"""Programs as tools: a call in mode `exec`, and the same program started bare, with and without bubblewrap.

python benchmarks/programs.py
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from time import perf_counter
from typing import Literal

from rounds import Round, Row, interleaved, line

from toolcrib import Executors, Runtime, parse_registry

CALLS = 5
"""Calls in one round."""

PROGRAM = [sys.executable, "-I", "-S", "-c", "print('done')"]
"""A program as tools are: an interpreter that starts and prints a line."""


def tools(sandbox: str) -> Runtime:
    """A runtime with the program as a tool."""
    document = json.dumps({"name": "program", "mode": "exec", "exec": {"command": PROGRAM}})
    kinds = Executors.installed()
    chosen: Literal["bubblewrap", "none"] = "none" if sandbox == "none" else "bubblewrap"
    return Runtime(parse_registry("benchmark.json", document, kinds=kinds), executors=kinds, sandbox=chosen)


async def bare(*command: str) -> None:
    """The program, started by asyncio, with its output."""
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
    output, _errors = await process.communicate()
    assert output == b"done\n", output


async def called(runtime: Runtime) -> None:
    """The program as a tool."""
    result = await runtime.call("program")
    assert result.value == "done\n", result


def a_round(loop: asyncio.AbstractEventLoop, call: Callable[[], Awaitable[None]]) -> Round:
    """A round of consecutive calls; its time is that of one call."""

    async def calls() -> float:
        started = perf_counter()
        for _ in range(CALLS):
            await call()
        return (perf_counter() - started) / CALLS

    return lambda: loop.run_until_complete(calls())


def compared(loop: asyncio.AbstractEventLoop, sandbox: str, command: list[str], rounds: int) -> Row:
    """A call, and the same command started bare."""
    runtime = tools(sandbox)
    times = interleaved(
        {"ours": a_round(loop, partial(called, runtime)), "bare": a_round(loop, partial(bare, *command))},
        rounds,
    )
    loop.run_until_complete(runtime.aclose())
    where = "without a sandbox" if sandbox == "none" else "in bubblewrap"
    return Row(
        f"program for each call, {where}", "the same program started bare", times["ours"], times["bare"], 1.3
    )


CALLER = """
import asyncio, resource, sys
sys.path.insert(0, sys.argv[1])
import programs
runtime = programs.tools("none")
async def main():
    for _ in range(100):
        await (programs.called(runtime) if sys.argv[2] == "ours" else programs.bare(*programs.PROGRAM))
    await runtime.aclose()
asyncio.run(main())
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


def memory(rounds: int = 30) -> Row:
    """Peak memory of a process that makes a hundred calls, and of one that starts the program as often."""

    def peak(kind: str) -> float:
        command = [sys.executable, "-c", CALLER, __file__.rpartition("/")[0], kind]
        return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)

    sizes = interleaved({kind: partial(peak, kind) for kind in ("ours", "bare")}, rounds)
    what = "memory of the caller after 100 programs"
    return Row(what, "the same programs started bare", sizes["ours"], sizes["bare"], 1.1, unit="B")


def rows(rounds: int = 40) -> Iterator[Row]:
    """The rows."""
    loop = asyncio.new_event_loop()
    yield compared(loop, "none", PROGRAM, rounds)
    bwrap = shutil.which("bwrap")
    if bwrap is not None:
        shared = [bwrap, "--ro-bind", "/", "/", "--proc", "/proc", "--dev", "/dev", "--unshare-all"]
        yield compared(loop, "bubblewrap", [*shared, "--die-with-parent", "--", *PROGRAM], rounds)
    loop.close()
    yield memory()


if __name__ == "__main__":
    for row in rows():
        print(line(row))
