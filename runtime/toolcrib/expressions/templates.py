"""Text templates with `if` and `for`, used by `template` and `template_file`.

Jinja2 only parses them. The syntax tree is compiled to the same closures as expressions, so an expression means the
same in a template and in a structure.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple, TypeAlias

from toolcrib.core.errors import ExpressionError
from toolcrib.expressions.expression import too_deep
from toolcrib.expressions.values import MOST_ITEMS, MOST_TEXT, Scope, text_size


class OutputBuffer:
    """The output of one rendering, with limits on its size and on loop iterations."""

    __slots__ = ("_size", "_turns", "texts")

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._size = 0
        self._turns = 0

    def write(self, text: str) -> None:
        """Append text.

        Raises:
            ExpressionError: The output exceeds `MOST_TEXT`.
        """
        self._size += text_size(text)
        if self._size > MOST_TEXT:
            raise ExpressionError(f"the rendered text exceeds {MOST_TEXT // 1024} KiB")
        self.texts.append(text)

    def turn(self) -> None:
        """Count one iteration of a loop.

        Raises:
            ExpressionError: All loops together exceed `MOST_ITEMS` iterations.
        """
        self._turns += 1
        if self._turns > MOST_ITEMS:
            raise ExpressionError(f"the loops of the template exceed {MOST_ITEMS:,} turns")


Piece: TypeAlias = Callable[[Scope, OutputBuffer], None]


class TextTemplate(NamedTuple):
    """A compiled template.

    Attributes:
        names: The root names that it reads from the scope.
        pieces: Closures that write the output, in order.
    """

    names: frozenset[str]
    pieces: tuple[Piece, ...]

    def render(self, scope: Scope) -> str:
        """Render the template: at most 256 KiB and 10,000 loop iterations in total.

        Raises:
            ExpressionError: The message contains the line of the template.
        """
        page = OutputBuffer()
        try:
            for piece in self.pieces:
                piece(scope, page)
        except RecursionError:
            raise too_deep() from None
        return "".join(page.texts)


def compile_text(source: str, names: Collection[str]) -> TextTemplate:
    r"""Compile a template.

    Expressions, `{% if %}`, `{% for %}` (at most two levels), `{% raw %}`, comments and whitespace control (`{%-`,
    `-}}`) work as in Jinja2. One trailing newline is dropped, and line ends become `\n`. Values are rendered as in
    `compile_value`: `true`, `null`, compact JSON. In a template that begins as JSON (`{`, `[`), values inside
    quotes are escaped, so data never becomes structure.

    Args:
        source: The template, at most 16 KiB.
        names: The root names that it may read.

    Raises:
        ExpressionError: As `compile_expression`; the message begins with the line.
    """
    from toolcrib.expressions.statements import read_statements  # noqa: PLC0415 -- Jinja2 is slow to import

    return TextTemplate(*read_statements(source, names))
