"""Arguments that hit rows of a store, found by watching what a mock looks up and compares.

A mock is called with a small part of its store whose objects and texts note what they are asked for. Wherever an
argument was looked up among keys, or compared with a text, one of those takes its place in the next call.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from toolcrib.core.errors import ExpressionError
from toolcrib.core.model import JSON, Collection, Descriptor, Fixture, Result
from toolcrib.core.text import canonical
from toolcrib.schema.validation import Validator
from toolcrib.simulation.store import FRESH, Rows, Version, rows_of

_OF_EACH: Final = 4
"""Arguments that are kept of those whose calls ended alike."""

_MOST_NEXT: Final = 64
"""Arguments that one call leads to."""

_OPTIONS: Final = 6
"""Rows of a collection that differ most, and texts that may take the place of one argument."""

_CONSTANTS: Final = 16
"""Texts of a mock's expressions that may take the place of an argument."""

_QUOTED: Final = re.compile(r"""'[^'\\]*'|"[^"\\]*\"""")

_REFERRED: Final = 24
"""Rows of a collection that are added at a time, because the chosen ones refer to them."""

_ROWS: Final = 2_000
"""Rows of a collection among which some are chosen, besides those that have other keys than the rows before them."""

_PARTS: Final = 500
"""Values of a row that tell it from others."""

_FEW: Final = 6
"""A field with at most so many different texts is one whose text tells rows apart, such as a status."""

Call = Callable[[dict[str, Any]], Awaitable[Result]]
"""Calls a watched tool in a fresh session."""

_Path: TypeAlias = "tuple[str | None, ...]"
"""The keys that lead to a value in a row; None for any element of a list."""

Met: TypeAlias = "dict[str, dict[str, None]]"
"""A text -> the texts among which it was looked up, or with which it was compared."""


async def find_arguments(
    tool: Descriptor, tried: Sequence[dict[str, Any]], met: Met, call: Call, most: int
) -> list[dict[str, Any]]:
    """Valid arguments of a mock that hit rows of its store: a few for each way in which its calls end.

    Args:
        tool: The tool.
        tried: Arguments to begin with.
        met: What the store of the tool notes (`Samples`).
        call: Calls the tool.
        most: How many calls are watched.
    """
    validator = Validator(tool.input_schema)
    constants = list(islice(dict.fromkeys(_constants(tool.bindings["mock"])), _CONSTANTS))
    # Several lists side by side are best begun with one element each.
    begun = [*tried, *(short for each in tried if validator.is_valid(short := _shortened(each)))]
    seen = {canonical(arguments): arguments for arguments in begun}
    found: dict[str, list[dict[str, Any]]] = {}
    turns = Counter[str]()
    left = [("", written) for written in seen]
    for _ in range(most):
        if not left:
            break
        # What came of calls that ended as few others did leads on most likely; of these, what is shortest.
        before, written = min(left, key=lambda entry: (turns[entry[0]], len(entry[1])))
        left.remove((before, written))
        turns[before] += 1
        arguments = seen[written]
        met.clear()
        end = _end(await call(arguments), arguments)
        if len(alike := found.setdefault(end, [])) < _OF_EACH:
            alike.append(arguments)
        for text, others in met.items():
            if before and text in others:  # an argument that hits stays, so that the others come to fit it
                others.clear()
        for other in islice(_replaced(arguments, met, constants), _MOST_NEXT):
            if validator.is_valid(other) and (key := canonical(other)) not in seen:
                seen[key] = other
                left.append((end, key))
    return [arguments for alike in found.values() for arguments in alike if arguments not in tried]


def _end(result: Result, arguments: JSON) -> str:
    """How a call ended, in words that are the same for other arguments."""
    told = f"{result.outcome} {result.meta.get('mock')} {result.message}"
    for text in sorted(_texts(arguments), key=len, reverse=True):
        told = told.replace(text, "?") if text else told
    return told


def _shortened(value: Any) -> Any:
    """The value with at most one element in each of its lists."""
    if isinstance(value, dict):
        return {key: _shortened(item) for key, item in value.items()}
    return [_shortened(item) for item in value[:1]] if isinstance(value, list) else value


def _constants(part: JSON) -> Iterator[str]:
    """The texts in the expressions of a part of a mock."""
    if isinstance(part, str) and "{{" in part:
        yield from (text[1:-1] for text in _QUOTED.findall(part))
    elif isinstance(part, dict | list):
        for item in part.values() if isinstance(part, dict) else part:
            yield from _constants(item)


def _replaced(value: Any, met: Mapping[str, Mapping[str, None]], constants: Iterable[str]) -> Iterator[Any]:
    """The value with one text or number in it replaced by something that it met, or by a constant if it met nothing."""
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            for other in _replaced(item, met, constants):
                copy = value.copy()
                copy[key] = other
                yield copy
    elif isinstance(value, str):
        yield from islice(met[value], _OPTIONS) if value in met else constants
    elif type(value) is int:
        yield from (int(text) for text in islice(met.get(str(value), ()), _OPTIONS) if text.isdecimal())


# The part of a store that is watched.


class Samples:
    """Small parts of stores that note what they meet, made once for each fixture and version."""

    def __init__(self) -> None:
        self._made: dict[tuple[int, int], tuple[Fixture, Version, Fixture, Met]] = {}

    def of(self, fixture: Fixture, version: Version) -> tuple[Fixture, Met]:
        """A fixture that begins with few rows of a version of the store, and what they note."""
        key = (id(fixture), id(version))
        if key not in self._made:
            met: Met = {}
            self._made[key] = (fixture, version, _watched(fixture, version, met), met)
        return self._made[key][2:]


