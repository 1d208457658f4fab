"""What the schema of a collection says of places in its rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from toolcrib.core.model import JSON, Schema
from toolcrib.core.subschemas import REFERENCES, SchemaIndex, Site, closed_names, is_schema, once_for_each
from toolcrib.expressions.compiler import KnownKeys

_CERTAIN = ("allOf",)
"""Keywords whose subschemas all judge the same value."""


class RowKeys(KnownKeys):
    """The keys that an object at a place of a row may have.

    Attributes:
        names: None where the schema allows more than it names, or says nothing of the place.
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
        """The keys of what stands under a key; of any element or member for None."""
        sites = _below(self._index, self._sites, step)
        return RowKeys(self._index, sites) if sites else None


class CollectionKeys(KnownKeys):
    """The keys of a collection with a schema, any of which a row may have."""

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


@once_for_each
def _row_keys(schema: Schema | None) -> RowKeys:
    index = SchemaIndex(True if schema is None else schema)
    return RowKeys(index, [index.root])


def known_keys(schema: Schema, path: Sequence[str | None]) -> frozenset[str] | None:
    """The keys that an object at a place of a row may have.

    Args:
        schema: That of a row.
        path: The keys that lead there; None for a key or position that only a call knows.

    Returns:
        None where the schema allows more than it names, or says nothing of the place.
    """
    keys: RowKeys | None = CollectionKeys(schema).below(None)
    for step in path:
        keys = None if keys is None else keys.below(step)
    return None if keys is None else keys.names


def _below(index: SchemaIndex, sites: Sequence[Site], step: str | None) -> list[Site]:
    if step is not None:
        return index.below(sites, step)
    return [*index.below(sites, "\0"), *index.below(sites, 0)]


def plain_schema(schema: Schema, path: Sequence[str | None]) -> Schema | None:
    """A schema that judges a place of a value for certain, by itself: nothing on the way there is a reference.

    Args:
        schema: That of the value.
        path: The keys that lead there; None for a key or position that only a call knows.

    Returns:
        None where there is none that simple. What stands there may have to fit others as well.
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
    """The schema of properties that the schema does not name; none where it refuses all of them."""
    others = schema.get("additionalProperties")
    return others if isinstance(others, dict) and "patternProperties" not in schema else None


def kinds_of(schema: Schema) -> frozenset[str] | None:
    """The types, in the words of JSON Schema, of which a value is that fits a schema; None where all may be."""
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
