"""Search texts for a secret in all of its encodings.

A secret is found as plain text, in URLs, in base64, and escaped for JSON, `repr` or HTML; `without_escapes` undoes the
escapes of a text. The text is also searched without case, separators and invisible characters (`fold`). This finds the
secret in capitals, with spaces, wrapped over lines, in wrapped base64 and in hexadecimal.
"""

from __future__ import annotations

import json
import re
import sys
import unicodedata
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator
from functools import cached_property
from itertools import accumulate
from typing import Final, NamedTuple

ENTITIES: Final = {"&": "amp", "<": "lt", ">": "gt", '"': "quot", "'": "apos"}
"""Character -> its name in HTML and XML."""

_NAMED: Final = {name: character for character, name in ENTITIES.items()}
_SHORT: Final = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}

_SAME: Final = {"+": " ", "\\": "", "\0": ""}

# Escapes may be escaped again, up to three times: `%252F`, `\\"`. Repetitions are bounded, because the text comes from
# a server, which could otherwise make the search slow.
_HEX: Final = "[0-9a-fA-F]"
_SLASHES: Final = r"\\{1,8}"


def _utf8(sign: str) -> str:
    """A pattern for one UTF-8 character with `sign` and two digits per byte; the longest form comes first."""
    more = f"{sign}[89abAB]{_HEX}"
    first = {3: "[fF]", 2: "[eE]", 1: "[cdCD]", 0: "[0-7]"}
    return "|".join(f"{sign}{digit}{_HEX}" + more * count for count, digit in first.items())


_PERCENT: Final = "%(?:25){0,3}"
# The order matters: `pair` must precede `unit`, which would split a surrogate pair, and `slashes` matches the rest.
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


class UnescapedText(NamedTuple):
    """A text without escapes, with the original position of each character.

    Attributes:
        text: The text.
        places: Offsets in `text` of the characters that replaced escapes, in order.
        spans: (start, end, length) for each of these escapes: its span in the original text, and its length in `text`
            (0 or 1).
    """

    text: str
    places: list[int]
    spans: list[tuple[int, int, int]]

    def before(self, start: int, end: int) -> tuple[int, int]:
        """The span of a part in the original text."""
        return self._span(start)[0], self._span(end - 1)[1]

    def _span(self, place: int) -> tuple[int, int]:
        index = bisect_right(self.places, place) - 1
        if index < 0:
            return place, place + 1
        start, end, length = self.spans[index]
        past = place - self.places[index] - length
        return (start, end) if past < 0 else (end + past, end + past + 1)


def without_escapes(text: str) -> UnescapedText:
    """Undo every escape of a text.

    Some characters cannot be distinguished from escapes and are always treated as such: `+` becomes a space, as in
    forms, and a backslash or NUL is dropped. UTF-16 that was decoded as UTF-8 is full of NULs.
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
    return UnescapedText("".join([*pieces, text[position:]]), places, spans)


def _character(match: re.Match[str]) -> str:
    """The character of an escape; U+FFFD if it is invalid."""
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


_TELLING: Final = 4
"""Minimum length of a secret that is searched for within texts, as in `redaction.Redactor`."""

_TELLING_FOLDED: Final = 8
"""The minimum length without case and spacing. Shorter words occur in ordinary prose, such as `abcd` in `a b, cd`."""

_BASE64: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_")

_PADDING: Final = re.compile("={0,2}")

_PLAIN: Final = re.compile(rb"(?:\\[nrtNRT])?([A-Za-z0-9]*)")
"""Characters that no text encoding changes. The first one after a backslash may be a part of an escape."""

_ASCII: Final = re.compile(b"[\0-\x7f]*")

_LINE_ENDS: Final = re.compile(rb"\\[nrt]")
"""Line breaks and tabs in JSON. A wrapped secret contains them."""

_OF_LINE_ENDS: Final = (b"n", b"r", b"t")

_LETTERS: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_OTHERS: Final = bytes(code for code in range(256) if code not in _LETTERS)
_LOWER: Final = bytes(range(256)).lower()


def squeezed(raw: bytes) -> bytes:
    """The ASCII letters and digits of UTF-8 text in lower case, for a fast check.

    The letters and digits of a secret are adjacent here, regardless of its spacing.
    """
    # `bytes.translate` is one pass in C, where a regex or `fold` would handle each character in turn.
    joined = _LINE_ENDS.sub(b"", raw) if b"\\" in raw else raw
    return joined.translate(_LOWER, _OTHERS)


class EncodedForm(NamedTuple):
    """A text that reveals the secret.

    Attributes:
        text: The text to search for.
        before: Whether the base64 character before it contains bits of the secret, too.
        after: Whether the base64 character after it does.
        padded: Whether base64 padding after it is masked, too, because padding reveals the length.
    """

    text: str
    before: bool = False
    after: bool = False
    padded: bool = False

    def spans_in(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield its spans in a text: (start, end)."""
        for start, end in self._found(text):
            yield self._widened(text, start, end)

    def spans_before(self, folded: FoldedText) -> Iterator[tuple[int, int]]:
        """Yield its spans in the original of a folded text: (start, end)."""
        for start, end in self._found(folded.text):
            yield self._widened(folded.whole, *folded.before(start, end))

    def _found(self, text: str) -> Iterator[tuple[int, int]]:
        start = text.find(self.text)
        while start >= 0:
            end = start + len(self.text)
            yield start, end
            start = text.find(self.text, end)

    def _widened(self, text: str, start: int, end: int) -> tuple[int, int]:
        start -= self.before and start > 0 and text[start - 1] in _BASE64
        end += self.after and text[end : end + 1] in _BASE64
        padding = _PADDING.match(text, end) if self.padded else None
        return start, end if padding is None else padding.end()


