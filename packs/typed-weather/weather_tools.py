"""The weather of a city, as a typed tool."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

import toolcrib


class TemperatureUnit(StrEnum):
    """Unit of a temperature."""

    CELSIUS = "celsius"
    FAHRENHEIT = "fahrenheit"


class WeatherInput(BaseModel):
    """The place and the unit."""

    city: str = Field(min_length=1, description="Name of the city.")
    country_code: str | None = Field(None, pattern="^[A-Z]{2}$", description="Country, as two letters.")
    unit: TemperatureUnit = TemperatureUnit.CELSIUS


class WeatherOutput(BaseModel):
    """The current weather."""

    temperature: float
    unit: TemperatureUnit
    conditions: str


class GetWeather(toolcrib.Tool[WeatherInput, WeatherOutput]):
    """Return the current weather of a city."""

    def initialise(self, config: dict[str, Any]) -> None:  # noqa: ARG002 -- it has no config
        """Read the weather of all cities, once."""
        rows = json.loads((Path(__file__).parent / "data" / "cities.json").read_text(encoding="utf-8"))
        self.cities = {row["name"]: row for row in rows}

    def execute(self, input: WeatherInput) -> WeatherOutput:  # noqa: A002 -- the name in the documentation
        """Look the city up."""
        found = self.cities.get(input.city)
        if found is None or input.country_code not in {None, found["country"]}:
            raise UnknownCityError(f"no weather for {input.city}")
        celsius = found["celsius"]
        warm = celsius if input.unit is TemperatureUnit.CELSIUS else round(celsius * 9 / 5 + 32, 1)
        return WeatherOutput(temperature=warm, unit=input.unit, conditions=found["conditions"])


class UnknownCityError(LookupError):
    """The weather of a city is unknown."""
