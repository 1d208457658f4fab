"""Read packs from untrusted zip archives, in memory; nothing is unpacked to disk. The format: PKWARE's APPNOTE.TXT 6.3.

The end record, the directory and the local headers must agree and cover every byte, or the whole archive is rejected.
The bounds below hold independently of what the archive claims about itself.
"""

from __future__ import annotations

import hashlib
import re
import stat
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from toolcrib.core.errors import Problem
from toolcrib.loading.documents.document import first_bytes
from toolcrib.loading.documents.files import PACK_FILES, SKIPPED_FOLDERS, SUFFIXES, MemoryFiles
from toolcrib.loading.documents.positions import excerpt

# `zipfile` is not used: it accepts stray bytes and local headers with other sizes than the directory, and before
# Python 3.11.8 overlapping entries. The first two let two readers see different content in one archive; overlaps
# are how zip bombs reach extreme ratios (Fifield, "A better zip bomb", WOOT 2019).

ENTRIES: Final = 2_000
"""Maximum number of files and folders in an archive."""

FILE_BYTES: Final = 1 << 20
"""Maximum size of one file, in bytes."""

CONTENT_BYTES: Final = 16 << 20
"""Maximum size of all files together, in bytes."""

ARCHIVE_BYTES: Final = 20 << 20
"""Maximum size of the archive itself, in bytes."""

RATIO: Final = 100
"""Maximum expansion of a file of at least `RATIO_FROM` bytes: content bytes per byte in the archive."""

# A small file of blanks or zeros legitimately compresses better than 100:1.
RATIO_FROM: Final = 64 << 10

NAME_DEPTH: Final = 8
"""Maximum number of segments in a name, including the file's own."""

NAME_LENGTH: Final = 255
"""Maximum length of a name, in characters."""

MOST: Final = 100
"""Maximum number of problems reported for one archive."""

STORED: Final = 0
DEFLATED: Final = 8

_END: Final = struct.Struct("<4s4H2LH")
_CENTRAL: Final = struct.Struct("<4s6H3L5H2L")
_LOCAL: Final = struct.Struct("<4s5H3L2H")
_SUMS: Final = struct.Struct("<3L")

_END_MARK: Final = b"PK\x05\x06"
_CENTRAL_MARK: Final = b"PK\x01\x02"
_LOCAL_MARK: Final = b"PK\x03\x04"
_SUMS_MARK: Final = b"PK\x07\x08"
_ZIP64_MARK: Final = b"PK\x06\x07"
_ZIP64_LOCATOR: Final = 20

_VERSION: Final = 63
"""Highest version of the format that is read, times ten (APPNOTE 4.4.3)."""

_SUMS_FOLLOW: Final = 1 << 3
_ENCRYPTED: Final = 1 << 0 | 1 << 6 | 1 << 13
_KNOWN_FLAGS: Final = _SUMS_FOLLOW | 1 << 1 | 1 << 2 | 1 << 11  # 1, 2: compression level; 11: UTF-8 names

_EXTRA_ZIP64: Final = 0x0001
_EXTRA_OTHER_NAME: Final = 0x7075
_EXTRA_BYTES: Final = 512

_DOS_FOLDER: Final = 0x10
# In the lower 16 bits of the external attributes, which tools on Windows set.
_DOS_NO_FILE: Final = 0x08 | 0x400  # volume label, reparse point (a link on Windows)

# ASCII only: macOS stores names decomposed, Windows replaces characters of other code pages, and neither
# accepts `:` or `\`. A name that starts with `/`, or has a segment `.` or `..`, could leave the pack ("zip
# slip").
_SAFE_NAME: Final = re.compile(rb"(?!\.{1,2}(?:/|$))[A-Za-z0-9._-]+(?:/(?!\.{1,2}(?:/|$))[A-Za-z0-9._-]+)*/?")

_BUILD: Final = "build the archive with `toolcrib pack build`"


