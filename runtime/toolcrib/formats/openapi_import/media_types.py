"""Media types of bodies and responses: how each is read and sent, and which of several is used."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, Literal, TypeAlias

from toolcrib.formats.openapi_import.references import Node, References, Refused

Form: TypeAlias = Literal["json", "form", "multipart", "text", "binary"]

_ORDER: Final[tuple[Form, ...]] = ("json", "form", "multipart", "text", "binary")
_TEXTS: Final = frozenset(
    f"application/{name}"
    for name in (
        "xml",
        "yaml",
        "x-yaml",
        "javascript",
        "graphql",
        "sql",
        "toml",
        "x-ndjson",
        "jsonl",
        "json-seq",
        "rtf",
    )
)


def essence(name: str) -> str:
    """`type/subtype` in lower case, without parameters."""
    return name.partition(";")[0].strip().lower()


def form_of(name: str) -> Form:
    """How a body of a media type is written."""
    kind = essence(name)
    if kind in {"application/json", "text/json", "*/*", "application/*", ""} or kind.endswith("+json"):
        return "json"
    if kind == "application/x-www-form-urlencoded":
        return "form"
    if kind in {"multipart/form-data", "application/form-data"}:
        return "multipart"
    if kind.startswith("text/") or kind in _TEXTS or kind.endswith(("+xml", "+yaml")):
        return "text"
    return "binary"


def chosen_media_type(members: Sequence[tuple[str, Node]], references: References) -> tuple[str, Node] | None:
    """The media type that is used of several, and what is described for it; None if there is none.

    JSON comes first, `application/json` before others, then forms, texts and bytes.
    """
    known: list[tuple[int, int, str, Node]] = []
    for place, (name, node) in enumerate(members):
        if name.startswith("x-"):
            continue
        try:
            media = references.resolve(node)
        except Refused:
            media = replace(node, value={})
        form = form_of(name)
        schema = media["schema"].value
        # Bytes under `*/*` are a file, not JSON.
        if (
            form == "json"
            and "*" in essence(name)
            and isinstance(schema, dict)
            and schema.get("format") == "binary"
        ):
            form = "binary"
            name = "application/octet-stream"  # noqa: PLW2901 -- what is sent
        rank = 2 * _ORDER.index(form) + (essence(name) != "application/json")
        known.append((rank, place, name, media))
    if not known:
        return None
    _rank, _place, name, media = min(known, key=lambda each: each[:2])
    return name, media
