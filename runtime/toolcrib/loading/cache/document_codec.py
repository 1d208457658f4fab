"""Encode the locations of documents, their files and scenarios as plain data for the index, and find them again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from toolcrib.core.model import JSON, Origin
from toolcrib.core.protocols import Files, Kinds
from toolcrib.loading.descriptors import OverlaidDocument, OverlaidFiles, overlay_document
from toolcrib.loading.document_checks import DocumentChecker
from toolcrib.loading.documents.archives import ArchiveFiles, open_archive
from toolcrib.loading.documents.document import Document, cached_document, first_bytes, parse_documents
from toolcrib.loading.documents.files import ARCHIVE, CachedFiles, DiskFiles, MemoryFiles
from toolcrib.loading.format_contract import Formats
from toolcrib.loading.scenarios.model import Scenario
from toolcrib.loading.scenarios.scenario import parse_scenario
from toolcrib.loading.scenarios.scenario_links import with_namespace

Plain: TypeAlias = Any
"""Plain data that an index stores as JSON and returns unchanged."""

DISK, PACKED, LAID, KEPT = "disk", "packed", "laid", "kept"


class NotCacheable(Exception):
    """A value cannot be stored in an index; the documents are read again at each start."""


def document_of_origin(origin: Origin) -> Document:
    """The document in which an origin locates positions.

    Raises:
        NotCacheable: The origin does not come from a parsed text.
    """
    # `locate` is the bound method `Document.position`; the origin stores nothing else of the document.
    document = getattr(origin.locate, "__self__", None)
    if isinstance(document, Document):
        return document
    raise NotCacheable(f"the positions in {origin.source} cannot be found again")


def encode_document(document: Document, files: Files | None, name: str) -> Plain:
    """Encode the location of a document: its file, its number in the file and, in foreign documents, the tool's name.

    Raises:
        NotCacheable: It is not on disk.
    """
    # The cached contents are stored with the tool; here only the location is needed.
    files = files.files if isinstance(files, CachedFiles) else files
    # Both parts are located separately, so that an index survives without a merged copy of the text.
    if isinstance(document, OverlaidDocument):
        upper, lower = document.upper, document.lower
        assert upper is not None  # noqa: S101 -- both are always given
        assert lower is not None  # noqa: S101
        above, below = (files.upper, files.lower) if isinstance(files, OverlaidFiles) else (files, files)
        return LAID, encode_document(upper, above, name), encode_document(lower, below, name)
    beside = _archive_of(document.source) if files is None else encode_files(files)
    return DISK, document.source, document.index, _called(document) or name, beside


def _called(document: Document) -> str:
    """The name that identifies a document among the parts of a foreign one; empty if it has no name."""
    value = document.value
    name = value.get("name") if isinstance(value, dict) else None
    if not isinstance(name, str):
        return ""
    # A PromptPack and one of its tools may have the same name.
    return f"pack:{name}" if isinstance(value, dict) and "prompts" in value else name


def _archive_of(source: str) -> Plain:
    """The archive of a document without files, such as `travel.zip/pack.yaml`."""
    return next(
        ((PACKED, archive, "") for archive, _path in _splits(source) if Path(archive).is_file()), None
    )


def _splits(source: str) -> Iterator[tuple[str, str]]:
    """Every way to split the name of a file into an archive and a path in it."""
    # A folder may be named `x.zip`, too, so the first `.zip/` need not be the archive.
    lower = source.lower()
    at = lower.find(f"{ARCHIVE}/")
    while at >= 0:
        end = at + len(ARCHIVE)
        yield source[:end], source[end + 1 :]
        at = lower.find(f"{ARCHIVE}/", end)


def encode_files(files: Files | None) -> Plain:
    """Encode the location of a document's files.

    Raises:
        NotCacheable: The files exist in memory only.
    """
    match files:
        case None:
            return None
        case CachedFiles():
            beside = encode_files(files.files)
            return (KEPT, files.contents, beside) if files.contents else beside
        case DiskFiles():
            return DISK, str(files.folder), str(files.root)
        case MemoryFiles(key=key) if key.lower().endswith(f"{ARCHIVE}/"):
            return PACKED, key.removesuffix("/"), files.folder
        case OverlaidFiles():
            return LAID, encode_files(files.upper), encode_files(files.lower), tuple(sorted(files.keys))
    raise NotCacheable(f"the files of a document are {type(files).__name__}")


def decode_files(plain: Plain) -> Files | None:
    """The files at an encoded location; an archive is opened when one of its files is read."""
    match plain:
        case (kind, contents, beside) if kind == KEPT:
            files = decode_files(beside)
            return None if files is None else CachedFiles(files, contents)
        case (kind, str(folder), str(root)) if kind == DISK:
            return DiskFiles(Path(folder), Path(root))
        case (kind, str(archive), str(folder)) if kind == PACKED:
            return _ArchivedFiles(archive, folder)
        case (kind, upper, lower, keys) if kind == LAID:
            above, below = decode_files(upper), decode_files(lower)
            if above is None or below is None:
                return above or below
            return OverlaidFiles(above, below, frozenset(keys))
    return None


class _ArchivedFiles:
    """The files of a pack in an archive, opened when one of them is read."""

    def __init__(self, archive: str, folder: str) -> None:
        self.archive = archive
        self.folder = folder

    def read(self, name: str) -> bytes:
        """Read a file.

        Raises:
            OSError: It does not exist, or the archive is invalid now.
        """
        return MemoryFiles(_opened(self.archive).contents, self.folder).read(name)


def _opened(archive: str) -> ArchiveFiles:
    opened, problems = open_archive(Path(archive))
    if opened is None:
        raise OSError(f"the archive `{archive}` was changed: {problems[0].message}")
    return opened


def locator(plain: Plain, formats: Formats) -> Callable[[str], tuple[int, int]]:
    """A function from JSON Pointers to lines and columns; it returns (0, 0) if the text does not exist any more."""
    document = decode_document(plain, formats)
    return _nowhere if document is None else document.position


def _nowhere(_pointer: str) -> tuple[int, int]:
    return (0, 0)


def decode_document(plain: Plain, formats: Formats) -> Document | None:
    """Read a document again; None if it does not exist any more."""
    if plain[0] == LAID:
        upper, lower = decode_document(plain[1], formats), decode_document(plain[2], formats)
        return overlay_document(upper, lower) if upper is not None and lower is not None else upper
    _kind, source, index, name, beside = plain
    files = decode_files(beside)
    document = _documents(source, files).get(index)
    if document is None:
        return None
    return next((own for own in formats.documents(document, files) if _called(own) == name), document)


def _documents(source: str, files: Files | None) -> Mapping[int, Document]:
    try:
        documents, _problems = parse_documents(source, _text(source, files))
    except (OSError, ValueError):
        return {}
    return {document.index: document for document in documents}


def _text(source: str, files: Files | None) -> bytes:
    if not isinstance(files, _ArchivedFiles):
        return first_bytes(Path(source))
    opened = _opened(files.archive)
    for _archive, path in _splits(source):
        if path.startswith(opened.top) and path.removeprefix(opened.top) in opened.contents:
            return opened.contents[path.removeprefix(opened.top)]
    raise FileNotFoundError(source)


class CachedScenario(NamedTuple):
    """A scenario in an index, stored as a plain tuple.

    Attributes:
        source: Its file, as the user named it.
        number: Its 0-based number among the documents of the file.
        line: The line where it begins.
        value: Its parsed value.
        files: The location of its files (`encode_files`).
        pack: Name of its pack; empty outside packs.
        namespace: Namespace of its source; empty for none.
    """

    source: str
    number: int
    line: int
    value: JSON
    files: Plain
    pack: str
    namespace: str


def encode_scenario(scenario: Scenario) -> CachedScenario:
    """Encode a scenario for the index.

    Raises:
        NotCacheable: It or its files are not on disk, or it combines several files.
    """
    origin, document = scenario.origin, document_of_origin(scenario.origin)
    if document.is_composed:
        raise NotCacheable(f"{origin.source} combines several files")
    return CachedScenario(
        document.source,
        document.index,
        document.line,
        document.value,
        encode_files(origin.files),
        origin.pack,
        origin.namespace,
    )


def decode_scenarios(texts: Sequence[CachedScenario], tools: Collection[str], kinds: Kinds) -> list[Scenario]:
    """Compile scenarios from an index again.

    Args:
        texts: The stored scenarios.
        tools: The names of all tools.
        kinds: The schemas of the modes' blocks.
    """
    # Compiled matchers and expressions are closures, which no index can contain; only reading the text is saved.
    shape = DocumentChecker("scenario", kinds)
    found = []
    for text in texts:
        files = decode_files(text.files)
        read = partial(_text, text.source, files)
        document = cached_document(text.source, text.number, text.line, text.value, read)
        scenario, _problems = parse_scenario(document, shape, files=files, pack=text.pack)
        if scenario is not None:
            origin = scenario.origin._replace(namespace=text.namespace)
            found.append(with_namespace(replace(scenario, origin=origin), tools))
    return found
