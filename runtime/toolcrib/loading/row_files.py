"""Files of rows: JSON, JSON lines, YAML and CSV, each with the lines on which its rows stand."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from os.path import splitext
from typing import Any, Final

from toolcrib.core.errors import Problem
from toolcrib.core.model import JSON, Schema
from toolcrib.core.pointers import keys_of
from toolcrib.loading.documents.document import parse_documents, parse_json
from toolcrib.loading.documents.large_json import LargeJSON
from toolcrib.loading.documents.positions import INTEGER_DIGITS, clipped
from toolcrib.loading.rows import MOST, Written

_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?", re.ASCII)
_WHOLE: Final = re.compile(r"-?(0|[1-9][0-9]*)", re.ASCII)


def written_in(source: str, content: bytes, schema: Schema | None, problems: list[Problem]) -> Written | None:
    """The rows of a file; None, with problems that are placed in it, where it can't be understood.

    Args:
        source: The file, as a person names it; its ending says how it is read.
        content: What it holds.
        schema: That of the rows, which says what the cells of a `.csv` are.
        problems: Receives what is wrong with the file.
    """
    return READERS[ending(source)](source, content, schema, problems)


def ending(name: str) -> str:
    """What the name of a file ends with, in lower case: `.json`."""
    return splitext(name)[1].lower()


def _from_json(
    source: str, content: bytes, _schema: Schema | None, problems: list[Problem]
) -> Written | None:
    text = LargeJSON(source, content)
    problems += _as_errors(text.problems)
    return None if text.problems else Written(text.value, text.place)


def _from_yaml(
    source: str, content: bytes, _schema: Schema | None, problems: list[Problem]
) -> Written | None:
    documents, faults = parse_documents(source, content, whole=True, json=False)
    problems += _as_errors(faults)
    if len(documents) > 1:
        message = f"the file holds {len(documents)} documents, and rows are one"
        fault = Problem(code="several_documents", message=message, hint="keep one of them")
        problems.append(documents[1].place(fault))
    return None if faults or len(documents) != 1 else Written(documents[0].value, documents[0].place)


def _as_errors(faults: Sequence[Problem]) -> Iterator[Problem]:
    """A file of rows that is empty is as wrong as one that can't be read: no rows are `[]`."""
    for fault in faults:
        empty = fault.code == "empty_document"
        yield fault._replace(severity="error", hint="no rows are written `[]`") if empty else fault


