"""Of which types the values of a subschema are, and which keywords say something of which type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from toolcrib.core.model import JSON

KEYWORDS_OF: Final[Mapping[str, frozenset[str]]] = {
    "object": frozenset(
        (
            "properties",
            "patternProperties",
            "additionalProperties",
            "required",
            "minProperties",
            "maxProperties",
            "propertyNames",
            "dependentRequired",
            "dependentSchemas",
            "unevaluatedProperties",
        )
    ),
    "array": frozenset(
        (
            "items",
            "prefixItems",
            "contains",
            "minContains",
            "maxContains",
            "minItems",
            "maxItems",
            "uniqueItems",
            "unevaluatedItems",
        )
    ),
    "string": frozenset(
        (
            "minLength",
            "maxLength",
            "pattern",
            "format",
            "contentEncoding",
            "contentMediaType",
            "contentSchema",
        )
    ),
    "integer": frozenset(
        ("multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "format")
    ),
    "number": frozenset(
        ("multipleOf", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "format")
    ),
    "boolean": frozenset(),
    "null": frozenset(),
}
"""Type -> keywords that say something of its values only."""

_OF_SOME: Final = frozenset().union(*KEYWORDS_OF.values())
_GUESSED: Final = ("object", "array", "string", "number")
"""Types that keywords may tell; `format` tells none."""


def kind_of(value: JSON) -> str:
    """The type of a value; `integer` of any number without a fraction."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int | float):
        return "integer" if value == value // 1 else "number"
    return "string" if isinstance(value, str) else "array" if isinstance(value, list) else "object"


def values_of(schema: dict[str, JSON]) -> list[JSON] | None:
    """The values that a subschema names; None where it names none."""
    if "const" in schema:
        return [schema["const"]]
    named = schema.get("enum")
    return named if isinstance(named, list) else None


def declared(schema: dict[str, JSON]) -> list[str]:
    """The types that a subschema says; empty where it says none."""
    said = schema.get("type")
    kinds = [said] if isinstance(said, str) else said if isinstance(said, list) else []
    known = [kind for kind in kinds if isinstance(kind, str) and kind in KEYWORDS_OF]
    return [kind for kind in known if kind != "integer" or "number" not in known]


def guessed(schema: dict[str, JSON]) -> list[str]:
    """The types that the keywords of a subschema are about, where it says none."""
    return [kind for kind in _GUESSED if (KEYWORDS_OF[kind] - {"format"}) & schema.keys()]


def fits(value: JSON, kind: str) -> bool:
    """Whether a value is of a type."""
    own = kind_of(value)
    return own == kind or (own == "integer" and kind == "number")


def narrowed(schema: dict[str, JSON], kind: str) -> dict[str, JSON]:
    """The schema for values of one type, without the keywords that say nothing of it."""
    told: dict[str, JSON] = {
        key: value for key, value in schema.items() if key not in _OF_SOME or key in KEYWORDS_OF[kind]
    }
    values = values_of(told)
    if values is not None:
        told.pop("const", None)
        told["enum"] = [value for value in values if fits(value, kind)]
    return {**told, "type": kind}
