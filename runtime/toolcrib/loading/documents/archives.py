"""A pack in a zip archive, read in memory: nothing is unpacked to disk, and one fault refuses the whole archive."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from toolcrib.core.errors import Problem
from toolcrib.loading.documents.document import first_bytes
from toolcrib.loading.documents.files import PACK_FILES, SKIPPED_FOLDERS, SUFFIXES, MemoryFiles
from toolcrib.loading.documents.zip_reader import ARCHIVE_BYTES, Faults, read_zip

_OF_MACOS: Final = "__MACOSX"
"""The folder that macOS adds to archives, for what its file system knows of each file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveFiles:
    """The files of a pack that lies in an archive.

    Attributes:
        source: The archive, as it was named.
        top: The folder within the archive that is the pack, with a `/` at its end; empty for the archive itself.
        pack_file: The file that makes it a pack, e.g. `pack.yaml`; empty where there is none.
        contents: Path within the pack (with `/`) -> content, sorted.
        digest: SHA-256 of the archive, in hex.
        size: Bytes of the archive.
    """

    source: str
    top: str
    pack_file: str
    contents: Mapping[str, bytes]
    digest: str
    size: int

    def place(self, name: str) -> str:
        """What a file of the pack is called in problems: the archive, then the path within it."""
        return f"{self.source}/{self.top}{name}"

    def files(self, folder: str = "") -> MemoryFiles:
        """The files that documents in a folder of the pack may name."""
        return MemoryFiles(self.contents, folder)


def open_archive(path: Path, source: str = "") -> tuple[ArchiveFiles | None, list[Problem]]:
    """Read a pack from a zip archive on disk, wholly, into memory.

    Args:
        path: The archive.
        source: What it is called in problems; the path unless given.

    Returns:
        The files, or None where the archive is refused, and everything that is wrong with it.
    """
    source = source or str(path)
    try:
        data = first_bytes(path, ARCHIVE_BYTES)
    except FileNotFoundError:
        message = "there is no such file"
        return None, [Problem(code="path_not_found", message=message, source=source)]
    except (OSError, ValueError) as error:
        reason = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
        message = f"the archive can't be read: {reason}"
        return None, [Problem(code="file_unreadable", message=message, source=source)]
    return parse_archive(source, data)


def parse_archive(source: str, data: bytes) -> tuple[ArchiveFiles | None, list[Problem]]:
    """Read a pack from the bytes of a zip archive; as `open_archive`."""
    faults = Faults(source)
    contents = read_zip(data, faults)
    if faults.found:
        return None, faults.found
    top = _top(contents)
    within = {name.removeprefix(top): contents[name] for name in sorted(contents) if name.startswith(top)}
    archive = ArchiveFiles(
        source=source,
        top=top,
        pack_file=next((name for name in PACK_FILES if name in within), ""),
        contents=within,
        digest=hashlib.sha256(data).hexdigest(),
        size=len(data),
    )
    return archive, []


def _top(contents: Mapping[str, bytes]) -> str:
    """The one folder at the top of the archive, if that is the pack; else empty, for the archive itself."""
    if any(name in contents for name in PACK_FILES):
        return ""
    tops = {name.partition("/")[0] for name in contents}
    seen = [top for top in tops if not top.startswith(".") and top != _OF_MACOS]
    one = len(seen) == 1 and any(f"{seen[0]}/{name}" in contents for name in PACK_FILES)
    return f"{seen[0]}/" if one else ""


def documents_among(names: Iterable[str]) -> list[str]:
    """Which files of a pack in memory a scan of the same folder would read, in its order; none that is hidden."""
    found = [name for name in names if name.endswith(SUFFIXES) and not any(map(_hidden, name.split("/")))]
    return sorted(found, key=_place_in_walk)


def _hidden(part: str) -> bool:
    return part.startswith(".") or part in SKIPPED_FOLDERS


def _place_in_walk(name: str) -> list[tuple[bool, str]]:
    """The files of a folder come before the folders in it."""
    *folders, file = name.split("/")
    return [*((True, folder) for folder in folders), (False, file)]
