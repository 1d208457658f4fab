"""The key that authenticates the user's indexes: 32 random bytes in a file that only the user can read.

Whoever can write an index without the key can write none that is read.
"""

from __future__ import annotations

import os
import stat
import time

from toolcrib.user_folders import STATE_VARIABLE, in_work_tree, others_may_write, state_folder, why_unused

BYTES = 32

_NAME = "key"
_BINARY = getattr(os, "O_BINARY", 0)
_READ = os.O_RDONLY | _BINARY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
"""A link would lead to what the user keeps elsewhere; opening a pipe would wait for its writer."""


class DamagedKeyError(OSError):
    """The key file is the user's own, and does not hold a key."""


def read_key() -> bytes:
    """The user's key.

    Raises:
        FileNotFoundError: None was made yet.
        OSError: It can't be used; the text says why.
    """
    folder = _state_folder()
    path = os.path.join(folder, _NAME)
    handle = os.open(path, _READ)
    try:
        found = os.fstat(handle)
        why = _why_refused(found) or others_may_write(os.stat(folder)) or _why_in_work_tree(folder)
        if why:
            raise PermissionError(f"the key file {path} is not used: {why}")
        key = os.read(handle, BYTES + 1)
    finally:
        os.close(handle)
    if len(key) != BYTES:
        raise DamagedKeyError(f"the key file {path} does not hold {BYTES} bytes")
    return key


def read_or_make_key() -> bytes:
    """The user's key; it is made at first need.

    Raises:
        OSError: There is none, and none can be made; the text says why.
    """
    try:
        return read_key()
    except FileNotFoundError:
        pass
    except DamagedKeyError:
        os.unlink(os.path.join(_state_folder(), _NAME))
    return _make_key()


def why_no_key() -> str:
    """Why no key can be had, as the end of a sentence; empty if there is one, or one could be made."""
    folder = state_folder()
    if folder is None:
        return f"there is no state folder for its key: name one with {STATE_VARIABLE}"
    try:
        read_key()
    except FileNotFoundError:
        why = why_unused(folder) or _why_in_work_tree(folder)
        return f"no key can be kept in {folder}: {why}" if why else ""
    except DamagedKeyError:
        return ""
    except OSError as error:
        return str(error) if error.errno is None else f"its key can't be read: {error}"
    return ""


def _make_key() -> bytes:
    folder = _state_folder()
    os.makedirs(folder, mode=0o700, exist_ok=True)
    why = others_may_write(os.stat(folder)) or _why_in_work_tree(folder)
    if why:
        raise PermissionError(f"no key can be kept in {folder}: {why}")
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
    """Give a whole key its name. So whoever finds a key can read all of it, and several processes use the same."""
    try:
        os.link(draft, path)
    except FileExistsError:
        pass  # another process was faster
    except OSError:
        os.replace(draft, path)  # without links (FAT, Android) the last one counts


def _state_folder() -> str:
    folder = state_folder()
    if folder is None:
        raise OSError("there is no state folder for the key")
    return folder


def _why_refused(found: os.stat_result) -> str:
    """Why a key file may not be the user's alone; empty if it is."""
    if not stat.S_ISREG(found.st_mode):
        return "it is no file"
    if os.name != "posix":
        return ""
    if found.st_uid != os.geteuid():
        return "it belongs to another user"
    return "others may read or write it" if found.st_mode & 0o077 else ""


def _why_in_work_tree(folder: str) -> str:
    top = in_work_tree(folder)
    return f"{folder} lies in the work tree {top}" if top else ""
