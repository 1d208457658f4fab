"""Repair arguments that models get almost right, only if exactly one repair makes them valid.

A valid value is never changed. For the place of each violation, candidate values are tried; one is used if it is the only
candidate that ends the violation. A value that is still invalid at the end is returned unchanged.

`safe` repairs change how a value is written, never what it means:

- `parsed`: JSON text for an object or array (also for the whole value); `"10"` or `"5.0"` for an integer, `"0.8"` for a
  number, `"true"` for a boolean; numbers must convert exactly;
- `written`: an integer for a string;
- `matched`: an option of `enum` or `const` that differs only in case or surrounding whitespace;
- `dropped`: null or `""` for an optional property; for the whole value, `{}`.

`lenient` adds common guesses:

- `parsed`: yes, no, on, off, y, n, t, f, 1, 0 for a boolean;
- `wrapped`: a scalar or object for an array becomes its only item;
- `renamed`: a stray `cityName` becomes the missing property `city_name`;
- `removed`: a stray property that the schema does not allow.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias

from toolcrib.core.model import JSON, Schema
from toolcrib.core.pointers import pointer_to
from toolcrib.core.subschemas import Path, Site
from toolcrib.core.text import decode_json
from toolcrib.schema.validation import Validator, Violation, ViolationReport, json_violation
from toolcrib.schema.validation.explanation import wanted_types
from toolcrib.schema.validation.validator import COMPUTED
from toolcrib.schema.validation.violations import describe_value

Level: TypeAlias = Literal["safe", "lenient"]
"""How far repairs may go."""

MOST: Final = 256
"""Maximum number of repairs plus remaining violations; beyond it a value is returned unchanged."""

# A repair can expose violations below it (JSON text that becomes an object), so repairs run in rounds.
_ROUNDS: Final = 16
_DEPTH: Final = 64
_DIGITS: Final = 400
_STRAY: Final = ("additionalProperties", "unevaluatedProperties")
_OPENING: Final = ("[", "{")
_INTEGER: Final = re.compile(r"([+-]?(?:0|[1-9][0-9]*))(?:\.0+)?")
_NUMBER: Final = re.compile(r"[+-]?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_BOOLEANS: Final = {"true": True, "false": False}
_USUAL_BOOLEANS: Final = {
    **dict.fromkeys(("yes", "on", "y", "t", "1"), True),
    **dict.fromkeys(("no", "off", "n", "f", "0"), False),
}


@dataclass(frozen=True, slots=True)
class Repair:
    """One change that was made to a value.

    Attributes:
        pointer: JSON Pointer of the place.
        kind: `parsed`, `written`, `matched`, `dropped`, `wrapped`, `renamed` or `removed`.
        before: The old value, shortened; `***` if the place is secret.
        after: The new value, likewise; the new pointer if `renamed`; `nothing` if removed.
    """

    pointer: str
    kind: str
    before: str
    after: str


class _Gone:
    """Stands for a missing property."""


_GONE: Final = _Gone()


class _Step(NamedTuple):
    """A proposed change: the new value at a place, or the new name of a property."""

    path: Path
    kind: str
    value: JSON | _Gone
    name: str = ""


class CoercionResult(NamedTuple):
    """The result of repairing a value.

    Attributes:
        value: The repaired, valid value; the original value if repairs alone do not make it valid.
        repairs: The repairs that were made; empty for the original value.
        left: The violations that the author of the value must fix, without those that a repair ends.
    """

    value: JSON
    repairs: list[Repair]
    left: ViolationReport


def coerce(schema: Schema, validator: Validator, value: JSON, level: Level) -> tuple[JSON, list[Repair]]:
    """Repair a value so that it becomes valid, or return it unchanged without repairs.

    Args:
        schema: The schema of the validator.
        validator: Checks the value and every repair.
        value: A value, never modified in place; a value that is not JSON is returned unchanged.
        level: How far repairs may go.
    """
    if isinstance(schema, bool) or json_violation(value) is not None or validator.judge(value):
        return value, []
    repaired = repair(validator, value, level, validator.explain(value))
    return repaired.value, repaired.repairs


def repair(validator: Validator, value: JSON, level: Level, report: ViolationReport) -> CoercionResult:
    """Repair an invalid JSON value.

    Args:
        validator: Checks the repaired value.
        value: The value, never modified in place.
        level: How far repairs may go.
        report: The violations of the value. With `COMPUTED` or more violations nothing is repaired.
    """
    repairs: list[Repair] = []
    current, now = value, report
    for _ in range(_ROUNDS):
        # A report of `COMPUTED` violations is incomplete, and a value that wrong is not almost right.
        if not 0 < len(now.faults) < COMPUTED or len(now.faults) + len(repairs) > MOST:
            break
        before = len(repairs)
        for fault in now.faults:
            step = _Place(validator, current, fault.path).step(fault, level)
            if step is not None:
                repairs.append(_repair(validator, current, step))
                current = _with_step(current, step)
        if len(repairs) == before:
            break
        now = validator.report(current)
    if not now.faults:
        return CoercionResult(current, repairs, now)
    left = [fault.pointer for fault in now.faults]
    ended = {
        each.pointer
        for each in repairs
        if not any(pointer == each.pointer or pointer.startswith(f"{each.pointer}/") for pointer in left)
    }
    faults = [fault for fault in report.faults if fault.pointer not in ended] or report.faults
    explained = [each for fault in faults for each in _explained(validator, value, fault)]
    return CoercionResult(value, [], report._replace(faults=explained))


def _explained(validator: Validator, value: JSON, fault: Violation) -> list[Violation]:
    """The violations of the number in a text, if only its size is wrong; otherwise the violation itself."""
    # "expected a number, got "900"" would have the author write 900, which is too large as well.
    if fault.keyword != "type" or not isinstance(_at(value, fault.path), str):
        return [fault]
    numbers = {
        step.value for step in _Place(validator, value, fault.path).safe() if type(step.value) in {int, float}
    }
    if len(numbers) != 1:
        return [fault]
    read = _with_step(value, _Step(fault.path, "parsed", numbers.pop()))
    return [each for each in validator.report(read).faults if each.path == fault.path] or [fault]


def _repair(validator: Validator, value: JSON, step: _Step) -> Repair:
    before = _at(value, step.path)
    places = {step.path, (*step.path[:-1], step.name)} if step.name else {step.path}
    shown = (before, step.value)
    # A renamed property is hidden if its old or its new name is secret.
    hidden = any(validator.secrets.hides(place, each) for place in places for each in shown)
    after = "nothing" if isinstance(step.value, _Gone) else describe_value(step.value, hidden=hidden)
    if step.name:
        after = pointer_to((*step.path[:-1], step.name))
    return Repair(pointer_to(step.path), step.kind, describe_value(before, hidden=hidden), after)


class _Place:
    """The place of a violation, and the changes that could end it."""

    def __init__(self, validator: Validator, value: JSON, path: Path) -> None:
        self._index = validator.index
        self._path = path
        self._there = _at(value, path)
        self._parent = _at(value, path[:-1])
        self._validator = validator
        self._complaining = [site for site in self._index.heads(path) if self._complains(site, self._there)]

    def step(self, fault: Violation, level: Level) -> _Step | None:
        """The only change that ends the violation here, or None."""
        lenient = level == "lenient"
        if fault.keyword == "required":
            return self._renamed_into() if lenient else None
        if fault.keyword in _STRAY:
            return self._without_stray() if lenient else None
        if not self._complaining:
            return None
        for proposals in (self.safe(), self._guesses()) if lenient else (self.safe(),):
            fitting = self._fitting(proposals)
            # Several candidates are ambiguous, such as two options that differ only in case: nothing is
            # guessed.
            if fitting:
                return fitting[0] if len(fitting) == 1 else None
        return None

    def _complains(self, site: Site, value: JSON | _Gone) -> bool:
        return not isinstance(value, _Gone) and self._validator.complains(site, value)

    def _fitting(self, proposals: Iterator[_Step]) -> list[_Step]:
        """The proposals that end a violation, without duplicates."""
        found: list[_Step] = []
        for step in proposals:
            again = any(_same(step.value, other.value) for other in found)
            if not again and not all(self._complains(site, step.value) for site in self._complaining):
                found.append(step)
        return found

    def _wanted(self) -> set[str]:
        """The types that the schema names here, directly or through its options."""
        return {*wanted_types(self._index, self._path), *map(_type_of, self._options())}

    def _options(self) -> list[JSON]:
        options: list[JSON] = []
        for site in self._index.at(self._path):
            listed = site.get("enum")
            options += listed if isinstance(listed, list) else []
            options += [site.get("const")] if isinstance(site.schema, dict) and "const" in site.schema else []
        return options

    def safe(self) -> Iterator[_Step]:
        """The changes that do not change what the value means."""
        value, wanted = self._there, self._wanted()
        if value is None or value == "":
            yield from self._dropped(wanted)
        if isinstance(value, str):
            for reading in _readings(value.strip(), wanted):
                yield _Step(self._path, "parsed", reading)
            for option in self._options():
                if isinstance(option, str) and option.strip().casefold() == value.strip().casefold():
                    yield _Step(self._path, "matched", option)
        elif type(value) is int and "string" in wanted and value.bit_length() < 4 * _DIGITS:
            yield _Step(self._path, "written", str(value))

    def _dropped(self, wanted: set[str]) -> Iterator[_Step]:
        if not self._path:
            if "object" in wanted:
                yield _Step((), "dropped", {})
        elif isinstance(self._parent, dict) and self._path[-1] not in self._required():
            yield _Step(self._path, "dropped", _GONE)

    def _required(self) -> set[JSON]:
        lists = (site.get("required") for site in self._index.at(self._path[:-1]))
        return {name for names in lists if isinstance(names, list) for name in names if isinstance(name, str)}

    def _guesses(self) -> Iterator[_Step]:
        value, wanted = self._there, self._wanted()
        if "boolean" in wanted and isinstance(value, str | int):
            reading = _USUAL_BOOLEANS.get(str(value)[:9].strip().lower())
            if reading is not None:
                yield _Step(self._path, "parsed", reading)
        if "array" in wanted and not isinstance(value, list | _Gone) and value is not None:
            # Text that begins like JSON was meant as the array itself; wrapping it would hide the syntax
            # error.
            broken = isinstance(value, str) and value.strip()[:1] in _OPENING
            yield from () if broken else (_Step(self._path, "wrapped", [value]),)

    def _known(self) -> list[str]:
        tables = (site.get("properties") for site in self._index.at(self._path[:-1]))
        return list(dict.fromkeys(name for table in tables if isinstance(table, dict) for name in table))

    def _renamed_into(self) -> _Step | None:
        """Rename a stray property to this missing name, if their plain forms are equal."""
        name = self._path[-1]
        if not isinstance(self._parent, dict) or not isinstance(name, str) or name in self._parent:
            return None
        known = self._known()
        # A property with a known name of its own is never taken for another one.
        close = [key for key in self._parent if key not in known and _plain(key) == _plain(name)]
        return self._renamed(close[0], name) if len(close) == 1 else None

    def _without_stray(self) -> _Step | None:
        """Rename a stray property to the known name with the same plain form, or remove it if there is none."""
        name = self._path[-1]
        if not isinstance(self._parent, dict) or not isinstance(name, str) or name not in self._parent:
            return None
        close = [known for known in self._known() if _plain(known) == _plain(name)]
        if not close:
            return _Step(self._path, "removed", _GONE)
        return self._renamed(name, close[0]) if len(close) == 1 and close[0] not in self._parent else None

    def _renamed(self, name: str, into: str) -> _Step:
        return _Step((*self._path[:-1], name), "renamed", _GONE, into)


def _readings(text: str, wanted: set[str]) -> Iterator[JSON]:
    """The values of a string when parsed as one of the wanted types."""
    # `_DIGITS` bounds int(): its time grows with the square of the length.
    whole = _INTEGER.fullmatch(text) if len(text) <= _DIGITS else None
    if whole and "integer" in wanted:
        yield int(whole[1])
    if "number" in wanted and len(text) <= _DIGITS and _NUMBER.fullmatch(text):
        number = int(text) if whole and whole[0] == whole[1] else float(text)
        if math.isfinite(number):
            yield number
    if "boolean" in wanted and text.lower() in _BOOLEANS:
        yield _BOOLEANS[text.lower()]
    if text[:1] in _OPENING:
        parsed = _parsed(text)
        if _type_of(parsed) in wanted:
            yield parsed


def _parsed(text: str) -> JSON:
    """Parse JSON text; None if it is invalid, repeats a key or is nested too deeply."""
    try:
        value = decode_json(text)
    except (ValueError, RecursionError):
        return None
    return value if json_violation(value, depth=_DEPTH) is None else None


def _type_of(value: object) -> str:
    names = {bool: "boolean", dict: "object", float: "number", int: "integer", list: "array", str: "string"}
    return names.get(type(value), "null")


def _same(one: object, other: object) -> bool:
    """JSON equality of scalars: 1 equals 1.0, but not true."""
    return one == other and isinstance(one, bool) == isinstance(other, bool)


def _plain(name: str) -> str:
    """A name in lower case without underscores, hyphens and spaces."""
    return "".join(char for char in name.casefold() if char.isalnum())


def _at(value: JSON, path: Path) -> JSON | _Gone:
    for key in path:
        if isinstance(value, dict) and key in value:
            value = value[str(key)]
        elif isinstance(value, list) and isinstance(key, int) and key < len(value):
            value = value[key]
        else:
            return _GONE
    return value


def _with_step(value: JSON, step: _Step, depth: int = 0) -> JSON:
    """The value after a step; only the containers along its path are copied."""
    if depth == len(step.path):
        return None if isinstance(step.value, _Gone) else step.value
    key = step.path[depth]
    last = depth + 1 == len(step.path)
    if isinstance(value, list) and isinstance(key, int):
        return [*value[:key], _with_step(value[key], step, depth + 1), *value[key + 1 :]]
    assert isinstance(value, dict)  # noqa: S101 -- the path was found in the value
    if last and step.name:
        return {step.name if name == key else name: item for name, item in value.items()}
    if last and isinstance(step.value, _Gone):
        return {name: item for name, item in value.items() if name != key}
    return {**value, str(key): _with_step(value[str(key)], step, depth + 1)}
