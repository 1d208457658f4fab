"""Our MCP server beside the SDK's bare low-level server and FastMCP, with the same tools, each in a process of its own.

A raw client calls all of them: over HTTP in both eras of the protocol, with one connection and with fifty, each a client
of its own. Ours checks arguments and results; the bare server checks nothing.

    python benchmarks/mcp_server.py [--rounds 30]
"""

from __future__ import annotations

import argparse
import asyncio
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple, get_args

from mcp_raw import Era, HttpClient, first_answer, ready
from peers import python_of
from rounds import Round, Row, interleaved, line

HERE = Path(__file__).parent
ROUNDS = 30
LISTINGS = 7
STARTS = 30
FEW, MANY = 10, 2_000
CLIENTS = 50
REST = 2.5
"""Seconds after which the index takes the times of files for granted; see `startup`."""

CALL = {"name": "tool_0", "arguments": {"city": "Lisbon", "days": 3}}
ERAS: tuple[Era, ...] = get_args(Era)

SDK, FASTMCP = "the SDK's low-level server, bare", "FastMCP"


DESCRIPTOR = """\
name: tool_{number}
description: The weather in a city, {number}.
input_schema:
  type: object
  properties:
    city: {{type: string, minLength: 1}}
    days: {{type: integer, minimum: 1, maximum: 14}}
  required: [city]
  additionalProperties: false
output_schema:
  type: object
  properties: {{city: {{type: string}}, days: {{type: integer}}, temp: {{type: number}}}}
  required: [city, temp]
mock: {{result: {{city: "{{{{ args.city }}}}", days: "{{{{ args.days }}}}", temp: 18.5}}}}
"""
"""One of our tools; those of the others are in `peers/worker.py`."""


class Goal(NamedTuple):
    """Ours beside a base; see `Row`."""

    base: str
    title: str
    call: float
    call_faster: bool
    listing: float
    start: float | None


GOALS = (
    Goal("sdk", SDK, 1.15, call_faster=False, listing=20, start=None),
    Goal("fastmcp", FASTMCP, 2, call_faster=True, listing=20, start=0.8),
)

Words = Callable[[int, "int | None"], list[str]]
"""The command line of a server with so many tools: over HTTP on a port, or over stdio."""


class Resident(NamedTuple):
    """How much memory servers hold, in bytes."""

    measure: str
    held: Mapping[str, int]

    def __str__(self) -> str:
        return f"{self.measure}: " + ", ".join(
            f"{name} {held / 2**20:.0f} MiB" for name, held in self.held.items()
        )


def servers(folder: Path) -> dict[str, Words]:
    """Name -> command line. The descriptors of ours are written below the folder."""
    for count in (FEW, MANY):
        (folder / str(count)).mkdir()
        for number in range(count):
            path = folder / str(count) / f"tool_{number:04d}.tool.yaml"
            path.write_text(DESCRIPTOR.format(number=number), encoding="utf-8")

    def ours(count: int, port: int | None) -> list[str]:
        over = ["--transport", "stdio"] if port is None else ["--transport", "http", "--port", str(port)]
        return [
            str(Path(sys.executable).parent / "toolcrib"),
            "serve",
            "mcp",
            str(folder / str(count)),
            *over,
        ]

    return {"ours": ours, "sdk": theirs("mcp"), "fastmcp": theirs("fastmcp")}


def theirs(environment: str) -> Words:
    """The server of a peer."""
    script = HERE / "peers" / f"serving_{environment}.py"

    def words(count: int, port: int | None) -> list[str]:
        return [str(python_of(environment)), str(script), str(count), *([] if port is None else [str(port)])]

    return words


