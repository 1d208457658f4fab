"""Whether a Python value is JSON, and how large it is; checked before anything else looks at the value.

Values come from other people's code. Only `type` is asked what they are, and subclasses of `dict` and `list` are
read with the methods of `dict` and `list`: their own may never return.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, Final

from toolcrib.core.model import JSON
from toolcrib.core.subschemas import Path
from toolcrib.core.text import compact, format_size
from toolcrib.schema.validation.violations import Violation, describe_value, make_violation

DIGITS: Final = 4300
"""Decimal digits of an integer; CPython's own bound for turning it into text."""

MOST: Final = 1 << 22
"""Members and items below the first level of a value, where each object and list counts as two more: 8 MiB of JSON hold less.

A list that holds the same list twice, and so on for 60 levels, takes no memory, and no walk through it ever ends.
"""

_MEMBERS: Final = 1 << 16
"""Members of a mapping that is no dict: its iterator may never end."""

_BIG: Final = 10**DIGITS
_INFINITY: Final = float("inf")
SUBCLASS: Final = "subclass"
"""The keyword of the fault of a container that is JSON but for its class."""

_SIZE: Final = "size"

_REMEDIES: Final = {
    "Decimal": "convert it to a string or a float",
    "UUID": "convert it to a string",
    "bytes": "encode it as base64",
    "date": "convert it to a string, for example with `isoformat()`",
    "datetime": "convert it to a string, for example with `isoformat()`",
    "frozenset": "convert it to a sorted list",
    "set": "convert it to a sorted list",
    "tuple": "convert it to a list",
}


def json_violation(value: Any, depth: int = 100, left: list[int] | None = None) -> Violation | None:  # noqa: C901, PLR0912 -- asked of every value at every door, so in one piece
    """What keeps a value from being plain JSON, or None.

    JSON is: None, bool, int (up to 4,300 digits), finite float, str without lone surrogates, list,
    and dict with str keys. A tuple, a date, bytes, a Decimal, a str subclass is not: each would change
    on its way through a file or a wire. A subclass of dict or list is not plain (keyword `subclass`);
    `as_json` makes it so.

    Args:
        value: Anything.
        depth: Containers that may be nested in one another; the fault's keyword is then `depth`.
        left: How many members and items there may still be, as one item that is counted down; `MOST` unless given.
    """
    kind = type(value)
    if (kind is dict or kind is list) and depth > 0:
        items: Iterable[Any] = value
        if left is not None:
            left[0] -= len(value) + 2
            if left[0] < 0:
                return _too_many(())
        if kind is dict:
            for key in items:
                if type(key) is not str or not (key.isascii() or _encodes(key)):
                    return _Search().found(value, depth)
            items = value.values()
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
            elif kind is not bool and item is not None:
                if left is None:
                    left = [MOST]
                found = json_violation(item, depth - 1, left)
                if found is not None:
                    if found.keyword == _SIZE:
                        return found
                    break
        else:
            return None
    return _Search().found(value, depth)


ALIEN: Final = -(1 << 62)
"""What `remaining_budget` returns for a value that is not JSON."""


def remaining_budget(value: Any, depth: int, budget: int) -> int:  # noqa: C901, PLR0912 -- as `json_violation`
    """What a plain JSON value leaves of a budget; negative as soon as it does not fit.

    Each character of a text or a name weighs 1, each member of an object or list 4. As compact JSON a value takes
    at most eight times its weight in bytes.

    Args:
        value: Anything.
        depth: Containers that may be nested in one another, at least 1.
        budget: The weight that the value may have.

    Returns:
        The rest of the budget, or `ALIEN` where `json_violation` would find a fault.
    """
    kind = type(value)
    items: Iterable[Any]
    if kind is dict or kind is list:
        budget -= 4 * len(value)
        if budget < 0:
            return budget
        if kind is dict:
            for key in value:
                if type(key) is not str or not (key.isascii() or _encodes(key)):
                    return ALIEN
                budget -= len(key)
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
            budget -= len(item)
        elif kind is int:
            if not -9007199254740992 < item < 9007199254740992:
                if not -_BIG < item < _BIG:
                    return ALIEN
                budget -= item.bit_length() // 4
        elif kind is float:
            if not -_INFINITY < item < _INFINITY:
                return ALIEN
        elif kind is not bool and item is not None:
            if depth < 2 or not (kind is dict or kind is list):
                return ALIEN
            budget = remaining_budget(item, depth - 1, budget)
            if budget < 0:
                return budget
    return budget


def as_json(value: Any, *, depth: int = 100) -> tuple[JSON, Violation | None]:
    """The value with plain objects and lists in place of those of subclasses, and what keeps it from being JSON.

    With a fault, the value is the one that was given.

    Args:
        value: Anything.
        depth: Containers that may be nested in one another.
    """
    found = json_violation(value, depth=depth)
    if found is None or found.keyword != SUBCLASS:
        return value, found
    return unshared_copy(value, depth), None


def as_dict(value: Any) -> Any:
    """A mapping as a dict of its own; what is no mapping, or can't be read to its end, as it is, for `json_violation` to refuse.

    The members stay what they are.
    """
    kind = type(value)
    if kind is dict:
        return value
    if issubclass(kind, dict):
        return dict(dict.items(value))
    if not issubclass(kind, Mapping):
        return value
    try:
        members = {key: value[key] for key in islice(value, _MEMBERS + 1)}
    except Exception:  # noqa: BLE001 -- code of somebody else, which may raise anything
        return value
    return value if len(members) > _MEMBERS else members


