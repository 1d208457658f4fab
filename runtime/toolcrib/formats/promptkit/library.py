"""The files of an arena: each is found, read and checked once, and unsupported keys are reported."""

from __future__ import annotations

import posixpath
from collections.abc import Collection, Iterator
from functools import cache

from toolcrib.core.errors import Problem
from toolcrib.core.model import Origin
from toolcrib.core.protocols import Files
from toolcrib.formats.promptkit.document_schemas import MANIFESTS, RESPONSES, Shape
from toolcrib.formats.promptkit.mock_responses import check_default_keys, without_invalid_entries
from toolcrib.formats.promptkit.source_nodes import SourceNode
from toolcrib.loading.document_checks import problem_of
from toolcrib.loading.documents.document import Document, parse_documents
from toolcrib.loading.documents.files import read_bytes
from toolcrib.schema.validation import Validator

_MOCKS = "mock responses"
"""Pseudo kind of a file that is not a manifest."""


def check_document(node: SourceNode, kind: str) -> tuple[bool, list[Problem]]:
    """Check the shape of a document.

    Args:
        node: The whole document.
        kind: A kind of manifest, or empty for mock responses.

    Returns:
        Whether it can be read, and all its problems. An unknown key is only a warning, because the rest is
        readable.
    """
    kind = kind or _MOCKS
    # A bound, because a file of the wrong kind can have a fault in every line.
    faults = [problem_of(fault) for fault in _validator(kind).faults(node.value, most=100)]
    unknown = [_unknown(problem) for problem in faults if problem.code == "unknown_key"]
    wrong = [problem for problem in faults if problem.code != "unknown_key"]
    placed = [node.document.place(problem) for problem in (*wrong, *unknown)]
    return not wrong, [*placed, *_idle(_shape(kind), node)]


def _unknown(problem: Problem) -> Problem:
    return problem._replace(severity="warning", message=f"{problem.message}; it has no effect")


def _shape(kind: str) -> Shape:
    return RESPONSES if kind == _MOCKS else MANIFESTS[kind]


@cache
def _validator(kind: str) -> Validator:
    return Validator(_shape(kind))


def _idle(shape: Shape, node: SourceNode) -> Iterator[Problem]:
    """A problem for each key without a counterpart."""
    if "x-idle" in shape:
        name = node.pointer.rpartition("/")[2]
        # An empty value has no effect in PromptKit either.
        if node.value not in ("", [], {}, False):
            message = f"`{name}` has no effect here: {shape['x-idle']}"
            yield node.problem("no_counterpart", message, severity=shape["x-severity"])
        return
    for item in node.each():
        yield from _idle(shape.get("items", {}), item)
    others = shape.get("additionalProperties")
    for key, part in node.entries():
        below = shape.get("properties", {}).get(key, others)
        if isinstance(below, dict):
            yield from _idle(below, part)


_OF_KINDS = {
    "Scenario": "a scenario",
    "PromptConfig": "a prompt",
    "Provider": "a provider",
    "Persona": "a persona",
    "Tool": "a tool",
}


class ArenaLibrary:
    """The files next to an arena.

    Attributes:
        problems: All their problems.
        of_providers: Those that have no effect if another provider is chosen.
    """

    def __init__(self, arena: SourceNode, files: Files | None, problems: list[Problem]) -> None:
        self.problems = problems
        self.of_providers: list[Problem] = []
        self._files = files
        self._base = arena.part("spec", "defaults", "config_dir").text
        self._folder = posixpath.dirname(arena.document.source)
        self._known: dict[str, list[Document]] = {}
        self._judged: dict[tuple[str, int, str], bool] = {}

    def tell(self, problem: Problem) -> None:
        """Add a problem unless it is already reported at this position, possibly with another hint."""
        said = (known for known in self.problems if known.message == problem.message)
        if not any(known._replace(hint=problem.hint) == problem for known in said):
            self.problems.append(problem)

    def path(self, name: str) -> str:
        """A path relative to the arena's file, from one relative to its configuration folder."""
        return posixpath.normpath(posixpath.join(self._base, name))

    def source(self, name: str) -> str:
        """The same path as people write it, relative to where they are."""
        return posixpath.normpath(posixpath.join(self._folder, self.path(name)))

    def manifests(self, file: SourceNode, kind: str) -> list[SourceNode]:
        """The manifests of one kind in a file; problems are reported."""
        name = file.text
        if not name:
            self.problems.append(file.problem("missing_key", "empty file name"))
            return []
        before = len(self.problems)
        found = [
            SourceNode(document, "", document.value)
            for document in self._documents(name, file)
            if isinstance(document.value, dict) and document.value.get("kind") == kind
        ]
        # A file that cannot be read has been reported already.
        if not found and len(self.problems) == before:
            message = f"`{name}` contains no manifest of `kind: {kind}`"
            hint = f"{_OF_KINDS[kind]} consists of `apiVersion`, `kind: {kind}`, `metadata`, `spec`"
            self.problems.append(file.problem("missing_manifest", message, hint))
        return [node for node in found if self.is_good(node, kind)]

    def responses(self, names: Collection[str], at: SourceNode) -> SourceNode | None:
        """The first existing file of mock responses; if there is none, the first name is reported."""
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

    def content(self, name: str, at: SourceNode) -> bytes | None:
        """The content of a file; None if it cannot be read, which is reported."""
        found: list[Problem] = []
        content = read_bytes(Origin(files=self._files), self.path(name), at.pointer, found)
        self.problems += [at.document.place(problem) for problem in found]
        return None if found else content

    def is_good(self, node: SourceNode, kind: str) -> bool:
        """Whether a document has the shape of its kind; its problems are reported once."""
        key = (node.document.source, node.document.index, node.pointer + kind)
        if key not in self._judged:
            self._judged[key], problems = check_document(node, kind)
            self.problems += problems
        return self._judged[key]

    def _documents(self, name: str, at: SourceNode) -> list[Document]:
        source = self.source(name)
        if source not in self._known:
            content = self.content(name, at)
            documents, faults = parse_documents(source, content) if content is not None else ([], [])
            self.problems += faults
            self._known[source] = documents
        return self._known[source]

    def _responses(self, name: str, content: bytes) -> SourceNode | None:
        source = self.source(name)
        if source not in self._known:
            documents, faults = parse_documents(source, content, whole=True, number_keys=True)
            self.problems += faults
            self._known[source] = documents
        documents = self._known[source]
        if not documents:
            return None
        whole = SourceNode(documents[0], "", documents[0].value)
        faults = check_document(whole, "")[1]
        self.problems += faults
        node = without_invalid_entries(whole, faults)
        if node is not None:
            self.problems += check_default_keys(node)
        return node
