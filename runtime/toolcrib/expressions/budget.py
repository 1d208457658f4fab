"""How much one call may do. Steps are counted and no time is measured: a call ends at one place on every machine."""

from __future__ import annotations

from typing import Any, Final

from toolcrib.core.errors import ExpressionError
from toolcrib.core.model import JSON
from toolcrib.expressions.values import MOST_ITEMS, Scope

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
            raise ExpressionError(f"the loops of one call go through more than {MOST_ITEMS:,} elements")

    def visit(self, elements: int) -> None:
        """Count elements that are looked at.

        Raises:
            ExpressionError: They are too many.
        """
        self.steps -= elements
        if self.steps < 0:
            raise ExpressionError(
                f"one call goes through more than {MOST_STEPS:,} elements",
                hint="look rows up by their key, `store.orders['o1']`, and work out in `let` what is needed often",
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
