"""The functions that expressions may call. All of them are pure, except those that draw values or count.

Each function is written as a filter, `orders | find(id=1)`, or as a call, `find(orders, id=1)`: the
value before the bar is the first argument. Where Jinja2's filter of the same name differs, Python's
meaning holds: order and equality mind case, sums run from left to right, rounding is of the binary
value.

The functions that draw values or count read hidden names of the scope, which no expression can name; where a
scope does not provide them, the functions are refused when a document is loaded.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Literal, NamedTuple, Protocol, TypeAlias

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

_TIME = re.compile(r"\d{4}-\d\d-\d\d(?:[Tt ]\d\d:\d\d:\d\d(?:\.\d{1,6})?(?:[Zz]|[+-]\d\d:\d\d)?)?", re.ASCII)


def date_add(moment: JSON, duration: JSON) -> JSON:
    """A time later by a duration, `'1d'`, or earlier, `'-90m'`; a date stays a date, so days are added to it."""
    start = _time("date_add", moment)
    seconds = _seconds(duration)
    try:
        end = start + timedelta(seconds=seconds)
    except OverflowError:
        raise ExpressionError("`date_add` leaves the years 1 to 9999") from None
    if _is_date(moment):
        if seconds % 86400:
            hint = "a time is written `2030-01-01T00:00:00Z`"
            raise ExpressionError(f"`date_add` adds whole days to a date, not `{duration}`", hint=hint)
        return end.date().isoformat()
    return format_time(end)


def seconds_between(start: JSON, end: JSON) -> JSON:
    """The seconds from one time to another, negative if it is the earlier one; a date is its midnight in UTC."""
    first, second = (_time("seconds_between", moment) for moment in (start, end))
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
        raise ExpressionError(
            f"`{name}` needs a time, a text such as `2030-01-01T00:00:00Z`, not {kind(moment)}"
        )
    if _TIME.fullmatch(moment) is not None:
        try:
            return _parse_moment(moment)
        except ValueError:
            pass  # the 31st of February: told below
    hint = "a time is written `2030-01-01T00:00:00Z`, a date `2030-01-01`"
    raise ExpressionError(f"`{name}` can't read `{shortened(moment)}` as a time", hint=hint)


def _parse_moment(moment: str) -> datetime:
    if _is_date(moment):
        return datetime.combine(date.fromisoformat(moment), datetime.min.time())
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
"""Hidden name of what draws: called with the place of a function in its document, it gives a `Chance`."""

COUNTS = "counts()"
"""Hidden name of what counts: called with the name of a sequence and its first number, it gives the next one."""


class Chance(Protocol):
    """One draw. It is a value: asking it twice gives the same answer."""

    def integer(self, low: int, high: int) -> int:
        """A whole number from `low` to `high`, both included."""
        ...

    def number(self, low: float, high: float) -> float:
        """A number from `low` up to `high`."""
        ...


class SequenceCounter(Protocol):
    """Gives the numbers of sequences."""

    def __call__(self, name: str, first: int) -> int:
        """The next number of a sequence, `first` for a fresh one."""
        ...


def uuid(chance: Chance) -> JSON:
    """A UUID (version 4), another one at each use."""
    digits = f"{chance.integer(0, (1 << 128) - 1):032x}"
    variant = "89ab"[int(digits[16], 16) % 4]
    return f"{digits[:8]}-{digits[8:12]}-4{digits[13:16]}-{variant}{digits[17:20]}-{digits[20:]}"


def pick(chance: Chance, options: JSON) -> JSON:
    """One element of a list, drawn anew at each use."""
    if not isinstance(options, list):
        raise ExpressionError(f"`pick` needs a list, not {kind(options)}")
    if not options:
        raise ExpressionError("`pick` needs a list that is not empty")
    return options[chance.integer(0, len(options) - 1)]


def random(chance: Chance, low: JSON, high: JSON) -> JSON:
    """A number from the first to the second, drawn anew at each use; a whole one if both are."""
    least, most = _number_argument(low), _number_argument(high)
    if least > most:
        raise ExpressionError(f"`random` needs the lower number first: {low} is above {high}")
    if isinstance(least, int) and isinstance(most, int):
        return chance.integer(least, most)
    try:
        found = chance.number(least, most)
    except OverflowError:
        raise ExpressionError("`random` is asked beyond what a float can hold") from None
    return bounded_number(min(max(found, least), most))  # rounding may lead out of a narrow range


def _number_argument(value: JSON) -> float:
    if isinstance(value, int | float) and is_number(value):
        return value
    raise ExpressionError(f"`random` needs two numbers, and got {kind(value)}")


def sequence(counts: SequenceCounter, name: JSON, first: JSON = 1) -> JSON:
    """The next number of a sequence that the session keeps: 1, or the second argument, then one more each time."""
    if not isinstance(name, str):
        raise ExpressionError(f"`seq` needs the name of a sequence, a text, not {kind(name)}")
    if type(first) is not int:
        raise ExpressionError(f"`seq` begins with a whole number, not {kind(first)}")
    return counts(name, first)


Goes: TypeAlias = Literal["no", "one", "all"]
"""Through how many levels of its values a function goes: none, the first, all."""


class Function(NamedTuple):
    """A function of expressions.

    Attributes:
        run: Takes the value, then the arguments; named ones where `fields` allows them.
        least: Fewest arguments, the value before the bar included.
        most: Most of them; None for any number.
        fields: `no` named arguments; `must`: at least one; `either`: those or an argument by place.
        source: The hidden name of the scope that it asks, which `run` takes first; empty for a pure function.
        goes: Through how many levels of its values it goes, which takes the longer the more there is.
    """

    run: Callable[..., JSON]
    least: int
    most: int | None
    fields: Literal["no", "must", "either"] = "no"
    source: str = ""
    goes: Goes = "no"

    @property
    def summary(self) -> str:
        """What it does, in one line."""
        return (self.run.__doc__ or "").partition("\n")[0]


_functions: dict[str, Function] = {}

FUNCTIONS: Mapping[str, Function] = _functions
"""Name -> function. Filled while this module is read, never after."""


def _function(
    name: str,
    least: int = 1,
    most: int | None = 0,
    fields: Literal["no", "must", "either"] = "no",
    goes: Goes = "one",
) -> Callable[[Callable[..., JSON]], Callable[..., JSON]]:
    """Enter a function into the table; `most` is `least` unless given."""

    def enter(run: Callable[..., JSON]) -> Callable[..., JSON]:
        _functions[name] = Function(run, least, least if most == 0 else most, fields, goes=goes)
        return run

    return enter


# What functions ask of their values.


def _list(name: str, value: JSON, hint: str = "") -> list[JSON]:
    if isinstance(value, list):
        return value
    if isinstance(value, dict):
        hint = hint or "the values of an object are a list after `| values`"
    raise ExpressionError(f"`{name}` needs a list, not {kind(value)}", hint=hint)


def _object(name: str, value: JSON) -> dict[str, JSON]:
    if isinstance(value, dict):
        return value
    raise ExpressionError(f"`{name}` needs an object, not {kind(value)}")


def _text(name: str, value: JSON) -> str:
    if isinstance(value, str):
        return value
    hint = "turn it into a text with `| string`" if is_number(value) else ""
    raise ExpressionError(f"`{name}` needs a text, not {kind(value)}", hint=hint)


def _number(name: str, value: JSON) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    hint = "turn it into a number with `| float` or `| int`" if isinstance(value, str) else ""
    raise ExpressionError(f"`{name}` needs a number, not {kind(value)}", hint=hint)


def _whole(name: str, value: JSON) -> int:
    if type(value) is int:
        return value
    raise ExpressionError(
        f"`{name}` needs a whole number, not {kind(value)}", hint="`| int` cuts off the fraction"
    )


def _field(name: str, item: JSON, field: str) -> JSON:
    if not isinstance(item, dict):
        raise ExpressionError(f"`{name}` by `{field}` needs objects in its list, not {kind(item)}")
    if field not in item:
        there = list_of_names(list(item)) or "nothing"
        raise ExpressionError(
            f"an object that `{name}` met has no `{field}`: it has {there}", code="missing_key"
        )
    return item[field]


def _by_field(name: str, items: JSON, field: JSON) -> list[JSON]:
    """The list itself, or one field of each of its objects."""
    listed = _list(name, items)
    if field is None:
        return listed
    text = _text(name, field)
    return [_field(name, item, text) for item in listed]


def _fits(name: str, item: JSON, fields: Mapping[str, JSON]) -> bool:
    if not isinstance(item, dict):
        raise ExpressionError(f"`{name}` by field needs objects in its list, not {kind(item)}")
    for key, value in fields.items():  # noqa: SIM110 -- `all` of a generator takes twice as long in searches
        if key not in item or not equal(item[key], value):
            return False
    return True


# Lists and objects.


@_function("find", fields="must")
def find(items: JSON, /, **fields: JSON) -> JSON:
    """The first object of a list whose fields have these values; none if there is none."""
    return next((item for item in _list("find", items) if _fits("find", item, fields)), None)


@_function("where", fields="must")
def where(items: JSON, /, **fields: JSON) -> JSON:
    """All objects of a list whose fields have these values."""
    return [item for item in _list("where", items) if _fits("where", item, fields)]


@_function("count_of", most=2, fields="either")
def count_of(items: JSON, /, *value: JSON, **fields: JSON) -> JSON:
    """How many elements equal a value, or how many objects have fields with these values."""
    listed = _list("count_of", items)
    if fields:
        return sum(_fits("count_of", item, fields) for item in listed)
    return sum(equal(item, value[0]) for item in listed)


@_function("pluck", 2)
def pluck(items: JSON, field: JSON) -> JSON:
    """One field of each object of a list."""
    return _by_field("pluck", items, _text("pluck", field))


@_function("sort", most=2)
def sort(items: JSON, field: JSON = None) -> JSON:
    """A list of numbers or of texts in order; with a field's name, objects by that field. Stable, minds case."""
    keys = _by_field("sort", items, field)
    if not all(map(is_number, keys)) and not all(isinstance(key, str) for key in keys):
        kinds = " and ".join(sorted({kind(key) for key in keys}))
        raise ExpressionError(f"`sort` needs only numbers or only texts, not {kinds}")
    listed = _list("sort", items)
    return [listed[place] for place in sorted(range(len(keys)), key=keys.__getitem__)]  # type: ignore[arg-type]


