"""Matchers: patterns in the shape of the data that they accept, compiled once.

A scalar matches an equal value (JSON equality), an object matches objects that contain its keys, and a list matches lists
of the same length, item by item. An object whose keys all begin with `$` contains operators, all of which must match. The
pattern of a missing key is compared with `ABSENT`, which only `$exists: false`, `$not` and `$ne` accept.

`find_impossible` finds patterns that no valid arguments can match. It reads `properties`, `items`, `type`, `enum`,
`const`, bounds of numbers and local references; other keywords are assumed to allow anything. Contradictory bounds are
found without a schema.
"""

from __future__ import annotations

import json
import math
import operator
import re
import warnings
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from enum import Enum
from functools import cached_property
from itertools import islice
from typing import Any, Final, TypeAlias, TypeGuard

import jsonschema_rs

from toolcrib.core.errors import ExpressionError, Problem, did_you_mean
from toolcrib.core.model import JSON, NOTHING, Schema
from toolcrib.core.pointers import pointer_step
from toolcrib.core.subschemas import SchemaIndex
from toolcrib.core.text import json_equal
from toolcrib.expressions import compile_value, is_expression
from toolcrib.schema.validation import Validator, check_schema

Scope: TypeAlias = Mapping[str, JSON]


class _Absent(Enum):
    ABSENT = "nothing"

    def __repr__(self) -> str:
        return "ABSENT"


ABSENT: Final = _Absent.ABSENT
"""The value that the pattern of a missing key is compared with."""

Test: TypeAlias = Callable[[object, Scope], bool]
_LONGEST_SHOWN = 80


@dataclass(frozen=True, slots=True)
class MatchDifference:
    """One place where a value does not match.

    Attributes:
        pointer: JSON Pointer of the place within the value.
        expected: The expected value, in words or JSON.
        actual: The actual value as shortened JSON; `nothing` for a missing key.
        hint: The likely cause; often empty.
    """

    pointer: str
    expected: str
    actual: str
    hint: str = ""

    def __str__(self) -> str:
        place = f"{self.pointer}: " if self.pointer else ""
        return f"{place}expected {self.expected}, got {self.actual}{f' ({self.hint})' if self.hint else ''}"


@dataclass(frozen=True, slots=True)
class MatcherNode:
    """A compiled part of a pattern: a fast test, and an explanation that is empty exactly if the test passes."""

    # Two closures, because thousands of rules are tested per call, and only the failures shown to a user are
    # explained.
    test: Test
    explain: Callable[[object, Scope, str], Iterator[MatchDifference]]
    constant: bool = True


@dataclass(frozen=True, slots=True)
class Operand:
    """A value in a pattern; `read` evaluates its expressions for each match."""

    read: Callable[[Scope], JSON]
    constant: bool


def is_number(value: object) -> TypeGuard[int | float]:
    """Whether a value is a JSON number."""
    # bool is a subclass of int in Python.
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
    """The JSON type of a value for messages, in which an integer is a number."""
    return next((name for name, test in TYPES.items() if name != "integer" and test(value)), "nothing")


def shown(value: object) -> str:
    """A value as JSON, shortened for a message."""
    if value is ABSENT:
        return "nothing"
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= _LONGEST_SHOWN else text[: _LONGEST_SHOWN - 1] + "…"


def child_pointer(pointer: str, key: str | int) -> str:
    """The JSON Pointer of a key or index."""
    return f"{pointer}/{pointer_step(key)}"


def find_differences(wanted: JSON, value: object, pointer: str) -> Iterator[MatchDifference]:
    """The differences between two JSON values, leaf by leaf."""
    if isinstance(wanted, dict) and isinstance(value, dict):
        for key, item in wanted.items():
            yield from find_differences(item, value.get(key, ABSENT), child_pointer(pointer, key))
        for key, item in value.items():
            if key not in wanted:
                hint = did_you_mean(key, wanted.keys() - value.keys())
                yield MatchDifference(child_pointer(pointer, key), "nothing", shown(item), hint)
    elif isinstance(wanted, list) and isinstance(value, list):
        yield from _length_difference(len(wanted), len(value), pointer)
        for index, (item, found) in enumerate(zip(wanted, value, strict=False)):
            yield from find_differences(item, found, child_pointer(pointer, index))
    elif not json_equal(wanted, value):
        yield MatchDifference(pointer, shown(wanted), shown(value), _why_unequal(wanted, value))


def _length_difference(wanted: int, found: int, pointer: str) -> Iterator[MatchDifference]:
    if wanted != found:
        yield MatchDifference(pointer, f"{wanted} item{'s' if wanted != 1 else ''}", str(found))


def _why_unequal(wanted: object, value: object) -> str:
    if value is ABSENT:
        return ""
    if type_of(wanted) != type_of(value):
        # `"5"` and `5` look alike in a message, and models confuse them.
        same = str(value).casefold() == str(wanted).casefold()
        return f"{type_of(wanted)} and {type_of(value)} are never equal" if same else ""
    if (
        isinstance(wanted, str)
        and isinstance(value, str)
        and wanted.strip().casefold() == value.strip().casefold()
    ):
        return "they differ only in whitespace or case"
    return ""


