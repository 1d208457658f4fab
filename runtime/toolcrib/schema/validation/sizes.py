"""How large a JSON value may be, and which values are small enough to be judged on the event loop."""

from __future__ import annotations

from typing import Any, Final

from toolcrib.core.model import JSON
from toolcrib.core.text import compact, format_size
from toolcrib.schema.validation.json_values import ALIEN, weigh

SMALL: Final = 64 * 1024
"""What a value may weigh that is judged on the event loop. Judging it takes about a millisecond; a thread, 0.1 ms."""

DEPTH: Final = 100
"""How deep a result may be nested."""

_BYTES: Final = 8
"""Bytes of compact JSON for each unit of weight, at most."""

_ELEMENT: Final = 4
"""Bytes of a limit for each value that it allows: an empty object in memory takes more."""


def room_for(limit: int, *, most: int = SMALL) -> int:
    """What a value may weigh whose compact JSON certainly has at most `limit` bytes; no more than `most`."""
    return min(most, limit // _BYTES - _ELEMENT)


def is_large(value: Any, depth: int) -> bool:
    """Whether a value is too large to be judged on the event loop."""
    return ALIEN < weigh(value, depth, SMALL) < 0


def elements(value: JSON, most: int) -> int:
    """How many JSON values a value consists of, itself included; counted up to `most`."""
    total = 1
    waiting: list[JSON] = [value]
    for item in waiting:
        if isinstance(item, dict | list):
            total += len(item)
            if total >= most:
                return most
            inner = item.values() if isinstance(item, dict) else item
            waiting += [each for each in inner if isinstance(each, dict | list)]
    return total


def excess(value: JSON, depth: int, limit: int) -> str | None:
    """What of a value passes a limit: `5,242,880 bytes`; empty where nothing does, None where it is no JSON."""
    left = weigh(value, depth, 2 * limit)
    if left == ALIEN:
        return None
    if 2 * limit - left <= room_for(limit, most=limit):
        return ""
    if left < 0:  # its characters alone, or its values alone, pass the limit
        return f"more than {format_size(limit)}"
    size = len(compact(value).encode())
    if size > limit:
        return f"{size:,} bytes"
    values = elements(value, limit) if 2 * limit - left >= limit - _ELEMENT else 0
    return f"{values:,} values" if values * _ELEMENT > limit else ""
