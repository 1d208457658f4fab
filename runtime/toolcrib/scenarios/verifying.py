"""What must be true when all steps are done: calls with their number, absence, order."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from toolcrib.errors import ExpressionError
from toolcrib.loading.expectations import Made, Verify
from toolcrib.matching import Matcher
from toolcrib.model import JSON, NOTHING
from toolcrib.scenarios.reports import Failure
from toolcrib.text import compact


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """A call that was made.

    Attributes:
        tool: Name of the tool.
        args: Its arguments.
        label: By which step.
        show: Makes the arguments with secrets masked.
    """

    tool: str
    args: JSON
    label: str
    show: Callable[[], JSON]


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


def verify(rules: Verify, recorded: Sequence[Recorded], scope: Mapping[str, JSON]) -> Iterator[Failure]:
    """What is not as the rules say; `scope` holds what came of the steps, for their expressions."""
    for made in rules.calls:
        try:
            yield from _count(made, recorded, scope)
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


def _count(made: Made, recorded: Sequence[Recorded], scope: Mapping[str, JSON]) -> Iterator[Failure]:
    named = [call for call in recorded if fnmatchcase(call.tool, made.tool)]
    fitting = [call for call in named if made.args is None or made.args.matches(call.args, scope)]
    differences = made.times.differences(len(fitting), scope)
    if not differences:
        return
    with_args = "" if made.args is None else f" with {compact(made.args.expected())}"
    lines = [f"calls of `{made.tool}`{with_args}: {differences[0]}"]
    lines += [f"  {call.label}: {call.tool} {compact(call.show())}" for call in fitting]
    if made.args is not None:
        others = (call for call in named if call not in fitting)
        lines += [
            f"  {call.label} differs: {told(made.args, call.args, call.show(), scope)[0]}" for call in others
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