def leaf_node(test: Test, describe: Callable[[Scope], str], *, constant: bool = True) -> MatcherNode:
    """A node that explains a failure by one difference at its own place."""

    def explain(value: object, scope: Scope, pointer: str) -> Iterator[MatchDifference]:
        if not test(value, scope):
            yield MatchDifference(pointer, describe(scope), shown(value))

    return MatcherNode(test, explain, constant)


def accepts_nothing() -> MatcherNode:
    """The node for a pattern that could not be compiled."""
    return leaf_node(lambda _value, _scope: False, lambda _scope: "nothing: the pattern is invalid")


def all_of(nodes: Iterable[MatcherNode]) -> MatcherNode:
    """A node that matches if all of the given nodes do."""
    nodes = tuple(nodes)
    if len(nodes) == 1:
        return nodes[0]
    tests = tuple(node.test for node in nodes)

    def explain(value: object, scope: Scope, pointer: str) -> Iterator[MatchDifference]:
        for node in nodes:
            yield from node.explain(value, scope, pointer)

    return MatcherNode(
        lambda value, scope: all(test(value, scope) for test in tests),
        explain,
        all(node.constant for node in nodes),
    )


def object_node(children: Mapping[str, MatcherNode]) -> MatcherNode:
    """Matches objects that contain all these keys with matching values."""
    tests = tuple((key, node.test) for key, node in children.items())

    def test(value: object, scope: Scope) -> bool:
        if not isinstance(value, dict):
            return False
        # Setting up a generator for all() costs more than the whole comparison.
        for key, inner in tests:  # noqa: SIM110
            if not inner(value.get(key, ABSENT), scope):
                return False
        return True

    def explain(value: object, scope: Scope, pointer: str) -> Iterator[MatchDifference]:
        if not isinstance(value, dict):
            yield MatchDifference(pointer, "an object", shown(value))
            return
        for key, node in children.items():
            for difference in node.explain(value.get(key, ABSENT), scope, child_pointer(pointer, key)):
                yield _with_near_miss(difference, key, value, children)

    return MatcherNode(test, explain, all(node.constant for node in children.values()))


def _with_near_miss(
    difference: MatchDifference, key: str, value: Mapping[str, object], known: Iterable[str]
) -> MatchDifference:
    if key in value or difference.hint:
        return difference
    hint = did_you_mean(key, value.keys() - set(known))
    return MatchDifference(difference.pointer, difference.expected, difference.actual, hint)


def items(nodes: list[MatcherNode]) -> MatcherNode:
    """Matches lists of the same length whose items match one by one."""
    tests = tuple(node.test for node in nodes)

    def test(value: object, scope: Scope) -> bool:
        return (
            isinstance(value, list)
            and len(value) == len(tests)
            and all(inner(item, scope) for inner, item in zip(tests, value, strict=True))
        )

    def explain(value: object, scope: Scope, pointer: str) -> Iterator[MatchDifference]:
        if not isinstance(value, list):
            yield MatchDifference(pointer, "a list", shown(value))
            return
        yield from _length_difference(len(nodes), len(value), pointer)
        for index, (node, item) in enumerate(zip(nodes, value, strict=False)):
            yield from node.explain(item, scope, child_pointer(pointer, index))

    return MatcherNode(test, explain, all(node.constant for node in nodes))


def equal(wanted: Operand) -> MatcherNode:
    """Matches values that equal the operand."""

    def explain(value: object, scope: Scope, pointer: str) -> Iterator[MatchDifference]:
        yield from find_differences(wanted.read(scope), value, pointer)

    return MatcherNode(equality(wanted), explain, wanted.constant)


def equality(wanted: Operand) -> Test:
    """The fastest test of equality with an operand."""
    read = wanted.read
    if not wanted.constant:
        return lambda value, scope: json_equal(read(scope), value)
    # Strings, null and booleans need no JSON equality: Python compares them in the same way.
    constant = read(NOTHING)
    if isinstance(constant, str):
        return lambda value, _scope: value == constant
    if constant is None or isinstance(constant, bool):
        return lambda value, _scope: value is constant
    return lambda value, _scope: json_equal(constant, value)


Build: TypeAlias = "Callable[[MatcherCompiler, JSON, str], MatcherNode]"
"""Compiles the operand of one operator at a pointer."""

# Names from MongoDB, JSON Schema and other query languages.
_OTHER_WORDS = {
    "$and": "$all",
    "$any_of": "$any",
    "$match": "$regex",
    "$nin": "$not",
    "$or": "$any",
    "$pattern": "$regex",
    "$present": "$exists",
    "$size": "$len",
}


