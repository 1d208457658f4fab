"""What of a refused document can be checked further: one fault must not hide the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from toolcrib.errors import Problem
from toolcrib.loading.shape import Shape
from toolcrib.pointers import keys_of


def sound(value: dict[str, Any], problems: Sequence[Problem], shape: Shape) -> dict[str, Any]:
    """The parts of a document whose shape is right.

    A key that is unknown is left out alone, at whatever depth; of any other fault the whole top-level key.

    Args:
        value: The document.
        problems: The faults of its shape.
        shape: What found them.
    """
    if not problems:
        return value
    unknown = [problem.pointer for problem in problems if problem.code == "unknown_key"]
    others = [problem for problem in problems if problem.code != "unknown_key"]
    left = _without(value, _top_keys(others))
    for pointer in unknown:
        left = _pruned(left, keys_of(pointer))
    # Without its unknown key an object may lack what it needs, so the rest is judged once more.
    return _without(left, _top_keys(shape.problems(left)))


def _without(value: dict[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    gone = set(keys)
    return {key: item for key, item in value.items() if key not in gone}


def _top_keys(problems: Iterable[Problem]) -> list[str]:
    return [keys_of(problem.pointer)[0] for problem in problems if problem.pointer]


def _pruned(holder: Any, path: Sequence[str]) -> Any:
    """The value without the key at the end of a path; only what lies on the path is copied."""
    step, *rest = path
    if isinstance(holder, dict) and step in holder:
        if not rest:
            return _without(holder, [step])
        return {**holder, step: _pruned(holder[step], rest)}
    if isinstance(holder, list) and rest and step.isdecimal() and int(step) < len(holder):
        index = int(step)
        return [*holder[:index], _pruned(holder[index], rest), *holder[index + 1 :]]
    return holder
