"""The files that an arena names: found, read, judged, each once."""

from __future__ import annotations

import posixpath
from collections.abc import Collection

from toolcrib.core.errors import Problem
from toolcrib.core.model import Origin
from toolcrib.core.protocols import Files
from toolcrib.formats.promptkit.document_check import judged
from toolcrib.formats.promptkit.mock_responses import default_warnings, readable_part
from toolcrib.formats.promptkit.source_nodes import Node
from toolcrib.loading.documents.document import Document, parse_documents
from toolcrib.loading.documents.files import read_bytes

_OF_KINDS = {
    "Scenario": "a scenario",
    "PromptConfig": "a prompt",
    "Provider": "a provider",
    "Persona": "a persona",
    "Tool": "a tool",
}


class Library:
    """The files beside an arena.

    Attributes:
        problems: Everything that there is to say of them.
    """

    def __init__(self, arena: Node, files: Files | None, problems: list[Problem]) -> None:
        self.problems = problems
        self._files = files
        self._base = arena.part("spec", "defaults", "config_dir").text
        self._folder = posixpath.dirname(arena.document.source)
        self._known: dict[str, list[Document]] = {}
        self._judged: dict[tuple[str, int, str], bool] = {}

    def tell(self, problem: Problem) -> None:
        """Add what was not said of the same place already, be it with another hint."""
        said = (known for known in self.problems if known.message == problem.message)
        if not any(known._replace(hint=problem.hint) == problem for known in said):
            self.problems.append(problem)

    def path(self, name: str) -> str:
        """A name relative to the arena's file, for one that is relative to its folder of configurations."""
        return posixpath.normpath(posixpath.join(self._base, name))

    def source(self, name: str) -> str:
        """The same as a person names it."""
        return posixpath.normpath(posixpath.join(self._folder, self.path(name)))

    def manifests(self, file: Node, kind: str) -> list[Node]:
        """The manifests of one kind in a file that is named somewhere; what is wrong is told."""
        name = file.text
        if not name:
            self.problems.append(file.problem("missing_key", "the name of a file is empty"))
            return []
        before = len(self.problems)
        found = [
            Node(document, "", document.value)
            for document in self._documents(name, file)
            if isinstance(document.value, dict) and document.value.get("kind") == kind
        ]
        if not found and len(self.problems) == before:
            message = f"`{name}` holds no manifest of `kind: {kind}`"
            hint = f"{_OF_KINDS[kind]} is written as `apiVersion`, `kind: {kind}`, `metadata`, `spec`"
            self.problems.append(file.problem("missing_manifest", message, hint))
        return [node for node in found if self.is_good(node, kind)]

    def responses(self, names: Collection[str], at: Node) -> Node | None:
        """The first file of mock responses that is there; the first name is the one that is told where none is."""
        faults: list[Problem] = []
        for name in names:
            found: list[Problem] = []
            content = read_bytes(Origin(files=self._files), self.path(name), at.pointer, found)
            if not found:
                return self._responses(name, content)
            faults += found
        self.problems.append(at.document.place(faults[0]))
        return None

    def has(self, name: str) -> bool:
        """Whether a file can be read."""
        try:
            return self._files is not None and self._files.read(self.path(name)) is not None
        except OSError:
            return False

    def content(self, name: str, at: Node) -> bytes | None:
        """The content of a file; None where it can't be read, which is told."""
        found: list[Problem] = []
        content = read_bytes(Origin(files=self._files), self.path(name), at.pointer, found)
        self.problems += [at.document.place(problem) for problem in found]
        return None if found else content

    def is_good(self, node: Node, kind: str) -> bool:
        """Whether a document has the shape of its kind; all that there is to say of it is told once."""
        key = (node.document.source, node.document.index, node.pointer + kind)
        if key not in self._judged:
            self._judged[key], problems = judged(node, kind)
            self.problems += problems
        return self._judged[key]

    def _documents(self, name: str, at: Node) -> list[Document]:
        source = self.source(name)
        if source not in self._known:
            content = self.content(name, at)
            documents, faults = parse_documents(source, content) if content is not None else ([], [])
            self.problems += faults
            self._known[source] = documents
        return self._known[source]

    def _responses(self, name: str, content: bytes) -> Node | None:
        source = self.source(name)
        if source not in self._known:
            documents, faults = parse_documents(source, content, whole=True, number_keys=True)
            self.problems += faults
            self._known[source] = documents
        documents = self._known[source]
        if not documents:
            return None
        whole = Node(documents[0], "", documents[0].value)
        faults = judged(whole, "")[1]
        self.problems += faults
        node = readable_part(whole, faults)
        if node is not None:
            self.problems += default_warnings(node)
        return node
