"""What packs and projects say of stores; how that is read is imported where one says anything."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolcrib.core.errors import Problem
from toolcrib.core.model import NO_FIXTURE, Collection, Fixture, Machine, Origin
from toolcrib.loading.documents.document import Document


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


def with_names(fixture: Fixture, value: Mapping[str, Any], scope_name: str) -> Fixture:
    """The fixture with the names of what is refused, so that who asks for it is not told that there is none.

    Args:
        fixture: What is sound of it.
        value: The whole document.
        scope_name: Name of the pack; empty outside packs.
    """
    told = {key: value[key] if isinstance(value.get(key), dict) else {} for key in ("store", "state")}
    collections = {
        name: Collection(name, f"{scope_name}/{name}", fault="it is refused")
        for name in told["store"]
        if name not in fixture.collections
    }
    machines = {
        name: Machine(name, f"{scope_name}/{name}", "")
        for name in told["state"]
        if name not in fixture.machines
    }
    if not collections and not machines:
        return fixture
    return Fixture({**fixture.collections, **collections}, {**fixture.machines, **machines})
