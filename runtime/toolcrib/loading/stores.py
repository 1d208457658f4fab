"""The rows of collections: where a store begins."""

from __future__ import annotations

from toolcrib.model import JSON, Collection


def rows_of(collection: Collection) -> dict[str, JSON]:
    """The rows of a collection by key, read once; whoever reads them changes nothing.

    Raises:
        DocumentError: The rows can't be read any more.
    """
    rows = collection.rows
    return rows if isinstance(rows, dict) else {}
