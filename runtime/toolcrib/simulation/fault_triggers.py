"""Decide when an injected fault is due: all conditions must be met, and then `first` and `every` apply.

`between` limits a fault to a time range. Conditions and options may contain expressions; `fault_variables`
and `compile_fault_scope` define their variables.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from toolcrib.core.clock import format_time, parse_duration
from toolcrib.core.errors import ExpressionError, Problem
from toolcrib.core.model import JSON, Call, Descriptor
from toolcrib.core.protocols import CallSession
from toolcrib.core.subschemas import closed_names
from toolcrib.core.text import compact
from toolcrib.expressions import Scope, compile_condition
from toolcrib.expressions.compiler import hidden_key_name
from toolcrib.expressions.matchers import Matcher, compile_matcher, find_impossible

if TYPE_CHECKING:
    from toolcrib.expressions import Expression

_DURATION = re.compile(r"[0-9]+(\.[0-9]+)?(ms|s|m|h|d)")
# `24:00` is accepted as the end of a day.
_HOURS = re.compile(r"([01][0-9]|2[0-3]):[0-5][0-9](:[0-5][0-9])?|24:00")


class TimeRange(NamedTuple):
    """A time range that includes its start and excludes its end.

    Attributes:
        low: The start.
        high: The end; less than the start for a range over midnight.
        at: Returns the current time of a session on the same scale.
    """

    low: float
    high: float
    at: Callable[[CallSession], float]

    def holds(self, session: CallSession) -> bool:
        """Whether the current time of the session is in the range."""
        now = self.at(session)
        if self.low > self.high:
            return now >= self.low or now < self.high
        return self.low <= now < self.high


def compile_span(ends: list[str], pointer: str, problems: list[Problem]) -> TimeRange:
    """Compile a range of two durations since the session began, two times of day in UTC, or two timestamps.

    Times of day may span midnight: the second is then less than the first.
    """
    forms = [next((form for form in _FORMS if form.fits(end)), None) for end in ends]
    # An empty range: a fault whose range is invalid never happens.
    never = TimeRange(0, 0, lambda _session: 0)
    for index, form in enumerate(forms):
        if form is None:
            message = f"`{ends[index]}` is neither a duration nor a time"
            problem = Problem(code="wrong_form", message=message, pointer=f"{pointer}/{index}", hint=_HINT)
            problems.append(problem)
    first, second = forms
    if first is None or second is None:
        return never
    if first is not second:
        message = f"`{ends[0]}` is {first.name} and `{ends[1]}` is {second.name}"
        problems.append(
            Problem(
                code="contradiction", message=message, pointer=pointer, hint="write both in the same form"
            )
        )
        return never
    try:
        low, high = first.read(ends[0]), first.read(ends[1])
    except ValueError as error:
        problems.append(Problem(code="wrong_value", message=str(error), pointer=pointer, hint=_HINT))
        return never
    if low == high or (low > high and not first.daily):
        message = f"`{ends[1]}` is not later than `{ends[0]}`, so the range is empty"
        hint = "swap them" if low > high else "use a later end, which is exclusive"
        problems.append(Problem(code="out_of_range", message=message, pointer=pointer, hint=hint))
    return TimeRange(low, high, first.at)


_HINT = 'use `[5s, 1m]` since the session began, `["09:00", "17:30"]` in UTC, or two timestamps like `2030-01-01T09:00:00Z`'


class _Form(NamedTuple):
    """A notation for the ends of a range."""

    name: str
    fits: Callable[[str], object]
    read: Callable[[str], float]
    at: Callable[[CallSession], float]
    daily: bool = False


def _hours(text: str) -> float:
    parts = [int(part) for part in text.split(":")]
    return sum(part * unit for part, unit in zip(parts, (3600, 60, 1), strict=False))


def _moment(text: str) -> float:
    moment = datetime.fromisoformat(text)
    # Without a zone, the result would depend on the machine that runs the scenario.
    if moment.tzinfo is None:
        raise ValueError(f"`{text}` has no time zone")
    return moment.timestamp()


def _since_midnight(session: CallSession) -> float:
    now = session.clock.now()
    return (now - now.replace(hour=0, minute=0, second=0, microsecond=0)).total_seconds()


def _since_the_beginning(session: CallSession) -> float:
    return session.clock.monotonic() - session.began


_FORMS = (
    _Form("a duration", _DURATION.fullmatch, parse_duration, _since_the_beginning),
    _Form("a time of day", _HOURS.fullmatch, _hours, _since_midnight, daily=True),
    _Form("a timestamp", lambda text: "T" in text, _moment, lambda session: session.clock.now().timestamp()),
)


NUMBERS: dict[str, JSON] = {"type": "integer", "minimum": 1}
"""JSON Schema of the number of a call or attempt."""


class Condition(NamedTuple):
    """A condition of a fault.

    Attributes:
        key: Its key in `when`; `ready` for the condition that the kind of the fault implies.
        written: Its value as written.
        holds: Whether it is met; raises ExpressionError if an expression fails.
        reads: Whether it contains an expression.
    """

    key: str
    written: JSON
    holds: Callable[[Call, int, Scope], bool]
    reads: bool = False


class Trigger(NamedTuple):
    """A compiled `when`.

    Attributes:
        names: The names of the scope that it reads.
        conditions: The conditions, those with expressions last.
        first: The number of times that the fault is due; None for no limit.
        every: N to make the fault due on every Nth attempt that meets all conditions.
    """

    names: frozenset[str]
    conditions: tuple[Condition, ...]
    first: int | None = None
    every: int = 1

    def unmet(self, call: Call, number: int, scope: Scope) -> list[Condition]:
        """The conditions that are not met by an attempt; `number` is the number of its call.

        Raises:
            ExpressionError: An expression failed.
        """
        # Expressions are evaluated only if all other conditions are met, because they may rely on them: an
        # `if` over `args.n` together with `args: {n: {$exists: true}}`.
        unmet: list[Condition] = []
        for condition in self.conditions:
            if not (unmet and condition.reads) and not condition.holds(call, number, scope):
                unmet.append(condition)
        return unmet

    def takes(self, place: int) -> bool:
        """Whether the fault is due on the n-th attempt that meets all conditions."""
        return place % self.every == 0 and not self.over(place)

    def over(self, place: int) -> bool:
        """Whether the fault is never due from the n-th attempt on that meets all conditions."""
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
    """Compile a `when` that its schema has accepted.

    Args:
        when: The value in the document.
        pointer: JSON Pointer of the value.
        names: The names that its expressions may read.
        problems: Receives every problem.
        key: Identifies the fault in random draws.
        tool: The tool, if known; `args` is then checked against its input schema.
    """
    writing = _Writing(pointer, names, problems, key, tool)
    made = [(name, *_CONDITIONS[name](when[name], writing)) for name in _CONDITIONS if name in when]
    # In the order of `_CONDITIONS`, so that reports do not depend on the order of keys in the document.
    conditions = [Condition(name, when[name], holds, bool(read)) for name, read, holds in made]
    return Trigger(
        names=frozenset[str]().union(*(read for _name, read, _holds in made)),
        conditions=tuple(sorted(conditions, key=lambda condition: condition.reads)),
        first=when.get("first"),
        every=when.get("every", 1),
    )


class _Writing(NamedTuple):
    """What conditions are compiled with."""

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
                else f"{key}s are numbered from 1, so none matches {compact(pattern)}",
            )
            for problem in find_impossible(pattern, schema)
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
    span: TimeRange = compile_span(ends, f"{writing.pointer}/between", writing.problems)
    return frozenset(), lambda call, _number, _scope: span.holds(call.context.session)


def _probability(share: float, writing: _Writing) -> _Made:
    # Deferred: slow to import, and rarely used.
    from toolcrib.schema.keyed_random import KeyedRandom  # noqa: PLC0415

    key = writing.key

    def holds(call: Call, number: int, _scope: Scope) -> bool:
        # Keyed, so that an additional call does not move the fault to another one.
        session = call.context.session
        draw = KeyedRandom(session.seed, "fault", key, call.tool.name, session.id, number, call.attempt)
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


Keeping = Callable[[Call, str], JSON]
"""Returns the session's `store` or `state` for a call."""


