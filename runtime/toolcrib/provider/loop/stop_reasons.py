"""Why a turn ends, by what was answered and what became of its calls."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from toolcrib.core.model import Outcome
from toolcrib.core.text import truncate
from toolcrib.provider.conversations import CallRecord, Stop
from toolcrib.provider.models.protocol import Finish

_BOUNDS: Final = frozenset(stop.value for stop in Stop if stop.value.startswith("max_"))

_ENDS: Final[Mapping[str, Stop]] = {
    "stop": Stop.ANSWERED,
    "tool_calls": Stop.ANSWERED,
    "length": Stop.LENGTH,
    "refused": Stop.REFUSED,
    "pause_turn": Stop.LENGTH,  # Anthropic's: the service would go on, if it were asked once more
}
"""Why an answer ended -> why the turn did, where nothing was called."""

_SHOWN: Final = 100
"""Bytes of a name that is shown, which the model may have made up."""


def named(calls: Mapping[str, str]) -> str:
    """Calls (id -> tool) as they are named for a person."""
    return ", ".join(f"`{truncate(tool, _SHOWN)}` ({truncate(id_, _SHOWN)})" for id_, tool in calls.items())


def why_cut_off(finish: Finish, calls: Mapping[str, str]) -> tuple[Stop, str]:
    """Why a turn ends with an answer that did not come to its end, of which no call was made; the same for a person.

    Args:
        finish: The end of the answer.
        calls: The calls that it asks for: id -> tool.
    """
    stop = Stop.REFUSED if finish.reason == "refused" else Stop.LENGTH
    what = "was refused" if stop is Stop.REFUSED else "was cut off"
    own_word = "" if finish.reason in _ENDS else f" (the provider says `{finish.reason}`)"
    return stop, f"the answer {what}{own_word}; its calls were not made: {named(calls)}"


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
    """The bound that calls of a round come to."""
    for record in records:
        if record.outcome is Outcome.LIMIT_EXCEEDED and not record.reached and record.code in _BOUNDS:
            return Stop(record.code), record.message
    return None
