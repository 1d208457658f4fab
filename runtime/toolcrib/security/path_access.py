"""Files that calls may read and write: paths are resolved with their links, and checked again when a file is opened."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from toolcrib.core.model import JSON, Schema
from toolcrib.security.access import report_refusal

Purpose = Literal["read", "write"]
PURPOSES: Final[tuple[Purpose, ...]] = ("read", "write")
"""What a call may do with a file."""


class PathRefused(PermissionError):
    """A path that leads outside of the allowed folders, or did so while it was opened.

    Attributes:
        message: The path and the reason.
        purpose: What the file was opened for.
    """

    def __init__(self, message: str, purpose: Purpose) -> None:
        super().__init__(errno.EACCES, message)
        self.message = message
        self.purpose = purpose

    def __str__(self) -> str:
        return self.message


class PathAccess:
    """The folders in which files may be read and written.

    Args:
        root: Folder against which relative paths resolve; empty for the working directory.
        read: Folders in which files may be read; None for all.
        write: Folders in which files may be written; None for all.
        audit: Whether `open` only reports what it would refuse, to `report_refusal`.
    """

    def __init__(
        self,
        root: str = "",
        read: Iterable[str] | None = None,
        write: Iterable[str] | None = None,
        audit: bool = False,
    ) -> None:
        self._root = root
        self._audit = audit
        self._folders: dict[Purpose, tuple[str, ...] | None] = {
            "read": None if read is None else tuple(read),
            "write": None if write is None else tuple(write),
        }

    def limits(self, purpose: Purpose) -> bool:
        """Whether files may be used only in some folders."""
        return self._folders[purpose] is not None

    def granted(self, purpose: Purpose) -> tuple[str, ...] | None:
        """The folders outside of which files are refused; None for no restriction, also in audit mode."""
        return None if self._audit else self._folders[purpose]

    @property
    def fields(self) -> tuple[str, tuple[str, ...] | None, tuple[str, ...] | None, bool]:
        """The parameters of an equal value."""
        return self._root, self._folders["read"], self._folders["write"], self._audit

    def resolve(self, path: str) -> str:
        """Return the absolute path of a file, with all links resolved. The file need not exist."""
        return os.path.realpath(os.path.join(self._root or os.getcwd(), path))

    def why_refused(self, path: str, purpose: Purpose) -> str:
        """Why a file may not be used, as the end of a sentence; empty if it may."""
        if "\0" in path:
            return "the path contains a null character"
        if self._folders[purpose] is None:
            return ""
        real = self.resolve(path)
        if self._folder_of(real, purpose) is not None:
            return ""
        written = os.path.normpath(os.path.join(self._root or os.getcwd(), path))
        leads = f"it leads to `{real}`, which " if real != written else "it "
        return f"{leads}is in none of the folders of `paths.{purpose}`"

    def open(self, path: str, purpose: Purpose, *, flags: int | None = None, mode: int = 0o666) -> int:
        """Open a file and return its descriptor. No link is followed that was not there during the check.

        Args:
            path: The file.
            purpose: What it is opened for. The folders of this purpose are checked.
            flags: Flags of `os.open` (default: read only; or write only, create and truncate).
            mode: Permissions of a file that is created.

        Raises:
            PathRefused: The path leads outside of the allowed folders, or was changed meanwhile to do so.
            OSError: The file cannot be opened.
        """
        if flags is None:
            flags = os.O_RDONLY if purpose == "read" else os.O_WRONLY | os.O_CREAT | os.O_TRUNC
        try:
            return self._open(path, purpose, flags, mode)
        except PathRefused as error:
            # Reported here and not where the error arrives: the tool may handle it.
            report = report_refusal.get()
            if report is not None:
                report(f"paths.{purpose}", error.message)
            if not self._audit:
                raise
        return os.open(self.resolve(path), flags | _CLOEXEC, mode)

    def _open(self, path: str, purpose: Purpose, flags: int, mode: int) -> int:
        why = self.why_refused(path, purpose)
        if why:
            raise PathRefused(f"`{path}` may not be opened to {purpose}: {why}", purpose)
        real = self.resolve(path)
        folder = self._folder_of(real, purpose)
        if self._folders[purpose] is None:
            return os.open(real, flags | _CLOEXEC, mode)
        if folder is None:
            raise PathRefused(
                f"`{path}` may not be opened to {purpose}: it was changed during the check", purpose
            )
        if os.open not in os.supports_dir_fd:
            return self._opened_then_checked(real, purpose, flags, mode)
        top = os.path.realpath(folder)
        return _open_beneath(path, purpose, top, os.path.relpath(real, top), flags=flags, mode=mode)

    def _folder_of(self, real: str, purpose: Purpose) -> str | None:
        """The allowed folder that contains a resolved path, if any."""
        for folder in self._folders[purpose] or ():
            # Compared by components: `/data` does not contain `/data-private`.
            top = os.path.realpath(folder)
            if real == top or real.startswith(top.rstrip(os.sep) + os.sep):
                return folder
        return None

    def _opened_then_checked(self, real: str, purpose: Purpose, flags: int, mode: int) -> int:
        """Open a file on a system without descriptors of folders, and check where it is once it is open."""
        # Truncating waits for the check: a file outside must not be emptied.
        opened = os.open(real, flags & ~os.O_TRUNC | _CLOEXEC, mode)
        now = os.path.realpath(real)
        if not os.path.samestat(os.fstat(opened), os.stat(now)) or self._folder_of(now, purpose) is None:
            os.close(opened)
            raise PathRefused(
                f"`{real}` may not be opened to {purpose}: it was changed during the check", purpose
            )
        if flags & os.O_TRUNC:
            os.ftruncate(opened, 0)
        return opened


EVERYWHERE: Final = PathAccess()
"""Permits all files."""

_CLOEXEC: Final = getattr(os, "O_CLOEXEC", 0)
_FOLDER: Final = os.O_RDONLY | _CLOEXEC | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0)


def _open_beneath(path: str, purpose: Purpose, folder: str, relative: str, *, flags: int, mode: int) -> int:
    """Open a file below a folder, step by step, without following any link."""
    # The resolved path contains no link. One that is there now was put there after the check.
    *steps, name = relative.split(os.sep)
    at = os.open(folder, _FOLDER)
    try:
        for step in steps:
            below = os.open(step, _FOLDER, dir_fd=at)
            os.close(at)
            at = below
        opened = os.open(name, flags | _CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK, mode, dir_fd=at)
    except OSError as error:
        if error.errno in {errno.ELOOP, errno.ENOTDIR, errno.EMLINK}:
            raise PathRefused(
                f"`{path}` may not be opened: a part of it became a link during the check", purpose
            ) from None
        raise
    finally:
        os.close(at)
    # Without O_NONBLOCK, a pipe in place of the file would block; regular files ignore the flag.
    if not (stat.S_ISREG(os.fstat(opened).st_mode) or stat.S_ISDIR(os.fstat(opened).st_mode)):
        os.close(opened)
        raise PathRefused(f"`{path}` may not be opened: it is neither a file nor a folder", purpose)
    return opened


MARK: Final = "x-path"
"""Keyword of a schema that marks an argument as a path, and says what the tool does with the file."""


class PathArgument(NamedTuple):
    """An argument that is a path, or a list of paths.

    Attributes:
        steps: Keys that lead to it; None for every item of a list.
        purpose: What the tool does with the file.
    """

    steps: tuple[str | None, ...]
    purpose: Purpose

    @property
    def name(self) -> str:
        """The argument for messages: `files[].path`."""
        return "".join("[]" if step is None else f".{step}" for step in self.steps).lstrip(".")

    def texts(self, arguments: Mapping[str, JSON]) -> Iterator[str]:
        """Yield the paths of a call."""
        yield from _texts(arguments, self.steps)


def _texts(value: object, steps: Sequence[str | None]) -> Iterator[str]:
    if not steps:
        if isinstance(value, str):
            yield value
        return
    step, *rest = steps
    if step is None:
        for item in value if isinstance(value, list) else ():
            yield from _texts(item, rest)
    elif isinstance(value, dict) and step in value:
        yield from _texts(value[step], rest)


def path_arguments(schema: Schema) -> tuple[PathArgument, ...]:
    """Return the arguments that a schema marks as paths, in `properties` and `items`."""
    return tuple(
        PathArgument(steps, purpose) for steps, purpose in marked_paths(schema) if purpose in PURPOSES
    )


def marked_paths(
    schema: object, steps: tuple[str | None, ...] = ()
) -> Iterator[tuple[tuple[str | None, ...], Any]]:
    """Yield each place with the mark, and its value."""
    if not isinstance(schema, dict):
        return
    if MARK in schema:
        yield steps, schema[MARK]
    properties = schema.get("properties")
    for name, part in properties.items() if isinstance(properties, dict) else ():
        yield from marked_paths(part, (*steps, name))
    yield from marked_paths(schema.get("items"), (*steps, None))
