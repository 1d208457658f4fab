"""Expressions: the text between `{{` and `}}`, compiled.

The commonest expressions, `args.city` and `args.city | upper`, are read here without a parser: Jinja2's lexer and
parser take a hundred times as long, and longer still to be imported.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, Final, NamedTuple

from toolcrib.core.errors import ExpressionError
from toolcrib.core.model import JSON
from toolcrib.expressions import operators
from toolcrib.expressions.compiler import (
    ExpressionCompiler,
    ExpressionPart,
    apply,
    check_shape,
    known_function,
)
from toolcrib.expressions.delimiters import ExpressionBody, split
from toolcrib.expressions.values import Run, Scope, shortened

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


def compile_path(names: list[str], functions: list[str], reader: ExpressionCompiler) -> ExpressionPart:
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


def root_part(reader: ExpressionCompiler, name: str) -> ExpressionPart:
    """A name that is read from the scope."""
    reader.name(name)

    def run(scope: Scope) -> JSON:
        try:
            return scope[name]
        except KeyError:
            return _read_name(scope, name)

    return ExpressionPart(run, path=(name,), keys=reader.keys(name))


def member_part(reader: ExpressionCompiler, owner: ExpressionPart, name: str) -> ExpressionPart:
    """A key of what a path reads."""
    keys = reader.key(owner, name)
    path = (*owner.path, name)
    return ExpressionPart(_path_run(path), path=path, keys=keys)


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


_PATH_SOURCE = 256
"""Characters up to which an expression may be a path that needs no parser."""


class Expression(NamedTuple):
    """A compiled expression.

    Attributes:
        source: What was written between the braces.
        names: The root names that it reads from the scope.
        run: Its closure.
    """

    source: str
    names: frozenset[str]
    run: Run

    def evaluate(self, scope: Scope) -> JSON:
        """The value of the expression. What was read from the scope is handed on, not copied.

        Raises:
            ExpressionError: `missing_key`, or `expression_failed` for everything else that can go wrong.
        """
        try:
            return self.run(scope)
        except RecursionError:
            raise too_deep() from None


def too_deep() -> ExpressionError:
    """The error of values that are nested deeper than Python can follow."""
    return ExpressionError("the values are nested too deeply to be worked with")


def is_expression(text: str) -> bool:
    """Whether a text holds an expression."""
    return "{{" in text


def compile_expression(source: str, names: Collection[str], place: str = "") -> Expression:
    """Compile an expression that is written without its braces.

    Args:
        source: The expression.
        names: The root names that it may read.
        place: Where it stands in its document; functions that draw give other values at another place.

    Raises:
        ExpressionError: `expression_syntax`, `unknown_name`, `unknown_function`,
            `expression_not_allowed`, `expression_too_large`; or a constant part that fails.
    """
    part, used = compile_node(source, names, place)
    return Expression(source.strip(), used, part.run)


def compile_node(
    source: str, names: Collection[str], place: str = ""
) -> tuple[ExpressionPart, frozenset[str]]:
    """Compile an expression.

    Returns:
        It, and the names that it reads.

    Raises:
        ExpressionError: As `compile_expression`.
    """
    path = read_path(source) if len(source) <= _PATH_SOURCE else None
    if path is not None:
        reader = ExpressionCompiler(names, place=place)
        return compile_path(*path, reader), frozenset(reader.used)
    from toolcrib.expressions.parser import compile_parsed  # noqa: PLC0415 -- slow, and most mocks read paths only

    return compile_parsed(source, names, place)


def compile_condition(source: str, names: Collection[str], place: str = "") -> Expression:
    """Compile what must be one whole expression with its braces: the `if` of a rule.

    Blanks around the braces are allowed; `place` as in `compile_expression`.

    Raises:
        ExpressionError: As `compile_expression`; and `expression_syntax` for anything but one
            whole expression.
    """
    text = source.strip()
    if not is_expression(text):
        hint = f'write `"{{{{ {shortened(text) or "..."} }}}}"`'
        raise ExpressionError(
            f"`{shortened(text)}` is a text and not an expression", code="expression_syntax", hint=hint
        )
    pieces = split(text)
    if len(pieces) == 1 and isinstance(pieces[0], ExpressionBody):
        return compile_expression(pieces[0].source, names, place)
    raise ExpressionError(
        f"`{shortened(text)}` is more than one whole expression",
        code="expression_syntax",
        hint="write everything within one pair of braces",
    )
