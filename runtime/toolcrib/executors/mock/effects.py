"""What a reply does with the store, as one step around its answer: rows, lets, guards, then effects in order.

Each effect changes one thing (`update`, `append`, `increment`, `insert`, `delete` ...) and sees what those before it did.
"""

from __future__ import annotations

import json
import re
from collections import abc
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from toolcrib.core.errors import ExpressionError, Problem, did_you_mean
from toolcrib.core.model import JSON, Collection, Descriptor, Result
from toolcrib.core.pointers import pointer_step
from toolcrib.executors.mock.replies import STATEFUL
from toolcrib.executors.mock.store_rows import (
    CompileContext,
    Guard,
    Location,
    Names,
    Row,
    RowFilter,
    StorePath,
    compile_guards,
    compile_row_filter,
    compile_rows,
    constant_condition,
    constant_result,
    element_keys,
    format_location,
    key_text,
    read_path,
    write_path,
)
from toolcrib.executors.mock.unit_of_work import UnitOfWork, unknown_state
from toolcrib.executors.mock.variables import Scope as MockScope
from toolcrib.executors.mock.variables import collection_of, names_for
from toolcrib.expressions import Rendering, compile_value
from toolcrib.expressions.compiler import ExpressionPart
from toolcrib.expressions.functions import COUNTS
from toolcrib.expressions.loops import check_name, compile_test, read_loop, unused_name_problem
from toolcrib.expressions.operators import add, is_number, subtract
from toolcrib.expressions.values import (
    MOST_ITEMS,
    CountedScope,
    Run,
    Scope,
    StepBudget,
    bounded_list,
    bounded_number,
    kind,
    list_of_names,
    shortened,
)

MOST_EFFECTS: Final = MOST_ITEMS
"""Changes of one call."""


class Effect(NamedTuple):
    """A compiled effect.

    Attributes:
        act: Does it.
        names: What it reads of the scope.
    """

    act: Act
    names: frozenset[str]


def compile_effects(block: Sequence[dict[str, Any]], pointer: str, ground: CompileContext) -> Effect:
    """Compile a list of effects; faults are added to the problems of the ground."""
    effects = [_effect(entry, f"{pointer}/{index}", ground) for index, entry in enumerate(block)]
    acts = [effect.act for effect in effects]
    names = frozenset[str]().union(*(effect.names for effect in effects))
    if len(acts) == 1:
        return Effect(acts[0], names)

    def run(scope: Scope, root: BodyScope) -> None:
        for act in acts:
            act(scope, root)

    return Effect(run, names)


def _effect(entry: dict[str, Any], pointer: str, ground: CompileContext) -> Effect:
    read = None
    if "for_each" in entry:
        kept: dict[str, Any] = {key: entry[key] for key in ("for_each", "let") if key in entry}
        read = read_loop(kept, ground.names, ground.problems, pointer)
        ground = ground._replace(names=read.inner)
    act, used = _change(entry, pointer, ground)
    if "if" in entry:
        found = len(ground.problems)
        test, asked = compile_test(entry["if"], ground.names, ground.problems, f"{pointer}/if")
        settled = constant_result(test, asked, ground.problems, found)
        if settled is not None:
            outcome = "the effect happens always" if settled else "the effect never happens"
            ground.problems.append(constant_condition(outcome, f"{pointer}/if"))
        act, used = _conditional(act, test), used | asked
    if read is None:
        return Effect(act, used)
    read.check_used(used, ground.problems)
    loop, once = read.loop, act

    def each(scope: Scope, root: BodyScope) -> None:
        for turn in loop.turns(scope, keeps=False):
            once(turn, root)

    return Effect(_placed(each, pointer), read.outside(used))


def _change(entry: dict[str, Any], pointer: str, ground: CompileContext) -> Change:
    if "do" in entry:
        return compile_effects(entry["do"], f"{pointer}/do", ground)
    kind = next(name for name in CHANGES if name in entry)
    act, used = CHANGES[kind](entry, f"{pointer}/{kind}", ground)
    return _counted(act, f"{pointer}/{kind}"), used


