"""Whether a Python value is JSON: asked at every door, before anything else looks at the value."""

from __future__ import annotations

from typing import Final

from toolcrib.subschemas import Path
from toolcrib.validation.faults import Fault, fault, show

DIGITS: Final = 4300
"""Decimal digits of an integer; CPython's own bound for turning it into text."""

_BIG: Final = 10**DIGITS
_INFINITY: Final = float("inf")
_NULL: Final = type(None)


def json_fault(value: object, *, depth: int = 100) -> Fault | None:
    """What keeps a value from being JSON, or None.

    JSON is: None, bool, int (up to 4,300 digits), finite float, str without lone surrogates, list,
    and dict with str keys (subclasses of list and dict too). A tuple, a date, bytes, a Decimal, a
    str subclass is not: each would change on its way through a file or a wire.

    Args:
        value: Anything.
        depth: Containers that may be nested in one another.
    """
    kind = type(value)
    if kind is dict:
        for key, item in value.items():  # type: ignore[attr-defined] # `kind` is dict
            if type(key) is not str or not (key.isascii() or _encodes(key)):
                break
            kind = type(item)
            if kind is str:
                if not (item.isascii() or _encodes(item)):
                    break
            elif kind is int:
                if not -_BIG < item < _BIG:
                    break
            elif kind is not bool and kind is not _NULL:
                break
        else:
            if depth > 0:
                return None
    return _fault(value, depth, ())


def _fault(value: object, depth: int, path: Path) -> Fault | None:
    if isinstance(value, dict | list):
        if depth <= 0:
            return fault(path, "json", "fewer levels of nesting", show(value))
        return _fault_of_items(value, depth, path)
    kind = type(value)
    if kind is str:
        return None if _encodes(value) else fault(path, "json", "text without lone surrogates", show(value))  # type: ignore[arg-type] # `kind` is str
    if kind is float:
        return None if -_INFINITY < value < _INFINITY else fault(path, "json", "a finite number", show(value))  # type: ignore[operator] # `kind` is float
    if kind is int:
        return None if -_BIG < value < _BIG else fault(path, "json", f"at most {DIGITS} digits", show(value))  # type: ignore[operator] # `kind` is int
    if value is None or kind is bool:
        return None
    return fault(
        path, "json", "a JSON value", f"a Python `{kind.__name__}`", _REMEDIES.get(kind.__name__, "")
    )


def _fault_of_items(value: dict[object, object] | list[object], depth: int, path: Path) -> Fault | None:
    if isinstance(value, list):
        members = enumerate(value)
    else:
        members = value.items()
        for key in value:
            if type(key) is not str:
                return fault(path, "json", "keys that are text", f"a key that is {show(key)}")
            if not _encodes(key):
                return fault(path, "json", "keys without lone surrogates", show(key))
    for key, item in members:
        found = _fault(item, depth - 1, (*path, key))
        if found is not None:
            return found
    return None


def _encodes(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


_REMEDIES: Final = {
    "tuple": "make it a list",
    "set": "make it a sorted list",
    "frozenset": "make it a sorted list",
    "date": "write it as text, e.g. `.isoformat()`",
    "datetime": "write it as text, e.g. `.isoformat()`",
    "bytes": "write it as base64 text",
    "Decimal": "make it text or a float",
    "UUID": "make it text",
}
