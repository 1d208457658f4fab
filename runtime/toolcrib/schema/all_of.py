"""Two schemas that must both hold, as one.

JSON Schema 2020-12, core 7.7 and 10: what a keyword says may depend on the keywords beside it, so keywords are put
into one object only where none of them then means anything else.
"""

from __future__ import annotations

from typing import Final

from toolcrib.core.model import JSON, Schema
from toolcrib.core.text import canonical

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