class ArchiveFaults:
    """The problems found in an archive so far."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._codes: set[str] = set()
        self.found: list[Problem] = []

    def tell(self, code: str, message: str, hint: str = "") -> None:
        """Add a problem; after `MOST` of them, add one note and ignore the rest."""
        self._codes.add(code)
        if len(self.found) < MOST:
            self.found.append(Problem(code=code, message=message, hint=hint, source=self._source))
        elif len(self.found) == MOST:
            message = f"stopped after {MOST} problems; the rest was not checked"
            self.found.append(Problem(code="too_many_problems", message=message, source=self._source))

    def told(self, *codes: str) -> bool:
        """Whether a problem with one of these codes was found."""
        return not self._codes.isdisjoint(codes)


class _Entry(NamedTuple):
    """One line of the directory."""

    raw: bytes
    flags: int
    method: int
    crc: int
    packed: int
    size: int
    attributes: int
    offset: int

    @property
    def shown(self) -> str:
        """The name as a message shows it."""
        return _shown(self.raw)

    @property
    def is_folder(self) -> bool:
        return self.raw.endswith(b"/")

    @property
    def sums(self) -> tuple[int, int, int]:
        """CRC, packed size and size, in the order of the local header and of the data descriptor."""
        return (self.crc, self.packed, self.size)

    @property
    def is_safe(self) -> bool:
        """Whether the name denotes the same path below the archive on every operating system."""
        raw = self.raw
        return len(raw) <= NAME_LENGTH and _SAFE_NAME.fullmatch(raw) is not None and self.depth <= NAME_DEPTH

    @property
    def is_readable(self) -> bool:
        """Whether the content is unencrypted and uses a supported compression method."""
        return not self.flags & ~_KNOWN_FLAGS and self.method in {STORED, DEFLATED}

    @property
    def depth(self) -> int:
        """Parts of the name."""
        return self.raw.rstrip(b"/").count(b"/") + 1


def _shown(raw: bytes) -> str:
    """A name as a message shows it."""
    # Cut before decoding: a name may have 65,535 bytes, and up to 2,000 names are shown.
    return excerpt(raw[: _SHOWN + 1].decode("utf-8", "replace"), _SHOWN)


_SHOWN: Final = 120
"""Characters."""


def read_zip(data: bytes, faults: ArchiveFaults) -> dict[str, bytes]:
    """Map the name of every sound file to its content. Use the result only if `faults` is empty."""
    end = _end(data, faults)
    entries = _directory(data, end, faults) if end is not None else []
    for entry in entries:
        _check_entry(entry, faults)
    _check_names(entries, faults)
    _check_sizes(entries, faults)
    starts = _laid_out(data, end.offset, entries, faults) if end is not None else []
    # Overlapping or oversized entries are never inflated: they are what makes a zip bomb expensive.
    if faults.told("archive_overlap", "archive_too_large"):
        return {}
    return _inflated(data, starts, faults)


class _EndRecord(NamedTuple):
    """The directory's offset, end and number of entries."""

    entries: int
    offset: int
    stop: int


def _end(data: bytes, faults: ArchiveFaults) -> _EndRecord | None:
    """Parse the end record; None, with a problem, if the directory cannot be located safely."""
    if len(data) > ARCHIVE_BYTES:
        message = f"the archive exceeds {ARCHIVE_BYTES >> 20} MiB"
        faults.tell("archive_too_large", message, "remove files that are not tools, scenarios or their data")
        return None
    found = list(_end_records(data))
    # Most readers use the last signature even if its comment does not fit. Two candidates would allow an archive
    # that shows one content to a scanner and another one to us.
    if found != [data.rfind(_END_MARK)]:
        faults.tell("archive_damaged", _without_end(data, len(found)), _BUILD)
        return None
    (at,) = found
    _, disk, first_disk, here, entries, size, offset, _ = _END.unpack_from(data, at)
    # A zip64 locator may precede the end record and override all of its numbers (APPNOTE 4.3.15).
    if data[max(at - _ZIP64_LOCATOR, 0) : at].startswith(_ZIP64_MARK) or 0xFFFF in (here, entries):
        faults.tell("archive_unsupported", "the archive uses zip64, which is not supported", _BUILD)
    elif disk or first_disk or here != entries:
        faults.tell("archive_unsupported", "the archive is split over several disks", _BUILD)
    elif offset + size > at:
        faults.tell("archive_damaged", "the directory is not where the end record places it", _BUILD)
    elif offset + size < at:
        message = f"{at - offset - size} stray bytes before the archive, or between its directory and its end"
        faults.tell("archive_surplus", message, _BUILD)
    elif entries > ENTRIES:
        message = f"the archive contains {entries:,} files and folders; the limit is {ENTRIES:,}"
        faults.tell("archive_too_large", message, "split it into several packs")
    else:
        return _EndRecord(entries, offset, at)
    return None


