"""Random Python types that JSON can express, with values of them."""

from __future__ import annotations

import uuid
from dataclasses import make_dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import IntEnum, IntFlag, StrEnum
from pathlib import PurePosixPath
from typing import Annotated, Literal, NamedTuple, NotRequired

from hypothesis import strategies as st
from pydantic import BaseModel, Field, create_model
from typing_extensions import TypedDict


class Unit(StrEnum):
    C = "celsius"
    F = "fahrenheit"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


class Right(IntFlag):
    READ = 1
    WRITE = 2


class Point(NamedTuple):
    x: int
    name: str = "origin"


class Place(BaseModel):
    at: Point
    unit: Unit = Unit.C


TEXT = st.text(st.characters(codec="utf-8"), max_size=5)
NAMES = st.sampled_from(["a", "b", "schema", "model_config", "self_"])

LEAVES = st.sampled_from(
    [
        (int, st.integers()),
        (float, st.floats(allow_nan=False, allow_infinity=False)),
        (bool, st.booleans()),
        (str, TEXT),
        (bytes, TEXT.map(lambda text: text.encode())),
        (
            Decimal,
            st.decimals(allow_nan=False, allow_infinity=False, places=2, min_value=-999, max_value=999),
        ),
        (uuid.UUID, st.uuids()),
        (datetime, st.datetimes(timezones=st.just(UTC))),
        (date, st.dates()),
        (timedelta, st.timedeltas(timedelta(days=-999), timedelta(days=999))),
        (Unit, st.sampled_from(Unit)),
        (Level, st.sampled_from(Level)),
        (Literal["x", 2], st.sampled_from(["x", 2])),
        (time, st.times()),
        (PurePosixPath, st.sampled_from(["a/b", "/x", "."]).map(PurePosixPath)),
        (Right, st.sampled_from([Right.READ, Right.WRITE, Right.READ | Right.WRITE])),
        (Annotated[int, Field(ge=1, le=7)], st.integers(1, 7)),
        (Annotated[list[str], Field(max_length=2)], st.lists(TEXT, max_size=2)),
        (Point, st.builds(Point, st.integers(), TEXT)),
        (Place, st.builds(Place, at=st.builds(Point, st.integers(), TEXT), unit=st.sampled_from(Unit))),
        (set[int], st.sets(st.integers(), max_size=3)),
        (frozenset[date], st.frozensets(st.dates(), max_size=3)),
        (int | str | list[bool], st.integers() | TEXT | st.lists(st.booleans(), max_size=3)),
    ]
)


def wider(inner):
    """Types of types."""

    def dataclass_of(fields):
        made = make_dataclass("Made", [(name, declared) for name, (declared, _values) in fields.items()])
        return made, st.builds(made, **{name: values for name, (_declared, values) in fields.items()})

    def model_of(fields):
        made = create_model(
            "Made", **{f"a_{name}": (declared, ...) for name, (declared, _values) in fields.items()}
        )
        return made, st.builds(made, **{f"a_{name}": values for name, (_declared, values) in fields.items()})

    def dictionary_of(fields):
        (first, first_values), *others = fields
        members = {
            "first": first,
            **{f"other {n}": NotRequired[kind] for n, (kind, _values) in enumerate(others)},
        }
        optional = {f"other {n}": values for n, (_kind, values) in enumerate(others)}
        return TypedDict("Made", members), st.fixed_dictionaries({"first": first_values}, optional=optional)

    return st.one_of(
        st.dictionaries(st.sampled_from("abc"), inner, max_size=3).map(model_of),
        st.lists(inner, min_size=1, max_size=3).map(dictionary_of),
        inner.map(lambda pair: (tuple[pair[0], ...], st.lists(pair[1], max_size=3).map(tuple))),
        inner.map(lambda pair: (list[pair[0]], st.lists(pair[1], max_size=3))),
        inner.map(lambda pair: (dict[str, pair[0]], st.dictionaries(TEXT, pair[1], max_size=3))),
        inner.map(lambda pair: (pair[0] | None, st.none() | pair[1])),
        st.tuples(inner, inner).map(
            lambda two: (tuple[two[0][0], two[1][0]], st.tuples(two[0][1], two[1][1]))
        ),
        st.dictionaries(NAMES, inner, max_size=3).map(dataclass_of),
    )


TYPES = st.recursive(LEAVES, wider, max_leaves=5)
"""Pairs of a type and a strategy for its values."""
