"""The operators of patterns, each compiled by one function; the table stands at the end."""

from __future__ import annotations

import operator
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from decimal import Decimal
from typing import Any, Final

import jsonschema_rs

from toolcrib.core.model import JSON
from toolcrib.core.text import json_equal
from toolcrib.expressions.matchers.nodes import (
    ABSENT,
    TYPES,
    Difference,
    Node,
    Scope,
    accepts_nothing,
    all_of,
    equal,
    equality,
    is_number,
    leaf,
    shown,
    step,
)
from toolcrib.expressions.matchers.pattern_compiler import Build, Compiler
from toolcrib.schema.validation import Validator, check_schema

_LARGEST_PATTERN = 1 << 20
"""Bytes that a compiled regular expression may take."""


def _eq(compiler: Compiler, operand: JSON, pointer: str) -> Node:
    return equal(compiler.operand(operand, pointer))


def _ne(compiler: Compiler, operand: JSON, pointer: str) -> Node:
    wanted = compiler.operand(operand, pointer)
    same = equality(wanted)
    return leaf(
        lambda value, scope: not same(value, scope),
        lambda scope: f"anything but {shown(wanted.read(scope))}",
        constant=wanted.constant,
    )


def _ordered(words: str, compare: Callable[[Any, Any], bool]) -> Build:
    def build(compiler: Compiler, operand: JSON, pointer: str) -> Node:
        bound = compiler.typed_operand(
            operand, pointer, lambda value: is_number(value) or isinstance(value, str), "a number or a text"
        )
        if bound is None:
            return accepts_nothing()
        read = bound.read

        def test(value: object, scope: Scope) -> bool:
            limit = read(scope)
            comparable = is_number(value) if is_number(limit) else isinstance(value, str)
            return comparable and compare(value, limit)

        return leaf(test, lambda scope: _described(words, read(scope)), constant=bound.constant)

    return build


def _described(words: str, limit: JSON) -> str:
    kind = "text" if isinstance(limit, str) else "number"
    return f"a {kind} {words} {shown(limit)}"


def _in(compiler: Compiler, operand: JSON, pointer: str) -> Node:
    hint = "write `$any` for a list of matchers"
    choices = compiler.typed_operand(operand, pointer, _is_choice, "a list of at least one plain value", hint)
    if choices is None:
        return accepts_nothing()
    read = choices.read

    def test(value: object, scope: Scope) -> bool:
        options = read(scope)
        return isinstance(options, list) and any(json_equal(option, value) for option in options)

    return leaf(test, lambda scope: f"one of {shown(read(scope))}", constant=choices.constant)


def _is_choice(value: JSON) -> bool:
    return isinstance(value, list) and bool(value) and not any(map(_is_operators, value))


def _is_operators(value: JSON) -> bool:
    return isinstance(value, dict) and any(key.startswith("$") for key in value)


def _regex(compiler: Compiler, operand: JSON, pointer: str) -> Node:
    if not compiler.literal(
        operand, pointer, lambda value: isinstance(value, str), "a regular expression as plain text"
    ):
        return accepts_nothing()
    try:
        judge = jsonschema_rs.validator_for(
            {"type": "string", "pattern": operand},
            offline=True,
            pattern_options=jsonschema_rs.RegexOptions(size_limit=_LARGEST_PATTERN),
        ).is_valid
    except ValueError:
        return compiler.refuse("invalid_pattern", *_no_pattern(str(operand), pointer))

    def test(value: object, _scope: Scope) -> bool:
        try:
            return isinstance(value, str) and judge(value)
        except UnicodeEncodeError:
            return False

    return leaf(test, lambda _scope: f"a text that matches {shown(operand)}")


def _no_pattern(pattern: str, pointer: str) -> tuple[str, str, str]:
    """Why a text is no pattern, where it stands, and the way out."""
    try:
        with warnings.catch_warnings(action="ignore"):
            re.compile(pattern)
    except (re.error, RecursionError, OverflowError) as error:
        return (
            f"{shown(pattern)} is no regular expression: {error}",
            pointer,
            "a backslash before a sign takes it as it is",
        )
    message = f"{shown(pattern)} is no regular expression that runs in linear time"
    hint = "look-around and back-references are not available; say it with several patterns"
    return message, pointer, hint


def _exists(compiler: Compiler, operand: JSON, pointer: str) -> Node:
    if not compiler.literal(operand, pointer, lambda value: isinstance(value, bool), "true or false"):
        return accepts_nothing()
    words = "any value" if operand else "nothing"
    return leaf(lambda value, _scope: (value is not ABSENT) is operand, lambda _scope: words)


def _branches(compiler: Compiler, operand: JSON, pointer: str) -> list[Node]:
    if not isinstance(operand, list) or not operand:
        compiler.refuse_operand(operand, pointer, "a list of at least one matcher")
        return [accepts_nothing()]
    return [compiler.node(pattern, step(pointer, index)) for index, pattern in enumerate(operand)]


