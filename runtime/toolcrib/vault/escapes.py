"""Texts whose escapes are undone, as URLs, JSON, `repr` and HTML write them: one character for each."""

from __future__ import annotations

import re
from bisect import bisect_right
from typing import Final, NamedTuple

ENTITIES: Final = {"&": "amp", "<": "lt", ">": "gt", '"': "quot", "'": "apos"}
"""Character -> its name in HTML and XML."""

_NAMED: Final = {name: character for character, name in ENTITIES.items()}
_SHORT: Final = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}

# Escapes may be escaped again, up to three times over: `%252F`, `\\"`. Repetitions are bounded, so that no text can
# make the search slow.
_HEX: Final = "[0-9a-fA-F]"
_SLASHES: Final = r"\\{1,8}"


def _utf8(sign: str) -> str:
    """A pattern for one character in UTF-8, each byte written as `sign` and two digits."""
    more = f"{sign}[89abAB]{_HEX}"
    lengths = ("[0-7]", "[cdCD]", "[eE]", "[fF]")
    return "|".join(f"{sign}{first}{_HEX}" + more * count for count, first in enumerate(lengths))


_PERCENT: Final = "%(?:25){0,3}"
_ESCAPE: Final = re.compile(
    rf"(?P<percent>{_utf8(_PERCENT)})"
    rf"|(?P<bytes>{_utf8(_SLASHES + 'x')})"
    rf"|(?P<pair>{_SLASHES}u[dD][89abAB]{_HEX}{{2}}{_SLASHES}u[dD][c-fC-F]{_HEX}{{2}})"
    rf"|{_SLASHES}u(?P<unit>{_HEX}{{4}})"
    rf"|{_SLASHES}(?P<short>[nrtbf])"
    rf"|{_SLASHES}(?P<sign>[\"'/])"
    rf"|(?P<slashes>{_SLASHES})"
    rf"|&(?P<name>{'|'.join(_NAMED)});"
    r"|&#0{0,4}(?P<decimal>[0-9]{1,7});"
    rf"|&#[xX]0{{0,4}}(?P<hexadecimal>{_HEX}{{1,6}});"
    r"|(?P<plus>\+)"
)


class Unescaped(NamedTuple):
    """A text without escapes, which knows where each character stood.

    Attributes:
        text: The text.
        places: Where a character in it was an escape, in order.
        spans: Where each of these escapes stood in the text before: (start, end).
    """

    text: str
    places: list[int]
    spans: list[tuple[int, int]]

    def before(self, start: int, end: int) -> tuple[int, int]:
        """Where a part stood in the text before."""
        return self._span(start)[0], self._span(end - 1)[1]

    def _span(self, place: int) -> tuple[int, int]:
        """Where one character stood."""
        index = bisect_right(self.places, place) - 1
        if index < 0:
            return place, place + 1
        past = place - self.places[index]
        start, end = self.spans[index]
        return (start, end) if past == 0 else (end + past - 1, end + past)


def without_escapes(text: str) -> Unescaped:
    """Undo every escape, each to one character. A `+` is a blank, as in forms."""
    pieces: list[str] = []
    places: list[int] = []
    spans: list[tuple[int, int]] = []
    position = length = 0
    for match in _ESCAPE.finditer(text):
        pieces += (text[position : match.start()], _character(match))
        length += match.start() - position
        places.append(length)
        spans.append(match.span())
        length += 1
        position = match.end()
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
    if kind in {"unit", "hexadecimal", "decimal"}:
        number = int(written, 10 if kind == "decimal" else 16)
        return chr(number) if number <= 0x10FFFF else "\ufffd"
    return {**_SHORT, **_NAMED, "+": " "}.get(written, written[-1])


def _decoded(digits: str, encoding: str) -> str:
    return bytes.fromhex(digits).decode(encoding, "replace")[0]
