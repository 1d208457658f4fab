"""How values, tables and failures look on a terminal. What comes from files can't steer it."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate
from typing import Any

import click

from toolcrib.errors import Problem
from toolcrib.model import JSON, Content, Result
from toolcrib.text import compact, escape_terminal

_SENTENCE = re.compile(r"(.*?(?:(?<!e\.g)(?<!i\.e)[.!?](?=\s|$)|。))")

CELL_GAP = "  "


def json_text(value: Any) -> str:
    """The value as indented JSON; as pure ASCII where it holds anything that could steer a terminal."""
    text = json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False)
    return text if escape_terminal(text) == text else json.dumps(value, indent=2, allow_nan=False)


def say_text(text: str) -> None:
    """Print a tool's text on stdout: escaped for a terminal, as it is for a file or program."""
    if sys.stdout.isatty():
        click.echo(escape_terminal(text))
    else:
        click.echo(text, color=True)  # else click would take colours out of what is not ours


def plural(count: int, noun: str) -> str:
    """`1 tool`, `2 tools`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def first_sentence(text: str) -> str:
    """The first sentence of a description, on one line."""
    line = " ".join(text.split())
    match = _SENTENCE.match(line)
    return match[1] if match else line


def terminal_width() -> int | None:
    """Columns of the terminal; None where the output goes to no terminal and nothing else says how many."""
    if sys.stdout.isatty() or "COLUMNS" in os.environ:
        return shutil.get_terminal_size().columns
    return None


def columns_of(text: str) -> int:
    """How many columns a text takes: wide characters two, combining ones none."""
    return sum(_columns_of_character(character) for character in text)


def _columns_of_character(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def cut(text: str, width: int | None) -> str:
    """The text in at most `width` columns; what is cut ends with `…`."""
    if width is None or columns_of(text) <= width:
        return text
    ends = accumulate(_columns_of_character(character) for character in text)
    shown = sum(end < width for end in ends)
    return text[:shown].rstrip() + "…"


def table(rows: Sequence[Sequence[str]], width: int | None = None) -> list[str]:
    """The rows as lines with aligned columns, safe for a terminal, each at most `width` columns wide."""
    safe = [[" ".join(escape_terminal(cell).split()) for cell in row] for row in rows]
    widths = [max(columns_of(cell) for cell in column) for column in zip(*safe, strict=True)]
    lines = []
    for row in safe:
        padded = [
            cell + " " * (size - columns_of(cell)) for cell, size in zip(row, widths, strict=True) if size
        ]
        lines.append(cut(CELL_GAP.join(padded).rstrip(), width))
    return lines


def outline(value: JSON, indent: str = "") -> Iterator[str]:
    """A structure as indented lines, `key: value`, for people."""
    entries: Iterable[tuple[str, JSON]] = ()
    if isinstance(value, dict):
        entries = ((f"{key}:", item) for key, item in value.items())
    elif isinstance(value, list):
        entries = (("-", item) for item in value)
    for lead, item in entries:
        if isinstance(item, dict) and item and lead == "-":
            first, *rest = outline(item, indent + "  ")
            yield from (f"{indent}- {first.lstrip()}", *rest)
        elif isinstance(item, dict | list) and item:
            yield f"{indent}{lead}"
            yield from outline(item, indent + "  ")
        else:
            yield f"{indent}{lead} {item if isinstance(item, str) else compact(item)}"


def part_line(part: Content) -> str:
    """One part of a result on one line: texts as they are, anything else by what it is."""
    if part.text is not None:
        return part.text
    size = f"{len(part.data) * 3 // 4:,} bytes" if part.data is not None else None
    words = (part.type, part.mime_type, size, part.title, part.uri)
    return "[" + ", ".join(word for word in words if word) + "]"


def tell_failure(result: Result) -> None:
    """Say on stderr how a call failed: outcome, code where it says more, message, the parts."""
    code = result.error.code if result.error is not None else ""
    finer = f" ({escape_terminal(code)})" if code not in {"", result.outcome.value} else ""
    lead = click.style(result.outcome.value, fg="red", bold=True)
    click.echo(f"{lead}{finer}: {escape_terminal(result.message)}", err=True)
    for part in result.content:
        if part.text is None or part.text != result.message:
            click.echo(escape_terminal(part_line(part)), err=True)


_COLOURS = {"error": "red", "warning": "yellow", "notice": "cyan"}


def problem_text(problem: Problem) -> str:
    """`path:line:col: code: message` with the hint below, coloured for a terminal."""
    head, *rest = escape_terminal(str(problem)).splitlines()
    place, code, message = head.partition(f"{problem.code}: ")
    return "\n".join([place + click.style(code, fg=_COLOURS[problem.severity]) + message, *rest])
