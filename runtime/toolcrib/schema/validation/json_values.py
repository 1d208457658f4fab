"""Check whether a Python value is JSON, and how large it is, before anything else uses it."""

# Values come from third-party code, so only `type` decides what they are (`isinstance` asks `__class__`), and
# subclasses of `dict` and `list` are read with the methods of `dict` and `list`: overridden ones may never
# return.

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any, Final, NamedTuple

from toolcrib.core.model import JSON
from toolcrib.core.subschemas import Path
from toolcrib.core.text import compact, format_size
from toolcrib.schema.validation.violations import Violation, describe_value, make_violation

DIGITS: Final = 4300
"""Maximum number of decimal digits of an integer; CPython's own limit for converting it to text."""

# A list that contains the same list twice, and so on for 60 levels, takes no memory but 2**60 steps to walk.
MOST: Final = 1 << 22
"""Maximum number of members below the first level; each object and list counts as two more. 8 MiB of JSON have fewer."""

# The iterator of a custom mapping may never end.
_MEMBERS: Final = 1 << 16
"""Maximum number of members of a mapping that is not a dict."""

_BIG: Final = 10**DIGITS
_INFINITY: Final = float("inf")
SUBCLASS: Final = "subclass"
"""The keyword of the violation of a container that is JSON except for its class."""

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


def json_violation(value: Any, depth: int = 100, left: list[int] | None = None) -> Violation | None:  # noqa: C901, PLR0912 -- one function, since it runs for every value of every call
    """Why a value is not plain JSON, or None if it is.

    JSON values are None, bool, int (up to 4,300 digits), finite float, str without lone surrogates, list, and dict with
    str keys. A tuple, date, bytes, Decimal or str subclass is not: it would change on its way through a file or the
    network. A subclass of dict or list is not plain (keyword `subclass`); `as_json` converts it.

    Args:
        value: Any object.
        depth: Maximum nesting of containers; the violation of a deeper one has the keyword `depth`.
        left: Remaining number of members, as a list of one counter; default `MOST`.
    """
    # The fast path only decides; `_Search` walks again to find the place, which a valid value never needs.
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
                # Most integers are small, and a comparison with `_BIG` takes three times as long.
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
    """Subtract the weight of a plain JSON value from a budget; negative as soon as it is exceeded.

    Each character of a string or key weighs 1, each member of an object or list 4. The compact JSON of a value has at
    most eight times its weight in bytes.

    Args:
        value: Any object.
        depth: Maximum nesting of containers, at least 1.
        budget: The maximum weight.

    Returns:
        The rest of the budget, or `ALIEN` if `json_violation` would report a violation.
    """
    # Eight bytes per unit at most: a control character is written as `\u0001`, six bytes.
    kind = type(value)
    # CPython adds and compares fastest with integers of one digit, which has 30 bits: `weight` is one, a budget is not.
    weight = 4 * len(value) if kind is dict or kind is list else 0
    if weight > budget:
        return budget - weight
    if kind is dict:
        # Names and values in one loop take a sixth less time than in two; hence the same lines again below.
        for key, item in value.items():
            if type(key) is not str or not (key.isascii() or _encodes(key)):
                return ALIEN
            kind = type(item)
            if kind is str:
                if not (item.isascii() or _encodes(item)):
                    return ALIEN
                weight += len(key) + len(item)
                continue
            weight += len(key)
            if kind is int:
                if not -1073741824 < item < 1073741824:
                    if not -_BIG < item < _BIG:
                        return ALIEN
                    weight += item.bit_length() // 4
            elif kind is float:
                if not -_INFINITY < item < _INFINITY:
                    return ALIEN
            elif kind is not bool and item is not None:
                if depth < 2 or not (kind is dict or kind is list):
                    return ALIEN
                budget = remaining_budget(item, depth - 1, budget - weight)
                if budget < 0:
                    return budget
                weight = 0
        return budget - weight
    for item in value if kind is list else (value,):
        kind = type(item)
        if kind is str:
            if not (item.isascii() or _encodes(item)):
                return ALIEN
            weight += len(item)
        elif kind is int:
            if not -1073741824 < item < 1073741824:
                if not -_BIG < item < _BIG:
                    return ALIEN
                weight += item.bit_length() // 4
        elif kind is float:
            if not -_INFINITY < item < _INFINITY:
                return ALIEN
        elif kind is not bool and item is not None:
            if depth < 2 or not (kind is dict or kind is list):
                return ALIEN
            budget = remaining_budget(item, depth - 1, budget - weight)
            if budget < 0:
                return budget
            weight = 0
    return budget - weight


