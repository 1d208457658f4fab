"""The dialects in which tools are declared, and the declarations of tools in one of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

from toolcrib.interop.declaring.declarations import Declaration
from toolcrib.interop.mcp_tools import schemas_of
from toolcrib.model import JSON, Descriptor

Envelope: TypeAlias = Callable[[str, str, dict[str, JSON]], dict[str, JSON]]
"""Name, description and schema -> what is sent."""


class Dialect(NamedTuple):
    """A form in which tools are declared.

    Attributes:
        name: Names it.
        summary: Whose it is, on one line.
        envelope: What is put around a schema.
    """

    name: str
    summary: str
    envelope: Envelope


def _plain(name: str, description: str, schema: dict[str, JSON]) -> dict[str, JSON]:
    return {"name": name, "description": description, "parameters": schema}


def _chat(name: str, description: str, schema: dict[str, JSON]) -> dict[str, JSON]:
    return {"type": "function", "function": _plain(name, description, schema)}


DIALECTS: Final[Mapping[str, Dialect]] = MappingProxyType(
    {
        each.name: each
        for each in (
            Dialect("plain", "JSON Schema as it is", _plain),
            Dialect("openai", "OpenAI's chat completions", _chat),
        )
    }
)
"""Name -> dialect."""


def declare(tools: Iterable[Descriptor], dialect: str, names: Mapping[str, str]) -> tuple[Declaration, ...]:
    """The declarations of tools, in the order of the tools' names.

    Args:
        tools: The tools.
        dialect: One of `DIALECTS`.
        names: Name of a tool -> what the model is to call it; its own name where it is not there.
    """
    form = DIALECTS[dialect]
    return tuple(
        _declared(tool, form, names.get(tool.name, tool.name))
        for tool in sorted(tools, key=lambda tool: tool.name)
    )


def _declared(tool: Descriptor, dialect: Dialect, name: str) -> Declaration:
    schema: dict[str, Any] = schemas_of(tool).input
    description = tool.description.strip() or tool.title or tool.name
    return Declaration(name, tool.name, description, schema, dialect.envelope(name, description, schema))
