"""Output of the commands: tables, values, results, failures, problems and files.

Text from files is escaped, so that it cannot send control sequences to the terminal. The fast paths of
`toolcrib list` and `toolcrib call` use this module before click is imported, so the functions import what they need.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path
    from typing import Any, TextIO, TypeAlias

    from toolcrib.core.errors import Problem
    from toolcrib.core.model import JSON, Content, Result
    from toolcrib.loading.cache.header import ListedTool
    from toolcrib.registry.catalog import Card, HiddenReason

    Why: TypeAlias = Callable[[Card], str]

CELL_GAP = "  "

USUAL_WIDTH = 80
"""Width of a terminal that does not report one."""


def plural(count: int, noun: str) -> str:
    """`1 tool`, `2 tools`."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def terminal_width(out: TextIO | None = None) -> int | None:
    """Width of the terminal in columns; None if the stream, by default stdout, is not a terminal and `COLUMNS` is not set."""
    out = out or sys.stdout
    columns = os.environ.get("COLUMNS", "")
    # `COLUMNS` overrides the terminal, as in other command-line programs.
    if columns.isdecimal() and int(columns):
        return int(columns)
    if not out.isatty() and not columns:
        return None
    try:
        # Pseudo-terminals without a configured size report 0 columns.
        return os.get_terminal_size(out.fileno()).columns or USUAL_WIDTH
    except (OSError, ValueError):
        return USUAL_WIDTH


def is_coloured(out: TextIO | None = None) -> bool:
    """Whether a stream, by default stdout, gets colours: at a terminal, unless NO_COLOR is set, or with FORCE_COLOR."""
    # https://no-color.org and https://force-color.org: any value that is not empty counts.
    if os.environ.get("NO_COLOR"):
        return False
    return bool(os.environ.get("FORCE_COLOR")) or (out or sys.stdout).isatty()


BOLD, DIM, GREEN, YELLOW, BLUE = 1, 2, 32, 33, 34
"""Codes of `paint`."""


def paint(text: str, code: int) -> str:
    """A text in a colour; for the lines that are printed before click is imported."""
    return f"\x1b[{code}m{text}\x1b[0m" if text else text


def columns_of(text: str) -> int:
    """Columns that a text occupies: two for wide characters, none for combining ones."""
    return len(text) if text.isascii() else sum(map(_columns_of_character, text))


def _columns_of_character(character: str) -> int:
    import unicodedata  # noqa: PLC0415 -- most tables are ASCII

    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def truncate(text: str, width: int | None) -> str:
    """Cut a text to at most `width` columns; a cut text ends with `…`."""
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
    """Format rows as lines with aligned columns, escaped for a terminal, each at most `width` columns wide."""
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
    """Whether all cells are printable ASCII with single spaces; may be False for some rows that are."""
    text = "|".join(map("|".join, rows))
    # One check of the joined text instead of one per cell: `list` prints hundreds of rows before anything
    # heavy is loaded.
    changed = text.strip(" ") != text or "  " in text or " |" in text or "| " in text
    return text.isascii() and text.isprintable() and not changed


def _plain_table(rows: Sequence[Sequence[str]], width: int | None) -> list[str]:
    """Format rows that `_are_plain`, in a third of the time."""
    if not rows:
        return []
    *sizes, _last = (max(map(len, column)) for column in zip(*rows, strict=True))
    form = "".join([*(f"%-{size}s{CELL_GAP}" if size else "%s" for size in sizes), "%s"])
    lines = [(form % tuple(row)).rstrip() for row in rows]
    return lines if width is None else [truncate(line, width) for line in lines]


def _escaped(text: str) -> str:
    if text.isprintable():  # control characters are not
        return text
    from toolcrib.core.text import escape_terminal  # noqa: PLC0415

    return escape_terminal(text)


def json_text(value: Any) -> str:
    """Format a value as indented JSON; as pure ASCII if it contains control characters."""
    import json  # noqa: PLC0415 -- no table needs it

    from toolcrib.core.text import escape_terminal  # noqa: PLC0415

    text = json.dumps(value, ensure_ascii=False, indent=2, allow_nan=False)
    return text if escape_terminal(text) == text else json.dumps(value, indent=2, allow_nan=False)


