"""Initial contents of stores: the collections and state machines of a pack, a project or a scenario.

Rows are inline or in files (JSON, JSON lines, YAML, CSV). A fault in rows does not reject a pack or tool: the
collection keeps its name, and a mock that reads its rows receives the fault.
"""

from __future__ import annotations

import csv
import hashlib
import io
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from os.path import splitext
from types import MappingProxyType
from typing import Any, Final, NamedTuple, TypeAlias

from toolcrib.core.errors import ExpressionError, Problem, Severity, did_you_mean
from toolcrib.core.model import (
    JSON,
    NO_DEFINITIONS,
    NO_FIXTURE,
    NOTHING,
    Collection,
    Fixture,
    Machine,
    Origin,
    Schema,
    SharedDefinitions,
)
from toolcrib.core.pointers import keys_of, pointer_step
from toolcrib.core.protocols import Files
from toolcrib.core.text import canonical, compact
from toolcrib.expressions.compiler import hidden_key_name
from toolcrib.expressions.definitions import check_definitions
from toolcrib.expressions.expression import RESERVED
from toolcrib.expressions.functions import COUNTS, DRAWS
from toolcrib.loading.documents.document import Document, parse_documents, parse_json
from toolcrib.loading.documents.files import external_access, read_operator_file
from toolcrib.loading.documents.json_text import LargeJSON
from toolcrib.loading.documents.positions import INTEGER_DIGITS, excerpt
from toolcrib.schema.validation import Validator, check_schema
from toolcrib.security.secrets import SecretVariable, split_variables, unescape_dollars
from toolcrib.simulation.store import lost_rows

MAX_ROW_PROBLEMS: Final = 5
"""Maximum number of row problems reported for one collection; the others are only counted."""


class RawRows(NamedTuple):
    """Rows as written, before any check.

    Attributes:
        value: A list of rows, or an object: key -> row.
        place: Adds the position to a problem whose pointer is relative to `value`.
    """

    value: JSON
    place: Callable[[Problem], Problem]


def rows_by_key(
    written: RawRows, key: str, schema: Schema | None, problems: list[Problem]
) -> dict[str, JSON] | None:
    """Map keys to rows; None, with problems, if any row is invalid.

    Args:
        written: The rows.
        key: The field with the key of a row; empty if the rows are an object by key, or are numbered from 1.
        schema: The schema of each row; None for any object.
        problems: Receives the first problems, and the number of further ones.
    """
    if not isinstance(written.value, dict | list):
        message = f"rows must be a list or an object of rows by key, got {_kind(written.value)}"
        problems.append(written.place(Problem(code="rows_not_listed", message=message)))
        return None
    told = _RowProblems(written)
    judge = None if schema is None else Validator(schema)
    rows: dict[str, JSON] = {}
    for pointer, name, row in _entries(written.value, key, told):
        if name in rows:
            message = f"duplicate row key `{excerpt(name)}`"
            told.tell("duplicate_row", message, pointer, "give each row a unique key")
        elif judge is not None and not judge.judge(row):
            told.add_misfit(judge, row, pointer)
        rows.setdefault(name, row)
    problems += told.problems()
    return None if told.any else rows


class _RowProblems:
    """The first problems of some rows, and the number of further ones."""

    def __init__(self, written: RawRows) -> None:
        self._written = written
        self._first: list[Problem] = []
        self._more = 0

    @property
    def any(self) -> bool:
        return bool(self._first)

    def tell(self, code: str, message: str, pointer: str, hint: str = "") -> None:
        if len(self._first) == MAX_ROW_PROBLEMS:
            self._more += 1
        else:
            self._first.append(Problem(code=code, message=message, pointer=pointer, hint=hint))

    def add_misfit(self, judge: Validator, row: JSON, pointer: str) -> None:
        """Add a row that does not match the schema of the collection."""
        # A verdict is much faster than its reasons: a file of 100,000 wrong rows needs the reasons of five.
        if len(self._first) == MAX_ROW_PROBLEMS:
            self._more += 1
            return
        for fault in judge.faults(row, most=MAX_ROW_PROBLEMS - len(self._first)):
            message = f"the row does not match the schema of its collection: {fault.for_model()}"
            self.tell("row_breaks_schema", message, pointer + fault.pointer)

    def problems(self) -> Iterator[Problem]:
        yield from map(self._written.place, self._first)
        if self._more:
            message = f"{self._more:,} more rows of the collection are invalid"
            yield self._written.place(
                Problem(code="more_rows_wrong", message=message, hint="fix the first ones, then load again")
            )


