"""JSON values as readable YAML that every YAML reader understands as the same value.

What could be taken for anything else is quoted: texts like `no`, `1.10` and `22:22`, and characters that are not
seen, as escapes. Texts of several lines are literal blocks, long lines are folded, small structures take one line.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Final

from toolcrib.core.model import JSON
from toolcrib.security.hidden_characters import hidden_characters

WIDTH: Final = 100
"""Columns that a line has at most, where it can be helped."""

_FLAT: Final = 2
"""Levels of a structure that may stand on one line."""

_KEY: Final = re.compile(r"[A-Za-z_$][A-Za-z0-9_$.-]*")
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_./()'-]*(?: [A-Za-z0-9_./()'-]+)*")
_RESERVED: Final = frozenset(("false", "n", "nan", "no", "null", "off", "on", "true", "y", "yes"))
"""Words that some reader of YAML takes for no text."""

_NOT_RAW: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff\ufeff\ufffe\uffff]")
_ESCAPES: Final = {'"': '\\"', "\\": "\\\\", "\n": "\\n", "\t": "\\t", "\r": "\\r"}


def yaml_of(document: Mapping[str, JSON], indent: int = 0) -> Iterator[str]:
    """The lines of a mapping in block style, its keys in their order."""
    for key, value in document.items():
        yield from _entry(" " * indent + f"{_key(key)}:", value, indent)


def _entry(lead: str, value: JSON, indent: int) -> Iterator[str]:
    """A key or dash with what follows it."""
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
    inner = value.values() if isinstance(value, dict) else ()
    several = sum(isinstance(item, dict) and bool(item) for item in inner) > 1
    return not several and _levels(value) <= _FLAT and before + 1 + len(_flow(value)) <= WIDTH


def _levels(value: JSON) -> int:
    if isinstance(value, dict):
        return 1 + max(map(_levels, value.values()), default=0)
    return 1 + max(map(_levels, value), default=0) if isinstance(value, list) else 0


def _flow(value: JSON) -> str:
    """A value on one line."""
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
    unseen = {hidden.offset for hidden in hidden_characters(text)}
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
    # A line is folded at single spaces only: any other would not come back.
    folds = len(lines) == 1 and "  " not in text
    yield f"{lead} {'>' if folds else '|'}{'' if text.endswith(chr(10)) else '-'}"
    pad = " " * (indent + 2)
    for line in _folded(lines[0], WIDTH - len(pad)) if folds else lines:
        yield pad + line if line else ""


def _can_stand_in_block(text: str, lines: list[str]) -> bool:
    """Whether a text comes back from a block as it was, with every character seen."""
    if _NOT_RAW.search(text.replace("\n", "")) or hidden_characters(text):
        return False
    if not lines[0] or not lines[-1] or lines[0][0].isspace():
        return False
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
