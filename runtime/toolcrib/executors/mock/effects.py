"""Compile what a reply does with the store around its result: rows, lets, guards, then effects in order.

Each effect changes one thing (`update`, `append`, `increment`, `insert`, `delete` ...) and sees the changes
of the effects before it. The effect `error` ends the call; the effects before it are undone unless it has `keep`.
"""

from __future__ import annotations

import json
import re
from collections import abc
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple, TypeAlias

from toolcrib.core.clock import parse_duration
from toolcrib.core.errors import ExpressionError, Problem, did_you_mean
from toolcrib.core.model import JSON, Call, Collection, Descriptor, Result
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
from toolcrib.executors.mock.variables import StatefulScope, collection_of, names_for
from toolcrib.expressions import Rendering, compile_value, copy_value
from toolcrib.expressions.compiler import SHARED, ExpressionPart
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
from toolcrib.simulation.error_reply import compile_error
from toolcrib.simulation.store import PendingEffect

MOST_EFFECTS: Final = MOST_ITEMS
"""The largest number of changes that one call may make."""


class Effect(NamedTuple):
    """A compiled effect.

    Attributes:
        act: Applies the effect.
        names: The names of the scope that it reads.
    """

    act: Act
    names: frozenset[str]


class EffectRefusal(NamedTuple):
    """An error that an effect returned.

    Attributes:
        result: The error.
        keep: Whether the effects before it remain.
    """

    result: Result
    keep: bool


class _RefusedError(Exception):
    """Ends the effects of a call with an error."""

    def __init__(self, refusal: EffectRefusal) -> None:
        super().__init__()
        self.refusal = refusal


def compile_effects(block: Sequence[dict[str, Any]], pointer: str, ground: CompileContext) -> Effect:
    """Compile a list of effects; problems are added to those of the compile context."""
    for index, entry in enumerate(block[:-1]):
        if _always_ends(entry):
            message = f"no call reaches this effect: effect {index + 1} always returns its error"
            ground.fault("unreachable_effect", message, f"{pointer}/{index + 1}", "add `if` to the error")
            break
    effects = [_effect(entry, f"{pointer}/{index}", ground) for index, entry in enumerate(block)]
    acts = [effect.act for effect in effects]
    names = frozenset[str]().union(*(effect.names for effect in effects))
    if len(acts) == 1:
        return Effect(acts[0], names)

    def run(scope: Scope, root: BodyScope) -> None:
        for act in acts:
            act(scope, root)

    return Effect(run, names)


def _always_ends(entry: Mapping[str, Any]) -> bool:
    """Whether an effect always ends its call with an error."""
    if "if" in entry or "for_each" in entry:
        return False
    return "error" in entry or any(_always_ends(inner) for inner in entry.get("do", ()))


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
            outcome = "the effect always happens" if settled else "the effect never happens"
            ground.problems.append(constant_condition(outcome, f"{pointer}/if"))
        act, used = _conditional(act, test), used | asked
    if "after" in entry:
        act, used = _delayed(act, used, entry, pointer, ground)
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
    """The same act with a limit on changes, a pointer on its errors, and rows that are read again after it."""

    def run(scope: Scope, root: BodyScope) -> None:
        # A limit, because a `for_each` over a large list multiplies, and loops can be nested.
        root.effects += 1
        if root.effects > MOST_EFFECTS:
            raise ExpressionError(f"one call exceeds {MOST_EFFECTS:,} changes", pointer=pointer)
        try:
            row = act(scope, root)
        except ExpressionError as error:
            raise (error if error.pointer else error.under(pointer)) from None
        root.renew()
        if row is not None:
            root[row[0]] = row[1]

    return run


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


