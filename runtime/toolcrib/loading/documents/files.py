"""Read the files that documents refer to, from folders on disk or mappings in memory.

A path in a document cannot leave the folder that was given, not even through a symbolic link.
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
    "enclosing_pack",
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
"""A folder that contains one of these files is a pack."""

DATA_BYTES = 64 * BYTES
"""Maximum size of a data file that a document names, in bytes."""


def pack_file(folder: Path) -> Path | None:
    """The pack file of a folder, if any."""
    paths = (folder / name for name in PACK_FILES)
    return next((path for path in paths if os.path.isfile(path)), None)


def enclosing_pack(file: str) -> str:
    """The folder of the pack that contains a file, also within a zip archive; empty for none.

    Args:
        file: Path of the file, absolute. That of a file in an archive begins with the path of the archive.
    """
    folder = os.path.dirname(file)
    while folder != os.path.dirname(folder):
        if os.path.isdir(folder):
            if pack_file(Path(folder)) is not None:
                return folder
        elif os.path.isfile(folder):
            return _pack_in(folder, file)
        folder = os.path.dirname(folder)
    return ""


def _pack_in(archive: str, file: str) -> str:
    from zipfile import BadZipFile, ZipFile  # noqa: PLC0415 -- few packs are archives

    try:
        with ZipFile(archive) as opened:
            names = {*opened.namelist()}
    except (BadZipFile, OSError):
        return ""
    inner = posixpath.dirname(file.removeprefix(archive + os.sep).replace(os.sep, "/"))
    while not any(posixpath.join(inner, name) in names for name in PACK_FILES):
        if not inner:
            return ""
        inner = posixpath.dirname(inner)
    return os.path.join(archive, inner) if inner else archive


def is_outside(path: Path, root: Path) -> bool:
    """Whether a file is outside a folder after links are resolved."""
    return not Path(os.path.realpath(path)).is_relative_to(os.path.realpath(root))


class PathCollector(Protocol):
    """Receives the paths of files that documents name, such as a `set`."""

    def add(self, path: str, /) -> None:
        """Record a file that is about to be read or looked for."""
        ...


class ExternalAccess(Protocol):
    """Access to the environment and to files of the operator; implementations record what was used."""

    def variable(self, name: str, /) -> str | None:
        """The value of an environment variable."""
        ...

    def names(self, source: str, path: str, name: str, /) -> None:
        """Record that a path in a document names a variable, set or not."""
        ...

    def permits(self, source: str, path: str, name: str, /) -> bool:
        """Whether a path in a document may use a variable that is set."""
        ...

    def file(self, path: str, /) -> None:
        """Record a file of the operator that is about to be read."""
        ...


class _PlainEnvironment:
    """The process environment, without recording what is used."""

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
    """The external access of a document, given the files that it may read."""
    return getattr(files, "outside", PLAIN_ENVIRONMENT)


@dataclass(frozen=True, slots=True)
class DiskFiles:
    """Files on disk, named relative to a folder.

    Attributes:
        folder: Folder that names are relative to.
        root: Folder that no name may leave.
        touched: Receives the path of every file that is looked for, as named and with links resolved.
        outside: Access to environment variables.
    """

    folder: Path
    root: Path
    touched: PathCollector = field(default_factory=set[str])
    outside: ExternalAccess = PLAIN_ENVIRONMENT

    def read(self, name: str) -> bytes:
        """Read a file.

        Raises:
            OSError: It does not exist, is not a regular file, is too large, or is outside `root`.
        """
        if "\0" in name:
            raise FileNotFoundError(f"`{excerpt(name)}` is not a valid path: it contains a NUL character")
        named = self.folder / name
        # Recorded before the checks: a link that is rejected today may be replaced by a file, which must cause a reload.
        self.touched.add(str(named))
        # Links are resolved before the check: a link inside the folder may point to any file of the user.
        path = Path(os.path.realpath(named))
        if not path.is_relative_to(os.path.realpath(self.root)):
            raise PermissionError(f"`{excerpt(name)}` is outside {self.root}")
        self.touched.add(str(path))
        if not path.is_file():
            raise FileNotFoundError(f"no file `{excerpt(name)}` in {self.folder}")
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
        folder: Folder that names are relative to.
        touched: Receives the path of every file that is read.
        key: Prefix of the paths in `touched`.
        outside: Access to environment variables.
    """

    contents: Mapping[str, str | bytes]
    folder: str = ""
    touched: PathCollector = field(default_factory=set[str])
    key: str = ""
    outside: ExternalAccess = PLAIN_ENVIRONMENT

    def read(self, name: str) -> bytes:
        """Read a file.

        Raises:
            OSError: It does not exist, or the name leaves the mapping with `..`.
        """
        path = self._path(name)
        content = self.contents.get(path)
        if content is None:
            hint = did_you_mean(path, self.contents)
            raise FileNotFoundError(f"no file `{excerpt(name)}`{'; ' + hint if hint else ''}")
        self.touched.add(self.key + path)
        return content.encode("utf-8") if isinstance(content, str) else content

    def pass_over(self, name: str) -> None:
        """Note a file that is named, and not read now."""
        with suppress(PermissionError):
            self.touched.add(self.key + self._path(name))

    def _path(self, name: str) -> str:
        # `..` is resolved on names alone: nothing in memory is a link, and `posixpath.normpath` would keep a
        # leading `..`.
        parts: list[str] = []
        for part in PurePosixPath(self.folder, name).parts:
            if part != "..":
                parts.append(part)
            elif parts:
                parts.pop()
            else:
                raise PermissionError(f"`{excerpt(name)}` leaves its folder")
        return "/".join(parts)


