"""How much work it would be to tell all that is wrong with a value.

jsonschema-rs judges in linear time, but gathers the errors of every branch of every `anyOf` and
`oneOf`: under a schema that comes back to itself through two branches, like one of expressions,
they double with each level of the value. This counts them beforehand.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cached_property
from typing import Final

from toolcrib.core.model import JSON
from toolcrib.core.subschemas import IN_PLACE, Key, SchemaIndex, Site, children

_BEARABLE: Final = 2_000
"""Judgements that are always borne, whatever the schema."""

_OVERLAP: Final = 4
"""Judgements for each pair of a subschema and a place; where none is made twice it is one."""

_PAIRS: Final = 20_000
"""Pairs that are counted before the count is given up."""


class _TooManyError(Exception):
    """The count is given up."""


class Effort:
    """Counts the judgements that the values of a schema need."""

    def __init__(self, index: SchemaIndex) -> None:
        self._index = index

    def too_much(self, site: Site, value: JSON) -> bool:
        """Whether telling the errors of a value under a subschema takes too much work."""
        if self.ways:
            return False
        counts: dict[tuple[Key, int], int] = {}
        try:
            total = self._count(site, value, counts)
        except (_TooManyError, RecursionError):
            return True
        return total > _BEARABLE + _OVERLAP * len(counts)

    @cached_property
    def ways(self) -> int:
        """In how many ways the schema judges one value, where these are few and none comes back to itself; else 0."""
        ways: dict[Key, int] = {}
        under_way: set[Key] = set()
        stack: list[tuple[Site, bool]] = [(self._index.root, False)]
        while stack:
            site, left = stack.pop()
            if left:
                under_way.discard(site.key)
                ways[site.key] = 1 + sum(ways[inner.key] for inner in self._onward(site))
                if ways[site.key] > _BEARABLE:
                    return 0
            elif site.key in under_way:
                return 0
            elif site.key not in ways:
                under_way.add(site.key)
                stack.append((site, True))
                stack += [(inner, False) for inner in self._onward(site)]
        return ways[self._index.root.key]

    def _onward(self, site: Site) -> Iterator[Site]:
        yield from (target for _, _, target in self._index.targets(site) if target is not None)
        yield from (self._index.child(site, path, schema) for path, schema in children(site.schema))

    def _count(self, site: Site, value: JSON, counts: dict[tuple[Key, int], int]) -> int:
        pair = (site.key, id(value))
        if pair not in counts:
            if len(counts) >= _PAIRS:
                raise _TooManyError
            counts[pair] = 1
            counts[pair] += sum(self._count(each, value, counts) for each in self._beside(site))
            counts[pair] += sum(
                self._count(each, item, counts)
                for key, item in members(value)
                for each in self._index.below([site], key)
            )
        return counts[pair]

    def _beside(self, site: Site) -> Iterator[Site]:
        yield from (target for _, _, target in self._index.targets(site) if target is not None)
        yield from self._index.at_keywords(site, IN_PLACE)


def members(value: object) -> Iterator[tuple[str | int, JSON]]:
    """The members of an object or array with their keys; nothing of other values."""
    if isinstance(value, dict):
        yield from value.items()
    elif isinstance(value, list):
        yield from enumerate(value)
