"""Patterns over arguments that no arguments can match, seen from the input schema.

Only what is certain is reported. A schema speaks through `properties`, `items`, `type`, `enum`, `const`, the
bounds of numbers and local references here; what it says through other keywords is taken as possible.
Bounds that leave no room between them are found whatever the schema says.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from toolcrib.core.errors import Problem, did_you_mean
from toolcrib.core.model import JSON, Schema
from toolcrib.core.pointers import keys_of
from toolcrib.core.text import json_equal
from toolcrib.expressions.matchers.matcher import compile_matcher
from toolcrib.expressions.matchers.nodes import TYPES, is_number, shown, step

_MOST_REFERENCES = 16
_OPEN = {"$dynamicRef", "$recursiveRef", "allOf", "anyOf", "dependencies", "dependentSchemas", "if", "oneOf"}
"""Keywords through which a schema may know properties that `properties` does not name."""


_ONE_OF_EACH: list[JSON] = [None, True, 0, 0.5, "", [], {}]
_ACCEPTED: dict[str, list[JSON]] = {"$close": [0], "$len": ["", [], {}], "$regex": [""]}
_ANNOTATIONS = {"$comment", "$ref", "default", "deprecated", "description", "examples", "title"}


def impossible(pattern: JSON, schema: Schema) -> list[Problem]:
    """What in a pattern can never match a value that the schema accepts.

    Returns:
        `unknown_argument` for a key that the schema does not know: an error where the schema refuses further
        keys, else a warning, since it is most likely misspelt; `never_matches` for a value or
        operator that `type`, `enum` or `const` excludes, and for bounds between which there is nothing. Pointers are relative to the pattern.
    """
    return list(_Reach(schema).pattern(pattern, schema, ""))


class _Reach:
    def __init__(self, root: Schema) -> None:
        self._root = root

    def pattern(self, pattern: JSON, schema: JSON, pointer: str) -> Iterator[Problem]:
        """The faults of a pattern at one place of the schema."""
        if isinstance(pattern, str) and "{{" in pattern:
            return
        known = self._resolved(schema) or {}
        if isinstance(pattern, dict):
            if any(key.startswith("$") for key in pattern):
                yield from self._operators(pattern, known, pointer)
            else:
                yield from self._object(pattern, known, pointer)
        elif isinstance(pattern, list):
            yield from self._list(pattern, known, pointer)
        elif not _allows(known, pattern):
            yield _never(pattern, known, pointer)

    def _resolved(self, schema: JSON) -> dict[str, JSON] | None:
        """The schema behind local references; None where nothing certain can be said."""
        for _ in range(_MOST_REFERENCES):
            if not isinstance(schema, dict):
                return None
            reference = schema.get("$ref")
            if not isinstance(reference, str):
                return schema
            if schema.keys() - _ANNOTATIONS:
                return None
            schema = self._target(reference)
        return None

    def _target(self, reference: str) -> JSON:
        if not reference.startswith("#/") or "%" in reference:
            return None
        place: JSON = self._root
        for part in keys_of(reference[1:]):
            if not isinstance(place, dict) or "$id" in place:
                return None
            place = place.get(part)
        return place

    def _operators(
        self, pattern: dict[str, JSON], schema: dict[str, JSON], pointer: str
    ) -> Iterator[Problem]:
        if _accepts_absence(pattern):
            return
        if (problem := _together(pattern, schema, pointer)) is not None:
            yield problem
            return
        for name, operand in pattern.items():
            place = step(pointer, name)
            samples = _samples(name, operand)
            if samples and not any(_allows_type(schema, sample) for sample in samples):
                yield _never({name: operand}, schema, place)
            elif name in {"$eq", "$exact"} and not _computed(operand) and not _allows(schema, operand):
                yield _never(operand, schema, place)
            elif name == "$in" and isinstance(operand, list):
                if not any(_computed(choice) or _allows(schema, choice) for choice in operand):
                    yield _never(operand, schema, place)
            elif name == "$all" and isinstance(operand, list):
                for index, part in enumerate(operand):
                    yield from self.pattern(part, schema, step(place, index))

    def _object(self, pattern: dict[str, JSON], schema: dict[str, JSON], pointer: str) -> Iterator[Problem]:
        if not _allows_type(schema, {}):
            yield _never(pattern, schema, pointer)
            return
        properties = schema.get("properties")
        known = properties if isinstance(properties, dict) else {}
        for key, inner in pattern.items():
            if key in known:
                yield from self.pattern(inner, known[key], step(pointer, key))
            else:
                unknown = (
                    []
                    if _accepts_absence(inner)
                    else [*self._unknown(key, schema, known, step(pointer, key))]
                )
                yield from unknown or self.pattern(inner, {}, step(pointer, key))

    def _unknown(
        self, key: str, schema: dict[str, JSON], known: dict[str, JSON], pointer: str
    ) -> Iterator[Problem]:
        further = schema.get("additionalProperties", None if known else True)
        if (further is not None and further is not False) or "patternProperties" in schema:
            return
        if further is None and _OPEN & schema.keys():
            return
        names = ", ".join(f"`{name}`" for name in known) or "none"
        yield Problem(
            code="unknown_argument",
            message=f"the input schema knows no `{key}`",
            pointer=pointer,
            hint=did_you_mean(key, known) or f"it knows {names}",
            severity="error" if further is False else "warning",
        )

    def _list(self, pattern: list[JSON], schema: dict[str, JSON], pointer: str) -> Iterator[Problem]:
        if not _allows_type(schema, []):
            yield _never(pattern, schema, pointer)
            return
        first = schema.get("prefixItems")
        prefix = first if isinstance(first, list) else []
        for index, item in enumerate(pattern):
            inner = prefix[index] if index < len(prefix) else schema.get("items")
            yield from self.pattern(item, inner, step(pointer, index))


def _accepts_absence(pattern: JSON) -> bool:
    """Whether a pattern may accept that its key is not there."""
    return (
        isinstance(pattern, dict)
        and bool(pattern)
        and all(map(_content_with_nothing, pattern, pattern.values()))
    )


def _content_with_nothing(name: str, operand: JSON) -> bool:
    if name in {"$any", "$all"} and isinstance(operand, list):
        return (any if name == "$any" else all)(map(_accepts_absence, operand))
    return name in {"$ne", "$not"} or (name == "$exists" and operand is False)


def _samples(name: str, operand: JSON) -> list[JSON]:
    """One value of each type that an operator may accept; none where it may accept any."""
    if isinstance(operand, str) and "{{" in operand:
        return []
    if name in {"$gt", "$gte", "$lt", "$lte"}:
        return [""] if isinstance(operand, str) else [0]
    if name == "$contains":
        return [[], ""] if isinstance(operand, str) else [[]]
    if name == "$type":
        return [value for value in _ONE_OF_EACH if TYPES[str(operand)](value)]
    return _ACCEPTED.get(name, [])


def _excluded(pattern: JSON, schema: dict[str, JSON]) -> bool:
    """Whether the schema lists its values and the pattern matches none of them."""
    listed = [schema["const"]] if "const" in schema else schema.get("enum")
    if not isinstance(listed, list):
        return False
    problems: list[Problem] = []
    matcher = compile_matcher(pattern, problems)
    return not problems and not any(map(matcher.matches, listed))


_LEAST = {"$gt": True, "$gte": False, "exclusiveMinimum": True, "minimum": False}
"""What bounds from below -> whether the bound itself is excluded."""

_MOST = {"$lt": True, "$lte": False, "exclusiveMaximum": True, "maximum": False}


def _no_room(pattern: dict[str, JSON], schema: dict[str, JSON]) -> bool:
    """Whether the operators that compare leave nothing between them and the schema's bounds."""
    limits = {
        name: limit for name, limit in pattern.items() if name in {*_LEAST, *_MOST} and not _computed(limit)
    }
    texts = {name: limit for name, limit in limits.items() if isinstance(limit, str)}
    if texts and len(texts) < len(limits):
        return True
    if texts:
        return _nothing_in(
            [(text, _LEAST[name]) for name, text in texts.items() if name in _LEAST],
            [(text, _MOST[name]) for name, text in texts.items() if name in _MOST],
        )
    return bool(limits) and _nothing_in(*_bounds(schema, limits))


