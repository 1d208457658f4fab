"""Ways to spoil a valid value so that its schema refuses it: few, named, and each proved before it is used.

A violation is named by what it does and where: `missing_status`, `wrong_type_items.0.price`, `above_maximum_total`;
`0` stands for the first item of a list.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from functools import cached_property
from itertools import islice
from typing import Any, Final, NamedTuple

from toolcrib.core.errors import ExpressionError
from toolcrib.core.model import JSON, Schema
from toolcrib.core.subschemas import Path, SchemaIndex, Site
from toolcrib.schema.generation.instances import arguments_for
from toolcrib.schema.generation.invalid_values import ABSENT, Spoilt, misfits_at
from toolcrib.schema.generation.keyed_random import Draw
from toolcrib.schema.validation import Validator

MOST: Final = 48
"""Violations of one schema that are told apart."""

_LOOKED_AT: Final = 500
"""Violations that are thought of; a schema that refers to itself has no end of them."""

_SAMPLES: Final = 3
"""Valid values on which each violation is tried before it is offered."""

_DEEPEST: Final = 6
"""Levels of a value that are looked at."""


class Violation(NamedTuple):
    """One way in which a valid value can be spoiled.

    Attributes:
        name: Its name, the same as long as the schema stays.
        group: What is violated: `missing_required`, `wrong_type`, `enum`, `range`, `length`, `pattern`, `unique`,
            `extra_property`.
        path: The place; `0` in a list stands for its first item.
        spoilt: What may stand at the place of a value, likeliest first.
    """

    name: str
    group: str
    path: Path
    spoilt: Spoilt


class Broken(NamedTuple):
    """A value that was spoiled, and is proved to be refused."""

    value: JSON


class Violations:
    """The violations of one schema.

    Args:
        schema: A schema that passed `check_schema`.

    Raises:
        DocumentError: The schema can't be compiled.
    """

    def __init__(self, schema: Schema) -> None:
        self._validator = Validator(schema)
        self._schema = schema

    @cached_property
    def all(self) -> tuple[Violation, ...]:
        """All of them, in the order of the schema, at most `MOST`.

        Only those are there that can be made of a valid value; where none can be generated, all that are thinkable.
        """
        found: list[Violation] = []
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
        """What they are called, then the names of their groups."""
        groups = dict.fromkeys(violation.group for violation in self.all)
        return tuple(dict.fromkeys((*(violation.name for violation in self.all), *groups)))

    def called(self, name: str) -> tuple[Violation, ...]:
        """The violation of a name, those of a group, or with `any` all of them; empty where there is none."""
        if name == "any":
            return self.all
        exactly = tuple(violation for violation in self.all if violation.name == name)
        return exactly or tuple(violation for violation in self.all if violation.group == name)

    def accepts(self, value: JSON) -> bool:
        """Whether a value is valid, so that it can be spoiled."""
        return self._validator.is_valid(value)

    def broken(self, violation: Violation, value: JSON) -> Broken | None:
        """A copy of a valid value, spoiled so that the schema refuses it; None where that can't be."""
        room = _room(value, violation.path)
        if room is None:
            return None
        for candidate in violation.spoilt(room.there):
            spoilt = room.filled(candidate)
            if not self._validator.is_valid(spoilt):
                return Broken(spoilt)
        return None

    def _samples(self) -> list[JSON]:
        try:
            return arguments_for(self._schema, Draw(0, "violations"), _SAMPLES)
        except ExpressionError:
            return []  # nothing valid can be made here, and the tool may well know how

    def _can_be_made(self, violation: Violation, samples: Sequence[JSON]) -> bool:
        return not samples or any(self.broken(violation, sample) is not None for sample in samples)


class _Room(NamedTuple):
    """A place in a copy of a value.

    Attributes:
        there: What is there now; `ABSENT` for nothing.
        filled: The value with something else at the place.
    """

    there: Any
    filled: Callable[[Any], JSON]


def _room(value: JSON, path: Path) -> _Room | None:
    """The place of a path in a value; what lacks on the way to it is made, what is of another form is left."""
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
    """A copy of a value with another one at a path; only what lies on the path is new."""
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


def _thinkable(index: SchemaIndex) -> Iterator[Violation]:
    """What the words of a schema forbid, place by place, outermost first."""
    level: list[tuple[Path, list[Site]]] = [((), [index.root])]
    for _ in range(_DEEPEST):
        below: list[tuple[Path, list[Site]]] = []
        for path, heads in level:
            sites = [site for site in index.together(heads) if not index.is_overridden(site)]
            for misfit in misfits_at(sites):
                where = ".".join(map(str, (*path, *misfit.inner)))
                name = f"{misfit.verb}_{where}" if where else misfit.verb
                yield Violation(name, misfit.group, path, misfit.spoilt)
            below += [((*path, key), index.below(sites, key)) for key in _members(sites)]
        level = below


def _members(sites: Sequence[Site]) -> list[str | int]:
    """The keys, and the first item, of which a schema says something."""
    keys: dict[str | int, None] = {}
    for site in sites:
        properties = site.get("properties")
        if isinstance(properties, dict):
            keys |= dict.fromkeys(properties)
        if isinstance(site.get("items"), dict | list) or site.get("prefixItems"):
            keys[0] = None
    return list(keys)
