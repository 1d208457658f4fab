"""Mutate valid values so that their schema refuses them. Mutations are named, few, and verified before use.

The name tells what is done and where: `missing_status`, `wrong_type_items.0.price`, `above_maximum_total`; `0` is the
first item of a list.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from functools import cached_property
from itertools import islice
from typing import Any, Final, NamedTuple, TypeAlias

from toolcrib.core.errors import ExpressionError
from toolcrib.core.model import JSON, Schema
from toolcrib.core.subschemas import Path, SchemaIndex, Site
from toolcrib.schema.generation import arguments_for
from toolcrib.schema.keyed_random import KeyedRandom
from toolcrib.schema.validation import Validator

ABSENT: Final[Any] = object()
"""The value of a place that does not exist."""

Spoilt: TypeAlias = Callable[[Any], Iterator[Any]]
"""The value at a place (or `ABSENT`) -> candidates for an invalid value, most likely first; not yet validated."""

LONGEST: Final = 10_000
"""Maximum number of characters, items or properties that are generated to exceed a limit."""


class LocalMutation(NamedTuple):
    """One way to violate a schema at a place.

    Attributes:
        verb: The mutation, such as `above_maximum`.
        group: The kind of violation.
        spoilt: Candidates for the invalid value.
        inner: A key below the place that is part of the name.
    """

    verb: str
    group: str
    spoilt: Spoilt
    inner: tuple[str, ...] = ()


def local_mutations_at(sites: Sequence[Site]) -> Iterator[LocalMutation]:
    """The mutations that the schemas of one place allow, in a fixed order."""
    for site in sites:
        if not isinstance(site.schema, dict):
            continue
        for keyword, read in _READERS.items():
            if keyword in site.schema:
                yield from read(site.schema[keyword])


def _types(said: JSON) -> Iterator[LocalMutation]:
    allowed = [said] if isinstance(said, str) else said if isinstance(said, list) else []
    strangers = _STRANGERS.get(str(allowed[0]), _ANYTHING) if allowed else ()
    yield LocalMutation("wrong_type", "wrong_type", lambda _there: iter(deepcopy([*strangers, *_ANYTHING])))


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
"""Type -> values that obviously have another type."""


def _required(said: JSON) -> Iterator[LocalMutation]:
    for name in said if isinstance(said, list) else ():
        if isinstance(name, str):
            yield LocalMutation("missing", "missing_required", _without(name), (name,))


def _without(name: str) -> Spoilt:
    def spoilt(there: Any) -> Iterator[Any]:
        if there is ABSENT:
            yield {}
        elif isinstance(there, dict) and name in there:
            yield {key: item for key, item in there.items() if key != name}

    return spoilt


def _choice(said: JSON) -> Iterator[LocalMutation]:
    choices = said if isinstance(said, list) else [said]
    numbers = [item for item in choices if isinstance(item, int | float) and not isinstance(item, bool)]
    texts = [item for item in choices if isinstance(item, str)]
    others: list[JSON] = [max(numbers) + 1] if numbers and not texts else []
    yield LocalMutation("enum", "enum", lambda _there: iter([*others, *_UNLISTED, *deepcopy(_ANYTHING)]))


_UNLISTED: Final = ("unlisted", "unlisted_", "none of these")


def _number(verb: str, step: Callable[[Any], Iterator[Any]]) -> Callable[[JSON], Iterator[LocalMutation]]:
    def read(said: JSON) -> Iterator[LocalMutation]:
        if isinstance(said, int | float) and not isinstance(said, bool):
            yield LocalMutation(verb, "range", lambda _there: step(said))

    return read


def _above(bound: Any) -> Iterator[Any]:
    # Beyond 2**53 a float plus 1 is the same float; doubling it always changes it.
    yield bound + 1
    yield bound + abs(bound) if math.isfinite(bound + abs(bound)) else math.floor(bound) + 1


def _below_key(bound: Any) -> Iterator[Any]:
    yield bound - 1
    yield bound - abs(bound) if math.isfinite(bound - abs(bound)) else math.ceil(bound) - 1


def _at_or_above(bound: Any) -> Iterator[Any]:
    yield bound
    yield from _above(bound)


def _at_or_below(bound: Any) -> Iterator[Any]:
    yield bound
    yield from _below_key(bound)


def _multiple(said: JSON) -> Iterator[LocalMutation]:
    def spoilt(there: Any) -> Iterator[Any]:
        start = there if isinstance(there, int | float) and not isinstance(there, bool) else 0
        yield start + 1
        if isinstance(said, int | float):
            yield start + said / 2

    yield LocalMutation("not_multiple", "range", spoilt)


def _sized(
    verb: str, change: Callable[[Any, int], Iterator[Any]], *, more: bool
) -> Callable[[JSON], Iterator[LocalMutation]]:
    """A reader of a size limit; sizes above `LONGEST` are omitted."""

    def read(said: JSON) -> Iterator[LocalMutation]:
        if isinstance(said, bool) or not isinstance(said, int | float):
            return
        size = int(said) + 1 if more else int(said) - 1
        if 0 <= size <= LONGEST:
            yield LocalMutation(verb, "length", lambda there: change(there, size))

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


def _pattern(_said: JSON) -> Iterator[LocalMutation]:
    # Inverting a pattern is not attempted: a few unusual strings violate almost every pattern in use.
    def spoilt(there: Any) -> Iterator[Any]:
        if isinstance(there, str):
            yield from (f"{there} ?", f"? {there}")
        yield from ("?", "", "x", "X1", "0", " ", "-", "é", "\n")

    yield LocalMutation("pattern", "pattern", spoilt)


def _closed(said: JSON) -> Iterator[LocalMutation]:
    def spoilt(there: Any) -> Iterator[Any]:
        members = there if isinstance(there, dict) else {}
        for name in ("extra_property", "further_property", "~"):
            if name not in members:
                yield {**members, name: "not in the schema"}

    if said is False:
        yield LocalMutation("extra_property", "extra_property", spoilt)


def _unique(said: JSON) -> Iterator[LocalMutation]:
    def spoilt(there: Any) -> Iterator[Any]:
        if isinstance(there, list) and there:
            yield deepcopy([*there[:-1], there[0]]) if len(there) > 1 else deepcopy([*there, there[0]])
            yield deepcopy([*there, there[0]])

    if said is True:
        yield LocalMutation("not_unique", "unique", spoilt)


_READERS: Final[dict[str, Callable[[JSON], Iterator[LocalMutation]]]] = {
    "required": _required,
    "type": _types,
    "enum": _choice,
    "const": _choice,
    "minimum": _number("below_minimum", _below_key),
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
"""Keyword -> its mutations; `required` comes before `type`, because missing properties are the most visible ones."""


MOST: Final = 48
"""Maximum number of mutations of one schema."""

_LOOKED_AT: Final = 500
"""Maximum number of mutations that are considered; a recursive schema has infinitely many."""

_SAMPLES: Final = 3
"""Number of valid values on which each mutation is tried before it is offered."""

_DEEPEST: Final = 6
"""Maximum number of levels of a value that are mutated."""


class Mutation(NamedTuple):
    """One way to make a valid value invalid.

    Attributes:
        name: Its name, stable as long as the schema does not change.
        group: The kind of violation: `missing_required`, `wrong_type`, `enum`, `range`, `length`, `pattern`, `unique`,
            `extra_property`.
        path: The place; `0` in a list is the first item.
        spoilt: Candidates for the invalid value, most likely first.
    """

    name: str
    group: str
    path: Path
    spoilt: Spoilt


class InvalidValue(NamedTuple):
    """A mutated value that the schema refuses, wrapped because it may be any JSON value, including null."""

    value: JSON


class Mutations:
    """The mutations of one schema.

    Args:
        schema: A schema that passed `check_schema`.

    Raises:
        DocumentError: The schema cannot be compiled.
    """

    def __init__(self, schema: Schema) -> None:
        self._validator = Validator(schema)
        self._schema = schema

    @cached_property
    def all(self) -> tuple[Mutation, ...]:
        """All mutations, in the order of the schema, at most `MOST`.

        Mutations that fail on all sample values are excluded. If no valid value can be generated, none is excluded.
        """
        found: list[Mutation] = []
        names: set[str] = set()
        samples = self._samples()
        for violation in islice(_thinkable(self._validator.index), _LOOKED_AT):
            if len(found) == MOST:
                break
            if violation.name not in names and self._can_be_made(violation, samples):
                names.add(violation.name)
                found.append(violation)
        return tuple(found)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all mutations, followed by those of their groups."""
        groups = dict.fromkeys(violation.group for violation in self.all)
        return tuple(dict.fromkeys((*(violation.name for violation in self.all), *groups)))

    def called(self, name: str) -> tuple[Mutation, ...]:
        """The mutations with a name, those of a group, or all for `any`; empty if unknown."""
        if name == "any":
            return self.all
        exactly = tuple(violation for violation in self.all if violation.name == name)
        return exactly or tuple(violation for violation in self.all if violation.group == name)

    def accepts(self, value: JSON) -> bool:
        """Whether a value is valid and can be mutated."""
        return self._validator.is_valid(value)

    def broken(self, violation: Mutation, value: JSON) -> InvalidValue | None:
        """A mutated copy of a valid value that the schema refuses; None if the mutation does not apply."""
        room = _room(value, violation.path)
        if room is None:
            return None
        for candidate in violation.spoilt(room.there):
            spoilt = room.filled(candidate)
            if not self._validator.is_valid(spoilt):
                return InvalidValue(spoilt)
        return None

    def _samples(self) -> list[JSON]:
        try:
            return arguments_for(self._schema, KeyedRandom(0, "violations"), _SAMPLES)
        except ExpressionError:
            return []  # no valid value can be generated, but the tool may still return one

    def _can_be_made(self, violation: Mutation, samples: Sequence[JSON]) -> bool:
        return not samples or any(self.broken(violation, sample) is not None for sample in samples)