class _Search:
    """Looks for the first fault of a value, and for the first container that is not plain."""

    def __init__(self) -> None:
        self._subclass: Violation | None = None
        self._left = MOST

    def found(self, value: Any, depth: int) -> Violation | None:
        return self._fault(value, depth, ()) or self._subclass

    def _fault(self, value: Any, depth: int, path: Path) -> Violation | None:
        kind = type(value)
        if not issubclass(kind, dict | list):
            return _fault_of_scalar(value, path)
        if depth <= 0:
            return make_violation(path, "depth", "fewer levels of nesting", describe_value(value))
        if kind is not dict and kind is not list and self._subclass is None:
            plain = "dict" if issubclass(kind, dict) else "list"
            self._subclass = make_violation(path, SUBCLASS, f"a `{plain}`", f"a Python `{kind.__name__}`")
        return self._fault_within(value, depth, path)

    def _fault_within(self, value: Any, depth: int, path: Path) -> Violation | None:
        items: Iterable[tuple[Any, Any]]
        if issubclass(type(value), dict):
            self._left -= dict.__len__(value) + 2
            for key in dict.__iter__(value):
                if type(key) is not str:
                    return make_violation(path, "json", "string keys", f"the key {describe_value(key)}")
                if not _encodes(key):
                    return make_violation(
                        path, "json", "keys without lone surrogates", f"the key {describe_value(key)}"
                    )
            items = dict.items(value)
        else:
            self._left -= list.__len__(value) + 2
            items = enumerate(list.__iter__(value))
        if self._left < 0:
            return _too_many(path)
        for key, item in items:
            found = self._fault(item, depth - 1, (*path, key))
            if found is not None:
                return found
        return None


def _too_many(path: Path) -> Violation:
    return make_violation(
        path, _SIZE, f"at most {MOST:,} values in total", "more, because a part occurs many times"
    )


def _fault_of_scalar(value: Any, path: Path) -> Violation | None:
    kind = type(value)
    if kind is str:
        return (
            None
            if _encodes(value)
            else make_violation(path, "json", "text without lone surrogates", describe_value(value))
        )
    if kind is float:
        return (
            None
            if -_INFINITY < value < _INFINITY
            else make_violation(path, "json", "a finite number", describe_value(value))
        )
    if kind is int:
        return (
            None
            if -_BIG < value < _BIG
            else make_violation(path, "json", f"at most {DIGITS} digits", describe_value(value))
        )
    if value is None or kind is bool:
        return None
    plain = next((each.__name__ for each in (str, int, float) if issubclass(kind, each)), "")
    if plain:
        hint = f"convert it to a plain `{plain}`; it is a `{kind.__name__}`"
    else:
        hint = "convert it to a `dict`" if issubclass(kind, Mapping) else _REMEDIES.get(kind.__name__, "")
    return make_violation(path, "json", "a JSON value", describe_value(value), hint)


class NotJSONError(ValueError):
    """A value is no JSON; `json_violation` says why."""


def unshared_copy(value: Any, depth: int) -> Any:
    """An equal copy of a JSON value whose objects and lists belong to nobody else.

    Args:
        value: Anything.
        depth: Containers that may be nested in one another.

    Raises:
        NotJSONError: `json_violation` would find a fault.
    """
    kind = type(value)
    if kind is str:
        sound = value.isascii() or _encodes(value)
    elif kind is int:
        sound = -_BIG < value < _BIG
    elif kind is float:
        sound = -_INFINITY < value < _INFINITY
    elif issubclass(kind, dict) and depth > 0:
        return {_key(key): unshared_copy(item, depth - 1) for key, item in dict.items(value)}
    elif issubclass(kind, list) and depth > 0:
        return [unshared_copy(item, depth - 1) for item in list.__iter__(value)]
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


SMALL: Final = 64 * 1024
"""The weight up to which a value is judged on the event loop. Judging it takes about a millisecond; a thread, 0.1 ms."""

DEPTH: Final = 100
"""How deep a result may be nested."""

_BYTES: Final = 8
"""Bytes of compact JSON for each unit of weight, at most."""

_ELEMENT: Final = 4
"""Bytes of a limit for each value that it allows: an empty object in memory takes more."""


def budget_for_bytes(limit: int, *, most: int = SMALL) -> int:
    """The weight up to which the compact JSON of a value certainly has at most `limit` bytes; no more than `most`."""
    return min(most, limit // _BYTES - _ELEMENT)


def is_large(value: Any, depth: int) -> bool:
    """Whether a value is too large to be judged on the event loop."""
    return ALIEN < remaining_budget(value, depth, SMALL) < 0


def count_elements(value: JSON, most: int) -> int:
    """How many JSON values a value consists of, itself included; counted up to `most`."""
    total = 1
    waiting: list[JSON] = [value]
    for item in waiting:
        if isinstance(item, dict | list):
            total += len(item)
            if total >= most:
                return most
            inner = item.values() if isinstance(item, dict) else item
            waiting += [each for each in inner if isinstance(each, dict | list)]
    return total


def describe_excess(value: JSON, depth: int, limit: int) -> str | None:
    """What of a value passes a limit: `5,242,880 bytes`; empty where nothing does, None where it is no JSON."""
    left = remaining_budget(value, depth, 2 * limit)
    if left == ALIEN:
        return None
    if 2 * limit - left <= budget_for_bytes(limit, most=limit):
        return ""
    if left < 0:  # its characters alone, or its values alone, pass the limit
        return f"more than {format_size(limit)}"
    size = len(compact(value).encode())
    if size > limit:
        return f"{size:,} bytes"
    values = count_elements(value, limit) if 2 * limit - left >= limit - _ELEMENT else 0
    return f"{values:,} values" if values * _ELEMENT > limit else ""
