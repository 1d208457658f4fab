"""Rows of the store, as a reply reads them: paths into rows, `rows` by name, and the guards that are asked before effects.

A name always shows its row as it is at that moment; its key is found once. Guards are asked top to bottom: the first
whose condition is true answers its error, and nothing is changed.
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

if TYPE_CHECKING:
    from toolcrib.executors.mock.collection_schema import LiteralPlace
    from toolcrib.executors.mock.effects import BodyScope
    from toolcrib.executors.mock.unit_of_work import UnitOfWork

Location: TypeAlias = "tuple[str | int, ...]"
"""A collection, the key of a row, then the keys and positions within it."""

Names: TypeAlias = "Mapping[str, Collection[str] | None]"
"""The names that expressions may read, with their keys where these are known."""

_HEAD = re.compile(r"\s*([A-Za-z_][A-Za-z0-9_]*)", re.ASCII)
_DOT = re.compile(r"\.([A-Za-z_][A-Za-z0-9_]*)", re.ASCII)
_MARK = re.compile(rf"{STRING.pattern}|[()\[\]{{}}]", re.DOTALL)
_EXAMPLE = "write a path such as `order.payments[0].amount`, without braces"


class PathStep(NamedTuple):
    """One step of a place.

    Attributes:
        name: The key, where it is written as one.
        run: What works the key or position out, where it stands in brackets.
    """

    name: str = ""
    run: Run | None = None


class StorePath(NamedTuple):
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
    steps: tuple[PathStep, ...]
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
            value, steps = read_path(root.work, location), steps[1:]
        elif self.in_store:
            location, value = (self.root,), root.work.rows(self.root)
        else:
            found = root.locate(self.root)
            value = None if found is None else read_path(root.work, found)
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
    where = "" if location is None else f": {format_location(location)} does not exist"
    hint = "give it a `missing`, or guard the effect with an `if`"
    return ExpressionError(f"there is no row `{name}`{where}", code="absent_place", hint=hint)


def _key_of(step: PathStep, scope: Scope, value: JSON, location: Location) -> str | int:
    key: JSON = step.name if step.run is None else step.run(scope)
    if isinstance(value, list) and type(key) is int:
        if -len(value) <= key < len(value):
            return key % len(value)
        raise ExpressionError(
            f"{format_location(location)} has {len(value)} elements, and none at {key}", code="absent_place"
        )
    if isinstance(value, dict) and isinstance(key, str):
        if key in value:
            return key
        raise _absent(value, key, location)
    expected = "a number in brackets" if isinstance(value, list) else "a text"
    if not isinstance(value, list | dict):
        raise ExpressionError(
            f"{format_location(location)} is {kind(value)}, and nothing is within it", code="absent_place"
        )
    raise ExpressionError(
        f"{format_location(location)} needs {expected}, not {kind(key)}", code="absent_place"
    )


def _absent(value: dict[str, JSON], key: str, location: Location) -> ExpressionError:
    error = missing_key(value, key, format_location(location))
    hint = did_you_mean(key, value) or "a key is added with `update` and `set`"
    return ExpressionError(error.message, code="absent_place", hint=hint)


def format_location(location: Location) -> str:
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


def read_path(work: UnitOfWork, location: Location) -> JSON:
    """What stands at a location now; none where there is nothing."""
    value: Any = work.row(str(location[0]), str(location[1]))
    for step in location[2:]:
        try:
            value = value[step]
        except (LookupError, TypeError):
            return None
    return value  # type: ignore[no-any-return]


def write_path(work: UnitOfWork, location: Location, value: JSON, pointer: str) -> None:
    """Put a value at a location that exists; only what lies on the way is copied."""
    name, key = str(location[0]), str(location[1])
    if isinstance(value, dict | list):
        work.budget.copy(len(value))
    row = value if len(location) == 2 else _with(work, work.row(name, key), location, 2, value)
    work.put(name, key, row, pointer)


def _with(work: UnitOfWork, within: Any, location: Location, at: int, value: JSON) -> JSON:
    if at == len(location):
        return value
    work.budget.copy(len(within))
    copy = within.copy()
    step = location[at]
    copy[step] = _with(work, within[step], location, at + 1, value)
    return copy  # type: ignore[no-any-return]


def compile_path(
    text: str, names: Names, rows: Collection[str], collections: Collection[str], pointer: str
) -> StorePath:
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


class CompileContext(NamedTuple):
    """Names, rows and the tool, and where faults go.

    Attributes:
        names: What expressions may read, with the keys where these are known.
        rows: Name -> row.
        tool: The descriptor.
        problems: Receives every fault.
    """

    names: Names
    rows: Mapping[str, Row]
    tool: Descriptor
    problems: list[Problem]

    def fault(self, code: str, message: str, pointer: str, hint: str = "") -> None:
        """Tell a fault."""
        self.problems.append(Problem(code=code, message=message, pointer=pointer, hint=hint))

    def value(self, value: JSON, pointer: str) -> Rendering:
        """Compile a value; `for_each` makes lists and objects in it."""
        return compile_value(value, self.names, self.problems, pointer, forms=True)

    def place(self, text: str, pointer: str, *, in_store: bool = True) -> StorePath | None:
        """Compile a place; None for one with a fault."""
        collections = self.tool.fixture.collections if in_store else ()
        try:
            place = compile_path(text, self.names, self.rows, collections, pointer)
        except ExpressionError as error:
            self.fault(error.code, error.message, pointer, error.hint)
            return None
        self.check_way(place, pointer)
        return place

    def check_way(self, place: StorePath, pointer: str) -> None:
        """Tell a place that no row can have, by the schema of its collection."""
        spot = self.spot(place)
        if spot is not None:
            spot.check_way(pointer, self)
            return
        keys = None if place.in_store else self.names.get(place.root)  # of a row that lies within another
        for step in place.steps:
            if not isinstance(keys, KnownKeys):
                return
            if step.name and step.name not in keys:
                there = list_of_names(sorted(keys))
                message = (
                    f"`{place.root}` never has `{step.name}` at `{place.text}`; the keys there are {there}"
                )
                self.fault("unknown_row_key", message, pointer, did_you_mean(step.name, keys))
                return
            keys = keys.below(step.name or None)

    def spot(self, place: StorePath, *, elements: bool = False) -> LiteralPlace | None:
        """What schemas say of a place, or of the elements of what stands there; None where they say nothing."""
        if all(collection.schema is None for collection in self.tool.fixture.collections.values()):
            return None
        from toolcrib.executors.mock.collection_schema import literal_place  # noqa: PLC0415 -- many stores have no schemas

        return literal_place(place, self, elements=elements)


Find: TypeAlias = "Callable[[BodyScope], Location | None]"
"""Finds a row; None where there is none."""

Container: TypeAlias = "dict[str, JSON] | list[JSON]"

Within: TypeAlias = "Callable[[BodyScope], tuple[Location, Container]]"
"""Finds where a row is looked up, and what stands there."""

RowFilter: TypeAlias = "Callable[[Scope], Callable[[JSON], bool]]"
"""Prepares the test of `where` or `first`: whether an element is one of those that are meant."""

_NOTHING: Mapping[str, Any] = {}


class Row(NamedTuple):
    """A compiled row.

    Attributes:
        name: What expressions call it.
        find: Finds it.
        names: What that reads of the scope.
        collection: The collection that it is a row of; empty for an object or element within a row.
        missing: What is answered where it is absent; None for a row that may be.
        keys: The keys that it may have, where these are known.
    """

    name: str
    find: Find
    names: frozenset[str]
    collection: str
    missing: ErrorTemplate | None
    keys: KnownKeys | None = None

    def read(self, scope: BodyScope) -> JSON:
        """The row as it is now; none where there is none."""
        location = scope.locate(self.name)
        return None if location is None else read_path(scope.work, location)


def compile_rows(
    block: Mapping[str, Any], pointer: str, names: Names, tool: Descriptor, problems: list[Problem]
) -> tuple[dict[str, Row], dict[str, Any]]:
    """Compile `rows`; faults are added to `problems`.

    Returns:
        The rows in order, and the names that expressions may read when there are these rows.
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
        return Row(name, _placed(find, pointer), used | read, source, missing, element_keys(whole, ground))
    place = _within(source, f"{pointer}/in", ground)
    if place is None:
        return Row(name, lambda _scope: None, used, "", missing)
    find, read = _finding(entry, pointer, _inside(place), ground, place)
    used |= read | place.names | {place.root}
    return Row(name, _placed(find, pointer), used, "", missing, element_keys(place, ground))


