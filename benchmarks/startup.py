"""Whole processes: the time of a command from fork to exit, compared with the interpreter alone.

Measured is the command as pip writes it, from an installation that is not editable, in a virtual environment of its own
that holds nothing else. Commands alternate, so that what else the machine does falls on all of them:

    python benchmarks/startup.py [--rounds 60] [--python PATH] [--extras]

`--python` is the interpreter of an environment in which toolcrib is installed already. `--extras` compares commands of two
environments instead, with and without the extras of the protocols that they do not use.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import NamedTuple

from rounds import Row, interleaved, line

from corpus import write_descriptors

ROOT = Path(__file__).parents[1]
TOOLS = 1_000
UNWANTED = ("PYTHON", "TOOLCRIB_", "COLUMNS", "XDG_")
"""What begins like this changes how an interpreter or a command starts."""

REST = 2.5
"""Seconds. A file that was touched just now is read again to be sure of it; this long after, its times are enough."""

FORECAST = """\
name: get_forecast
description: Daily forecast for a city.
input_schema:
  type: object
  properties: {city: {type: string}, days: {type: integer, minimum: 1, maximum: 7, default: 3}}
  required: [city]
output_schema:
  type: object
  properties: {city: {type: string}, days: {type: integer}, daily: {type: array, items: {type: object}}}
  required: [city, daily]
mock: {result: {city: "{{ args.city }}", days: "{{ args.days }}", daily: []}}
"""

SHOP = """\
name: shop
version: 1.0.0
tools: [pay_order.tool.yaml]
store: {orders: {key: id, file: orders.json}}
"""

PAY_ORDER = """\
name: pay_order
description: Pay an order.
input_schema: {type: object, properties: {id: {type: string}}, required: [id]}
mock:
  rows: {order: {in: orders, key: "{{ args.id }}", missing: There is no such order.}}
  effects: [{update: order, set: {payments: "{{ order.payments + [now] }}"}}]
  result: "{{ order }}"
"""


class Goal(NamedTuple):
    """A command compared with another: at most `times` as long."""

    name: str
    base: str
    times: float


GOALS = (
    Goal("toolcrib --version", "python -c pass", 1.3),
    Goal("toolcrib list", "python -c pass", 5.0),
    Goal("toolcrib call", "python -c 'import asyncio, json, jsonschema_rs'", 1.6),
    Goal("toolcrib call --state, one of 1,000 orders", "toolcrib call, one of 1,000 orders", 1.2),
)

MEMORY_GOALS = (
    Goal("toolcrib call --state, one of 1,000 orders", "toolcrib call, one of 1,000 orders", 1.1),
)
"""The same for the peak memory of the process."""

MEMORY_ROUNDS = 30

PEAK = """\
import os, sys
stdout = [(os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
process = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=stdout)
_process, status, used = os.wait4(process, 0)
print(used.ru_maxrss)
sys.exit(os.waitstatus_to_exitcode(status))
"""
"""Starts a program and prints its peak memory in KiB. The system counts the memory of the process that started it, too, which
is small here."""


EXTRAS = "a2a,acp"
"""The extras of protocols that `list` and `call` do not use."""


def commands(folder: Path) -> dict[str, list[str]]:
    """Name -> words of every command; `folder` is that of the interpreter."""
    python, toolcrib = str(folder / "python"), str(folder / "toolcrib")
    return {
        "python -c pass": [python, "-c", "pass"],
        "toolcrib --version": [toolcrib, "--version"],
        "toolcrib list": [toolcrib, "list"],
        "python -c 'import asyncio, json, jsonschema_rs'": [
            python,
            "-c",
            "import asyncio, json, jsonschema_rs",
        ],
        "toolcrib call": [toolcrib, "call", "get_forecast", "city=Oslo"],
        "toolcrib call, one of 1,000 orders": [toolcrib, "call", "pay_order", "id=7"],
        "toolcrib call --state, one of 1,000 orders": [
            *(toolcrib, "call", "pay_order", "id=7", "--state", "state.json"),
        ],
        "toolcrib --help": [toolcrib, "--help"],
        "toolcrib list --json": [toolcrib, "list", "--json"],
    }


def seconds(words: Sequence[str], environment: Mapping[str, str]) -> float:
    """Wall time of one process.

    Raises:
        SystemExit: It failed.
    """
    started = perf_counter()
    done = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
    code = done.wait()
    took = perf_counter() - started
    if code:
        raise SystemExit(f"{' '.join(words)} ended with {code}")
    return took


def processor_seconds(words: Sequence[str], environment: Mapping[str, str], folder: Path) -> float:
    """Processor time of one process in a folder: other load of the machine outweighs two per cent of the wall time.

    Raises:
        SystemExit: It failed.
    """
    begun = subprocess.Popen(
        words, env=environment, cwd=folder, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL
    )
    _pid, status, used = os.wait4(begun.pid, 0)
    begun.returncode = os.waitstatus_to_exitcode(status)
    if begun.returncode:
        raise SystemExit(f"{' '.join(words)} ended with {begun.returncode}")
    return used.ru_utime + used.ru_stime


def peak_memory(words: Sequence[str], environment: Mapping[str, str]) -> float:
    """Peak memory of one process, in bytes.

    Raises:
        SystemExit: It failed.
    """
    python = str(Path(words[0]).with_name("python"))
    done = subprocess.run(
        [python, "-I", "-S", "-c", PEAK, *words], env=environment, stdout=subprocess.PIPE, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(words)} ended with {done.returncode}")
    return int(done.stdout) * 1024


@contextmanager
def workplace() -> Iterator[Path]:
    """An empty folder that is removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="toolcrib-startup-") as folder:
        yield Path(folder)


