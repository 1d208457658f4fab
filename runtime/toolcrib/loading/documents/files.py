"""Where documents and the files beside them are read: folders on disk, mappings in memory.

Nothing outside the folder that was given is read: a path in a document may not leave it, also not
by a symbolic link.
"""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Protocol

from toolcrib.core.errors import Problem, did_you_mean
from toolcrib.core.model import JSON, Origin
from toolcrib.core.protocols import Files
from toolcrib.loading.documents.document import BYTES, first_bytes, parse_documents
from toolcrib.loading.documents.positions import excerpt
from toolcrib.loading.fingerprints import ARCHIVE, SKIPPED_FOLDERS, SUFFIXES

__all__ = [
    "ARCHIVE",
    "DATA_BYTES",
    "PACK_FILES",
    "SKIPPED_FOLDERS",
    "SUFFIXES",
    "CachedFiles",
    "DiskFiles",
    "ExternalAccess",
    "MemoryFiles",
    "PathCollector",
    "external_access",
    "file_key",
    "files_at",
    "is_outside",
    "pack_file",
    "read_bytes",
    "read_data",
    "read_operator_file",
    "read_text",
]

PACK_FILES = ("pack.yaml", "pack.yml", "pack.json")
"""A folder with one of these is a pack."""

DATA_BYTES = 64 * BYTES
"""How large a file may be that a document names as data."""


def pack_file(folder: Path) -> Path | None:
    """The file that makes a folder a pack; None where there is none."""
    paths = (folder / name for name in PACK_FILES)
    return next((path for path in paths if os.path.isfile(path)), None)


def is_outside(path: Path, root: Path) -> bool:
    """Whether a file, its links resolved, lies outside a folder."""
    return not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root))


class PathCollector(Protocol):
    """Is told of the files that documents name."""

    def add(self, path: str, /) -> None:
        """A file is about to be looked at."""
        ...


class ExternalAccess(Protocol):
    """What may be asked for besides the files of a folder, and is noted there."""

    def variable(self, name: str, /) -> str | None:
        """A variable of the environment."""
        ...

    def names(self, source: str, path: str, name: str, /) -> None:
        """A path of a document names a variable, set or not."""
        ...

    def permits(self, source: str, path: str, name: str, /) -> bool:
        """Whether a variable that is set may be looked up in a path of a document."""
        ...

    def file(self, path: str, /) -> None:
        """A file of the operator's is about to be looked at."""
        ...


class _PlainEnvironment:
    """The environment, for a reading that nobody follows."""

    def variable(self, name: str, /) -> str | None:
        return os.environ.get(name)

    def names(self, _source: str, _path: str, _name: str, /) -> None:
        pass

    def permits(self, _source: str, _path: str, _name: str, /) -> bool:
        return True

    def file(self, _path: str, /) -> None:
        pass


PLAIN_ENVIRONMENT: ExternalAccess = _PlainEnvironment()


def external_access(files: Files | None) -> ExternalAccess:
    """Where a document looks up variables, given the files beside it."""
    return getattr(files, "outside", PLAIN_ENVIRONMENT)


@dataclass(frozen=True, slots=True)
class DiskFiles:
    """Files on disk, named relative to a folder.

    Attributes:
        folder: What names are relative to.
        root: What may not be left.
        touched: Is told of every file that is looked for, as it was named and with links resolved.
        outside: Where variables are looked up.
    """

    folder: Path
    root: Path
    touched: PathCollector = field(default_factory=set[str])
    outside: ExternalAccess = PLAIN_ENVIRONMENT

    def read(self, name: str) -> bytes:
        """The content of a file.

        Raises:
            OSError: It does not exist, is not a regular file, is too large, or lies outside `root`.
        """
        if "\0" in name:
            raise FileNotFoundError(f"`{excerpt(name)}` holds a NUL character, and no file is called so")
        named = self.folder / name
        self.touched.add(str(named))  # before anything is decided, for it may be a link
        path = Path(os.path.realpath(named))
        if not path.is_relative_to(os.path.realpath(self.root)):
            raise PermissionError(f"`{excerpt(name)}` lies outside {self.root}")
        self.touched.add(str(path))
        if not path.is_file():
            raise FileNotFoundError(f"there is no file `{excerpt(name)}` in {self.folder}")
        if path.stat().st_size > DATA_BYTES:
            raise OSError(_too_large(name))
        return path.read_bytes()

    def pass_over(self, name: str) -> None:
        """Note a file that is named, and not read now."""
        if "\0" not in name:
            self.touched.add(str(self.folder / name))
            self.touched.add(os.path.realpath(self.folder / name))


