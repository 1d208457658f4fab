"""Check paths and constant values of effects against the schema of a collection, before any call."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from toolcrib.core.errors import did_you_mean
from toolcrib.core.model import JSON, Schema
from toolcrib.core.pointers import pointer_step
from toolcrib.core.subschemas import (
    REFERENCES,
    SchemaIndex,
    Site,
    cached_per_schema,
    closed_names,
    has_references,
    is_schema,
)
from toolcrib.executors.mock.store_rows import StorePath
from toolcrib.expressions.compiler import ExpressionPart, KnownKeys, literal
from toolcrib.expressions.values import list_of_names
from toolcrib.schema.validation import Validator, Violation

if TYPE_CHECKING:
    from toolcrib.executors.mock.store_rows import CompileContext

_CERTAIN = ("allOf",)
"""The keywords whose subschemas all apply to the value. Others, such as `anyOf`, may not apply."""


class RowKeys(KnownKeys):
    """The keys that an object in a row may have.

    Attributes:
        names: The keys; None if the schema is open or does not describe the object.
    """

    def __init__(self, index: SchemaIndex, sites: Sequence[Site]) -> None:
        self._index = index
        self._sites = index.together(sites, _CERTAIN)
        closed = [names for site in self._sites if (names := closed_names(site.schema)) is not None]
        self.names = frozenset.intersection(*map(frozenset, closed)) if closed else None

    def __contains__(self, key: object) -> bool:
        return self.names is None or key in self.names

    def __iter__(self) -> Iterator[str]:
        return iter(self.names or ())

    def __len__(self) -> int:
        return len(self.names or ())

    def below(self, step: str | None) -> RowKeys | None:
        """The keys of the value under a key, or of any element or member for None."""
        sites = _below(self._index, self._sites, step)
        return RowKeys(self._index, sites) if sites else None


class CollectionKeys(KnownKeys):
    """The keys of a collection with a schema. A row may have any key."""

    def __init__(self, schema: Schema) -> None:
        self._schema = schema

    def __contains__(self, _key: object) -> bool:
        return True

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0

    def below(self, _step: str | None) -> RowKeys:
        """The keys of a row."""
        return _row_keys(self._schema)


@cached_per_schema
def _row_keys(schema: Schema | None) -> RowKeys:
    index = SchemaIndex(True if schema is None else schema)
    return RowKeys(index, [index.root])


def known_keys(schema: Schema, path: Sequence[str | None]) -> frozenset[str] | None:
    """The keys that an object in a row may have.

    Args:
        schema: The schema of a row.
        path: The keys that lead to the object; None for a computed key or an index.

    Returns:
        The keys; None if the schema is open or does not describe the object.
    """
    keys: RowKeys | None = CollectionKeys(schema).below(None)
    for step in path:
        keys = None if keys is None else keys.below(step)
    return None if keys is None else keys.names


def _below(index: SchemaIndex, sites: Sequence[Site], step: str | None) -> list[Site]:
    if step is not None:
        return index.below(sites, step)
    # Any member and any item: a key that no schema names, and the first index.
    return [*index.below(sites, "\0"), *index.below(sites, 0)]


def plain_schema(schema: Schema, path: Sequence[str | None]) -> Schema | None:
    """A schema that certainly applies to a part of a value and can be used without its parent.

    Args:
        schema: The schema of the value.
        path: The keys that lead to the part; None for a computed key or an index.

    Returns:
        The schema; None if there is a reference on the path, or no single schema. Other schemas may apply as
        well.
    """
    found: JSON = schema
    for step in path:
        if not isinstance(found, dict) or any(keyword in found for keyword in REFERENCES):
            return None
        found = _of_any(found) if step is None else _of_key(found, step)
    return found if is_schema(found) else None


def _of_key(schema: dict[str, JSON], key: str) -> JSON:
    properties = schema.get("properties", {})
    if isinstance(properties, dict) and key in properties:
        return properties[key]
    return _of_others(schema)


def _of_any(schema: dict[str, JSON]) -> JSON:
    kind = schema.get("type")
    if kind == "array" and "prefixItems" not in schema:
        return schema.get("items")
    return _of_others(schema) if kind == "object" and not schema.get("properties") else None


def _of_others(schema: dict[str, JSON]) -> JSON:
    """The schema of properties that are not named; None if they have none or are forbidden."""
    others = schema.get("additionalProperties")
    return others if isinstance(others, dict) and "patternProperties" not in schema else None


def possible_types(schema: Schema) -> frozenset[str] | None:
    """The JSON Schema types of the values that a schema accepts; None if it may accept all."""
    if not isinstance(schema, dict) or any(keyword in schema for keyword in REFERENCES):
        return None
    types, values = schema.get("type"), schema.get("enum")
    if isinstance(types, str | list):
        return frozenset(str(each) for each in ([types] if isinstance(types, str) else types))
    values = [schema["const"]] if "const" in schema else values
    return frozenset(map(_kind, values)) if isinstance(values, list) else None


def _kind(value: JSON) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "number"
    if isinstance(value, str):
        return "string"
    return "array" if isinstance(value, list) else "object"


class LiteralPlace(NamedTuple):
    """A path into the rows of a collection with a schema, to which an effect writes.

    Attributes:
        collection: The name of the collection.
        schema: The schema of its rows.
        path: The keys from the row to the value; None for a computed key or an index.
        text: The path as written.
    """

    collection: str
    schema: Schema
    path: tuple[str | None, ...]
    text: str

    def check_members(self, written: ExpressionPart | None, pointer: str, ground: CompileContext) -> None:
        """Report keys that the row cannot have, and constants that its schema rejects."""
        members = dict(_members(written))
        for key in self.check_fields(members, pointer, ground):
            self._tell((*self.path, key), members[key], f"{pointer}/{pointer_step(key)}", ground)

    def check_fields(self, fields: Iterable[str], pointer: str, ground: CompileContext) -> list[str]:
        """Report keys that the row cannot have.

        Returns:
            The other keys.
        """
        known = known_keys(self.schema, self.path)
        if known is None:
            return list(fields)
        for key in (key for key in fields if key not in known):
            self._unknown(key, known, self.text, f"{pointer}/{pointer_step(key)}", ground)
        return [key for key in fields if key in known]

    def check_way(self, pointer: str, ground: CompileContext) -> None:
        """Report a path that no row can have."""
        for at, step in enumerate(self.path):
            known = None if step is None else known_keys(self.schema, self.path[:at])
            if step is not None and known is not None and step not in known:
                self._unknown(step, known, self.text, pointer, ground)
                return

    def check_kind(self, effect: str, pointer: str, ground: CompileContext) -> None:
        """Report `append`, `increment` or `decrement` on a value that never has the required type."""
        schema = plain_schema(self.schema, self.path)
        types = ("array",) if effect == "append" else ("number", "integer")
        kinds = None if schema is None else possible_types(schema)
        if kinds is not None and kinds.isdisjoint(types):
            needs = "a list" if effect == "append" else "a number"
            there = " or ".join(sorted(kinds)) or "nothing"
            message = (
                f"`{effect}` needs {needs}, but the schema of `{self.collection}` makes `{self.text}` {there}"
            )
            ground.fault("wrong_type", message, pointer, "change the path or the schema")

    def _unknown(
        self, key: str, known: Collection[str], text: str, pointer: str, ground: CompileContext
    ) -> None:
        there = list_of_names(sorted(known))
        message = f"unknown key `{key}` at `{text}` in rows of `{self.collection}`; known keys: {there}"
        ground.fault("unknown_row_key", message, pointer, did_you_mean(key, known))

    def check_value(self, written: ExpressionPart | None, pointer: str, ground: CompileContext) -> None:
        """Report the constant parts of a value that the schema of the row rejects."""
        if written is not None:
            self._tell(self.path, written, pointer, ground)

    def _tell(
        self, path: tuple[str | None, ...], part: ExpressionPart, pointer: str, ground: CompileContext
    ) -> None:
        schema = plain_schema(self.schema, path)
        told = any(f"{problem.pointer}/".startswith(f"{pointer}/") for problem in ground.problems)
        # After a syntax error the part is a placeholder and not the value that the author wrote.
        if schema is None or told:
            return
        name = next((step for step in reversed(path) if step is not None), self.collection)
        dialect = self.schema.get("$schema") if isinstance(self.schema, dict) else None
        for place, fault in _faults(part, schema, name, dialect):
            message = f"value does not match the schema of `{self.collection}`: expected {fault.expected}, got {fault.got}"
            hint = fault.hint or "change the value or the schema"
            ground.fault("row_breaks_schema", message, f"{pointer}{place}", hint)


def literal_place(place: StorePath, ground: CompileContext, *, elements: bool = False) -> LiteralPlace | None:
    """The place that an effect writes to; None if no schema describes it.

    Args:
        place: The path of the effect.
        ground: The compile context.
        elements: Whether the effect writes the elements of the value at the path.
    """
    row = ground.rows.get(place.root)
    name = place.root if place.in_store else "" if row is None else row.collection
    collection = ground.tool.fixture.collections.get(name)
    if collection is None or collection.schema is None or collection.fault:
        return None
    path = [step.name or None for step in (place.steps[1:] if place.in_store else place.steps)]
    # The elements of a whole collection are its rows, where the path starts.
    if elements and not (place.in_store and not place.steps):
        path.append(None)
    return LiteralPlace(name, collection.schema, tuple(path), place.text)


def _members(part: ExpressionPart | None) -> Iterator[tuple[str, ExpressionPart]]:
    if part is not None:
        yield from ((key, inner) for key, inner in _inside(part) if isinstance(key, str))


def _inside(part: ExpressionPart) -> Iterator[tuple[str | int, ExpressionPart]]:
    """The members of an object or elements of a list that the document writes out."""
    if part.members is not None:
        yield from part.members.items() if isinstance(part.members, dict) else enumerate(part.members)
    elif part.constant and isinstance(part.value, dict | list):
        value = part.value
        for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
            yield key, literal(inner)


def _faults(
    part: ExpressionPart, schema: Schema, name: str, dialect: JSON
) -> Iterator[tuple[str, Violation]]:
    """The violations of the constant parts of a value, each with its pointer within the value."""
    if part.constant and not has_references(schema):
        yield from _judged(part.value, schema, name, dialect)
        return
    for key, inner in _inside(part):
        step, called = (key, key) if isinstance(key, str) else (None, name)
        below = plain_schema(schema, (step,))
        if below is not None:
            for place, fault in _faults(inner, below, called, dialect):
                yield f"/{pointer_step(str(key))}{place}", fault


def _judged(value: JSON, schema: Schema, name: str, dialect: JSON) -> Iterator[tuple[str, Violation]]:
    # Validated as a member of its name: messages mask values whose names are those of secrets.
    whole: dict[str, JSON] = {"properties": {name: schema}}
    if dialect is not None:
        whole["$schema"] = dialect
    above = len(f"/{pointer_step(name)}")
    for fault in Validator(whole).faults({name: value}):
        yield fault.pointer[above:], fault
