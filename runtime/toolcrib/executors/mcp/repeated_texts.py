"""Texts of a response that repeat its structured content, as the protocol asks servers to send for older clients.

A model that reads the value and the texts would read everything twice. Servers repeat in many forms: the value as JSON,
the text that the value wraps (`{"content": "..."}`), one member of the value, or one text per item of a list.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from typing import Final

from toolcrib.core.model import JSON, Content
from toolcrib.core.text import decode_json

_MEMBERS: Final = 32
"""Maximum number of members that are compared with each text: an answer with many of both must not take long."""

_MEDIA: Final = frozenset(("image", "audio", "resource", "resource_link"))

_UNREAD: Final = object()


def without_repeated_texts(parts: Sequence[Content], structured: JSON) -> tuple[Content, ...]:
    """The parts without texts that only repeat the structured content."""
    texts = [(part.text or "").strip() for part in parts if part.type == "text"]
    if not texts:
        return tuple(parts)
    try:
        repeated = _repeated(texts, structured)
    except RecursionError:
        return tuple(parts)
    numbers = count()
    return tuple(part for part in parts if part.type != "text" or next(numbers) not in repeated)


def _repeated(texts: list[str], structured: JSON) -> set[int]:
    """The numbers of the texts that repeat the structured content."""
    wrapped, members = _places(structured)
    found: set[int] = set()
    for place in (*wrapped, *members):
        items = [*_items(place)] if isinstance(place, list) else []
        # One text per item, before or after other texts.
        for start in {0, len(texts) - len(items)} if 0 < len(items) <= len(texts) else ():
            if all(map(_repeats_item, texts[start:], items)):
                found.update(range(start, start + len(items)))
    return found | {number for number, text in enumerate(texts) if _repeats(text, wrapped, members)}


def _places(structured: JSON) -> tuple[list[JSON], list[JSON]]:
    """The value with the values that it merely wraps, outermost first; and other values that a text may repeat."""
    wrapped = [structured]
    while isinstance(wrapped[-1], dict) and len(wrapped[-1]) == 1:
        wrapped.extend(wrapped[-1].values())
    inner = wrapped[-1]
    members = [*inner.values()] if isinstance(inner, dict) and len(inner) <= _MEMBERS else []
    lists = [place for place in (*wrapped, *members) if isinstance(place, list)]
    lines = ["\n".join(map(str, items)) for items in lists if all(isinstance(item, str) for item in items)]
    # Stripped once, because each is compared with every text.
    return [*map(_stripped, wrapped)], [*map(_stripped, members), *map(str.strip, lines)]


def _stripped(value: JSON) -> JSON:
    return value.strip() if isinstance(value, str) else value


def _items(value: list[JSON]) -> Iterator[JSON]:
    """The items of a list that servers send as texts: SDKs flatten lists, and send no text for null."""
    for item in value:
        if isinstance(item, list):
            yield from _items(item)
        elif isinstance(item, dict) and item.get("type") == "text" and isinstance(item.get("text"), str):
            yield item["text"]  # the value repeats the parts themselves
        elif item is not None and not (isinstance(item, dict) and str(item.get("type")) in _MEDIA):
            yield item


def _repeats_item(text: str, item: JSON) -> bool:
    item = _stripped(item)
    return text == item or _equals(_read(text), item)


def _repeats(text: str, wrapped: list[JSON], members: list[JSON]) -> bool:
    if not text or text in [place for place in (*wrapped, *members) if isinstance(place, str)]:
        return True
    value = _read(text)
    # A number or a truth value may equal a member by chance.
    near = [*wrapped, *members] if isinstance(value, dict | list | str) else wrapped
    return any(_equals(value, place) for place in near)


def _read(text: str) -> object:
    try:
        return decode_json(text)
    except (ValueError, RecursionError):
        return _UNREAD


def _equals(one: object, other: JSON) -> bool:
    """Whether two values are the same JSON: `1` and `1.0` are, `1` and `true` are not."""
    # Python compares fast, but takes `1` and `True` for equal.
    return one == other and _same_kinds(one, other)


def _same_kinds(one: object, other: JSON) -> bool:
    if isinstance(one, dict) and isinstance(other, dict):
        return all(_same_kinds(item, other[key]) for key, item in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return all(map(_same_kinds, one, other))
    return isinstance(one, bool) is isinstance(other, bool)
