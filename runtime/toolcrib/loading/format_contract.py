"""The interface of foreign formats, and the table of formats that the engine passes in with the modes.

Loading itself knows only toolcrib's own documents. A format recognises documents of another system and converts them
to our form. The origin of each part is recorded, so that problems point into the file as written. Without a table,
only our own documents are read.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeAlias

from toolcrib.core.errors import Problem
from toolcrib.core.model import JSON, NOTHING, Origin
from toolcrib.loading.documents.document import Document, parse_documents
from toolcrib.loading.documents.files import file_key, read_bytes

if TYPE_CHECKING:
    from toolcrib.core.protocols import Files, Kinds
    from toolcrib.loading.reader import DocumentContext
    from toolcrib.loading.scenarios.model import Scenario
    from toolcrib.loading.servers import ConfigPosition, ServerBlock

Rewording: TypeAlias = Callable[[Sequence[Problem]], list[Problem]]
"""Rewords the problems of a descriptor in the terms of its foreign system."""


class ForeignTool(NamedTuple):
    """A tool of a foreign document.

    Attributes:
        document: Its descriptor, in our own form.
        problems: The problems of the tool as written, with positions; `Conversion.problems` contains them, too.
        reword: Rewords problems of the descriptor; None to keep them.
    """

    document: Document
    problems: Sequence[Problem] = ()
    reword: Rewording | None = None


class OverrideFile(NamedTuple):
    """A file with overrides of the tools of a foreign pack.

    Attributes:
        source: The file; empty if there is none.
        documents: The overrides, one for each tool.
        problems: The problems of the file, with positions.
        strays: Unknown tool name -> its problem, which applies unless another pack next to the file has the tool.
    """

    source: str = ""
    documents: tuple[Document, ...] = ()
    problems: tuple[Problem, ...] = ()
    strays: Mapping[str, Problem] = NOTHING


NO_OVERRIDES: Final = OverrideFile()


class NamedFile(NamedTuple):
    """A file of tools that a foreign document names.

    Attributes:
        path: The file, relative to the document.
        source: The file, as a user would name it.
        document: The document that names it.
        pointer: JSON Pointer of the name.
        where: The context of the document.
    """

    path: str
    source: str
    document: Document
    pointer: str
    where: DocumentContext

    @property
    def key(self) -> str:
        """The key that identifies the file for a reader."""
        return file_key(self.where.files, self.path)

    @property
    def own_key(self) -> str:
        """The key of the file when it is read because it is named, not found in a folder."""
        # Different keys, because a file in a folder may be ignored there and still be named.
        return f"{self.key}#named"

    def read(self) -> tuple[list[Document], list[Problem]]:
        """Its documents and problems."""
        found: list[Problem] = []
        content = read_bytes(Origin(files=self.where.files), self.path, self.pointer, found)
        if found:
            return [], [self.document.place(problem) for problem in found]
        return parse_documents(self.source, content)


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversion:
    """A foreign document in our own form.

    Attributes:
        tools: Its tools.
        scenarios: Its scenarios.
        files: The tool files that it names, which may not be read yet.
        servers: The MCP servers that it configures, by name; they count only outside packs.
        pack: The equivalent `pack.yaml` of a document that is a pack; None for any other.
        pack_problems: Its problems, with positions.
        overrides: Overrides of the tools of a pack.
        problems: All other problems, with positions, including those of the tools.
        of_providers: Those of them that have no effect if the agents get another provider.
    """

    tools: Sequence[ForeignTool] = ()
    scenarios: Sequence[Document] = ()
    files: Sequence[NamedFile] = ()
    servers: Mapping[str, ServerBlock] = field(default_factory=dict)
    pack: Document | None = None
    pack_problems: Sequence[Problem] = ()
    overrides: OverrideFile = NO_OVERRIDES
    problems: Sequence[Problem] = ()
    of_providers: Sequence[Problem] = ()


class ServerFile(NamedTuple):
    """A file of another program that configures MCP servers.

    Attributes:
        problems: Its problems.
        servers: Its servers, by name.
        left_out: Names of servers that are disabled or unusable.
        unread: Whether it is unreadable, so that its servers are unknown.
    """

    problems: Sequence[Problem]
    servers: Mapping[str, ServerBlock] = NOTHING
    left_out: Collection[str] = ()
    unread: bool = False

    def tells_of(self, name: str) -> bool:
        """Whether a problem already explains why a server is missing in the file."""
        return self.unread or name in self.left_out


class ServerFiles(Protocol):
    """Reads files in which other programs configure MCP servers."""

    def looks_like_servers_file(self, value: JSON, /) -> bool:
        """Whether a document configures MCP servers."""
        ...

    def is_servers_file(self, path: str, /) -> bool:
        """Whether a path is a file that configures MCP servers."""
        ...

    def read_servers_file(self, path: str, named: ConfigPosition | None = None, /) -> ServerFile:
        """Read the servers of a file; a missing file is a problem at the position that names it."""
        ...

    def notice_of(self, path: str, /) -> Problem:
        """The notice for such a file in a scanned folder, where it is not used."""
        ...


@dataclass(frozen=True, slots=True)
class ParentDocuments:
    """Documents of a format that refer to others, and those that belong to them.

    Attributes:
        is_parent: Whether a document refers to others.
        is_relative: Whether paths in a document are relative to the folder of the nearest parent above it.
        is_part: Whether a document that is given alone is loaded as a part of the nearest parents above it.
    """

    is_parent: Callable[[JSON], bool]
    is_relative: Callable[[JSON], bool]
    is_part: Callable[[JSON], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A foreign format. Only `name` is required; `detect` and `convert` belong together.

    Attributes:
        name: Name of the format.
        detect: Whether a document has this format.
        convert: Converts a document to our form; called once for each document that `detect` recognises.
        documents: The converted documents in one of this format (or in a file that belongs to it), with which an index
            finds positions again; empty for any other document.
        is_pack: Whether such a document is a pack, which is skipped where no tools are loaded.
        parents: Documents that refer to others, if the format has any.
        drop_duplicates: Returns the scenarios to keep, of all loaded so far, and the problems of the others.
        notice: The problem of a file that cannot be loaded on its own; None for any other file.
        server_keys: Top-level keys of files that configure MCP servers; each file has one of them.
        server_files: Imports the reader of such files; None if the format has none.
    """

    name: str
    detect: Callable[[JSON], bool] = lambda _value: False
    convert: Callable[[Document, DocumentContext], Conversion] = lambda _document, _where: Conversion()
    documents: Callable[[Document, Files | None], Sequence[Document]] = lambda _document, _files: ()
    is_pack: bool = False
    parents: ParentDocuments | None = None
    drop_duplicates: Callable[[Sequence[Scenario]], tuple[list[Scenario], list[Problem]]] | None = None
    notice: Callable[[Path, str, Sequence[Document], Sequence[Problem]], Problem | None] | None = None
    server_keys: frozenset[str] = frozenset()
    server_files: Callable[[], ServerFiles] | None = None


