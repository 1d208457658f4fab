"""Parse YAML and JSON text into documents, within bounds.

Hostile text cannot raise, hang or exhaust the process: faults are returned as problems. Lines and columns are not
recorded while reading; they are computed from the text on demand.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cache, cached_property, reduce
from operator import getitem
from pathlib import Path
from typing import Any, Final, TypeAlias

from toolcrib.core.errors import Problem
from toolcrib.core.model import JSON
from toolcrib.core.pointers import keys_of, pointer_step
from toolcrib.core.subschemas import MANY, NAMED, ONE, children
from toolcrib.loading.documents import json_text, yaml_text
from toolcrib.loading.documents.positions import (
    BYTES,
    DEPTH,
    INTEGER_DIGITS,
    NODES,
    ParsedDocument,
    Problems,
    StopReading,
    TextPosition,
    decoded_text,
    line_and_column,
    pointer_of,
    root_positions,
)
from toolcrib.schema.validation import Validator, as_dict, as_json

__all__ = [
    "BYTES",
    "DEPTH",
    "INTEGER_DIGITS",
    "NODES",
    "Content",
    "Document",
    "cached_document",
    "first_bytes",
    "parse_content",
    "parse_documents",
    "parse_json",
    "read_documents",
    "restore_text",
    "single_document",
]

Steps: TypeAlias = tuple[str | int, ...]

Content: TypeAlias = str | bytes | Mapping[str, JSON] | Sequence[Mapping[str, JSON]]
"""YAML or JSON as text or bytes, one document as a mapping, or several in a list."""

_SCHEMAS: Final = ("input_schema", "output_schema")
_OF_KEYS: Final = frozenset({"unknown_key", "not_supported_yet", "duplicate_key"})
# Windows has no O_NONBLOCK, and no named pipes in the file system either.
_NOT_BLOCKING: Final = getattr(os, "O_NONBLOCK", 0)


class _Text:
    """The text of a file; positions are computed on first use and kept."""

    def __init__(
        self, text: str | Callable[[], str] = "", *, as_json: bool = False, whole: bool = False
    ) -> None:
        self._given = text
        self.as_json = as_json
        self.whole = whole

    @cached_property
    def text(self) -> str:
        """The text, read on first use."""
        return self._given if isinstance(self._given, str) else self._given()

    @cached_property
    def roots(self) -> list[TextPosition]:
        """The positions of its documents, by index."""
        if not self.as_json:
            return root_positions(yaml_text.marks(self.text))
        whole = root_positions(json_text.marks(self.text))
        divided = json_text.is_list(self.text) and not self.whole
        return list(whole[0].parts.values()) if divided else whole


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a text.

    Attributes:
        source: The file, as the user named it.
        index: 0-based number among the documents of the file, counting empty and rejected ones.
        line: 1-based line where it begins.
        value: The parsed value.
    """

    source: str
    index: int
    line: int
    value: JSON
    _text: _Text = field(default_factory=_Text, repr=False, compare=False)
    _moves: tuple[Mapping[str, str], ...] = field(default=(), repr=False, compare=False)
    _written: JSON = field(default=None, repr=False, compare=False)

    @property
    def is_composed(self) -> bool:
        """Whether it combines parts of several files, so that no single file contains it."""
        return False

    @property
    def is_json(self) -> bool:
        """Whether it is JSON, where an unquoted number is meant as a number."""
        return self._text.as_json

    def position(self, pointer: str, *, key: bool = False) -> tuple[int, int]:
        """1-based line and column of a value or its key; those of the nearest ancestor if it is absent."""
        place = self._place(pointer)
        if place is None:
            return (self.line, 1)
        mark = place.key if key and place.key is not None else place.mark
        return (mark.line, mark.column)

    def place(self, problem: Problem) -> Problem:
        """Fill in file, line and column of a problem. A problem that has a line keeps it."""
        if problem.line:
            return problem.at(problem.source or self.source, problem.line, problem.column)
        line, column = self.position(problem.pointer, key=problem.code in _OF_KEYS)
        pointer = self.original_pointer(problem.pointer, missing=problem.code == "missing_key")
        return problem._replace(pointer=pointer).at(self.source, line, column)

    def original_pointer(self, pointer: str, *, missing: bool = False) -> str:
        """The pointer of a part in the text as written, or of its nearest existing ancestor.

        With `missing`, the last step may be a key that the object does not have.
        """
        if not self._moves:
            return pointer
        for moves in reversed(self._moves):
            pointer = _came_from(pointer, moves)
        there: JSON = self._written
        known = ""
        for step in keys_of(pointer):
            if isinstance(there, dict) and step in there:
                there = there[step]
            elif isinstance(there, list) and step.isdecimal() and int(step) < len(there):
                there = there[int(step)]
            else:
                longer = f"{known}/{pointer_step(step)}"
                return pointer if missing and longer == pointer and isinstance(there, dict) else known
            known = f"{known}/{pointer_step(step)}"
        return pointer

    def moved(self, value: JSON, moves: Mapping[str, str]) -> Document:
        """The same text with a converted value.

        `moves` maps new pointers to old ones, so that problems of the new value point at the original text. The
        longest prefix applies.
        """
        written = self._written if self._moves else self.value
        return replace(self, value=value, _moves=(*self._moves, moves), _written=written)

    def written(self, pointer: str) -> str | None:
        """The source characters of an unquoted YAML scalar (`1.10`); None for anything else."""
        place = self._place(pointer)
        exact = place is not None and not self._text.as_json and place.mark.plain
        return place.mark.text if exact and place is not None else None

    def _place(self, pointer: str) -> TextPosition | None:
        for moves in reversed(self._moves):
            pointer = _came_from(pointer, moves)
        known = self._text.roots
        return known[self.index].nearest(pointer) if self.index < len(known) else None