def environment(folder: Path) -> dict[str, str]:
    """The variables that servers start under."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "TOOLCRIB_"))}
    return kept | {"XDG_CACHE_HOME": str(folder / "cache")}


class Serving(ExitStack):
    """Servers that run and clients that are connected to them, until it is closed."""

    def __init__(self, count: int, named: Mapping[str, Words], variables: Mapping[str, str]) -> None:
        super().__init__()
        self.runner = self.enter_context(asyncio.Runner())
        self.ports: dict[str, int] = {}
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        for name, words in named.items():
            self.ports[name] = port = free_port()
            self._processes[name] = process = self.enter_context(running(words(count, port), variables))
            self.runner.run(ready(port, process))

    def clients(self, name: str, era: Era, count: int) -> list[HttpClient]:
        """Connected clients, which have shaken hands where the era does."""

        async def opened() -> list[HttpClient]:
            return [await HttpClient(self.ports[name], era).open() for _ in range(count)]

        known = self.runner.run(opened())
        for client in known:
            self.callback(self.runner.run, client.close())
        return known

    def calls(self, name: str, era: Era, clients: int) -> Round:
        """A round: mean seconds of one call over so many, which so many clients make at once."""
        each = 60 if clients == 1 else 5
        known = [(client, client.request("tools/call", CALL)) for client in self.clients(name, era, clients)]

        async def caller(client: HttpClient, request: bytes) -> None:
            for _ in range(each):
                answer = await client.exchange(request)
                assert b"18.5" in answer.body, answer

        async def together() -> float:
            for client, _request in known:
                await client.refreshed()
            started = time.perf_counter()
            await asyncio.gather(*[caller(*pair) for pair in known])
            return (time.perf_counter() - started) / (clients * each)

        return lambda: self.runner.run(together())

    def listings(self, name: str, era: Era) -> Round:
        """A round: seconds until all tools are listed, however many pages they take."""
        (client,) = self.clients(name, era, 1)

        async def listed() -> float:
            await client.refreshed()
            started = time.perf_counter()
            bodies = await client.list_all()
            took = time.perf_counter() - started
            assert sum(body.count(b'"inputSchema"') for body in bodies) == MANY
            return took

        return lambda: self.runner.run(listed())

    def resident(self, measure: str) -> Resident:
        """What the servers hold now."""
        return Resident(measure, {name: resident(process.pid) for name, process in self._processes.items()})


def free_port() -> int:
    """A port of loopback that nobody listens on."""
    with socket.socket() as sought:
        sought.bind(("127.0.0.1", 0))
        return int(sought.getsockname()[1])


@contextmanager
def running(words: list[str], variables: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A server, until it is not needed any more."""
    with subprocess.Popen(words, env=variables, stdin=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.terminate()


def resident(pid: int) -> int:
    """The memory of a process that is resident, in bytes; only Linux tells it so."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    told = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(told.split()[1]) * 1024


def called(serving: Serving, rounds: int) -> Iterator[Row]:
    """Calls, in both eras, with one client and with many."""
    for era in ERAS:
        for clients in (1, CLIENTS):
            contenders = {name: serving.calls(name, era, clients) for name in serving.ports}
            times = interleaved(contenders, rounds)
            many = f", {clients} clients" if clients > 1 else ""
            for goal in GOALS:
                measure = f"a call over MCP (HTTP, {era}){many}"
                yield Row(
                    measure, goal.title, times["ours"], times[goal.base], goal.call, faster=goal.call_faster
                )


def listed(serving: Serving, rounds: int) -> Iterator[Row]:
    """`tools/list`, in both eras."""
    for era in ERAS:
        times = interleaved({name: serving.listings(name, era) for name in serving.ports}, rounds)
        for goal in GOALS:
            measure = f"listing {MANY:,} tools over MCP (HTTP, {era})"
            yield Row(measure, goal.title, times["ours"], times[goal.base], goal.listing, faster=True)


def started(named: Mapping[str, Words], variables: Mapping[str, str], rounds: int) -> Iterator[Row]:
    """From nothing to the answer to a first call, over stdio; the index of ours is there already."""
    contenders = {
        name: partial(first_answer, words(FEW, None), variables, CALL) for name, words in named.items()
    }
    for wait in (REST, 0.0):
        time.sleep(wait)
        contenders["ours"]()
    times = interleaved(contenders, rounds)
    for goal in GOALS:
        measure = "an MCP server on stdio, from its start to its first answer"
        yield Row(measure, goal.title, times["ours"], times[goal.base], goal.start)


class Measures:
    """All measures of this file."""

    def __init__(self, rounds: int = ROUNDS) -> None:
        self._rounds = rounds
        self.memory: list[Resident] = []

    def rows(self) -> Iterator[Row]:
        """What was measured, as it goes; `memory` is filled by the way."""
        with tempfile.TemporaryDirectory(prefix="toolcrib-mcp-") as place:
            folder = Path(place)
            named, variables = servers(folder), environment(folder)
            yield from started(named, variables, min(STARTS, self._rounds))
            with Serving(FEW, named, variables) as serving:
                yield from called(serving, self._rounds)
                self.memory.append(serving.resident(f"resident, {FEW} tools, after these calls"))
            with Serving(MANY, named, variables) as serving:
                yield from listed(serving, min(LISTINGS, self._rounds))
                self.memory.append(serving.resident(f"resident, {MANY:,} tools, after these listings"))


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    measures = Measures(parser.parse_args().rounds)
    for row in measures.rows():
        print(line(row), flush=True)
    for each in measures.memory:
        print(each)


if __name__ == "__main__":
    main()
