"""MCP servers with the same tools: toolcrib, the SDK's low-level server at several settings, and FastMCP.

Each server runs in its own process. A raw client calls them over HTTP, with a handshake (2025-11-25) and without
(2026-07-28), over 1 and over 50 connections. toolcrib validates arguments and results. The SDK's low-level server
validates nothing unless its row says so.

    python benchmarks/mcp_server.py [--rounds 30]
"""

from __future__ import annotations

import argparse
import asyncio
import json
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
from typing import Any, NamedTuple, get_args

from mcp_raw import Era, HttpClient, first_answer, ready
from peers import Worker, python_of
from rounds import Round, Row, interleaved, line

HERE = Path(__file__).parent
ROUNDS = 30
LISTINGS = 30
STARTS = 30
FEW, MANY = 10, 2_000
CLIENTS = 50
REST = 2.5
"""Seconds after which the index takes the times of files for granted; see `startup`."""

CALL = {"name": "tool_0", "arguments": {"city": "Lisbon", "days": 3}}
ERAS: tuple[Era, ...] = get_args(Era)


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
"""A tool of toolcrib's server; the other servers get theirs from `peers/worker.py`."""


class Peer(NamedTuple):
    """A server that toolcrib is compared with, and the goals of the comparison; see `Row`.

    Attributes:
        title: Name in the results.
        options: Options of its script.
        call: Goal for a call; None for no goal.
        call_faster: Whether `call` is a speed-up.
        listing: Goal for `tools/list` by the raw client, as a speed-up; None to leave it out.
        sdk_listing: Goal for `tools/list` by the SDK's client; None to leave it out.
        start: Goal for the start on stdio; None for no goal.
        starts: Whether the start is measured.
    """

    title: str
    options: tuple[str, ...] = ()
    call: float | None = None
    call_faster: bool = False
    listing: float | None = None
    sdk_listing: float | None = None
    start: float | None = None
    starts: bool = True


# Sessions are kept: `stateless_http=True` takes 1.2 to 1.4 times as long, since every request then starts a server task.
PEERS: Mapping[str, Peer] = {
    "sdk": Peer("SDK, default settings", call=1.15, listing=20, sdk_listing=0.4),
    "sdk_json": Peer("SDK, json_response", ("--json",), starts=False),
    "sdk_validated": Peer(
        "SDK, json_response + validation both ways", ("--json", "--validate"), call=0.9, starts=False
    ),
    "fastmcp": Peer("FastMCP", call=2, call_faster=True, listing=20, sdk_listing=0.25, start=0.8),
}

Words = Callable[[int, "int | None"], list[str]]
"""The command line of a server with a number of tools, over HTTP on a port or over stdio."""


NOTEBOOK = {
    "toolcrib.yaml": "project: notebook\nsources: [tools]\nstore: {notes: {file: notes.json, key: id}}\n",
    "notes.json": json.dumps([{"id": f"n{number}", "text": f"Note {number}."} for number in range(1_550)]),
    "tools/notes.tool.yaml": """\
name: add_note
description: Add a note.
input_schema: {type: object, properties: {text: {type: string}}, required: [text], additionalProperties: false}
mock: {effects: [{insert: notes, value: {id: "{{ uuid() }}", text: "{{ args.text }}"}}], result: added}
---
name: get_note
description: Read a note.
input_schema: {type: object, properties: {id: {type: string}}, required: [id], additionalProperties: false}
mock: {crud: {get: notes, key: "{{ args.id }}"}}
""",
}
"""Tools that keep state, with initial rows that all sessions share."""

SESSIONS, SESSIONS_GOAL = 1_000, 1.1


class Resident(NamedTuple):
    """Resident memory of servers, in bytes."""

    measure: str
    held: Mapping[str, int]

    def __str__(self) -> str:
        return f"{self.measure}: " + ", ".join(
            f"{name} {held / 2**20:.0f} MiB" for name, held in self.held.items()
        )


def servers(folder: Path) -> dict[str, Words]:
    """Name -> command line. Writes the descriptors of toolcrib's tools below the folder."""
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

    peers = {
        name: theirs(name.partition("_")[0].replace("sdk", "mcp"), *peer.options)
        for name, peer in PEERS.items()
    }
    return {"ours": ours, **peers}


def theirs(environment: str, *options: str) -> Words:
    """The server of a peer."""
    python, script = str(python_of(environment)), HERE / "peers" / f"serving_{environment}.py"

    def words(count: int, port: int | None) -> list[str]:
        return [python, str(script), str(count), *([] if port is None else [str(port)]), *options]

    return words


