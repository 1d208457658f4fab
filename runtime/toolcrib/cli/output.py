"""Output of the commands: tables, values, results, failures and problems, and the files that commands write.

What comes from files can't steer the terminal. `toolcrib list` prints its table from here before anything heavy is
imported, and `toolcrib call` its result before click is, so the functions import what they need.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import Any, TypeAlias

    from toolcrib.core.errors import Problem
    from toolcrib.core.model import JSON, Content, Result
    from toolcrib.loading.cache.header import ListedTool
    from toolcrib.registry.catalog import Card, HiddenReason

    Why: TypeAlias = Callable[[Card], str]

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


def truncate(text: str, width: int | None) -> str:
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
        lines.append(truncate(CELL_GAP.join(padded).rstrip(), width))
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
    return lines if width is None else [truncate(line, width) for line in lines]


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


def outline(value: JSON, indent: str = "") -> Iterator[str]:
    """A structure as indented lines, `key: value`, for people."""
    from toolcrib.core.text import compact  # noqa: PLC0415 -- see above, as everywhere here

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


def print_failure(result: Result) -> None:
    """Say on stderr how a call failed: outcome, code where it says more, message, the way out, the parts."""
    import click  # noqa: PLC0415

    from toolcrib.core.text import escape_terminal  # noqa: PLC0415

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
    import click  # noqa: PLC0415

    from toolcrib.core.text import escape_terminal  # noqa: PLC0415

    head, *rest = escape_terminal(str(problem)).splitlines()
    place, code, message = head.partition(f"{problem.code}: ")
    return "\n".join([place + click.style(code, fg=_COLOURS[problem.severity]) + message, *rest])


def answer_lines(result: Result, *, as_json: bool) -> Iterator[str]:
    """What goes to stdout: the whole result as JSON, or of a good one its value, then the parts that add to it.

    A text is given as it is, any other value as JSON. Of a failed call nothing is said here.
    """
    from toolcrib.core.model import Outcome  # noqa: PLC0415

    if as_json:
        yield json_text(result.as_json())
        return
    if result.outcome is not Outcome.OK:
        return
    if isinstance(result.value, str):
        yield _text(result.value)
    elif result.value is not None or not result.content:
        yield json_text(result.value)
    for part in result.content:
        if part.text is None or part.text != result.value:
            yield _text(part_line(part))


def part_line(part: Content) -> str:
    """One part of a result on one line: texts as they are, anything else by what it is."""
    if part.text is not None:
        return part.text
    size = f"{len(part.data) * 3 // 4:,} bytes" if part.data is not None else None
    words = (part.type, part.mime_type, size, part.title, part.uri)
    return "[" + ", ".join(word for word in words if word) + "]"


def _text(text: str) -> str:
    """A tool's text: escaped for a terminal, as it is for a file or program."""
    if not sys.stdout.isatty():
        return text
    from toolcrib.core.text import escape_terminal  # noqa: PLC0415 -- programs need none of it

    return escape_terminal(text)


