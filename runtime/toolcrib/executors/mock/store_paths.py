"""Places: where an effect changes something. `order.items[0]` is written without braces: it says where, not what."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from toolcrib.core.errors import ExpressionError, did_you_mean
from toolcrib.core.model import JSON
from toolcrib.expressions import compile_expression
from toolcrib.expressions.delimiters import STRING
from toolcrib.expressions.operators import missing_key
from toolcrib.expressions.values import Run, Scope, as_text, kind, list_of_names, shortened

if TYPE_CHECKING:
    from toolcrib.executors.mock.body import BodyScope
    from toolcrib.executors.mock.unit_of_work import Work

Location: TypeAlias = "tuple[str | int, ...]"
"""A collection, the key of a row, then the keys and positions within it."""

Names: TypeAlias = "Mapping[str, Collection[str] | None]"
"""The names that expressions may read, with their keys where these are known."""

_HEAD = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)", re.ASCII)
_DOT = re.compile(r"\.([A-Za-z_][A-Za-z0-9_]*)", re.ASCII)
_MARK = re.compile(rf"{STRING.pattern}|[()\[\]{{}}]", re.DOTALL)
_EXAMPLE = "a place is written `order.payments[0].amount`, without braces"


class Step(NamedTuple):
    """One step of a place.

    Attributes:
        name: The key, where it is written as one.
        run: What works the key or position out, where it stands in brackets.
    """

    name: str = ""
    run: Run | None = None


class Place(NamedTuple):
    """A compiled place.

    Attributes:
        text: As it was written.
        root: The row, or the collection, where it begins.
        in_store: Whether the root is a collection.
        steps: What follows.
        names: What its expressions read.
    """

    text: str
    root: str
    in_store: bool
    steps: tuple[Step, ...]
    names: frozenset[str]

    def find(self, scope: Scope, root: BodyScope) -> tuple[Location, JSON]:
        """Where it is now, and what stands there.

        Raises:
            ExpressionError: There is no such place.
        """
        steps = self.steps
        value: JSON
        location: Location
        if self.in_store and steps:
            location = (self.root, self._row_key(scope, root))
            value, steps = look(root.work, location), steps[1:]
        elif self.in_store:
            location, value = (self.root,), root.work.rows(self.root)
        else:
            found = root.locate(self.root)
            value = None if found is None else look(root.work, found)
            if found is None or value is None:
                raise _no_row(self.root, found)
            location = found
        for step in steps:
            key = _key_of(step, scope, value, location)
            value = value[key]  # type: ignore[index]
            location = (*location, key)
        return location, value

    def _row_key(self, scope: Scope, root: BodyScope) -> str:
        """The key of the row of the collection in which the place lies."""
        step, name = self.steps[0], self.root
        key = key_text(step.name if step.run is None else step.run(scope))
        if root.work.has(name, key):
            return key
        raise ExpressionError(f"`{name}` has no row `{shortened(key)}`", code="absent_place")


def _no_row(name: str, location: Location | None) -> ExpressionError:
    where = "" if location is None else f": {shown(location)} does not exist"
    hint = "give it a `missing`, or guard the effect with an `if`"
    return ExpressionError(f"there is no row `{name}`{where}", code="absent_place", hint=hint)


def _key_of(step: Step, scope: Scope, value: JSON, location: Location) -> str | int:
    key: JSON = step.name if step.run is None else step.run(scope)
    if isinstance(value, list) and type(key) is int:
        if -len(value) <= key < len(value):
            return key % len(value)
        raise ExpressionError(
            f"{shown(location)} has {len(value)} elements, and none at {key}", code="absent_place"
        )
    if isinstance(value, dict) and isinstance(key, str):
        if key in value:
            return key
        raise _absent(value, key, location)
    expected = "a number in brackets" if isinstance(value, list) else "a text"
    if not isinstance(value, list | dict):
        raise ExpressionError(
            f"{shown(location)} is {kind(value)}, and nothing is within it", code="absent_place"
        )
    raise ExpressionError(f"{shown(location)} needs {expected}, not {kind(key)}", code="absent_place")


def _absent(value: dict[str, JSON], key: str, location: Location) -> ExpressionError:
    error = missing_key(value, key, shown(location))
    hint = did_you_mean(key, value) or "a key is added with `update` and `set`"
    return ExpressionError(error.message, code="absent_place", hint=hint)


def shown(location: Location) -> str:
    """A location in the words of messages."""
    steps = [f"[{step!r}]" for step in location[1:]]
    return f"`{location[0]}{''.join(steps)}`"


def key_text(value: JSON) -> str:
    """The key that a value means: a text, or the text of a number.

    Raises:
        ExpressionError: It means none.
    """
    key = key_or_none(value)
    if key is None:
        raise ExpressionError(f"the key of a row is a text or a number, not {kind(value)}")
    return key


def key_or_none(value: JSON) -> str | None:
    """The key that a value means, as `key_text`; none where no row can have it."""
    if isinstance(value, str):
        return value
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return as_text(int(value) if isinstance(value, float) and value.is_integer() else value)


def look(work: Work, location: Location) -> JSON:
    """What stands at a location now; none where there is nothing."""
    value: Any = work.row(str(location[0]), str(location[1]))
    for step in location[2:]:
        try:
            value = value[step]
        except (LookupError, TypeError):
            return None
    return value  # type: ignore[no-any-return]


def write(work: Work, location: Location, value: JSON, pointer: str) -> None:
    """Put a value at a location that exists; only what lies on the way is copied."""
    name, key = str(location[0]), str(location[1])
    if isinstance(value, dict | list):
        work.budget.copy(len(value))
    row = value if len(location) == 2 else _with(work, work.row(name, key), location, 2, value)
    work.put(name, key, row, pointer)


def _with(work: Work, within: Any, location: Location, at: int, value: JSON) -> JSON:
    if at == len(location):
        return value
    work.budget.copy(len(within))
    copy = within.copy()
    step = location[at]
    copy[step] = _with(work, within[step], location, at + 1, value)
    return copy  # type: ignore[no-any-return]


def compile_place(
    text: str, names: Names, rows: Collection[str], collections: Collection[str], pointer: str
) -> Place:
    """Compile a place.

    Args:
        text: As it is written.
        names: What the expressions in its brackets may read.
        rows: The rows where it may begin.
        collections: The collections where it may begin; a row of the same name comes first.
        pointer: Where it stands.

    Raises:
        ExpressionError: `invalid_place`, `not_a_row`; or a fault of an expression in brackets.
    """
    head = _HEAD.match(text)
    if head is None:
        raise ExpressionError(f"`{shortened(text)}` is no place", code="invalid_place", hint=_EXAMPLE)
    root = head[1]
    if root not in rows and root not in collections:
        raise _not_a_row(root, names, rows, collections)
    steps: list[Step] = []
    used = frozenset[str]()
    at, end = head.end(), len(text.rstrip())
    while at < end:
        dot = _DOT.match(text, at)
        if dot is not None:
            steps.append(Step(dot[1]))
            at = dot.end()
            continue
        close = _bracket(text, at)
        expression = compile_expression(text[at + 1 : close], names, f"{pointer}@{at}")
        steps.append(Step(run=expression.run))
        used |= expression.names
        at = close + 1
    return Place(text, root, root not in rows, tuple(steps), used)


def _bracket(text: str, start: int) -> int:
    """Where the bracket that opens at a place of a text closes."""
    depth, at = 0, start
    while text[start] == "[" and (mark := _MARK.search(text, at)) is not None:
        depth += (mark.group() in ("(", "[", "{")) - (mark.group() in (")", "]", "}"))
        if depth == 0:
            return mark.start()
        at = mark.end()
    message = f"`{shortened(text)}` is no place from `{shortened(text[start:])}` on"
    raise ExpressionError(message, code="invalid_place", hint=_EXAMPLE)


def _not_a_row(
    root: str, names: Collection[str], rows: Collection[str], collections: Collection[str]
) -> ExpressionError:
    known = [*rows, *collections]
    if root in names:
        why = f"`{root}` is no row, so nothing can be changed there"
    else:
        why = f"there is no row `{root}`"
    there = f"; there are {list_of_names(known)}" if known else ""
    hint = did_you_mean(root, known) or "name the row under `rows`"
    return ExpressionError(why + there, code="not_a_row", hint=hint)