class SecretSpelling:
    """All encodings of a secret, computed when they are first needed."""

    # Cached properties: most texts fail the fast check, which needs only `needles` or `runs`.
    def __init__(self, secret: str) -> None:
        self._secret = secret
        self.length = len(secret)

    @cached_property
    def writings(self) -> tuple[EncodedForm, ...]:
        """The forms to search for in an unchanged text; empty for a short secret."""
        secret = self._secret
        if len(secret) < _TELLING:
            return ()
        whole = (*_as_it_is(secret), *_misread(secret), *_base64(secret), *_escaped(secret))
        writings = [*map(EncodedForm, whole), *_within_base64(secret)]
        # Reversed, so that a whole form replaces an equal one from within base64, which would mask its neighbours.
        return tuple({writing.text: writing for writing in reversed(writings)}.values())

    @cached_property
    def plain(self) -> tuple[EncodedForm, ...]:
        """The forms to search for in a text without escapes."""
        # The forms lose their escapes, too: a `+` of base64 is a space in such a text.
        changed = [writing._replace(text=without_escapes(writing.text).text) for writing in self.writings]
        return tuple(writing for writing in dict.fromkeys(changed) if len(writing.text) >= _TELLING)

    @cached_property
    def folded(self) -> tuple[EncodedForm, ...]:
        """The forms to search for in a folded text: the secret itself, in base64 and in hexadecimal."""
        if not self.writings:
            return ()
        secret = self._secret
        whole = (secret, *_misread(secret), *_base64(secret), *self._hexadecimal)
        writings = (*map(EncodedForm, whole), *_within_base64(secret))
        changed = [writing._replace(text=fold(writing.text)) for writing in writings]
        return tuple(each for each in dict.fromkeys(changed) if len(each.text) >= _TELLING_FOLDED)

    @cached_property
    def shortest(self) -> int:
        """Minimum length of a text that contains the secret; `sys.maxsize` for a short secret, which is not searched."""
        return min(map(len, self.needles)) if self.writings else sys.maxsize

    @cached_property
    def needles(self) -> tuple[bytes, ...]:
        """Byte strings, one of which occurs in every squeezed text that contains the secret without escapes."""
        # Only the ASCII parts: upper case and folding turn some other characters into ASCII, such as a sharp s to `SS`.
        ours = [squeezed(part) for part in _ASCII.findall(self._secret.encode())]
        return (max(ours, key=len), *self._encoded)

    @cached_property
    def runs(self) -> tuple[bytes, ...]:
        """Like `needles` for a text with escapes, where `%2F` adds a digit and a letter to those of the secret."""
        longest = max(_PLAIN.findall(self._secret.encode()), key=len).lower()
        # In a text, a backslash may precede the run, and `squeezed` drops the `n` of `\n`.
        return tuple(each[1:] if each[:1] in _OF_LINE_ENDS else each for each in (longest, *self._encoded))

    @cached_property
    def _encoded(self) -> tuple[bytes, ...]:
        if not self.writings:
            return ()
        texts = [*(each.text for each in _within_base64(self._secret)), *self._hexadecimal]
        return tuple(dict.fromkeys(squeezed(text.encode()) for text in texts))

    @cached_property
    def _hexadecimal(self) -> tuple[str, str]:
        """The bytes as hexadecimal digits, and with `0x` before each. Folding joins digits that are separated."""
        raw = self._secret.encode()
        return raw.hex(), "0x" + raw.hex(" ").replace(" ", "0x")


