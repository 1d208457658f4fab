"""What functions and classes declare becomes descriptors; what cannot be a tool is refused with its place."""

from __future__ import annotations

import functools
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated

import pytest
from pydantic import AliasChoices, BaseModel, Field
from typing_extensions import TypedDict

import toolcrib
from toolcrib import (
    CallContext,
    ConfigurationError,
    DocumentError,
    Executors,
    Outcome,
    Partial,
    Progress,
    Registry,
    Result,
    Runtime,
    tool,
)
from toolcrib.executors.python.declarations import descriptor_of

KINDS = Executors.installed()
HERE = __file__


class Unit(StrEnum):
    CELSIUS = "celsius"
    FAHRENHEIT = "fahrenheit"


@dataclass
class WeatherInput:
    city: str
    country_code: str | None = None
    unit: Unit = Unit.CELSIUS


class WeatherOutput(BaseModel):
    temperature: float
    conditions: str


class Days(TypedDict):
    days: Annotated[int, Field(ge=1)]


class GetHTTPWeather(toolcrib.Tool[WeatherInput, WeatherOutput]):
    """Return the weather of a city."""

    async def execute(self, given: WeatherInput) -> WeatherOutput:
        return WeatherOutput(temperature=21.5, conditions=f"{given.unit.name} in {given.city}")


def properties(target):
    return descriptor_of(target, KINDS).input_schema["properties"]


def test_a_function_becomes_a_descriptor():
    @toolcrib.tool(title="Forecast", tags=["weather"], annotations={"read_only": True}, timeout="5s")
    async def get_forecast(
        city: Annotated[str, "Name of the city"], days: Annotated[int, Field(ge=1, le=7)] = 3
    ) -> WeatherOutput:
        """Return a forecast.

        It covers up to a week.

        Args:
            city: Not used, because the annotation says more.
            days: Number of days.
        """

    tool = descriptor_of(get_forecast, KINDS)
    assert (tool.name, tool.title, tool.tags, tool.timeout) == ("get_forecast", "Forecast", ("weather",), 5.0)
    assert tool.description == "Return a forecast.\n\nIt covers up to a week."
    assert tool.annotations.read_only
    assert tool.mode == "python"
    assert tool.origin.source == HERE
    assert tool.input_schema == {
        "type": "object",
        "properties": {
            "city": {"type": "string", "description": "Name of the city"},
            "days": {
                "type": "integer",
                "minimum": 1,
                "maximum": 7,
                "description": "Number of days.",
                "default": 3,
            },
        },
        "required": ["city"],
        "additionalProperties": False,
    }
    assert tool.output_schema["properties"]["temperature"] == {"type": "number"}


def test_the_decorator_returns_the_same_object():
    def plain(x: int) -> int:
        return x

    assert toolcrib.tool(plain) is plain
    assert toolcrib.tool(name="other")(plain) is plain
    assert plain(3) == 3
    assert toolcrib.tool(GetHTTPWeather) is GetHTTPWeather


def test_a_class_becomes_a_descriptor():
    tool = descriptor_of(GetHTTPWeather, KINDS)
    assert (tool.name, tool.description) == ("get_http_weather", "Return the weather of a city.")
    assert tool.input_schema["properties"]["unit"]["enum"] == ["celsius", "fahrenheit"]
    assert tool.input_schema["required"] == ["city"]
    assert "$ref" not in repr(tool.input_schema)
    assert tool.output_schema["required"] == ["temperature", "conditions"]
    assert descriptor_of(GetHTTPWeather(), KINDS).input_schema == tool.input_schema


GOOGLE = """Do it.

Args:
    x: The number.
"""
NUMPY = """Do it.

Parameters
----------
x : int
    The number.
"""
SPHINX = """Do it.

:param x: The number.
"""


@pytest.mark.parametrize("text", [GOOGLE, NUMPY, SPHINX])
def test_docstrings_describe_the_tool_and_its_parameters(text):
    def f(x: int) -> int: ...

    f.__doc__ = text
    tool = descriptor_of(f, KINDS)
    assert tool.description == "Do it."
    assert tool.input_schema["properties"]["x"]["description"] == "The number."


def test_the_context_is_hidden():
    def f(x: int, context: CallContext, also: CallContext | None = None) -> int: ...

    assert [*properties(f)] == ["x"]


def test_the_context_is_found_in_annotated_and_in_optional_parameters():
    def use(
        text: str,
        one: Annotated[CallContext, "who calls"],
        *,
        two: Annotated[CallContext | None, "the same"] = None,
    ) -> str:
        return text

    assert [*properties(use)] == ["text"]


