"""Built-in functions of expressions. All are pure except the random and counting ones.

A function is called as a filter, `orders | find(id=1)`, or directly, `find(orders, id=1)`: the value before `|` is
the first argument. Semantics follow Python where Jinja2's filter of the same name differs: sorting and equality are
case-sensitive, sums run from left to right, and rounding applies to the binary value.

Random and counting functions read hidden names of the scope that no expression can spell. If a scope does not
provide these names, the functions are refused when the document is loaded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from toolcrib.core.clock import format_time, parse_duration
from toolcrib.core.errors import ExpressionError
from toolcrib.core.model import JSON
from toolcrib.expressions import operators
from toolcrib.expressions.operators import add, greater, is_number, less
from toolcrib.expressions.values import (
    MOST_ITEMS,
    MOST_TEXT,
    as_text,
    bounded_list,
    bounded_number,
    bounded_text,
    compact,
    equal,
    frozen,
    kind,
    list_of_names,
    shortened,
    text_size,
)

# Stricter than `datetime.fromisoformat`, which also accepts forms such as `20300101` and `2030-W01-1`.
_TIME = re.compile(r"\d{4}-\d\d-\d\d(?:[Tt ]\d\d:\d\d:\d\d(?:\.\d{1,6})?(?:[Zz]|[+-]\d\d:\d\d)?)?", re.ASCII)


def date_add(moment: JSON, duration: JSON) -> JSON:
    """A time plus a duration such as `'1d'` or `'-90m'`; a date stays a date and accepts only whole days."""
    start = _time("date_add", moment)
    seconds = _seconds(duration)
    try:
        end = start + timedelta(seconds=seconds)
    except OverflowError:
        raise ExpressionError("the result of `date_add` is outside the years 1 to 9999") from None
    if _is_date(moment):
        if seconds % 86400:
            hint = "write a time as `2030-01-01T00:00:00Z`"
            raise ExpressionError(
                f"`date_add` can add only whole days to a date, not `{duration}`", hint=hint
            )
        return end.date().isoformat()
    return format_time(end)


def seconds_between(start: JSON, end: JSON) -> JSON:
    """Seconds from one time to another, negative if the second is earlier; a date counts as midnight UTC."""
    first, second = (_time("seconds_between", moment) for moment in (start, end))
    # Python refuses to subtract a naive time from an aware one; a date or a time without zone counts as UTC.
    if (first.tzinfo is None) is not (second.tzinfo is None):
        first, second = (_in_utc(moment) for moment in (first, second))
    seconds = (second - first).total_seconds()
    return int(seconds) if seconds.is_integer() else seconds


def _in_utc(moment: datetime) -> datetime:
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)


def _is_date(moment: JSON) -> bool:
    return isinstance(moment, str) and len(moment) == len("2030-01-01")


def _time(name: str, moment: JSON) -> datetime:
    if not isinstance(moment, str):
        raise ExpressionError(f"`{name}` needs a time such as `2030-01-01T00:00:00Z`, not {kind(moment)}")
    if _TIME.fullmatch(moment) is not None:
        try:
            return _parse_moment(moment)
        except ValueError:
            pass  # matches the pattern but does not exist, such as the 31st of February
    hint = "write a time as `2030-01-01T00:00:00Z`, a date as `2030-01-01`"
    raise ExpressionError(f"`{name}` cannot read `{shortened(moment)}` as a time", hint=hint)


def _parse_moment(moment: str) -> datetime:
    if _is_date(moment):
        return datetime.combine(date.fromisoformat(moment), datetime.min.time())
    # RFC 3339 section 5.6 allows a lower-case `z`, which Python refuses.
    return datetime.fromisoformat(moment.upper())


def _seconds(duration: JSON) -> float:
    if not isinstance(duration, str):
        raise ExpressionError(f"`date_add` needs a duration such as `1d`, not {kind(duration)}")
    text, back = duration.removeprefix("-"), duration.startswith("-")
    try:
        return -parse_duration(text) if back else parse_duration(text)
    except ValueError as error:
        raise ExpressionError(f"`date_add`: {error}") from None


DRAWS = "draws()"
"""Hidden name of the random source: called with the place of a function in its document, it returns a `Chance`."""

COUNTS = "counts()"
"""Hidden name of the counter: called with the name of a sequence and its first number, it returns the next one."""


class Chance(Protocol):
    """One random draw. It is immutable: repeated calls return the same value."""

    def integer(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`, both included."""
        ...

    def number(self, low: float, high: float) -> float:
        """A number from `low` up to `high`."""
        ...


