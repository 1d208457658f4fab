"""`Result.into`: the value as a type of the program."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from typing import Annotated, Literal, NamedTuple, NotRequired, TypedDict

import pytest
from pydantic import BaseModel, Field

from toolcrib import (
    CallDenied,
    ConfigurationError,
    InvalidResult,
    Outcome,
    Registry,
    Result,
    Runtime,
    simple_tool,
)

VALUE = {"city": "Oslo", "days": [{"date": "2030-05-01", "high": 21.5}]}
DAY = date(2030, 5, 1)


class DayDict(TypedDict):
    date: date
    high: float
    rain: NotRequired[float]


class ForecastDict(TypedDict):
    city: str
    days: list[DayDict]
    next: NotRequired[ForecastDict | None]


@dataclass
class Day:
    date: date
    high: float


@dataclass
class Forecast:
    city: str
    days: list[Day]


class DayModel(BaseModel):
    date: date
    high: Annotated[float, Field(le=60)]


class ForecastModel(BaseModel):
    city: Literal["Oslo", "Bergen"]
    days: list[DayModel]


class Pair(NamedTuple):
    name: str
    size: int


def result(value=VALUE):
    return Result.success(value)._replace(tool="get_forecast")


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (Forecast, VALUE, Forecast("Oslo", [Day(DAY, 21.5)])),
        (ForecastModel, VALUE, ForecastModel(city="Oslo", days=[DayModel(date=DAY, high=21.5)])),
        (ForecastDict, VALUE, {"city": "Oslo", "days": [{"date": DAY, "high": 21.5}]}),
        (ForecastDict, {"city": "B", "days": [], "next": VALUE | {"days": []}}, None),
        (list[Pair], [["a", 1]], [Pair("a", 1)]),
        (dict[str, DayDict], {"x": VALUE["days"][0]}, {"x": {"date": DAY, "high": 21.5}}),
        (date | None, "2030-05-01", DAY),
        (Annotated[set[int], Field(max_length=2)], [2, 1, 2], {1, 2}),
    ],
)
def test_a_value_becomes_any_type_that_pydantic_reads(kind, value, expected):
    assert result(value).into(kind) == (value if expected is None else expected)


@pytest.mark.parametrize("kind", [Forecast, ForecastDict, ForecastModel])
def test_one_error_names_every_wrong_field(kind):
    wrong = {"city": 7, "days": [{"date": "2030-05-01", "high": "warm"}, {"date": "May"}]}
    with pytest.raises(InvalidResult) as told:
        result(wrong).into(kind)
    error = told.value
    head, *lines = error.message.splitlines()
    assert head == f"the result of `get_forecast` is not a valid `{kind.__name__}`:"
    assert sorted(line.partition(":")[0] for line in lines) == [
        "/city",
        "/days/0/high",
        "/days/1/date",
        "/days/1/high",
    ]
    assert (error.result.outcome, error.result.tool) == (Outcome.INVALID_RESULT, "get_forecast")
    assert error.result.raw_value == wrong
    assert len(error.result.error.details["violations"]) == 4


def test_secrets_of_a_value_are_not_in_the_error():
    class Login(TypedDict):
        token: int

    with pytest.raises(InvalidResult) as told:
        result({"token": "s3cr3t-token"}).into(Login)
    assert "s3cr3t" not in f"{told.value} {told.value.result}"


def test_a_failed_call_raises_the_error_of_its_outcome():
    with pytest.raises(CallDenied, match="not for you"):
        Result.failure(Outcome.DENIED, "not for you").into(Forecast)


def test_a_type_that_pydantic_cannot_read_is_named():
    class Socket:
        pass

    with pytest.raises(ConfigurationError, match="pydantic cannot read the type `Socket`: ") as told:
        result().into(Socket)
    assert told.value.code == "no_schema"


async def test_the_result_of_a_call_becomes_a_dataclass():
    async with Runtime(Registry()) as tools:
        tools.add(simple_tool("get_forecast", "The forecast.", mock={"result": VALUE}))
        assert (await tools.call("get_forecast")).into(Forecast).days[0].high == 21.5
