"""Infer a JSON Schema from samples of a value, such as the recorded responses of an API.

The schema describes exactly what was seen: a member is required if every sample has it. Objects stay open, since
samples never show all that may occur. Objects whose keys are data (numbers, UUIDs, dates, or very many names) become
maps; a generic inference would list every key that was recorded.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, Final

from toolcrib.core.model import JSON

DEPTH: Final = 32
"""Below this depth any value is allowed."""

_MEMBERS: Final = 200
"""An object with more names than this is a map."""

_KEY_OF_DATA: Final = re.compile(
    r"\d+|[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}|(?=[0-9a-f]*\d)[0-9a-f]{16,}|\d{4}-\d{2}-\d{2}.*"
)
_FORMATS: Final = (
    ("date-time", re.compile(r"\d{4}-\d\d-\d\d[Tt]\d\d:\d\d:\d\d(\.\d+)?([Zz]|[+-]\d\d:\d\d)")),
    ("date", re.compile(r"\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])")),
    ("uuid", re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")),
    ("uri", re.compile(r"https?://[!-;=?-\[\]_a-z~]+")),
)
_ORDER: Final = ("object", "array", "string", "integer", "number", "boolean", "null")


def infer_schema(samples: Iterable[JSON]) -> dict[str, Any]:
    """The schema of samples: every one of them is valid."""
    shape = _Shape(0)
    for sample in samples:
        shape.add(sample)
    return shape.schema()


def is_data(key: str) -> bool:
    """Whether a key or a path segment is data (a number, a UUID, a hash, a date) and no name."""
    return _KEY_OF_DATA.fullmatch(key) is not None


class _Shape:
    """What has been seen of the values at one place."""

    __slots__ = ("_depth", "_format", "_items", "_members", "_objects", "_seen", "_types")

    def __init__(self, depth: int) -> None:
        self._depth = depth
        self._types: set[str] = set()
        self._objects = 0
        self._seen: dict[str, int] = {}
        self._members: dict[str, _Shape] = {}
        self._items: _Shape | None = None
        self._format: str | None = None

    def add(self, value: JSON) -> None:
        """Take account of a value."""
        kind = _type_of(value)
        if isinstance(value, str):
            found = next((name for name, pattern in _FORMATS if pattern.fullmatch(value)), "")
            # The format is one that all texts have; an empty text stands for none.
            self._format = found if "string" not in self._types or self._format == found else ""
        self._types.add(kind)
        if self._depth >= DEPTH:
            return
        if isinstance(value, dict):
            self._objects += 1
            for key, item in value.items():
                self._seen[key] = self._seen.get(key, 0) + 1
                self._member(key).add(item)
        elif isinstance(value, list):
            if self._items is None:
                self._items = _Shape(self._depth + 1)
            for item in value:
                self._items.add(item)

    def merge(self, other: _Shape) -> None:
        """Take account of what another place has seen."""
        if "string" in other._types:
            same = "string" not in self._types or self._format == other._format
            self._format = other._format if same else ""
        self._types |= other._types
        self._objects += other._objects
        for key, count in other._seen.items():
            self._seen[key] = self._seen.get(key, 0) + count
            self._member(key).merge(other._members[key])
        if other._items is not None:
            if self._items is None:
                self._items = _Shape(self._depth + 1)
            self._items.merge(other._items)

    def schema(self) -> dict[str, Any]:
        """The schema of the values that were seen."""
        types = self._types - ({"integer"} if "number" in self._types else set())
        if not types or self._depth >= DEPTH:
            return {}
        ordered: list[str] = [each for each in _ORDER if each in types]
        schema: dict[str, Any] = {"type": ordered[0] if len(ordered) == 1 else ordered}
        if "string" in types and self._format:
            schema["format"] = self._format
        if "object" in types:
            schema |= self._of_objects()
        if self._items is not None and (items := self._items.schema()):
            schema["items"] = items
        return schema

    def _member(self, key: str) -> _Shape:
        return self._members.setdefault(key, _Shape(self._depth + 1))

    def _of_objects(self) -> dict[str, Any]:
        if not self._members:
            return {}
        if self._is_map():
            values = _Shape(self._depth + 1)
            for member in self._members.values():
                values.merge(member)
            return {"additionalProperties": values.schema()}
        required = [key for key, count in self._seen.items() if count == self._objects]
        found: dict[str, Any] = {"properties": {key: each.schema() for key, each in self._members.items()}}
        return {**found, "required": required} if required else found

    def _is_map(self) -> bool:
        keys = self._members
        return len(keys) > _MEMBERS or (len(keys) > 1 and all(map(is_data, keys)))


def _type_of(value: JSON) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "integer"
    if isinstance(value, float):
        # A whole float is an integer of JSON Schema, but its next sample may not be.
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"