def _delayed(
    act: Act, used: frozenset[str], entry: dict[str, Any], pointer: str, ground: CompileContext
) -> Change:
    """The act that applies an effect later, on its own, with the names that it reads as they are now."""
    error = _error_within(entry, pointer)
    if error:
        message = "this error cannot be returned: it is decided when the call has long ended, since `after` delays it"
        ground.fault("unreachable_effect", message, error, "move it out of the delayed effect")
    delay, asked = _delay(entry["after"], f"{pointer}/after", ground)
    live = {*ground.rows, "store", "state", COUNTS, "key_of", "now"}
    live |= {name for name in used if collection_of(name) or name.startswith(SHARED)} - {SHARED}
    kept = sorted(used - live)

    def defer(scope: Scope, root: BodyScope) -> None:
        call = root.call
        clock = call.context.session.clock
        try:
            due = root.moment + timedelta(seconds=delay(scope))
        except OverflowError:
            raise ExpressionError("`after` ends beyond the year 9999") from None
        # Copied, because the caller may change the arguments after the call.
        values = {name: copy_value(scope[name]) for name in kept}
        later = root.later(values)

        def apply() -> None:
            inner = later(due)
            act(inner, inner)
            inner.work.check()
            inner.work.commit()

        root.work.defer(PendingEffect(due, ground.tool, pointer, apply), clock)

    return _placed(defer, pointer), used | asked


def _error_within(entry: Mapping[str, Any], pointer: str) -> str:
    """Pointer of the first effect `error` in an effect; empty if there is none."""
    if "error" in entry:
        return f"{pointer}/error"
    inner = (_error_within(each, f"{pointer}/do/{index}") for index, each in enumerate(entry.get("do", ())))
    return next(filter(None, inner), "")


def _delay(
    value: str, pointer: str, ground: CompileContext
) -> tuple[Callable[[Scope], float], frozenset[str]]:
    """Compile `after`: the seconds until the effect."""
    found = len(ground.problems)
    written = ground.value(value, pointer)

    def seconds(scope: Scope) -> float:
        text = written.run(scope)
        if not isinstance(text, str):
            message = f"`after` needs a duration such as `2h`, not {kind(text)}"
            raise ExpressionError(message, code="wrong_type", pointer=pointer)
        try:
            delay = parse_duration(text)
        except ValueError as error:
            raise ExpressionError(str(error), code="wrong_form", pointer=pointer) from None
        if delay > 0:
            return delay
        raise ExpressionError("`after` must be longer than 0s", code="out_of_range", pointer=pointer)

    if written.constant and len(ground.problems) == found:
        try:
            seconds({})
        except ExpressionError as error:
            ground.fault(error.code, error.message, pointer, "write a duration such as `2h`")
    return seconds, written.names


Make = Callable[["BodyScope"], Any]
"""Computes the value of a name."""


class BodyScope(CountedScope):
    """The variables of the expressions of one call: live rows, lets as first computed, and the names of the call.

    Attributes:
        work: The call's unit of work on the store.
        effects: The number of changes made so far.
    """

    __slots__ = ("_found", "_live", "_makers", "_outer", "_parts", "_rows", "effects", "work")

    def __init__(self, outer: StatefulScope, work: UnitOfWork, parts: _Parts) -> None:
        self.budget = work
        self["args"] = outer["args"]  # read by most replies; it never changes
        self.work = work
        self.effects = 0
        self._outer = outer
        self._parts = parts
        self._rows = parts.rows
        self._makers = parts.makers
        self._live = parts.live
        self._found: dict[str, Location | None] = {}

    def __missing__(self, name: str) -> Any:
        make = self._makers.get(name)
        value = self[name] = self._outer[name] if make is None else make(self)
        return value

    @property
    def call(self) -> Call:
        """The call that the scope belongs to."""
        return self._outer.call

    @property
    def moment(self) -> datetime:
        """The time of the call, or the time at which its pending effect was due."""
        return self._outer.moment

    def later(self, values: Mapping[str, JSON]) -> Callable[[datetime], BodyScope]:
        """The function that creates the scope of a pending effect: the rows and the given values of this one, at a later time."""
        found, outer, parts = self._found.copy(), self._outer, self._parts
        work = self.work

        def begin(moment: datetime) -> BodyScope:
            around = outer.later(moment, work.later())
            scope = BodyScope(around, around.work, parts)
            scope.update(values)
            scope._found = found.copy()
            return scope

        return begin

    def locate(self, name: str) -> Location | None:
        """The location of a row, or None if it is absent. It is looked up once."""
        # Once, so that a row keeps its name after an effect has changed the field that it was found by.
        if name in self._found:
            return self._found[name]
        location = self._found[name] = self._rows[name].find(self)
        return location

    def renew(self) -> None:
        """Forget all live values, so that they are read again after a change."""
        for name in self._live:
            self.pop(name, None)

    def shift(self, gone: Location) -> None:
        """Adjust the locations of rows in a list after one of its elements was deleted."""
        within, at = gone[:-1], len(gone) - 1
        for name, location in self._found.items():
            if location is not None and len(location) > at and location[:at] == within:
                # The row of the deleted element is absent; rows behind it move up by one.
                position: Any = location[at]
                if position == gone[at]:
                    self._found[name] = None
                elif position > gone[at]:
                    self._found[name] = (*within, position - 1, *location[at + 1 :])