class MatcherCompiler:
    """Compiles the patterns at one place of a document and collects their problems."""

    def __init__(
        self, problems: list[Problem], names: Collection[str], operators: Mapping[str, Build]
    ) -> None:
        self.problems = problems
        self.used: set[str] = set()
        self._names = names
        self._operators = operators

    def node(self, pattern: JSON, pointer: str) -> MatcherNode:
        """Compile a pattern."""
        if isinstance(pattern, list):
            return items(
                [self.node(item, child_pointer(pointer, index)) for index, item in enumerate(pattern)]
            )
        if not isinstance(pattern, dict):
            return equal(self.operand(pattern, pointer))
        operators = [key for key in pattern if key.startswith("$")]
        # Refused instead of guessed: `{$gt: 3, count: 5}` may be a misplaced operator or a key that begins
        # with `$`.
        if operators and len(operators) < len(pattern):
            plain = next(key for key in pattern if not key.startswith("$"))
            return self.refuse(
                "mixed_matcher",
                f"an object mixes the operator `{operators[0]}` with the plain key `{plain}`",
                pointer,
                "put the operators in their own object; for a literal key that begins with `$` use `$exact`",
            )
        if operators:
            return all_of(self._operator(key, pattern[key], pointer) for key in operators)
        return object_node(
            {key: self.node(item, child_pointer(pointer, key)) for key, item in pattern.items()}
        )

    def _operator(self, name: str, operand: JSON, pointer: str) -> MatcherNode:
        build = self._operators.get(name)
        if build is not None:
            return build(self, operand, child_pointer(pointer, name))
        other = _OTHER_WORDS.get(name)
        hint = f"write `{other}`" if other else did_you_mean(name, self._operators)
        return self.refuse(
            "unknown_operator",
            f"unknown operator `{name}`",
            child_pointer(pointer, name),
            hint or f"the operators are {', '.join(f'`{known}`' for known in self._operators)}",
        )

    def operand(self, value: JSON, pointer: str) -> Operand:
        """Compile a value to compare with, whose strings may contain expressions."""
        if not self._names:
            return Operand(lambda _scope: value, constant=True)
        rendering = compile_value(value, self._names, self.problems, pointer)
        self.used |= rendering.names
        if rendering.constant:
            constant = rendering.render({})
            return Operand(lambda _scope: constant, constant=True)
        return Operand(rendering.render, constant=False)

    def typed_operand(
        self, value: JSON, pointer: str, fits: Callable[[JSON], bool], wanted: str, hint: str = ""
    ) -> Operand | None:
        """Compile an operand of a required kind. A computed operand is checked at each match.

        Args:
            value: The operand as written.
            pointer: Its pointer.
            fits: Whether a value is of the required kind.
            wanted: The kind, in words.
            hint: How to fix a wrong operand.

        Returns:
            None if the value is of another kind, which is reported.
        """
        operand = self.operand(value, pointer)
        if not operand.constant:
            return Operand(_checked(operand, fits, wanted, pointer), constant=False)
        if fits(operand.read({})):
            return operand
        self.refuse_operand(value, pointer, wanted, hint)
        return None

    def literal(
        self, value: JSON, pointer: str, fits: Callable[[JSON], bool], wanted: str, hint: str = ""
    ) -> bool:
        """Whether an operand that must be constant is of the required kind; if not, the problem is reported."""
        if fits(value) and not (self._names and isinstance(value, str) and is_expression(value)):
            return True
        self.refuse_operand(value, pointer, wanted, hint)
        return False

    def refuse_operand(self, value: JSON, pointer: str, wanted: str, hint: str = "") -> MatcherNode:
        """Report an operand of the wrong kind."""
        name = pointer.rpartition("/")[2]
        return self.refuse("wrong_operand", f"`{name}` expects {wanted}, got {shown(value)}", pointer, hint)

    def refuse(self, code: str, message: str, pointer: str, hint: str = "") -> MatcherNode:
        """Report a problem; returns a node that matches nothing."""
        self.problems.append(Problem(code=code, message=message, pointer=pointer, hint=hint))
        return accepts_nothing()


def _checked(
    operand: Operand, fits: Callable[[JSON], bool], wanted: str, pointer: str
) -> Callable[[Scope], JSON]:
    name = pointer.rpartition("/")[2]

    def read(scope: Scope) -> JSON:
        value = operand.read(scope)
        if fits(value):
            return value
        raise ExpressionError(
            f"`{name}` expects {wanted}, but its expression returned {shown(value)}",
            code="wrong_operand",
            pointer=pointer,
        )

    return read


_LARGEST_PATTERN = 1 << 20
"""Maximum size of a compiled regular expression in bytes."""


def _eq(compiler: MatcherCompiler, operand: JSON, pointer: str) -> MatcherNode:
    return equal(compiler.operand(operand, pointer))


def _ne(compiler: MatcherCompiler, operand: JSON, pointer: str) -> MatcherNode:
    wanted = compiler.operand(operand, pointer)
    same = equality(wanted)
    return leaf_node(
        lambda value, scope: not same(value, scope),
        lambda scope: f"anything but {shown(wanted.read(scope))}",
        constant=wanted.constant,
    )