def environment(folder: Path) -> dict[str, str]:
    """Environment variables of the servers."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "TOOLCRIB_"))}
    return kept | {"XDG_CACHE_HOME": str(folder / "cache")}


class Serving(ExitStack):
    """Running servers and the clients connected to them."""

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
        """Connected clients, after the handshake if the revision has one."""

        async def opened() -> list[HttpClient]:
            return [await HttpClient(self.ports[name], era).open() for _ in range(count)]

        known = self.runner.run(opened())
        for client in known:
            self.callback(self.runner.run, client.close())
        return known

    def calls(self, name: str, era: Era, clients: int) -> Round:
        """A round: mean seconds per call of concurrent clients."""
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
        """A round: seconds until all pages of `tools/list` are read."""
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
        """The memory that the servers use now."""
        return Resident(measure, {name: resident(process.pid) for name, process in self._processes.items()})


def free_port() -> int:
    """A free port on loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def running(words: list[str], variables: Mapping[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    """A running server, for as long as the block lasts."""
    with subprocess.Popen(words, env=variables, stdin=subprocess.DEVNULL) as process:
        try:
            yield process
        finally:
            process.terminate()


def resident(pid: int) -> int:
    """Resident memory of a process in bytes; Linux only."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    told = next(line for line in status.splitlines() if line.startswith("VmRSS:"))
    return int(told.split()[1]) * 1024


def called(serving: Serving, rounds: int) -> Iterator[Row]:
    """Calls with and without a handshake, by one client and by many."""
    for era in ERAS:
        for clients in (1, CLIENTS):
            times = interleaved({name: serving.calls(name, era, clients) for name in serving.ports}, rounds)
            many = f", {clients} clients" if clients > 1 else ""
            measure = f"MCP call over HTTP, {era}{many}"
            for name, peer in PEERS.items():
                yield Row(measure, peer.title, times["ours"], times[name], peer.call, faster=peer.call_faster)


def listed(serving: Serving, rounds: int) -> Iterator[Row]:
    """`tools/list` by the raw client, with and without a handshake."""
    for era in ERAS:
        times = interleaved({name: serving.listings(name, era) for name in serving.ports}, rounds)
        for name in [name for name in serving.ports if name in PEERS]:
            measure = f"tools/list of {MANY:,} tools over HTTP, {era}"
            yield Row(
                measure, PEERS[name].title, times["ours"], times[name], PEERS[name].listing, faster=True
            )


def listed_by_sdk(serving: Serving, rounds: int) -> Iterator[Row]:
    """`tools/list` by the SDK's client, which negotiates the newest revision and validates every tool.

    Its own work is most of the time. A client without a server shows how much.
    """
    urls = [f"{name}=http://127.0.0.1:{port}/mcp" for name, port in serving.ports.items()]
    with Worker(python_of("mcp"), "mcp_listing", *urls) as worker:
        times = interleaved(
            {name: partial(worker.time, name, 1) for name in [*serving.ports, "floor"]}, rounds
        )
    measure = f"tools/list of {MANY:,} tools by the SDK's client"
    peers = [name for name in serving.ports if name in PEERS]
    for name in peers:
        yield Row(measure, PEERS[name].title, times["ours"], times[name], PEERS[name].sdk_listing)
    yield Row(measure, "no server (floor)", times["ours"], times["floor"], None)
    for name in peers:
        yield Row(f"{measure}, no server (floor)", PEERS[name].title, times["floor"], times[name], None)


def started(named: Mapping[str, Words], variables: Mapping[str, str], rounds: int) -> Iterator[Row]:
    """From the start of the process to the answer to a first call, over stdio; toolcrib's index exists already."""
    contenders = {
        name: partial(first_answer, words(FEW, None), variables, CALL)
        for name, words in named.items()
        if name == "ours" or PEERS[name].starts
    }
    for wait in (REST, 0.0):
        time.sleep(wait)
        contenders["ours"]()
    times = interleaved(contenders, rounds)
    for name in [name for name in contenders if name in PEERS]:
        measure = "MCP server on stdio, start to first answer"
        yield Row(measure, PEERS[name].title, times["ours"], times[name], PEERS[name].start)


def sessions_held(folder: Path, variables: Mapping[str, str], rounds: int) -> Row:
    """Memory of a server with one session by handle, and then with many, each of which has written and read a row."""
    for name, text in NOTEBOOK.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")

    async def used(client: HttpClient, sessions: int, calls: int) -> None:
        async def call(name: str, **arguments: str) -> Any:
            params = {"name": name, "arguments": arguments}
            answer = await client.exchange(client.request("tools/call", params))
            result = answer.message["result"]
            assert not result.get("isError"), result
            return result.get("structuredContent")

        handles = [(await call("open_session"))["session"] for _ in range(sessions)]
        for number in range(calls):
            handle = handles[number % sessions]
            await call("add_note", session=handle, text=f"Note of call {number}.")
            await call("get_note", session=handle, id="n7")

    async def held() -> tuple[int, int]:
        port = free_port()
        words = [str(Path(sys.executable).parent / "toolcrib"), "serve", "mcp", str(folder)]
        words += ["--transport", "http", "--port", str(port), "--sessions", "handle"]
        with running(words, variables) as process:
            await ready(port, process)
            client = await HttpClient(port, "2026-07-28").open()
            # As many calls as below, so that only the sessions make a difference.
            await used(client, 1, SESSIONS)
            one = resident(process.pid)
            await used(client, SESSIONS - 1, SESSIONS - 1)
            many = resident(process.pid)
            await client.close()
            return many, one

    found = [asyncio.run(held()) for _ in range(rounds)]
    many, one = zip(*found, strict=True)
    measure = f"resident memory, {SESSIONS:,} MCP sessions by handle"
    return Row(measure, "one session", many, one, SESSIONS_GOAL, unit="B")


class Measures:
    """All measures of this file."""

    def __init__(self, rounds: int = ROUNDS) -> None:
        self._rounds = rounds
        self.memory: list[Resident] = []

    def rows(self) -> Iterator[Row]:
        """The rows, as they are measured; also fills `memory`."""
        with tempfile.TemporaryDirectory(prefix="toolcrib-mcp-") as place:
            folder = Path(place)
            named, variables = servers(folder), environment(folder)
            yield from started(named, variables, min(STARTS, self._rounds))
            with Serving(FEW, named, variables) as serving:
                yield from called(serving, self._rounds)
                self.memory.append(serving.resident(f"resident memory, {FEW} tools, after the calls"))
            yield sessions_held(folder / "notebook", variables, self._rounds)
            listing = {name: words for name, words in named.items() if name == "ours" or PEERS[name].listing}
            with Serving(MANY, listing, variables) as serving:
                yield from listed(serving, min(LISTINGS, self._rounds))
                yield from listed_by_sdk(serving, self._rounds)
                self.memory.append(serving.resident(f"resident memory, {MANY:,} tools, after the listings"))


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
