"""The protocol of every peer's script: it reports its versions, then measures one line of input per round.

A script passes its contenders to `serve`: name -> an async function without arguments. Input lines are
`NAME COUNT CALLERS COLLECT`, the last 1 or 0; the answer is the mean time of one call in seconds. Scripts of live calls get the origin to call
as an argument.
"""

from __future__ import annotations

import asyncio
import gc
import json
import platform
import sys
from collections.abc import Awaitable, Callable, Mapping
from importlib.metadata import version
from time import perf_counter
from typing import Any

INPUT = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 1},
        "days": {"type": "integer", "minimum": 1, "maximum": 14},
    },
    "required": ["city"],
    "additionalProperties": False,
}

OUTPUT = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "temp": {"type": "number"}},
    "required": ["city", "temp"],
}

ARGUMENTS = {"city": "Lisbon", "days": 3}

HEADERS = {"Accept-Language": "pt"}
"""Headers of a live call."""

MANY = 2_000
"""Number of tools to list."""


def body(city: str, days: int = 1) -> dict[str, Any]:
    """The tool's own work, the same in every contender."""
    return {"city": city, "days": days, "temp": 18.5}


async def bare() -> dict[str, Any]:
    """The tool's own work alone, which is not overhead."""
    return body(**ARGUMENTS)


async def timed(call: Callable[[], Awaitable[object]], count: int, callers: int) -> float:
    """Mean seconds per call of concurrent callers."""
    if callers == 1:
        started = perf_counter()
        for _ in range(count):
            await call()
        return (perf_counter() - started) / count
    left = iter(range(count))

    async def caller() -> None:
        for _ in left:
            await call()

    started = perf_counter()
    await asyncio.gather(*[caller() for _ in range(callers)])
    return (perf_counter() - started) / count


async def serve(packages: tuple[str, ...], contenders: Mapping[str, Callable[[], Awaitable[object]]]) -> None:
    """Measure until the input ends."""
    known = {"bare": bare, **contenders}
    for call in known.values():
        await call()
    told = {name: version(name) for name in packages}
    print(
        json.dumps({"versions": told, "python": platform.python_version(), "contenders": list(known)}),
        flush=True,
    )
    for line in sys.stdin:
        name, count, callers, collect = line.split()
        if collect == "1":
            gc.collect()
        print(await timed(known[name], int(count), int(callers)), flush=True)


def origin() -> str:
    """The origin of live calls."""
    return sys.argv[1]


def main(prepared: Callable[[], Awaitable[None]]) -> None:
    """Run a script."""
    asyncio.run(prepared())
