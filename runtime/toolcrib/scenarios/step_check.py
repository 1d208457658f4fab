"""One answer against what its step expects of it, and what later steps see of it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from toolcrib.core.errors import ExpressionError
from toolcrib.core.model import JSON, Outcome, Result
from toolcrib.loading.scenarios.expectations import Expectation, any_of
from toolcrib.loading.scenarios.steps import CallStep
from toolcrib.scenarios.reports import ScenarioFailure
from toolcrib.scenarios.verification import difference_lines

_OK = Outcome.OK


def step_value(result: Result) -> JSON:
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
    wanted, ended = expect.outcomes, result.outcome
    if expect.golden is not None or (ended not in wanted and (wanted or ended is _OK)):
        return False
    if not expect.parts:
        return True
    passed_over = _passed_over(ended)
    try:
        for part, matcher in expect.parts.items():
            if part != passed_over and not matcher.matches(_PARTS[part](result), scope):
                return False
    except ExpressionError:
        return False
    return True


def _passed_over(ended: Outcome) -> str:
    """The part that nothing is expected of where a call ended so: one without a result may have been right too."""
    return "error" if ended is _OK else "result"


def compare(
    step: CallStep, result: Result, masked: Result, scope: Mapping[str, JSON]
) -> Iterable[ScenarioFailure]:
    """What a call answered otherwise than its step expects; `masked` is what may be shown of it."""
    wanted, ended = step.expect.outcomes, result.outcome
    pointer = f"{step.pointer}/expect"
    if ended not in wanted and (wanted or ended is _OK):
        line = f"expected {any_of(wanted) or 'an error'}, got {ended}"
        yield ScenarioFailure(what="outcome", lines=(line,), pointer=pointer)
        return
    passed_over = _passed_over(ended)
    for part, matcher in step.expect.parts.items():
        if part == passed_over:
            continue
        try:
            lines = difference_lines(matcher, _PARTS[part](result), _PARTS[part](masked), scope)
        except ExpressionError as error:
            yield ScenarioFailure(
                what=part, lines=(error.message,), pointer=f"{pointer}/{part}{error.pointer}"
            )
            continue
        if lines:
            yield ScenarioFailure(what=part, lines=tuple(lines), pointer=f"{pointer}/{part}")
