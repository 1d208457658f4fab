"""What a server answers to a call, as a result (MCP 2026-07-28 and 2025-11-25, CallToolResult).

The value is `structuredContent`, else the texts: one is a text, several are joined by newlines. Where the output schema
takes no such text, one that is JSON is read, and several are a list. Everything that is no text becomes content, in
order; so do texts beside structured content that say something else. What parts say of whom they are for
(`annotations`) is not kept.
"""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as NoBase64
from collections.abc import Callable
from typing import Any, Final

from toolcrib.core.model import JSON, OUTPUT_SIZE, Content, Outcome, Result, Schema
from toolcrib.core.server_config import Catalogue
from toolcrib.core.subschemas import once_for_each
from toolcrib.core.text import DuplicateKey, canonical, decode_json, format_size
from toolcrib.schema.validation import Validator
from toolcrib.servers.mcp.failures import (
    CallTarget,
    InvalidAnswer,
    result_of_tool_error,
    result_of_unknown_tool,
    says_unknown_tool,
    split_error_number,
)
from toolcrib.servers.mcp.tool_list import approximate_size

_LONGEST_KIND: Final = 40
"""Characters of a type that is told; it is told whole or not at all, for it may hold a secret."""

_KNOWN_AS: Final = re.compile(r"^unknown tool\b|^tool .{0,200} not found\b", re.IGNORECASE | re.DOTALL)


@once_for_each
def _judge(schema: Schema | None) -> Callable[[JSON], bool]:
    return Validator(True if schema is None else schema).judge


def result_of(
    raw: dict[str, Any],
    target: CallTarget,
    schema: Schema | None,
    catalogue: Catalogue,
    hide: Callable[[str], str],
    *,
    most: int = OUTPUT_SIZE,
) -> Result:
    """The result of a call. Secrets in it are masked by the caller; but a text that is cut must hold none before.

    Args:
        raw: The answer, as it came.
        target: The tool.
        schema: The output schema in force; None for none.
        catalogue: What its server offers.
        hide: Gives a text without secrets.
        most: Bytes of an answer, roughly: its texts, and a few for everything else.

    Raises:
        Garbled: It is no answer of the protocol.
    """
    if approximate_size(raw, most) > most:
        return _too_large(target, most)
    content = _content_of(raw)
    failed = raw.get("isError")
    structured = raw.get("structuredContent")
    if not failed and structured is None and len(content) == 1:
        text = _plain_text(content[0])
        if text is not None:
            return Result.ok(_value_of_text(text, schema))  # what most answers are
    parts = [_part(part, place, raw) for place, part in enumerate(content)]
    if failed:
        said = hide("\n".join(part.text for part in parts if part.type == "text" and part.text))
        return _failed(said, parts, structured, target, catalogue)
    if structured is None:
        return _without_structure(parts, schema)
    return Result.ok(structured, content=tuple(_beside(parts, structured)))


def _content_of(raw: dict[str, Any]) -> list[Any]:
    """The parts of an answer whose other members are sound."""
    failed = raw.get("isError")
    if not isinstance(failed, bool | None):
        raise InvalidAnswer(f"its `isError` is {_kind(failed)}, and not true or false", raw)
    if raw.get("resultType", "complete") != "complete":
        raise InvalidAnswer("it is a result of a kind that was not asked for", raw)
    content = raw.get("content", [] if "structuredContent" in raw else None)
    if not isinstance(content, list):
        raise InvalidAnswer(f"its `content` is {_kind(content)}, and not a list", raw)
    return content


def _plain_text(part: Any) -> str | None:
    """The text of a part that is nothing else."""
    text = part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None
    return text if isinstance(text, str) else None


def _too_large(target: CallTarget, most: int) -> Result:
    return Result.failed(
        Outcome.LIMIT_EXCEEDED,
        f"`{target.name}`: the answer of the server `{target.server.name}` is too large: more than "
        f"{format_size(most)}, which is its `limits.output_size`; ask for less",
        code="too_large",
        details={} if target.repeatable else {"may_have_acted": True},
    )


def _failed(
    text: str, parts: list[Content], structured: JSON, target: CallTarget, catalogue: Catalogue
) -> Result:
    if says_unknown_tool(text, target.tool) and (
        target.tool not in catalogue.tools or _says_nothing_else(text)
    ):
        return result_of_unknown_tool(target, catalogue.tools)
    return result_of_tool_error(text, tuple(parts), structured)


def _says_nothing_else(text: str) -> bool:
    return _KNOWN_AS.search(split_error_number(text)[1]) is not None and len(text) < 400