_Entry: TypeAlias = tuple[str, str, dict[str, JSON]]
"""Pointer, key and content of a row."""


def _entries(value: dict[str, JSON] | list[JSON], key: str, told: _RowProblems) -> Iterator[_Entry]:
    """The rows that are objects with a key; the others are reported."""
    if isinstance(value, dict):
        yield from _under_keys(value, key, told)
        return
    for index, row in enumerate(value):
        pointer = f"/{index}"
        if not isinstance(row, dict):
            told.tell("row_not_object", f"a row must be an object, got {_kind(row)}", pointer)
        elif not key:
            yield pointer, str(index + 1), row
        elif (name := _key_of(row, key, pointer, told)) is not None:
            yield pointer, name, row


def _under_keys(value: dict[str, JSON], key: str, told: _RowProblems) -> Iterator[_Entry]:
    for name, row in value.items():
        pointer = f"/{pointer_step(name)}"
        if not isinstance(row, dict):
            told.tell("row_not_object", f"a row must be an object, got {_kind(row)}", pointer)
            continue
        own = _key_of(row, key, pointer, told) if key else name
        if own is not None and own != name:
            message = f"the row under `{excerpt(name)}` has `{excerpt(own)}` in `{key}`"
            told.tell("row_key_differs", message, pointer, "make the two equal, or remove `key`")
        yield pointer, name, row


