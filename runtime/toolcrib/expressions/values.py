"""The JSON values of expressions: the names of their types, equality, text, bounds, and the budget of one call.

The budget counts steps and measures no time, so a call ends at the same place on every machine.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final, TypeAlias

from toolcrib.core.errors import ExpressionError
from toolcrib.core.model import JSON

Scope: TypeAlias = Mapping[str, JSON]
"""Root name -> value. May be lazy: a name is looked up only when an expression reads it."""

Run: TypeAlias = Callable[[Scope], JSON]
"""A compiled piece of an expression."""

MOST_DIGITS = 1_000
"""Decimal digits of a whole number that an expression may produce."""

MOST_TEXT = 256 * 1024
"""UTF-8 bytes of a text that an expression or template may produce."""

MOST_ITEMS = 10_000
"""Elements of a list that an expression may produce; turns of all loops of one template."""

_TOO_BIG = 10**MOST_DIGITS

compact = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
"""A JSON value as JSON text without blanks."""


def kind(value: JSON) -> str:
    """What a value is, in the words of messages."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "`true`" if value else "`false`"
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "a string"
    return "a list" if isinstance(value, list) else "an object"


def as_text(value: JSON) -> str:
    """A value within a text: texts as they are, everything else in JSON's spelling."""
    if isinstance(value, str):
        return value
    if value is None:
        return "null"
    return compact(value)


def equal(left: JSON, right: JSON) -> bool:
    """JSON equality: `1 == 1.0`, `true != 1`, order of keys free; through lists and objects."""
    if isinstance(left, str):
        return left == right
    if isinstance(left, bool) or isinstance(right, bool):
        return left is right
    if isinstance(left, dict):
        if not isinstance(right, dict) or len(left) != len(right):
            return False
        return all(key in right and equal(value, right[key]) for key, value in left.items())
    if isinstance(left, list):
        if not isinstance(right, list) or len(left) != len(right):
            return False
        return all(map(equal, left, right))
    return left == right


def frozen(value: JSON) -> Hashable:
    """A key that two values share exactly when they are equal."""
    if isinstance(value, bool):
        return ("true" if value else "false",)
    if isinstance(value, dict):
        return ("object", frozenset((key, frozen(item)) for key, item in value.items()))
    if isinstance(value, list):
        return ("list", tuple(map(frozen, value)))
    return value


def bounded_number(value: float) -> float:
    """The number itself.

    Raises:
        ExpressionError: It is not finite, or longer than `MOST_DIGITS`.
    """
    if isinstance(value, int):
        if -_TOO_BIG < value < _TOO_BIG:
            return value
        raise ExpressionError(f"a whole number exceeds {MOST_DIGITS:,} digits")
    if math.isfinite(value):
        return value
    raise ExpressionError("a number is too large for JSON")


def text_size(text: str) -> int:
    """Bytes of a text in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def bounded_text(text: str) -> str:
    """The text itself.

    Raises:
        ExpressionError: It is longer than `MOST_TEXT`.
    """
    if len(text) * 4 > MOST_TEXT and text_size(text) > MOST_TEXT:
        raise ExpressionError(f"a string exceeds {MOST_TEXT // 1024} KiB")
    return text


def bounded_list(items: list[JSON]) -> list[JSON]:
    """The list itself.

    Raises:
        ExpressionError: It has more than `MOST_ITEMS` elements.
    """
    if len(items) > MOST_ITEMS:
        raise ExpressionError(f"a list exceeds {MOST_ITEMS:,} elements")
    return items


def shortened(text: str, most: int = 60) -> str:
    """A text as messages quote it: at most `most` characters, then `...`."""
    return text if len(text) <= most else text[:most] + "..."


def list_of_names(names: list[str], most: int = 10) -> str:
    """Names as messages list them: in backticks, at most `most`, then how many more there are."""
    listed = ", ".join(f"`{shortened(name)}`" for name in names[:most])
    rest = len(names) - most
    return f"{listed} and {rest} more" if rest > 0 else listed


MOST_STEPS: Final = 5_000_000
"""Elements of lists and objects that the expressions of one call may go through."""

FREE: Final = 64
"""Elements that are not counted: most lists are short, and the loops around them are counted."""

SIZED: Final = frozenset({dict, list, str})
"""Values that take the longer the more there is in them."""

_LETTERS: Final = 64
"""Characters of a text that take as long as one element."""

_COPIES: Final = 8
"""Elements that are copied in the time in which one is looked at."""


class StepBudget:
    """What one call may still do.

    Attributes:
        left: How many elements its loops may go through.
        steps: How many elements may be looked at.
    """

    __slots__ = ("left", "steps")

    def __init__(self) -> None:
        self.left = MOST_ITEMS
        self.steps = MOST_STEPS

    def take(self, elements: int) -> None:
        """Count the elements of a loop that begins.

        Raises:
            ExpressionError: They are too many.
        """
        self.left -= elements
        if self.left < 0:
            raise ExpressionError(f"the loops of one call exceed {MOST_ITEMS:,} elements")

    def visit(self, elements: int) -> None:
        """Count elements that are looked at.

        Raises:
            ExpressionError: They are too many.
        """
        self.steps -= elements
        if self.steps < 0:
            raise ExpressionError(
                f"one call processes more than {MOST_STEPS:,} elements",
                hint="look up rows by key, `store.orders['o1']`, and compute repeated values once in `let`",
            )

    def copy(self, elements: int) -> None:
        """Count elements that are copied.

        Raises:
            ExpressionError: They are too many.
        """
        self.visit(elements // _COPIES)


class CountedScope(dict[str, Any]):
    """A scope whose expressions share one budget."""

    __slots__ = ("budget",)

    def __init__(self, budget: StepBudget) -> None:
        super().__init__()
        self.budget = budget


def budget_of(scope: Scope) -> StepBudget | None:
    """The budget of the call whose scope this is; None where nothing is counted."""
    if isinstance(scope, CountedScope):
        return scope.budget
    maps = getattr(scope, "maps", None)  # the loops of templates put maps before a scope
    return budget_of(maps[-1]) if maps else None


def visit(scope: Scope, value: dict[str, JSON] | list[JSON] | str) -> None:
    """Count what is in a value that a function goes through.

    Raises:
        ExpressionError: The call goes through too much.
    """
    budget = budget_of(scope)
    if budget is not None:
        budget.visit(len(value) // _LETTERS if isinstance(value, str) else len(value))


def visit_all(scope: Scope, value: JSON) -> None:
    """Count everything in an object or list, at every level.

    Raises:
        ExpressionError: The call goes through too much.
    """
    budget = budget_of(scope)
    if budget is None:
        return
    values: list[Any] = [value]
    while values:
        inner = values.pop()
        if isinstance(inner, dict | list):
            budget.visit(len(inner))
            values += inner.values() if isinstance(inner, dict) else inner
