"""On which attempts a fault is due: all that is given must hold, and then `first` and `every` count."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from toolcrib.core.errors import ExpressionError, Problem
from toolcrib.core.model import JSON, Call, Descriptor
from toolcrib.core.text import compact
from toolcrib.expressions import Scope, compile_condition
from toolcrib.expressions.matchers import Matcher, compile_matcher, impossible
from toolcrib.simulation.faults.time_ranges import Span, compile_span

if TYPE_CHECKING:
    from toolcrib.expressions import Expression

NUMBERS: dict[str, JSON] = {"type": "integer", "minimum": 1}
"""The numbers that calls and attempts have."""


class Condition(NamedTuple):
    """One thing that must hold.

    Attributes:
        key: What it is called in `when`; `ready` for what the kind of the fault asks for.
        written: As it is written.
        holds: Whether it does; raises ExpressionError where an expression failed.
        reads: Whether it holds an expression.
    """

    key: str
    written: JSON
    holds: Callable[[Call, int, Scope], bool]
    reads: bool = False


class Trigger(NamedTuple):
    """A compiled `when`.

    Attributes:
        names: What it reads of the scope.
        conditions: What must hold, whatever was before; those with expressions come last.
        every: Of the attempts for which they hold, only each so manieth.
        first: Of these, only the first so many; None for all.
    """

    names: frozenset[str]
    conditions: tuple[Condition, ...]
    first: int | None = None
    every: int = 1

    def unmet(self, call: Call, number: int, scope: Scope) -> list[Condition]:
        """The conditions that do not hold for an attempt; the number is that of its call.

        What has expressions is not asked where something else does not hold: they may rely on that.

        Raises:
            ExpressionError: An expression failed.
        """
        unmet: list[Condition] = []
        for condition in self.conditions:
            if not (unmet and condition.reads) and not condition.holds(call, number, scope):
                unmet.append(condition)
        return unmet

    def takes(self, place: int) -> bool:
        """Whether the fault is due on the attempt that is the n-th for which all conditions hold."""
        return place % self.every == 0 and not self.over(place)

    def over(self, place: int) -> bool:
        """Whether the fault is due on no attempt from the n-th on for which all conditions hold."""
        return self.first is not None and place > self.first * self.every


def compile_trigger(
    when: Mapping[str, Any],
    pointer: str,
    names: Collection[str],
    problems: list[Problem],
    *,
    key: str,
    tool: Descriptor | None = None,
) -> Trigger:
    """Compile a `when` whose shape its schema has accepted.

    Args:
        when: As written.
        pointer: Where it stands in its document.
        names: The root names that its expressions may read.
        problems: Receives all that is wrong.
        key: Names the fault in what is drawn.
        tool: The tool, where it is known: then arguments are looked for that it can't have.
    """
    writing = _Writing(pointer, names, problems, key, tool)
    made = [(name, *_CONDITIONS[name](when[name], writing)) for name in _CONDITIONS if name in when]
    conditions = [Condition(name, when[name], holds, bool(read)) for name, read, holds in made]
    return Trigger(
        names=frozenset[str]().union(*(read for _name, read, _holds in made)),
        conditions=tuple(sorted(conditions, key=lambda condition: condition.reads)),
        first=when.get("first"),
        every=when.get("every", 1),
    )


class _Writing(NamedTuple):
    """Where conditions are written, and for what."""

    pointer: str
    names: Collection[str]
    problems: list[Problem]
    key: str
    tool: Descriptor | None


_Holds = Callable[[Call, int, Scope], bool]
_Made = tuple[frozenset[str], _Holds]


def _args(pattern: JSON, writing: _Writing) -> _Made:
    schema = True if writing.tool is None else writing.tool.input_schema
    matcher = _matcher("args", pattern, schema, writing)
    return matcher.names, lambda call, _number, scope: matcher.matches(call.arguments, scope)


def _call(pattern: JSON, writing: _Writing) -> _Made:
    matcher = _matcher("call", pattern, NUMBERS, writing)
    return matcher.names, lambda _call, number, scope: matcher.matches(number, scope)


def _attempt(pattern: JSON, writing: _Writing) -> _Made:
    matcher = _matcher("attempt", pattern, NUMBERS, writing)
    return matcher.names, lambda call, _number, scope: matcher.matches(call.attempt, scope)


def _matcher(key: str, pattern: JSON, schema: dict[str, JSON] | bool, writing: _Writing) -> Matcher:
    place = f"{writing.pointer}/{key}"
    found: list[Problem] = []
    matcher = compile_matcher(pattern, found, place, names=writing.names)
    if not found:
        found += [
            problem._replace(
                pointer=place + problem.pointer,
                message=problem.message
                if key == "args"
                else f"{key}s are numbered 1, 2, 3 ..., so none is {compact(pattern)}",
            )
            for problem in impossible(pattern, schema)
        ]
    writing.problems.extend(found)
    return matcher


def _if(text: str, writing: _Writing) -> _Made:
    place = f"{writing.pointer}/if"
    try:
        condition: Expression = compile_condition(text, writing.names)
    except ExpressionError as error:
        writing.problems.append(error.problem(place))
        return frozenset(), lambda _call, _number, _scope: False

    def holds(_call: Call, _number: int, scope: Scope) -> bool:
        try:
            return bool(condition.evaluate(scope))
        except ExpressionError as error:
            raise error.under(place) from None

    return condition.names, holds


def _between(ends: list[str], writing: _Writing) -> _Made:
    span: Span = compile_span(ends, f"{writing.pointer}/between", writing.problems)
    return frozenset(), lambda call, _number, _scope: span.holds(call.context.session)


def _probability(share: float, writing: _Writing) -> _Made:
    from toolcrib.schema.keyed_random import Draw  # noqa: PLC0415 -- slow to import, and rarely used

    key = writing.key

    def holds(call: Call, number: int, _scope: Scope) -> bool:
        session = call.context.session
        draw = Draw(session.seed, "fault", key, call.tool.name, session.id, number, call.attempt)
        return draw.number(0, 1) < share

    return frozenset(), holds


_CONDITIONS: dict[str, Callable[[Any, _Writing], _Made]] = {
    "call": _call,
    "attempt": _attempt,
    "args": _args,
    "between": _between,
    "if": _if,
    "probability": _probability,
}
