"""Rows as documents write them: lists or objects, in place or in files, brought into one form."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from os.path import splitext
from typing import Any, Final, NamedTuple, TypeAlias

from toolcrib.errors import Problem, did_you_mean
from toolcrib.loading.documents import Document, parse_documents, parse_json, parse_large_json
from toolcrib.loading.marks import INTEGER_DIGITS, clipped
from toolcrib.model import JSON, Schema
from toolcrib.pointers import keys_of, pointer_step
from toolcrib.text import compact
from toolcrib.validation import Validator

MOST: Final = 5
"""Problems of the rows of one collection that are told one by one."""

_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?", re.ASCII)
_WHOLE: Final = re.compile(r"-?(0|[1-9][0-9]*)", re.ASCII)


class Written(NamedTuple):
    """Rows as they were written, before anything is judged.

    Attributes:
        value: A list of rows, or an object: key -> row.
        place: Puts a problem where it belongs; its pointer leads to a part of `value`.
    """

    value: JSON
    place: Callable[[Problem], Problem]


def keyed(
    written: Written, key: str, schema: Schema | None, problems: list[Problem]
) -> dict[str, JSON] | None:
    """Key -> row, of rows without fault; None, with problems, where there is a fault.

    Args:
        written: The rows.
        key: The field that holds a row's key; empty where they stand under their keys, or are to be numbered.
        schema: What each row must fit; None for any object.
        problems: Receives the first faults, and how many more there are.
    """
    if not isinstance(written.value, dict | list):
        message = f"rows are a list, or an object of rows by their keys, not {_kind(written.value)}"
        problems.append(written.place(Problem(code="rows_not_listed", message=message)))
        return None
    told = _Told(written)
    judge = None if schema is None else Validator(schema)
    rows: dict[str, JSON] = {}
    for pointer, name, row in _entries(written.value, key, told):
        if name in rows:
            message = f"two rows have the key `{clipped(name)}`"
            told.add("duplicate_row", message, pointer, "the key of a row tells it from all others")
        elif judge is not None and not judge.judge(row):
            told.add_misfit(judge, row, pointer)
        rows.setdefault(name, row)
    problems += told.problems()
    return None if told.any else rows


class _Told:
    """The first faults of some rows, and how many more there are."""

    def __init__(self, written: Written) -> None:
        self._written = written
        self._first: list[Problem] = []
        self._more = 0

    @property
    def any(self) -> bool:
        return bool(self._first)

    def add(self, code: str, message: str, pointer: str, hint: str = "") -> None:
        if len(self._first) == MOST:
            self._more += 1
        else:
            self._first.append(Problem(code=code, message=message, pointer=pointer, hint=hint))

    def add_misfit(self, judge: Validator, row: JSON, pointer: str) -> None:
        """A row that breaks the schema of the collection; why is worked out only where it is told."""
        if len(self._first) == MOST:
            self._more += 1
            return
        for fault in judge.faults(row, most=MOST - len(self._first)):
            message = f"the row does not fit the schema of its collection: {fault.for_model()}"
            self.add("row_breaks_schema", message, pointer + fault.pointer)

    def problems(self) -> Iterator[Problem]:
        yield from map(self._written.place, self._first)
        if self._more:
            message = f"{self._more:,} more rows of the collection are wrong"
            yield self._written.place(
                Problem(code="more_rows_wrong", message=message, hint="mend the first ones, then read again")
            )


_Entry: TypeAlias = tuple[str, str, dict[str, JSON]]
"""Pointer to a row, its key, the row."""


def _entries(value: dict[str, JSON] | list[JSON], key: str, told: _Told) -> Iterator[_Entry]:
    """The rows that are objects and have a key; the others are told."""
    if isinstance(value, dict):
        yield from _under_keys(value, key, told)
        return
    for index, row in enumerate(value):
        pointer = f"/{index}"
        if not isinstance(row, dict):
            told.add("row_not_object", f"a row is an object, not {_kind(row)}", pointer)
        elif not key:
            yield pointer, str(index + 1), row
        elif (name := _key_of(row, key, pointer, told)) is not None:
            yield pointer, name, row


def _under_keys(value: dict[str, JSON], key: str, told: _Told) -> Iterator[_Entry]:
    for name, row in value.items():
        pointer = f"/{pointer_step(name)}"
        if not isinstance(row, dict):
            told.add("row_not_object", f"a row is an object, not {_kind(row)}", pointer)
            continue
        own = _key_of(row, key, pointer, told) if key else name
        if own is not None and own != name:
            message = f"the row under `{clipped(name)}` has `{clipped(own)}` in `{key}`"
            told.add("row_key_differs", message, pointer, "make the two equal, or leave `key` out")
        yield pointer, name, row


def _key_of(row: dict[str, JSON], key: str, pointer: str, told: _Told) -> str | None:
    """The key of a row as text; None, told, where it has none."""
    value = row.get(key)
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return compact(value)
    if key in row:
        message = f"the key of a row is a text or a number, and `{key}` is {_kind(value)}"
        told.add("row_without_key", message, f"{pointer}/{pointer_step(key)}")
    else:
        told.add(
            "row_without_key", f"the row has no `{key}`, which is its key", pointer, did_you_mean(key, row)
        )
    return None


def _kind(value: JSON) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return compact(value)
    if isinstance(value, int | float):
        return "a number"
    if isinstance(value, str):
        return "a text"
    return "a list" if isinstance(value, list) else "an object"


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
    return splitext(name)[1].lower()  # noqa: PTH122 -- it may be no path of this system


def _from_json(
    source: str, content: bytes, _schema: Schema | None, problems: list[Problem]
) -> Written | None:
    document, faults = parse_large_json(source, content)
    problems += _as_errors(faults)
    return None if document is None else Written(document.value, document.place)


def _from_yaml(
    source: str, content: bytes, _schema: Schema | None, problems: list[Problem]
) -> Written | None:
    documents, faults = parse_documents(source, content, whole=True, json=False)
    problems += _as_errors(faults)
    if len(documents) > 1:
        message = f"the file holds {len(documents)} documents, and rows are one"
        fault = Problem(code="several_documents", message=message, hint="keep one of them")
        problems.append(documents[1].place(fault))
    return None if faults or len(documents) != 1 else _of_document(documents[0])


def _of_document(document: Document) -> Written:
    return Written(document.value, document.place)


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
        problems.append(_csv_problem(source, line, message, "invalid_utf8", "save the file as UTF-8"))
        return None
    reader = csv.reader(text.splitlines(keepends=True), strict=True)
    rows: list[JSON] = []
    lines: list[int] = []
    before = len(problems)
    try:
        names = next(reader, [])
        problems += _faults_of_header(source, names)
        read = [_CELLS.get(_type_of(name, schema), str) for name in names]
        for cells in reader if len(problems) == before else ():
            if not cells:
                continue
            if len(cells) != len(names):
                message = f"the line has {len(cells)} cells, and the header {len(names)}"
                problems.append(_csv_problem(source, reader.line_num, message))
                if len(problems) - before == MOST:
                    break
            rows.append(_row_of(names, read, cells))
            lines.append(reader.line_num)
    except csv.Error as error:
        problems.append(
            _csv_problem(
                source,
                reader.line_num,
                f"{error}",
                hint="texts with quotes, commas or line breaks stand in double quotes, and a quote in them is doubled",
            )
        )
    return None if len(problems) > before else Written(rows, _on_lines(source, lines))


def _csv_problem(source: str, line: int, message: str, code: str = "invalid_csv", hint: str = "") -> Problem:
    return Problem(code=code, message=message, hint=hint).at(source, line, 1)


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
