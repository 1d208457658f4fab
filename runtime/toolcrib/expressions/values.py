"""JSON values in expressions: type names, equality, text, limits, and the step budget of a call.

The budget counts steps instead of time, so a call that exceeds it fails at the same place on every machine.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final, TypeAlias

from toolcrib.core.errors import ExpressionError
from toolcrib.core.model import JSON

Scope: TypeAlias = Mapping[str, JSON]
"""Root name -> value. May be lazy: a name is only looked up when an expression reads it."""

Run: TypeAlias = Callable[[Scope], JSON]
"""A compiled piece of an expression."""

MOST_DIGITS = 1_000
"""Maximum number of decimal digits of an integer that an expression produces."""

MOST_TEXT = 256 * 1024
"""Maximum size of a string that an expression or template produces, in UTF-8 bytes."""

MOST_ITEMS = 10_000
"""Maximum number of elements of a list that an expression produces, and of loop iterations in one template."""

_TOO_BIG = 10**MOST_DIGITS

compact = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode
"""Encodes a JSON value without whitespace."""


def kind(value: JSON) -> str:
    """The type of a value, as messages name it."""
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
    """A value inside a text: strings unchanged, everything else as JSON."""
    if isinstance(value, str):
        return value
    if value is None:
        return "null"
    return compact(value)


def equal(left: JSON, right: JSON) -> bool:
    """JSON equality, recursive: `1 == 1.0`, `true != 1`; the order of keys does not matter."""
    if isinstance(left, str):
        return left == right
    # In Python `True == 1`, so booleans are compared by identity.
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
    """A hashable key that two values share exactly if they are equal."""
    # Tags keep booleans and containers apart from numbers and from each other; 1 and 1.0 have the same hash.
    if isinstance(value, bool):
        return ("true" if value else "false",)
    if isinstance(value, dict):
        return ("object", frozenset((key, frozen(item)) for key, item in value.items()))
    if isinstance(value, list):
        return ("list", tuple(map(frozen, value)))
    return value


def thawed(key: Any) -> JSON:
    """A value that has this key of `frozen`."""
    if not isinstance(key, tuple):
        value: JSON = key
        return value
    if key[0] == "object":
        return {name: thawed(item) for name, item in key[1]}
    return [*map(thawed, key[1])] if key[0] == "list" else key[0] == "true"


def bounded_number(value: float) -> float:
    """The number itself.

    Raises:
        ExpressionError: It is not finite, or longer than `MOST_DIGITS`.
    """
    # The comparison is cheap; counting digits through str() takes quadratic time.
    if isinstance(value, int):
        if -_TOO_BIG < value < _TOO_BIG:
            return value
        raise ExpressionError(f"a whole number exceeds {MOST_DIGITS:,} digits")
    if math.isfinite(value):
        return value
    raise ExpressionError("a number is too large for JSON")


def text_size(text: str) -> int:
    """Size of a string in UTF-8 bytes."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def bounded_text(text: str) -> str:
    """The text itself.

    Raises:
        ExpressionError: It is longer than `MOST_TEXT`.
    """
    # A character has at most 4 bytes, so most strings are accepted without encoding them.
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
    """A string as messages quote it: at most `most` characters, then `...`."""
    return text if len(text) <= most else text[:most] + "..."


def list_of_names(names: list[str], most: int = 10) -> str:
    """Names as messages list them: in backticks, at most `most`, followed by the number of the rest."""
    listed = ", ".join(f"`{shortened(name)}`" for name in names[:most])
    rest = len(names) - most
    return f"{listed} and {rest} more" if rest > 0 else listed


MOST_STEPS: Final = 5_000_000
"""Maximum number of elements that the expressions of one call may process."""

FREE: Final = 64
"""Values of up to this many elements are not counted: most lists are short, and loops around them are counted."""

SIZED: Final = frozenset({dict, list, str})
"""Types whose processing time grows with their size."""

_LETTERS: Final = 64
"""Number of characters that cost as much as one element."""

_COPIES: Final = 8
"""Number of elements whose copying costs as much as visiting one."""


class StepBudget:
    """The remaining budget of one call.

    Attributes:
        left: Number of loop iterations.
        steps: Number of elements that may be processed.
    """

    __slots__ = ("left", "steps")

    def __init__(self) -> None:
        self.left = MOST_ITEMS
        self.steps = MOST_STEPS

    def take(self, elements: int) -> None:
        """Count the iterations of a loop before it starts.

        Raises:
            ExpressionError: The budget is exceeded.
        """
        self.left -= elements
        if self.left < 0:
            raise ExpressionError(f"the loops of one call exceed {MOST_ITEMS:,} elements")

    def visit(self, elements: int) -> None:
        """Count elements that are processed.

        Raises:
            ExpressionError: The budget is exceeded.
        """
        self.steps -= elements
        if self.steps < 0:
            raise _too_many_steps()

    def copy(self, elements: int) -> None:
        """Count elements that are copied.

        Raises:
            ExpressionError: The budget is exceeded.
        """
        self.steps -= elements // _COPIES
        if self.steps < 0:
            raise _too_many_steps()


def _too_many_steps() -> ExpressionError:
    return ExpressionError(
        f"one call processes more than {MOST_STEPS:,} elements",
        hint="look up rows by key, `store.orders['o1']`, and compute repeated values once in `let`",
    )


class CountedScope(dict[str, Any]):
    """A scope whose expressions share one budget."""

    __slots__ = ("budget",)

    def __init__(self, budget: StepBudget) -> None:  # an empty `dict` needs no initialisation of its own
        self.budget = budget


def budget_of(scope: Scope) -> StepBudget | None:
    """The budget of the call that a scope belongs to; None if nothing is counted."""
    if isinstance(scope, CountedScope):
        return scope.budget
    maps = getattr(scope, "maps", None)  # template loops wrap the scope in a ChainMap
    return budget_of(maps[-1]) if maps else None


def visit(scope: Scope, value: dict[str, JSON] | list[JSON] | str) -> None:
    """Count the elements of a value that a function traverses.

    Raises:
        ExpressionError: The budget is exceeded.
    """
    budget = budget_of(scope)
    if budget is not None:
        budget.visit(len(value) // _LETTERS if isinstance(value, str) else len(value))


def visit_all(scope: Scope, value: JSON) -> None:
    """Count the elements of an object or list at every level.

    Raises:
        ExpressionError: The budget is exceeded.
    """
    budget = budget_of(scope)
    if budget is None:
        return
    # A stack is faster than recursion here, and is not bounded by Python's recursion limit.
    values: list[Any] = [value]
    while values:
        inner = values.pop()
        if isinstance(inner, dict | list):
            budget.visit(len(inner))
            values += inner.values() if isinstance(inner, dict) else inner
