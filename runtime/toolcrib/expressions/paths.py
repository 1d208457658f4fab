"""The commonest expressions, read without a parser: `args.city`, `args.city | upper`.

Jinja2's lexer and parser take a hundred times as long, and longer still to be imported.
"""

from __future__ import annotations

import re
from typing import Any, Final

from toolcrib.core.errors import ExpressionError
from toolcrib.core.model import JSON
from toolcrib.expressions import operators
from toolcrib.expressions.compiler import Part, Reader
from toolcrib.expressions.function_calls import apply, check_shape, known_function
from toolcrib.expressions.values import Run, Scope

_NAME: Final = r"[A-Za-z_][A-Za-z0-9_]*"
_PATH: Final = re.compile(rf"\s*({_NAME}(?:\.{_NAME})*)\s*((?:\|\s*{_NAME}\s*)*)")
RESERVED: Final = frozenset(
    ["True", "False", "None", "true", "false", "none", "and", "or", "not", "if", "else", "in", "is"]
)
"""Names that may mean something else to the parser, at whatever place."""

_MOST: Final = 32
"""Names of an expression that is read here; what is nested deeper is measured by the parser."""


def read_path(source: str) -> tuple[list[str], list[str]] | None:
    """The names of a path, and those of the functions behind it, which have no arguments.

    Returns:
        Both in their order; None where a parser is needed.
    """
    match = _PATH.fullmatch(source)
    if match is None:
        return None
    path, behind = match.groups()
    names, functions = path.split("."), [name.strip() for name in behind.split("|")[1:]]
    if len(names) + len(functions) > _MOST or not RESERVED.isdisjoint((*names, *functions)):
        return None
    return names, functions


def compile_path(names: list[str], functions: list[str], reader: Reader) -> Part:
    """Compile what `read_path` has read.

    Raises:
        ExpressionError: A name, key or function is not known.
    """
    for function in reversed(functions):  # faults are told as of a tree, from its top
        check_shape(function, known_function(function), 1, ())
    alone = reader.alone(names[0], names[1]) if len(names) > 1 else ""
    part = root_part(reader, alone or names[0])
    for name in names[2 if alone else 1 :]:
        part = member_part(reader, part, name)
    for function in functions:
        part = apply(reader, function, [part])
    return part


def root_part(reader: Reader, name: str) -> Part:
    """A name that is read from the scope."""
    reader.name(name)

    def run(scope: Scope) -> JSON:
        try:
            return scope[name]
        except KeyError:
            return _read_name(scope, name)

    return Part(run, path=(name,), keys=reader.keys(name))


def member_part(reader: Reader, owner: Part, name: str) -> Part:
    """A key of what a path reads."""
    keys = reader.key(owner, name)
    path = (*owner.path, name)
    return Part(_path_run(path), path=path, keys=keys)


def _read_name(scope: Scope, name: str) -> JSON:
    """The value of a root name that was known when the expression was compiled."""
    try:
        return scope[name]
    except KeyError:
        raise ExpressionError(f"`{name}` has no value here", code="unknown_name") from None


def _path_run(path: tuple[str, ...]) -> Run:
    """A root and the names behind it: the commonest expression, so the shortest way."""

    def step_by_step(scope: Scope) -> JSON:
        value = _read_name(scope, path[0])
        for place, name in enumerate(path[1:], start=1):
            value = operators.attribute(value, name, f"`{'.'.join(path[:place])}`")
        return value

    if len(path) == 2:
        return _two_steps(path[0], path[1], step_by_step)
    root, names = path[0], path[1:]

    def run(scope: Scope) -> JSON:
        try:
            value: Any = scope[root]
            for name in names:
                value = value[name]
        except (KeyError, TypeError):
            return step_by_step(scope)
        return value  # type: ignore[no-any-return]

    return run


def _two_steps(root: str, name: str, step_by_step: Run) -> Run:
    def run(scope: Scope) -> JSON:
        try:
            # Only an object takes a text in brackets; the slow way finds the words for all else.
            return scope[root][name]  # type: ignore[index, call-overload]
        except (KeyError, TypeError):
            return step_by_step(scope)

    return run
