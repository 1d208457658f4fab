"""Keys of rows that mocks read or write through although no row has them, where no schema says which there are.

For each collection a schema is made of the keys of its rows and of what effects write. What is compiled against it
is told of unknown keys as where the document has such a schema.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from toolcrib.core.errors import ExpressionError
from toolcrib.core.model import JSON, Collection, Descriptor, Fixture, Schema
from toolcrib.core.subschemas import closed_names, described_names, names_elsewhere
from toolcrib.simulation.store import rows_of

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
        is_open = isinstance(own, dict) and closed_names(own) is None and not names_elsewhere(own)
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
                return None  # loading has told what is wrong with them
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
