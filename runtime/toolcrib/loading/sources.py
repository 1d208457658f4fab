"""From folders, files and texts to tools, packs and scenarios, with every problem of every file."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

from toolcrib.core.errors import DocumentError, Problem
from toolcrib.core.model import NO_FIXTURE, Fixture
from toolcrib.core.protocols import Files, Kinds
from toolcrib.loading.documents.document import Content, parse_content
from toolcrib.loading.documents.files import PACK_FILES
from toolcrib.loading.fingerprints import FileTracker
from toolcrib.loading.folders import Folders, SourcePath, add_contents
from toolcrib.loading.reader import DocumentContext, DocumentReader, LoadedDocuments
from toolcrib.loading.snapshot import log_problems
from toolcrib.registry.registry import Registry, without_duplicates

__all__ = ["LoadedDocuments", "SourcePath", "load", "parse", "parse_files", "parse_registry"]


def load(
    sources: Iterable[str | Path | SourcePath],
    kinds: Kinds,
    trail: FileTracker | None = None,
    *,
    fixture: Fixture = NO_FIXTURE,
    stored: Collection[str] = (),
) -> LoadedDocuments:
    """Read folders, packs and files from disk.

    Args:
        sources: Each a folder (with any packs in it), a pack, or one file.
        kinds: What the installed modes say of their blocks.
        trail: Receives everything that is looked at.
        fixture: What the store of tools outside packs begins with.
        stored: Paths of files that hold its rows, with links resolved; they are no documents.
    """
    reader = DocumentReader(kinds, fixture)
    reader.stored.update(stored)
    trail = FileTracker() if trail is None else trail
    folders = Folders(reader, trail)
    for source in sources:
        folders.add(source if isinstance(source, SourcePath) else SourcePath(str(source)))
    folders.tell_links()
    return reader.loaded()


def parse(
    name: str, content: Content, kinds: Kinds, *, files: Files | None = None, line: int = 1
) -> LoadedDocuments:
    """Read documents from memory.

    Args:
        name: What the text is called in problems; read as JSON if it ends in `.json`.
        content: Text or bytes of YAML or JSON documents, one document as a mapping, or a list of those.
        kinds: What the installed modes say of their blocks.
        files: The files that the documents may name.
        line: Where in `name` mappings stand that somebody else has read.
    """
    reader = DocumentReader(kinds)
    documents, problems = parse_content(name, content, line=line)
    reader.add_documents(name, name, documents, problems, DocumentContext(files))
    return reader.loaded()


def parse_registry(
    name: str, content: Content, *, kinds: Kinds, problems: list[Problem] | None = None
) -> Registry:
    """A registry of the descriptors in a text, or of those that are already mappings.

    Args:
        name: What the text is called in problems; read as JSON if it ends in `.json`.
        content: YAML or JSON, one document as a mapping, or several in a list.
        kinds: What the modes say of their blocks (`toolcrib.Executors.installed()`).
        problems: Receives every problem; the good tools are kept.

    Raises:
        DocumentError: No list was given, and there is an error, or no descriptor at all. Without a list, warnings and
            notices beside good tools are logged.
    """
    loaded = parse(name, content, kinds)
    tools, duplicates = without_duplicates(loaded.tools)
    found = [*loaded.problems, *duplicates]
    if problems is not None:
        problems += found
    elif not tools or any(problem.severity == "error" for problem in found):
        raise DocumentError(found or [_no_descriptor(name)])
    else:
        log_problems(found)
    return Registry(tools)


def _no_descriptor(name: str) -> Problem:
    message = "this holds no descriptor"
    hint = "scenarios are read by `Runtime.open`"
    return Problem(code="unrecognised_file", message=message, hint=hint, source=name, line=1, column=1)


def parse_files(contents: Mapping[str, str | bytes], kinds: Kinds) -> LoadedDocuments:
    """Read a pack from memory: path within the pack (with `/`) -> content."""
    reader = DocumentReader(kinds)
    add_contents(reader, contents, next((name for name in PACK_FILES if name in contents), None))
    return reader.loaded()
