"""Where the arenas of a path are."""

from __future__ import annotations

import os
from pathlib import Path
from typing import NamedTuple

from toolcrib.core.model import JSON
from toolcrib.formats.promptkit.foreign_descriptors import is_arena
from toolcrib.formats.promptkit.servers import servers_of
from toolcrib.formats.promptkit.source_nodes import Node
from toolcrib.loading.documents.document import Document, read_documents
from toolcrib.loading.documents.files import SKIPPED_FOLDERS, SUFFIXES


class FoundArena(NamedTuple):
    """An arena.

    Attributes:
        name: What it is called.
        servers: Its MCP servers, as a project of ours has them.
    """

    name: str
    servers: dict[str, JSON]


def arenas_in(path: Path, *, but: Path | None = None) -> list[FoundArena]:
    """The arenas of a file, or of a folder and those in it, in the order of names.

    Args:
        path: The file or folder.
        but: A folder in which none is looked for.
    """
    files = _texts(path, but) if path.is_dir() else [path]
    documents = [document for file in files for document in read_documents(file, str(file))[0]]
    return [_found(document) for document in documents if is_arena(document.value)]


def _texts(folder: Path, but: Path | None) -> list[Path]:
    found = []
    for here, folders, names in os.walk(folder):
        kept = (name for name in folders if name not in SKIPPED_FOLDERS)
        folders[:] = sorted(
            name for name in kept if but is None or Path(here, name).resolve() != but.resolve()
        )
        found += [Path(here, name) for name in sorted(names) if name.endswith(SUFFIXES)]
    return found


def _found(document: Document) -> FoundArena:
    node = Node(document, "", document.value)
    name = node.part("metadata", "name").text or Path(document.source).resolve().parent.name
    return FoundArena(name, servers_of(node.part("spec"))[0])
