"""JSON with comments and trailing commas, as editors write it: made JSON without moving anything.

Comments, and commas before a closing bracket, become blanks, so that every line and column stays what it was. JSON
stays as it is, and what is neither stays wrong.
"""

from __future__ import annotations

import re
from typing import Final

_STRING: Final = r'"(?:[^"\\\n]|\\.)*+"?'
_COMMENT: Final = re.compile(rf"{_STRING}|//[^\n\r]*+|/\*", re.DOTALL)
_SIGN: Final = re.compile(rf'{_STRING}|[,\[\]{{}}]|[^\s",\[\]{{}}]+', re.DOTALL)
_VISIBLE: Final = re.compile(r"[^\n\r]")


def as_json(text: bytes) -> bytes:
    """The same text without comments and trailing commas; bytes that are no UTF-8 are left in it."""
    if b"/" not in text and b"," not in text:
        return text
    decoded = text.decode("utf-8", errors="surrogateescape")
    return _without_commas(_without_comments(decoded)).encode("utf-8", errors="surrogateescape")


def _without_comments(text: str) -> str:
    """The text with blanks for `// ...` and `/* ... */`; one that is not closed is left, and refused as it stands."""
    pieces, kept, at = [], 0, 0
    while (match := _COMMENT.search(text, at)) is not None:
        at = match.end()
        if match[0].startswith('"'):
            continue
        if match[0] == "/*":
            end = text.find("*/", at)
            if end < 0:
                break
            at = end + 2
        pieces += [text[kept : match.start()], _VISIBLE.sub(" ", text[match.start() : at])]
        kept = at
    return "".join([*pieces, text[kept:]])


def _without_commas(text: str) -> str:
    """The text with blanks for commas that stand between a value and a closing bracket."""
    pieces, kept = [], 0
    before, comma = "", -1
    for match in _SIGN.finditer(text):
        sign = match[0]
        if sign in "]}" and comma >= 0:
            pieces += [text[kept:comma], " "]
            kept = comma + 1
        comma = match.start() if sign == "," and before not in {"", ",", "[", "{"} else -1
        before = sign
    return "".join([*pieces, text[kept:]])