def _counted(act: Act, pointer: str) -> Act:
    """The same, counted, with errors that say where, and with rows shown anew after it."""

    def run(scope: Scope, root: BodyScope) -> None:
        root.effects += 1
        if root.effects > MOST_EFFECTS:
            raise ExpressionError(f"one call makes more than {MOST_EFFECTS:,} changes", pointer=pointer)
        act(scope, root)
        root.renew()

    return _placed(run, pointer)


def _placed(act: Act, pointer: str) -> Act:
    def run(scope: Scope, root: BodyScope) -> None:
        try:
            act(scope, root)
        except ExpressionError as error:
            raise (error if error.pointer else error.under(pointer)) from None

    return run


def _conditional(act: Act, test: Run) -> Act:
    def run(scope: Scope, root: BodyScope) -> None:
        if test(scope):
            act(scope, root)

    return run


Make = Callable[["BodyScope"], Any]
"""Works out what a name stands for."""


class BodyScope(CountedScope):
    """What the expressions of one call read: rows as they are now, lets as they were first, and the call's own.

    Attributes:
        work: What the call makes of the store.
        effects: How many changes were made.
    """

    __slots__ = ("_found", "_live", "_makers", "_outer", "_rows", "effects", "work")

    def __init__(self, outer: MockScope, work: UnitOfWork, parts: _Parts) -> None:
        super().__init__(work.budget)
        self.work = work
        self.effects = 0
        self._outer = outer
        self._rows = parts.rows
        self._makers = parts.makers
        self._live = parts.live
        self._found: dict[str, Location | None] = {}

    def __missing__(self, name: str) -> Any:
        make = self._makers.get(name)
        value = self[name] = self._outer[name] if make is None else make(self)
        return value

    def locate(self, name: str) -> Location | None:
        """Where a row is, which is found once; None where it is nowhere."""
        if name not in self._found:
            self._found[name] = self._rows[name].find(self)
        return self._found[name]

    def renew(self) -> None:
        """Show everything that is live anew, after a change."""
        for name in self._live:
            self.pop(name, None)

    def shift(self, gone: Location) -> None:
        """Follow the elements behind one that was taken out of a list."""
        within, at = gone[:-1], len(gone) - 1
        for name, location in self._found.items():
            if location is not None and len(location) > at and location[:at] == within:
                position: Any = location[at]
                if position == gone[at]:
                    self._found[name] = None
                elif position > gone[at]:
                    self._found[name] = (*within, position - 1, *location[at + 1 :])


class _Keys(dict[str, Any]):
    """Name of a row -> its key, or none; each row is found when its key is first asked for."""

    __slots__ = ("_scope",)

    def __init__(self, scope: BodyScope) -> None:
        super().__init__()
        self._scope = scope

    def __missing__(self, name: str) -> str | int | None:
        location = self._scope.locate(name)
        return None if location is None else location[-1]

    def get(self, name: str, _otherwise: Any = None) -> Any:
        return self[name]


class _Parts(NamedTuple):
    """What scopes of a body are made of.

    Attributes:
        rows: Name -> row, in order.
        makers: Name -> what works it out.
        live: The names that a change may change.
    """

    rows: Mapping[str, Row]
    makers: Mapping[str, Make]
    live: tuple[str, ...]


class ReplyBody(NamedTuple):
    """A compiled body.

    Attributes:
        names: What it reads of the scope of the call.
        own: The names that the answer may read besides, with their keys where these are known.
        acts: Whether it changes anything.
        parts: What its scopes are made of.
        checked: The rows that must be there, in order.
        settled: The rows and lets that are read before the first effect.
        guards: In order.
        effect: All its effects; None for none.
    """

    names: frozenset[str]
    own: Mapping[str, abc.Collection[str] | None]
    acts: bool
    parts: _Parts
    checked: tuple[Row, ...] = ()
    settled: tuple[str, ...] = ()
    guards: tuple[Guard, ...] = ()
    effect: Effect | None = None

    def begin(self, scope: MockScope, work: UnitOfWork) -> BodyScope:
        """What the expressions of the call read: live rows and lazy lets over the call's own names.

        `store`, `state` and the function `seq` ask the work; the names drawn from (`draws()`) must be in `scope`.
        """
        return BodyScope(scope, work, self.parts)

    def judge(self, scope: BodyScope) -> Result | None:
        """The error of the first row that is missing, or of the first guard that is true; None to go on.

        Raises:
            ExpressionError: The mock is wrong.
        """
        for row in self.checked:
            if scope[row.name] is None and row.missing is not None:
                return row.missing.answer(scope)
        for guard in self.guards:
            failed = guard.judge(scope)
            if failed is not None:
                return failed
        return None

    def act(self, scope: BodyScope) -> None:
        """Read what is unread, then make the effects happen, in order.

        Raises:
            ExpressionError: The mock is wrong; the work must be forgotten.
        """
        if self.effect is None:
            return
        for name in self.settled:
            scope[name]
        self.effect.act(scope, scope)


