"""A descriptor as an MCP tool definition, for each revision of the protocol.

The rules are those of `Tool` in the schema of MCP 2026-07-28, and of the revisions before it, which know fewer keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from toolcrib.core.model import JSON, Annotations, Descriptor, Icon, Schema
from toolcrib.core.subschemas import SchemaIndex
from toolcrib.schema.dereference import dereference

LATEST: Final = "2026-07-28"
"""The newest revision of MCP that is written here."""

OWN: Final = "dev.toolcrib/"
"""What stands before our keys in `_meta`."""

_SINCE: Final[Mapping[str, str]] = {
    "annotations": "2025-03-26",
    "title": "2025-06-18",
    "outputSchema": "2025-06-18",
    "_meta": "2025-06-18",
    "icons": "2025-11-25",
}
"""Key of a tool -> the revision that brought it."""

_ANY_VALUE: Final = "2026-07-28"
"""From this revision on structured content is any JSON value; before it is an object."""

_HINTS: Final = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
"""MCP's names of `Annotations`, in their order."""


class McpSchemas(NamedTuple):
    """The schemas of a tool as MCP has them.

    Attributes:
        input: Of the arguments; `type` is `object` at its root.
        output: Of structured content; None where the definition does not describe it.
        remarks: What is different from what was written, and what could not be done.
    """

    input: dict[str, JSON]
    output: dict[str, JSON] | None
    remarks: tuple[str, ...] = ()


def definition_of(
    tool: Descriptor, *, name: str | None = None, inline_refs: bool = False, revision: str = LATEST
) -> dict[str, JSON]:
    """The MCP tool definition of a descriptor, for `tools/list`.

    - `description` is never empty: without one it is the title, or the words of the name.
    - `inputSchema` and `outputSchema` are those of `schemas_of`.
    - `annotations` has the hints that differ from MCP's defaults; and the title, for clients from before 2025-06-18.
    - `_meta` has what a bare MCP definition brought with it; and under `dev.toolcrib/`: `version`, `category`,
      `tags`, `labels`, `help_url`, `deprecated`, `experimental`, each where the descriptor says it. Nothing else of
      the descriptor is told: not its author, its file, its metadata or its blocks.
    - `execution` is never there: it would promise tasks.

    Args:
        tool: The descriptor. Its schemas are shared with the definition, which is not to be changed.
        name: The name to give; the descriptor's own unless another is given.
        inline_refs: Whether the schemas are freed of references, for clients that do not follow them.
        revision: The revision of MCP; what it does not know is left out.
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
    told: dict[str, JSON] = {
        key: value for key, value in definition.items() if value and revision >= _SINCE.get(key, "")
    }
    if schemas.output is not None:
        told["outputSchema"] = schemas.output
    return told


def schemas_of(tool: Descriptor, *, inline_refs: bool = False, revision: str = LATEST) -> McpSchemas:
    """The schemas of a tool's definition.

    They are as they were written, keywords with `x-` included: `x-mcp-header` speaks to clients, and `x-secret`
    says what is not to be printed, to another toolcrib too. Only where MCP wants `type: object` at the root and the
    schema does not say so is it added, which changes nothing: arguments are always objects.

    No output schema is told where the descriptor has none or `true`, and for revisions before 2026-07-28 where it
    takes more than objects; then no structured content goes with results.
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
    """What a tool is for; of one without a description its title, or the words of its name, since clients want one."""
    if tool.description.strip():
        return tool.description
    return tool.title.strip() or " ".join(tool.name.replace("_", " ").split()) or tool.name


def has_output(tool: Descriptor, revision: str = LATEST) -> bool:
    """Whether the definition of a tool describes its results; without that, no structured content is sent."""
    return _output(tool.output_schema, revision) is not None


def _of_objects(schema: Schema) -> dict[str, JSON]:
    """A schema of arguments with `type: object` at its root."""
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
    """A schema as MCP can write it: never a boolean."""
    if isinstance(schema, bool):
        return {} if schema else {"not": {}}
    return schema


def _takes_objects_only(schema: dict[str, JSON]) -> bool:
    """Whether something that must hold beside the root, by reference or `allOf`, is the schema of an object."""
    index = SchemaIndex(schema)
    return any(site.get("type") == "object" for site in index.together([index.root], ("allOf",)))


def _annotations(tool: Descriptor) -> dict[str, JSON]:
    usual = Annotations()
    brought = tool.metadata.get("annotations")
    hints: dict[str, JSON] = {
        hint: said
        for hint, said, default in zip(_HINTS, tool.annotations, usual, strict=True)
        if said is not default
    }
    title = brought.get("title") if isinstance(brought, dict) else None
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
