"""Find the file of a project. Every command starts here, so nothing is read and little is imported."""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

PROJECT_FILES = ("toolcrib.yaml", "toolcrib.yml", "toolcrib.json")
"""A folder with one of these files is a project."""


def project_file(folder: str | os.PathLike[str]) -> str | None:
    """The project file of a folder, if any."""
    return next(iter(_project_files(os.fspath(folder))), None)


def other_project_files(file: str) -> list[str]:
    """Further project files in the folder of a project file, which are ignored."""
    return [path for path in _project_files(os.path.dirname(file)) if path != os.path.normpath(file)]


def _project_files(folder: str) -> Iterator[str]:
    paths = (os.path.normpath(os.path.join(folder, name)) for name in PROJECT_FILES)
    return (path for path in paths if os.path.isfile(path))


def find_project(folder: str | os.PathLike[str] = ".") -> str | None:
    """The file of the project that contains a folder, as a relative path if the folder is given as one.

    The nearest folder upwards applies; see `candidate_folders` for the end of the search.
    """
    files = (project_file(place) for place in candidate_folders(folder))
    return next((file for file in files if file is not None), None)


def candidate_folders(folder: str | os.PathLike[str] = ".") -> Iterator[str]:
    """The folders that are searched for a project file, the nearest first.

    The search ends at a folder with `.git`, the home folder or the root, and below a folder above the first that
    everybody can write to (such as `/tmp`). It is empty if the working directory was deleted.
    """
    given = os.fspath(folder)
    try:
        here, home = os.path.abspath(given), os.path.expanduser("~")
    except FileNotFoundError:
        return
    while True:
        yield here if os.path.isabs(given) else os.path.relpath(here)
        above = os.path.dirname(here)
        # A project does not extend beyond its repository, and a file in the home folder's parent belongs to
        # another user.
        if here in {home, above} or os.path.exists(os.path.join(here, ".git")) or _is_shared(above):
            return
        here = above


def _is_shared(folder: str) -> bool:
    """Whether everybody can create files in a folder."""
    # Another user could put `/tmp/toolcrib.yaml` above a folder of ours. Git had the same bug (CVE-2022-24765).
    try:
        mode = os.stat(folder).st_mode
    except OSError:
        return False
    return bool(mode & stat.S_ISVTX and mode & stat.S_IWOTH)
