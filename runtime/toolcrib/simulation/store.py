"""The state of a session's mocks: rows, state machines and sequence numbers; and the counters of its calls.

A store is never changed in place. Each change creates a new `StoreVersion` that shares all unchanged parts
with the previous one. A fresh session therefore costs nothing, an undo only drops a version, and rows that
were handed out never change.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from heapq import heappop, heappush
from itertools import count
from typing import Final, NamedTuple, TypeAlias

from toolcrib.core.clock import format_time
from toolcrib.core.errors import ExpressionError, did_you_mean
from toolcrib.core.model import JSON, NOTHING, Call, Collection, Descriptor, Fixture, Machine
from toolcrib.core.protocols import CallSession, Clock
from toolcrib.expressions import copy_value
from toolcrib.expressions.values import equal
from toolcrib.schema.validation.json_values import SMALL, remaining_budget

Rows: TypeAlias = Mapping[str, JSON]
"""Key -> row, in the order of the store. Must not be changed."""


ROW_DEPTH: Final = 64
"""Nesting up to which `is_small_row` accepts a row."""

_KNOWN_ROWS: Final = 1024
"""The number of rows whose check is remembered."""


_small_rows: dict[int, tuple[JSON, int, bool]] = {}
"""`id` of a checked row -> the row, so that no other value can get its id; what it leaves of the weight `SMALL`; and
whether it was checked as a whole, and not made from a checked one."""


def is_small_row(row: JSON) -> bool:
    """Whether a row is a plain JSON object or list, at most `ROW_DEPTH` levels deep, with a weight of at most `SMALL`.

    Since rows are never changed in place, each of them is checked once.
    """
    if id(row) in _small_rows:
        return True
    if type(row) is not dict and type(row) is not list:
        return False
    left = remaining_budget(row, ROW_DEPTH, SMALL)
    if left < 0:
        return False
    _remember(row, left, initial=True)
    return True


def note_small_row(row: JSON, before: JSON, added: JSON, depth: int) -> None:
    """Remember that a changed row is small, if the row was small before. Only what was added is walked through.

    Args:
        row: The row.
        before: The row before the change.
        added: The list or object of all values that only the changed row has.
        depth: The number of levels around these values.
    """
    known = _small_rows.get(id(before))
    if known is None or depth >= ROW_DEPTH:
        return
    _before, left, initial = known
    # What was replaced is not subtracted: a row that is changed often is checked as a whole now and then.
    left = remaining_budget(added, ROW_DEPTH - depth, left)
    if left < 0:
        return
    # Nobody reads a replaced row again, except an initial one. Held rows would be memory that is no longer in the
    # processor's cache when it is used again, which takes longer than the whole call.
    if not initial:
        _small_rows.pop(id(before), None)
    _remember(row, left, initial=False)


def _remember(row: JSON, left: int, *, initial: bool) -> None:
    if len(_small_rows) >= _KNOWN_ROWS:
        _small_rows.clear()
    _small_rows[id(row)] = (row, left, initial)


class RowChanges:
    """Changes of a collection: rows that are removed first, then rows that are written.

    Attributes:
        rows: Rows that replace rows of the same key, or follow them.
        gone: The keys of the removed rows. A row that is also in `rows` moves to the end.
    """

    __slots__ = ("gone", "rows")

    def __init__(self, rows: dict[str, JSON], gone: dict[str, None]) -> None:
        self.rows = rows
        self.gone = gone  # a dict, because its order is that of the removals

    @property
    def size(self) -> int:
        """The number of rows and keys that merging copies."""
        return len(self.rows) + len(self.gone)

    def then(self, later: RowChanges) -> RowChanges:
        """These changes, followed by others."""
        if not later.gone:
            return RowChanges(self.rows | later.rows, self.gone)
        kept = {key: row for key, row in self.rows.items() if key not in later.gone}
        return RowChanges(kept | later.rows, self.gone | later.gone)


NO_CHANGES = RowChanges({}, {})

_GROWTH: Final = 4


class RowLayers:
    """The rows of a collection in layers, so that a change costs as much as the rows that it writes.

    Attributes:
        below: The base rows, which versions and sessions share. Never changed.
        changes: The changes of the base rows, the latest first. Never changed.
    """

    # Each of the changes is more than `_GROWTH` times as large as the one before it. So there are few of them, however
    # many rows a session changes, and a row is copied as often as there are.

    __slots__ = ("_whole", "below", "changes")

    def __init__(self, below: Rows, changes: tuple[RowChanges, ...] = ()) -> None:
        self.below = below
        self.changes = changes
        self._whole: Rows | None = None if changes else below

    @property
    def most(self) -> int:
        """The number of rows, or more."""
        return len(self.below) + sum(len(each.rows) for each in self.changes)

    @property
    def ready(self) -> bool:
        """Whether the layers have already been merged."""
        return self._whole is not None

    def row(self, key: str) -> JSON:
        """The row of a key; None if there is no such row."""
        for each in self.changes:
            if key in each.rows:
                return each.rows[key]
            if key in each.gone:
                return None
        return self.below.get(key)

    def has(self, key: str) -> bool:
        """Whether there is a row with a key."""
        for each in self.changes:
            if key in each.rows:
                return True
            if key in each.gone:
                return False
        return key in self.below

    def then(self, later: RowChanges) -> RowLayers:
        """The rows after further changes."""
        changes, most = self.changes, _GROWTH * later.size
        while changes and changes[0].size <= most:
            later, changes = changes[0].then(later), changes[1:]
            most = _GROWTH * later.size if changes else 0
        return RowLayers(self.below, (later, *changes))

    def whole(self) -> Rows:
        """All rows. The layers are merged on first use."""
        # Kept after merging, which is safe because the layers never change.
        if self._whole is None:
            rows = {**self.below}
            for each in reversed(self.changes):
                for key in each.gone:
                    rows.pop(key, None)
                rows.update(each.rows)
            self._whole = rows
        return self._whole

    def changed(self) -> RowChanges:
        """All changes of the base rows."""
        merged = NO_CHANGES
        for each in reversed(self.changes):
            merged = merged.then(each)
        return merged


class StoreVersion(NamedTuple):
    """One state of a session's store. It contains only what differs from the fixtures.

    Attributes:
        rows: Id of a collection -> its rows, for collections that were written.
        states: Id of a machine -> its state, for machines that were moved.
        numbers: Name of a sequence -> the last number that it returned.
    """

    rows: Mapping[str, RowLayers] = NOTHING
    states: Mapping[str, str] = NOTHING
    numbers: Mapping[str, int] = NOTHING


FRESH = StoreVersion()
"""The store of a session without changes."""


class SavedRows(NamedTuple):
    """What a session has changed in a collection, as it is saved for a later one.

    Attributes:
        written: Key -> row, for rows that replace initial rows, or follow them.
        deleted: Keys of initial rows that are gone, or that were deleted and written again.
    """

    written: Mapping[str, JSON]
    deleted: tuple[str, ...]


MOST_PENDING: Final = 10_000
"""The number of effects of a session that may be pending at once."""


class PendingEffect(NamedTuple):
    """An effect that is applied later.

    Attributes:
        due: When it is applied.
        tool: The tool whose mock contains it.
        pointer: JSON Pointer of the effect in the descriptor.
        apply: Applies it and commits the change; raises ExpressionError if the mock is wrong.
    """

    due: datetime
    tool: Descriptor
    pointer: str
    apply: Callable[[], None]

    @property
    def place(self) -> str:
        """File and line of the effect."""
        return self.tool.origin.place(self.pointer)


class FailedEffect(NamedTuple):
    """A pending effect that could not be applied, because its mock is wrong.

    Attributes:
        effect: The effect.
        error: The reason.
    """

    effect: PendingEffect
    error: ExpressionError

    @property
    def pointer(self) -> str:
        """JSON Pointer of the mistake in the descriptor of the tool."""
        return self.error.pointer or self.effect.pointer

    @property
    def message(self) -> str:
        """What failed, where, and why."""
        tool, due = self.effect.tool, format_time(self.effect.due)
        return f"an effect of `{tool.name}` that was due at {due} failed at {tool.origin.place(self.pointer)}: {self.error.message}"


class Store:
    """The store of one session.

    Attributes:
        saved: Id of a collection -> changes of an earlier session, until `recall` makes them part of the version.
        collections: Id -> collection, for collections that were written.
        declared: Returns the collections that `rows` finds by their names.
        failed: Pending effects that could not be applied, until a call or the end of a run reports them.
    """

    __slots__ = (
        "_clock",
        "_earlier",
        "_numbers",
        "_pending",
        "_settled",
        "_version",
        "collections",
        "declared",
        "failed",
        "saved",
    )

    def __init__(self) -> None:
        self.saved: dict[str, SavedRows] = {}
        self.collections: dict[str, Collection] = {}
        self.declared: Callable[[], Iterable[Collection]] = self.collections.values
        self.failed: list[FailedEffect] = []
        self._version = FRESH
        self._earlier: dict[str, StoreVersion] = {}
        self._clock: Clock | None = None
        self._numbers = count()
        self._pending: list[tuple[datetime, int, PendingEffect]] = []
        self._settled = True

    @property
    def version(self) -> StoreVersion:
        """The current version, after the pending effects that are due."""
        if self._pending and self._settled and self._clock is not None:
            self.settle(self._clock.now())
        return self._version

    @version.setter
    def version(self, version: StoreVersion) -> None:
        self._version = version

    @property
    def pending(self) -> Sequence[PendingEffect]:
        """The effects that are not due yet, in the order in which they will be applied."""
        # By number, since effects that are due at the same time are applied in the order of their calls.
        return [effect for _due, _number, effect in sorted(self._pending, key=lambda each: each[:2])]

    @property
    def pending_count(self) -> int:
        """The number of effects that are not due yet."""
        return len(self._pending)

    def defer(self, effect: PendingEffect, clock: Clock) -> None:
        """Apply an effect later, by the clock of the session."""
        self._clock = clock
        heappush(self._pending, (effect.due, next(self._numbers), effect))

    def settle(self, moment: datetime) -> None:
        """Apply the effects that are due until a time, in order. Each is a step of its own; those that fail are kept in `failed`."""
        self._settled = False  # an effect that is applied reads the version itself
        try:
            while self._pending and self._pending[0][0] <= moment:
                _due, _number, effect = heappop(self._pending)
                try:
                    effect.apply()
                except ExpressionError as error:
                    self.failed.append(FailedEffect(effect, error))
        finally:
            self._settled = True

    def commit(self, version: StoreVersion, written: Iterable[Collection]) -> None:
        """Make a version the current one; `written` are the collections that it has changed."""
        earlier, self._version = self._version, version
        # Removed first, so that the entry moves to the end: `before` looks for the latest change.
        for collection in written:
            self.collections[collection.id] = collection
            self._earlier.pop(collection.id, None)
            self._earlier[collection.id] = earlier
        if version.states is not earlier.states:
            for known, state in version.states.items():
                if earlier.states.get(known) != state:
                    self._earlier.pop(known, None)
                    self._earlier[known] = earlier

    def recall(self, collections: Iterable[Collection]) -> None:
        """Make the saved changes of some collections part of the version.

        Changes of a collection whose rows cannot be read stay saved; reading its rows reports why.
        """
        for collection in collections:
            saved = self.saved.get(collection.id)
            if saved is None:
                continue
            try:
                base = rows_of(collection)
            except ExpressionError:
                continue
            changes = RowChanges({**saved.written}, dict.fromkeys(saved.deleted))
            rows = {**self.version.rows, collection.id: RowLayers(base, (changes,))}
            self.version = self.version._replace(rows=rows)
            self.collections[collection.id] = collection
            del self.saved[collection.id]

    def saved_rows(self) -> dict[str, SavedRows]:
        """Id of a collection -> its changes, for a later session."""
        written = self.version.rows.items()
        return self.saved | {known: _saved(self.collections[known], layers) for known, layers in written}

    def before(self, fixture: Fixture) -> StoreVersion | None:
        """The version before the last change of a collection or machine of a fixture; None without a change."""
        self.version  # noqa: B018 -- applies the effects that are due, which may be the last change
        ids = fixture.ids
        return next((self._earlier[known] for known in reversed(self._earlier) if known in ids), None)

    def rows(self, collection: Collection | str) -> dict[str, JSON]:
        """A copy of the current rows of a collection: key -> row.

        Args:
            collection: Its name, such as `orders`; its id, such as `retail/orders`, where several packs have one of this
                name; or a collection of `Descriptor.fixture`.

        Raises:
            ExpressionError: There is no such collection, or several have the name, or the rows cannot be read.
        """
        if isinstance(collection, str):
            collection = self._named(collection)
        return {key: copy_value(row) for key, row in self.held(collection).items()}

    def _named(self, name: str) -> Collection:
        known = {each.id: each for each in self.declared()}
        found = [each for each in known.values() if name in (each.name, each.id)]
        if len(found) == 1:
            return found[0]
        if found:
            ids = " or ".join(f"`{each.id}`" for each in found)
            raise ExpressionError(f"several packs have a collection `{name}`", hint=f"write {ids}")
        names = sorted({each.name for each in known.values()})
        raise ExpressionError(
            f"there is no collection `{name}`",
            hint=did_you_mean(name, names) or (f"the collections are {', '.join(names)}" if names else ""),
        )

    def held(self, collection: Collection) -> Rows:
        """The current rows of a collection, which other sessions may share.

        Raises:
            ExpressionError: The rows cannot be read.
        """
        layers = self.version.rows.get(collection.id)
        return rows_of(collection) if layers is None else layers.whole()

    def state(self, machine: Machine) -> str:
        """The current state of a machine."""
        return self.version.states.get(machine.id, machine.start)

    def changed(self) -> dict[str, dict[str, JSON]]:
        """Collection name -> key -> a copy of the current row, for rows that differ from the initial ones.

        A deleted row is None. If changed collections of several packs have the same name, each is listed
        under its id, such as `retail/orders`.
        """
        written = [(self.collections[known], layers) for known, layers in self.version.rows.items()]
        changes = [(each, found) for each, layers in written if (found := _changes(each, layers))]
        names = Counter(each.name for each, _found in changes)
        return {each.name if names[each.name] == 1 else each.id: found for each, found in changes}


def _changes(collection: Collection, layers: RowLayers) -> dict[str, JSON]:
    """Key -> row, for rows that differ from the initial ones; None for deleted rows."""
    base = rows_of(collection)
    # As long as the base layer is shared, only the rows in the layers above it can differ.
    changes = (
        layers.changed() if layers.below is base else RowChanges({**layers.whole()}, {**dict.fromkeys(base)})
    )
    # Identity is compared first, because comparing large rows by value is slow.
    found = {
        key: copy_value(row)
        for key, row in changes.rows.items()
        if key not in base or (row is not base[key] and not equal(row, base[key]))
    }
    gone = changes.gone.keys() - changes.rows.keys()
    return found | {key: None for key in base if key in gone} if gone else found


def _saved(collection: Collection, layers: RowLayers) -> SavedRows:
    base = rows_of(collection)
    if layers.below is not base:
        return SavedRows(layers.whole(), tuple(base))
    changes = layers.changed()
    return SavedRows(changes.rows, tuple(key for key in base if key in changes.gone) if changes.gone else ())


def store_of(session: CallSession) -> Store:
    """The store of a session."""
    return session.slot("store", Store)


def rows_by_collection(fixture: Fixture, version: StoreVersion) -> dict[str, Rows]:
    """Collection name -> its rows in a version: the variable `store` of expressions.

    Raises:
        ExpressionError: The rows of a collection cannot be read.
    """
    written = version.rows
    return {
        name: rows_of(collection) if (layers := written.get(collection.id)) is None else layers.whole()
        for name, collection in fixture.collections.items()
    }


def state_by_machine(fixture: Fixture, version: StoreVersion) -> dict[str, JSON]:
    """Name of a machine -> its state in a version: the variable `state` of expressions."""
    return {name: version.states.get(machine.id, machine.start) for name, machine in fixture.machines.items()}


def rows_of(collection: Collection) -> Rows:
    """The initial rows of a collection. They are read once and shared by all sessions.

    Raises:
        ExpressionError: The rows are invalid, or their file has changed since it was loaded.
    """
    # Rows that failed to load are None: the project still loads, and only calls that read them fail.
    rows = collection.rows
    if rows is None:
        raise lost_rows(collection, collection.fault, "run `toolcrib validate` to list all problems")
    return rows() if callable(rows) else rows


def lost_rows(collection: Collection, why: str, hint: str) -> ExpressionError:
    """The error of a mock that reads an unreadable collection."""
    message = f"cannot read the rows of `{collection.name}`: {why}"
    return ExpressionError(message, code="rows_unreadable", hint=hint)


MOST = 10_000
"""The number of calls of one tool whose numbers are remembered."""


class CallCounter:
    """Numbers the calls of one tool in one session.

    A call keeps its number until `MOST` other calls of its tool have begun.

    Attributes:
        calls: The number of calls. Attempts and deliveries of one call count once.
    """

    __slots__ = ("_known", "calls")

    def __init__(self) -> None:
        self.calls = 0
        self._known: OrderedDict[str, int] = OrderedDict()

    def of(self, call: Call) -> int:
        """The number of a call, from 1. It is assigned when the first attempt arrives."""
        number = self._known.get(call.id)
        if number is None:
            self.calls += 1
            number = self._known[call.id] = self.calls
            # Bounded, because a long session would otherwise keep the id of every call.
            if len(self._known) > MOST:
                self._known.popitem(last=False)
        return number

    def would_be(self, call: Call) -> int:
        """The number that a call has, or would get now."""
        return self._known.get(call.id, self.calls + 1)


def call_counter_of(session: CallSession, tool: str) -> CallCounter:
    """The counter of a tool's calls in a session, which mocks and faults share."""
    return session.slot(counter_key(tool), CallCounter)


def counter_key(tool: str) -> str:
    """The slot of the session that holds the counter of a tool's calls."""
    return f"calls of {tool}"