class _Keys(dict[str, Any]):
    """Name of a row -> its key, or None. A row is looked up when its key is first read."""

    __slots__ = ("_scope",)

    def __init__(self, scope: BodyScope) -> None:
        super().__init__()
        self._scope = scope

    def __missing__(self, name: str) -> str | int | None:
        location = self._scope.locate(name)
        return None if location is None else location[-1]

    # `dict.get` does not call `__missing__`.
    def get(self, name: str, _otherwise: Any = None) -> Any:
        return self[name]


class _Parts(NamedTuple):
    """The parts from which the scope of each call is created.

    Attributes:
        rows: Name -> row, in order.
        makers: Name -> the function that computes its value.
        live: The names that are read before the last effect, and whose values an effect may change.
    """

    rows: Mapping[str, Row]
    makers: Mapping[str, Make]
    live: tuple[str, ...]


class ReplyBody(NamedTuple):
    """The compiled `rows`, `let`, `guard` and `effects` of a reply.

    Attributes:
        names: The names of the call's scope that it reads.
        own: The names that it defines for the result, with their keys if known.
        acts: Whether it has effects.
        parts: The parts of its scopes.
        checked: The rows with `missing`, in order.
        settled: The rows and lets that are computed before the first effect.
        guards: The guards, in order.
        effect: All effects as one; None for none.
        shared: Compute the values of the pack's `let` that the reply reads, before the first effect.
    """

    names: frozenset[str]
    own: Mapping[str, abc.Collection[str] | None]
    acts: bool
    parts: _Parts
    checked: tuple[Row, ...] = ()
    settled: tuple[str, ...] = ()
    guards: tuple[Guard, ...] = ()
    effect: Effect | None = None
    shared: tuple[Run, ...] = ()

    def begin(self, scope: StatefulScope, work: UnitOfWork) -> BodyScope:
        """The scope of one call: live rows and lazy lets on top of the names of the call.

        `store`, `state` and the function `seq` read the unit of work.
        """
        return BodyScope(scope, work, self.parts)

    def judge(self, scope: BodyScope) -> Result | None:
        """The error of the first missing row or of the first guard that refuses; None to continue.

        Raises:
            ExpressionError: The mock is wrong.
        """
        # Rows first: guards may then rely on the rows that have `missing`.
        for row in self.checked:
            if scope[row.name] is None and row.missing is not None:
                return row.missing.answer(scope)
        for guard in self.guards:
            failed = guard.judge(scope)
            if failed is not None:
                return failed
        return None

    def act(self, scope: BodyScope) -> EffectRefusal | None:
        """Apply the effects, in order, up to the first that returns an error.

        Raises:
            ExpressionError: The mock is wrong; the unit of work must be discarded.
        """
        if self.effect is None:
            return None
        # Lets are lazy. One that is first read after an effect would otherwise see the changed store.
        for name in self.settled:
            scope[name]
        for compute in self.shared:
            compute(scope)
        try:
            self.effect.act(scope, scope)
        except _RefusedError as error:
            return error.refusal
        return None


def compile_body(block: dict[str, Any], pointer: str, tool: Descriptor, problems: list[Problem]) -> ReplyBody:
    """Compile `rows`, `let`, `guard` and `effects` of a reply that its schema has accepted.

    Problems are added to `problems`.
    """
    rows, names = compile_rows(block.get("rows", {}), f"{pointer}/rows", names_for(tool), tool, problems)
    lets, names = _lets(block.get("let", {}), f"{pointer}/let", names, problems)
    guards = compile_guards(block.get("guard", ()), f"{pointer}/guard", names, problems)
    effect = None
    if "effects" in block:
        if any(map(_always_ends, block["effects"])):
            message = "the effects of every call end with an error, so the result is never returned"
            hint = "add `if` to the error, or use `error` instead of the result"
            problems.append(Problem("unreachable_effect", message, f"{pointer}/effects", hint))
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
        parts=_parts(rows, lets, collections, used),
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
"""The names that a body provides to its expressions in addition to rows and lets."""


