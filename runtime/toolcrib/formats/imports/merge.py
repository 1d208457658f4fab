"""The three-way merge of a descriptor: what was generated last, what is generated now, and the file as a person left it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from toolcrib.core.text import json_equal
from toolcrib.loading.documents.positions import pointer_of

ABSENT: Final = object()
"""The value of a key that an object does not have."""

_WHOLE: Final = frozenset({("mock",)})
"""Objects that are merged as a whole: the keys of a mock exclude each other."""


class MergeConflict(NamedTuple):
    """A part that a person and the source changed differently. It stays as the person left it.

    Attributes:
        pointer: JSON Pointer into the descriptor.
        base: The value that was generated last; `ABSENT` if there was none, here and below.
        ours: The value in the file.
        theirs: The value that is generated now.
    """

    pointer: str
    base: Any
    ours: Any
    theirs: Any


class Merge(NamedTuple):
    """A merged descriptor.

    Attributes:
        value: The descriptor.
        changed: JSON Pointers of the parts that the source changed.
        conflicts: Parts that both sides changed.
        edited: JSON Pointers of the parts that differ from what was generated last and stay so.
    """

    value: dict[str, Any]
    changed: tuple[str, ...]
    conflicts: tuple[MergeConflict, ...]
    edited: tuple[str, ...]


def merge(base: Mapping[str, Any], ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> Merge:
    """Merge a descriptor by key. Lists and scalars are merged as a whole.

    What a person changed stays. What only the source changed is changed in the file.

    Args:
        base: The descriptor as it was generated last.
        ours: The descriptor in the file.
        theirs: The descriptor as it is generated now.
    """
    merger = _Merger()
    value = merger.merged((), base, ours, theirs)
    return Merge(value, tuple(merger.changed), tuple(merger.conflicts), tuple(merger.edited))


class _Merger:
    def __init__(self) -> None:
        self.changed: list[str] = []
        self.conflicts: list[MergeConflict] = []
        self.edited: list[str] = []

    def merged(self, path: tuple[str, ...], base: Any, ours: Any, theirs: Any) -> Any:
        """The merged value of a part."""
        if isinstance(ours, dict) and isinstance(theirs, dict) and path not in _WHOLE:
            if isinstance(base, dict):
                return self._object(path, base, ours, theirs)
            # Objects that both sides added are merged like objects that were empty before.
            if ours and not _same(ours, theirs):
                return self._object(path, {}, ours, theirs)
        if _same(ours, theirs):
            return ours
        if _same(base, ours):
            self.changed.append(pointer_of(path))
            return theirs
        if _same(base, theirs):
            self.edited.append(pointer_of(path))
            return ours
        self.conflicts.append(MergeConflict(pointer_of(path), base, ours, theirs))
        return ours

    def _object(
        self,
        path: tuple[str, ...],
        base: Mapping[str, Any],
        ours: Mapping[str, Any],
        theirs: Mapping[str, Any],
    ) -> dict[str, Any]:
        values = {}
        for key in _in_order(ours, theirs):
            sides = (each.get(key, ABSENT) for each in (base, ours, theirs))
            values[key] = self.merged((*path, key), *sides)
        return {key: value for key, value in values.items() if value is not ABSENT}


def _in_order(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> list[str]:
    """The keys of both sides: those of the file in their order, and each new one after the key that precedes it."""
    keys = list(ours)
    place = 0
    for key in theirs:
        if key in ours:
            place = keys.index(key) + 1
        else:
            keys.insert(place, key)
            place += 1
    return keys


def _same(left: Any, right: Any) -> bool:
    if left is ABSENT or right is ABSENT:
        return left is right
    return json_equal(left, right)