def as_json(value: Any, *, depth: int = 100) -> tuple[JSON, Violation | None]:
    """Convert subclasses of dict and list to plain ones.

    Args:
        value: Any object.
        depth: Maximum nesting of containers.

    Returns:
        The converted value and None, or the given value and the violation if it is not JSON.
    """
    found = json_violation(value, depth=depth)
    if found is None or found.keyword != SUBCLASS:
        return value, found
    return unshared_copy(value, depth), None


def as_dict(value: Any) -> Any:
    """Convert a mapping to a dict; its members are not converted.

    Returns:
        The value itself if it is not a mapping or cannot be read completely; `json_violation` then refuses it.
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
    except Exception:  # noqa: BLE001 -- third-party code may raise anything
        return value
    return value if len(members) > _MEMBERS else members


class _Search:
    """Finds the first violation in a value, or else the first container that is not plain."""

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
    """A value is not JSON; `json_violation` returns the reason."""


def unshared_copy(value: Any, depth: int) -> Any:
    """A deep copy of a JSON value, with plain objects and lists.

    Args:
        value: Any object.
        depth: Maximum nesting of containers.

    Raises:
        NotJSONError: `json_violation` would report a violation.
    """
    # Checks and copies in one walk: a value that another thread changes in between could pass the check
    # alone.
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


def bounded_copy(value: Any, depth: int, left: list[int]) -> Any:  # noqa: C901, PLR0912 -- as `json_violation`
    """A deep copy of a plain JSON object or list, whose weight is subtracted from a budget; see `remaining_budget`.

    Args:
        value: An object of type dict or list.
        depth: Maximum nesting of containers.
        left: The budget, as a list of one counter.

    Raises:
        NotJSONError: `json_violation` would report a violation, or the budget is exceeded.
    """
    left[0] -= 4 * len(value)
    if depth < 1 or left[0] < 0:
        raise NotJSONError
    # Copied first, and then checked: another thread may change the value, but not the copy.
    copy, weight = value.copy(), 0
    if type(copy) is dict:
        # Names and values in one loop, as in `remaining_budget`.
        for key, item in copy.items():
            if type(key) is not str or not (key.isascii() or _encodes(key)):
                raise NotJSONError
            weight += len(key)
            kind = type(item)
            if kind is str and item.isascii():
                weight += len(item)
            elif kind is dict or kind is list:
                copy[key] = bounded_copy(item, depth - 1, left)
            elif not (kind is int and -1073741824 < item < 1073741824):
                weight += _scalar_weight(item)
    else:
        for place, item in enumerate(copy):
            kind = type(item)
            if kind is str and item.isascii():
                weight += len(item)
            elif kind is dict or kind is list:
                copy[place] = bounded_copy(item, depth - 1, left)
            elif not (kind is int and -1073741824 < item < 1073741824):
                weight += _scalar_weight(item)
    left[0] -= weight
    if left[0] < 0:
        raise NotJSONError
    return copy


def _scalar_weight(value: Any) -> int:
    """The weight of a JSON value that is no container; raises NotJSONError for other values."""
    kind = type(value)
    if kind is str and _encodes(value):
        return len(value)
    if kind is int and -_BIG < value < _BIG:
        return value.bit_length() // 4  # type: ignore[no-any-return]
    if kind is bool or value is None or (kind is float and -_INFINITY < value < _INFINITY):
        return 0
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
"""The weight up to which a value is validated on the event loop, which takes about 1 ms; a thread costs 0.1 ms."""

MOST_WEIGHT: Final = 2
"""The largest weight of a value per character of its JSON text: an item of a list weighs 4 and takes two."""

DEPTH: Final = 100
"""Maximum nesting of a result."""

_BYTES: Final = 8
"""Maximum bytes of compact JSON per unit of weight."""

# A result of a million empty objects is 3 MB of JSON but far more in memory, so values are counted, too.
_ELEMENT: Final = 4
"""Bytes of a size limit that each value uses up."""


def budget_for_bytes(limit: int, *, most: int = SMALL) -> int:
    """The weight up to which compact JSON surely has at most `limit` bytes; capped at `most`."""
    return min(most, limit // _BYTES - _ELEMENT)


def is_large(value: Any, depth: int) -> bool:
    """Whether a value is too large to be validated on the event loop."""
    return ALIEN < remaining_budget(value, depth, SMALL) < 0


def count_elements(value: JSON, most: int) -> int:
    """The number of JSON values in a value, including itself; counted up to `most`."""
    total = 1
    # The list grows while it is iterated: a breadth-first walk without recursion.
    waiting: list[JSON] = [value]
    for item in waiting:
        if isinstance(item, dict | list):
            total += len(item)
            if total >= most:
                return most
            inner = item.values() if isinstance(item, dict) else item
            waiting += [each for each in inner if isinstance(each, dict | list)]
    return total


_LARGEST_PIECE: Final = 1 << 18
"""Weight up to which a value is encoded in one piece."""

_TOGETHER: Final = 128
"""Members of a container that are encoded together."""


def compact_size(value: JSON, depth: int) -> int:
    """The number of bytes of a JSON value as compact JSON.

    A large value is encoded piece by piece: the encoder does not let other threads run until it has finished.
    """
    if not isinstance(value, dict | list) or remaining_budget(value, depth, _LARGEST_PIECE) >= 0:
        return len(compact(value).encode())
    size = 2 + len(value) - 1  # brackets and commas
    if isinstance(value, dict):
        size += sum(len(compact(key).encode()) + 1 for key in value)
        value = [*value.values()]
    for start in range(0, len(value), _TOGETHER):
        some = value[start : start + _TOGETHER]
        if remaining_budget(some, depth, _LARGEST_PIECE) >= 0:
            size += len(compact(some).encode()) - 2 - (len(some) - 1)
        else:
            size += sum(compact_size(item, depth - 1) for item in some)
    return size


class ExcessSize(NamedTuple):
    """How far a value exceeds a size limit.

    Attributes:
        measured: Its bytes of compact JSON; for a value that is not written any more, a number that it surely exceeds.
            If its values exceed the limit, 4 for each.
        text: The same for people: `5,242,880 bytes`.
    """

    measured: int
    text: str


WITHIN: Final = ExcessSize(0, "")
"""The excess of a value that does not exceed its limit."""


def measure_excess(value: JSON, depth: int, limit: int) -> ExcessSize | None:
    """How far a value exceeds a limit in bytes; `WITHIN` if it does not, None if it is not JSON."""
    left = remaining_budget(value, depth, 2 * limit)
    if left == ALIEN:
        return None
    if 2 * limit - left <= budget_for_bytes(limit, most=limit):
        return WITHIN
    if left < 0:  # its characters or its values alone exceed the limit
        return ExcessSize(limit + 1, f"more than {format_size(limit)}")
    size = compact_size(value, depth)
    if size > limit:
        return ExcessSize(size, f"{size:,} bytes")
    values = count_elements(value, limit) if 2 * limit - left >= limit - _ELEMENT else 0
    return ExcessSize(values * _ELEMENT, f"{values:,} values") if values * _ELEMENT > limit else WITHIN
