"""What is wrong with a document of PromptKit, and what of it has no counterpart here."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from toolcrib.core.errors import Problem
from toolcrib.formats.promptkit.document_schemas import MANIFESTS, RESPONSES, Shape
from toolcrib.formats.promptkit.source_nodes import Node
from toolcrib.loading.document_checks import problem_of
from toolcrib.schema.validation import Validator

_MOCKS = "mock responses"
"""Kind of a file that is no manifest."""


def judged(node: Node, kind: str) -> tuple[bool, list[Problem]]:
    """Whether a document can be read, and all that there is to say of it.

    Args:
        node: The whole document.
        kind: A kind of manifest, or nothing for a file of mock responses.

    Returns:
        False where its shape is wrong. A key that nobody knows is a warning: whatever else is there can be read.
    """
    kind = kind or _MOCKS
    faults = [problem_of(fault) for fault in _validator(kind).faults(node.value, most=100)]
    unknown = [_unknown(problem) for problem in faults if problem.code == "unknown_key"]
    wrong = [problem for problem in faults if problem.code != "unknown_key"]
    placed = [node.document.place(problem) for problem in (*wrong, *unknown)]
    return not wrong, [*placed, *_idle(_shape(kind), node)]


def _unknown(problem: Problem) -> Problem:
    return problem._replace(severity="warning", message=f"{problem.message}, and has no effect")


def _shape(kind: str) -> Shape:
    return RESPONSES if kind == _MOCKS else MANIFESTS[kind]


@cache
def _validator(kind: str) -> Validator:
    return Validator(_shape(kind))


def _idle(shape: Shape, node: Node) -> Iterator[Problem]:
    """A problem for each key that has no counterpart."""
    if "x-idle" in shape:
        name = node.pointer.rpartition("/")[2]
        if node.value not in ("", [], {}, False):
            message = f"`{name}` has no counterpart here: {shape['x-idle']}"
            yield node.problem("no_counterpart", message, severity=shape["x-severity"])
        return
    for item in node.each():
        yield from _idle(shape.get("items", {}), item)
    others = shape.get("additionalProperties")
    for key, part in node.entries():
        below = shape.get("properties", {}).get(key, others)
        if isinstance(below, dict):
            yield from _idle(below, part)