def _key_of(row: dict[str, JSON], key: str, pointer: str, told: _RowProblems) -> str | None:
    """The key of a row as text; None, with a problem, if it has none."""
    value = row.get(key)
    if isinstance(value, str):
        return value
    if isinstance(value, int | float) and not isinstance(value, bool):
        return compact(value)
    if key in row:
        message = f"the key of a row must be text or a number, but `{key}` is {_kind(value)}"
        told.tell("row_without_key", message, f"{pointer}/{pointer_step(key)}")
    else:
        told.tell(
            "row_without_key", f"the row has no `{key}`, its key field", pointer, did_you_mean(key, row)
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


_NUMBER: Final = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?", re.ASCII)
_WHOLE: Final = re.compile(r"-?(0|[1-9][0-9]*)", re.ASCII)


def parse_row_file(
    source: str, content: bytes, schema: Schema | None, problems: list[Problem]
) -> RawRows | None:
    """Read the rows of a file; None, with problems, if it is unreadable.

    Args:
        source: The file, as the user named it; its extension selects the reader.
        content: Its content.
        schema: The schema of the rows, which gives the types of the cells of a `.csv`.
        problems: Receives the problems of the file, with positions.
    """
    return READERS[file_ending(source)](source, content, schema, problems)


def file_ending(name: str) -> str:
    """The extension of a file name in lower case: `.json`."""
    return splitext(name)[1].lower()


def _from_json(
    source: str, content: bytes, _schema: Schema | None, problems: list[Problem]
) -> RawRows | None:
    text = LargeJSON(source, content)
    problems += _as_errors(text.problems)
    return None if text.problems else RawRows(text.value, text.place)


def _from_yaml(
    source: str, content: bytes, _schema: Schema | None, problems: list[Problem]
) -> RawRows | None:
    # The extension selected this reader already, and the same text could be named differently.
    documents, faults = parse_documents(source, content, whole=True, json=False)
    problems += _as_errors(faults)
    if len(documents) > 1:
        message = f"the file contains {len(documents)} documents; expected one with rows"
        fault = Problem(code="several_documents", message=message, hint="keep one of them")
        problems.append(documents[1].place(fault))
    return None if faults or len(documents) != 1 else RawRows(documents[0].value, documents[0].place)


def _as_errors(faults: Sequence[Problem]) -> Iterator[Problem]:
    # An empty file is most likely a failed export. An intentionally empty collection is written `[]`.
    for fault in faults:
        empty = fault.code == "empty_document"
        yield fault._replace(severity="error", hint="write `[]` for no rows") if empty else fault


def _from_lines(
    source: str, content: bytes, _schema: Schema | None, problems: list[Problem]
) -> RawRows | None:
    """Read JSON lines: one row on each line; blank lines are skipped."""
    rows: list[JSON] = []
    lines: list[int] = []
    before = len(problems)
    # Not `splitlines`, which also splits at a lone carriage return: JSON allows one as a blank between values.
    for line, text in enumerate(content.removeprefix(b"\xef\xbb\xbf").split(b"\n"), 1):
        if not text.strip():
            continue
        value, faults = parse_json(source, text)
        problems += [fault.at(source, line, fault.column) for fault in faults[:1]]
        rows.append(value)
        lines.append(line)
        # Later lines of a broken file would only repeat the problem.
        if len(problems) - before == MAX_ROW_PROBLEMS:
            break
    return None if len(problems) > before else RawRows(rows, _on_lines(source, lines))


def _on_lines(source: str, lines: Sequence[int]) -> Callable[[Problem], Problem]:
    """A function that positions problems of rows in a file with one row on each of these lines."""

    def place(problem: Problem) -> Problem:
        steps = keys_of(problem.pointer)
        return problem.at(source, lines[int(steps[0])] if steps else 1, 1)

    return place


def _from_csv(source: str, content: bytes, schema: Schema | None, problems: list[Problem]) -> RawRows | None:
    """Read CSV. The first line names the fields; a cell is text unless the schema gives it another type."""
    try:
        # Excel writes CSV with a byte order mark, which would become a part of the first field name.
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        message = f"byte 0x{content[error.start]:02x} is not valid UTF-8"
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
            message = f"the row has {len(cells)} cells, but the header has {len(names)}"
            problems.append(_csv_problem(source, line, message, _QUOTES))
        if len(problems) - before >= MAX_ROW_PROBLEMS:
            break
        rows.append(_row_of(names, read, cells))
        lines.append(line)
    return None if len(problems) > before else RawRows(rows, _on_lines(source, lines))


_QUOTES: Final = "put text with commas, quotes or line breaks in double quotes, and double each quote in it"


class _Table:
    """The rows of a CSV text; text in quotes may span several lines."""

    def __init__(self, source: str, text: str) -> None:
        self._source = source
        # `newline=""` keeps line breaks within quotes as they are; `strict` reports a quote that is not closed.
        self._reader = csv.reader(io.StringIO(text, newline=""), strict=True)

    def lines(self, problems: list[Problem]) -> Iterator[tuple[int, list[str]]]:
        """The first line of each row, and its cells. Blank lines are skipped; a syntax error ends the iteration."""
        while True:
            line = self._reader.line_num + 1
            try:
                cells = next(self._reader)
            except StopIteration:
                return
            except csv.Error as error:
                problems.append(_csv_problem(self._source, line, f"not valid CSV: {error}", _QUOTES))
                return
            if cells:
                yield line, cells


def _csv_problem(source: str, line: int, message: str, hint: str = "") -> Problem:
    return Problem(code="invalid_csv", message=message, hint=hint).at(source, line, 1)


def _faults_of_header(source: str, names: Sequence[str]) -> Iterator[Problem]:
    hint = "name the fields of the rows in the first line"
    if not names:
        yield _csv_problem(source, 1, "the file has no header", hint=hint)
    for index, name in enumerate(names):
        if not name:
            yield _csv_problem(source, 1, f"field {index + 1} of the header has no name", hint=hint)
        elif name in names[:index]:
            yield _csv_problem(source, 1, f"duplicate header field `{excerpt(name)}`", hint=hint)


_NONE: Final = object()
"""A cell without a value: its row does not have the field."""


def _row_of(names: Sequence[str], read: Sequence[Callable[[str], Any]], cells: Sequence[str]) -> JSON:
    values = ((name, of(cell)) for name, of, cell in zip(names, read, cells, strict=False))
    return {name: value for name, value in values if value is not _NONE}


def _type_of(name: str, schema: Schema | None) -> str:
    """The type of a field if its schema excludes text: `integer`, `number` or `boolean`; else empty."""
    properties = schema.get("properties") if isinstance(schema, dict) else None
    field = properties.get(name) if isinstance(properties, dict) else None
    said = field.get("type") if isinstance(field, dict) else None
    kinds = said if isinstance(said, list) else [said]
    return "" if "string" in kinds else next((kind for kind in kinds if kind in _CELLS), "")  # type: ignore[return-value]


# A cell that does not have its type stays text, so that the check of the row reports it with the schema's own words.


def _integer(cell: str) -> Any:
    cell = cell.strip()
    if not cell:
        return _NONE
    # Python's `int` would also accept `1_000` and digits of other scripts.
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

READERS: Final[Mapping[str, Callable[[str, bytes, Schema | None, list[Problem]], RawRows | None]]] = {
    ".json": _from_json,
    ".jsonl": _from_lines,
    ".yaml": _from_yaml,
    ".yml": _from_yaml,
    ".csv": _from_csv,
}
"""Extension of a row file -> its reader."""


_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}", re.ASCII)


