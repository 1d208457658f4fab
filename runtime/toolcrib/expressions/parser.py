"""Compile expressions with Jinja2's parser. Imported only if an expression needs a parser.

The syntax tree becomes closures, one per node. The table `_NODE_COMPILERS` is the allow-list: other node types are
refused. Precedence is Jinja2's: `**` is left-associative, a leading minus binds tighter than anything but `.` and
`[]`, and filters and tests bind tighter than operators.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar, cast

import jsonschema_rs
from jinja2 import Environment, TemplateSyntaxError, nodes
from jinja2.parser import Parser

from toolcrib.core.errors import ExpressionError, did_you_mean
from toolcrib.core.model import JSON
from toolcrib.expressions import operators
from toolcrib.expressions.compiler import (
    INSTEAD,
    NOT_ALLOWED,
    SPLIT,
    ExpressionCompiler,
    ExpressionPart,
    apply,
    check_definition_call,
    check_shape,
    combined,
    joined,
    known_function,
    literal,
)
from toolcrib.expressions.expression import STRING, check_escapes, member_part, root_part
from toolcrib.expressions.functions import FUNCTIONS
from toolcrib.expressions.operators import evaluate_arithmetic
from toolcrib.expressions.values import (
    Run,
    Scope,
    bounded_number,
    equal,
    kind,
    list_of_names,
    shortened,
    visit,
    visit_all,
)

_PATTERN_BYTES = 1 << 20


def _is_odd(name: str, value: JSON) -> bool:
    number = operators.whole_number(value)
    if number is not None:
        return number % 2 == 1
    raise ExpressionError(f"`is {name}` needs a whole number, not {kind(value)}")


def _is_arithmetic(value: JSON) -> bool:
    """Whether `arith` can evaluate a value; false for anything but a string."""
    if not isinstance(value, str):
        return False
    try:
        evaluate_arithmetic(value)
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
"""Tests without an argument. `in` and `matching` have one and are compiled in `read_test`."""

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
"""Tests of Jinja2 and other languages -> their replacement here."""


def read_filter(reader: ExpressionCompiler, node: nodes.Filter) -> ExpressionPart:
    """Compile `value | name(arguments)`."""
    # `node.node` is None only in a `filter` block, which is refused as a statement.
    return _call_of(reader, node.name, [cast("nodes.Expr", node.node), *node.args], node)


def read_call(reader: ExpressionCompiler, node: nodes.Call) -> ExpressionPart:
    """Compile `name(arguments)`."""
    # Python methods are never reachable: `''.__class__` and `.format()` are the usual template escapes.
    if isinstance(node.node, nodes.Getattr):
        name = node.node.attr
        if name in FUNCTIONS:
            hint = f"write `value | {name}`"
        else:
            hint = f"write {INSTEAD[name]}" if name in INSTEAD else did_you_mean(name, FUNCTIONS)
        raise ExpressionError(
            f"`.{name}()` cannot be called: values have no methods", code=NOT_ALLOWED, hint=hint
        )
    if not isinstance(node.node, nodes.Name):
        raise ExpressionError("only built-in functions can be called", code=NOT_ALLOWED)
    return _call_of(reader, node.node.name, node.args, node)


def _call_of(
    reader: ExpressionCompiler, name: str, places: list[nodes.Expr], node: nodes.Filter | nodes.Call
) -> ExpressionPart:
    definition = reader.definition(name)
    function = None if definition is not None else known_function(name, reader.functions)
    if node.dyn_args is not None or node.dyn_kwargs is not None:
        raise ExpressionError(f"`{name}`: `*` and `**` are not supported in calls", code=NOT_ALLOWED)
    fields = [str(pair.key) for pair in node.kwargs]
    # Before the arguments are compiled, so that a wrong call is reported rather than an error inside it.
    if definition is not None:
        check_definition_call(definition, len(places), fields)
    elif function is not None:
        check_shape(name, function, len(places), fields)
    parts = [reader.compile(place) for place in places] + [reader.compile(pair.value) for pair in node.kwargs]
    return apply(reader, name, parts, fields)


def read_test(reader: ExpressionCompiler, node: nodes.Test) -> ExpressionPart:
    """Compile `value is name(argument)`."""
    subject = reader.compile(node.node)
    arguments = [reader.compile(argument) for argument in node.args]
    if node.kwargs or node.dyn_args is not None or node.dyn_kwargs is not None:
        raise ExpressionError(f"`is {node.name}` accepts no named arguments", code=NOT_ALLOWED)
    wanted = 1 if node.name in ("in", "matching") else 0
    if node.name not in TESTS and not wanted:
        known = [*TESTS, "in", "matching"]
        instead = f"write {TESTS_INSTEAD[node.name]}" if node.name in TESTS_INSTEAD else ""
        hint = (
            instead
            or did_you_mean(node.name, known)
            or f"the tests are {list_of_names(sorted(known), len(known))}"
        )
        raise ExpressionError(f"unknown test `is {shortened(node.name)}`", code="unknown_function", hint=hint)
    if len(arguments) != wanted:
        raise ExpressionError(
            f"`is {node.name}` accepts {wanted or 'no'} argument{'' if wanted else 's'}, got {len(arguments)}",
            code="expression_syntax",
        )
    if node.name == "in":
        return combined(lambda one, two: compared(operators.member, one, two), subject, *arguments)
    test = _matching(arguments[0]) if wanted else TESTS[node.name]
    return combined(lambda inner: lambda scope: test(inner(scope)), subject)


_CONTAINERS = (dict, list)  # `dict | list` takes four times as long


def compared(compare: Callable[[JSON, JSON], bool], left: Run, right: Run) -> Run:
    """A comparison whose cost is counted against the step budget."""
    is_equality = compare is equal

    def run(scope: Scope) -> JSON:
        one, two = left(scope), right(scope)
        if is_equality and type(one) is str:  # the most common one
            return one == two
        if isinstance(two, _CONTAINERS):
            visit_compared(compare, scope, one, two)
        return compare(one, two)

    return run


def visit_compared(
    compare: Callable[[JSON, JSON], bool], scope: Scope, left: JSON, right: dict[str, JSON] | list[JSON]
) -> None:
    """Count the elements that a comparison with an object or list processes.

    Raises:
        ExpressionError: The budget is exceeded.
    """
    if isinstance(left, dict | list):
        visit_all(scope, right)
    elif isinstance(right, list) and compare in _AMONG:
        visit(scope, right)


_AMONG = (operators.member, operators.not_member)
"""Comparisons with every element of a list."""


def _matching(pattern: ExpressionPart) -> Callable[[JSON], bool]:
    """A test whether a whole string matches; false for anything but a string."""
    # jsonschema-rs runs patterns in linear time; with `re` an argument could take exponential time (ReDoS).
    # The pattern must be constant, so that it is compiled and checked once, at load.
    if not pattern.constant or not isinstance(pattern.value, str):
        hint = "write the pattern itself in quotes"
        raise ExpressionError(
            "the pattern of `matching` must be a constant string", code=NOT_ALLOWED, hint=hint
        )
    options = jsonschema_rs.RegexOptions(size_limit=_PATTERN_BYTES)
    validators = []
    # The bare pattern is compiled first: `a)|(b` is only valid inside the anchoring parentheses, and must be
    # refused.
    for text in (pattern.value, f"^(?:{pattern.value})$"):
        try:
            validators.append(
                jsonschema_rs.validator_for({"type": "string", "pattern": text}, pattern_options=options)
            )
        except ValueError:
            raise ExpressionError(
                f"`{shortened(pattern.value)}` is not a pattern that `matching` supports",
                code="expression_syntax",
                hint="use a regular expression without look-around and back-references",
            ) from None
    judge = validators[1].is_valid
    # `toolcrib validate` calls mocks with rows whose texts are of a subclass, which jsonschema-rs refuses.
    return lambda value: judge(str(value)) if isinstance(value, str) else judge(value)


def reader_for(names: Collection[str], place: str = "") -> ExpressionCompiler:
    """A compiler for one expression or template with these root names; `place` as in `ExpressionCompiler`."""
    return ExpressionCompiler(names, _NODE_COMPILERS, place)


def _written(node: nodes.Node) -> str:
    """A node as messages quote it."""
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


def _constant(_reader: ExpressionCompiler, node: nodes.Const) -> ExpressionPart:
    value: object = node.value
    if isinstance(value, int | float):
        return literal(bounded_number(value) if not isinstance(value, bool) else value)
    # A lone surrogate cannot be encoded as UTF-8, so the result could not be sent anywhere.
    if isinstance(value, str) and not value.isascii() and any("\ud800" <= mark <= "\udfff" for mark in value):
        raise ExpressionError(
            "a string contains half a surrogate pair", hint="write the character itself, or `\\U0001f600`"
        )
    return literal(node.value)


def _name(reader: ExpressionCompiler, node: nodes.Name) -> ExpressionPart:
    definition = reader.definition(node.name)
    if definition is None or not definition.is_value:
        return root_part(reader, node.name)
    reader.used |= definition.names
    return definition.value()


def _hidden_key_part(reader: ExpressionCompiler, owner: nodes.Node, key: object) -> ExpressionPart | None:
    """A key of a root that the scope provides under a hidden name; None for anything else."""
    if not isinstance(owner, nodes.Name) or not isinstance(key, str):
        return None
    name = reader.hidden_name(owner.name, key)
    return root_part(reader, name) if name else None


def _attribute(reader: ExpressionCompiler, node: nodes.Getattr) -> ExpressionPart:
    part = _hidden_key_part(reader, node.node, node.attr)
    if part is not None:
        return part
    owner = reader.compile(node.node)
    if owner.path:
        return member_part(reader, owner, node.attr)
    name, place = node.attr, _written(node.node)
    keys = reader.key(owner, name)
    part = combined(lambda inner: lambda scope: operators.attribute(inner(scope), name, place), owner)
    return part._replace(keys=keys)


def _item(reader: ExpressionCompiler, node: nodes.Getitem) -> ExpressionPart:
    part = _hidden_key_part(reader, node.node, node.arg.value) if isinstance(node.arg, nodes.Const) else None
    if part is not None:
        return part
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
    if key.constant and isinstance(key.value, str):
        name = key.value
        part = combined(lambda inner: _member(inner, name, place), owner)
    else:
        part = combined(lambda inner, at: _element(inner, at, place), owner, key)
    return part._replace(keys=keys)


def _element(inner: Run, at: Run, place: str) -> Run:
    """The element under a computed key or index; see `operators.index`."""

    def run(scope: Scope) -> JSON:
        value, key = inner(scope), at(scope)
        if type(value) is dict and type(key) is str:
            return value.get(key)
        return operators.index(value, key, place)

    return run


def _member(inner: Run, name: str, place: str) -> Run:
    """The value under a constant key; see `operators.index`."""

    def run(scope: Scope) -> JSON:
        value = inner(scope)
        return value.get(name) if type(value) is dict else operators.index(value, name, place)

    return run


def _list(reader: ExpressionCompiler, node: nodes.List | nodes.Tuple) -> ExpressionPart:
    parts = [reader.compile(item) for item in node.items]
    return combined(lambda *runs: lambda scope: [run(scope) for run in runs], *parts)


def _dict(reader: ExpressionCompiler, node: nodes.Dict) -> ExpressionPart:
    keys = [reader.compile(pair.key) for pair in node.items]
    values = [reader.compile(pair.value) for pair in node.items]
    names = [key.value for key in keys if key.constant and isinstance(key.value, str)]
    if len(names) == len(keys):
        return combined(partial(_object, names), *values)

    def make(*runs: Run) -> Run:
        pairs = list(zip(runs[: len(keys)], runs[len(keys) :], strict=True))
        return lambda scope: {_key(key(scope)): value(scope) for key, value in pairs}

    return combined(make, *keys, *values)


def _object(names: Sequence[str], *runs: Run) -> Run:
    """An object with constant keys."""
    pairs = list(zip(names, runs, strict=True))
    return lambda scope: {name: run(scope) for name, run in pairs}


def _key(value: JSON) -> str:
    if isinstance(value, str):
        return value
    raise ExpressionError(
        f"the key of an object must be a string, not {kind(value)}", hint="put a literal key in quotes"
    )


# Operators.


def _binary(operate: operators.Binary) -> Callable[[ExpressionCompiler, nodes.BinExpr], ExpressionPart]:
    def read(reader: ExpressionCompiler, node: nodes.BinExpr) -> ExpressionPart:
        left, right = reader.compile(node.left), reader.compile(node.right)
        if left.constant is not right.constant:
            part = _half_constant(operate, left, right)
            if part is not None:
                return part
        return combined(lambda one, two: lambda scope: operate(one(scope), two(scope)), left, right)

    return read


def _half_constant(
    operate: operators.Binary, left: ExpressionPart, right: ExpressionPart
) -> ExpressionPart | None:
    """An operation with a constant string or number on one side; None for other constants."""
    # Saves one call per evaluation. Constant lists and objects are excluded, since they must be built anew
    # each time.
    value = left.value if left.constant else right.value
    if not isinstance(value, str | int | float):
        return None
    if left.constant:
        compute = right.run
        return ExpressionPart(lambda scope: operate(value, compute(scope)))
    compute = left.run
    return ExpressionPart(lambda scope: operate(compute(scope), value))


def _unary(
    operate: Callable[[JSON], JSON],
) -> Callable[[ExpressionCompiler, nodes.UnaryExpr], ExpressionPart]:
    def read(reader: ExpressionCompiler, node: nodes.UnaryExpr) -> ExpressionPart:
        return combined(lambda inner: lambda scope: operate(inner(scope)), reader.compile(node.node))

    return read


def _and(reader: ExpressionCompiler, node: nodes.And) -> ExpressionPart:
    left, right = reader.compile(node.left), reader.compile(node.right)
    return combined(lambda one, two: lambda scope: one(scope) and two(scope), left, right)


def _or(reader: ExpressionCompiler, node: nodes.Or) -> ExpressionPart:
    left, right = reader.compile(node.left), reader.compile(node.right)
    return combined(lambda one, two: lambda scope: one(scope) or two(scope), left, right)


def _choice(reader: ExpressionCompiler, node: nodes.CondExpr) -> ExpressionPart:
    # Jinja2 would return an undefined value, which JSON does not have.
    if node.expr2 is None:
        hint = "add `else none` or `else ''`"
        raise ExpressionError("`if` without `else` in an expression", code="expression_syntax", hint=hint)
    parts = [reader.compile(part) for part in (node.test, node.expr1, node.expr2)]
    return combined(lambda test, yes, no: lambda scope: yes(scope) if test(scope) else no(scope), *parts)


def _concat(reader: ExpressionCompiler, node: nodes.Concat) -> ExpressionPart:
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


def _compare(reader: ExpressionCompiler, node: nodes.Compare) -> ExpressionPart:
    first = reader.compile(node.expr)
    others = [reader.compile(operand.expr) for operand in node.ops]
    comparisons = [_COMPARISONS[operand.op] for operand in node.ops]
    if len(others) > 1:
        return combined(lambda *runs: _chain(runs, comparisons), first, *others)
    short = _short_comparison(node.ops[0].op, others[0])
    if short is not None and not first.constant:
        return ExpressionPart(short(first.run))
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


def _short_comparison(sign: str, right: ExpressionPart) -> Callable[[Run], Run] | None:
    """Faster closures for `== 'text'` and `in ['text', ...]`, the most common guards; None for anything else."""
    wanted = right.value
    # A string equals only a string, so Python's comparison has the semantics of JSON here.
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


_NODE_COMPILERS: Mapping[type[nodes.Node], Callable[[ExpressionCompiler, Any], ExpressionPart]] = {
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


T = TypeVar("T")

MOST_SOURCE = 16 * 1024
"""Maximum number of characters in one expression or template."""

# Only the lexer and the parser of Jinja2 are used. It never compiles a template to Python or runs one, so its
# sandbox and its history of escapes do not matter here.
ENVIRONMENT = Environment(keep_trailing_newline=True, autoescape=False)  # noqa: S701 -- it renders nothing


def compile_parsed(
    source: str, names: Collection[str], place: str = ""
) -> tuple[ExpressionPart, frozenset[str]]:
    """Compile an expression with the parser; see `compile_node`."""
    reader = reader_for(names, place)
    part = reader.compile(parsed(lambda: _parse_body(source), source))
    return part, frozenset(reader.used)


def parsed(parse: Callable[[], T], source: str, *, template: bool = False) -> T:
    """Run Jinja2's parser and translate its errors.

    Args:
        parse: Calls the parser.
        source: The source that it reads.
        template: Whether the source is a template, whose errors name the line.

    Raises:
        ExpressionError: `expression_syntax` or `expression_too_large`.
    """
    if len(source) > MOST_SOURCE:
        raise ExpressionError(
            f"the source has {len(source):,} characters; at most {MOST_SOURCE:,} are allowed",
            code="expression_too_large",
            hint=SPLIT,
        )
    if any("\ud800" <= mark <= "\udfff" for mark in source):
        raise ExpressionError("the source contains half a surrogate pair", code="expression_syntax")
    try:
        return parse()
    except TemplateSyntaxError as error:
        message = error.message or "cannot be parsed"
        told = f"line {error.lineno}: {message}" if template else f"{message} in {_quoted(source)}"
        raise ExpressionError(told, code="expression_syntax") from None
    except RecursionError:
        raise ExpressionError("the source is nested too deeply", code="expression_too_large") from None
    except (ValueError, SyntaxError):
        # The lexer passes numbers to int() and ast.literal_eval(), which refuse too many digits and other
        # scripts' digits.
        raise ExpressionError(f"invalid number in {_quoted(source)}", code="expression_syntax") from None


def _quoted(source: str) -> str:
    return f"`{shortened(' '.join(source.split()))}`"


def _parse_body(source: str) -> nodes.Expr:
    if not source.strip():
        raise ExpressionError("the expression between the braces is empty", code="expression_syntax")
    for quoted in STRING.finditer(source):
        check_escapes(quoted.group())
    # `parse_expression` stops at the end of the first expression; anything left over is an error.
    parser = Parser(ENVIRONMENT, source, state="variable")
    node = parser.parse_expression()
    if not parser.stream.eos:
        parser.fail(f"unexpected `{parser.stream.current.value}`")
    return node
