"""Where a project's file lies. Nothing is read here, and little imported: every command begins with this."""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

PROJECT_FILES = ("toolcrib.yaml", "toolcrib.yml", "toolcrib.json")
"""A folder with one of these is a project."""


def project_file(folder: str | os.PathLike[str]) -> str | None:
    """The file that makes a folder a project; None where there is none."""
    return next(iter(_project_files(os.fspath(folder))), None)


def other_project_files(file: str) -> list[str]:
    """The project files beside the one that counts, which are not read."""
    return [path for path in _project_files(os.path.dirname(file)) if path != os.path.normpath(file)]


def _project_files(folder: str) -> Iterator[str]:
    paths = (os.path.normpath(os.path.join(folder, name)) for name in PROJECT_FILES)
    return (path for path in paths if os.path.isfile(path))


def find_project(folder: str | os.PathLike[str] = ".") -> str | None:
    """The file of the project that a folder lies in, named relative to the working directory if the folder is.

    The nearest folder above counts; `candidate_folders` says where the search ends.
    """
    files = (project_file(place) for place in candidate_folders(folder))
    return next((file for file in files if file is not None), None)


def candidate_folders(folder: str | os.PathLike[str] = ".") -> Iterator[str]:
    """The folders in which a project's file is looked for, the nearest first.

    The last one is a folder that holds `.git`, the home folder, or the root. A folder above the first into
    which everybody may put files (such as `/tmp`) is no place for a project, and nothing above it is.
    There is no place at all where the working directory is gone.
    """
    given = os.fspath(folder)
    try:
        here, home = os.path.abspath(given), os.path.expanduser("~")
    except FileNotFoundError:
        return
    while True:
        yield here if os.path.isabs(given) else os.path.relpath(here)
        above = os.path.dirname(here)
        if here in {home, above} or os.path.exists(os.path.join(here, ".git")) or _is_shared(above):
            return
        here = above


def _is_shared(folder: str) -> bool:
    """Whether everybody may put files there: what a stranger put above a folder must not take effect in it."""
    try:
        mode = os.stat(folder).st_mode
    except OSError:
        return False
    return bool(mode & stat.S_ISVTX and mode & stat.S_IWOTH)
