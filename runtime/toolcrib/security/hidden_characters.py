"""Find characters that are invisible to people and readable to models."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from toolcrib.core.pointers import pointer_to
from toolcrib.core.text import escape_terminal

_DEEPEST: Final = 100

_BIDI: Final = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_ZERO_WIDTH: Final = "\u200b-\u200d\u2060-\u2065\ufeff\u180e"
_JOINERS: Final = "\u200c\u200d"
_BLANK: Final = "\u00ad\u034f\u115f\u1160\u17b4\u17b5\u206a-\u206f\u2028\u2029\u3164\uffa0\ufff9-\ufffb\u2800\U0001d173-\U0001d17a"
_TAGS: Final = "\U000e0000-\U000e007f"
_PRIVATE: Final = "\ue000-\uf8ff\U000f0000-\U000ffffd\U00100000-\U0010fffd"
_CONTROL: Final = "\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff"
_SELECTORS: Final = "\u180b-\u180d\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef"

_KINDS: Final = (
    (
        re.compile(f"[{_BIDI}]"),
        "changes the text direction, so that text is displayed in a different order than it is read",
    ),
    (re.compile(f"[{_TAGS}]"), "an invisible tag that a model reads as a letter"),
    (re.compile(f"[{_ZERO_WIDTH}]"), "has no width, so that it can split words or encode hidden text"),
    (re.compile(f"[{_BLANK}]"), "is displayed as nothing or as a gap"),
    (
        re.compile(f"[{_SELECTORS}]"),
        "a variation selector without a base character, which can encode a byte",
    ),
    (re.compile(f"[{_PRIVATE}]"), "a private-use character, which looks different in every font"),
    (re.compile(f"[{_CONTROL}]"), "a control character, which can control a terminal or be invisible"),
)
_ANY: Final = re.compile(f"[{_BIDI}{_TAGS}{_ZERO_WIDTH}{_BLANK}{_SELECTORS}{_PRIVATE}{_CONTROL}]")
_ORDINARY_NAME: Final = re.compile(r"[A-Za-z0-9_./-]+")

_NAMES: Final = {
    "\x7f": "DELETE",
    "\x1b": "ESCAPE",
    "\x00": "NULL",
    "\r": "CARRIAGE RETURN",
    "\x08": "BACKSPACE",
}


class HiddenCharacter(NamedTuple):
    """One invisible or misleading character.

    Attributes:
        name: Its Unicode name; `(unnamed)` if it has none.
        code: Its code point.
        offset: Number of characters before it in its text.
        where: JSON Pointer of the text in the tool definition; for a key, the pointer of the key's value.
        in_key: Whether the character is in a key, such as a parameter name.
        why: What it could hide.
    """

    name: str
    code: int
    offset: int
    where: str = ""
    in_key: bool = False
    why: str = ""

    def __str__(self) -> str:
        return f"U+{self.code:04X} {self.name} at character {self.offset + 1}"


_FLAG: Final = re.compile(
    "\U0001f3f4\U000e0067\U000e0062(?:\U000e0065\U000e006e\U000e0067|\U000e0073\U000e0063\U000e0074|\U000e0077\U000e006c\U000e0073)\U000e007f"
)
"""The flags of England, Scotland and Wales: the only tag sequences that Unicode recommends (RGI, UTS #51)."""


def hidden_characters(text: str) -> list[HiddenCharacter]:
    """List the invisible or misleading characters of a text; see `each_hidden`."""
    return [*each_hidden(text)]


def each_hidden(text: str) -> Iterator[HiddenCharacter]:
    """Yield the invisible or misleading characters of a text.

    These are direction marks, zero-width characters, tags, invisible blanks, private-use characters, lone surrogates
    and all controls except newline and tab. Ordinary uses are skipped: a variation selector after a character that is
    not an ASCII letter, a joiner between two non-ASCII characters (emoji, Persian, Hindi), a carriage return before a
    newline, and the tags of a flag.
    """
    # Most texts of tools are printable ASCII and skip the search.
    if text.isascii() and text.isprintable():
        return
    flags = {at for match in _FLAG.finditer(text) for at in range(*match.span())}
    for match in _ANY.finditer(text):
        if match.start() not in flags and not _is_ordinary(text, match.start()):
            yield _told(match)


def hidden_in(definition: Mapping[str, Any]) -> list[HiddenCharacter]:
    """List the hidden characters of a tool definition, in texts and keys at any depth."""
    return [
        found._replace(where=pointer_to(path), in_key=in_key)
        for path, text, in_key in texts_in(definition)
        for found in hidden_characters(text)
    ]


def decode_tag_characters(text: str) -> str:
    """Decode the message that the tag characters of a text spell; empty if it has no tag characters."""
    return "".join(chr(ord(each) - 0xE0000) for each in text if 0xE0020 <= ord(each) < 0xE007F)


def spell_out_hidden(text: str) -> str:
    r"""Replace hidden characters with escapes such as `\u200b`, and escape terminal controls."""
    found = hidden_characters(text)
    # From the end, so that a replacement does not shift the offsets before it.
    for each in reversed(found):
        code = f"\\u{each.code:04x}" if each.code < 0x10000 else f"\\U{each.code:08x}"
        text = text[: each.offset] + code + text[each.offset + 1 :]
    return escape_terminal(text)


def is_ordinary_name(name: str) -> bool:
    """Whether a tool name contains only ASCII letters and digits, `_`, `.`, `/` and `-`."""
    return _ORDINARY_NAME.fullmatch(name) is not None


def texts_in(
    value: Any, path: tuple[str | int, ...] = ()
) -> Iterator[tuple[tuple[str | int, ...], str, bool]]:
    """Yield the texts and keys of a value: the path, the text, and whether it is a key."""
    if isinstance(value, str):
        yield path, value, False
    # A server chooses the depth of its definitions; Python's recursion limit must not decide.
    elif len(path) > _DEEPEST:
        return
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield (*path, key), key, True
            yield from texts_in(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from texts_in(item, (*path, index))


def _is_ordinary(text: str, at: int) -> bool:
    character = text[at]
    before, after = text[at - 1 : at] if at else "", text[at + 1 : at + 2]
    if character == "\r":
        return after == "\n"
    if character in _JOINERS:
        return _is_written(before) and _is_written(after)
    if _SELECTOR.fullmatch(character):
        # Keycap emoji are an ASCII digit, `#` or `*`, followed by U+FE0F (UTS #51).
        return before in {*"0123456789#*"} - {""} if before.isascii() else not _ANY.fullmatch(before)
    return False


_SELECTOR: Final = re.compile(f"[{_SELECTORS}]")


def _is_written(character: str) -> bool:
    """Whether a joiner next to this character is ordinary writing: it is visible and not ASCII."""
    seen = not _ANY.fullmatch(character) or _SELECTOR.fullmatch(character) is not None
    return bool(character) and not character.isascii() and seen


def _told(match: re.Match[str]) -> HiddenCharacter:
    character = match[0]
    why = next(why for pattern, why in _KINDS if pattern.fullmatch(character))
    name = _NAMES.get(character, "") or unicodedata.name(character, "(unnamed)")
    return HiddenCharacter(name, ord(character), match.start(), why=why)
