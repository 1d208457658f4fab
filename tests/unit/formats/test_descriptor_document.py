"""Typed tool -> descriptor file -> typed stub: each step keeps the schemas."""

from __future__ import annotations

import datetime as dt
import decimal
import itertools
import sys
import uuid
from dataclasses import dataclass, field
from enum import Enum, IntEnum, StrEnum
from types import ModuleType
from typing import Annotated, Any, Literal, NamedTuple, NotRequired

import pytest
from pydantic import BaseModel, Field
from typing_extensions import TypedDict

import toolcrib
from sampling import sample
from toolcrib import DocumentError, Executors, Registry, Runtime
from toolcrib.core.model import Descriptor
from toolcrib.executors.python.declarations import descriptor_of
from toolcrib.formats.descriptor_document import descriptor_text, document_of
from toolcrib.formats.python_stubs import generate_stubs
from toolcrib.loading.sources import parse
from toolcrib.schema.compatibility import incompatibilities
from toolcrib.schema.from_types import JsonType

KINDS = Executors.installed()
NUMBERS = itertools.count()


class Unit(StrEnum):
    CELSIUS = "celsius"
    FAHRENHEIT = "fahrenheit"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Mixed(Enum):
    TEXT = "a"
    NUMBER = 1


class Point(TypedDict):
    x: float
    y: float
    label: NotRequired[str]


@dataclass
class Line:
    points: list[Point]
    tags: dict[str, int] = field(default_factory=dict)
    unit: Unit = Unit.CELSIUS


class Order(BaseModel):
    id: str
    lines: list[Line]
    note: str | None = None


class Pair(NamedTuple):
    first: int
    second: str = "b"


KEPT = [
    str,
    int,
    float,
    bool,
    None,
    Any,
    str | None,
    int | str,
    list[int],
    list[list[str]],
    dict[str, float],
    dict[str, list[int]],
    Literal["a", "b"],
    Literal[1, "a"] | None,
    Unit,
    Level,
    Mixed,
    Point,
    Line,
    Order,
    list[Order],
    Order | Point,
]
"""Types whose stub has the same values."""

WIDENED = [
    dt.datetime,
    dt.date,
    dt.timedelta,
    uuid.UUID,
    decimal.Decimal,
    bytes,
    set[int],
    tuple[int, str],
    tuple[int, ...],
    Pair,
    Annotated[int, Field(ge=1, le=7)],
    Annotated[str, Field(pattern="^[A-Z]{2}$", description="Two letters.")],
    Annotated[list[str], Field(min_length=1, max_length=3)],
]
"""Types whose stub has more values: static types have no formats, patterns and limits."""


def declared(kind: Any) -> Descriptor:
    def convert(value, optional=None): ...

    convert.__annotations__ = {
        "value": kind,
        "optional": kind | None if kind is not None else None,
        "return": kind,
    }
    return descriptor_of(convert, KINDS)


def read_back(tool: Descriptor) -> Descriptor:
    loaded = parse("convert.tool.yaml", descriptor_text(tool, KINDS), KINDS)
    assert loaded.problems == ()
    return loaded.tools[0]


def stub_schemas(tool: Descriptor, monkeypatch):
    """The schemas of the types in the stub of a tool."""
    text = generate_stubs([tool], "test").replace("from typing import", "from typing_extensions import")
    module = ModuleType(f"stub_{next(NUMBERS)}")
    names = vars(module)
    names["__file__"] = __file__
    monkeypatch.setitem(sys.modules, module.__name__, module)
    exec(compile(text, "stub.py", "exec", dont_inherit=True), names)
    names["JSON"] = Any  # pydantic cannot read the recursive alias
    # The arguments of a function are a closed object, and a TypedDict does not say whether it is one.
    for name, each in names.items():
        if isinstance(each, type) and hasattr(each, "__total__"):
            each.__pydantic_config__ = {"extra": "forbid" if name == "ConvertArguments" else "ignore"}
    arguments = JsonType(names["ConvertArguments"], subject="the stub", place="stub.py:1")
    hints = names["Tools"].convert.__annotations__["return"]
    result = eval(hints, names) if isinstance(hints, str) else hints
    return arguments.input_schema, JsonType(result, subject="the stub", place="stub.py:1").input_schema


@pytest.mark.parametrize("kind", sample([*KEPT, *WIDENED], one_in=3), ids=str)
def test_a_descriptor_file_keeps_the_schemas(kind):
    tool = declared(kind)
    again = read_back(tool)
    assert (again.input_schema, again.output_schema) == (tool.input_schema, tool.output_schema)
    assert (again.name, again.mode, again.bindings["python"]) == (
        tool.name,
        "python",
        dict(tool.bindings["python"]),
    )
    for narrow, wide in ((tool, again), (again, tool)):
        assert incompatibilities(narrow.input_schema, wide.input_schema) == []


