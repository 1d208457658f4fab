"""Write JSON values as readable YAML that every YAML parser reads back as the same value.

Text that a parser could take for something else is quoted: `no`, `1.10`, `22:22`. Invisible characters become
escapes. Text of several lines becomes a literal block, long lines are folded, and small structures stay on
one line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Final

from toolcrib.core.model import JSON
from toolcrib.security.hidden_characters import hidden_characters

WIDTH: Final = 100
"""Maximum line length; a long word or key may exceed it."""

_FLAT: Final = 2
"""Maximum nesting of a structure on one line."""

# Stricter than the grammar for plain scalars (YAML 1.2.2, 7.3.3): parsers differ at its edges.
_KEY: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$.-]*")
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_./()'-]*(?: [A-Za-z0-9_./()'-]+)*")
_RESERVED: Final = frozenset(("false", "n", "nan", "no", "null", "off", "on", "true", "y", "yes"))
"""Words that some parser does not read as text: YAML 1.1 has booleans such as `no` and `y`."""

# Not printable (YAML 1.2.2, 5.1), or a line break in YAML 1.1 (U+0085, U+2028, U+2029).
_NOT_RAW: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
_ESCAPED: Final = re.compile(rf'["\\]|{_NOT_RAW.pattern}')
_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def yaml_of(document: Mapping[str, JSON], indent: int = 0) -> Iterator[str]:
    """The lines of a mapping in block style; the order of the keys is kept."""
    for key, value in document.items():
        yield from _entry(" " * indent + f"{_key(key)}:", value, indent)


def _entry(lead: str, value: JSON, indent: int) -> Iterator[str]:
    if isinstance(value, str):
        yield from _text_entry(lead, value, indent)
        return
    if not isinstance(value, dict | list) or not value or _is_small(value, len(lead)):
        yield f"{lead} {_flow(value)}"
        return
    yield lead
    if isinstance(value, dict):
        yield from yaml_of(value, indent + 2)
        return
    for item in value:
        yield from _item(item, indent + 2)


def _item(item: JSON, indent: int) -> Iterator[str]:
    dash = " " * indent + "-"
    if not isinstance(item, dict) or not item or _is_small(item, len(dash)):
        yield from _entry(dash, item, indent)
        return
    first, *rest = yaml_of(item, indent + 2)
    yield f"{dash} {first.lstrip()}"
    yield from rest


def _is_small(value: JSON, before: int) -> bool:
    # Two nested objects on one line are hard to read, even if they fit.
    inner = value.values() if isinstance(value, dict) else ()
    several = sum(isinstance(item, dict) and bool(item) for item in inner) > 1
    return not several and _levels(value) <= _FLAT and before + 1 + len(_flow(value)) <= WIDTH


def _levels(value: JSON) -> int:
    if isinstance(value, dict):
        return 1 + max(map(_levels, value.values()), default=0)
    return 1 + max(map(_levels, value), default=0) if isinstance(value, list) else 0


def _flow(value: JSON) -> str:
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_key(key)}: {_flow(item)}' for key, item in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(_flow, value))}]"
    return _scalar(value) if isinstance(value, str) else json.dumps(value)


def _key(key: str) -> str:
    return key if _KEY.fullmatch(key) and key.casefold() not in _RESERVED else _quoted(key)


def _scalar(text: str) -> str:
    return text if _PLAIN.fullmatch(text) and text.casefold() not in _RESERVED else _quoted(text)


def _quoted(text: str) -> str:
    # Bidirectional controls and the like can hide text from a reviewer. As escapes they are visible.
    unseen = {hidden.offset for hidden in hidden_characters(text)}
    if not unseen and not _ESCAPED.search(text):
        return f'"{text}"'
    return f'"{"".join(_character(each, place in unseen) for place, each in enumerate(text))}"'


def _character(character: str, unseen: bool) -> str:
    known = _ESCAPES.get(character)
    if known is not None or not (unseen or _NOT_RAW.match(character)):
        return known or character
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def _text_entry(lead: str, text: str, indent: int) -> Iterator[str]:
    lines = text.removesuffix("\n").split("\n")
    alone = f"{lead} {_scalar(text)}"
    if (len(lines) == 1 and len(alone) <= WIDTH) or not _can_stand_in_block(text, lines):
        yield alone
        return
    # Folding replaces a single space by a line break. Several spaces in a row would be lost.
    # A folded scalar joins its lines, so it cannot hold a text of several lines.
    folds = len(lines) == 1 and "  " not in text
    yield f"{lead} {'>' if folds else '|'}{'' if text.endswith(chr(10)) else '-'}"
    pad = " " * (indent + 2)
    for line in _folded(lines[0], WIDTH - len(pad)) if folds else lines:
        yield pad + line if line else ""


def _can_stand_in_block(text: str, lines: list[str]) -> bool:
    """Whether a block scalar keeps the text unchanged, with every character visible."""
    if _NOT_RAW.search(text.replace("\n", "")) or hidden_characters(text):
        return False
    # A leading space or an empty first line needs an indentation indicator; an empty last line needs `+`.
    if not lines[0] or not lines[-1] or lines[0][0].isspace():
        return False
    # Editors strip spaces at the end of a line.
    return not any(line != line.rstrip() for line in lines)


def _folded(line: str, width: int) -> Iterator[str]:
    part = ""
    for word in line.split(" "):
        if part and len(part) + 1 + len(word) > width:
            yield part
            part = word
        else:
            part = f"{part} {word}" if part else word
    yield part
