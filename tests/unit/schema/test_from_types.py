"""Python types as JSON: schemas in both directions, and values that come back as they were."""

from __future__ import annotations

import subprocess
import sys
import typing
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum, IntFlag
from pathlib import Path
from typing import Annotated, Any, Generic, Literal, NamedTuple, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import BaseModel, BeforeValidator, Field, PlainSerializer, StringConstraints
from typing_extensions import TypedDict

from sampling import examples
from toolcrib.core.errors import ConfigurationError
from toolcrib.schema.from_types import JsonType, UnreadableValue, UnwritableValue
from toolcrib.schema.validation import Validator, check_schema
from typed_values import TYPES, Level, Unit

T = TypeVar("T")


class Colour(Enum):
    RED = "red"
    TWO = 2


class Point(NamedTuple):
    x: int
    y: int = 0


@dataclass
class Place:
    name: str
    at: Point | None = None
    tags: list[str] = field(default_factory=list)


class Options(TypedDict, total=False):
    unit: Unit
    days: Annotated[int, Field(ge=1, le=7)]


class Order(BaseModel):
    id: uuid.UUID
    placed: datetime
    total: Decimal
    where: Place
    note: Annotated[str, StringConstraints(max_length=5)] = ""


class Node(BaseModel):
    name: str
    children: list[Node] = []


class Box(BaseModel, Generic[T]):
    content: T


def typed(declared):
    return JsonType(declared, subject="the parameter `x` of `f`", place="shop.py:3")


MOMENT = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
ORDER = Order(
    id=uuid.UUID(int=7),
    placed=MOMENT,
    total=Decimal("1.10"),
    where=Place("Oslo", Point(1, 2), ["north"]),
)

