"""Sources: folders, packs and files on disk, walked in a stable order, and texts in memory, given to the reader.

Nothing outside the folder that was given is read: a linked folder is not entered, and a linked file that leads
outside is refused.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from toolcrib.core.errors import DocumentError, Problem, Severity
from toolcrib.core.model import JSON, NO_FIXTURE, Fixture
from toolcrib.core.protocols import Files, Kinds
from toolcrib.loading.documents.archives import document_names, open_archive
from toolcrib.loading.documents.document import (
    Content,
    Document,
    parse_content,
    parse_documents,
    read_documents,
)
from toolcrib.loading.documents.files import (
    ARCHIVE,
    PACK_FILES,
    PLAIN_ENVIRONMENT,
    DiskFiles,
    ExternalAccess,
    MemoryFiles,
    is_outside,
    pack_file,
)
from toolcrib.loading.fingerprints import LINKED, FileTracker
from toolcrib.loading.format_contract import ParentDocuments
from toolcrib.loading.packs import Pack, matches_glob, second_pack_file
from toolcrib.loading.project_discovery import PROJECT_FILES
from toolcrib.loading.reader import (
    DocumentContext,
    DocumentReader,
    LoadedDocuments,
    check_lone_file,
    document_context,
    unrelated_file,
)
from toolcrib.loading.snapshot import log_problems
from toolcrib.registry.registry import Registry, without_duplicates

__all__ = [
    "Folders",
    "LoadedDocuments",
    "SourcePath",
    "add_contents",
    "files_beside",
    "load",
    "parse",
    "parse_files",
    "parse_registry",
    "real_path",
]


@dataclass(frozen=True, slots=True)
class SourcePath:
    """Something to read from disk.

    Attributes:
        path: A folder (with any packs in it), a pack, or one file.
        namespace: What stands before `__` in the names of the tools from there.
        ignore: Globs of files that are passed over where folders are walked, relative to `root`.
        root: The folder of the project; empty outside one.
    """

    path: str
    namespace: str = ""
    ignore: tuple[str, ...] = ()
    root: str = ""


@dataclass(frozen=True, slots=True)
class _WalkPosition:
    """Where a walk has come to.

    Attributes:
        path: The folder, as it was named.
        real: The same with links resolved.
        pack: The nearest pack on the way down; None outside packs.
        pack_path: The folder of that pack, as it was named.
    """

    path: str
    real: str
    pack: Pack | None = None
    pack_path: str = ""

    def named(self, name: str) -> str:
        """An entry of the folder, as a person names it."""
        return name if self.path == "." else os.path.join(self.path, name)

    def key(self, name: str) -> str:
        """The same with links resolved, if it is none itself."""
        return os.path.join(self.real, name)

    def below(self, name: str) -> _WalkPosition:
        """A folder in the folder."""
        return _WalkPosition(self.named(name), self.key(name), self.pack, self.pack_path)


@dataclass(frozen=True, slots=True)
class _DataFileRecorder:
    """Is told of the files that documents name, before they are read."""

    reader: DocumentReader
    trail: FileTracker

    def add(self, path: str) -> None:
        self.trail.file(path)
        self.reader.touched.add(path)


@dataclass(frozen=True, slots=True)
class _RowFileRecorder:
    """Is told of the files that hold rows, before they are read."""

    stored: set[str]
    trail: FileTracker

    def add(self, path: str) -> None:
        self.trail.file(path)
        self.stored.add(path)


def files_beside(file: str, stored: set[str], trail: FileTracker) -> DiskFiles:
    """The files that a pack or project may name: in the folder of its own file, and below.

    Args:
        file: Its own file.
        stored: Receives the keys of those that are looked at.
        trail: Receives everything that is looked at.
    """
    folder = Path(file).parent
    return DiskFiles(folder, folder, _RowFileRecorder(stored, trail), trail)


class Folders:
    """Walks sources and gives what lies there to a reader."""

    def __init__(self, reader: DocumentReader, trail: FileTracker) -> None:
        self._reader = reader
        self._trail = trail
        self._touched = _DataFileRecorder(reader, trail)
        self._formats = reader.formats
        self._parents: dict[Path, list[Path]] = {}
        self._walked: set[str] = set()
        self._links: list[str] = []

    def add(self, source: SourcePath) -> None:
        """A folder, a pack (also by its `pack.yaml`, or as `.zip`), or one file."""
        path = Path(source.path)
        if _missing(path) is not None:
            self._trail.file(source.path)
        missing = _missing(path)  # it may have come just before it was noted
        if missing is not None:
            self._reader.add_problem(str(path), missing)
        elif os.path.isdir(path):
            self._add_folder(path, source)
        elif path == pack_file(path.parent):
            self._add_folder(path.parent, source)
        elif path.suffix.lower() == ARCHIVE:
            self._trail.file(str(path))
            self._add_archive(str(path), str(real_path(path)), source.namespace, scanned=False)
        else:
            self._trail.file(str(path))
            root = self._enclosing_pack(path.parent)
            here = _WalkPosition(str(path.parent), str(real_path(path.parent)))
            self._add_file(str(path), str(real_path(path)), here, root, source.namespace)

    def _add_folder(self, top: Path, source: SourcePath) -> None:
        """Files of a folder before those of the folders in it, each in the order of names."""
        root, real = self._enclosing_pack(top), real_path(top)
        left = [_WalkPosition(str(top), str(real))]
        while left:
            here = left.pop()
            names = self._trail.folder(here.path)
            if names is None:
                self._reader.add_problem(here.path, _unreadable(here.path))
                continue
            self._walked.add(here.real)
            files = [name for name in names if "/" not in name]
            here = self._entered(here, files, source)
            for name in files:
                if name not in PROJECT_FILES:
                    self._add_entry(name, here, root, source)
            links = [here.named(name.removesuffix(LINKED)) for name in names if name.endswith(LINKED)]
            self._links += [path for path in links if not self._is_ignored(path, source)]
            left += reversed([here.below(name[:-1]) for name in names if name.endswith("/")])
        if real_path(top) != real:
            self._trail.torn(top)

    def tell_links(self) -> None:
        """Say which linked folders were passed over. Call it when everything is added: one may be read by itself."""
        for path in self._links:
            if os.path.realpath(path) not in self._walked:
                self._reader.add_problem(path, _not_followed(path))

    def _entered(self, here: _WalkPosition, files: Sequence[str], source: SourcePath) -> _WalkPosition:
        """The same place, in the pack that the folder is if it is one."""
        name = next((name for name in PACK_FILES if name in files), None)
        path = here.named(name) if name is not None else ""
        if name is None or self._is_ignored(path, source):
            return here
        self._trail.file(path)
        if os.path.isdir(path):
            return here
        linked = os.path.islink(path)
        if linked and is_outside(Path(path), Path(here.path)):
            pack = self._reader.refuse_pack(path, path, _outside(path, here.path))
            return _WalkPosition(here.path, here.real, pack, here.path)
        key = os.path.realpath(path) if linked else here.key(name)
        documents, problems = read_documents(Path(path), path)
        data = files_beside(path, self._reader.stored, self._trail)
        pack = self._reader.add_pack(key, path, documents, problems, source.namespace, files=data)
        return _WalkPosition(here.path, here.real, pack, here.path)

    def _add_entry(self, name: str, here: _WalkPosition, root: Path, source: SourcePath) -> None:
        """A file that was found in a folder; it may be somebody else's."""
        path, reader = here.named(name), self._reader
        if self._is_ignored(path, source):
            reader.ignored.append(path)
            return
        if not reader.holds(here.pack, _within(path, here)):
            return
        self._trail.file(path)
        linked = os.path.islink(path)
        key = os.path.realpath(path) if linked else here.key(name)
        bound = Path(here.pack_path) if here.pack_path else root
        if linked and is_outside(Path(path), bound):
            reader.add_problem(path, _outside(path, bound))
        elif reader.knows(key):
            return
        elif name.endswith(ARCHIVE):
            self._add_archive(path, key, source.namespace, scanned=True)
        else:
            self._add_file(path, key, here, bound, source.namespace, scanned=True)

    def _is_ignored(self, path: str, source: SourcePath) -> bool:
        if not source.ignore:
            return False
        within = os.path.relpath(path, source.root or ".").replace(os.sep, "/")
        return any(matches_glob(within, glob) for glob in source.ignore)

    def _add_file(
        self,
        path: str,
        key: str,
        here: _WalkPosition,
        root: Path,
        namespace: str,
        *,
        scanned: bool = False,
        only: str = "",
    ) -> None:
        """Read a file. What paths in it may not leave is `root`; the scenarios of one file alone may be asked for."""
        if self._reader.knows(key):
            return
        name = os.path.basename(path)
        if name in PACK_FILES and (first := pack_file(Path(here.path))) is not None and first.name != name:
            self._reader.add_problem(key, second_pack_file(path, first))
            return
        self._trail.file(path)
        documents, problems = read_documents(path, path)
        known = unrelated_file if scanned else check_lone_file
        stranger = known(Path(path), path, documents, problems, self._formats)
        if stranger is not None:
            documents, problems = [], [stranger]
        folder = Path(here.path)
        if self._has(documents, lambda parents, value: parents.is_relative(value)):
            above = self._parents_above(folder)
            folder, root = (above[0].parent, above[0].parent) if above else (folder, root)
        files = DiskFiles(folder, root, self._touched, self._trail)
        where = document_context(files, here.pack, _within(path, here), namespace, self._reader.fixture)
        self._reader.add_documents(key, path, documents, problems, replace(where, only=only))
        if not scanned and self._has(documents, lambda parents, value: parents.is_part(value)):
            for parent in self._parents_above(folder):
                within = _WalkPosition(str(parent.parent), str(real_path(parent.parent)))
                self._add_file(
                    str(parent), str(real_path(parent)), within, parent.parent, namespace, only=path
                )

    def _has(self, documents: Sequence[Document], test: Callable[[ParentDocuments, JSON], bool]) -> bool:
        return any(test(each, document.value) for each in self._formats.parents for document in documents)

    def _parents_above(self, folder: Path) -> list[Path]:
        """The files with documents that hold others together, in the nearest folder above that has any."""
        for candidate in _upwards(folder):
            if candidate not in self._parents:
                self._parents[candidate] = [
                    path for path in self._texts_in(candidate) if self._is_parent(path)
                ]
            if self._parents[candidate]:
                return self._parents[candidate]
        return []

    def _is_parent(self, path: Path) -> bool:
        documents, _problems = read_documents(path, str(path))
        return self._has(documents, lambda parents, value: parents.is_parent(value))

    def _texts_in(self, folder: Path) -> Iterator[Path]:
        """The YAML files of a folder that nobody gave."""
        for name in self._trail.folder(folder, inner=False) or ():
            if name.endswith((".yaml", ".yml")):
                self._trail.file(folder / name)
                yield folder / name

    def _add_archive(self, path: str, key: str, namespace: str, *, scanned: bool) -> None:
        """A pack in a `.zip`; one that was found in a folder and is no pack may be somebody else's."""
        self._trail.file(path)
        archive, problems = open_archive(Path(path))
        if archive is None or not archive.pack_file:
            told = problems or [_no_pack(path, "notice" if scanned else "error")]
            vanished = scanned and told[0].code == "path_not_found"
            self._reader.add_problems(key, [_vanished(path)] if vanished else told)
            return
        add_contents(
            self._reader,
            archive.contents,
            archive.pack_file,
            namespace,
            source=archive.place(""),
            key=f"{key}/",
            outside=self._trail,
        )

    def _enclosing_pack(self, folder: Path) -> Path:
        """The folder of the pack that a folder lies in; the folder itself outside packs."""
        for above in _upwards(folder):
            for name in PACK_FILES:
                self._trail.file(str(above / name))
            if pack_file(above) is not None:
                return above
        return folder