def _any(compiler: Compiler, operand: JSON, pointer: str) -> Node:
    nodes = _branches(compiler, operand, pointer)
    tests = [node.test for node in nodes]
    words = f"any of {shown(operand)}"
    return leaf(
        lambda value, scope: any(test(value, scope) for test in tests),
        lambda _scope: words,
        constant=all(node.constant for node in nodes),
    )


def _all(compiler: Compiler, operand: JSON, pointer: str) -> Node:
    return all_of(_branches(compiler, operand, pointer))


def _not(compiler: Compiler, operand: JSON, pointer: str) -> Node:
    inner = compiler.node(operand, pointer)
    return leaf(
        lambda value, scope: not inner.test(value, scope),
        lambda _scope: f"not {shown(operand)}",
        constant=inner.constant,
    )


def _contains(compiler: Compiler, operand: JSON, pointer: str) -> Node:
    needle = compiler.operand(operand, pointer) if isinstance(operand, str) else None
    inner = compiler.node(operand, pointer) if needle is None else equal(needle)

    def test(value: object, scope: Scope) -> bool:
        if isinstance(value, list):
            return any(inner.test(item, scope) for item in value)
        if needle is None or not isinstance(value, str):
            return False
        part = needle.read(scope)
        return isinstance(part, str) and part in value

    words = f"a list{' or text' if needle is not None else ''} that contains {shown(operand)}"
    return leaf(test, lambda _scope: words, constant=inner.constant)


def _schema(compiler: Compiler, operand: JSON, pointer: str) -> Node:
    if not isinstance(operand, dict | bool):
        return compiler.refuse_operand(operand, pointer, "a JSON Schema")
    problems = check_schema(operand, pointer)
    compiler.problems += problems
    if any(problem.severity == "error" for problem in problems):
        return accepts_nothing()
    validator = Validator(operand)

    def test(value: object, _scope: Scope) -> bool:
        return value is not ABSENT and validator.is_valid(value)  # type: ignore[arg-type]

    def explain(value: object, scope: Scope, place: str) -> Iterator[Difference]:
        if value is ABSENT:
            yield Difference(place, "a value that fits a schema", "nothing")
        elif not test(value, scope):
            for fault in validator.faults(value):  # type: ignore[arg-type]
                yield Difference(place + fault.pointer, fault.expected, fault.got, fault.hint)

    return Node(test, explain)


def _type(compiler: Compiler, operand: JSON, pointer: str) -> Node:
    names = ", ".join(f"`{name}`" for name in TYPES)
    if not compiler.literal(
        operand, pointer, lambda value: isinstance(value, str) and value in TYPES, f"one of {names}"
    ):
        return accepts_nothing()
    is_type = TYPES[str(operand)]
    article = "an" if str(operand)[0] in "aio" else "a"
    words = "null" if operand == "null" else f"{article} {operand}"
    return leaf(lambda value, _scope: is_type(value), lambda _scope: words)


def _len(compiler: Compiler, operand: JSON, pointer: str) -> Node:
    inner = _length(compiler, operand, pointer)

    def test(value: object, scope: Scope) -> bool:
        return isinstance(value, str | list | dict) and inner.test(len(value), scope)

    def explain(value: object, scope: Scope, place: str) -> Iterator[Difference]:
        if not isinstance(value, str | list | dict):
            yield Difference(place, "a text, list or object", shown(value))
            return
        for difference in inner.explain(len(value), scope, place):
            yield Difference(place, f"a length that is {difference.expected}", difference.actual)

    return Node(test, explain, inner.constant)


def _length(compiler: Compiler, operand: JSON, pointer: str) -> Node:
    if _is_operators(operand):
        return compiler.node(operand, pointer)
    number = compiler.typed_operand(operand, pointer, is_number, "a number or a matcher of numbers")
    return accepts_nothing() if number is None else equal(number)


def _close(compiler: Compiler, operand: JSON, pointer: str) -> Node:
    pair = compiler.typed_operand(
        operand,
        pointer,
        _is_close,
        "a list of a number and a tolerance from 0 up",
        "write `$close: [20.5, 0.1]`",
    )
    if pair is None:
        return accepts_nothing()
    read = pair.read

    def test(value: object, scope: Scope) -> bool:
        target, tolerance = _decimals(read(scope))
        return is_number(value) and abs(_decimal(value) - target) <= tolerance

    return leaf(
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
    # The number as it is written: 0.4 lies within 0.1 of 0.3, as a reader expects.
    return Decimal(number) if isinstance(number, int) else Decimal(repr(number))


OPERATORS: Final[Mapping[str, Build]] = {
    "$eq": _eq,
    "$ne": _ne,
    "$gt": _ordered("greater than", operator.gt),
    "$gte": _ordered("not less than", operator.ge),
    "$lt": _ordered("less than", operator.lt),
    "$lte": _ordered("not greater than", operator.le),
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
