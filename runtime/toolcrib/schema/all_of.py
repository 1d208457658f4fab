"""Merge two schemas that must both hold into one.

`merge` takes the rules for keywords that both schemas have as `MergeRules`, because callers need different results if
no single keyword can express both:

- `EXACT` (dereferencing, through `conjoin`): merge only if every keyword keeps its meaning.
- The rules of `formats.providers.argument_schema` (tool declarations): use the tighter of two values; do not merge if
  an `allOf` would be needed.
- `CLOSEST` (generation, through `merge_closely`): always one schema, as close as keywords can express it. The caller
  validates the values that it generates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from enum import Enum
from fractions import Fraction
from typing import Any, Final, NamedTuple, TypeAlias

from toolcrib.core.model import JSON, Schema
from toolcrib.core.text import canonical, json_equal


class _Apart(Enum):
    APART = "apart"


APART: Final = _Apart.APART
"""The result of a rule if no single value of the keyword expresses both."""

Join: TypeAlias = Callable[[str, Any, Any], Any]
"""A keyword and its two values -> one value that expresses both, or `APART`."""


class MergeRules(NamedTuple):
    """How to merge keywords that both schemas have.

    Attributes:
        keywords: Keyword -> its rule.
        others: The rule of every other keyword.
    """

    keywords: Mapping[str, Join]
    others: Join


def merge(own: dict[str, JSON], other: dict[str, JSON], rules: MergeRules) -> dict[str, JSON] | None:
    """Merge two schemas, in the keyword order of the first; None if a rule returns `APART`."""
    merged: dict[str, Any] = dict(own)
    for keyword, value in other.items():
        if keyword in own:
            join = rules.keywords.get(keyword, rules.others)
            value = join(keyword, own[keyword], value)  # noqa: PLW2901 -- replaced by the joined value
            if value is APART:
                return None
        merged[keyword] = value
    return merged


# Rules shared by several callers.


def first(_keyword: str, own: Any, _other: Any) -> Any:
    """The value of the first schema."""
    return own


def only_equal(_keyword: str, own: Any, other: Any) -> Any:
    """The value if both are equal."""
    return own if canonical(own) == canonical(other) else APART


def union(_keyword: str, own: Any, other: Any) -> Any:
    """The items of both lists without duplicates."""
    if not isinstance(own, list) or not isinstance(other, list):
        return APART
    return [*own, *(item for item in other if item not in own)]


def larger(_keyword: str, own: Any, other: Any) -> Any:
    """The larger of two numbers; true if either is true."""
    # Booleans are numbers in Python, which serves `uniqueItems`.
    return max(own, other) if _are_numbers(own, other) else APART


def smaller(_keyword: str, own: Any, other: Any) -> Any:
    """The smaller of two numbers."""
    return min(own, other) if _are_numbers(own, other) else APART


def _are_numbers(own: Any, other: Any) -> bool:
    return isinstance(own, int | float) and isinstance(other, int | float)


TIGHTER: Final[Mapping[str, Join]] = {
    **dict.fromkeys(
        ("minimum", "exclusiveMinimum", "minLength", "minItems", "minProperties", "minContains"), larger
    ),
    **dict.fromkeys(
        ("maximum", "exclusiveMaximum", "maxLength", "maxItems", "maxProperties", "maxContains"), smaller
    ),
    "required": union,
    "uniqueItems": larger,
}
"""Keywords for which one value can express two."""

# Exact rules, for dereferencing.

ANNOTATIONS: Final = ("title", "description", "default", "examples", "$comment")
"""Keywords for readers. If both schemas have one, the inner one counts."""

_TOGETHER: Final = (
    frozenset(("items", "prefixItems", "additionalItems")),
    frozenset(("contains", "minContains", "maxContains")),
    frozenset(("if", "then", "else")),
)
"""Keywords that affect each other."""

_OF_NAMES: Final = frozenset(("properties", "patternProperties", "additionalProperties"))
_UNEVALUATED: Final = frozenset(("unevaluatedProperties", "unevaluatedItems"))


def conjoin(own: dict[str, JSON], other: Schema) -> Schema:
    """A schema that accepts what both accept, and evaluates what both evaluate.

    Args:
        own: A schema. Its `unevaluated...` keywords see what the other schema evaluates.
        other: The target of a reference next to it. Its `unevaluated...` keywords see nothing of the first schema.
    """
    if isinstance(other, bool):
        told: dict[str, JSON] = {key: own[key] for key in ANNOTATIONS if key in own}
        return (own or True) if other else {**told, "not": {}} if told else False
    if not own:
        return other
    if not own.keys() - set(ANNOTATIONS):
        return {**own, **{key: item for key, item in other.items() if key not in own}}
    whole = None if _must_stay_apart(own, other) else merge(own, other, EXACT)
    if whole is not None:
        return whole
    beside = own.get("allOf")
    return {**own, "allOf": [*(beside if isinstance(beside, list) else ()), other]}


def _must_stay_apart(own: dict[str, JSON], other: dict[str, JSON]) -> bool:
    """Whether a keyword would change its meaning next to the keywords of the other schema."""
    # JSON Schema 2020-12, core sections 7.7 and 10: the result of a keyword may depend on adjacent keywords,
    # such as `additionalProperties` on `properties`. An `allOf` keeps such schemas apart.
    if _UNEVALUATED & other.keys():
        return True
    if any(group & own.keys() and group & other.keys() for group in _TOGETHER):
        return True
    # `additionalProperties` applies to all names that the `properties` next to it do not list (section
    # 10.3.2.3): merging the lists would change these names.
    names_meet = _OF_NAMES & own.keys() and _OF_NAMES & other.keys()
    return bool(names_meet) and ("additionalProperties" in own or "additionalProperties" in other)


def _unless_equal(join: Join) -> Join:
    """A rule that is applied only to values that differ."""

    def unless_equal(keyword: str, own: Any, other: Any) -> Any:
        return own if canonical(own) == canonical(other) else join(keyword, own, other)

    return unless_equal


def _all(_keyword: str, own: Any, other: Any) -> Any:
    """The schemas of both lists."""
    return [*own, *other] if isinstance(own, list) and isinstance(other, list) else APART


def _side_by_side(_keyword: str, own: Any, other: Any) -> Any:
    """The members of both objects, if they have no name in common."""
    if not isinstance(own, dict) or not isinstance(other, dict) or own.keys() & other.keys():
        return APART
    return {**own, **other}


EXACT: Final = MergeRules(
    {
        **dict.fromkeys(ANNOTATIONS, first),
        "allOf": _unless_equal(_all),
        "required": _unless_equal(union),
        "properties": _unless_equal(_side_by_side),
        "patternProperties": _unless_equal(_side_by_side),
    },
    only_equal,
)
"""Every keyword keeps its meaning."""

# Approximate rules, for generation.


def merge_closely(left: JSON, right: JSON) -> JSON:
    """One schema for what both accept, as close as keywords can express it; the caller validates the values."""
    if left is False or right is False:
        return False
    if not isinstance(left, dict):
        return right
    if not isinstance(right, dict):
        return left
    return merge(left, right, CLOSEST)


def _later(_keyword: str, _left: JSON, right: JSON) -> JSON:
    return right


def _or_later(join: Join) -> Join:
    """A rule that falls back to the second value instead of `APART`."""

    def or_later(keyword: str, left: Any, right: Any) -> Any:
        joined = join(keyword, left, right)
        return right if joined is APART else joined

    return or_later


def _schemas(_keyword: str, left: JSON, right: JSON) -> JSON:
    return merge_closely(left, right)


def _common(_keyword: str, left: JSON, right: JSON) -> JSON:
    """The values of both lists, in the order of the first."""
    if not isinstance(left, list) or not isinstance(right, list):
        return right
    return [value for value in left if any(json_equal(value, other) for other in right)]


def _types(_keyword: str, left: JSON, right: JSON) -> JSON:
    wanted = [left] if isinstance(left, str) else left
    others = [right] if isinstance(right, str) else right
    if not isinstance(wanted, list) or not isinstance(others, list):
        return right
    # `integer` is a subset of `number`, so the narrower type is kept.
    if "number" in wanted and "integer" in others:
        wanted = ["integer" if name == "number" else name for name in wanted]
    return [name for name in wanted if name in others or (name == "integer" and "number" in others)]


def _by_key(_keyword: str, left: JSON, right: JSON) -> JSON:
    if not isinstance(left, dict) or not isinstance(right, dict):
        return right
    return {
        **left,
        **{key: merge_closely(left[key], value) if key in left else value for key, value in right.items()},
    }


def _by_index(_keyword: str, left: JSON, right: JSON) -> JSON:
    if not isinstance(left, list) or not isinstance(right, list):
        return right
    shared = [merge_closely(one, other) for one, other in zip(left, right, strict=False)]
    return shared + (left if len(left) > len(right) else right)[len(shared) :]


def _multiple(_keyword: str, left: JSON, right: JSON) -> JSON:
    """The least common multiple."""
    if not isinstance(left, int | float) or not isinstance(right, int | float):
        return right
    # Through str(), so that 0.1 means a tenth; the exact binary fraction would give absurd multiples.
    one, other = Fraction(str(left)), Fraction(str(right))
    least = Fraction(
        math.lcm(one.numerator * other.denominator, other.numerator * one.denominator),
        one.denominator * other.denominator,
    )
    return least.numerator if least.denominator == 1 else float(least)


CLOSEST: Final = MergeRules(
    {
        **{keyword: _or_later(join) for keyword, join in TIGHTER.items()},
        "type": _types,
        "enum": _common,
        "examples": _common,
        "properties": _by_key,
        "patternProperties": _by_key,
        "dependentSchemas": _by_key,
        "prefixItems": _by_index,
        "items": _schemas,
        "additionalProperties": _schemas,
        "propertyNames": _schemas,
        "contains": _schemas,
        "multipleOf": _multiple,
    },
    _later,
)
"""The second value counts if no keyword can express both."""
