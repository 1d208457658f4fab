"""What a template writes."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from toolcrib.core.errors import ExpressionError
from toolcrib.expressions.values import MOST_ITEMS, MOST_TEXT, Scope, text_size


class Page:
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
            raise ExpressionError(f"the rendered text grew longer than {MOST_TEXT // 1024} KiB")
        self.texts.append(text)

    def turn(self) -> None:
        """Count one turn of a loop.

        Raises:
            ExpressionError: All loops together made more than `MOST_ITEMS`.
        """
        self._turns += 1
        if self._turns > MOST_ITEMS:
            raise ExpressionError(f"the loops of the template made more than {MOST_ITEMS:,} turns")


Piece: TypeAlias = Callable[[Scope, Page], None]
