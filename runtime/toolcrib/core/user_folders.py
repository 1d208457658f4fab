"""The user's cache and state folders, and checks that a folder is safe to use."""

from __future__ import annotations

# `toolcrib list` imports this module, so it imports nothing slow.
import os
import stat
import sys

CACHE_VARIABLE = "TOOLCRIB_CACHE_DIR"
"""The environment variable that names the cache folder."""

STATE_VARIABLE = "TOOLCRIB_STATE_DIR"
"""The environment variable that names the state folder."""

_REPOSITORIES = (".git", ".hg")


def cache_folder() -> str | None:
    """Return the folder for data that can be recreated; None if the system defines no such folder."""
    told = os.environ.get(CACHE_VARIABLE)
    if told:
        return os.path.abspath(told)
    if sys.platform == "win32":
        parent = os.environ.get("LOCALAPPDATA", "")
    elif sys.platform == "darwin":
        parent = os.path.expanduser("~/Library/Caches")
    else:
        parent = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
    return os.path.join(parent, "toolcrib") if os.path.isabs(parent) else None


def state_folder() -> str | None:
    """Return the folder for persistent data, such as keys; None if the system defines no such folder."""
    told = os.environ.get(STATE_VARIABLE)
    if told:
        return os.path.abspath(told)
    if sys.platform == "win32":
        # The cache folder is `toolcrib` itself on Windows; a subfolder keeps the two apart.
        parent, name = os.environ.get("LOCALAPPDATA", ""), os.path.join("toolcrib", "state")
    elif sys.platform == "darwin":
        parent, name = os.path.expanduser("~/Library/Application Support"), "toolcrib"
    else:
        parent = os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state")
        name = "toolcrib"
    return os.path.join(parent, name) if os.path.isabs(parent) else None


def why_unused(folder: str) -> str:
    """Return why a folder cannot be used, as the end of a sentence; empty if it can be used or created."""
    try:
        found = os.stat(folder)
    except FileNotFoundError:
        parent = os.path.dirname(folder)
        return why_unused(parent) if parent != folder and not os.path.isdir(parent) else _barred(parent)
    except NotADirectoryError:
        return "one of its parents is not a folder"
    except OSError as error:
        return f"cannot access it: {error.strerror}"
    if not stat.S_ISDIR(found.st_mode):
        return "it is not a folder"
    return why_writable_by_others(found) or _barred(folder)


def why_writable_by_others(found: os.stat_result) -> str:
    """Return why others can write to a folder or file; empty if only the user can."""
    # Windows has no permission bits. Access control lists protect a user's folders there.
    if os.name != "posix":
        return ""
    if is_owned_by_other(found):
        return "it belongs to another user"
    return "others can write to it" if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH) else ""


def why_not_own(folder: str, *, links: bool = True) -> str:
    """Return why other users may control a folder; empty if they cannot, or if the folder does not exist.

    Args:
        folder: Path of the folder. Its parents are not checked.
        links: Whether it may be a symbolic link of the user.

    Raises:
        OSError: The folder cannot be inspected.
    """
    try:
        found = os.lstat(folder)
        if stat.S_ISLNK(found.st_mode):
            if not links:
                return "it is a symbolic link"
            if is_owned_by_other(found):
                return "it is a symbolic link of another user"
            found = os.stat(folder)
    except FileNotFoundError:
        return ""
    return why_writable_by_others(found) if stat.S_ISDIR(found.st_mode) else "it is not a folder"


def open_regular(path: str, flags: int) -> int:
    """Open a file without following a link and without waiting for the writer of a FIFO: the `opener` of `open`."""
    return os.open(path, flags | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOFOLLOW", 0))


def is_owned_by_other(found: os.stat_result) -> bool:
    """Whether a folder, file or link belongs to another user."""
    # The effective user counts, because files are opened with its rights.
    return os.name == "posix" and found.st_uid != os.geteuid()


def find_work_tree(folder: str) -> str:
    """Return the nearest folder at or above `folder` that contains `.git` or `.hg`; empty if there is none."""
    # Both the resolved path and the path as given are checked: the author of a work tree decides where a symlink
    # in it leads, so one that leads outside must not hide the work tree.
    real = os.path.realpath(folder)
    return _top_of(real) or (_top_of(folder) if folder != real else "")


def _top_of(folder: str) -> str:
    folder = os.path.abspath(folder)
    # `.git` is a file in worktrees and submodules, and may be a broken link: its existence is enough.
    while not any(os.path.lexists(os.path.join(folder, name)) for name in _REPOSITORIES):
        parent = os.path.dirname(folder)
        if parent == folder:
            return ""
        folder = parent
    return folder


def _barred(folder: str) -> str:
    return "" if os.access(folder, os.W_OK | os.X_OK) else "it is not writable"


def working_folder() -> str:
    """Return the working directory; empty if it has been deleted."""
    try:
        return os.getcwd()
    except FileNotFoundError:
        return ""