def parse_fixture(
    said: Mapping[str, Any], origin: Origin, scope_name: str, problems: list[Problem]
) -> Fixture:
    """Parse `store`, `state`, `let` and `define` of a document.

    Args:
        said: The document; its schema has accepted it.
        origin: The origin of the document, with its files.
        scope_name: Name of the pack; empty outside packs.
        problems: Receives all problems. Those within files have positions there, the others have pointers.
    """
    collections = parse_store(said.get("store", {}), "/store", origin, scope_name, problems)
    machines = parse_states(said.get("state", {}), "/state", scope_name, problems)
    definitions = _parse_definitions(said, origin)
    fixture = Fixture(collections, machines, definitions)
    if definitions is not NO_DEFINITIONS:
        names: dict[str, Any] = {
            **dict.fromkeys(("now", "seed", "session", DRAWS, COUNTS)),
            "store": tuple(collections),
            "state": tuple(machines),
            **{hidden_key_name("store", name): None for name in collections},
        }
        check_definitions(definitions, names, problems)
    return NO_FIXTURE if fixture == NO_FIXTURE else fixture


def _parse_definitions(said: Mapping[str, Any], origin: Origin) -> SharedDefinitions:
    """Parse `let` and `define` of a pack or project."""
    let, define = said.get("let", {}), said.get("define", {})
    if not let and not define:
        return NO_DEFINITIONS
    written = (("let", let), ("define", define))
    places = {name: origin.place(f"/{key}/{pointer_step(name)}") for key, names in written for name in names}
    return SharedDefinitions(let, define, places)


def fixture_with(fixture: Fixture, store: Mapping[str, Collection], states: Mapping[str, Machine]) -> Fixture:
    """The initial store of a tool in a scenario with its own `store` or `state`.

    Args:
        fixture: The fixture of the tool's pack or project.
        store: The scenario's collections, which replace those of the same name. The tools of all packs share them.
        states: The scenario's machines, likewise.
    """
    if not store and not states:
        return fixture
    collections = MappingProxyType({**fixture.collections, **store})
    machines = MappingProxyType({**fixture.machines, **states})
    return Fixture(collections, machines, fixture.definitions)


def parse_store(
    block: Mapping[str, Any],
    pointer: str,
    origin: Origin,
    scope_name: str,
    problems: list[Problem],
    *,
    below: Mapping[str, Collection] = NOTHING,
) -> Mapping[str, Collection]:
    """Parse the collections of a document, with their rows.

    Args:
        block: The value of `store`; the schema has accepted it.
        pointer: JSON Pointer of the block.
        origin: The origin of the document, with its files.
        scope_name: Name of the pack; empty outside packs.
        problems: Receives all problems. Those within files have positions there, the others have pointers.
        below: Collections by name, whose `key` and valid `schema` are inherited by collections that omit them.
    """
    found = {}
    for name, entry in block.items():
        at = f"{pointer}/{pointer_step(name)}"
        if (fault := _fault_of_name(name, "a collection", at)) is not None:
            problems.append(fault)
            continue
        said = _CollectionBlock(name, entry, at, origin, f"{scope_name}/{name}", below=below.get(name))
        found[name] = said.collection(problems)
    return MappingProxyType(found)


