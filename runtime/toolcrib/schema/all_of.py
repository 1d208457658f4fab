"""One schema for two that must both hold.

`merge` is the one implementation. What becomes of a keyword that both schemas have is a parameter, `MergeRules`,
because callers need different things where no keyword can say both:

- `EXACT` (dereferencing, by `conjoin`): a keyword stays as it is or nothing is merged, so that no keyword means
  something else than before. JSON Schema 2020-12, core 7.7 and 10: what a keyword says may depend on the keywords
  beside it.
- The rules of `formats.providers.argument_schema` (tool declarations): the tighter of two values; nothing is merged
  where `allOf` is needed to say both.
- `CLOSEST` (generation, by `merge_closely`): always one schema, as near as keywords can say it. The caller validates
  the values that it makes of it.
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
"""What a rule gives where no value of the keyword says what both say."""

Join: TypeAlias = Callable[[str, Any, Any], Any]
"""A keyword and its two values -> one value that says both, or `APART`."""


class MergeRules(NamedTuple):
    """What becomes of the keywords that two schemas have both.

    Attributes:
        keywords: Keyword -> its rule.
        others: The rule of every other keyword.
    """

    keywords: Mapping[str, Join]
    others: Join


def merge(own: dict[str, JSON], other: dict[str, JSON], rules: MergeRules) -> dict[str, JSON] | None:
    """The keywords of two schemas in one, in the order of the first; None where a rule says `APART`."""
    merged: dict[str, Any] = dict(own)
    for keyword, value in other.items():
        if keyword in own:
            join = rules.keywords.get(keyword, rules.others)
            value = join(keyword, own[keyword], value)  # noqa: PLW2901 -- the joined value takes its place
            if value is APART:
                return None
        merged[keyword] = value
    return merged


# Rules that callers share.


def first(_keyword: str, own: Any, _other: Any) -> Any:
    """The value of the first schema."""
    return own


def only_equal(_keyword: str, own: Any, other: Any) -> Any:
    """The value that both have."""
    return own if canonical(own) == canonical(other) else APART


def union(_keyword: str, own: Any, other: Any) -> Any:
    """The items of both lists, each once."""
    if not isinstance(own, list) or not isinstance(other, list):
        return APART
    return [*own, *(item for item in other if item not in own)]


def larger(_keyword: str, own: Any, other: Any) -> Any:
    """The larger of two numbers; true of true and false."""
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
"""Keywords of which one value says what two say."""

# Exactly: for dereferencing.

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
    whole = None if _must_stay_apart(own, other) else merge(own, other, EXACT)
    if whole is not None:
        return whole
    beside = own.get("allOf")
    return {**own, "allOf": [*(beside if isinstance(beside, list) else ()), other]}


def _must_stay_apart(own: dict[str, JSON], other: dict[str, JSON]) -> bool:
    """Whether a keyword would mean something else beside the keywords of the other schema."""
    if _UNEVALUATED & other.keys():
        return True
    if any(group & own.keys() and group & other.keys() for group in _TOGETHER):
        return True
    names_meet = _OF_NAMES & own.keys() and _OF_NAMES & other.keys()
    return bool(names_meet) and ("additionalProperties" in own or "additionalProperties" in other)


def _unless_equal(join: Join) -> Join:
    """The rule for values that differ."""

    def unless_equal(keyword: str, own: Any, other: Any) -> Any:
        return own if canonical(own) == canonical(other) else join(keyword, own, other)

    return unless_equal


def _all(_keyword: str, own: Any, other: Any) -> Any:
    """The schemas of both lists."""
    return [*own, *other] if isinstance(own, list) and isinstance(other, list) else APART


def _side_by_side(_keyword: str, own: Any, other: Any) -> Any:
    """The members of both objects, which have no name in common."""
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
"""No keyword means something else than before."""

# As near as keywords can say it: for generation.


def merge_closely(left: JSON, right: JSON) -> JSON:
    """One schema for what both accept, as near as keywords can say it; the caller validates the outcome."""
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
    """The rule, and the later value where it says `APART`."""

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
    """The least number that is a multiple of both."""
    if not isinstance(left, int | float) or not isinstance(right, int | float):
        return right
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
"""The later value counts where no keyword can say both."""
