"""What mocks do with the rows of a store: the keys that they read and write, and arguments that hit rows.

The keys are checked where no schema says which there are. For each collection, a schema is made of the keys of its
rows and of what effects write; unknown keys are reported against it as against a schema of the document.

Arguments are found by watching. A mock is called with a small part of its store whose objects and texts note what they
are asked for. Wherever an argument was looked up among keys, or compared with a text, one of those takes its place in
the next call.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from toolcrib.core.errors import ExpressionError
from toolcrib.core.model import JSON, Collection, Descriptor, Fixture, Result, Schema
from toolcrib.core.subschemas import closed_names, described_names, may_name_elsewhere
from toolcrib.core.text import canonical
from toolcrib.schema.validation import Validator
from toolcrib.simulation.store import FRESH, Rows, StoreVersion, rows_of

MOST_VALUES: Final = 500_000
"""Values of the rows of one collection; of one that has more the keys are not known."""

_PUTS: Final = ("insert", "upsert", "create")
_VALUES: Final = ("set", "value")
_WRITES: Final = (*_PUTS, "append", "update")
"""Keys of effects and of `crud` that name the place where something is written."""

_WHOLE: Final = re.compile(r"\s*\{\{(?:(?!\}\}).)*\}\}\s*", re.DOTALL)
_ARGUMENT: Final = re.compile(r"\s*\{\{\s*args(?:\.(\w+))?\s*\}\}\s*", re.ASCII)
_BRACKET: Final = re.compile(r"\[[^\[\]]*\]")
_SCALARS: Final = ("boolean", "integer", "number", "string")


class RowSchemas:
    """Schemas of the rows of collections, made of what is in them and of what mocks write.

    Args:
        mocks: All mocks, each as the tool that it is of.
        fixtures: Further rows for collections by their names: those of scenarios.
    """

    def __init__(self, mocks: Sequence[Descriptor], fixtures: Iterable[Fixture]) -> None:
        self._further: dict[str, list[Collection]] = {}
        self._written: dict[str, dict[str, Schema]] = {}
        self._computed: set[str] = set()
        self._holders: dict[str, set[str]] = {}
        self._made: dict[tuple[str, str, bool], Schema | None] = {}
        for fixture in fixtures:
            for name, collection in fixture.collections.items():
                self._further.setdefault(name, []).append(collection)
        for tool in mocks:
            self._read(tool.bindings["mock"], tool)

    def furnish(self, fixture: Fixture, *, guessed: bool) -> Fixture:
        """A fixture with schemas for the rows of its collections.

        Args:
            fixture: The fixture.
            guessed: Whether what may have other keys is taken to have none: rows with an open schema, and what effects
                compute.
        """
        collections = {
            name: collection._replace(schema=self._schema_of(collection, guessed=guessed))
            for name, collection in fixture.collections.items()
        }
        return fixture._replace(collections=MappingProxyType(collections))

    # What effects write.

    def _read(self, part: JSON, tool: Descriptor) -> None:
        """Note what a part of a mock writes, and what it calls rows."""
        if isinstance(part, dict):
            for name, row in _items(part.get("rows")):
                self._holders.setdefault(name, set()).update(
                    str(each) for key, each in _items(row) if key == "in"
                )
            self._holders.setdefault("row", set()).update(
                str(each) for _key, each in _items(part.get("crud"))
            )
            kind = next((kind for kind in _WRITES if isinstance(part.get(kind), str)), "")
            if kind:
                self._read_effect(part, kind, tool)
            inner = [item for key, item in part.items() if not kind or key not in _VALUES]
        else:
            inner = part if isinstance(part, list) else []
        for item in inner:
            self._read(item, tool)

    def _read_effect(self, effect: dict[str, JSON], kind: str, tool: Descriptor) -> None:
        """Note what an effect writes, or a `crud`."""
        place = str(effect[kind])
        for value in [effect[key] for key in _VALUES if key in effect] or ["{{ args }}"]:
            self._note(value, _last(place), tool)
        if kind in _PUTS and place not in tool.fixture.collections:
            self._computed.add(_last(place))  # what is put into an object within a row has a key of its own

    def _note(self, value: JSON, holder: str, tool: Descriptor) -> None:
        """Note the keys of what is written into a holder: a row, or what stands under a key, or its elements."""
        if isinstance(value, dict) and "for_each" in value:
            self._note(
                value["value"] if value.keys() & {"key", "value"} == {"value"} else "{{ for_each }}",
                holder,
                tool,
            )
        elif isinstance(value, dict):
            for key, item in value.items():
                self._written.setdefault(holder, {})[key] = True
                self._note(item, key, tool)
        elif isinstance(value, list):
            for item in value:
                self._note(item, holder, tool)
        elif isinstance(value, str) and _WHOLE.fullmatch(value):
            self._note_computed(value, holder, tool.input_schema)

    def _note_computed(self, expression: str, holder: str, arguments: Schema) -> None:
        """Note what an expression may give: an argument of which the schema is known, or anything."""
        match = _ARGUMENT.fullmatch(expression)
        names = closed_names(arguments) if match is not None and not match[1] else None
        if names is not None:
            self._written.setdefault(holder, {}).update(dict.fromkeys(names, True))
            self._computed |= {name for name in names if not _is_scalar(arguments, name)}
        elif match is None or not match[1] or not _is_scalar(arguments, match[1]):
            self._computed.add(holder)

    # What is in the rows.

    def _schema_of(self, collection: Collection, *, guessed: bool) -> Schema | None:
        key = (collection.id, collection.digest, guessed)
        if key not in self._made:
            self._made[key] = self._make(collection, guessed=guessed)
        return self._made[key]

    def _make(self, collection: Collection, *, guessed: bool) -> Schema | None:
        own = collection.schema
        is_open = isinstance(own, dict) and closed_names(own) is None and not may_name_elsewhere(own)
        rows = self._rows(collection) if own is None or (guessed and is_open) else None
        if rows is None:
            return own
        key: dict[str, Schema] = {collection.key: True} if collection.key else {}
        made = self._shape(rows, collection.name, key, guessed=guessed)
        if own is None:
            return made if isinstance(made, dict) else None
        seen = described_names(made) if isinstance(made, dict) else ()
        names: dict[str, JSON] = dict.fromkeys([*described_names(own), *seen], True)
        return {"allOf": [own], "properties": names, "additionalProperties": False}

    def _shape(
        self, values: Sequence[JSON], holder: str, above: Mapping[str, Schema], *, guessed: bool
    ) -> Schema:
        """A schema with the keys of the objects among some values, and within them and their lists.

        Args:
            values: What stands there in all rows.
            holder: The key under which it stands, or the collection.
            above: Keys that are written into what has that key, which may be an object of such values.
            guessed: As in `furnish`.

        Returns:
            True where there are no keys.
        """
        names = self._names_of(holder)
        computed = not self._computed.isdisjoint(names)
        if computed and not guessed:
            return True
        members: dict[str, list[JSON]] = {}
        for value in values:
            for key, item in _items(value):
                members.setdefault(key, []).append(item)
        written = {key: schema for name in names for key, schema in self._written.get(name, {}).items()}
        schema: dict[str, JSON] = {}
        if members or ((written or computed) and not values):
            within = {
                key: self._shape(items, key, written, guessed=guessed) for key, items in members.items()
            }
            schema = {"properties": {**above, **written, **within}, "additionalProperties": False}
        elements = [item for value in values if isinstance(value, list) for item in value]
        if elements:
            schema["items"] = self._shape(elements, holder, above, guessed=guessed)
        return schema or True

    def _names_of(self, holder: str) -> list[str]:
        """What effects call a collection and its rows, or what stands under a key and its elements."""
        return [holder, *(name for name, within in self._holders.items() if holder in map(_last, within))]

    def _rows(self, collection: Collection) -> list[JSON] | None:
        """The rows of a collection, and those of its name in scenarios; None where they can't be had, or are too many."""
        found: list[JSON] = []
        for each in (collection, *self._further.get(collection.name, ())):
            try:
                found += rows_of(each).values()
            except ExpressionError:
                return None  # loading has reported what is wrong with them
        return found if sum(map(_count, found)) <= MOST_VALUES else None


