"""The text of an index: JSON, which can hold data and nothing else.

`toolcrib list` reads it, and importing `json` takes longer than reading: it compiles regular expressions. So the
scanner that `json` itself uses is imported alone.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

DEPTH = 128
"""Values may be nested so deep: twice as deep as documents (`loading.marks.DEPTH`), and no recursion limit is near."""

INTEGER_BITS = 2_000
"""Integers may be so long. Python may refuse to read one of more than 640 digits (`PYTHONINTMAXSTRDIGITS`)."""

_SCALARS = frozenset({str, int, float, bool, type(None)})
_TYPES = _SCALARS | {list, dict}


def write_json(value: Any) -> bytes:
    """A value as JSON, so that `read_json` gives an equal one.

    Raises:
        ValueError: Something in it is not of exactly the types of JSON, or is nested too deep, or too long.
    """
    import json  # noqa: PLC0415 -- as above

    why = why_not_json(value)
    if why:
        raise ValueError(why)
    # Without escapes: two surrogates that are escaped one after the other are read as one character.
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    return text.encode("utf-8", "surrogatepass")


def why_not_json(value: Any) -> str:
    """Why a value can't be told as JSON; empty if it can.

    Subclasses count as other types: what they add would be lost.
    """
    level = [value]
    for _ in range(DEPTH):
        kinds = {*map(type, level)}
        if not kinds <= _TYPES:
            return f"`{min(kind.__name__ for kind in kinds - _TYPES)}` is no plain data"
        if int in kinds and any(type(item) is int and item.bit_length() > INTEGER_BITS for item in level):
            return f"an integer is longer than {INTEGER_BITS} bits"
        if kinds <= _SCALARS:
            return ""
        below: list[Any] = []
        for item in level:
            if type(item) is list:
                below += item
            elif type(item) is dict:
                if not {*map(type, item)} <= {str}:
                    return "a key is no text"
                below += item.values()
        level = below
    return f"values are nested deeper than {DEPTH} levels"


def with_lists(value: Any) -> Any:
    """Plain data with lists in place of tuples, for which JSON has no form."""
    if isinstance(value, dict):
        return {key: with_lists(item) for key, item in value.items()}
    return [*map(with_lists, value)] if isinstance(value, tuple | list) else value


def read_json(text: bytes | memoryview) -> Any:
    """The value of a JSON text.

    Raises:
        ValueError: It is no JSON.
    """
    scan, decoded = _scanner(), str(text, "utf-8", "surrogatepass")
    try:
        value, end = scan(decoded, 0)
    except (StopIteration, RecursionError):
        raise ValueError("this is no JSON") from None
    if end != len(decoded):
        raise ValueError("there is something behind the JSON")
    return value


class _Options:
    """What the scanner asks for: those of `json.loads`."""

    strict = True
    object_hook = object_pairs_hook = array_hook = None
    parse_float = float
    parse_int = int
    parse_constant = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}.__getitem__


_SCANNERS: list[Callable[[str, int], tuple[Any, int]]] = []


def _scanner() -> Callable[[str, int], tuple[Any, int]]:
    """From a text and a position in it to the value that begins there, and where it ends."""
    if not _SCANNERS:
        try:
            from _json import make_scanner  # noqa: PLC0415 -- CPython's own

            _SCANNERS.append(make_scanner(_Options))  # type: ignore[arg-type]  # it asks for nothing but these
        except (ImportError, AttributeError):
            from json import JSONDecoder  # noqa: PLC0415 -- as above

            _SCANNERS.append(JSONDecoder().raw_decode)
    return _SCANNERS[0]