@_function("reverse")
def reverse(value: JSON) -> JSON:
    """A list or text from its end."""
    return value[::-1] if isinstance(value, str) else _list("reverse", value)[::-1]


@_function("unique", goes="all")
def unique(items: JSON) -> JSON:
    """A list without the elements that equal an earlier one."""
    seen: dict[Hashable, JSON] = {}
    for item in _list("unique", items):
        seen.setdefault(frozen(item), item)
    return list(seen.values())


@_function("first", goes="no")
def first(items: JSON) -> JSON:
    """The first element of a list; none of an empty one."""
    return next(iter(_list("first", items, "a piece of a text is read with `[0:1]`")), None)


@_function("last", goes="no")
def last(items: JSON) -> JSON:
    """The last element of a list; none of an empty one."""
    return next(reversed(_list("last", items, "a piece of a text is read with `[-1:]`")), None)


@_function("keys")
def keys(value: JSON) -> JSON:
    """The keys of an object, in its order."""
    return list(_object("keys", value))


@_function("values")
def values(value: JSON) -> JSON:
    """The values of an object, in its order."""
    return list(_object("values", value).values())


@_function("items")
def items(value: JSON) -> JSON:
    """The `[key, value]` pairs of an object, in its order."""
    return [[key, item] for key, item in _object("items", value).items()]


