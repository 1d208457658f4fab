"""The pieces that compiled patterns are made of: each tests quickly and explains slowly."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias, TypeGuard

from toolcrib.core.errors import did_you_mean
from toolcrib.core.model import JSON, NOTHING
from toolcrib.core.pointers import pointer_step
from toolcrib.core.text import json_equal

Scope: TypeAlias = Mapping[str, JSON]


class _Absent(Enum):
    ABSENT = "nothing"

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = _Absent.ABSENT
"""What a pattern is compared with where the object has no such key."""

Test: TypeAlias = Callable[[object, Scope], bool]
_LONGEST_SHOWN = 80


@dataclass(frozen=True, slots=True)
class Difference:
    """One place where a value is not what its matcher wants.

    Attributes:
        pointer: JSON Pointer of the place within the value.
        expected: What is wanted, in words or JSON.
        actual: What is there, in JSON, shortened; `nothing` for an absent key.
        hint: What may have gone wrong; often empty.
    """

    pointer: str
    expected: str
    actual: str
    hint: str = ""

    def __str__(self) -> str:
        place = f"{self.pointer}: " if self.pointer else ""
        return f"{place}expected {self.expected}, got {self.actual}{f' ({self.hint})' if self.hint else ''}"


@dataclass(frozen=True, slots=True)
class Node:
    """A compiled piece of a pattern: the quick answer, and the explained one (empty iff the test holds)."""

    test: Test
    explain: Callable[[object, Scope, str], Iterator[Difference]]
    constant: bool = True


@dataclass(frozen=True, slots=True)
class Operand:
    """A value of the pattern; where it holds an expression, `read` works it out for each match."""

    read: Callable[[Scope], JSON]
    constant: bool


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether a value is a JSON number; true and false are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


TYPES: dict[str, Callable[[object], bool]] = {
    "null": lambda value: value is None,
    "boolean": lambda value: isinstance(value, bool),
    "integer": lambda value: is_number(value) and (isinstance(value, int) or value.is_integer()),
    "number": is_number,
    "string": lambda value: isinstance(value, str),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
}


def type_of(value: object) -> str:
    """The type name that is told apart in messages."""
    return next((name for name, test in TYPES.items() if name != "integer" and test(value)), "nothing")


def shown(value: object) -> str:
    """A value in JSON, shortened to one line of a message."""
    if value is ABSENT:
        return "nothing"
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 1] + "…"


def step(pointer: str, key: str | int) -> str:
    """The JSON Pointer of a key or index below a place."""
    return f"{pointer}/{pointer_step(key)}"


def differ(wanted: JSON, value: object, pointer: str) -> Iterator[Difference]:
    """The differences of two JSON values, leaf by leaf."""
    if isinstance(wanted, dict) and isinstance(value, dict):
        for key, item in wanted.items():
            yield from differ(item, value.get(key, ABSENT), step(pointer, key))
        for key, item in value.items():
            if key not in wanted:
                hint = did_you_mean(key, wanted.keys() - value.keys())
                yield Difference(step(pointer, key), "nothing", shown(item), hint)
    elif isinstance(wanted, list) and isinstance(value, list):
        yield from _length_difference(len(wanted), len(value), pointer)
        for index, (item, found) in enumerate(zip(wanted, value, strict=False)):
            yield from differ(item, found, step(pointer, index))
    elif not json_equal(wanted, value):
        yield Difference(pointer, shown(wanted), shown(value), _why_unequal(wanted, value))


def _length_difference(wanted: int, found: int, pointer: str) -> Iterator[Difference]:
    if wanted != found:
        yield Difference(pointer, f"{wanted} item{'s' if wanted != 1 else ''}", str(found))


def _why_unequal(wanted: object, value: object) -> str:
    if value is ABSENT:
        return ""
    if type_of(wanted) != type_of(value):
        same = str(value).casefold() == str(wanted).casefold()
        return f"{type_of(wanted)} and {type_of(value)} are never equal" if same else ""
    if (
        isinstance(wanted, str)
        and isinstance(value, str)
        and wanted.strip().casefold() == value.strip().casefold()
    ):
        return "they differ only in blanks or case"
    return ""


def leaf(test: Test, describe: Callable[[Scope], str], *, constant: bool = True) -> Node:
    """A node whose failure is one difference at its own place."""

    def explain(value: object, scope: Scope, pointer: str) -> Iterator[Difference]:
        if not test(value, scope):
            yield Difference(pointer, describe(scope), shown(value))

    return Node(test, explain, constant)


def accepts_nothing() -> Node:
    """What stands in the place of a pattern that could not be compiled."""
    return leaf(lambda _value, _scope: False, lambda _scope: "nothing: the pattern is broken")


def all_of(nodes: Iterable[Node]) -> Node:
    """A node that holds when all of them do."""
    nodes = tuple(nodes)
    if len(nodes) == 1:
        return nodes[0]
    tests = tuple(node.test for node in nodes)

    def explain(value: object, scope: Scope, pointer: str) -> Iterator[Difference]:
        for node in nodes:
            yield from node.explain(value, scope, pointer)

    return Node(
        lambda value, scope: all(test(value, scope) for test in tests),
        explain,
        all(node.constant for node in nodes),
    )


def subset(children: Mapping[str, Node]) -> Node:
    """Objects that hold all these keys, each with an accepted value."""
    tests = tuple((key, node.test) for key, node in children.items())

    def test(value: object, scope: Scope) -> bool:
        if not isinstance(value, dict):
            return False
        for key, inner in tests:  # noqa: SIM110 -- a generator costs more than the whole comparison
            if not inner(value.get(key, ABSENT), scope):
                return False
        return True

    def explain(value: object, scope: Scope, pointer: str) -> Iterator[Difference]:
        if not isinstance(value, dict):
            yield Difference(pointer, "an object", shown(value))
            return
        for key, node in children.items():
            for difference in node.explain(value.get(key, ABSENT), scope, step(pointer, key)):
                yield _with_near_miss(difference, key, value, children)

    return Node(test, explain, all(node.constant for node in children.values()))


def _with_near_miss(
    difference: Difference, key: str, value: Mapping[str, object], known: Iterable[str]
) -> Difference:
    if key in value or difference.hint:
        return difference
    hint = did_you_mean(key, value.keys() - set(known))
    return Difference(difference.pointer, difference.expected, difference.actual, hint)


def items(nodes: list[Node]) -> Node:
    """Lists of just so many items, each accepted by its own node."""
    tests = tuple(node.test for node in nodes)

    def test(value: object, scope: Scope) -> bool:
        return (
            isinstance(value, list)
            and len(value) == len(tests)
            and all(inner(item, scope) for inner, item in zip(tests, value, strict=True))
        )

    def explain(value: object, scope: Scope, pointer: str) -> Iterator[Difference]:
        if not isinstance(value, list):
            yield Difference(pointer, "a list", shown(value))
            return
        yield from _length_difference(len(nodes), len(value), pointer)
        for index, (node, item) in enumerate(zip(nodes, value, strict=False)):
            yield from node.explain(item, scope, step(pointer, index))

    return Node(test, explain, all(node.constant for node in nodes))


def equal(wanted: Operand) -> Node:
    """Values that are equal to the operand."""

    def explain(value: object, scope: Scope, pointer: str) -> Iterator[Difference]:
        yield from differ(wanted.read(scope), value, pointer)

    return Node(equality(wanted), explain, wanted.constant)


def equality(wanted: Operand) -> Test:
    """The quickest test of equality with an operand."""
    read = wanted.read
    if not wanted.constant:
        return lambda value, scope: json_equal(read(scope), value)
    constant = read(NOTHING)
    if isinstance(constant, str):
        return lambda value, _scope: value == constant
    if constant is None or isinstance(constant, bool):
        return lambda value, _scope: value is constant
    return lambda value, _scope: json_equal(constant, value)
