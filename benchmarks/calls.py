"""Calls within one process: a mocked call, the size of the registry, scenarios, request templates.

Each is compared with the equivalent code, written by hand without toolcrib.

    python benchmarks/calls.py
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from time import perf_counter
from typing import Any

import jsonschema_rs
from jinja2.sandbox import SandboxedEnvironment
from rounds import Round, Row, interleaved, line

from toolcrib import Executors, Runtime, parse_registry, run_scenario
from toolcrib.engine.runtime import loaded_runtime
from toolcrib.expressions import compile_value
from toolcrib.loading.sources import parse

CALLS = 2_000
"""Calls in one round."""

SCENARIOS = 10_000
CALLS_OF_ONE = 10

TOOLS = 10_000

INPUT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "minLength": 1},
        "days": {"type": "integer", "minimum": 1, "maximum": 14},
    },
    "required": ["city"],
    "additionalProperties": False,
}

OUTPUT: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string"}, "days": {"type": "integer"}, "temp": {"type": "number"}},
    "required": ["city", "temp"],
}

ARGUMENTS: dict[str, Any] = {"city": "Lisbon", "days": 3}

RECORDS: dict[str, Any] = {
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


def weather(number: int | None = None) -> dict[str, Any]:
    """The descriptor that most measures use."""
    return {
        "name": "weather" if number is None else f"weather_{number}",
        "description": "The weather in a city.",
        "input_schema": INPUT,
        "output_schema": OUTPUT,
        "mock": {"result": {"city": "{{ args.city }}", "days": "{{ args.days }}", "temp": 18.5}},
    }


NESTED: dict[str, Any] = {
    "name": "forecast",
    "input_schema": INPUT,
    "output_schema": RECORDS,
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

SCENARIO: dict[str, Any] = {
    "scenario": "ten_calls",
    "steps": [{"call": "weather", "args": ARGUMENTS} for _ in range(CALLS_OF_ONE)],
}

judge_arguments = jsonschema_rs.validator_for(INPUT)
judge_weather = jsonschema_rs.validator_for(OUTPUT)
judge_records = jsonschema_rs.validator_for(RECORDS)


async def weather_by_hand(arguments: dict[str, Any]) -> dict[str, Any]:
    """The equivalent function without toolcrib."""
    judge_arguments.validate(arguments)
    result = {"city": arguments["city"], "days": arguments["days"], "temp": 18.5}
    judge_weather.validate(result)
    return result


async def forecast_by_hand(arguments: dict[str, Any]) -> dict[str, Any]:
    """The same for a nested answer."""
    judge_arguments.validate(arguments)
    days = arguments["days"]
    result = {
        "city": arguments["city"],
        "days": days,
        "daily": [{"day": 1, "celsius": 21.5}, {"day": 2, "celsius": 19}, {"day": 3, "celsius": 10 + days}],
    }
    judge_records.validate(result)
    return result


def runtime_of(*documents: dict[str, Any]) -> Runtime:
    """A runtime over descriptors from memory."""
    kinds = Executors.installed()
    return Runtime(parse_registry("benchmark.json", documents, kinds=kinds), executors=kinds)


def a_round(loop: asyncio.AbstractEventLoop, call: Callable[[], Awaitable[object]], count: int) -> Round:
    """A round of consecutive calls; its time is that of one call."""

    async def calls() -> float:
        started = perf_counter()
        for _ in range(count):
            await call()
        return (perf_counter() - started) / count

    return lambda: loop.run_until_complete(calls())


def mocked_call(loop: asyncio.AbstractEventLoop, rounds: int = 60) -> Iterator[Row]:
    """A mocked call with every layer, and a hand-written function with both validations."""
    tools = runtime_of(weather(), NESTED)
    for name, by_hand, what in (
        ("weather", weather_by_hand, "flat result"),
        ("forecast", forecast_by_hand, "nested result"),
    ):
        result = loop.run_until_complete(tools.call(name, ARGUMENTS))
        assert result.value == loop.run_until_complete(by_hand(ARGUMENTS)), result
        times = interleaved(
            {
                "ours": a_round(loop, partial(tools.call, name, ARGUMENTS), CALLS),
                "by hand": a_round(loop, partial(by_hand, ARGUMENTS), CALLS),
            },
            rounds,
        )
        yield Row(
            f"mocked call, {what}", "hand-written, with both validations", times["ours"], times["by hand"], 5
        )


def size_of_registry(loop: asyncio.AbstractEventLoop, rounds: int = 60) -> Row:
    """A call in a registry of 10,000 tools and in a registry of one."""
    few = runtime_of(weather(0))
    many = runtime_of(*(weather(number) for number in range(TOOLS)))
    for number in range(TOOLS):
        loop.run_until_complete(many.call(f"weather_{number}", ARGUMENTS))
    times = interleaved(
        {
            "many": a_round(loop, lambda: many.call("weather_0", ARGUMENTS), CALLS),
            "few": a_round(loop, lambda: few.call("weather_0", ARGUMENTS), CALLS),
        },
        rounds,
    )
    return Row(
        f"mocked call, registry of {TOOLS:,} tools", "registry of 1 tool", times["many"], times["few"], 1.1
    )


def scenarios(loop: asyncio.AbstractEventLoop, rounds: int = 5) -> Row:
    """Scenarios of ten calls, and a plain loop of the same calls."""
    kinds = Executors.installed()
    loaded = parse("benchmark.json", [weather(), SCENARIO], kinds)
    tools = loaded_runtime(loaded, executors=kinds)
    (scenario,) = tools.scenarios
    assert loop.run_until_complete(run_scenario(tools, scenario)).passed

    async def run() -> float:
        started = perf_counter()
        for _ in range(SCENARIOS):
            await run_scenario(tools, scenario)
        return perf_counter() - started

    async def loop_of_calls() -> float:
        started = perf_counter()
        for _ in range(SCENARIOS * CALLS_OF_ONE):
            await tools.call("weather", ARGUMENTS)
        return perf_counter() - started

    times = interleaved(
        {
            "run": lambda: loop.run_until_complete(run()),
            "loop": lambda: loop.run_until_complete(loop_of_calls()),
        },
        rounds,
    )
    return Row(
        f"{SCENARIOS:,} scenarios of {CALLS_OF_ONE} calls",
        "plain loop of the same calls",
        times["run"],
        times["loop"],
        2,
    )


REQUEST: dict[str, Any] = {
    "q": "{{ args.city }}",
    "days": "{{ args.days }}",
    "units": "{{ args.units }}",
    "lang": "{{ args.lang }}",
}
REQUEST_ARGUMENTS: dict[str, Any] = {"args": {"city": "Lisbon", "days": "3", "units": "metric", "lang": "pt"}}


def plain_fields(rounds: int = 30) -> Row:
    """A request template with plain fields, and a cached jinja2 template per field."""
    ours = compile_value(REQUEST, ("args",), [], "")
    environment = SandboxedEnvironment()
    templates = {key: environment.from_string(text) for key, text in REQUEST.items()}

    def theirs() -> dict[str, str]:
        return {key: template.render(REQUEST_ARGUMENTS) for key, template in templates.items()}

    assert ours.render(REQUEST_ARGUMENTS) == theirs()

    def timed(render: Callable[[], object]) -> Round:
        def round_() -> float:
            started = perf_counter()
            for _ in range(CALLS):
                render()
            return (perf_counter() - started) / CALLS

        return round_

    times = interleaved(
        {"ours": timed(lambda: ours.render(REQUEST_ARGUMENTS)), "jinja2": timed(theirs)}, rounds
    )
    return Row(
        "request template with four plain fields",
        "cached jinja2 templates",
        times["ours"],
        times["jinja2"],
        10,
        faster=True,
    )


def rows() -> Iterator[Row]:
    """All measures of this file."""
    loop = asyncio.new_event_loop()
    try:
        yield from mocked_call(loop)
        yield size_of_registry(loop)
        yield scenarios(loop)
        yield plain_fields()
    finally:
        loop.close()


if __name__ == "__main__":
    for row in rows():
        print(line(row), flush=True)
