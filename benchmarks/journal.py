"""The journal: calls with it, compared with bare commits to SQLite.

.venv/bin/python benchmarks/journal.py [--rounds 60]
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

from rounds import Row, interleaved, print_rows

from toolcrib import Registry, Runtime
from toolcrib.security.journal import TABLES

READS, CHANGES = 400, 40
"""Calls in a round: a commit that waits for the disk takes much longer."""

ARGUMENTS: dict[str, Any] = {"amount": 20, "to": "ann"}

INSERT = (
    "INSERT INTO toolcrib_calls (owner, tool, mode, arguments, state, changes, started, ended, outcome, attempts, call, "
    "session, caller, user_name, correlation) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
ENTRY = (
    "0123456789abcdef", "pay", "python", '{"amount":20,"to":"ann"}', "ended", 0, 1.8e9, 1.8e9, "ok", 1, "main-1", "main",
    "", "", "",
)  # fmt: skip

INTENT = (
    "0123456789abcdef", "pay", "python", '{"amount":20,"to":"ann"}', "running", 1, 1.8e9, None, None, 0, "main-1", "main",
    "", "", "",
)  # fmt: skip
END = "UPDATE toolcrib_calls SET state = 'ended', ended = ?, outcome = 'ok', attempts = 1 WHERE id = ?"


async def pay(amount: float, to: str) -> str:
    """The tool, which does nothing."""
    return f"{amount} {to}"


class Bare:
    """The table of a journal, written without one."""

    def __init__(self, path: Path, level: str) -> None:
        self.connection = sqlite3.connect(path, isolation_level=None)
        self.connection.execute("PRAGMA journal_mode = WAL")
        self.connection.execute(f"PRAGMA synchronous = {level}")
        for statement in TABLES:
            self.connection.execute(statement.format(identity="INTEGER PRIMARY KEY"))

    def insert(self) -> int:
        """Commit a row, and return its number."""
        return int(self.connection.execute(INSERT, ENTRY).lastrowid or 0)

    def insert_and_update(self) -> None:
        """Commit a row and a change of it: an intent and its end."""
        number = self.connection.execute(INSERT, INTENT).lastrowid
        self.connection.execute(END, (1.8e9, number))


def commits(times: int, commit: Callable[[], object]) -> float:
    """Seconds of one commit, or of the two of an intent and its end."""
    started = perf_counter()
    for _ in range(times):
        commit()
    return (perf_counter() - started) / times


MOCKS = """
name: look
annotations: {read_only: true}
input_schema: {type: object, properties: {amount: {type: number}, to: {type: string}}}
mock: {result: done}
---
name: pay
annotations: {destructive: true}
input_schema: {type: object, properties: {amount: {type: number}, to: {type: string}}}
mock: {result: done}
"""


def mocked(folder: Path) -> Runtime:
    """A project whose mocked calls are in its journal: of all calls, they do the least besides."""
    (folder / "descriptors").mkdir(parents=True)
    (folder / "descriptors" / "tools.yaml").write_text(MOCKS, encoding="utf-8")
    settings = "project: benchmark\njournal: {mocks: true}\n"
    (folder / "toolcrib.yaml").write_text(settings, encoding="utf-8")
    os.environ["TOOLCRIB_STATE_DIR"] = str(folder / "state")
    return Runtime.open(folder, index=False)


def calls(
    loop: asyncio.AbstractEventLoop,
    runtime: Runtime,
    name: str,
    times: int,
    commit: Callable[[], object] = lambda: None,
) -> float:
    """Seconds of one call, each followed by `commit`."""

    async def several() -> float:
        started = perf_counter()
        for _ in range(times):
            await runtime.call(name, ARGUMENTS)
            commit()
        return (perf_counter() - started) / times

    return loop.run_until_complete(several())


def rows(rounds: int = 60) -> Iterator[Row]:
    """The rows of the journal."""
    loop = asyncio.new_event_loop()
    # Not in /tmp, which may be in memory: a commit there waits for nothing.
    with tempfile.TemporaryDirectory(dir=Path(__file__).parent) as name:
        folder = Path(name)
        with (
            Runtime(Registry(), journal=folder / "own" / "journal.sqlite") as journalled,
            Runtime(Registry()) as plain,
            mocked(folder / "project") as mocks,
        ):
            for runtime in (journalled, plain):
                runtime.add(pay)
                runtime.add(pay, name="look", annotations={"read_only": True})
            for tool, measure, level, times, goal in (
                ("look", "read-only call", "NORMAL", READS, 1.5),
                ("pay", "destructive call", "FULL", CHANGES, 1.3),
            ):
                bare = Bare(folder / f"{tool}.sqlite", level)
                with closing(bare.connection):
                    commit = bare.insert if tool == "look" else bare.insert_and_update
                    found = interleaved(
                        {
                            "ours": partial(calls, loop, journalled, tool, times),
                            "base": partial(calls, loop, plain, tool, times, commit),
                            "mock": partial(calls, loop, mocks, tool, times),
                            "bare": partial(commits, times, commit),
                        },
                        rounds,
                    )
                base = "one bare commit" if tool == "look" else "two bare commits"
                yield Row(
                    f"journalled {measure} of a mock", f"{base} ({level})", found["mock"], found["bare"], goal
                )
                yield Row(
                    f"journalled {measure}",
                    f"the same call without a journal, and {base} ({level})",
                    found["ours"],
                    found["base"],
                    goal,
                )
    loop.close()


if __name__ == "__main__":
    print_rows(rows, __doc__)
