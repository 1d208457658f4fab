"""A descriptor as an A2A skill, and as an entry of the extension for tool descriptors.

A skill (A2A 1.0, section 4.4.5) has no schema. The extension carries it, under the ID of the skill.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from toolcrib.core.model import JSON, Descriptor
from toolcrib.formats.mcp_tools import description_of, hints_of, schemas_of
from toolcrib.servers.a2a.cards import SKILL_PREFIX, TOOL_TAG, descriptor_hash

JSON_MODES: Final[tuple[str, ...]] = ("application/json", "text/plain")
"""Media types of arguments and results."""


class ToolSkill(NamedTuple):
    """A tool in an agent card.

    Attributes:
        skill: The skill.
        descriptor: Its entry in the extension.
    """

    skill: dict[str, JSON]
    descriptor: dict[str, JSON]


def skill_of(tool: Descriptor, *, inline_refs: bool = False) -> ToolSkill:
    """The skill of a tool.

    Its ID is `tool-` and the name of the tool, and its first tag is `tool`. Input and output schema are those of an MCP
    definition (`schemas_of`), and so are the annotations.

    Args:
        tool: The descriptor. The result shares its schemas and must not be modified.
        inline_refs: Whether to inline `$ref`s, for peers that cannot resolve them.
    """
    skill: dict[str, JSON] = {
        "id": f"{SKILL_PREFIX}{tool.name}",
        "name": tool.title or tool.name,
        "description": description_of(tool),
        "tags": [TOOL_TAG, *(tag for tag in tool.tags if tag != TOOL_TAG)],
    }
    schemas = schemas_of(tool, inline_refs=inline_refs)
    described: dict[str, JSON | None] = {
        "name": tool.name,
        "version": tool.version or None,
        "inputSchema": schemas.input,
        "outputSchema": schemas.output,
        "annotations": hints_of(tool) or None,
        "timeoutMs": round(tool.timeout * 1000) or None,
    }
    descriptor: dict[str, JSON] = {key: value for key, value in described.items() if value is not None}
    return ToolSkill(skill, {**descriptor, "hash": descriptor_hash(descriptor)})