def test_a_field_as_default_is_read_as_pydantic_reads_it():
    def f(x: int = Field(5, ge=1, description="Count"), y: str = Field(min_length=2)) -> int: ...

    tool = descriptor_of(f, KINDS)
    assert tool.input_schema["properties"]["x"] == {
        "type": "integer",
        "minimum": 1,
        "description": "Count",
        "default": 5,
    }
    assert tool.input_schema["required"] == ["y"]


def test_the_alias_of_a_field_is_the_name_of_the_argument(recwarn):
    @tool
    def f(
        q: Annotated[str, Field(alias="query", description="Words")],
        n: int = Field(3, alias="limit", ge=1),
        x: Annotated[int, Field(validation_alias="q")] = 7,
    ) -> str:
        return f"{q} {n} {x}"

    with Runtime(Registry()) as runtime:
        runtime.add(f)
        schema = runtime.registry["f"].input_schema
        assert [*schema["properties"]] == ["query", "limit", "q"]
        assert schema["required"] == ["query"]
        assert schema["properties"]["query"] == {"type": "string", "description": "Words"}
        assert runtime.call_sync("f", {"query": "a"}).value == "a 3 7"
        assert runtime.call_sync("f", {"query": "a", "limit": 2, "q": 1}).value == "a 2 1"
        assert runtime.call_sync("f", {"query": "a", "limit": 0}).outcome is Outcome.INVALID_ARGUMENTS
    assert [str(each.message) for each in recwarn] == []


@pytest.mark.parametrize(
    ("alias", "why"),
    [
        (AliasChoices("a", "b"), "the parameter `two` of `f` has several aliases"),
        ("one", "the parameter `two` of `f` has the alias `one` of another argument"),
    ],
)
def test_an_alias_that_names_no_argument_is_refused(alias, why):
    def f(one: str, two: str = Field(validation_alias=alias)) -> None: ...

    with pytest.raises(ConfigurationError, match=why) as error:
        descriptor_of(f, KINDS)
    assert error.value.code == "bad_signature"


def test_a_default_that_is_no_value_of_the_type_is_left_out():
    def f(x: int = object(), y: str = 3) -> int: ...

    assert properties(f) == {"x": {"type": "integer"}, "y": {"type": "string"}}


def test_a_nested_input_is_inlined():
    def f(where: WeatherInput, options: Days, units: list[Unit]) -> None: ...

    shown = properties(f)
    assert shown["where"]["properties"]["unit"]["enum"] == ["celsius", "fahrenheit"]
    assert shown["options"]["properties"]["days"]["minimum"] == 1
    assert shown["units"]["items"]["enum"] == ["celsius", "fahrenheit"]


def returning() -> Generator[Progress, None, int]:
    yield Progress(1)
    return 3


def yielding() -> Iterator[Progress | Partial | int]:
    yield 3


async def streaming() -> AsyncIterator[Progress | int]:
    yield 3


def empty() -> Iterator[Progress]:
    yield Progress(1)


def complete() -> Result: ...


def undeclared(): ...


@pytest.mark.parametrize(
    ("function", "schema"),
    [
        (returning, {"type": "integer"}),
        (yielding, {"type": "integer"}),
        (streaming, {"type": "integer"}),
        (empty, {"type": "null"}),
        (complete, None),
        (undeclared, None),
    ],
)
def test_the_output_schema_is_that_of_the_final_value(function, schema):
    assert descriptor_of(function, KINDS).output_schema == schema


def test_a_callable_without_annotations_needs_a_schema():
    schema = {"type": "object", "properties": {"x": {"type": "integer"}}, "required": ["x"]}

    @toolcrib.tool(schema=schema)
    def f(x): ...

    assert descriptor_of(f, KINDS).input_schema == schema


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        ({"type": "object", "properties": {"y": {}, "x": {}}, "required": ["x"]}, "has no parameter `y`"),
        ({"type": "object", "properties": {"x": {}}}, "requires `x`, and `input_schema` does not"),
    ],
)
def test_the_schema_of_a_callable_has_its_parameters(schema, message):
    def f(x): ...

    with pytest.raises(DocumentError) as raised:
        descriptor_of(f, KINDS, {"schema": schema})
    (problem,) = raised.value.problems
    assert problem.code == "schema_mismatch"
    assert problem.message.endswith(message)
    assert problem.source == __file__


class Opaque:
    pass


def bad_star(*args: int): ...


def bad_stars(**kwargs: int): ...


def bad_slash(x: int, /): ...


def bad_bare(x): ...


def bad_name(x: Nowhere): ...  # noqa: F821


def bad_type(x: Opaque): ...


def bad_callable(x: Callable[[], int]): ...


def bad_result() -> Opaque: ...


class NoExecute(toolcrib.Tool[WeatherInput, int]):
    pass


