"""Read the store in a reply: paths into rows, named `rows`, and the guards that run before effects.

A row name always shows the current content of its row, but the key of the row is looked up only once. Guards
are evaluated in order: the first whose condition is true returns its error, and nothing is changed.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

from toolcrib.core.errors import ExpressionError, Problem, did_you_mean
from toolcrib.core.model import JSON, Descriptor, Result
from toolcrib.core.pointers import pointer_step
from toolcrib.expressions import Rendering, compile_expression, compile_value
from toolcrib.expressions.compiler import KnownKeys, hidden_key_name
from toolcrib.expressions.expression import STRING
from toolcrib.expressions.functions import COUNTS, DRAWS
from toolcrib.expressions.loops import Loop, LoopScope, check_name, compile_test, read_loop
from toolcrib.expressions.operators import missing_key
from toolcrib.expressions.structures import with_location
from toolcrib.expressions.values import Run, Scope, as_text, equal, kind, list_of_names, shortened
from toolcrib.simulation.error_reply import ErrorTemplate, compile_error
from toolcrib.simulation.store import note_small_row

if TYPE_CHECKING:
    from toolcrib.executors.mock.collection_schema import LiteralPlace
    from toolcrib.executors.mock.effects import BodyScope
    from toolcrib.executors.mock.unit_of_work import UnitOfWork

Location: TypeAlias = "tuple[Any, ...]"
"""A collection and the key of a row, both text, then keys and indexes within the row."""

Names: TypeAlias = "Mapping[str, Collection[str] | None]"
"""The names that expressions may read, with their keys if known."""

_HEAD = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)", re.ASCII)
_DOT = re.compile(r"\.([A-Za-z_][A-Za-z0-9_]*)", re.ASCII)
_MARK = re.compile(rf"{STRING.pattern}|[()\[\]{{}}]", re.DOTALL)
_EXAMPLE = "write a path such as `order.payments[0].amount`, without braces"


class PathStep(NamedTuple):
    """One step of a path.

    Attributes:
        name: The key, if it is written as `.key`.
        run: Computes the key or index, if it is an expression in brackets.
    """

    name: str = ""
    run: Run | None = None


class StorePath(NamedTuple):
    """A compiled path into the store, such as `order.payments[0].amount`.

    Attributes:
        text: The path as written.
        root: The row or collection where it starts.
        in_store: Whether the root is a collection.
        steps: The steps after the root.
        names: The names that its expressions read.
    """

    text: str
    root: str
    in_store: bool
    steps: tuple[PathStep, ...]
    names: frozenset[str]

    def find(self, scope: Scope, root: BodyScope) -> tuple[Location, JSON]:
        """The current location of the path and the value there.

        Raises:
            ExpressionError: The path does not exist.
        """
        steps = self.steps
        value: JSON
        location: Location
        if self.in_store and steps:
            location = (self.root, self._row_key(scope, root))
            value, steps = read_path(root.work, location), steps[1:]
        elif self.in_store:
            location, value = (self.root,), root.work.rows(self.root)
        else:
            value, found = root[self.root], root.locate(self.root)
            if found is None or value is None:
                raise _no_row(self.root, found)
            location = found
        for step in steps:
            key = _key_of(step, scope, value, location)
            value = value[key]  # type: ignore[index]
            location = (*location, key)
        return location, value

    def _row_key(self, scope: Scope, root: BodyScope) -> str:
        """The key of the row in the collection."""
        step, name = self.steps[0], self.root
        key = key_text(step.name if step.run is None else step.run(scope))
        if root.work.has(name, key):
            return key
        raise ExpressionError(f"`{name}` has no row `{shortened(key)}`", code="absent_place")


def _no_row(name: str, location: Location | None) -> ExpressionError:
    where = "" if location is None else f": nothing at {format_location(location)}"
    hint = "add `missing` to the row, or `if` to the effect"
    return ExpressionError(f"row `{name}` does not exist{where}", code="absent_place", hint=hint)


def _key_of(step: PathStep, scope: Scope, value: JSON, location: Location) -> str | int:
    key: JSON = step.name if step.run is None else step.run(scope)
    if isinstance(value, list) and type(key) is int:
        # Negative indexes are normalized, because `BodyScope.shift` compares positions after a deletion.
        if -len(value) <= key < len(value):
            return key % len(value)
        raise ExpressionError(
            f"{format_location(location)} has {len(value)} elements, so index {key} is out of range",
            code="absent_place",
        )
    if isinstance(value, dict) and isinstance(key, str):
        if key in value:
            return key
        raise _absent(value, key, location)
    expected = "a number in brackets" if isinstance(value, list) else "a string"
    if not isinstance(value, list | dict):
        raise ExpressionError(
            f"{format_location(location)} is {kind(value)}, which has no members", code="absent_place"
        )
    raise ExpressionError(
        f"{format_location(location)} needs {expected}, not {kind(key)}", code="absent_place"
    )


def _absent(value: dict[str, JSON], key: str, location: Location) -> ExpressionError:
    error = missing_key(value, key, format_location(location))
    hint = did_you_mean(key, value) or "use `update` with `set` to add a key"
    return ExpressionError(error.message, code="absent_place", hint=hint)


def format_location(location: Location) -> str:
    """A location as messages write it."""
    steps = [f"[{step!r}]" for step in location[1:]]
    return f"`{location[0]}{''.join(steps)}`"


def key_text(value: JSON) -> str:
    """The row key for a value: text as it is, or a number as text.

    Raises:
        ExpressionError: The value cannot be a key.
    """
    key = key_or_none(value)
    if key is None:
        raise ExpressionError(f"a row key must be text or a number, not {kind(value)}")
    return key


def key_or_none(value: JSON) -> str | None:
    """The row key for a value, as `key_text`; None if the value cannot be a key."""
    if isinstance(value, str):
        return value
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    # JSON does not distinguish 1 and 1.0, so both are the key "1".
    return as_text(int(value) if isinstance(value, float) and value.is_integer() else value)


def read_path(work: UnitOfWork, location: Location) -> JSON:
    """The current value at a location; None if there is none."""
    value: Any = work.row(location[0], location[1])
    for step in location[2:]:
        try:
            value = value[step]
        except (LookupError, TypeError):
            return None
    return value  # type: ignore[no-any-return]


def write_path(
    work: UnitOfWork, location: Location, value: JSON, added: JSON, pointer: str, *, row: JSON = None
) -> None:
    """Write a value at an existing location. Only the containers on the path are copied.

    Args:
        work: The unit of work.
        location: The location.
        value: The value, which must not be changed afterwards.
        added: A list or object of everything in the value that the row did not have before.
        pointer: JSON Pointer of the effect.
        row: The current row, if the caller has read it.
    """
    name, key = location[:2]
    # The budget counts copies, so that a loop of effects over large rows ends early with an error.
    if type(value) is dict or type(value) is list:
        work.copy(len(value))
    before: Any = work.row(name, key) if row is None else row
    changed = value if len(location) == 2 else _with(work, before, location, 2, value)
    note_small_row(changed, before, added, len(location) - 2)
    work.replace(name, key, changed, pointer)


def _with(work: UnitOfWork, within: Any, location: Location, at: int, value: JSON) -> JSON:
    if at == len(location):
        return value
    work.copy(len(within))
    # Rows are shared with earlier versions of the store and with results: they are never changed in place.
    copy = within.copy()
    step = location[at]
    copy[step] = _with(work, within[step], location, at + 1, value)
    return copy  # type: ignore[no-any-return]


def compile_path(
    text: str, names: Names, rows: Collection[str], collections: Collection[str], pointer: str
) -> StorePath:
    """Compile a path.

    Args:
        text: The path as written.
        names: The names that the expressions in its brackets may read.
        rows: The rows where it may start.
        collections: The collections where it may start; a row of the same name has precedence.
        pointer: JSON Pointer of the path in the descriptor.

    Raises:
        ExpressionError: Code `invalid_place` or `not_a_row`, or the error of an expression in brackets.
    """
    head = _HEAD.match(text)
    if head is None:
        raise ExpressionError(f"`{shortened(text)}` is not a valid path", code="invalid_place", hint=_EXAMPLE)
    root = head[1]
    if root not in rows and root not in collections:
        raise _not_a_row(root, names, rows, collections)
    steps: list[PathStep] = []
    used = frozenset[str]()
    at, end = head.end(), len(text.rstrip())
    while at < end:
        dot = _DOT.match(text, at)
        if dot is not None:
            steps.append(PathStep(dot[1]))
            at = dot.end()
            continue
        close = _bracket(text, at)
        expression = compile_expression(text[at + 1 : close], names, f"{pointer}@{at}")
        steps.append(PathStep(run=expression.run))
        used |= expression.names
        at = close + 1
    return StorePath(text, root, root not in rows, tuple(steps), used)


def _bracket(text: str, start: int) -> int:
    """The index of the bracket that closes the one at `start`."""
    depth, at = 0, start
    # `_MARK` matches string literals whole, so that brackets in them are not counted.
    while text[start] == "[" and (mark := _MARK.search(text, at)) is not None:
        depth += (mark.group() in ("(", "[", "{")) - (mark.group() in (")", "]", "}"))
        if depth == 0:
            return mark.start()
        at = mark.end()
    message = f"`{shortened(text)}` is not a valid path: cannot parse `{shortened(text[start:])}`"
    raise ExpressionError(message, code="invalid_place", hint=_EXAMPLE)


def _not_a_row(
    root: str, names: Collection[str], rows: Collection[str], collections: Collection[str]
) -> ExpressionError:
    known = [*rows, *collections]
    why = f"`{root}` is not a row, so it cannot be changed" if root in names else f"unknown row `{root}`"
    there = f"; available: {list_of_names(known)}" if known else ""
    hint = did_you_mean(root, known) or "declare it under `rows`"
    return ExpressionError(why + there, code="not_a_row", hint=hint)


class CompileContext(NamedTuple):
    """What the parts of a reply body are compiled with.

    Attributes:
        names: The names that expressions may read, with their keys if known.
        rows: Name -> row, for the rows declared so far.
        tool: The descriptor.
        problems: Receives every problem.
    """

    names: Names
    rows: Mapping[str, Row]
    tool: Descriptor
    problems: list[Problem]

    def fault(self, code: str, message: str, pointer: str, hint: str = "") -> None:
        """Add a problem."""
        self.problems.append(Problem(code=code, message=message, pointer=pointer, hint=hint))

    def value(self, value: JSON, pointer: str) -> Rendering:
        """Compile a value, which may contain `for_each` forms."""
        return compile_value(value, self.names, self.problems, pointer, forms=True)

    def place(self, text: str, pointer: str, *, in_store: bool = True) -> StorePath | None:
        """Compile a path; None if it has a problem, which is reported."""
        collections = self.tool.fixture.collections if in_store else ()
        try:
            place = compile_path(text, self.names, self.rows, collections, pointer)
        except ExpressionError as error:
            self.fault(error.code, error.message, pointer, error.hint)
            return None
        self.check_way(place, pointer)
        return place

    def check_way(self, place: StorePath, pointer: str) -> None:
        """Report a path that no row can have, according to the schema of its collection."""
        spot = self.spot(place)
        if spot is not None:
            spot.check_way(pointer, self)
            return
        # A row within another row has no collection, but its possible keys may be known.
        keys = None if place.in_store else self.names.get(place.root)
        for step in place.steps:
            if not isinstance(keys, KnownKeys):
                return
            if step.name and step.name not in keys:
                there = list_of_names(sorted(keys))
                message = (
                    f"unknown key `{step.name}` of `{place.root}` at `{place.text}`; known keys: {there}"
                )
                self.fault("unknown_row_key", message, pointer, did_you_mean(step.name, keys))
                return
            keys = keys.below(step.name or None)

    def spot(self, place: StorePath, *, elements: bool = False) -> LiteralPlace | None:
        """The schema information for a path, or for the elements at it; None if there is none."""
        if all(collection.schema is None for collection in self.tool.fixture.collections.values()):
            return None
        # Deferred: many stores have no schemas.
        from toolcrib.executors.mock.collection_schema import literal_place  # noqa: PLC0415

        return literal_place(place, self, elements=elements)


Find: TypeAlias = "Callable[[BodyScope], Location | None]"
"""Finds the location of a row; None if there is none."""

Container: TypeAlias = "dict[str, JSON] | list[JSON]"

Within: TypeAlias = "Callable[[BodyScope], tuple[Location, Container]]"
"""Finds the location of the container in which a row is looked up, and the container."""

RowFilter: TypeAlias = "Callable[[Scope], Callable[[JSON], bool]]"
"""Prepares the test of `where` or `first` for one call: whether an element matches."""

_NOTHING: Mapping[str, Any] = {}


class Row(NamedTuple):
    """A compiled row.

    Attributes:
        name: Its name in expressions.
        find: Finds its location.
        names: The names of the scope that `find` reads.
        collection: Its collection; empty for an object or element within another row.
        missing: The error if the row is absent; None if it may be.
        keys: The keys that it may have, if known.
    """

    name: str
    find: Find
    names: frozenset[str]
    collection: str
    missing: ErrorTemplate | None
    keys: KnownKeys | None = None

    def read(self, scope: BodyScope) -> JSON:
        """The current content of the row; None if the row is absent."""
        location = scope.locate(self.name)
        if location is None:
            return None
        return scope.work.row(*location) if len(location) == 2 else read_path(scope.work, location)


def compile_rows(
    block: Mapping[str, Any], pointer: str, names: Names, tool: Descriptor, problems: list[Problem]
) -> tuple[dict[str, Row], dict[str, Any]]:
    """Compile `rows`; problems are added to `problems`.

    Returns:
        The rows in order, and the names that expressions may read once the rows are defined.
    """
    rows: dict[str, Row] = {}
    inner: dict[str, Any] = {**names, "key_of": ()} if block else dict(names)
    for name, entry in block.items():
        place = f"{pointer}/{pointer_step(name)}"
        check_name(name, inner, problems, place)
        row = rows[name] = _row(name, entry, place, CompileContext(inner, dict(rows), tool, problems))
        inner = {**inner, name: row.keys, "key_of": tuple(rows)}
    return rows, inner


def _row(name: str, entry: Mapping[str, Any], pointer: str, ground: CompileContext) -> Row:
    missing = None
    if "missing" in entry:
        missing = compile_error(entry["missing"], f"{pointer}/missing", ground.names, ground.problems)
    used = frozenset[str]() if missing is None else missing.names
    source = entry["in"]
    if source in ground.tool.fixture.collections:
        whole = StorePath(source, source, in_store=True, steps=(), names=frozenset())
        find, read = _finding(entry, pointer, _whole(source), ground, whole)
        # The errors of `key` have a pointer already.
        find = find if "key" in entry else _placed(find, pointer)
        return Row(name, find, used | read, source, missing, element_keys(whole, ground))
    place = _within(source, f"{pointer}/in", ground)
    if place is None:
        return Row(name, lambda _scope: None, used, "", missing)
    find, read = _finding(entry, pointer, _inside(place), ground, place)
    used |= read | place.names | {place.root}
    return Row(name, _placed(find, pointer), used, "", missing, element_keys(place, ground))


def element_keys(place: StorePath, ground: CompileContext) -> KnownKeys | None:
    """The keys of the elements at a path, if known."""
    keys = ground.names.get(hidden_key_name("store", place.root) if place.in_store else place.root)
    for step in (*place.steps, PathStep()):
        keys = keys.below(step.name or None) if isinstance(keys, KnownKeys) else None
    return keys if isinstance(keys, KnownKeys) else None


def _within(text: str, pointer: str, ground: CompileContext) -> StorePath | None:
    try:
        place = compile_path(text, ground.names, ground.rows, (), pointer)
    except ExpressionError as error:
        code, message, hint = error.code, error.message, error.hint
    else:
        ground.check_way(place, pointer)
        return place
    # `in` accepts a collection as well as a path, so the error for an unknown name lists both.
    if code == "not_a_row":
        known = [*ground.tool.fixture.collections, *ground.rows]
        code, there = "unknown_collection", list_of_names(known) if known else "none"
        message = (
            f"`{text}` is neither a collection of the store nor a path in an earlier row; available: {there}"
        )
        hint = did_you_mean(text, known) or "declare collections under `store` in the pack or project"
    ground.fault(code, message, pointer, hint)
    return None


def _whole(collection: str) -> Within:
    return lambda scope: ((collection,), scope.work.rows(collection))


def _inside(place: StorePath) -> Within:
    def within(scope: BodyScope) -> tuple[Location, Container]:
        location, container = place.find(scope, scope)
        if isinstance(container, dict | list):
            return location, container
        raise ExpressionError(f"rows are looked up in an object or a list, not in {kind(container)}")

    return within


def _placed(find: Find, pointer: str) -> Find:
    """The same function, with a pointer added to its errors."""
    run: Any = with_location(cast("Any", find), pointer)
    return run  # type: ignore[no-any-return]


def _finding(
    entry: Mapping[str, Any],
    pointer: str,
    within: Within,
    ground: CompileContext,
    place: StorePath,
) -> tuple[Find, frozenset[str]]:
    """The function that finds a row in the container of `within`, and the names that it reads."""
    if "key" in entry:
        written = ground.value(entry["key"], f"{pointer}/key")
        compute = written.run
        if place.in_store:
            return _of_collection(place.root, compute), written.names

        def by_key(scope: BodyScope) -> Location | None:
            value = compute(scope)
            location, container = within(scope)
            key = None if value is None else _key(value, container)
            return None if key is None else (*location, key)

        return by_key, written.names
    where = f"{pointer}/where"
    prepare, used = compile_row_filter(entry["where"], where, ground, element_keys(place, ground))
    spot = ground.spot(place, elements=True)
    if spot is not None and isinstance(entry["where"], dict):
        spot.check_fields(entry["where"], where, ground)

    def by_where(scope: BodyScope) -> Location | None:
        location, container = within(scope)
        scope.budget.visit(len(container))
        fits = prepare(scope)
        for key, value in enumerate(container) if isinstance(container, list) else container.items():
            if fits(value):
                return (*location, key)
        return None

    return by_where, used


def _of_collection(collection: str, compute: Run) -> Find:
    def by_key(scope: BodyScope) -> Location | None:
        key = key_or_none(compute(scope))
        return None if key is None else (collection, key)

    return by_key


def _key(value: JSON, container: Container) -> str | int | None:
    if isinstance(container, dict):
        return key_or_none(value)
    if type(value) is int:
        many = len(container)
        return value % many if -many <= value < many else None
    raise ExpressionError(f"list elements are addressed by number, but `key` is {kind(value)}")


def compile_row_filter(
    value: Any, pointer: str, ground: CompileContext, element: KnownKeys | None
) -> tuple[RowFilter, frozenset[str]]:
    """Compile `where` or `first`: an object of field values, or a condition over `row`.

    Args:
        value: The value in the document.
        pointer: JSON Pointer of the value.
        ground: The compile context.
        element: The keys of `row`, if known.

    Returns:
        The function that prepares the test for a scope, and the names that it reads.
    """
    if isinstance(value, dict):
        fields = compile_value(value, ground.names, ground.problems, pointer)
        return (lambda scope: _having(fields.run(scope))), fields.names
    test, used = compile_test(value, {**ground.names, "row": element}, ground.problems, pointer)

    def prepare(scope: Scope) -> Callable[[JSON], bool]:
        turn = LoopScope(scope, _NOTHING, keeps=True)

        def fits(element: JSON) -> bool:
            turn["row"] = element
            return bool(test(turn))

        return fits

    return prepare, used - {"row"}


def _having(wanted: Any) -> Callable[[JSON], bool]:
    """The test whether an element is an object whose fields have these values."""
    if len(wanted) == 1:
        ((field, only),) = wanted.items()
        if isinstance(only, str):
            # The common look-up. Python's `==` agrees with JSON equality if one side is a string.
            return lambda element: isinstance(element, dict) and element.get(field) == only

    def fits(element: JSON) -> bool:
        if not isinstance(element, dict):
            return False
        for field, value in wanted.items():
            if field not in element or not equal(element[field], value):
                return False
        return True

    return fits


class Guard(NamedTuple):
    """A compiled guard.

    Attributes:
        pointer: JSON Pointer of the guard.
        test: The condition under which the guard refuses the call.
        failing: The error that it returns then; None for a guard with `checks`.
        loop: The `for_each` loop in which it is evaluated; None to evaluate it once.
        checks: The guards that are evaluated instead of the test, in order.
        names: The names of the scope that the guard reads.
        settled: The constant value of the test; None if it depends on the call.
        asks: The names that the test reads.
    """

    pointer: str
    test: Run
    failing: ErrorTemplate | None
    loop: Loop | None
    checks: tuple[Guard, ...]
    names: frozenset[str]
    settled: bool | None
    asks: frozenset[str]

    def judge(self, scope: Scope) -> Result | None:
        """The error of the guard, or None if the call may continue.

        Raises:
            ExpressionError: The mock is wrong.
        """
        if self.loop is None:
            return self._judge(scope)
        try:
            for turn in self.loop.turns(scope):
                refusal = self._judge(turn)
                if refusal is not None:
                    return refusal
        except ExpressionError as error:
            raise (error if error.pointer else error.under(self.pointer)) from None
        return None

    def _judge(self, scope: Scope) -> Result | None:
        if self.failing is not None:
            return self.failing.answer(scope) if self.test(scope) else None
        for check in self.checks:
            refusal = check.judge(scope)
            if refusal is not None:
                return refusal
        return None


def compile_guards(
    block: Sequence[dict[str, Any]], pointer: str, names: Names, problems: list[Problem]
) -> list[Guard]:
    """Compile a `guard` or `checks` list; problems are added to `problems`."""
    guards = [_guard(entry, f"{pointer}/{index}", names, problems) for index, entry in enumerate(block)]
    problems += [
        constant_condition("the guard never refuses", f"{guard.pointer}/if")
        for guard in guards
        if guard.settled is False
    ]
    for index, guard in enumerate(guards[:-1]):
        if guard.settled:
            message = f"no call passes guard {index + 1}: its `if` is always true"
            hint = "change its condition, or remove what follows"
            place = guards[index + 1].pointer
            problems.append(Problem(code="unreachable_guard", message=message, pointer=place, hint=hint))
            break
    problems += _asked_before(block, guards)
    return guards


def _asked_before(block: Sequence[dict[str, Any]], guards: Sequence[Guard]) -> Iterator[Problem]:
    """The guards that never refuse, because an earlier one has the same condition."""
    first: dict[str, int] = {}
    for index, (entry, guard) in enumerate(zip(block, guards, strict=True)):
        # The same text may have another value if it draws random numbers or counts with `seq`.
        if "for_each" in entry or guard.settled is not None or DRAWS in guard.asks or COUNTS in guard.asks:
            continue
        before = first.setdefault(entry["if"].strip(), index)
        if before != index:
            message = f"this guard is unreachable: guard {before + 1} has the same `if`"
            hint = "remove one of them, or change its condition"
            yield Problem(code="unreachable_guard", message=message, pointer=guard.pointer, hint=hint)


def constant_result(test: Run, used: Collection[str], problems: Sequence[Problem], found: int) -> bool | None:
    """The constant value of a test that reads nothing; None if the value depends on the call.

    Args:
        test: The compiled test.
        used: The names that it reads.
        problems: All problems so far.
        found: The number of problems before the test was compiled. If there are more, it has an error.
    """
    return None if used or len(problems) > found else bool(test({}))


def constant_condition(outcome: str, pointer: str) -> Problem:
    """The problem of an `if` that has the same value for every call."""
    message = f"`if` reads no variables, so it has the same value for every call: {outcome}"
    return Problem(
        code="constant_condition",
        message=message,
        pointer=pointer,
        hint="change or remove the condition",
    )


def _guard(entry: dict[str, Any], pointer: str, names: Names, problems: list[Problem]) -> Guard:
    read = None
    if "for_each" in entry:
        kept: dict[str, Any] = {key: entry[key] for key in ("for_each", "let") if key in entry}
        read = read_loop(kept, names, problems, pointer)
    inner: Names = names if read is None else read.inner
    test: Run = _never
    failing = settled = None
    asked = frozenset[str]()
    checks: list[Guard] = []
    if "checks" in entry:
        checks = compile_guards(entry["checks"], f"{pointer}/checks", inner, problems)
        used = frozenset[str]().union(*(check.names for check in checks))
    else:
        found = len(problems)
        test, asked = compile_test(entry["if"], inner, problems, f"{pointer}/if")
        settled = constant_result(test, asked, problems, found)
        failing = compile_error(entry["error"], f"{pointer}/error", inner, problems)
        used = asked | failing.names
    if read is not None:
        read.check_used(used, problems)
        used = read.outside(used)
    # In a loop even a test that is always true refuses nothing if the list is empty.
    if read is not None and settled:
        settled = None
    loop = None if read is None else read.loop
    return Guard(pointer, test, failing, loop, tuple(checks), used, settled, asked)


def _never(_scope: Scope) -> JSON:
    return False
