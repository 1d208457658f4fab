"""Build pack archives: collect the files of a pack, check it, and encode its `.zip`. Nothing is written to disk."""

from __future__ import annotations

import io
import os
import re
import stat
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from toolcrib.core.errors import Problem
from toolcrib.core.model import Descriptor
from toolcrib.engine.runtime import loaded_runtime
from toolcrib.executors import Executors
from toolcrib.executors.python.declarations import MODE
from toolcrib.loading.documents.archives import RATIO, RATIO_FROM, ArchiveFiles, open_archive, parse_archive
from toolcrib.loading.documents.files import ARCHIVE, PACK_FILES, is_outside, pack_file
from toolcrib.loading.fingerprints import FileTracker
from toolcrib.loading.pack_integrity import names_in
from toolcrib.loading.packs import Pack
from toolcrib.loading.reader import DocumentReader, LoadedDocuments
from toolcrib.loading.sources import Folders, SourcePath, add_contents
from toolcrib.scenarios.self_check import run_self_check
from toolcrib.security.program_files import files_of_module
from toolcrib.security.trust import UNTRUSTED, Trust, TrustPolicy

_BESIDE = re.compile(r"(?i)(licen[cs]e|copying|notice|readme|changelog|authors)([.-].*)?")
"""Files at the top of a pack that are included although no document references them."""

_NEEDS = frozenset({"unknown_pack", "version_mismatch", "refused_pack"})
"""Problems that do not prevent building: the required packs may be available where the archive is used."""

_ENTRY_TIME = (1980, 1, 1, 0, 0, 0)
"""The earliest time in the ZIP format. Modification times would make equal contents differ."""

_ENTRY_MODE = stat.S_IFREG | 0o644


@dataclass(frozen=True, slots=True, kw_only=True)
class PackArchive:
    """The files of a pack, its archive, and its problems.

    Attributes:
        source: Path of the pack, as it was given.
        pack: The pack of its `pack.yaml`; None if the file is missing or invalid.
        tools: The tools of the pack.
        scenarios: Names of the scenarios of the pack.
        contents: Path within the pack -> content of every included file, sorted.
        archive: Bytes of the `.zip` of a folder; empty if the pack has errors, or is an archive already.
        digest: SHA-256 of the `.zip` in hex; empty if the pack has errors.
        size: Size of the `.zip` in bytes.
        problems: The problems of the pack.
    """

    source: str
    pack: Pack | None = None
    tools: tuple[Descriptor, ...] = ()
    scenarios: tuple[str, ...] = ()
    contents: Mapping[str, bytes]
    archive: bytes = b""
    digest: str = ""
    size: int = 0
    problems: tuple[Problem, ...] = ()

    @property
    def refused(self) -> bool:
        """Whether the pack has errors, which prevent building."""
        return any(problem.severity == "error" for problem in self.problems)

    @property
    def file_name(self) -> str:
        """Default name of the archive."""
        return f"{self.pack.name}-{self.pack.version}{ARCHIVE}" if self.pack is not None else f"pack{ARCHIVE}"


async def build_pack(
    path: str | Path, also: Iterable[str] = (), executors: Executors | None = None
) -> PackArchive:
    """Read a pack, check it and its mocks, and build its archive.

    Args:
        path: A folder with `pack.yaml`, that file itself, or a `.zip`.
        also: Paths of packs that this one requires.
        executors: The modes. Default: the installed ones.
    """
    executors = executors or Executors.installed()
    path = Path(path).parent if Path(path).name in PACK_FILES else Path(path)
    if path.is_dir():
        return await _from_folder(path, tuple(also), executors)
    archive, problems = open_archive(path)
    if archive is None:
        return PackArchive(source=str(path), contents={}, problems=tuple(problems))
    if not archive.pack_file:
        return PackArchive(
            source=archive.source, contents=archive.contents, problems=(_no_pack(archive.source),)
        )
    parcel = await _judged(archive.source, f"{archive.source}/", _loaded(archive, also, executors), executors)
    return replace(parcel, contents=archive.contents, digest=archive.digest, size=archive.size)


async def _from_folder(folder: Path, also: Sequence[str], executors: Executors) -> PackArchive:
    """Build the archive of a folder."""
    source = str(folder)
    if pack_file(folder) is None:
        return PackArchive(source=source, contents={}, problems=(_no_pack(source),))
    trail, reader = _trail(), DocumentReader(executors)
    folders = Folders(reader, trail)
    for path in (source, *also):
        folders.add(SourcePath(path))
    folders.tell_links()
    loaded = reader.loaded()
    parcel = await _judged(source, "" if source == "." else source + os.sep, loaded, executors)
    contents, problems = _contents(folder, trail.closed().files, loaded)
    parcel = replace(parcel, contents=contents, problems=(*parcel.problems, *problems))
    if parcel.refused:
        return parcel
    data = zip_bytes(contents)
    # Read the archive back: a document may depend on a file that is not included, such as a hidden one.
    archive, problems = parse_archive(parcel.file_name, data)
    if archive is not None:
        again = _own(_loaded(archive, also, executors).problems, f"{archive.source}/")
        problems = [problem for problem in again if problem.severity == "error"]
    if problems or archive is None:
        return replace(parcel, problems=(*parcel.problems, *problems))
    return replace(parcel, archive=data, digest=archive.digest, size=archive.size)


