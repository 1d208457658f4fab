"""Regular expressions for texts with expressions, used in the JSON Schemas for editors.

A regular expression cannot parse the whole language. Each of these accepts every text that compiles, and rejects most
texts that do not. They use neither look-around nor back-references, so every engine supports them. No text can be
split into tokens in two ways, so an engine that backtracks cannot become slow.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from toolcrib.expressions.functions import FUNCTIONS
from toolcrib.expressions.parser import TESTS

_DEPTH: Final = 12
"""Maximum nesting depth of brackets that the patterns check."""

MANY: Final = rf"^(?:[^(\[{{]*[(\[{{]){{{_DEPTH + 1}}}"
"""A text with so many brackets that they could be nested deeper than `_DEPTH`; it is accepted unchecked."""

_STRING: Final = r"""(?:'(?:[^'\\]|\\[\s\S])*'|"(?:[^"\\]|\\[\s\S])*")"""
_OTHER: Final = r"""[^'"(){}\[\]]"""
"""A character that is neither a bracket nor a quote."""

_DIGITS: Final = "[0-9][0-9_]*"
_NUMBER: Final = rf"(?:0[xXoObB][0-9A-Fa-f_]+|{_DIGITS}(?:[eE][-+]?[0-9]+)?)"
"""A number, or its part on one side of the decimal point."""

_NO_START: Final = r"\x00-@\[-^`{-\x7f"
_NO_REST: Final = r"\x00-/:-@\[-^`{-\x7f"
_REST: Final = rf"[^{_NO_REST}]"
_NAME: Final = rf"[^{_NO_START}]{_REST}*"
"""A letter or `_`, then also digits; any non-ASCII character."""

_ROOT: Final = (
    rf"(?:[^{_NO_START}n]{_REST}*"
    rf"|n(?:[^{_NO_REST}o]{_REST}*|o(?:[^{_NO_REST}t]{_REST}*|t{_REST}+)?)?)"
)
"""A name other than the operator `not`. Without look-ahead, each letter of `not` must be excluded separately."""


def _any_of(names: Iterable[str]) -> str:
    return f"(?:{'|'.join(sorted(names))})"


def nested(quoted: str, other: str) -> str:
    """A pattern for nested brackets and their content.

    Args:
        quoted: Pattern of a text in quotes.
        other: Pattern of a character that is neither a bracket nor a quote.
    """
    # Regular expressions cannot count: the pattern contains itself, once for each level.
    inner = rf"(?:{quoted}|{other})*"
    for _ in range(_DEPTH):
        inner = rf"(?:{quoted}|{other}|[(\[{{]{inner}[)\]}}])*"
    return inner


_BRACKETS: Final = rf"[(\[{{]{nested(_STRING, _OTHER)}[)\]}}]"
_BALANCED: Final = rf"(?:{_STRING}|[=!<>]=|{_OTHER[:-1]}=,:;]|{_BRACKETS})*"
"""A body with closed quotes and brackets, and with `,`, `:` and `=` only within brackets."""


def _body(functions: str = _NAME) -> str:
    """A body without braces in which operands and operators alternate, and tests are known.

    Args:
        functions: Pattern of the functions that may be called. By default any name, since packs and projects define their own.
    """
    test = rf"is\s+(?:not\s+)?{_any_of(TESTS)}\b(?:\s*\(\s*\))?"
    words = r"(?:and|or|in|if|else|not\s+in|is\s+(?:not\s+)?(?:in|matching))\b"
    glued = rf"(?:\b|\.\s*{_DIGITS})"  # a word may directly follow a number: `1if`, `.0if`
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
"""A text in which every expression is closed."""

_BRACES: Final = rf"""\{{\{{(?:{_STRING}|[^'"{{}}])*(?:\{{|\}}[^}}])"""
"""A text with an object in an expression, whose end a regular expression cannot find."""

READABLE: Final = rf"^{_LITERAL}(?:\{{\{{(?:[+\s][-+\s]*)?{_body()}\}}\}}{_LITERAL})*{_END}$|{_BRACES}"
"""A text whose expressions join operands with operators."""

READABLE_REQUEST: Final = (
    rf"^{_LITERAL}(?:\{{\{{(?:[+\s][-+\s]*)?{_body(_any_of(FUNCTIONS))}\}}\}}{_LITERAL})*{_END}$|{_BRACES}"
)
"""A text of a request, whose expressions call built-in functions only."""

WHOLE: Final = rf"^[^!-~]*{BODY}[^!-~]*$|{MANY}"
"""A text that is one expression."""

_QUOTES: Final = "'\""

_OUTSIDE: Final = rf"(?:[^{{]|\{{[^{{%#]|\{{#(?:[^#]|#+[^#}}])*#+\}}|\{{%(?:{_STRING}|[^%{_QUOTES}]|%+[^%}}{_QUOTES}])*%+\}})*"
TEMPLATE: Final = (
    rf"^{_OUTSIDE}(?:\{{\{{[-+\s]*{_body()}-?\}}\}}{_OUTSIDE})*{_END}$|\{{%[-+]?\s*raw\b|{_BRACES}"
)
"""A template in which every expression, statement and comment is closed."""

KEY: Final = r"^(?:[^{]|\{[^{%#])*\{?$"
"""A key, which cannot contain expressions."""

WITHOUT_VARIABLES: Final = r"^(?:[^$]|\$+[^${]|\$\$+\{)*\$*$"
"""A text without variables; `$${` is a literal `${`."""

PLACE: Final = (
    r"^\s*[A-Za-z_][A-Za-z0-9_]*"
    rf"(?:\.[A-Za-z_][A-Za-z0-9_]*|\[{nested(_STRING, _OTHER)}\])*\s*$|{MANY}"
)
"""The path that an effect changes: `order.payments[0].amount`."""
