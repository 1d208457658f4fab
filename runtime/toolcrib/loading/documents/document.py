"""Text to documents, safely: YAML and JSON, bounded, with lines and columns for whoever asks.

No text, however hostile, raises, hangs or takes the process down: what is wrong with it comes back as
problems. Lines and columns are not kept while reading; they are worked out from the text when asked.
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
_NOT_BLOCKING: Final = getattr(os, "O_NONBLOCK", 0)


class _Text:
    """A file's text; the places in it are found when somebody asks, and then kept."""

    def __init__(
        self, text: str | Callable[[], str] = "", *, as_json: bool = False, whole: bool = False
    ) -> None:
        self._given = text
        self.as_json = as_json
        self.whole = whole

    @cached_property
    def text(self) -> str:
        """What is written there; read now if it was not before."""
        return self._given if isinstance(self._given, str) else self._given()

    @cached_property
    def roots(self) -> list[TextPosition]:
        """The places of its documents, by their index."""
        if not self.as_json:
            return root_positions(yaml_text.marks(self.text))
        whole = root_positions(json_text.marks(self.text))
        divided = json_text.is_list(self.text) and not self.whole
        return list(whole[0].parts.values()) if divided else whole


@dataclass(frozen=True, slots=True)
class Document:
    """One document of a text.

    Attributes:
        source: The file, as it was named.
        index: 0-based place among the documents of the file, empty and refused ones counted.
        line: 1-based line where it begins.
        value: What it says.
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
        """Whether it was put together of parts of several files, so that none of them holds it."""
        return False

    @property
    def is_json(self) -> bool:
        """Whether it was written as JSON, where a number is a number on purpose."""
        return self._text.as_json

    def position(self, pointer: str, *, key: bool = False) -> tuple[int, int]:
        """1-based line and column of a value, or of its key; of the nearest ancestor if it is absent."""
        place = self._place(pointer)
        if place is None:
            return (self.line, 1)
        mark = place.key if key and place.key is not None else place.mark
        return (mark.line, mark.column)

    def place(self, problem: Problem) -> Problem:
        """The problem with file, line and column filled in; one that has a line keeps it."""
        if problem.line:
            return problem.at(problem.source or self.source, problem.line, problem.column)
        line, column = self.position(problem.pointer, key=problem.code in _OF_KEYS)
        if self._moves:
            pointer = self.original_pointer(problem.pointer, missing=problem.code == "missing_key")
            problem = problem._replace(pointer=pointer)
        return problem.at(self.source, line, column)

    def original_pointer(self, pointer: str, *, missing: bool = False) -> str:
        """Where a part came from; its nearest ancestor where nothing stands. A key that an object misses may end it."""
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
        """The same text with another value.

        `moves` tells where its parts came from: new pointer -> old pointer, the longest prefix counts.
        """
        written = self._written if self._moves else self.value
        return replace(self, value=value, _moves=(*self._moves, moves), _written=written)

    def written(self, pointer: str) -> str | None:
        """The characters of a YAML scalar without quotes (`1.10`); None for anything else."""
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
    """The documents of a text that are without error, and everything that is wrong with the others.

    A `source` that ends in `.json` is read as JSON, where a list stands for its elements unless it is
    asked for as a `whole`; any other name as YAML, where `---` divides documents, unless it is said which
    of the two it is. With `number_keys` a whole number may be a key, and is its text. Problems come placed:
    file, line and column.
    """
    as_json = _is_json(source) if json is None else json
    problems = Problems()
    decoded, found = _read(text, problems, as_json=as_json, whole=whole, number_keys=number_keys)
    shared = _Text(decoded, as_json=as_json, whole=whole)
    documents = [Document(source, index, line, value, shared) for index, line, value in found]
    return documents, [problem.at(source, problem.line, problem.column) for problem in problems]


def cached_document(source: str, index: int, line: int, value: JSON, read: Callable[[], bytes]) -> Document:
    """A document of a file that was read before.

    Args:
        source: The file, as it was named.
        index: Its place among the documents of the file.
        line: Where it begins.
        value: What it says.
        read: Reads the file again, when somebody asks where something stands. OSError leaves that open.
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
    """The value of a JSON text, under the same bounds; None, with problems, where it is none."""
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
    if len(text) > BYTES:
        _refuse_size(len(text), problems)
    try:
        data = text.encode() if isinstance(text, str) else text
    except UnicodeEncodeError as error:
        message = f"the text holds half of a surrogate pair, U+{ord(error.object[error.start]):04X}"
        line, column = line_and_column(error.object[: error.start])
        problems.report(Problem(code="lone_surrogate", message=message, line=line, column=column))
        raise StopReading from None
    if len(data) > BYTES:
        _refuse_size(len(data), problems)
    return decoded_text(data, problems)