def fault_variables(tool: Descriptor | None = None) -> Mapping[str, Collection[str] | None]:
    """The names that expressions of a tool's faults may read, with their keys if known.

    Most keys are known only with a tool.
    """
    names: dict[str, Collection[str] | None] = dict.fromkeys((*_READERS, "state", "store"))
    names["session"] = ("id", "calls")
    if tool is not None:
        names["args"] = closed_names(tool.input_schema)
        names["state"] = tuple(tool.fixture.machines)
        names["store"] = tuple(tool.fixture.collections)
        names |= {hidden_key_name("store", name): None for name in tool.fixture.collections}
    return names


_READERS: dict[str, Callable[[Call, int], JSON]] = {
    "args": lambda call, _number: call.arguments,
    "attempt": lambda call, _number: call.attempt,
    "call": lambda _call, number: number,
    "now": lambda call, _number: format_time(call.context.session.clock.now()),
    "seed": lambda call, _number: call.context.session.seed,
    "session": lambda call, _number: {"id": call.context.session.id, "calls": call.context.session.calls},
}


def compile_fault_scope(names: frozenset[str], keeping: Keeping) -> Callable[[Call, int], Mapping[str, JSON]]:
    """The function that creates the scope of an attempt. Only the given names are computed."""
    wanted = sorted(names)

    def scope(call: Call, number: int) -> Mapping[str, JSON]:
        return {
            name: _READERS[name](call, number) if name in _READERS else keeping(call, name) for name in wanted
        }

    return scope