def add_contents(
    reader: DocumentReader,
    contents: Mapping[str, str | bytes],
    pack_name: str | None,
    namespace: str = "",
    *,
    source: str = "",
    key: str = "",
    outside: ExternalAccess = PLAIN_ENVIRONMENT,
) -> None:
    """Give the files of a pack in memory to a reader.

    Args:
        reader: Collects what is read.
        contents: Path within the pack (with `/`) -> content.
        pack_name: Which of them is the pack file; None for none.
        namespace: What stands before the names of the tools.
        source: What stands before the paths in problems.
        key: What stands before the paths where files are told apart.
        outside: Where variables are looked up.
    """
    pack = None
    if pack_name is not None:
        documents, problems = parse_documents(source + pack_name, contents[pack_name])
        data = MemoryFiles(contents, "", reader.stored, key, outside)
        pack = reader.add_pack(
            key + pack_name, source + pack_name, documents, problems, namespace, files=data
        )
    for path in document_names(contents):
        if path == pack_name or key + path in reader.stored:
            continue
        if pack_name is not None and path in PACK_FILES:
            reader.add_problem(key + path, second_pack_file(source + path, pack_name))
        elif reader.holds(pack, path):
            files = MemoryFiles(contents, path.rpartition("/")[0], reader.touched, key, outside)
            where = document_context(files, pack, path, namespace, reader.fixture)
            documents, problems = parse_documents(source + path, contents[path])
            reader.add_documents(key + path, source + path, documents, problems, where)


