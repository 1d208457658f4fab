"""Arguments as a model gives them, in the tool's own form again. Each function here makes a `Restore`.

Whatever has another form than the one that was declared is passed on as it is: the tool's own schema judges it, and
says what is wrong with it. So arguments that a model gives in the tool's own form, not minding the declaration, stay
what they are.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import cached_property
from typing import TypeAlias

from toolcrib.core.model import JSON, Schema
from toolcrib.core.text import decode_json
from toolcrib.schema.validation import Validator

Restore: TypeAlias = Callable[[JSON], JSON]
"""A value as it was declared -> the same in the tool's own form."""


def keep(value: JSON) -> JSON:
    """The value itself."""
    return value


def members(inner: Mapping[str, Restore], names: Mapping[str, str], left_out: Collection[str]) -> Restore:
    """Of objects.

    Args:
        inner: Declared name -> what restores its value; those that are kept are not there.
        names: Declared name -> the tool's own, where they differ.
        left_out: Declared names whose null stands for a property that is not given.
    """
    if not (inner or names or left_out):
        return keep

    def restore(value: JSON) -> JSON:
        if not isinstance(value, dict):
            return value
        return {
            names.get(key, key) if names.get(key, key) not in value else key: inner.get(key, keep)(item)
            for key, item in value.items()
            if item is not None or key not in left_out
        }

    return restore


def each(inner: Restore) -> Restore:
    """Of lists, whose items are all declared alike."""
    if inner is keep:
        return keep
    return lambda value: [inner(item) for item in value] if isinstance(value, list) else value


def named_values(values: Mapping[str, JSON]) -> Restore:
    """Of values that are declared as texts."""
    if all(text == value for text, value in values.items()):
        return keep
    return lambda value: values.get(value, value) if isinstance(value, str) else value


def written(value: JSON) -> JSON:
    """Of any value that is declared as JSON text; a text that is none stands for itself."""
    if not isinstance(value, str):
        return value
    try:
        return decode_json(value)
    except (ValueError, RecursionError):
        return value


def one_of(choices: Sequence[tuple[Restore, Schema]]) -> Restore:
    """Of values that fit one of several schemas: by the first whose outcome the tool's own schema takes.

    Args:
        choices: What restores, and the tool's own schema of what it restores.
    """
    if all(restore is keep for restore, _schema in choices):
        return keep
    return _Choice(choices)


class _Choice:
    def __init__(self, choices: Sequence[tuple[Restore, Schema]]) -> None:
        self._choices = choices

    @cached_property
    def _judges(self) -> list[Validator]:
        return [Validator(schema) for _restore, schema in self._choices]

    def __call__(self, value: JSON) -> JSON:
        candidates = [restore(value) for restore, _schema in self._choices]
        for candidate, judge in zip(candidates, self._judges, strict=True):
            if judge.is_valid(candidate):
                return candidate
        return next((candidate for candidate in candidates if candidate != value), value)


def unwrapped(name: str, inner: Restore) -> Restore:
    """Of arguments that are declared as one property."""

    def restore(value: JSON) -> JSON:
        if not isinstance(value, dict) or value.keys() != {name}:
            return value
        whole = inner(value[name])
        return whole if isinstance(whole, dict) else value

    return restore