Bounds = list[tuple[Any, bool]]
"""Limits, each with whether it is itself excluded."""


def _bounds(schema: dict[str, JSON], limits: dict[str, JSON]) -> tuple[Bounds, Bounds]:
    """The least and the most that a number may be."""
    numbers = {name: limit for name, limit in {**schema, **limits}.items() if is_number(limit)}
    least = [(number, _LEAST[name]) for name, number in numbers.items() if name in _LEAST]
    most = [(number, _MOST[name]) for name, number in numbers.items() if name in _MOST]
    if schema.get("type") == "integer":
        least = [(math.floor(number) + 1 if strict else math.ceil(number), False) for number, strict in least]
        most = [(math.ceil(number) - 1 if strict else math.floor(number), False) for number, strict in most]
    return least, most


def _nothing_in(least: Bounds, most: Bounds) -> bool:
    """Whether no value lies above all of the one and below all of the other."""
    return any(
        low > high or (low == high and (above or below)) for low, above in least for high, below in most
    )


def _together(pattern: dict[str, JSON], schema: dict[str, JSON], pointer: str) -> Problem | None:
    """What is wrong with operators that all must hold; None where something fits them all."""
    if not _computed(pattern) and _excluded(pattern, schema):
        return _never(pattern, schema, pointer)
    return _nothing_between(pattern, pointer) if _no_room(pattern, schema) else None


