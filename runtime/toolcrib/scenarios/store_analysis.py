"""Analyse how mocks use the rows of a store: infer the keys of rows, and find arguments that hit rows.

Keys: for a collection without a schema, a schema is inferred from the keys of its rows and from what effects write.
Unknown keys are reported against it as against a written schema.

Arguments: a mock is called with a small part of its store, whose objects and texts record look-ups and comparisons. If
an argument was looked up among keys or compared with a text, one of these replaces it in the next call.
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
"""Maximum number of values in the rows of a collection; for a larger one no keys are inferred."""

_PUTS: Final = ("insert", "upsert", "create")
_VALUES: Final = ("set", "value")
_WRITES: Final = (*_PUTS, "append", "update")
"""Keys of effects and of `crud` that contain the target of a write."""

_WHOLE: Final = re.compile(r"\s*\{\{(?:(?!\}\}).)*\}\}\s*", re.DOTALL)
_ARGUMENT: Final = re.compile(r"\s*\{\{\s*args(?:\.(\w+))?\s*\}\}\s*", re.ASCII)
_BRACKET: Final = re.compile(r"\[[^\[\]]*\]")
_SCALARS: Final = ("boolean", "integer", "number", "string")


class RowSchemas:
    """Infers schemas of rows from the rows themselves and from what mocks write.

    Args:
        mocks: The tools with a mock.
        fixtures: Further rows of the collections, from scenarios.
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
        """Return a fixture whose collections have schemas.

        Args:
            fixture: The fixture.
            guessed: Whether to assume that rows with an open schema, and values that effects compute, have no other
                keys.
        """
        collections = {
            name: collection._replace(schema=self._schema_of(collection, guessed=guessed))
            for name, collection in fixture.collections.items()
        }
        return fixture._replace(collections=MappingProxyType(collections))

    # Effects.

    def _read(self, part: JSON, tool: Descriptor) -> None:
        """Record what a part of a mock writes, and its names for rows."""
        if isinstance(part, dict):
            for name, row in _items(part.get("rows")):
                self._holders.setdefault(name, set()).update(
                    str(each) for key, each in _items(row) if key == "in"
                )
            self._holders.setdefault("row", set()).update(
                str(each) for _key, each in _items(part.get("crud"))
            )
            # An effect and a `crud` have the same keys for their target, so both are recognised by them.
            kind = next((kind for kind in _WRITES if isinstance(part.get(kind), str)), "")
            if kind:
                self._read_effect(part, kind, tool)
            inner = [item for key, item in part.items() if not kind or key not in _VALUES]
        else:
            inner = part if isinstance(part, list) else []
        for item in inner:
            self._read(item, tool)

    def _read_effect(self, effect: dict[str, JSON], kind: str, tool: Descriptor) -> None:
        """Record what an effect or a `crud` writes."""
        place = str(effect[kind])
        for value in [effect[key] for key in _VALUES if key in effect] or ["{{ args }}"]:
            self._note(value, _last(place), tool)
        if kind in _PUTS and place not in tool.fixture.collections:
            self._computed.add(
                _last(place)
            )  # the target is an object within a row, which gets a computed key

    def _note(self, value: JSON, holder: str, tool: Descriptor) -> None:
        """Record the keys that are written into a holder: a row, the value of a key, or its elements."""
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
        """Record what an expression may return: an argument with a known schema, or anything."""
        match = _ARGUMENT.fullmatch(expression)
        names = closed_names(arguments) if match is not None and not match[1] else None
        if names is not None:
            self._written.setdefault(holder, {}).update(dict.fromkeys(names, True))
            self._computed |= {name for name in names if not _is_scalar(arguments, name)}
        elif match is None or not match[1] or not _is_scalar(arguments, match[1]):
            self._computed.add(holder)

    # Rows.

    def _schema_of(self, collection: Collection, *, guessed: bool) -> Schema | None:
        # Many mocks share a collection. The digest tells its versions apart, since a scenario may replace the
        # rows.
        key = (collection.id, collection.digest, guessed)
        if key not in self._made:
            self._made[key] = self._make(collection, guessed=guessed)
        return self._made[key]

    def _make(self, collection: Collection, *, guessed: bool) -> Schema | None:
        own = collection.schema
        is_open = isinstance(own, dict) and closed_names(own) is None and not may_name_elsewhere(own)
        # A closed schema lists all keys already.
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
        """Infer a schema with the keys of objects at one place of all rows, and below it.

        Args:
            values: The values at this place in all rows.
            holder: The key of the place, or the collection.
            above: Keys that effects write into objects with that key, which may be an object of such values.
            guessed: As in `furnish`.

        Returns:
            True if there are no keys.
        """
        names = self._names_of(holder)
        computed = not self._computed.isdisjoint(names)
        # An effect that computes an object may give it any key.
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
        """The names that mocks use for a collection and its rows, or for the value of a key and its elements."""
        return [holder, *(name for name, within in self._holders.items() if holder in map(_last, within))]

    def _rows(self, collection: Collection) -> list[JSON] | None:
        """The rows of a collection, including those in scenarios; None if they are invalid or too many."""
        found: list[JSON] = []
        for each in (collection, *self._further.get(collection.name, ())):
            try:
                found += rows_of(each).values()
            except ExpressionError:
                return None  # loading has reported the invalid rows
        return found if sum(map(_count, found)) <= MOST_VALUES else None