class SequenceCounter(Protocol):
    """Counts named sequences."""

    def __call__(self, name: str, first: int) -> int:
        """The next number of a sequence; `first` for a new one."""
        ...


def uuid(chance: Chance) -> JSON:
    """A UUID (version 4), different at each use."""
    # Version and variant bits: RFC 9562 section 5.4.
    digits = f"{chance.integer(0, (1 << 128) - 1):032x}"
    variant = "89ab"[int(digits[16], 16) % 4]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"


def pick(chance: Chance, options: JSON) -> JSON:
    """A random element of a list, drawn again at each use."""
    if not isinstance(options, list):
        raise ExpressionError(f"`pick` needs a list, not {kind(options)}")
    if not options:
        raise ExpressionError("`pick` needs a non-empty list")
    return options[chance.integer(0, len(options) - 1)]


def random(chance: Chance, low: JSON, high: JSON) -> JSON:
    """A random number between two numbers, both included, drawn again at each use; whole if both are whole."""
    least, most = _number_argument(low), _number_argument(high)
    if least > most:
        raise ExpressionError(f"`random` needs the lower number first: {low} is greater than {high}")
    if isinstance(least, int) and isinstance(most, int):
        return chance.integer(least, most)
    try:
        found = chance.number(least, most)
    except OverflowError:
        raise ExpressionError("the range of `random` is too large for a float") from None
    # Float rounding can leave a narrow range.
    return bounded_number(min(max(found, least), most))


def _number_argument(value: JSON) -> float:
    if isinstance(value, int | float) and is_number(value):
        return value
    raise ExpressionError(f"`random` needs two numbers, not {kind(value)}")


def sequence(counts: SequenceCounter, name: JSON, first: JSON = 1) -> JSON:
    """The next number of a named sequence of the session, starting at 1 or at the second argument."""
    if not isinstance(name, str):
        raise ExpressionError(f"`seq` needs the name of a sequence as a string, not {kind(name)}")
    start = operators.whole_number(first)
    if start is None:
        raise ExpressionError(f"`seq` must start at a whole number, not {kind(first)}")
    return counts(name, start)


Goes: TypeAlias = Literal["no", "one", "all"]
"""How deep a function traverses its values, for the step budget: not at all, the first level, all levels."""


class Function(NamedTuple):
    """A function of expressions.

    Attributes:
        run: Accepts the value, then the arguments; named ones if `fields` allows them.
        least: Minimum number of arguments, including the value before `|`.
        most: Maximum number of arguments; None for no limit.
        fields: Named arguments: `no` for none, `must` for at least one, `either` for named or positional ones.
        source: The hidden name of the scope that is passed to `run` first; empty for a pure function.
        goes: How deep it traverses its values.
    """

    run: Callable[..., JSON]
    least: int
    most: int | None
    fields: Literal["no", "must", "either"] = "no"
    source: str = ""
    goes: Goes = "no"

    @property
    def summary(self) -> str:
        """The first line of its docstring, used in hints and in the reference."""
        return (self.run.__doc__ or "").partition("\n")[0]


_functions: dict[str, Function] = {}

FUNCTIONS: Mapping[str, Function] = _functions
"""Name -> function. Filled while this module is imported, read-only afterwards."""