def element_keys(place: StorePath, ground: CompileContext) -> KnownKeys | None:
    """The keys of the elements of what stands at a place, where these are known."""
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
    if code == "not_a_row":
        known = [*ground.tool.fixture.collections, *ground.rows]
        code, there = "unknown_collection", list_of_names(known) if known else "none are declared"
        message = f"`{text}` is neither a collection of the store nor a place in an earlier row: {there}"
        hint = (
            did_you_mean(text, known) or "collections are declared under `store`, of the pack or the project"
        )
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
    """The same, with errors that say where."""
    run: Any = with_location(cast("Any", find), pointer)
    return run  # type: ignore[no-any-return]


def _finding(
    entry: Mapping[str, Any],
    pointer: str,
    within: Within,
    ground: CompileContext,
    place: StorePath,
) -> tuple[Find, frozenset[str]]:
    """What finds a row in what `within` finds, and what it reads."""
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
    raise ExpressionError(f"the elements of a list are numbered, and `key` is {kind(value)}")


def compile_row_filter(
    value: Any, pointer: str, ground: CompileContext, element: KnownKeys | None
) -> tuple[RowFilter, frozenset[str]]:
    """Compile `where` or `first`: fields with their values, or a condition over `row`.

    Args:
        value: What is written there.
        pointer: Where it stands.
        ground: What it is compiled against.
        element: The keys of `row`, where these are known.

    Returns:
        What prepares the test in a scope, and the names that it reads.
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
    """Whether an element is an object whose fields have these values."""
    if len(wanted) == 1:
        ((field, only),) = wanted.items()
        if isinstance(only, str):
            # A text equals nothing but a text, so Python's own comparison is JSON's here.
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
        pointer: Where it stands.
        test: Whether its error is answered.
        failing: That error.
        loop: The elements for each of which the test is asked; None for once.
        names: What it reads of the scope.
        settled: What the test always says, where it reads nothing; None where that depends on the call.
        asks: What the test reads.
    """

    pointer: str
    test: Run
    failing: ErrorTemplate
    loop: Loop | None
    names: frozenset[str]
    settled: bool | None
    asks: frozenset[str]

    def judge(self, scope: Scope) -> Result | None:
        """Its error, or None where the call may go on.

        Raises:
            ExpressionError: The mock is wrong.
        """
        if self.loop is None:
            return self.failing.answer(scope) if self.test(scope) else None
        try:
            for turn in self.loop.turns(scope):
                if self.test(turn):
                    return self.failing.answer(turn)
        except ExpressionError as error:
            raise (error if error.pointer else error.under(self.pointer)) from None
        return None


