"""A reader of sums that come as data: numbers, `+ - * / // **` and parentheses, nothing else.

Python's precedence, `**` from the right and stronger than a sign on its left. An expression of a
descriptor can't do this, because data is never read as an expression.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

from toolcrib.core.errors import ExpressionError
from toolcrib.core.model import JSON
from toolcrib.expressions.operators import add, divide, floor_divide, multiply, negate, power, subtract
from toolcrib.expressions.values import MOST_DIGITS, bounded_number, shortened

_MOST_CHARACTERS = 4_096
_MOST_NESTING = 64
_TOKEN = re.compile(
    r"\s*(?:([0-9]+\.?[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?)|(\*\*|//|[-+*/()]))"
)
_BLANKS = re.compile(r"\s*")

_SUMS: Mapping[str, Callable[[JSON, JSON], JSON]] = {"+": add, "-": subtract}
_PRODUCTS: Mapping[str, Callable[[JSON, JSON], JSON]] = {"*": multiply, "/": divide, "//": floor_divide}


def work_out(text: str) -> JSON:
    """The number that a sum written as text amounts to; `/` gives a float, as in Python.

    Raises:
        ExpressionError: The text is no such sum, is too long or too deep, divides by zero, or its
            result is out of bounds.
    """
    if len(text) > _MOST_CHARACTERS:
        raise ExpressionError(f"`arith` reads at most {_MOST_CHARACTERS:,} characters, not {len(text):,}")
    reader = _Reader(text)
    result = reader.sum(0)
    if reader.next:
        raise reader.unexpected()
    return result


class _Reader:
    """Recursive descent with one token of look-ahead; `next` is empty at the end."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._place = 0
        self.next = ""
        self._step()

    def _step(self) -> None:
        match = _TOKEN.match(self._text, self._place)
        if match is not None:
            self.next = match.group(1) or match.group(2)
            self._place = match.end()
            return
        end = _BLANKS.match(self._text, self._place)
        self._place = end.end() if end is not None else self._place
        if self._place < len(self._text):
            self.next = self._text[self._place]
            raise self.unexpected()
        self.next = ""

    def unexpected(self) -> ExpressionError:
        found = f"`{self.next}`" if self.next else "the end"
        return ExpressionError(
            f"`arith` can't read `{shortened(self._text)}`: {found} is not expected there",
            hint="it reads numbers, `+ - * / // **` and parentheses",
        )

    def sum(self, depth: int) -> JSON:
        result = self._product(depth)
        while (operate := _SUMS.get(self.next)) is not None:
            self._step()
            result = operate(result, self._product(depth))
        return result

    def _product(self, depth: int) -> JSON:
        result = self._signed(depth)
        while (operate := _PRODUCTS.get(self.next)) is not None:
            self._step()
            result = operate(result, self._signed(depth))
        return result

    def _signed(self, depth: int) -> JSON:
        turned = False
        while self.next in ("-", "+"):
            turned ^= self.next == "-"
            self._step()
        result = self._power(depth)
        return negate(result) if turned else result

    def _power(self, depth: int) -> JSON:
        if depth > _MOST_NESTING:
            raise ExpressionError(f"`arith` reads at most {_MOST_NESTING} levels of parentheses and powers")
        result = self._single(depth)
        if self.next != "**":
            return result
        self._step()
        return power(result, self._signed(depth + 1))

    def _single(self, depth: int) -> JSON:
        found = self.next
        if found == "(":
            self._step()
            result = self.sum(depth + 1)
            if self.next != ")":
                raise self.unexpected()
            self._step()
            return result
        if not found[:1].isdigit() and not found.startswith("."):
            raise self.unexpected()
        self._step()
        return number(found)


def number(text: str) -> JSON:
    """The value of a number's text: whole unless it has a point or an exponent."""
    if not text.lstrip("+-").isdigit():
        return bounded_number(float(text))
    if len(text) > MOST_DIGITS + 1:
        raise ExpressionError(f"a whole number of more than {MOST_DIGITS:,} digits")
    return bounded_number(int(text))
