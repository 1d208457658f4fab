"""Why a turn ends, by what was answered and what became of its calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from toolcrib.model import Outcome
from toolcrib.provider.conversations import CallRecord, Stop
from toolcrib.provider.refusing import REFUSED_ANSWER

_BOUNDS: Final = frozenset(stop.value for stop in Stop if stop.value.startswith("max_"))

_ENDS: Final[Mapping[str, Stop]] = {
    "stop": Stop.ANSWERED,
    "tool_calls": Stop.ANSWERED,
    "length": Stop.LENGTH,
    "refused": Stop.REFUSED,
}
"""Why an answer ended -> why the turn did, where nothing was called."""


def why_answered(reason: str, wanted: str, *, spoke: bool) -> tuple[Stop, str]:
    """Why a turn ends with an answer that calls nothing, and the same for a person.

    Args:
        reason: Why the answer ended.
        wanted: What was to be called: `required` for any tool, or the name of one; empty for nothing.
        spoke: Whether anything was said.
    """
    stop = _ENDS.get(reason, Stop.ANSWERED)
    said = []
    if reason not in _ENDS:
        said.append(f"the provider says `{reason}`")
    elif not spoke:
        said.append("the model said nothing")
    if wanted and stop is Stop.ANSWERED:
        what = "a tool" if wanted == "required" else f"`{wanted}`"
        said.append(f"the model was to call {what}, and called nothing")
    return stop, "; ".join(said)


def bounded(records: Iterable[CallRecord]) -> tuple[Stop, str] | None:
    """The end that calls of a round come to that were not made: a bound, or an answer that was refused."""
    for record in records:
        if record.outcome is Outcome.LIMIT_EXCEEDED and not record.reached and record.code in _BOUNDS:
            return Stop(record.code), record.message
        if record.code == REFUSED_ANSWER:
            return Stop.REFUSED, record.message
    return None
