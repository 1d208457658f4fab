"""The key that authenticates the user's indexes: 32 random bytes in a file that only the user can read.

An index that was written without the key is not read, whoever could write to the cache folder.
"""

from __future__ import annotations

import os
import stat
import time

from toolcrib.core.user_folders import (
    STATE_VARIABLE,
    in_work_tree,
    others_may_write,
    state_folder,
    why_unused,
)

BYTES = 32

_NAME = "key"
_BINARY = getattr(os, "O_BINARY", 0)
_READ = os.O_RDONLY | _BINARY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
"""Links are refused, because they could lead to another file of the user. Opening a pipe must not wait for a writer."""


class DamagedKeyError(OSError):
    """The key file is the user's own, but does not hold a key."""


def read_key() -> bytes:
    """Read the user's key.

    Raises:
        FileNotFoundError: There is no key yet.
        OSError: The key can't be used; the message says why.
    """
    folder = _state_folder()
    path = os.path.join(folder, _NAME)
    handle = os.open(path, _READ)
    try:
        why = _why_refused(path, os.fstat(handle)) or _why_folder_refused(folder)
        if why:
            raise PermissionError(why)
        key = os.read(handle, BYTES + 1)
    finally:
        os.close(handle)
    if len(key) != BYTES:
        raise DamagedKeyError(f"its key file {path} does not hold {BYTES} bytes")
    return key


def read_or_make_key() -> bytes:
    """Read the user's key, and make it if there is none.

    Raises:
        OSError: The key can't be used, or can't be made; the message says why.
    """
    try:
        return read_key()
    except FileNotFoundError:
        pass
    except DamagedKeyError:
        os.unlink(os.path.join(_state_folder(), _NAME))
    return _make_key()


def why_no_key() -> str:
    """Why there is no usable key, as the end of a sentence; empty if there is one, or one can be made."""
    folder = state_folder()
    if folder is None:
        return f"there is no folder for its key; set {STATE_VARIABLE}"
    try:
        read_key()
    except FileNotFoundError:
        why = why_unused(folder)
        return f"its key can't be kept in {folder}: {why}" if why else _why_in_work_tree(folder)
    except DamagedKeyError:
        return ""  # it is replaced by the next start
    except OSError as error:
        return str(error) if error.errno is None else f"its key can't be read: {error}"
    return ""


def _make_key() -> bytes:
    folder = _state_folder()
    why = _why_in_work_tree(folder)
    if not why:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        why = _why_folder_refused(folder)
    if why:
        raise PermissionError(why)
    path = os.path.join(folder, _NAME)
    draft = f"{path}.{os.getpid()}.{time.time_ns()}"
    try:
        _write(draft, os.urandom(BYTES))
        _publish(draft, path)
    finally:
        if os.path.exists(draft):
            os.unlink(draft)
    return read_key()


def _write(draft: str, key: bytes) -> None:
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, 0o600)
    try:
        if os.write(handle, key) != len(key):
            raise OSError(f"there is no room for {draft}")
    finally:
        os.close(handle)


def _publish(draft: str, path: str) -> None:
    """Give a complete key its name, so that no process reads half a key, and all processes use the same one."""
    try:
        os.link(draft, path)
    except FileExistsError:
        pass  # another process was faster
    except OSError:
        os.replace(draft, path)  # FAT and Android have no hard links; there the last process wins


def _state_folder() -> str:
    folder = state_folder()
    if folder is None:
        raise OSError(f"there is no folder for its key; set {STATE_VARIABLE}")
    return folder


def _why_refused(path: str, found: os.stat_result) -> str:
    """Why a key file is not used; empty if only the user can read and write it."""
    if not stat.S_ISREG(found.st_mode):
        return f"its key file {path} is not a regular file"
    if os.name != "posix":
        return ""
    if found.st_uid != os.geteuid():
        return f"its key file {path} belongs to another user"
    return f"others may read or write its key file {path}" if found.st_mode & 0o077 else ""


def _why_folder_refused(folder: str) -> str:
    """Why the folder of a key is not used; empty if only the user decides what is in it."""
    why = others_may_write(os.stat(folder))
    return f"its key can't be kept in {folder}: {why}" if why else _why_in_work_tree(folder)


def _why_in_work_tree(folder: str) -> str:
    top = in_work_tree(folder)
    return f"the folder of its key, {folder}, lies in the work tree {top}" if top else ""
