"""The files of indexes in the user's cache folder: written at once or not at all, and never trusted.

The content is `marshal`'s, which may not be fed by strangers. So only a folder is used that belongs to the user
and that nobody else may write to.
"""

from __future__ import annotations

import os
import time
from zlib import crc32

from toolcrib.user_folders import others_may_write

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
_HEAD = b"toolcrib index 1\n"
"""Then come a checksum (4) of all that follows, the length of the beginning (8), its checksum (4), and the body."""

_SUM, _BODY = len(_HEAD) + 4, len(_HEAD) + 16


class Cabinet:
    """A folder of indexes."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def path(self, key: bytes) -> str:
        """The file of a key. Two keys may share one, so the file tells whose it is."""
        return os.path.join(self._folder, f"{crc32(key):08x}{len(key):04x}{_SUFFIX}")

    def read(self, key: bytes) -> memoryview | None:
        """What was written under a key, whole and unharmed; None where there is nothing.

        Raises:
            OSError: The file can't be read.
        """
        data = self._data(key, whole=True)
        view = memoryview(data)
        if not data.startswith(_HEAD) or crc32(view[_SUM:]).to_bytes(4, "big") != data[len(_HEAD) : _SUM]:
            return None
        return view[_BODY:]

    def read_beginning(self, key: bytes) -> memoryview | None:
        """The beginning of what was written under a key, unharmed; None where there is nothing.

        Raises:
            OSError: The file can't be read.
        """
        data = self._data(key, whole=False)
        beginning = memoryview(data)[_BODY:]
        if not data.startswith(_HEAD) or crc32(beginning).to_bytes(4, "big") != data[_BODY - 4 : _BODY]:
            return None
        return beginning

    def _data(self, key: bytes, *, whole: bool) -> bytes:
        """The file of a key, or it up to the end of the beginning; empty where there is none."""
        path = self.path(key)
        if not self._is_ours():
            return b""
        try:
            with open(path, "rb") as file:
                data = file.read(-1 if whole else _BODY)
                if not whole:
                    data += file.read(int.from_bytes(data[_SUM : _SUM + 8], "big"))
                used = os.fstat(file.fileno()).st_mtime
        except FileNotFoundError:
            return b""
        if used < time.time() - _DAY:
            _if_possible(os.utime, path)
        return data

    def write(self, key: bytes, body: bytes, beginning: int = 0) -> None:
        """Write what belongs to a key. A reader sees what was there before, or all of this.

        Args:
            key: What it belongs to.
            body: The content.
            beginning: How many bytes of it can be read alone.

        Raises:
            OSError: It can't be written; nothing is left of it.
        """
        os.makedirs(self._folder, mode=0o700, exist_ok=True)
        if not self._is_ours():
            raise PermissionError(f"others may write to {self._folder}")
        path = self.path(key)
        draft = f"{path}.{os.getpid()}.{time.time_ns()}"
        about = beginning.to_bytes(8, "big") + crc32(memoryview(body)[:beginning]).to_bytes(4, "big")
        try:
            handle = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0), 0o600)
            with open(handle, "wb") as file:
                file.write(_HEAD)
                file.write(crc32(body, crc32(about)).to_bytes(4, "big"))
                file.write(about)
                file.write(body)
            os.replace(draft, path)
        except OSError:
            _if_possible(os.unlink, draft)
            raise
        self._tidy()

    def _is_ours(self) -> bool:
        """Whether nobody else may write to the folder."""
        try:
            return not others_may_write(os.stat(self._folder))
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


def _if_possible(act: Callable[[str], None], path: str) -> None:
    """Do something with a file that does no harm if it fails."""
    try:  # noqa: SIM105 -- contextlib is slow to import
        act(path)
    except OSError:
        pass