def _last(place: str) -> str:
    """The last name of a target: `payments` in `order.payments[0]`."""
    # Repeated, since brackets may be nested.
    while (shorter := _BRACKET.sub("", place)) != place:
        place = shorter
    return place.strip().rpartition(".")[2]


def _items(value: JSON) -> Iterable[tuple[str, JSON]]:
    return value.items() if isinstance(value, dict) else ()


def _is_scalar(schema: Schema, name: str) -> bool:
    """Whether a property has a type other than object and array."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    found = properties.get(name) if isinstance(properties, dict) else None
    return isinstance(found, dict) and found.get("type") in _SCALARS


def _count(value: JSON) -> int:
    """Number of values in a value, including itself."""
    if isinstance(value, dict | list):
        return 1 + sum(map(_count, value.values() if isinstance(value, dict) else value))
    return 1


_OF_EACH: Final = 4
"""Maximum number of arguments that are kept for one kind of ending."""

_MOST_NEXT: Final = 64
"""Maximum number of arguments that are derived from one call."""

_OPTIONS: Final = 6
"""Maximum number of chosen rows per collection, and of texts that may replace one argument."""

_CONSTANTS: Final = 16
"""Maximum number of constants in the expressions of a mock that may replace an argument."""

_QUOTED: Final = re.compile(r"""'[^'\\]*'|"[^"\\]*\"""")

_REFERRED: Final = 24
"""Maximum number of rows per collection that are added in one pass because chosen rows refer to them."""

_ROWS: Final = 2_000
"""Number of rows that are considered, in addition to the first row with each set of keys."""

_PARTS: Final = 500
"""Maximum number of values per row that are compared with other rows."""

_FEW: Final = 6
"""A field with at most this many different texts is a category, such as a status."""

WatchedCall = Callable[[dict[str, Any]], Awaitable[Result]]
"""Calls an observed tool in a fresh session."""

_Path: TypeAlias = "tuple[str | None, ...]"
"""The keys from a row to a value; None for any element of a list."""

Lookups: TypeAlias = "dict[str, dict[str, None]]"
"""A text -> the keys among which it was looked up, and the texts with which it was compared."""


async def find_arguments(
    tool: Descriptor, tried: Sequence[dict[str, Any]], met: Lookups, call: WatchedCall, most: int
) -> list[dict[str, Any]]:
    """Find valid arguments of a mock that hit rows of its store: a few for each way in which its calls end.

    Args:
        tool: The tool.
        tried: Arguments to start with.
        met: Filled by the observed store of the tool (`StoreSamples`).
        call: Calls the tool.
        most: Maximum number of calls.
    """
    validator = Validator(tool.input_schema)
    constants = list(islice(dict.fromkeys(_constants(tool.bindings["mock"])), _CONSTANTS))
    # Lists with one element each converge faster: every element of every list needs its own replacement.
    begun = [*tried, *(short for each in tried if validator.is_valid(short := _shortened(each)))]
    seen = {canonical(arguments): arguments for arguments in begun}
    found: dict[str, list[dict[str, Any]]] = {}
    turns = Counter[str]()
    left = [("", written) for written in seen]
    for _ in range(most):
        if not left:
            break
        # Continue with the rarest ending, which is most likely to lead to new ones; prefer short arguments.
        before, written = min(left, key=lambda entry: (turns[entry[0]], len(entry[1])))
        left.remove((before, written))
        turns[before] += 1
        arguments = seen[written]
        met.clear()
        end = _end(await call(arguments), arguments)
        if len(alike := found.setdefault(end, [])) < _OF_EACH:
            alike.append(arguments)
        for text, others in met.items():
            if (
                before and text in others
            ):  # an argument that hits a row is kept, and the others are adapted to it
                others.clear()
        for other in islice(_replaced(arguments, met, constants), _MOST_NEXT):
            if validator.is_valid(other) and (key := canonical(other)) not in seen:
                seen[key] = other
                left.append((end, key))
    return [arguments for alike in found.values() for arguments in alike if arguments not in tried]


