"""How one secret may be written, and the search for it in texts.

A secret is known again plain, in URLs, in base64, and escaped for JSON, `repr` or HTML: `without_escapes` undoes the
escapes of a text. What is left of a text without case, separators and unseen characters (`fold`) is searched, too:
for the secret in capitals, spaced or wrapped over lines, in wrapped base64, in hexadecimal.
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


class UnescapedText(NamedTuple):
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


def without_escapes(text: str) -> UnescapedText:
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
    return UnescapedText("".join([*pieces, text[position:]]), places, spans)


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


_TELLING: Final = 4
"""Characters from which on a secret is looked for within texts, as in `redaction.Redactor`."""

_TELLING_FOLDED: Final = 8
"""The same where neither case nor spacing counts: shorter words stand in ordinary prose, as `abcd` in `a b, cd`."""

_BASE64: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_")

_PADDING: Final = re.compile("={0,2}")

_PLAIN: Final = re.compile(rb"(?:\\[nrtNRT])?([A-Za-z0-9]*)")
"""Characters that every encoding of texts leaves as they are; behind a backslash, one may be taken for an escape."""

_ASCII: Final = re.compile(b"[\0-\x7f]*")

_LINE_ENDS: Final = re.compile(rb"\\[nrt]")
"""Line breaks and tabs as JSON writes them. They may stand within a secret that is wrapped."""

_OF_LINE_ENDS: Final = (b"n", b"r", b"t")

_LETTERS: Final = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
_OTHERS: Final = bytes(code for code in range(256) if code not in _LETTERS)
_LOWER: Final = bytes(range(256)).lower()


def squeezed(raw: bytes) -> bytes:
    """The ASCII letters and digits of a text in UTF-8, in lower case: where a quick look is taken.

    However a secret is spaced, its own follow each other there.
    """
    joined = _LINE_ENDS.sub(b"", raw) if b"\\" in raw else raw
    return joined.translate(_LOWER, _OTHERS)


class EncodedForm(NamedTuple):
    """A text that gives the secret away.

    Attributes:
        text: What to look for.
        before: Whether the character of base64 before it holds a part of the secret too.
        after: Whether the one after it does.
        padded: Whether it is base64, whose end belongs to it: what is left of a text must not tell its length.
    """

    text: str
    before: bool = False
    after: bool = False
    padded: bool = False

    def spans_in(self, text: str) -> Iterator[tuple[int, int]]:
        """Where it stands: (start, end)."""
        for start, end in self._found(text):
            yield self._widened(text, start, end)

    def spans_before(self, folded: FoldedText) -> Iterator[tuple[int, int]]:
        """Where it stands in the text that was folded: (start, end)."""
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
    """A secret in every way that it may be written. Worked out when it is first looked for."""

    def __init__(self, secret: str) -> None:
        self._secret = secret
        self.length = len(secret)

    @cached_property
    def writings(self) -> tuple[EncodedForm, ...]:
        """What to look for in a text as it is; nothing of a short secret."""
        secret = self._secret
        if len(secret) < _TELLING:
            return ()
        whole = (*_as_it_is(secret), *_misread(secret), *_base64(secret), *_escaped(secret))
        writings = [*map(EncodedForm, whole), *_within_base64(secret)]
        return tuple({writing.text: writing for writing in reversed(writings)}.values())

    @cached_property
    def plain(self) -> tuple[EncodedForm, ...]:
        """What to look for in a text whose escapes are undone."""
        changed = [writing._replace(text=without_escapes(writing.text).text) for writing in self.writings]
        return tuple(writing for writing in dict.fromkeys(changed) if len(writing.text) >= _TELLING)

    @cached_property
    def folded(self) -> tuple[EncodedForm, ...]:
        """What to look for in a text that is folded: the secret itself, in base64, in hexadecimal."""
        if not self.writings:
            return ()
        secret = self._secret
        whole = (secret, *_misread(secret), *_base64(secret), *self._hexadecimal)
        writings = (*map(EncodedForm, whole), *_within_base64(secret))
        changed = [writing._replace(text=fold(writing.text)) for writing in writings]
        return tuple(each for each in dict.fromkeys(changed) if len(each.text) >= _TELLING_FOLDED)

    @cached_property
    def shortest(self) -> int:
        """Characters that a text which holds the secret has at least; of a short secret none is long enough."""
        return min(map(len, self.needles)) if self.writings else sys.maxsize

    @cached_property
    def needles(self) -> tuple[bytes, ...]:
        """What a text without escapes that holds the secret has somewhere, once it is squeezed."""
        # Between others: capitals and folding make letters of some, `SS` of a sharp s.
        ours = [squeezed(part) for part in _ASCII.findall(self._secret.encode())]
        return (max(ours, key=len), *self._encoded)

    @cached_property
    def runs(self) -> tuple[bytes, ...]:
        """The same of a text that has escapes: `%2F` puts a digit and a letter between those of the secret."""
        longest = max(_PLAIN.findall(self._secret.encode()), key=len).lower()
        # What stands before it in a text may be a backslash, too.
        return tuple(each[1:] if each[:1] in _OF_LINE_ENDS else each for each in (longest, *self._encoded))

    @cached_property
    def _encoded(self) -> tuple[bytes, ...]:
        """What is left of its encodings when they are squeezed."""
        if not self.writings:
            return ()
        texts = [*(each.text for each in _within_base64(self._secret)), *self._hexadecimal]
        return tuple(dict.fromkeys(squeezed(text.encode()) for text in texts))

    @cached_property
    def _hexadecimal(self) -> tuple[str, str]:
        """Its bytes as digits, and as a program would list them; where these are apart, folding joins them."""
        raw = self._secret.encode()
        return raw.hex(), "0x" + raw.hex(" ").replace(" ", "0x")


def _as_it_is(secret: str) -> Iterator[str]:
    """The secret itself, and as the parts of URLs and forms hold it."""
    from urllib.parse import quote, quote_plus  # noqa: PLC0415 -- a run without secrets needs none of it

    yield secret
    yield secret.replace("~", "~0").replace("/", "~1")  # in a JSON Pointer
    for safe in ("", "/"):
        for quoted in (quote(secret, safe=safe), quote_plus(secret, safe=safe)):
            yield quoted
            yield _in_lower_hex(quoted)


def _misread(secret: str) -> Iterator[str]:
    """The secret as a host, which has no case, and as others make of it who take one charset for another."""
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
    """What base64 of a longer text holds of the secret, for each of the three places it may begin at.

    The characters at its edges hold bits of what stands beside it.
    """
    from base64 import b64encode, urlsafe_b64encode  # noqa: PLC0415 -- as above

    raw = secret.encode()
    for skipped in range(3):
        bits = 8 * (skipped + len(raw))
        for encode in (b64encode, urlsafe_b64encode):
            part = encode(bytes(skipped) + raw).decode()[-(-8 * skipped // 6) : bits // 6]
            yield EncodedForm(part, before=skipped > 0, after=bits % 6 > 0, padded=True)


def _escaped(secret: str) -> Iterator[str]:
    """The secret as JSON, Python and HTML hold it; some writers of JSON escape slashes too."""
    for written in (json.dumps(secret, ensure_ascii=False)[1:-1], json.dumps(secret)[1:-1]):
        yield written
        yield written.replace("/", "\\/")
    yield repr(secret)[1:-1]
    for named in ("&<>", '&<>"'):
        text = "".join(f"&{ENTITIES[each]};" if each in named else each for each in secret)
        for apostrophe in ("'", "&apos;", "&#39;", "&#x27;"):
            yield text.replace("'", apostrophe)


_SEPARATORS: Final = frozenset(".,:_+\\")
"""What is dropped beside blanks, line breaks, controls and dashes: people and programs take characters apart with these.

