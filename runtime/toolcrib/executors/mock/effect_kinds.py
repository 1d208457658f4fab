"""The kinds of effects, each of which changes one thing: `update`, `append`, `increment`, `insert`, `delete` ..."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from toolcrib.core.errors import ExpressionError, did_you_mean
from toolcrib.core.model import JSON, Collection
from toolcrib.core.pointers import pointer_step
from toolcrib.executors.mock.compile_context import Ground
from toolcrib.executors.mock.rows import Fitting, compile_fitting, element_keys
from toolcrib.executors.mock.store_paths import Location, Place, key_text, look, shown, write
from toolcrib.executors.mock.unit_of_work import unknown_state
from toolcrib.expressions import Rendering
from toolcrib.expressions.budget import StepBudget
from toolcrib.expressions.compiler import ExpressionPart
from toolcrib.expressions.loops import compile_test
from toolcrib.expressions.operators import add, is_number, subtract
from toolcrib.expressions.values import (
    Run,
    Scope,
    bounded_list,
    bounded_number,
    kind,
    list_of_names,
    shortened,
)

if TYPE_CHECKING:
    from toolcrib.executors.mock.body import BodyScope

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


def stored(value: JSON, budget: StepBudget) -> JSON:
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


class _Chosen(NamedTuple):
    """Which elements an effect means.

    Attributes:
        fitting: Their test.
        one: Whether it means the first one, which must exist.
        names: What the test reads.
    """

    fitting: Fitting
    one: bool
    names: frozenset[str]

    def among(self, scope: Scope, root: BodyScope, location: Location, value: JSON) -> list[Location]:
        """Where they are.

        Raises:
            ExpressionError: There are no elements; or none fits, and there must be one.
        """
        if not isinstance(value, dict | list):
            raise ExpressionError(f"{shown(location)} is {kind(value)}, which has no elements")
        root.budget.visit(len(value))
        fits = self.fitting(scope)
        found: list[Location] = []
        for key, element in value.items() if isinstance(value, dict) else enumerate(value):
            if fits(element):
                found.append((*location, key))
                if self.one:
                    break
        if self.one and not found:
            raise ExpressionError(
                f"no element of {shown(location)} is the one that `first` wants", code="absent_place"
            )
        return found


def _chosen(entry: dict[str, Any], pointer: str, ground: Ground, on: Place | None) -> _Chosen | None:
    key = next((key for key in ("first", "where") if key in entry), None)
    if key is None:
        return None
    place = f"{pointer.rpartition('/')[0]}/{key}"
    element = None if on is None else element_keys(on, ground)
    fitting, names = compile_fitting(entry[key], place, ground, element)
    return _Chosen(fitting, key == "first", names)


def _targets(
    place: Place, chosen: _Chosen | None
) -> Callable[[Scope, BodyScope], list[tuple[Location, JSON]]]:
    """What an effect changes: its place, or elements of it; with what stands there."""
    if chosen is None:
        return lambda scope, root: [place.find(scope, root)]

    def find(scope: Scope, root: BodyScope) -> list[tuple[Location, JSON]]:
        location, value = place.find(scope, root)
        within: Any = value
        return [(found, within[found[-1]]) for found in chosen.among(scope, root, location, value)]

    return find


def _one_or_some(entry: dict[str, Any], pointer: str, ground: Ground) -> tuple[Place, _Chosen | None] | None:
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


def _check_fields(entry: dict[str, Any], place: Place, pointer: str, ground: Ground) -> None:
    """Refuse fields of `first` and `where` that no element can have."""
    spot = ground.spot(place, elements=True)
    for key in ("first", "where"):
        if spot is not None and isinstance(entry.get(key), dict):
            spot.check_fields(entry[key], f"{pointer.rpartition('/')[0]}/{key}", ground)


def _update(entry: dict[str, Any], pointer: str, ground: Ground) -> Change:
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
                    f"{shown(location)} is {kind(value)}, and only an object has keys to `set`"
                )
            write(
                work, location, value | {key: stored(item, budget) for key, item in changes.items()}, pointer
            )

    return act, used | _read(place, chosen)


def _check_key(setting: JSON, place: Place, chosen: _Chosen | None, pointer: str, ground: Ground) -> None:
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
    setting: JSON, pointer: str, ground: Ground
) -> tuple[Run, frozenset[str], ExpressionPart | None]:
    """What gives the keys of `set`: a mapping, with its parts, or one whole expression."""
    if isinstance(setting, str):
        return (*compile_test(setting, ground.names, ground.problems, pointer), None)
    written = ground.value(setting, pointer)
    return written.run, written.names, written.part


def _read(place: Place, chosen: _Chosen | None = None) -> frozenset[str]:
    root = frozenset[str]() if place.in_store else frozenset({place.root})
    return place.names | root | (frozenset() if chosen is None else chosen.names)


def _delete(entry: dict[str, Any], pointer: str, ground: Ground) -> Change:
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
    within: Any = look(root.work, location[:-1])
    copy = within.copy()
    del copy[location[-1]]
    write(root.work, location[:-1], copy, pointer)
    if isinstance(copy, list):
        root.shift(location)


# `append`, `increment`, `decrement`.


def _append(entry: dict[str, Any], pointer: str, ground: Ground) -> Change:
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
        value = stored(compute(scope), root.budget)
        location, items = place.find(scope, root)
        if not isinstance(items, list):
            raise ExpressionError(f"{shown(location)} is {kind(items)}, and `append` needs a list")
        write(root.work, location, bounded_list([*items, value]), pointer)

    return act, made.names | _read(place)


def _check_kind(place: Place, pointer: str, ground: Ground) -> None:
    spot = ground.spot(place)
    if spot is not None:
        spot.check_kind(pointer.rpartition("/")[2], pointer, ground)


def _change_of(entry: dict[str, Any], name: str, above: str, ground: Ground) -> Rendering:
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


def _moved(operate: Callable[[JSON, JSON], JSON]) -> Callable[[dict[str, Any], str, Ground], Change]:
    def compile_it(entry: dict[str, Any], pointer: str, ground: Ground) -> Change:
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
            for what, value in ((shown(location), number), ("`by`", change)):
                if not is_number(value):
                    raise ExpressionError(f"{what} is {kind(value)}, and `{name}` needs a number")
            result: Any = operate(number, change)
            if digits is not None:
                result = bounded_number(round(result, digits))
            write(root.work, location, result, pointer)

        return act, by.names | _read(place)

    return compile_it


# `insert`, `upsert`.


def _put(entry: dict[str, Any], pointer: str, ground: Ground) -> Change:
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
            row = stored(self.value(scope), root.budget)
            key = _own_key(row, collection, root) if self.key is None else key_text(self.key(scope))
            if root.work.has(name, key):
                self.check((name, key))
            if field and isinstance(row, dict) and field not in row:
                row = {field: key, **row}
            root.work.put(name, key, row, self.pointer)

        return act

    def in_object(self, place: Place) -> Act:
        """Put it into an object within a row."""

        def act(scope: Scope, root: BodyScope) -> None:
            value = stored(self.value(scope), root.budget)
            location, within = place.find(scope, root)
            if not isinstance(within, dict):
                raise ExpressionError(f"{shown(location)} is {kind(within)}, and an object is needed")
            key = key_text(None if self.key is None else self.key(scope))
            if key in within:
                self.check((*location, key))
            write(root.work, location, within | {key: value}, self.pointer)

        return act

    def check(self, location: Location) -> None:
        """Refuse to replace what is at a location."""
        if not self.replaces:
            hint = "`upsert` replaces what is there"
            raise ExpressionError(f"{shown(location)} exists already", code="existing_key", hint=hint)


def _own_key(row: JSON, collection: Collection, root: BodyScope) -> str:
    name, field = collection.name, collection.key
    if not field:
        return root.work.free_key(name)
    if isinstance(row, dict) and field in row:
        return key_text(row[field])
    message = f"the row has no `{field}`, which is the key of `{name}`"
    raise ExpressionError(message, hint="add it, or write `key`")


def _container(text: str, pointer: str, ground: Ground) -> Place | None:
    """Where something is put: a collection comes before a row of the same name."""
    if text.strip() in ground.tool.fixture.collections:
        ground = ground._replace(rows={})
    return ground.place(text, pointer)


# `goto`.


def _goto(entry: dict[str, Any], pointer: str, ground: Ground) -> Change:
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
            ground.fault("unknown_machine", f"there is no named state `{machine}`: {there}", place, hint)
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


CHANGES: Mapping[str, Callable[[dict[str, Any], str, Ground], Change]] = {
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
