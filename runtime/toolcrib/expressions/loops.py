"""`for_each`: what is made of the elements of lists, without statements.

A form is a mapping whose keys are all of `for_each`, `let`, `where`, `value`, `sum`, `key`, with `for_each`
among them; every other mapping is data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from toolcrib.core.errors import ExpressionError
from toolcrib.core.model import JSON
from toolcrib.expressions.budget import Budget, Counted
from toolcrib.expressions.operators import add, is_number
from toolcrib.expressions.values import Run, Scope, kind

FORM = frozenset({"for_each", "let", "where", "value", "sum", "key"})
"""The keys of a form."""


def is_form(value: Mapping[str, JSON]) -> bool:
    """Whether a mapping is a `for_each` form and no data."""
    return "for_each" in value and value.keys() <= FORM


class Turn(Counted):
    """The scope of one turn after the other of a loop: its names, its lets, and what is around it.

    Args:
        outer: The scope around the loop.
        lets: Name -> what works it out, when it is first needed in a turn.
        keeps: Whether what is around stays the same while the loop runs, so that it is asked once.
    """

    __slots__ = ("_keeps", "_lets", "_outer")

    def __init__(self, outer: Scope, lets: Mapping[str, Run], *, keeps: bool) -> None:
        super().__init__(outer.budget if isinstance(outer, Counted) else Budget())
        self._outer = outer
        self._lets = lets
        self._keeps = keeps

    def __missing__(self, name: str) -> Any:
        if name in self._lets:
            value = self[name] = self._lets[name](self)
            return value
        found = self._outer[name]
        if self._keeps:
            self[name] = found
        return found

    def begin(self, names: tuple[str, ...], values: tuple[JSON, ...]) -> None:
        """The next turn: its values, and no let worked out."""
        for name in self._lets:
            self.pop(name, None)
        self.update(zip(names, values, strict=True))


class Loop(NamedTuple):
    """What a loop goes through.

    Attributes:
        names: What it calls the elements, side by side.
        lists: Where they come from, one for each name.
        lets: Name -> what works it out in a turn.
        where: Which turns count; None for all.
    """

    names: tuple[str, ...]
    lists: tuple[Run, ...]
    lets: Mapping[str, Run]
    where: Run | None

    def turns(self, scope: Scope, *, keeps: bool = True) -> Iterator[Turn]:
        """The scope of each turn; one object, so look at it before the next.

        Args:
            scope: The scope around the loop.
            keeps: Whether that stays the same meanwhile.

        Raises:
            ExpressionError: Something is no list, the lists are not equally long, or too long.
        """
        sides = [_list(name, run(scope)) for name, run in zip(self.names, self.lists, strict=True)]
        if len(sides) > 1:
            check_lengths(self.names, sides)
        turn = Turn(scope, self.lets, keeps=keeps)
        turn.budget.take(len(sides[0]))
        for values in zip(*sides, strict=True):
            turn.begin(self.names, values)
            if self.where is None or self.where(turn):
                yield turn


def _list(name: str, value: JSON) -> list[JSON]:
    if isinstance(value, list):
        return value
    hint = "go through `| keys`, `| values` or `| items`" if isinstance(value, dict) else ""
    raise ExpressionError(f"`for_each` needs a list for `{name}`, not {kind(value)}", hint=hint)


def check_lengths(names: tuple[str, ...], sides: list[list[JSON]]) -> None:
    """Refuse lists that can't go side by side.

    Raises:
        ExpressionError: They are not equally long.
    """
    if len({len(side) for side in sides}) > 1:
        lengths = ", ".join(f"`{name}` has {len(side):,}" for name, side in zip(names, sides, strict=True))
        raise ExpressionError(
            f"lists that go side by side need equal lengths: {lengths}",
            code="unequal_lists",
            hint="test the lengths before, in a `guard`",
        )


def records(loop: Loop) -> Run:
    """A list of objects of all names of the loop."""
    names = (*loop.names, *loop.lets)
    return lambda scope: [{name: turn[name] for name in names} for turn in loop.turns(scope)]


def listed(loop: Loop, value: Run) -> Run:
    """A list of one value a turn."""
    return lambda scope: [value(turn) for turn in loop.turns(scope)]


def summed(loop: Loop, value: Run) -> Run:
    """The sum of one number a turn, from 0 and from left to right."""

    def run(scope: Scope) -> JSON:
        total: JSON = 0
        for turn in loop.turns(scope):
            number = value(turn)
            if not is_number(number):
                raise ExpressionError(f"`sum` adds numbers, not {kind(number)}")
            # Not the builtin: from Python 3.12 it compensates, and the same document would give two results.
            total = add(total, number)
        return total

    return run


def keyed(loop: Loop, key: Run, value: Run) -> Run:
    """An object of one key and value a turn; of two with the same key the later one counts."""

    def run(scope: Scope) -> JSON:
        made: dict[str, JSON] = {}
        for turn in loop.turns(scope):
            name = key(turn)
            if not isinstance(name, str):
                hint = "turn it into a text with `| string`" if is_number(name) else ""
                raise ExpressionError(f"a `key` is a text, not {kind(name)}", hint=hint)
            made[name] = value(turn)
        return made

    return run
