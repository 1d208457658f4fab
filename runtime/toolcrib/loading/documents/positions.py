"""Bounds and positions shared by the YAML and the JSON reader.

A reader yields a text as a flat sequence of marks; `walk_positions` turns them into positions. Positions are computed
only when a problem or a caller needs a line: most documents never need one, and computing them takes longer than
reading.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, NamedTuple

from toolcrib.core.errors import Problem
from toolcrib.core.model import JSON
from toolcrib.core.pointers import keys_of, pointer_step

BYTES: Final = 1 << 20
"""Maximum size of a text, in bytes of UTF-8."""

DEPTH: Final = 64
"""Maximum nesting depth of objects and lists."""

NODES: Final = 50_000
"""Maximum number of keys and values in a text, including objects and lists."""

# `int` of n digits takes O(n²); CPython itself refuses more than 4,300 (CVE-2020-10735).
INTEGER_DIGITS: Final = 1000
"""Maximum number of digits in a whole number."""

PROBLEMS: Final = 100
"""Maximum number of problems in a text; the rest of the text is not checked."""

# Without a bound, deep nesting of long keys makes the pointers of 100 problems larger than the document.
POINTER: Final = 4096
"""Maximum length of a pointer, in characters; a longer one ends at an ancestor."""


class ParsedDocument(NamedTuple):
    """A document without errors: its 0-based number in the text, its first line and its value."""

    number: int
    line: int
    value: JSON


class Mark(NamedTuple):
    """A token of a text: `{`, `[`, `}` (the end of either) or `.` (a scalar), with 1-based line and column.

    `text` is the text of a scalar, and `plain` is true if it has no quotes.
    """

    kind: str
    line: int
    column: int
    text: str = ""
    plain: bool = False


class StopReading(Exception):
    """Raised to stop reading a text: the rest is useless or unsafe."""


class Problems(list[Problem]):
    """The problems of one text, at most `PROBLEMS`."""

    def report(self, problem: Problem) -> None:
        """Add a problem.

        Raises:
            StopReading: The maximum is reached.
        """
        self.append(problem)
        if len(self) == PROBLEMS:
            message = f"stopped after {PROBLEMS} problems; the rest of the text was not checked"
            self.append(problem._replace(code="too_many_problems", message=message, pointer="", hint=""))
            raise StopReading


def decoded_text(data: bytes, problems: Problems) -> str:
    """Decode the content of a file and remove a byte order mark.

    Raises:
        StopReading: The content is not valid UTF-8; the problem was reported.
    """
    try:
        # RFC 8259 (section 8.1) allows parsers to ignore a byte order mark, and editors on Windows write one.
        return data.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        message = f"byte 0x{data[error.start]:02x} is not valid UTF-8"
        line, column = line_and_column(data[: error.start].decode())
        hint = "save the file as UTF-8"
        problems.report(Problem(code="invalid_utf8", message=message, line=line, column=column, hint=hint))
        raise StopReading from None


def line_and_column(before: str) -> tuple[int, int]:
    """1-based line and column of the character after a text."""
    return before.count("\n") + 1, len(before) - before.rfind("\n")


def pointer_of(tokens: Iterable[str | int]) -> str:
    """The JSON Pointer of a path, cut at an ancestor if it would be longer than `POINTER`."""
    pointer = ""
    for token in tokens:
        longer = f"{pointer}/{pointer_step(token)}"
        if len(longer) > POINTER:
            break
        pointer = longer
    return pointer


def is_encodable(text: str) -> bool:
    """Whether a text can be encoded as UTF-8, that is, has no lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def excerpt(text: str, most: int = 60) -> str:
    """A text as a message shows it: one line, printable, not long."""
    short = text if len(text) <= most else f"{text[: most - 1]}…"
    # Messages are printed to terminals: control characters in a document must not move the cursor or hide
    # text.
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in short)


class TextPosition:
    """The position of a value, and of its key if any.

    Attributes:
        token: Its key or list index; empty for a whole document.
        parent: The position of the enclosing object or list.
        mark: The first token of the value; that of its key until the value is read.
        key: The token of the key.
        parts: Token -> position, for an object or list. The first of duplicate keys counts.
        twin: The position of the first key, for a duplicate key.
    """

    __slots__ = ("key", "mark", "parent", "parts", "token", "twin")

    def __init__(self, token: str, parent: TextPosition | None, mark: Mark, key: Mark | None) -> None:
        self.token = token
        self.parent = parent
        self.mark = mark
        self.key = key
        self.parts: dict[str, TextPosition] = {}
        self.twin: TextPosition | None = None

    def pointer(self) -> str:
        """The JSON Pointer within its document."""
        tokens: list[str] = []
        place = self
        while place.parent is not None:
            tokens.append(place.token)
            place = place.parent
        return pointer_of(reversed(tokens))

    def nearest(self, pointer: str) -> TextPosition:
        """The position at a relative pointer, or that of its nearest existing ancestor."""
        place = self
        for step in keys_of(pointer):
            part = place.parts.get(step)
            if part is None:
                break
            place = part
        return place


class _Level:
    """An open object or list. `place` is None if it is itself a key, which documents may not contain."""

    __slots__ = ("key", "length", "mapping", "place")

    def __init__(self, place: TextPosition | None, *, mapping: bool) -> None:
        self.place = place
        self.mapping = mapping
        self.length = 0
        self.key: TextPosition | None = None


def walk_positions(marks: Iterable[Mark]) -> Iterator[tuple[TextPosition, bool]]:
    """The positions of a text in reading order, each with whether it was reached as a key.

    A key and its value share one position, which is yielded twice. Text beyond the bounds is not visited.
    """
    levels: list[_Level] = []
    # Closing brackets are marks but not nodes, and there are at most as many of them as nodes.
    for mark in islice(marks, 2 * NODES):
        if mark.kind == "}":
            if levels:  # invalid JSON may close more brackets than it opens
                levels.pop()
            continue
        level = levels[-1] if levels else None
        awaits_key = level is not None and level.mapping and level.key is None
        place = _met(level, mark, awaits_key=awaits_key)
        if place is not None:
            yield place, awaits_key
        if mark.kind != ".":
            if len(levels) == DEPTH:
                return
            levels.append(_Level(None if awaits_key else place, mapping=mark.kind == "{"))


def _met(level: _Level | None, mark: Mark, *, awaits_key: bool) -> TextPosition | None:
    if level is None:
        return TextPosition("", None, mark, None)
    if awaits_key:
        level.key = _key_place(level, mark)
        return level.key if level.place is not None else None
    if level.mapping:
        place, level.key = level.key, None
        if place is None or level.place is None:
            return None
        place.mark = mark
        return place
    token = str(level.length)
    level.length += 1
    if level.place is None:
        return None
    place = level.place.parts[token] = TextPosition(token, level.place, mark, None)
    return place


def _key_place(level: _Level, mark: Mark) -> TextPosition:
    place = TextPosition(mark.text, level.place, mark, mark)
    if level.place is not None:
        place.twin = level.place.parts.get(mark.text)
        if place.twin is None:
            level.place.parts[mark.text] = place
    return place


def root_positions(marks: Iterable[Mark]) -> list[TextPosition]:
    """The positions of the documents of a text, with everything below them."""
    return [place for place, _ in walk_positions(marks) if place.parent is None]