def outline(value: JSON, indent: str = "") -> Iterator[str]:
    """Format a structure as indented lines, `key: value`, for people."""
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
    """Print a failed call on stderr: outcome, code if it is more specific, message, hint and content parts."""
    import click  # noqa: PLC0415

    from toolcrib.core.text import escape_terminal  # noqa: PLC0415

    code = result.error.code if result.error is not None else ""
    finer = f" ({escape_terminal(code)})" if code not in {"", result.outcome.value} else ""
    lead = click.style(result.outcome.value, fg="red", bold=True)
    click.echo(f"{lead}{finer}: {escape_terminal(result.message)}", err=True)
    hint = None if result.error is None else result.error.details.get("hint")
    # Some messages contain their hint already.
    if isinstance(hint, str) and hint and hint not in result.message:
        click.echo(f"    hint: {escape_terminal(hint)}", err=True)
    for part in result.content:
        if part.text is None or part.text != result.message:
            click.echo(escape_terminal(part_line(part)), err=True)


_COLOURS = {"error": "red", "warning": "yellow", "notice": "cyan"}


def problem_text(problem: Problem, excerpt: Sequence[str] = ()) -> str:
    """Format a problem as `path:line:col: code: message` with the hint below, coloured for a terminal.

    Args:
        problem: The problem.
        excerpt: Lines between the message and the hint.
    """
    import click  # noqa: PLC0415

    from toolcrib.core.text import escape_terminal  # noqa: PLC0415

    head, *rest = escape_terminal(str(problem)).splitlines()
    place, code, message = head.partition(f"{problem.code}: ")
    first = place + click.style(code, fg=_COLOURS[problem.severity]) + message
    # The hint is the last part; a message of several lines stays together.
    at = len(rest) - len(problem.hint.splitlines()) if problem.hint else len(rest)
    return "\n".join([first, *rest[:at], *excerpt, *rest[at:]])


MOST_OF_FILE = 1 << 20
"""Bytes of a file in which an excerpt is looked for."""


def excerpt_of(problem: Problem, width: int) -> list[str]:
    """The line of a problem in its file with a caret below; empty if it cannot be shown, or may hold a secret.

    Args:
        problem: The problem.
        width: Columns of the terminal.
    """
    import re  # noqa: PLC0415 -- only reports of problems need these

    import click  # noqa: PLC0415

    from toolcrib.core.text import escape_terminal  # noqa: PLC0415
    from toolcrib.security.redaction import is_secret_name  # noqa: PLC0415

    if not (problem.line and problem.column):
        return []
    try:
        with open(problem.source, "rb") as file:  # not what is in an archive
            lines = file.read(MOST_OF_FILE).decode("utf-8", "replace").splitlines()
    except (OSError, ValueError):
        return []
    line = lines[problem.line - 1] if problem.line <= len(lines) else ""
    # The message masks values that may be secret, and so must what stands beside them.
    if not line.strip() or "***" in problem.message or any(map(is_secret_name, re.findall(r"[\w.-]+", line))):
        return []
    number = str(problem.line)
    before, marked = line[: problem.column - 1], line[problem.column - 1 :]
    token = re.match(r"[\w.$-]+|", marked)
    length = columns_of(token[0]) if token and token[0] else 1
    room = width - len(number) - 7
    if columns_of(before) > room // 2:
        before = f"…{before[-(room // 2) :]}"
    shown = truncate(escape_terminal(f"{before}{marked}".replace("\t", " ")), room)
    pad = " " * columns_of(escape_terminal(before.replace("\t", " ")))
    caret = click.style("^" * max(min(length, room - len(pad)), 1), fg=_COLOURS[problem.severity], bold=True)
    bar = click.style("|", dim=True)
    return [
        f"    {click.style(number, dim=True)} {bar} {shown}",
        f"    {' ' * len(number)} {bar} {pad}{caret}",
    ]


MOST_FOLLOWING = 3
"""Problems that are printed below the one that they follow from; the others are counted."""


def problem_lines(problems: Sequence[Problem], *, width: int | None = None) -> Iterator[str]:
    """Format problems in the order of their causes: below each one, indented, the first of those that follow from it.

    Args:
        problems: The problems.
        width: Columns of a terminal, where the line of each problem is shown; None for a program.
    """
    places = {f"{problem.source}:{problem.line}" for problem in problems}
    following = 0
    for problem in problems:
        if not problem.cause or problem.cause not in places:
            yield from _uncounted(following)
            following = 0
            yield problem_text(problem, () if width is None else excerpt_of(problem, width))
        elif (following := following + 1) <= MOST_FOLLOWING:
            yield "\n".join(f"    {line}" for line in problem_text(problem).splitlines())
    yield from _uncounted(following)


def _uncounted(following: int) -> Iterator[str]:
    if following > MOST_FOLLOWING:
        yield f"    and {plural(following - MOST_FOLLOWING, 'more problem')} that follow from it"


