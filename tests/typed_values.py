"""Random Python types that JSON can express, with values of them."""

from __future__ import annotations

import uuid
from dataclasses import make_dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import IntEnum, StrEnum
from typing import Literal

from hypothesis import strategies as st


class Unit(StrEnum):
    C = "celsius"
    F = "fahrenheit"


class Level(IntEnum):
    LOW = 1
    HIGH = 2


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
    ]
)


def wider(inner):
    """Types of types."""

    def dataclass_of(fields):
        made = make_dataclass("Made", [(name, declared) for name, (declared, _values) in fields.items()])
        return made, st.builds(made, **{name: values for name, (_declared, values) in fields.items()})

    return st.one_of(
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
