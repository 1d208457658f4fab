"""Read large JSON and YAML of other systems, which need not keep to the subset of YAML that documents have.

Compared with documents: anchors, aliases, merge keys and tags are allowed, keys become texts, and of equal keys the last one
counts, which is reported. The limits are larger. An alias shares the value of its anchor, and counts as a copy.
"""

from __future__ import annotations

import json
import math
import re
from typing import Any, Final, NamedTuple

import yaml
from yaml.events import AliasEvent, NodeEvent, ScalarEvent, SequenceStartEvent

from toolcrib.core.model import JSON
from toolcrib.core.text import JSON_DECODER, DuplicateKey, NotFinite, escape_terminal
from toolcrib.loading.documents.yaml_text import LOADER, plain_scalar

NODES: Final = 4_000_000
"""Maximum number of keys and values of a YAML text, with those that aliases repeat."""

DEPTH: Final = 256
"""Maximum nesting depth."""

YAML_SIZE: Final = 1 << 20
"""Characters from which a text that begins like JSON is not read as YAML, whose flow style begins the same way."""

_NOTES: Final = 100
_ASTRAL: Final = re.compile(rb"(?<!\\)[\xf0-\xf4][\x80-\xbf]{3}")
_TEXT_TAGS: Final = ("tag:yaml.org,2002:str", "tag:yaml.org,2002:binary", "tag:yaml.org,2002:timestamp")


class ForeignText(NamedTuple):
    """A value that was read, and what had to be assumed for it, one line each."""

    value: JSON
    notes: tuple[str, ...] = ()


class UnreadableText(ValueError):
    """A text is neither JSON nor YAML, or exceeds a limit.

    Attributes:
        line: 1-based line; 0 if unknown.
    """

    def __init__(self, message: str, line: int = 0) -> None:
        super().__init__(message)
        self.line = line


def decode_foreign(content: bytes) -> str:
    """Decode a text in UTF-8 or, for JSON, UTF-16 or UTF-32.

    Raises:
        UnreadableText: It has another encoding.
    """
    encoding = json.detect_encoding(content)
    # One emoji makes Python keep four bytes for each character of a text, 50 MB of 13. In JSON, an escape means the same.
    if encoding == "utf-8" and len(content) > 4 * YAML_SIZE and content.lstrip()[:1] in {b"{", b"["}:
        content = _ASTRAL.sub(_escape, content)
    try:
        return content.decode(encoding).removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise UnreadableText("it is not UTF-8", content.count(b"\n", 0, error.start) + 1) from None


def _escape(found: re.Match[bytes]) -> bytes:
    try:
        return json.dumps(found[0].decode())[1:-1].encode()
    except UnicodeDecodeError:
        return found[0]  # reported with the rest of the text


def read_foreign(text: str) -> ForeignText:
    """Read JSON, or else YAML.

    Raises:
        UnreadableText: It is neither, or exceeds a limit.
    """
    if text[:1024].lstrip()[:1] not in {"{", "["}:
        return _yaml(text)
    try:
        return ForeignText(JSON_DECODER.decode(text))
    except DuplicateKey:
        return _lenient_json(text)
    except RecursionError:
        raise UnreadableText("it is nested too deeply") from None
    except NotFinite as error:
        raise UnreadableText(str(error)) from None
    except json.JSONDecodeError as error:
        if len(text) < YAML_SIZE:  # YAML may begin with a brace, too
            try:
                return _yaml(text)
            except UnreadableText:
                pass
        raise UnreadableText(f"invalid JSON: {error.msg}", error.lineno) from None
    except ValueError as error:
        raise UnreadableText(f"invalid JSON: {error}") from None


def _lenient_json(text: str) -> ForeignText:
    notes: dict[str, None] = {}

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        made = dict(pairs)
        if len(made) < len(pairs):
            seen: set[str] = set()
            for name, _value in pairs:
                if name in seen and len(notes) < _NOTES:
                    notes[f"duplicate key `{escape_terminal(name[:60])}`; the last one counts"] = None
                seen.add(name)
        return made

    value: JSON = json.loads(text, object_pairs_hook=members)
    return ForeignText(value, tuple(notes))