def _within(path: str, here: _WalkPosition) -> str:
    """A path relative to its pack, with `/`; empty outside packs."""
    if here.pack is None:
        return ""
    return path[len(here.pack_path) + 1 :].replace(os.sep, "/") if here.pack_path != "." else path


def _missing(path: Path) -> Problem | None:
    """The problem of a path at which there is nothing, or at which nobody can tell what there is."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError, ValueError):
        hint = "run `toolcrib init` to create a first tool" if path.name in {"descriptors", "packs"} else ""
        message = "no such file or folder"
        return Problem(code="path_not_found", message=message, source=str(path), hint=hint)
    except OSError as error:
        message = f"cannot access it: {error.strerror}"
        return Problem(code="file_unreadable", message=message, source=str(path))
    return None


def real_path(path: str | Path) -> Path:
    """A path with links resolved; as it was named, if it is relative and the working directory was removed."""
    try:
        return Path(os.path.realpath(path))
    except FileNotFoundError:
        return Path(path)


def _unreadable(path: str) -> Problem:
    """A folder that can't be listed; one that is gone since its parent was listed is a notice."""
    try:
        os.listdir(path)
    except FileNotFoundError:
        message = "the folder was deleted after its parent was listed"
        return Problem(code="file_vanished", message=message, severity="notice", source=path)
    except OSError as error:
        reason = error.strerror
    else:
        reason = "it is readable again"
    return Problem(code="file_unreadable", message=f"cannot read the folder: {reason}", source=path)


