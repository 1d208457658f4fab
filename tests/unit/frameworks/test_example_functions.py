"""Functions in the style of the examples of other frameworks, decorated with `toolcrib.tool` and otherwise unchanged."""

from __future__ import annotations

import asyncio
import datetime as dt
from dataclasses import dataclass
from enum import Enum
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

from toolcrib import Outcome, Registry, Runtime, tool


# LangChain: a docstring, plain annotations, and a list of records.
@tool
def search_database(query: str, limit: int = 10) -> str:
    """Search the customer database for records matching the query.

    Args:
        query: Search terms to look for
        limit: Maximum number of results to return
    """
    return f"Found {limit} results for '{query}'"


@tool
def multiply(a: int, b: int) -> int:
    """Multiply two numbers."""
    return a * b


@tool
async def get_stock_price(ticker: Annotated[str, "The ticker symbol, such as ACME."]) -> float:
    """Get the latest price of a stock."""
    return {"ACME": 101.5}[ticker]


# FastMCP: constraints in `Field`, models, literals and an enumeration.
class Priority(Enum):
    LOW = "low"
    HIGH = "high"


class Attendee(BaseModel):
    name: str
    email: str | None = None


@tool
def schedule_meeting(
    title: Annotated[str, Field(description="Title of the meeting", min_length=1, max_length=80)],
    start: dt.datetime,
    attendees: list[Attendee],
    minutes: Annotated[int, Field(ge=5, le=480)] = 30,
    priority: Priority = Priority.LOW,
    room: Literal["blue", "green"] | None = None,
) -> dict[str, Any]:
    """Schedule a meeting and invite people."""
    assert isinstance(priority, Priority)
    return {
        "title": title,
        "end": (start + dt.timedelta(minutes=minutes)).isoformat(),
        "invited": [each.name for each in attendees],
        "room": room,
    }


# llm: a function without types for its result, and a default.
@tool
def upper(text: str):
    """Convert text to uppercase."""
    return text.upper()


@tool
def count_char(text: str, character: str) -> int:
    """Count the number of times a character appears in a text."""
    return text.count(character)


# The OpenAI Agents SDK: TypedDict and dataclass arguments, and an asynchronous function.
class Location(TypedDict):
    lat: float
    long: float


@dataclass
class Weather:
    city: str
    temperature_range: str
    conditions: str


@tool
async def fetch_weather(location: Location) -> str:
    """Fetch the weather for a given location.

    Args:
        location: The location to fetch the weather for.
    """
    return f"sunny at {location['lat']}, {location['long']}"


@tool
def get_weather(city: Annotated[str, "The city to get the weather for"]) -> Weather:
    """Get the current weather information for a specified city."""
    return Weather(city=city, temperature_range="14-20C", conditions="Sunny with wind.")


@tool(name="fetch_data")
def read_file(path: str, directory: str | None = None) -> str:
    """Read the contents of a file.

    Args:
        path: The path to the file to read.
        directory: The directory to read the file from.
    """
    return f"<contents of {directory or '.'}/{path}>"


MEETING = {
    "title": "Plan",
    "start": "2026-03-01T09:00:00",
    "attendees": [{"name": "Ada"}],
    "priority": "high",
    "room": "blue",
}
PLANNED = {"title": "Plan", "end": "2026-03-01T09:30:00", "invited": ["Ada"], "room": "blue"}

EXAMPLES = [
    (search_database, {"query": "tea"}, "Found 10 results for 'tea'", ["query"]),
    (multiply, {"a": 6, "b": 7}, 42, ["a", "b"]),
    (get_stock_price, {"ticker": "ACME"}, 101.5, ["ticker"]),
    (schedule_meeting, MEETING, PLANNED, ["title", "start", "attendees"]),
    (upper, {"text": "panda"}, "PANDA", ["text"]),
    (count_char, {"text": "panda", "character": "a"}, 2, ["text", "character"]),
    (fetch_weather, {"location": {"lat": 1, "long": 2.5}}, "sunny at 1.0, 2.5", ["location"]),
    (
        get_weather,
        {"city": "Oslo"},
        {"city": "Oslo", "temperature_range": "14-20C", "conditions": "Sunny with wind."},
        ["city"],
    ),
    (read_file, {"path": "a.txt"}, "<contents of ./a.txt>", ["path"]),
]


@pytest.mark.parametrize(
    ("function", "arguments", "value", "required"), EXAMPLES, ids=lambda each: getattr(each, "__name__", "")
)
def test_an_example_of_another_framework_becomes_a_tool(function, arguments, value, required):
    async def run():
        async with Runtime(Registry()) as runtime:
            descriptor = runtime.add(function)
            wrong = await runtime.call(descriptor.name, {required[0]: {"wrong": []}})
            return descriptor, await runtime.call(descriptor.name, arguments), wrong

    descriptor, result, wrong = asyncio.run(run())
    assert (result.outcome, result.value) == (Outcome.OK, value)
    assert wrong.outcome is Outcome.INVALID_ARGUMENTS
    assert descriptor.description == function.__doc__.strip().partition("\n")[0]
    assert descriptor.input_schema["required"] == required
    assert descriptor.input_schema["additionalProperties"] is False
