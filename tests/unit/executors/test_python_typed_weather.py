"""The tool of `packs/typed-weather`, and the same tool written with every kind of type: no schema has a reference."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, NotRequired, TypedDict

import pytest
from pydantic import BaseModel, Field

from toolcrib import Outcome, Registry, Runtime, Tool, load_hook
from toolcrib.schema.compatibility import incompatibilities

PACK = Path(__file__).parents[3] / "packs" / "typed-weather"
City = Annotated[str, Field(min_length=1, description="Name of the city.")]
Country = Annotated[str | None, Field(pattern="^[A-Z]{2}$", description="Country, as two letters.")]


class Unit(StrEnum):
    """Unit of a temperature."""

    CELSIUS = "celsius"
    FAHRENHEIT = "fahrenheit"


class Weather(BaseModel):
    temperature: float
    unit: Unit
    conditions: str


class Model(BaseModel):
    city: City
    country_code: Country = None
    unit: Unit = Unit.CELSIUS


@dataclass
class Data:
    city: City
    country_code: Country = None
    unit: Unit = Unit.CELSIUS


class Dictionary(TypedDict):
    city: City
    country_code: NotRequired[Country]
    unit: NotRequired[Unit]


class Place(BaseModel):
    """A model that contains itself."""

    name: str
    unit: Unit
    inside: list[Place] = []


def answer(city, unit):
    return Weather(temperature=21.5 if unit == "celsius" else 70.7, unit=unit, conditions=f"sunny in {city}")


def as_function(city: City, country_code: Country = None, unit: Unit = Unit.CELSIUS) -> Weather:
    """Return the current weather of a city."""
    return answer(city, unit)


class AsModel(Tool[Model, Weather]):
    def execute(self, given: Model) -> Weather:
        return answer(given.city, given.unit)


class AsDataclass(Tool[Data, Weather]):
    def execute(self, given: Data) -> Weather:
        return answer(given.city, given.unit)


class AsDictionary(Tool[Dictionary, Weather]):
    def execute(self, given: Dictionary) -> Weather:
        return answer(given["city"], given.get("unit", Unit.CELSIUS))


KINDS = [as_function, AsModel, AsDataclass, AsDictionary]
WRONG = {"city": "", "country_code": "usa", "unit": "kelvin"}


@pytest.fixture
def tools():
    with Runtime(Registry()) as runtime:
        yield runtime


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_type_has_the_same_schemas_without_references(kind, tools):
    tool = tools.add(kind)
    assert not {"$ref", "$defs"} & {*_keys(tool.input_schema), *_keys(tool.output_schema)}
    unit = tool.input_schema["properties"]["unit"]
    assert (unit["enum"], unit["type"]) == (["celsius", "fahrenheit"], "string")
    assert tool.output_schema["properties"]["unit"]["enum"] == ["celsius", "fahrenheit"]
    plain = tools.add(as_function, name="plain").input_schema
    for one, other in ((tool.input_schema, plain), (plain, tool.input_schema)):
        closed = [{**each, "additionalProperties": False} for each in (one, other)]
        assert incompatibilities(*closed) == []
    result = tools.call_sync(tool.name, {"city": "Oslo", "unit": "fahrenheit"})
    assert result.value == {"temperature": 70.7, "unit": "fahrenheit", "conditions": "sunny in Oslo"}
    assert result.into(Weather) == answer("Oslo", Unit.FAHRENHEIT)


@pytest.mark.parametrize("kind", KINDS)
def test_wrong_arguments_are_reported_all_at_once(kind, tools):
    refused = tools.call_sync(tools.add(kind).name, WRONG)
    assert refused.outcome is Outcome.INVALID_ARGUMENTS
    told = {each["pointer"] for each in refused.error.details["violations"]}
    assert told == {"/city", "/country_code", "/unit"}


def test_a_recursive_model_is_expanded_three_levels_deep(tools):
    def visit(place: Place) -> str:
        return "/".join(_names(place))

    tool = tools.add(visit)
    assert "$ref" not in [*_keys(tool.input_schema)]
    nested = {"name": "5", "unit": "celsius"}
    for name in "4321":
        nested = {"name": name, "unit": "celsius", "inside": [nested]}
    assert tools.call_sync("visit", {"place": nested}).value == "1/2/3/4/5"
    # The schema finds what is wrong in its levels, and the type what is wrong below.
    levels = [nested, nested["inside"][0], nested["inside"][0]["inside"][0]["inside"][0]]
    for each in levels:
        each["unit"] = "kelvin"
        refused = tools.call_sync("visit", {"place": nested})
        assert refused.outcome is Outcome.INVALID_ARGUMENTS
        each["unit"] = "celsius"


def test_the_descriptor_of_the_pack_is_the_class(tools):
    with Runtime.open(PACK, mode="python", trust=True) as packed:
        written = packed.registry["typed__get_weather"]
        for example in written.examples:
            assert packed.call_sync(written.name, dict(example.args)).value == example.result
        refused = packed.call_sync(written.name, {"city": "Paris", "country_code": "US"})
        assert (refused.error.code, refused.message) == ("UnknownCityError", "no weather for Paris")
    derived = tools.add(load_hook("weather_tools:GetWeather", "here", packs=[str(PACK)]))
    assert written.description == derived.description
    for one, other in ((written, derived), (derived, written)):
        inputs = [{**each.input_schema, "additionalProperties": False} for each in (one, other)]
        assert incompatibilities(*inputs) == []
        assert incompatibilities(one.output_schema, other.output_schema) == []


def _keys(value):
    if isinstance(value, dict):
        yield from value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from _keys(part)


def _names(place):
    yield place.name
    for each in place.inside:
        yield from _names(each)
