"""What must be true when all steps are done: calls with their number, absence, order; rows, states, budgets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple, TypeAlias

from toolcrib.core.errors import ExpressionError
from toolcrib.core.model import JSON, NOTHING, Outcome
from toolcrib.core.text import compact
from toolcrib.expressions.matchers import Matcher
from toolcrib.loading.scenarios.expectations import CallRule, Verification, any_of
from toolcrib.loading.scenarios.steps import CallStep
from toolcrib.scenarios.reports import ScenarioFailure
from toolcrib.scenarios.store_view import StoreView


class LoggedCall(NamedTuple):
    """A call that was made.

    Attributes:
        place: Its number among the calls of the run, from 0.
        step: The step that made it.
        args: Its arguments.
        outcome: How it ended.
    """

    place: int
    step: CallStep
    args: JSON
    outcome: Outcome

    @property
    def tool(self) -> str:
        """The name by which the tool was called."""
        return self.step.call

    @property
    def label(self) -> str:
        """By which step, or in which turn."""
        return self.step.title


Show: TypeAlias = Callable[[LoggedCall], JSON]
"""The arguments of a call with secrets masked."""


def difference_lines(
    matcher: Matcher, value: JSON, shown: JSON, scope: Mapping[str, JSON] = NOTHING
) -> list[str]:
    """Where a value is not as a matcher wants it; `shown` is the value with secrets masked.

    What is masked is not told: there the text is that of the masked value.

    Raises:
        ExpressionError: An expression of the matcher failed.
    """
    differences = matcher.differences(value, scope)
    if not differences or shown == value:
        return [str(difference) for difference in differences]
    masked = {difference.pointer: difference for difference in matcher.differences(shown, scope)}
    lines = []
    for difference in differences:
        safe = masked.get(difference.pointer)
        lines.append(f"{difference.pointer}: differs, and is secret" if safe is None else str(safe))
    return lines


class FinalReply(NamedTuple):
    """How a conversation ended.

    Attributes:
        text: What the agent said last; None where there is no model that can say something.
        shown: The same with secrets masked.
        stop: Why its last turn ended.
    """

    text: str | None
    shown: str
    stop: str


class RunEvidence(NamedTuple):
    """A run of which all steps are done.

    Attributes:
        recorded: The calls that reached a tool.
        scope: What came of the steps, for expressions.
        show: Masks the arguments of a call.
        kept: What the mocks keep.
        spent: What all calls took: `calls`, `attempts`, and `elapsed` in seconds of the scenario's clock.
        last: How its conversation ended; None where there was none.
    """

    recorded: Sequence[LoggedCall]
    scope: Mapping[str, JSON]
    show: Show
    kept: StoreView
    spent: Mapping[str, float]
    last: FinalReply | None = None


def verify(rules: Verification, ending: RunEvidence) -> Iterator[ScenarioFailure]:
    """What is not as the rules say."""
    recorded, scope, show = ending[:3]
    for made in rules.calls:
        try:
            yield from _count(made, recorded, scope, show)
        except ExpressionError as error:
            yield ScenarioFailure(what="calls", lines=(error.message,), pointer=error.pointer or made.pointer)
    if rules.order is not None:
        kind, names = rules.order
        made_in_order = [call.tool for call in recorded]
        if not _ORDERS[kind](names, made_in_order):
            lines = (
                f"expected {_WORDS[kind]}: {', '.join(names)}",
                f"the calls were: {', '.join(made_in_order) or 'none'}",
            )
            yield ScenarioFailure(what="order", lines=lines, pointer=f"/verify/order/{kind}")
    for part, matcher in rules.kept.items():
        yield from _kept(part, matcher, ending)
    for part, matcher in rules.budget.items():
        yield from _spent(part, matcher, ending)
    if ending.last is not None:
        yield from _ended(rules, ending.last, ending.scope)


def _ended(rules: Verification, last: FinalReply, scope: Mapping[str, JSON]) -> Iterator[ScenarioFailure]:
    """What is not as it should be in how a conversation ended."""
    if rules.stops and last.stop not in rules.stops:
        line = f"stop: expected {' or '.join(rules.stops)}, got {last.stop}"
        yield ScenarioFailure(what="stop", lines=(line,), pointer="/verify/stop")
    if rules.final_text is None or last.text is None:
        return
    pointer = "/verify/final_text"
    try:
        found = difference_lines(rules.final_text, last.text, last.shown, scope)
        lines = [f"final_text{_placed(line)}" for line in found]
    except ExpressionError as error:
        lines, pointer = [f"final_text: {error.message}"], _within(pointer, error)
    if lines:
        yield ScenarioFailure(what="final_text", lines=tuple(lines), pointer=pointer)


def _kept(part: str, matcher: Matcher, ending: RunEvidence) -> Iterator[ScenarioFailure]:
    """What is not as it should be in the rows, or in the named states."""
    kept, pointer = ending.kept, f"/verify/{part}"
    try:
        value: dict[str, JSON] = kept.states() if part == "state" else kept.rows(_named(matcher))
        differences = matcher.differences(value, ending.scope)
        if not differences:
            return
        shown = value if part == "state" else kept.shown(value)
        lines = tuple(
            f"{part}{_placed(line)}" for line in difference_lines(matcher, value, shown, ending.scope)
        )
    except ExpressionError as error:
        yield ScenarioFailure(what=part, lines=(f"{part}: {error.message}",), pointer=_within(pointer, error))
        return
    yield ScenarioFailure(what=part, lines=lines, pointer=pointer + differences[0].pointer)


def _named(matcher: Matcher) -> list[str] | None:
    """The collections that a matcher is about; None where it may be about all of them."""
    pattern = matcher.expected()
    plain = isinstance(pattern, dict) and not any(key.startswith("$") for key in pattern)
    return [*pattern] if plain and isinstance(pattern, dict) else None


def _spent(part: str, matcher: Matcher, ending: RunEvidence) -> Iterator[ScenarioFailure]:
    pointer = f"/verify/budget/{part}"
    try:
        found = matcher.differences(ending.spent[part], ending.scope)
        lines = [f"budget/{part}{_placed(str(difference))}" for difference in found]
    except ExpressionError as error:
        lines, pointer = [f"budget/{part}: {error.message}"], _within(pointer, error)
    if lines:
        yield ScenarioFailure(what="budget", lines=tuple(lines), pointer=pointer)


def _placed(difference: str) -> str:
    return difference if difference.startswith("/") else f": {difference}"


def _within(pointer: str, error: ExpressionError) -> str:
    return error.pointer if error.pointer.startswith(pointer) else pointer + error.pointer


def _count(
    made: CallRule, recorded: Sequence[LoggedCall], scope: Mapping[str, JSON], show: Show
) -> Iterator[ScenarioFailure]:
    names = {name for name in {call[1].call for call in recorded} if fnmatchcase(name, made.tool)}
    named = [call for call in recorded if call[1].call in names]
    ended = [call for call in named if call.outcome in made.outcomes] if made.outcomes else named
    fitting = ended if made.args is None else [call for call in ended if made.args.matches(call[2], scope)]
    if made.times.matches(len(fitting), scope):
        return
    differences = made.times.differences(len(fitting), scope)
    with_args = "" if made.args is None else f" with {compact(made.args.expected())}"
    so = f" that ended {any_of(made.outcomes, '`{}`')}" if made.outcomes else ""
    lines = [f"calls of `{made.tool}`{with_args}{so}: {differences[0]}"]
    lines += [f"  {call.label}: {call.tool} {compact(show(call))}" for call in fitting]
    fit = {call.place for call in fitting}
    others = (call for call in named if call.place not in fit)
    lines += [f"  {call.label} differs: {_other(made, call, show, scope)}" for call in others]
    yield ScenarioFailure(what="calls", lines=tuple(lines), pointer=made.pointer)


def _other(made: CallRule, call: LoggedCall, show: Show, scope: Mapping[str, JSON]) -> str:
    """Why a call of the tool is none of those that are counted."""
    if made.outcomes and call.outcome not in made.outcomes:
        return f"it ended `{call.outcome}`"
    return "" if made.args is None else difference_lines(made.args, call.args, show(call), scope)[0]


def _in_order(names: Sequence[str], calls: Sequence[str]) -> bool:
    remaining = iter(calls)
    return all(name in remaining for name in names)


def _all_there(names: Sequence[str], calls: Sequence[str]) -> bool:
    left = list(calls)
    for name in names:
        if name not in left:
            return False
        left.remove(name)
    return True


_ORDERS = {
    "exact": lambda names, calls: list(names) == list(calls),
    "subsequence": _in_order,
    "any": _all_there,
}

_WORDS = {
    "exact": "exactly these calls",
    "subsequence": "these calls in this order",
    "any": "these calls in any order",
}
