"""Expressions in documents: `{{ ... }}` in values, templates with statements, matchers, JMESPath.

Jinja2 parses expressions, they are checked at load, and our own closures evaluate them. Data is never parsed as an
expression. Imports `registry`, `http`, `schema` and the rooms below them.
"""

from toolcrib.expressions.expression import (
    Expression,
    compile_condition,
    compile_expression,
    escape_expressions,
    is_expression,
)
from toolcrib.expressions.structures import (
    Rendering,
    UnchangingRoots,
    compile_copier,
    compile_value,
    copy_value,
)
from toolcrib.expressions.templates import TextTemplate, compile_text
from toolcrib.expressions.values import Run, Scope

__all__ = [
    "Expression",
    "Rendering",
    "Run",
    "Scope",
    "TextTemplate",
    "UnchangingRoots",
    "compile_condition",
    "compile_copier",
    "compile_expression",
    "compile_text",
    "compile_value",
    "copy_value",
    "escape_expressions",
    "is_expression",
]
