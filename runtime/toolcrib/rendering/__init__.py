"""Expressions in documents: `{{ ... }}` in values, and texts with statements.

Jinja2's syntax, read by Jinja2's parser, checked when a document is loaded, worked out by our own
closures. Data is never read as an expression.
"""

from toolcrib.rendering.expressions import Expression, compile_condition, compile_expression, is_expression
from toolcrib.rendering.fresh import copied, copier
from toolcrib.rendering.structures import Rendering, compile_value
from toolcrib.rendering.texts import Text, compile_text
from toolcrib.rendering.values import Run, Scope
from toolcrib.rendering.written import as_written

__all__ = [
    "Expression",
    "Rendering",
    "Run",
    "Scope",
    "Text",
    "as_written",
    "compile_condition",
    "compile_expression",
    "compile_text",
    "compile_value",
    "copied",
    "copier",
    "is_expression",
]
