"""The changes of one call to the session's store. Other calls do not see them before `commit`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, cast

from toolcrib.core.errors import ExpressionError, did_you_mean
from toolcrib.core.model import JSON, NOTHING, Collection, Fixture, Schema
from toolcrib.core.protocols import Clock
from toolcrib.core.subschemas import cached_per_schema
from toolcrib.executors.mock.variables import as_text
from toolcrib.expressions.values import MOST_ITEMS, MOST_STEPS, StepBudget, list_of_names, shortened
from toolcrib.schema.validation import Validator
from toolcrib.simulation.store import (
    MOST_PENDING,
    NO_CHANGES,
    FailedEffect,
    PendingEffect,
    RowChanges,
    RowLayers,
    Rows,
    Store,
    StoreVersion,
    is_small_row,
    rows_of,
    state_by_machine,
)

MOST_ROWS: Final = 100_000
"""The number of rows up to which calls may grow a collection."""


class _Table:
    """A collection within one call.

    Attributes:
        collection: The collection.
        layers: The committed rows.
        changes: What the call has changed.
        pointers: Key of a written row -> JSON Pointer of the effect that wrote it.
        merged: The rows with the changes, until the next change; None if nobody has read them.
    """

    __slots__ = ("changes", "collection", "layers", "merged", "pointers")

    def __init__(self, collection: Collection, layers: RowLayers) -> None:
        self.collection = collection
        self.layers = layers
        self.changes = NO_CHANGES
        self.pointers: dict[str, str] = {}
        self.merged: RowLayers | None = None


class UnitOfWork(StepBudget):
    """The store as one call sees and changes it, and the work that the call may still do.

    Rows are never changed in place: a row that was handed out keeps its content.

    Args:
        store: The store of the session.
        fixture: The initial content of the store for the tool.
        version: An earlier version to work on, which must not be committed; None for the current one.
        pack: The pack of the tool. Sequence numbers of `seq` are counted per pack.

    Attributes:
        changed: Whether there are changes to commit.
    """

    __slots__ = (
        "_fixture",
        "_numbers",
        "_pack",
        "_pending",
        "_states",
        "_store",
        "_tables",
        "_version",
        "_written",
        "changed",
    )

    def __init__(
        self, store: Store, fixture: Fixture, version: StoreVersion | None = None, pack: str = ""
    ) -> None:
        # Without `super()`: a call of a stateful mock makes one of these, which is measurable.
        self.left = MOST_ITEMS
        self.steps = MOST_STEPS
        self.changed = False
        self._store = store
        self._fixture = fixture
        self._pack = pack
        self._version = store.version if version is None else version
        self._tables: dict[str, _Table] = {}
        self._written: list[_Table] = []
        self._states: Mapping[str, str] = NOTHING
        self._numbers: Mapping[str, int] = NOTHING
        self._pending: tuple[tuple[PendingEffect, Clock], ...] = ()

    def store(self) -> dict[str, Rows]:
        """Collection name -> its current rows within this call: the variable `store` of expressions."""
        # A collection whose file cannot be read must fail only the calls that read it.
        found: dict[str, Rows] = {}
        lost: dict[str, ExpressionError] = {}
        for name in self._fixture.collections:
            try:
                found[name] = self.rows(name)
            except ExpressionError as error:
                lost[name] = error
        return _Incomplete(found, lost) if lost else found

    def rows(self, name: str) -> dict[str, JSON]:
        """The current rows of a collection. The mapping is a snapshot and must not be changed.

        Raises:
            ExpressionError: The rows cannot be read.
        """
        table = self._tables.get(name) or self._table(name)
        layers = table.layers
        if table.changes is not NO_CHANGES:
            if table.merged is None:
                table.merged = RowLayers(layers.below, (table.changes, *layers.changes))
            layers = table.merged
        if not layers.ready:
            self.copy(len(layers.below))
        return cast("dict[str, JSON]", layers.whole())

    def row(self, name: str, key: str) -> JSON:
        """The current content of a row; None if there is no such row.

        Raises:
            ExpressionError: As `rows`.
        """
        table = self._tables.get(name) or self._table(name)
        changes = table.changes
        if changes is not NO_CHANGES:
            if key in changes.rows:
                return changes.rows[key]
            if key in changes.gone:
                return None
        return table.layers.row(key)

    def has(self, name: str, key: str) -> bool:
        """Whether a collection has a row with a key.

        Raises:
            ExpressionError: As `rows`.
        """
        table = self._tables.get(name) or self._table(name)
        changes = table.changes
        return key in changes.rows or (key not in changes.gone and table.layers.has(key))

    def _table(self, name: str) -> _Table:
        """The table of a collection that was not read before."""
        collection = self._fixture.collections[name]
        known = self._version.rows.get(collection.id)
        table = self._tables[name] = _Table(
            collection, RowLayers(rows_of(collection)) if known is None else known
        )
        return table

    def _changes_of(self, table: _Table) -> RowChanges:
        """The changes of a collection, to be changed by the caller."""
        table.merged = None
        if table.changes is NO_CHANGES:
            self.changed = True
            table.changes = RowChanges({}, {})
            self._written.append(table)
        return table.changes

    def put(self, name: str, key: str, row: JSON, pointer: str) -> None:
        """Write the row of a key.

        Args:
            name: The collection.
            key: The key.
            row: The row, which must not be changed afterwards.
            pointer: JSON Pointer of the effect, for the errors of `check`.

        Raises:
            ExpressionError: The collection has too many rows.
        """
        table = self._tables.get(name) or self._table(name)
        # The sum counts replaced rows twice; the exact count is taken only close to the limit.
        crowded = table.layers.most + len(table.changes.rows) >= MOST_ROWS
        if crowded and not self.has(name, key) and len(self.rows(name)) >= MOST_ROWS:
            raise ExpressionError(f"`{name}` would exceed {MOST_ROWS:,} rows")
        self.replace(name, key, row, pointer)

    def replace(self, name: str, key: str, row: JSON, pointer: str) -> None:
        """Write an existing row; see `put`."""
        table = self._tables.get(name) or self._table(name)
        self._changes_of(table).rows[key] = row
        table.pointers[key] = pointer

    def remove(self, name: str, key: str) -> None:
        """Delete an existing row."""
        table = self._tables.get(name) or self._table(name)
        changes = self._changes_of(table)
        changes.rows.pop(key, None)
        table.pointers.pop(key, None)
        changes.gone[key] = None

    def free_key(self, name: str) -> str:
        """The next number, as text, that has not been a row key of the collection in this session."""
        collection = self._fixture.collections[name]
        # `#` keeps the counter of keys apart from the sequence of the same name.
        counter = f"{collection.id}#"
        last = self._numbers.get(counter, self._version.numbers.get(counter, 0))
        # Initial rows usually have the keys 1 to n.
        number = max(last, len(rows_of(collection))) + 1
        while self.has(name, str(number)):
            number += 1
        self._numbers = {**self._numbers, counter: number}
        return str(number)

    def count(self, name: str, first: int) -> int:
        """The next number of a sequence of the pack, starting at `first`: the function `seq` of expressions.

        A sequence with the name of a collection belongs to that collection, and all packs share it.
        """
        collection = self._fixture.collections.get(name)
        counter = f"{self._pack}/{name}" if collection is None else collection.id
        last = self._numbers.get(counter, self._version.numbers.get(counter))
        number = first if last is None else last + 1
        # Only a call that commits uses the number up.
        self._numbers = {**self._numbers, counter: number}
        self.changed = True
        return number

    def states(self) -> dict[str, JSON]:
        """Name of a machine -> its current state: the variable `state` of expressions."""
        return {**state_by_machine(self._fixture, self._version), **self._states}

    def go(self, machine: str, state: JSON) -> None:
        """Set the state of a machine.

        Raises:
            ExpressionError: The machine has no such state.
        """
        allowed = self._fixture.machines[machine].states
        if not isinstance(state, str) or (allowed and state not in allowed):
            raise unknown_state(machine, state, allowed)
        self._states = {**self._states, machine: state}
        self.changed = True

    def defer(self, effect: PendingEffect, clock: Clock) -> None:
        """Apply an effect later, if this unit of work is committed.

        Raises:
            ExpressionError: The session has too many pending effects.
        """
        if self._store.pending_count + len(self._pending) >= MOST_PENDING:
            raise ExpressionError(f"the session has more than {MOST_PENDING:,} pending effects")
        self._pending = (*self._pending, (effect, clock))
        self.changed = True

    @property
    def failed(self) -> list[FailedEffect]:
        """The pending effects of the session that could not be applied and were not reported yet."""
        return self._store.failed

    def later(self) -> UnitOfWork:
        """A unit of work for a pending effect, on the version that is then the current one."""
        return UnitOfWork(self._store, self._fixture, pack=self._pack)

    def check(self) -> None:
        """Check that every written row is valid for its collection.

        Raises:
            ExpressionError: A row is invalid; the error has the pointer of the effect that wrote it.
        """
        # Checked once at the end: between two effects a row may well be incomplete.
        for table in self._written:
            for key, pointer in table.pointers.items():
                try:
                    _check_row(table.collection, key, table.changes.rows[key])
                except ExpressionError as error:
                    raise error.under(pointer) from None

    def commit(self) -> None:
        """Make the changes the current version of the session's store."""
        if not self.changed:
            return
        rows, states, numbers = self._version
        written: list[Collection] = []
        if self._written:
            rows = {**rows}
            for table in self._written:
                written.append(table.collection)
                rows[table.collection.id] = table.layers.then(table.changes)
            self._tables, self._written = {}, []
        if self._states:
            machines = self._fixture.machines
            states = {**states, **{machines[name].id: state for name, state in self._states.items()}}
        if self._numbers:
            numbers = {**numbers, **self._numbers}
        self._version = StoreVersion(rows, states, numbers)
        self._store.commit(self._version, written)
        for effect, clock in self._pending:
            self._store.defer(effect, clock)
        self._pending = ()
        self.changed = False