def _ordered(words: str, compare: Callable[[Any, Any], bool]) -> Build:
    def build(compiler: MatcherCompiler, operand: JSON, pointer: str) -> MatcherNode:
        bound = compiler.typed_operand(
            operand, pointer, lambda value: is_number(value) or isinstance(value, str), "a number or a string"
        )
        if bound is None:
            return accepts_nothing()
        read = bound.read

        def test(value: object, scope: Scope) -> bool:
            limit = read(scope)
            # A number and a string are not ordered; comparing them in Python would raise TypeError.
            comparable = is_number(value) if is_number(limit) else isinstance(value, str)
            return comparable and compare(value, limit)

        return leaf_node(test, lambda scope: _described(words, read(scope)), constant=bound.constant)

    return build


def _described(words: str, limit: JSON) -> str:
    kind = "string" if isinstance(limit, str) else "number"
    return f"a {kind} {words} {shown(limit)}"


def _in(compiler: MatcherCompiler, operand: JSON, pointer: str) -> MatcherNode:
    hint = "use `$any` for a list of matchers"
    choices = compiler.typed_operand(operand, pointer, _is_choice, "a list of at least one plain value", hint)
    if choices is None:
        return accepts_nothing()
    read = choices.read

    def test(value: object, scope: Scope) -> bool:
        options = read(scope)
        return isinstance(options, list) and any(json_equal(option, value) for option in options)

    return leaf_node(test, lambda scope: f"one of {shown(read(scope))}", constant=choices.constant)


def _is_choice(value: JSON) -> bool:
    return isinstance(value, list) and bool(value) and not any(map(_is_operators, value))


def _is_operators(value: JSON) -> bool:
    return isinstance(value, dict) and any(key.startswith("$") for key in value)


def _regex(compiler: MatcherCompiler, operand: JSON, pointer: str) -> MatcherNode:
    if not compiler.literal(
        operand, pointer, lambda value: isinstance(value, str), "a regular expression as a plain string"
    ):
        return accepts_nothing()
    # jsonschema-rs matches in linear time. With `re`, arguments chosen by a model could take exponential
    # time.
    try:
        judge = jsonschema_rs.validator_for(
            {"type": "string", "pattern": _with_dot_all(str(operand))},
            offline=True,
            pattern_options=jsonschema_rs.RegexOptions(size_limit=_LARGEST_PATTERN),
        ).is_valid
    except ValueError:
        return compiler.refuse("invalid_pattern", *_no_pattern(str(operand), pointer))

    def test(value: object, _scope: Scope) -> bool:
        # A lone surrogate cannot be passed to Rust.
        try:
            return isinstance(value, str) and judge(value)
        except UnicodeEncodeError:
            return False

    return leaf_node(test, lambda _scope: f"a string that matches {shown(operand)}")


# An escape, a class, a group with flags, or any other character.
_PATTERN_PARTS = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|\(\?(?P<on>[a-zA-Z]*)(?:-(?P<off>[a-zA-Z]*))?(?P<end>[:)])|.", re.DOTALL
)


def _with_dot_all(pattern: str) -> str:
    """Replace each `.` to which the flag `s` applies: jsonschema-rs ignores the flag since 0.61, as ECMA 262 does."""
    parts: list[str] = []
    outer: list[bool] = []
    dot_all = False
    for part in _PATTERN_PARTS.finditer(pattern):
        text = part.group()
        if text == "(" or part["end"] == ":":
            outer.append(dot_all)
        if part["end"]:
            dot_all = (dot_all or "s" in part["on"]) and "s" not in (part["off"] or "")
        elif text == ")" and outer:
            dot_all = outer.pop()
        parts.append(r"[\s\S]" if dot_all and text == "." else text)
    return "".join(parts)


def _no_pattern(pattern: str, pointer: str) -> tuple[str, str, str]:
    """Message, pointer and hint for an invalid pattern."""
    # `re` is only asked for the reason: its messages give the position, which jsonschema-rs does not.
    try:
        with warnings.catch_warnings(action="ignore"):
            re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        return (
            f"invalid regular expression {shown(pattern)}: {error}",
            pointer,
            "escape special characters with a backslash",
        )
    message = f"unsupported pattern {shown(pattern)}: it cannot be matched in linear time"
    hint = "look-around, back-references and very large repetitions are not supported; use several patterns"
    return message, pointer, hint


def _exists(compiler: MatcherCompiler, operand: JSON, pointer: str) -> MatcherNode:
    if not compiler.literal(operand, pointer, lambda value: isinstance(value, bool), "true or false"):
        return accepts_nothing()
    words = "any value" if operand else "nothing"
    return leaf_node(lambda value, _scope: (value is not ABSENT) is operand, lambda _scope: words)


def _branches(compiler: MatcherCompiler, operand: JSON, pointer: str) -> list[MatcherNode]:
    if not isinstance(operand, list) or not operand:
        compiler.refuse_operand(operand, pointer, "a list of at least one matcher")
        return [accepts_nothing()]
    return [compiler.node(pattern, child_pointer(pointer, index)) for index, pattern in enumerate(operand)]