def _vanished(path: str) -> Problem:
    message = "the archive was deleted after its folder was listed"
    return Problem(code="file_vanished", message=message, severity="notice", source=path)


def _no_pack(path: str, severity: Severity) -> Problem:
    hint = "a pack archive contains `pack.yaml`; build one with `toolcrib pack build`"
    problem = Problem(
        code="unrecognised_file", message="the archive contains no pack", hint=hint, severity=severity
    )
    return problem.at(path, 1, 1)


def _outside(path: str, root: Path | str) -> Problem:
    """A link is not followed out of the folder that was given: what is there was not asked for."""
    message = f"the symlink points outside {root}, and was not read"
    hint = "replace it with a copy, or pass the file itself"
    return Problem(code="link_leads_outside", message=message, hint=hint, source=path, line=1, column=1)


def _not_followed(path: str) -> Problem:
    message = "the folder is a symlink, and was not read"
    hint = "add the folder itself as a source, or replace the link with it"
    return Problem(code="link_not_followed", message=message, hint=hint, severity="notice", source=path)


_LEVELS = 4
"""Folders that are looked at for the pack or the parent document that a file belongs to."""


def _upwards(folder: Path) -> tuple[Path, ...]:
    """The folder and those above it, the nearest first."""
    absolute = folder if folder.is_absolute() else real_path(".") / folder
    return (absolute, *absolute.parents)[:_LEVELS]