def _came_from(pointer: str, moves: Mapping[str, str]) -> str:
    prefix = pointer
    while prefix not in moves:
        if not prefix:
            return pointer
        prefix = prefix.rpartition("/")[0]
    return moves[prefix] + pointer[len(prefix) :]


def parse_documents(
    source: str,
    text: str | bytes,
    *,
    whole: bool = False,
    json: bool | None = None,
    number_keys: bool = False,
) -> tuple[list[Document], list[Problem]]:
    """Parse the documents of a text.

    Args:
        source: Name of the text in problems. A name that ends in `.json` selects JSON, any other YAML.
        text: The text; YAML separates documents with `---`.
        whole: Read a JSON list as one document instead of one document per element.
        json: Whether the text is JSON, overriding `source`.
        number_keys: Accept whole numbers as keys and convert them to text.

    Returns:
        The documents without errors, and all problems with file, line and column.
    """
    as_json = _is_json(source) if json is None else json
    problems = Problems()
    decoded, found = _read(text, problems, as_json=as_json, whole=whole, number_keys=number_keys)
    shared = _Text(decoded, as_json=as_json, whole=whole)
    documents = [Document(source, index, line, value, shared) for index, line, value in found]
    return documents, [problem.at(source, problem.line, problem.column) for problem in problems]


def cached_document(source: str, index: int, line: int, value: JSON, read: Callable[[], bytes]) -> Document:
    """A document that was parsed before, such as one from the index.

    Args:
        source: The file, as the user named it.
        index: Its number among the documents of the file.
        line: The line where it begins.
        value: The parsed value.
        read: Reads the file again when a position is needed. With an OSError, positions are unknown.
    """

    def text() -> str:
        try:
            return read().decode(errors="replace").removeprefix("\ufeff")
        except OSError:
            return ""

    return Document(source, index, line, value, _Text(text, as_json=_is_json(source)))


def _is_json(source: str) -> bool:
    return source.lower().endswith(".json")


def parse_json(source: str, text: str | bytes) -> tuple[JSON, list[Problem]]:
    """Parse a JSON text within the same bounds; None, with problems, if it is invalid."""
    problems = Problems()
    _, found = _read(text, problems, as_json=True, whole=True)
    value = found[0].value if found else None
    return value, [problem.at(source, problem.line, problem.column) for problem in problems]


def _read(
    text: str | bytes, problems: Problems, *, as_json: bool, whole: bool, number_keys: bool = False
) -> tuple[str, list[ParsedDocument]]:
    decoded = ""
    try:
        decoded = _decoded(text, problems)
        if as_json:
            return decoded, json_text.read_json(decoded, problems, whole=whole)
        return decoded, yaml_text.read_yaml(decoded, problems, number_keys=number_keys)
    except StopReading:
        return decoded, []


