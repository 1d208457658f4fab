"""Functions that are not pure: they draw values by a key, or count.

They read hidden names of the scope, which no expression can name; where a scope does not provide them, the
functions are refused when a document is loaded.
"""

from __future__ import annotations

from typing import Protocol

from toolcrib.core.errors import ExpressionError
from toolcrib.core.model import JSON
from toolcrib.expressions.operators import is_number
from toolcrib.expressions.values import bounded_number, kind

DRAWS = "draws()"
"""Hidden name of what draws: called with the place of a function in its document, it gives a `Chance`."""

COUNTS = "counts()"
"""Hidden name of what counts: called with the name of a sequence and its first number, it gives the next one."""


class Chance(Protocol):
    """One draw. It is a value: asking it twice gives the same answer."""

    def integer(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`, both included."""
        ...

    def number(self, low: float, high: float) -> float:
        """A number from `low` up to `high`."""
        ...


class Counting(Protocol):
    """Gives the numbers of sequences."""

    def __call__(self, name: str, first: int) -> int:
        """The next number of a sequence, `first` for a fresh one."""
        ...


def uuid(chance: Chance) -> JSON:
    """A UUID (version 4), another one at each use."""
    digits = f"{chance.integer(0, (1 << 128) - 1):032x}"
    variant = "89ab"[int(digits[16], 16) % 4]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"


def pick(chance: Chance, options: JSON) -> JSON:
    """One element of a list, drawn anew at each use."""
    if not isinstance(options, list):
        raise ExpressionError(f"`pick` needs a list, not {kind(options)}")
    if not options:
        raise ExpressionError("`pick` needs a list that is not empty")
    return options[chance.integer(0, len(options) - 1)]


def random(chance: Chance, low: JSON, high: JSON) -> JSON:
    """A number from the first to the second, drawn anew at each use; a whole one if both are."""
    least, most = _number(low), _number(high)
    if least > most:
        raise ExpressionError(f"`random` needs the lower number first: {low} is above {high}")
    if isinstance(least, int) and isinstance(most, int):
        return chance.integer(least, most)
    try:
        found = chance.number(least, most)
    except OverflowError:
        raise ExpressionError("`random` is asked beyond what a float can hold") from None
    return bounded_number(min(max(found, least), most))  # rounding may lead out of a narrow range


def _number(value: JSON) -> float:
    if isinstance(value, int | float) and is_number(value):
        return value
    raise ExpressionError(f"`random` needs two numbers, and got {kind(value)}")


def sequence(counts: Counting, name: JSON, first: JSON = 1) -> JSON:
    """The next number of a sequence that the session keeps: 1, or the second argument, then one more each time."""
    if not isinstance(name, str):
        raise ExpressionError(f"`seq` needs the name of a sequence, a text, not {kind(name)}")
    if type(first) is not int:
        raise ExpressionError(f"`seq` begins with a whole number, not {kind(first)}")
    return counts(name, first)
