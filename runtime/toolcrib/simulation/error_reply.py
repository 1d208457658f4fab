"""Compile errors defined in documents, for mock replies and faults."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, NamedTuple

from toolcrib.core.errors import Problem
from toolcrib.core.model import NOTHING, Content, Outcome, Result
from toolcrib.expressions import Scope, compile_value, copy_value
from toolcrib.expressions.values import as_text


class ErrorTemplate(NamedTuple):
    """A compiled error.

    Attributes:
        names: The names of the scope that it reads.
        answer: Computes the result, with outcome `tool_error`; raises ExpressionError if the mock is wrong.
    """

    names: frozenset[str]
    answer: Callable[[Scope], Result]


def compile_error(value: Any, pointer: str, names: Collection[str], problems: list[Problem]) -> ErrorTemplate:
    """Compile an error that its schema has accepted; problems are added to `problems`.

    Args:
        value: A text, or `{code, message, status, retryable, details}`.
        pointer: JSON Pointer of the error.
        names: The names that its expressions may read.
        problems: Receives every problem.
    """
    block: dict[str, Any] = {"message": value} if isinstance(value, str) else dict(value)
    code = block.get("code", Outcome.TOOL_ERROR.value)
    texts = {"code": code, "message": block.get("message", code)}
    status = {"status": block["status"]} if "status" in block else NOTHING
    found = len(problems)
    told = compile_value({**texts, "details": block.get("details", {})}, names, problems, pointer)
    # The short form has no key `message` that a problem could point to.
    if isinstance(value, str):
        problems[found:] = [problem._replace(pointer=pointer) for problem in problems[found:]]
    retryable = bool(block.get("retryable", False))

    def answer(scope: Scope) -> Result:
        shown: Any = told.render(scope)
        message = as_text(shown["message"])
        return Result.failure(
            Outcome.TOOL_ERROR,
            message,
            code=as_text(shown["code"]),
            details={**status, **copy_value(shown["details"])},
            retryable=retryable,
            content=(Content("text", text=message),),
        )

    return ErrorTemplate(told.names, answer)