def unknown_state(machine: str, state: JSON, allowed: tuple[str, ...]) -> ExpressionError:
    """The error for a state that a machine does not have."""
    if not isinstance(state, str):
        return ExpressionError(
            f"a state of `{machine}` must be text, not {as_text(state)}", code="unknown_state"
        )
    message = (
        f"unknown state `{shortened(state)}` of `{machine}`; its states are {list_of_names(list(allowed))}"
    )
    return ExpressionError(message, code="unknown_state", hint=did_you_mean(state, allowed))


class _Incomplete(dict[str, Rows]):
    """A store with unreadable collections. Reading one of them raises its error."""

    __slots__ = ("_lost",)

    def __init__(self, found: Mapping[str, Rows], lost: Mapping[str, ExpressionError]) -> None:
        super().__init__(found)
        self._lost = lost

    def __missing__(self, name: str) -> Rows:
        if name in self._lost:
            raise self._lost[name]
        raise KeyError(name)

    # `dict.get` does not call `__missing__`.
    def get(self, name: str, otherwise: Any = None) -> Any:
        return self[name] if name in self or name in self._lost else otherwise


@cached_per_schema
def _validator(schema: Schema | None) -> Validator:
    return Validator(True if schema is None else schema)


def _check_row(collection: Collection, key: str, row: JSON) -> None:
    name, field = collection.name, collection.key
    if field and (not isinstance(row, dict) or as_text(row.get(field)) != key):
        held = as_text(row.get(field)) if isinstance(row, dict) else "nothing"
        message = f"`{field}` of row `{shortened(key)}` in `{name}` does not equal its key: {shortened(held)}"
        raise ExpressionError(message, code="row_breaks_schema", hint=f"`{field}` holds the row key")
    if collection.schema is None:
        if not isinstance(row, dict):
            raise ExpressionError(f"a row of `{name}` must be an object", code="row_breaks_schema")
        return
    validator = _validator(collection.schema)
    # `is_valid` walks through the row, which the result of the call often did already.
    if not (validator.judge(row) if is_small_row(row) else validator.is_valid(row)):
        fault = validator.faults(row)[0]
        message = f"row `{shortened(key)}` of `{name}` would not match its schema: {fault.for_model()}"
        raise ExpressionError(message, code="row_breaks_schema", hint=fault.hint)
