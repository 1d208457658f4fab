"""The files of indexes in the user's cache folder, replaced atomically, and the key that authenticates them.

A file starts with a header of fixed size. The header is authenticated with the user's key before anything in it is
used; it holds the length and the authentication code (MAC) of the content. So a file that is damaged, cut short or
written by another user is ignored. The key is 32 random bytes in a file that only the user can read.
"""

from __future__ import annotations

import os
import stat
import time

from toolcrib.core.user_folders import (
    STATE_VARIABLE,
    find_work_tree,
    state_folder,
    why_unused,
    why_writable_by_others,
)

try:
    from _blake2 import blake2b  # importing `hashlib` loads OpenSSL, which takes 5 ms
except ImportError:
    from hashlib import blake2b

TYPE_CHECKING = False

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

KEY_BYTES = 32

_KEY_NAME = "key"
_BINARY = getattr(os, "O_BINARY", 0)
_READ_KEY = os.O_RDONLY | _BINARY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
"""Links are refused, because they could lead to another file of the user. Opening a pipe must not wait for a writer."""


class DamagedKeyError(OSError):
    """The key file is the user's own, but does not hold a key."""


def read_key() -> bytes:
    """Read the user's key.

    Raises:
        FileNotFoundError: There is no key yet.
        OSError: The key cannot be used; the message gives the reason.
    """
    folder = _state_folder()
    path = os.path.join(folder, _KEY_NAME)
    # Check the open handle, not the path: the path could be replaced between the check and the read.
    handle = os.open(path, _READ_KEY)
    try:
        why = _why_refused(path, os.fstat(handle)) or _why_folder_refused(folder)
        if why:
            raise PermissionError(why)
        key = os.read(handle, KEY_BYTES + 1)
    finally:
        os.close(handle)
    if len(key) != KEY_BYTES:
        raise DamagedKeyError(f"its key file {path} does not hold {KEY_BYTES} bytes")
    return key


def read_or_make_key() -> bytes:
    """Read the user's key, and create it if there is none.

    Raises:
        OSError: The key cannot be used or created; the message gives the reason.
    """
    try:
        return read_key()
    except FileNotFoundError:
        pass
    except DamagedKeyError:
        # Indexes under the damaged key are unreadable anyway, so a new key loses nothing.
        os.unlink(os.path.join(_state_folder(), _KEY_NAME))
    return _make_key()


def why_no_key() -> str:
    """Why there is no usable key, as the end of a sentence; empty if there is one or it can be created."""
    folder = state_folder()
    if folder is None:
        return f"there is no folder for its key; set {STATE_VARIABLE}"
    try:
        read_key()
    except FileNotFoundError:
        why = why_unused(folder)
        return f"its key cannot be kept in {folder}: {why}" if why else _why_in_work_tree(folder)
    except DamagedKeyError:
        return ""  # the next start replaces it
    except OSError as error:
        return str(error) if error.errno is None else f"cannot read its key: {error}"
    return ""


def _make_key() -> bytes:
    folder = _state_folder()
    # A key in a work tree would be committed, and everyone with the repository could forge indexes.
    why = _why_in_work_tree(folder)
    if not why:
        os.makedirs(folder, mode=0o700, exist_ok=True)
        why = _why_folder_refused(folder)
    if why:
        raise PermissionError(why)
    path = os.path.join(folder, _KEY_NAME)
    draft = f"{path}.{os.getpid()}.{time.time_ns()}"
    try:
        _write(draft, os.urandom(KEY_BYTES))
        _publish(draft, path)
    finally:
        if os.path.exists(draft):
            os.unlink(draft)
    return read_key()


def _write(draft: str, key: bytes) -> None:
    # The mode is set on creation: a `chmod` afterwards would leave a moment in which others can read the key.
    handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _BINARY, 0o600)
    try:
        if os.write(handle, key) != len(key):
            raise OSError(f"no space left for {draft}")
    finally:
        os.close(handle)


def _publish(draft: str, path: str) -> None:
    """Rename a complete key, so that no process reads half a key and all processes use the same one."""
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
    why = why_writable_by_others(os.stat(folder))
    return f"its key cannot be kept in {folder}: {why}" if why else _why_in_work_tree(folder)


def _why_in_work_tree(folder: str) -> str:
    top = find_work_tree(folder)
    return f"the folder of its key, {folder}, is in the work tree {top}" if top else ""


FILES = 64
"""Number of indexes that are kept; the least recently used are deleted."""

BYTES = 256 << 20
"""Maximum size of all indexes together, in bytes."""

_SUFFIX = ".index"
_LEFT_OVER = 3600
_DAY = 86400

_MAGIC = b"toolcrib index 3\n"
_LENGTH = 8
_MAC = 32
_BODY_MAC = len(_MAGIC) + _LENGTH
_HEADER_MAC = _BODY_MAC + _MAC
_HEADER = _HEADER_MAC + _MAC
"""The header: a line that names the format, the length of the body, its MAC, and a MAC of all of these and of the key
that the index belongs to. The body follows."""

_READ = (
    os.O_RDONLY
    | getattr(os, "O_BINARY", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)  # opening a pipe in the file's place would wait for its writer
)


