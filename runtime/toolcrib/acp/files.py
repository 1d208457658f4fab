"""The files that an agent may read and write: those below the roots, as far as the project permits it."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Sequence
from typing import Final

from acp.exceptions import RequestError

from toolcrib.core.text import format_size
from toolcrib.schema.validation.violations import shorten
from toolcrib.security.path_access import EVERYWHERE, PathAccess, PathRefused, Purpose
from toolcrib.serve.acp.connection import INTERNAL_ERROR, INVALID_PARAMS, NOT_FOUND

MOST_READ: Final = 32 << 20
"""Maximum size of the text that one request returns, in bytes."""

_PERMITTED: Final = "permitted folders: "


class AgentFiles:
    """Reads and writes files for an agent.

    Args:
        roots: The folders in which files may be used, absolute.
        project: The files that the project permits.
    """

    def __init__(self, roots: Sequence[str], project: Callable[[], PathAccess] = lambda: EVERYWHERE) -> None:
        self._roots = tuple(roots)
        self._access = PathAccess(self._roots[0], self._roots, self._roots)
        self._project = project

    def why_refused(self, path: str, purpose: Purpose) -> str:
        """Why a path may not be used, as the end of a sentence; empty if it may."""
        if not os.path.isabs(path):
            return "it is not an absolute path"
        if self._access.why_refused(path, purpose):
            real = self._access.resolve(path)
            leads = f"leads to `{real}`, which is" if real != os.path.normpath(path) else "is"
            return f"it {leads} outside of the {_PERMITTED}{', '.join(f'`{each}`' for each in self._roots)}"
        return self._project().why_refused(path, purpose)

    def read(self, path: str, line: int | None = None, limit: int | None = None) -> str:
        """The text of a file.

        Args:
            path: Absolute path.
            line: First line, from 1.
            limit: Maximum number of lines.

        Raises:
            RequestError: The file may not be read, does not exist, is not text in UTF-8, is too large, or ends before the line.
        """
        first = 1 if line is None else line
        for name, number in (("line", first), ("limit", 1 if limit is None else limit)):
            if number < 1:
                raise RequestError(INVALID_PARAMS, f"`{name}` must be at least 1, got {number}")
        descriptor = self._open(path, "read")
        with os.fdopen(descriptor, "rb") as file:
            kept: list[bytes] = []
            size = number = 0
            try:
                # A line that is too long is read no further than what is reported.
                while (limit is None or len(kept) < limit) and (piece := file.readline(MOST_READ + 1)):
                    number += 1
                    if number >= first:
                        kept.append(piece)
                        size += len(piece)
                    if max(size, len(piece)) > MOST_READ:
                        message = f"`{shorten(path)}` has more than {format_size(MOST_READ)} of text there"
                        raise RequestError(INVALID_PARAMS, f"{message}; use `line` and `limit`")
            except OSError as error:
                raise _failed(path, "read", error) from None
        # An empty file has an empty text; the text after the end of a file would hide a mistake.
        if not kept and first > 1:
            raise RequestError(
                INVALID_PARAMS, f"`{shorten(path)}` has only {number} lines, and line {first} was requested"
            )
        try:
            return b"".join(kept).decode()
        except UnicodeDecodeError:
            raise RequestError(INVALID_PARAMS, f"`{shorten(path)}` is not text in UTF-8") from None

    def write(self, path: str, content: str) -> None:
        """Replace the text of a file, or create it.

        Raises:
            RequestError: The file may not be written, or its folder does not exist.
        """
        try:
            data = content.encode()
        except UnicodeEncodeError:
            raise RequestError(INVALID_PARAMS, "`content` contains half of a surrogate pair") from None
        descriptor = self._open(path, "write")
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
        except OSError as error:
            raise _failed(path, "write", error) from None

    def check_folder(self, path: str) -> str:
        """Return a folder in which a command may run.

        Raises:
            RequestError: It does not exist, or is not below a root.
        """
        why = self.why_refused(path, "write")
        if why:
            raise RequestError(INVALID_PARAMS, f"`{shorten(path)}` cannot be the working directory: {why}")
        real = self._access.resolve(path)
        if not os.path.isdir(real):
            raise RequestError(NOT_FOUND, f"the folder `{shorten(path)}` does not exist")
        return real

    def _open(self, path: str, purpose: Purpose) -> int:
        why = self.why_refused(path, purpose)
        if why:
            raise RequestError(INVALID_PARAMS, f"`{shorten(path)}` may not be opened to {purpose}: {why}")
        try:
            descriptor = self._access.open(path, purpose)
        except PathRefused as error:
            raise RequestError(INVALID_PARAMS, error.message) from None
        except OSError as error:
            raise _failed(path, purpose, error) from None
        if stat.S_ISDIR(os.fstat(descriptor).st_mode):
            os.close(descriptor)
            raise RequestError(INVALID_PARAMS, f"`{shorten(path)}` is a folder")
        return descriptor


def _failed(path: str, purpose: Purpose, error: OSError) -> RequestError:
    shown = shorten(path)
    if isinstance(error, FileNotFoundError):
        what = "the file" if purpose == "read" else "the folder of"
        return RequestError(NOT_FOUND, f"{what} `{shown}` does not exist", {"uri": path})
    if isinstance(error, IsADirectoryError):
        return RequestError(INVALID_PARAMS, f"`{shown}` is a folder")
    return RequestError(INTERNAL_ERROR, f"cannot {purpose} `{shown}`: {error.strerror or error}")