@_function("length", goes="no")
def length(value: JSON) -> JSON:
    """Elements of a list, keys of an object, characters of a text."""
    if isinstance(value, list | dict | str):
        return len(value)
    raise ExpressionError(f"`length` needs a list, an object or a text, not {kind(value)}")


@_function("zip", 2, most=None)
def zip_lists(*lists: JSON) -> JSON:
    """Lists of equal length side by side: a list of lists."""
    sides = [_list("zip", side) for side in lists]
    lengths = [len(side) for side in sides]
    if len(set(lengths)) > 1:
        raise ExpressionError(f"`zip` needs lists of equal length, not of {' and '.join(map(str, lengths))}")
    return [list(row) for row in zip(*sides, strict=True)]


@_function("range", 1, most=3, goes="no")
def count_up(start: JSON, stop: JSON = None, step: JSON = 1) -> JSON:
    """Whole numbers up to, and without, the stop, as in Python: `range(3)`, `range(1, 10, 2)`."""
    first_bound, by = _whole("range", start), _whole("range", step)
    if by == 0:
        raise ExpressionError("the step of `range` can't be 0")
    numbers = range(first_bound) if stop is None else range(first_bound, _whole("range", stop), by)
    # len() can't count a range of more than 2**63 numbers; a slice of it has an exact end.
    if len(numbers[: MOST_ITEMS + 1]) > MOST_ITEMS:
        raise ExpressionError(f"`range` gives at most {MOST_ITEMS:,} numbers")
    return list(numbers)