def _end_records(data: bytes) -> Iterator[int]:
    """Offsets of end records whose comment reaches exactly to the last byte."""
    # The comment has a 16-bit length, so an end record cannot begin earlier.
    first = max(len(data) - _END.size - 0xFFFF, 0)
    at = data.find(_END_MARK, first)
    while at >= 0:
        if at + _END.size <= len(data) and at + _END.size + _END.unpack_from(data, at)[-1] == len(data):
            yield at
        at = data.find(_END_MARK, at + 1)


def _without_end(data: bytes, found: int) -> str:
    if found:
        return "the archive has several possible end records, so its directory depends on the reader"
    if data.startswith(_LOCAL_MARK):
        return "the archive is truncated or has trailing bytes: it does not end with an end record"
    return "the file is not a zip archive" if data else "the file is empty"


def _directory(data: bytes, end: _EndRecord, faults: ArchiveFaults) -> list[_Entry]:
    """Parse the directory, whose entries must fill it to the last byte."""
    entries: list[_Entry] = []
    at = end.offset
    while len(entries) < end.entries:
        if at + _CENTRAL.size > end.stop or data[at : at + 4] != _CENTRAL_MARK:
            faults.tell("archive_damaged", f"cannot read entry {len(entries) + 1} of the directory", _BUILD)
            return entries
        line: tuple[int, ...] = _CENTRAL.unpack_from(data, at)
        needed, flags, method, _, _, crc, packed, size, name, extra, comment, disk, _, attributes, offset = (
            line[2:]
        )
        at += _CENTRAL.size
        entry = _Entry(data[at : at + name], flags, method, crc, packed, size, attributes, offset)
        _check_extra(entry, data[at + name : at + name + extra], faults)
        if disk or needed > _VERSION:
            where = "is on another disk" if disk else f"needs version {needed / 10:g} of the format"
            faults.tell("archive_unsupported", f"`{entry.shown}` {where}", _BUILD)
        at += name + extra + comment
        entries.append(entry)
    if at != end.stop:
        message = f"the directory has {abs(end.stop - at)} bytes too {'many' if at < end.stop else 'few'}"
        faults.tell("archive_surplus" if at < end.stop else "archive_damaged", message, _BUILD)
    return entries


def _check_extra(entry: _Entry, extra: bytes, faults: ArchiveFaults) -> None:
    """Reject extra fields that override the size or the name of an entry; others (times, owners) are harmless."""
    at = 0
    if len(extra) > _EXTRA_BYTES:
        message = f"`{entry.shown}` has {len(extra):,} bytes of extra fields; the limit is {_EXTRA_BYTES}"
        faults.tell("archive_too_large", message, _BUILD)
        return
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<2H", extra, at)
        # Readers that honour these fields see another size or name than readers that do not.
        if kind in {_EXTRA_ZIP64, _EXTRA_OTHER_NAME}:
            what = "zip64 sizes" if kind == _EXTRA_ZIP64 else "a second file name"
            faults.tell("archive_unsupported", f"`{entry.shown}` has {what}, which is not supported", _BUILD)
        at += 4 + length
    if at != len(extra):
        faults.tell("archive_damaged", f"cannot read the extra fields of `{entry.shown}`", _BUILD)


