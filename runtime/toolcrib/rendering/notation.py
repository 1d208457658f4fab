"""Regular expressions for the texts that expressions are written in, for tools that know JSON Schema alone.

No regular expression reads the whole language. Each of these accepts every text that can be compiled, and refuses
most of those that can't. They use neither look-around nor back-references, so every engine runs them; each token
begins with a character of its own, so an engine that backtracks finds nothing to try again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from toolcrib.rendering.calls import TESTS
from toolcrib.rendering.functions import FUNCTIONS

_DEPTH: Final = 6
"""Levels of brackets that are counted; what is nested deeper is accepted."""

_STRING: Final = r"""(?:'(?:[^'\\]|\\[\s\S])*'|"(?:[^"\\]|\\[\s\S])*")"""
_OTHER: Final = r"""[^'"(){}\[\]]"""
"""What is neither a bracket nor begins a text in quotes."""

_NUMBER: Final = r"[0-9][0-9A-Za-z_]*(?:\.[0-9][0-9A-Za-z_]*)?"
_NAME: Final = r"[^\x00-@\[-^`{-\x7f][^\x00-/:-@\[-^`{-\x7f]*"
"""A letter or `_`, then digits too; beyond ASCII anything."""


def _any_of(names: Iterable[str]) -> str:
    return f"(?:{'|'.join(sorted(names))})"


def _nested(level: int = 1) -> str:
    """A pair of brackets with what is in it."""
    if level > _DEPTH:
        return r"[(\[{][\s\S]*"
    return rf"[(\[{{](?:{_STRING}|{_OTHER}|{_nested(level + 1)})*[)\]}}]"


_BALANCED: Final = rf"(?:{_STRING}|[=!<>]=|{_OTHER[:-1]}=,:;]|{_nested()})*"
"""A body whose quotes and brackets are closed, with `,`, `:` and `=` only within brackets."""


def _body() -> str:
    """A body whose operands and operators take turns, and whose functions and tests exist."""
    functions = _any_of(FUNCTIONS)
    test = rf"is\s+(?:not\s+)?{_any_of(TESTS)}\b(?:\s*\(\s*\))?"
    words = r"(?:and|or|in|if|else|not\s+in|is\s+(?:not\s+)?(?:in|matching))\b"
    digits = r"[0-9][0-9_]*(?:\.[0-9]+)?"
    glued = rf"(?:\b|\.\s*{digits})"  # a word may follow a number at once: `1if`, `.0if`
    leading = rf"(?:[(\[{{:]|not\b|{functions}\s*\(|{digits}{words})[-+\s]*"
    texts = rf"{_STRING}(?:\s*{_STRING})*"
    operand = rf"(?:{texts}|{digits}{test}|{_NUMBER}|{_NAME}|[)\]}}])\s*"
    behind = rf"(?:[)\]}}]|\.\s*(?:{_NAME}|[0-9]+)|\|\s*{functions}\b|{glued}{test})\s*"
    between = (
        rf"(?:[=!<>]=|[<>=]|\*\*|//|[-+*/%~,:\[]|{glued}{words}|\|\s*{functions}\s*\()[-+\s]*"
    )
    return rf"(?:{leading})*{operand}(?:{behind}|{between}(?:{leading})*{operand})*"


_LITERAL: Final = r"(?:[^{]|\{[^{%#])*"
_END: Final = r"\{?"

BODY: Final = rf"\{{\{{{_BALANCED}\}}\}}"
"""An expression with its braces."""

BALANCED: Final = rf"^{_LITERAL}(?:{BODY}{_LITERAL})*{_END}$"
"""A text whose expressions are closed."""

READABLE: Final = rf"^{_LITERAL}(?:\{{\{{(?:[+\s][-+\s]*)?{_body()}\}}\}}{_LITERAL})*{_END}$"
"""A text whose expressions hold operands with operators between them, and call functions that exist."""

WHOLE: Final = rf"^[^!-~]*{BODY}[^!-~]*$"
"""A text that is one expression."""

_QUOTES: Final = "'\""

_OUTSIDE: Final = (
    rf"(?:[^{{]|\{{[^{{%#]|\{{#(?:[^#]|#+[^#}}])*#+\}}|\{{%(?:{_STRING}|[^%{_QUOTES}]|%+[^%}}{_QUOTES}])*%+\}})*"
)
TEMPLATE: Final = (
    rf"^{_OUTSIDE}(?:\{{\{{[-+]?\s*[-+\s]*{_body()}-?\}}\}}{_OUTSIDE})*{_END}$|\{{%[-+]?\s*raw\b"
)
"""A template whose expressions, statements and comments are closed."""

KEY: Final = r"^(?:[^{]|\{[^{%#])*\{?$"
"""A key, which is never computed."""

WITHOUT_VARIABLES: Final = r"^(?:[^$]|\$+[^${]|\$\$+\{)*\$*$"
"""A text in which nothing is looked up; `$${` is a literal `${`."""

PLACE: Final = (
    rf"^\s*[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*|\[(?:{_STRING}|{_OTHER}|{_nested()})*\])*\s*$"
)
"""A place that an effect changes: `order.payments[0].amount`."""
