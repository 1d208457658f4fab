"""The operators of expressions: arithmetic, order, membership, attributes and indexes.

They follow Python, with restrictions: no arithmetic on `true` and `false`, no string or list times a number, no order
between a number and a string, only finite results, and limits on every size.

`evaluate_arithmetic` computes arithmetic in a string that comes as data: numbers, `+ - * / // **` and parentheses with
Python's precedence (`**` is right-associative and binds tighter than a sign on its left).
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from toolcrib.core.errors import ExpressionError, did_you_mean
from toolcrib.core.model import JSON
from toolcrib.expressions.values import (
    MOST_DIGITS,
    bounded_list,
    bounded_number,
    bounded_text,
    equal,
    kind,
    list_of_names,
    shortened,
)

Binary: TypeAlias = Callable[[JSON, JSON], JSON]

_NUMBERS = (int, float)
_SMALL = 1 << 62  # well below every limit: results of this size need no check
# log2(10) is 3.32, so a number beyond this many bits has more than `MOST_DIGITS` digits.
_MOST_BITS = MOST_DIGITS * 4


def is_number(value: JSON) -> bool:
    """Whether a value is a JSON number; `true` and `false` are not."""
    return type(value) in _NUMBERS


def _mismatch(sign: str, left: JSON, right: JSON, needs: str) -> ExpressionError:
    kinds = {kind(left), kind(right)}
    hint = (
        "convert one of them with `| float`, `| int` or `| string`"
        if kinds == {"a number", "a string"}
        else ""
    )
    return ExpressionError(f"`{sign}` needs {needs}, not {kind(left)} and {kind(right)}", hint=hint)


def _arithmetic(sign: str, operate: Callable[[float, float], float]) -> Binary:
    def run(left: JSON, right: JSON) -> JSON:
        # type() instead of isinstance(): `true + 1` is 2 in Python and an error here.
        if type(left) in _NUMBERS and type(right) in _NUMBERS:
            try:
                result = operate(left, right)  # type: ignore[arg-type]
            except ZeroDivisionError:
                raise ExpressionError(
                    f"`{sign}` divides by zero", hint="check for zero first: `if ... != 0`"
                ) from None
            except OverflowError:
                raise ExpressionError(f"the result of `{sign}` is too large for a JSON number") from None
            # Most results are small; only the others need a check of their digits or for infinity.
            return result if -_SMALL < result < _SMALL else bounded_number(result)
        raise _mismatch(sign, left, right, "two numbers")

    return run


def _power(base: float, exponent: float) -> float:
    # 10 ** 10**9 would take Python minutes, so the length of the result is estimated first.
    if isinstance(base, int) and isinstance(exponent, int) and exponent > 0 and base.bit_length() > 1:
        length = (base.bit_length() - 1) * exponent
        if length > _MOST_BITS:
            raise ExpressionError(f"the result of `**` would exceed {MOST_DIGITS:,} digits")
    # A negative base with a fractional exponent gives a complex number.
    result: object = base**exponent
    if isinstance(result, int | float):
        return result
    raise ExpressionError("`**` of a negative number needs a whole exponent")


_add_numbers = _arithmetic("+", operator.add)
subtract = _arithmetic("-", operator.sub)
multiply = _arithmetic("*", operator.mul)
divide = _arithmetic("/", operator.truediv)
floor_divide = _arithmetic("//", operator.floordiv)
modulo = _arithmetic("%", operator.mod)
power = _arithmetic("**", _power)


def add(left: JSON, right: JSON) -> JSON:
    """The sum of two numbers, or the concatenation of two strings or two lists."""
    if type(left) is int and type(right) is int:  # the most common case first
        total = left + right
        return total if -_SMALL < total < _SMALL else bounded_number(total)
    if type(left) in _NUMBERS and type(right) in _NUMBERS:
        return _add_numbers(left, right)
    if isinstance(left, str) and isinstance(right, str):
        return bounded_text(left + right)
    if isinstance(left, list) and isinstance(right, list):
        return bounded_list(left + right)
    raise _mismatch("+", left, right, "two numbers, two strings or two lists")


def negate(value: JSON) -> JSON:
    """The number with the opposite sign."""
    if type(value) in _NUMBERS:
        return -value  # type: ignore[operator]
    raise ExpressionError(f"`-` needs a number, not {kind(value)}")


def positive(value: JSON) -> JSON:
    """The number itself."""
    if type(value) in _NUMBERS:
        return value
    raise ExpressionError(f"`+` needs a number, not {kind(value)}")


def _ordering(sign: str, operate: Callable[[Any, Any], Any]) -> Callable[[JSON, JSON], bool]:
    def run(left: JSON, right: JSON) -> bool:
        numbers = type(left) in _NUMBERS and type(right) in _NUMBERS
        if numbers or (isinstance(left, str) and isinstance(right, str)):
            return bool(operate(left, right))
        raise _mismatch(sign, left, right, "two numbers or two strings")

    return run


less = _ordering("<", operator.lt)
less_or_equal = _ordering("<=", operator.le)
greater = _ordering(">", operator.gt)
greater_or_equal = _ordering(">=", operator.ge)


def different(left: JSON, right: JSON) -> bool:
    """Whether two JSON values differ."""
    return not equal(left, right)


def member(value: JSON, container: JSON) -> bool:
    """Whether a value is an element of a list, a key of an object or a substring of a string."""
    if isinstance(container, list):
        return any(equal(value, item) for item in container)
    if isinstance(container, dict):
        return isinstance(value, str) and value in container
    if isinstance(container, str) and isinstance(value, str):
        return value in container
    if isinstance(container, str):
        raise ExpressionError(f"`in` needs a string on its left to search a string, not {kind(value)}")
    raise ExpressionError(f"`in` needs a list, an object or a string on its right, not {kind(container)}")


def not_member(value: JSON, container: JSON) -> bool:
    """The opposite of `member`."""
    return not member(value, container)


def attribute(value: JSON, name: str, place: str) -> JSON:
    """Evaluate `a.name`: the key must exist. See `index` for a key that may be missing.

    Args:
        value: The value of `a`.
        name: The key.
        place: `a` as written, for messages.

    Raises:
        ExpressionError: `missing_key`, with the existing keys, or the value is not an object.
    """
    if isinstance(value, dict):
        if name in value:
            return value[name]
        raise missing_key(value, name, place)
    raise ExpressionError(
        f"{place} is {kind(value)} and has no `{name}`: only objects have keys",
        hint=_OTHER_WAYS.get(kind(value), ""),
    )


_OTHER_WAYS = {
    "none": "check it first: `if ... is not none`",
    "a list": "use `[0]` for one element, `| pluck('field')` for one field of every element",
    "a string": "call a function with `|`, as in `| lower`",
}


def missing_key(value: dict[str, JSON], name: str, place: str) -> ExpressionError:
    """The error of a key that an object does not have."""
    there = f"it has {list_of_names(list(value))}" if value else "it is empty"
    path = place.strip("`") if place.startswith("`") else ""
    asks = f"if it may be missing, use `{path}[{name!r}]`, which returns none"
    # The path in the hint can be pasted, so it is only built for a place that names one.
    close = did_you_mean(name, value)
    return ExpressionError(
        f"{place} has no `{name}`: {there}", code="missing_key", hint=f"{close} {asks}" if close else asks
    )


def index(value: JSON, key: JSON, place: str) -> JSON:
    """Evaluate `a[key]`: none if an object has no such key or a list no such element.

    Raises:
        ExpressionError: The value is neither, or the key has the wrong type.
    """
    if isinstance(value, dict):
        if isinstance(key, str):
            return value.get(key)
        hint = "convert it to a string: `[... | string]`" if is_number(key) else ""
        raise ExpressionError(f"{place} is an object: `[]` needs a string, not {kind(key)}", hint=hint)
    if isinstance(value, list):
        at = whole_number(key)
        if at is not None:
            return value[at] if -len(value) <= at < len(value) else None
        raise ExpressionError(f"{place} is a list: `[]` needs a whole number, not {kind(key)}")
    hint = (
        "use `[0:1]` for a part of a string" if isinstance(value, str) else _OTHER_WAYS.get(kind(value), "")
    )
    raise ExpressionError(f"{place} is {kind(value)}: `[]` needs an object or a list", hint=hint)


def piece(value: JSON, start: JSON, stop: JSON, step: JSON, place: str) -> JSON:
    """Evaluate `a[start:stop:step]` on a list or string, as in Python."""
    bounds = slice(_bound(start), _bound(stop), _bound(step))
    if bounds.step == 0:
        raise ExpressionError("the step of a slice cannot be 0")
    if isinstance(value, list):
        return value[bounds]
    if isinstance(value, str):
        return value[bounds]
    raise ExpressionError(f"{place} is {kind(value)}: a slice needs a list or a string")


def _bound(value: JSON) -> int | None:
    bound = whole_number(value)
    if value is None or bound is not None:
        return bound
    raise ExpressionError(f"the bounds of a slice must be whole numbers, not {kind(value)}")


def whole_number(value: JSON) -> int | None:
    """A whole number, also if it is written as `2.0`, which JSON Schema accepts as an integer; None for anything else."""
    if type(value) is int:  # `true` is an int in Python, too
        return value
    return int(value) if isinstance(value, float) and value.is_integer() else None


_MOST_CHARACTERS = 4_096
_MOST_NESTING = 64
_TOKEN = re.compile(
    r"\s*(?:([0-9]+\.?[0-9]*(?:[eE][+-]?[0-9]+)?|\.[0-9]+(?:[eE][+-]?[0-9]+)?)|(\*\*|//|[-+*/()]))"
)
_BLANKS = re.compile(r"\s*")

_SUMS: Mapping[str, Callable[[JSON, JSON], JSON]] = {"+": add, "-": subtract}
_PRODUCTS: Mapping[str, Callable[[JSON, JSON], JSON]] = {"*": multiply, "/": divide, "//": floor_divide}


def evaluate_arithmetic(text: str) -> JSON:
    """The result of arithmetic in a string; `/` returns a float, as in Python.

    Raises:
        ExpressionError: Invalid syntax, too long or too deeply nested, division by zero, or the result exceeds a limit.
    """
    # A grammar of its own, since data is never parsed as an expression: models and users write these strings.
    if len(text) > _MOST_CHARACTERS:
        raise ExpressionError(f"`arith` accepts at most {_MOST_CHARACTERS:,} characters, not {len(text):,}")
    reader = _Reader(text)
    result = reader.sum(0)
    if reader.next:
        raise reader.unexpected()
    return result


class _Reader:
    """A recursive descent parser with one token of look-ahead; `next` is empty at the end."""

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
        found = f"`{self.next}`" if self.next else "end of text"
        return ExpressionError(
            f"`arith` cannot read `{shortened(self._text)}`: unexpected {found}",
            hint="use numbers, `+ - * / // **` and parentheses",
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
        # A loop instead of recursion: `----...1` must not reach Python's recursion limit.
        turned = False
        while self.next in ("-", "+"):
            turned ^= self.next == "-"
            self._step()
        result = self._power(depth)
        return negate(result) if turned else result

    def _power(self, depth: int) -> JSON:
        if depth > _MOST_NESTING:
            raise ExpressionError(f"`arith` accepts at most {_MOST_NESTING} levels of parentheses and powers")
        result = self._single(depth)
        if self.next != "**":
            return result
        self._step()
        # The exponent may have a sign of its own (`2 ** -1`), and recursion makes `**` right-associative.
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
        # As in Python, where other leading zeros once meant an octal number.
        if found.isdigit() and found[0] == "0" and found.strip("0"):
            raise ExpressionError(
                f"`arith` cannot read `{shortened(self._text)}`: `{shortened(found)}` begins with 0",
                hint=f"write `{shortened(found.lstrip('0'))}`",
            )
        self._step()
        return number(found)


def number(text: str) -> JSON:
    """Parse a number: an integer unless it has a decimal point or an exponent."""
    if not text.lstrip("+-").isdigit():
        return bounded_number(float(text))
    # Before int(): its time grows with the square of the digits, and beyond 4,300 digits it raises
    # ValueError.
    if len(text) > MOST_DIGITS + 1:
        raise ExpressionError(f"a whole number exceeds {MOST_DIGITS:,} digits")
    return bounded_number(int(text))
