"""Texts as secrets are looked for in them where case, spacing and characters that nobody sees do not count."""

from __future__ import annotations

import unicodedata
from bisect import bisect_right
from itertools import accumulate
from typing import Final

_SEPARATORS: Final = frozenset(".,:_+\\")
"""What is dropped beside blanks, line breaks, controls and dashes: people and programs take characters apart with these.

`+` and the backslash are among them because they can't be told from escapes (see `without_escapes`).
"""

_UNSEEN: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
"""Characters without a glyph that Unicode does not call formats."""

_SELECTORS: Final = ((0x180B, 0x180F), (0xFE00, 0xFE0F), (0xFFF0, 0xFFF8), (0xE0000, 0xE0FFF))
"""Where variation selectors and tag characters stand."""

_DROPPED: Final = frozenset(("Cc", "Cf", "Pd", "Zl", "Zp", "Zs"))
"""Categories of Unicode: controls, formats (zero-width characters, soft hyphens), dashes, blanks."""

_MOST_KNOWN: Final = 1 << 16
"""Characters that are remembered: a text that holds all of Unicode would take 100 MB."""

_PIECE: Final = 256
"""Characters that are looked through one by one to find a place; so many take 20 microseconds."""


class _Folds(dict[int, "str | None"]):
    """Code point -> what the character is compared as, None for nothing; filled in as characters are met.

    A table for `str.translate`, which is fast for texts in ASCII, and only if what is dropped is None and not empty.
    """

    def __missing__(self, code: int) -> str | None:
        folded = _folded(chr(code)) or None
        if len(self) < _MOST_KNOWN:
            self[code] = folded
        return folded

    def length(self, character: str) -> int:
        """How many characters stand for this one."""
        return len(self[ord(character)] or "")


def _folded(character: str) -> str:
    # To upper case first: a dotless i is an i then, as it is for who writes a text in capitals.
    plain = unicodedata.normalize("NFKC", character).upper().casefold()
    return "" if _is_dropped(character) else "".join(each for each in plain if not _is_dropped(each))


def _is_dropped(character: str) -> bool:
    if character in _SEPARATORS or character in _UNSEEN or unicodedata.category(character) in _DROPPED:
        return True
    code = ord(character)
    return any(first <= code <= last for first, last in _SELECTORS)


_FOLDS: Final = _Folds()


def fold(text: str) -> str:
    """A text without case, separators and unseen characters; full-width characters are plain ones (NFKC)."""
    return text.translate(_FOLDS)


class Folded:
    """A folded text, which knows where each character stood.

    Attributes:
        text: The folded text.
        whole: The text before.
    """

    def __init__(self, text: str) -> None:
        pieces = [fold(text[start : start + _PIECE]) for start in range(0, len(text), _PIECE)]
        self.text = "".join(pieces)
        self.whole = text
        self._starts = [*accumulate(map(len, pieces), initial=0)]
        self._ends: dict[int, list[int]] = {}

    def before(self, start: int, end: int) -> tuple[int, int]:
        """Where a part stood in the text before."""
        return self._place(start), self._place(end - 1) + 1

    def _place(self, position: int) -> int:
        """Where the character stood that this one came from."""
        number = bisect_right(self._starts, position) - 1
        begins = number * _PIECE
        ends = self._ends.get(number)
        if ends is None:
            piece = self.whole[begins : begins + _PIECE]
            ends = self._ends[number] = [*accumulate(map(_FOLDS.length, piece))]
        return begins + bisect_right(ends, position - self._starts[number])