class CachedFiles:
    """The files of a document; those read while it was loaded keep their content of that time.

    A descriptor and the files it names must be from the same moment, also when a later bind reads them again.

    Attributes:
        files: The underlying files.
        contents: Name -> content of the files that are kept.
    """

    __slots__ = ("_open", "contents", "files")

    def __init__(self, files: Files, contents: Mapping[str, bytes] | None = None) -> None:
        """Keep every file that is read until `close`; with `contents`, keep only those."""
        self.files = files
        self.contents = dict(contents or {})
        self._open = contents is None

    def read(self, name: str) -> bytes:
        """Read a file, from the kept contents if possible.

        Raises:
            OSError: It is not kept, and cannot be read.
        """
        content = self.contents.get(name)
        if content is None:
            content = self.files.read(name)
            if self._open:
                self.contents[name] = content
        return content

    def close(self) -> None:
        """Stop keeping files: the document is loaded, and later reads return the file on disk."""
        self._open = False


def files_at(files: Files, pointer: str) -> Files:
    """The files that a part of a document may read. In an override, those of the document that wrote the part."""
    of: Callable[[str], Files | None] | None = getattr(files, "of", None)
    return files if of is None else of(pointer) or files


def has_file(files: Files, name: str) -> bool:
    """Whether a file exists, also outside of the folder that names may not leave. It is not read."""
    match files:
        case CachedFiles():
            return has_file(files.files, name)
        case DiskFiles():
            # It may be added or removed later, which must cause a reload.
            files.pass_over(name)
            return "\0" not in name and (files.folder / name).is_file()
    try:
        files.read(name)
    except OSError:
        return False
    return True


def file_key(files: Files | None, name: str) -> str:
    """The identity of a file for a reader; the name itself without files."""
    match files:
        case DiskFiles():
            return os.path.realpath(files.folder / name)
        case MemoryFiles():
            return files.key + posixpath.normpath(posixpath.join(files.folder, name))
    return name


def read_operator_file(path: str, files: Files | None = None) -> bytes:
    """Read a file that the operator names, relative to the working directory.

    Args:
        path: The file.
        files: The files of the document that needs it; a reload that watches them watches this file, too.

    Raises:
        OSError: It does not exist, is not a regular file, or is too large.
    """
    external_access(files).file(path)
    touched: PathCollector | None = getattr(files, "touched", None)
    if touched is not None:
        touched.add(path)
        touched.add(os.path.realpath(path))
    try:
        content = first_bytes(path, DATA_BYTES)
    except ValueError:
        raise FileNotFoundError(
            f"`{excerpt(path)}` is not a valid path: it contains a NUL character"
        ) from None
    if len(content) > DATA_BYTES:
        raise OSError(_too_large(path))
    return content


def _too_large(name: str) -> str:
    return f"`{excerpt(name)}` exceeds {DATA_BYTES // BYTES} MiB"


def read_bytes(origin: Origin, name: str, pointer: str, problems: list[Problem]) -> bytes:
    """Read a file that a document names; if that fails, add a problem and return empty bytes."""
    try:
        if origin.files is None:
            raise FileNotFoundError(
                f"cannot find `{excerpt(name)}`: the document was loaded from memory, without files"
            )
        return files_at(origin.files, pointer).read(name)
    except OSError as error:
        text = str(error) if error.errno is None else f"cannot read `{excerpt(name)}`: {error.strerror}"
        hint = "paths are relative to the file that names them and may not leave its folder or pack"
        problems.append(Problem(code="file_unreadable", message=text, pointer=pointer, hint=hint))
        return b""


def read_text(origin: Origin, name: str, pointer: str, problems: list[Problem]) -> str:
    """Read a UTF-8 text file that a document names."""
    content = read_bytes(origin, name, pointer, problems)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        message = f"`{name}` is not valid UTF-8: byte {error.start}"
        problems.append(
            Problem(code="invalid_utf8", message=message, pointer=pointer, hint="save the file as UTF-8")
        )
        return ""


def read_data(origin: Origin, name: str, pointer: str, problems: list[Problem]) -> JSON:
    """Read the one document of a JSON or YAML file that a document names."""
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
        message = f"`{name}` contains {len(documents)} documents; expected one"
        problems.append(
            Problem(code="several_documents", message=message, pointer=pointer, hint="keep one of them")
        )
    return documents[0].value if documents else None
