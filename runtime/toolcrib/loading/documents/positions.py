"""What the two readers of text share: the bounds, and where things stand in a text.

A reader tells a text as a flat run of marks; `visits` makes places of them. Nothing here runs while
a text is in order and nobody asks for a line: it is work for faults and for those who look them up.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, NamedTuple

from toolcrib.core.errors import Problem
from toolcrib.core.model import JSON
from toolcrib.core.pointers import keys_of, pointer_step

BYTES: Final = 1 << 20
"""A text may have so many bytes of UTF-8."""

DEPTH: Final = 64
"""Objects and lists may be nested so deep."""

NODES: Final = 50_000
"""A text may hold so many keys and values, objects and lists included."""

INTEGER_DIGITS: Final = 1000
"""A whole number may have so many digits."""

PROBLEMS: Final = 100
"""After so many problems the rest of a text is not looked at."""

POINTER: Final = 4096
"""A pointer that would be longer than so many characters ends at an ancestor."""


class ParsedDocument(NamedTuple):
    """A document that was read without an error: its number among those of its text from 0, and its first line."""

    number: int
    line: int
    value: JSON


class Mark(NamedTuple):
    """One sign of a text: `{`, `[`, `}` (the end of either), or `.` for a scalar; line and column from 1.

    `text` is a scalar's text; `plain` says that it stood there without quotes.
    """

    kind: str
    line: int
    column: int
    text: str = ""
    plain: bool = False


class StopReading(Exception):
    """The rest of the text is not worth reading, or not safe to read."""


class Problems(list[Problem]):
    """The problems of one text, bounded."""

    def report(self, problem: Problem) -> None:
        """Add one.

        Raises:
            StopReading: There are too many.
        """
        self.append(problem)
        if len(self) == PROBLEMS:
            message = f"{PROBLEMS} problems were found; the rest of the text was not looked at"
            self.append(problem._replace(code="too_many_problems", message=message, pointer="", hint=""))
            raise StopReading


def decoded_text(data: bytes, problems: Problems) -> str:
    """The text of a file, without a mark of byte order.

    Raises:
        StopReading: It is no UTF-8, which was told.
    """
    try:
        return data.decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        message = f"the byte 0x{data[error.start]:02x} is no UTF-8"
        line, column = line_and_column(data[: error.start].decode())
        hint = "save the file as UTF-8"
        problems.report(Problem(code="invalid_utf8", message=message, line=line, column=column, hint=hint))
        raise StopReading from None


def line_and_column(before: str) -> tuple[int, int]:
    """1-based line and column of what follows a text."""
    return before.count("\n") + 1, len(before) - before.rfind("\n")


def pointer_of(tokens: Iterable[str | int]) -> str:
    """The JSON Pointer of a path, ended early where it would be longer than `POINTER`."""
    pointer = ""
    for token in tokens:
        longer = f"{pointer}/{pointer_step(token)}"
        if len(longer) > POINTER:
            break
        pointer = longer
    return pointer


def is_encodable(text: str) -> bool:
    """Whether a text is free of lone surrogates."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def excerpt(text: str, most: int = 60) -> str:
    """A text as a message shows it: one line, printable, not long."""
    short = text if len(text) <= most else f"{text[: most - 1]}…"
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in short)


class TextPosition:
    """Where a value stands, and its key if it has one.

    Attributes:
        token: Its key or list position; empty for a whole document.
        parent: The place of the object or list that holds it.
        mark: The first sign of the value; of its key while the value is not there yet.
        key: The sign of the key.
        parts: Token -> place, for an object or list. Of a repeated key the first counts.
        twin: The place that had this key first, where a key is repeated.
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
        """The JSON Pointer of the place within its document."""
        tokens: list[str] = []
        place = self
        while place.parent is not None:
            tokens.append(place.token)
            place = place.parent
        return pointer_of(reversed(tokens))

    def nearest(self, pointer: str) -> TextPosition:
        """The place that a pointer names from here, or its nearest ancestor that exists."""
        place = self
        for step in keys_of(pointer):
            part = place.parts.get(step)
            if part is None:
                break
            place = part
        return place


class _Level:
    """An object or list that is still open. `place` is None where it is itself a key, which we refuse."""

    __slots__ = ("key", "length", "mapping", "place")

    def __init__(self, place: TextPosition | None, *, mapping: bool) -> None:
        self.place = place
        self.mapping = mapping
        self.length = 0
        self.key: TextPosition | None = None


def walk_positions(marks: Iterable[Mark]) -> Iterator[tuple[TextPosition, bool]]:
    """The places of a text in reading order, and whether it is a key that is met.

    A key and its value share one place: it is met twice. Only what is within the bounds is visited.
    """
    levels: list[_Level] = []
    for mark in islice(marks, 2 * NODES):
        if mark.kind == "}":
            if levels:  # what is no JSON may close more than it opens
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
    """The places of a text's documents, with everything below them."""
    return [place for place, _ in walk_positions(marks) if place.parent is None]