def _last(place: str) -> str:
    """The last name of a place: `payments` of `order.payments[0]`."""
    while (shorter := _BRACKET.sub("", place)) != place:
        place = shorter
    return place.strip().rpartition(".")[2]


def _items(value: JSON) -> Iterable[tuple[str, JSON]]:
    return value.items() if isinstance(value, dict) else ()


def _is_scalar(schema: Schema, name: str) -> bool:
    """Whether a property that a schema describes is neither an object nor a list."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    found = properties.get(name) if isinstance(properties, dict) else None
    return isinstance(found, dict) and found.get("type") in _SCALARS


def _count(value: JSON) -> int:
    """How many values are in a value, with itself."""
    if isinstance(value, dict | list):
        return 1 + sum(map(_count, value.values() if isinstance(value, dict) else value))
    return 1


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

WatchedCall = Callable[[dict[str, Any]], Awaitable[Result]]
"""Calls a watched tool in a fresh session."""

_Path: TypeAlias = "tuple[str | None, ...]"
"""The keys that lead to a value in a row; None for any element of a list."""

Lookups: TypeAlias = "dict[str, dict[str, None]]"
"""A text -> the texts among which it was looked up, or with which it was compared."""


async def find_arguments(
    tool: Descriptor, tried: Sequence[dict[str, Any]], met: Lookups, call: WatchedCall, most: int
) -> list[dict[str, Any]]:
    """Valid arguments of a mock that hit rows of its store: a few for each way in which its calls end.

    Args:
        tool: The tool.
        tried: Arguments to begin with.
        met: What the store of the tool notes (`StoreSamples`).
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


class StoreSamples:
    """Small parts of stores that note what they meet, made once for each fixture and version."""

    def __init__(self) -> None:
        self._made: dict[tuple[int, int], tuple[Fixture, StoreVersion, Fixture, Lookups]] = {}

    def of(self, fixture: Fixture, version: StoreVersion) -> tuple[Fixture, Lookups]:
        """A fixture that begins with few rows of a version of the store, and what they note."""
        key = (id(fixture), id(version))
        if key not in self._made:
            met: Lookups = {}
            self._made[key] = (fixture, version, _watched(fixture, version, met), met)
        return self._made[key][2:]


def _watched(fixture: Fixture, version: StoreVersion, met: Lookups) -> Fixture:
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


def row_shapes(collection: Collection, version: StoreVersion = FRESH) -> set[Hashable]:
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


def _rows(collection: Collection, version: StoreVersion) -> Rows | None:
    layers = version.rows.get(collection.id)
    try:
        return rows_of(collection) if layers is None else layers.whole()
    except ExpressionError:
        return None  # loading has reported what is wrong with them


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


def _noting(value: JSON, met: Lookups) -> Any:
    if isinstance(value, dict):
        return _Object({key: _noting(item, met) for key, item in value.items()}, met)
    if isinstance(value, list):
        return [_noting(item, met) for item in value]
    return _Text.noting(value, met) if isinstance(value, str) else value


class _Object(dict[str, Any]):
    """An object that notes which keys are looked up in it."""

    def __init__(self, members: Mapping[str, Any], met: Lookups) -> None:
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
    _met: Lookups

    @classmethod
    def noting(cls, text: str, met: Lookups) -> _Text:
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
