"""PromptKit's `mock_parts`, turned into the content of our mocks."""

from __future__ import annotations

from typing import Any, Final

from toolcrib.core.model import JSON
from toolcrib.expressions import as_written
from toolcrib.formats.promptkit.live_block import Form

_KEYS: Final = ("type", "text", "media")
_MEDIA_KEYS: Final = ("file_path", "url", "data", "mime_type", "width", "height", "caption")
_RESOURCES: Final = ("video", "document")
_NAMES: Final = {
    "file_path": "file",
    "url": "uri",
    "data": "data",
    "mime_type": "mime_type",
    "caption": "title",
}


def put_parts(form: Form, parts: list[JSON], place: str) -> None:
    """The parts of an answer; where one gives a size, which ours do not have, all are kept in the metadata as well."""
    turned: list[JSON] = [_part(form, part, f"{place}/{index}") for index, part in enumerate(parts)]
    form.put(("mock", "content"), turned, place)
    if any(_has_size(part) for part in parts):
        form.put(("metadata", "mock_parts"), parts, place)


def _part(form: Form, part: Any, place: str) -> dict[str, Any]:
    if not isinstance(part, dict):
        form.problem("wrong_type", "a part is an object", place)
        return {"type": "text", "text": ""}
    form.check_rest(part, _KEYS, place)
    media = part.get("media", {})
    if not isinstance(media, dict):
        form.problem("wrong_type", "`media` is an object", f"{place}/media")
        media = {}
    form.check_rest(media, _MEDIA_KEYS, f"{place}/media")
    kind = part.get("type")
    turned: dict[str, Any] = {"type": "resource" if kind in _RESOURCES else kind}
    turned |= {"text": as_written(part["text"])} if "text" in part else {}
    turned |= {new: as_written(media[old]) for old, new in _NAMES.items() if old in media}
    if turned["type"] == "resource":
        turned.setdefault("uri", f"file:{media.get('file_path', 'data')}")
    return turned


def _has_size(part: JSON) -> bool:
    """Whether a part gives a width or height, which our parts do not have."""
    media = part.get("media") if isinstance(part, dict) else None
    return isinstance(media, dict) and ("width" in media or "height" in media)