def _end(result: Result, arguments: JSON) -> str:
    """How a call ended, as a text without the values of the arguments."""
    told = f"{result.outcome} {result.meta.get('mock')} {result.message}"
    # Longest first, since a short text may be part of a longer one.
    for text in sorted(_texts(arguments), key=len, reverse=True):
        told = told.replace(text, "?") if text else told
    return told


def _shortened(value: Any) -> Any:
    """Cut each list in a value to at most one element."""
    if isinstance(value, dict):
        return {key: _shortened(item) for key, item in value.items()}
    return [_shortened(item) for item in value[:1]] if isinstance(value, list) else value


def _constants(part: JSON) -> Iterator[str]:
    """The string constants in the expressions of a part of a mock."""
    if isinstance(part, str) and "{{" in part:
        yield from (text[1:-1] for text in _QUOTED.findall(part))
    elif isinstance(part, dict | list):
        for item in part.values() if isinstance(part, dict) else part:
            yield from _constants(item)


def _replaced(value: Any, met: Mapping[str, Mapping[str, None]], constants: Iterable[str]) -> Iterator[Any]:
    """Yield copies of a value in which one text or number is replaced by a recorded text, or else by a constant."""
    if isinstance(value, dict | list):
        for key, item in value.items() if isinstance(value, dict) else enumerate(value):
            for other in _replaced(item, met, constants):
                # A shallow copy is enough, since nothing modifies the other parts.
                copy = value.copy()
                copy[key] = other
                yield copy
    elif isinstance(value, str):
        yield from islice(met[value], _OPTIONS) if value in met else constants
    # Not `isinstance`: bool is a subclass of int.
    elif type(value) is int:
        yield from (int(text) for text in islice(met.get(str(value), ()), _OPTIONS) if text.isdecimal())


# The observed part of a store.


class StoreSamples:
    """Creates small observed stores, once for each fixture and version."""

    def __init__(self) -> None:
        self._made: dict[tuple[int, int], tuple[Fixture, StoreVersion, Fixture, Lookups]] = {}

    def of(self, fixture: Fixture, version: StoreVersion) -> tuple[Fixture, Lookups]:
        """Return a fixture with few rows of a version of the store, and the look-ups that they record."""
        key = (id(fixture), id(version))
        if key not in self._made:
            met: Lookups = {}
            # The entry keeps both objects alive, so that their ids cannot be reused.
            self._made[key] = (fixture, version, _watched(fixture, version, met), met)
        return self._made[key][2:]


def _watched(fixture: Fixture, version: StoreVersion, met: Lookups) -> Fixture:
    """A fixture with few observed rows; a collection with invalid rows is unchanged."""
    rows = {
        name: there
        for name, each in fixture.collections.items()
        if (there := _rows(each, version)) is not None
    }
    chosen = {name: _different(each) for name, each in rows.items()}
    # Two passes follow references of references, such as order -> customer -> address.
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
    return Fixture(MappingProxyType(collections), MappingProxyType(machines), fixture.definitions)


def row_shapes(collection: Collection, version: StoreVersion = FRESH) -> set[Hashable]:
    """The shapes of the rows of a collection: their keys and the types of their values.

    For a version, only changed rows count.
    """
    base, layers = _rows(collection, FRESH) or {}, version.rows.get(collection.id)
    if version is FRESH:
        rows = base
    elif layers is None:
        rows = {}
    else:
        rows = layers.changed().rows if layers.below is base else layers.whole()
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
        return None  # loading has reported the invalid rows


def _different(rows: Rows) -> dict[str, None]:
    """Choose rows that differ in missing keys, in types of values, and in the texts of categories."""
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
    # A path that occurs in a single row has a data value as its key, such as an id.
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
    """Yield the scalars and the empty containers of a value with their paths; list elements share a path."""
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
    """A dict that records look-ups."""

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

    # `dict.get` does not call `__getitem__`.
    def get(self, key: str, otherwise: Any = None) -> Any:
        """As `dict.get`."""
        self._note(key)
        return super().get(key, otherwise)


class _Text(str):
    """A string that records comparisons."""

    __slots__ = ("_met",)
    # A class that defines `__eq__` loses its hash, and the texts are keys of dicts.
    __hash__ = str.__hash__
    _met: Lookups

    @classmethod
    def noting(cls, text: str, met: Lookups) -> _Text:
        """Create an observed text."""
        made = cls(text)
        made._met = met
        return made

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str):
            self._met.setdefault(str(other), {})[str(self)] = None
        return super().__eq__(other)

    # `str` implements `!=` itself instead of negating `__eq__`.
    def __ne__(self, other: object) -> bool:
        return not self == other
