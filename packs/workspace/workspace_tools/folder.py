"""Files below one folder, which no path leaves.

A path is followed from the descriptor of the folder, one name at a time, and each name is opened without following links.
So what was checked is what is opened, also if another program replaces a component by a link in between. A link is read and
followed in the same way; `..` returns to the folder that was left, and never above the root.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from secrets import token_hex
from typing import Any, NamedTuple

MOST_LINKS = 40
"""How many links a path may contain, as on Linux."""

MOST_LEVELS = 64
"""How deep lists and searches go."""

IGNORED = frozenset(
    (
        ".git",
        ".hg",
        ".mypy_cache",
        ".pytest_cache",
        ".ruff_cache",
        ".svn",
        ".tox",
        ".venv",
        "__pycache__",
        "node_modules",
    )
)
"""Names of folders that lists and searches leave out."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
# Non-blocking: opening a FIFO without a writer would wait forever.
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC


class Refusal(Exception):
    """A call that cannot be done.

    Attributes:
        code: Error code of the result.
        message: What is wrong.
        details: Details of the error.
    """

    def __init__(self, code: str, message: str, **details: Any) -> None:
        super().__init__(message)
        self.code = code
        self.message = message
        self.details = details


class Place(NamedTuple):
    """Where a file is: an open folder and a name in it that is not a link.

    Attributes:
        folder: Descriptor of the folder.
        name: Name of the file; empty for the root itself.
        path: The path for messages.
        found: What the name was when it was checked; None if it does not exist.
    """

    folder: int
    name: str
    path: str
    found: os.stat_result | None


class FileState(NamedTuple):
    """What tells two versions of a file apart."""

    inode: int
    size: int
    changed: int
    mode: int

    @classmethod
    def of(cls, found: os.stat_result) -> FileState:
        """The state of a file."""
        return cls(found.st_ino, found.st_size, found.st_mtime_ns, found.st_mode)


class File(NamedTuple):
    """The content of a file.

    Attributes:
        content: The bytes, at most as many as asked for.
        state: Its state when it was opened.
    """

    content: bytes
    state: FileState


@dataclass(frozen=True)
class Entry:
    """A file below a folder.

    Attributes:
        path: Path from the root, with `/`.
        size: Size in bytes.
    """

    path: str
    size: int


class Folder:
    """A folder whose files may be read and written.

    Args:
        root: Path of the folder. Links in it are followed once, here.

    Raises:
        OSError: It is not a folder that can be opened, or the system cannot open files relative to a folder.
    """

    def __init__(self, root: str) -> None:
        if os.open not in os.supports_dir_fd:
            raise OSError("this operating system cannot open files relative to a folder")
        self.root = os.path.realpath(root)
        self._root = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def close(self) -> None:
        """Close the folder."""
        os.close(self._root)

    def read(self, path: str, most: int) -> File:
        """Read the first bytes of a file.

        Raises:
            Refusal: It does not exist, is not a regular file or cannot be read.
        """
        with self.open(path) as (descriptor, found), os.fdopen(os.dup(descriptor), "rb") as file:
            return File(file.read(most), FileState.of(found))

    @contextmanager
    def open(self, path: str) -> Iterator[tuple[int, os.stat_result]]:
        """Open a regular file for reading.

        Raises:
            Refusal: As `read`.
        """
        with self._place(path) as place, refusing(place.path):
            _check_regular(place)
            descriptor = os.open(place.name, _FILE, dir_fd=place.folder)
            try:
                # Looked at again: the name may have changed since.
                found = os.fstat(descriptor)
                _check_regular(place._replace(found=found))
                yield descriptor, found
            finally:
                os.close(descriptor)

    def write(self, path: str, content: bytes, *, before: FileState | None = None) -> bool:
        """Replace or create a file at once: readers see the old content or the new one. The mode stays.

        Args:
            path: Path of the file. Missing folders are created.
            content: The new content.
            before: The state that the file must still have; None for any.

        Returns:
            Whether the file is new.

        Raises:
            Refusal: There is something else at the path, the file has another state, or it cannot be written.
        """
        if path.endswith("/"):
            raise Refusal("not_a_file", f"`{path}` is the path of a folder")
        with self._place(path, create=True) as place, refusing(place.path):
            if place.found is not None or not place.name:
                _check_regular(place)
            mode = 0o666 if place.found is None else stat.S_IMODE(place.found.st_mode)
            new = f".{token_hex(8)}.tmp"
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(new, flags, mode, dir_fd=place.folder)
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(content)
                    if place.found is not None:
                        os.fchmod(descriptor, mode)
                    file.flush()
                    os.fsync(descriptor)
                if before is not None:
                    _check_state(place, before)
                os.rename(new, place.name, src_dir_fd=place.folder, dst_dir_fd=place.folder)
            except BaseException:
                with suppress(OSError):
                    os.unlink(new, dir_fd=place.folder)
                raise
            return place.found is None

    def files(self, path: str, left_out: list[str]) -> Iterator[Entry]:
        """Yield the regular files below a folder in the order of their names, without those of `IGNORED` folders.

        Links are not followed.

        Args:
            path: Path of the folder, or of one file.
            left_out: Receives what was left out, and why: unreadable folders, names that are not UTF-8.

        Raises:
            Refusal: The folder does not exist or cannot be read.
        """
        with self._place(path) as place, refusing(place.path):
            if place.found is not None and stat.S_ISREG(place.found.st_mode):
                yield Entry(_joined(path, self.root), place.found.st_size)
                return
            if place.found is None:
                raise Refusal("not_found", f"no file or folder `{path}`")
            opened = os.open(place.name or ".", _FOLDER, dir_fd=place.folder)
            yield from _walk(opened, _joined(path, self.root), left_out, MOST_LEVELS)

    @contextmanager
    def _place(self, path: str, *, create: bool = False) -> Iterator[Place]:
        """Follow a path to its last name."""
        with ExitStack() as stack, refusing(path):
            yield self._followed(path, stack, create=create)

    def _followed(self, path: str, stack: ExitStack, *, create: bool) -> Place:
        names = _names(path, self.root)
        open_folders, links = [self._root], 0
        while names:
            name = names.pop()
            if name == "..":
                if len(open_folders) == 1:
                    raise Refusal("outside", f"`{path}` is outside the workspace")
                open_folders.pop()
                continue
            folder = open_folders[-1]
            found = _state(name, folder)
            if found is not None and stat.S_ISLNK(found.st_mode):
                links += 1
                if links > MOST_LINKS:
                    raise Refusal("too_many_links", f"`{path}` contains more than {MOST_LINKS} links")
                names += _names_of_link(os.readlink(name, dir_fd=folder), path)
                continue
            if not names:
                return Place(folder, name, path, found)
            if found is None and create:
                with suppress(FileExistsError):
                    os.mkdir(name, dir_fd=folder)
            opened = os.open(name, _FOLDER, dir_fd=folder)
            stack.callback(os.close, opened)
            open_folders.append(opened)
        # A path that ends in `..` or `.` names the open folder itself.
        return Place(open_folders[-1], "", path, os.fstat(open_folders[-1]))


