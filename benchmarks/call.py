"""One mocked call through `Runtime.call` beside a hand-written function that checks the same two schemas.

Rounds of both alternate, so that what else the machine does falls on both. Run it with `make bench`.
"""

from __future__ import annotations

import asyncio
import gc
import platform
import statistics
from collections.abc import Awaitable, Callable
from importlib.metadata import version
from time import perf_counter
from typing import Any

import jsonschema_rs

from toolcrib import Executors, Registry, Runtime

ROUNDS = 60
CALLS = 2_000
"""Calls in one round; a round takes some tens of milliseconds."""

INPUT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 1},
        "days": {"type": "integer", "minimum": 1, "maximum": 7, "default": 3},
    },
    "required": ["city"],
    "additionalProperties": False,
}

OUTPUT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string"},
        "days": {"type": "integer"},
        "daily": {
            "type": "array",
            "items": {
                "type": "object",
                "properties": {"day": {"type": "integer"}, "celsius": {"type": "number"}},
                "required": ["day", "celsius"],
            },
        },
    },
    "required": ["city", "days", "daily"],
}

TOOL: dict[str, Any] = {
    "name": "get_forecast",
    "input_schema": INPUT,
    "output_schema": OUTPUT,
    "mock": {
        "result": {
            "city": "{{ args.city }}",
            "days": "{{ args.days }}",
            "daily": [
                {"day": 1, "celsius": 21.5},
                {"day": 2, "celsius": 19},
                {"day": 3, "celsius": "{{ 10 + args.days }}"},
            ],
        }
    },
}

ARGUMENTS: dict[str, Any] = {"city": "Oslo", "days": 2}

judge_arguments = jsonschema_rs.validator_for(INPUT)
judge_result = jsonschema_rs.validator_for(OUTPUT)


async def by_hand(arguments: dict[str, Any]) -> dict[str, Any]:
    """What a careful person writes without toolcrib."""
    judge_arguments.validate(arguments)
    days = arguments.get("days", 3)
    result = {
        "city": arguments["city"],
        "days": days,
        "daily": [{"day": 1, "celsius": 21.5}, {"day": 2, "celsius": 19}, {"day": 3, "celsius": 10 + days}],
    }
    judge_result.validate(result)
    return result


async def microseconds(call: Callable[[], Awaitable[object]]) -> float:
    """Mean time of one call over a round."""
    started = perf_counter()
    for _ in range(CALLS):
        await call()
    return (perf_counter() - started) / CALLS * 1e6


async def measure() -> dict[str, list[float]]:
    """Name -> the time of one call in each round, in microseconds."""
    kinds = Executors.installed()
    async with Runtime(Registry.parse("benchmark.json", TOOL, kinds=kinds), executors=kinds) as tools:
        contenders: dict[str, Callable[[], Awaitable[object]]] = {
            "by hand": lambda: by_hand(ARGUMENTS),
            "toolcrib": lambda: tools.call("get_forecast", ARGUMENTS),
        }
        assert (await tools.call("get_forecast", ARGUMENTS)).value == await by_hand(ARGUMENTS)
        times: dict[str, list[float]] = {name: [] for name in contenders}
        for round_ in range(ROUNDS):
            for name in list(contenders)[:: 1 if round_ % 2 else -1]:
                gc.collect()
                times[name].append(await microseconds(contenders[name]))
    return times


def main() -> None:
    """Measure and print."""
    times = asyncio.run(measure())
    print(
        f"toolcrib {version('toolcrib')}, Python {platform.python_version()}, {ROUNDS} rounds of {CALLS} calls each"
    )
    for name, rounds in times.items():
        print(
            f"{name:9} median {statistics.median(rounds):6.2f} µs   from {min(rounds):6.2f} to {max(rounds):6.2f}"
        )
    ratios = [ours / theirs for ours, theirs in zip(times["toolcrib"], times["by hand"], strict=True)]
    print(
        f"ratio     median {statistics.median(ratios):6.2f}      from {min(ratios):6.2f} to {max(ratios):6.2f}"
    )


if __name__ == "__main__":
    main()
