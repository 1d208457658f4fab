"""The responses of an operation: schema of the result, errors, and an example of a result."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from toolcrib.core.model import JSON, NOTHING
from toolcrib.formats.openapi_import.media_types import chosen_media_type, form_of
from toolcrib.formats.openapi_import.references import Node, References, Refused
from toolcrib.formats.openapi_import.schemas import Part, Schemas, opened, opened_list

_SUCCESS: Final = re.compile(r"2(?:[0-9][0-9]|XX)")
_FAILURE: Final = re.compile(r"[45](?:[0-9][0-9]|XX)")
_MESSAGES: Final = ("message", "detail", "error_description", "errorMessage", "error_message", "title")
"""Members of an error that are texts for a person, the best first."""

_BINARY: Final[dict[str, JSON]] = {
    "type": "object",
    "properties": {"type": {"type": "string"}, "mime_type": {"type": "string"}, "size": {"type": "integer"}},
}
"""The value of a binary response: its bytes are a content part."""

_LONGEST: Final = 200
_EXPRESSION: Final = re.compile(r"\{[{%#]|\$\{")

Tell = Callable[[str, str, str], None]


class Responses(NamedTuple):
    """What the responses of an operation say about its tool.

    Attributes:
        schema: The schema of the result, with links; None if it is unknown.
        parts: The schemas that it consists of.
        accept: The value of `Accept`, if the usual one does not ask for the media type.
        errors: The `errors` of the block.
        example: An example of a result.
        has_example: Whether there is one.
    """

    schema: Any = None
    parts: tuple[Part, ...] = ()
    accept: str = ""
    errors: Mapping[str, JSON] = NOTHING
    example: JSON = None
    has_example: bool = False


class _Answer(NamedTuple):
    """A successful response: its schema, or None if it is unknown."""

    schema: Any
    part: Part | None = None
    accept: str = ""
    examples: tuple[JSON, ...] = ()


def responses_of(
    node: Node, schemas: Schemas, produces: list[str] | None, tell: Tell, method: str
) -> Responses:
    """Read the responses of an operation.

    Args:
        node: Its `responses`.
        schemas: Converts schemas.
        produces: The media types of Swagger 2; None for OpenAPI 3.
        tell: Receives what there is to report.
        method: The method in upper case.
    """
    found: dict[str, Node] = {}
    for status, each in node.members():
        if status.startswith("x-"):
            continue
        try:
            resolved = schemas.references.resolve(each)
        except Refused as refused:
            tell("lost", each.place, f"{refused.message}; the response was removed")
            continue
        if isinstance(resolved.value, dict):
            found[status.upper()] = resolved
            if resolved.value.get("links"):
                tell("lost", resolved["links"].place, "links of a response to other operations")
    succeeding = {status: each for status, each in found.items() if _SUCCESS.fullmatch(status)}
    if not succeeding and "DEFAULT" in found:
        succeeding = {"DEFAULT": found["DEFAULT"]}
    answers = [_answer(status, each, schemas, produces, method) for status, each in succeeding.items()]
    errors = dict(_errors(found, schemas, produces, sure=bool(succeeding)))
    return _joined(answers, errors)


def _answer(status: str, node: Node, schemas: Schemas, produces: list[str] | None, method: str) -> _Answer:
    if method == "HEAD" or status in {"204", "205"}:
        return _Answer({"type": "null"})
    if produces is not None:
        media = _swagger_media(node, produces, schemas.references)
    else:
        try:
            media = chosen_media_type(
                schemas.references.resolve(node["content"]).members(), schemas.references
            )
        except Refused:
            media = None
    if media is None:
        return _Answer(None)
    name, described = media
    form = form_of(name)
    usual = form != "json" or "*" in name or name.strip().lower() in {"", "application/json", "text/json"}
    accept = "" if usual else name
    if form in {"text", "form", "multipart"}:
        return _Answer(
            {"type": "string"}, None, accept, tuple(_examples(node, described, schemas, texts=True))
        )
    if form == "binary":
        return _Answer(_BINARY, None, accept)
    schema = described["schema"]
    if isinstance(schema.value, dict) and schema.value.get("type") == "file":
        return _Answer(None, None, accept)
    examples = tuple(_examples(node, described, schemas, texts=False))
    if not isinstance(schema.value, dict | bool) or schema.value in ({}, True):
        return _Answer(None, None, accept, examples)
    part = schemas.part(schema, "response")
    return _Answer(part.schema, part, accept, examples)


def _swagger_media(node: Node, produces: list[str], references: References) -> tuple[str, Node] | None:
    if "schema" not in node.value:
        return None
    chosen = chosen_media_type([(each, node) for each in produces or ["application/json"]], references)
    return chosen or ("application/json", node)


def _examples(node: Node, media: Node, schemas: Schemas, *, texts: bool) -> list[JSON]:
    found: list[JSON] = []
    if isinstance(media.value, dict) and media.value.get("example") is not None:
        found.append(media.value["example"])
    for name, each in media["examples"].members():
        try:
            example = schemas.references.resolve(each)
        except Refused:
            continue
        # Swagger 2: media type -> the example itself.
        if media.value is node.value and "/" in name:
            if form_of(name) == "json" or texts:
                found.append(example.value)
        elif isinstance(example.value, dict):
            found += [
                example.value[key] for key in ("dataValue", "value") if example.value.get(key) is not None
            ][:1]
    schema = media["schema"]
    try:
        schema = schemas.references.resolve(schema)
    except Refused:
        return found
    if not found and isinstance(schema.value, dict) and schema.value.get("example") is not None:
        found.append(schema.value["example"])
    return found


def _joined(answers: list[_Answer], errors: dict[str, JSON]) -> Responses:
    accept = next((answer.accept for answer in answers if answer.accept), "")
    examples = [example for answer in answers for example in answer.examples]
    parts = tuple(answer.part for answer in answers if answer.part is not None)
    told: dict[str, JSON] = errors
    base = Responses(None, parts, accept, told, examples[0] if examples else None, bool(examples))
    # One response that may be anything makes the result anything.
    if not answers or any(answer.schema is None for answer in answers):
        return base
    unique: dict[str, Any] = {repr(answer.schema): answer.schema for answer in answers}
    schemas = [*unique.values()]
    joined = schemas[0] if len(schemas) == 1 else opened({"anyOf": opened_list(schemas)})
    return base._replace(schema=joined)


def _errors(
    found: dict[str, Node], schemas: Schemas, produces: list[str] | None, *, sure: bool
) -> list[tuple[str, JSON]]:
    told: list[tuple[str, JSON]] = []
    for status, node in found.items():
        if not _FAILURE.fullmatch(status) and not (status == "DEFAULT" and sure and len(found) > 1):
            continue
        entry = _error(status, node, schemas, produces)
        if entry:
            told.append((status.lower(), entry))
    return told


def _error(status: str, node: Node, schemas: Schemas, produces: list[str] | None) -> JSON:
    """The entry of a status: a code, and what the description says, with the message of the response."""
    phrase = ""
    entry: dict[str, JSON] = {}
    if status.isdigit():
        try:
            phrase = HTTPStatus(int(status)).phrase
        except ValueError:
            phrase = ""
        if phrase:
            entry["code"] = re.sub(r"[^a-z0-9]+", "_", phrase.lower())
    text = " ".join(node.text("description").split())
    known = {phrase.casefold(), status.casefold(), "error", "default", "unexpected error"}
    if not text or len(text) > _LONGEST or text.casefold().strip(".! ") in known or _EXPRESSION.search(text):
        return entry
    member = _message_member(node, schemas, produces)
    if member:
        entry["message"] = f"{text.rstrip('.:')}: {{{{ body.{member} }}}}"
    elif not node.value.get("content" if produces is None else "schema"):
        # Otherwise, the message is derived from the response: a fixed text would hide it.
        entry["message"] = text
    return entry


def _message_member(node: Node, schemas: Schemas, produces: list[str] | None) -> str:
    try:
        if produces is not None:
            schema = schemas.references.resolve(node["schema"])
        else:
            media = chosen_media_type(
                schemas.references.resolve(node["content"]).members(), schemas.references
            )
            if media is None or form_of(media[0]) != "json":
                return ""
            schema = schemas.references.resolve(media[1]["schema"])
        members = dict(schema["properties"].members())
        for name in _MESSAGES:
            if name in members and schemas.references.resolve(members[name]).value.get("type") == "string":
                return name
    except (Refused, AttributeError):
        return ""
    return ""
