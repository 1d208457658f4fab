"""Artifacts: the results of tools in the types of the A2A SDK (`urn:toolcrib:a2a:tool-descriptors:v1`).

The value of a result is a data part of an artifact with `_tool_result` in its metadata. Other parts are its content.
"""

from __future__ import annotations

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import uuid4

from a2a.types import Artifact, Part
from google.protobuf.json_format import MessageToDict
from google.protobuf.struct_pb2 import Struct, Value

from toolcrib.core.model import JSON, NOTHING, Content, MeasuredUsage, Result, Schema
from toolcrib.core.text import compact, decode_json
from toolcrib.servers.a2a.cards import EXTENSION
from toolcrib.servers.a2a.numbers import is_inexact, narrow_numbers, whole_numbers
from toolcrib.servers.mcp.failures import InvalidAnswer

RESULT: Final = "_tool_result"
"""Marks the artifact, or the message, that is the result of a tool."""

JSON_TYPE: Final = "application/json"
"""Media type of data parts."""

DEEPEST: Final = 40
"""Maximum nesting of a data part: SDKs read messages of 100 levels, and a level of a value takes two of them."""


def to_struct(value: Mapping[str, Any]) -> Struct:
    """A JSON object as a protobuf struct.

    Raises:
        OverflowError: A number is larger than any double.
    """
    made = Struct()
    made.update(dict(value))
    return made


def exact_part(value: JSON) -> Part:
    """A value as JSON text, for peers that know the extension: integers above 2^53 keep their digits."""
    marked = Struct(fields={EXTENSION: Value(struct_value=to_struct({"exact": True}))})
    return Part(text=compact(value), media_type=JSON_TYPE, metadata=marked)


def exact_value_of(part: Part) -> JSON:
    """The value of an exact part; None for any other part, and for `null`.

    Raises:
        ValueError: It is not valid JSON.
    """
    if part.WhichOneof("content") != "text" or not _is_exact(part):
        return None
    try:
        return decode_json(part.text)
    except RecursionError:
        raise ValueError("nested too deep") from None


def data_part(value: JSON) -> Part:
    """A value as a data part."""
    return Part(data=to_struct({"value": value}).fields["value"], media_type=JSON_TYPE)


def _parts_of_value(value: JSON) -> list[Part]:
    """A value as data, and as exact text if data cannot carry it exactly; as exact text alone if it is nested too deep."""
    if _is_nested_deeper(value, DEEPEST):
        return [exact_part(value)]
    return [data_part(value), exact_part(value)] if is_inexact(value) else [data_part(value)]


def _is_nested_deeper(value: JSON, levels: int) -> bool:
    if not isinstance(value, dict | list):
        return False
    items = value.values() if isinstance(value, dict) else value
    return levels == 0 or any(_is_nested_deeper(item, levels - 1) for item in items)


class ArtifactParts:
    """An artifact as far as it has arrived.

    Attributes:
        metadata: Its metadata.
        parts: Its parts.
    """

    def __init__(self, artifact: Artifact) -> None:
        self.metadata = to_json(artifact.metadata)
        self.parts = [*artifact.parts]

    def append(self, artifact: Artifact) -> None:
        """Add the parts of a chunk."""
        self.metadata |= to_json(artifact.metadata)
        self.parts += artifact.parts

    @property
    def marked(self) -> bool:
        """Whether it is the result of a tool."""
        return self.metadata.get(RESULT) is True


def to_json(message: Any) -> dict[str, Any]:
    """A protobuf value, struct or message as JSON, with integers in place of whole floats.

    Raises:
        InvalidAnswer: It contains NaN or an infinity.
    """
    made: dict[str, Any] = whole_numbers(_with_floats(message))
    return made


def _with_floats(message: Any) -> Any:
    try:
        return MessageToDict(message)
    except ValueError:
        raise InvalidAnswer("it sent NaN or an infinity, which JSON does not have") from None


class ToolValue(NamedTuple):
    """The value of an artifact.

    Attributes:
        value: The value: that of its data part, a list of the values of several, or else its text.
        content: Its other parts.
        inexact: Whether it contains integers that may have lost digits.
    """

    value: JSON
    content: tuple[Content, ...]
    inexact: bool