def compile_body(block: dict[str, Any], pointer: str, tool: Descriptor, problems: list[Problem]) -> ReplyBody:
    """Compile `rows`, `let`, `guard`, `effects` of a reply whose shape its schema has accepted.

    Faults are added to `problems`.
    """
    rows, names = compile_rows(block.get("rows", {}), f"{pointer}/rows", names_for(tool), tool, problems)
    lets, names = _lets(block.get("let", {}), f"{pointer}/let", names, problems)
    guards = compile_guards(block.get("guard", ()), f"{pointer}/guard", names, problems)
    effect = None
    if "effects" in block:
        effect = compile_effects(
            block["effects"], f"{pointer}/effects", CompileContext(names, rows, tool, problems)
        )
    readers = (*rows.values(), *lets.values(), *guards, *(() if effect is None else (effect,)))
    used = frozenset[str]().union(*(reader.names for reader in readers))
    problems += unused_names(block, pointer, used)
    collections = [name for name in names if collection_of(name)]
    own = {name: names[name] for name in (*rows, *lets, *(("key_of",) if rows else ()))}
    return ReplyBody(
        names=used - own.keys() - _PROVIDED.keys() - {*collections},
        own=own,
        acts=effect is not None,
        parts=_parts(rows, lets, collections),
        checked=tuple(row for row in rows.values() if row.missing is not None),
        settled=(*rows, *lets),
        guards=tuple(guards),
        effect=effect,
    )


_PROVIDED: Mapping[str, Make] = {
    "store": lambda scope: scope.work.store(),
    "state": lambda scope: scope.work.states(),
    COUNTS: lambda scope: scope.work.count,
}
"""What a body gives to its expressions besides rows and lets."""


def _parts(rows: Mapping[str, Row], lets: Mapping[str, Rendering], collections: Sequence[str]) -> _Parts:
    makers: dict[str, Make] = {name: row.read for name, row in rows.items()}
    makers |= {name: let.run for name, let in lets.items()}
    makers |= {**_PROVIDED, "key_of": _Keys}
    makers |= {name: _reading(collection_of(name)) for name in collections}
    return _Parts(rows, makers, (*rows, "store", "state", *collections))


def _reading(collection: str) -> Make:
    return lambda scope: scope.work.rows(collection)


def _lets(
    block: Mapping[str, Any], pointer: str, names: Names, problems: list[Problem]
) -> tuple[dict[str, Rendering], dict[str, Any]]:
    """Compile `let`: each may read the rows and those before it."""
    lets: dict[str, Rendering] = {}
    inner = dict(names)
    for name, value in block.items():
        place = f"{pointer}/{pointer_step(name)}"
        check_name(name, inner, problems, place)
        lets[name] = compile_value(value, inner, problems, place, forms=True)
        inner[name] = lets[name].keys
    return lets, inner


Act: TypeAlias = "Callable[[Scope, BodyScope], None]"
"""Does an effect: with what its expressions read, and the scope of the call, whose rows it changes."""

Change: TypeAlias = "tuple[Act, frozenset[str]]"
"""What does an effect, and what it reads."""

MOST_PARTS: Final = 10_000
"""Values within one value that an effect writes."""

MOST_DEPTH: Final = 64
"""Levels of one value that an effect writes."""

_NOTHING: Change = (lambda _scope, _root: None), frozenset()
"""What an effect with a fault does."""


# Values that are written.