def _check_entry(entry: _Entry, faults: ArchiveFaults) -> None:
    """Check the name, file type and compression of one entry."""
    if not entry.is_safe:
        deep = f": it is {entry.depth} parts deep" if entry.depth > NAME_DEPTH else ""
        message = f"`{entry.shown}` is not a safe name{deep}"
        hint = f"use at most {NAME_DEPTH} path segments of ASCII letters, digits, `.`, `_` or `-` (no spaces, no accents), at most {NAME_LENGTH} characters in total"
        faults.tell("archive_unsafe_name", message, hint)
    if not _is_plain(entry):
        message = f"`{entry.shown}` is neither a file nor a folder, but a link or a device, for example"
        faults.tell("archive_not_a_file", message, "replace it with a copy of the file")
    if not entry.is_readable:
        how = "encrypted" if entry.flags & _ENCRYPTED else "compressed with an unsupported method"
        message = f"`{entry.shown}` is {how}: method {entry.method}, flags {entry.flags:#06x}"
        faults.tell("archive_unsupported", message, "store or deflate the files, without encryption")


def _is_plain(entry: _Entry) -> bool:
    """Whether an entry is a file or folder as its name says, for Unix and for Windows."""
    if entry.attributes & _DOS_NO_FILE or (entry.attributes & _DOS_FOLDER and not entry.is_folder):
        return False
    # The upper 16 bits are the Unix mode; archives made on Windows leave them 0.
    kind = stat.S_IFMT(entry.attributes >> 16)
    return kind in {0, stat.S_IFDIR if entry.is_folder else stat.S_IFREG}


def _check_names(entries: Sequence[_Entry], faults: ArchiveFaults) -> None:
    """Check that no two entries denote the same path on any file system."""
    listed: set[bytes] = set()
    spelt: dict[bytes, bytes] = {}
    for entry in entries:
        if entry.raw in listed:
            faults.tell("archive_duplicate_name", f"duplicate entry `{entry.shown}`", _BUILD)
        elif entry.is_safe:
            # Lower case is enough: safe names are ASCII, where all Unicode normal forms are equal.
            other = next(
                (spelt[key] for key, path in _paths(entry.raw) if spelt.setdefault(key, path) != path), None
            )
            if other is not None:
                message = f"`{entry.shown}` conflicts with `{_shown(other)}`: they differ only in case, or one is a file and the other a folder"
                faults.tell(
                    "archive_duplicate_name",
                    message,
                    "rename one of them; many file systems ignore case",
                )
        listed.add(entry.raw)


def _paths(name: bytes) -> Iterator[tuple[bytes, bytes]]:
    """(case-folded key, path) for a name and each folder above it; the paths of folders end with `/`."""
    at = name.find(b"/")
    while at >= 0:
        yield name[:at].lower(), name[: at + 1]
        at = name.find(b"/", at + 1)
    if not name.endswith(b"/"):
        yield name.lower(), name


def _check_sizes(entries: Sequence[_Entry], faults: ArchiveFaults) -> None:
    """Check the declared sizes against the bounds; `_content` checks the real ones while inflating."""
    for entry in entries:
        if entry.size > FILE_BYTES:
            message = f"`{entry.shown}` has {entry.size:,} bytes; the limit for one file is {FILE_BYTES:,}"
            faults.tell("archive_too_large", message, "remove it or split it")
        elif entry.size >= RATIO_FROM and entry.size > RATIO * entry.packed:
            message = (
                f"`{entry.shown}` expands from {entry.packed:,} to {entry.size:,} bytes, more than {RATIO}:1"
            )
            faults.tell("archive_too_large", message, _BUILD)
    total = sum(entry.size for entry in entries)
    if total > CONTENT_BYTES:
        message = f"the files have {total:,} bytes in total; the limit is {CONTENT_BYTES:,}"
        faults.tell("archive_too_large", message, "split it into several packs")


