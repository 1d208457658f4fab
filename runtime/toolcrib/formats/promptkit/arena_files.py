"""Write a converted PromptKit arena as a pack of tools and scenarios (`toolcrib import promptkit`)."""

from __future__ import annotations

import json
import os
import posixpath
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from toolcrib.core.errors import Problem
from toolcrib.core.model import JSON, Descriptor, Origin
from toolcrib.core.protocols import Files
from toolcrib.formats.yaml_writer import yaml_of
from toolcrib.loading.cache.document_codec import NotCacheable, document_of_origin
from toolcrib.loading.documents.document import parse_documents
from toolcrib.loading.scenarios.model import Scenario

PACK: Final = "pack.yaml"
PROJECT: Final = "toolcrib.yaml"

_FOREIGN: Final = re.compile(r"[^A-Za-z0-9_-]+")
_APART: Final = frozenset(("input_schema", "output_schema", "mode", "agent", "faults", "matrix"))
"""Keys that are preceded by an empty line."""


class ArenaFile(NamedTuple):
    """A file to write.

    Attributes:
        kind: `tool`, `scenario`, `pack`, `project`, `data` or `program`.
        name: Name of the tool or scenario; the path of any other file.
        file: Path relative to the folder of the pack.
        content: Its content.
        executable: Whether it is started.
    """

    kind: str
    name: str
    file: str
    content: bytes
    executable: bool = False


class ArenaFiles(NamedTuple):
    """The files to write.

    Attributes:
        files: The files, without duplicates.
        refused: Name of a tool or scenario -> the reason why it has no file.
    """

    files: tuple[ArenaFile, ...]
    refused: Mapping[str, str]


def files_of_arena(
    name: str, tools: Iterable[Descriptor], scenarios: Iterable[Scenario], servers: Mapping[str, JSON]
) -> ArenaFiles:
    """The files of a pack.

    Each contains the document that loading produced, so it has the same meaning. Files are YAML, or JSON if
    YAML would be read back differently.

    Args:
        name: Name of the pack; invalid characters become `-`.
        tools: Its loaded tools.
        scenarios: Its loaded scenarios.
        servers: MCP servers for a project next to it.
    """
    writer = _FileSet()
    for tool in tools:
        writer.add_tool(tool)
    for scenario in scenarios:
        writer.add_scenario(scenario)
    if not writer.files:
        return ArenaFiles((), writer.refused)
    called = _FOREIGN.sub("-", name).strip("-") or "imported"
    own = list(writer.files.values())
    own.insert(0, _file("pack", PACK, PACK, _pack(called, name)))
    if servers:
        project: dict[str, JSON] = {"project": called, "sources": ["."], "servers": dict(servers)}
        own.insert(1, _file("project", PROJECT, PROJECT, project))
    return ArenaFiles(tuple(own), writer.refused)


def _pack(called: str, name: str) -> dict[str, JSON]:
    return {
        "name": called,
        "version": "0.1.0",
        "description": f"Tools and scenarios of the PromptKit arena {name}.",
        "tools": ["tools/*.tool.*"],
        "scenarios": ["scenarios/*.scenario.*"],
    }


class _FileSet:
    """Collects files with unique names."""

    def __init__(self) -> None:
        self.files: dict[str, ArenaFile] = {}
        self.refused: dict[str, str] = {}

    def add_tool(self, tool: Descriptor) -> None:
        """Add a tool and the files that it refers to."""
        value = self._value("tool", tool.name, tool.origin)
        if value is None:
            return
        if "exec" in value:
            programs = _programs_of(value["exec"], tool.origin.source)
            why = self._collision(programs)
            if why:
                self.refused[tool.name] = why
                return
            self.files.update({each.file.casefold(): each for each in programs})
            # The files are in the same places below the descriptor as they were below the working directory.
            value = {**value, "exec": {key: item for key, item in value["exec"].items() if key != "cwd"}}
        data = dict(_data_of(value, tool.origin.files))
        moved = {old: new for old, (new, _content) in data.items() if old != new}
        self._add("tool", tool.name, "tools", _renamed(value, moved) if moved else value)
        for new, content in data.values():
            path = posixpath.join("tools", new)
            self.files.setdefault(path.casefold(), ArenaFile("data", path, path, content))

    def _collision(self, programs: Iterable[ArenaFile]) -> str:
        for each in programs:
            known = self.files.get(each.file.casefold())
            if known is not None and known.content != each.content:
                return f"its program `{each.name}` would overwrite another one at {each.file}"
        return ""

    def add_scenario(self, scenario: Scenario) -> None:
        """Add a scenario."""
        value = self._value("scenario", scenario.name, scenario.origin)
        if value is not None:
            self._add("scenario", scenario.name, "scenarios", value)

    def _value(self, kind: str, name: str, origin: Origin) -> dict[str, Any] | None:
        try:
            value = document_of_origin(origin).value
        except NotCacheable as error:
            self.refused[name] = f"the {kind} does not come from a single file: {error}"
            return None
        return value if isinstance(value, dict) else None

    def _add(self, kind: str, name: str, folder: str, value: dict[str, Any]) -> None:
        file = _file(kind, name, f"{folder}/{name}.{kind}.yaml", value)
        # macOS and Windows ignore case in file names.
        if file.file.casefold() in self.files:
            self.refused[name] = f"duplicate {kind} `{name}`"
        else:
            self.files[file.file.casefold()] = file


