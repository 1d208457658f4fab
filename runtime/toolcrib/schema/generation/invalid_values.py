"""Values that the words of a schema forbid at a place, made of a value that they allow."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from typing import Any, Final, NamedTuple, TypeAlias

from toolcrib.core.model import JSON
from toolcrib.core.subschemas import Site

ABSENT: Final[Any] = object()
"""What stands at a place that a value does not have."""

Spoilt: TypeAlias = Callable[[Any], Iterator[Any]]
"""From what is at a place (`ABSENT` for nothing) to what may stand there instead, likeliest first.

Whether the schema refuses it is for the judge to say.
"""

LONGEST: Final = 10_000
"""Characters, items or properties that are written to have too many."""


class Misfit(NamedTuple):
    """One thing that a schema forbids at a place.

    Attributes:
        verb: What is done, such as `above_maximum`.
        group: What is violated.
        spoilt: What may stand there.
        inner: The key below the place that the name goes on with.
    """

    verb: str
    group: str
    spoilt: Spoilt
    inner: tuple[str, ...] = ()


def misfits_at(sites: Sequence[Site]) -> Iterator[Misfit]:
    """What the schemas that judge one place forbid there, in a fixed order."""
    for site in sites:
        if not isinstance(site.schema, dict):
            continue
        for keyword, read in _READERS.items():
            if keyword in site.schema:
                yield from read(site.schema[keyword])


def _types(said: JSON) -> Iterator[Misfit]:
    allowed = [said] if isinstance(said, str) else said if isinstance(said, list) else []
    strangers = _STRANGERS.get(str(allowed[0]), _ANYTHING) if allowed else ()
    yield Misfit("wrong_type", "wrong_type", lambda _there: iter(deepcopy([*strangers, *_ANYTHING])))


_ANYTHING: Final[list[JSON]] = ["not of this type", 12345, True, {}, [], None]
_STRANGERS: Final[dict[str, list[JSON]]] = {
    "string": [12345],
    "integer": ["not a number"],
    "number": ["not a number"],
    "boolean": ["not a boolean"],
    "array": ["not a list"],
    "object": ["not an object"],
    "null": ["not null"],
}
"""Type -> what is most plainly of another one."""


def _required(said: JSON) -> Iterator[Misfit]:
    for name in said if isinstance(said, list) else ():
        if isinstance(name, str):
            yield Misfit("missing", "missing_required", _without(name), (name,))


def _without(name: str) -> Spoilt:
    def spoilt(there: Any) -> Iterator[Any]:
        if there is ABSENT:
            yield {}
        elif isinstance(there, dict) and name in there:
            yield {key: item for key, item in there.items() if key != name}

    return spoilt


def _choice(said: JSON) -> Iterator[Misfit]:
    choices = said if isinstance(said, list) else [said]
    numbers = [item for item in choices if isinstance(item, int | float) and not isinstance(item, bool)]
    texts = [item for item in choices if isinstance(item, str)]
    others: list[JSON] = [max(numbers) + 1] if numbers and not texts else []
    yield Misfit("enum", "enum", lambda _there: iter([*others, *_UNLISTED, *deepcopy(_ANYTHING)]))


_UNLISTED: Final = ("unlisted", "unlisted_", "none of these")


def _number(verb: str, step: Callable[[Any], Iterator[Any]]) -> Callable[[JSON], Iterator[Misfit]]:
    def read(said: JSON) -> Iterator[Misfit]:
        if isinstance(said, int | float) and not isinstance(said, bool):
            yield Misfit(verb, "range", lambda _there: step(said))

    return read


def _above(bound: Any) -> Iterator[Any]:
    yield bound + 1
    yield bound + abs(bound) if math.isfinite(bound + abs(bound)) else math.floor(bound) + 1


def _below(bound: Any) -> Iterator[Any]:
    yield bound - 1
    yield bound - abs(bound) if math.isfinite(bound - abs(bound)) else math.ceil(bound) - 1


def _at_or_above(bound: Any) -> Iterator[Any]:
    yield bound
    yield from _above(bound)


def _at_or_below(bound: Any) -> Iterator[Any]:
    yield bound
    yield from _below(bound)


def _multiple(said: JSON) -> Iterator[Misfit]:
    def spoilt(there: Any) -> Iterator[Any]:
        start = there if isinstance(there, int | float) and not isinstance(there, bool) else 0
        yield start + 1
        if isinstance(said, int | float):
            yield start + said / 2

    yield Misfit("not_multiple", "range", spoilt)


def _sized(
    verb: str, change: Callable[[Any, int], Iterator[Any]], *, more: bool
) -> Callable[[JSON], Iterator[Misfit]]:
    """A reader of a bound on a size; what would be too long to write is left out."""

    def read(said: JSON) -> Iterator[Misfit]:
        if isinstance(said, bool) or not isinstance(said, int | float):
            return
        size = int(said) + 1 if more else int(said) - 1
        if 0 <= size <= LONGEST:
            yield Misfit(verb, "length", lambda there: change(there, size))

    return read


def _text_of(there: Any, size: int) -> Iterator[Any]:
    text = there if isinstance(there, str) else ""
    yield text[:size] + "x" * (size - len(text))


def _items_of(there: Any, size: int) -> Iterator[Any]:
    items = there if isinstance(there, list) else []
    filler = items[-1] if items else None
    yield deepcopy([*items[:size], *[filler] * (size - len(items))])


def _members_of(there: Any, size: int) -> Iterator[Any]:
    members = there if isinstance(there, dict) else {}
    kept = dict(list(members.items())[:size])
    yield {**kept, **{f"further_{number}": None for number in range(size - len(kept))}}


def _pattern(_said: JSON) -> Iterator[Misfit]:
    def spoilt(there: Any) -> Iterator[Any]:
        if isinstance(there, str):
            yield from (f"{there} ?", f"? {there}")
        yield from ("?", "", "x", "X1", "0", " ", "-", "é", "\n")

    yield Misfit("pattern", "pattern", spoilt)


def _closed(said: JSON) -> Iterator[Misfit]:
    def spoilt(there: Any) -> Iterator[Any]:
        members = there if isinstance(there, dict) else {}
        for name in ("extra_property", "further_property", "~"):
            if name not in members:
                yield {**members, name: "not in the schema"}

    if said is False:
        yield Misfit("extra_property", "extra_property", spoilt)


def _unique(said: JSON) -> Iterator[Misfit]:
    def spoilt(there: Any) -> Iterator[Any]:
        if isinstance(there, list) and there:
            yield deepcopy([*there[:-1], there[0]]) if len(there) > 1 else deepcopy([*there, there[0]])
            yield deepcopy([*there, there[0]])

    if said is True:
        yield Misfit("not_unique", "unique", spoilt)


_READERS: Final[dict[str, Callable[[JSON], Iterator[Misfit]]]] = {
    "required": _required,
    "type": _types,
    "enum": _choice,
    "const": _choice,
    "minimum": _number("below_minimum", _below),
    "exclusiveMinimum": _number("below_minimum", _at_or_below),
    "maximum": _number("above_maximum", _above),
    "exclusiveMaximum": _number("above_maximum", _at_or_above),
    "multipleOf": _multiple,
    "minLength": _sized("too_short", _text_of, more=False),
    "maxLength": _sized("too_long", _text_of, more=True),
    "minItems": _sized("too_few_items", _items_of, more=False),
    "maxItems": _sized("too_many_items", _items_of, more=True),
    "minProperties": _sized("too_few_properties", _members_of, more=False),
    "maxProperties": _sized("too_many_properties", _members_of, more=True),
    "pattern": _pattern,
    "uniqueItems": _unique,
    "additionalProperties": _closed,
    "unevaluatedProperties": _closed,
}
"""Keyword -> what it forbids; `required` before `type`, since what lacks is noticed most."""