def _as_it_is(secret: str) -> Iterator[str]:
    """The secret itself, and encoded for URLs, forms and JSON Pointers."""
    from urllib.parse import quote, quote_plus  # noqa: PLC0415 -- a run without secrets needs none of it

    yield secret
    yield secret.replace("~", "~0").replace("/", "~1")  # in a JSON Pointer
    for safe in ("", "/"):
        for quoted in (quote(secret, safe=safe), quote_plus(secret, safe=safe)):
            yield quoted
            yield _in_lower_hex(quoted)


def _misread(secret: str) -> Iterator[str]:
    """The secret in lower case, and decoded with the wrong charset."""
    # Clients normalise a host to lower case, and with it a secret that is a part of one.
    yield secret.lower()
    if not secret.isascii():
        yield secret.encode().decode("latin-1")
        if max(secret) <= "\xff":
            yield secret.encode("latin-1").decode("utf-8", "replace")


def _in_lower_hex(quoted: str) -> str:
    first, *rest = quoted.split("%")
    return "%".join([first, *(part[:2].lower() + part[2:] for part in rest)])


def _base64(secret: str) -> Iterator[str]:
    from base64 import b64encode, urlsafe_b64encode  # noqa: PLC0415 -- as above

    for encode in (b64encode, urlsafe_b64encode):
        encoded = encode(secret.encode()).decode()
        yield encoded
        yield encoded.rstrip("=")