def _watched(fixture: Fixture, version: Version, met: Met) -> Fixture:
    """A fixture with few rows, which note what they meet; a collection whose rows can't be had stays as it is."""
    rows = {
        name: there
        for name, each in fixture.collections.items()
        if (there := _rows(each, version)) is not None
    }
    chosen = {name: _different(each) for name, each in rows.items()}
    for _ in range(2):
        referred = [text for name, keys in chosen.items() for key in keys for text in _texts(rows[name][key])]
        for name, keys in chosen.items():
            more = (key for key in dict.fromkeys(referred) if key in rows[name] and key not in keys)
            keys.update(dict.fromkeys(islice(more, _REFERRED)))
    collections = dict(fixture.collections)
    for name, keys in chosen.items():
        few = _Object({key: _noting(rows[name][key], met) for key in keys}, met)
        collections[name] = collections[name]._replace(rows=few)
    machines = {
        name: each._replace(start=version.states.get(each.id, each.start))
        for name, each in fixture.machines.items()
    }
    return Fixture(MappingProxyType(collections), MappingProxyType(machines))


def forms_of(collection: Collection, version: Version = FRESH) -> set[Hashable]:
    """The forms of the rows of a collection: which keys they have, and of which types their values are.

    Those of a version are of the rows that are not as they were.
    """
    base, layers = _rows(collection, FRESH) or {}, version.rows.get(collection.id)
    if version is FRESH:
        rows = base
    elif layers is None:
        rows = {}
    else:
        rows = layers.above if layers.below is base else layers.whole()
    before = {} if version is FRESH else base
    changed = (row for key, row in rows.items() if row is not before.get(key))
    return {
        (collection.id, frozenset((path, type(value)) for path, value in islice(_parts(row, ()), _PARTS)))
        for row in islice(changed, _ROWS)
    }


def _rows(collection: Collection, version: Version) -> Rows | None:
    layers = version.rows.get(collection.id)
    try:
        return rows_of(collection) if layers is None else layers.whole()
    except ExpressionError:
        return None  # loading has told what is wrong with them


def _different(rows: Rows) -> dict[str, None]:
    """Keys of rows that differ: in the keys they lack, the types of values, the texts of fields with few."""
    by_keys: dict[frozenset[str], str] = {}
    for key, value in rows.items():
        by_keys.setdefault(frozenset(value if isinstance(value, dict) else ()), key)
    looked_at = dict.fromkeys([*islice(rows, _ROWS), *islice(by_keys.values(), _ROWS)])
    parts = {key: dict(islice(_parts(rows[key], ()), _PARTS)) for key in looked_at}
    often = Counter(path for row in parts.values() for path in row)
    texts: dict[_Path, set[str]] = {}
    for row in parts.values():
        for path, part in row.items():
            if isinstance(part, str):
                texts.setdefault(path, set()).add(part)
    common = {path for path, count in often.items() if count * 2 >= len(parts)}
    # A path of one row alone is data, as an id is.
    known = {path for path, count in often.items() if count > 1 or len(parts) == 1}
    few = {path for path, different in texts.items() if len(different) <= _FEW}
    lacking = [key for key, row in parts.items() if not common <= row.keys()]
    seen: set[Hashable] = set()
    chosen: dict[str, None] = {}
    for among, most in ((lacking, _OPTIONS // 2), (parts, _OPTIONS)):
        for key in among:
            row = parts[key]
            told: set[Hashable] = {(path, "lacks") for path in common - row.keys()}
            for path in known & row.keys():
                told.add((path, type(row[path]), str(row[path]) if path in few or row[path] is True else ""))
            if len(chosen) < most and not (chosen and told <= seen):
                seen |= told
                chosen[key] = None
    return chosen


def _parts(value: JSON, path: _Path) -> Iterator[tuple[_Path, JSON]]:
    """The scalars of a value and its empty objects and lists by their place, the same for all elements of a list."""
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _parts(item, (*path, key))
    elif isinstance(value, list) and value:
        for item in value:
            yield from _parts(item, (*path, None))
    else:
        yield path, value


def _texts(value: JSON) -> Iterator[str]:
    return (part for _path, part in islice(_parts(value, ()), _PARTS) if isinstance(part, str))


def _noting(value: JSON, met: Met) -> Any:
    if isinstance(value, dict):
        return _Object({key: _noting(item, met) for key, item in value.items()}, met)
    if isinstance(value, list):
        return [_noting(item, met) for item in value]
    return _Text.noting(value, met) if isinstance(value, str) else value


class _Object(dict[str, Any]):
    """An object that notes which keys are looked up in it."""

    def __init__(self, members: Mapping[str, Any], met: Met) -> None:
        super().__init__(members)
        self._met = met

    def _note(self, key: object) -> None:
        if isinstance(key, str):
            there = [key] if super().__contains__(key) else []
            self._met.setdefault(str(key), {}).update(dict.fromkeys([*there, *islice(self, _OPTIONS)]))

    def __contains__(self, key: object) -> bool:
        self._note(key)
        return super().__contains__(key)

    def __getitem__(self, key: str) -> Any:
        self._note(key)
        return super().__getitem__(key)

    def get(self, key: str, otherwise: Any = None) -> Any:
        """As `dict.get`."""
        self._note(key)
        return super().get(key, otherwise)


class _Text(str):
    """A text that notes what it is compared with."""

    __slots__ = ("_met",)
    __hash__ = str.__hash__
    _met: Met

    @classmethod
    def noting(cls, text: str, met: Met) -> _Text:
        """A text that notes."""
        made = cls(text)
        made._met = met
        return made

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            self._met.setdefault(str(other), {})[str(self)] = None
        return super().__eq__(other)

    def __ne__(self, other: object) -> bool:
        return not self == other