def value_of_parts(parts: Sequence[Part], schema: Schema | None) -> ToolValue:
    """The value and the content of the parts of a result.

    Args:
        parts: The parts.
        schema: The output schema, which tells integers and numbers apart; None for none.

    Raises:
        InvalidAnswer: A part is empty, its exact text is not valid JSON, or it contains NaN or an infinity.
    """
    data: list[JSON] = []
    exact: list[JSON] = []
    texts: list[str] = []
    content: list[Content] = []
    for place, part in enumerate(parts):
        kind = part.WhichOneof("content")
        if kind == "data":
            data.append(_with_floats(part.data))
        elif kind == "text" and _is_exact(part):
            try:
                exact.append(decode_json(part.text))
            except (ValueError, RecursionError):
                raise InvalidAnswer(f"part {place + 1} of its result is not valid JSON") from None
        elif kind == "text":
            texts.append(part.text)
        elif kind is None:
            raise InvalidAnswer(f"part {place + 1} of its result is empty")
        else:
            content.append(content_of_part(part))
    if exact and len(exact) >= len(data):
        return ToolValue(_one_or_all(exact), (*_shown(texts), *content), False)
    if data:
        whole = _one_or_all(data)
        value = narrow_numbers(whole, schema)
        return ToolValue(value, (*_shown(texts), *content), is_inexact(value))
    if texts:
        return ToolValue("\n".join(texts), tuple(content), False)
    return ToolValue(None, tuple(content), False)


def _one_or_all(values: list[JSON]) -> JSON:
    return values[0] if len(values) == 1 else values


def _shown(texts: list[str]) -> tuple[Content, ...]:
    return tuple(Content("text", text=text) for text in texts)


def _is_exact(part: Part) -> bool:
    if not part.HasField("metadata"):
        return False
    mark = to_json(part.metadata).get(EXTENSION)
    return isinstance(mark, dict) and mark.get("exact") is True


def content_of_part(part: Part) -> Content:
    """A part as content for a model or a person."""
    kind, media = part.WhichOneof("content"), part.media_type or None
    title = part.filename or None
    if kind == "text":
        return Content("text", text=part.text)
    if kind == "data":
        return Content("text", text=compact(to_json(part.data)), mime_type=JSON_TYPE)
    if kind == "url":
        return Content("resource", uri=part.url, mime_type=media, title=title)
    raw = b64encode(part.raw).decode()
    family = (media or "").partition("/")[0]
    if family == "image":
        return Content("image", data=raw, mime_type=media, title=title)
    if family == "audio":
        return Content("audio", data=raw, mime_type=media, title=title)
    return Content("resource", data=raw, mime_type=media, title=title, uri=title and f"attachment:{title}")


def result_of_parts(
    parts: Sequence[Part],
    schema: Schema | None,
    metadata: Mapping[str, Any],
    ids: Mapping[str, JSON] = NOTHING,
) -> Result:
    """The result that an artifact or a message carries; its marks are not looked at.

    Args:
        parts: Its parts.
        schema: The output schema, which tells integers and numbers apart; None for none.
        metadata: Its metadata, which becomes `meta.remote`, and `execution_time_ms` also the usage.
        ids: Further entries of `meta.remote`.

    Raises:
        InvalidAnswer: A part is not valid.
    """
    found = value_of_parts(parts, schema)
    told = {key: value for key, value in metadata.items() if key not in (RESULT, "tool_name")}
    meta: dict[str, JSON] = {"remote": {**ids, **told}}
    if found.inexact:
        meta["warnings"] = [
            "the result contains integers above 2^53, which may have lost digits on their way"
        ]
    result = Result.success(found.value, content=found.content, meta=meta)
    spent = metadata.get("execution_time_ms")
    if isinstance(spent, int | float) and not isinstance(spent, bool) and spent >= 0:
        result = result._replace(usage=MeasuredUsage.of(1, 0.0, {"remote_time": spent / 1000}))
    return result


def artifact_of_result(result: Result, artifact_id: str, metadata: Mapping[str, JSON]) -> Artifact:
    """The artifact of a result with the outcome `ok`; see `toolcrib.artifact_from_result`."""
    parts = [*_parts_of_value(result.value), *map(part_of_content, result.content)]
    told: dict[str, JSON] = {**metadata, RESULT: True, "execution_time_ms": result.usage.duration * 1000}
    if result.tool:
        told["tool_name"] = result.tool
    return Artifact(
        artifact_id=artifact_id or str(uuid4()),
        name=result.tool,
        parts=parts,
        metadata=to_struct(told),
        extensions=[EXTENSION],
    )


def part_of_content(content: Content) -> Part:
    """A content part of a result as a part of an artifact or a message."""
    media, name = content.mime_type or "", content.title or ""
    if content.data is not None:
        return Part(raw=b64decode(content.data), media_type=media, filename=name)
    if content.text is not None:
        return Part(text=content.text, media_type=media, filename=name)
    return Part(url=content.uri or "", media_type=media, filename=name)