def _yaml(text: str) -> ForeignText:
    try:
        return _Reader(text).read()
    except yaml.YAMLError as error:
        mark: Any = getattr(error, "problem_mark", None)
        message = getattr(error, "problem", None) or "it is not YAML"
        line = 0 if mark is None else mark.line + 1
        raise UnreadableText(f"invalid YAML: {message}", line) from None
    except RecursionError:
        raise UnreadableText("it is nested too deeply") from None


class _Reader:
    """Reads the first document of a YAML text."""

    def __init__(self, text: str) -> None:
        self._stream = LOADER(text)
        self._anchors: dict[str, tuple[JSON, int]] = {}
        self._open: set[str] = set()
        self._nodes = 0
        self._notes: dict[str, None] = {}

    def read(self) -> ForeignText:
        try:
            while (event := self._stream.get_event()) is not None:
                if isinstance(event, NodeEvent):
                    return ForeignText(self._value(event, 0), tuple(self._notes))
        finally:
            self._stream.dispose()
        raise UnreadableText("it is empty")

    def _value(self, event: Any, depth: int) -> JSON:
        line = event.start_mark.line + 1
        self._nodes += 1
        if self._nodes > NODES:
            raise UnreadableText(f"it has more than {NODES:,} keys and values", line)
        if depth > DEPTH:
            raise UnreadableText(f"it is nested deeper than {DEPTH} levels", line)
        if isinstance(event, AliasEvent):
            return self._alias(event, line)
        before = self._nodes
        if event.anchor is not None:
            self._open.add(event.anchor)
        value = self._scalar(event, line) if isinstance(event, ScalarEvent) else self._container(event, depth)
        if event.anchor is not None:
            self._open.discard(event.anchor)
            self._anchors[event.anchor] = (value, self._nodes - before + 1)
        return value

    def _alias(self, event: Any, line: int) -> JSON:
        known = self._anchors.get(event.anchor)
        if known is None or event.anchor in self._open:
            raise UnreadableText(f"the alias `*{escape_terminal(event.anchor[:60])}` has no value here", line)
        value, nodes = known
        self._nodes += nodes
        if self._nodes > NODES:
            raise UnreadableText(f"it has more than {NODES:,} keys and values, with those of aliases", line)
        return value

    @staticmethod
    def _scalar(event: Any, line: int) -> JSON:
        if not event.implicit[0] or event.tag in _TEXT_TAGS:
            return str(event.value)
        value = plain_scalar(event.value)
        if isinstance(value, float) and not math.isfinite(value):
            raise UnreadableText("a number is too large", line)
        return value

    def _container(self, event: Any, depth: int) -> JSON:
        if isinstance(event, SequenceStartEvent):
            items: list[JSON] = []
            while not isinstance(inner := self._stream.get_event(), yaml.SequenceEndEvent):
                items.append(self._value(inner, depth + 1))
            return items
        members: dict[str, JSON] = {}
        merged: list[JSON] = []
        while not isinstance(inner := self._stream.get_event(), yaml.MappingEndEvent):
            if not isinstance(inner, ScalarEvent):
                place: Any = inner.start_mark
                raise UnreadableText("a key is a list or an object", place.line + 1)
            key = str(inner.value)
            value = self._value(self._stream.get_event(), depth + 1)
            if key == "<<" and inner.implicit[0]:
                merged += value if isinstance(value, list) else [value]
                continue
            if key in members and len(self._notes) < _NOTES:
                mark: Any = inner.start_mark
                where = f"on line {mark.line + 1}"
                self._notes[f"duplicate key `{escape_terminal(key[:60])}` {where}; the last one counts"] = (
                    None
                )
            members[key] = value
        for each in merged:
            if isinstance(each, dict):
                members = {**each, **members}
        return members
