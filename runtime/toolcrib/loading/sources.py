"""From folders, files and texts to tools, packs and scenarios, with every problem of every file.

Content decides what a document is; a file that is refused takes nothing else with it.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from toolcrib.errors import Problem, Severity
from toolcrib.loading.compatible import is_promptkit, normalise
from toolcrib.loading.contents import Content, documents_of
from toolcrib.loading.descriptors import is_descriptor, parse_descriptor
from toolcrib.loading.documents import Document, parse_documents, read_documents
from toolcrib.loading.files import (
    PACK_FILES,
    SUFFIXES,
    DiskFiles,
    MemoryFiles,
    leads_outside,
    pack_file,
    walk,
)
from toolcrib.loading.packs import Pack, fits, one_pack
from toolcrib.loading.scenarios import Scenario, is_scenario, parse_scenario
from toolcrib.loading.shape import Shape
from toolcrib.loading.strangers import foreign
from toolcrib.loading.wording import in_their_words
from toolcrib.model import Descriptor
from toolcrib.protocols import Files, Kinds

TOOL_SUFFIXES = tuple(f".tool{suffix}" for suffix in SUFFIXES)
"""A file that is called this says that it holds a descriptor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """What was read: everything that is good, and all problems.

    Attributes:
        tools: In order of reading; two tools may still have one name.
        packs: In order of reading.
        scenarios: In order of reading.
        refused_scenarios: What is left of those with errors, to be checked further and never run.
        problems: Everything that is wrong with them.
        refused: Name of a tool whose document was refused -> the first problem of it.
    """

    tools: tuple[Descriptor, ...] = ()
    packs: tuple[Pack, ...] = ()
    scenarios: tuple[Scenario, ...] = ()
    refused_scenarios: tuple[Scenario, ...] = ()
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


def parse(name: str, content: Content, kinds: Kinds, *, files: Files | None = None) -> Loaded:
    """Read documents from memory.

    Args:
        name: What the text is called in problems; read as JSON if it ends in `.json`.
        content: Text or bytes of YAML or JSON documents, one document as a mapping, or a list of those.
        kinds: What the installed modes say of their blocks.
        files: The files that the documents may name.
    """
    reader = _Reader(kinds)
    documents, problems = documents_of(name, content)
    reader.add_documents(name, name, documents, problems, _Home(files))
    return reader.loaded()


def parse_files(contents: Mapping[str, str | bytes], kinds: Kinds) -> Loaded:
    """Read a pack from memory: path within the pack (with `/`) -> content."""
    reader = _Reader(kinds)
    name = next((name for name in PACK_FILES if name in contents), None)
    pack = reader.add_pack(name, name, *parse_documents(name, contents[name])) if name is not None else None
    for path in sorted(contents):
        if name is not None and path != name and path in PACK_FILES:
            reader.add_problem(path, _second_pack_file(path, name))
        elif path != name and path.endswith(SUFFIXES) and reader.holds(pack, path):
            home = _home(MemoryFiles(contents, path.rpartition("/")[0], reader.touched), pack, path)
            reader.add_documents(path, path, *parse_documents(path, contents[path]), home)
    return reader.loaded()


@dataclass(frozen=True, slots=True)
class _Home:
    """Where documents lie.

    Attributes:
        files: The files that they may name.
        pack: Name of the pack that holds them; empty outside packs.
        tools: Whether tools are taken from there.
        scenarios: Whether scenarios are taken from there.
    """

    files: Files | None = None
    pack: str = ""
    tools: bool = True
    scenarios: bool = True


def _home(files: Files, pack: Pack | None, path: str) -> _Home:
    if pack is None:
        return _Home(files)
    return _Home(files, pack.name, pack.holds_tools(path), pack.holds_scenarios(path))