def _decoded(text: str | bytes, problems: Problems) -> str:
    # Characters first: encoding a huge text would copy it only to measure it.
    if len(text) > BYTES:
        _refuse_size(len(text), problems)
    try:
        data = text.encode() if isinstance(text, str) else text
    except UnicodeEncodeError as error:
        message = f"the text contains a lone surrogate, U+{ord(error.object[error.start]):04X}"
        line, column = line_and_column(error.object[: error.start])
        problems.report(Problem(code="lone_surrogate", message=message, line=line, column=column))
        raise StopReading from None
    if len(data) > BYTES:
        _refuse_size(len(data), problems)
    return decoded_text(data, problems)


def _refuse_size(size: int, problems: Problems) -> None:
    message = f"the text has {size:,} bytes or more; the limit is {BYTES:,}"
    problems.report(
        Problem(code="too_large", message=message, line=1, column=1, hint="split it into several files")
    )
    raise StopReading


def read_documents(path: str | Path, source: str) -> tuple[list[Document], list[Problem]]:
    """Parse the documents of a file, reading at most `BYTES`.

    A missing file is only a notice, because folders change while they are read. A file that cannot be read or is not
    a regular file (a folder, a pipe) is an error.
    """
    try:
        data = first_bytes(path)
    except FileNotFoundError:
        message = "the file was deleted after its folder was listed"
        return [], [Problem(code="file_vanished", message=message, severity="notice", source=source)]
    except (OSError, ValueError) as error:
        reason = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
        message = f"cannot read the file: {reason}"
        return [], [Problem(code="file_unreadable", message=message, source=source)]
    return parse_documents(source, data)


def first_bytes(path: str | Path, most: int = BYTES) -> bytes:
    """Read a file up to `most` bytes, or one more if it is longer.

    Raises:
        OSError: It cannot be read, or is not a regular file.
    """
    # Opening a named pipe blocks until it has a writer. `fstat` on the open handle cannot race with a rename.
    opened = os.open(path, os.O_RDONLY | _NOT_BLOCKING)
    try:
        status = os.fstat(opened)
        # Devices such as `/dev/zero` have no end.
        if not stat.S_ISREG(status.st_mode):
            raise OSError("it is not a regular file")
        return _read_to(opened, most + 1, status.st_size + 1)
    finally:
        os.close(opened)


def _read_to(opened: int, most: int, likely: int) -> bytes:
    """Read up to `most` bytes from a handle; `likely` is the expected size plus one."""
    # `os.read` allocates what it is asked for: asking for `most` (64 MiB) costs more than reading a small file.
    data = b""
    asked = min(likely, most)
    while asked and (piece := os.read(opened, asked)):
        data += piece
        if len(piece) < asked:
            break
        asked = min(most - len(data), 1 << 16)
    return data


def parse_content(name: str, content: Content, *, line: int = 1) -> tuple[list[Document], list[Problem]]:
    """Parse documents from text, bytes or mappings in memory.

    Args:
        name: Their name in problems; text is read as JSON if it ends in `.json`.
        content: The content. A value of another type is a problem, not an exception.
        line: The line to report for mappings, which have no text.
    """
    if isinstance(content, str | bytes):
        return parse_documents(name, content)
    if isinstance(content, Mapping):
        return _from_mappings(name, [content], line)
    if isinstance(content, list | tuple):
        return _from_mappings(name, content, line)
    message = f"expected a text, bytes, a mapping or a list of mappings, got `{type(content).__name__}`"
    return [], [Problem(code="not_json", message=message, source=name, line=1, column=1)]


def _from_mappings(name: str, contents: Sequence[object], line: int) -> tuple[list[Document], list[Problem]]:
    documents, problems = [], []
    for index, content in enumerate(contents):
        # Values from memory may contain tuples, sets or NaN, which no document can.
        value, fault = as_json(as_dict(content))
        if fault is None:
            # The caller may change its mapping later, and descriptors are immutable.
            documents.append(Document(name, index, line, deepcopy(value)))
            continue
        message = f"expected {fault.expected}, got {fault.got}"
        problem = Problem(code="not_json", message=message, pointer=fault.pointer)
        problems.append(problem.at(name, line, 1))
    return documents, problems


