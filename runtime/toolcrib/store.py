"""What the mocks of one session keep: rows, named states, numbers given out.

Nothing in it is ever changed in place. A change makes a new `Version` that shares everything else with the
one before, so a fresh session costs nothing, undoing is forgetting, and what was handed out never moves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from toolcrib.model import JSON, NOTHING, Collection, Fixture, Machine
from toolcrib.protocols import Session
from toolcrib.rendering.values import equal

Rows: TypeAlias = Mapping[str, JSON]
"""Key -> row, in the order of the store. Read it, never change it."""


class Layers:
    """The rows of a collection as two layers, so that a change of few rows costs few.

    Attributes:
        below: Many rows, which others may share. Never changed.
        above: Rows that take the place of those of their keys, or come after them. Never changed.
    """

    __slots__ = ("_whole", "above", "below")

    def __init__(self, below: Rows, above: Rows = NOTHING) -> None:
        self.below = below
        self.above = above
        self._whole: Rows | None = None if above else below

    def whole(self) -> Rows:
        """All rows; put together when they are first asked for."""
        if self._whole is None:
            self._whole = {**self.below, **self.above}
        return self._whole


class Version(NamedTuple):
    """One state of a session's store; only what differs from the fixtures is in it.

    Attributes:
        rows: Id of a collection -> its rows, of the collections that were written.
        states: Id of a machine -> its state, of those that were moved.
        numbers: Name of a sequence -> the last number that it gave.
    """

    rows: Mapping[str, Layers] = NOTHING
    states: Mapping[str, str] = NOTHING
    numbers: Mapping[str, int] = NOTHING


FRESH = Version()
"""The store of a session in which nothing was changed."""


class Store:
    """The store of one session. A fresh one is empty: nothing is copied before it is written.

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

    def rows(self, collection: Collection) -> Rows:
        """The rows of a collection as they are now (`Descriptor.fixture` has the collections of a tool).

        Raises:
            ExpressionError: They can't be had.
        """
        layers = self.version.rows.get(collection.id)
        return rows_of(collection) if layers is None else layers.whole()

    def state(self, machine: Machine) -> str:
        """The state that a machine is in now."""
        return self.version.states.get(machine.id, machine.start)

    def changed(self) -> dict[str, dict[str, JSON]]:
        """Collection name -> key -> the row as it is now, of rows unequal to those that the session began with.

        A row that was deleted is None. Where collections of several packs have one name and were changed, each
        stands under its id: `retail/orders`.
        """
        written = [(self.collections[known], layers) for known, layers in self.version.rows.items()]
        changes = [(each, found) for each, layers in written if (found := _changes(each, layers))]
        names = Counter(each.name for each, _found in changes)
        return {each.name if names[each.name] == 1 else each.id: found for each, found in changes}


def _changes(collection: Collection, layers: Layers) -> dict[str, JSON]:
    """Key -> row, of the rows that differ from those of the beginning; None for those that are gone."""
    base = rows_of(collection)
    untouched = layers.below is base
    found = {
        key: row
        for key, row in (layers.above if untouched else layers.whole()).items()
        if key not in base or (row is not base[key] and not equal(row, base[key]))
    }
    return found if untouched else found | {key: None for key in base if key not in layers.whole()}


def store_of(session: Session) -> Store:
    """The store of a session."""
    return session.slot("store", Store)


def view(fixture: Fixture, version: Version) -> dict[str, Rows]:
    """Collection name -> its rows in a version: what expressions call `store`.

    Raises:
        ExpressionError: The rows of one can't be had.
    """
    written = version.rows
    return {
        name: rows_of(collection) if (layers := written.get(collection.id)) is None else layers.whole()
        for name, collection in fixture.collections.items()
    }


def states(fixture: Fixture, version: Version) -> dict[str, JSON]:
    """Name of a machine -> its state in a version: what expressions call `state`."""
    return {name: version.states.get(machine.id, machine.start) for name, machine in fixture.machines.items()}


def rows_of(collection: Collection) -> Rows:
    """The rows that every session begins with: read once, shared by all, changed by none.

    Raises:
        ExpressionError: They can't be had: something is wrong with them, or their file was changed since.
    """
    if collection.rows is not None:
        return collection.rows
    from toolcrib.loading.stores import rows_of as read  # noqa: PLC0415 -- only what comes from an index is read

    return read(collection)
