"""YAML as almost everybody writes it, built from the parser's events with no more than a glance at each.

What is out of the ordinary in any way, right or wrong, is not read here: `yamltext` reads it with care, and
has the words for what is wrong. What is read here is exactly what `yamltext` would make of it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any, Final

import yaml
from yaml.events import (
    DocumentStartEvent,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)

from toolcrib.core.model import JSON
from toolcrib.loading.documents.positions import DEPTH, INTEGER_DIGITS, NODES, Found

CONSTANTS: Final[dict[str, JSON]] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}
"""Plain scalars that are no texts and no numbers."""

NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
NUMBER_STARTS: Final = "-0123456789"

_AT_A_START: Final = r"(?<![^\s\[{,:?-].)"
_MARKED: Final = re.compile(
    rf"&{_AT_A_START}(?=\S)|\*{_AT_A_START}(?=\S)|!{_AT_A_START}|\\(?:u|U0000)[dD][89a-fA-F]"
)
"""Where an anchor, an alias or a tag may stand, and half of a surrogate pair."""


class _Unusual(Exception):
    """Something that is to be read with care."""


class _Everyday:
    """Builds the documents of one text.

    Args:
        next_event: Gives the parser's events, one after the other.
    """

    def __init__(self, next_event: Callable[[], Any]) -> None:
        self._next_event = next_event
        self._nodes = 0

    def documents(self) -> list[Found]:
        """All of them.

        Raises:
            _Unusual: One of them can't be read here.
        """
        found: list[Found] = []
        self._next_event()
        while type(self._next_event()) is DocumentStartEvent:
            root = self._next_event()
            found.append(Found(len(found), root.start_mark.line + 1, self._container(type(root), 0)))
            self._next_event()
        if self._nodes > NODES:
            raise _Unusual
        return found

    def _mapping(self, level: int) -> dict[str, JSON]:
        value: dict[str, JSON] = {}
        next_event = self._next_event
        while type(event := next_event()) is ScalarEvent:
            key = event.value
            if key in value or (event.implicit[0] and (key in CONSTANTS or key[0] in "<-0123456789")):
                raise _Unusual
            event = next_event()
            if type(event) is ScalarEvent:
                text = event.value
                plain = event.implicit[0] and (text in CONSTANTS or text[0] in NUMBER_STARTS)
                value[key] = _plain(text) if plain else text
            else:
                value[key] = self._container(type(event), level)
        if type(event) is not MappingEndEvent:
            raise _Unusual
        self._nodes += 2 * len(value) + 1
        return value

    def _sequence(self, level: int) -> list[JSON]:
        value: list[JSON] = []
        next_event = self._next_event
        while type(event := next_event()) is not SequenceEndEvent:
            if type(event) is ScalarEvent:
                text = event.value
                plain = event.implicit[0] and (text in CONSTANTS or text[0] in NUMBER_STARTS)
                value.append(_plain(text) if plain else text)
            else:
                value.append(self._container(type(event), level))
        self._nodes += len(value) + 1
        return value

    def _container(self, kind: type[Any], level: int) -> JSON:
        """A list or object within `level` others."""
        if level < DEPTH and self._nodes <= NODES:
            if kind is MappingStartEvent:
                return self._mapping(level + 1)
            if kind is SequenceStartEvent:
                return self._sequence(level + 1)
        raise _Unusual


def _plain(text: str) -> JSON:
    """What a scalar without quotes says."""
    if text in CONSTANTS:
        return CONSTANTS[text]
    match = NUMBER.fullmatch(text)
    if match is None:
        return text
    if match.lastindex is None and len(text) <= INTEGER_DIGITS:
        return int(text)
    value = float(text)
    if match.lastindex is None or not math.isfinite(value):
        raise _Unusual
    return value


def read_everyday(text: str, loader: type[Any]) -> list[Found] | None:
    """The documents of a text; None where it has to be read with care.

    Args:
        text: Of characters that may stand in YAML.
        loader: Where events come from.
    """
    if _MARKED.search(text) is not None:
        return None
    try:
        stream = loader(text)
        found = _Everyday(stream.get_event).documents()
        stream.dispose()
    except (_Unusual, yaml.YAMLError, ValueError, OverflowError):
        return None
    return found or None