def _any(compiler: MatcherCompiler, operand: JSON, pointer: str) -> MatcherNode:
    nodes = _branches(compiler, operand, pointer)
    tests = [node.test for node in nodes]
    words = f"any of {shown(operand)}"
    return leaf_node(
        lambda value, scope: any(test(value, scope) for test in tests),
        lambda _scope: words,
        constant=all(node.constant for node in nodes),
    )


def _all(compiler: MatcherCompiler, operand: JSON, pointer: str) -> MatcherNode:
    return all_of(_branches(compiler, operand, pointer))


def _not(compiler: MatcherCompiler, operand: JSON, pointer: str) -> MatcherNode:
    inner = compiler.node(operand, pointer)
    return leaf_node(
        lambda value, scope: not inner.test(value, scope),
        lambda _scope: f"not {shown(operand)}",
        constant=inner.constant,
    )


def _contains(compiler: MatcherCompiler, operand: JSON, pointer: str) -> MatcherNode:
    needle = compiler.operand(operand, pointer) if isinstance(operand, str) else None
    inner = compiler.node(operand, pointer) if needle is None else equal(needle)

    def test(value: object, scope: Scope) -> bool:
        if isinstance(value, list):
            return any(inner.test(item, scope) for item in value)
        if needle is None or not isinstance(value, str):
            return False
        part = needle.read(scope)
        return isinstance(part, str) and part in value

    words = f"a list{' or string' if needle is not None else ''} that contains {shown(operand)}"
    return leaf_node(test, lambda _scope: words, constant=inner.constant)


def _schema(compiler: MatcherCompiler, operand: JSON, pointer: str) -> MatcherNode:
    if not isinstance(operand, dict | bool):
        return compiler.refuse_operand(operand, pointer, "a JSON Schema")
    problems = check_schema(operand, pointer)
    compiler.problems += problems
    if any(problem.severity == "error" for problem in problems):
        return accepts_nothing()
    validator = Validator(operand)

    def test(value: object, _scope: Scope) -> bool:
        return value is not ABSENT and validator.is_valid(value)  # type: ignore[arg-type]

    def explain(value: object, scope: Scope, place: str) -> Iterator[MatchDifference]:
        if value is ABSENT:
            yield MatchDifference(place, "a value that matches a schema", "nothing")
        elif not test(value, scope):
            for fault in validator.faults(value):  # type: ignore[arg-type]
                yield MatchDifference(place + fault.pointer, fault.expected, fault.got, fault.hint)

    return MatcherNode(test, explain)


def _type(compiler: MatcherCompiler, operand: JSON, pointer: str) -> MatcherNode:
    names = ", ".join(f"`{name}`" for name in TYPES)
    if not compiler.literal(
        operand, pointer, lambda value: isinstance(value, str) and value in TYPES, f"one of {names}"
    ):
        return accepts_nothing()
    is_type = TYPES[str(operand)]
    article = "an" if str(operand)[0] in "aio" else "a"
    words = "null" if operand == "null" else f"{article} {operand}"
    return leaf_node(lambda value, _scope: is_type(value), lambda _scope: words)


def _len(compiler: MatcherCompiler, operand: JSON, pointer: str) -> MatcherNode:
    inner = _length(compiler, operand, pointer)

    def test(value: object, scope: Scope) -> bool:
        return isinstance(value, str | list | dict) and inner.test(len(value), scope)

    def explain(value: object, scope: Scope, place: str) -> Iterator[MatchDifference]:
        if not isinstance(value, str | list | dict):
            yield MatchDifference(place, "a string, list or object", shown(value))
            return
        for difference in inner.explain(len(value), scope, place):
            yield MatchDifference(place, f"a length that is {difference.expected}", difference.actual)

    return MatcherNode(test, explain, inner.constant)


def _length(compiler: MatcherCompiler, operand: JSON, pointer: str) -> MatcherNode:
    if _is_operators(operand):
        return compiler.node(operand, pointer)
    number = compiler.typed_operand(operand, pointer, is_number, "a number or a matcher of numbers")
    return accepts_nothing() if number is None else equal(number)


def _close(compiler: MatcherCompiler, operand: JSON, pointer: str) -> MatcherNode:
    pair = compiler.typed_operand(
        operand,
        pointer,
        _is_close,
        "a list of a number and a tolerance of at least 0",
        "use `$close: [20.5, 0.1]`",
    )
    if pair is None:
        return accepts_nothing()
    read = pair.read

    def test(value: object, scope: Scope) -> bool:
        target, tolerance = _decimals(read(scope))
        return is_number(value) and abs(_decimal(value) - target) <= tolerance

    return leaf_node(
        test,
        lambda scope: "a number within {1} of {0}".format(*_decimals(read(scope))),
        constant=pair.constant,
    )