def _nothing_between(pattern: dict[str, JSON], pointer: str) -> Problem:
    beside = "" if _no_room(pattern, {}) else " within the bounds of the input schema"
    return Problem(
        code="never_matches",
        message=f"no value{beside} fits {shown(pattern)}",
        pointer=pointer,
        hint="change a bound" if beside else "exchange the bounds, or write `$any` for one or the other",
    )


def _computed(value: JSON) -> bool:
    if isinstance(value, str):
        return "{{" in value
    if isinstance(value, dict):
        return any(map(_computed, value.values()))
    return isinstance(value, list) and any(map(_computed, value))


def _allows(schema: dict[str, JSON], value: JSON) -> bool:
    """Whether `type`, `enum`, `const` and the bounds of numbers let a value through."""
    if "const" in schema and not json_equal(schema["const"], value):
        return False
    choices = schema.get("enum")
    if isinstance(choices, list) and not any(json_equal(choice, value) for choice in choices):
        return False
    if is_number(value) and _nothing_in(*_bounds(schema, {"$gte": value, "$lte": value})):
        return False
    return _allows_type(schema, value)


def _allows_type(schema: dict[str, JSON], value: JSON) -> bool:
    names = schema.get("type")
    listed = names if isinstance(names, list) else [names]
    tests = [TYPES[name] for name in listed if isinstance(name, str) and name in TYPES]
    return not tests or any(test(value) for test in tests)


def _never(value: JSON, schema: dict[str, JSON], pointer: str) -> Problem:
    return Problem(
        code="never_matches",
        message=f"{shown(value)} can't occur here: the input schema allows {_allowed(schema)}",
        pointer=pointer,
        hint=_nearest(value, schema),
    )


def _allowed(schema: dict[str, JSON]) -> str:
    if "const" in schema:
        return f"only {shown(schema['const'])}"
    if "enum" in schema:
        return f"one of {shown(schema['enum'])}"
    names = schema.get("type", "number")
    bounds = [f"{name} {schema[name]}" for name in (*_LEAST, *_MOST) if name in schema]
    words = [f"`{name}`" for name in (names if isinstance(names, list) else [names])]
    return ", ".join([" or ".join(words), *bounds])


def _nearest(value: JSON, schema: dict[str, JSON]) -> str:
    choices = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if not isinstance(value, str) or not isinstance(choices, list):
        return ""
    return did_you_mean(value, [choice for choice in choices if isinstance(choice, str)])
