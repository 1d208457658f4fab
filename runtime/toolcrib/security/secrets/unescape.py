"""Texts whose escapes are undone, as URLs, JSON, `repr` and HTML write them."""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import Final, NamedTuple

ENTITIES: Final = {"&": "amp", "<": "lt", ">": "gt", '"': "quot", "'": "apos"}
"""Character -> its name in HTML and XML."""

_NAMED: Final = {name: character for character, name in ENTITIES.items()}
_SHORT: Final = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}

_SAME: Final = {"+": " ", "\\": "", "\0": ""}

# Escapes may be escaped again, up to three times over: `%252F`, `\\"`. Repetitions are bounded, so that no text can
# make the search slow.
_HEX: Final = "[0-9a-fA-F]"
_SLASHES: Final = r"\\{1,8}"


def _utf8(sign: str) -> str:
    """A pattern for one character in UTF-8, each byte written as `sign` and two digits; the longest first."""
    more = f"{sign}[89abAB]{_HEX}"
    first = {3: "[fF]", 2: "[eE]", 1: "[cdCD]", 0: "[0-7]"}
    return "|".join(f"{sign}{digit}{_HEX}" + more * count for count, digit in first.items())


_PERCENT: Final = "%(?:25){0,3}"
_ESCAPE: Final = re.compile(
    rf"(?P<percent>{_utf8(_PERCENT)})"
    rf"|(?P<bytes>{_utf8(_SLASHES + 'x')})"
    rf"|(?P<pair>{_SLASHES}u[dD][89abAB]{_HEX}{{2}}{_SLASHES}u[dD][c-fC-F]{_HEX}{{2}})"
    rf"|{_SLASHES}u(?P<unit>{_HEX}{{4}})"
    rf"|{_SLASHES}x(?P<latin>{_HEX}{{2}})"
    rf"|{_SLASHES}(?P<short>[nrtbf])"
    rf"|{_SLASHES}(?P<sign>[\"'/])"
    rf"|(?P<slashes>{_SLASHES})"
    rf"|&(?P<name>{'|'.join(_NAMED)});"
    r"|&#0{0,4}(?P<decimal>[0-9]{1,7});"
    rf"|&#[xX]0{{0,4}}(?P<hexadecimal>{_HEX}{{1,6}});"
    r"|(?P<plus>\+)"
    r"|(?P<nul>\0)"
)


class Unescaped(NamedTuple):
    """A text without escapes, which knows where each character stood.

    Attributes:
        text: The text.
        places: Where in it what an escape stands for begins, in order.
        spans: Where each of these escapes stood in the text before, and how long it is now (0 or 1):
            (start, end, length).
    """

    text: str
    places: list[int]
    spans: list[tuple[int, int, int]]

    def before(self, start: int, end: int) -> tuple[int, int]:
        """Where a part stood in the text before."""
        return self._span(start)[0], self._span(end - 1)[1]

    def _span(self, place: int) -> tuple[int, int]:
        """Where one character stood."""
        index = bisect_right(self.places, place) - 1
        if index < 0:
            return place, place + 1
        start, end, length = self.spans[index]
        past = place - self.places[index] - length
        return (start, end) if past < 0 else (end + past, end + past + 1)


def without_escapes(text: str) -> Unescaped:
    """Undo every escape.

    Some characters can't be told from escapes, and are the same however they are written: a `+` is a blank, as in
    forms; a backslash is nothing, and so is NUL, of which UTF-16 read as UTF-8 is full.
    """
    pieces: list[str] = []
    places: list[int] = []
    spans: list[tuple[int, int, int]] = []
    position = length = 0
    for match in _ESCAPE.finditer(text):
        start, end = match.span()
        character = _SAME.get(character := _character(match), character)
        pieces += (text[position:start], character)
        length += start - position
        places.append(length)
        spans.append((start, end, len(character)))
        length += len(character)
        position = end
    return Unescaped("".join([*pieces, text[position:]]), places, spans)


def _character(match: re.Match[str]) -> str:
    """What one escape stands for; U+FFFD where it is no character."""
    kind, written = match.lastgroup or "", match[match.lastgroup or 0]
    if kind == "percent":
        return _decoded("".join(part[-2:] for part in written.split("%")), "utf-8")
    if kind == "bytes":
        return _decoded("".join(part[:2] for part in written.split("x")[1:]), "utf-8")
    if kind == "pair":
        return _decoded("".join(part[:4] for part in written.split("u")[1:]), "utf-16-be")
    if kind in {"unit", "latin", "hexadecimal", "decimal"}:
        number = int(written, 10 if kind == "decimal" else 16)
        return chr(number) if number <= 0x10FFFF else "\ufffd"
    return _NAMED.get(written) or _SHORT.get(written) or written[-1]


def _decoded(digits: str, encoding: str) -> str:
    return bytes.fromhex(digits).decode(encoding, "replace")[0]
