"""Expressions: finds them in a text, between `{{` and `}}`, and compiles them.

Jinja2's lexer does not look for the braces: it trims blanks at `{{-`, which turns `{{-x}}` into `x`, and it rewrites
line ends, which are data here. The commonest expressions, `args.city` and `args.city | upper`, are compiled here
without a parser: Jinja2's lexer and parser take a hundred times as long, and longer still to be imported.

`escape_expressions` escapes values so that nothing in them is read as an expression.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any, Final, NamedTuple, TypeAlias

from toolcrib.core.errors import ExpressionError
from toolcrib.core.model import JSON
from toolcrib.expressions import operators
from toolcrib.expressions.compiler import (
    ExpressionCompiler,
    ExpressionPart,
    apply,
    check_shape,
    known_function,
)
from toolcrib.expressions.values import Run, Scope, shortened

STRING = re.compile(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"", re.DOTALL)
"""A text in quotes, as Jinja2 reads it."""

_MARK = re.compile(rf"{STRING.pattern}|[()\[\]{{}}]", re.DOTALL)
_OPENER = re.compile(r"\{[{%#]")
_ESCAPE = re.compile(r"\\(?:([\\'\"nrtbfav]|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8})|(.))", re.DOTALL)


class ExpressionBody(NamedTuple):
    """What stands between `{{` and `}}`."""

    source: str


Piece: TypeAlias = "str | ExpressionBody"


def split(text: str) -> list[Piece]:
    """A text as literal pieces and expressions, in order; no literal piece is empty.

    Raises:
        ExpressionError: `expression_not_allowed` for `{%`, `{#`, `{{-` and `-}}`;
            `expression_syntax` for a `{{` that is not closed.
    """
    pieces: list[Piece] = []
    place = 0
    while (opener := _OPENER.search(text, place)) is not None:
        if opener.start() > place:
            pieces.append(text[place : opener.start()])
        end = _end_of_body(text, opener.start())
        pieces.append(_body(text[opener.end() : end]))
        place = end + 2
    if place < len(text) or not pieces:
        pieces.append(text[place:])
    return pieces


def _end_of_body(text: str, start: int) -> int:
    _refuse_others(text, start)
    place, depth = start + 2, 0
    while (mark := _MARK.search(text, place)) is not None:
        if depth == 0 and text.startswith("}}", mark.start()):
            return mark.start()
        if mark.group() in ("(", "[", "{"):
            depth += 1
        elif mark.group() in (")", "]", "}"):
            depth -= 1
        place = mark.end()
    shown = shortened(text[start:])
    if "}}" in text[start:]:
        raise ExpressionError(f"unbalanced brackets or quotes in `{shown}`", code="expression_syntax")
    raise ExpressionError(
        f"unclosed `{{{{` in `{shown}`",
        code="expression_syntax",
        hint="close it with `}}`, or " + _LITERAL,
    )


_LITERAL = "write literal braces as `{{ '{{' }}`"


def _refuse_others(text: str, start: int) -> None:
    if text.startswith("{%", start):
        what, hint = (
            "statements (`{%`) work only in `template` and `template_file`",
            "use `{{ ... }}` or a `template`",
        )
    elif text.startswith("{#", start):
        what, hint = (
            "comments (`{#`) work only in `template` and `template_file`",
            "write `{{ '{#' }}` for a literal `{#`",
        )
    elif text.startswith("{{-", start):
        what, hint = "`{{-` is whitespace control, not a minus sign", "put a space in between: `{{ -x }}`"
    else:
        return
    raise ExpressionError(f"{what}: `{shortened(text[start:])}`", code="expression_not_allowed", hint=hint)


def _body(source: str) -> ExpressionBody:
    if source.endswith("-"):
        raise ExpressionError(
            f"`-}}}}` is whitespace control: `{{{{{shortened(source)}}}}}`",
            code="expression_not_allowed",
            hint="remove the minus sign",
        )
    return ExpressionBody(source)


def check_escapes(literal: str) -> None:
    r"""Refuse what Jinja2 would read with a warning today and not at all tomorrow: `'\d'`.

    Raises:
        ExpressionError: `expression_syntax`.
    """
    for match in _ESCAPE.finditer(literal):
        if match.group(2) is not None:
            raise ExpressionError(
                f"unknown escape `{match.group()}` in {shortened(literal)}",
                code="expression_syntax",
                hint="write a literal backslash as `\\\\`",
            )


_SIGNS = re.compile(r"[{%#$]{2,}")
_OPENERS = ("{{", "{%", "{#", "${")


def escape_expressions(value: JSON) -> JSON:
    """A value whose texts mean only themselves: what looks like an expression is quoted."""
    if isinstance(value, str):
        return _SIGNS.sub(_quoted, value)
    if isinstance(value, list):
        return [escape_expressions(item) for item in value]
    if isinstance(value, dict):
        return {key: escape_expressions(item) for key, item in value.items()}
    return value


def _quoted(signs: re.Match[str]) -> str:
    """A run of signs as a literal where it would open something; whole, so that no rest of it opens either."""
    run = signs[0]
    parts = run.replace("${", "$' ~ '{")
    return f"{{{{ '{parts}' }}}}" if any(opener in run for opener in _OPENERS) else run


_NAME: Final = r"[A-Za-z_][A-Za-z0-9_]*"
_PATH: Final = re.compile(rf"\s*({_NAME}(?:\.{_NAME})*)\s*((?:\|\s*{_NAME}\s*)*)")
RESERVED: Final = frozenset(
    ["True", "False", "None", "true", "false", "none", "and", "or", "not", "if", "else", "in", "is"]
)
"""Names that may mean something else to the parser, at whatever place."""

_MOST: Final = 32
"""Names of an expression that is read here; what is nested deeper is measured by the parser."""


def read_path(source: str) -> tuple[list[str], list[str]] | None:
    """The names of a path, and those of the functions behind it, which have no arguments.

    Returns:
        Both in their order; None where a parser is needed.
    """
    match = _PATH.fullmatch(source)
    if match is None:
        return None
    path, behind = match.groups()
    names, functions = path.split("."), [name.strip() for name in behind.split("|")[1:]]
    if len(names) + len(functions) > _MOST or not RESERVED.isdisjoint((*names, *functions)):
        return None
    return names, functions


def compile_path(names: list[str], functions: list[str], reader: ExpressionCompiler) -> ExpressionPart:
    """Compile what `read_path` has read.

    Raises:
        ExpressionError: A name, key or function is not known.
    """
    for function in reversed(functions):  # faults are told as of a tree, from its top
        check_shape(function, known_function(function), 1, ())
    hidden = reader.hidden_name(names[0], names[1]) if len(names) > 1 else ""
    part = root_part(reader, hidden or names[0])
    for name in names[2 if hidden else 1 :]:
        part = member_part(reader, part, name)
    for function in functions:
        part = apply(reader, function, [part])
    return part


def root_part(reader: ExpressionCompiler, name: str) -> ExpressionPart:
    """A name that is read from the scope."""
    reader.name(name)

    def run(scope: Scope) -> JSON:
        try:
            return scope[name]
        except KeyError:
            return _read_name(scope, name)

    return ExpressionPart(run, path=(name,), keys=reader.keys(name))


def member_part(reader: ExpressionCompiler, owner: ExpressionPart, name: str) -> ExpressionPart:
    """A key of what a path reads."""
    keys = reader.key(owner, name)
    path = (*owner.path, name)
    return ExpressionPart(_path_run(path), path=path, keys=keys)


def _read_name(scope: Scope, name: str) -> JSON:
    """The value of a root name that was known when the expression was compiled."""
    try:
        return scope[name]
    except KeyError:
        raise ExpressionError(f"`{name}` has no value here", code="unknown_name") from None


def _path_run(path: tuple[str, ...]) -> Run:
    """A root and the names behind it: the commonest expression, so the shortest way."""

    def step_by_step(scope: Scope) -> JSON:
        value = _read_name(scope, path[0])
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


_PATH_SOURCE = 256
"""Characters up to which an expression may be a path that needs no parser."""


class Expression(NamedTuple):
    """A compiled expression.

    Attributes:
        source: What was written between the braces.
        names: The root names that it reads from the scope.
        run: Its closure.
    """

    source: str
    names: frozenset[str]
    run: Run

    def evaluate(self, scope: Scope) -> JSON:
        """The value of the expression. What was read from the scope is handed on, not copied.

        Raises:
            ExpressionError: `missing_key`, or `expression_failed` for everything else that can go wrong.
        """
        try:
            return self.run(scope)
        except RecursionError:
            raise too_deep() from None


def too_deep() -> ExpressionError:
    """The error of values that are nested deeper than Python can follow."""
    return ExpressionError("the values are nested too deeply")


def is_expression(text: str) -> bool:
    """Whether a text holds an expression."""
    return "{{" in text


def compile_expression(source: str, names: Collection[str], place: str = "") -> Expression:
    """Compile an expression that is written without its braces.

    Args:
        source: The expression.
        names: The root names that it may read.
        place: Where it stands in its document; functions that draw give other values at another place.

    Raises:
        ExpressionError: `expression_syntax`, `unknown_name`, `unknown_function`,
            `expression_not_allowed`, `expression_too_large`; or a constant part that fails.
    """
    part, used = compile_node(source, names, place)
    return Expression(source.strip(), used, part.run)


def compile_node(
    source: str, names: Collection[str], place: str = ""
) -> tuple[ExpressionPart, frozenset[str]]:
    """Compile an expression.

    Returns:
        It, and the names that it reads.

    Raises:
        ExpressionError: As `compile_expression`.
    """
    path = read_path(source) if len(source) <= _PATH_SOURCE else None
    if path is not None:
        reader = ExpressionCompiler(names, place=place)
        return compile_path(*path, reader), frozenset(reader.used)
    from toolcrib.expressions.parser import compile_parsed  # noqa: PLC0415 -- slow, and most mocks read paths only

    return compile_parsed(source, names, place)


def compile_condition(source: str, names: Collection[str], place: str = "") -> Expression:
    """Compile what must be one whole expression with its braces: the `if` of a rule.

    Blanks around the braces are allowed; `place` as in `compile_expression`.

    Raises:
        ExpressionError: As `compile_expression`; and `expression_syntax` for anything but one
            whole expression.
    """
    text = source.strip()
    if not is_expression(text):
        hint = f'write `"{{{{ {shortened(text) or "..."} }}}}"`'
        raise ExpressionError(
            f"`{shortened(text)}` is a string, not an expression", code="expression_syntax", hint=hint
        )
    pieces = split(text)
    if len(pieces) == 1 and isinstance(pieces[0], ExpressionBody):
        return compile_expression(pieces[0].source, names, place)
    raise ExpressionError(
        f"`{shortened(text)}` is not a single expression",
        code="expression_syntax",
        hint="put everything inside one pair of braces",
    )