@_function("default", 2, goes="no")
def default(value: JSON, instead: JSON) -> JSON:
    """The value, or another where it is none. A key that may be absent is read with `a['key']`."""
    return instead if value is None else value


# Numbers.


@_function("abs", goes="no")
def absolute(value: JSON) -> JSON:
    """A number without its sign."""
    return abs(_number("abs", value))


@_function("round", most=2, goes="no")
def rounded(value: JSON, digits: JSON = None) -> JSON:
    """A number rounded to so many digits, or to a whole number; halves of the binary value go to even."""
    number = _number("round", value)
    if digits is None:
        return round(number)
    places = _whole("round", digits)
    if not -400 <= places <= 400:
        raise ExpressionError(f"`round` to {places:,} digits: it takes -400 to 400")
    try:
        return bounded_number(round(number, places))
    except OverflowError:
        raise ExpressionError("the rounded number is beyond what a float can hold") from None


@_function("sum", most=2)
def total(items: JSON, field: JSON = None) -> JSON:
    """The sum of a list of numbers, or of one field of its objects; 0 of an empty list."""
    result: JSON = 0
    # Not the builtin: from Python 3.12 it compensates, and the same document would give two results.
    for item in _by_field("sum", items, field):
        result = add(result, _number("sum", item))
    return result


def _extreme(name: str, beats: Callable[[JSON, JSON], bool], candidates: tuple[JSON, ...]) -> JSON:
    listed = _list(name, candidates[0]) if len(candidates) == 1 else candidates
    best = next(iter(listed), None)
    # The first is compared with itself: a list of one must be of numbers or texts too.
    for candidate in listed:
        if beats(candidate, best):
            best = candidate
    return best


@_function("min", most=None)
def least(*candidates: JSON) -> JSON:
    """The least of a list, or of several arguments: numbers or texts. None of an empty list."""
    return _extreme("min", less, candidates)


@_function("max", most=None)
def greatest(*candidates: JSON) -> JSON:
    """The greatest of a list, or of several arguments: numbers or texts. None of an empty list."""
    return _extreme("max", greater, candidates)


_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?", re.ASCII)
_WHOLE = re.compile(r"[+-]?[0-9]+", re.ASCII)


@_function("int")
def to_whole(value: JSON) -> JSON:
    """A number without its fraction; a text that is a whole number as that number."""
    if isinstance(value, str):
        return operators.number(_read("int", value, _WHOLE, "a whole number"))
    return int(_number("int", value))


