"""Parts of documents that keep their positions, and values composed of such parts."""

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
    """A part of an original document.

    Attributes:
        document: The document.
        pointer: JSON Pointer of the part in the document.
        value: Its value; None if it is missing.
    """

    document: Document
    pointer: str
    value: Any

    def part(self, *steps: str | int) -> SourceNode:
        """A part of this one; a missing part has the value None."""
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
        """The items of a list; nothing for other values."""
        for index in range(len(self.value) if isinstance(self.value, list) else 0):
            yield self.part(index)

    def entries(self) -> Iterator[tuple[str, SourceNode]]:
        """The keys of an object whose value is not null, with their parts; nothing for other values."""
        for key, value in self.value.items() if isinstance(self.value, dict) else ():
            if value is not None:
                yield key, self.part(key)

    @property
    def text(self) -> str:
        """A scalar as text, with a number as it was written; empty for null."""
        if isinstance(self.value, str):
            return self.value
        if self.value is None:
            return ""
        # YAML reads `1.10` as 1.1, but a version or a code has to keep its digits.
        exact = self.document.written(self.pointer)
        return exact if exact is not None else str(self.value).lower()

    @property
    def as_written(self) -> SourceNode:
        """The same part in the document, with the entries that `without` removed."""
        return SourceNode(self.document, "", self.document.value).part(*keys_of(self.pointer))

    def without(self, *steps: str) -> SourceNode:
        """The same part with null in place of an inner part."""
        first, *more = steps
        rest = self.part(first).without(*more).value if more else None
        return SourceNode(self.document, self.pointer, {**self.value, first: rest})

    def problem(self, code: str, message: str, hint: str = "", severity: Severity = "error") -> Problem:
        """A problem at this position."""
        problem = Problem(code=code, message=message, pointer=self.pointer, hint=hint, severity=severity)
        return self.document.place(problem)

    def __bool__(self) -> bool:
        """Whether the part exists."""
        return self.value is not None


class PlacedValue(NamedTuple):
    """A value composed of parts.

    Attributes:
        value: The value.
        places: Pointer within the value -> origin of that part.
    """

    value: Any
    places: Mapping[str, SourceNode]


def place_value(value: JSON, node: SourceNode) -> PlacedValue:
    """A value with a single origin that has the same keys as the value."""
    return PlacedValue(value, {"": node})


def place_object(node: SourceNode, parts: Mapping[str, PlacedValue | None]) -> PlacedValue:
    """An object of parts; parts that are None are omitted."""
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
    """A document composed of parts of several documents.

    Attributes:
        places: Pointer -> origin of that part; the longest matching prefix applies.
    """

    places: Mapping[str, SourceNode] | None = None

    @property
    def is_composed(self) -> bool:
        """True: the parts may come from several files."""
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
        """1-based line and column in the main file; a part from another file has the line of the document."""
        found = self._origin(pointer)
        if found is None or found[0].source != self.source:
            return (self.line, 1)
        return found[0].position(found[1], key=key)

    def place_of(self, pointer: str) -> str:
        """`file:line` of a part, in the file that contains it."""
        found = self._origin(pointer)
        document, inner = found if found is not None else (self, "")
        return f"{document.source}:{document.position(inner)[0]}"

    def place(self, problem: Problem) -> Problem:
        """The problem, placed in the file that contains the part."""
        found = None if problem.line else self._origin(problem.pointer)
        if found is None:
            return problem.at(problem.source or self.source, problem.line or self.line, problem.column or 1)
        document, pointer = found
        return document.place(problem._replace(pointer=_existing(document, pointer, problem.code)))

    def written(self, pointer: str) -> str | None:
        """The characters of an unquoted YAML scalar."""
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
