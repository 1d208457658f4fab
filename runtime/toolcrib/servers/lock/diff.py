"""Two definitions of a tool side by side, as lines for people."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import SequenceMatcher
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from toolcrib.core.model import JSON
from toolcrib.core.pointers import pointer_to
from toolcrib.core.subschemas import NAMED
from toolcrib.core.text import canonical, compact
from toolcrib.servers.lock.hidden_characters import visible
from toolcrib.servers.lock.locked_definitions import HASHED


class Absent:
    """Stands for a value that is not there."""

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = Absent()

Value: TypeAlias = "JSON | Absent"

Sign: TypeAlias = Literal["-", "+", "~", " "]

MOST_LINES: Final = 60
"""Lines that one tool gets; of more it is said how many there are."""

_WIDEST: Final = 240
_WORDS: Final = 600
"""Words of a text that are compared one by one, once what is the same at its ends is set aside."""

_CONTEXT: Final = 4
_DEEPEST: Final = 100

_TEXTS: Final = frozenset(("title", "description", "$comment", "default", "examples", "deprecated"))
"""Keywords of a schema that refuse no value; a model reads what stands there."""

_SETS: Final = frozenset(("required", "enum", "type"))
_PROSE: Final = re.compile(r"\S\s+\S")


class Difference(NamedTuple):
    """One place at which two definitions differ.

    Attributes:
        path: Keys and indexes from the definition on.
        before: What stood there; `ABSENT` for nothing.
        after: What stands there now.
        is_text: Whether what stands there is only read, and decides nothing.
    """

    path: tuple[str | int, ...]
    before: Value
    after: Value
    is_text: bool = False

    @property
    def place(self) -> str:
        """Where it is: `description`, `inputSchema /properties/days/maximum`."""
        part, *rest = self.path
        return f"{part} {pointer_to(rest)}" if rest else str(part)


class Line(NamedTuple):
    """One line of what changed.

    Attributes:
        sign: `-` gone, `+` new, `~` other than before, a blank for where it is.
        text: Without the sign; nothing in it can steer a terminal, and what is hidden in it is spelt out.
    """

    sign: Sign
    text: str


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Difference]:
    """Every place at which two definitions differ in what counts of them, innermost as far as both have it."""
    for key in HASHED:
        text = key in {"title", "description"}
        yield from _between(before.get(key, ABSENT), after.get(key, ABSENT), (key,), text=text, names=False)


def endpoint_differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Difference]:
    """Every place at which two endpoints differ: `command`, `args /0` ..."""
    for key in {**before, **after}:
        yield from _between(before.get(key, ABSENT), after.get(key, ABSENT), (key,), text=False, names=True)


def _between(
    before: Value, after: Value, path: tuple[str | int, ...], *, text: bool, names: bool
) -> Iterator[Difference]:
    """Differences at and below a place.

    Args:
        before: What stood there.
        after: What stands there.
        path: The place.
        text: Whether all of it is only read.
        names: Whether the keys of the object there are names of the schema's author, and no keywords.
    """
    if _same(before, after):
        return
    nested = len(path) < _DEEPEST
    if nested and isinstance(before, dict) and isinstance(after, dict):
        for key in sorted({*before, *after}):
            # Below what is only read, and below values such as `enum`, no keyword is one.
            told = text or (not names and key in _TEXTS and path[0] != "name")
            here = (*path, key)
            inner = not names and not told and key in NAMED
            yield from _between(before.get(key, ABSENT), after.get(key, ABSENT), here, text=told, names=inner)
    elif (
        nested
        and isinstance(before, list)
        and isinstance(after, list)
        and len(before) == len(after)
        and path[-1] not in _SETS
    ):
        for at, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _between(old, new, (*path, at), text=text, names=False)
    else:
        yield Difference(path, before, after, text)


def _same(before: Value, after: Value) -> bool:
    if isinstance(before, Absent) or isinstance(after, Absent):
        return before is after
    return canonical(before) == canonical(after)


def is_told_to_models(difference: Difference) -> bool:
    """Whether a model reads another text: one that is only read, or words in what decides, such as a new property."""
    if difference.is_text:
        return True
    words = {*_texts_of(difference.before)} ^ {*_texts_of(difference.after)}
    return any(_PROSE.search(text) for text in words)


def _texts_of(value: Value) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from value
        for item in value.values():
            yield from _texts_of(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts_of(item)


def lines_of(found: Iterable[Difference]) -> Iterator[Line]:
    """Differences as lines, `MOST_LINES` at most and one that says how many are left."""
    lines = [line for each in found for line in _lines(each)]
    yield from lines[:MOST_LINES]
    if len(lines) > MOST_LINES:
        yield Line(" ", f"... and {len(lines) - MOST_LINES} more lines")


def _lines(each: Difference) -> Iterator[Line]:
    before, after, place = each.before, each.after, visible(each.place)
    if isinstance(before, str) and isinstance(after, str) and (_PROSE.search(before) or _PROSE.search(after)):
        yield Line(" ", place)
        yield from _words(before, after)
    elif isinstance(before, list) and isinstance(after, list):
        yield from _members(before, after, place)
    elif isinstance(before, Absent):
        yield Line("+", f"{place}: {_shown(after)}")
    elif isinstance(after, Absent):
        yield Line("-", f"{place}: {_shown(before)}")
    else:
        yield Line("~", f"{place}: {_shown(before)} -> {_shown(after)}")


def _members(before: list[JSON], after: list[JSON], place: str) -> Iterator[Line]:
    """What is gone from a list and what is new in it, or the two lists where only their order differs."""
    old, new = {canonical(each) for each in before}, {canonical(each) for each in after}
    if old == new:
        yield Line("~", f"{place}: {_shown(before)} -> {_shown(after)}")
    yield from (Line("-", f"{place}: {_shown(each)}") for each in before if canonical(each) not in new)
    yield from (Line("+", f"{place}: {_shown(each)}") for each in after if canonical(each) not in old)


def _shown(value: Value) -> str:
    return "" if isinstance(value, Absent) else _cut(visible(compact(value)))


def _cut(text: str) -> str:
    return text if len(text) <= _WIDEST else f"{text[: _WIDEST - 1]}…"


def _words(before: str, after: str) -> Iterator[Line]:
    """The words that are gone and those that are new, each with some of those around them."""
    old, new = re.findall(r"\s+|\S+", before), re.findall(r"\s+|\S+", after)
    start = _common(old, new)
    end = _common(old[start:][::-1], new[start:][::-1])
    middle, other = old[start : len(old) - end], new[start : len(new) - end]
    if len(middle) + len(other) > _WORDS:
        yield _hunk("-", old, start, len(old) - end)
        yield _hunk("+", new, start, len(new) - end)
        return
    matcher = SequenceMatcher(None, middle, other, autojunk=False)
    for group in matcher.get_grouped_opcodes(_CONTEXT * 2):
        changed = [opcode for opcode in group if opcode[0] != "equal"]
        gone = any(begin < stop for _, begin, stop, _, _ in changed)
        come = any(begin < stop for _, _, _, begin, stop in changed)
        if gone:
            yield _hunk("-", old, start + changed[0][1], start + changed[-1][2])
        if come:
            yield _hunk("+", new, start + changed[0][3], start + changed[-1][4])


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """How many words two texts begin with alike."""
    count = 0
    for first, second in zip(one, other, strict=False):
        if first != second:
            break
        count += 1
    return count


def _hunk(sign: Sign, words: Sequence[str], begin: int, end: int) -> Line:
    """Some words with those around them, on one line: the changed ones in brackets."""
    while begin < end - 1 and words[begin].isspace():
        begin += 1
    while end > begin + 1 and words[end - 1].isspace():
        end -= 1
    lead, trail = words[max(begin - 2 * _CONTEXT, 0) : begin], words[end : end + 2 * _CONTEXT]
    changed = _cut(_flat(words[begin:end]))
    before = "… " if begin > 2 * _CONTEXT else ""
    after = " …" if end + 2 * _CONTEXT < len(words) else ""
    return Line(sign, f"{before}{_flat(lead).lstrip()}[{changed}]{_flat(trail).rstrip()}{after}")


def _flat(words: Sequence[str]) -> str:
    return visible("".join(words)).replace("\n", "\\n").replace("\t", "\\t")
