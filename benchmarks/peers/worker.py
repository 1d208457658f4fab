"""What every peer's script does: say its versions, then time calls as it is told, one line a round.

A script gives `serve` its contenders: name -> an async function without arguments. Lines come in as
`NAME COUNT`; the answer is the mean time of one call in seconds.
"""

from __future__ import annotations

import asyncio
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

MANY = 2_000
"""Tools that are listed."""


def body(city: str, days: int = 1) -> dict[str, Any]:
    """What the tool does, in every contender."""
    return {"city": city, "days": days, "temp": 18.5}


async def bare() -> dict[str, Any]:
    """The tool's work alone: what is not overhead."""
    return body(**ARGUMENTS)


async def serve(packages: tuple[str, ...], contenders: Mapping[str, Callable[[], Awaitable[object]]]) -> None:
    """Time calls until the input ends."""
    known = {"bare": bare, **contenders}
    for call in known.values():
        await call()
    told = {name: version(name) for name in packages}
    print(
        json.dumps({"versions": told, "python": platform.python_version(), "contenders": list(known)}),
        flush=True,
    )
    for line in sys.stdin:
        name, count = line.split()
        call, times = known[name], int(count)
        started = perf_counter()
        for _ in range(times):
            await call()
        print((perf_counter() - started) / times, flush=True)


def main(prepared: Callable[[], Awaitable[None]]) -> None:
    """Run a script."""
    asyncio.run(prepared())