@_function("float")
def to_float(value: JSON) -> JSON:
    """A number as a float; a text that is a number as that number."""
    if isinstance(value, str):
        return bounded_number(float(_read("float", value, _NUMBER, "a number")))
    try:
        return float(_number("float", value))
    except OverflowError:
        raise ExpressionError("the number is beyond what a float can hold") from None


def _read(name: str, text: str, pattern: re.Pattern[str], what: str) -> str:
    stripped = text.strip()
    if pattern.fullmatch(stripped):
        return stripped
    raise ExpressionError(f"`{name}` can't read {compact(shortened(text))} as {what}")


@_function("arith")
def arith(value: JSON) -> JSON:
    """What a sum written as text amounts to: numbers, `+ - * / // **`, parentheses."""
    return operators.evaluate_arithmetic(_text("arith", value))


# Texts.


@_function("string", goes="all")
def to_text(value: JSON) -> JSON:
    """A value as text: texts as they are, everything else in JSON's spelling."""
    return bounded_text(as_text(value))


@_function("tojson", goes="all")
def to_json(value: JSON) -> JSON:
    """A value as compact JSON text; a text comes out in its quotes."""
    return bounded_text(compact(value))


@_function("lower")
def lower(value: JSON) -> JSON:
    """A text in small letters."""
    return bounded_text(_text("lower", value).lower())


@_function("upper")
def upper(value: JSON) -> JSON:
    """A text in capital letters."""
    return bounded_text(_text("upper", value).upper())


@_function("trim")
def trim(value: JSON) -> JSON:
    """A text without the blanks at its ends."""
    return _text("trim", value).strip()


@_function("starts_with", 2, goes="no")
def starts_with(value: JSON, start: JSON) -> JSON:
    """Whether a text begins so."""
    return _text("starts_with", value).startswith(_text("starts_with", start))


@_function("ends_with", 2, goes="no")
def ends_with(value: JSON, end: JSON) -> JSON:
    """Whether a text ends so."""
    return _text("ends_with", value).endswith(_text("ends_with", end))


@_function("join", most=2, goes="all")
def join(items: JSON, between: JSON = "") -> JSON:
    """The elements of a list as one text, with another text between them."""
    texts = [as_text(item) for item in _list("join", items)]
    separator = _text("join", between)
    if sum(map(len, texts)) + len(separator) * max(len(texts) - 1, 0) > MOST_TEXT:
        raise ExpressionError(f"the result of `join` would be longer than {MOST_TEXT // 1024} KiB")
    return bounded_text(separator.join(texts))


@_function("split", most=2)
def split(value: JSON, between: JSON = None) -> JSON:
    """The pieces of a text between separators; without one, between blanks."""
    text = _text("split", value)
    separator = None if between is None else _text("split", between)
    if separator == "":
        raise ExpressionError("`split` needs a separator of at least one character")
    pieces: list[JSON] = list(text.split(separator, MOST_ITEMS))
    return bounded_list(pieces)


@_function("replace", 3)
def replace(value: JSON, old: JSON, new: JSON) -> JSON:
    """A text with each place of another text replaced."""
    text, gone, come = (_text("replace", part) for part in (value, old, new))
    if not gone:
        raise ExpressionError("`replace` needs at least one character to look for")
    if text_size(text) + text.count(gone) * text_size(come) > 2 * MOST_TEXT:
        raise ExpressionError(f"the result of `replace` would be longer than {MOST_TEXT // 1024} KiB")
    return bounded_text(text.replace(gone, come))


# Times, and what is not pure.

_functions |= {
    "date_add": Function(date_add, 2, 2),
    "seconds_between": Function(seconds_between, 2, 2),
    "pick": Function(pick, 1, 1, source=DRAWS),
    "random": Function(random, 2, 2, source=DRAWS),
    "seq": Function(sequence, 1, 2, source=COUNTS),
    "uuid": Function(uuid, 0, 0, source=DRAWS),
}