class NoTypes(toolcrib.Tool):
    async def execute(self, given): ...


class NoObject(toolcrib.Tool[int, int]):
    async def execute(self, given: int) -> int: ...


class NoConfigType(toolcrib.Tool[WeatherInput, int]):
    async def initialise(self, config): ...

    async def execute(self, given: WeatherInput) -> int: ...


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (bad_star, "the parameter `*args` of `bad_star` takes any arguments"),
        (bad_stars, "the parameter `**kwargs` of `bad_stars` takes any arguments"),
        (bad_slash, "the parameter `x` of `bad_slash` is positional-only"),
        (bad_bare, "the parameter `x` of `bad_bare` has no annotation"),
        (bad_name, "the annotations of `bad_name` cannot be resolved"),
        (bad_type, "the parameter `x` of `bad_type` has a type without a JSON Schema"),
        (bad_callable, "the parameter `x` of `bad_callable` has a type without a JSON Schema"),
        (bad_result, "the result of `bad_result` has a type without a JSON Schema"),
        (NoExecute, "`NoExecute` does not define `execute`"),
        (NoTypes, "`NoTypes` does not name its input and output types"),
        (NoObject, "the input of `NoObject` is not an object"),
        (NoConfigType, "`initialise` of `NoConfigType` must have one annotated parameter, the config"),
    ],
)
def test_what_cannot_be_a_tool_is_an_error_with_file_and_line(target, said):
    with pytest.raises(ConfigurationError) as caught:
        descriptor_of(target, KINDS)
    assert str(caught.value).startswith(said)
    assert f"({HERE}:" in str(caught.value)


@pytest.mark.parametrize(
    "target", [3, Opaque, Opaque(), functools.partial(print, 3)], ids=lambda target: type(target).__name__
)
def test_what_is_no_function_is_refused(target):
    with pytest.raises(ConfigurationError, match="cannot make a tool of"):
        toolcrib.tool(target)


@pytest.mark.parametrize(
    ("keys", "said"),
    [
        ({"descripton": "x"}, "unknown key `descripton`"),
        ({"timeout": "soon"}, "a duration is a number with its unit"),
        ({"examples": [{"args": {"x": "no"}}]}, "/examples/0/args/x"),
        ({"name": "no name"}, "name"),
        ({"worker": "process"}, "process"),
        ({"config": {}}, "`config` has no effect"),
    ],
)
def test_the_keys_are_checked_as_those_of_a_file(keys, said):
    @toolcrib.tool(**keys)
    def f(x: int) -> int: ...

    with pytest.raises(DocumentError) as caught:
        descriptor_of(f, KINDS)
    assert said in str(caught.value)
    assert HERE in str(caught.value)


def test_an_asynchronous_function_has_no_thread():
    @toolcrib.tool(worker="thread")
    async def f() -> int: ...

    with pytest.raises(DocumentError, match="`worker: thread` needs a synchronous function"):
        descriptor_of(f, KINDS)


def test_annotations_may_name_what_is_local():
    class Local(BaseModel):
        x: int

    @toolcrib.tool
    def f(local: Local) -> int: ...

    assert properties(f)["local"]["properties"] == {"x": {"type": "integer"}}


def test_simple_tool_has_defaults():
    tool = toolcrib.simple_tool("ping", "Answers.")
    assert (tool.name, tool.mode, tool.timeout, tool.bindings["mock"]) == (
        "ping",
        "mock",
        3.0,
        {"result": None},
    )
    assert tool.input_schema == {"type": "object", "additionalProperties": False}
    assert tool.origin.source == HERE
    typed = toolcrib.simple_tool("count", "Counts.", output_schema={"type": "integer"}, mock={"result": 3})
    assert typed.bindings["mock"] == {"result": 3}
    with pytest.raises(DocumentError, match="does not match"):
        toolcrib.simple_tool("count", "Counts.", output_schema={"type": "integer"}, mock={"result": "x"})


def test_declaring_a_tool_imports_neither_pydantic_nor_the_docstring_parser():
    program = (
        "import sys, toolcrib\n"
        "@toolcrib.tool\n"
        "def f(x: int) -> int: ...\n"
        "print(sorted({'pydantic', 'docstring_parser'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


@pytest.mark.parametrize("package", ["pydantic", "docstring_parser"])
def test_without_the_extra_the_error_names_it(package):
    program = (
        f"import sys; sys.modules['{package}'] = None\n"
        "import toolcrib\n"
        "def f(x: int) -> int:\n    'Do it.'\n"
        "try: toolcrib.Runtime(toolcrib.Registry()).add(f)\n"
        "except toolcrib.ConfigurationError as error: print(error.code, error.hint)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "missing_extra pip install 'toolcrib[typed]'\n"