def _function(
    name: str,
    least: int = 1,
    most: int | None = 0,
    fields: Literal["no", "must", "either"] = "no",
    goes: Goes = "one",
) -> Callable[[Callable[..., JSON]], Callable[..., JSON]]:
    """Register a function; `most` defaults to `least`."""

    def enter(run: Callable[..., JSON]) -> Callable[..., JSON]:
        _functions[name] = Function(run, least, least if most == 0 else most, fields, goes=goes)
        return run

    return enter


# Checks of arguments.


def _list(name: str, value: JSON, hint: str = "") -> list[JSON]:
    if isinstance(value, list):
        return value
    if isinstance(value, dict):
        hint = hint or "use `| values` for the values of an object"
    raise ExpressionError(f"`{name}` needs a list, not {kind(value)}", hint=hint)


def _object(name: str, value: JSON) -> dict[str, JSON]:
    if isinstance(value, dict):
        return value
    raise ExpressionError(f"`{name}` needs an object, not {kind(value)}")


def _text(name: str, value: JSON) -> str:
    if isinstance(value, str):
        return value
    hint = "convert it with `| string`" if is_number(value) else ""
    raise ExpressionError(f"`{name}` needs a string, not {kind(value)}", hint=hint)


def _number(name: str, value: JSON) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    hint = "convert it with `| float` or `| int`" if isinstance(value, str) else ""
    raise ExpressionError(f"`{name}` needs a number, not {kind(value)}", hint=hint)


def _whole(name: str, value: JSON) -> int:
    number = operators.whole_number(value)
    if number is not None:
        return number
    raise ExpressionError(
        f"`{name}` needs a whole number, not {kind(value)}", hint="use `| int` to drop the fraction"
    )


def _field(name: str, item: JSON, field: str) -> JSON:
    if not isinstance(item, dict):
        raise ExpressionError(f"`{name}` by `{field}` needs objects in its list, not {kind(item)}")
    if field not in item:
        there = list_of_names(list(item)) or "nothing"
        raise ExpressionError(
            f"an object in the list of `{name}` has no `{field}`: it has {there}", code="missing_key"
        )
    return item[field]


def _by_field(name: str, items: JSON, field: JSON) -> list[JSON]:
    """The list itself, or one field of each object if `field` is given."""
    listed = _list(name, items)
    if field is None:
        return listed
    text = _text(name, field)
    return [_field(name, item, text) for item in listed]


_OBJECTS = frozenset({dict})


def _matching(name: str, items: JSON, fields: Mapping[str, JSON]) -> Iterator[JSON]:
    """The objects of a list whose fields have these values."""
    listed: list[Any] = _list(name, items)
    if len(fields) == 1:
        ((field, wanted),) = fields.items()
        if isinstance(wanted, str) and _OBJECTS.issuperset(map(type, listed)):
            # The common search. Python's `==` agrees with JSON equality if one side is a string.
            return (item for item in listed if item.get(field) == wanted)
    return (item for item in listed if _fits(name, item, fields))


def _fits(name: str, item: JSON, fields: Mapping[str, JSON]) -> bool:
    if not isinstance(item, dict):
        raise ExpressionError(f"`{name}` by field needs objects in its list, not {kind(item)}")
    # `all` over a generator takes twice as long, and searches call this for every element.
    for key, value in fields.items():  # noqa: SIM110
        if key not in item or not equal(item[key], value):
            return False
    return True


# Lists and objects.


@_function("find", fields="must")
def find(items: JSON, /, **fields: JSON) -> JSON:
    """The first object in a list whose fields have these values; `none` if no object matches."""
    return next(_matching("find", items, fields), None)


@_function("where", fields="must")
def where(items: JSON, /, **fields: JSON) -> JSON:
    """All objects in a list whose fields have these values."""
    return list(_matching("where", items, fields))


@_function("count_of", most=2, fields="either")
def count_of(items: JSON, /, *value: JSON, **fields: JSON) -> JSON:
    """Number of elements that equal a value, or of objects whose fields have these values."""
    if fields:
        return sum(1 for _item in _matching("count_of", items, fields))
    return sum(equal(item, value[0]) for item in _list("count_of", items))