class _Reader:
    """Collects what is read. A file is known by its path with links resolved, and read once."""

    def __init__(self, kinds: Kinds) -> None:
        self._kinds = kinds
        self._tools: list[Descriptor] = []
        self._packs: list[Pack] = []
        self._scenarios: list[Scenario] = []
        self._refused_scenarios: list[Scenario] = []
        self._refused: dict[str, Problem] = {}
        self._problems: dict[str, list[Problem]] = {}
        self._fruitless: set[str] = set()
        self._globs: dict[str, set[str]] = {}
        self._pack_at: dict[str, Pack | None] = {}
        self._arenas: dict[Path, bool] = {}
        self.touched: set[str] = set()

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
        """Everything so far. What is wrong with a file is no matter if a descriptor names it as data."""
        data = self.touched & self._fruitless
        problems = [problem for key, told in self._problems.items() if key not in data for problem in told]
        problems += self._idle_globs()
        counted, faulty = set(problems), {problem.source for problem in problems}
        return Loaded(
            tools=tuple(self._tools),
            packs=tuple(self._packs),
            scenarios=tuple(self._scenarios),
            refused_scenarios=tuple(
                scenario for scenario in self._refused_scenarios if scenario.origin.source in faulty
            ),
            problems=tuple(problems),
            refused={name: problem for name, problem in self._refused.items() if problem in counted},
        )

    def add_path(self, path: Path) -> None:
        """A folder, a pack (also by its `pack.yaml`), or one file."""
        if path.is_dir():
            self._add_folder(path)
        elif path.exists() and path == pack_file(path.parent):
            self._add_folder(path.parent)
        elif path.exists():
            self._add_file(path, _enclosing_pack(path.parent), None)
        else:
            hint = "`toolcrib init` writes a first tool" if path.name in {"descriptors", "packs"} else ""
            problem = Problem(
                code="path_not_found", message="there is no such file or folder", source=str(path), hint=hint
            )
            self._problems[str(path)] = [problem]

    def _add_folder(self, top: Path) -> None:
        for path in walk(top):
            root, pack = self._pack_over(path.parent, top)
            if path != pack_file(path.parent):
                self._add_file(path, root, pack, scanned=True)

    def _pack_over(self, here: Path, top: Path) -> tuple[Path, Pack | None]:
        """The nearest folder, from `here` up to `top`, that is a pack, and its pack."""
        folders = (here, *here.parents)
        for folder in folders[: folders.index(top) + 1]:
            key = os.path.realpath(folder)
            file = pack_file(folder) if key not in self._pack_at else None
            if file is not None and leads_outside(file, folder):
                self._problems[str(file)] = [_outside(file, folder)]
                self._pack_at[key] = None
            elif file is not None:
                self._pack_at[key] = self.add_pack(
                    os.path.realpath(file), str(file), *read_documents(file, str(file))
                )
            if key in self._pack_at:
                return folder, self._pack_at[key]
        return _enclosing_pack(top), None

    def add_pack(
        self, key: str, source: str, documents: Sequence[Document], problems: Sequence[Problem]
    ) -> Pack | None:
        """What a `pack.yaml` says; None where it is refused."""
        pack, told = one_pack(source, documents, problems, self._pack_shape)
        first = next((known for known in self._packs if pack is not None and known.name == pack.name), None)
        if pack is not None and first is not None:
            told, pack = [*told, _duplicate_pack(first, pack)], None
        self._problems[key] = told
        self._packs += [pack] if pack is not None else []
        return pack

    def add_problem(self, key: str, problem: Problem) -> None:
        """All that is said of a file that is not read."""
        self._problems[key] = [problem]

    def holds(self, pack: Pack | None, path: str) -> bool:
        """Whether a file (relative to its pack) is to be read; globs that fit it are noted."""
        if pack is None:
            return True
        fitting = {glob for glob in (*pack.tools, *pack.scenarios) if fits(path, glob)}
        self._globs.setdefault(pack.origin.source, set()).update(fitting)
        return bool(fitting)

    def _idle_globs(self) -> Iterator[Problem]:
        """Globs of a pack that fit no file are most likely misspelt."""
        for pack in self._packs:
            used = self._globs.get(pack.origin.source, set())
            for key, globs in (("tools", pack.tools), ("scenarios", pack.scenarios)):
                for index, glob in enumerate(globs):
                    if glob in used or glob == "**":
                        continue
                    pointer = f"/{key}/{index}"
                    message, hint = (
                        f"`{glob}` fits no file of the pack",
                        "globs are relative to the pack; `**` crosses folders",
                    )
                    problem = Problem(
                        code="idle_glob", message=message, pointer=pointer, hint=hint, severity="warning"
                    )
                    yield problem.at(pack.origin.source, *pack.origin.locate(pointer))

    def _add_file(self, path: Path, root: Path, pack: Pack | None, *, scanned: bool = False) -> None:
        """Read a file; one that was not asked for by its name (`scanned`) may be somebody else's."""
        key = os.path.realpath(path)
        within = path.relative_to(root).as_posix() if pack is not None else ""
        if not self.holds(pack, within):
            return
        if scanned and leads_outside(path, root):
            self._problems[str(path)] = [_outside(path, root)]
            return
        if key in self._problems:
            return
        if path.name in PACK_FILES and (other := pack_file(path.parent)) not in {None, path}:
            self._problems[key] = [_second_pack_file(str(path), other)]
            return
        documents, problems = read_documents(path, str(path))
        stranger = foreign(path, str(path), problems) if scanned else None
        if stranger is not None:
            documents, problems = [], [stranger]
        folder = path.parent
        if any(is_promptkit(document.value) for document in documents):
            arena = self._arena_over(folder)
            folder, root = (folder, root) if arena is None else (arena, arena)
        home = _home(DiskFiles(folder, root, self.touched), pack, within)
        self.add_documents(key, str(path), documents, problems, home)

    def _arena_over(self, folder: Path) -> Path | None:
        """The nearest folder above a PromptKit manifest that holds a file of `kind: Arena`."""
        for candidate in _upwards(folder):
            if candidate not in self._arenas:
                self._arenas[candidate] = any(_is_arena(path) for path in sorted(candidate.glob("*.y*ml")))
            if self._arenas[candidate]:
                return candidate
        return None

    def add_documents(
        self,
        key: str,
        source: str,
        documents: Sequence[Document],
        problems: Sequence[Problem],
        home: _Home,
    ) -> None:
        """The documents of one file, and what was wrong with its text."""
        before = len(self._tools) + len(self._scenarios)
        told = [problem for problem in problems if problem.code != "empty_document"]
        if not documents and not told:
            told.append(_stranger("the file is empty", source).at(source, 1, 1))
        strangers = 0
        for document in documents:
            known = self._add_document(document, home)
            strangers += known is None
            if known is not None:
                told += known
            elif strangers == 1:
                told.append(document.place(_stranger("this is no descriptor, scenario or pack", source)))
        self._problems[key] = told
        if len(self._tools) + len(self._scenarios) == before and not source.endswith(TOOL_SUFFIXES):
            self._fruitless.add(key)

    def _add_document(self, document: Document, home: _Home) -> list[Problem] | None:
        """Add what the document describes, and tell what is wrong with it; None where it describes nothing."""
        normalised = normalise(document, home.files)
        if normalised is not None:
            documents, problems = normalised
            return self._add_normalised(document, documents, problems, home)
        if is_scenario(document.value):
            return self._add_scenario(document, home)
        return self._add_tool(document, home) if is_descriptor(document.value, self._kinds.modes) else None

    def _add_normalised(
        self, written: Document, documents: Sequence[Document], problems: Sequence[Problem], home: _Home
    ) -> list[Problem]:
        """The tools of a document that had a form of somebody else's."""
        told = list(problems)
        for own in documents:
            told += self._add_tool(own, home, problems, written)
        return told

    def _add_scenario(self, document: Document, home: _Home) -> list[Problem]:
        if not home.scenarios:
            return []
        scenario, problems = parse_scenario(document, self._scenario_shape, files=home.files, pack=home.pack)
        if scenario is not None:
            refused = any(problem.severity == "error" for problem in problems)
            (self._refused_scenarios if refused else self._scenarios).append(scenario)
        return problems

    def _add_tool(
        self,
        document: Document,
        home: _Home,
        before: Sequence[Problem] = (),
        written: Document | None = None,
    ) -> list[Problem]:
        """Add a tool; `before` is what was found wrong already with the document as it was `written`."""
        if not home.tools:
            return []
        tool, problems = parse_descriptor(
            document, self._kinds, self._tool_shape, files=home.files, pack=home.pack
        )
        problems = problems if written is None else in_their_words(written, problems)
        error = next((problem for problem in (*before, *problems) if problem.severity == "error"), None)
        if tool is not None and error is None:
            self._tools.append(tool)
        name = document.value.get("name") if isinstance(document.value, dict) else None
        if isinstance(name, str) and error is not None:
            self._refused.setdefault(name, error)
        return problems