def load(
    sources: Iterable[str | Path | SourcePath],
    kinds: Kinds,
    trail: FileTracker | None = None,
    *,
    fixture: Fixture = NO_FIXTURE,
    stored: Collection[str] = (),
) -> LoadedDocuments:
    """Read folders, packs and files from disk.

    Args:
        sources: Each a folder (with any packs in it), a pack, or one file.
        kinds: What the installed modes say of their blocks.
        trail: Receives everything that is looked at.
        fixture: What the store of tools outside packs begins with.
        stored: Paths of files that hold its rows, with links resolved; they are no documents.
    """
    reader = DocumentReader(kinds, fixture)
    reader.stored.update(stored)
    trail = FileTracker() if trail is None else trail
    folders = Folders(reader, trail)
    for source in sources:
        folders.add(source if isinstance(source, SourcePath) else SourcePath(str(source)))
    folders.tell_links()
    return reader.loaded()


def parse(
    name: str, content: Content, kinds: Kinds, *, files: Files | None = None, line: int = 1
) -> LoadedDocuments:
    """Read documents from memory.

    Args:
        name: What the text is called in problems; read as JSON if it ends in `.json`.
        content: Text or bytes of YAML or JSON documents, one document as a mapping, or a list of those.
        kinds: What the installed modes say of their blocks.
        files: The files that the documents may name.
        line: Where in `name` mappings stand that somebody else has read.
    """
    reader = DocumentReader(kinds)
    documents, problems = parse_content(name, content, line=line)
    reader.add_documents(name, name, documents, problems, DocumentContext(files))
    return reader.loaded()


def parse_registry(
    name: str, content: Content, *, kinds: Kinds, problems: list[Problem] | None = None
) -> Registry:
    """A registry of the descriptors in a text, or of those that are already mappings.

    Args:
        name: What the text is called in problems; read as JSON if it ends in `.json`.
        content: YAML or JSON, one document as a mapping, or several in a list.
        kinds: What the modes say of their blocks (`toolcrib.Executors.installed()`).
        problems: Receives every problem; the good tools are kept.

    Raises:
        DocumentError: No list was given, and there is an error, or no descriptor at all. Without a list, warnings and
            notices beside good tools are logged.
    """
    loaded = parse(name, content, kinds)
    tools, duplicates = without_duplicates(loaded.tools)
    found = [*loaded.problems, *duplicates]
    if problems is not None:
        problems += found
    elif not tools or any(problem.severity == "error" for problem in found):
        raise DocumentError(found or [_no_descriptor(name)])
    else:
        log_problems(found)
    return Registry(tools)


def _no_descriptor(name: str) -> Problem:
    message = "no descriptor found"
    hint = "use `Runtime.open` to load scenarios"
    return Problem(code="unrecognised_file", message=message, hint=hint, source=name, line=1, column=1)


def parse_files(contents: Mapping[str, str | bytes], kinds: Kinds) -> LoadedDocuments:
    """Read a pack from memory: path within the pack (with `/`) -> content."""
    reader = DocumentReader(kinds)
    add_contents(reader, contents, next((name for name in PACK_FILES if name in contents), None))
    return reader.loaded()
