"""Templates: texts with statements, as `template` and `template_file` have them.

Jinja2's parser reads them; the tree is run here, with the same closures as expressions, so that a
template and a structure mean the same by the same words. Only `if` and `for` exist.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple, TypeAlias

from toolcrib.core.errors import ExpressionError
from toolcrib.expressions.expression import too_deep
from toolcrib.expressions.values import MOST_ITEMS, MOST_TEXT, Scope, text_size


class OutputBuffer:
    """What one rendering has written so far, within its bounds."""

    __slots__ = ("_size", "_turns", "texts")

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._size = 0
        self._turns = 0

    def write(self, text: str) -> None:
        """Add a text.

        Raises:
            ExpressionError: The page grew beyond `MOST_TEXT`.
        """
        self._size += text_size(text)
        if self._size > MOST_TEXT:
            raise ExpressionError(f"the rendered text exceeds {MOST_TEXT // 1024} KiB")
        self.texts.append(text)

    def turn(self) -> None:
        """Count one turn of a loop.

        Raises:
            ExpressionError: All loops together made more than `MOST_ITEMS`.
        """
        self._turns += 1
        if self._turns > MOST_ITEMS:
            raise ExpressionError(f"the loops of the template exceed {MOST_ITEMS:,} turns")


Piece: TypeAlias = Callable[[Scope, OutputBuffer], None]


class TextTemplate(NamedTuple):
    """A compiled template.

    Attributes:
        names: The root names that it reads from the scope.
        pieces: What writes it, in order.
    """

    names: frozenset[str]
    pieces: tuple[Piece, ...]

    def render(self, scope: Scope) -> str:
        """The text: at most 256 KiB, with at most 10,000 turns of loops in all.

        Raises:
            ExpressionError: With the line of the template in its message.
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

    Expressions, `{% if %}`, `{% for %}` (at most two deep), `{% raw %}`, comments and the trimming
    of blanks (`{%-`, `-}}`) work as in Jinja2; one line end at the end of the template is dropped, and
    line ends become `\n`. Values come out as in `compile_value`: `true`, `null`, compact JSON.
    In a template that begins as JSON (`{`, `[`), what stands within its quotes is escaped: data never
    becomes structure.

    Args:
        source: The template, at most 16 KiB.
        names: The root names that it may read.

    Raises:
        ExpressionError: As `compile_expression`; the message begins with the line.
    """
    from toolcrib.expressions.statements import read_statements  # noqa: PLC0415 -- Jinja2 is slow to import

    return TextTemplate(*read_statements(source, names))