@dataclass(frozen=True)
class Formats:
    """The foreign formats, in the order in which they are probed."""

    table: tuple[Format, ...] = ()
    parents: tuple[ParentDocuments, ...] = field(init=False)
    server_keys: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        parents = (each.parents for each in self.table)
        object.__setattr__(self, "parents", tuple(each for each in parents if each is not None))
        keys = (each.server_keys for each in self.table)
        object.__setattr__(self, "server_keys", frozenset[str]().union(*keys))

    def of(self, value: JSON) -> Format | None:
        """The first format that recognises a document; None for our own documents and unknown ones."""
        for each in self.table:
            if each.detect(value):
                return each
        return None

    def documents(self, document: Document, files: Files | None) -> Sequence[Document]:
        """The converted documents in a foreign one; empty for our own documents."""
        found = (each.documents(document, files) for each in self.table)
        return next((documents for documents in found if documents), ())

    def server_files(self) -> Iterator[ServerFiles]:
        """The readers of server files, by format."""
        return (each.server_files() for each in self.table if each.server_files is not None)


NO_FORMATS: Final = Formats()


def formats_of(kinds: Kinds) -> Formats:
    """The formats that are passed in with the modes; none if there are none."""
    formats = getattr(kinds, "formats", NO_FORMATS)
    return formats if isinstance(formats, Formats) else NO_FORMATS