@pytest.mark.parametrize("kind", sample(KEPT, one_in=4), ids=str)
def test_a_stub_of_the_descriptor_file_keeps_the_schemas(kind, monkeypatch):
    tool = read_back(declared(kind))
    arguments, result = stub_schemas(tool, monkeypatch)
    assert incompatibilities(tool.input_schema, arguments) == []
    assert incompatibilities(arguments, tool.input_schema) == []
    assert incompatibilities(tool.output_schema, result) == []
    assert incompatibilities(result, tool.output_schema) == []


@pytest.mark.parametrize("kind", sample(WIDENED, one_in=3), ids=str)
def test_a_stub_is_never_narrower(kind, monkeypatch):
    tool = read_back(declared(kind))
    arguments, _result = stub_schemas(tool, monkeypatch)
    assert incompatibilities(tool.input_schema, arguments) == []


WHOLE = """
name: get_order
title: Order
description: "Returns an order: all of it."
version: "1.10"
author: Shop
help_url: https://example.com
tags: [shop]
labels: {team: orders}
category: Data
annotations: {read_only: true}
input_schema: {type: object, properties: {id: {type: string}}, required: [id]}
output_schema: true
mode: mock
mock: {result: {id: "{{ args.id }}"}}
live: {method: GET, url: "https://api.example.com/orders/{{ args.id }}", headers: {X: "${TOKEN}"}}
timeout: 2.5s
limits: {rate: 10/1m, concurrency: 2, backoff: {first: 100ms}, breaker: off, output_size: 64KiB}
coerce: off
on_invalid_result: warn
examples: [{args: {id: a}, result: {id: a}}, {args: {id: b}}]
capabilities: [network]
platforms: [linux]
dependencies: {commands: [sh]}
requires_confirmation: true
estimate: {duration: 2s, cost: 0.01, output: 1KiB}
deprecated: use get_orders
experimental: true
metadata: {any: [1, {b: null}]}
"""


def test_every_key_of_a_descriptor_is_written():
    (tool,) = parse("whole.tool.yaml", WHOLE, KINDS).tools
    written = parse("x.tool.yaml", WHOLE, KINDS).tools[0].origin.written
    assert {key.partition(".")[0] for key in written} - set(document_of(tool)) == set()
    again = read_back(tool)
    for key in Descriptor._fields:
        if key != "origin":
            assert getattr(again, key) == getattr(tool, key), key


def test_a_plain_tool_has_a_short_document():
    tool = toolcrib.simple_tool("ping", "Answers.", mock={"result": "pong"})
    assert descriptor_text(tool, KINDS) == (
        'name: ping\ndescription: Answers.\nmode: mock\nmock: {result: pong}\ntimeout: "3s"\n'
    )


def test_the_defaults_of_a_project_are_not_written(tmp_path):
    (tmp_path / "toolcrib.yaml").write_text("project: p\nsources: [.]\ndefaults: {timeout: 7s}\n")
    (tmp_path / "a.tool.yaml").write_text("name: a\ndescription: A.\nmock: {result: 1}\n")
    with Runtime.open(str(tmp_path), index=False) as runtime:
        assert runtime.registry["a"].timeout == 7.0
        assert "timeout" not in document_of(runtime.registry["a"])


def test_a_tool_that_cannot_be_described_completely_is_an_error(tmp_path):
    (tmp_path / "a.tool.yaml").write_text("name: a\ndescription: A.\nmock: {template_file: a.txt}\n")
    (tmp_path / "a.txt").write_text("hi")
    with Runtime.open(str(tmp_path), index=False) as runtime, pytest.raises(DocumentError):
        descriptor_text(runtime.registry["a"], KINDS)


def test_an_exported_tool_runs(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "exported_totals.py").write_text(
        "def add(a: int, b: int = 1) -> int:\n    '''Add.'''\n    return a + b\n"
    )
    import exported_totals  # noqa: PLC0415

    runtime = Runtime(Registry())
    text = descriptor_text(runtime.add(exported_totals.add), KINDS)
    (tmp_path / "tools").mkdir()
    (tmp_path / "tools" / "add.tool.yaml").write_text(text)
    with Runtime.open(str(tmp_path / "tools"), index=False) as opened:
        assert opened.call_sync("add", {"a": 2}).value == 3


def test_what_reading_the_file_would_change_is_an_error():
    text = "name: a\ndescription: A.\nannotations: {read_only: false}\nlive: {method: GET, url: 'https://example.com'}\n"
    (tool,) = parse("a.tool.yaml", text, KINDS).tools
    with pytest.raises(DocumentError) as caught:
        descriptor_text(tool, KINDS)
    assert [each.code for each in caught.value.problems] == ["not_exported"]
    assert "would not describe the tool completely: `annotations`" in str(caught.value)
