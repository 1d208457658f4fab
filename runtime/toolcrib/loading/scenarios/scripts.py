"""Scripts of models that are written in Python instead of a document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from toolcrib.core.errors import DocumentError, Problem
from toolcrib.core.model import JSON
from toolcrib.core.schemas import envelope, without_told
from toolcrib.expressions import Rendering
from toolcrib.loading.document_checks import problem_of
from toolcrib.loading.scenarios.agents import AgentTurn, parse_script
from toolcrib.schema.validation import Validator


def parse_turns(turns: Sequence[Sequence[Mapping[str, Any]]]) -> list[AgentTurn]:
    """Turns of which only the scripts are known.

    Args:
        turns: For each message of the user the replies, as documents have them under `script`.

    Raises:
        DocumentError: Something is wrong with them.
    """
    problems = [
        problem
        for index, replies in enumerate(turns)
        for problem in _misshapen([dict(reply) for reply in replies], f"/{index}")
    ]
    if problems:
        raise DocumentError(problems)
    read = [
        AgentTurn(user=_SAID, script=parse_script(replies, f"/{index}", {}, problems), pointer=f"/{index}")
        for index, replies in enumerate(turns)
    ]
    if problems:
        raise DocumentError(problems)
    return read


_SAID = Rendering(constant=True, names=frozenset(), run=lambda _scope: "")
"""What the user says is not the script's business."""


@cache
def _validator() -> Validator:
    definitions = without_told(envelope("scenario")["$defs"])
    return Validator({"type": "array", "items": {"$ref": "#/$defs/scripted_reply"}, "$defs": definitions})


def _misshapen(replies: list[JSON], pointer: str) -> Iterator[Problem]:
    for fault in _validator().faults(replies):
        yield problem_of(fault)._replace(pointer=pointer + fault.pointer)
