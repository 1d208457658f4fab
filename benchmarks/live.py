"""Live calls over loopback, compared with httpx alone and with the HTTP tools of other runtimes; cancelled calls.

All call the same server, which runs in its own process. A live call has every layer: arguments and response are validated.

    python benchmarks/live.py
"""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple
from urllib.request import urlopen

from http_server import serving
from peers import Worker, python_of
from rounds import Leftovers, Round, Row, interleaved, line

from toolcrib import Executors, Outcome, Runtime, parse_registry
from toolcrib.executors.live import LiveExecutor

ROUNDS = 30
CALLERS = 100

SEQUENTIAL, AT_ONCE = "live call", f"live call, {CALLERS} concurrent callers"


class Goal(NamedTuple):
    """A comparison within one process; see `Row`."""

    ours: str
    title: str
    base: str
    alone: float | None
    at_once: float | None


GOALS = (
    Goal("ours", "", "httpx.AsyncClient.get", 0.6, 0.2),
    Goal("ours", "", "hand-written HTTP/1.1 on asyncio streams", None, None),
    Goal("ours_as_it_is", ", default limits", "httpx.AsyncClient.get", None, None),
)

BASES = {"httpx.AsyncClient.get": "httpx", "hand-written HTTP/1.1 on asyncio streams": "by_hand"}


class Peer(NamedTuple):
    """Another runtime's HTTP tool: its environment, its script, and the ways to call it."""

    environment: str
    script: str
    ways: tuple[Way, ...]


class Way(NamedTuple):
    """One way to call a tool.

    Attributes:
        contender: Its name in the script.
        title: Name in the results.
        goal: Whether toolcrib must be faster.
    """

    contender: str
    title: str
    goal: bool = True


PEERS = (
    Peer("utcp", "utcp_http", (Way("call", "UTCP client, http"),)),
    Peer(
        "fastmcp",
        "fastmcp_openapi",
        (
            Way("call", "FastMCP.from_openapi, FastMCP client"),
            Way("server", "FastMCP.from_openapi, server.call_tool"),
        ),
    ),
    Peer(
        "langchain",
        "langchain_requests",
        (
            Way("call", "LangChain RequestsGetTool"),
            Way("session", "LangChain RequestsGetTool with an aiohttp session", goal=False),
        ),
    ),
)


def timed(worker: Worker, contender: str, callers: int) -> Round:
    """A round of tens or hundreds of milliseconds."""
    count = 100 if callers == 1 else 2 * callers
    return lambda: worker.time(contender, count, callers)


def compared_with_httpx(ours: Worker, rounds: int) -> Iterator[Row]:
    """The cost of the layers over the HTTP client, and the floor."""
    names = {name for goal in GOALS for name in (goal.ours, BASES[goal.base])}
    alone = interleaved({name: timed(ours, name, 1) for name in sorted(names)}, rounds)
    at_once = interleaved({name: timed(ours, name, CALLERS) for name in sorted(names)}, rounds)
    for goal in GOALS:
        base = BASES[goal.base]
        if "as_it_is" not in goal.ours:
            yield Row(f"{SEQUENTIAL}{goal.title}", goal.base, alone[goal.ours], alone[base], goal.alone)
        yield Row(f"{AT_ONCE}{goal.title}", goal.base, at_once[goal.ours], at_once[base], goal.at_once)


def compared_with_peers(ours: Worker, theirs: Mapping[str, Worker], rounds: int) -> Iterator[Row]:
    """Sequential and concurrent calls of other runtimes."""
    ways = [(peer.script, way) for peer in PEERS for way in peer.ways]
    for callers, measure in ((1, SEQUENTIAL), (CALLERS, AT_ONCE)):
        contenders = {"ours": timed(ours, "ours", callers)}
        contenders |= {
            f"{script} {way.contender}": timed(theirs[script], way.contender, callers) for script, way in ways
        }
        times = interleaved(contenders, rounds)
        for script, way in ways:
            took = times[f"{script} {way.contender}"]
            yield Row(measure, way.title, times["ours"], took, 1.0 if way.goal else None)