def _is_close(value: JSON) -> bool:
    return (
        isinstance(value, list) and len(value) == 2 and all(map(is_number, value)) and _decimal(value[1]) >= 0
    )


def _decimals(pair: JSON) -> list[Decimal]:
    return [_decimal(number) for number in pair] if isinstance(pair, list) else []


def _decimal(number: object) -> Decimal:
    # Through repr(), so that numbers mean what is written: 0.4 is within 0.1 of 0.3, unlike as binary floats.
    return Decimal(number) if isinstance(number, int) else Decimal(repr(number))


OPERATORS: Final[Mapping[str, Build]] = {
    "$eq": _eq,
    "$ne": _ne,
    "$gt": _ordered("greater than", operator.gt),
    "$gte": _ordered("greater than or equal to", operator.ge),
    "$lt": _ordered("less than", operator.lt),
    "$lte": _ordered("less than or equal to", operator.le),
    "$in": _in,
    "$regex": _regex,
    "$exists": _exists,
    "$any": _any,
    "$all": _all,
    "$not": _not,
    "$contains": _contains,
    "$exact": _eq,
    "$schema": _schema,
    "$type": _type,
    "$len": _len,
    "$close": _close,
}


class Matcher:
    """A compiled pattern.

    Attributes:
        constant: Whether it contains no expressions.
        names: The root names that its expressions read from the scope.
        test: `matches` as a function that needs both arguments, for callers that match very often.
    """

    __slots__ = ("_expected", "_node", "constant", "names", "test")

    def __init__(self, expected: JSON, node: MatcherNode, names: frozenset[str]) -> None:
        self._expected = expected
        self._node = node
        self.test = node.test
        self.constant = node.constant
        self.names = names

    def matches(self, value: JSON, scope: Scope = NOTHING) -> bool:
        """Whether a value matches.

        Raises:
            ExpressionError: An expression of the pattern failed, or returned a value that its operator does not accept.
        """
        return self.test(value, scope)

    def differences(self, value: JSON, scope: Scope = NOTHING, most: int = 20) -> list[MatchDifference]:
        """Where and how a value does not match, at most `most` differences; empty exactly if it matches.

        Raises:
            ExpressionError: As `matches` does.
        """
        return list(islice(self._node.explain(value, scope, ""), most))

    def expected(self) -> JSON:
        """The pattern as written."""
        return self._expected


def compile_matcher(
    pattern: JSON, problems: list[Problem], pointer: str = "", *, names: Collection[str] = ()
) -> Matcher:
    """Compile a pattern.

    Args:
        pattern: The pattern as written.
        problems: Receives every problem; the matcher matches nothing at their places.
        pointer: The pointer of the pattern in its document.
        names: Root names that expressions may read; without names, `{{` is ordinary text.
    """
    compiler = MatcherCompiler(problems, names, OPERATORS)
    node = compiler.node(pattern, pointer)
    return Matcher(pattern, node, frozenset(compiler.used))


_MOST_REFERENCES = 16
_OPEN = {"$dynamicRef", "$recursiveRef", "allOf", "anyOf", "dependencies", "dependentSchemas", "if", "oneOf"}
"""Keywords through which a schema may allow properties that `properties` does not name."""

# One value per JSON type, to test whether the schema allows a type at all.
_ONE_OF_EACH: list[JSON] = [None, True, 0, 0.5, "", [], {}]
_ACCEPTED: dict[str, list[JSON]] = {"$close": [0], "$len": ["", [], {}], "$regex": [""]}
_ANNOTATIONS = {"$comment", "$ref", "default", "deprecated", "description", "examples", "title"}


def find_impossible(pattern: JSON, schema: Schema) -> list[Problem]:
    """Find parts of a pattern that can never match a valid value.

    Returns:
        `unknown_argument` for a key that the schema does not have: an error if the schema refuses additional keys,
        otherwise a warning; `never_matches` for a value or operator that `type`, `enum` or `const` excludes, and for
        contradictory bounds. Pointers are relative to the pattern.
    """
    return list(_Reach(schema).pattern(pattern, schema, ""))


