"""Schemas that must all hold as one (see `schema.all_of`), and how the branches of `anyOf` and `oneOf` relate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any, Final

from toolcrib.core.model import JSON
from toolcrib.core.text import canonical
from toolcrib.formats.providers.normalized_schema import PLACE, place_of, unmarked
from toolcrib.formats.providers.value_types import declared, values_of
from toolcrib.schema.all_of import APART, TIGHTER, Join, MergeRules, first, merge

ANNOTATIONS: Final = ("title", "description", "default", "examples", "deprecated")
"""Keywords for readers. Of two, the one nearer to the place counts."""

_REFINING: Final = frozenset(
    ("required", "dependentRequired", "minProperties", "maxProperties", "not", "properties", "type", PLACE)
) | frozenset(ANNOTATIONS)
"""What a branch says that brings nothing new to the schema that it stands in."""


def without(schema: dict[str, JSON], *keywords: str) -> dict[str, JSON]:
    """The schema without some keywords."""
    return {key: value for key, value in schema.items() if key not in keywords}


def merged(schema: dict[str, JSON]) -> tuple[dict[str, JSON], list[dict[str, JSON]]]:
    """The schema with its `allOf` merged into it, and the branches that can't be."""
    branches = schema.get("allOf")
    told = without(schema, "allOf")
    apart: list[dict[str, JSON]] = []
    for branch in branches if isinstance(branches, list) else ():
        if isinstance(branch, dict):
            inner, more = merged(branch)
            both = both_of(told, inner)
            told = told if both is None else both
            apart += more if both is not None else [inner, *more]
    return told, apart


def both_of(own: dict[str, JSON], other: dict[str, JSON]) -> dict[str, JSON] | None:
    """A schema that takes what both take; None where none can be written without `allOf`."""
    if not _can_join_names(own, other) or "unevaluatedProperties" in other or "unevaluatedItems" in other:
        return None
    told: dict[str, Any] | None = merge(own, other, _rules_at(place_of(own)))
    if told is not None and "const" in told and "enum" in told:
        values = [told.pop("const")]
        told["enum"] = [value for value in told["enum"] if value in values]
    return told


def _can_join_names(own: dict[str, JSON], other: dict[str, JSON]) -> bool:
    """Whether properties of both may stand side by side, so that what is said of all others means the same."""
    for one, another in ((own, other), (other, own)):
        if one.get("additionalProperties", True) is True:
            continue
        if "patternProperties" in another or set(_names(another)) - set(_names(one)):
            return False
    return not ("prefixItems" in own or "prefixItems" in other) or not ("items" in own and "items" in other)


def _names(schema: dict[str, JSON]) -> Mapping[str, JSON]:
    said = schema.get("properties")
    return said if isinstance(said, dict) else {}


def _rules_at(place: str) -> MergeRules:
    """The tighter of two values at each keyword; `place` is where the first schema was written."""

    def properties(_keyword: str, mine: dict[str, Any], theirs: dict[str, Any]) -> dict[str, Any]:
        return {name: _together(name, mine, theirs, place) for name in {**mine, **theirs}}

    return MergeRules({**_TIGHTEST, "properties": properties}, _same)


def _together(name: str, mine: dict[str, Any], theirs: dict[str, Any], place: str) -> Any:
    if name not in mine or name not in theirs:
        return mine.get(name, theirs.get(name))
    return {PLACE: place_of(mine[name]) or place, "allOf": [mine[name], theirs[name]]}


def _same(keyword: str, mine: Any, theirs: Any) -> Any:
    """The value that both have, wherever its subschemas were written."""
    return mine if canonical(unmarked({keyword: mine})) == canonical(unmarked({keyword: theirs})) else APART


def _subschemas(keyword: str, mine: Any, theirs: Any) -> Any:
    if isinstance(mine, dict) and isinstance(theirs, dict):
        return {PLACE: place_of(mine), "allOf": [mine, theirs]}
    return _same(keyword, mine, theirs)


def _values(_keyword: str, mine: list[JSON], theirs: list[JSON]) -> Any:
    texts = {canonical(value) for value in theirs}
    return [value for value in mine if canonical(value) in texts] or APART


def _types(_keyword: str, mine: JSON, theirs: JSON) -> Any:
    common = _common_types({"type": mine}, {"type": theirs})
    return APART if common is None else common


_TIGHTEST: Final[Mapping[str, Join]] = {
    **TIGHTER,
    **dict.fromkeys((PLACE, *ANNOTATIONS), first),
    "type": _types,
    "enum": _values,
    "items": _subschemas,
    "propertyNames": _subschemas,
}


def _common_types(own: dict[str, JSON], other: dict[str, JSON]) -> JSON:
    """The types that both take; None where there is none."""
    mine, theirs = declared(own), declared(other)
    common: list[JSON] = [kind for kind in mine if kind in theirs]
    if "number" in theirs and "integer" in mine and "integer" not in common:
        common.append("integer")
    if "number" in mine and "integer" in theirs:
        common.append("integer")
    return common[0] if len(common) == 1 else common or None


def are_of_other_types(one: dict[str, JSON], other: dict[str, JSON]) -> bool:
    """Whether the types that two schemas say have none in common."""
    return bool(declared(one) and declared(other)) and _common_types(one, other) is None


def is_refinement(branch: JSON, beside: dict[str, JSON]) -> bool:
    """Whether a branch only says more of properties that stand beside it."""
    if not isinstance(branch, dict) or not _names(beside):
        return False
    return not branch.keys() - _REFINING and not _names(branch).keys() - _names(beside).keys()


def are_disjoint(branches: Sequence[JSON]) -> bool:
    """Whether no value fits two branches: by their types, or by a property of each that has other values in each."""
    schemas = [branch for branch in branches if isinstance(branch, dict)]
    return not any(_share(one, other) for one, other in combinations(schemas, 2))


def _share(one: dict[str, JSON], other: dict[str, JSON]) -> bool:
    """Whether some value may fit both, as far as one can see."""
    if are_of_other_types(one, other):
        return False
    values, others = values_of(one), values_of(other)
    if values is not None and others is not None:
        return bool({canonical(value) for value in values} & {canonical(value) for value in others})
    if declared(one) != ["object"] or declared(other) != ["object"]:
        return True
    return not any(_tells_apart(name, one, other) for name in _names(one))


def _tells_apart(name: str, one: dict[str, JSON], other: dict[str, JSON]) -> bool:
    for schema in (one, other):
        wanted = schema.get("required")
        if not isinstance(wanted, list) or name not in wanted:
            return False
    mine, theirs = _names(one).get(name), _names(other).get(name)
    return isinstance(mine, dict) and isinstance(theirs, dict) and not _share(mine, theirs)
