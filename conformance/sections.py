"""What a part of the run found: rows for people, and faults that fail the run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Section(NamedTuple):
    """One part of the run.

    Attributes:
        title: What was run.
        head: The names of the columns.
        rows: One line each.
        faults: What must not be, in words; none for a part that passed.
        note: One line below the rows.
    """

    title: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    faults: Sequence[str] = ()
    note: str = ""

    def as_text(self, seconds: float) -> str:
        """The part as it is printed."""
        lines = [f"== {self.title} ({seconds:.1f} s)", *_aligned(self.rows)]
        lines += [self.note] if self.note else []
        return "\n".join([*lines, *(f"FAULT {fault}" for fault in self.faults)])

    def as_markdown(self) -> str:
        """The part with its rows as a Markdown table."""
        lines = [f"## {self.title}", "", *table(self.head, self.rows), ""]
        lines += [self.note, ""] if self.note else []
        lines += [f"- FAULT: {fault}" for fault in self.faults]
        return "\n".join(lines)


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    """The lines of a Markdown table."""
    return [_line(head), _line(["---"] * len(head)), *map(_line, rows)]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    ]
