"""Whether a Python value is JSON: asked at every door, before anything else looks at the value."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from toolcrib.subschemas import Path
from toolcrib.validation.faults import Fault, fault, show

DIGITS: Final = 4300
"""Decimal digits of an integer; CPython's own bound for turning it into text."""

_BIG: Final = 10**DIGITS
_INFINITY: Final = float("inf")

_REMEDIES: Final = {
    "Decimal": "make it text or a float",
    "UUID": "make it text",
    "bytes": "write it as base64 text",
    "date": "write it as text, e.g. with `isoformat()`",
    "datetime": "write it as text, e.g. with `isoformat()`",
    "frozenset": "make it a sorted list",
    "set": "make it a sorted list",
    "tuple": "make it a list",
}


def json_fault(value: object, *, depth: int = 100) -> Fault | None:  # noqa: C901, PLR0912 -- asked of every value at every door, so in one piece
    """What keeps a value from being JSON, or None.

    JSON is: None, bool, int (up to 4,300 digits), finite float, str without lone surrogates, list,
    and dict with str keys (subclasses of list and dict too). A tuple, a date, bytes, a Decimal, a
    str subclass is not: each would change on its way through a file or a wire.

    Args:
        value: Anything.
        depth: Containers that may be nested in one another; the fault's keyword is then `depth`.
    """
    kind = type(value)
    if (kind is dict or kind is list) and depth > 0:
        items: Iterable[Any] = value  # type: ignore[assignment] # `kind` says so
        if kind is dict:
            for key in items:
                if type(key) is not str or not (key.isascii() or _encodes(key)):
                    return _fault(value, depth, ())
            items = value.values()  # type: ignore[attr-defined] # as above
        for item in items:
            kind = type(item)
            if kind is str:
                if not (item.isascii() or _encodes(item)):
                    break
            elif kind is int:
                # Most integers are small, and comparing with a large one costs three times as much.
                if not (-9007199254740992 < item < 9007199254740992 or -_BIG < item < _BIG):
                    break
            elif kind is float:
                if not -_INFINITY < item < _INFINITY:
                    break
            elif kind is not bool and item is not None and json_fault(item, depth=depth - 1) is not None:
                break
        else:
            return None
    return _fault(value, depth, ())


ALIEN: Final = -(1 << 62)
"""What `weigh` says of a value that is no JSON."""

_CONTAINERS: Final = (dict, list)


def weigh(value: Any, depth: int, room: int) -> int:  # noqa: C901, PLR0912 -- as `json_fault`
    """What is left of some room when a JSON value is put there; negative as soon as it does not fit.

    Each character of a text or a name weighs 1, each member of an object or list 4. As compact JSON a value takes
    at most eight times its weight in bytes.

    Args:
        value: Anything.
        depth: Containers that may be nested in one another, at least 1.
        room: What the value may weigh.

    Returns:
        The room left, or `ALIEN` where `json_fault` would find a fault.
    """
    kind = type(value)
    items: Iterable[Any]
    if kind is dict or kind is list or isinstance(value, _CONTAINERS):
        room -= 4 * len(value)
        if room < 0:
            return room
        if kind is dict or isinstance(value, dict):
            for key in value:
                if type(key) is not str or not (key.isascii() or _encodes(key)):
                    return ALIEN
                room -= len(key)
            items = value.values()
        else:
            items = value
    else:
        items = (value,)
    for item in items:
        kind = type(item)
        if kind is str:
            if not (item.isascii() or _encodes(item)):
                return ALIEN
            room -= len(item)
        elif kind is int:
            if not -9007199254740992 < item < 9007199254740992:
                if not -_BIG < item < _BIG:
                    return ALIEN
                room -= item.bit_length() // 4
        elif kind is float:
            if not -_INFINITY < item < _INFINITY:
                return ALIEN
        elif kind is not bool and item is not None:
            if depth < 2 or not (kind is dict or kind is list or isinstance(item, _CONTAINERS)):
                return ALIEN
            room = weigh(item, depth - 1, room)
            if room < 0:
                return room
    return room


def _fault(value: Any, depth: int, path: Path) -> Fault | None:
    kind = type(value)
    if isinstance(value, dict | list):
        if depth <= 0:
            return fault(path, "depth", "fewer levels of nesting", show(value))
        return _fault_within(value, depth, path)
    if kind is str:
        return None if _encodes(value) else fault(path, "json", "text without lone surrogates", show(value))
    if kind is float:
        return None if -_INFINITY < value < _INFINITY else fault(path, "json", "a finite number", show(value))
    if kind is int:
        return None if -_BIG < value < _BIG else fault(path, "json", f"at most {DIGITS} digits", show(value))
    if value is None or kind is bool:
        return None
    return fault(path, "json", "a JSON value", show(value), _REMEDIES.get(kind.__name__, ""))


def _fault_within(value: dict[Any, Any] | list[Any], depth: int, path: Path) -> Fault | None:
    if isinstance(value, dict):
        for key in value:
            if type(key) is not str:
                return fault(path, "json", "keys that are text", f"the key {show(key)}")
            if not _encodes(key):
                return fault(path, "json", "keys without lone surrogates", f"the key {show(key)}")
    for key, item in value.items() if isinstance(value, dict) else enumerate(value):
        found = _fault(item, depth - 1, (*path, key))
        if found is not None:
            return found
    return None


class NotJSONError(ValueError):
    """A value is no JSON; `json_fault` says why."""


def unshared(value: Any, depth: int) -> Any:
    """An equal copy of a JSON value whose objects and lists belong to nobody else.

    Args:
        value: Anything.
        depth: Containers that may be nested in one another.

    Raises:
        NotJSONError: `json_fault` would find a fault.
    """
    kind = type(value)
    if kind is str:
        sound = value.isascii() or _encodes(value)
    elif kind is int:
        sound = -_BIG < value < _BIG
    elif kind is float:
        sound = -_INFINITY < value < _INFINITY
    elif isinstance(value, dict) and depth > 0:
        return {_key(key): unshared(item, depth - 1) for key, item in value.items()}
    elif isinstance(value, list) and depth > 0:
        return [unshared(item, depth - 1) for item in value]
    else:
        sound = kind is bool or value is None
    if sound:
        return value
    raise NotJSONError


def _key(key: Any) -> str:
    if type(key) is str and _encodes(key):
        return key
    raise NotJSONError


def _encodes(text: str) -> bool:
    if text.isascii():
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