@_function("pluck", 2)
def pluck(items: JSON, field: JSON) -> JSON:
    """One field of each object in a list."""
    return _by_field("pluck", items, _text("pluck", field))


# Sorting indexes by their keys keeps equal elements in order and never compares the elements themselves.
@_function("sort", most=2)
def sort(items: JSON, field: JSON = None) -> JSON:
    """A list of numbers or strings in order, or objects by a field. Stable and case-sensitive."""
    keys = _by_field("sort", items, field)
    if not all(map(is_number, keys)) and not all(isinstance(key, str) for key in keys):
        kinds = " and ".join(sorted({kind(key) for key in keys}))
        raise ExpressionError(f"`sort` needs only numbers or only strings, not {kinds}")
    listed = _list("sort", items)
    return [listed[place] for place in sorted(range(len(keys)), key=keys.__getitem__)]  # type: ignore[arg-type]


@_function("reverse")
def reverse(value: JSON) -> JSON:
    """A list or string in reverse order."""
    return value[::-1] if isinstance(value, str) else _list("reverse", value)[::-1]


@_function("unique", goes="all")
def unique(items: JSON) -> JSON:
    """A list without elements that equal an earlier one."""
    seen: dict[Hashable, JSON] = {}
    for item in _list("unique", items):
        seen.setdefault(frozen(item), item)
    return list(seen.values())


@_function("first", goes="no")
def first(items: JSON) -> JSON:
    """The first element of a list; `none` if the list is empty."""
    return next(iter(_list("first", items, "use `[0:1]` for a part of a string")), None)


@_function("last", goes="no")
def last(items: JSON) -> JSON:
    """The last element of a list; `none` if the list is empty."""
    return next(reversed(_list("last", items, "use `[-1:]` for a part of a string")), None)


@_function("keys")
def keys(value: JSON) -> JSON:
    """The keys of an object, in order."""
    return list(_object("keys", value))


@_function("values")
def values(value: JSON) -> JSON:
    """The values of an object, in order."""
    return list(_object("values", value).values())


@_function("items")
def items(value: JSON) -> JSON:
    """The `[key, value]` pairs of an object, in order."""
    return [[key, item] for key, item in _object("items", value).items()]


@_function("length", goes="no")
def length(value: JSON) -> JSON:
    """The number of elements of a list, keys of an object or characters of a string."""
    if isinstance(value, list | dict | str):
        return len(value)
    raise ExpressionError(f"`length` needs a list, an object or a string, not {kind(value)}")


@_function("zip", 2, most=None)
def zip_lists(*lists: JSON) -> JSON:
    """Combines lists of equal length element by element into a list of lists."""
    sides = [_list("zip", side) for side in lists]
    lengths = [len(side) for side in sides]
    if len(set(lengths)) > 1:
        raise ExpressionError(f"`zip` needs lists of equal length, not {' and '.join(map(str, lengths))}")
    return [list(row) for row in zip(*sides, strict=True)]


@_function("range", 1, most=3, goes="no")
def count_up(start: JSON, stop: JSON = None, step: JSON = 1) -> JSON:
    """Whole numbers up to but excluding the stop, as in Python: `range(3)`, `range(1, 10, 2)`."""
    first_bound, by = _whole("range", start), _whole("range", step)
    if by == 0:
        raise ExpressionError("the step of `range` cannot be 0")
    numbers = range(first_bound) if stop is None else range(first_bound, _whole("range", stop), by)
    # len() raises OverflowError for a range of more than 2**63 numbers, but works on a slice of it.
    if len(numbers[: MOST_ITEMS + 1]) > MOST_ITEMS:
        raise ExpressionError(f"`range` returns at most {MOST_ITEMS:,} numbers")
    return list(numbers)


