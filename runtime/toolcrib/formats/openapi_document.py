"""Tools as an OpenAPI 3.1 document with one operation for each tool.

Each operation is a POST of the arguments to `/tools/NAME`. The schemas of OpenAPI 3.1 are those of JSON Schema, so they keep
their form; only references move, since `#` is the root of the document there (OpenAPI 3.1.1, 4.6).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from toolcrib.core.model import JSON, Descriptor, Schema
from toolcrib.core.subschemas import children
from toolcrib.expressions import copy_value
from toolcrib.formats.mcp_tools import description_of, hints_of
from toolcrib.schema.dereference import dereference
from toolcrib.schema.validation import Validator

VERSION: Final = "3.1.1"
"""The version of OpenAPI that is written."""

_ERROR: Final[dict[str, JSON]] = {
    "type": "object",
    "description": "A call that did not succeed.",
    "required": ["outcome", "code", "message"],
    "properties": {
        "outcome": {"type": "string", "description": "The kind of failure, such as `invalid_arguments`."},
        "code": {"type": "string", "description": "The stable code of the failure."},
        "message": {"type": "string", "description": "What went wrong."},
        "details": {"type": "object", "description": "Facts about the failure."},
    },
}
_COMPONENT: Final = re.compile(r"[A-Za-z0-9._-]+")
_IN_PLACE: Final = frozenset(("$id", "$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveRef"))
"""Keywords whose references do not begin at the root of their schema, so that they cannot be moved."""


class OpenApiExport(NamedTuple):
    """The document and what it cannot express.

    Attributes:
        document: The OpenAPI document.
        losses: Name of a tool, and what is lost of it.
    """

    document: dict[str, JSON]
    losses: tuple[tuple[str, str], ...]


def openapi_document(
    tools: Iterable[Descriptor],
    names: Mapping[str, str],
    *,
    title: str,
    version: str,
    description: str = "",
    server: str = "",
) -> OpenApiExport:
    """The OpenAPI document of some tools, sorted by name.

    Args:
        tools: The tools.
        names: Name of a tool -> its provider-safe alias, which becomes the path and, with single underscores, the `operationId`.
        title: Title of the document.
        version: Version of the API.
        description: Description of the API; empty for none.
        server: URL of the server of `/tools/NAME`; empty for the host of the document.
    """
    paths: dict[str, JSON] = {}
    schemas: dict[str, JSON] = {"Error": _ERROR}
    losses: list[tuple[str, str]] = []
    chosen = sorted(tools, key=lambda each: each.name)
    ids = _operation_ids(names.get(tool.name, tool.name) for tool in chosen)
    for tool in chosen:
        alias = names.get(tool.name, tool.name)
        body = _component(tool.input_schema, f"{alias}.input", schemas)
        losses += ((tool.name, f"input_schema: {remark}") for remark in body.remarks)
        answer: dict[str, JSON] = {}
        if tool.output_schema is not None:
            result = _component(tool.output_schema, f"{alias}.output", schemas)
            losses += ((tool.name, f"output_schema: {remark}") for remark in result.remarks)
            answer = {"schema": result.schema}
        operation: dict[str, Any] = {
            "operationId": ids[alias],
            "summary": tool.title,
            "description": description_of(tool),
            "tags": [*tool.tags],
            "deprecated": bool(tool.deprecated),
            "externalDocs": {"url": tool.help_url} if tool.help_url else None,
            "x-annotations": hints_of(tool),
            # A client with nothing to send, such as FastMCP, sends no body.
            "requestBody": {
                **({"required": True} if _needs_arguments(tool.input_schema) else {}),
                "content": {"application/json": {"schema": body.schema}},
            },
            "responses": {
                "200": {"description": "The result.", "content": {"application/json": answer}},
                "default": {
                    "description": "The call did not succeed.",
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
                },
            },
        }
        paths[f"/tools/{alias}"] = {"post": {key: value for key, value in operation.items() if value}}
    info: dict[str, JSON] = {"title": title, "version": version}
    if description:
        info["description"] = description
    document: dict[str, JSON] = {"openapi": VERSION, "info": info}
    if server:
        document["servers"] = [{"url": server}]
    return OpenApiExport({**document, "paths": paths, "components": {"schemas": schemas}}, tuple(losses))


def _operation_ids(aliases: Iterable[str]) -> dict[str, str]:
    """Alias -> the id of its operation: the alias with single underscores, unless another operation has this id."""
    # FastMCP and others cut an id at `__`, because FastAPI writes the path behind it. All tools of a namespace would get
    # its name.
    ids: dict[str, str] = {}
    taken: set[str] = set()
    for alias in sorted(aliases, key=lambda each: ("__" in each, each)):
        single = re.sub("__+", "_", alias)
        ids[alias] = alias if single in taken else single
        taken.add(ids[alias])
    return ids


def _needs_arguments(schema: Schema) -> bool:
    """Whether a call without arguments is refused."""
    try:
        return not Validator(schema).is_valid({})
    except ValueError:
        return True


class _Placed(NamedTuple):
    schema: dict[str, JSON]
    remarks: tuple[str, ...] = ()


def _component(schema: Schema, name: str, schemas: dict[str, JSON]) -> _Placed:
    """Put a schema among the components, its definitions beside it, and return a reference to it."""
    if not isinstance(schema, dict):
        schemas[name] = schema
        return _Placed({"$ref": _pointer(name)})
    remarks: tuple[str, ...] = ()
    if any(_IN_PLACE.intersection(part) for part in _parts(schema)):
        inlined = dereference(schema)
        schema, remarks = inlined.schema, inlined.remarks
    # No part may be in the copy twice, since references are changed in place; `deepcopy` would keep parts that are one object.
    moved: dict[str, Any] = copy_value(schema)
    found = moved.get("$defs")
    # A key with other characters could not be the name of a component; its references then lead into this one.
    definitions: dict[str, Any] = (
        found if isinstance(found, dict) and all(map(_COMPONENT.fullmatch, found)) else {}
    )
    for part in _parts(moved):
        target = part.get("$ref")
        if isinstance(target, str) and target.startswith("#"):
            key, slash, rest = target.removeprefix("#/$defs/").partition("/")
            if target.startswith("#/$defs/") and key in definitions:
                part["$ref"] = f"{_pointer(f'{name}.{key}')}{slash}{rest}"
            else:
                part["$ref"] = f"{_pointer(name)}{target[1:]}"
    if definitions:
        schemas |= {f"{name}.{key}": definition for key, definition in moved.pop("$defs").items()}
    schemas[name] = moved
    return _Placed({"$ref": _pointer(name)}, remarks)


def _pointer(name: str) -> str:
    return f"#/components/schemas/{name}"


def _parts(schema: Schema) -> Iterable[dict[str, Any]]:
    """A schema and all schemas within it, but no data such as defaults."""
    waiting: list[Any] = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, dict):
            yield part
            waiting += [inner for _path, inner in children(part)]
