"""Render results of calls for MCP clients."""

from __future__ import annotations

import mimetypes
from collections.abc import Mapping
from typing import Any, Final

from toolcrib.core.model import JSON, Content, Outcome, Result
from toolcrib.core.text import compact
from toolcrib.serve.http_common.failures import explain_failure

COMPLETE: Final[Mapping[str, str]] = {"resultType": "complete"}
"""Part of every result since 2026-07-28; the SDK removes it for earlier revisions."""

OUTCOME: Final = "dev.toolcrib/outcome"
"""Key in `_meta` of a failed result: outcome, code and details."""

TITLE: Final = "dev.toolcrib/title"
"""Key in `_meta` of a content part: its title. MCP has no other field for it."""

LINKS_SINCE: Final = "2025-06-18"
"""First revision with `resource_link` parts."""

ANY_VALUE_SINCE: Final = "2026-07-28"
"""First revision in which structured content may be any JSON value; before, it must be an object."""

DEEPEST: Final = 200
"""Maximum nesting of structured content: the SDK encodes 255 levels, including those of the message."""


def render_result(name: str, result: Result, *, revision: str, declared: bool) -> dict[str, Any]:
    """A result of `tools/call`.

    The text form of the value comes first, followed by the tool's own parts. A part that only repeats the value is
    omitted. A tool that returns parts and no value gets no text form. Structured content is included for an object,
    and for any declared value if the revision allows it.

    Args:
        name: Name of the tool.
        result: The result of the call.
        revision: The negotiated MCP revision.
        declared: Whether the definition of the tool has an output schema in this revision.
    """
    if result.outcome is not Outcome.OK:
        return _failed(name, result, revision)
    value = result.value
    if value is None and result.content:
        return {**COMPLETE, "content": _parts(result.content, revision, None)}
    try:
        text = value if isinstance(value, str) else compact(value)
    except ValueError:
        return _failed(name, _TOO_DEEP, revision)
    content = [{"type": "text", "text": text}, *_parts(result.content, revision, text)]
    told: dict[str, Any] = {**COMPLETE, "content": content}
    if isinstance(value, dict) or (declared and value is not None and revision >= ANY_VALUE_SINCE):
        if _is_too_deep(value, text):
            return _failed(name, _TOO_DEEP, revision)
        told["structuredContent"] = value
    return told


_TOO_DEEP: Final = Result.failure(Outcome.LIMIT_EXCEEDED, "nested too deep", code="result_too_deep")


def _failed(name: str, result: Result, revision: str) -> dict[str, Any]:
    told = explain_failure(name, result)
    parts = _parts(result.content, revision, told.text) if told.own_words else []
    content = [{"type": "text", "text": told.text}, *parts]
    return {**COMPLETE, "content": content, "isError": True, "_meta": {OUTCOME: told.facts}}


def _is_too_deep(value: JSON, text: str) -> bool:
    # Structured content that is nested too deep raises in the SDK's encoder. Counting brackets first keeps
    # the walk away from nearly every result.
    if text.count("[") + text.count("{") <= DEEPEST:
        return False
    level: list[JSON] = [value]
    for _ in range(DEEPEST):
        level = [
            inner
            for item in level
            if isinstance(item, dict | list)
            for inner in (item.values() if isinstance(item, dict) else item)
            if isinstance(inner, dict | list)
        ]
        if not level:
            return False
    return True


def _parts(content: tuple[Content, ...], revision: str, text: str | None) -> list[dict[str, Any]]:
    parts = (_part(part, index, revision) for index, part in enumerate(content))
    return [part for part in parts if part != {"type": "text", "text": text}]


def _part(part: Content, index: int, revision: str) -> dict[str, Any]:
    if part.type == "text":
        told: dict[str, Any] = {"type": "text", "text": part.text or ""}
    elif part.type != "resource" and part.data is not None:
        told = {"type": part.type, "data": part.data, "mimeType": _mime_type(part)}
    elif part.text is None and part.data is None:
        return _link(part, index, revision)
    else:
        told = {"type": "resource", "resource": _resource(part, index)}
    return {**told, "_meta": {TITLE: part.title}} if part.title else told


def _resource(part: Content, index: int) -> dict[str, Any]:
    told: dict[str, Any] = {"uri": part.uri or f"urn:toolcrib:part:{index}"}
    if part.mime_type is not None:
        told["mimeType"] = part.mime_type
    return told | ({"text": part.text} if part.text is not None else {"blob": part.data})


def _link(part: Content, index: int, revision: str) -> dict[str, Any]:
    uri = part.uri or f"urn:toolcrib:part:{index}"
    name = part.title or uri.rstrip("/").rpartition("/")[2] or uri
    if revision < LINKS_SINCE:
        return {"type": "text", "text": uri if name in uri else f"{name}: {uri}"}
    told: dict[str, Any] = {"type": "resource_link", "uri": uri, "name": name}
    if part.title is not None:
        told["title"] = part.title
    return told if part.mime_type is None else {**told, "mimeType": part.mime_type}


def _mime_type(part: Content) -> str:
    # MCP requires `mimeType` on images and audio.
    guessed = mimetypes.guess_type(part.uri)[0] if part.uri else None
    return part.mime_type or guessed or ("image/png" if part.type == "image" else "audio/wav")
