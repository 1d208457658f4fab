"""Tools of an MCP server as descriptor files of their own."""

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
"""The keys of a file, as a reader wants them."""

_APART: Final = frozenset(("input_schema", "output_schema", "mode"))
"""Keys with an empty line before them."""

_DEVICES: Final = re.compile(r"(?i)con|prn|aux|nul|com[0-9]|lpt[0-9]")
"""Names that Windows keeps for itself, whatever the suffix."""

_MOCK_NOTE: Final = (
    "To answer without the server, in tests and scenarios, add a mock and ask for `--mode mock`:"
)


class DescriptorFile(NamedTuple):
    """A descriptor file that was read back before it is written.

    Attributes:
        tool: The server's name for the tool.
        name: The name of the descriptor.
        file: The name of the file.
        text: Its content.
        problems: What the loader says of it: warnings, placed in the text.
    """

    tool: str
    name: str
    file: str
    text: str
    problems: tuple[Problem, ...] = ()


class DescriptorFiles(NamedTuple):
    """The tools of a server as files.

    Attributes:
        files: One for each tool, in the order of listing.
        refused: The server's name for a tool -> why there is no file of it.
        remarks: What else there is to say.
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
    """The tools of a server as descriptor files.

    Each is an ordinary descriptor in our own form, in mode `mcp`, with all that the server says of the tool, so that
    from then on the file counts and not the server. It is YAML, and JSON where YAML would be read as anything else.
    A tool whose file is not read back as what the server offers is refused, and the others are not.

    Args:
        server: How the project names and filters it.
        catalogue: What it offers.
        kinds: What the installed modes say of their blocks.
        prefix: What the names begin with; as those of imported tools (`SERVER__`) unless given.
        schema: Where the files find the schema that an editor completes from; empty for none.
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
            refused[tool] = f"another tool is `{file.name}` already"
        else:
            free = _free(file.file, files)
            files[free.casefold()] = file._replace(file=free)
    unseen = [*_unseen(catalogue, [file.tool for file in files.values()])]
    return DescriptorFiles(tuple(files.values()), refused, (*catalogue.remarks, *remarks, *unseen))


def _unseen(catalogue: Catalogue, tools: Sequence[str]) -> Iterator[str]:
    """A remark on each tool with characters that people can't see and models read."""
    for tool in tools:
        found = hidden_in(catalogue.tools[tool])
        if found:
            first = f"{found[0]} of {found[0].where or 'the tool'}"
            count = f"{len(found)} hidden character{'' if len(found) == 1 else 's'}"
            yield f"the tool `{tool}` has {count}, first {first}; its file has escapes for them"


def _names(server: Server, catalogue: Catalogue, prefix: str | None) -> tuple[dict[str, str], list[str]]:
    """The server's name for each tool that is offered -> its name here; and remarks on names."""
    names, remarks = tool_names_of(server, catalogue.tools)
    if prefix is None:
        return names, remarks
    head = _head(server)
    return {tool: _named(prefix + name.removeprefix(head)) for tool, name in names.items()}, remarks


def _head(server: Server) -> str:
    """What the names of imported tools begin with."""
    (name,) = tool_names_of(Server(server.name), ["x"])[0].values()
    return name.removesuffix("x")


def _named(name: str) -> str:
    return name if name[:1].isalpha() or name[:1] == "_" else f"_{name}"


class _FileWriter:
    """Makes files of tools, and reads each of them back."""

    def __init__(self, kinds: Kinds, schema: str) -> None:
        self._kinds = kinds
        self._shape = DocumentChecker("descriptor", kinds)
        self._schema = schema

    def file_of(self, tool: str, offered: dict[str, Any]) -> DescriptorFile | str:
        """The file of a tool, or why it has none."""
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
        before, after = getattr(meant, key), getattr(read, key)
        if key == "origin":
            continue
        same = compact(before) == compact(after) if key.endswith("_schema") else before == after
        if not same:
            return f"a file would not say of its `{key}` what the server says"
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
    """A name that files have everywhere."""
    return f"{name}_" if _DEVICES.fullmatch(name.partition(".")[0]) else name


def _free(file: str, taken: Mapping[str, DescriptorFile]) -> str:
    """The name of a file that no other one has, also where case makes no difference."""
    stem, _, suffix = file.partition(".tool.")
    number = 1
    while file.casefold() in taken:
        number += 1
        file = f"{stem}_{number}.tool.{suffix}"
    return file
