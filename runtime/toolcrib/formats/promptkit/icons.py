"""Icons of MCP (2025-11-25, `Icon`) under our names."""

from __future__ import annotations

from functools import cache

from toolcrib.core.model import JSON
from toolcrib.core.schemas import envelope
from toolcrib.schema.validation import Validator

_NAMES = {"src": "src", "mimeType": "mime_type", "mime_type": "mime_type", "sizes": "sizes", "theme": "theme"}


def own_icon(icon: dict[str, JSON]) -> dict[str, JSON] | None:
    """What our form can hold of an icon; None where that is no icon."""
    parts = {_NAMES[key]: value for key, value in icon.items() if key in _NAMES}
    kept = {key: value for key, value in parts.items() if _judge(key).is_valid(value)}
    return kept if "src" in kept else None


@cache
def _judge(key: str) -> Validator:
    return Validator(envelope("descriptor")["properties"]["icons"]["items"]["properties"][key])
