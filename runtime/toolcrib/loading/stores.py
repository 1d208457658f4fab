"""Where a store begins: the collections and machines that a pack, a project or a scenario declares.

What is wrong with rows takes no pack and no tool down: the collection keeps its name, and whoever wants its rows is
told what is wrong with them.
"""

from __future__ import annotations

import hashlib
import posixpath
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from toolcrib.core.errors import ExpressionError, Problem, Severity, did_you_mean
from toolcrib.core.model import JSON, NO_FIXTURE, NOTHING, Collection, Fixture, Machine, Origin, Schema
from toolcrib.core.pointers import pointer_step
from toolcrib.core.protocols import Files
from toolcrib.core.text import canonical
from toolcrib.loading.documents.files import outside_of, read_anywhere
from toolcrib.loading.documents.positions import clipped
from toolcrib.loading.row_files import READERS, ending, written_in
from toolcrib.loading.rows import Written, keyed
from toolcrib.schema.validation import check_schema
from toolcrib.security.secrets.variables import Variable, pieces_of, plain
from toolcrib.simulation.store import lost_rows

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}", re.ASCII)

RESERVED: Final = frozenset(
    {"False", "None", "True", "and", "else", "false", "if", "in", "is", "none", "not", "or", "true"}
)
"""Names that mean something else to the reader of expressions."""


def parse_fixture(
    said: Mapping[str, Any], origin: Origin, scope_name: str, problems: list[Problem]
) -> Fixture:
    """What a document declares under `store` and `state`.

    Args:
        said: The document; its shape is right.
        origin: Where the document came from, with the files beside it.
        scope_name: Name of the pack; empty outside packs.
        problems: Receives all that is wrong. Those within files are placed there, the others have pointers.
    """
    collections = parse_store(said.get("store", {}), "/store", origin, scope_name, problems)
    machines = parse_states(said.get("state", {}), "/state", scope_name, problems)
    return Fixture(collections, machines) if collections or machines else NO_FIXTURE


def fixture_with(fixture: Fixture, store: Mapping[str, Collection], states: Mapping[str, Machine]) -> Fixture:
    """What a tool's store begins with in a scenario that declares a store of its own.

    Args:
        fixture: That of the tool's pack or project.
        store: The scenario's collections: one of a name that `fixture` has takes its place, others are added. All
            tools share them, of whichever packs they are.
        states: The scenario's machines, likewise.
    """
    if not store and not states:
        return fixture
    collections = MappingProxyType({**fixture.collections, **store})
    return Fixture(collections, MappingProxyType({**fixture.machines, **states}))


def parse_store(
    block: Mapping[str, Any],
    pointer: str,
    origin: Origin,
    scope_name: str,
    problems: list[Problem],
    *,
    below: Mapping[str, Collection] = NOTHING,
) -> Mapping[str, Collection]:
    """The collections that a document declares, with their rows.

    Args:
        block: What stands under `store`; its shape is right.
        pointer: Where it stands.
        origin: Where the document came from, with the files beside it.
        scope_name: Name of the pack; empty outside packs.
        problems: Receives all that is wrong. Those within files are placed there, the others have pointers.
        below: Collections whose `key` and `schema` those of their names have that give none; nothing is wrong with
            these schemas.
    """
    found = {}
    for name, entry in block.items():
        at = f"{pointer}/{pointer_step(name)}"
        if (fault := _fault_of_name(name, "a collection", at)) is not None:
            problems.append(fault)
            continue
        said = _Said(name, entry, at, origin, f"{scope_name}/{name}", below=below.get(name))
        found[name] = said.collection(problems)
    return MappingProxyType(found)


def parse_states(
    block: Mapping[str, Any], pointer: str, scope_name: str, problems: list[Problem]
) -> Mapping[str, Machine]:
    """The machines that a document declares under `state`: their start, or a list of all states, the start first."""
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
        message = f"`{name}` means something else in expressions, so {what} can't be called so"
        return Problem(code="wrong_form", message=message, pointer=pointer, hint="take another name")
    if _NAME.fullmatch(name):
        return None
    message = f"`{clipped(name)}` is no name of {what}"
    hint = "a name begins with a letter or `_` and goes on with letters, digits, `_`, at most 64 in all"
    return Problem(code="wrong_form", message=message, pointer=pointer, hint=hint)


def _doubled(states: Sequence[str], pointer: str) -> Iterator[Problem]:
    for index, state in enumerate(states):
        if state in states[:index]:
            message = f"the state `{clipped(state)}` is listed twice"
            yield Problem(
                code="duplicate_name", message=message, pointer=f"{pointer}/{index}", hint="list it once"
            )


class _Path(NamedTuple):
    """A file that was named, with everything looked up.

    Attributes:
        text: Its path.
        anywhere: Whether the operator named it.
    """

    text: str
    anywhere: bool


class _Said:
    """What a document says of one collection."""

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
        """The collection, with its rows or with what is wrong with them."""
        told: list[Problem] = []
        if "schema" in self._said:
            told += check_schema(self._bare.schema, f"{self._bare.pointer}/schema")
        schema = None if _has_error(told) else self._bare.schema
        found = self._from_file(schema, told) if "file" in self._said else self._in_place(schema, told)
        problems += told
        error = next((problem for problem in told if problem.severity == "error"), None)
        if error is None:
            return found
        place = f"{error.source}:{error.line}" if error.line else self._bare.origin.place(error.pointer)
        return found._replace(rows=None, digest="", fault=f"{place}: {error.code}: {error.message}")

    def _in_place(self, schema: Schema | None, problems: list[Problem]) -> Collection:
        at, value = self._rows_at, self._said["rows"]
        written = Written(value, lambda problem: problem._replace(pointer=at + problem.pointer))
        rows = keyed(written, self._bare.key, schema, problems)
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
        written = written_in(_told_name(collection), content, schema, problems)
        rows = None if written is None else keyed(written, collection.key, schema, problems)
        return collection._replace(rows=rows, digest=_digest(collection, content))


