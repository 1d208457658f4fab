"""How texts and tables look on a terminal. What comes from files can't steer it.

A list of tools is printed before anything heavy is imported, so this module imports nothing heavy.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

CELL_GAP = "  "

USUAL_WIDTH = 80
"""Columns of a terminal that does not say how many it has."""


def plural(count: int, noun: str) -> str:
    """`1 tool`, `2 tools`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def terminal_width() -> int | None:
    """Columns of the terminal; None where the output goes to no terminal and nothing else says how many."""
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns):
        return int(columns)
    if not sys.stdout.isatty() and not columns:
        return None
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or USUAL_WIDTH
    except (OSError, ValueError):
        return USUAL_WIDTH


def columns_of(text: str) -> int:
    """How many columns a text takes: wide characters two, combining ones none."""
    return len(text) if text.isascii() else sum(map(_columns_of_character, text))


def _columns_of_character(character: str) -> int:
    import unicodedata  # noqa: PLC0415 -- most tables are ASCII

    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def cut(text: str, width: int | None) -> str:
    """The text in at most `width` columns; what is cut ends with `…`."""
    if width is None or columns_of(text) <= width:
        return text
    if text.isascii():
        shown = max(width - 1, 0)
    else:
        from itertools import accumulate  # noqa: PLC0415 -- as above

        ends = accumulate(_columns_of_character(character) for character in text)
        shown = sum(end < width for end in ends)
    return text[:shown].rstrip() + "…"


def table(rows: Sequence[Sequence[str]], width: int | None = None) -> list[str]:
    """The rows as lines with aligned columns, safe for a terminal, each at most `width` columns wide."""
    if _are_plain(rows):
        return _plain_table(rows, width)
    safe = [[" ".join(_escaped(cell).split()) for cell in row] for row in rows]
    widths = [max(map(columns_of, column)) for column in zip(*safe, strict=True)]
    lines = []
    for row in safe:
        padded = [
            cell + " " * (size - columns_of(cell)) for cell, size in zip(row, widths, strict=True) if size
        ]
        lines.append(cut(CELL_GAP.join(padded).rstrip(), width))
    return lines


def _are_plain(rows: Sequence[Sequence[str]]) -> bool:
    """Whether all cells are ASCII, and none would be changed; some of which that is so are not found to be."""
    text = "|".join(map("|".join, rows))
    changed = text.strip(" ") != text or "  " in text or " |" in text or "| " in text
    return text.isascii() and text.isprintable() and not changed


def _plain_table(rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    """The table of rows that are plain, in a third of the time."""
    if not rows:
        return []
    *sizes, _last = (max(map(len, column)) for column in zip(*rows, strict=True))
    form = "".join([*(f"%-{size}s{CELL_GAP}" if size else "%s" for size in sizes), "%s"])
    lines = [(form % tuple(row)).rstrip() for row in rows]
    return lines if width is None else [cut(line, width) for line in lines]


def _escaped(text: str) -> str:
    if text.isprintable():  # nothing that could steer a terminal is
        return text
    from toolcrib.core.text import escape_terminal  # noqa: PLC0415

    return escape_terminal(text)


def json_text(value: Any) -> str:
    """The value as indented JSON; as pure ASCII where it holds anything that could steer a terminal."""
    import json  # noqa: PLC0415 -- no table needs it

    from toolcrib.core.text import escape_terminal  # noqa: PLC0415

    text = json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False)
    return text if escape_terminal(text) == text else json.dumps(value, indent=2, allow_nan=False)
