"""Jinja2's parser, within our bounds. Imported only where something is written that needs one."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TypeVar

from jinja2 import Environment, TemplateSyntaxError, nodes
from jinja2.parser import Parser

from toolcrib.core.errors import ExpressionError
from toolcrib.expressions.closures import reader_for
from toolcrib.expressions.compiler import SPLIT, Part
from toolcrib.expressions.delimiters import STRING, check_escapes
from toolcrib.expressions.values import shortened

T = TypeVar("T")

MOST_SOURCE = 16 * 1024
"""Characters of one expression or template."""

# Only its lexer and parser are used: nothing is ever compiled to Python or run by Jinja2.
ENVIRONMENT = Environment(keep_trailing_newline=True, autoescape=False)  # noqa: S701 -- nothing is rendered by it


def compile_parsed(source: str, names: Collection[str], place: str = "") -> tuple[Part, frozenset[str]]:
    """Compile an expression of any kind; as `compile_node`."""
    reader = reader_for(names, place)
    part = reader.compile(parsed(lambda: _parse_body(source), source))
    return part, frozenset(reader.used)


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