def _has_error(problems: Sequence[Problem]) -> bool:
    return any(problem.severity == "error" for problem in problems)


def _looked_up(text: str, pointer: str, origin: Origin, problems: list[Problem]) -> _Path | None:
    """A path with its variables looked up; None, with problems, where that can't be."""
    try:
        pieces = pieces_of(text)
    except ExpressionError as error:
        problems.append(error.problem(pointer))
        return None
    parts, anywhere, before = [], False, len(problems)
    files = origin.files
    outside = outside_of(files)
    for piece in pieces:
        if isinstance(piece, str):
            parts.append(plain(piece))
            continue
        value = outside.variable(piece.name) if piece.source == "env" else None
        if piece.source == "env":
            outside.names(origin.source, text, piece.name)
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


def _pass_over(pieces: Sequence[str | Variable], files: Files | None) -> None:
    """The file that would be read without the operator's word is still the pack's: no document, and travels with it."""
    pass_over: Callable[[str], None] | None = getattr(files, "pass_over", None)
    texts = [plain(piece) if isinstance(piece, str) else piece.default for piece in pieces]
    if pass_over is not None and None not in texts:
        pass_over("".join(text for text in texts if text is not None))


def _withheld(variable: Variable, pointer: str) -> Problem:
    """A variable that leads to files, of which nobody has said that this document may read them."""
    instead = "the rows are not read" if variable.default is None else "the default is read instead"
    message = f"`{variable.text}` is set, and not looked up for a workspace that is not trusted; {instead}"
    severity: Severity = "error" if variable.default is None else "warning"
    hint = "look at what it asks for with `toolcrib trust --dry-run`, then agree with `toolcrib trust`"
    return Problem(code="untrusted_workspace", message=message, pointer=pointer, hint=hint, severity=severity)


def _not_there(variable: Variable, pointer: str) -> Problem:
    if variable.source != "env":
        message = (
            f"`{variable.text}` can't stand in the path of a file: only variables of the environment can"
        )
        hint = "write `${VAR}` or `${VAR:-default}`"
        return Problem(code="variable_not_allowed", message=message, pointer=pointer, hint=hint)
    message = f"`{variable.name}` is not set in the environment, or is empty"
    hint = f"set it to a folder, or write a default: `${{{variable.name}:-store}}`"
    return Problem(code="missing_variable", message=message, pointer=pointer, hint=hint)


def _fault_of_ending(path: str, pointer: str) -> Problem | None:
    if ending(path) in READERS:
        return None
    known = ", ".join(f"`{suffix}`" for suffix in READERS)
    message = f"`{clipped(path)}` is no file of rows: its name ends with none of {known}"
    near = did_you_mean(ending(path), READERS) if ending(path) else ""
    hint = near or "write `rows:` to give rows in place"
    return Problem(code="unknown_row_format", message=message, pointer=pointer, hint=hint)


def _unreadable(error: OSError, collection: Collection, pointer: str) -> Problem:
    text = (
        str(error) if error.errno is None else f"`{clipped(collection.file)}` can't be read: {error.strerror}"
    )
    hint = "paths are relative to the file that names them and may not leave its folder or pack"
    if collection.anywhere:
        hint = "a path that a variable of the environment gives is relative to the working directory"
    return Problem(code="rows_unreadable", message=text, pointer=pointer, hint=hint)


def _content(collection: Collection) -> bytes:
    """What the file of a collection holds.

    Raises:
        OSError: It can't be read.
    """
    files = collection.origin.files
    if collection.anywhere:
        return read_anywhere(collection.file, files)
    if files is None:
        name = clipped(collection.file)
        raise FileNotFoundError(f"`{name}` can't be found: the document came from memory, without files")
    return files.read(collection.file)


def _told_name(collection: Collection) -> str:
    """The file of a collection, as a person names it."""
    if collection.anywhere:
        return collection.file
    folder = posixpath.dirname(collection.origin.source.replace("\\", "/"))
    return posixpath.normpath(posixpath.join(folder, collection.file))


def _digest(collection: Collection, content: bytes) -> str:
    """Tells rows from others: what holds them, and how it is read."""
    told: JSON = [collection.key, collection.schema, ending(collection.file)]
    digest = hashlib.sha256(canonical(told).encode("utf-8", "surrogatepass"))
    digest.update(content)
    return digest.hexdigest()


_READ: dict[str, dict[str, JSON]] = {}
"""Digest of a collection -> its rows, of those that came from an index and were read since."""


def read_rows(collection: Collection) -> Mapping[str, JSON]:
    """Read the rows of a collection that came from an index, by key: once, for all sessions.

    Raises:
        ExpressionError: Their file is not any more what it was.
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
        raise lost_rows(collection, f"`{collection.file}` was changed after it was judged", _AGAIN)
    written = written_in(_told_name(collection), content, collection.schema, problems)
    rows = None if written is None else keyed(written, collection.key, None, problems)
    if rows is None:
        raise lost_rows(collection, str(problems[0]), _AGAIN)
    return rows


_AGAIN = "read the documents again"
