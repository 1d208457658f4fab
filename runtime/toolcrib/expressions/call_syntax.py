"""Calls of the listed functions, as filters and as calls, and the tests behind `is`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

import jsonschema_rs
from jinja2 import nodes

from toolcrib.core.errors import ExpressionError, did_you_mean
from toolcrib.core.model import JSON
from toolcrib.expressions import operators
from toolcrib.expressions.arithmetic import work_out
from toolcrib.expressions.budget import visit, visit_all
from toolcrib.expressions.compiler import NOT_ALLOWED, Part, Reader, combined
from toolcrib.expressions.function_calls import INSTEAD, apply, check_shape, known_function
from toolcrib.expressions.functions import FUNCTIONS
from toolcrib.expressions.values import Run, Scope, kind, list_of_names, shortened

_PATTERN_BYTES = 1 << 20


def _is_odd(name: str, value: JSON) -> bool:
    if type(value) is int:
        return value % 2 == 1
    raise ExpressionError(f"`is {name}` needs a whole number, not {kind(value)}")


def _is_arithmetic(value: JSON) -> bool:
    """Whether `arith` gives a number for it; false of anything but a text."""
    if not isinstance(value, str):
        return False
    try:
        work_out(value)
    except ExpressionError:
        return False
    return True


TESTS: Mapping[str, Callable[[JSON], bool]] = {
    "arithmetic": _is_arithmetic,
    "boolean": lambda value: isinstance(value, bool),
    "even": lambda value: not _is_odd("even", value),
    "false": lambda value: value is False,
    "integer": lambda value: type(value) is int,
    "list": lambda value: isinstance(value, list),
    "mapping": lambda value: isinstance(value, dict),
    "none": lambda value: value is None,
    "number": operators.is_number,
    "object": lambda value: isinstance(value, dict),
    "odd": lambda value: _is_odd("odd", value),
    "sequence": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "true": lambda value: value is True,
}
"""Tests without an argument. `in` and `matching` take one and are read with the expression itself."""

TESTS_INSTEAD: Mapping[str, str] = {
    "defined": "`a['key'] is not none` or `'key' in a`",
    "undefined": "`a['key'] is none` or `'key' not in a`",
    "equalto": "`==`",
    "eq": "`==`",
    "null": "`none`",
    "iterable": "`list`",
    "float": "`number`",
    "text": "`string`",
}
"""Tests that people bring from elsewhere -> what to write here."""


def read_filter(reader: Reader, node: nodes.Filter) -> Part:
    """`value | name(arguments)`."""
    # Only the `filter` block has no value before its bar, and it is refused as a statement.
    return _call_of(reader, node.name, [cast("nodes.Expr", node.node), *node.args], node)


def read_call(reader: Reader, node: nodes.Call) -> Part:
    """`name(arguments)`."""
    if isinstance(node.node, nodes.Getattr):
        name = node.node.attr
        if name in FUNCTIONS:
            hint = f"write `value | {name}`"
        else:
            hint = f"write {INSTEAD[name]}" if name in INSTEAD else did_you_mean(name, FUNCTIONS)
        raise ExpressionError(
            f"`.{name}()` can't be called: values have no methods", code=NOT_ALLOWED, hint=hint
        )
    if not isinstance(node.node, nodes.Name):
        raise ExpressionError("only the listed functions can be called", code=NOT_ALLOWED)
    return _call_of(reader, node.node.name, node.args, node)


def _call_of(reader: Reader, name: str, places: list[nodes.Expr], node: nodes.Filter | nodes.Call) -> Part:
    function = known_function(name)
    if node.dyn_args is not None or node.dyn_kwargs is not None:
        raise ExpressionError(f"`{name}`: `*` and `**` can't be used in calls", code=NOT_ALLOWED)
    fields = [str(pair.key) for pair in node.kwargs]
    check_shape(name, function, len(places), fields)
    parts = [reader.compile(place) for place in places] + [reader.compile(pair.value) for pair in node.kwargs]
    return apply(reader, name, parts, fields)


def read_test(reader: Reader, node: nodes.Test) -> Part:
    """`value is name(argument)`."""
    subject = reader.compile(node.node)
    arguments = [reader.compile(argument) for argument in node.args]
    if node.kwargs or node.dyn_args is not None or node.dyn_kwargs is not None:
        raise ExpressionError(f"`is {node.name}` takes no named arguments", code=NOT_ALLOWED)
    wanted = 1 if node.name in ("in", "matching") else 0
    if node.name not in TESTS and not wanted:
        known = [*TESTS, "in", "matching"]
        instead = f"write {TESTS_INSTEAD[node.name]}" if node.name in TESTS_INSTEAD else ""
        hint = (
            instead
            or did_you_mean(node.name, known)
            or f"the tests are {list_of_names(sorted(known), len(known))}"
        )
        raise ExpressionError(
            f"there is no test `is {shortened(node.name)}`", code="unknown_function", hint=hint
        )
    if len(arguments) != wanted:
        raise ExpressionError(
            f"`is {node.name}` takes {wanted or 'no'} argument{'' if wanted else 's'}, not {len(arguments)}",
            code="expression_syntax",
        )
    if node.name == "in":
        return combined(lambda one, two: compared(operators.member, one, two), subject, *arguments)
    test = _matching(arguments[0]) if wanted else TESTS[node.name]
    return combined(lambda inner: lambda scope: test(inner(scope)), subject)


def compared(compare: Callable[[JSON, JSON], bool], left: Run, right: Run) -> Run:
    """A comparison of two values, counted."""

    def run(scope: Scope) -> JSON:
        one, two = left(scope), right(scope)
        if isinstance(two, dict | list):
            visit_compared(compare, scope, one, two)
        return compare(one, two)

    return run


def visit_compared(
    compare: Callable[[JSON, JSON], bool], scope: Scope, left: JSON, right: dict[str, JSON] | list[JSON]
) -> None:
    """Count what a comparison with an object or list goes through.

    Raises:
        ExpressionError: The call goes through too much.
    """
    if isinstance(left, dict | list):
        visit_all(scope, right)
    elif isinstance(right, list) and compare in _AMONG:
        visit(scope, right)


_AMONG = (operators.member, operators.not_member)
"""Comparisons with every element of a list."""


def _matching(pattern: Part) -> Callable[[JSON], bool]:
    """Whether the whole of a text matches; false of anything but a text. Takes time linear in the text."""
    if not pattern.constant or not isinstance(pattern.value, str):
        hint = "write the pattern itself, in quotes"
        raise ExpressionError(
            "the pattern of `matching` must be a constant text", code=NOT_ALLOWED, hint=hint
        )
    options = jsonschema_rs.RegexOptions(size_limit=_PATTERN_BYTES)
    validators = []
    # The pattern alone first: `a)|(b` is only a pattern inside the parentheses that anchor it.
    for text in (pattern.value, f"^(?:{pattern.value})$"):
        try:
            validators.append(
                jsonschema_rs.validator_for({"type": "string", "pattern": text}, pattern_options=options)
            )
        except ValueError:
            raise ExpressionError(
                f"`{shortened(pattern.value)}` is not a pattern that `matching` can use",
                code="expression_syntax",
                hint="it must be a regular expression without look-around and back-references",
            ) from None
    return validators[1].is_valid
