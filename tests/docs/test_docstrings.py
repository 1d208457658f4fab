"""Every example in a docstring runs: the API reference shows them."""

from __future__ import annotations

import ast
import asyncio
import contextlib
import re
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import TypedDict

import pytest

import toolcrib
from toolcrib import provider
from toolcrib.provider.models.scripted import Scripted

PACKAGE = Path(toolcrib.__file__).parent

FENCED = re.compile(r"^ *```python\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)

TOOLS = """
name: get_forecast
input_schema: {type: object}
mock: {result: {city: "{{ args.city }}"}}
---
name: get_order
input_schema: {type: object}
mock: {result: {status: paid}}
---
name: create_order
input_schema: {type: object}
mock: {result: {order_id: ORD-1}}
---
name: render_video
input_schema: {type: object}
mock: {result: done}
---
name: refund_order
input_schema: {type: object}
mock: {result: done}
"""

REPLIES = [{"call": "refund_order", "args": {}}, {"say": "Done."}, {"say": "Anything else?"}]


class WeatherInput(TypedDict):
    city: str


class WeatherOutput(TypedDict):
    temperature: float
    conditions: str


def get_weather(city: str) -> float:
    """Return the temperature of a city."""
    return 21.5


class MeasureRain(toolcrib.Tool[WeatherInput, float]):
    def initialise(self, config: dict[str, float]) -> None:
        self.start = config.get("start", 0.0)

    def execute(self, rain: WeatherInput) -> float:
        return self.start


def examples():
    for path in sorted(PACKAGE.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        if "```python\n" not in text:  # each worker would parse the whole package
            continue
        if path.parent.name == "frameworks":  # they need a framework each; their how-tos run the same
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
                name = f"{path.relative_to(PACKAGE)}:{getattr(node, 'name', '')}"
                for number, code in enumerate(FENCED.findall(ast.get_docstring(node) or "")):
                    yield pytest.param(textwrap.dedent(code), id=f"{name}:{number}")


async def run(code: str, folder: Path) -> None:
    """Run an example where the names that it takes for granted exist."""
    async with toolcrib.Runtime.open("descriptors", journal=folder / "journal.sqlite") as tools:
        tools.add(MeasureRain)
        scripted = Scripted.of(REPLIES)
        loop = provider.ProviderMiddleware(scripted, tools, provider.ToolPolicy(ask=("refund_*",)))
        pending = await loop.run("Refund order ORD-1.")
        names = {
            **{name: getattr(toolcrib, name) for name in toolcrib.__all__},
            **{name: getattr(provider, name) for name in provider.__all__},
            "aclosing": contextlib.aclosing,
            "asyncio": asyncio,
            "conversation": pending,
            "database": SimpleNamespace(),
            "get_weather": get_weather,
            "loop": loop,
            "open_provider": lambda *_, **__: Scripted.of(REPLIES),
            "render": print,
            "runtime": tools,
            "session": tools.session(),
            "Scripted": Scripted,
            "WeatherInput": WeatherInput,
            "WeatherOutput": WeatherOutput,
            "toolcrib": toolcrib,
            "tools": tools,
        }
        parameters = ", ".join(names)  # an example may assign to a name that it also reads
        namespace = dict(names)
        exec(f"async def example({parameters}):\n{textwrap.indent(code, '    ')}", namespace)
        endless = ".watch(" in code  # reports until it is cancelled
        with pytest.raises(TimeoutError) if endless else contextlib.nullcontext():
            async with asyncio.timeout(1 if endless else 30):
                await namespace["example"](**names)


@pytest.mark.parametrize("code", [*examples()])
def test_an_example_of_a_docstring_runs(code, tmp_path, monkeypatch):
    (tmp_path / "descriptors").mkdir()
    (tmp_path / "descriptors" / "all.tool.yaml").write_text(TOOLS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    asyncio.run(run(code, tmp_path))
