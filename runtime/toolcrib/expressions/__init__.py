"""Expressions in documents: `{{ ... }}` in values, and texts with statements.

Jinja2's syntax, read by Jinja2's parser, checked when a document is loaded, worked out by our own
closures. Data is never read as an expression.
"""

from toolcrib.expressions.expression import (
    Expression,
    compile_condition,
    compile_expression,
    escape_expressions,
    is_expression,
)
from toolcrib.expressions.structures import Rendering, compile_copier, compile_value, copy_value
from toolcrib.expressions.templates import TextTemplate, compile_text
from toolcrib.expressions.values import Run, Scope

__all__ = [
    "Expression",
    "Rendering",
    "Run",
    "Scope",
    "TextTemplate",
    "compile_condition",
    "compile_copier",
    "compile_expression",
    "compile_text",
    "compile_value",
    "copy_value",
    "escape_expressions",
    "is_expression",
]