class _Room(NamedTuple):
    """A place in a value.

    Attributes:
        there: The current value; `ABSENT` if missing.
        filled: Returns a copy of the whole value with another value at the place.
    """

    there: Any
    filled: Callable[[Any], JSON]


def _room(value: JSON, path: Path) -> _Room | None:
    """The place at a path; missing containers on the way are created. None if the value has another shape."""
    there: Any = value
    for key in path:
        there = _below(there, key)
        if there is _CLOSED:
            return None
    return _Room(there, lambda filling: _with(value, path, filling))


_CLOSED: Final[Any] = object()


def _below(holder: Any, key: str | int) -> Any:
    if holder is ABSENT or holder is None:
        return ABSENT
    if isinstance(key, str) and isinstance(holder, dict):
        return holder.get(key, ABSENT)
    if isinstance(key, int) and isinstance(holder, list):
        return holder[key] if key < len(holder) else ABSENT
    return _CLOSED


def _with(value: Any, path: Path, filling: Any) -> Any:
    """A copy of a value with another value at a path; only the containers on the path are copied."""
    if not path:
        return deepcopy(filling)
    key, rest = path[0], path[1:]
    inner = _below(value, key)
    if isinstance(key, str):
        return {**(value if isinstance(value, dict) else {}), key: _with(inner, rest, filling)}
    items = list(value) if isinstance(value, list) else []
    if key < len(items):
        items[key] = _with(inner, rest, filling)
    else:
        items.append(_with(inner, rest, filling))
    return items


def _thinkable(index: SchemaIndex) -> Iterator[Mutation]:
    """All mutations that the keywords of a schema suggest, outermost places first."""
    level: list[tuple[Path, list[Site]]] = [((), [index.root])]
    for _ in range(_DEEPEST):
        below: list[tuple[Path, list[Site]]] = []
        for path, heads in level:
            sites = [site for site in index.together(heads) if not index.is_overridden(site)]
            for misfit in local_mutations_at(sites):
                where = ".".join(map(str, (*path, *misfit.inner)))
                name = f"{misfit.verb}_{where}" if where else misfit.verb
                yield Mutation(name, misfit.group, path, misfit.spoilt)
            below += [((*path, key), index.below(sites, key)) for key in _members(sites)]
        level = below


def _members(sites: Sequence[Site]) -> list[str | int]:
    """The keys that a schema describes, and 0 if it describes items."""
    keys: dict[str | int, None] = {}
    for site in sites:
        properties = site.get("properties")
        if isinstance(properties, dict):
            keys |= dict.fromkeys(properties)
        if isinstance(site.get("items"), dict | list) or site.get("prefixItems"):
            keys[0] = None
    return list(keys)