def copy_for_store(value: JSON, budget: StepBudget) -> JSON:
    """A copy that belongs to the store alone, within bounds; what is copied is counted.

    Raises:
        ExpressionError: There is too much in it.
    """
    if not isinstance(value, dict | list):
        return value
    left = [MOST_PARTS]
    copy: JSON = _copy(value, MOST_DEPTH, left)
    budget.copy(MOST_PARTS - left[0])
    return copy


def _copy(value: Any, depth: int, left: list[int]) -> Any:
    left[0] -= len(value)
    if left[0] < 0:
        raise ExpressionError(f"a value of more than {MOST_PARTS:,} parts can't be kept")
    if depth == 0:
        raise ExpressionError(f"a value that is nested deeper than {MOST_DEPTH} levels can't be kept")
    copy = value.copy()
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        if isinstance(item, dict | list):
            copy[key] = _copy(item, depth - 1, left)
    return copy


# `update`, `delete`: one place, or elements of what stands there.


class _ElementSelection(NamedTuple):
    """Which elements an effect means.

    Attributes:
        row_filter: Their test.
        one: Whether it means the first one, which must exist.
        names: What the test reads.
    """

    row_filter: RowFilter
    one: bool
    names: frozenset[str]

    def among(self, scope: Scope, root: BodyScope, location: Location, value: JSON) -> list[Location]:
        """Where they are.

        Raises:
            ExpressionError: There are no elements; or none fits, and there must be one.
        """
        if not isinstance(value, dict | list):
            raise ExpressionError(f"{format_location(location)} is {kind(value)}, which has no elements")
        root.budget.visit(len(value))
        fits = self.row_filter(scope)
        found: list[Location] = []
        for key, element in value.items() if isinstance(value, dict) else enumerate(value):
            if fits(element):
                found.append((*location, key))
                if self.one:
                    break
        if self.one and not found:
            raise ExpressionError(
                f"no element of {format_location(location)} is the one that `first` wants",
                code="absent_place",
            )
        return found


def _chosen(
    entry: dict[str, Any], pointer: str, ground: CompileContext, on: StorePath | None
) -> _ElementSelection | None:
    key = next((key for key in ("first", "where") if key in entry), None)
    if key is None:
        return None
    place = f"{pointer.rpartition('/')[0]}/{key}"
    element = None if on is None else element_keys(on, ground)
    row_filter, names = compile_row_filter(entry[key], place, ground, element)
    return _ElementSelection(row_filter, key == "first", names)


def _targets(
    place: StorePath, chosen: _ElementSelection | None
) -> Callable[[Scope, BodyScope], list[tuple[Location, JSON]]]:
    """What an effect changes: its place, or elements of it; with what stands there."""
    if chosen is None:
        return lambda scope, root: [place.find(scope, root)]

    def find(scope: Scope, root: BodyScope) -> list[tuple[Location, JSON]]:
        location, value = place.find(scope, root)
        within: Any = value
        return [(found, within[found[-1]]) for found in chosen.among(scope, root, location, value)]

    return find


def _one_or_some(
    entry: dict[str, Any], pointer: str, ground: CompileContext
) -> tuple[StorePath, _ElementSelection | None] | None:
    place = ground.place(entry[pointer.rpartition("/")[2]], pointer)
    chosen = _chosen(entry, pointer, ground, place)
    if place is None:
        return None
    _check_fields(entry, place, pointer, ground)
    if place.in_store and not place.steps and chosen is None:
        message = f"`{place.root}` is a whole collection"
        hint = f"name one of its rows, `{place.root}[args.id]`, or choose some with `where` or `first`"
        ground.fault("not_a_row", message, pointer, hint)
        return None
    return place, chosen


def _check_fields(entry: dict[str, Any], place: StorePath, pointer: str, ground: CompileContext) -> None:
    """Refuse fields of `first` and `where` that no element can have."""
    spot = ground.spot(place, elements=True)
    for key in ("first", "where"):
        if spot is not None and isinstance(entry.get(key), dict):
            spot.check_fields(entry[key], f"{pointer.rpartition('/')[0]}/{key}", ground)