def parse_states(
    block: Mapping[str, Any], pointer: str, scope_name: str, problems: list[Problem]
) -> Mapping[str, Machine]:
    """Parse the state machines under `state`: an initial state, or a list of all states with the initial one first."""
    found = {}
    for name, entry in block.items():
        at = f"{pointer}/{pointer_step(name)}"
        if (fault := _fault_of_name(name, "a state", at)) is not None:
            problems.append(fault)
            continue
        states = tuple(entry) if isinstance(entry, list) else ()
        problems += _doubled(states, at)
        start = states[0] if states else entry
        found[name] = Machine(name, f"{scope_name}/{name}", start, tuple(dict.fromkeys(states)))
    return MappingProxyType(found)


def _fault_of_name(name: str, what: str, pointer: str) -> Problem | None:
    if name in RESERVED:
        message = f"`{name}` is reserved in expressions and cannot name {what}"
        return Problem(code="wrong_form", message=message, pointer=pointer, hint="use another name")
    if _NAME.fullmatch(name):
        return None
    message = f"`{excerpt(name)}` is not a valid name for {what}"
    hint = "use at most 64 letters, digits or `_`, starting with a letter or `_`"
    return Problem(code="wrong_form", message=message, pointer=pointer, hint=hint)


def _doubled(states: Sequence[str], pointer: str) -> Iterator[Problem]:
    for index, state in enumerate(states):
        if state in states[:index]:
            message = f"duplicate state `{excerpt(state)}`"
            yield Problem(
                code="duplicate_name", message=message, pointer=f"{pointer}/{index}", hint="list it once"
            )


class _Path(NamedTuple):
    """A path with its variables resolved.

    Attributes:
        text: The path.
        anywhere: Whether the operator chose it through a variable, so that it may be outside the pack.
    """

    text: str
    anywhere: bool


class _CollectionBlock:
    """One collection of a document."""

    def __init__(
        self,
        name: str,
        entry: Any,
        pointer: str,
        origin: Origin,
        id: str,  # noqa: A002
        *,
        below: Collection | None = None,
    ) -> None:
        in_short = "rows" if isinstance(entry, list) else "file" if isinstance(entry, str) else ""
        said: Mapping[str, Any] = {in_short: entry} if in_short else entry
        self._said = said
        self._file_at = pointer if in_short else f"{pointer}/file"
        self._rows_at = pointer if in_short else f"{pointer}/rows"
        key = said.get("key", below.key if below is not None else "")
        schema = said.get("schema", below.schema if below is not None else None)
        self._bare = Collection(name, id, key, schema, pointer=pointer, origin=origin)

    def collection(self, problems: list[Problem]) -> Collection:
        """The collection, with its rows or their first error."""
        told: list[Problem] = []
        if "schema" in self._said:
            told += check_schema(self._bare.schema, f"{self._bare.pointer}/schema")
        schema = None if _has_error(told) else self._bare.schema
        found = self._from_file(schema, told) if "file" in self._said else self._in_place(schema, told)
        problems += told
        error = next((problem for problem in told if problem.severity == "error"), None)
        if error is None:
            return found
        # The fault is shown later by a mock, when the problem and its position are not at hand any more.
        place = f"{error.source}:{error.line}" if error.line else self._bare.origin.place(error.pointer)
        return found._replace(rows=None, digest="", fault=f"{place}: {error.code}: {error.message}")

    def _in_place(self, schema: Schema | None, problems: list[Problem]) -> Collection:
        at, value = self._rows_at, self._said["rows"]
        written = RawRows(value, lambda problem: problem._replace(pointer=at + problem.pointer))
        rows = rows_by_key(written, self._bare.key, schema, problems)
        # Equal rows have an equal digest regardless of their layout, so reformatting a document is no change.
        content = canonical(value).encode("utf-8", "surrogatepass")
        return self._bare._replace(rows=rows, digest=_digest(self._bare, content))

    def _from_file(self, schema: Schema | None, problems: list[Problem]) -> Collection:
        path = _looked_up(self._said["file"], self._file_at, self._bare.origin, problems)
        if path is None:
            return self._bare
        collection = self._bare._replace(file=path.text, anywhere=path.anywhere)
        fault = _fault_of_ending(path.text, self._file_at)
        if fault is not None:
            problems.append(fault)
            return collection
        try:
            content = _content(collection)
        except OSError as error:
            problems.append(_unreadable(error, collection, self._file_at))
            return collection
        written = parse_row_file(_told_name(collection), content, schema, problems)
        rows = None if written is None else rows_by_key(written, collection.key, schema, problems)
        return collection._replace(rows=rows, digest=_digest(collection, content))


