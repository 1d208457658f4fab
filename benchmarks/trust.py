"""The cost of trust: a mocked call in a trusted project, and a list with a store of a thousand decisions.

    python benchmarks/trust.py [--rounds 60] [--python PATH]

`--python` is the interpreter of an environment in which toolcrib is installed already.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from time import perf_counter

import startup
from rounds import Row, interleaved, line

import toolcrib
from toolcrib.engine import engine_of
from toolcrib.engine.runtime import loaded_runtime
from toolcrib.executors import Executors
from toolcrib.loading.sources import load
from toolcrib.security.trust_decisions import Decision, DecisionStore, default_store
from toolcrib.security.trust_needs import make_need

DECISIONS = 1_000
CALLS = 20_000

LIVE = """\
name: exchange_rate
description: What one euro buys.
mode: live
live: {url: "https://rates.example.com/latest", headers: {X-Api-Key: "${RATES_KEY}"}}
"""


def calls(runtime: toolcrib.Runtime) -> float:
    """Seconds of many calls of a mock."""

    async def timed() -> float:
        call, arguments = runtime.call, {"city": "Oslo"}
        started = perf_counter()
        for _ in range(CALLS):
            await call("get_forecast", arguments)
        return perf_counter() - started

    return asyncio.run(timed())


def call_rows(rounds: int) -> Iterator[Row]:
    """A mocked call in a project that somebody trusts, and of tools that need no trust."""
    with startup.workplace() as folder:
        (folder / "descriptors").mkdir()
        (folder / "descriptors" / "t.tool.yaml").write_text(
            f"{startup.FORECAST}---\n{LIVE}", encoding="utf-8"
        )
        (folder / "toolcrib.yaml").write_text("project: measured\n", encoding="utf-8")
        before, state = Path.cwd(), os.environ.get("TOOLCRIB_STATE_DIR")
        os.environ["TOOLCRIB_STATE_DIR"] = str(folder / "state")
        os.chdir(folder)
        try:
            trusted = toolcrib.Runtime.open(index=False)
            (request,) = engine_of(trusted).trust.requests()
            agree(request.workspace.root, request.needs)
            executors = Executors.installed()
            own = loaded_runtime(load(["descriptors"], executors), executors=executors)
            times = interleaved({"trusted": partial(calls, trusted), "own": partial(calls, own)}, rounds)
        finally:
            os.chdir(before)
            if state is None:
                del os.environ["TOOLCRIB_STATE_DIR"]
            else:
                os.environ["TOOLCRIB_STATE_DIR"] = state
    each = {name: [took / CALLS for took in taken] for name, taken in times.items()}
    yield Row("mocked call in a trusted project", "tools from a program", each["trusted"], each["own"], 1.02)


def agree(root: str, needs: tuple[object, ...]) -> None:
    """Trust a project, as `toolcrib trust` does."""
    now = datetime.now(UTC)
    default_store().add(Decision.of(root, "project", needs, when=now, how="benchmark"))  # type: ignore[arg-type]


def list_rows(rounds: int, python: Path | None) -> Iterator[Row]:
    """A list of a thousand tools, with a store of decisions and without."""
    with startup.workplace() as folder:
        environment = startup.prepare(folder)
        words = startup.commands((python or startup.install(folder / "venv")).parent)["toolcrib list"]
        full, empty = folder / "full", folder / "empty"
        store = DecisionStore(str(full / "trust"))
        for number in range(DECISIONS):
            needs = [
                make_need("contact", f"https://host{number}.example"),
                make_need("read", f"${{KEY_{number}}}"),
            ]
            store.add(
                Decision.of(f"/project/{number}", "project", needs, when=datetime.now(UTC), how="benchmark")
            )
        places = {str(place): environment | {"TOOLCRIB_STATE_DIR": str(place)} for place in (full, empty)}
        before = Path.cwd()
        os.chdir(folder)
        try:
            # An index belongs to a key of its state folder.
            for place, variables in places.items():
                places[place] = variables | {"XDG_CACHE_HOME": f"{place}-cache"}
                for wait in (startup.REST, 0.0):
                    time.sleep(wait)
                    startup.seconds(words, places[place])
            times = interleaved(
                {place: partial(startup.seconds, words, variables) for place, variables in places.items()},
                rounds,
            )
        finally:
            os.chdir(before)
    yield Row(
        f"toolcrib list, {startup.TOOLS:,} tools, {DECISIONS:,} decisions",
        "no decisions",
        times[str(full)],
        times[str(empty)],
        1.1,
    )


def rows(rounds: int = 60, python: Path | None = None) -> Iterator[Row]:
    """All measures of this file."""
    yield from call_rows(rounds)
    yield from list_rows(rounds, python)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--python", type=Path)
    given = parser.parse_args()
    python = given.python.absolute() if given.python else None
    print(f"Python {platform.python_version()}, {given.rounds} rounds")
    for row in rows(given.rounds, python):
        print(line(row))


if __name__ == "__main__":
    main()