def _loaded(archive: ArchiveFiles, also: Iterable[str], executors: Executors) -> LoadedDocuments:
    reader = DocumentReader(executors)
    place = archive.place("")
    trail = _trail()
    add_contents(reader, archive.contents, archive.pack_file, source=place, key=place, outside=trail)
    folders = Folders(reader, trail)
    for source in also:
        folders.add(SourcePath(source))
    return reader.loaded()


def _trail() -> FileTracker:
    """A file tracker without stored trust: a row file whose path contains a variable is only read inside the pack."""
    return FileTracker(permits=Trust(TrustPolicy().with_environment()).permits_data)


async def _judged(source: str, below: str, loaded: LoadedDocuments, executors: Executors) -> PackArchive:
    """The pack below a path with its own problems; problems of required packs are dropped."""
    # Untrusted: only mocks run, so checking a third-party pack starts and contacts nothing.
    async with loaded_runtime(loaded, executors=executors, trust=Trust(UNTRUSTED)) as runtime:
        problems = [*runtime.problems, *await run_self_check(runtime)]
        scenarios = [entry.name for entry in runtime.scenarios if _is_below(entry.origin.source, below)]
    return PackArchive(
        source=source,
        pack=next((pack for pack in loaded.packs if _is_below(pack.origin.source, below)), None),
        tools=tuple(tool for tool in loaded.tools if _is_below(tool.origin.source, below)),
        scenarios=tuple(dict.fromkeys(scenarios)),
        contents={},
        problems=tuple(map(_lenient, _own(problems, below))),
    )


def _own(problems: Iterable[Problem], below: str) -> list[Problem]:
    """The problems of files below a path, without duplicates."""
    return list(dict.fromkeys(problem for problem in problems if _is_below(problem.source, below)))


def _is_below(source: str, below: str) -> bool:
    """Whether a file is below a path; paths in the working directory have no common prefix."""
    if below:
        return source.startswith(below)
    return not source.startswith(os.pardir) and not Path(source).is_absolute()


def _lenient(problem: Problem) -> Problem:
    return problem._replace(severity="warning") if problem.code in _NEEDS else problem


def _no_pack(source: str) -> Problem:
    hint = "write `pack.yaml` with `name: my-pack` and `version: 1.0.0`"
    return Problem(code="unrecognised_file", message="missing `pack.yaml`", hint=hint, source=source)


def _contents(
    folder: Path, read: Iterable[str], loaded: LoadedDocuments
) -> tuple[dict[str, bytes], list[Problem]]:
    """Collect the files to include: recognised documents, the files and code that they reference, and licences."""
    # Files that were read but not recognised, such as the configuration of a CI service, are not part of the
    # pack.
    strangers = {problem.source for problem in loaded.problems if problem.code == "unrecognised_file"}
    wanted = {os.path.realpath(path) for path in (*read, *_modules(folder, loaded)) if path not in strangers}
    contents: dict[str, bytes] = {}
    problems = []
    for name in sorted(names_in(folder)):
        path = folder / name
        # A second pack file under another name would make the archive ambiguous.
        other_pack_file = name in PACK_FILES and path != pack_file(folder)
        if other_pack_file or (os.path.realpath(path) not in wanted and not _BESIDE.fullmatch(name)):
            continue
        fault = _fault(path, name, folder)
        if fault is None:
            contents[name] = path.read_bytes()
        else:
            problems.append(fault)
    return contents, problems


def _modules(folder: Path, loaded: LoadedDocuments) -> Iterator[str]:
    """Yield the Python files in a pack that its tools name, and those that these import."""
    root = os.path.realpath(folder)
    blocks: list[Any] = [tool.bindings[MODE] for tool in loaded.tools if MODE in tool.bindings]
    for module in {block["call"].partition(":")[0] for block in blocks}:
        for name in files_of_module(module, root).digests:
            yield os.path.join(root, name)


def _fault(path: Path, name: str, folder: Path) -> Problem | None:
    """Why a file cannot be included."""
    if path.suffix.lower() == ARCHIVE or (path.name in PACK_FILES and "/" in name):
        message = "the pack contains another pack, but an archive holds only one"
        hint = "move that pack out, build it separately, and add it to `requires`"
        return Problem(code="pack_in_pack", message=message, hint=hint, source=str(path))
    # Following the link would publish a file from elsewhere on the machine.
    if is_outside(path, folder):
        message = f"symlink points outside {folder}; not included in the pack"
        hint = "replace it with a copy"
        return Problem(code="link_leads_outside", message=message, hint=hint, source=str(path))
    return None


def zip_bytes(contents: Mapping[str, bytes]) -> bytes:
    """Encode files as a ZIP archive; equal contents give equal bytes on every platform."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name in sorted(contents):
            entry = zipfile.ZipInfo(name, _ENTRY_TIME)
            entry.create_system = 3  # Unix; zipfile writes 0 on Windows, which would change the bytes
            entry.external_attr = _ENTRY_MODE << 16
            entry.compress_type = _method(contents[name])
            archive.writestr(entry, contents[name])
    return buffer.getvalue()


def _method(content: bytes) -> int:
    """Choose the compression method of a file."""
    if len(content) < RATIO_FROM:
        return zipfile.ZIP_DEFLATED
    # The loader refuses archives with an extreme compression ratio as decompression bombs; a file that
    # compresses that well is stored.
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    packed = len(packer.compress(content)) + len(packer.flush())
    return zipfile.ZIP_STORED if len(content) > RATIO * packed else zipfile.ZIP_DEFLATED