def install(folder: Path, extras: str = "") -> Path:
    """The interpreter of a new environment into which this checkout is installed by today's pip, with extras (`a2a,acp`)."""
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    python = folder / "bin" / "python"
    pip = [str(python), "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
    subprocess.run([*pip, "--upgrade", "pip"], check=True)
    subprocess.run([*pip, f"{ROOT}[{extras}]" if extras else str(ROOT)], check=True)
    return python


def prepare(folder: Path) -> dict[str, str]:
    """Write the descriptors into `folder/descriptors`, and a shop with a store into `folder/packs`; returns the variables to start under."""
    descriptors = folder / "descriptors"
    descriptors.mkdir()
    write_descriptors(descriptors, TOOLS - 1)
    (descriptors / "get_forecast.tool.yaml").write_text(FORECAST, encoding="utf-8")
    shop = folder / "packs" / "shop"
    shop.mkdir(parents=True)
    (shop / "pack.yaml").write_text(SHOP, encoding="utf-8")
    (shop / "pay_order.tool.yaml").write_text(PAY_ORDER, encoding="utf-8")
    orders = [{"id": str(number), "item": "tea", "payments": []} for number in range(1_000)]
    (shop / "orders.json").write_text(json.dumps(orders), encoding="utf-8")
    kept = {name: value for name, value in os.environ.items() if not name.startswith(UNWANTED)}
    return kept | {"XDG_CACHE_HOME": str(folder / "cache"), "HOME": str(folder)}


def rows(rounds: int = 60, python: Path | None = None) -> Iterator[Row]:
    """All measures of this file."""
    with workplace() as folder:
        environment = prepare(folder)
        before = Path.cwd()
        os.chdir(folder)
        try:
            named = commands((python or install(folder / "venv")).parent)
            for wait in (REST, 0.0):
                time.sleep(wait)
                seconds(named["toolcrib list"], environment)
            times = interleaved(
                {name: partial(seconds, words, environment) for name, words in named.items()},
                rounds,
            )
            compared = {name for goal in MEMORY_GOALS for name in (goal.name, goal.base)}
            memory = interleaved(
                {name: partial(peak_memory, named[name], environment) for name in sorted(compared)},
                MEMORY_ROUNDS,
            )
        finally:
            os.chdir(before)
    for goal in GOALS:
        name = f"{goal.name}, {TOOLS:,} tools" if goal.name.endswith("list") else goal.name
        yield Row(name, goal.base, times[goal.name], times[goal.base], goal.times)
    for goal in MEMORY_GOALS:
        measure = f"peak memory of {goal.name}"
        yield Row(measure, goal.base, memory[goal.name], memory[goal.base], goal.times, unit="B")


def rows_of_extras(rounds: int = 300) -> Iterator[Row]:
    """Commands that use no protocol, in an environment with the extras of protocols and in one without them."""
    contenders: dict[str, Callable[[], float]] = {}
    with workplace() as folder:
        for extras in (EXTRAS, ""):
            # Each with descriptors and an index of its own, since the index belongs to the installation.
            place = folder / (extras or "none")
            place.mkdir()
            environment = prepare(place)
            named = commands(install(place / "venv", extras).parent)
            time.sleep(REST)
            for name in ("toolcrib list", "toolcrib call"):
                run = partial(processor_seconds, named[name], environment, place)
                run()
                contenders[f"{name} {extras}"] = run
        times = interleaved(contenders, rounds)
    for name in ("toolcrib list", "toolcrib call"):
        measure = f"{name}, processor time, extras {EXTRAS.replace(',', ' and ')} installed"
        yield Row(measure, "not installed", times[f"{name} {EXTRAS}"], times[f"{name} "], 1.02)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=60)
    parser.add_argument("--python", type=Path)
    parser.add_argument("--extras", action="store_true")
    given = parser.parse_args()
    python = given.python.absolute() if given.python else None
    print(f"Python {platform.python_version()}, {given.rounds} rounds, {TOOLS:,} tools")
    for row in rows_of_extras(given.rounds) if given.extras else rows(given.rounds, python):
        print(line(row))


if __name__ == "__main__":
    main()
