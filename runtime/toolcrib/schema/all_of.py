"""Two schemas that must both hold, as one.

JSON Schema 2020-12, core 7.7 and 10: what a keyword says may depend on the keywords beside it, so keywords are put
into one object only where none of them then means anything else.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Final

from toolcrib.core.model import JSON, Schema
from toolcrib.core.text import canonical, json_equal

ANNOTATIONS: Final = ("title", "description", "default", "examples", "$comment")
"""Keywords for readers. Of two, the one nearer to the place counts."""

_TOGETHER: Final = (
    frozenset(("items", "prefixItems", "additionalItems")),
    frozenset(("contains", "minContains", "maxContains")),
    frozenset(("if", "then", "else")),
)
"""Keywords that mean something only with each other."""

_OF_NAMES: Final = frozenset(("properties", "patternProperties", "additionalProperties"))
_UNEVALUATED: Final = frozenset(("unevaluatedProperties", "unevaluatedItems"))


def conjoin(own: dict[str, JSON], other: Schema) -> Schema:
    """A schema that takes what both take, and evaluates what both evaluate.

    Args:
        own: A schema. Its `unevaluated...` keywords look at what the other one evaluates.
        other: What stood beside it behind a reference. Its own `unevaluated...` keywords look at nothing of the first.
    """
    if isinstance(other, bool):
        told: dict[str, JSON] = {key: own[key] for key in ANNOTATIONS if key in own}
        return (own or True) if other else {**told, "not": {}} if told else False
    if not own:
        return other
    if not own.keys() - set(ANNOTATIONS):
        return {**own, **{key: item for key, item in other.items() if key not in own}}
    if _must_stay_apart(own, other):
        beside = own.get("allOf")
        return {**own, "allOf": [*(beside if isinstance(beside, list) else ()), other]}
    return {
        **own,
        **{key: _joined(key, own[key], item) if key in own else item for key, item in other.items()},
    }


def _must_stay_apart(own: dict[str, JSON], other: dict[str, JSON]) -> bool:
    if _UNEVALUATED & other.keys():
        return True
    if any(group & own.keys() and group & other.keys() for group in _TOGETHER):
        return True
    names_meet = _OF_NAMES & own.keys() and _OF_NAMES & other.keys()
    if names_meet and ("additionalProperties" in own or "additionalProperties" in other):
        return True
    return any(not _can_join(key, own[key], other[key]) for key in own.keys() & other.keys())


def _can_join(key: str, own: JSON, other: JSON) -> bool:
    if key in ANNOTATIONS or canonical(own) == canonical(other):
        return True
    if key in {"allOf", "required"}:
        return isinstance(own, list) and isinstance(other, list)
    if key in {"properties", "patternProperties"} and isinstance(own, dict) and isinstance(other, dict):
        return not own.keys() & other.keys()
    return False


def _joined(key: str, own: JSON, other: JSON) -> JSON:
    """The value of a keyword that both have, and that can be joined."""
    if key not in ANNOTATIONS and canonical(own) != canonical(other):
        if isinstance(own, list) and isinstance(other, list):
            return [*own, *(item for item in other if key == "allOf" or item not in own)]
        if isinstance(own, dict) and isinstance(other, dict):
            return {**own, **other}
    return own


def merged(left: JSON, right: JSON) -> JSON:
    """One schema for what both accept, as near as keywords can say it; the caller judges the outcome."""
    if left is False or right is False:
        return False
    if not isinstance(left, dict):
        return right
    if not isinstance(right, dict):
        return left
    both = dict(left)
    for keyword, value in right.items():
        both[keyword] = _RULES.get(keyword, _later)(left[keyword], value) if keyword in left else value
    return both


def _later(_left: JSON, right: JSON) -> JSON:
    return right


def _common(left: JSON, right: JSON) -> JSON:
    """The values of both lists, in the order of the first."""
    if not isinstance(left, list) or not isinstance(right, list):
        return right
    return [value for value in left if any(json_equal(value, other) for other in right)]


def _types(left: JSON, right: JSON) -> JSON:
    wanted = [left] if isinstance(left, str) else left
    others = [right] if isinstance(right, str) else right
    if not isinstance(wanted, list) or not isinstance(others, list):
        return right
    if "number" in wanted and "integer" in others:
        wanted = ["integer" if name == "number" else name for name in wanted]
    return [name for name in wanted if name in others or (name == "integer" and "number" in others)]


def _union(left: JSON, right: JSON) -> JSON:
    if not isinstance(left, list) or not isinstance(right, list):
        return right
    return left + [value for value in right if value not in left]


def _by_key(left: JSON, right: JSON) -> JSON:
    if not isinstance(left, dict) or not isinstance(right, dict):
        return right
    return {
        **left,
        **{key: merged(left[key], value) if key in left else value for key, value in right.items()},
    }


def _by_index(left: JSON, right: JSON) -> JSON:
    if not isinstance(left, list) or not isinstance(right, list):
        return right
    shared = [merged(one, other) for one, other in zip(left, right, strict=False)]
    return shared + (left if len(left) > len(right) else right)[len(shared) :]


def _either(left: JSON, right: JSON) -> JSON:
    return bool(left or right)


def _larger(left: JSON, right: JSON) -> JSON:
    return max(left, right) if _ordered(left, right) else right  # type: ignore[type-var]


def _smaller(left: JSON, right: JSON) -> JSON:
    return min(left, right) if _ordered(left, right) else right  # type: ignore[type-var]


def _ordered(left: JSON, right: JSON) -> bool:
    return isinstance(left, int | float) and isinstance(right, int | float)


def _multiple(left: JSON, right: JSON) -> JSON:
    """The least number that is a multiple of both."""
    if not isinstance(left, int | float) or not isinstance(right, int | float):
        return right
    one, other = Fraction(str(left)), Fraction(str(right))
    least = Fraction(
        math.lcm(one.numerator * other.denominator, other.numerator * one.denominator),
        one.denominator * other.denominator,
    )
    return least.numerator if least.denominator == 1 else float(least)


_RULES: dict[str, Callable[[JSON, JSON], JSON]] = {
    "type": _types,
    "enum": _common,
    "examples": _common,
    "required": _union,
    "properties": _by_key,
    "patternProperties": _by_key,
    "dependentSchemas": _by_key,
    "prefixItems": _by_index,
    "items": merged,
    "additionalProperties": merged,
    "propertyNames": merged,
    "contains": merged,
    "uniqueItems": _either,
    "multipleOf": _multiple,
    **dict.fromkeys(
        ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties", "minContains"), _larger
    ),
    **dict.fromkeys(
        ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties", "maxContains"), _smaller
    ),
}
