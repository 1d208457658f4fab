"""From Jinja2's syntax tree to closures: one small function for each node, built once.

The table at the end is the allow-list: a kind of node that is not in it is refused, so what an
expression can do is what stands in this file. Precedence is Jinja2's: `**` groups from the left, a
leading minus binds tighter than anything but `.` and `[]`, filters and tests tighter than operators.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple

import jsonschema_rs
from jinja2 import nodes

from toolcrib.errors import ExpressionError, did_you_mean
from toolcrib.model import JSON, NOTHING
from toolcrib.rendering import operators
from toolcrib.rendering.functions import FUNCTIONS, INSTEAD, TESTS, TESTS_INSTEAD, Function
from toolcrib.rendering.values import (
    Run,
    Scope,
    as_text,
    bounded_number,
    bounded_text,
    equal,
    kind,
    list_of_names,
    shortened,
)

MOST_NODES = 2_000
"""Nodes of the syntax tree of one expression or template."""

MOST_NESTING = 64
"""Levels of the syntax tree of one expression."""

_PATTERN_BYTES = 1 << 20


class Part(NamedTuple):
    """A compiled node.

    Attributes:
        run: Its closure.
        constant: Whether it reads nothing from the scope.
        value: What it is, if it is constant.
        path: The root and the names behind it, where it is nothing but those: `args.city`.
    """

    run: Run
    constant: bool = False
    value: JSON = None
    path: tuple[str, ...] = ()


def always(value: JSON) -> Run:
    """A closure that gives one value, the same object each time."""
    return lambda _scope: value


def _literal(value: JSON) -> Part:
    return Part(always(value), constant=True, value=value)


def combined(make: Callable[..., Run], *parts: Part) -> Part:
    """A part made of others; worked out now if all of them are constant, so that its faults show now.

    Constant texts and numbers are kept; lists and objects are built anew at each evaluation.
    """
    run = make(*(part.run for part in parts))
    if not all(part.constant for part in parts):
        return Part(run)
    value = make(*(always(part.value) for part in parts))(NOTHING)
    if isinstance(value, list | dict):
        return Part(run, constant=True, value=value)
    return _literal(value)


class Reader:
    """Compiles nodes and keeps count of what they read.

    Attributes:
        used: The root names that were read, without those of loops.
    """

    def __init__(self, names: Collection[str]) -> None:
        self.used: set[str] = set()
        self._names = names
        self._local: frozenset[str] = frozenset()
        self._count = 0
        self._depth = 0

    def compile(self, node: nodes.Node) -> Part:
        """The closure of an expression's node.

        Raises:
            ExpressionError: A kind of node that is not allowed, an unknown name or function, a
                constant part that fails, too many nodes or levels.
        """
        reader = _READERS.get(type(node))
        if reader is None:
            raise ExpressionError(f"`{type(node).__name__}` can't be used in an expression", code=_REFUSED)
        with self.level():
            return reader(self, node)

    @contextmanager
    def level(self) -> Iterator[None]:
        """One node deeper."""
        self._count += 1
        self._depth += 1
        if self._count > MOST_NODES:
            raise ExpressionError(f"more than {MOST_NODES:,} operations", code=_TOO_LARGE, hint=_SPLIT)
        if self._depth > MOST_NESTING:
            raise ExpressionError(f"nested deeper than {MOST_NESTING} levels", code=_TOO_LARGE, hint=_SPLIT)
        yield
        self._depth -= 1

    @contextmanager
    def naming(self, names: Collection[str]) -> Iterator[None]:
        """The names that a loop gives to its body."""
        outer, self._local = self._local, self._local | frozenset(names)
        yield
        self._local = outer

    def name(self, name: str) -> str:
        """Note that a root name is read.

        Raises:
            ExpressionError: `unknown_name`.
        """
        if name in self._local:
            return name
        if name in self._names:
            self.used.add(name)
            return name
        known = sorted({*self._names, *self._local})
        there = f"the names here are {list_of_names(known, 20)}" if known else "there are no names here"
        if name in FUNCTIONS:
            hint = f"`{name}` is a function: write it behind a bar, `value | {name}`, or call it, `{name}(value)`"
        else:
            hint = did_you_mean(name, known) or f"a text is written in quotes: `'{name}'`"
        raise ExpressionError(f"`{name}` is not known: {there}", code="unknown_name", hint=hint)


_REFUSED = "expression_not_allowed"
_TOO_LARGE = "expression_too_large"
_SPLIT = "name its pieces in `let`, or compute less in one place"


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
        return _literal(bounded_number(value) if not isinstance(value, bool) else value)
    if isinstance(value, str) and not value.isascii() and any("\ud800" <= mark <= "\udfff" for mark in value):
        raise ExpressionError(
            "a text holds half a surrogate pair", hint="write the character itself, or `\\U0001f600`"
        )
    return _literal(node.value)


def read_name(scope: Scope, name: str) -> JSON:
    """The value of a root name that was known when the expression was compiled."""
    try:
        return scope[name]
    except KeyError:
        raise ExpressionError(f"`{name}` has no value here", code="unknown_name") from None


def _name(reader: Reader, node: nodes.Name) -> Part:
    name = reader.name(node.name)

    def run(scope: Scope) -> JSON:
        try:
            return scope[name]
        except KeyError:
            return read_name(scope, name)

    return Part(run, path=(name,))


def _attribute(reader: Reader, node: nodes.Getattr) -> Part:
    owner = reader.compile(node.node)
    if owner.path:
        path = (*owner.path, node.attr)
        return Part(_path_run(path), path=path)
    name, place = node.attr, _written(node.node)
    return combined(lambda inner: lambda scope: operators.attribute(inner(scope), name, place), owner)


def _path_run(path: tuple[str, ...]) -> Run:
    """A root and the names behind it: the commonest expression, so the shortest way."""

    def step_by_step(scope: Scope) -> JSON:
        value = read_name(scope, path[0])
        for place, name in enumerate(path[1:], start=1):
            value = operators.attribute(value, name, f"`{'.'.join(path[:place])}`")
        return value

    if len(path) == 2:
        return _two_steps(path[0], path[1], step_by_step)
    root, names = path[0], path[1:]

    def run(scope: Scope) -> JSON:
        try:
            value: Any = scope[root]
            for name in names:
                value = value[name]
        except (KeyError, TypeError):
            return step_by_step(scope)
        return value  # type: ignore[no-any-return]

    return run


def _two_steps(root: str, name: str, step_by_step: Run) -> Run:
    def run(scope: Scope) -> JSON:
        try:
            # Only an object takes a text in brackets; the slow way finds the words for all else.
            return scope[root][name]  # type: ignore[index, call-overload]
        except (KeyError, TypeError):
            return step_by_step(scope)

    return run


def _item(reader: Reader, node: nodes.Getitem) -> Part:
    owner, place = reader.compile(node.node), _written(node.node)
    if isinstance(node.arg, nodes.Slice):
        bounds = [
            reader.compile(bound or nodes.Const(None))
            for bound in (node.arg.start, node.arg.stop, node.arg.step)
        ]
        return combined(
            lambda inner, start, stop, step: (
                lambda scope: operators.piece(inner(scope), start(scope), stop(scope), step(scope), place)
            ),
            owner,
            *bounds,
        )
    key = reader.compile(node.arg)
    return combined(
        lambda inner, at: lambda scope: operators.index(inner(scope), at(scope), place), owner, key
    )


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
        return combined(lambda one, two: lambda scope: operate(one(scope), two(scope)), left, right)

    return read


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


def joined(parts: list[Part]) -> Part:
    """The parts as one text."""

    def make(*runs: Run) -> Run:
        return lambda scope: bounded_text("".join([as_text(run(scope)) for run in runs]))

    return combined(make, *parts)


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
    return combined(lambda one, two: lambda scope: compare(one(scope), two(scope)), first, others[0])


def _chain(runs: tuple[Run, ...], comparisons: list[Callable[[JSON, JSON], bool]]) -> Run:
    def run(scope: Scope) -> JSON:
        left = runs[0](scope)
        for compare, right_run in zip(comparisons, runs[1:], strict=True):
            right = right_run(scope)
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


# Functions and tests.


def _filter(reader: Reader, node: nodes.Filter) -> Part:
    if node.node is None:
        raise ExpressionError("a filter needs a value before its bar", code="expression_syntax")
    return _call_of(reader, node.name, [node.node, *node.args], node)


def _call(reader: Reader, node: nodes.Call) -> Part:
    if isinstance(node.node, nodes.Getattr):
        name = node.node.attr
        hint = f"write `value | {name}`" if name in FUNCTIONS else did_you_mean(name, FUNCTIONS)
        raise ExpressionError(
            f"`.{name}()` can't be called: values have no methods", code=_REFUSED, hint=hint
        )
    if not isinstance(node.node, nodes.Name):
        raise ExpressionError("only the listed functions can be called", code=_REFUSED)
    return _call_of(reader, node.node.name, node.args, node)


def _call_of(reader: Reader, name: str, places: list[nodes.Expr], node: nodes.Filter | nodes.Call) -> Part:
    function = _known_function(name)
    if node.dyn_args is not None or node.dyn_kwargs is not None:
        raise ExpressionError(f"`{name}`: `*` and `**` can't be used in calls", code=_REFUSED)
    fields = [str(pair.key) for pair in node.kwargs]
    _check_shape(name, function, len(places), fields)
    parts = [reader.compile(place) for place in places] + [reader.compile(pair.value) for pair in node.kwargs]
    return combined(lambda *runs: _applied(function.run, runs, fields), *parts)


def _known_function(name: str) -> Function:
    if name in FUNCTIONS:
        return FUNCTIONS[name]
    if name in INSTEAD:
        hint = f"write {INSTEAD[name]}"
    else:
        hint = (
            did_you_mean(name, FUNCTIONS)
            or f"the functions are {list_of_names(sorted(FUNCTIONS), len(FUNCTIONS))}"
        )
    raise ExpressionError(f"there is no function `{shortened(name)}`", code="unknown_function", hint=hint)


def _check_shape(name: str, function: Function, given: int, fields: list[str]) -> None:
    if len(set(fields)) < len(fields):
        raise ExpressionError(f"`{name}` got a named argument twice", code="expression_syntax")
    if fields and function.fields == "no":
        raise ExpressionError(
            f"`{name}` takes no named arguments, and got {list_of_names(fields)}", code="expression_syntax"
        )
    if not fields and function.fields == "must":
        hint = f"as in `list | {name}(field=value)`"
        raise ExpressionError(f"`{name}` needs a field and its value", code="expression_syntax", hint=hint)
    least, most = function.least, function.most
    if function.fields == "either":
        least = most = 1 if fields else 2
    if given < least or (most is not None and given > most):
        wanted = f"{least}" if most == least else f"{least} or more" if most is None else f"{least} to {most}"
        raise ExpressionError(
            f"`{name}` takes {wanted} values, the one before the bar included, not {given}",
            code="expression_syntax",
            hint=function.summary,
        )


def _applied(run: Callable[..., JSON], runs: tuple[Run, ...], fields: list[str]) -> Run:
    if fields:
        places, named = runs[: -len(fields)], list(zip(fields, runs[-len(fields) :], strict=True))
        return lambda scope: run(
            *[place(scope) for place in places], **{name: value(scope) for name, value in named}
        )
    if len(runs) == 1:
        (only,) = runs
        return lambda scope: run(only(scope))
    return lambda scope: run(*[place(scope) for place in runs])


def _test(reader: Reader, node: nodes.Test) -> Part:
    subject = reader.compile(node.node)
    arguments = [reader.compile(argument) for argument in node.args]
    if node.kwargs or node.dyn_args is not None or node.dyn_kwargs is not None:
        raise ExpressionError(f"`is {node.name}` takes no named arguments", code=_REFUSED)
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
        return combined(
            lambda one, two: lambda scope: operators.member(one(scope), two(scope)), subject, *arguments
        )
    test = _matching(arguments[0]) if wanted else TESTS[node.name]
    return combined(lambda inner: lambda scope: test(inner(scope)), subject)


def _matching(pattern: Part) -> Callable[[JSON], bool]:
    """Whether the whole of a text matches; false of anything but a text. Takes time linear in the text."""
    if not pattern.constant or not isinstance(pattern.value, str):
        hint = "write the pattern itself, in quotes"
        raise ExpressionError("the pattern of `matching` must be a constant text", code=_REFUSED, hint=hint)
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


_READERS: Mapping[type[nodes.Node], Callable[[Reader, Any], Part]] = {
    nodes.Add: _binary(operators.add),
    nodes.And: _and,
    nodes.Call: _call,
    nodes.Compare: _compare,
    nodes.Concat: _concat,
    nodes.CondExpr: _choice,
    nodes.Const: _constant,
    nodes.Dict: _dict,
    nodes.Div: _binary(operators.divide),
    nodes.Filter: _filter,
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
    nodes.Test: _test,
    nodes.Tuple: _list,
}