class _Reach:
    def __init__(self, root: Schema) -> None:
        self._root = root

    @cached_property
    def _index(self) -> SchemaIndex:
        return SchemaIndex(self._root)

    def pattern(self, pattern: JSON, schema: JSON, pointer: str) -> Iterator[Problem]:
        """The problems of a pattern at one place of the schema."""
        # The value of an expression is not known before the call.
        if isinstance(pattern, str) and "{{" in pattern:
            return
        known = self._resolved(schema) or {}
        if isinstance(pattern, dict):
            if any(key.startswith("$") for key in pattern):
                yield from self._operators(pattern, known, pointer)
            else:
                yield from self._object(pattern, known, pointer)
        elif isinstance(pattern, list):
            yield from self._list(pattern, known, pointer)
        elif not _allows(known, pattern):
            yield _never(pattern, known, pointer)

    def _resolved(self, schema: JSON) -> dict[str, JSON] | None:
        """The schema behind local references; None if nothing is certain."""
        for _ in range(_MOST_REFERENCES):
            if not isinstance(schema, dict):
                return None
            reference = schema.get("$ref")
            if not isinstance(reference, str):
                return schema
            if schema.keys() - _ANNOTATIONS:
                return None
            schema = self._target(reference)
        return None

    def _target(self, reference: str) -> JSON:
        if not reference.startswith("#/") or "%" in reference:
            return None
        site = self._index.resolve(reference, self._index.root.base)
        # References below an `$id` resolve against another base, which is not followed here.
        return site.schema if site is not None and not site.base else None

    def _operators(
        self, pattern: dict[str, JSON], schema: dict[str, JSON], pointer: str
    ) -> Iterator[Problem]:
        if _accepts_absence(pattern):
            return
        if (problem := _together(pattern, schema, pointer)) is not None:
            yield problem
            return
        for name, operand in pattern.items():
            place = child_pointer(pointer, name)
            samples = _samples(name, operand)
            if samples and not any(_allows_type(schema, sample) for sample in samples):
                yield _never({name: operand}, schema, place)
            elif name in {"$eq", "$exact"} and not _computed(operand) and not _allows(schema, operand):
                yield _never(operand, schema, place)
            elif name == "$in" and isinstance(operand, list):
                if not any(_computed(choice) or _allows(schema, choice) for choice in operand):
                    yield _never(operand, schema, place)
            elif name == "$all" and isinstance(operand, list):
                for index, part in enumerate(operand):
                    yield from self.pattern(part, schema, child_pointer(place, index))

    def _object(self, pattern: dict[str, JSON], schema: dict[str, JSON], pointer: str) -> Iterator[Problem]:
        if not _allows_type(schema, {}):
            yield _never(pattern, schema, pointer)
            return
        properties = schema.get("properties")
        known = properties if isinstance(properties, dict) else {}
        for key, inner in pattern.items():
            if key in known:
                yield from self.pattern(inner, known[key], child_pointer(pointer, key))
            else:
                unknown = (
                    []
                    if _accepts_absence(inner)
                    else [*self._unknown(key, schema, known, child_pointer(pointer, key))]
                )
                yield from unknown or self.pattern(inner, {}, child_pointer(pointer, key))

    def _unknown(
        self, key: str, schema: dict[str, JSON], known: dict[str, JSON], pointer: str
    ) -> Iterator[Problem]:
        # A schema without `properties` describes a free-form object. One that lists some and does not mention
        # others most likely means only those, hence the warning.
        further = schema.get("additionalProperties", None if known else True)
        if (further is not None and further is not False) or "patternProperties" in schema:
            return
        if further is None and _OPEN & schema.keys():
            return
        names = ", ".join(f"`{name}`" for name in known)
        yield Problem(
            code="unknown_argument",
            message=f"the input schema has no `{key}`",
            pointer=pointer,
            hint=did_you_mean(key, known) or (f"its keys are {names}" if names else "it has no keys"),
            severity="error" if further is False else "warning",
        )

    def _list(self, pattern: list[JSON], schema: dict[str, JSON], pointer: str) -> Iterator[Problem]:
        if not _allows_type(schema, []):
            yield _never(pattern, schema, pointer)
            return
        first = schema.get("prefixItems")
        prefix = first if isinstance(first, list) else []
        for index, item in enumerate(pattern):
            inner = prefix[index] if index < len(prefix) else schema.get("items")
            yield from self.pattern(item, inner, child_pointer(pointer, index))


def _accepts_absence(pattern: JSON) -> bool:
    """Whether a pattern may match a missing key."""
    return (
        isinstance(pattern, dict)
        and bool(pattern)
        and all(map(_content_with_nothing, pattern, pattern.values()))
    )


def _content_with_nothing(name: str, operand: JSON) -> bool:
    if name in {"$any", "$all"} and isinstance(operand, list):
        return (any if name == "$any" else all)(map(_accepts_absence, operand))
    return name in {"$ne", "$not"} or (name == "$exists" and operand is False)


def _samples(name: str, operand: JSON) -> list[JSON]:
    """One value of each type that an operator can match; empty if it can match any."""
    if isinstance(operand, str) and "{{" in operand:
        return []
    if name in {"$gt", "$gte", "$lt", "$lte"}:
        return [""] if isinstance(operand, str) else [0]
    if name == "$contains":
        return [[], ""] if isinstance(operand, str) else [[]]
    if name == "$type":
        return [value for value in _ONE_OF_EACH if TYPES[str(operand)](value)]
    return _ACCEPTED.get(name, [])


def _excluded(pattern: JSON, schema: dict[str, JSON]) -> bool:
    """Whether the schema enumerates its values and the pattern matches none of them."""
    listed = [schema["const"]] if "const" in schema else schema.get("enum")
    if not isinstance(listed, list):
        return False
    problems: list[Problem] = []
    matcher = compile_matcher(pattern, problems)
    return not problems and not any(map(matcher.matches, listed))


