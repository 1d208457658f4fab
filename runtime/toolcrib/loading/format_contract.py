"""Formats of other systems: what loading asks of each, and the table that the engine hands in with the modes.

Loading knows toolcrib's own documents. A format recognises documents of another system and converts them to our own
form; where each part came from is kept, so problems point into the file as it was written. Without a table, only our
own documents are read.
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
"""Tells the problems of a descriptor in the words of the system that its document comes from."""


class ForeignTool(NamedTuple):
    """A tool of a foreign document.

    Attributes:
        document: Its descriptor, in our own form.
        problems: What is wrong with it as it was written, placed. They are part of `Conversion.problems` as well.
        reword: How problems of the descriptor are told; None for as they are.
    """

    document: Document
    problems: Sequence[Problem] = ()
    reword: Rewording | None = None


class OverrideFile(NamedTuple):
    """A file beside a foreign pack that is laid over its tools.

    Attributes:
        source: The file; empty where there is none.
        documents: One for each tool, to be laid over its descriptor.
        problems: What is wrong with the file, placed.
        strays: Name that is no tool of this pack -> the problem of it, unless another pack beside the file has the tool.
    """

    source: str = ""
    documents: tuple[Document, ...] = ()
    problems: tuple[Problem, ...] = ()
    strays: Mapping[str, Problem] = NOTHING


NO_OVERRIDES: Final = OverrideFile()


class NamedFile(NamedTuple):
    """A file of tools that a foreign document names.

    Attributes:
        path: The file, relative to the document's.
        source: The same as a person names it.
        document: The document that names it.
        pointer: Where it is named there.
        where: Where that document lies.
    """

    path: str
    source: str
    document: Document
    pointer: str
    where: DocumentContext

    @property
    def key(self) -> str:
        """By which a reader knows the file."""
        return file_key(self.where.files, self.path)

    @property
    def own_key(self) -> str:
        """By which a reader knows the file as one that is named, and not met in a folder."""
        return f"{self.key}#named"

    def read(self) -> tuple[list[Document], list[Problem]]:
        """Its documents, and what is wrong with it."""
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
        files: The files of tools that it names, which may still have to be read.
        pack: What `pack.yaml` would say of a document that is a pack; None for any other.
        pack_problems: What is wrong with that, placed.
        overrides: What is laid over the tools of a pack.
        problems: Everything else that is wrong, placed; that of the tools is among it.
    """

    tools: Sequence[ForeignTool] = ()
    scenarios: Sequence[Document] = ()
    files: Sequence[NamedFile] = ()
    pack: Document | None = None
    pack_problems: Sequence[Problem] = ()
    overrides: OverrideFile = NO_OVERRIDES
    problems: Sequence[Problem] = ()


class ServerFile(NamedTuple):
    """A file of another program that names MCP servers.

    Attributes:
        problems: Everything that is wrong with it.
        servers: Its servers, by name.
        left_out: The names of those that it switches off or that can't be used.
        unread: Whether it could not be read, so that its servers are unknown.
    """

    problems: Sequence[Problem]
    servers: Mapping[str, ServerBlock] = NOTHING
    left_out: Collection[str] = ()
    unread: bool = False

    def tells_of(self, name: str) -> bool:
        """Whether a problem already says why a server is missing in the file."""
        return self.unread or name in self.left_out


class ServerFiles(Protocol):
    """Reads the files in which other programs name MCP servers."""

    def looks_like_servers_file(self, value: JSON, /) -> bool:
        """Whether a document names MCP servers."""
        ...

    def is_servers_file(self, path: str, /) -> bool:
        """Whether a path is a file that names MCP servers."""
        ...

    def read_servers_file(self, path: str, named: ConfigPosition | None = None, /) -> ServerFile:
        """The servers of a file; one that is not there is a problem of the place where it is named."""
        ...

    def notice_of(self, path: str, /) -> Problem:
        """What is reported of such a file in a folder that is scanned, of which nothing is used."""
        ...


@dataclass(frozen=True, slots=True)
class ParentDocuments:
    """Documents of a format that hold others together, and those that belong to them.

    Attributes:
        is_parent: Whether a document names others.
        is_relative: Whether paths in a document are relative to the folder of the nearest parent above it.
        is_part: Whether a document that is given by itself is read as a part of the nearest parents above it.
    """

    is_parent: Callable[[JSON], bool]
    is_relative: Callable[[JSON], bool]
    is_part: Callable[[JSON], bool]


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """A format of another system. Only `name` is needed; `detect` and `convert` go together.

    Attributes:
        name: Names it.
        detect: Whether a document has this format.
        convert: The document in our own form. It is called once for each document that `detect` recognises.
        documents: The documents in our own form that are in one of this format (or in a file that belongs to it),
            by which an index finds places again; none for any other document.
        is_pack: Whether such a document is a pack, which is passed over where no tools are taken.
        parents: Documents that hold others together; None where there are none.
        drop_duplicates: Of all scenarios read so far those that count, and what is reported of the others.
        notice: What is reported of a file given by itself that means nothing by itself; None for another file.
        server_keys: Top-level keys of files that name MCP servers: one of them is in each.
        server_files: Imports what reads such files; None where the format has none.
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
    """The formats that are read besides toolcrib's own, in the order in which they are probed."""

    table: tuple[Format, ...] = ()
    parents: tuple[ParentDocuments, ...] = field(init=False)
    server_keys: frozenset[str] = field(init=False)

    def __post_init__(self) -> None:
        parents = (each.parents for each in self.table)
        object.__setattr__(self, "parents", tuple(each for each in parents if each is not None))
        keys = (each.server_keys for each in self.table)
        object.__setattr__(self, "server_keys", frozenset[str]().union(*keys))

    def of(self, value: JSON) -> Format | None:
        """The first format that recognises a document; None for one of our own, or of no known format."""
        for each in self.table:
            if each.detect(value):
                return each
        return None

    def documents(self, document: Document, files: Files | None) -> Sequence[Document]:
        """The documents in our own form that are in a foreign one; none for our own."""
        found = (each.documents(document, files) for each in self.table)
        return next((documents for documents in found if documents), ())

    def server_files(self) -> Iterator[ServerFiles]:
        """What reads the files of MCP servers, by format."""
        return (each.server_files() for each in self.table if each.server_files is not None)


NO_FORMATS: Final = Formats()


def formats_of(kinds: Kinds) -> Formats:
    """The formats that are handed in with the modes; none where they come without any."""
    formats = getattr(kinds, "formats", NO_FORMATS)
    return formats if isinstance(formats, Formats) else NO_FORMATS