def _has_error(problems: Sequence[Problem]) -> bool:
    return any(problem.severity == "error" for problem in problems)


def _looked_up(text: str, pointer: str, origin: Origin, problems: list[Problem]) -> _Path | None:
    """Resolve the variables of a path; None, with problems, if that fails."""
    try:
        pieces = split_variables(text)
    except ExpressionError as error:
        problems.append(error.problem(pointer))
        return None
    parts, anywhere, before = [], False, len(problems)
    files = origin.files
    outside = external_access(files)
    for piece in pieces:
        if isinstance(piece, str):
            parts.append(unescape_dollars(piece))
            continue
        value = outside.variable(piece.name) if piece.source == "env" else None
        if piece.source == "env":
            outside.names(origin.source, text, piece.name)
        # An untrusted document could use a variable that happens to be set (HOME) to read any file of the user.
        if value and not outside.permits(origin.source, text, piece.name):
            value = None
            problems.append(_withheld(piece, pointer))
            if piece.default is None:
                return None
            before = len(problems)
        anywhere = anywhere or bool(value)
        if not value and (piece.default is None or piece.source != "env"):
            problems.append(_not_there(piece, pointer))
        parts.append(value or piece.default or "")
    if anywhere:
        _pass_over(pieces, files)
    return _Path("".join(parts), anywhere) if len(problems) == before else None


def _pass_over(pieces: Sequence[str | SecretVariable], files: Files | None) -> None:
    # The file at the default path stays a data file of the pack, although it is not read: it must not be loaded as a
    # document, and `pack build` includes it.
    pass_over: Callable[[str], None] | None = getattr(files, "pass_over", None)
    texts = [unescape_dollars(piece) if isinstance(piece, str) else piece.default for piece in pieces]
    if pass_over is not None and None not in texts:
        pass_over("".join(text for text in texts if text is not None))


def _withheld(variable: SecretVariable, pointer: str) -> Problem:
    """The problem of a variable in a path that an untrusted document may not look up."""
    instead = "the rows are not read" if variable.default is None else "the default is used instead"
    message = f"`{variable.text}` is set but not looked up in an untrusted workspace; {instead}"
    severity: Severity = "error" if variable.default is None else "warning"
    hint = "review it with `toolcrib trust --dry-run`, then run `toolcrib trust`"
    return Problem(code="untrusted_workspace", message=message, pointer=pointer, hint=hint, severity=severity)


def _not_there(variable: SecretVariable, pointer: str) -> Problem:
    if variable.source != "env":
        message = f"`{variable.text}` is not allowed in a file path: only environment variables are"
        hint = "write `${VAR}` or `${VAR:-default}`"
        return Problem(code="variable_not_allowed", message=message, pointer=pointer, hint=hint)
    message = f"the environment variable `{variable.name}` is not set or is empty"
    hint = f"set it to a folder, or write a default: `${{{variable.name}:-store}}`"
    return Problem(code="missing_variable", message=message, pointer=pointer, hint=hint)


def _fault_of_ending(path: str, pointer: str) -> Problem | None:
    if file_ending(path) in READERS:
        return None
    known = ", ".join(f"`{suffix}`" for suffix in READERS)
    message = f"`{excerpt(path)}` is not a file of rows: its name must end with one of {known}"
    near = did_you_mean(file_ending(path), READERS) if file_ending(path) else ""
    hint = near or "use `rows:` for rows in the document"
    return Problem(code="unknown_row_format", message=message, pointer=pointer, hint=hint)


