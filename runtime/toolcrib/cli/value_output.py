"""How values and failures look on a terminal; tables stand in `tables.py`. What comes from files can't steer it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import click

from toolcrib.cli.result_output import part_line
from toolcrib.cli.tables import (
    columns_of,
    cut,
    json_text,
    plural,
    table,
    terminal_width,
)
from toolcrib.core.errors import Problem
from toolcrib.core.model import JSON, Result
from toolcrib.core.text import compact, escape_terminal, first_sentence

__all__ = [
    "columns_of",
    "cut",
    "first_sentence",
    "json_text",
    "outline",
    "part_line",
    "plural",
    "problem_text",
    "table",
    "tell_failure",
    "terminal_width",
]


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


def tell_failure(result: Result) -> None:
    """Say on stderr how a call failed: outcome, code where it says more, message, the way out, the parts."""
    code = result.error.code if result.error is not None else ""
    finer = f" ({escape_terminal(code)})" if code not in {"", result.outcome.value} else ""
    lead = click.style(result.outcome.value, fg="red", bold=True)
    click.echo(f"{lead}{finer}: {escape_terminal(result.message)}", err=True)
    hint = None if result.error is None else result.error.details.get("hint")
    if isinstance(hint, str) and hint and hint not in result.message:
        click.echo(f"    hint: {escape_terminal(hint)}", err=True)
    for part in result.content:
        if part.text is None or part.text != result.message:
            click.echo(escape_terminal(part_line(part)), err=True)


_COLOURS = {"error": "red", "warning": "yellow", "notice": "cyan"}


def problem_text(problem: Problem) -> str:
    """`path:line:col: code: message` with the hint below, coloured for a terminal."""
    head, *rest = escape_terminal(str(problem)).splitlines()
    place, code, message = head.partition(f"{problem.code}: ")
    return "\n".join([place + click.style(code, fg=_COLOURS[problem.severity]) + message, *rest])
