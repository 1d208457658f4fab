"""The tools of an MCP server as imported tools."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from toolcrib.core.server_config import Catalogue, Server, descriptor_of, tool_names_of
from toolcrib.formats.imported_tools import ImportedTool, ImportedTools, ImportRefusal
from toolcrib.formats.promptkit.foreign_descriptors import normalise
from toolcrib.loading.documents.document import parse_documents
from toolcrib.security.hidden_characters import hidden_in


class ServerTools(NamedTuple):
    """The tools of a server.

    Attributes:
        imported: The tools in mode `mcp`. Their keys are the names on the server.
        remarks: Further remarks for the user.
    """

    imported: ImportedTools
    remarks: tuple[str, ...]


def tools_of_server(server: Server, catalogue: Catalogue, *, prefix: str | None = None) -> ServerTools:
    """Convert the tools of a server to descriptors in mode `mcp`, with everything that the server reports about them.

    From then on, the file defines the tool and not the server.

    Args:
        server: Names and filters of the project.
        catalogue: Tools that the server offers.
        prefix: Prefix of the names; None for that of imported tools (`SERVER__`).
    """
    names, remarks = _names(server, catalogue, prefix)
    refused = [
        ImportRefusal(tool, "invalid_definition", "", why)
        for tool, why in catalogue.refused.items()
        if server.offers(tool)
    ]
    tools = []
    for tool, name in names.items():
        # The loader reads it like any bare MCP definition, so that a frozen tool is the tool that was
        # imported.
        definition = json.dumps(descriptor_of(server, catalogue.tools[tool], name))
        documents, problems = parse_documents("tool.json", definition)
        if documents:
            converted = normalise(documents[0])
            documents, problems = converted if converted is not None else (documents, problems)
        value = documents[0].value if documents else None
        errors = [problem for problem in problems if problem.severity == "error"]
        if errors or not isinstance(value, dict):
            message = "; ".join(f"{each.message} ({each.pointer or 'the whole tool'})" for each in errors[:3])
            refused.append(ImportRefusal(tool, "invalid_definition", "", message))
        else:
            tools.append(ImportedTool(tool, value))
    unseen = [*_unseen(catalogue, [tool.key for tool in tools])]
    return ServerTools(ImportedTools(tools, refused), (*catalogue.remarks, *remarks, *unseen))


def _unseen(catalogue: Catalogue, tools: Sequence[str]) -> Iterator[str]:
    """A remark on each tool with characters that are invisible to people and read by models."""
    for tool in tools:
        found = hidden_in(catalogue.tools[tool])
        if found:
            first = f"{found[0]} of {found[0].where or 'the tool'}"
            count = f"{len(found)} hidden character{'' if len(found) == 1 else 's'}"
            yield f"the tool `{tool}` contains {count} (first: {first}); its file shows them as escapes"


def _names(server: Server, catalogue: Catalogue, prefix: str | None) -> tuple[dict[str, str], list[str]]:
    """The server's name of each offered tool -> its name here; and remarks on names."""
    names, remarks = tool_names_of(server, catalogue.tools)
    # An imported tool is named by the same function, so a frozen tool keeps the name that scenarios use.
    if prefix is None:
        return names, remarks
    head = _head(server)
    return {tool: _named(prefix + name.removeprefix(head)) for tool, name in names.items()}, remarks


def _head(server: Server) -> str:
    # The prefix is derived from a name, so that its rules are in one place.
    (name,) = tool_names_of(Server(server.name), ["x"])[0].values()
    return name.removesuffix("x")


def _named(name: str) -> str:
    return name if name[:1].isalpha() or name[:1] == "_" else f"_{name}"
