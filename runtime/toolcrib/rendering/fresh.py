"""Structures that belong to whoever asked for them: nothing in them is shared with a document or a scope."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from toolcrib.model import JSON
from toolcrib.rendering.reader import Part
from toolcrib.rendering.values import Run, Scope

Keep: TypeAlias = Callable[[Any, int], Any]
"""Copies a value that may nest so many containers, or raises because it is not to be had."""

_UNCHANGING = frozenset({str, int, float, bool, type(None)})


def fresh(part: Part, root: str, keep: Keep, depth: int) -> Run:
    """A closure that makes the value of a part anew each time.

    Args:
        part: A structure, compiled.
        root: The name whose texts and numbers are known to be sound where plain paths read them.
        keep: Copies everything else.
        depth: Containers that may be nested in one another.

    The closure raises what `keep` raises, and LookupError, TypeError or ExpressionError where a value can't be
    worked out; the part's own closure says why.
    """
    if part.constant:
        return _always_new(keep(part.value, depth))
    if part.members is not None:
        return _container(part.members, root, keep, depth - 1)
    run = part.run
    if len(part.path) == 2 and part.path[0] == root:
        return _read(part.path[1], root, keep, depth)
    return lambda scope: keep(run(scope), depth)


def _read(name: str, root: str, keep: Keep, depth: int) -> Run:
    def run(scope: Scope) -> JSON:
        value = scope[root][name]  # type: ignore[index, call-overload] # anything else is a TypeError
        return value if type(value) in _UNCHANGING else keep(value, depth)

    return run


def _container(members: dict[str, Part] | list[Part], root: str, keep: Keep, depth: int) -> Run:
    """A list or object: a copy of what is constant in it, with the rest put in its places."""
    places: Iterable[tuple[Any, Part]] = members.items() if isinstance(members, dict) else enumerate(members)
    values: Any = {} if isinstance(members, dict) else [None] * len(members)
    named: list[tuple[Any, str]] = []
    made: list[tuple[Any, Run]] = []
    for place, part in places:
        values[place] = None
        if part.constant and type(part.value) in _UNCHANGING:
            values[place] = keep(part.value, depth)
        elif len(part.path) == 2 and part.path[0] == root:
            named.append((place, part.path[1]))
        else:
            made.append((place, fresh(part, root, keep, depth)))

    def run(scope: Scope) -> JSON:
        result: Any = values.copy()
        if named:
            source: Any = scope[root]
            for place, name in named:
                value = source[name]
                result[place] = value if type(value) in _UNCHANGING else keep(value, depth)
        for place, make in made:
            result[place] = make(scope)
        return result  # type: ignore[no-any-return]

    return run


def _always_new(value: JSON) -> Run:
    make = copier(value)
    return lambda _scope: make()


def copier(value: JSON) -> Callable[[], JSON]:
    """Makes equal, unshared copies of a fixed value: a caller who changes a result hurts nobody."""
    if isinstance(value, dict):
        if not any(isinstance(item, (dict, list)) for item in value.values()):
            return value.copy
        entries = [(key, copier(item)) for key, item in value.items()]
        return lambda: {key: make() for key, make in entries}
    if isinstance(value, list):
        if not any(isinstance(item, (dict, list)) for item in value):
            return value.copy
        makers = [copier(item) for item in value]
        return lambda: [make() for make in makers]
    return lambda: value
