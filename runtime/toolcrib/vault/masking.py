"""How a secret may be written, and texts without it, however it was written."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from toolcrib.secrets import HIDDEN

TELLING: Final = 4
"""Characters from which on a secret is looked for within texts; a shorter one would be found everywhere."""

_ESCAPES: Final = re.compile(r"[%\\&]")
_SHORT: Final = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f"}
_ENTITIES: Final = {"&": "amp", "<": "lt", ">": "gt", '"': "quot", "'": "apos"}


class Spelling(NamedTuple):
    """One secret in every way that it may be written.

    Attributes:
        written: Texts to look for, the longest first, each with what takes it out where it is not it alone.
        escaped: The secret with any of its characters escaped, for URLs, JSON, `repr` or HTML.
        needles: What a body may hold of it, numbered escapes aside.
    """

    written: tuple[tuple[str, re.Pattern[str] | None], ...]
    escaped: re.Pattern[str]
    needles: tuple[bytes, ...]

    def hide_in(self, text: str) -> str:
        """The text with `***` in place of the secret."""
        for written, edges in self.written:
            if written in text:
                text = text.replace(written, HIDDEN) if edges is None else edges.sub(HIDDEN, text)
        if _ESCAPES.search(text) is not None:
            text = self.escaped.sub(HIDDEN, text)
        return text


def spelling_of(secret: str) -> Spelling:
    """Every way to write a secret of at least four characters."""
    parts = dict(_within_base64(secret))
    whole = dict.fromkeys([*_plain(secret), *_base64(secret)])
    both: dict[str, re.Pattern[str] | None] = {**parts, **whole}
    written = sorted(both.items(), key=lambda item: (-len(item[0]), item[0]))
    escaped = re.compile("".join(_in_any_escape(run) for run in _runs(secret)))
    return Spelling(tuple(written), escaped, tuple(needles_of(secret, both)))


def needles_of(secret: str, written: Iterable[str] = ()) -> Iterator[bytes]:
    """What a body holds that holds the secret, numbered escapes aside."""
    for needle in dict.fromkeys([secret, *written, *_in_json(secret)]):
        yield needle.encode()


def _plain(secret: str) -> Iterator[str]:
    """The secret itself, and as the parts of URLs and forms hold it."""
    from urllib.parse import quote, quote_plus  # noqa: PLC0415 -- a run without secrets needs none of it

    yield secret
    for safe in ("", "/"):
        for quoted in (quote(secret, safe=safe), quote_plus(secret, safe=safe)):
            yield quoted
            yield re.sub("%..", lambda escape: escape[0].lower(), quoted)


def _base64(secret: str) -> Iterator[str]:
    from base64 import b64encode, urlsafe_b64encode  # noqa: PLC0415 -- as above

    for encode in (b64encode, urlsafe_b64encode):
        encoded = encode(secret.encode()).decode()
        yield encoded
        yield encoded.rstrip("=")


def _within_base64(secret: str) -> Iterator[tuple[str, re.Pattern[str]]]:
    """What base64 of a longer text holds of the secret, for each of the three places it may begin at.

    The characters at its edges hold bits of what stands beside it; they are taken out with it.
    """
    from base64 import b64encode, urlsafe_b64encode  # noqa: PLC0415 -- as above

    raw = secret.encode()
    for before in range(3):
        first, last = -(-8 * before // 6), 8 * (before + len(raw)) // 6
        for encode in (b64encode, urlsafe_b64encode):
            part = encode(bytes(before) + raw).decode()[first:last]
            lead = "[A-Za-z0-9+/_-]?" if before else ""
            tail = "[A-Za-z0-9+/_-]?" if 8 * (before + len(raw)) % 6 else ""
            yield part, re.compile(f"{lead}{re.escape(part)}{tail}")


def _in_json(secret: str) -> Iterator[str]:
    """The secret as writers of JSON and Python write it without numbers; some escape slashes too."""
    import json  # noqa: PLC0415 -- as above

    written = json.dumps(secret, ensure_ascii=False)[1:-1]
    yield written
    yield written.replace("/", "\\/")
    yield repr(secret)[1:-1]


def _runs(secret: str) -> Iterator[str]:
    """The characters, with backslashes side by side as one: each may be written as several."""
    for run in re.finditer(r"\\+|[^\\]", secret, re.DOTALL):
        yield run[0]


def _in_any_escape(run: str) -> str:
    """A pattern for one character, escaped up to three times over.

    Repetitions are bounded, so that no text can make the search slow, and each alternative begins
    with a character, so that the search skips what can't begin it.
    """
    if run[0] == "\\":
        count = len(run)
        return rf"(?:\\{{{count},{8 * count}}}|(?:{_percent(run[0])}){{{count}}}|(?:{_unicode(run[0])}){{{count}}})"
    ways = [re.escape(run), _percent(run), _unicode(run)]
    if run in _ENTITIES:  # first: the shortest of them begins with the character that it stands for
        ways.insert(0, f"&{_ENTITIES[run]};|&#0{{0,4}}{ord(run)};|&#[xX]0{{0,4}}(?i:{ord(run):x});")
    if run in "\"'/":
        ways.append(rf"\\\\{{0,7}}{run}")
    if run in _SHORT:
        ways.append(rf"\\\\{{0,7}}{_SHORT[run]}")
    if run == " ":
        ways.append(r"\+")
    if not run.isascii() or not run.isprintable():
        ways.append("".join(rf"\\\\{{0,7}}x(?i:{byte:02x})" for byte in run.encode()))
        ways.append(rf"\\\\{{0,7}}x(?i:{ord(run):02x})")
    return f"(?:{'|'.join(ways)})"


def _percent(character: str) -> str:
    return "".join(f"%(?:25){{0,3}}(?i:{byte:02x})" for byte in character.encode())


def _unicode(character: str) -> str:
    raw = character.encode("utf-16-be")
    units = [raw[index : index + 2].hex() for index in range(0, len(raw), 2)]
    return "".join(rf"\\\\{{0,7}}u(?i:{unit})" for unit in units)
