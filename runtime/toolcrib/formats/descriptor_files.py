"""Write imported tools as descriptor files that were read back."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

from toolcrib.core.errors import Problem
from toolcrib.core.model import Descriptor
from toolcrib.core.protocols import Kinds
from toolcrib.core.schemas import envelope
from toolcrib.core.text import canonical, compact
from toolcrib.formats.imported_tools import ImportedTools, ImportRefusal, ImportRemark
from toolcrib.formats.imports.mocks import NOT_MOCKED
from toolcrib.formats.yaml_writer import yaml_of
from toolcrib.loading.descriptors import parse_descriptor
from toolcrib.loading.document_checks import DocumentChecker
from toolcrib.loading.documents.document import parse_documents

_KEYS: Final = (*(key for key in envelope("descriptor")["properties"] if key != "mode"), "mode")
"""The keys of a file in their order; the blocks of the modes follow."""

_SCHEMAS: Final = ("input_schema", "output_schema")

APART: Final = frozenset(("input_schema", "output_schema", "mode"))
"""Keys that are preceded by an empty line."""

_DEVICES: Final = re.compile(r"(?i)con|prn|aux|nul|com[0-9]|lpt[0-9]")
"""File names that Windows reserves, with any suffix."""

_MOCK_NOTE: Final = (
    "To use the tool without the server, in tests and scenarios, add a mock and use `--mode mock`:"
)


class DescriptorFile(NamedTuple):
    """A descriptor file that has been read back before it is written.

    Attributes:
        key: The key of the tool in its source.
        name: The name of the descriptor.
        file: The name of the file.
        text: Its content.
        document: The descriptor in the file.
        problems: Warnings of the loader, with positions in the text.
    """

    key: str
    name: str
    file: str
    text: str
    document: Mapping[str, Any]
    problems: tuple[Problem, ...] = ()


class DescriptorFiles(NamedTuple):
    """The tools of a source as files.

    Attributes:
        files: One per tool, in the order of the source.
        refused: Tools without a file.
        remarks: What was left out of a file.
    """

    files: tuple[DescriptorFile, ...]
    refused: tuple[ImportRefusal, ...]
    remarks: tuple[ImportRemark, ...] = ()


def descriptor_files(imported: ImportedTools, kinds: Kinds, *, schema: str = "") -> DescriptorFiles:
    """Write imported tools as descriptor files.

    Files are YAML, or JSON if YAML would be read back differently. A tool whose file does not read back as its
    descriptor is refused; the other tools are not affected.

    Args:
        imported: The tools.
        kinds: Block schemas of the installed modes.
        schema: Path or URL of the schema for editors; empty for none.
    """
    files: dict[str, DescriptorFile] = {}
    names: set[str] = set()
    refused, remarks = [*imported.refused], []
    writer = _FileWriter(kinds, schema)
    for tool in imported.tools:
        file = writer.file_of(tool.key, tool.descriptor)
        if isinstance(file, str) and tool.descriptor.get("mock") == {"generate": True}:
            # Some schemas are too entangled to generate a value for them; the tool is useful without it.
            why, file = file, writer.file_of(tool.key, {**tool.descriptor, "mock": NOT_MOCKED})
            if not isinstance(file, str):
                remarks.append(ImportRemark("lost", tool.key, "", f"the mock is an error: {why}"))
        if isinstance(file, str):
            refused.append(ImportRefusal(tool.key, "invalid_descriptor", "", file))
        elif file.name in names:
            message = f"the name `{file.name}` is already used by another tool"
            refused.append(ImportRefusal(tool.key, "duplicate_name", "", message))
        else:
            names.add(file.name)
            free = _free(file.file, files)
            files[free.casefold()] = file._replace(file=free)
    return DescriptorFiles(tuple(files.values()), tuple(refused), tuple(remarks))


class _FileWriter:
    def __init__(self, kinds: Kinds, schema: str) -> None:
        self._kinds = kinds
        self._shape = DocumentChecker("descriptor", kinds)
        self._schema = schema

    def file_of(self, key: str, descriptor: Mapping[str, Any]) -> DescriptorFile | str:
        """The file of a tool, or the reason why there is none."""
        own = dict(sorted(descriptor.items(), key=lambda entry: _position(entry[0])))
        name = str(own.get("name"))
        # YAML first, because people will edit the file.
        file = DescriptorFile(key, name, f"{_safe(name)}.tool.yaml", yaml_text(own, self._schema), own)
        read, problems = self._read(file.file, file.text)
        if read is not None and _is_written_as(read, own):
            return file._replace(problems=tuple(problems))
        meant, faults = self._read("tool.json", json.dumps(own))
        if meant is None:
            return _told(faults)
        file = file._replace(file=f"{_safe(name)}.tool.json", text=json_text(own, self._schema))
        read, problems = self._read(file.file, file.text)
        why = _difference(meant, read) if read is not None else _told(problems)
        return why or file._replace(problems=tuple(problems))

    def _read(self, source: str, text: str) -> tuple[Descriptor | None, list[Problem]]:
        documents, problems = parse_documents(source, text)
        if not documents:
            return None, problems
        read, faults = parse_descriptor(documents[0], self._kinds, self._shape)
        return read, [*problems, *faults]


def _position(key: str) -> int:
    return _KEYS.index(key) if key in _KEYS else len(_KEYS) + (key == "mock")


def _told(problems: Sequence[Problem]) -> str:
    errors = [problem for problem in problems if problem.severity == "error"]
    return "; ".join(f"{problem.message} ({problem.pointer or 'the whole tool'})" for problem in errors[:3])


def _is_written_as(read: Descriptor, document: Mapping[str, Any]) -> bool:
    """Whether a file was read back as its document: that costs half as much as reading the document as well."""
    digest = hashlib.sha256(canonical(dict(document)).encode("utf-8")).hexdigest()
    # The digest ignores the order of keys, which models see, and the difference between `1` and `1.0`.
    return read.origin.digest == digest and all(
        compact(getattr(read, key)) == compact(document[key]) for key in _SCHEMAS if key in document
    )


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


def yaml_text(document: Mapping[str, Any], schema: str = "") -> str:
    """The text of a descriptor file in YAML.

    Args:
        document: The descriptor.
        schema: Path or URL of the schema for editors; empty for none.
    """
    return "".join(f"{line}\n" for line in _yaml_lines(document, schema))


def _yaml_lines(document: Mapping[str, Any], schema: str) -> Iterator[str]:
    if schema:
        yield f"# yaml-language-server: $schema={schema}"
    for key, value in document.items():
        yield from ("",) if key in APART else ()
        yield from yaml_of({key: value})
    if "mock" not in document:
        yield from ("", f"# {_MOCK_NOTE}")
        yield from ("# mock:", f"#   {'generate: true' if 'output_schema' in document else 'result: done'}")


def json_text(document: Mapping[str, Any], schema: str = "") -> str:
    """The text of a descriptor file in JSON; the arguments are those of `yaml_text`."""
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
