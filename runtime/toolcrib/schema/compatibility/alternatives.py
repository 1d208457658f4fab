"""The cases that there are for a value: those that can't be, and those that are to be followed one by one."""

from __future__ import annotations

from typing import Final

from toolcrib.schema.compatibility.constraints import (
    NUMBERS,
    TYPES,
    Facts,
    Node,
    expanded,
    made,
    members,
    others,
    patterned,
    required,
    types_of,
    values_of,
)

CASES: Final = 64
"""Values that are followed one by one."""


def is_impossible(facts: Facts, *, deep: bool = True) -> bool:
    """Whether no value at all fits the facts: for its types or values, or those of a property that it must have."""
    if any(node.site.schema is False for node in facts) or not types_of(facts) or values_of(facts) == {}:
        return True
    return (
        deep
        and types_of(facts) == {"object"}
        and any(is_impossible(expanded(members(facts, name)[0]), deep=False) for name in required(facts))
    )


def is_closed(facts: Facts) -> bool:
    """Whether an object has no properties but those that are named."""
    return any(node.site.schema is False for node in others(facts)) and not any(patterned(facts))


def alternatives_of(node: Node, keyword: str) -> list[Node]:
    """The schemas that `anyOf` or `oneOf` lists; none where one of them is no schema."""
    listed = node.said.get(keyword)
    found = [node.under(keyword, at) for at in range(len(listed) if isinstance(listed, list) else 0)]
    return [] if None in found else [each for each in found if each is not None]


def cases_of(facts: Facts, goal: Node) -> list[Facts]:
    """Facts with one more fact each, of which one is true in any case; none where nothing is left to tell apart."""
    for at, node in enumerate(facts):
        for keyword in ("anyOf", "oneOf"):
            alternatives = alternatives_of(node, keyword)
            if alternatives:
                flat = [each.flat() for each in (*facts[:at], *facts[at + 1 :])] + [node.without(keyword)]
                rest = [each for each in flat if each.said or each.site.schema is False]
                return [(*rest, each) for each in alternatives]
    choices = ("anyOf", "oneOf", "if", "not")
    if not any(keyword in part.said for part in expanded((goal,)) for keyword in choices):
        return []
    values, types = values_of(facts), types_of(facts)
    if values is not None and 1 < len(values) <= CASES:
        return [(*facts, made({"const": value})) for value in values.values()]
    if 1 < len(types) < len(TYPES) and not types <= NUMBERS:
        kinds = sorted((types - NUMBERS) | ({"number"} if "number" in types else types & {"integer"}))
        return [(*facts, made({"type": kind})) for kind in kinds]
    return []
