"""`toolcrib stubs`: a typed module for the tools, which is used as any other module."""

from __future__ import annotations

import importlib.util
import logging

import pytest

from toolcrib import InvalidArguments, Runtime

TOOLS = """
name: get_forecast
description: 'The forecast of a "city".'
input_schema:
  type: object
  properties:
    city: {type: string, description: Name of the city.}
    days: {type: integer, default: 3}
    unit: {enum: [C, F, null]}
  required: [city]
  additionalProperties: false
output_schema:
  $defs: {day: {type: object, properties: {high: {type: [number, "null"]}}, required: [high]}}
  type: object
  properties:
    city: {type: string}
    daily: {type: array, items: {$ref: "#/$defs/day"}}
    two words: {const: 1}
  required: [city, daily]
mock: {result: {city: "{{ args.city }}", daily: [{high: 21.5}]}}
---
name: shop.class
input_schema: {type: object, properties: {"a-b": {type: boolean}}, required: ["a-b"], additionalProperties: {type: string}}
output_schema: {anyOf: [{type: object, additionalProperties: {type: integer}}, {type: "null"}]}
mock: {result: {n: 1}}
---
name: shop-class
mock: {result: [1]}
"""


PARTS = '''
class GetForecastArguments(TypedDict):
    city: str
    days: NotRequired[int]
    unit: NotRequired[Literal["C", "F"] | None]


class GetForecastResultDailyItem(TypedDict):
    high: float | None


GetForecastResult = TypedDict(
    "GetForecastResult",
    {
        "city": "str",
        "daily": "list[GetForecastResultDailyItem]",
        "two words": NotRequired["Literal[1]"],
    },
)


    async def get_forecast(self, **arguments: Unpack[GetForecastArguments]) -> GetForecastResult:
        """The forecast of a "city".

        Args:
            city: Name of the city.
        """


    async def shop_class(self) -> JSON:


    async def shop_class_2(self, **arguments: JSON) -> dict[str, int] | None:
'''
"""What is in the module, separated by two empty lines; names that no Python function can have get others."""


@pytest.fixture
def project(tmp_path, monkeypatch):
    (tmp_path / "toolcrib.yaml").write_text("project: weather\n", encoding="utf-8")
    (tmp_path / "descriptors").mkdir()
    (tmp_path / "descriptors" / "t.tool.yaml").write_text(TOOLS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def imported(file):
    spec = importlib.util.spec_from_file_location("written_stub", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_types_are_those_of_the_schemas(project, toolcrib):
    text = toolcrib("stubs").stdout
    for part in PARTS.split("\n\n\n"):
        assert part.strip("\n") in text, part


async def test_a_stub_calls_the_tools_of_a_runtime_or_session(project, toolcrib, caplog):
    toolcrib("stubs", "--out", "tools.py")
    stub = imported("tools.py")
    async with Runtime.open(trust=True) as runtime:
        for given in (runtime, runtime.session()):
            tools = stub.Tools(given)
            assert await tools.get_forecast(city="Oslo") == {"city": "Oslo", "daily": [{"high": 21.5}]}
            assert await tools.shop_class() == [1]
            assert await tools.shop_class_2(**{"a-b": True, "more": "x"}) == {"n": 1}
        with pytest.raises(InvalidArguments, match="city"):
            await tools.get_forecast(city=7.5)
    assert caplog.records == []


def test_a_stub_reports_tools_that_have_changed_since(project, toolcrib, caplog):
    assert toolcrib("stubs", "--out", "tools.py").stdout == "wrote tools.py: 3 tools\n"
    assert toolcrib("stubs", "--out", "tools.py", "--check").stdout == "tools.py is up to date: 3 tools\n"
    descriptors = project / "descriptors" / "t.tool.yaml"
    changed = TOOLS.replace("{type: integer, default: 3}", "{type: string}").replace("shop-class", "other")
    descriptors.write_text(changed, encoding="utf-8")
    checked = toolcrib("stubs", "--out", "tools.py", "--check")
    assert checked.exit_code == 1
    assert "tools.py is out of date; run `toolcrib stubs --out tools.py`" in checked.stderr
    with caplog.at_level(logging.WARNING, "toolcrib"), Runtime.open(trust=True) as runtime:
        imported("tools.py").Tools(runtime)
    (told,) = [record.getMessage() for record in caplog.records]
    assert told == (
        "the stub `written_stub` is out of date: `get_forecast` has changed, `shop-class` does not exist; "
        "run `toolcrib stubs --out FILE`"
    )


def test_a_file_of_somebody_else_is_not_overwritten(project, toolcrib):
    (project / "mine.py").write_text("x = 1\n", encoding="utf-8")
    refused = toolcrib("stubs", "--out", "mine.py")
    assert refused.exit_code == 2
    assert "mine.py was not written by `toolcrib stubs`; use `--force` to overwrite it" in refused.stderr
    toolcrib("stubs", "--out", "mine.py", "--force")
    assert imported("mine.py").Tools
    alone = toolcrib("stubs", "--check")
    assert (alone.exit_code, "needs `--out FILE`" in alone.stderr) == (2, True)


def test_the_types_of_open_objects_are_not_narrower(project, toolcrib):
    """A schema with more members than it names has no TypedDict, and nothing is narrower than it."""
    schemas = {
        "a": "{type: object, properties: {x: {type: string}}, additionalProperties: true}",
        "b": "{type: object, anyOf: [{required: [x]}, {required: [y]}], properties: {x: {}, y: {}}}",
        "c": "{type: object, patternProperties: {'^x': {type: integer}}}",
        "d": "{type: array, prefixItems: [{type: string}], items: {type: integer}}",
        "e": "{type: array}",
        "f": "{not: {type: string}}",
        "g": "{type: [string, array]}",
        "h": "{allOf: [{type: object, properties: {x: {type: string}}}, {properties: {y: {}}, required: [x]}]}",
    }
    text = "\n---\n".join(f"name: {name}\noutput_schema: {schema}" for name, schema in schemas.items())
    (project / "descriptors" / "t.tool.yaml").write_text(text, encoding="utf-8")
    written = toolcrib("stubs").stdout
    types = dict(
        line.strip()[len("async def ") : -1].split("(self) -> ")
        for line in written.splitlines()
        if " -> " in line
    )
    assert types == {
        "a": "dict[str, JSON]",
        "b": "dict[str, JSON]",
        "c": "dict[str, JSON]",
        "d": "list[str | int]",
        "e": "list[JSON]",
        "f": "JSON",
        "g": "str | list[JSON]",
        "h": "HResult",
    }
    assert "class HResult(TypedDict):\n    x: str\n    y: NotRequired[JSON]\n" in written