VALUES = [
    (int, 3, 3),
    (float, 0.5, 0.5),
    (bool, True, True),
    (str, "x", "x"),
    (None, None, None),
    (bytes, b"text", "text"),
    (Path, Path("/tmp/x"), "/tmp/x"),
    (Decimal, Decimal("1.10"), "1.10"),
    (uuid.UUID, uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    (datetime, MOMENT, "2026-01-02T03:04:05Z"),
    (date, date(2026, 1, 2), "2026-01-02"),
    (time, time(3, 4), "03:04:00"),
    (timedelta, timedelta(minutes=1), "PT1M"),
    (Unit, Unit.F, "fahrenheit"),
    (Level, Level.HIGH, 2),
    (Colour, Colour.TWO, 2),
    (Literal["a", 1], 1, 1),
    (int | str, "1", "1"),
    (datetime | str, MOMENT, "2026-01-02T03:04:05Z"),
    (list[int], [1], [1]),
    (set[int], {1, 2}, [1, 2]),
    (frozenset[str], frozenset({"a"}), ["a"]),
    (tuple[int, str], (1, "a"), [1, "a"]),
    (tuple[int, ...], (1, 2), [1, 2]),
    (dict[int, str], {1: "a"}, {"1": "a"}),
    (Point, Point(1, 2), [1, 2]),
    (Place, Place("Oslo", Point(1)), {"name": "Oslo", "at": [1, 0], "tags": []}),
    (Options, {"unit": Unit.C, "days": 2}, {"unit": "celsius", "days": 2}),
    (Annotated[int, Field(gt=1)], 2, 2),
    (Box[int], Box[int](content=3), {"content": 3}),
    (Any, {"a": [1]}, {"a": [1]}),
    (Order, ORDER, ORDER.model_dump(mode="json")),
]


def references(schema):
    if isinstance(schema, dict):
        return "$ref" in schema or any(map(references, schema.values()))
    return isinstance(schema, list) and any(map(references, schema))


@pytest.mark.parametrize(("declared", "value", "written"), VALUES, ids=[str(row[0]) for row in VALUES])
def test_a_value_is_written_and_read_back_as_it_was(declared, value, written):
    kind = typed(declared)
    assert kind.write(value) == written
    back = kind.read(written)
    assert back == value
    assert type(back) is type(value)


@pytest.mark.parametrize(("declared", "value", "written"), VALUES, ids=[str(row[0]) for row in VALUES])
def test_both_schemas_accept_what_is_written_and_have_no_references(declared, value, written):
    kind = typed(declared)
    for schema in (kind.input_schema, kind.output_schema):
        assert check_schema(schema) == []
        assert Validator(schema).judge(written)
        assert not references(schema)
        assert bool(schema) is (declared is not Any)


def test_the_directions_differ_where_the_type_does():
    assert {"type": "number"} in typed(Decimal).input_schema["anyOf"]
    assert typed(Decimal).output_schema["type"] == "string"


def test_enums_and_nested_models_are_inlined_with_their_constraints():
    schema = typed(Order).input_schema
    assert schema["properties"]["where"]["properties"]["name"] == {"type": "string"}
    assert schema["properties"]["note"]["maxLength"] == 5
    assert typed(Options).input_schema["properties"]["unit"]["enum"] == ["celsius", "fahrenheit"]


def test_a_recursive_type_follows_the_rules_of_dereference():
    kind = typed(Node)
    assert not references(kind.input_schema)
    deep = {"name": "a", "children": [{"name": "b", "children": [{"name": "c", "children": []}]}]}
    assert Validator(kind.input_schema).judge(deep)
    assert not Validator(kind.input_schema).judge({"name": "a", "children": [{"name": 1}]})
    assert kind.read(deep).children[0].children[0].name == "c"


class Anything:
    pass


@pytest.mark.parametrize(
    "declared",
    [
        Anything,
        list[Anything],
        Callable[[int], int],
        int | Callable[[int], int],
        dict[str, Callable[..., Any]],
        type[int],
        T,
        list[T],
        "Nowhere",
    ],
    ids=str,
)
def test_a_type_without_a_schema_is_an_error_that_names_its_place(declared):
    with pytest.raises(ConfigurationError) as caught:
        typed(declared)
    assert caught.value.code == "no_schema"
    assert "the parameter `x` of `f`" in str(caught.value)
    assert "shop.py:3" in str(caught.value)


def even(number: int) -> int:
    if number % 2:
        raise ValueError("must be even")
    return number


class Pair(BaseModel):
    left: Annotated[int, BeforeValidator(even)]
    when: datetime
    items: list[int | None] = []


def test_every_wrong_place_is_told():
    with pytest.raises(UnreadableValue) as caught:
        typed(Pair).read({"left": 3, "items": [1, "x"]})
    assert [each.for_model() for each in caught.value.violations] == [
        "/left: expected a valid value, got 3 (must be even)",
        "/when: expected a value, got nothing",
        '/items/1: expected a valid integer, unable to parse string as an integer, got "x"',
    ]


@pytest.mark.parametrize("value", [b"\xff", object(), [lambda: None]])
def test_a_value_that_json_cannot_express_is_an_error(value):
    with pytest.raises(UnwritableValue):
        typed(bytes if isinstance(value, bytes) else Any).write(value)


class Reading(BaseModel):
    value: Any
    unit: str | None = None


@dataclass
class Sample:
    value: Any
    readings: list[Reading] = field(default_factory=list)


@pytest.mark.parametrize("number", [float("nan"), float("inf"), float("-inf")], ids=str)
@pytest.mark.parametrize(
    ("declared", "make"),
    [
        (Any, lambda number: number),
        (int | None, lambda number: number),  # of another type than declared
        (dict[str, Any], lambda number: {"a": [None, (1, number)], "b": None}),
        (Reading, lambda number: Reading(value={1.5: number})),
        (Sample, lambda number: Sample({2}, [Reading(value=None), Reading(value=[number])])),
        (object, lambda number: [Sample(frozenset({number}))]),
    ],
    ids=["any", "other type", "dict", "model", "dataclass", "undeclared"],
)
def test_a_number_that_json_cannot_express_is_not_written_as_null(declared, make, number):
    assert repr(number) in repr(typed(declared).write(make(number)))
    finite = typed(declared).write(make(1.0))
    assert "nan" not in repr(finite)
    assert "inf" not in repr(finite)


def test_nulls_of_a_serializer_stay():
    class Counted(BaseModel):
        value: Annotated[Any, PlainSerializer(len)]
        others: Annotated[Any, PlainSerializer(lambda values: [None, *values])]

    written = typed(Counted).write(Counted(value=[1, 2], others=[float(1)]))
    assert written == {"value": 2, "others": [None, 1.0]}


def test_without_pydantic_the_error_names_the_extra():
    program = (
        "import sys; sys.modules['pydantic'] = None\n"
        "from toolcrib.schema.from_types import JsonType\n"
        "try: JsonType(int, subject='x', place='y')\n"
        "except Exception as error: print(error.code, error.hint)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split(maxsplit=1) == ["missing_extra", "pip install 'toolcrib[typed]'\n"]


@settings(max_examples=examples(60), deadline=None)
@given(st.data())
def test_random_types_give_back_their_values(data):
    declared, values = data.draw(TYPES, label="type")
    kind = typed(declared)
    for value in data.draw(st.lists(values, min_size=1, max_size=3), label="values"):
        written = kind.write(value)
        assert Validator(kind.input_schema).judge(written)
        assert Validator(kind.output_schema).judge(written)
        assert kind.read(written) == value


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int


class Dog(BaseModel):
    kind: Literal["dog"]
    name: str


class Right(IntFlag):
    READ = 1
    WRITE = 2


def test_a_tagged_union_has_no_reference_in_any_keyword():
    made = typed(Annotated[Cat | Dog, Field(discriminator="kind")])
    assert "$defs" not in str(made.input_schema)
    assert made.read({"kind": "dog", "name": "Rex"}) == Dog(kind="dog", name="Rex")
    assert not Validator(made.input_schema).judge({"kind": "bird"})


def test_flags_may_be_combined():
    made = typed(Right)
    assert made.input_schema == {
        "title": "Right",
        "description": "A sum of 1 (READ), 2 (WRITE).",
        "type": "integer",
        "minimum": 0,
    }
    assert Validator(made.input_schema).judge(3)
    assert made.read(3) == Right.READ | Right.WRITE
    assert made.write(Right.READ | Right.WRITE) == 3


def test_a_typed_dict_of_the_standard_library_may_contain_itself():
    made = typed(list[Tree])
    assert made.read([{"name": "a", "inside": [{"name": "b"}]}]) == [{"name": "a", "inside": [{"name": "b"}]}]
    assert "$ref" not in str(made.input_schema)
    assert made.input_schema["items"]["required"] == ["name"]
    with pytest.raises(UnreadableValue, match="/0/inside/0/name: expected a value"):
        made.read([{"name": "a", "inside": [{}]}])


class Tree(typing.TypedDict):
    name: str
    inside: typing.NotRequired[list[Tree]]
