"""Tools that a program declares, and results as its own types; marked as `stub_user.py` is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Coroutine
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict, assert_type

from pydantic import BaseModel, Field

import toolcrib
from toolcrib import CallContext, Progress, Result, Runtime, Tool


class Day(TypedDict):
    high: float


@dataclass
class Forecast:
    city: str
    days: list[Day]


class Model(BaseModel):
    city: str


@toolcrib.tool
async def get_forecast(city: str, days: Annotated[int, Field(ge=1)] = 3) -> Forecast:
    return Forecast(city, [{"high": 21.5}] * days)


@toolcrib.tool(annotations={"read_only": True}, timeout="5s")
def count(text: str, *, context: CallContext) -> int:
    return len(text) + len(context.user)


@toolcrib.tool
async def measure(times: int) -> AsyncIterator[Progress | float]:
    yield Progress(1, times)
    yield 21.5


@toolcrib.tool(tags=["weather"])
class GetWeather(Tool[Model, Forecast]):
    """The weather."""

    async def execute(self, given: Model) -> Forecast:
        return Forecast(given.city, [])


plain: Callable[[str], int] = toolcrib.tool(len)
toolcrib.tool(name=1)  # wrong: the type of a key
toolcrib.tool(nmae="x")  # wrong: the name of a key


async def use(context: CallContext, tools: Runtime, result: Result) -> None:
    waiting: Coroutine[Any, Any, Forecast] = get_forecast("Oslo")
    assert_type(await waiting, Forecast)
    assert_type(await get_forecast(city="Oslo", days=2), Forecast)
    assert_type(count("x", context=context), int)
    assert_type(measure(2), AsyncIterator[Progress | float])
    assert_type(GetWeather(), GetWeather)
    assert_type(await GetWeather().execute(Model(city="Oslo")), Forecast)
    await get_forecast(town="Oslo")  # wrong: the name of a parameter
    await get_forecast("Oslo", "3")  # wrong: the type of a parameter
    count("x")  # wrong: a parameter is missing
    await GetWeather().execute("Oslo")  # wrong: the type of the input

    for tool in (get_forecast, count, GetWeather, GetWeather()):
        tools.add(tool)
    tools.add(3)  # wrong: this is no tool

    assert_type(result.into(Forecast), Forecast)
    assert_type(result.into(Day), Day)
    assert_type(result.into(Model), Model)
    assert_type(result.into(list[Forecast]), list[Forecast])
    assert_type(result.into(dict[str, Day]), dict[str, Day])
    number: int | None = result.into(int | None)  # any form of a type that is no class gives `Any`
    print(number, result.into(Forecast).town)  # wrong: the name of a field
    print(result.into(Model)["city"])  # wrong: a model has no items
    result.into()  # wrong: the type is missing