def _stranger(message: str, source: str) -> Problem:
    """A file called `*.tool.yaml` that holds no descriptor is an error, any other one a notice."""
    hint = "a descriptor has `name` and a schema or mode, a scenario begins with `scenario:`; keep other data out of the folder"
    severity: Severity = "error" if source.endswith(TOOL_SUFFIXES) else "notice"
    return Problem(code="unrecognised_file", message=message, hint=hint, severity=severity)


def _duplicate_pack(first: Pack, second: Pack) -> Problem:
    """The second pack of one name is refused, and its tools load as if they lay in no pack."""
    place = first.origin.place("/name")
    message = f"`{second.name}` is already the name of a pack in {place}; this one is left out, and its files load without it"
    problem = Problem(
        code="duplicate_pack", message=message, pointer="/name", hint="rename one of them, or load only one"
    )
    return problem.at(second.origin.source, *second.origin.locate("/name"))


def _second_pack_file(source: str, first: str | Path | None) -> Problem:
    message = f"the folder has two pack files; `{Path(first or '').name}` counts, and this one is not read"
    problem = Problem(code="second_pack_file", message=message, hint="remove one of them", severity="warning")
    return problem.at(source, 1, 1)


def _outside(path: Path, root: Path) -> Problem:
    """A link is not followed out of the folder that was given: what is there was not asked for."""
    message = f"the file is a link that leads outside {root}, and was not read"
    hint = "put a copy in its place, or name the file itself"
    return Problem(code="link_leads_outside", message=message, hint=hint, source=str(path), line=1, column=1)


_LEVELS = 4
"""Folders that are looked at for the pack or the arena that a file lies in."""


def _upwards(folder: Path) -> tuple[Path, ...]:
    """The folder and those above it, the nearest first."""
    absolute = folder.absolute()
    return (absolute, *absolute.parents)[:_LEVELS]


def _enclosing_pack(folder: Path) -> Path:
    """The folder of the pack that a folder lies in; the folder itself outside packs."""
    return next((above for above in _upwards(folder) if pack_file(above) is not None), folder)


def _is_arena(path: Path) -> bool:
    documents, _problems = read_documents(path, str(path))
    return any(
        isinstance(document.value, dict) and document.value.get("kind") == "Arena" for document in documents
    )