def _laid_out(
    data: bytes, stop: int, entries: Sequence[_Entry], faults: ArchiveFaults
) -> list[tuple[_Entry, int]]:
    """Offsets of the contents, after checking that every byte before the directory belongs to exactly one entry."""
    found: list[tuple[_Entry, int]] = []
    reached, known = 0, True
    for entry in sorted(entries, key=lambda entry: entry.offset):
        start = _content_start(data, stop, entry, faults)
        _check_seam(reached, entry.offset, entry, faults, gaps=known and start is not None)
        end = _content_end(data, start, entry, faults) if start is not None else None
        known = end is not None
        if start is not None and end is not None:
            found.append((entry, start))
            # After an overlap the next entry must not begin before the end of the larger one.
            reached = max(reached, end)
    _check_seam(reached, stop, None, faults, gaps=known)
    return found


def _check_seam(
    reached: int, begins: int, entry: _Entry | None, faults: ArchiveFaults, *, gaps: bool
) -> None:
    """Check that an entry, or the directory, begins where the part before it ends.

    Args:
        reached: End of the part before.
        begins: Start of this part.
        entry: The entry; None for the directory.
        faults: Receives an overlap or stray bytes.
        gaps: Whether the part before was readable, so that stray bytes can be told from a damaged entry.
    """
    if begins == reached:
        return
    what = "the directory" if entry is None else f"`{entry.shown}`"
    if begins > reached and gaps:
        message = f"{begins - reached:,} stray bytes before {what}"
        faults.tell("archive_surplus", message, _BUILD)
    elif begins < reached:
        message = f"{what} overlaps the file before it by {reached - begins:,} bytes"
        faults.tell("archive_overlap", message, _BUILD)


def _content_start(data: bytes, stop: int, entry: _Entry, faults: ArchiveFaults) -> int | None:
    """Offset of an entry's content; None, with a problem, if its local header contradicts the directory."""
    start = entry.offset + _LOCAL.size
    if start > stop or data[entry.offset : entry.offset + 4] != _LOCAL_MARK:
        faults.tell("archive_damaged", f"`{entry.shown}` is not where the directory places it", _BUILD)
        return None
    header: tuple[int, ...] = _LOCAL.unpack_from(data, entry.offset)
    _, _, flags, method, _, _, *sums, name, extra = header
    agreed = (entry.flags, entry.method, entry.raw) == (flags, method, data[start : start + name])
    # With a data descriptor, sizes and CRC in the local header may be zero (APPNOTE 4.4.4, bit 3).
    unsaid = 0 if entry.flags & _SUMS_FOLLOW else None
    if not agreed or any(here not in {there, unsaid} for here, there in zip(sums, entry.sums, strict=True)):
        message = f"the directory and the local header of `{entry.shown}` disagree"
        faults.tell("archive_damaged", message, _BUILD)
        return None
    _check_extra(entry, data[start + name : start + name + extra], faults)
    return start + name + extra


def _content_end(data: bytes, start: int, entry: _Entry, faults: ArchiveFaults) -> int | None:
    """End of an entry, including its data descriptor if any."""
    end = start + entry.packed
    if not entry.flags & _SUMS_FOLLOW:
        return end
    sums = _SUMS.pack(*entry.sums)
    # The signature of a data descriptor is optional (APPNOTE 4.3.9.3).
    for following in (_SUMS_MARK + sums, sums):
        if data.startswith(following, end):
            return end + len(following)
    faults.tell(
        "archive_damaged", f"the data descriptor of `{entry.shown}` does not match the directory", _BUILD
    )
    return None