def _parts(
    rows: Mapping[str, Row],
    lets: Mapping[str, Rendering],
    collections: Sequence[str],
    used: frozenset[str],
) -> _Parts:
    makers: dict[str, Make] = {name: row.read for name, row in rows.items()}
    makers |= {name: let.run for name, let in lets.items()}
    makers |= {**_PROVIDED, "key_of": _Keys}
    makers |= {name: _reading(collection_of(name)) for name in collections}
    read = [name for name in ("store", "state", *collections) if name in used]
    return _Parts(rows, makers, (*rows, *read))


def _reading(collection: str) -> Make:
    return lambda scope: scope.work.rows(collection)


def _lets(
    block: Mapping[str, Any], pointer: str, names: Names, problems: list[Problem]
) -> tuple[dict[str, Rendering], dict[str, Any]]:
    """Compile `let`. Each entry may read the rows and the entries before it."""
    lets: dict[str, Rendering] = {}
    inner = dict(names)
    for name, value in block.items():
        place = f"{pointer}/{pointer_step(name)}"
        check_name(name, inner, problems, place)
        lets[name] = compile_value(value, inner, problems, place, forms=True)
        inner[name] = lets[name].keys
    return lets, inner


Act: TypeAlias = "Callable[[Scope, BodyScope], tuple[str, JSON] | None]"
"""Applies an effect. Receives the scope of its expressions and the scope of the call, whose rows it changes.

It may return the name of a row and its new value, which need not be read again then.
"""

Change: TypeAlias = "tuple[Act, frozenset[str]]"
"""A function that applies an effect, and the names that it reads."""

MOST_PARTS: Final = 10_000
"""The largest number of members and items in one value that an effect writes."""

MOST_DEPTH: Final = 64
"""The deepest nesting of one value that an effect writes."""

_NOTHING: Change = (lambda _scope, _root: None), frozenset()
"""The placeholder for an effect with a problem."""


# Written values.


def copy_for_store(value: JSON, budget: StepBudget) -> JSON:
    """A copy of a value for the store, counted against the budget.

    Raises:
        ExpressionError: The value is too large or nested too deeply.
    """
    if type(value) is not dict and type(value) is not list:
        return value
    # The value may be an argument or a part of another row, and must not share storage with the new one.
    left = [MOST_PARTS]
    copy: JSON = _copy(value, MOST_DEPTH, left)
    budget.copy(MOST_PARTS - left[0])
    return copy


def _copy(value: Any, depth: int, left: list[int]) -> Any:
    left[0] -= len(value)
    if left[0] < 0:
        raise ExpressionError(f"cannot store a value with more than {MOST_PARTS:,} parts")
    if depth == 0:
        raise ExpressionError(f"cannot store a value nested deeper than {MOST_DEPTH} levels")
    copy = value.copy()
    for key, item in value.items() if type(value) is dict else enumerate(value):
        if type(item) is dict or type(item) is list:
            copy[key] = _copy(item, depth - 1, left)
    return copy


Stored: TypeAlias = "Callable[[Scope, StepBudget], JSON]"
"""Computes a value for the store; see `copy_for_store`."""


def _stored(written: Rendering) -> Stored:
    """The function that computes a value for the store. Only what expressions return is copied."""
    compute = written.run

    def copied(scope: Scope, budget: StepBudget) -> JSON:
        return copy_for_store(compute(scope), budget)

    if written.part is None or written.part.members is None:
        return copied
    try:
        room = MOST_PARTS - _count_parts(written.part, MOST_DEPTH)
        build = written.fresh("args", _kept, MOST_DEPTH, counted=True)
    except ExpressionError:  # every call reports it
        return copied

    def built(scope: Scope, budget: StepBudget) -> JSON:
        left = [room]
        try:
            value = build(scope, left)
        # Once more, for the error with its place in the document.
        except (ExpressionError, LookupError, TypeError, RecursionError):
            return copied(scope, budget)
        budget.copy(MOST_PARTS - left[0])
        return value

    return built


