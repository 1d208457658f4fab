"""Numbers in A2A messages. Their values are protobuf values, in which every number is a double: 5 arrives as 5.0.

Whole numbers are made integers again, unless the schema asks for a number alone. Integers above 2^53 may have lost digits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from toolcrib.core.model import JSON

EXACT: Final = 1 << 53
"""All integers up to this one have an exact double."""


def whole_numbers(value: JSON) -> Any:
    """The same value with integers in place of whole floats."""
    if isinstance(value, float):
        return int(value) if value.is_integer() else value
    if isinstance(value, dict):
        return {key: whole_numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [whole_numbers(item) for item in value]
    return value


def narrow_numbers(value: JSON, schema: Any) -> Any:
    """The same value with integers in place of whole floats, except where the schema wants a number.

    Args:
        value: The value.
        schema: Its schema. Only `type`, `properties`, `additionalProperties`, `items` and `prefixItems` are followed.
    """
    if isinstance(value, float):
        return int(value) if value.is_integer() and not _wants_float(schema) else value
    if not isinstance(schema, Mapping):
        return whole_numbers(value)
    if isinstance(value, dict):
        named, others = schema.get("properties"), schema.get("additionalProperties")
        named = named if isinstance(named, dict) else {}
        return {key: narrow_numbers(item, named.get(key, others)) for key, item in value.items()}
    if isinstance(value, list):
        first, rest = schema.get("prefixItems"), schema.get("items")
        first = first if isinstance(first, list) else []
        return [
            narrow_numbers(item, first[place] if place < len(first) else rest)
            for place, item in enumerate(value)
        ]
    return value


def _wants_float(schema: Any) -> bool:
    return isinstance(schema, Mapping) and schema.get("type") == "number"


def is_inexact(value: JSON) -> bool:
    """Whether a value contains an integer that a double may not hold."""
    if isinstance(value, int | float):
        return not -EXACT <= value <= EXACT
    if isinstance(value, dict):
        return any(map(is_inexact, value.values()))
    return isinstance(value, list) and any(map(is_inexact, value))
