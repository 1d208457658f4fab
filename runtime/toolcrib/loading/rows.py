"""Rows as documents write them: lists or objects, in place or in files, brought into one form."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple, TypeAlias

from toolcrib.core.errors import Problem, did_you_mean
from toolcrib.core.model import JSON, Schema
from toolcrib.core.pointers import pointer_step
from toolcrib.core.text import compact
from toolcrib.loading.documents.positions import clipped
from toolcrib.schema.validation import Validator

MOST: Final = 5
"""Problems of the rows of one collection that are told one by one."""


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
            told.tell("duplicate_row", message, pointer, "the key of a row tells it from all others")
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

    def tell(self, code: str, message: str, pointer: str, hint: str = "") -> None:
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
            self.tell("row_breaks_schema", message, pointer + fault.pointer)

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
            told.tell("row_not_object", f"a row is an object, not {_kind(row)}", pointer)
        elif not key:
            yield pointer, str(index + 1), row
        elif (name := _key_of(row, key, pointer, told)) is not None:
            yield pointer, name, row


def _under_keys(value: dict[str, JSON], key: str, told: _Told) -> Iterator[_Entry]:
    for name, row in value.items():
        pointer = f"/{pointer_step(name)}"
        if not isinstance(row, dict):
            told.tell("row_not_object", f"a row is an object, not {_kind(row)}", pointer)
            continue
        own = _key_of(row, key, pointer, told) if key else name
        if own is not None and own != name:
            message = f"the row under `{clipped(name)}` has `{clipped(own)}` in `{key}`"
            told.tell("row_key_differs", message, pointer, "make the two equal, or leave `key` out")
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
        told.tell("row_without_key", message, f"{pointer}/{pointer_step(key)}")
    else:
        told.tell(
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
