"""From Jinja2's syntax tree to closures: one small function for each node, built once.

The table at the end is the allow-list: a kind of node that is not in it is refused, so what an
expression can do is what stands in this file. Precedence is Jinja2's: `**` groups from the left, a
leading minus binds tighter than anything but `.` and `[]`, filters and tests tighter than operators.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any

from jinja2 import nodes

from toolcrib.core.errors import ExpressionError
from toolcrib.core.model import JSON
from toolcrib.expressions import operators
from toolcrib.expressions.call_syntax import compared, read_call, read_filter, read_test, visit_compared
from toolcrib.expressions.compiler import Part, Reader, combined, joined, literal
from toolcrib.expressions.paths import member_part, root_part
from toolcrib.expressions.values import Run, Scope, bounded_number, equal, kind


def reader_for(names: Collection[str], place: str = "") -> Reader:
    """A reader of one expression or template that may read these root names; `place` as in `Reader`."""
    return Reader(names, _READERS, place)


def _written(node: nodes.Node) -> str:
    """A path as messages quote it."""
    steps: list[str] = []
    while isinstance(node, nodes.Getattr | nodes.Getitem):
        if isinstance(node, nodes.Getattr):
            steps.append(f".{node.attr}")
        else:
            steps.append(f"[{node.arg.value!r}]" if isinstance(node.arg, nodes.Const) else "[...]")
        node = node.node
    if isinstance(node, nodes.Name):
        return "`" + node.name + "".join(reversed(steps)) + "`"
    return "the value" if not steps else f"the value at `{''.join(reversed(steps))}`"


# Names, literals, paths.


def _constant(_reader: Reader, node: nodes.Const) -> Part:
    value: object = node.value
    if isinstance(value, int | float):
        return literal(bounded_number(value) if not isinstance(value, bool) else value)
    if isinstance(value, str) and not value.isascii() and any("\ud800" <= mark <= "\udfff" for mark in value):
        raise ExpressionError(
            "a text holds half a surrogate pair", hint="write the character itself, or `\\U0001f600`"
        )
    return literal(node.value)


def _name(reader: Reader, node: nodes.Name) -> Part:
    return root_part(reader, node.name)


def _alone(reader: Reader, owner: nodes.Node, key: object) -> Part | None:
    """A key of a root that the scope gives by itself; None for all else."""
    if not isinstance(owner, nodes.Name) or not isinstance(key, str):
        return None
    name = reader.alone(owner.name, key)
    return root_part(reader, name) if name else None


def _attribute(reader: Reader, node: nodes.Getattr) -> Part:
    alone = _alone(reader, node.node, node.attr)
    if alone is not None:
        return alone
    owner = reader.compile(node.node)
    if owner.path:
        return member_part(reader, owner, node.attr)
    name, place = node.attr, _written(node.node)
    keys = reader.key(owner, name)
    part = combined(lambda inner: lambda scope: operators.attribute(inner(scope), name, place), owner)
    return part._replace(keys=keys)


def _item(reader: Reader, node: nodes.Getitem) -> Part:
    alone = _alone(reader, node.node, node.arg.value) if isinstance(node.arg, nodes.Const) else None
    if alone is not None:
        return alone
    owner, place = reader.compile(node.node), _written(node.node)
    if isinstance(node.arg, nodes.Slice):
        bounds = [
            reader.compile(bound or nodes.Const(None))
            for bound in (node.arg.start, node.arg.stop, node.arg.step)
        ]
        piece = combined(
            lambda inner, start, stop, step: (
                lambda scope: operators.piece(inner(scope), start(scope), stop(scope), step(scope), place)
            ),
            owner,
            *bounds,
        )
        return piece._replace(keys=owner.keys)
    key = reader.compile(node.arg)
    keys = reader.key(owner, key.value if key.constant else None)
    part = combined(
        lambda inner, at: lambda scope: operators.index(inner(scope), at(scope), place), owner, key
    )
    return part._replace(keys=keys)


def _list(reader: Reader, node: nodes.List | nodes.Tuple) -> Part:
    parts = [reader.compile(item) for item in node.items]
    return combined(lambda *runs: lambda scope: [run(scope) for run in runs], *parts)


def _dict(reader: Reader, node: nodes.Dict) -> Part:
    keys = [reader.compile(pair.key) for pair in node.items]
    values = [reader.compile(pair.value) for pair in node.items]

    def make(*runs: Run) -> Run:
        pairs = list(zip(runs[: len(keys)], runs[len(keys) :], strict=True))
        return lambda scope: {_key(key(scope)): value(scope) for key, value in pairs}

    return combined(make, *keys, *values)


def _key(value: JSON) -> str:
    if isinstance(value, str):
        return value
    raise ExpressionError(
        f"the key of an object is a text, not {kind(value)}", hint="a literal key is written in quotes"
    )


# Operators.


def _binary(operate: operators.Binary) -> Callable[[Reader, nodes.BinExpr], Part]:
    def read(reader: Reader, node: nodes.BinExpr) -> Part:
        left, right = reader.compile(node.left), reader.compile(node.right)
        if left.constant is not right.constant:
            part = _half_constant(operate, left, right)
            if part is not None:
                return part
        return combined(lambda one, two: lambda scope: operate(one(scope), two(scope)), left, right)

    return read


def _half_constant(operate: operators.Binary, left: Part, right: Part) -> Part | None:
    """An operation with a text or number on one side, one call shorter; None for other constants."""
    value = left.value if left.constant else right.value
    if not isinstance(value, str | int | float):
        return None
    if left.constant:
        compute = right.run
        return Part(lambda scope: operate(value, compute(scope)))
    compute = left.run
    return Part(lambda scope: operate(compute(scope), value))


def _unary(operate: Callable[[JSON], JSON]) -> Callable[[Reader, nodes.UnaryExpr], Part]:
    def read(reader: Reader, node: nodes.UnaryExpr) -> Part:
        return combined(lambda inner: lambda scope: operate(inner(scope)), reader.compile(node.node))

    return read


def _and(reader: Reader, node: nodes.And) -> Part:
    left, right = reader.compile(node.left), reader.compile(node.right)
    return combined(lambda one, two: lambda scope: one(scope) and two(scope), left, right)


def _or(reader: Reader, node: nodes.Or) -> Part:
    left, right = reader.compile(node.left), reader.compile(node.right)
    return combined(lambda one, two: lambda scope: one(scope) or two(scope), left, right)


def _choice(reader: Reader, node: nodes.CondExpr) -> Part:
    if node.expr2 is None:
        hint = "add `else none` or `else ''`"
        raise ExpressionError("`if` without `else` in an expression", code="expression_syntax", hint=hint)
    parts = [reader.compile(part) for part in (node.test, node.expr1, node.expr2)]
    return combined(lambda test, yes, no: lambda scope: yes(scope) if test(scope) else no(scope), *parts)


def _concat(reader: Reader, node: nodes.Concat) -> Part:
    return joined([reader.compile(item) for item in node.nodes])


_COMPARISONS: Mapping[str, Callable[[JSON, JSON], bool]] = {
    "eq": equal,
    "ne": operators.different,
    "lt": operators.less,
    "lteq": operators.less_or_equal,
    "gt": operators.greater,
    "gteq": operators.greater_or_equal,
    "in": operators.member,
    "notin": operators.not_member,
}


def _compare(reader: Reader, node: nodes.Compare) -> Part:
    first = reader.compile(node.expr)
    others = [reader.compile(operand.expr) for operand in node.ops]
    comparisons = [_COMPARISONS[operand.op] for operand in node.ops]
    if len(others) > 1:
        return combined(lambda *runs: _chain(runs, comparisons), first, *others)
    short = _short_comparison(node.ops[0].op, others[0])
    if short is not None and not first.constant:
        return Part(short(first.run))
    compare = comparisons[0]
    return combined(lambda one, two: compared(compare, one, two), first, others[0])


def _chain(runs: tuple[Run, ...], comparisons: list[Callable[[JSON, JSON], bool]]) -> Run:
    def run(scope: Scope) -> JSON:
        left = runs[0](scope)
        for compare, right_run in zip(comparisons, runs[1:], strict=True):
            right = right_run(scope)
            if isinstance(right, dict | list):
                visit_compared(compare, scope, left, right)
            if not compare(left, right):
                return False
            left = right
        return True

    return run


def _short_comparison(sign: str, right: Part) -> Callable[[Run], Run] | None:
    """Shorter closures for `== 'text'` and `in ['text', ...]`, which most guards are."""
    wanted = right.value
    # A text equals nothing but a text, so Python's own comparison is JSON's here.
    if isinstance(wanted, str) and sign == "eq":
        return lambda left: lambda scope: left(scope) == wanted
    if isinstance(wanted, str) and sign == "ne":
        return lambda left: lambda scope: left(scope) != wanted
    if (
        sign not in ("in", "notin")
        or not isinstance(wanted, list)
        or not all(isinstance(item, str) for item in wanted)
    ):
        return None
    among, inside = frozenset(item for item in wanted if isinstance(item, str)), sign == "in"

    def make(left: Run) -> Run:
        def run(scope: Scope) -> JSON:
            value = left(scope)
            return (isinstance(value, str) and value in among) is inside

        return run

    return make


_READERS: Mapping[type[nodes.Node], Callable[[Reader, Any], Part]] = {
    nodes.Add: _binary(operators.add),
    nodes.And: _and,
    nodes.Call: read_call,
    nodes.Compare: _compare,
    nodes.Concat: _concat,
    nodes.CondExpr: _choice,
    nodes.Const: _constant,
    nodes.Dict: _dict,
    nodes.Div: _binary(operators.divide),
    nodes.Filter: read_filter,
    nodes.FloorDiv: _binary(operators.floor_divide),
    nodes.Getattr: _attribute,
    nodes.Getitem: _item,
    nodes.List: _list,
    nodes.Mod: _binary(operators.modulo),
    nodes.Mul: _binary(operators.multiply),
    nodes.Name: _name,
    nodes.Neg: _unary(operators.negate),
    nodes.Not: _unary(lambda value: not value),
    nodes.Or: _or,
    nodes.Pos: _unary(operators.positive),
    nodes.Pow: _binary(operators.power),
    nodes.Sub: _binary(operators.subtract),
    nodes.Test: read_test,
    nodes.Tuple: _list,
}