@dataclass(frozen=True, slots=True)
class MemoryFiles:
    """Files in memory, by their path with `/`; names are relative to `folder` within them.

    Attributes:
        contents: Path -> content.
        folder: What names are relative to.
        touched: Is told the path of every file that is read.
        key: What stands before the path there.
        outside: Where variables are looked up.
    """

    contents: Mapping[str, str | bytes]
    folder: str = ""
    touched: PathCollector = field(default_factory=set[str])
    key: str = ""
    outside: ExternalAccess = PLAIN_ENVIRONMENT

    def read(self, name: str) -> bytes:
        """The content of a file.

        Raises:
            OSError: It is not there, or the name leads outside.
        """
        path = self._path(name)
        content = self.contents.get(path)
        if content is None:
            hint = did_you_mean(path, self.contents)
            raise FileNotFoundError(f"there is no file `{excerpt(name)}`{'; ' + hint if hint else ''}")
        self.touched.add(self.key + path)
        return content.encode("utf-8") if isinstance(content, str) else content

    def pass_over(self, name: str) -> None:
        """Note a file that is named, and not read now."""
        with suppress(PermissionError):
            self.touched.add(self.key + self._path(name))

    def _path(self, name: str) -> str:
        parts: list[str] = []
        for part in PurePosixPath(self.folder, name).parts:
            if part != "..":
                parts.append(part)
            elif parts:
                parts.pop()
            else:
                raise PermissionError(f"`{excerpt(name)}` leads outside")
        return "/".join(parts)


class CachedFiles:
    """The files beside a document, those that it names as they were when it was read: they are a part of it.

    Attributes:
        files: Where they are read.
        contents: Name -> content of those that are kept.
    """

    __slots__ = ("_open", "contents", "files")

    def __init__(self, files: Files, contents: Mapping[str, bytes] | None = None) -> None:
        """Keep what is read until `close`; nothing more where `contents` are given."""
        self.files = files
        self.contents = dict(contents or {})
        self._open = contents is None

    def read(self, name: str) -> bytes:
        """The content of a file.

        Raises:
            OSError: It is not kept, and can't be read.
        """
        content = self.contents.get(name)
        if content is None:
            content = self.files.read(name)
            if self._open:
                self.contents[name] = content
        return content

    def close(self) -> None:
        """The document was read: whatever is read from now on is as it is on disk."""
        self._open = False


def files_at(files: Files, pointer: str) -> Files:
    """The files that a place of a document may name: of one that was laid over another, those of whichever wrote it."""
    of: Callable[[str], Files | None] | None = getattr(files, "of", None)
    return files if of is None else of(pointer) or files


def file_key(files: Files | None, name: str) -> str:
    """By what a reader tells a file from others; the name itself where there are no files."""
    match files:
        case DiskFiles():
            return os.path.realpath(files.folder / name)
        case MemoryFiles():
            return files.key + posixpath.normpath(posixpath.join(files.folder, name))
    return name


def read_operator_file(path: str, files: Files | None = None) -> bytes:
    """A file that the operator names, relative to the working directory.

    Args:
        path: The file.
        files: Those beside the document that asks for it; what follows them follows this file as well.

    Raises:
        OSError: It does not exist, is no regular file, or is too large.
    """
    external_access(files).file(path)
    touched: PathCollector | None = getattr(files, "touched", None)
    if touched is not None:
        touched.add(path)
        touched.add(os.path.realpath(path))
    try:
        content = first_bytes(path, DATA_BYTES)
    except ValueError:
        raise FileNotFoundError(f"`{excerpt(path)}` is no path: it holds a NUL character") from None
    if len(content) > DATA_BYTES:
        raise OSError(_too_large(path))
    return content


def _too_large(name: str) -> str:
    return f"`{excerpt(name)}` is larger than {DATA_BYTES // BYTES} MiB"


def read_bytes(origin: Origin, name: str, pointer: str, problems: list[Problem]) -> bytes:
    """A file that a document names; where it can't be read, a problem is added and the answer is empty."""
    try:
        if origin.files is None:
            raise FileNotFoundError(
                f"`{excerpt(name)}` can't be found: the document came from memory, without files"
            )
        return files_at(origin.files, pointer).read(name)
    except OSError as error:
        text = str(error) if error.errno is None else f"`{excerpt(name)}` can't be read: {error.strerror}"
        hint = "paths are relative to the file that names them and may not leave its folder or pack"
        problems.append(Problem(code="file_unreadable", message=text, pointer=pointer, hint=hint))
        return b""


def read_text(origin: Origin, name: str, pointer: str, problems: list[Problem]) -> str:
    """A UTF-8 text that a document names."""
    content = read_bytes(origin, name, pointer, problems)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        message = f"`{name}` is not UTF-8: byte {error.start}"
        problems.append(
            Problem(code="invalid_utf8", message=message, pointer=pointer, hint="save the file as UTF-8")
        )
        return ""


def read_data(origin: Origin, name: str, pointer: str, problems: list[Problem]) -> JSON:
    """The value of a JSON or YAML file that a document names; one document."""
    before = len(problems)
    content = read_bytes(origin, name, pointer, problems)
    if len(problems) > before:
        return None
    documents, faults = parse_documents(name, content, whole=True)
    problems += [
        Problem(
            code=fault.code,
            message=f"in `{name}` line {fault.line}: {fault.message}",
            pointer=pointer,
            hint=fault.hint,
        )
        for fault in faults
    ]
    if len(documents) > 1:
        message = f"`{name}` holds {len(documents)} documents, and data is one"
        problems.append(
            Problem(code="several_documents", message=message, pointer=pointer, hint="keep one of them")
        )
    return documents[0].value if documents else None
