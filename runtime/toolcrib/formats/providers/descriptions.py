"""What a schema says, in words, for dialects that have no keyword for it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from toolcrib.core.model import JSON
from toolcrib.core.text import compact
from toolcrib.formats.providers.normalized_schema import PLACE, unmarked

LONGEST: Final = 200
"""Characters of JSON that a description takes up at most."""

_PHRASES: Final[Mapping[str, str]] = {
    "contains": "Has an item like {}",
    "contentEncoding": "Encoded as {}",
    "contentMediaType": "Media type: {}",
    "const": "Always {}",
    "default": "Default: {}",
    "dependentRequired": "Properties that need others: {}",
    "deprecated": "Deprecated",
    "enum": "One of {}",
    "examples": "Examples: {}",
    "exclusiveMaximum": "Less than {}",
    "exclusiveMinimum": "More than {}",
    "format": "Format: {}",
    "maxItems": "Items at most: {}",
    "maxLength": "Characters at most: {}",
    "maxProperties": "Properties at most: {}",
    "maximum": "At most {}",
    "minItems": "Items at least: {}",
    "minLength": "Characters at least: {}",
    "minProperties": "Properties at least: {}",
    "minimum": "At least {}",
    "multipleOf": "A multiple of {}",
    "not": "Not: {}",
    "pattern": "Pattern: {}",
    "patternProperties": "Properties by pattern: {}",
    "prefixItems": "The items, in order: {}",
    "propertyNames": "Names of properties: {}",
    "uniqueItems": "No item twice",
}

_PLAIN: Final = frozenset(
    (
        "additionalProperties",
        "allOf",
        "anyOf",
        "contentSchema",
        "dependentSchemas",
        "else",
        "if",
        "maxContains",
        "minContains",
        "oneOf",
        "then",
        "unevaluatedItems",
        "unevaluatedProperties",
    )
)
"""Keywords that are told as they are; of others than these nobody knows what they mean."""

_CHOICES: Final[Mapping[str, str]] = {"anyOf": "Give at least one of", "oneOf": "Give exactly one of"}
_REQUIRING: Final = frozenset(("required", "type", PLACE))

_NEEDLESS: Final[Mapping[str, JSON]] = {
    "deprecated": False,
    "examples": [],
    "minItems": 0,
    "minLength": 0,
    "minProperties": 0,
    "uniqueItems": False,
}
"""Values with which a keyword says nothing."""


def says_nothing(keyword: str, value: JSON) -> bool:
    """Whether a keyword could as well not be there."""
    return keyword in _NEEDLESS and _NEEDLESS[keyword] == value


def phrase(keyword: str, value: JSON) -> str:
    """A sentence that says what a keyword says; empty where none would be short enough."""
    forms = _required(value) if keyword in _CHOICES else []
    if forms:
        return f"{_CHOICES[keyword]}: {'; '.join(forms)}."
    text = (
        value
        if isinstance(value, str) and keyword != "default"
        else compact(unmarked({keyword: value})[keyword])
    )
    if len(text) > LONGEST:
        return ""
    form = _PHRASES.get(keyword, f"{keyword}: {{}}" if keyword in _PLAIN else "")
    return form and form.format(text) + "."


def _required(branches: JSON) -> list[str]:
    """The properties that each branch wants, where none says anything else."""
    forms: list[str] = []
    for branch in branches if isinstance(branches, list) else ():
        wanted = (
            branch.get("required") if isinstance(branch, dict) and not branch.keys() - _REQUIRING else None
        )
        if not isinstance(wanted, list) or not wanted:
            return []
        forms.append(" and ".join(map(str, wanted)))
    return forms if len("; ".join(forms)) <= LONGEST else []


def extended(description: JSON, notes: Iterable[str]) -> str:
    """A description, and further sentences."""
    said = description.strip() if isinstance(description, str) else ""
    more = " ".join(note for note in notes if note)
    if not said or not more:
        return said or more
    return f"{said} {more}" if said.endswith((".", "!", "?", ":", "\n")) else f"{said}. {more}"
