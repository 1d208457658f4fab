"""Expressions: what stands between `{{` and `}}`."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from toolcrib.core.errors import ExpressionError
from toolcrib.core.model import JSON
from toolcrib.expressions.compiler import Part, Reader
from toolcrib.expressions.delimiters import Body, split
from toolcrib.expressions.paths import compile_path, read_path
from toolcrib.expressions.values import Run, Scope, shortened

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


def compile_node(source: str, names: Collection[str], place: str = "") -> tuple[Part, frozenset[str]]:
    """Compile an expression.

    Returns:
        It, and the names that it reads.

    Raises:
        ExpressionError: As `compile_expression`.
    """
    path = read_path(source) if len(source) <= _PATH_SOURCE else None
    if path is not None:
        reader = Reader(names, place=place)
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
    if len(pieces) == 1 and isinstance(pieces[0], Body):
        return compile_expression(pieces[0].source, names, place)
    raise ExpressionError(
        f"`{shortened(text)}` is more than one whole expression",
        code="expression_syntax",
        hint="write everything within one pair of braces",
    )