def answer_lines(result: Result, *, as_json: bool) -> Iterator[str]:
    """The lines for stdout: the whole result as JSON, or the value and the content parts of a successful one.

    A string is printed as it is, any other value as JSON. A failed call prints nothing on stdout. At a terminal, a long
    result is cut, and JSON has colours; with `as_json` neither happens.
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
        yield _shown_json(json_text(result.value))
    for part in result.content:
        # MCP servers often repeat a structured value as text for older clients.
        if part.text is None or part.text != result.value:
            yield _text(part_line(part))


def part_line(part: Content) -> str:
    """Format a content part on one line: its text, or a description of its data."""
    if part.text is not None:
        return part.text
    size = f"{len(part.data) * 3 // 4:,} bytes" if part.data is not None else None
    words = (part.type, part.mime_type, size, part.title, part.uri)
    return "[" + ", ".join(word for word in words if word) + "]"


def _text(text: str) -> str:
    """Text of a tool: escaped for a terminal, unchanged for a file or a program."""
    if not sys.stdout.isatty():
        return text
    from toolcrib.core.text import escape_terminal  # noqa: PLC0415 -- programs need none of it

    return escape_terminal(_brief(text))


MOST_LINES, MOST_CHARACTERS = 100, 16_000
"""Size of a text of a result that a terminal shows whole."""


def _brief(text: str) -> str:
    """The beginning of a long text, and how to see all of it; only for a terminal."""
    if len(text) <= MOST_CHARACTERS and text.count("\n") < MOST_LINES:
        return text
    shown = "\n".join(text[:MOST_CHARACTERS].split("\n", MOST_LINES)[:MOST_LINES])
    left = len(text) - len(shown)
    told = f"... {left:,} of {len(text):,} characters are not shown; a pipe (`| less`), a file or `--json` gets all of it"
    return f"{shown}\n{told}"


def _shown_json(text: str) -> str:
    """JSON as it is for a program, also with FORCE_COLOR; cut and in colours for a terminal."""
    if not sys.stdout.isatty():
        return text
    text = _brief(text)
    if not is_coloured():
        return text
    import re  # noqa: PLC0415 -- only a terminal needs it

    def painted(match: re.Match[str]) -> str:
        name, string, scalar = match.groups()
        return paint(name or "", BLUE) + paint(string or "", GREEN) + paint(scalar or "", YELLOW)

    string = r'"(?:[^"\\]|\\.)*"'
    scalar = r"(?<=[\s\[])(?:-?[0-9][0-9.eE+-]*|true|false|null)(?=,?$)"
    return re.sub(rf"({string})(?=: )|({string})|({scalar})", painted, text, flags=re.MULTILINE)


def write_file(data: bytes, path: Path) -> None:
    """Write a file atomically; an existing one keeps its mode. A device or a pipe is written in place.

    Raises:
        OSError: The file cannot be written; an existing file is unchanged.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    # `--output /dev/stdout` must not replace the device by a file.
    if path.exists() and not path.is_file():
        path.write_bytes(data)
        return
    # `replace` is atomic only within one file system, so the temporary file is next to the target.
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        # Exclusive creation never follows a link that exists under this name.
        with part.open("xb") as file:
            file.write(data)
            file.flush()
            # Without it, a crash after the rename can leave an empty file under the new name.
            os.fsync(file.fileno())
        if path.exists():
            part.chmod(path.stat().st_mode & 0o7777)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def write_atomically(path: Path, text: str) -> None:
    """Write a UTF-8 text atomically, and create missing folders.

    Raises:
        OSError: The file cannot be written; an existing file is unchanged.
    """
    write_file(text.encode("utf-8"), path)


