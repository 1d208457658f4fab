"""Write the tools of an MCP server as descriptor files (`toolcrib freeze`)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from toolcrib.core.errors import Problem
from toolcrib.core.model import Descriptor
from toolcrib.core.protocols import Kinds
from toolcrib.core.server_config import Catalogue, Server, descriptor_of, tool_names_of
from toolcrib.core.text import compact
from toolcrib.formats.promptkit.foreign_descriptors import normalise
from toolcrib.formats.yaml_writer import yaml_of
from toolcrib.loading.descriptors import parse_descriptor
from toolcrib.loading.document_checks import DocumentChecker
from toolcrib.loading.documents.document import parse_documents
from toolcrib.security.hidden_characters import hidden_in

_ORDER: Final = (
    "name",
    "title",
    "description",
    "annotations",
    "icons",
    "input_schema",
    "output_schema",
    "metadata",
    "mode",
    "mcp",
)
"""The keys of a file in their order."""

_APART: Final = frozenset(("input_schema", "output_schema", "mode"))
"""Keys that are preceded by an empty line."""

_DEVICES: Final = re.compile(r"(?i)con|prn|aux|nul|com[0-9]|lpt[0-9]")
"""File names that Windows reserves, with any suffix."""

_MOCK_NOTE: Final = (
    "To use the tool without the server, in tests and scenarios, add a mock and use `--mode mock`:"
)


class DescriptorFile(NamedTuple):
    """A descriptor file that has been read back before it is written.

    Attributes:
        tool: The server's name of the tool.
        name: The name of the descriptor.
        file: The name of the file.
        text: Its content.
        problems: Warnings of the loader, with positions in the text.
    """

    tool: str
    name: str
    file: str
    text: str
    problems: tuple[Problem, ...] = ()


class DescriptorFiles(NamedTuple):
    """The tools of a server as files.

    Attributes:
        files: One per tool, in the server's order.
        refused: The server's name of a tool -> the reason why there is no file for it.
        remarks: Further remarks for the user.
    """

    files: tuple[DescriptorFile, ...]
    refused: Mapping[str, str]
    remarks: tuple[str, ...]


def descriptor_files(
    server: Server,
    catalogue: Catalogue,
    kinds: Kinds,
    *,
    prefix: str | None = None,
    schema: str = "",
) -> DescriptorFiles:
    """Write the tools of a server as descriptor files.

    Each file is an ordinary descriptor in mode `mcp` with everything that the server reports about the tool.
    From then on, the file defines the tool and not the server. Files are YAML, or JSON if YAML would be read
    back differently. A tool whose file does not read back as the server's definition is refused; the other
    tools are not affected.

    Args:
        server: Names and filters of the project.
        catalogue: Tools that the server offers.
        kinds: Block schemas of the installed modes.
        prefix: Prefix of the names; None for that of imported tools (`SERVER__`).
        schema: Path or URL of the schema for editors; empty for none.
    """
    names, remarks = _names(server, catalogue, prefix)
    refused = {tool: why for tool, why in catalogue.refused.items() if server.offers(tool)}
    files: dict[str, DescriptorFile] = {}
    writer = _FileWriter(kinds, schema)
    for tool, name in names.items():
        file = writer.file_of(tool, descriptor_of(server, catalogue.tools[tool], name))
        if isinstance(file, str):
            refused[tool] = file
        elif any(file.name == other.name for other in files.values()):
            refused[tool] = f"the name `{file.name}` is already used by another tool"
        else:
            free = _free(file.file, files)
            files[free.casefold()] = file._replace(file=free)
    unseen = [*_unseen(catalogue, [file.tool for file in files.values()])]
    return DescriptorFiles(tuple(files.values()), refused, (*catalogue.remarks, *remarks, *unseen))


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


class _FileWriter:
    def __init__(self, kinds: Kinds, schema: str) -> None:
        self._kinds = kinds
        self._shape = DocumentChecker("descriptor", kinds)
        self._schema = schema

    def file_of(self, tool: str, offered: dict[str, Any]) -> DescriptorFile | str:
        """The file of a tool, or the reason why there is none."""
        # The loader reads it like any bare MCP definition, so that a frozen tool is the tool that was
        # imported.
        (document,), problems = parse_documents("tool.json", json.dumps(offered))
        normalised = normalise(document)
        if normalised is not None:
            (document,), problems = normalised
        meant, faults = parse_descriptor(document, self._kinds, self._shape)
        faults = [*problems, *faults]
        if meant is None or not isinstance(document.value, dict):
            return _told(faults)
        own = {key: document.value[key] for key in sorted(document.value, key=_ORDER.index)}
        why = ""
        # YAML first, because people will edit the file.
        for suffix, text in (("yaml", _yaml(own, self._schema)), ("json", _json(own, self._schema))):
            file = f"{_safe(meant.name)}.tool.{suffix}"
            read, problems = self._read(file, text)
            why = _difference(meant, read) if read is not None else _told(problems)
            if not why:
                return DescriptorFile(tool, meant.name, file, text, tuple(problems))
        return why

    def _read(self, source: str, text: str) -> tuple[Descriptor | None, list[Problem]]:
        documents, problems = parse_documents(source, text)
        if not documents:
            return None, problems
        read, faults = parse_descriptor(documents[0], self._kinds, self._shape)
        return read, [*problems, *faults]


def _told(problems: Sequence[Problem]) -> str:
    errors = [problem for problem in problems if problem.severity == "error"]
    return "; ".join(f"{problem.message} ({problem.pointer or 'the whole tool'})" for problem in errors[:3])


def _difference(meant: Descriptor, read: Descriptor) -> str:
    for key in Descriptor._fields:
        # The origin is the file itself.
        before, after = getattr(meant, key), getattr(read, key)
        if key == "origin":
            continue
        # By text: `1` and `1.0`, or `True` and `1`, are equal in Python.
        same = compact(before) == compact(after) if key.endswith("_schema") else before == after
        if not same:
            return f"a file cannot represent its `{key}` exactly"
    return ""


def _yaml(document: dict[str, Any], schema: str) -> str:
    return "".join(f"{line}\n" for line in _yaml_lines(document, schema))


def _yaml_lines(document: dict[str, Any], schema: str) -> Iterator[str]:
    if schema:
        yield f"# yaml-language-server: $schema={schema}"
    for key, value in document.items():
        yield from ("",) if key in _APART else ()
        yield from yaml_of({key: value})
    yield from ("", f"# {_MOCK_NOTE}")
    yield from ("# mock:", f"#   {'generate: true' if 'output_schema' in document else 'result: done'}")


def _json(document: dict[str, Any], schema: str) -> str:
    said = {"$schema": schema, **document} if schema else document
    return json.dumps(said, indent=2) + "\n"


def _safe(name: str) -> str:
    # The files may be checked out on Windows.
    return f"{name}_" if _DEVICES.fullmatch(name.partition(".")[0]) else name


def _free(file: str, taken: Mapping[str, DescriptorFile]) -> str:
    # macOS and Windows ignore case in file names.
    stem, _, suffix = file.partition(".tool.")
    number = 1
    while file.casefold() in taken:
        number += 1
        file = f"{stem}_{number}.tool.{suffix}"
    return file