def _inflated(data: bytes, starts: Sequence[tuple[_Entry, int]], faults: ArchiveFaults) -> dict[str, bytes]:
    """Map the names of files to their content, for those that match their declared size and checksum."""
    contents: dict[str, bytes] = {}
    view = memoryview(data)
    for entry, start in starts:
        content = _content(view[start : start + entry.packed], entry) if entry.is_readable else b""
        if content is None:
            faults.tell(
                "archive_damaged",
                f"the content of `{entry.shown}` does not match its size or checksum",
                _BUILD,
            )
        elif not entry.is_folder:
            contents[entry.raw.decode("utf-8", "backslashreplace")] = content
    return contents


def _content(packed: memoryview, entry: _Entry) -> bytes | None:
    """The content of an entry; None unless it has exactly the declared size and checksum."""
    if entry.method == STORED:
        content = bytes(packed)
    else:
        inflater = zlib.decompressobj(-zlib.MAX_WBITS)
        try:
            # One byte more than declared shows a lie about the size without inflating the rest.
            content = inflater.decompress(packed, entry.size + 1)
        except zlib.error:
            return None
        # A stream that ends early, or bytes after its end, would be content that only some readers see.
        if not inflater.eof or inflater.unused_data:
            return None
    kept = len(content) == entry.size and len(packed) == entry.packed and zlib.crc32(content) == entry.crc
    return content if kept and not (entry.is_folder and content) else None


_OF_MACOS: Final = "__MACOSX"
"""The folder of resource forks and metadata that macOS adds to archives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveFiles:
    """The files of a pack in an archive.

    Attributes:
        source: The archive, as the user named it.
        top: The pack's folder within the archive, ending with `/`; empty for the root of the archive.
        pack_file: The pack file, e.g. `pack.yaml`; empty if there is none.
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
        """The name of a file in problems: the archive, then the path within it."""
        return f"{self.source}/{self.top}{name}"

    def files(self, folder: str = "") -> MemoryFiles:
        """The files that documents in a folder of the pack may refer to."""
        return MemoryFiles(self.contents, folder)


def open_archive(path: Path, source: str = "") -> tuple[ArchiveFiles | None, list[Problem]]:
    """Read a pack from a zip archive on disk into memory.

    Args:
        path: The archive.
        source: Its name in problems. Default: the path.

    Returns:
        The files, or None if the archive is rejected; and all its problems.
    """
    source = source or str(path)
    try:
        data = first_bytes(path, ARCHIVE_BYTES)
    except FileNotFoundError:
        message = "no such file"
        return None, [Problem(code="path_not_found", message=message, source=source)]
    except (OSError, ValueError) as error:
        reason = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
        message = f"cannot read the archive: {reason}"
        return None, [Problem(code="file_unreadable", message=message, source=source)]
    return parse_archive(source, data)


def parse_archive(source: str, data: bytes) -> tuple[ArchiveFiles | None, list[Problem]]:
    """Read a pack from the bytes of a zip archive, like `open_archive`."""
    faults = ArchiveFaults(source)
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
    """The single top-level folder of the archive, if it is the pack; else empty, for the root of the archive."""
    # Archives from GitHub and from "Compress" in file managers contain one folder with everything in it.
    if any(name in contents for name in PACK_FILES):
        return ""
    tops = {name.partition("/")[0] for name in contents}
    seen = [top for top in tops if not top.startswith(".") and top != _OF_MACOS]
    one = len(seen) == 1 and any(f"{seen[0]}/{name}" in contents for name in PACK_FILES)
    return f"{seen[0]}/" if one else ""


def document_names(names: Iterable[str]) -> list[str]:
    """The files of a pack in memory that a scan of the same folder on disk would read, in the same order."""
    found = [name for name in names if name.endswith(SUFFIXES) and not any(map(_hidden, name.split("/")))]
    return sorted(found, key=_place_in_walk)


def _hidden(part: str) -> bool:
    return part.startswith(".") or part in SKIPPED_FOLDERS


def _place_in_walk(name: str) -> list[tuple[bool, str]]:
    """The files of a folder come before the folders in it."""
    *folders, file = name.split("/")
    return [*((True, folder) for folder in folders), (False, file)]