def _update(entry: dict[str, Any], pointer: str, ground: CompileContext) -> Change:
    at_set = f"{pointer.rpartition('/')[0]}/set"
    compute, used, written = _setting(entry["set"], at_set, ground)
    target = _one_or_some(entry, pointer, ground)
    if target is None:
        return _NOTHING
    place, chosen = target
    spot = ground.spot(place, elements=chosen is not None)
    if spot is not None:
        spot.check_members(written, at_set, ground)
    _check_key(entry["set"], place, chosen, at_set, ground)
    find = _targets(place, chosen)

    def act(scope: Scope, root: BodyScope) -> None:
        work, budget = root.work, root.budget
        for location, value in find(scope, root):
            changes = compute(scope)
            if not isinstance(changes, dict):
                raise ExpressionError(f"`set` needs an object, not {kind(changes)}", pointer=at_set)
            if not isinstance(value, dict):
                raise ExpressionError(
                    f"{format_location(location)} is {kind(value)}, and only an object has keys to `set`"
                )
            write_path(
                work,
                location,
                value | {key: copy_for_store(item, budget) for key, item in changes.items()},
                pointer,
            )

    return act, used | _read(place, chosen)


def _check_key(
    setting: JSON, place: StorePath, chosen: _ElementSelection | None, pointer: str, ground: CompileContext
) -> None:
    """Refuse to give rows a constant in the field that holds their keys."""
    row = ground.rows.get(place.root)
    name = place.root if place.in_store else "" if row is None else row.collection
    collection = ground.tool.fixture.collections.get(name)
    levels = len(place.steps) + (chosen is not None)
    if collection is None or not isinstance(setting, dict) or levels != place.in_store:
        return
    value = setting.get(collection.key)
    if collection.key and value is not None and not (isinstance(value, str) and "{{" in value):
        message = f"`{collection.key}` is the key of the rows of `{name}`, which a row keeps"
        hint = "leave it out; a row gets another key by `insert` and `delete`"
        ground.fault("row_breaks_schema", message, f"{pointer}/{pointer_step(collection.key)}", hint)


def _setting(
    setting: JSON, pointer: str, ground: CompileContext
) -> tuple[Run, frozenset[str], ExpressionPart | None]:
    """What gives the keys of `set`: a mapping, with its parts, or one whole expression."""
    if isinstance(setting, str):
        return (*compile_test(setting, ground.names, ground.problems, pointer), None)
    written = ground.value(setting, pointer)
    return written.run, written.names, written.part


def _read(place: StorePath, chosen: _ElementSelection | None = None) -> frozenset[str]:
    root = frozenset[str]() if place.in_store else frozenset({place.root})
    return place.names | root | (frozenset() if chosen is None else chosen.names)


def _delete(entry: dict[str, Any], pointer: str, ground: CompileContext) -> Change:
    target = _one_or_some(entry, pointer, ground)
    if target is None:
        return _NOTHING
    place, chosen = target
    find = _targets(place, chosen)

    def act(scope: Scope, root: BodyScope) -> None:
        for location, _value in reversed(find(scope, root)):  # from the end: positions before it stay
            _remove(root, location, pointer)

    return act, _read(place, chosen)


def _remove(root: BodyScope, location: Location, pointer: str) -> None:
    if len(location) == 2:  # a collection and a key: a row
        root.work.remove(str(location[0]), str(location[1]))
        return
    within: Any = read_path(root.work, location[:-1])
    copy = within.copy()
    del copy[location[-1]]
    write_path(root.work, location[:-1], copy, pointer)
    if isinstance(copy, list):
        root.shift(location)


# `append`, `increment`, `decrement`.


def _append(entry: dict[str, Any], pointer: str, ground: CompileContext) -> Change:
    at_value = f"{pointer.rpartition('/')[0]}/value"
    made = ground.value(entry["value"], at_value)
    place = ground.place(entry["append"], pointer)
    if place is None:
        return _NOTHING
    _check_kind(place, pointer, ground)
    spot = ground.spot(place, elements=True)
    if spot is not None:
        spot.check_value(made.part, at_value, ground)
    compute = made.run

    def act(scope: Scope, root: BodyScope) -> None:
        value = copy_for_store(compute(scope), root.budget)
        location, items = place.find(scope, root)
        if not isinstance(items, list):
            raise ExpressionError(f"{format_location(location)} is {kind(items)}, and `append` needs a list")
        write_path(root.work, location, bounded_list([*items, value]), pointer)

    return act, made.names | _read(place)


