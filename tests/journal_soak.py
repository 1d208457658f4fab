"""Kill a process with payments in flight, again and again, and count what the journal lost or repeated.

    make soak

Each round starts a process that first repeats the calls of the round before, and then makes new ones, several at a time. Each
payment appends its number to a file, and each acknowledged one is printed. The process is killed by SIGKILL after a random
number of acknowledgements.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import NamedTuple

from toolcrib import Registry, Runtime

AT_ONCE = 8
"""Calls in flight."""

MOST = 60
"""Maximum number of acknowledgements before the process is killed."""


class SoakReport(NamedTuple):
    """What a soak has found.

    Attributes:
        acknowledged: Payments whose results reached the caller.
        made: Payments that were made.
        unknown: Payments whose effect nobody knew after a kill, as the journal lists them.
        lost: Acknowledged payments that the journal does not know as ended.
        unrecorded: Payments that were made without an entry in the journal.
        repeated: Payments that were made twice.
        repetitions: Calls that were repeated with their key.
    """

    acknowledged: int
    made: int
    unknown: int
    lost: int
    unrecorded: int
    repeated: int
    repetitions: int

    @property
    def sound(self) -> bool:
        """Whether nothing was lost, unrecorded or repeated."""
        return not (self.lost or self.unrecorded or self.repeated)


def soak(folder: Path, rounds: int, seed: int = 0) -> SoakReport:
    """Kill a process so many times.

    Args:
        folder: An empty folder.
        rounds: Number of kills.
        seed: Seed of the number of acknowledgements before each kill.
    """
    chance = random.Random(seed)
    acknowledged: set[str] = set()
    repetitions = 0
    before: list[str] = []
    for number in range(rounds):
        left = chance.randint(1, MOST)
        with subprocess.Popen(
            [sys.executable, __file__, "--child", str(folder), str(number), *before],
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            assert process.stdout is not None
            # Those that were printed before the kill are in the pipe: reading it to its end misses none.
            for line in process.stdout:
                word, key = line.split()
                if word == "repeated":
                    repetitions += 1
                    continue
                acknowledged.add(key)
                left -= 1
                if not left:
                    process.kill()
        assert process.returncode == -signal.SIGKILL, process.returncode
        before = [key for key in payments(folder) if key.startswith(f"{number}.")]
    made = Counter(payments(folder))
    states = recorded(folder)
    return SoakReport(
        acknowledged=len(acknowledged),
        made=len(made),
        unknown=sum(state != "ended" for state in states.values()),
        lost=sum(states.get(key) != "ended" for key in acknowledged),
        unrecorded=sum(key not in states for key in made),
        repeated=sum(times > 1 for times in made.values()),
        repetitions=repetitions,
    )


def payments(folder: Path) -> list[str]:
    """The payments that were made, in order."""
    path = folder / "payments"
    return path.read_text(encoding="utf-8").split() if path.exists() else []


def recorded(folder: Path) -> dict[str, str]:
    """Key -> state of each call in the journal, whose file is checked."""
    with closing(sqlite3.connect(folder / "own" / "journal.sqlite")) as database:
        assert database.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    with Runtime(Registry(), journal=folder / "own" / "journal.sqlite") as runtime:
        assert runtime.journal is not None
        return {entry.key: entry.state for entry in runtime.journal.all_entries()}


async def pay_until_killed(folder: Path, number: int, before: list[str]) -> None:
    """The process: repeat the payments of the round before, and make new ones."""
    file = os.open(folder / "payments", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    async def pay(key: str) -> str:
        os.write(file, f"{key}\n".encode())
        await asyncio.to_thread(os.fsync, file)
        return key

    async with Runtime(Registry(), journal=folder / "own" / "journal.sqlite") as runtime:
        runtime.add(pay)

        async def worker(name: int) -> None:
            for turn in count():
                key = f"{number}.{name}.{turn}"
                (await runtime.call("pay", {"key": key}, idempotency_key=key)).raise_for_outcome()
                os.write(1, f"acknowledged {key}\n".encode())

        for key in before:
            result = await runtime.call("pay", {"key": key}, idempotency_key=key)
            assert result.outcome in {"ok", "unknown_outcome"}, result
            os.write(1, f"repeated {key}\n".encode())
        await asyncio.gather(*map(worker, range(AT_ONCE)))


def main() -> int:
    """Run the soak, or be its process."""
    if sys.argv[1:2] == ["--child"]:
        asyncio.run(pay_until_killed(Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4:]))
        return 1
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report = soak(Path(folder), options.rounds, options.seed)
    sys.stdout.writelines(f"{name:13} {value}\n" for name, value in report._asdict().items())
    return 0 if report.sound else 1


if __name__ == "__main__":
    sys.exit(main())