def write_new(contents: Mapping[Path, str | bytes], *, force: bool) -> set[Path]:
    """Write files atomically and return those that were written; existing files are skipped unless `force` is set.

    Raises:
        click.ClickException: A file cannot be written.
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
            message = f"{path} cannot be written: {error.strerror}"
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
    """The lines of the tool table: name, mode, flags, and the first sentence or why the tool is not offered.

    Args:
        cards: The tools, in the order of the lines.
        why_unable: Returns why a tool cannot run; empty if it can (`registry.catalog.why_unable`).
        width: Columns of the terminal; None for no limit.
        hidden: Returns why the tool with a name is not offered; None if it is.
    """
    from toolcrib.core.text import first_sentence  # noqa: PLC0415
    from toolcrib.registry.catalog import flags_of  # noqa: PLC0415 -- a list from the index needs neither

    rows = []
    for card in cards:
        why = hidden(card.name)
        flags = flags_of(card) if why is None else [why.code.replace("_", " "), *flags_of(card)]
        text = first_sentence(card.description) if why is None else why.message
        mode = mode_text(card.mode, why_unable(card))
        rows.append((card.name, mode, ", ".join(flags), ", ".join(card.arguments), text))
    return _tool_table(rows, width)


HEADER = ("TOOL", "MODE", "FLAGS", "ARGUMENTS", "DESCRIPTION")

MOST_OF_ARGUMENTS = 24
"""Columns for the names of the arguments of a tool."""


def _tool_table(rows: Sequence[tuple[str, str, str, str, str]], width: int | None) -> list[str]:
    """The table of tools: at a terminal below a header and with arguments; programs get the other columns alone."""
    if not rows or not sys.stdout.isatty():
        plain = table([(name, mode, flags, text) for name, mode, flags, _arguments, text in rows], width)
        return (
            [_painted(line, row) for line, row in zip(plain, rows, strict=True)] if is_coloured() else plain
        )
    cells = [(*row[:3], truncate(row[3], MOST_OF_ARGUMENTS), row[4]) for row in rows]
    used = [column for column in range(len(HEADER)) if any(row[column] for row in cells)]
    lines = table([[row[column] for column in used] for row in (HEADER, *cells)], width)
    if not is_coloured():
        return lines
    return [paint(lines[0], DIM), *(_painted(line, row) for line, row in zip(lines[1:], rows, strict=True))]


def _painted(line: str, row: Sequence[str]) -> str:
    """A line of the table with its name in bold, and the mode of a tool that cannot be called in yellow."""
    name, mode = row[0], row[1]
    if not line.startswith(name):  # the terminal is too narrow for it
        return line
    rest = line[len(name) :]
    if not mode.isidentifier() or mode == UNBOUND:
        rest = rest.replace(mode, paint(mode, YELLOW), 1)
    return paint(name, BOLD) + rest


def listed_lines(
    rows: Sequence[ListedTool], left: int, is_unable: Callable[[str], bool], width: int | None
) -> list[str]:
    """The table and the count line of a listing from the index.

    Args:
        rows: The tools, in the order of the lines.
        left: Number of tools that are not offered.
        is_unable: Whether a mode cannot be used.
        width: Columns of the terminal; None for no limit.
    """
    # A listing has many tools and few modes, so each mode is formatted once.
    texts = {
        (mode, has_block): mode_text(mode, mode is not None and (not has_block or is_unable(mode)))
        for mode, has_block in {(mode, has_block) for _name, mode, has_block, *_rest in rows}
    }
    cells = [
        (name, texts[mode, has_block], flags, arguments, sentence)
        for name, mode, has_block, flags, arguments, sentence in rows
    ]
    modes = [cell[1] for cell in cells]
    return [*_tool_table(cells, width), _count(modes, exist=bool(rows), hidden=left)]


UNBOUND = "unbound"
"""Mode of a tool without a binding, for people."""


def mode_text(mode: str | None, unable: str | bool) -> str:
    """Format a mode for people; `unbound` or `(unavailable)` if calls cannot run."""
    if mode is None:
        return UNBOUND
    return f"{mode} (unavailable)" if unable else mode


def modes_line(modes: Iterable[str]) -> str:
    """Count the tools by mode: `12 mock, 1 unbound`. The modes are `mode_text` of each tool."""
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
        hidden: Number of matching tools that are not offered.
        unasked: Number of servers that were not queried.
    """
    modes = [mode_text(card.mode, why_unable(card)) for card in cards]
    return _count(modes, exist=exist, hidden=hidden, unasked=unasked)


def _count(modes: Sequence[str], *, exist: bool, hidden: int, unasked: int = 0) -> str:
    if modes:
        told = f"{plural(len(modes), 'tool')}: {modes_line(modes)}"
    elif exist:
        told = "no tool matches"
    else:
        told = "no known tools" if unasked else "no tools"
    return told + (f"; {plural(unasked, 'server')} not queried" if unasked else "") + not_offered_note(hidden)


def not_offered_note(hidden: int) -> str:
    """The end of the count line if matching tools are not offered."""
    return f"; {hidden} not offered, `--all` shows why" if hidden else ""


def entry_of(card: Card, *, alias: str, unable: str, hidden: HiddenReason | None) -> dict[str, Any]:
    """A tool as a JSON object: its card, its alias, and why it cannot run or is not offered."""
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
        "capabilities": list(card.capabilities),
        "requires": list(card.requires),
        "arguments": list(card.arguments),
        "deprecated": card.deprecated,
        "experimental": card.experimental,
        "stale": card.stale or None,
        "pack": card.pack or None,
        "namespace": card.namespace or None,
        "source": card.source,
        "line": card.line,
    }