LOTS = 10
PASSING, WAITING = 50, 50
"""How many calls of a lot are under way, and how many wait for one of their places."""


def holding(port: int) -> dict[str, Any]:
    """A tool whose answers never end."""
    return {
        "name": "hold",
        "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
        "limits": {"concurrency": PASSING, "queue": WAITING, "cache": 0},
        "live": {"url": f"http://127.0.0.1:{port}/{{{{ args.path }}}}"},
    }


def told(port: int) -> dict[str, int]:
    """What the server has seen; see `http_server`."""
    with urlopen(f"http://127.0.0.1:{port}/told") as answer:
        found: dict[str, int] = json.load(answer)
    return found


def open_files() -> int:
    """How many files and sockets this process has open."""
    return sum(1 for _ in Path("/dev/fd").iterdir())


async def until(reached: Callable[[], bool]) -> None:
    """Wait for something, at most two seconds."""
    for _ in range(400):
        if reached():
            return
        await asyncio.sleep(0.005)


async def cancelled_lot(tools: Runtime, port: int, number: int) -> int:
    """Start calls and cancel them: as soon as they began, with no answer, or in the middle of one. Returns how many."""
    path = ("silent", "half")[number % 2]
    before = told(port)["held"]
    calls = [asyncio.ensure_future(tools.call("hold", {"path": path})) for _ in range(PASSING + WAITING)]
    if number < LOTS // 2:
        for _ in range(number):
            await asyncio.sleep(0)
    else:
        await until(lambda: told(port)["held"] - before >= PASSING)
    for call in calls:
        call.cancel()
    ends = await asyncio.gather(*calls, return_exceptions=True)
    return sum(isinstance(end, asyncio.CancelledError) for end in ends)


async def cancelled(port: int) -> Leftovers:
    """Resources that many cancelled calls leave behind."""
    kinds = Executors({"live": LiveExecutor})
    registry = parse_registry("live.json", holding(port), kinds=kinds)
    async with Runtime(registry, executors=kinds, egress=[f"127.0.0.1:{port}"]) as tools:
        files, tasks = open_files(), len(asyncio.all_tasks())
        count = sum([await cancelled_lot(tools, port, number) for number in range(LOTS)])

        def left() -> dict[str, int]:
            return {
                "sockets": open_files() - files,
                "connections at the server": told(port)["open"],
                "tasks": len(asyncio.all_tasks()) - tasks,
            }

        await until(lambda: not any(left().values()))
        counts = left()
        again = [tools.call("hold", {"path": "any"}) for _ in range(PASSING + WAITING)]
        results = await asyncio.gather(*again)
        counts["slots"] = sum(result.outcome is Outcome.OVERLOADED for result in results)
        assert {result.outcome for result in results} <= {Outcome.OK, Outcome.OVERLOADED}, results
    return Leftovers(f"{count:,} cancelled calls", counts)


def leftovers() -> Iterator[Leftovers]:
    """Resources that cancelled calls leave behind."""
    with serving(python_of("server")) as port:
        yield asyncio.run(cancelled(port))


def rows(versions: dict[str, str] | None = None, rounds: int = ROUNDS) -> Iterator[Row]:
    """All measures of this file; adds the measured versions to `versions`."""
    with ExitStack() as stack:
        origin = f"http://127.0.0.1:{stack.enter_context(serving(python_of('server')))}"
        ours = stack.enter_context(Worker(sys.executable, "toolcrib_live", origin))
        yield from compared_with_httpx(ours, rounds)
        theirs = {
            peer.script: stack.enter_context(Worker(python_of(peer.environment), peer.script, origin))
            for peer in PEERS
        }
        for worker in (*theirs.values(), ours):
            (versions if versions is not None else {}).update(worker.about["versions"])
        yield from compared_with_peers(ours, theirs, rounds)


if __name__ == "__main__":
    for row in rows():
        print(line(row), flush=True)
    for each in leftovers():
        print(each, flush=True)
