"""Compile `for_each` loops over lists. A list of loops is nested: `for_each: [{order: ...}, {item: "{{ order.items }}"}]`.

A mapping is a `for_each` form if it has `for_each` and otherwise only `let`, `where`, `value`, `sum` and `key`; any other
mapping is data.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple, cast

from toolcrib.core.errors import ExpressionError, Problem
from toolcrib.core.model import JSON
from toolcrib.core.pointers import pointer_step
from toolcrib.expressions.compiler import ExpressionPart, hidden_definition_name
from toolcrib.expressions.expression import RESERVED, compile_condition
from toolcrib.expressions.operators import add, is_number
from toolcrib.expressions.structures import Rendering, compile_value, with_location
from toolcrib.expressions.values import CountedScope, Run, Scope, StepBudget, kind, shortened

MOST_LOOPS = 16
"""The largest number of loops that one `for_each` nests."""

FORM = frozenset({"for_each", "let", "where", "value", "sum", "key"})
"""The keys of a form."""


def is_form(value: Mapping[str, JSON]) -> bool:
    """Whether a mapping is a `for_each` form, not data."""
    return "for_each" in value and value.keys() <= FORM


class LoopScope(CountedScope):
    """The scope of the iterations of a loop: its variables, its lets, and the surrounding scope.

    Args:
        outer: The scope around the loop.
        lets: Name -> closure, evaluated at first use in each iteration.
        keeps: Whether the outer scope does not change while the loop runs, so that its values can be cached.
    """

    # One scope object serves all iterations, which saves a new mapping for each.

    __slots__ = ("_keeps", "_lets", "_outer")

    def __init__(self, outer: Scope, lets: Mapping[str, Run], *, keeps: bool) -> None:
        self.budget = outer.budget if isinstance(outer, CountedScope) else StepBudget()
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


class Loop(NamedTuple):
    """A compiled loop.

    Attributes:
        names: The loop variables.
        lists: One closure per variable that returns its list.
        lets: Name -> closure, evaluated in each iteration.
        where: Filters the iterations; None for all.
        around: The loop in whose iterations it runs; None if it is the outermost.
    """

    names: tuple[str, ...]
    lists: tuple[Run, ...]
    lets: Mapping[str, Run]
    where: Run | None
    around: Loop | None = None

    @property
    def variables(self) -> tuple[str, ...]:
        """All names that an iteration defines, from the outermost loop inwards."""
        outer = () if self.around is None else self.around.variables
        return (*outer, *self.names, *self.lets)

    def turns(self, scope: Scope, *, keeps: bool = True) -> Iterator[LoopScope]:
        """Yield the scope of each iteration. Use it before the next one, which may change it.

        Args:
            scope: The scope around the loop.
            keeps: Whether that scope does not change while the loop runs.

        Raises:
            ExpressionError: A value is not a list, or the lists differ in length or are too long.
        """
        if self.around is None:
            return self._turns(scope, keeps=keeps)
        outer = self.around.turns(scope, keeps=keeps)
        return (turn for around in outer for turn in self._turns(around, keeps=keeps))

    def _turns(self, scope: Scope, *, keeps: bool) -> Iterator[LoopScope]:
        names, lets, where = self.names, self.lets, self.where
        sides = [_list(name, run(scope)) for name, run in zip(names, self.lists, strict=True)]
        if len(sides) > 1:
            check_lengths(names, sides)
        turn = LoopScope(scope, lets, keeps=keeps)
        turn.budget.take(len(sides[0]))
        name = names[0] if len(names) == 1 else ""
        for values in sides[0] if name else zip(*sides, strict=True):
            for each in lets:
                turn.pop(each, None)
            if name:
                turn[name] = values
            else:
                turn.update(zip(names, cast("Any", values), strict=True))
            if where is None or where(turn):
                yield turn


def _list(name: str, value: JSON) -> list[JSON]:
    if isinstance(value, list):
        return value
    hint = "iterate over `| keys`, `| values` or `| items`" if isinstance(value, dict) else ""
    raise ExpressionError(f"`for_each` needs a list for `{name}`, not {kind(value)}", hint=hint)


def check_lengths(names: tuple[str, ...], sides: list[list[JSON]]) -> None:
    """Check that lists have equal lengths.

    Raises:
        ExpressionError: `unequal_lists`.
    """
    if len({len(side) for side in sides}) > 1:
        lengths = ", ".join(f"`{name}` has {len(side):,}" for name, side in zip(names, sides, strict=True))
        raise ExpressionError(
            f"lists that are iterated together must have equal lengths: {lengths}",
            code="unequal_lists",
            hint="check the lengths first, in a `guard`",
        )


def collect_records(loop: Loop) -> Run:
    """Collect a list of objects with all variables and lets of the loop."""
    names = loop.variables
    return lambda scope: [{name: turn[name] for name in names} for turn in loop.turns(scope)]


def collect_list(loop: Loop, value: Run) -> Run:
    """Collect a list of one value per iteration."""
    return lambda scope: [value(turn) for turn in loop.turns(scope)]


def collect_sum(loop: Loop, value: Run) -> Run:
    """Collect the sum of one number per iteration, from left to right, starting at 0."""

    def run(scope: Scope) -> JSON:
        total: JSON = 0
        for turn in loop.turns(scope):
            number = value(turn)
            if not is_number(number):
                raise ExpressionError(f"`sum` adds numbers, not {kind(number)}")
            # The built-in sum() compensates for rounding errors since Python 3.12, so results would depend on
            # the version.
            total = add(total, number)
        return total

    return run


def collect_object(loop: Loop, key: Run, value: Run) -> Run:
    """Collect an object of one key and value per iteration; the last value of a repeated key counts."""

    def run(scope: Scope) -> JSON:
        made: dict[str, JSON] = {}
        for turn in loop.turns(scope):
            name = key(turn)
            if not isinstance(name, str):
                hint = "convert it with `| string`" if is_number(name) else ""
                raise ExpressionError(f"a `key` must be a string, not {kind(name)}", hint=hint)
            made[name] = value(turn)
        return made

    return run


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MADE = (frozenset[str](), frozenset({"value"}), frozenset({"sum"}), frozenset({"key", "value"}))


class LoopForm(NamedTuple):
    """A loop in a document.

    Attributes:
        loop: The compiled loop.
        inner: The names that an iteration may read, with the keys of their values if known.
        used: The outer names that the loop itself reads.
        lets: Lets that neither another let nor `where` reads -> their pointers.
    """

    loop: Loop
    inner: Mapping[str, Collection[str] | None]
    used: frozenset[str]
    lets: Mapping[str, str]

    def outside(self, used: frozenset[str]) -> frozenset[str]:
        """The outer names that the loop and its body read, given the names that the body reads."""
        return self.used | (used - {*self.loop.variables})

    def check_used(self, used: frozenset[str], problems: list[Problem]) -> None:
        """Report lets that nothing reads."""
        problems += [
            unused_name_problem("let", name, place) for name, place in self.lets.items() if name not in used
        ]


def read_form(
    block: dict[str, Any], names: Collection[str], problems: list[Problem], pointer: str
) -> tuple[ExpressionPart, frozenset[str]]:
    """Compile a form; problems are appended to `problems`.

    Returns:
        The compiled part, and the outer names that it reads.
    """
    read = read_loop(block, names, problems, pointer)
    made = frozenset(block) & {"value", "sum", "key"}
    if made not in _MADE:
        message = "use `for_each` with `value` (a list), `sum` (a number), `key` and `value` (an object) or none of them (records)"
        problems.append(
            Problem(
                code="invalid_for_each",
                message=message,
                pointer=pointer,
                hint=f"remove one of {_listed(made)}" if len(made) > 1 else "add `value`",
            )
        )
        return ExpressionPart(lambda _scope: None), read.used
    parts = {
        key: compile_value(block[key], read.inner, problems, f"{pointer}/{key}", forms=True)
        for key in sorted(made)
    }
    used = frozenset[str]().union(*(part.names for part in parts.values()))
    # Without `value`, `sum` or `key` every let becomes a field of the records, so none is unused.
    if parts:
        read.check_used(used, problems)
    runs = {key: part.run for key, part in parts.items()}
    return ExpressionPart(with_location(_maker(read.loop, runs), pointer)), read.outside(used)


def _maker(loop: Loop, runs: Mapping[str, Run]) -> Run:
    if "sum" in runs:
        return collect_sum(loop, runs["sum"])
    if "key" in runs:
        return collect_object(loop, runs["key"], runs["value"])
    return collect_list(loop, runs["value"]) if "value" in runs else collect_records(loop)


def read_loop(
    block: Mapping[str, Any], names: Collection[str], problems: list[Problem], pointer: str
) -> LoopForm:
    """Compile `for_each`, `let` and `where` of a mapping; problems are appended to `problems`.

    Args:
        block: The mapping.
        names: The outer names; a mapping gives the keys of their values, or None if unknown.
        problems: Receives every problem.
        pointer: The pointer of the mapping.
    """
    inner = _with_keys(names)
    used: set[str] = set()
    levels: list[dict[str, Rendering]] = []
    for place, level in _levels(block["for_each"], problems, f"{pointer}/for_each"):
        lists = _lists(level, inner, problems, place)
        used.update(*(made.names for made in lists.values()))
        inner |= {name: None if made.keys is None else made.keys.below(None) for name, made in lists.items()}
        levels.append(lists)
    idle: dict[str, str] = {}
    lets: dict[str, Run] = {}
    for name, value in _entries(block.get("let"), f"{pointer}/let", problems).items():
        place = f"{pointer}/let/{pointer_step(name)}"
        check_name(name, inner, problems, place)
        made = compile_value(value, inner, problems, place, forms=True)
        used |= made.names
        lets[name] = made.run
        inner |= {name: made.keys}
        idle[name] = place
    where = None
    if "where" in block:
        condition, read = compile_test(block["where"], inner, problems, f"{pointer}/where")
        where, used = condition, used | read
    idle = {name: place for name, place in idle.items() if name not in used}
    *outer, last = levels
    around = None
    for lists in outer:
        around = Loop(tuple(lists), tuple(made.run for made in lists.values()), {}, None, around)
    loop = Loop(tuple(last), tuple(made.run for made in last.values()), lets, where, around)
    return LoopForm(loop, inner, frozenset(used.difference(loop.variables)), idle)


def _levels(block: JSON, problems: list[Problem], pointer: str) -> list[tuple[str, JSON]]:
    """The loops of a `for_each` with their pointers, outermost first: one, or several nested ones."""
    if isinstance(block, list) and block:
        if len(block) > MOST_LOOPS:
            message = f"`for_each` nests at most {MOST_LOOPS} loops, not {len(block):,}"
            problems.append(Problem(code="invalid_for_each", message=message, pointer=pointer))
            block = block[:MOST_LOOPS]
        return [(f"{pointer}/{index}", level) for index, level in enumerate(block)]
    return [(pointer, block)]


def _with_keys(names: Collection[str]) -> dict[str, Collection[str] | None]:
    """A copy of the names with the keys of their values."""
    return dict(names) if isinstance(names, Mapping) else dict.fromkeys(names)


def _lists(
    block: JSON, names: Mapping[str, Any], problems: list[Problem], pointer: str
) -> dict[str, Rendering]:
    lists = {}
    for name, value in _entries(block, pointer, problems, '`{item: "{{ args.items }}"}`').items():
        place = f"{pointer}/{pointer_step(name)}"
        check_name(name, names, problems, place)
        made = compile_value(value, names, problems, place)
        if not isinstance(value, list) and (not isinstance(value, str) or "{{" not in value):
            message = f"`for_each` needs a list for `{shortened(name)}`"
            hint = 'use a list or an expression that returns one: `"{{ args.items }}"`'
            problems.append(Problem(code="invalid_for_each", message=message, pointer=place, hint=hint))
        lists[name] = made
    # Literal lists are compared at load; computed ones when the loop runs.
    literal = {name: side for name, side in _dict(block).items() if isinstance(side, list)}
    try:
        check_lengths(tuple(literal), list(literal.values()))
    except ExpressionError as error:
        problems.append(error.problem(pointer, hint="give them the same length"))
    return lists or {"": Rendering(constant=True, names=frozenset(), run=lambda _scope: [])}


def _dict(block: JSON) -> dict[str, JSON]:
    return block if isinstance(block, dict) else {}


def _entries(block: JSON, pointer: str, problems: list[Problem], example: str = "") -> dict[str, JSON]:
    """The entries of a mapping; `for_each` (which passes `example`) must have at least one."""
    if isinstance(block, dict) and (block or not example):
        return block
    if block is not None or example:
        shown = example or '`{total: "{{ item.price * item.count }}"}`'
        message = f"expected names with their values, as in {shown}"
        problems.append(Problem(code="invalid_for_each", message=message, pointer=pointer))
    return {}


def compile_test(
    text: JSON, names: Collection[str], problems: list[Problem], pointer: str
) -> tuple[Run, frozenset[str]]:
    """Compile a condition, which must be a single expression. If it is invalid, the problem is reported.

    Returns:
        A closure whose errors carry the pointer (always False if invalid), and the names that it reads.
    """
    try:
        condition = compile_condition(text if isinstance(text, str) else "", names, pointer)
    except ExpressionError as error:
        problems.append(error.problem(pointer))
        return (lambda _scope: False), frozenset()
    return with_location(condition.run, pointer), condition.names


def check_name(name: str, names: Collection[str], problems: list[Problem], pointer: str) -> None:
    """Report a name that expressions cannot read, or that hides another one."""
    if _NAME.fullmatch(name) is None or name in RESERVED:
        message = f"`{shortened(name)}` is not a valid name in expressions"
        hint = "use letters, digits and `_`, without a digit at the start, and no reserved word"
        problems.append(Problem(code="invalid_name", message=message, pointer=pointer, hint=hint))
    elif name in names or hidden_definition_name(name) in names:
        message = f"the name `{name}` is already in use here"
        problems.append(
            Problem(code="name_taken", message=message, pointer=pointer, hint="choose another name")
        )


def unused_name_problem(what: str, name: str, pointer: str) -> Problem:
    """The problem of a name that nothing reads."""
    message = f"unused {what} `{shortened(name)}`"
    return Problem(code="unused_name", message=message, pointer=pointer, hint="remove it or use it")


def _listed(keys: Collection[str]) -> str:
    return " and ".join(f"`{key}`" for key in sorted(keys))