@contextmanager
def refusing(path: str) -> Iterator[None]:
    """Turn what the system refuses into a `Refusal`."""
    try:
        yield
    except FileNotFoundError:
        raise Refusal("not_found", f"no file or folder `{path}`") from None
    except (NotADirectoryError, IsADirectoryError):
        raise Refusal("not_a_file", f"`{path}` is not a file, or a file is used as a folder in it") from None
    except OSError as error:
        raise Refusal("unusable", f"`{path}` cannot be used: {error.strerror}") from None


def _names(path: str, root: str) -> list[str]:
    """The names of a path, the last one first."""
    if "\0" in path or not _is_text(path):
        raise Refusal("invalid_path", "a path cannot contain NUL or lone surrogates")
    inner = path.removeprefix(root.rstrip("/") + "/")
    if path != root and inner.startswith("/"):
        raise Refusal("outside", f"`{path}` is outside the workspace; use a path relative to it")
    names = [] if path == root else [name for name in inner.split("/") if name not in {"", "."}]
    if names and path.endswith("/"):
        # `a.txt/` is not a file. With a name after it, the system reports that.
        names.append(".")
    return names[::-1]


def _names_of_link(target: str, path: str) -> list[str]:
    if target.startswith("/"):
        raise Refusal("outside", f"`{path}` leads out of the workspace through a link")
    return [name for name in target.split("/") if name not in {"", "."}][::-1]


def _joined(path: str, root: str) -> str:
    return "/".join(name for name in reversed(_names(path, root)) if name != ".")


def _state(name: str, folder: int) -> os.stat_result | None:
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _check_regular(place: Place) -> None:
    if place.found is None:
        raise Refusal("not_found", f"no file `{place.path}`")
    if stat.S_ISDIR(place.found.st_mode):
        raise Refusal("not_a_file", f"`{place.path}` is a folder")
    if not stat.S_ISREG(place.found.st_mode):
        raise Refusal("not_a_file", f"`{place.path}` is a device, a pipe or a socket")


def _check_state(place: Place, before: FileState) -> None:
    now = _state(place.name, place.folder)
    if now is None or FileState.of(now) != before:
        raise Refusal("changed_meanwhile", f"another program has changed `{place.path}`; read it again")


def _walk(descriptor: int, below: str, left_out: list[str], levels: int) -> Iterator[Entry]:
    """Yield the files of an open folder, which is closed afterwards."""
    try:
        with os.scandir(descriptor) as scanned:
            entries = sorted(scanned, key=lambda entry: entry.name)
        for entry in entries:
            path = f"{below}/{entry.name}" if below else entry.name
            if not _is_text(path):
                left_out.append(f"{path.encode(errors='replace').decode()}: the name is not UTF-8")
                continue
            try:
                # Both are false for links.
                file, folder = entry.is_file(follow_symlinks=False), entry.is_dir(follow_symlinks=False)
                size = entry.stat(follow_symlinks=False).st_size if file else 0
                inner = _inner(entry.name, descriptor, levels) if folder and entry.name not in IGNORED else -1
            except FileNotFoundError:  # it has just been deleted
                continue
            except OSError as error:
                left_out.append(f"{path}: {error.strerror}")
                continue
            if file:
                yield Entry(path, size)
            elif inner >= 0:
                yield from _walk(inner, path, left_out, levels - 1)
    finally:
        os.close(descriptor)


def _inner(name: str, descriptor: int, levels: int) -> int:
    if not levels:
        raise OSError(0, f"more than {MOST_LEVELS} folders deep")
    return os.open(name, _FOLDER, dir_fd=descriptor)


def _is_text(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return True
