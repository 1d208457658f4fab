"""Finds the expressions of a text, and escapes values so that nothing in them is read as an expression.

Jinja2's lexer is not used: it trims blanks at `{{-`, which turns `{{-x}}` into `x`, and it rewrites
line ends, which are data here.
"""

from __future__ import annotations

import re
from typing import NamedTuple, TypeAlias

from toolcrib.core.errors import ExpressionError
from toolcrib.core.model import JSON
from toolcrib.expressions.values import shortened

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
        raise ExpressionError(f"brackets or quotes are not balanced in `{shown}`", code="expression_syntax")
    raise ExpressionError(
        f"`{{{{` is not closed in `{shown}`",
        code="expression_syntax",
        hint="close it with `}}`, or " + _LITERAL,
    )


_LITERAL = "write literal braces as `{{ '{{' }}`"


def _refuse_others(text: str, start: int) -> None:
    if text.startswith("{%", start):
        what, hint = (
            "statements (`{%`) work only in `template` and `template_file`",
            "write `{{ ... }}`, or a `template`",
        )
    elif text.startswith("{#", start):
        what, hint = (
            "comments (`{#`) work only in `template` and `template_file`",
            "write `{{ '{#' }}` for these marks",
        )
    elif text.startswith("{{-", start):
        what, hint = "`{{-` would trim blanks, and never means minus", "write a blank between, `{{ -x }}`"
    else:
        return
    raise ExpressionError(f"{what}: `{shortened(text[start:])}`", code="expression_not_allowed", hint=hint)


def _body(source: str) -> ExpressionBody:
    if source.endswith("-"):
        raise ExpressionError(
            f"`-}}}}` would trim blanks: `{{{{{shortened(source)}}}}}`",
            code="expression_not_allowed",
            hint="leave the minus out",
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
                f"`{match.group()}` in {shortened(literal)} is no escape",
                code="expression_syntax",
                hint="a backslash itself is written `\\\\`",
            )


_SIGNS = re.compile(r"[{%#$]{2,}")
_OPENERS = ("{{", "{%", "{#", "${")


def as_written(value: JSON) -> JSON:
    """A value whose texts mean only themselves: what looks like an expression is quoted."""
    if isinstance(value, str):
        return _SIGNS.sub(_quoted, value)
    if isinstance(value, list):
        return [as_written(item) for item in value]
    if isinstance(value, dict):
        return {key: as_written(item) for key, item in value.items()}
    return value


def _quoted(signs: re.Match[str]) -> str:
    """A run of signs as a literal where it would open something; whole, so that no rest of it opens either."""
    run = signs[0]
    parts = run.replace("${", "$' ~ '{")
    return f"{{{{ '{parts}' }}}}" if any(opener in run for opener in _OPENERS) else run
