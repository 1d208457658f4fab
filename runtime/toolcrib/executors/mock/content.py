"""The content parts of a mocked answer: text, images, audio, resources."""

from __future__ import annotations

import base64
from collections.abc import Callable, Collection
from typing import Any

from toolcrib.core.errors import Problem
from toolcrib.core.model import Content, Descriptor
from toolcrib.executors.mock.variables import Scope, as_text
from toolcrib.expressions import Rendering, compile_value

Parts = Callable[[Scope], tuple[Content, ...]]


def compile_content(
    block: list[dict[str, Any]],
    pointer: str,
    tool: Descriptor,
    names: Collection[str],
    problems: list[Problem],
) -> tuple[frozenset[str], Parts, bool]:
    """Compile a `content` list.

    Returns:
        The names that the parts read of the scope, what makes the parts of one call, and whether
        they are the same for every call.
    """
    parts = [_part(entry, f"{pointer}/{index}", tool, names, problems) for index, entry in enumerate(block)]
    read = frozenset[str]().union(*(part.names for part, _make in parts))
    fixed = all(part.constant for part, _make in parts)
    return read, lambda scope: tuple(make(scope) for _part, make in parts), fixed


def _part(
    entry: dict[str, Any], pointer: str, tool: Descriptor, names: Collection[str], problems: list[Problem]
) -> tuple[Rendering, Callable[[Scope], Content]]:
    written = {key: entry.get(key) for key in ("text", "uri", "title")}
    texts = compile_value(written, names, problems, pointer)
    data = _data(entry, pointer, tool, problems)
    kind, mime_type = entry["type"], entry.get("mime_type")

    def make(scope: Scope) -> Content:
        shown: Any = texts.render(scope)
        text, uri, title = (
            None if shown[key] is None else as_text(shown[key]) for key in ("text", "uri", "title")
        )
        return Content(kind, text, data, mime_type, uri, title)

    return texts, make


def _data(entry: dict[str, Any], pointer: str, tool: Descriptor, problems: list[Problem]) -> str | None:
    if "file" in entry:
        from toolcrib.loading.documents.files import read_bytes  # noqa: PLC0415 -- most mocks read no file

        return base64.b64encode(read_bytes(tool.origin, entry["file"], f"{pointer}/file", problems)).decode(
            "ascii"
        )
    data: str | None = entry.get("data")
    if data is not None:
        try:
            base64.b64decode(data, validate=True)
        except ValueError as error:
            problems.append(
                Problem(
                    code="invalid_base64",
                    message=f"`data` is not base64: {error}",
                    pointer=f"{pointer}/data",
                    hint="encode the bytes in base64, or name a `file`",
                )
            )
    return data
