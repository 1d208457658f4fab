"""Scalars as they stand in addresses, headers and forms."""

from __future__ import annotations

from decimal import Decimal
from typing import Final

from toolcrib.core.model import JSON

_EXACT: Final = 1e21
"""From here on a whole number that is a float is written with an exponent, as JavaScript does."""


def scalar_text(value: JSON) -> str | None:
    """A text as it is, a boolean in lower case, a number without a useless fraction; None for all else.

    `3.0` is `3`, and a small number has no exponent: `0.00001`.
    """
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    return _of_float(value) if isinstance(value, float) else None


def _of_float(value: float) -> str:
    if value.is_integer() and abs(value) < _EXACT:
        return str(int(value))
    text = repr(value)
    return format(Decimal(text), "f") if "e-" in text else text


_KINDS: Final = {dict: "an object", list: "a list", bool: "a boolean", str: "a text", type(None): "null"}


def kind_of(value: JSON) -> str:
    """What a value is, in words."""
    return _KINDS.get(type(value), "a number")
