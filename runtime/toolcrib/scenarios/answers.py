"""One answer against what its step expects of it, and what later steps see of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from toolcrib.errors import ExpressionError
from toolcrib.loading.expectations import Expectation
from toolcrib.loading.steps import Step
from toolcrib.model import JSON, Outcome, Result
from toolcrib.scenarios.reports import Failure
from toolcrib.scenarios.verifying import told

_OK = Outcome.OK


def saved(result: Result) -> JSON:
    """What later steps see of a call."""
    outcome = result.outcome
    return {
        "outcome": "ok" if outcome is _OK else outcome.value,  # the value of an outcome is slow to look up
        "result": result.value,
        "error": _error(result),
        "content": _content(result),
    }


def _error(result: Result) -> JSON:
    return None if result.error is None else result.error.as_json()


def _content(result: Result) -> list[JSON]:
    return [part.as_json() for part in result.content]


_PARTS: dict[str, Callable[[Result], JSON]] = {
    "result": lambda result: result.value,
    "error": _error,
    "content": _content,
    "attempts": lambda result: result.usage.attempts,
    "elapsed": lambda result: round(result.usage.duration, 9),
}


def is_good(expect: Expectation, result: Result, scope: Mapping[str, JSON]) -> bool:
    """Whether an answer is as expected. What is not, or may not be, is for `compare` to tell."""
    wanted, ended = expect.outcome, result.outcome
    if expect.golden is not None or (ended is not wanted and (wanted is not None or ended is _OK)):
        return False
    if not expect.parts:
        return True
    try:
        for part, matcher in expect.parts.items():
            if not matcher.matches(_PARTS[part](result), scope):
                return False
    except ExpressionError:
        return False
    return True


def compare(step: Step, result: Result, masked: Result, scope: Mapping[str, JSON]) -> Iterable[Failure]:
    """What a call answered otherwise than its step expects; `masked` is what may be shown of it."""
    wanted = step.expect.outcome
    pointer = f"{step.pointer}/expect"
    if wanted is None and result.outcome is Outcome.OK:
        yield Failure(what="outcome", lines=("expected an error, got ok",), pointer=pointer)
        return
    if wanted is not None and result.outcome is not wanted:
        yield Failure(what="outcome", lines=(f"expected {wanted}, got {result.outcome}",), pointer=pointer)
        return
    for part, matcher in step.expect.parts.items():
        try:
            lines = told(matcher, _PARTS[part](result), _PARTS[part](masked), scope)
        except ExpressionError as error:
            yield Failure(what=part, lines=(error.message,), pointer=f"{pointer}/{part}{error.pointer}")
            continue
        if lines:
            yield Failure(what=part, lines=tuple(lines), pointer=f"{pointer}/{part}")
