"""The files of indexes in the user's cache folder: replaced atomically, and authenticated.

A file starts with a header of fixed size. The header is authenticated with the user's key before anything in it is
used; it holds the lengths and the authentication codes (MACs) of the content. So a file that is damaged, cut short or
written by somebody else is ignored, whatever it contains.
"""

from __future__ import annotations

import os
import stat
import time

from toolcrib.core.user_folders import in_work_tree, others_may_write, why_unused
from toolcrib.loading.cache.mac_key import read_key, read_or_make_key, why_no_key

try:
    from _blake2 import blake2b  # importing `hashlib` loads OpenSSL, which takes 5 ms
except ImportError:
    from hashlib import blake2b

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

FILES = 64
"""So many indexes are kept, those that were used last."""

BYTES = 256 << 20
"""So large may they be together."""

_SUFFIX = ".index"
_LEFT_OVER = 3600
_DAY = 86400

_MAGIC = b"toolcrib index 2\n"
_LENGTH = 8
_MAC = 32
_LENGTHS = len(_MAGIC)
_BODY_LENGTH = _LENGTHS + _LENGTH
_BEGINNING_MAC = _BODY_LENGTH + _LENGTH
_BODY_MAC = _BEGINNING_MAC + _MAC
_HEADER_MAC = _BODY_MAC + _MAC
_HEADER = _HEADER_MAC + _MAC
"""The header: a line that names the format, the lengths of the beginning and of the body, their MACs, and a MAC of all
of these and of the key that the index belongs to. The body follows; its beginning can be read alone."""

_READ = (
    os.O_RDONLY
    | getattr(os, "O_BINARY", 0)
    | getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_NONBLOCK", 0)  # opening a pipe in the file's place would wait for its writer
)


class Cabinet:
    """A folder of indexes."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def path(self, key: bytes) -> str:
        """The file of a key."""
        return os.path.join(self._folder, f"{blake2b(key, digest_size=10).hexdigest()}{_SUFFIX}")

    def why_unused(self) -> str:
        """Why no index is read or written, as the end of a sentence about the file; empty if indexes are used."""
        top = in_work_tree(self._folder)
        return f"it lies in the work tree {top}" if top else why_unused(self._folder) or why_no_key()

    def read(self, key: bytes) -> memoryview | None:
        """What was written under a key, whole and unharmed; None where there is nothing.

        Raises:
            OSError: The file, or the user's key, can't be read.
        """
        return self._read(key, whole=True)

    def read_beginning(self, key: bytes) -> memoryview | None:
        """The beginning of what was written under a key, unharmed; None where there is nothing.

        Raises:
            OSError: The file, or the user's key, can't be read.
        """
        return self._read(key, whole=False)

    def _read(self, key: bytes, *, whole: bool) -> memoryview | None:
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
            beginning, length = _lengths(header)
            if _HEADER + length != found.st_size:
                return None
            content = os.read(handle, length if whole else beginning)
        finally:
            os.close(handle)
        expected = header[_BODY_MAC:_HEADER_MAC] if whole else header[_BEGINNING_MAC:_BODY_MAC]
        if not _is_same(mac_key, _mac(mac_key, content), expected):
            return None
        if found.st_mtime < time.time() - _DAY:
            _if_possible(os.utime, path)
        return memoryview(content)

    def write(self, key: bytes, body: bytes, beginning: int = 0) -> None:
        """Write what belongs to a key. A reader sees what was there before, or all of this.

        Args:
            key: What it belongs to.
            body: The content.
            beginning: How many bytes of it can be read alone.

        Raises:
            OSError: It can't be written; nothing is left of it.
        """
        top = in_work_tree(self._folder)
        if top:
            raise PermissionError(f"{self._folder} lies in the work tree {top}")
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        if not self._is_safe():
            raise PermissionError(f"others may write to {self._folder}")
        header = _header(read_or_make_key(), key, body, beginning)
        path = self.path(key)
        draft = f"{path}.{os.getpid()}.{time.time_ns()}"
        try:
            handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
            with open(handle, "wb") as file:
                file.write(header)
                file.write(body)
            if os.path.isdir(path):
                _if_possible(os.rmdir, path)
            os.replace(draft, path)
        except OSError:
            _if_possible(os.unlink, draft)
            raise
        self._tidy()

    def _is_safe(self) -> bool:
        """Whether only the user decides what is in the folder."""
        try:
            return not others_may_write(os.stat(self._folder)) and not in_work_tree(self._folder)
        except OSError:
            return False

    def _tidy(self) -> None:
        """Remove what was used longest ago, and drafts that nobody finished."""
        size = 0
        for number, (used, length, path) in enumerate(sorted(self._files(), reverse=True)):
            size += length
            draft = not path.endswith(_SUFFIX)
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


def _header(mac_key: bytes, key: bytes, body: bytes, beginning: int) -> bytes:
    header = b"".join(
        (
            _MAGIC,
            beginning.to_bytes(_LENGTH, "big"),
            len(body).to_bytes(_LENGTH, "big"),
            _mac(mac_key, memoryview(body)[:beginning]),
            _mac(mac_key, body),
        )
    )
    return header + _mac_of_header(mac_key, header, key)


def _is_authentic(mac_key: bytes, header: bytes, key: bytes) -> bool:
    return _is_same(mac_key, _mac_of_header(mac_key, header[:_HEADER_MAC], key), header[_HEADER_MAC:])


def _lengths(header: bytes) -> tuple[int, int]:
    """The lengths of the beginning and of the body, from an authentic header."""
    return (
        int.from_bytes(header[_LENGTHS:_BODY_LENGTH], "big"),
        int.from_bytes(header[_BODY_LENGTH:_BEGINNING_MAC], "big"),
    )


def _mac(mac_key: bytes, content: bytes | memoryview) -> bytes:
    return blake2b(content, key=mac_key, digest_size=_MAC, person=b"index content").digest()


def _is_same(mac_key: bytes, found: bytes, expected: bytes) -> bool:
    """Whether two MACs are equal; the time that this takes does not show where they differ.

    Importing `hmac.compare_digest` takes longer than making two more MACs.
    """
    return _mac(mac_key, found) == _mac(mac_key, expected)


def _mac_of_header(mac_key: bytes, header: bytes, key: bytes) -> bytes:
    """The MAC of a header for one key, so that no other index can take this one's place."""
    return blake2b(header + key, key=mac_key, digest_size=_MAC, person=b"index header").digest()


def _if_possible(act: Callable[[str], None], path: str) -> None:
    """Do something with a file that does no harm if it fails."""
    try:  # noqa: SIM105 -- contextlib is slow to import
        act(path)
    except OSError:
        pass