def compile_guards(
    block: Sequence[dict[str, Any]], pointer: str, names: Names, problems: list[Problem]
) -> list[Guard]:
    """Compile a `guard` list; faults are added to `problems`."""
    guards = [_guard(entry, f"{pointer}/{index}", names, problems) for index, entry in enumerate(block)]
    problems += [
        constant_condition("it never answers", f"{guard.pointer}/if")
        for guard in guards
        if guard.settled is False
    ]
    for index, guard in enumerate(guards[:-1]):
        if guard.settled:
            message = f"no call gets past guard {index + 1}, whose `if` is always true"
            hint = "change its condition, or leave out what follows"
            place = guards[index + 1].pointer
            problems.append(Problem(code="unreachable_guard", message=message, pointer=place, hint=hint))
            break
    problems += _asked_before(block, guards)
    return guards


def _asked_before(block: Sequence[dict[str, Any]], guards: Sequence[Guard]) -> Iterator[Problem]:
    """The guards that never answer, because one before them has the same condition."""
    first: dict[str, int] = {}
    for index, (entry, guard) in enumerate(zip(block, guards, strict=True)):
        if "for_each" in entry or guard.settled is not None or DRAWS in guard.asks or COUNTS in guard.asks:
            continue
        before = first.setdefault(entry["if"].strip(), index)
        if before != index:
            message = f"guard {before + 1} has the same `if`, so this one never answers"
            hint = "leave one of them out, or change its condition"
            yield Problem(code="unreachable_guard", message=message, pointer=guard.pointer, hint=hint)


def constant_result(test: Run, used: Collection[str], problems: Sequence[Problem], found: int) -> bool | None:
    """What a test always says, where it reads nothing and has no fault; None where that depends on the call.

    Args:
        test: The test.
        used: What it reads.
        problems: All faults.
        found: How many there were before it was compiled.
    """
    return None if used or len(problems) > found else bool(test({}))


def constant_condition(outcome: str, pointer: str) -> Problem:
    """The fault of an `if` that says the same for every call."""
    message = f"the `if` reads nothing, so it says the same for every call: {outcome}"
    return Problem(
        code="constant_condition",
        message=message,
        pointer=pointer,
        hint="change the condition, or leave it out",
    )


def _guard(entry: dict[str, Any], pointer: str, names: Names, problems: list[Problem]) -> Guard:
    read = None
    if "for_each" in entry:
        kept: dict[str, Any] = {key: entry[key] for key in ("for_each", "let") if key in entry}
        read = read_loop(kept, names, problems, pointer)
    inner: Names = names if read is None else read.inner
    found = len(problems)
    test, used = compile_test(entry["if"], inner, problems, f"{pointer}/if")
    settled = constant_result(test, used, problems, found)
    failing = compile_error(entry["error"], f"{pointer}/error", inner, problems)
    asked, used = used, used | failing.names
    if read is not None:
        read.check_used(used, problems)
        used = read.outside(used)
    if read is not None and settled:
        settled = None  # there may be nothing to go through
    return Guard(pointer, test, failing, None if read is None else read.loop, used, settled, asked)
