"""What must be true when all steps are done: calls with their number, absence, order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple, TypeAlias

from toolcrib.errors import ExpressionError
from toolcrib.loading.expectations import Made, Verify
from toolcrib.loading.steps import Step
from toolcrib.matching import Matcher
from toolcrib.model import JSON, NOTHING
from toolcrib.scenarios.reports import Failure
from toolcrib.text import compact


class Recorded(NamedTuple):
    """A call that was made.

    Attributes:
        place: Its number among the calls of the run, from 0.
        step: The step that made it.
        args: Its arguments.
    """

    place: int
    step: Step
    args: JSON

    @property
    def tool(self) -> str:
        """The name by which the tool was called."""
        return self.step.call

    @property
    def label(self) -> str:
        """By which step."""
        return f"step {self.step.label}"


Show: TypeAlias = Callable[[Recorded], JSON]
"""The arguments of a call with secrets masked."""


def told(matcher: Matcher, value: JSON, shown: JSON, scope: Mapping[str, JSON] = NOTHING) -> list[str]:
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


def verify(
    rules: Verify, recorded: Sequence[Recorded], scope: Mapping[str, JSON], show: Show
) -> Iterator[Failure]:
    """What is not as the rules say; `scope` holds what came of the steps, for their expressions."""
    for made in rules.calls:
        try:
            yield from _count(made, recorded, scope, show)
        except ExpressionError as error:
            yield Failure(what="calls", lines=(error.message,), pointer=error.pointer or made.pointer)
    if rules.order is not None:
        kind, names = rules.order
        made_in_order = [call.tool for call in recorded]
        if not _ORDERS[kind](names, made_in_order):
            lines = (
                f"expected {_WORDS[kind]}: {', '.join(names)}",
                f"the calls were: {', '.join(made_in_order) or 'none'}",
            )
            yield Failure(what="order", lines=lines, pointer=f"/verify/order/{kind}")


def _count(
    made: Made, recorded: Sequence[Recorded], scope: Mapping[str, JSON], show: Show
) -> Iterator[Failure]:
    names = {name for name in {step.call for _place, step, _args in recorded} if fnmatchcase(name, made.tool)}
    named = [call for call in recorded if call[1].call in names]
    fitting = named if made.args is None else [call for call in named if made.args.matches(call[2], scope)]
    if made.times.matches(len(fitting), scope):
        return
    differences = made.times.differences(len(fitting), scope)
    with_args = "" if made.args is None else f" with {compact(made.args.expected())}"
    lines = [f"calls of `{made.tool}`{with_args}: {differences[0]}"]
    lines += [f"  {call.label}: {call.tool} {compact(show(call))}" for call in fitting]
    if made.args is not None:
        fit = {call.place for call in fitting}
        others = (call for call in named if call.place not in fit)
        lines += [
            f"  {call.label} differs: {told(made.args, call.args, show(call), scope)[0]}" for call in others
        ]
    yield Failure(what="calls", lines=tuple(lines), pointer=made.pointer)


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