@_function("flatten")
def flatten(items: JSON) -> JSON:
    """A list in which each element that is a list is replaced by its elements, one level deep."""
    flat: list[JSON] = []
    for item in _list("flatten", items):
        # Checked at each step: a list of 10,000 references to one long list would fill the memory first.
        if isinstance(item, list):
            flat += item
        else:
            flat.append(item)
        bounded_list(flat)
    return flat


@_function("merge", 2, most=None)
def merge(*objects: JSON) -> JSON:
    """An object with the keys of several objects; of equal keys, the last value. Nested objects are not merged."""
    merged: dict[str, JSON] = {}
    for each in objects:
        merged |= _object("merge", each)
        if len(merged) > MOST_ITEMS:
            raise ExpressionError(f"the result of `merge` would exceed {MOST_ITEMS:,} keys")
    return merged


@_function("omit", 2, most=None)
def omit(value: JSON, *names: JSON) -> JSON:
    """An object without these keys, given one by one or as a list; a key that it does not have is ignored."""
    kept = dict(_object("omit", value))
    for name in names:
        for key in name if isinstance(name, list) else [name]:
            kept.pop(_text("omit", key), None)
    return kept


@_function("default", 2, goes="no")
def default(value: JSON, instead: JSON) -> JSON:
    """The value, or a replacement if it is `none`. Read a key that may be missing with `a['key']`."""
    return instead if value is None else value


# Numbers.


@_function("abs", goes="no")
def absolute(value: JSON) -> JSON:
    """The absolute value of a number."""
    return abs(_number("abs", value))


@_function("round", most=2, goes="no")
def rounded(value: JSON, digits: JSON = None) -> JSON:
    """A number rounded to a number of digits, by default to a whole number; exact halves round to even."""
    number = _number("round", value)
    if digits is None:
        return round(number)
    places = _whole("round", digits)
    # Floats have no digits outside this range, and `round(5, -10**9)` would compute 10**10**9 first.
    if not -400 <= places <= 400:
        raise ExpressionError(f"`round` accepts -400 to 400 digits, not {places:,}")
    try:
        return bounded_number(round(number, places))
    except OverflowError:
        raise ExpressionError("the rounded number is too large for a float") from None


@_function("sum", most=2)
def total(items: JSON, field: JSON = None) -> JSON:
    """The sum of a list of numbers or of one field of its objects; 0 for an empty list."""
    result: JSON = 0
    # The built-in sum() compensates for rounding errors since Python 3.12, so results would depend on the
    # version.
    for item in _by_field("sum", items, field):
        result = add(result, _number("sum", item))
    return result


def _extreme(name: str, beats: Callable[[JSON, JSON], bool], candidates: tuple[JSON, ...]) -> JSON:
    listed = _list(name, candidates[0]) if len(candidates) == 1 else candidates
    best = next(iter(listed), None)
    # The first is compared with itself, so that a list of one element is checked for its type, too.
    for candidate in listed:
        if beats(candidate, best):
            best = candidate
    return best


@_function("min", most=None)
def least(*candidates: JSON) -> JSON:
    """The smallest of a list or of several arguments, numbers or strings; `none` for an empty list."""
    return _extreme("min", less, candidates)


@_function("max", most=None)
def greatest(*candidates: JSON) -> JSON:
    """The largest of a list or of several arguments, numbers or strings; `none` for an empty list."""
    return _extreme("max", greater, candidates)


# Stricter than int() and float(), which also accept `1_000`, `nan` and digits of other scripts.
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?", re.ASCII)
_WHOLE = re.compile(r"[+-]?[0-9]+", re.ASCII)


@_function("int")
def to_whole(value: JSON) -> JSON:
    """A number without its fraction, or a string parsed as a whole number."""
    if isinstance(value, str):
        return operators.number(_read("int", value, _WHOLE, "a whole number"))
    return int(_number("int", value))