def write_file(data: bytes, path: Path) -> None:
    """Write a file whole or not at all. A device or a pipe is written to, and not replaced.

    Raises:
        OSError: It can't be written; what was there is as it was.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        with part.open("xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def write_atomically(path: Path, text: str) -> None:
    """Write a UTF-8 text under its name at once, so that nobody ever reads half of it; folders are made.

    Raises:
        OSError: It can't be written; what was there before is still there.
    """
    write_file(text.encode("utf-8"), path)


def write_new(contents: Mapping[Path, str | bytes], *, force: bool) -> set[Path]:
    """Write files as `write_atomically` does; what is there already is left alone, unless forced. Gives what was written.

    Raises:
        click.ClickException: One can't be written.
    """
    import click  # noqa: PLC0415

    from toolcrib.core.text import escape_terminal  # noqa: PLC0415

    written = set()
    for path, content in contents.items():
        if os.path.lexists(path) and not force:
            continue
        try:
            write_file(content.encode("utf-8") if isinstance(content, str) else content, path)
        except OSError as error:
            message = f"{path} can't be written: {error.strerror}"
            raise click.ClickException(escape_terminal(message)) from error
        written.add(path)
    return written


def tool_lines(
    cards: Sequence[Card],
    why_unable: Why,
    width: int | None,
    *,
    hidden: Callable[[str], HiddenReason | None] = lambda _name: None,
) -> list[str]:
    """The lines of the table: name, mode, flags, first sentence; of a hidden tool why it is not offered.

    Args:
        cards: The tools, in the order of the lines.
        why_unable: Why a tool can't run as things are; empty if it can (`registry.catalog.why_unable`).
        width: Columns of the terminal; None for no limit.
        hidden: From a name to why the tool is not offered; only asked where hidden tools may be among the cards.
    """
    from toolcrib.core.text import first_sentence  # noqa: PLC0415
    from toolcrib.registry.catalog import flags_of  # noqa: PLC0415 -- a list from the index needs neither

    rows = []
    for card in cards:
        why = hidden(card.name)
        flags = flags_of(card) if why is None else [why.code.replace("_", " "), *flags_of(card)]
        text = first_sentence(card.description) if why is None else why.message
        rows.append((card.name, mode_text(card.mode, why_unable(card)), ", ".join(flags), text))
    return table(rows, width)


def listed_lines(
    rows: Sequence[ListedTool], left: int, is_unable: Callable[[str], bool], width: int | None
) -> list[str]:
    """The whole of a list whose tools are told as plain data: the table, then the line that counts them.

    Args:
        rows: The tools, in the order of the lines.
        left: How many more there are that are not offered.
        is_unable: Whether a mode can't be used.
        width: Columns of the terminal; None for no limit.
    """
    texts = {
        (mode, has_block): mode_text(mode, mode is not None and (not has_block or is_unable(mode)))
        for mode, has_block in {(mode, has_block) for _name, mode, has_block, _flags, _sentence in rows}
    }
    cells = [
        (name, texts[mode, has_block], flags, sentence) for name, mode, has_block, flags, sentence in rows
    ]
    modes = [shown for _name, shown, _flags, _sentence in cells]
    return [*table(cells, width), _count(modes, exist=bool(rows), hidden=left)]


def mode_text(mode: str | None, unable: str | bool) -> str:
    """A mode as a person reads it: with `unbound` and `unavailable` where calls can't run."""
    if mode is None:
        return "unbound"
    return f"{mode} (unavailable)" if unable else mode


def modes_line(modes: Iterable[str]) -> str:
    """How many tools are in which mode: `12 mock, 1 unbound`. The modes are `mode_text` of each tool."""
    counts: dict[str, int] = {}
    for mode in modes:
        counts[mode] = counts.get(mode, 0) + 1
    return ", ".join(f"{count} {mode}" for mode, count in sorted(counts.items()))


def count_line(
    cards: Sequence[Card], why_unable: Why, *, exist: bool, hidden: int = 0, unasked: int = 0
) -> str:
    """The line below the table: `12 tools: 11 mock, 1 unbound`.

    Args:
        cards: The tools of the table.
        why_unable: As for `tool_lines`.
        exist: Whether any tool is offered at all.
        hidden: How many more fit that are not offered.
        unasked: Of how many servers the tools are not known.
    """
    modes = [mode_text(card.mode, why_unable(card)) for card in cards]
    return _count(modes, exist=exist, hidden=hidden, unasked=unasked)


def _count(modes: Sequence[str], *, exist: bool, hidden: int, unasked: int = 0) -> str:
    if modes:
        told = f"{plural(len(modes), 'tool')}: {modes_line(modes)}"
    elif exist:
        told = "no tool fits"
    else:
        told = "no tool is known" if unasked else "no tools"
    return told + (f"; {plural(unasked, 'server')} not queried" if unasked else "") + not_offered_note(hidden)


def not_offered_note(hidden: int) -> str:
    """The end of the last line, where tools that fit are left out because they are not offered."""
    return f"; {hidden} not offered, `--all` shows why" if hidden else ""


def entry_of(card: Card, *, alias: str, unable: str, hidden: HiddenReason | None) -> dict[str, Any]:
    """A tool as a JSON object: what its card says, its alias, and why it can't run or is not offered."""
    return {
        "name": card.name,
        "alias": alias,
        "title": card.title,
        "description": card.description,
        "version": card.version,
        "category": card.category,
        "mode": card.mode,
        "unavailable": unable or None,
        "hidden": None if hidden is None else hidden._asdict(),
        "modes": list(card.modes),
        "tags": list(card.tags),
        "labels": dict(card.labels),
        "annotations": list(card.annotations),
        "arguments": list(card.arguments),
        "deprecated": card.deprecated,
        "experimental": card.experimental,
        "stale": card.stale or None,
        "pack": card.pack or None,
        "namespace": card.namespace or None,
        "source": card.source,
        "line": card.line,
    }
