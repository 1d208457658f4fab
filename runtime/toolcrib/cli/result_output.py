"""What is printed of a call's result: by the command, and by the call that is made before click is imported."""

from __future__ import annotations

import sys

from toolcrib.cli.tables import json_text
from toolcrib.core.model import Content, Outcome, Result

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator


def answer_lines(result: Result, *, as_json: bool) -> Iterator[str]:
    """What goes to stdout: the whole result as JSON, or of a good one its value, then the parts that add to it.

    A text is given as it is, any other value as JSON. Of a failed call nothing is said here.
    """
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
