"""Find expressions between `{{` and `}}` in a text, and compile them.

`escape_expressions` escapes values so that nothing in them is parsed as an expression.
"""

# Jinja2's lexer is not used to find the braces: it trims whitespace at `{{-`, which turns `{{-x}}` into `x`,
# and it normalises line ends, which are data here. The most common expressions, `args.city` and `args.city |
# upper`, are compiled without a parser: Jinja2's takes a hundred times as long, and longer still to import.

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
"""A quoted string, as Jinja2 reads it."""

_MARK = re.compile(rf"{STRING.pattern}|[()\[\]{{}}]", re.DOTALL)
_OPENER = re.compile(r"\{[{%#]")
_ESCAPE = re.compile(r"\\(?:([\\'\"nrtbfav]|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8})|(.))", re.DOTALL)


class ExpressionBody(NamedTuple):
    """The source between `{{` and `}}`."""

    source: str


Piece: TypeAlias = "str | ExpressionBody"


def split(text: str) -> list[Piece]:
    """Split a text into literal pieces and expressions, in order; literal pieces are not empty.

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
    # Brackets and quotes are tracked because `}}` also ends a nested object, `{{ {'a': {'b': 1}} }}`, or may
    # be data.
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
    r"""Refuse unknown escapes such as `'\d'`.

    Raises:
        ExpressionError: `expression_syntax`.
    """
    # Jinja2 decodes literals with Python's unicode-escape codec, which accepts these with a warning and will
    # refuse them in a future version.
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
    """Escape a value: everything in its strings that looks like an expression becomes a literal."""
    if isinstance(value, str):
        return _SIGNS.sub(_quoted, value)
    if isinstance(value, list):
        return [escape_expressions(item) for item in value]
    if isinstance(value, dict):
        return {key: escape_expressions(item) for key, item in value.items()}
    return value


def _quoted(signs: re.Match[str]) -> str:
    """A run of `{`, `%`, `#` and `$` as a quoted literal if it contains an opener."""
    # The whole run is quoted: what is left of `{{{` after quoting two braces could open an expression again.
    run = signs[0]
    parts = run.replace("${", "$' ~ '{")
    return f"{{{{ '{parts}' }}}}" if any(opener in run for opener in _OPENERS) else run


_NAME: Final = r"[A-Za-z_][A-Za-z0-9_]*"
_PATH: Final = re.compile(rf"\s*({_NAME}(?:\.{_NAME})*)\s*((?:\|\s*{_NAME}\s*)*)")
RESERVED: Final = frozenset(
    ["True", "False", "None", "true", "false", "none", "and", "or", "not", "if", "else", "in", "is"]
)
"""Names that the parser treats as keywords or constants."""

_MOST: Final = 32
"""Maximum number of names in a path that is compiled without the parser, which checks the depth of longer ones."""


def read_path(source: str) -> tuple[list[str], list[str]] | None:
    """Read a plain path with filters that have no arguments, such as `args.city | upper`.

    Returns:
        The names of the path and of the functions, in order; None if a parser is needed.
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
    """Compile the result of `read_path`.

    Raises:
        ExpressionError: Unknown name, key or function.
    """
    # Reversed, to report the same error first as the parser's tree, whose root is the last filter.
    for function in reversed(functions):
        check_shape(function, known_function(function, reader.functions), 1, ())
    hidden = reader.hidden_name(names[0], names[1]) if len(names) > 1 else ""
    part = root_part(reader, hidden or names[0])
    for name in names[2 if hidden else 1 :]:
        part = member_part(reader, part, name)
    for function in functions:
        part = apply(reader, function, [part])
    return part


def root_part(reader: ExpressionCompiler, name: str) -> ExpressionPart:
    """A root name of the scope."""
    reader.name(name)

    def run(scope: Scope) -> JSON:
        try:
            return scope[name]
        except KeyError:
            return _read_name(scope, name)

    return ExpressionPart(run, path=(name,), keys=reader.keys(name))


def member_part(reader: ExpressionCompiler, owner: ExpressionPart, name: str) -> ExpressionPart:
    """A path extended by one key."""
    keys = reader.key(owner, name)
    path = (*owner.path, name)
    return ExpressionPart(_path_run(path), path=path, keys=keys)


def _read_name(scope: Scope, name: str) -> JSON:
    """The value of a root name; the name itself was checked when the expression was compiled."""
    try:
        return scope[name]
    except KeyError:
        raise ExpressionError(f"`{name}` has no value here", code="unknown_name") from None


def _path_run(path: tuple[str, ...]) -> Run:
    """A closure for a root and the keys behind it, the most common expression."""

    # The fast path below only reads; if that fails, this one walks again to find the key for the message.
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
            # Only an object accepts a string in brackets; anything else raises and gets its message from the
            # slow path.
            return scope[root][name]  # type: ignore[index, call-overload]
        except (KeyError, TypeError):
            return step_by_step(scope)

    return run


_PATH_SOURCE = 256
"""Maximum length of a source that is tried as a plain path."""


class Expression(NamedTuple):
    """A compiled expression.

    Attributes:
        source: The source between the braces.
        names: The root names that it reads from the scope.
        run: Its closure.
    """

    source: str
    names: frozenset[str]
    run: Run

    def evaluate(self, scope: Scope) -> JSON:
        """Evaluate the expression. Values from the scope are returned without copying.

        Raises:
            ExpressionError: `missing_key`, or `expression_failed` for any other failure.
        """
        try:
            return self.run(scope)
        except RecursionError:
            raise too_deep() from None


def too_deep() -> ExpressionError:
    """The error of values that exceed Python's recursion limit."""
    return ExpressionError("the values are nested too deeply")


def is_expression(text: str) -> bool:
    """Whether a text contains an expression."""
    return "{{" in text


def compile_expression(source: str, names: Collection[str], place: str = "") -> Expression:
    """Compile an expression without its braces.

    Args:
        source: The expression.
        names: The root names that it may read.
        place: Its location in the document; random functions return different values at different places.

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
        The compiled part and the names that it reads.

    Raises:
        ExpressionError: As `compile_expression`.
    """
    path = read_path(source) if len(source) <= _PATH_SOURCE else None
    if path is not None:
        reader = ExpressionCompiler(names, place=place)
        if all(reader.definition(name) is None for name in (path[0][0], *path[1])):
            return compile_path(*path, reader), frozenset(reader.used)
    from toolcrib.expressions.parser import compile_parsed  # noqa: PLC0415 -- slow to import; most mocks use only paths

    return compile_parsed(source, names, place)


def compile_condition(source: str, names: Collection[str], place: str = "") -> Expression:
    """Compile a text that must be a single expression with its braces, such as the `if` of a rule.

    Whitespace around the braces is allowed; `place` as in `compile_expression`.

    Raises:
        ExpressionError: As `compile_expression`, and `expression_syntax` for anything but a single expression.
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
