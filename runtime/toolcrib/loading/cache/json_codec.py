"""The JSON in an index. It can hold data and nothing else, so an index has no code in it.

`toolcrib list` reads it, and importing `json` would take longer than reading it, because that compiles regular
expressions. So only the C code that `json` uses is imported.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any

DEPTH = 128
"""The deepest nesting that is written: twice that of documents (`loading.documents.positions.DEPTH`), far from any recursion limit."""

INTEGER_BITS = 2_000
"""The longest integer that is written. `PYTHONINTMAXSTRDIGITS` may forbid reading integers of more than 640 digits."""

_FIXED = frozenset({str, float, bool, type(None)})
"""Types whose values can always be written."""


def write_json(value: Any) -> bytes:
    """Encode a value, so that `read_json` returns an equal one.

    Raises:
        ValueError: It holds something else than the types of JSON, or is nested too deep.
    """
    why = why_not_json(value)
    if why:
        raise ValueError(why)
    # Surrogates are not escaped, because two escaped ones in a row would be read as one character.
    return "".join(_encoder()(value, 0)).encode("utf-8", "surrogatepass")


def why_not_json(value: Any, depth: int = DEPTH) -> str:
    """Why a value can't be written as JSON; empty if it can.

    Subclasses of the types of JSON are refused too, because what they add would be lost.

    Args:
        value: The value.
        depth: How deep it may be nested.
    """
    kind = type(value)
    if kind in _FIXED:
        return ""
    if kind is int:
        return "" if value.bit_length() <= INTEGER_BITS else f"an integer is longer than {INTEGER_BITS} bits"
    if kind is not dict and kind is not list:
        return f"`{kind.__name__}` is no plain data"
    if not depth:
        return f"values are nested deeper than {DEPTH} levels"
    if kind is dict and not {*map(type, value)} <= {str}:
        return "a key is not a string"
    for item in value.values() if kind is dict else value:
        # Nearly all items are texts: looking at them here makes this three times as fast.
        if type(item) not in _FIXED:
            why = why_not_json(item, depth - 1)
            if why:
                return why
    return ""


def with_lists(value: Any) -> Any:
    """Copy plain data with lists in place of tuples, which JSON does not have."""
    if isinstance(value, dict):
        return {key: with_lists(item) for key, item in value.items()}
    return [*map(with_lists, value)] if isinstance(value, tuple | list) else value


def read_json(text: bytes | memoryview) -> Any:
    """Decode a value.

    Raises:
        ValueError: The text is not JSON.
    """
    scan, decoded = _scanner(), str(text, "utf-8", "surrogatepass")
    try:
        value, end = scan(decoded, 0)
    except (StopIteration, RecursionError):
        raise ValueError("invalid JSON") from None
    if end != len(decoded):
        raise ValueError("trailing data after the JSON")
    return value


_ENCODERS: list[Callable[[Any, int], Iterable[str]]] = []


def _encoder() -> Callable[[Any, int], Iterable[str]]:
    """A function from a value, and how deep it is nested, to the pieces of its text."""
    if not _ENCODERS:
        try:
            from _json import encode_basestring, make_encoder  # noqa: PLC0415 -- CPython has them

            # As `json.JSONEncoder(ensure_ascii=False, separators=(",", ":"))` makes it. `why_not_json` has found no
            # cycle, for which there would be a dictionary of marks, and no other type, for which `repr` would be called.
            _ENCODERS.append(make_encoder(None, repr, encode_basestring, None, ":", ",", False, False, True))
        except (ImportError, TypeError):
            from json import JSONEncoder  # noqa: PLC0415 -- as above

            encoder = JSONEncoder(ensure_ascii=False, separators=(",", ":"))
            _ENCODERS.append(lambda value, _level: encoder.iterencode(value))
    return _ENCODERS[0]


class _Options:
    """The options of the scanner, as `json.loads` sets them."""

    strict = True
    object_hook = object_pairs_hook = array_hook = None
    parse_float = float
    parse_int = int
    parse_constant = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}.__getitem__


_SCANNERS: list[Callable[[str, int], tuple[Any, int]]] = []


def _scanner() -> Callable[[str, int], tuple[Any, int]]:
    """A function from a text and a position to the value that starts there, and the position where it ends."""
    if not _SCANNERS:
        try:
            from _json import make_scanner  # noqa: PLC0415 -- CPython has it

            _SCANNERS.append(make_scanner(_Options))  # type: ignore[arg-type]  # it asks for nothing but these
        except (ImportError, AttributeError):
            from json import JSONDecoder  # noqa: PLC0415 -- as above

            _SCANNERS.append(JSONDecoder().raw_decode)
    return _SCANNERS[0]
