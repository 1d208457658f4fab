"""Regular expressions for the texts that expressions are written in, for tools that know JSON Schema alone.

No regular expression reads the whole language. Each of these accepts every text that can be compiled, and refuses
most of those that can't. They use neither look-around nor back-references, so every engine runs them, and no text can be
split into tokens in two ways, so an engine that backtracks has nothing to try again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from toolcrib.expressions.functions import FUNCTIONS
from toolcrib.expressions.parser import TESTS

_DEPTH: Final = 12
"""Levels of brackets that are counted."""

MANY: Final = rf"^(?:[^(\[{{]*[(\[{{]){{{_DEPTH + 1}}}"
"""A text with so many brackets that they could be nested deeper than is counted."""

_STRING: Final = r"""(?:'(?:[^'\\]|\\[\s\S])*'|"(?:[^"\\]|\\[\s\S])*")"""
_OTHER: Final = r"""[^'"(){}\[\]]"""
"""What is neither a bracket nor begins a text in quotes."""

_DIGITS: Final = "[0-9][0-9_]*"
_NUMBER: Final = rf"(?:0[xXoObB][0-9A-Fa-f_]+|{_DIGITS}(?:[eE][-+]?[0-9]+)?)"
"""A number, or what stands on one side of its point."""

_NO_START: Final = r"\x00-@\[-^`{-\x7f"
_NO_REST: Final = r"\x00-/:-@\[-^`{-\x7f"
_REST: Final = rf"[^{_NO_REST}]"
_NAME: Final = rf"[^{_NO_START}]{_REST}*"
"""A letter or `_`, then digits too; beyond ASCII anything."""

_ROOT: Final = (
    rf"(?:[^{_NO_START}n]{_REST}*"
    rf"|n(?:[^{_NO_REST}o]{_REST}*|o(?:[^{_NO_REST}t]{_REST}*|t{_REST}+)?)?)"
)
"""A name other than `not`, which is an operator."""


def _any_of(names: Iterable[str]) -> str:
    return f"(?:{'|'.join(sorted(names))})"


def nested(quoted: str, other: str) -> str:
    """Brackets with what is in them.

    Args:
        quoted: What a text in quotes is.
        other: What is neither a bracket nor begins such a text.
    """
    inner = rf"(?:{quoted}|{other})*"
    for _ in range(_DEPTH):
        inner = rf"(?:{quoted}|{other}|[(\[{{]{inner}[)\]}}])*"
    return inner


_BRACKETS: Final = rf"[(\[{{]{nested(_STRING, _OTHER)}[)\]}}]"
_BALANCED: Final = rf"(?:{_STRING}|[=!<>]=|{_OTHER[:-1]}=,:;]|{_BRACKETS})*"
"""A body whose quotes and brackets are closed, with `,`, `:` and `=` only within brackets."""


def _body() -> str:
    """A body without braces whose operands and operators take turns, and whose functions and tests exist."""
    functions = _any_of(FUNCTIONS)
    test = rf"is\s+(?:not\s+)?{_any_of(TESTS)}\b(?:\s*\(\s*\))?"
    words = r"(?:and|or|in|if|else|not\s+in|is\s+(?:not\s+)?(?:in|matching))\b"
    glued = rf"(?:\b|\.\s*{_DIGITS})"  # a word may follow a number at once: `1if`, `.0if`
    leading = rf"(?:[(\[:]|not\b|{functions}\s*\(|{_DIGITS}{words})[-+\s]*"
    texts = rf"{_STRING}(?:\s*{_STRING})*"
    operand = rf"(?:{texts}|{_DIGITS}{test}|{_NUMBER}|{_ROOT}|[)\]])\s*"
    behind = rf"(?:[)\]]|\.\s*(?:{_NAME}|{_NUMBER})|\|\s*{functions}\b|{glued}{test})\s*"
    between = rf"(?:[=!<>]=|[<>=]|\*\*|//|[-+*/%~,:\[]|{glued}{words}|\|\s*{functions}\s*\()[-+\s]*"
    return rf"(?:{leading})*{operand}(?:{behind}|{between}(?:{leading})*{operand})*"


_LITERAL: Final = r"(?:[^{]|\{[^{%#])*"
_END: Final = r"\{?"

BODY: Final = rf"\{{\{{{_BALANCED}\}}\}}"
"""An expression with its braces."""

BALANCED: Final = rf"^{_LITERAL}(?:{BODY}{_LITERAL})*{_END}$|{MANY}"
"""A text whose expressions are closed."""

_BRACES: Final = rf"""\{{\{{(?:{_STRING}|[^'"{{}}])*(?:\{{|\}}[^}}])"""
"""A text with an object in an expression, whose end no regular expression finds."""

READABLE: Final = rf"^{_LITERAL}(?:\{{\{{(?:[+\s][-+\s]*)?{_body()}\}}\}}{_LITERAL})*{_END}$|{_BRACES}"
"""A text whose expressions hold operands with operators between them, and call functions that exist."""

WHOLE: Final = rf"^[^!-~]*{BODY}[^!-~]*$|{MANY}"
"""A text that is one expression."""

_QUOTES: Final = "'\""

_OUTSIDE: Final = rf"(?:[^{{]|\{{[^{{%#]|\{{#(?:[^#]|#+[^#}}])*#+\}}|\{{%(?:{_STRING}|[^%{_QUOTES}]|%+[^%}}{_QUOTES}])*%+\}})*"
TEMPLATE: Final = (
    rf"^{_OUTSIDE}(?:\{{\{{[-+\s]*{_body()}-?\}}\}}{_OUTSIDE})*{_END}$|\{{%[-+]?\s*raw\b|{_BRACES}"
)
"""A template whose expressions, statements and comments are closed."""

KEY: Final = r"^(?:[^{]|\{[^{%#])*\{?$"
"""A key, which is never computed."""

WITHOUT_VARIABLES: Final = r"^(?:[^$]|\$+[^${]|\$\$+\{)*\$*$"
"""A text in which nothing is looked up; `$${` is a literal `${`."""

PLACE: Final = (
    r"^\s*[A-Za-z_][A-Za-z0-9_]*"
    rf"(?:\.[A-Za-z_][A-Za-z0-9_]*|\[{nested(_STRING, _OTHER)}\])*\s*$|{MANY}"
)
"""A place that an effect changes: `order.payments[0].amount`."""
