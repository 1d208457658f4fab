"""Python functions as tools: a typed function, compared with the same function and hand-written validation.

python benchmarks/python_tools.py
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from time import perf_counter
from typing import Annotated, Any

from pydantic import BaseModel, Field, TypeAdapter
from rounds import Round, Row, interleaved, line

from toolcrib import Registry, Runtime

CALLS = 2_000
"""Calls in one round."""

ARGUMENTS: dict[str, Any] = {"city": "Lisbon", "days": 3}


class Weather(BaseModel):
    """The result of the function."""

    city: str
    days: int
    temp: float


class WeatherArguments(BaseModel):
    """The arguments of the function, for the validation by hand."""

    city: str
    days: Annotated[int, Field(ge=1, le=14)] = 3


LISBON = Weather(city="Lisbon", days=3, temp=18.5)


async def get_weather(city: str, days: Annotated[int, Field(ge=1, le=14)] = 3) -> Weather:  # noqa: ARG001 -- it does nothing
    """Return the weather of a city."""
    return LISBON


RESULT = TypeAdapter(Weather)


async def weather_by_hand(arguments: dict[str, Any]) -> Any:
    """The function with pydantic's validation of its arguments and of its result."""
    given = WeatherArguments.model_validate(arguments)
    result = await get_weather(given.city, given.days)
    return RESULT.dump_python(RESULT.validate_python(result), mode="json")


def a_round(loop: asyncio.AbstractEventLoop, call: Callable[[], Awaitable[object]], count: int) -> Round:
    """A round of consecutive calls; its time is that of one call."""

    async def calls() -> float:
        started = perf_counter()
        for _ in range(count):
            await call()
        return (perf_counter() - started) / count

    return lambda: loop.run_until_complete(calls())


def typed_call(loop: asyncio.AbstractEventLoop, rounds: int = 60) -> Row:
    """A function that does nothing, as a tool and with hand-written validation."""
    tools = Runtime(Registry())
    tools.add(get_weather)
    result = loop.run_until_complete(tools.call("get_weather", ARGUMENTS))
    assert result.value == loop.run_until_complete(weather_by_hand(ARGUMENTS)), result
    times = interleaved(
        {
            "ours": a_round(loop, partial(tools.call, "get_weather", ARGUMENTS), CALLS),
            "by hand": a_round(loop, partial(weather_by_hand, ARGUMENTS), CALLS),
        },
        rounds,
    )
    loop.run_until_complete(tools.aclose())
    what = "typed asynchronous function"
    return Row(what, "hand-written, with pydantic both ways", times["ours"], times["by hand"], 1.6)


def rows() -> Iterator[Row]:
    """The rows."""
    loop = asyncio.new_event_loop()
    yield typed_call(loop)
    loop.close()


if __name__ == "__main__":
    for row in rows():
        print(line(row))