def _within_base64(secret: str) -> Iterator[EncodedForm]:
    """The characters that the secret yields within the base64 of a longer text, for each of the three alignments.

    Only characters that depend on the secret alone: those at its edges mix its bits with those of its neighbours.
    """
    from base64 import b64encode, urlsafe_b64encode  # noqa: PLC0415 -- as above

    raw = secret.encode()
    # Base64 encodes three bytes to four characters (RFC 4648 section 4), so a secret has three possible alignments.
    for skipped in range(3):
        bits = 8 * (skipped + len(raw))
        for encode in (b64encode, urlsafe_b64encode):
            part = encode(bytes(skipped) + raw).decode()[-(-8 * skipped // 6) : bits // 6]
            yield EncodedForm(part, before=skipped > 0, after=bits % 6 > 0, padded=True)


def _escaped(secret: str) -> Iterator[str]:
    """The secret escaped for JSON, Python and HTML."""
    # Some JSON encoders, such as PHP's, escape slashes; HTML encoders differ in the quotes that they escape.
    for written in (json.dumps(secret, ensure_ascii=False)[1:-1], json.dumps(secret)[1:-1]):
        yield written
        yield written.replace("/", "\\/")
    yield repr(secret)[1:-1]
    for named in ("&<>", '&<>"'):
        text = "".join(f"&{ENTITIES[each]};" if each in named else each for each in secret)
        for apostrophe in ("'", "&apos;", "&#39;", "&#x27;"):
            yield text.replace("'", apostrophe)


_SEPARATORS: Final = frozenset(".,:_+\\")
"""Separators that are dropped in addition to spaces, line breaks, controls and dashes.

They include `+` and the backslash, which cannot be distinguished from escapes (see `without_escapes`).
"""

_UNSEEN: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
"""Characters without a glyph that are not in Unicode's category of formats."""

_SELECTORS: Final = ((0x180B, 0x180F), (0xFE00, 0xFE0F), (0xFFF0, 0xFFF8), (0xE0000, 0xE0FFF))
"""Code point ranges of variation selectors and tag characters."""

_DROPPED: Final = frozenset(("Cc", "Cf", "Pd", "Zl", "Zp", "Zs"))
"""Unicode categories of controls, formats (zero-width characters, soft hyphens), dashes and spaces."""

_MOST_KNOWN: Final = 1 << 16
"""Maximum number of cached characters. A text with all of Unicode would take 100 MB."""

_PIECE: Final = 256
"""Length of the pieces that are scanned character by character to find a position, which takes 20 microseconds."""


class _Folds(dict[int, "str | None"]):
    """Code point -> the folded character, None for a dropped one. Characters are added when they first occur.

    This is a table for `str.translate`, whose fast path for ASCII requires None instead of an empty string.
    """

    def __missing__(self, code: int) -> str | None:
        folded = _folded(chr(code)) or None
        if len(self) < _MOST_KNOWN:
            self[code] = folded
        return folded

    def length(self, character: str) -> int:
        """The number of characters that a character is folded to."""
        return len(self[ord(character)] or "")


def _folded(character: str) -> str:
    # Upper case first: a dotless i becomes I and then i, so that a text in capitals is found.
    plain = unicodedata.normalize("NFKC", character).upper().casefold()
    return "" if _is_dropped(character) else "".join(each for each in plain if not _is_dropped(each))


def _is_dropped(character: str) -> bool:
    if character in _SEPARATORS or character in _UNSEEN or unicodedata.category(character) in _DROPPED:
        return True
    code = ord(character)
    return any(first <= code <= last for first, last in _SELECTORS)


_FOLDS: Final = _Folds()


def fold(text: str) -> str:
    """Remove case, separators and invisible characters from a text; full-width characters become plain (NFKC)."""
    return text.translate(_FOLDS)


class FoldedText:
    """A folded text, with the original position of each character.

    Attributes:
        text: The folded text.
        whole: The original text.
    """

    def __init__(self, text: str) -> None:
        # Folding is per character, so the pieces joined equal the folded whole. A position is searched in one piece.
        pieces = [fold(text[start : start + _PIECE]) for start in range(0, len(text), _PIECE)]
        self.text = "".join(pieces)
        self.whole = text
        self._starts = [*accumulate(map(len, pieces), initial=0)]
        self._ends: dict[int, list[int]] = {}

    def before(self, start: int, end: int) -> tuple[int, int]:
        """The span of a part in the original text."""
        return self._place(start), self._place(end - 1) + 1

    def _place(self, position: int) -> int:
        number = bisect_right(self._starts, position) - 1
        begins = number * _PIECE
        ends = self._ends.get(number)
        if ends is None:
            piece = self.whole[begins : begins + _PIECE]
            ends = self._ends[number] = [*accumulate(map(_FOLDS.length, piece))]
        return begins + bisect_right(ends, position - self._starts[number])


# The search for secrets in a text.

_ESCAPES: Final = re.compile(r"[%\\\\&\0]")

_PERCENT_BYTE: Final = re.compile(rb"%[0-9a-fA-F]{2}")
_ROW_OF_ESCAPES: Final = re.compile(rb"(?:[%&\\][#ux]?[0-9a-zA-Z]{2,8};?){3}")
"""Three escapes in a row, which binary data rarely contains by chance, unlike a single one."""

_CONTROL: Final = re.compile(rb"[\x01-\x08\x0e-\x1a\x1c-\x1f]")

_NUMBERED: Final = re.compile(rb"\\[ux]")
_FULL_WIDTH: Final = re.compile(rb"\xef(?:\xbc[\x90-\x99\xa1-\xba]|\xbd[\x81-\x9a])")
_MATHEMATICAL: Final = re.compile(rb"\xf0\x9d[\x90-\x9f]")
"""Complete alphabets of letters and digits that are folded to ASCII."""


def is_escaped(raw: bytes) -> bool:
    """Whether a text has numeric escapes or full-width letters, which the fast check would miss."""
    # Each pattern runs only if its first byte occurs: a search for one byte is much faster than a regex.
    if b"\0" in raw:
        return True
    if b"\\" in raw and _NUMBERED.search(raw) is not None:
        return True
    if (b"&" in raw and b"&#" in raw) or (b"%" in raw and _PERCENT_BYTE.search(raw) is not None):
        return True
    if raw.isascii():
        return False
    wide = b"\xef" in raw and _FULL_WIDTH.search(raw) is not None
    return wide or (b"\xf0" in raw and _MATHEMATICAL.search(raw) is not None)


def may_be_escaped(raw: bytes) -> bool:
    """Like `is_escaped` for bytes of any kind, which may contain a single escape by chance."""
    return is_escaped(raw) if _CONTROL.search(raw) is None else _ROW_OF_ESCAPES.search(raw) is not None


def near(raw: bytes, known: Iterable[SecretSpelling]) -> list[SecretSpelling]:
    """The secrets that may occur in a text without numeric escapes."""
    contains = squeezed(raw).__contains__
    if b"%" in raw or b"&" in raw or b"\\" in raw or b"~" in raw:
        return [each for each in known if any(map(contains, each.runs))]
    return [each for each in known if any(map(contains, each.needles))]


def spans_of(text: str, near: Collection[SecretSpelling]) -> list[tuple[int, int]]:
    """The spans of secrets in a text: in their encodings, behind escapes, and without case and spacing."""
    folded = FoldedText(text)
    spans = [span for each in near for writing in each.writings for span in writing.spans_in(text)]
    spans += [span for each in near for writing in each.folded for span in writing.spans_before(folded)]
    if _ESCAPES.search(text) is None:
        return spans
    plain = without_escapes(text)
    folded = FoldedText(plain.text)
    behind = [span for each in near for writing in each.plain for span in writing.spans_in(plain.text)]
    behind += [span for each in near for writing in each.folded for span in writing.spans_before(folded)]
    return [*spans, *(plain.before(*span) for span in behind)]


def without_spans(text: str, spans: list[tuple[int, int]], hidden: str) -> str:
    """Replace each span of a text with `hidden`. Overlapping spans are replaced together."""
    pieces = []
    position = 0
    for start, end in sorted(spans):
        if start >= position:
            pieces.append(text[position:start])
        position = max(position, end)
    return hidden.join([*pieces, text[position:]])