`+` and the backslash are among them because they can't be told from escapes (see `without_escapes`).
"""

_UNSEEN: Final = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0")
"""Characters without a glyph that Unicode does not call formats."""

_SELECTORS: Final = ((0x180B, 0x180F), (0xFE00, 0xFE0F), (0xFFF0, 0xFFF8), (0xE0000, 0xE0FFF))
"""Where variation selectors and tag characters stand."""

_DROPPED: Final = frozenset(("Cc", "Cf", "Pd", "Zl", "Zp", "Zs"))
"""Categories of Unicode: controls, formats (zero-width characters, soft hyphens), dashes, blanks."""

_MOST_KNOWN: Final = 1 << 16
"""Characters that are remembered: a text that holds all of Unicode would take 100 MB."""

_PIECE: Final = 256
"""Characters that are looked through one by one to find a place; so many take 20 microseconds."""


class _Folds(dict[int, "str | None"]):
    """Code point -> what the character is compared as, None for nothing; filled in as characters are met.

    A table for `str.translate`, which is fast for texts in ASCII, and only if what is dropped is None and not empty.
    """

    def __missing__(self, code: int) -> str | None:
        folded = _folded(chr(code)) or None
        if len(self) < _MOST_KNOWN:
            self[code] = folded
        return folded

    def length(self, character: str) -> int:
        """How many characters stand for this one."""
        return len(self[ord(character)] or "")


def _folded(character: str) -> str:
    # To upper case first: a dotless i is an i then, as it is for who writes a text in capitals.
    plain = unicodedata.normalize("NFKC", character).upper().casefold()
    return "" if _is_dropped(character) else "".join(each for each in plain if not _is_dropped(each))


def _is_dropped(character: str) -> bool:
    if character in _SEPARATORS or character in _UNSEEN or unicodedata.category(character) in _DROPPED:
        return True
    code = ord(character)
    return any(first <= code <= last for first, last in _SELECTORS)


_FOLDS: Final = _Folds()


def fold(text: str) -> str:
    """A text without case, separators and unseen characters; full-width characters are plain ones (NFKC)."""
    return text.translate(_FOLDS)


class FoldedText:
    """A folded text, which knows where each character stood.

    Attributes:
        text: The folded text.
        whole: The text before.
    """

    def __init__(self, text: str) -> None:
        pieces = [fold(text[start : start + _PIECE]) for start in range(0, len(text), _PIECE)]
        self.text = "".join(pieces)
        self.whole = text
        self._starts = [*accumulate(map(len, pieces), initial=0)]
        self._ends: dict[int, list[int]] = {}

    def before(self, start: int, end: int) -> tuple[int, int]:
        """Where a part stood in the text before."""
        return self._place(start), self._place(end - 1) + 1

    def _place(self, position: int) -> int:
        """Where the character stood that this one came from."""
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
"""What bytes that are no text have by chance less often than one escape alone."""

_CONTROL: Final = re.compile(rb"[\x01-\x08\x0e-\x1a\x1c-\x1f]")

_NUMBERED: Final = re.compile(rb"\\[ux]")
_FULL_WIDTH: Final = re.compile(rb"\xef(?:\xbc[\x90-\x99\xa1-\xba]|\xbd[\x81-\x9a])")
_MATHEMATICAL: Final = re.compile(rb"\xf0\x9d[\x90-\x9f]")
"""Letters and digits that are folded to those of ASCII, a whole alphabet of them."""


def is_escaped(raw: bytes) -> bool:
    """Whether a quick look misses some characters: there are escapes with numbers, or letters of full width.

    One character is found much faster than several.
    """
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
    """The same of bytes that may be of any kind, in which a single escape stands by chance."""
    return is_escaped(raw) if _CONTROL.search(raw) is None else _ROW_OF_ESCAPES.search(raw) is not None


def near(raw: bytes, known: Iterable[SecretSpelling]) -> list[SecretSpelling]:
    """The secrets that may stand in a text that is not escaped."""
    contains = squeezed(raw).__contains__
    if b"%" in raw or b"&" in raw or b"\\" in raw or b"~" in raw:
        return [each for each in known if any(map(contains, each.runs))]
    return [each for each in known if any(map(contains, each.needles))]


def spans_of(text: str, near: Collection[SecretSpelling]) -> list[tuple[int, int]]:
    """Where secrets stand: as they are written, behind escapes, and where neither case nor spacing counts."""
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
    """The text with `hidden` in place of each span; of spans that overlap, in place of all of them."""
    pieces = []
    position = 0
    for start, end in sorted(spans):
        if start >= position:
            pieces.append(text[position:start])
        position = max(position, end)
    return hidden.join([*pieces, text[position:]])