def _check_kind(place: StorePath, pointer: str, ground: CompileContext) -> None:
    spot = ground.spot(place)
    if spot is not None:
        spot.check_kind(pointer.rpartition("/")[2], pointer, ground)


def _change_of(entry: dict[str, Any], name: str, above: str, ground: CompileContext) -> Rendering:
    """By how much a number changes."""
    found = len(ground.problems)
    by = ground.value(entry.get("by", 1), f"{above}/by")
    if not by.constant or len(ground.problems) > found:
        return by
    value = by.render({})
    if isinstance(value, str):
        message = f"`{shortened(value)}` is a text and not an expression"
        hint = f'write `"{{{{ {shortened(value)} }}}}"`, or a number'
        ground.fault("expression_syntax", message, f"{above}/by", hint)
    elif not is_number(value):
        ground.fault("wrong_type", f"`{name}` needs a number, not {kind(value)}", f"{above}/by")
    return by


def _moved(operate: Callable[[JSON, JSON], JSON]) -> Callable[[dict[str, Any], str, CompileContext], Change]:
    def compile_it(entry: dict[str, Any], pointer: str, ground: CompileContext) -> Change:
        name, above = pointer.rpartition("/")[2], pointer.rpartition("/")[0]
        by = _change_of(entry, name, above, ground)
        place, digits = ground.place(entry[name], pointer), entry.get("round")
        if place is None:
            return _NOTHING
        _check_kind(place, pointer, ground)
        compute = by.run

        def act(scope: Scope, root: BodyScope) -> None:
            change = compute(scope)
            location, number = place.find(scope, root)
            for what, value in ((format_location(location), number), ("`by`", change)):
                if not is_number(value):
                    raise ExpressionError(f"{what} is {kind(value)}, and `{name}` needs a number")
            result: Any = operate(number, change)
            if digits is not None:
                result = bounded_number(round(result, digits))
            write_path(root.work, location, result, pointer)

        return act, by.names | _read(place)

    return compile_it


# `insert`, `upsert`.


def _put(entry: dict[str, Any], pointer: str, ground: CompileContext) -> Change:
    name, above = pointer.rpartition("/")[2], pointer.rpartition("/")[0]
    made = ground.value(entry["value"], f"{above}/value")
    key = ground.value(entry["key"], f"{above}/key") if "key" in entry else None
    place = _container(entry[name], pointer, ground)
    if place is None:
        return _NOTHING
    whole = ground.tool.fixture.collections[place.root] if place.in_store and not place.steps else None
    if key is None and (whole is None or (name == "upsert" and not whole.key)):
        hint = "say under which key the value is put"
        ground.fault("missing_key", f"`{name}` needs a `key` here", above, hint)
        return _NOTHING
    spot = ground.spot(place, elements=True)
    if spot is not None:
        check = spot.check_value if whole is None else spot.check_members
        check(made.part, f"{above}/value", ground)
    used = made.names | _read(place) | (frozenset() if key is None else key.names)
    putting = _Putting(made.run, None if key is None else key.run, name == "upsert", pointer)
    return (putting.in_object(place) if whole is None else putting.in_collection(whole)), used


class _Putting(NamedTuple):
    """What is put where.

    Attributes:
        value: What works the value out.
        key: What works its key out; None for that of the row, or the next number.
        replaces: Whether it may take the place of what is there.
        pointer: Where the effect stands.
    """

    value: Run
    key: Run | None
    replaces: bool
    pointer: str

    def in_collection(self, collection: Collection) -> Act:
        """Put it among the rows of a collection, with its key in the field that holds the keys."""
        name, field = collection.name, collection.key

        def act(scope: Scope, root: BodyScope) -> None:
            row = copy_for_store(self.value(scope), root.budget)
            key = _own_key(row, collection, root) if self.key is None else key_text(self.key(scope))
            if root.work.has(name, key):
                self.check((name, key))
            if field and isinstance(row, dict) and field not in row:
                row = {field: key, **row}
            root.work.put(name, key, row, self.pointer)

        return act

    def in_object(self, place: StorePath) -> Act:
        """Put it into an object within a row."""

        def act(scope: Scope, root: BodyScope) -> None:
            value = copy_for_store(self.value(scope), root.budget)
            location, within = place.find(scope, root)
            if not isinstance(within, dict):
                raise ExpressionError(
                    f"{format_location(location)} is {kind(within)}, and an object is needed"
                )
            key = key_text(None if self.key is None else self.key(scope))
            if key in within:
                self.check((*location, key))
            write_path(root.work, location, within | {key: value}, self.pointer)

        return act

    def check(self, location: Location) -> None:
        """Refuse to replace what is at a location."""
        if not self.replaces:
            hint = "`upsert` replaces what is there"
            raise ExpressionError(
                f"{format_location(location)} exists already", code="existing_key", hint=hint
            )


