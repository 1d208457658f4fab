"""What the mocks of one session keep: rows, named states, numbers given out.

Nothing in it is ever changed in place. A change makes a new `Version` that shares everything else with the
one before, so a fresh session costs nothing, undoing is forgetting, and what was handed out never moves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from toolcrib.model import JSON, NOTHING, Collection, Fixture
from toolcrib.protocols import Session
from toolcrib.rendering.values import equal

Rows: TypeAlias = Mapping[str, JSON]
"""Key -> row, in the order of the store. Read it, never change it."""


class Version(NamedTuple):
    """One state of a session's store; only what differs from the fixtures is in it.

    Attributes:
        rows: Id of a collection -> all of its rows, of the collections that were written.
        states: Id of a machine -> its state, of those that were moved.
        numbers: Name of a sequence -> the last number that it gave.
    """

    rows: Mapping[str, Rows] = NOTHING
    states: Mapping[str, str] = NOTHING
    numbers: Mapping[str, int] = NOTHING


FRESH = Version()
"""The store of a session in which nothing was changed."""


class Store:
    """The store of one session.

    Attributes:
        version: As it is now.
        before: As it was before the last change; `FRESH` while there was none.
        collections: Id -> the collections that were written.
    """

    __slots__ = ("before", "collections", "version")

    def __init__(self) -> None:
        self.version = FRESH
        self.before = FRESH
        self.collections: dict[str, Collection] = {}

    def commit(self, version: Version, written: Mapping[str, Collection]) -> None:
        """Make a version the current one; `written` is the collections that it may have changed."""
        self.before, self.version = self.version, version
        self.collections.update(written)

    def changed(self) -> dict[str, dict[str, JSON]]:
        """Collection name -> key -> the row as it is now, of rows unequal to those that the session began with.

        A row that was deleted is None.
        """
        found = {}
        for id, rows in self.version.rows.items():  # noqa: A001
            collection = self.collections[id]
            base = rows_of(collection)
            changes = {
                key: row
                for key, row in rows.items()
                if key not in base or (row is not base[key] and not equal(row, base[key]))
            }
            changes |= {key: None for key in base if key not in rows}
            if changes:
                found[collection.name] = changes
        return found


def store_of(session: Session) -> Store:
    """The store of a session."""
    return session.slot("store", Store)


def view(fixture: Fixture, version: Version) -> dict[str, Rows]:
    """Collection name -> its rows in a version: what expressions call `store`."""
    written = version.rows
    return {
        name: rows if (rows := written.get(collection.id)) is not None else rows_of(collection)
        for name, collection in fixture.collections.items()
    }


def states(fixture: Fixture, version: Version) -> dict[str, JSON]:
    """Name of a machine -> its state in a version: what expressions call `state`."""
    return {
        name: version.states.get(machine.id, machine.start) for name, machine in fixture.machines.items()
    }


def rows_of(collection: Collection) -> Rows:
    """The rows that every session begins with: read once, shared by all, changed by none."""
    from toolcrib.loading.stores import rows_of as read  # noqa: PLC0415 -- most tools keep nothing

    return read(collection)