def single_document(
    source: str, documents: Sequence[Document], problems: Sequence[Problem], kind: str, hint: str
) -> tuple[Document | None, list[Problem]]:
    """The one document of a file that must have exactly one, and the problems of the file.

    Args:
        source: The file, as the user named it.
        documents: The documents that were read from it.
        problems: The problems of its text.
        kind: The kind of document: `pack`, `project`.
        hint: The hint for an empty file.
    """
    told = [problem for problem in problems if problem.code != "empty_document"]
    if not documents and not told:
        message = f"the file is empty; expected a {kind}"
        told.append(
            Problem(code="empty_document", message=message, hint=hint, source=source, line=1, column=1)
        )
    if len(documents) > 1:
        message = f"the file contains {len(documents)} documents; expected one {kind}"
        told.append(
            documents[1].place(Problem(code="several_documents", message=message, hint="keep one of them"))
        )
    return (documents[0] if documents else None), told


def restore_text(document: Document, keys: Collection[str] = (), places: Collection[Steps] = ()) -> JSON:
    """The value of a document, with unquoted YAML numbers restored to text where text is expected.

    Text is expected at the top-level `keys`, at the `places`, and for `const`, `default`, `enum` and `examples` in
    `input_schema` and `output_schema` if `type` allows text but no numbers. JSON numbers are kept.
    """
    # YAML reads `version: 1.10` as the number 1.1. Asking for quotes would make the most common key a trap.
    value = document.value
    if not isinstance(value, dict) or document.is_json:
        return value
    paths: list[Steps] = [(key,) for key in keys if _is_number(value.get(key))]
    paths += [path for path in places if _is_number(reduce(getitem, path, value))]  # type: ignore[arg-type]
    schemas: list[JSON] = [value.get(key) for key in _SCHEMAS]
    if not _gives_texts().judge({"allOf": schemas}):
        for key, schema in zip(_SCHEMAS, schemas, strict=True):
            paths += _numbers_for_texts(schema, (key,))
    texts = {path: document.written(pointer_of(path)) for path in paths}
    if all(text is None for text in texts.values()):
        return value
    changed = deepcopy(value)
    for path, text in texts.items():
        if text is not None:
            holder: Any = reduce(getitem, path[:-1], changed)  # type: ignore[arg-type]  # a path of keys fits
            holder[path[-1]] = text
    return changed


def _is_number(value: JSON) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


@cache
def _gives_texts() -> Validator:
    """A validator that accepts schemas without numbers in place of text; much faster than searching for them."""
    # Nearly every schema passes, and a compiled validator visits it faster than `_numbers_for_texts` does.
    text = {"anyOf": [{"const": "string"}, {"contains": {"const": "string"}, "type": "array"}]}
    number = {"contains": {"enum": ["number", "integer"]}, "type": "array"}
    texts: dict[str, Any] = {"required": ["type"], "properties": {"type": {**text, "not": number}}}
    given = {"not": {"type": "number"}}
    inner = {"$ref": "#"}
    below: dict[str, Any] = {keyword: {"additionalProperties": inner} for keyword in NAMED}
    below |= {keyword: {"items": inner} for keyword in MANY}
    below |= {keyword: {**below.get(keyword, {}), **inner} for keyword in ONE}
    plain: dict[str, Any] = {
        "const": given,
        "default": given,
        "enum": {"items": given},
        "examples": {"items": given},
    }
    return Validator({"properties": below, "if": texts, "then": {"properties": plain}})


def _numbers_for_texts(root: JSON, path: Steps) -> Iterator[Steps]:
    """The paths of numbers in a schema where its `type` requires text."""
    rest: list[tuple[Steps, JSON]] = [(path, root)]
    while rest:
        at, schema = rest.pop()
        if not isinstance(schema, dict):
            continue
        if _wants_text(schema.get("type")):
            yield from ((*at, key) for key in ("const", "default") if _is_number(schema.get(key)))
            for key in ("enum", "examples"):
                items = schema.get(key)
                if isinstance(items, list):
                    yield from ((*at, key, i) for i, item in enumerate(items) if _is_number(item))
        rest += [((*at, *step), part) for step, part in children(schema)]


def _wants_text(kind: JSON) -> bool:
    if isinstance(kind, list):
        return "string" in kind and "number" not in kind and "integer" not in kind
    return kind == "string"