class IndexFolder:
    """A folder of index files."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def path(self, key: bytes) -> str:
        """The file of a key."""
        return os.path.join(self._folder, f"{blake2b(key, digest_size=10).hexdigest()}{_SUFFIX}")

    def why_unused(self) -> str:
        """Why no index is read or written, as the end of a sentence about the file; empty if indexes are used."""
        top = find_work_tree(self._folder)
        return f"it is in the work tree {top}" if top else why_unused(self._folder) or why_no_key()

    def read(self, key: bytes) -> memoryview | None:
        """The body stored under a key; None if there is no authentic one.

        Raises:
            OSError: The file or the user's key cannot be read.
        """
        path = self.path(key)
        try:
            handle = os.open(path, _READ)
        except FileNotFoundError:
            return None
        try:
            found = os.fstat(handle)
            if (
                not stat.S_ISREG(found.st_mode)
                or not _HEADER <= found.st_size <= BYTES
                or not self._is_safe()
            ):
                return None
            mac_key = read_key()
            header = os.read(handle, _HEADER)
            if not header.startswith(_MAGIC) or not _is_authentic(mac_key, header, key):
                return None
            length = int.from_bytes(header[len(_MAGIC) : _BODY_MAC], "big")
            # The length is authenticated, so a body of another size is not even read.
            if _HEADER + length != found.st_size:
                return None
            content = os.read(handle, length)
        finally:
            os.close(handle)
        if not _is_same(mac_key, _mac(mac_key, content), header[_BODY_MAC:_HEADER_MAC]):
            return None
        # The time of modification orders the clean-up by last use. Once a day is enough and saves a write per start.
        if found.st_mtime < time.time() - _DAY:
            _if_possible(os.utime, path)
        return memoryview(content)

    def write(self, key: bytes, body: bytes) -> None:
        """Store a body under a key, atomically: a reader sees the old body or the new one.

        Args:
            key: The key.
            body: The content.

        Raises:
            OSError: It cannot be written; no partial file remains.
        """
        top = find_work_tree(self._folder)
        if top:
            raise PermissionError(f"{self._folder} is in the work tree {top}")
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        if not self._is_safe():
            raise PermissionError(f"others may write to {self._folder}")
        header = _header(read_or_make_key(), key, body)
        path = self.path(key)
        draft = f"{path}.{os.getpid()}.{time.time_ns()}"
        try:
            handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
            with open(handle, "wb") as file:
                file.write(header)
                file.write(body)
            # `os.replace` cannot replace a folder, which a user or another program may have put there.
            if os.path.isdir(path):
                _if_possible(os.rmdir, path)
            os.replace(draft, path)
        except OSError:
            _if_possible(os.unlink, draft)
            raise
        self._tidy()

    def _is_safe(self) -> bool:
        """Whether only the user can change the folder."""
        try:
            return not why_writable_by_others(os.stat(self._folder)) and not find_work_tree(self._folder)
        except OSError:
            return False

    def _tidy(self) -> None:
        """Delete the least recently used indexes, and drafts of processes that died."""
        size = 0
        for number, (used, length, path) in enumerate(sorted(self._files(), reverse=True)):
            size += length
            draft = not path.endswith(_SUFFIX)
            # A young draft may belong to a process that is writing it.
            if (draft and used < time.time() - _LEFT_OVER) or number >= FILES or size > BYTES:
                _if_possible(os.unlink, path)

    def _files(self) -> Iterator[tuple[float, int, str]]:
        try:
            with os.scandir(self._folder) as entries:
                for entry in entries:
                    if _SUFFIX in entry.name and entry.is_file(follow_symlinks=False):
                        about = entry.stat(follow_symlinks=False)
                        yield about.st_mtime, about.st_size, entry.path
        except OSError:
            return


def _header(mac_key: bytes, key: bytes, body: bytes) -> bytes:
    header = b"".join((_MAGIC, len(body).to_bytes(_LENGTH, "big"), _mac(mac_key, body)))
    return header + _mac_of_header(mac_key, header, key)


def _is_authentic(mac_key: bytes, header: bytes, key: bytes) -> bool:
    return _is_same(mac_key, _mac_of_header(mac_key, header[:_HEADER_MAC], key), header[_HEADER_MAC:])


def _mac(mac_key: bytes, content: bytes | memoryview) -> bytes:
    return blake2b(content, key=mac_key, digest_size=_MAC, person=b"index content").digest()


def _is_same(mac_key: bytes, found: bytes, expected: bytes) -> bool:
    """Whether two MACs are equal, in a time that does not depend on where they differ."""
    # Comparing MACs of the MACs hides the timing. Importing `hmac` for `compare_digest` takes longer than that.
    return _mac(mac_key, found) == _mac(mac_key, expected)


def _mac_of_header(mac_key: bytes, header: bytes, key: bytes) -> bytes:
    """The MAC of a header for one key, so that an index cannot be moved to the file of another key."""
    return blake2b(header + key, key=mac_key, digest_size=_MAC, person=b"index header").digest()


def _if_possible(act: Callable[[str], None], path: str) -> None:
    """Do something with a file, and ignore a failure."""
    try:  # noqa: SIM105 -- contextlib is slow to import
        act(path)
    except OSError:
        pass
