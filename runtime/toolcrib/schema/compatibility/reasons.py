"""Why it can't be shown that a schema takes everything that another one takes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from toolcrib.core.model import JSON
from toolcrib.core.subschemas import Path
from toolcrib.schema.compatibility import constraints as known
from toolcrib.schema.compatibility.constraints import Facts, Node, sameness, types_of


class Reason(NamedTuple):
    """Why it can't be shown that everything is taken.

    Attributes:
        keyword: The keyword of the wide schema that stands in the way; empty where it took too long.
        path: Where that stands, in the wide schema.
        detail: A type, the name of a property or a value as JSON that is not taken; empty where it is none of these.
    """

    keyword: str
    path: Path = ()
    detail: str = ""


def is_multiple(facts: Facts, factor: float) -> bool:
    """Whether facts let only multiples of a number through."""
    if factor == 1 and "number" not in types_of(facts):
        return True
    there = [node.said.get("multipleOf") for node in facts]
    whole = [each for each in there if isinstance(each, int) and not isinstance(each, bool)]
    return factor in there or (
        isinstance(factor, int) and factor > 0 and any(each % factor == 0 for each in whole)
    )


def reasons_of_size(
    facts: Facts, goal: Node, low: str, high: str, sizes: list[int] | None
) -> Iterator[Reason]:
    """Why bounds of a size do not follow; `sizes` are all that there are, where that is known."""
    bound = goal.said.get(low)
    if known.is_number(bound):
        there = known.least(facts, low) if sizes is None else min(sizes, default=bound)
        if there < bound:
            yield Reason(low, (*goal.site.path, low))
    bound = goal.said.get(high)
    if known.is_number(bound):
        most = known.most(facts, high) if sizes is None else max(sizes, default=0)
        if most is None or most > bound:
            yield Reason(high, (*goal.site.path, high))


def says(facts: Facts, keyword: str, value: JSON) -> bool:
    """Whether one of the facts says just this at a keyword."""
    return any(keyword in node.said and sameness(node.said[keyword]) == sameness(value) for node in facts)


def nearest(tries: list[list[Reason]]) -> list[Reason]:
    """The reasons of the alternative that is nearest: of the right type, and with the fewest faults."""
    if len(tries) > 1 and all(any(reason.keyword == "type" for reason in each) for each in tries):
        return []
    return min(
        tries, key=lambda each: (any(reason.keyword == "type" for reason in each), len(each)), default=[]
    )
