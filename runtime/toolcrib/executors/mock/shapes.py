"""What the schema of a collection says of places in its rows."""

from __future__ import annotations

from collections.abc import Sequence

from toolcrib.model import Schema
from toolcrib.subschemas import SchemaIndex, Site, closed_names


def known_keys(schema: Schema, path: Sequence[str | None]) -> frozenset[str] | None:
    """The keys that an object at a place of a row may have.

    Args:
        schema: That of a row.
        path: The keys that lead there; None for a key or position that only a call knows.

    Returns:
        None where the schema allows more than it names, or says nothing of the place.
    """
    index = SchemaIndex(schema)
    sites: list[Site] = index.together([index.root])
    for step in path:
        sites = index.together(_below(index, sites, step))
    closed = [names for site in sites if (names := closed_names(site.schema)) is not None]
    return frozenset.intersection(*map(frozenset, closed)) if closed else None


def _below(index: SchemaIndex, sites: Sequence[Site], step: str | None) -> list[Site]:
    if step is not None:
        return index.below(sites, step)
    return [*index.below(sites, "\0"), *index.below(sites, 0)]
