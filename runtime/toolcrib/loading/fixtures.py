"""What packs and projects say of stores; how that is read is imported where one says anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolcrib.errors import Problem
from toolcrib.loading.documents import Document
from toolcrib.model import NO_FIXTURE, Fixture, Origin


def fixture_of(
    said: Mapping[str, Any], origin: Origin, scope_name: str, document: Document
) -> tuple[Fixture, tuple[Problem, ...]]:
    """What a document declares under `store` and `state`, and all that is wrong with it, placed."""
    if "store" not in said and "state" not in said:
        return NO_FIXTURE, ()
    from toolcrib.loading.stores import parse_fixture  # noqa: PLC0415 -- many packs and projects keep nothing

    faults: list[Problem] = []
    fixture = parse_fixture(said, origin, scope_name, faults)
    return fixture, tuple(document.place(fault) for fault in faults)
