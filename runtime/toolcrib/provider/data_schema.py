"""Small validators for plain data. They report every violation with its place, and never show values.

Conversations contain secrets and user data, which must not appear in an error message.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, TypeAlias

from toolcrib.core.errors import did_you_mean
from toolcrib.core.model import NOTHING, Outcome
from toolcrib.core.pointers import pointer_step

Form: TypeAlias = Callable[[Any, str], Iterator[str]]
"""Yields the violations of a value at a JSON Pointer."""


def _form(what: str, fits: Callable[[Any], bool]) -> Form:
    def faults(value: Any, pointer: str) -> Iterator[str]:
        if not fits(value):
            yield f"{_place(pointer)}expected {what}, got {kind_of(value)}"

    return faults


def _place(pointer: str) -> str:
    return f"`{pointer}`: " if pointer else ""


def kind_of(value: object) -> str:
    """Describe the type of a value without its contents; numbers are shown."""
    if isinstance(value, Mapping):
        return "an object"
    kinds = {type(None): "null", bool: "a boolean", str: "a string", list: "a list", tuple: "a list"}
    if isinstance(value, int | float) and not isinstance(value, bool) and -_BIG < value < _BIG:
        return f"{value}"
    return kinds.get(type(value), f"a `{type(value).__name__}`")


_BIG = 1e15
"""Numbers beyond this are described by their type."""


def _is_number(value: Any) -> bool:
    # `type`, not `isinstance`: a boolean is an int. Infinity and NaN are not JSON.
    return type(value) is int or (type(value) is float and math.isfinite(value))


text = _form("a string", lambda value: isinstance(value, str))
identity = _form("a non-empty string", lambda value: isinstance(value, str) and value != "")
flag = _form("a boolean", lambda value: isinstance(value, bool))
count = _form("a non-negative integer", lambda value: type(value) is int and value >= 0)
number = _form("a finite number", _is_number)
amount = _form("a non-negative finite number", lambda value: _is_number(value) and value >= 0)
table = _form(
    "an object", lambda value: isinstance(value, Mapping) and all(isinstance(key, str) for key in value)
)


def anything(_value: Any, _pointer: str) -> Iterator[str]:
    """Accept any value."""
    return iter(())


def one_of(names: Collection[str]) -> Form:
    """Accept one of some names."""
    return _form(f"one of {', '.join(names)}", lambda value: isinstance(value, str) and value in names)


def or_null(form: Form) -> Form:
    """Accept null, and what another form accepts."""
    return lambda value, pointer: iter(()) if value is None else form(value, pointer)


def each(form: Form) -> Form:
    """Accept a list of items that a form accepts."""

    def faults(value: Any, pointer: str) -> Iterator[str]:
        if not isinstance(value, list | tuple):
            yield f"{_place(pointer)}expected a list, got {kind_of(value)}"
            return
        for index, item in enumerate(value):
            yield from form(item, f"{pointer}/{index}")

    return faults


def by_name(form: Form) -> Form:
    """Accept an object whose values a form accepts."""

    def faults(value: Any, pointer: str) -> Iterator[str]:
        yield from table(value, pointer)
        if isinstance(value, Mapping):
            for key, item in value.items():
                yield from form(item, f"{pointer}/{pointer_step(str(key))}")

    return faults


def pair(first: Form, second: Form) -> Form:
    """Accept a list of two items."""

    def faults(value: Any, pointer: str) -> Iterator[str]:
        if not isinstance(value, list | tuple) or len(value) != len((first, second)):
            yield f"{_place(pointer)}expected a list of two items, got {kind_of(value)}"
            return
        yield from first(value[0], f"{pointer}/0")
        yield from second(value[1], f"{pointer}/1")

    return faults


def record(required: Mapping[str, Form], optional: Mapping[str, Form] = NOTHING) -> Form:
    """Accept an object with these keys and no others."""
    known = {**required, **optional}

    def faults(value: Any, pointer: str) -> Iterator[str]:
        if not isinstance(value, Mapping):
            yield f"{_place(pointer)}expected an object, got {kind_of(value)}"
            return
        yield from (f"{_place(pointer)}missing `{key}`" for key in required if key not in value)
        for key, item in value.items():
            if key in known:
                yield from known[key](item, f"{pointer}/{key}")
            else:
                near = did_you_mean(str(key), known) or f"known keys: {', '.join(known)}"
                # The key is untrusted: cut it, so that it cannot fill the message.
                yield f"{_place(pointer)}unknown key `{str(key)[:100]}`; {near}"

    return faults


outcome = one_of([each_.value for each_ in Outcome])

content = record(
    {"type": one_of(("text", "image", "audio", "resource"))},
    {key: or_null(text) for key in ("text", "data", "mime_type", "uri", "title")},
)
"""A content part: an image, audio or a resource."""
