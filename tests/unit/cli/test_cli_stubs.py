"""`toolcrib stubs`: a typed module for the tools, which is used as any other module."""

from __future__ import annotations

import importlib.util
import logging
import os
import subprocess
import sys

import pytest

from sampling import sample
from toolcrib import InvalidArguments, Runtime
from toolcrib.formats.python_stubs import changed_documents

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
    changes = [
        "`descriptors/t.tool.yaml` has changed",
        "`get_forecast` has changed, `shop-class` does not exist",
    ]
    assert [record.getMessage() for record in caplog.records] == [
        f"the stub `written_stub` is out of date: {each}; run `toolcrib stubs --out tools.py`"
        for each in changes
    ]


WARNED = """
import logging
logging.basicConfig(format="%(message)s")
from {module} import Tools
class Mine(Tools): pass
"""


@pytest.mark.parametrize("change", sample(["shorter", "same size", "touched", "absent", "none"], one_in=2))
def test_a_stub_that_is_older_than_its_documents_says_so_when_it_is_imported(project, toolcrib, change):
    (project / "src").mkdir()
    toolcrib("stubs", "descriptors", "--out", "src/shop_tools.py")
    document = project / "descriptors" / "t.tool.yaml"
    match change:
        case "shorter":
            document.write_text(TOOLS[:-1], encoding="utf-8")
        case "same size":
            document.write_text(TOOLS.replace("21.5", "21.6"), encoding="utf-8")
        case "touched":
            later = (project / "src" / "shop_tools.py").stat().st_mtime + 10
            os.utime(document, (later, later))
        case "absent":
            document.unlink()
    run = subprocess.run(
        [sys.executable, "-c", WARNED.format(module="shop_tools")],
        cwd=project / "src",
        env={**os.environ, "PYTHONPATH": str(project / "src")},
        capture_output=True,
        text=True,
        check=True,
    )
    told = (
        "the stub `shop_tools` is out of date: `../descriptors/t.tool.yaml` has changed; "
        "run `toolcrib stubs descriptors --out src/shop_tools.py`\n"
    )
    assert run.stderr == (told if change in {"shorter", "same size"} else "")


def test_a_change_counts_whatever_the_times_of_the_files_are(project, toolcrib):
    """In a clone, an outdated stub may be newer than the documents, and changes often keep the size."""
    for number in range(3):
        text = f"name: tool_{number}\nmock: {{result: 1}}\n"
        (project / "descriptors" / f"{number}.tool.yaml").write_text(text, encoding="utf-8")
    toolcrib("stubs", "--out", "tools.py")
    stub = imported("tools.py")
    assert len(stub.Tools._documents) == 4
    assert changed_documents("tools.py", stub.Tools._documents) == []
    before = project / "descriptors" / "1.tool.yaml"
    before.write_text(before.read_text().replace("result: 1", "result: 2"), encoding="utf-8")
    os.utime(before, (0, 0))
    assert changed_documents("tools.py", stub.Tools._documents) == ["descriptors/1.tool.yaml"]
    assert changed_documents("deployed/tools.py", stub.Tools._documents) == []


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


def test_a_stub_knows_the_documents_of_a_tool_that_another_one_overrides(project, toolcrib):
    (project / "toolcrib.yaml").write_text("project: p\nsources: [descriptors, own]\n", encoding="utf-8")
    (project / "own").mkdir()
    override = "name: get_forecast\noverride: true\ntimeout: 3s\n"
    (project / "own" / "o.tool.yaml").write_text(override, encoding="utf-8")
    toolcrib("stubs", "--out", "tools.py")
    assert [*imported("tools.py").Tools._documents] == ["descriptors/t.tool.yaml", "own/o.tool.yaml"]
