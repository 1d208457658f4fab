"""Expressions: what stands between `{{` and `}}`."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import TypeVar

from jinja2 import Environment, TemplateSyntaxError, nodes
from jinja2.parser import Parser

from toolcrib.errors import ExpressionError
from toolcrib.model import JSON
from toolcrib.rendering.braces import STRING, Body, check_escapes, split
from toolcrib.rendering.closures import reader_for
from toolcrib.rendering.paths import read_path
from toolcrib.rendering.reader import SPLIT, Part, Reader
from toolcrib.rendering.values import Run, Scope, shortened

T = TypeVar("T")

MOST_SOURCE = 16 * 1024
"""Characters of one expression or template."""

_PATH_SOURCE = 256
"""Characters up to which an expression may be a path that needs no parser."""

# Only its lexer and parser are used: nothing is ever compiled to Python or run by Jinja2.
ENVIRONMENT = Environment(keep_trailing_newline=True, autoescape=False)  # noqa: S701 -- nothing is rendered by it


@dataclass(frozen=True, slots=True)
class Expression:
    """A compiled expression.

    Attributes:
        source: What was written between the braces.
        names: The root names that it reads from the scope.
    """

    source: str
    names: frozenset[str]
    run: Run = field(repr=False, compare=False)

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
    return ExpressionError("the values are nested too deeply to be worked with")


def is_expression(text: str) -> bool:
    """Whether a text holds an expression."""
    return "{{" in text


def compile_expression(source: str, names: Collection[str]) -> Expression:
    """Compile an expression that is written without its braces.

    Args:
        source: The expression.
        names: The root names that it may read.

    Raises:
        ExpressionError: `expression_syntax`, `unknown_name`, `unknown_function`,
            `expression_not_allowed`, `expression_too_large`; or a constant part that fails.
    """
    reader = reader_for(names)
    part = compile_node(source, reader)
    return Expression(source.strip(), frozenset(reader.used), part.run)


def compile_node(source: str, reader: Reader) -> Part:
    """Compile an expression for a reader that counts and notes names; errors as `compile_expression`."""
    tree = read_path(source) if len(source) <= _PATH_SOURCE else None
    return reader.compile(parsed(lambda: _parse_body(source), source) if tree is None else tree)


def compile_condition(source: str, names: Collection[str]) -> Expression:
    """Compile what must be one whole expression with its braces: the `if` of a rule.

    Blanks around the braces are allowed.

    Raises:
        ExpressionError: As `compile_expression`; and `expression_syntax` for anything but one
            whole expression.
    """
    text = source.strip()
    if not is_expression(text):
        hint = f'write `"{{{{ {shortened(text) or "..."} }}}}"`'
        raise ExpressionError(
            f"`{shortened(text)}` is a text and not an expression", code="expression_syntax", hint=hint
        )
    pieces = split(text)
    if len(pieces) == 1 and isinstance(pieces[0], Body):
        return compile_expression(pieces[0].source, names)
    raise ExpressionError(
        f"`{shortened(text)}` is more than one whole expression",
        code="expression_syntax",
        hint="write everything within one pair of braces",
    )


def parsed(parse: Callable[[], T], source: str, *, template: bool = False) -> T:
    """What Jinja2's parser makes of a source, with its errors as ours.

    Args:
        parse: Calls the parser.
        source: What it reads.
        template: Whether the source is a template, whose errors are told by their line.

    Raises:
        ExpressionError: `expression_syntax` or `expression_too_large`.
    """
    if len(source) > MOST_SOURCE:
        raise ExpressionError(
            f"{len(source):,} characters, and at most {MOST_SOURCE:,} are read",
            code="expression_too_large",
            hint=SPLIT,
        )
    if any("\ud800" <= mark <= "\udfff" for mark in source):
        raise ExpressionError("the source holds half a surrogate pair", code="expression_syntax")
    try:
        return parse()
    except TemplateSyntaxError as error:
        message = error.message or "it can't be read"
        told = f"line {error.lineno}: {message}" if template else f"{message} in {_quoted(source)}"
        raise ExpressionError(told, code="expression_syntax") from None
    except RecursionError:
        raise ExpressionError("nested too deeply to be read", code="expression_too_large") from None
    except (ValueError, SyntaxError):
        # The lexer hands numbers to Python as it finds them: too many digits, or digits of other scripts.
        raise ExpressionError(
            f"a number in {_quoted(source)} can't be read", code="expression_syntax"
        ) from None


def _quoted(source: str) -> str:
    return f"`{shortened(' '.join(source.split()))}`"


def _parse_body(source: str) -> nodes.Expr:
    if not source.strip():
        raise ExpressionError("there is no expression between the braces", code="expression_syntax")
    for literal in STRING.finditer(source):
        check_escapes(literal.group())
    parser = Parser(ENVIRONMENT, source, state="variable")
    node = parser.parse_expression()
    if not parser.stream.eos:
        parser.fail(f"`{parser.stream.current.value}` is not expected there")
    return node
