"""The state of one session's mocks: rows, named states, sequence numbers; and the counters of its calls.

Nothing in a store is ever changed in place. A change makes a new `StoreVersion` that shares everything else with the
one before, so a fresh session costs nothing, undoing is forgetting, and what was handed out never moves.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from toolcrib.core.errors import ExpressionError
from toolcrib.core.model import JSON, NOTHING, Call, Collection, Fixture, Machine
from toolcrib.core.protocols import CallSession
from toolcrib.expressions import copy_value
from toolcrib.expressions.values import equal

Rows: TypeAlias = Mapping[str, JSON]
"""Key -> row, in the order of the store. Read it, never change it."""


class RowLayers:
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

    @property
    def ready(self) -> bool:
        """Whether all rows are together already."""
        return self._whole is not None

    def whole(self) -> Rows:
        """All rows; put together when they are first asked for."""
        if self._whole is None:
            self._whole = {**self.below, **self.above}
        return self._whole


class StoreVersion(NamedTuple):
    """One state of a session's store; only what differs from the fixtures is in it.

    Attributes:
        rows: Id of a collection -> its rows, of the collections that were written.
        states: Id of a machine -> its state, of those that were moved.
        numbers: Name of a sequence -> the last number that it gave.
    """

    rows: Mapping[str, RowLayers] = NOTHING
    states: Mapping[str, str] = NOTHING
    numbers: Mapping[str, int] = NOTHING


FRESH = StoreVersion()
"""The store of a session in which nothing was changed."""


class Store:
    """The store of one session. A fresh one is empty: nothing is copied before it is written.

    Attributes:
        version: As it is now.
        collections: Id -> the collections that were written.
    """

    __slots__ = ("_earlier", "collections", "version")

    def __init__(self) -> None:
        self.version = FRESH
        self.collections: dict[str, Collection] = {}
        self._earlier: dict[str, StoreVersion] = {}

    def commit(self, version: StoreVersion, written: Mapping[str, Collection]) -> None:
        """Make a version the current one; `written` is the collections that it may have changed."""
        earlier, self.version = self.version, version
        self.collections.update(written)
        moved = [known for known in written if version.rows.get(known) is not earlier.rows.get(known)]
        if version.states != earlier.states:
            moved += [known for known, state in version.states.items() if earlier.states.get(known) != state]
        for known in moved:  # whatever changed last stands last
            self._earlier.pop(known, None)
            self._earlier[known] = earlier

    def before(self, fixture: Fixture) -> StoreVersion | None:
        """As it was before the last change of a collection or a machine of a fixture; None where there was none."""
        ids = {each.id for kept in fixture for each in kept.values()}
        return next((self._earlier[known] for known in reversed(self._earlier) if known in ids), None)

    def rows(self, collection: Collection) -> dict[str, JSON]:
        """A copy of the rows of a collection as they are now (`Descriptor.fixture` has the collections of a tool).

        Raises:
            ExpressionError: They can't be had.
        """
        return {key: copy_value(row) for key, row in self.held(collection).items()}

    def held(self, collection: Collection) -> Rows:
        """The rows of a collection as they are now, which other sessions may share.

        Raises:
            ExpressionError: They can't be had.
        """
        layers = self.version.rows.get(collection.id)
        return rows_of(collection) if layers is None else layers.whole()

    def state(self, machine: Machine) -> str:
        """The state that a machine is in now."""
        return self.version.states.get(machine.id, machine.start)

    def changed(self) -> dict[str, dict[str, JSON]]:
        """Collection name -> key -> a copy of the row as it is now, of rows unequal to those of the beginning.

        A row that was deleted is None. Where collections of several packs have one name and were changed, each
        stands under its id: `retail/orders`.
        """
        written = [(self.collections[known], layers) for known, layers in self.version.rows.items()]
        changes = [(each, found) for each, layers in written if (found := _changes(each, layers))]
        names = Counter(each.name for each, _found in changes)
        return {each.name if names[each.name] == 1 else each.id: found for each, found in changes}


def _changes(collection: Collection, layers: RowLayers) -> dict[str, JSON]:
    """Key -> row, of the rows that differ from those of the beginning; None for those that are gone."""
    base = rows_of(collection)
    untouched = layers.below is base
    found = {
        key: row
        for key, row in (layers.above if untouched else layers.whole()).items()
        if key not in base or (row is not base[key] and not equal(row, base[key]))
    }
    gone = () if untouched else [key for key in base if key not in layers.whole()]
    return {key: copy_value(row) for key, row in found.items()} | dict.fromkeys(gone)


def store_of(session: CallSession) -> Store:
    """The store of a session."""
    return session.slot("store", Store)


def rows_by_collection(fixture: Fixture, version: StoreVersion) -> dict[str, Rows]:
    """Collection name -> its rows in a version: what expressions call `store`.

    Raises:
        ExpressionError: The rows of one can't be had.
    """
    written = version.rows
    return {
        name: rows_of(collection) if (layers := written.get(collection.id)) is None else layers.whole()
        for name, collection in fixture.collections.items()
    }


def state_by_machine(fixture: Fixture, version: StoreVersion) -> dict[str, JSON]:
    """Name of a machine -> its state in a version: what expressions call `state`."""
    return {name: version.states.get(machine.id, machine.start) for name, machine in fixture.machines.items()}


def rows_of(collection: Collection) -> Rows:
    """The rows that every session begins with: read once, shared by all, changed by none.

    Raises:
        ExpressionError: They can't be had: something is wrong with them, or their file was changed since.
    """
    rows = collection.rows
    if rows is None:
        raise lost_rows(collection, collection.fault, "run `toolcrib validate` to list all problems")
    return rows() if callable(rows) else rows


def lost_rows(collection: Collection, why: str, hint: str) -> ExpressionError:
    """The error of a mock that asks for rows that can't be read."""
    message = f"cannot read the rows of `{collection.name}`: {why}"
    return ExpressionError(message, code="rows_unreadable", hint=hint)


MOST = 10_000
"""Calls of one tool whose numbers are known; of more the latest."""


class CallCounter:
    """The calls of one tool in one session.

    A call keeps its number for as long as fewer than `MOST` others of its tool have begun since.

    Attributes:
        calls: How many there were; attempts and deliveries of one call count once.
    """

    __slots__ = ("_known", "calls")

    def __init__(self) -> None:
        self.calls = 0
        self._known: OrderedDict[str, int] = OrderedDict()

    def of(self, call: Call) -> int:
        """The number of a call, from 1; given at its first attempt that arrives."""
        number = self._known.get(call.id)
        if number is None:
            self.calls += 1
            number = self._known[call.id] = self.calls
            if len(self._known) > MOST:
                self._known.popitem(last=False)
        return number

    def would_be(self, call: Call) -> int:
        """The number that a call has, or would be given now."""
        return self._known.get(call.id, self.calls + 1)


def call_counter_of(session: CallSession, tool: str) -> CallCounter:
    """The calls of a tool in a session, as those count that let faults happen."""
    return session.slot(f"calls of {tool}", CallCounter)
