"""What a reply does with the store: rows, lets, guards, effects, as one step around its answer."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

from toolcrib.core.errors import Problem
from toolcrib.core.model import Descriptor, Result
from toolcrib.core.pointers import pointer_step
from toolcrib.executors.mock.compile_context import Ground
from toolcrib.executors.mock.effects import Effect, compile_effects
from toolcrib.executors.mock.guards import Guard, compile_guards
from toolcrib.executors.mock.rows import Row, compile_rows
from toolcrib.executors.mock.store_paths import Location, Names
from toolcrib.executors.mock.unit_of_work import Work
from toolcrib.executors.mock.unused_names import idle_names
from toolcrib.executors.mock.variables import Scope, collection_of, names_for
from toolcrib.expressions import Rendering, compile_value
from toolcrib.expressions.budget import CountedScope
from toolcrib.expressions.functions import COUNTS
from toolcrib.expressions.loops import check_name

Make = Callable[["BodyScope"], Any]
"""Works out what a name stands for."""


class BodyScope(CountedScope):
    """What the expressions of one call read: rows as they are now, lets as they were first, and the call's own.

    Attributes:
        work: What the call makes of the store.
        effects: How many changes were made.
    """

    __slots__ = ("_found", "_live", "_makers", "_outer", "_rows", "effects", "work")

    def __init__(self, outer: Scope, work: Work, parts: _Parts) -> None:
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


class Body(NamedTuple):
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
    own: Mapping[str, Collection[str] | None]
    acts: bool
    parts: _Parts
    checked: tuple[Row, ...] = ()
    settled: tuple[str, ...] = ()
    guards: tuple[Guard, ...] = ()
    effect: Effect | None = None

    def begin(self, scope: Scope, work: Work) -> BodyScope:
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


def compile_body(block: dict[str, Any], pointer: str, tool: Descriptor, problems: list[Problem]) -> Body:
    """Compile `rows`, `let`, `guard`, `effects` of a reply whose shape its schema has accepted.

    Faults are added to `problems`.
    """
    rows, names = compile_rows(block.get("rows", {}), f"{pointer}/rows", names_for(tool), tool, problems)
    lets, names = _lets(block.get("let", {}), f"{pointer}/let", names, problems)
    guards = compile_guards(block.get("guard", ()), f"{pointer}/guard", names, problems)
    effect = None
    if "effects" in block:
        effect = compile_effects(block["effects"], f"{pointer}/effects", Ground(names, rows, tool, problems))
    readers = (*rows.values(), *lets.values(), *guards, *(() if effect is None else (effect,)))
    used = frozenset[str]().union(*(reader.names for reader in readers))
    problems += idle_names(block, pointer, used)
    collections = [name for name in names if collection_of(name)]
    own = {name: names[name] for name in (*rows, *lets, *(("key_of",) if rows else ()))}
    return Body(
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
