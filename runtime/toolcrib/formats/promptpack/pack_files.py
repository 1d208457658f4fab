"""Write a PromptPack as a pack folder: `pack.yaml`, a descriptor per tool, and the files that they refer to."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple

from toolcrib.core.errors import Problem
from toolcrib.core.model import JSON, NO_FIXTURE, Descriptor, Origin
from toolcrib.core.protocols import Files, Kinds
from toolcrib.core.text import compact
from toolcrib.formats.yaml_writer import yaml_of
from toolcrib.loading.cache.document_codec import document_of_origin
from toolcrib.loading.descriptors import OverlaidFiles, is_descriptor
from toolcrib.loading.documents.files import CachedFiles
from toolcrib.loading.packs import Pack
from toolcrib.loading.prompts import Prompt
from toolcrib.loading.sources import LoadedDocuments, parse_files

_ORDER: Final = ("name", "title", "version", "description", "annotations", "input_schema", "output_schema")
_LAST: Final = ("metadata",)
_APART: Final = frozenset(("prompts", "input_schema", "output_schema", "mode", "metadata"))
"""Keys that are preceded by an empty line."""

_DEVICES: Final = re.compile(r"(?i)con|prn|aux|nul|com[0-9]|lpt[0-9]")
"""File names that Windows reserves, with any suffix."""

_TOOLS: Final = "tools"
"""Folder of the descriptors."""


class PackFiles(NamedTuple):
    """A folder that has been read back before it is written.

    Attributes:
        contents: Path within the folder (with `/`) -> content.
        refused: Part without a file -> the reason.
        problems: Problems that the loader reports for the files.
    """

    contents: Mapping[str, str | bytes]
    refused: Mapping[str, str]
    problems: tuple[Problem, ...]


def files_of_promptpack(loaded: LoadedDocuments, pack: Pack, kinds: Kinds) -> PackFiles:
    """The files for a PromptPack and the bindings of its tools.

    Files are YAML, or JSON if YAML would be read back differently. A file that does not read back as the
    original is refused; the others are not affected.

    Args:
        loaded: The loaded PromptPack and its tools.
        pack: Its pack.
        kinds: Block schemas of the installed modes.
    """
    tools = [tool for tool in loaded.tools if tool.origin.pack == pack.name]
    return _FileSet(pack, tools, kinds).files()


class _FileSet:
    def __init__(self, pack: Pack, tools: list[Descriptor], kinds: Kinds) -> None:
        self._pack = pack
        self._tools = tools
        self._kinds = kinds
        self._refused: dict[str, str] = {}
        self._files: dict[str, str] = {}

    def files(self) -> PackFiles:
        """All files."""
        as_json: set[str] = set()
        for _attempt in ("as YAML", "with JSON if YAML changes the value"):
            contents = self._contents(as_json)
            read = parse_files(contents, self._kinds)
            different = {*self._different(read)}
            if not different:
                break
            # YAML first, because people edit the files. Files that YAML changes are written as JSON, and what
            # JSON changes, too, is refused.
            as_json |= different
        else:
            self._refuse(different, read)
            contents = self._contents(as_json)
            read = parse_files(contents, self._kinds)
        return PackFiles(contents, self._refused, tuple(read.problems))

    def _contents(self, as_json: set[str]) -> dict[str, str | bytes]:
        """The files: `as_json` lists the names that are written as JSON; refused ones are omitted."""
        told = _value(self._pack.origin)
        contents: dict[str, str | bytes] = {}
        suffix = "json" if "" in as_json else "yaml"
        self._files[""] = f"pack.{suffix}"
        contents[self._files[""]] = _text(told, suffix)
        stems: set[str] = set()
        for tool in self._tools:
            if tool.name in self._refused:
                continue
            suffix = "json" if tool.name in as_json else "yaml"
            self._files[tool.name] = f"{_TOOLS}/{_free(tool.name, stems)}.tool.{suffix}"
            contents[self._files[tool.name]] = _text(self._descriptor(tool), suffix)
            for name, content in _beside(tool.origin.files):
                path = posixpath.normpath(f"{_TOOLS}/{name}")
                # A bindings file may refer to files outside of the folder; they are not copied.
                if not path.startswith("../"):
                    contents[path] = content
        return contents

    def _descriptor(self, tool: Descriptor) -> dict[str, Any]:
        # A document with only a name is not recognised as a descriptor.
        said = _value(tool.origin)
        if is_descriptor(said, self._kinds.modes):
            return said
        return said | {"input_schema": tool.input_schema}

    def _different(self, read: LoadedDocuments) -> Iterator[str]:
        """The names of tools that differ when they are read back; the empty name is the pack."""
        back = {tool.name: tool for tool in read.tools}
        for tool in self._tools:
            if tool.name not in self._refused and (
                tool.name not in back or _essence(tool) != _essence(back[tool.name])
            ):
                yield tool.name
        own = read.packs[0] if read.packs else None
        if own is None or _prompts(own) != _prompts(self._pack):
            yield ""

    def _refuse(self, names: set[str], read: LoadedDocuments) -> None:
        """Omit files that differ when they are read back, with the loader's problem as the reason."""
        for name in sorted(names):
            told = next((each for each in read.problems if each.source == self._files[name]), None)
            why = f": {told.code}: {told.message}" if told is not None else ""
            self._refused[name or "pack"] = f"a file cannot represent it exactly{why}"


def _value(origin: Origin) -> dict[str, Any]:
    """The content of the document that something was read from, in our own form."""
    value = document_of_origin(origin).value
    said = value if isinstance(value, dict) else {}
    return {key: item for key, item in said.items() if item or key not in {"metadata", "prompts"}}


def _text(said: Mapping[str, Any], suffix: str) -> str:
    first = [key for key in _ORDER if key in said]
    rest = [key for key in said if key not in (*_ORDER, *_LAST)]
    own = {key: said[key] for key in (*first, *rest, *(key for key in _LAST if key in said))}
    if suffix == "json":
        return json.dumps(own, indent=2) + "\n"
    lines = ((("",) if key in _APART else ()) + tuple(yaml_of({key: item})) for key, item in own.items())
    return "".join(f"{line}\n" for block in lines for line in block)


def _free(name: str, stems: set[str]) -> str:
    """A unique file name, also on file systems that ignore case."""
    stem = f"{name}_" if _DEVICES.fullmatch(name.partition(".")[0]) else name
    free, number = stem, 1
    while free.casefold() in stems:
        number += 1
        free = f"{stem}_{number}"
    stems.add(free.casefold())
    return free


def _beside(files: Files | None) -> Iterator[tuple[str, bytes]]:
    """The files that a descriptor refers to, with the content from the time when it was read."""
    if isinstance(files, OverlaidFiles):
        yield from _beside(files.upper)
        yield from _beside(files.lower)
    elif isinstance(files, CachedFiles):
        yield from files.contents.items()


def _essence(tool: Descriptor) -> tuple[JSON, ...]:
    # Schemas are compared as JSON: `1` and `1.0` are equal in Python. The origin differs by nature.
    whole = tool._replace(origin=Origin(), fixture=NO_FIXTURE)
    schemas = compact([whole.input_schema, whole.output_schema])
    return (schemas, repr(whole._replace(input_schema=True, output_schema=True)))


def _prompts(pack: Pack) -> list[Prompt]:
    return [replace(prompt, place="", pack="") for prompt in pack.prompts.values()]
