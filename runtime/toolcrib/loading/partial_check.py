"""What of a refused document can be checked further: one fault must not hide the others."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final

from toolcrib.core.errors import Problem
from toolcrib.core.pointers import keys_of
from toolcrib.loading.schema_check import Shape


def sound(value: dict[str, Any], problems: Sequence[Problem], shape: Shape) -> dict[str, Any]:
    """The parts of a document whose shape is right.

    A key that is unknown is left out alone, at whatever depth. Of any other fault that part is left out which
    nothing else in the document builds on: a collection, a named state, a key of an agent or of one of its turns, the
    guards or effects of a reply from the one at fault on; else the whole top-level key.

    Args:
        value: The document.
        problems: The faults of its shape.
        shape: What found them.
    """
    if not problems:
        return value
    left = _without_parts(value, [problem for problem in problems if problem.code != "unknown_key"])
    for problem in problems:
        if problem.code == "unknown_key":
            left = _pruned(left, keys_of(problem.pointer))
    # Without its unknown key an object may lack what it needs, so the rest is judged again.
    left = _without_parts(left, shape.problems(left))
    wrong = [problem.pointer for problem in shape.problems(left) if problem.pointer]
    return _without(left, [keys_of(pointer)[0] for pointer in wrong if pointer not in _MISSED_BY_NOBODY])


_MISSED_BY_NOBODY: Final = frozenset({"/agent/turns"})
"""What is checked no further once it is gone; what stands beside it still is."""


_NAMED: Final = frozenset({"prompts", "state", "store"})
"""Keys of documents with parts that have names; each is declared for itself."""

_IN_ORDER: Final = frozenset({"effects", "guard"})
"""Keys of a reply with parts on which only those below them may depend."""


def _without_parts(value: dict[str, Any], problems: Iterable[Problem]) -> dict[str, Any]:
    """The value without the smallest parts that can be missed and hold the faults."""
    left = value
    for path in {tuple(_part_of(keys_of(problem.pointer))) for problem in problems if problem.pointer}:
        left = _pruned(left, path)
    return left


def _part_of(path: Sequence[str]) -> Sequence[str]:
    if path[0] in _NAMED:
        return path[:2]
    if path[0] == "agent":
        return path[: 4 if path[1:2] == ["turns"] else 2]
    if path[0] in _BLOCKS:
        for depth, key in enumerate(path):
            if key in _IN_ORDER and depth:
                return path[: depth + 1 + (path[depth + 1 : depth + 2] not in ([], ["0"]))]
    return path[:1]


_BLOCKS: Final = frozenset({"mock", "mocks"})


def _without(value: dict[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    gone = set(keys)
    return {key: item for key, item in value.items() if key not in gone}


def _pruned(holder: Any, path: Sequence[str]) -> Any:
    """The value without what is at the end of a path, in a list also without what follows it.

    Only what lies on the path is copied.
    """
    step, *rest = path
    if isinstance(holder, dict) and step in holder:
        if not rest:
            return _without(holder, [step])
        return {**holder, step: _pruned(holder[step], rest)}
    if isinstance(holder, list) and step.isdecimal() and int(step) < len(holder):
        index = int(step)
        if not rest:
            return holder[:index]
        return [*holder[:index], _pruned(holder[index], rest), *holder[index + 1 :]]
    return holder