@_function("float")
def to_float(value: JSON) -> JSON:
    """A number as a float, or a string parsed as a number."""
    if isinstance(value, str):
        return bounded_number(float(_read("float", value, _NUMBER, "a number")))
    try:
        return float(_number("float", value))
    except OverflowError:
        raise ExpressionError("the number is too large for a float") from None


def _read(name: str, text: str, pattern: re.Pattern[str], what: str) -> str:
    stripped = text.strip()
    if pattern.fullmatch(stripped):
        return stripped
    raise ExpressionError(f"`{name}` cannot read {compact(shortened(text))} as {what}")


@_function("arith")
def arith(value: JSON) -> JSON:
    """The result of an arithmetic expression in a string: numbers, `+ - * / // **`, parentheses."""
    return operators.evaluate_arithmetic(_text("arith", value))


# Strings.


@_function("string", goes="all")
def to_text(value: JSON) -> JSON:
    """A value as a string: strings unchanged, everything else as JSON."""
    return bounded_text(as_text(value))


@_function("tojson", goes="all")
def to_json(value: JSON) -> JSON:
    """A value as compact JSON; a string is quoted."""
    return bounded_text(compact(value))


@_function("lower")
def lower(value: JSON) -> JSON:
    """A string in lower case."""
    return bounded_text(_text("lower", value).lower())


@_function("upper")
def upper(value: JSON) -> JSON:
    """A string in upper case."""
    return bounded_text(_text("upper", value).upper())


@_function("trim")
def trim(value: JSON) -> JSON:
    """A string without leading and trailing whitespace."""
    return _text("trim", value).strip()


@_function("starts_with", 2, goes="no")
def starts_with(value: JSON, start: JSON) -> JSON:
    """Whether a string starts with another."""
    return _text("starts_with", value).startswith(_text("starts_with", start))


@_function("ends_with", 2, goes="no")
def ends_with(value: JSON, end: JSON) -> JSON:
    """Whether a string ends with another."""
    return _text("ends_with", value).endswith(_text("ends_with", end))


@_function("join", most=2, goes="all")
def join(items: JSON, between: JSON = "") -> JSON:
    """The elements of a list joined into one string, with an optional separator."""
    texts = [as_text(item) for item in _list("join", items)]
    separator = _text("join", between)
    # Checked before joining: a long separator between many elements would build gigabytes first.
    if sum(map(len, texts)) + len(separator) * max(len(texts) - 1, 0) > MOST_TEXT:
        raise ExpressionError(f"the result of `join` would exceed {MOST_TEXT // 1024} KiB")
    return bounded_text(separator.join(texts))


@_function("split", most=2)
def split(value: JSON, between: JSON = None) -> JSON:
    """The parts of a string between separators; by default between whitespace."""
    text = _text("split", value)
    separator = None if between is None else _text("split", between)
    if separator == "":
        raise ExpressionError("`split` needs a non-empty separator")
    pieces: list[JSON] = list(text.split(separator, MOST_ITEMS))
    return bounded_list(pieces)


@_function("replace", 3)
def replace(value: JSON, old: JSON, new: JSON) -> JSON:
    """A string with every occurrence of another string replaced."""
    text, gone, come = (_text("replace", part) for part in (value, old, new))
    if not gone:
        raise ExpressionError("`replace` needs at least one character to search for")
    # An upper estimate before replacing, for the same reason as in `join`.
    if text_size(text) + text.count(gone) * text_size(come) > 2 * MOST_TEXT:
        raise ExpressionError(f"the result of `replace` would exceed {MOST_TEXT // 1024} KiB")
    return bounded_text(text.replace(gone, come))


# Times, and functions that are not pure.

_functions |= {
    "date_add": Function(date_add, 2, 2),
    "seconds_between": Function(seconds_between, 2, 2),
    "pick": Function(pick, 1, 1, source=DRAWS),
    "random": Function(random, 2, 2, source=DRAWS),
    "seq": Function(sequence, 1, 2, source=COUNTS),
    "uuid": Function(uuid, 0, 0, source=DRAWS),
}
