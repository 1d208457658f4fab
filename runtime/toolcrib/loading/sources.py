"""From folders, files and texts to tools, packs and scenarios, with every problem of every file.

Content decides what a document is; a file that is refused takes nothing else with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from toolcrib.errors import Problem, Severity
from toolcrib.loading.compatible import is_promptkit, normalise
from toolcrib.loading.descriptors import is_descriptor, parse_descriptor
from toolcrib.loading.documents import Document, parse_documents, read_documents
from toolcrib.loading.files import PACK_FILES, SUFFIXES, DiskFiles, MemoryFiles, pack_file, walk
from toolcrib.loading.packs import Pack, parse_pack
from toolcrib.loading.scenarios import Scenario, is_scenario, parse_scenario
from toolcrib.loading.shape import Shape
from toolcrib.model import JSON, Descriptor
from toolcrib.protocols import Files, Kinds
from toolcrib.validation import json_fault

TOOL_SUFFIXES = tuple(f".tool{suffix}" for suffix in SUFFIXES)
"""A file that is called this says that it holds a descriptor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What was read: everything that is good, and all problems.

    Attributes:
        tools: In order of reading; two tools may still have one name.
        packs: In order of reading.
        scenarios: In order of reading.
        problems: Everything that is wrong with them.
        refused: Name of a tool whose document was refused -> the first problem of it.
    """

    tools: tuple[Descriptor, ...] = ()
    packs: tuple[Pack, ...] = ()
    scenarios: tuple[Scenario, ...] = ()
    problems: tuple[Problem, ...] = ()
    refused: Mapping[str, Problem] = field(default_factory=dict)


def load(paths: Iterable[str | Path], kinds: Kinds) -> Loaded:
    """Read folders, packs and files from disk.

    Args:
        paths: Each a folder (with any packs in it), a pack, or one file.
        kinds: What the installed modes say of their blocks.
    """
    reader = _Reader(kinds)
    for path in paths:
        reader.add_path(Path(path))
    return reader.loaded()


def parse(
    name: str, content: str | bytes | Mapping[str, JSON], kinds: Kinds, *, files: Files | None = None
) -> Loaded:
    """Read documents from memory.

    Args:
        name: What the text is called in problems; read as JSON if it ends in `.json`.
        content: Text or bytes of YAML or JSON documents, or one document as a mapping.
        kinds: What the installed modes say of their blocks.
        files: The files that the documents may name.
    """
    reader = _Reader(kinds)
    if isinstance(content, Mapping):
        documents, problems = _from_mapping(name, content)
    else:
        documents, problems = parse_documents(name, content)
    reader.add_documents(name, documents, problems, files)
    return reader.loaded()


def parse_files(contents: Mapping[str, str | bytes], kinds: Kinds) -> Loaded:
    """Read a pack from memory: path within the pack (with `/`) -> content."""
    reader = _Reader(kinds)
    name = next((name for name in PACK_FILES if name in contents), None)
    pack = reader.add_pack(*parse_documents(name, contents[name])) if name is not None else None
    for path in sorted(contents):
        if path not in PACK_FILES and path.endswith(SUFFIXES) and (pack is None or pack.holds(path)):
            folder = path.rpartition("/")[0]
            reader.add_documents(
                path, *parse_documents(path, contents[path]), MemoryFiles(contents, folder), pack
            )
    return reader.loaded()


def _from_mapping(name: str, content: Mapping[str, JSON]) -> tuple[list[Document], list[Problem]]:
    value = dict(content)
    fault = json_fault(value)
    if fault is None:
        return [Document(name, 0, 1, value)], []
    return [], [
        Problem(
            code="not_json",
            message=f"expected {fault.expected}, got {fault.got}",
            pointer=fault.pointer,
            source=name,
            line=1,
            column=1,
        )
    ]


class _Reader:
    """Collects what is read."""

    def __init__(self, kinds: Kinds) -> None:
        self._kinds = kinds
        self._tools: list[Descriptor] = []
        self._packs: list[Pack] = []
        self._scenarios: list[Scenario] = []
        self._problems: list[Problem] = []
        self._refused: dict[str, Problem] = {}
        self._touched: set[Path] = set()
        self._unrecognised: dict[Path | str, Problem] = {}

    @cached_property
    def _tool_shape(self) -> Shape:
        return Shape("descriptor", self._kinds)

    @cached_property
    def _pack_shape(self) -> Shape:
        return Shape("pack", self._kinds)

    @cached_property
    def _scenario_shape(self) -> Shape:
        return Shape("scenario", self._kinds)

    def loaded(self) -> Loaded:
        """Everything so far. A file that some descriptor names as data needs no notice."""
        notices = [problem for path, problem in self._unrecognised.items() if path not in self._touched]
        return Loaded(
            tools=tuple(self._tools),
            packs=tuple(self._packs),
            scenarios=tuple(self._scenarios),
            problems=(*self._problems, *notices),
            refused=self._refused,
        )

    def add_path(self, path: Path) -> None:
        """A folder, a pack, or one file."""
        if path.is_dir():
            self._add_folder(path)
        elif path.exists():
            self._add_file(path, path.parent, None)
        else:
            hint = "`toolcrib init` writes a first tool" if path.name in {"descriptors", "packs"} else ""
            problem = Problem(
                code="path_not_found", message="there is no such file or folder", source=str(path), hint=hint
            )
            self._problems.append(problem)

    def _add_folder(self, folder: Path) -> None:
        packs: dict[Path, Pack | None] = {}
        for path in walk(folder):
            root = _pack_root(path.parent, folder, packs, self)
            pack = packs.get(root)
            if path.name in PACK_FILES and path == pack_file(path.parent):
                continue
            if pack is None or pack.holds(path.relative_to(root).as_posix()):
                self._add_file(path, root, pack)

    def add_pack(self, documents: Sequence[Document], problems: Sequence[Problem]) -> Pack | None:
        """What `pack.yaml` says; None where it is refused."""
        self._problems += problems
        for document in documents[:1]:
            pack, faults = parse_pack(document, self._pack_shape)
            self._problems += faults
            if pack is not None:
                self._packs.append(pack)
                return pack
        return None

    def _add_file(self, path: Path, root: Path, pack: Pack | None) -> None:
        documents, problems = read_documents(path, str(path))
        folder = path.parent
        if any(is_promptkit(document.value) for document in documents):
            folder = root = _arena_folder(folder, root)
        files = DiskFiles(folder, root, self._touched)
        self.add_documents(path, documents, problems, files, pack)

    def add_documents(
        self,
        source: Path | str,
        documents: Sequence[Document],
        problems: Sequence[Problem],
        files: Files | None = None,
        pack: Pack | None = None,
    ) -> None:
        """The documents of one file, and what was wrong with its text."""
        empty = [problem for problem in problems if problem.code == "empty_document"]
        self._problems += [problem for problem in problems if problem.code != "empty_document"]
        strangers = list(empty)
        for document in documents:
            strangers += self._add_document(document, files, pack.name if pack is not None else "")
        if strangers:
            key = source.resolve() if isinstance(source, Path) else source
            self._unrecognised[key] = _as_promised(strangers[0], str(source))

    def _add_document(self, document: Document, files: Files | None, pack: str) -> list[Problem]:
        """Add what the document describes; the answer says why it describes nothing."""
        normalised = normalise(document)
        if normalised is not None:
            documents, problems = normalised
            self._problems += problems
            for own in documents:
                self._add_tool(
                    own, files, pack, refused=any(problem.severity == "error" for problem in problems)
                )
        elif is_scenario(document.value):
            scenario, problems = parse_scenario(document, self._scenario_shape, files=files, pack=pack)
            self._problems += problems
            self._scenarios += [scenario] if scenario is not None else []
        elif is_descriptor(document.value):
            self._add_tool(document, files, pack)
        else:
            return [document.place(_stranger())]
        return []

    def _add_tool(self, document: Document, files: Files | None, pack: str, *, refused: bool = False) -> None:
        tool, problems = parse_descriptor(document, self._kinds, self._tool_shape, files=files, pack=pack)
        self._problems += problems
        if tool is not None and not refused:
            self._tools.append(tool)
            return
        name = document.value.get("name") if isinstance(document.value, dict) else None
        error = next((problem for problem in problems if problem.severity == "error"), None)
        if isinstance(name, str) and error is not None:
            self._refused.setdefault(name, error)


def _stranger() -> Problem:
    message = "this is no descriptor, scenario or pack"
    hint = "a descriptor has `name` and a schema or mode, a scenario begins with `scenario:`; keep other data out of the folder"
    return Problem(code="unrecognised_file", message=message, hint=hint, severity="notice")


def _as_promised(problem: Problem, source: str) -> Problem:
    """A file called `*.tool.yaml` that holds no descriptor is an error, any other one a notice."""
    severity: Severity = "error" if source.endswith(TOOL_SUFFIXES) else "notice"
    told = _stranger()
    message = "the file is empty" if problem.code == "empty_document" else told.message
    return replace(problem, code=told.code, message=message, hint=told.hint, severity=severity)


def _pack_root(here: Path, top: Path, packs: dict[Path, Pack | None], reader: _Reader) -> Path:
    """The nearest folder, from `here` up to `top`, that is a pack; `top` where there is none."""
    for folder in (here, *here.parents):
        if folder not in packs:
            file = pack_file(folder)
            if file is not None:
                packs[folder] = reader.add_pack(*read_documents(file, str(file)))
        if folder in packs or folder == top:
            return folder
    return top


_ARENA_LEVELS = 4


def _arena_folder(folder: Path, root: Path) -> Path:
    """The nearest folder above a PromptKit manifest that holds a file of `kind: Arena`; else the manifest's own."""
    for candidate in (folder, *folder.parents)[:_ARENA_LEVELS]:
        if any(_is_arena(path) for path in sorted(candidate.glob("*.y*ml"))):
            return candidate
    return folder if folder.is_relative_to(root) else root


def _is_arena(path: Path) -> bool:
    documents, _problems = read_documents(path, str(path))
    return any(
        isinstance(document.value, dict) and document.value.get("kind") == "Arena" for document in documents
    )
