"""How one secret may be written."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cached_property
from typing import Final, NamedTuple

from toolcrib.vault.escapes import ENTITIES, without_escapes

_TELLING: Final = 4
"""Characters from which on a secret is looked for within texts, as in `SeenSecrets`."""

_BASE64: Final = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/-_")

_PLAIN: Final = re.compile("[A-Za-z0-9]*")
"""Characters that every encoding of texts leaves as they are."""


class Writing(NamedTuple):
    """A text that gives the secret away.

    Attributes:
        text: What to look for.
        before: Whether the character of base64 before it holds a part of the secret too.
        after: Whether the one after it does.
    """

    text: str
    before: bool = False
    after: bool = False

    def spans_in(self, text: str) -> Iterator[tuple[int, int]]:
        """Where it stands: (start, end)."""
        start = text.find(self.text)
        while start >= 0:
            end = start + len(self.text)
            first = start - (self.before and start > 0 and text[start - 1] in _BASE64)
            yield first, end + (self.after and text[end : end + 1] in _BASE64)
            start = text.find(self.text, end)


class Spelling:
    """A secret in every way that it may be written. Worked out when it is first looked for."""

    def __init__(self, secret: str) -> None:
        self._secret = secret

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
    def needles(self) -> tuple[bytes, ...]:
        """What a body that holds the secret has somewhere, escapes with numbers aside: letters and digits."""
        texts = [self._secret]
        if self.writings:
            texts += [self._secret.lower(), *(writing.text for writing in _within_base64(self._secret))]
        return tuple({max(_PLAIN.findall(text), key=len).encode(): None for text in texts})


def _as_it_is(secret: str) -> Iterator[str]:
    """The secret itself, and as the parts of URLs and forms hold it."""
    from urllib.parse import quote, quote_plus  # noqa: PLC0415 -- a run without secrets needs none of it

    yield secret
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
            yield Writing(part, before=skipped > 0, after=bits % 6 > 0)


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
