"""Violations: why a value is invalid, one for each place and reason, written for the model or person who fixes it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable
from decimal import Decimal
from typing import Any, Final, NamedTuple

from toolcrib.core.model import JSON, Call, Outcome, Result
from toolcrib.core.pointers import pointer_to
from toolcrib.core.subschemas import Path
from toolcrib.security.redaction import HIDDEN

SHOWN: Final = 80
"""Maximum number of characters of a value or name in a message."""

EXPECTED: Final = 300
"""Maximum number of characters that describe the expected value."""

REPORT: Final = 4096
"""Maximum size of a report in UTF-8 bytes."""


class Violation(NamedTuple):
    """One reason why a value is invalid.

    Attributes:
        pointer: JSON Pointer of the place within the value; for a missing property, where it should be.
        keyword: The violated keyword of the schema; `json`, `depth`, `size` or `subclass` if the value is not plain JSON.
        expected: The expected value as a noun phrase: `a string`, `at most 7`.
        got: The actual value, shortened; `***` if the place is secret.
        hint: Near misses or the closest allowed value; may be empty.
        path: The place as keys and indexes.
    """

    pointer: str
    keyword: str
    expected: str
    got: str
    hint: str = ""
    path: Path = ()

    def for_model(self) -> str:
        """One line: `/days: expected at most 7, got 9`."""
        place = pointer_to([shorten(key) if isinstance(key, str) else key for key in self.path]) or "(root)"
        hint = f" ({self.hint})" if self.hint else ""
        return f"{place}: expected {self.expected}, got {self.got}{hint}"


def make_violation(path: Path, keyword: str, expected: str, got: str, hint: str = "") -> Violation:
    """Create a violation, with its texts shortened to their limits."""
    return Violation(
        pointer_to(path), keyword, shorten(expected, EXPECTED), got, shorten(hint, EXPECTED), path
    )


def report(faults: Iterable[Violation], *, most: int = REPORT) -> str:
    """The violations, one per line, in at most `most` bytes of UTF-8; omitted ones are counted."""
    lines = [fault.for_model() for fault in faults]
    text = "\n".join(lines)
    kept = len(lines)
    # Whole lines are dropped: half a violation would mislead a model.
    while len(text.encode("utf-8", "replace")) > most and kept:
        kept -= 1
        text = "\n".join([*lines[:kept], f"... and {len(lines) - kept} more"])
    return text


def shorten(text: str, most: int = SHOWN) -> str:
    """A text on one line, with unprintable characters escaped and the middle of a long text omitted."""
    # The tail is kept, because paths, URLs and names often differ only at the end.
    if len(text) > most:
        tail = most // 4
        text = f"{text[: most - tail - 3]}...{text[-tail:]}"
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def describe_value(value: Any, *, hidden: bool = False) -> str:
    """A short description of a value: scalars as JSON, containers (also as text) by size, secrets as `***`."""
    if hidden:
        return HIDDEN
    kind = type(value)
    if issubclass(kind, dict):
        size = dict.__len__(value)
        return f"an object with {count(size, 'key')}" if size else "an empty object"
    if issubclass(kind, list):
        size = list.__len__(value)
        return f"an array of {count(size, 'item')}" if size else "an empty array"
    value = plain_scalar(value)
    plain = type(value)
    if plain is str and value.lstrip()[:1] in ("{", "["):
        return f"text of {count(len(value), 'character')}"  # it may be JSON that contains a secret
    if plain is str:
        return f'"{shorten(json.dumps(value[:1000], ensure_ascii=False)[1:-1])}"'
    if plain is float and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    # str() of a huge integer takes quadratic time, and raises beyond 4,300 digits.
    if plain is int and abs(value) > 10**SHOWN:
        return f"an integer of {value.bit_length()} bits"
    if value is None or plain in (bool, int, float):
        return json.dumps(value)
    if plain is Decimal:  # jsonschema-rs returns large and exact numbers of a schema as Decimal
        return shorten(str(value))
    return f"a Python `{kind.__name__}`"


def plain_scalar(value: Any) -> Any:
    """Convert a subclass of str, int or float to the plain type; other values are returned unchanged."""
    # An overridden `__str__` or `__format__` must not run, or decide what a message shows.
    kind = type(value)
    if kind is bool:
        return value
    for plain, copied in _PLAIN:
        if issubclass(kind, plain):
            return copied(value)
    return value


_PLAIN: Final[tuple[tuple[type, Callable[[Any], Any]], ...]] = (
    (str, str.__str__),
    (int, int.__int__),
    (float, float.__float__),
)


def count(number: int, noun: str) -> str:
    """`1 key`, `2 keys`."""
    many = f"{noun[:-1]}ies" if noun.endswith("y") and noun != "key" else f"{noun}s"
    return f"{number} {noun if number == 1 else many}"


class UnusableArguments(Exception):
    """Arguments that are valid but cannot be used for a request. The texts contain no values.

    Attributes:
        message: What is wrong.
        pointer: JSON Pointer of the argument; empty if it concerns several.
        hint: How to fix it; may be empty.
        at: JSON Pointer of the cause in the descriptor, if any.
    """

    def __init__(self, message: str, *, pointer: str = "", hint: str = "", at: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.pointer = pointer
        self.hint = hint
        self.at = at

    def refused(self, call: Call, mode: str) -> Result:
        """The result of a call with these arguments."""
        violation: dict[str, JSON] = {
            "pointer": self.pointer,
            "keyword": mode,
            "expected": self.hint,
            "got": None,
            "hint": self.hint,
        }
        line = f"{self.pointer}: {self.message}" + (f"; {self.hint}" if self.hint else "")
        return Result.failure(
            Outcome.INVALID_ARGUMENTS,
            f"invalid arguments for `{call.tool.name}`:\n{line}",
            details={"violations": [violation]},
        )