def _unreadable(error: OSError, collection: Collection, pointer: str) -> Problem:
    text = (
        str(error) if error.errno is None else f"cannot read `{excerpt(collection.file)}`: {error.strerror}"
    )
    hint = "paths are relative to the file that names them and may not leave its folder or pack"
    if collection.anywhere:
        hint = "a path from an environment variable is relative to the working directory"
    return Problem(code="rows_unreadable", message=text, pointer=pointer, hint=hint)


def _content(collection: Collection) -> bytes:
    """Read the file of a collection.

    Raises:
        OSError: It cannot be read.
    """
    files = collection.origin.files
    if collection.anywhere:
        return read_operator_file(collection.file, files)
    if files is None:
        name = excerpt(collection.file)
        raise FileNotFoundError(f"cannot find `{name}`: the document was loaded from memory, without files")
    return files.read(collection.file)


def _told_name(collection: Collection) -> str:
    """The file of a collection, relative to the working directory as a user would name it."""
    if collection.anywhere:
        return collection.file
    folder = posixpath.dirname(collection.origin.source.replace("\\", "/"))
    return posixpath.normpath(posixpath.join(folder, collection.file))


def _digest(collection: Collection, content: bytes) -> str:
    """Digest of rows: of their content, and of everything that determines how they are read."""
    told: JSON = [collection.key, collection.schema, file_ending(collection.file)]
    digest = hashlib.sha256(canonical(told).encode("utf-8", "surrogatepass"))
    digest.update(content)
    return digest.hexdigest()


_READ: dict[str, dict[str, JSON]] = {}
"""Digest of a collection -> its rows, for collections that came from an index."""


def read_rows(collection: Collection) -> Mapping[str, JSON]:
    """Read the rows of a collection that came from an index, by key; once for all sessions.

    Raises:
        ExpressionError: The file changed since it was checked.
    """
    known = _READ.get(collection.digest)
    return known if known is not None else _READ.setdefault(collection.digest, _read_now(collection))


def _read_now(collection: Collection) -> dict[str, JSON]:
    try:
        content = _content(collection)
    except OSError as error:
        raise lost_rows(collection, str(error), _AGAIN) from error
    problems: list[Problem] = []
    if _digest(collection, content) != collection.digest:
        raise lost_rows(collection, f"`{collection.file}` was changed after it was checked", _AGAIN)
    written = parse_row_file(_told_name(collection), content, collection.schema, problems)
    # Without the schema: the digest shows that these are the rows that were checked when the index was written.
    rows = None if written is None else rows_by_key(written, collection.key, None, problems)
    if rows is None:
        raise lost_rows(collection, str(problems[0]), _AGAIN)
    return rows


_AGAIN = "load the documents again"


def parse_document_fixture(
    said: Mapping[str, Any], origin: Origin, scope_name: str, document: Document
) -> tuple[Fixture, tuple[Problem, ...]]:
    """Parse `store`, `state`, `let` and `define` of a document; the problems have positions."""
    if said.keys().isdisjoint(("store", "state", "let", "define")):
        return NO_FIXTURE, ()
    faults: list[Problem] = []
    fixture = parse_fixture(said, origin, scope_name, faults)
    return fixture, tuple(document.place(fault) for fault in faults)


def with_refused_names(fixture: Fixture, value: Mapping[str, Any], scope_name: str) -> Fixture:
    """Add the names of rejected collections and states, so that their uses are not reported as unknown names.

    Args:
        fixture: The valid parts.
        value: The whole document.
        scope_name: Name of the pack; empty outside packs.
    """
    told = {key: value[key] if isinstance(value.get(key), dict) else {} for key in ("store", "state")}
    collections = {
        name: Collection(name, f"{scope_name}/{name}", fault="it was rejected")
        for name in told["store"]
        if name not in fixture.collections
    }
    machines = {
        name: Machine(name, f"{scope_name}/{name}", "")
        for name in told["state"]
        if name not in fixture.machines
    }
    if not collections and not machines:
        return fixture
    return Fixture(
        {**fixture.collections, **collections}, {**fixture.machines, **machines}, fixture.definitions
    )
