"""What the schema of a collection says of places in its rows."""

from __future__ import annotations

from collections.abc import Sequence

from toolcrib.model import JSON, Schema
from toolcrib.subschemas import REFERENCES, SchemaIndex, Site, closed_names, is_schema

_CERTAIN = ("allOf",)
"""Keywords whose subschemas all judge the same value."""


def known_keys(schema: Schema, path: Sequence[str | None]) -> frozenset[str] | None:
    """The keys that an object at a place of a row may have.

    Args:
        schema: That of a row.
        path: The keys that lead there; None for a key or position that only a call knows.

    Returns:
        None where the schema allows more than it names, or says nothing of the place.
    """
    index = SchemaIndex(schema)
    sites: list[Site] = index.together([index.root], _CERTAIN)
    for step in path:
        sites = index.together(_below(index, sites, step), _CERTAIN)
    closed = [names for site in sites if (names := closed_names(site.schema)) is not None]
    return frozenset.intersection(*map(frozenset, closed)) if closed else None


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