def _without_structure(parts: list[Content], schema: Schema | None) -> Result:
    texts = [part.text for part in parts if part.type == "text" and part.text is not None]
    others = tuple(part for part in parts if part.type != "text")
    if not texts:
        return Result.ok(None, content=others)
    if len(texts) == 1:
        return Result.ok(_value_of_text(texts[0], schema), content=others)
    joined = "\n".join(texts)
    if schema is None or _judge(schema)(joined):
        return Result.ok(joined, content=others)
    whole = _read(joined)  # one JSON text, cut into several
    if whole is not None and _judge(schema)(whole):
        return Result.ok(whole, content=others)
    read = [_read(text) for text in texts]
    items: JSON = [text if each is None else each for text, each in zip(texts, read, strict=True)]
    return Result.ok(items if _judge(schema)(items) else joined, content=others)


def _value_of_text(text: str, schema: Schema | None) -> JSON:
    """A text as it is, unless the schema takes no such text, and it is JSON."""
    if schema is None or _judge(schema)(text):
        return text
    read = _read(text)
    return text if read is None and text.strip() != "null" else read


def _read(text: str) -> JSON:
    """The value of a JSON text; None where it is none."""
    try:
        return decode_json(text)
    except DuplicateKey as error:
        raise InvalidAnswer(f"{error} of a text that is JSON") from None
    except (ValueError, RecursionError):
        return None


def _beside(parts: list[Content], structured: JSON) -> list[Content]:
    """The parts without the texts that only repeat the structured content, as the protocol asks servers to send."""
    # FastMCP wraps up a value that is no object as `result`, and sends the value itself: of a list each item.
    wrapped = isinstance(structured, dict) and structured.keys() == {"result"}
    inner = structured["result"] if isinstance(structured, dict) and wrapped else structured
    texts = [part.text or "" for part in parts if part.type == "text"]
    if isinstance(inner, list) and len(texts) == len(inner) and all(map(_repeats, texts, inner)):
        return [part for part in parts if part.type != "text"]
    values = (inner, structured) if wrapped else (structured,)
    return [
        part
        for part in parts
        if part.type != "text" or not any(_repeats(part.text or "", value) for value in values)
    ]


def _repeats(text: str, value: JSON) -> bool:
    if text == value:
        return True
    try:
        return canonical(decode_json(text)) == canonical(value)
    except (ValueError, TypeError, RecursionError):
        return False


def _part(part: Any, place: int, raw: JSON) -> Content:
    """One part of an answer."""
    kind = part.get("type") if isinstance(part, dict) else None
    make = _PARTS.get(kind) if isinstance(kind, str) else None
    if make is None:
        what = "of a type" if isinstance(kind, str) else "no part"
        if isinstance(kind, str) and len(kind) <= _LONGEST_KIND:
            what = f"of the type `{kind}`"
        raise InvalidAnswer(
            f"part {place + 1} of its content is {what}, which the protocol does not know", raw
        )
    try:
        return make(part)
    except (_Malformed, NoBase64) as error:
        what = "its data is no base64" if isinstance(error, NoBase64) else str(error)
        raise InvalidAnswer(f"part {place + 1} of its content is malformed: {what}", raw) from None


class _Malformed(Exception):
    pass


def _text(part: dict[str, Any]) -> Content:
    return Content("text", text=_needed(part, "text"))


def _image(part: dict[str, Any]) -> Content:
    return Content("image", data=_base64(part, "data"), mime_type=_needed(part, "mimeType"))


def _audio(part: dict[str, Any]) -> Content:
    return Content("audio", data=_base64(part, "data"), mime_type=_needed(part, "mimeType"))


def _resource(part: dict[str, Any]) -> Content:
    inner = part.get("resource")
    if not isinstance(inner, dict):
        raise _Malformed("it has no `resource`")
    blob = _base64(inner, "blob") if "blob" in inner else None
    text = None if blob is not None else _needed(inner, "text")
    return Content(
        "resource", text=text, data=blob, mime_type=_optional(inner, "mimeType"), uri=_needed(inner, "uri")
    )


def _link(part: dict[str, Any]) -> Content:
    title = _optional(part, "title") or _optional(part, "name")
    return Content("resource", mime_type=_optional(part, "mimeType"), uri=_needed(part, "uri"), title=title)


_PARTS: Final[dict[str, Callable[[dict[str, Any]], Content]]] = {
    "text": _text,
    "image": _image,
    "audio": _audio,
    "resource": _resource,
    "resource_link": _link,
}


def _needed(part: dict[str, Any], key: str) -> str:
    value = part.get(key)
    if not isinstance(value, str):
        raise _Malformed(f"its `{key}` is {_kind(value)}, and not a text")
    return value


def _optional(part: dict[str, Any], key: str) -> str | None:
    return None if part.get(key) is None else _needed(part, key)


def _base64(part: dict[str, Any], key: str) -> str:
    """Base64 as it came; who shows it must be able to undo it."""
    text = _needed(part, key)
    try:
        b64decode(text, validate=True)
    except ValueError:  # NoBase64 is one; so is a character beyond ASCII
        raise NoBase64 from None
    return text


def _kind(value: object) -> str:
    if value is None:
        return "not there"
    names = {bool: "true or false", int: "a number", float: "a number", str: "a text", list: "a list"}
    return names.get(type(value), "an object")
