"""Structures that belong to whoever asked for them: nothing in them is shared with a document or a scope."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from toolcrib.core.model import JSON
from toolcrib.expressions.compiler import Part
from toolcrib.expressions.values import Run, Scope

Keep: TypeAlias = Callable[[Any, int], Any]
"""Copies a value that may nest so many containers, or raises because it is not to be had."""

_UNCHANGING = frozenset({str, int, float, bool, type(None)})

_MEMBERS = 32
_LEVELS = 16
_NAMES = 200
"""What is longer or deeper is a function of its own: Python's compiler has bounds, and long texts take it long."""


def fresh(part: Part, root: str, keep: Keep, depth: int, *, alone: bool = False) -> Callable[[Any], JSON]:
    """A function that makes the value of a part anew each time.

    Args:
        part: A structure, compiled.
        root: The name whose texts and numbers are known to be sound where plain paths read them.
        keep: Copies everything else.
        depth: Containers that may be nested in one another.
        alone: Whether the function gets the value of `root` instead of a scope.

    The function raises what `keep` raises, and LookupError, TypeError, RecursionError or ExpressionError where a
    value can't be worked out; the part's own closure says where and why.
    """
    if part.members is None or len(part.members) <= _MEMBERS:
        return _Written(root, keep).function(part, depth, alone=alone)
    long = _long(part.members, root, keep, depth)
    return (lambda value: long({root: value})) if alone else long


class _Written:
    """A function, written as Python: a list or object in brackets is made twice as fast as by any other means.

    Only numbered names stand in its text. What a document says is behind these names, never in the text.
    """

    def __init__(self, root: str, keep: Keep) -> None:
        self._root = root
        self._keep = keep
        self._names: dict[str, Any] = {"root": root, "keep": keep, "unchanging": _UNCHANGING, "type": type}

    def function(self, part: Part, depth: int, *, alone: bool) -> Callable[[Any], JSON]:
        text = self._expression(part, depth, 0)
        if alone:
            given, first = "source", "    scope = {root: source}\n" if "(scope)" in text else ""
        else:
            given, first = "scope", "    source = scope[root]\n" if "source[" in text else ""
        code = compile(f"def run({given}):\n{first}    return {text}\n", "<rendering>", "exec")
        exec(code, self._names)  # noqa: S102 -- nothing that anybody wrote is in it, see above
        run: Callable[[Any], JSON] = self._names["run"]
        return run

    def _name(self, value: object) -> str:
        name = f"v{len(self._names)}"
        self._names[name] = value
        return name

    def _expression(self, part: Part, depth: int, level: int) -> str:
        if part.constant:
            value = self._keep(part.value, depth)
            return self._name(value) if type(value) in _UNCHANGING else f"{self._name(copier(value))}()"
        if part.members is not None:
            return self._container(part, part.members, depth, level)
        if len(part.path) == 2 and part.path[0] == self._root:
            read = f"source[{self._name(part.path[1])}]"
            return f"(value if type(value := {read}) in unchanging else keep(value, {depth}))"
        return f"keep({self._name(part.bare or part.run)}(scope), {depth})"

    def _container(self, part: Part, members: dict[str, Part] | list[Part], depth: int, level: int) -> str:
        if level >= _LEVELS or len(members) > _MEMBERS or len(self._names) > _NAMES:
            return f"{self._name(fresh(part, self._root, self._keep, depth))}(scope)"
        self._keep(type(members)(), depth)  # raises if it is nested too deeply
        if isinstance(members, list):
            return f"[{', '.join(self._expression(item, depth - 1, level + 1) for item in members)}]"
        pairs = (
            f"{self._name(key)}: {self._expression(item, depth - 1, level + 1)}"
            for key, item in members.items()
        )
        return f"{{{', '.join(pairs)}}}"


def _long(members: dict[str, Part] | list[Part], root: str, keep: Keep, depth: int) -> Run:
    """A long list or object: a copy of the texts and numbers in it, with the rest put in its places."""
    keep(type(members)(), depth)  # raises if it is nested too deeply
    places: Iterable[tuple[Any, Part]] = members.items() if isinstance(members, dict) else enumerate(members)
    values: Any = {} if isinstance(members, dict) else [None] * len(members)
    made: list[tuple[Any, Run]] = []
    for place, part in places:
        plain = part.constant and type(part.value) in _UNCHANGING
        values[place] = keep(part.value, depth) if plain else None
        if not plain:
            made.append((place, fresh(part, root, keep, depth - 1)))

    def run(scope: Scope) -> JSON:
        result: Any = values.copy()
        for place, make in made:
            result[place] = make(scope)
        return result  # type: ignore[no-any-return]

    return run


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


def copied(value: Any) -> Any:
    """An equal, unshared copy of an answer: what an expression read belongs to the caller or the document."""
    if type(value) is dict:
        copy: Any = value.copy()
        for key, item in value.items():
            if type(item) is dict or type(item) is list:
                copy[key] = copied(item)
        return copy
    return [copied(item) for item in value] if type(value) is list else value
