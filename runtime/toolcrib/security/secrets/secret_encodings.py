"""How one secret may be written."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Final, NamedTuple

from toolcrib.security.secrets.unescape import ENTITIES, without_escapes

if TYPE_CHECKING:
    from toolcrib.security.secrets.text_folds import Folded

_TELLING: Final = 4
"""Characters from which on a secret is looked for within texts, as in `SeenSecrets`."""

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


class Writing(NamedTuple):
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

    def spans_before(self, folded: Folded) -> Iterator[tuple[int, int]]:
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


class Spelling:
    """A secret in every way that it may be written. Worked out when it is first looked for."""

    def __init__(self, secret: str) -> None:
        self._secret = secret
        self.length = len(secret)

    @cached_property
    def writings(self) -> tuple[Writing, ...]:
        """What to look for in a text as it is; nothing of a short secret."""
        secret = self._secret
        if len(secret) < _TELLING:
            return ()
        whole = (*_as_it_is(secret), *_misread(secret), *_base64(secret), *_escaped(secret))
        writings = [*map(Writing, whole), *_within_base64(secret)]
        return tuple({writing.text: writing for writing in reversed(writings)}.values())

    @cached_property
    def plain(self) -> tuple[Writing, ...]:
        """What to look for in a text whose escapes are undone."""
        changed = [writing._replace(text=without_escapes(writing.text).text) for writing in self.writings]
        return tuple(writing for writing in dict.fromkeys(changed) if len(writing.text) >= _TELLING)

    @cached_property
    def folded(self) -> tuple[Writing, ...]:
        """What to look for in a text that is folded: the secret itself, in base64, in hexadecimal."""
        from toolcrib.security.secrets.text_folds import fold  # noqa: PLC0415 -- most texts are never folded

        if not self.writings:
            return ()
        secret = self._secret
        whole = (secret, *_misread(secret), *_base64(secret), *self._hexadecimal)
        writings = (*map(Writing, whole), *_within_base64(secret))
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


def _within_base64(secret: str) -> Iterator[Writing]:
    """What base64 of a longer text holds of the secret, for each of the three places it may begin at.

    The characters at its edges hold bits of what stands beside it.
    """
    from base64 import b64encode, urlsafe_b64encode  # noqa: PLC0415 -- as above

    raw = secret.encode()
    for skipped in range(3):
        bits = 8 * (skipped + len(raw))
        for encode in (b64encode, urlsafe_b64encode):
            part = encode(bytes(skipped) + raw).decode()[-(-8 * skipped // 6) : bits // 6]
            yield Writing(part, before=skipped > 0, after=bits % 6 > 0, padded=True)


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