def _refuse_size(size: int, problems: Problems) -> None:
    message = f"the text has {size:,} bytes or more; at most {BYTES:,} are read"
    problems.report(
        Problem(code="too_large", message=message, line=1, column=1, hint="divide it into several files")
    )
    raise StopReading


def read_documents(path: str | Path, source: str) -> tuple[list[Document], list[Problem]]:
    """The documents of a file, named `source` in problems; never more than `BYTES` are read of it.

    A file that is gone is a notice, for folders change while they are read; a file that can't be read,
    or is none (a folder, a pipe), is an error.
    """
    try:
        data = first_bytes(path)
    except FileNotFoundError:
        message = "the file is gone since its folder was listed"
        return [], [Problem(code="file_vanished", message=message, severity="notice", source=source)]
    except (OSError, ValueError) as error:
        reason = (error.strerror or str(error)) if isinstance(error, OSError) else str(error)
        message = f"the file can't be read: {reason}"
        return [], [Problem(code="file_unreadable", message=message, source=source)]
    return parse_documents(source, data)


def first_bytes(path: str | Path, most: int = BYTES) -> bytes:
    """A file's first bytes, one more than `most` where there are more.

    Raises:
        OSError: It can't be read, or is no regular file.
    """
    # Opening a pipe would wait for its writer, so nothing blocks before it is known to be a file.
    opened = os.open(path, os.O_RDONLY | _NOT_BLOCKING)
    try:
        status = os.fstat(opened)
        if not stat.S_ISREG(status.st_mode):
            raise OSError("it is not a regular file")
        return _read_to(opened, most + 1, status.st_size + 1)
    finally:
        os.close(opened)


def _read_to(opened: int, most: int, likely: int) -> bytes:
    """A file's first bytes. Only what is `likely` is asked for at first: room for much costs more than reading it."""
    data = b""
    asked = min(likely, most)
    while asked and (piece := os.read(opened, asked)):
        data += piece
        if len(piece) < asked:
            break
        asked = min(most - len(data), 1 << 16)
    return data


def parse_content(name: str, content: Content, *, line: int = 1) -> tuple[list[Document], list[Problem]]:
    """The documents that a content holds, and what is wrong with it, placed.

    Args:
        name: What it is called in problems; a text is read as JSON if it ends in `.json`.
        content: What was given; anything else than a `Content` is a problem too.
        line: Where mappings stand that somebody else has read.
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
        value, fault = as_json(as_dict(content))
        if fault is None:
            documents.append(Document(name, index, line, deepcopy(value)))
            continue
        message = f"expected {fault.expected}, got {fault.got}"
        problem = Problem(code="not_json", message=message, pointer=fault.pointer)
        problems.append(problem.at(name, line, 1))
    return documents, problems


def single_document(
    source: str, documents: Sequence[Document], problems: Sequence[Problem], kind: str, hint: str
) -> tuple[Document | None, list[Problem]]:
    """The one document of a file that holds one, and what is wrong with the file so far.

    Args:
        source: The file, as it was named.
        documents: What was read of it.
        problems: What was wrong with its text.
        kind: What the document describes: `pack`, `project`.
        hint: What to write into an empty file.
    """
    told = [problem for problem in problems if problem.code != "empty_document"]
    if not documents and not told:
        message = f"the file describes no {kind}: it is empty"
        told.append(
            Problem(code="empty_document", message=message, hint=hint, source=source, line=1, column=1)
        )
    if len(documents) > 1:
        message = f"the file holds {len(documents)} documents, and a {kind} is one"
        told.append(
            documents[1].place(Problem(code="several_documents", message=message, hint="keep one of them"))
        )
    return (documents[0] if documents else None), told


def restore_text(document: Document, keys: Collection[str] = (), places: Collection[Steps] = ()) -> JSON:
    """The document's value with numbers put back as they were written where a text is meant.

    YAML reads `1.10` as a number, which would show as `1.1`. A text is meant at the given top-level
    `keys`, at the given `places`, and for `const`, `default`, `enum` and `examples` in `input_schema` and `output_schema`
    where `type` allows texts and no numbers. JSON numbers are numbers on purpose and stay.
    """
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
    """The judge of schemas that give no number for a text: much quicker than looking for one."""
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
    """The paths of numbers that a schema gives for texts."""
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
