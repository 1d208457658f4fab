"""`rows`: named rows of the store. A name always shows its row as it is at that moment; its key is found once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

from toolcrib.core.errors import ExpressionError, Problem, did_you_mean
from toolcrib.core.model import JSON, Descriptor
from toolcrib.core.pointers import pointer_step
from toolcrib.executors.mock.compile_context import Ground
from toolcrib.executors.mock.store_paths import Location, Names, Place, Step, compile_place, key_or_none, look
from toolcrib.expressions import compile_value
from toolcrib.expressions.compiler import KnownKeys, alone
from toolcrib.expressions.loops import LoopScope, check_name, compile_test
from toolcrib.expressions.structures import placed
from toolcrib.expressions.values import Run, Scope, equal, kind, list_of_names
from toolcrib.simulation.error_reply import ErrorTemplate, compile_error

if TYPE_CHECKING:
    from toolcrib.executors.mock.body import BodyScope

Find: TypeAlias = "Callable[[BodyScope], Location | None]"
"""Finds a row; None where there is none."""

Container: TypeAlias = "dict[str, JSON] | list[JSON]"

Within: TypeAlias = "Callable[[BodyScope], tuple[Location, Container]]"
"""Finds where a row is looked up, and what stands there."""

Fitting: TypeAlias = "Callable[[Scope], Callable[[JSON], bool]]"
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
        return None if location is None else look(scope.work, location)


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
        row = rows[name] = _row(name, entry, place, Ground(inner, dict(rows), tool, problems))
        inner = {**inner, name: row.keys, "key_of": tuple(rows)}
    return rows, inner


def _row(name: str, entry: Mapping[str, Any], pointer: str, ground: Ground) -> Row:
    missing = None
    if "missing" in entry:
        missing = compile_error(entry["missing"], f"{pointer}/missing", ground.names, ground.problems)
    used = frozenset[str]() if missing is None else missing.names
    source = entry["in"]
    if source in ground.tool.fixture.collections:
        whole = Place(source, source, in_store=True, steps=(), names=frozenset())
        find, read = _finding(entry, pointer, _whole(source), ground, whole)
        return Row(name, _placed(find, pointer), used | read, source, missing, element_keys(whole, ground))
    place = _within(source, f"{pointer}/in", ground)
    if place is None:
        return Row(name, lambda _scope: None, used, "", missing)
    find, read = _finding(entry, pointer, _inside(place), ground, place)
    used |= read | place.names | {place.root}
    return Row(name, _placed(find, pointer), used, "", missing, element_keys(place, ground))


def element_keys(place: Place, ground: Ground) -> KnownKeys | None:
    """The keys of the elements of what stands at a place, where these are known."""
    keys = ground.names.get(alone("store", place.root) if place.in_store else place.root)
    for step in (*place.steps, Step()):
        keys = keys.below(step.name or None) if isinstance(keys, KnownKeys) else None
    return keys if isinstance(keys, KnownKeys) else None


def _within(text: str, pointer: str, ground: Ground) -> Place | None:
    try:
        place = compile_place(text, ground.names, ground.rows, (), pointer)
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


def _inside(place: Place) -> Within:
    def within(scope: BodyScope) -> tuple[Location, Container]:
        location, container = place.find(scope, scope)
        if isinstance(container, dict | list):
            return location, container
        raise ExpressionError(f"rows are looked up in an object or a list, not in {kind(container)}")

    return within


def _placed(find: Find, pointer: str) -> Find:
    """The same, with errors that say where."""
    run: Any = placed(cast("Any", find), pointer)
    return run  # type: ignore[no-any-return]


def _finding(
    entry: Mapping[str, Any],
    pointer: str,
    within: Within,
    ground: Ground,
    place: Place,
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
    prepare, used = compile_fitting(entry["where"], where, ground, element_keys(place, ground))
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


def compile_fitting(
    value: Any, pointer: str, ground: Ground, element: KnownKeys | None
) -> tuple[Fitting, frozenset[str]]:
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