_LEAST = {"$gt": True, "$gte": False, "exclusiveMinimum": True, "minimum": False}
"""Lower bound -> whether the bound itself is excluded."""

_MOST = {"$lt": True, "$lte": False, "exclusiveMaximum": True, "maximum": False}


def _no_room(pattern: dict[str, JSON], schema: dict[str, JSON]) -> bool:
    """Whether the comparison operators and the bounds of the schema leave no value."""
    limits = {
        name: limit for name, limit in pattern.items() if name in {*_LEAST, *_MOST} and not _computed(limit)
    }
    texts = {name: limit for name, limit in limits.items() if isinstance(limit, str)}
    # No value is greater than a number and a string at the same time.
    if texts and len(texts) < len(limits):
        return True
    if texts:
        return _nothing_in(
            [(text, _LEAST[name]) for name, text in texts.items() if name in _LEAST],
            [(text, _MOST[name]) for name, text in texts.items() if name in _MOST],
        )
    return bool(limits) and _nothing_in(*_bounds(schema, limits))


Bounds = list[tuple[Any, bool]]
"""Limits, each with whether the limit itself is excluded."""


def _bounds(schema: dict[str, JSON], limits: dict[str, JSON]) -> tuple[Bounds, Bounds]:
    """The lower and upper bounds of a number."""
    numbers = {name: limit for name, limit in {**schema, **limits}.items() if is_number(limit)}
    least = [(number, _LEAST[name]) for name, number in numbers.items() if name in _LEAST]
    most = [(number, _MOST[name]) for name, number in numbers.items() if name in _MOST]
    if schema.get("type") == "integer":
        # Between 3 and 4 there is no integer, so bounds are moved to the integers that they allow.
        least = [(math.floor(number) + 1 if strict else math.ceil(number), False) for number, strict in least]
        most = [(math.ceil(number) - 1 if strict else math.floor(number), False) for number, strict in most]
    return least, most


def _nothing_in(least: Bounds, most: Bounds) -> bool:
    """Whether no value satisfies all lower and all upper bounds."""
    return any(
        low > high or (low == high and (above or below)) for low, above in least for high, below in most
    )


def _together(pattern: dict[str, JSON], schema: dict[str, JSON], pointer: str) -> Problem | None:
    """The problem of operators that no value satisfies together; None if some value may."""
    if not _computed(pattern) and _excluded(pattern, schema):
        return _never(pattern, schema, pointer)
    return _nothing_between(pattern, pointer) if _no_room(pattern, schema) else None


def _nothing_between(pattern: dict[str, JSON], pointer: str) -> Problem:
    beside = "" if _no_room(pattern, {}) else " within the bounds of the input schema"
    return Problem(
        code="never_matches",
        message=f"no value{beside} matches {shown(pattern)}",
        pointer=pointer,
        hint="change a bound" if beside else "swap the bounds, or use `$any` to accept either",
    )


def _computed(value: JSON) -> bool:
    if isinstance(value, str):
        return "{{" in value
    if isinstance(value, dict):
        return any(map(_computed, value.values()))
    return isinstance(value, list) and any(map(_computed, value))


def _allows(schema: dict[str, JSON], value: JSON) -> bool:
    """Whether `type`, `enum`, `const` and the bounds of numbers allow a value."""
    if "const" in schema and not json_equal(schema["const"], value):
        return False
    choices = schema.get("enum")
    if isinstance(choices, list) and not any(json_equal(choice, value) for choice in choices):
        return False
    if is_number(value) and _nothing_in(*_bounds(schema, {"$gte": value, "$lte": value})):
        return False
    return _allows_type(schema, value)


def _allows_type(schema: dict[str, JSON], value: JSON) -> bool:
    names = schema.get("type")
    listed = names if isinstance(names, list) else [names]
    tests = [TYPES[name] for name in listed if isinstance(name, str) and name in TYPES]
    return not tests or any(test(value) for test in tests)


def _never(value: JSON, schema: dict[str, JSON], pointer: str) -> Problem:
    return Problem(
        code="never_matches",
        message=f"{shown(value)} cannot occur here: the input schema allows {_allowed(schema)}",
        pointer=pointer,
        hint=_nearest(value, schema),
    )


def _allowed(schema: dict[str, JSON]) -> str:
    if "const" in schema:
        return f"only {shown(schema['const'])}"
    if "enum" in schema:
        return f"one of {shown(schema['enum'])}"
    names = schema.get("type", "number")
    bounds = [f"{name} {schema[name]}" for name in (*_LEAST, *_MOST) if name in schema]
    words = [f"`{name}`" for name in (names if isinstance(names, list) else [names])]
    return ", ".join([" or ".join(words), *bounds])


def _nearest(value: JSON, schema: dict[str, JSON]) -> str:
    choices = schema.get("enum", [schema["const"]] if "const" in schema else None)
    if not isinstance(value, str) or not isinstance(choices, list):
        return ""
    return did_you_mean(value, [choice for choice in choices if isinstance(choice, str)])