def _kept(value: JSON, depth: int, left: list[int] | None = None) -> JSON:
    """The value of an expression within a stored value, or a constant for which nothing is counted at a call."""
    if type(value) is dict or type(value) is list:
        copy: JSON = _copy(value, depth, [MOST_PARTS] if left is None else left)
        return copy
    return value


def _count_parts(part: ExpressionPart, depth: int) -> int:
    """The number of members and items that are not computed.

    Raises:
        ExpressionError: There are too many, or they are nested too deeply.
    """
    if part.constant:
        left = [MOST_PARTS]
        _kept(part.value, depth, left)
        return MOST_PARTS - left[0]
    if part.members is None:
        return 0
    inner = part.members.values() if isinstance(part.members, dict) else part.members
    parts = len(part.members) + sum(_count_parts(each, depth - 1) for each in inner)
    if parts > MOST_PARTS:
        raise ExpressionError(f"cannot store a value with more than {MOST_PARTS:,} parts")
    return parts


# `update` and `delete`: one value, or some of its elements.


class _ElementSelection(NamedTuple):
    """The elements that an effect changes.

    Attributes:
        row_filter: Prepares the test of an element.
        one: Whether only the first matching element is changed, which must exist.
        names: The names that the test reads.
    """

    row_filter: RowFilter
    one: bool
    names: frozenset[str]

    def among(self, scope: Scope, root: BodyScope, location: Location, value: JSON) -> list[Location]:
        """The locations of the elements.

        Raises:
            ExpressionError: The value has no elements, or `first` matches none.
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
                f"no element of {format_location(location)} matches `first`",
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
) -> Callable[[Scope, BodyScope], Sequence[tuple[Location, JSON]]]:
    """The function that finds the locations that an effect changes, with their current values."""
    if chosen is None:
        return lambda scope, root: (place.find(scope, root),)

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
        message = f"`{place.root}` is a whole collection, not a row"
        hint = f"select a row, such as `{place.root}[args.id]`, or use `where` or `first`"
        ground.fault("not_a_row", message, pointer, hint)
        return None
    return place, chosen


def _check_fields(entry: dict[str, Any], place: StorePath, pointer: str, ground: CompileContext) -> None:
    """Report fields of `first` and `where` that no element can have."""
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

    def change(scope: Scope, root: BodyScope, location: Location, value: JSON) -> JSON:
        work = root.work
        changes = compute(scope, work)
        if not isinstance(value, dict):
            raise ExpressionError(f"{format_location(location)} is {kind(value)}, and `set` needs an object")
        changed = value | changes
        write_path(work, location, changed, changes, pointer, row=value if len(location) == 2 else None)
        return changed

    if chosen is not None:
        find = _targets(place, chosen)

        def update_some(scope: Scope, root: BodyScope) -> None:
            # Computed for each element: `set` may draw random numbers or count with `seq`.
            for location, value in find(scope, root):
                change(scope, root, location, value)

        return update_some, used | _read(place, chosen)
    is_row = not place.in_store and not place.steps

    def update_one(scope: Scope, root: BodyScope) -> tuple[str, JSON] | None:
        changed = change(scope, root, *place.find(scope, root))
        return (place.root, changed) if is_row else None

    return update_one, used | _read(place)


def _check_key(
    setting: JSON, place: StorePath, chosen: _ElementSelection | None, pointer: str, ground: CompileContext
) -> None:
    """Report a constant in `set` for the field that holds the row key, which must not change."""
    # A computed value is checked when the call commits: it may well equal the key.
    row = ground.rows.get(place.root)
    name = place.root if place.in_store else "" if row is None else row.collection
    collection = ground.tool.fixture.collections.get(name)
    levels = len(place.steps) + (chosen is not None)
    if collection is None or not isinstance(setting, dict) or levels != place.in_store:
        return
    value = setting.get(collection.key)
    if collection.key and value is not None and not (isinstance(value, str) and "{{" in value):
        message = f"`{collection.key}` is the row key of `{name}`, which cannot change"
        hint = "remove it; to change a row's key, `insert` a new row and `delete` the old one"
        ground.fault("row_breaks_schema", message, f"{pointer}/{pointer_step(collection.key)}", hint)


def _setting(
    setting: JSON, pointer: str, ground: CompileContext
) -> tuple[Callable[[Scope, StepBudget], dict[str, JSON]], frozenset[str], ExpressionPart | None]:
    """The function that computes the members for `set`, the names that it reads, and its parts if it is a mapping."""
    if isinstance(setting, str):
        run, used = compile_test(setting, ground.names, ground.problems, pointer)
        written = Rendering(constant=False, names=used, run=run)
    else:
        written = ground.value(setting, pointer)
    part, compute = written.part, written.run
    if part is not None and isinstance(part.members, dict):
        # Each member is a value of its own, with limits of its own.
        stored = [
            (key, _stored(Rendering(member.constant, frozenset(), member.run, member)))
            for key, member in part.members.items()
        ]
        return (lambda scope, budget: {key: make(scope, budget) for key, make in stored}), written.names, part

    def members(scope: Scope, budget: StepBudget) -> dict[str, JSON]:
        changes = compute(scope)
        if isinstance(changes, dict):
            return {key: copy_for_store(item, budget) for key, item in changes.items()}
        raise ExpressionError(f"`set` needs an object, not {kind(changes)}", pointer=pointer)

    return members, written.names, part


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
        # From the end, so that the indexes of the remaining elements stay valid.
        for location, _value in reversed(find(scope, root)):
            _remove(root, location, pointer)

    return act, _read(place, chosen)


def _remove(root: BodyScope, location: Location, pointer: str) -> None:
    # Two steps, a collection and a key, are a whole row.
    if len(location) == 2:
        root.work.remove(location[0], location[1])
        return
    within: Any = read_path(root.work, location[:-1])
    copy = within.copy()
    del copy[location[-1]]
    write_path(root.work, location[:-1], copy, [], pointer)
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
    compute = _stored(made)

    def act(scope: Scope, root: BodyScope) -> None:
        value = compute(scope, root.budget)
        location, items = place.find(scope, root)
        if not isinstance(items, list):
            raise ExpressionError(f"{format_location(location)} is {kind(items)}, and `append` needs a list")
        write_path(root.work, location, bounded_list([*items, value]), [value], pointer)

    return act, made.names | _read(place)


def _check_kind(place: StorePath, pointer: str, ground: CompileContext) -> None:
    spot = ground.spot(place)
    if spot is not None:
        spot.check_kind(pointer.rpartition("/")[2], pointer, ground)


def _change_of(entry: dict[str, Any], name: str, above: str, ground: CompileContext) -> Rendering:
    """Compile `by`, the amount of a change."""
    found = len(ground.problems)
    by = ground.value(entry.get("by", 1), f"{above}/by")
    if not by.constant or len(ground.problems) > found:
        return by
    # `by: args.n` is a common mistake: without braces it is plain text.
    value = by.render({})
    if isinstance(value, str):
        message = f"`{shortened(value)}` is text, not an expression"
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
            # Sums of floats drift (0.1 + 0.2); `round` keeps amounts of money at two digits.
            if digits is not None:
                result = bounded_number(round(result, digits))
            write_path(root.work, location, result, [result], pointer)

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
        hint = "add `key`, the key under which the value is stored"
        ground.fault("missing_key", f"`{name}` requires a `key` here", above, hint)
        return _NOTHING
    spot = ground.spot(place, elements=True)
    if spot is not None:
        check = spot.check_value if whole is None else spot.check_members
        check(made.part, f"{above}/value", ground)
    used = made.names | _read(place) | (frozenset() if key is None else key.names)
    value = _stored(made)
    putting = _Putting(value, None if key is None else key.run, name == "upsert", pointer)
    return (putting.in_object(place) if whole is None else putting.in_collection(whole)), used


class _Putting(NamedTuple):
    """A compiled `insert` or `upsert`.

    Attributes:
        value: Computes the value.
        key: Computes its key; None to use the key in the row, or the next free number.
        replaces: Whether an existing value may be replaced.
        pointer: JSON Pointer of the effect.
    """

    value: Stored
    key: Run | None
    replaces: bool
    pointer: str

    def in_collection(self, collection: Collection) -> Act:
        """The act that adds a row to a collection, and sets the key field of the row if it has none."""
        name, field = collection.name, collection.key

        def act(scope: Scope, root: BodyScope) -> None:
            row = self.value(scope, root.budget)
            key = _own_key(row, collection, root) if self.key is None else key_text(self.key(scope))
            if root.work.has(name, key):
                self.check((name, key))
            if field and isinstance(row, dict) and field not in row:
                row = {field: key, **row}
            root.work.put(name, key, row, self.pointer)

        return act

    def in_object(self, place: StorePath) -> Act:
        """The act that adds a member to an object within a row."""

        def act(scope: Scope, root: BodyScope) -> None:
            value = self.value(scope, root.budget)
            location, within = place.find(scope, root)
            if not isinstance(within, dict):
                raise ExpressionError(
                    f"{format_location(location)} is {kind(within)}, but an object is required"
                )
            key = key_text(None if self.key is None else self.key(scope))
            if key in within:
                self.check((*location, key))
            write_path(root.work, location, within | {key: value}, {key: value}, self.pointer)

        return act

    def check(self, location: Location) -> None:
        """Raise ExpressionError if the value at a location must not be replaced."""
        if not self.replaces:
            hint = "use `upsert` to replace it"
            raise ExpressionError(
                f"{format_location(location)} already exists", code="existing_key", hint=hint
            )


def _own_key(row: JSON, collection: Collection, root: BodyScope) -> str:
    name, field = collection.name, collection.key
    if not field:
        return root.work.free_key(name)
    if isinstance(row, dict) and field in row:
        return key_text(row[field])
    message = f"missing `{field}`, the row key of `{name}`"
    raise ExpressionError(message, hint="add it to the row, or set `key`")


def _container(text: str, pointer: str, ground: CompileContext) -> StorePath | None:
    """Compile the path of a container. A collection has precedence over a row of the same name."""
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
            there = list_of_names(list(machines)) if machines else "none"
            hint = did_you_mean(machine, machines) or "declare it under `state` in the pack or project"
            ground.fault(
                "unknown_machine", f"unknown state machine `{machine}`; known machines: {there}", place, hint
            )
            continue
        to = ground.value(state, place)
        allowed = machines[machine].states
        if to.constant and allowed and to.render({}) not in allowed:
            error = unknown_state(machine, to.render({}), allowed)
            ground.fault(error.code, error.message, place, error.hint)
        moves.append((machine, to.run))
        used |= to.names

    def act(scope: Scope, root: BodyScope) -> None:
        # All states are computed before the first machine moves: they may read each other's current state.
        for machine, state in [(machine, compute(scope)) for machine, compute in moves]:
            root.work.go(machine, state)

    return act, used


# `error`.


def _decide(entry: dict[str, Any], pointer: str, ground: CompileContext) -> Change:
    error = compile_error(entry["error"], pointer, ground.names, ground.problems)
    keep = bool(entry.get("keep", False))

    def act(scope: Scope, _root: BodyScope) -> None:
        raise _RefusedError(EffectRefusal(error.answer(scope), keep))

    return act, error.names


CHANGES: Mapping[str, Callable[[dict[str, Any], str, CompileContext], Change]] = {
    "update": _update,
    "append": _append,
    "increment": _moved(add),
    "decrement": _moved(subtract),
    "insert": _put,
    "upsert": _put,
    "delete": _delete,
    "goto": _goto,
    "error": _decide,
}
"""Kind of effect -> its compiler, which receives the entry, the pointer of its key and the compile context."""


_COMPUTED = re.compile(r"\{[{%](.*?)[%}]\}", re.DOTALL)
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_KEY_OF = re.compile(r"\bkey_of\b\W*([A-Za-z_][A-Za-z0-9_]*)", re.ASCII)


def unused_names(block: Mapping[str, Any], pointer: str, used: abc.Collection[str]) -> list[Problem]:
    """Problems for rows without `missing` and lets that neither the body nor the result reads.

    Args:
        block: The reply.
        pointer: JSON Pointer of the reply.
        used: The names that the body reads.
    """
    # The names that the template file reads are not known here.
    if "template_file" in block:
        return []
    # The result is not compiled yet, so its names are found in its text. A false match only hides a problem.
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
