"""Parts of documents as they were written, and what is made of them: each part knows where it came from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from toolcrib.core.errors import Problem, Severity
from toolcrib.core.model import JSON
from toolcrib.core.pointers import keys_of, pointer_step
from toolcrib.loading.documents.document import Document


@dataclass(frozen=True, slots=True)
class SourceNode:
    """A part of a document, as it was written.

    Attributes:
        document: The document.
        pointer: Its JSON Pointer there.
        value: Its value; None where it is absent.
    """

    document: Document
    pointer: str
    value: Any

    def part(self, *steps: str | int) -> SourceNode:
        """A part of it; one that is absent has the value None."""
        value, pointer = self.value, self.pointer
        for step in steps:
            pointer = f"{pointer}/{pointer_step(step)}"
            if isinstance(value, dict):
                value = value.get(step)
            else:
                within = isinstance(value, list) and isinstance(step, int) and step < len(value)
                value = value[step] if within else None
        return SourceNode(self.document, pointer, value)

    def each(self) -> Iterator[SourceNode]:
        """The items of a list; nothing for anything else."""
        for index in range(len(self.value) if isinstance(self.value, list) else 0):
            yield self.part(index)

    def entries(self) -> Iterator[tuple[str, SourceNode]]:
        """The keys of an object that have a value, with it; nothing for anything else."""
        for key, value in self.value.items() if isinstance(self.value, dict) else ():
            if value is not None:
                yield key, self.part(key)

    @property
    def text(self) -> str:
        """A scalar as a text, a number as it was written; empty for nothing."""
        if isinstance(self.value, str):
            return self.value
        if self.value is None:
            return ""
        exact = self.document.written(self.pointer)
        return exact if exact is not None else str(self.value).lower()

    @property
    def as_written(self) -> SourceNode:
        """The same with what could not be read of it."""
        return SourceNode(self.document, "", self.document.value).part(*keys_of(self.pointer))

    def without(self, *steps: str) -> SourceNode:
        """The same, with nothing at a place in it."""
        first, *more = steps
        rest = self.part(first).without(*more).value if more else None
        return SourceNode(self.document, self.pointer, {**self.value, first: rest})

    def problem(self, code: str, message: str, hint: str = "", severity: Severity = "error") -> Problem:
        """A problem of what is written here, placed."""
        problem = Problem(code=code, message=message, pointer=self.pointer, hint=hint, severity=severity)
        return self.document.place(problem)

    def __bool__(self) -> bool:
        """Whether the part is present."""
        return self.value is not None


class PlacedValue(NamedTuple):
    """A value that was made of what is written.

    Attributes:
        value: The value.
        places: Pointer within it -> where that part came from.
    """

    value: Any
    places: Mapping[str, SourceNode]


def place_value(value: JSON, node: SourceNode) -> PlacedValue:
    """A value whose parts all come from one place, below which they have the same keys."""
    return PlacedValue(value, {"": node})


def place_object(node: SourceNode, parts: Mapping[str, PlacedValue | None]) -> PlacedValue:
    """An object of parts; those that are None are left out."""
    kept = {key: part for key, part in parts.items() if part is not None}
    places = {
        f"/{pointer_step(key)}{at}": where for key, part in kept.items() for at, where in part.places.items()
    }
    return PlacedValue({key: part.value for key, part in kept.items()}, {"": node, **places})


def place_list(node: SourceNode, parts: Sequence[PlacedValue]) -> PlacedValue:
    """A list of parts."""
    places = {f"/{index}{at}": where for index, part in enumerate(parts) for at, where in part.places.items()}
    return PlacedValue([part.value for part in parts], {"": node, **places})


@dataclass(frozen=True, slots=True)
class ComposedDocument(Document):
    """A document that was made of parts of several others.

    Attributes:
        places: Pointer -> where that part came from; the longest prefix counts.
    """

    places: Mapping[str, SourceNode] | None = None

    @property
    def is_composed(self) -> bool:
        """It was put together of parts of several files."""
        return True

    def _origin(self, pointer: str) -> tuple[Document, str] | None:
        places = self.places or {}
        prefix = pointer
        while prefix not in places:
            if not prefix:
                return None
            prefix = prefix.rpartition("/")[0]
        node = places[prefix]
        return node.document, node.pointer + pointer[len(prefix) :]

    def position(self, pointer: str, *, key: bool = False) -> tuple[int, int]:
        """1-based line and column in the file that gives the document its place; of what stands elsewhere its beginning."""
        found = self._origin(pointer)
        if found is None or found[0].source != self.source:
            return (self.line, 1)
        return found[0].position(found[1], key=key)

    def place_of(self, pointer: str) -> str:
        """`file:line` of a place, in whichever file it is."""
        found = self._origin(pointer)
        document, inner = found if found is not None else (self, "")
        return f"{document.source}:{document.position(inner)[0]}"

    def place(self, problem: Problem) -> Problem:
        """The problem in the file that holds the part."""
        found = None if problem.line else self._origin(problem.pointer)
        if found is None:
            return problem.at(problem.source or self.source, problem.line or self.line, problem.column or 1)
        document, pointer = found
        return document.place(problem._replace(pointer=_existing(document, pointer, problem.code)))

    def written(self, pointer: str) -> str | None:
        """The characters of a YAML scalar without quotes."""
        found = self._origin(pointer)
        return None if found is None else found[0].written(found[1])


def _existing(document: Document, pointer: str, code: str) -> str:
    """A pointer as far as it exists; it may end with a missing key of an object."""
    there: Any = document.value
    known = ""
    for step in pointer.split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")
        if isinstance(there, dict) and key in there:
            there = there[key]
        elif isinstance(there, list) and key.isdecimal() and int(key) < len(there):
            there = there[int(key)]
        else:
            longer = f"{known}/{step}"
            return (
                longer if code == "missing_key" and longer == pointer and isinstance(there, dict) else known
            )
        known = f"{known}/{step}"
    return known


def compose(home: SourceNode, whole: PlacedValue) -> ComposedDocument:
    """The document of what was made; `home` gives it its file and line."""
    document = home.document
    inline = home.pointer.count("/") > 1
    line = document.position(home.pointer, key=True)[0] if inline else document.line
    return ComposedDocument(document.source, document.index, line, whole.value, places=whole.places)