def _from_lines(
    source: str, content: bytes, _schema: Schema | None, problems: list[Problem]
) -> Written | None:
    """JSONL: one row on a line; blank lines are passed over."""
    rows: list[JSON] = []
    lines: list[int] = []
    before = len(problems)
    for line, text in enumerate(content.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if not text.strip():
            continue
        value, faults = parse_json(source, text)
        problems += [fault.at(source, line, fault.column) for fault in faults[:1]]
        rows.append(value)
        lines.append(line)
        if len(problems) - before == MOST:
            break
    return None if len(problems) > before else Written(rows, _on_lines(source, lines))


def _on_lines(source: str, lines: Sequence[int]) -> Callable[[Problem], Problem]:
    """Puts problems of rows into a file with a row on each of these lines."""

    def place(problem: Problem) -> Problem:
        steps = keys_of(problem.pointer)
        return problem.at(source, lines[int(steps[0])] if steps else 1, 1)

    return place


def _from_csv(source: str, content: bytes, schema: Schema | None, problems: list[Problem]) -> Written | None:
    """CSV: the first line names the fields; a cell is text unless the schema says it is a number or boolean."""
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        message = f"the byte 0x{content[error.start]:02x} is no UTF-8"
        fault = Problem(code="invalid_utf8", message=message, hint="save the file as UTF-8")
        problems.append(fault.at(source, line, 1))
        return None
    before, table = len(problems), _Table(source, text)
    _line, names = next(table.lines(problems), (1, []))
    problems += _faults_of_header(source, names)
    if len(problems) > before:
        return None
    read = [_CELLS.get(_type_of(name, schema), str) for name in names]
    rows: list[JSON] = []
    lines: list[int] = []
    for line, cells in table.lines(problems):
        if len(cells) != len(names):
            message = f"the row has {len(cells)} cells, and the header {len(names)}"
            problems.append(_csv_problem(source, line, message, _QUOTES))
        if len(problems) - before >= MOST:
            break
        rows.append(_row_of(names, read, cells))
        lines.append(line)
    return None if len(problems) > before else Written(rows, _on_lines(source, lines))


_QUOTES: Final = (
    "a text with commas, quotes or line breaks stands in double quotes, with each quote in it doubled"
)


class _Table:
    """The lines of a CSV text; a text in quotes may go over several."""

    def __init__(self, source: str, text: str) -> None:
        self._source = source
        self._reader = csv.reader(io.StringIO(text, newline=""), strict=True)

    def lines(self, problems: list[Problem]) -> Iterator[tuple[int, list[str]]]:
        """The line where each row begins, and its cells; blank lines are passed over. A fault of form is the end."""
        while True:
            line = self._reader.line_num + 1
            try:
                cells = next(self._reader)
            except StopIteration:
                return
            except csv.Error as error:
                problems.append(_csv_problem(self._source, line, f"this is no CSV: {error}", _QUOTES))
                return
            if cells:
                yield line, cells


def _csv_problem(source: str, line: int, message: str, hint: str = "") -> Problem:
    return Problem(code="invalid_csv", message=message, hint=hint).at(source, line, 1)


def _faults_of_header(source: str, names: Sequence[str]) -> Iterator[Problem]:
    hint = "the first line names the fields of the rows"
    if not names:
        yield _csv_problem(source, 1, "the file has no header", hint=hint)
    for index, name in enumerate(names):
        if not name:
            yield _csv_problem(source, 1, f"field {index + 1} of the header has no name", hint=hint)
        elif name in names[:index]:
            yield _csv_problem(source, 1, f"two fields of the header are called `{clipped(name)}`", hint=hint)


_NONE: Final = object()
"""A cell that gives its row no field."""


def _row_of(names: Sequence[str], read: Sequence[Callable[[str], Any]], cells: Sequence[str]) -> JSON:
    values = ((name, of(cell)) for name, of, cell in zip(names, read, cells, strict=False))
    return {name: value for name, value in values if value is not _NONE}


def _type_of(name: str, schema: Schema | None) -> str:
    """What a row's schema says that a field is, where no text will do: `integer`, `number`, `boolean`; else empty."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    field = properties.get(name) if isinstance(properties, dict) else None
    said = field.get("type") if isinstance(field, dict) else None
    kinds = said if isinstance(said, list) else [said]
    return "" if "string" in kinds else next((kind for kind in kinds if kind in _CELLS), "")  # type: ignore[return-value]


def _integer(cell: str) -> Any:
    cell = cell.strip()
    if not cell:
        return _NONE
    return int(cell) if _WHOLE.fullmatch(cell) and len(cell) <= INTEGER_DIGITS else cell


def _number(cell: str) -> Any:
    cell = cell.strip()
    if not cell:
        return _NONE
    return _integer(cell) if _WHOLE.fullmatch(cell) else float(cell) if _NUMBER.fullmatch(cell) else cell


def _boolean(cell: str) -> Any:
    cell = cell.strip()
    return {"": _NONE, "true": True, "false": False}.get(cell, cell)


_CELLS: Final[Mapping[Any, Callable[[str], Any]]] = {
    "integer": _integer,
    "number": _number,
    "boolean": _boolean,
}

READERS: Final[Mapping[str, Callable[[str, bytes, Schema | None, list[Problem]], Written | None]]] = {
    ".json": _from_json,
    ".jsonl": _from_lines,
    ".yaml": _from_yaml,
    ".yml": _from_yaml,
    ".csv": _from_csv,
}
"""What a file of rows ends with -> what reads it."""
