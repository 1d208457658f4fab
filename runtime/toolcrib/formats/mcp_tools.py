"""A descriptor as an MCP tool definition, for each revision of the protocol.

The rules are those of `Tool` in the schema of MCP 2026-07-28 and of earlier revisions, which have fewer keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from toolcrib.core.model import JSON, Annotations, Descriptor, Icon, Schema
from toolcrib.core.subschemas import SchemaIndex
from toolcrib.schema.dereference import dereference

LATEST: Final = "2026-07-28"
"""The newest MCP revision that is supported here."""

OWN: Final = "dev.toolcrib/"
"""Prefix of our keys in `_meta`."""

_SINCE: Final[Mapping[str, str]] = {
    "annotations": "2025-03-26",
    "title": "2025-06-18",
    "outputSchema": "2025-06-18",
    "_meta": "2025-06-18",
    "icons": "2025-11-25",
}
"""Key of a tool -> the first revision that has it."""

_ANY_VALUE: Final = "2026-07-28"
"""First revision in which structured content may be any JSON value; before, it must be an object."""

_HINTS: Final = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
"""MCP's names of the fields of `Annotations`, in the same order."""


class McpSchemas(NamedTuple):
    """The schemas of a tool in MCP.

    Attributes:
        input: Schema of the arguments, with `type: object` at the root.
        output: Schema of the structured content; None if the definition does not declare it.
        remarks: Differences from the tool's own schemas.
    """

    input: dict[str, JSON]
    output: dict[str, JSON] | None
    remarks: tuple[str, ...] = ()


def definition_of(
    tool: Descriptor, *, name: str | None = None, inline_refs: bool = False, revision: str = LATEST
) -> dict[str, JSON]:
    """The MCP definition of a tool, for `tools/list`.

    - `description` is never empty: it falls back to the title, then to the words of the name.
    - `inputSchema` and `outputSchema` are those of `schemas_of`.
    - `annotations` contains the hints that differ from MCP's defaults, and the title for clients from before 2025-06-18.
    - `_meta` contains the `_meta` of an imported MCP definition, and under `dev.toolcrib/` the `version`, `category`,
      `tags`, `labels`, `help_url`, `deprecated` and `experimental` of the descriptor, if set. The author, the
      file, the metadata and the blocks are not published.
    - `execution` is never set: it would promise support for tasks.

    Args:
        tool: The descriptor. The definition shares its schemas and must not be modified.
        name: The name in the definition; None for the descriptor's own.
        inline_refs: Whether to inline `$ref`s, for clients that cannot resolve them.
        revision: The MCP revision; keys that it does not have are omitted.
    """
    schemas = schemas_of(tool, inline_refs=inline_refs, revision=revision)
    definition: dict[str, JSON] = {
        "name": tool.name if name is None else name,
        "title": tool.title,
        "description": description_of(tool),
        "inputSchema": schemas.input,
        "annotations": _annotations(tool),
        "icons": [_icon(icon) for icon in tool.icons],
        "_meta": _meta(tool),
    }
    # Clients may validate strictly and refuse keys that their revision does not have.
    told: dict[str, JSON] = {
        key: value for key, value in definition.items() if value and revision >= _SINCE.get(key, "")
    }
    if schemas.output is not None:
        told["outputSchema"] = schemas.output
    return told


def schemas_of(tool: Descriptor, *, inline_refs: bool = False, revision: str = LATEST) -> McpSchemas:
    """The schemas of a tool's definition.

    They are unchanged, including keywords with `x-`: clients use `x-mcp-header`, and another toolcrib uses
    `x-secret` to redact values. `type: object` is added at the root if it is missing, because MCP requires
    it. That changes nothing, because arguments are always objects.

    The output schema is omitted if the descriptor has none or `true`, and for revisions before 2026-07-28 if
    it accepts more than objects. Results then have no structured content.
    """
    arguments = _of_objects(tool.input_schema)
    result = _output(tool.output_schema, revision)
    if not inline_refs:
        return McpSchemas(arguments, result)
    inlined = dereference(arguments)
    remarks = [f"input schema: {remark}" for remark in inlined.remarks]
    if result is None:
        return McpSchemas(_of_objects(inlined.schema), None, tuple(remarks))
    of_result = dereference(result)
    remarks += [f"output schema: {remark}" for remark in of_result.remarks]
    return McpSchemas(_of_objects(inlined.schema), _output(of_result.schema, revision), tuple(remarks))


def description_of(tool: Descriptor) -> str:
    """The description of a tool; without one its title, or the words of its name, since clients require a text."""
    if tool.description.strip():
        return tool.description
    return tool.title.strip() or " ".join(tool.name.replace("_", " ").split()) or tool.name


def has_output(tool: Descriptor, revision: str = LATEST) -> bool:
    """Whether the definition of a tool declares an output schema; without one, no structured content is sent."""
    return _output(tool.output_schema, revision) is not None


def _of_objects(schema: Schema) -> dict[str, JSON]:
    """A schema of arguments with `type: object` at the root."""
    written = _as_object(schema)
    return written if written.get("type") == "object" else {"type": "object", **written}


def _output(schema: Schema | None, revision: str) -> dict[str, JSON] | None:
    if schema is None or schema is True or revision < _SINCE["outputSchema"]:
        return None
    written = _as_object(schema)
    if revision >= _ANY_VALUE or written.get("type") == "object":
        return written
    return _of_objects(written) if _takes_objects_only(written) else None


def _as_object(schema: Schema) -> dict[str, JSON]:
    # Draft 2020-12 allows `true` and `false` as schemas, but MCP requires an object.
    if isinstance(schema, bool):
        return {} if schema else {"not": {}}
    return schema


def _takes_objects_only(schema: dict[str, JSON]) -> bool:
    # The root may be declared an object by a `$ref` or by a branch of `allOf`.
    index = SchemaIndex(schema)
    return any(site.get("type") == "object" for site in index.together([index.root], ("allOf",)))


def hints_of(tool: Descriptor) -> dict[str, JSON]:
    """The hints of a tool that differ from MCP's defaults."""
    return {
        hint: said
        for hint, said, default in zip(_HINTS, tool.annotations, Annotations(), strict=True)
        if said is not default
    }


def _annotations(tool: Descriptor) -> dict[str, JSON]:
    brought, hints = tool.metadata.get("annotations"), hints_of(tool)
    title = brought.get("title") if isinstance(brought, dict) else None
    # Clients from before 2025-06-18 show the title of the annotations, later ones that of the tool.
    title = title if isinstance(title, str) else tool.title
    return {"title": title, **hints} if title else hints


def _icon(icon: Icon) -> dict[str, JSON]:
    told = icon.as_json()
    return {("mimeType" if key == "mime_type" else key): value for key, value in told.items()}


def _meta(tool: Descriptor) -> dict[str, JSON]:
    brought = tool.metadata.get("_meta")
    return {**(brought if isinstance(brought, dict) else {}), **dict(_own_meta(tool))}


def _own_meta(tool: Descriptor) -> Iterator[tuple[str, JSON]]:
    said: dict[str, JSON] = {
        "version": tool.version,
        "category": tool.category,
        "tags": list(tool.tags),
        "labels": dict(tool.labels),
        "help_url": tool.help_url,
        "deprecated": tool.deprecated,
        "experimental": tool.experimental,
    }
    return ((OWN + key, value) for key, value in said.items() if value)
