"""Load documents from folders, packs and files on disk, in a stable order, and from memory.

Nothing outside the given folder is read: linked folders are not entered, and a symlink to a file outside is an error.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from toolcrib.core.errors import DocumentError, Problem, Severity, near_misses
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

if TYPE_CHECKING:
    from toolcrib.loading.pack_integrity import LockedPacks

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
    """A source on disk.

    Attributes:
        path: A folder (with any packs in it), a pack, or one file.
        namespace: Prefix of the names of its tools, without `__`.
        ignore: Globs of files that are skipped in folders, relative to `root`.
        root: The folder of the project; empty outside projects.
    """

    path: str
    namespace: str = ""
    ignore: tuple[str, ...] = ()
    root: str = ""


@dataclass(frozen=True, slots=True)
class _WalkPosition:
    """A folder that a walk has reached.

    Attributes:
        path: The folder, as the user named it.
        real: The folder with links resolved.
        pack: The innermost enclosing pack; None outside packs.
        pack_path: The folder of that pack, as the user named it.
    """

    path: str
    real: str
    pack: Pack | None = None
    pack_path: str = ""

    def named(self, name: str) -> str:
        """The path of an entry, as the user would name it."""
        return name if self.path == "." else os.path.join(self.path, name)

    def key(self, name: str) -> str:
        """The path of an entry that is not a link itself, with links resolved."""
        return os.path.join(self.real, name)

    def below(self, name: str) -> _WalkPosition:
        """The position of a folder in the folder."""
        return _WalkPosition(self.named(name), self.key(name), self.pack, self.pack_path)


@dataclass(frozen=True, slots=True)
class _DataFileRecorder:
    """Records the files that documents name, before they are read."""

    reader: DocumentReader
    trail: FileTracker

    def add(self, path: str) -> None:
        self.trail.file(path)
        self.reader.touched.add(path)


@dataclass(frozen=True, slots=True)
class _RowFileRecorder:
    """Records row files, before they are read."""

    stored: set[str]
    trail: FileTracker

    def add(self, path: str) -> None:
        self.trail.file(path)
        self.stored.add(path)


def files_beside(file: str, stored: set[str], trail: FileTracker) -> DiskFiles:
    """The files that a pack or project may name: those in the folder of its own file, and below.

    Args:
        file: Its own file.
        stored: Receives the keys of the files that are read.
        trail: Records all files and folders that are read.
    """
    folder = Path(file).parent
    return DiskFiles(folder, folder, _RowFileRecorder(stored, trail), trail)


class Folders:
    """Walks sources and passes their documents to a reader."""

    def __init__(self, reader: DocumentReader, trail: FileTracker) -> None:
        self._reader = reader
        self._trail = trail
        self._touched = _DataFileRecorder(reader, trail)
        self._formats = reader.formats
        self._parents: dict[Path, list[Path]] = {}
        self._walked: set[str] = set()
        self._links: list[str] = []

    def add(self, source: SourcePath) -> None:
        """Add a folder, a pack (also by its `pack.yaml`, or as `.zip`), or one file."""
        path = Path(source.path)
        if _missing(path) is not None:
            self._trail.file(source.path)
        # Checked again: created between the check and the record, it would count as known and never be loaded.
        missing = _missing(path)
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
        """Add a folder: its files before its subfolders, each sorted by name."""
        # A stack instead of recursion: folders can be nested deeper than the recursion limit.
        root, real = self._enclosing_pack(top), real_path(top)
        left = [_WalkPosition(str(top), str(real))]
        while left:
            here = left.pop()
            names = self._trail.folder(here.path)
            if names is None:
                self._reader.add_problem(here.path, _unreadable(here.path))
                continue
            # Only for `tell_links`: a link to a folder that was walked anyway hides nothing.
            self._walked.add(here.real)
            # The pack file first: it decides which of the other files belong to the pack.
            files = [name for name in names if "/" not in name]
            here = self._entered(here, files, source)
            for name in files:
                # A project file within a source would otherwise be reported as an unknown document.
                if name not in PROJECT_FILES:
                    self._add_entry(name, here, root, source)
            links = [here.named(name.removesuffix(LINKED)) for name in names if name.endswith(LINKED)]
            self._links += [path for path in links if not self._is_ignored(path, source)]
            left += reversed([here.below(name[:-1]) for name in names if name.endswith("/")])
        # A deployment that switches a link (`current` -> `v2`) during the walk mixes files of two versions.
        if real_path(top) != real:
            self._trail.torn(top)

    def tell_links(self) -> None:
        """Report linked folders that were skipped. Call it last: another source may be the target of a link."""
        for path in self._links:
            if os.path.realpath(path) not in self._walked:
                self._reader.add_problem(path, _not_followed(path))

    def _entered(self, here: _WalkPosition, files: Sequence[str], source: SourcePath) -> _WalkPosition:
        """The position within the pack of the folder, if the folder is a pack."""
        name = next((name for name in PACK_FILES if name in files), None)
        path = here.named(name) if name is not None else ""
        if name is None or self._is_ignored(path, source):
            return here
        self._trail.file(path)
        if os.path.isdir(path):
            return here
        linked = os.path.islink(path)
        if linked and is_outside(Path(path), Path(here.path)):
            # The folder is still a pack: without the rejected pack, its files would be loaded as loose tools.
            pack = self._reader.refuse_pack(path, path, _outside(path, here.path))
            return _WalkPosition(here.path, here.real, pack, here.path)
        key = os.path.realpath(path) if linked else here.key(name)
        documents, problems = read_documents(Path(path), path)
        data = files_beside(path, self._reader.stored, self._trail)
        pack = self._reader.add_pack(
            key,
            path,
            documents,
            problems,
            source.namespace,
            files=data,
            contents=lambda: self._files_of(here.path),
        )
        return _WalkPosition(here.path, here.real, pack, here.path)

    def _files_of(self, folder: str) -> Mapping[str, bytes]:
        from toolcrib.loading.pack_integrity import files_in  # noqa: PLC0415 -- only for a locked pack

        return files_in(Path(folder), self._trail)

    def _add_entry(self, name: str, here: _WalkPosition, root: Path, source: SourcePath) -> None:
        """Add a file that was found in a folder and may belong to another program."""
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
        # Globs use `/` on Windows as well.
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
        """Read a file. Paths in it cannot leave `root`; with `only`, scenarios of that file alone are loaded."""
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
        """The files with parent documents in the nearest folder that has any, from this one upwards."""
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
        """The YAML files of a folder that is not a source."""
        for name in self._trail.folder(folder, inner=False) or ():
            if name.endswith((".yaml", ".yml")):
                self._trail.file(folder / name)
                yield folder / name

    def _add_archive(self, path: str, key: str, namespace: str, *, scanned: bool) -> None:
        """Add a pack in a `.zip`."""
        self._trail.file(path)
        archive, problems = open_archive(Path(path))
        if archive is None or not archive.pack_file:
            # A zip in a folder may be data of another program; one that was given as a source is meant as a pack.
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
        """The folder of the pack that contains a folder; the folder itself outside packs."""
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
    """Add the files of a pack in memory to a reader.

    Args:
        reader: Collects the documents.
        contents: Path within the pack (with `/`) -> content.
        pack_name: The path of the pack file; None without one.
        namespace: Prefix of the tools' names, without `__`.
        source: Prefix of the paths in problems.
        key: Prefix of the keys that identify files.
        outside: Access to environment variables.
    """
    pack = None
    if pack_name is not None:
        documents, problems = parse_documents(source + pack_name, contents[pack_name])
        data = MemoryFiles(contents, "", reader.stored, key, outside)
        pack = reader.add_pack(
            key + pack_name,
            source + pack_name,
            documents,
            problems,
            namespace,
            files=data,
            contents=lambda: {
                path: text.encode() if isinstance(text, str) else text for path, text in contents.items()
            },
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
    """The problem of a missing or inaccessible path; None if it exists."""
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError, ValueError):
        first = "run `toolcrib init` to create a first tool" if path.name in {"descriptors", "packs"} else ""
        hint = missing_path_hint(path) or first
        message = "no such file or folder"
        return Problem(code="path_not_found", message=message, source=str(path), hint=hint)
    except OSError as error:
        message = f"cannot access it: {error.strerror}"
        return Problem(code="file_unreadable", message=message, source=str(path))
    return None


def missing_path_hint(path: str | Path) -> str:
    """A hint with similar names in the nearest folder above a missing path that exists; empty if there are none."""
    folder, name = os.path.split(os.path.normpath(path))
    while folder and not os.path.isdir(folder):
        folder, name = os.path.split(folder)
    try:
        with os.scandir(folder or ".") as entries:
            there = [
                entry.name
                for entry in islice(entries, _MOST_SIBLINGS)
                if entry.name[0] != "." or name[:1] == "."
            ]
    except OSError:
        return ""
    # The names alone: paths in the same folder always resemble each other.
    close = [os.path.join(folder, match) for match in near_misses(name, there)]
    return f"did you mean {' or '.join(f'`{each}`' for each in close)}?" if close else ""


_MOST_SIBLINGS = 1000
"""Entries of a folder that are compared with a missing name."""


def real_path(path: str | Path) -> Path:
    """A path with links resolved; the path as named if it is relative and the working directory was deleted."""
    try:
        return Path(os.path.realpath(path))
    except FileNotFoundError:
        return Path(path)


def _unreadable(path: str) -> Problem:
    """The problem of an unreadable folder; only a notice if it was deleted after its parent was listed."""
    # Listed again only for the reason: the fingerprints record that it failed, but not why.
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
    # A cloned repository could otherwise contain a link to any file of the user, and load it as a tool.
    message = f"the symlink points outside {root}, and was not read"
    hint = "replace it with a copy, or pass the file itself"
    return Problem(code="link_leads_outside", message=message, hint=hint, source=path, line=1, column=1)


def _not_followed(path: str) -> Problem:
    message = "the folder is a symlink, and was not read"
    hint = "add the folder itself as a source, or replace the link with it"
    return Problem(code="link_not_followed", message=message, hint=hint, severity="notice", source=path)


_LEVELS = 4
"""Number of folders, upwards from a file, that are searched for its pack or parent document."""


def _upwards(folder: Path) -> tuple[Path, ...]:
    """The folder and its ancestors, the nearest first, at most `_LEVELS`."""
    absolute = folder if folder.is_absolute() else real_path(".") / folder
    return (absolute, *absolute.parents)[:_LEVELS]


def load(
    sources: Iterable[str | Path | SourcePath],
    kinds: Kinds,
    trail: FileTracker | None = None,
    *,
    fixture: Fixture = NO_FIXTURE,
    stored: Collection[str] = (),
    locked: LockedPacks | None = None,
) -> LoadedDocuments:
    """Load folders, packs and files from disk.

    Args:
        sources: Each a folder (with any packs in it), a pack, or one file.
        kinds: The schemas and checks of the installed modes.
        trail: Records all files and folders that are read.
        fixture: The initial store of tools outside packs.
        stored: Paths of its row files, with links resolved, which are not documents.
        locked: The packs that must be as they were installed; None for none.
    """
    reader = DocumentReader(kinds, fixture, locked)
    reader.stored.update(stored)
    trail = FileTracker() if trail is None else trail
    folders = Folders(reader, trail)
    for source in sources:
        folders.add(source if isinstance(source, SourcePath) else SourcePath(str(source)))
    # Last, because another source may be the target of a link.
    folders.tell_links()
    return reader.loaded()


def parse(
    name: str, content: Content, kinds: Kinds, *, files: Files | None = None, line: int = 1
) -> LoadedDocuments:
    """Load documents from memory.

    Args:
        name: Name of the text in problems; it is read as JSON if the name ends in `.json`.
        content: Text or bytes of YAML or JSON documents, one document as a mapping, or a list of mappings.
        kinds: The schemas and checks of the installed modes.
        files: The files that the documents may name.
        line: The line in `name` to report for mappings that were parsed elsewhere.
    """
    reader = DocumentReader(kinds)
    documents, problems = parse_content(name, content, line=line)
    reader.add_documents(name, name, documents, problems, DocumentContext(files))
    return reader.loaded()


def parse_registry(
    name: str, content: Content, *, kinds: Kinds, problems: list[Problem] | None = None
) -> Registry:
    """Create a registry from descriptors in text or mappings.

    Args:
        name: Name of the text in problems; it is read as JSON if the name ends in `.json`.
        content: YAML or JSON, one document as a mapping, or several in a list.
        kinds: The schemas and checks of the modes (`toolcrib.Executors.installed()`).
        problems: Receives all problems; the valid tools are kept. Without it, errors are raised, and warnings and
            notices are logged.

    Raises:
        DocumentError: `problems` is not given, and there is an error or no descriptor.
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
    """Load a pack from memory: path within the pack (with `/`) -> content."""
    reader = DocumentReader(kinds)
    add_contents(reader, contents, next((name for name in PACK_FILES if name in contents), None))
    return reader.loaded()
