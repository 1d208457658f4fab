"""The trace of a run as one short text: two runs have the same one if the same happened in them."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from toolcrib.core.model import JSON
from toolcrib.core.text import canonical
from toolcrib.scenarios.reports import StepReport

if TYPE_CHECKING:
    from toolcrib.scenarios.turns import AgentReport


def digest_of(
    steps: Sequence[StepReport], changes: JSON, virtual: float | None, agent: AgentReport | None = None
) -> str:
    """SHA-256, in hex, of all calls in order of their beginning, and of what is kept at the end. Secrets are masked.

    Args:
        steps: The calls: arguments, outcome, answer, attempts, and how long each took on virtual time.
        changes: What is different at the end in what mocks keep.
        virtual: Seconds of virtual time; None for a run on the machine's time, of which no time is in the digest.
        agent: What was said; None where nobody spoke.
    """
    timed = virtual is not None
    trace: dict[str, Any] = {
        "calls": [_call(step, timed=timed) for step in steps],
        "kept": changes,
        "virtual": virtual,
        **({} if agent is None else {"said": [turn.as_json() for turn in agent.turns]}),
    }
    return hashlib.sha256(canonical(trace).encode()).hexdigest()


def _call(step: StepReport, *, timed: bool) -> dict[str, Any]:
    told: dict[str, Any] = {"step": step.step.label, "tool": step.step.call, "args": step.args}
    result = step.result
    if result is None:
        return told
    answer = {
        "outcome": result.outcome.value,
        "result": result.value,
        "content": [part.as_json() for part in result.content],
        "error": None if result.error is None else result.error.as_json(),
        "attempts": result.usage.attempts,
    }
    elapsed = {"elapsed": round(result.usage.duration, 9)} if timed else {}
    return told | answer | elapsed


def digest_of_all(digests: Sequence[str]) -> str:
    """The digest of several traces together."""
    return hashlib.sha256("".join(digests).encode()).hexdigest()
