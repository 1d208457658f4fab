"""Texts with statements: `template` and `template_file`.

Jinja2's parser reads them; the tree is run here, with the same closures as expressions, so that a
template and a structure mean the same by the same words. Only `if` and `for` exist.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from toolcrib.expressions.expression import too_deep
from toolcrib.expressions.output_buffer import Page, Piece
from toolcrib.expressions.values import Scope


class Text(NamedTuple):
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
        page = Page()
        try:
            for piece in self.pieces:
                piece(scope, page)
        except RecursionError:
            raise too_deep() from None
        return "".join(page.texts)


def compile_text(source: str, names: Collection[str]) -> Text:
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

    return Text(*read_statements(source, names))