def _own_key(row: JSON, collection: Collection, root: BodyScope) -> str:
    name, field = collection.name, collection.key
    if not field:
        return root.work.free_key(name)
    if isinstance(row, dict) and field in row:
        return key_text(row[field])
    message = f"the row has no `{field}`, which is the key of `{name}`"
    raise ExpressionError(message, hint="add it, or write `key`")


def _container(text: str, pointer: str, ground: CompileContext) -> StorePath | None:
    """Where something is put: a collection comes before a row of the same name."""
    if text.strip() in ground.tool.fixture.collections:
        ground = ground._replace(rows={})
    return ground.place(text, pointer)


# `goto`.


def _goto(entry: dict[str, Any], pointer: str, ground: CompileContext) -> Change:
    machines = ground.tool.fixture.machines
    moves: list[tuple[str, Run]] = []
    used = frozenset[str]()
    for machine, state in entry["goto"].items():
        place = f"{pointer}/{pointer_step(machine)}"
        if machine not in machines:
            there = list_of_names(list(machines)) if machines else "none are declared"
            hint = (
                did_you_mean(machine, machines)
                or "they are declared under `state`, of the pack or the project"
            )
            ground.fault("unknown_machine", f"unknown named state `{machine}`: {there}", place, hint)
            continue
        to = ground.value(state, place)
        allowed = machines[machine].states
        if to.constant and allowed and to.render({}) not in allowed:
            error = unknown_state(machine, to.render({}), allowed)
            ground.fault(error.code, error.message, place, error.hint)
        moves.append((machine, to.run))
        used |= to.names

    def act(scope: Scope, root: BodyScope) -> None:
        for machine, state in [(machine, compute(scope)) for machine, compute in moves]:
            root.work.go(machine, state)

    return act, used


CHANGES: Mapping[str, Callable[[dict[str, Any], str, CompileContext], Change]] = {
    "update": _update,
    "append": _append,
    "increment": _moved(add),
    "decrement": _moved(subtract),
    "insert": _put,
    "upsert": _put,
    "delete": _delete,
    "goto": _goto,
}
"""Kind of effect -> what compiles it, given its entry, the pointer of its key, and the ground."""


_COMPUTED = re.compile(r"\{[{%](.*?)[%}]\}", re.DOTALL)
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_KEY_OF = re.compile(r"\bkey_of\b\W*([A-Za-z_][A-Za-z0-9_]*)", re.ASCII)


def unused_names(block: Mapping[str, Any], pointer: str, used: abc.Collection[str]) -> list[Problem]:
    """The rows without `missing` and the lets that neither the body nor the answer reads.

    Args:
        block: The reply.
        pointer: Where it stands.
        used: The names that the body reads.
    """
    if "template_file" in block:  # what the file reads is not known here
        return []
    answer = json.dumps({key: value for key, value in block.items() if key not in STATEFUL})
    read = {word for piece in _COMPUTED.findall(answer) for word in _WORD.findall(piece)}
    read |= {*used, *_KEY_OF.findall(json.dumps(block))}
    rows = {name: row for name, row in block.get("rows", {}).items() if "missing" not in row}
    return [
        unused_name_problem(what, name, f"{pointer}/{key}/{pointer_step(name)}")
        for key, what, names in (("rows", "row", rows), ("let", "let", block.get("let", {})))
        for name in names
        if name not in read
    ]