def _file(kind: str, name: str, path: str, value: dict[str, Any]) -> ArenaFile:
    """A document as a file: YAML if it is read back unchanged, else JSON."""
    text = "".join(f"{line}\n" for line in _lines(value))
    documents, problems = parse_documents(path, text)
    if not problems and len(documents) == 1 and documents[0].value == value:
        return ArenaFile(kind, name, path, text.encode())
    # JSON has a single form for a text, so it is always read back unchanged.
    as_json = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    return ArenaFile(kind, name, f"{path.removesuffix('.yaml')}.json", as_json.encode())


def _lines(value: Mapping[str, JSON]) -> Iterator[str]:
    for key, item in value.items():
        yield from ("",) if key in _APART else ()
        yield from yaml_of({key: item})


def _data_of(value: dict[str, Any], files: Files | None) -> Iterator[tuple[str, tuple[str, bytes]]]:
    """Each file that a mock refers to -> its path next to the descriptor, and its content."""
    for named in _named_in(value.get("mock")):
        try:
            content = files.read(named) if files is not None else None
        except OSError:  # reported by the loader
            content = None
        if content is not None:
            # The file may be above the arena's folder; in the pack it must be inside.
            yield named, (posixpath.normpath(named).replace("../", "").lstrip("/"), content)


def _programs_of(block: Mapping[str, Any], source: str) -> list[ArenaFile]:
    """The files that a command names, below its working directory."""
    found = []
    # Relative to the file of the tool, unlike the files that a mock names.
    folder = os.path.realpath(os.path.join(os.path.dirname(source), block.get("cwd", ".")))
    for index, text in enumerate(block["command"]):
        # A name without a slash is looked up in PATH if it is the program, and may be any text if it is not.
        if "/" not in text or text.startswith("/"):
            continue
        path = Path(os.path.realpath(os.path.join(folder, text)))
        if path.is_file() and path.is_relative_to(folder):
            name = posixpath.normpath(text)
            found.append(ArenaFile("program", name, f"tools/{name}", path.read_bytes(), index == 0))
    return found


def _named_in(mock: Any) -> Iterator[str]:
    if not isinstance(mock, dict):
        return
    parts = mock.get("content")
    named = [part.get("file") for part in parts if isinstance(part, dict)] if isinstance(parts, list) else []
    yield from (name for name in (*named, mock.get("result_file")) if isinstance(name, str))


def _renamed(value: dict[str, Any], moved: Mapping[str, str]) -> dict[str, Any]:
    """A descriptor whose mock refers to files by their new paths."""
    mock = dict(value["mock"])
    if isinstance(mock.get("content"), list):
        mock["content"] = [
            {**part, "file": moved.get(part["file"], part["file"])} if "file" in part else part
            for part in mock["content"]
        ]
    if mock.get("result_file") in moved:
        mock["result_file"] = moved[mock["result_file"]]
    return {**value, "mock": mock}


def sorted_by_severity(problems: Sequence[Problem]) -> Sequence[Problem]:
    """Sort problems by severity: error, warning, notice."""
    order = ("error", "warning", "notice")
    return sorted(problems, key=lambda problem: order.index(problem.severity))
