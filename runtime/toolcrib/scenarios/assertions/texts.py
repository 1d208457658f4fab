"""Assertions about what was said."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from toolcrib.scenarios.assertions.patterns import finds, stands_as_words, stands_in
from toolcrib.scenarios.assertions.trajectories import Trajectory
from toolcrib.scenarios.assertions.verdicts import AssertionVerdict, failed, held, verdict
from toolcrib.schema.validation.violations import count, shorten

Params = Mapping[str, Any]

_SHOWN: Final = 200
"""Characters of a text that a message shows."""

_SIGNS: Final = 4
"""Characters that a token is taken for."""


def said(text: str) -> str:
    """What was said, as the end of a sentence."""
    return f'the reply is "{shorten(text, _SHOWN)}"' if text else "nothing was said"


def content_includes(params: Params, trajectory: Trajectory) -> AssertionVerdict:
    """Some texts stand in the reply."""
    return _all_in(params["patterns"], trajectory.reply)


def field_presence(params: Params, trajectory: Trajectory) -> AssertionVerdict:
    """Some names stand in the reply."""
    return _all_in(params["fields"], trajectory.reply)


def _all_in(parts: Sequence[str], reply: str) -> AssertionVerdict:
    missing = [part for part in parts if not stands_in(part, reply)]
    if missing:
        return failed(f"{_quoted(missing)} missing; {said(reply)}", 1 - len(missing) / len(parts))
    return held(f"the reply has {_quoted(parts)}")


def content_includes_any(params: Params, trajectory: Trajectory) -> AssertionVerdict:
    """One of some texts was said."""
    found = [part for part in params["patterns"] if any(stands_in(part, text) for text in trajectory.texts)]
    if found:
        return held(f"{_quoted(found)} was said")
    return failed(f"none of {_quoted(params['patterns'])} was said; {said(trajectory.reply)}")


def content_excludes(params: Params, trajectory: Trajectory) -> AssertionVerdict:
    """None of some texts was said."""
    within = stands_as_words if params.get("match_mode") == "word_boundary" else stands_in
    found = [
        f'"{shorten(part)}" was said: "{shorten(text, _SHOWN)}"'
        for text in trajectory.texts
        for part in params["patterns"]
        if within(part, text)
    ]
    return verdict(not found, "; ".join(found) or f"none of {_quoted(params['patterns'])} was said")


def content_matches(params: Params, trajectory: Trajectory) -> AssertionVerdict:
    """A regular expression is found in the reply."""
    if finds(params["pattern"])(trajectory.reply):
        return held(f"the reply matches {params['pattern']}")
    return failed(f"no match of {params['pattern']}; {said(trajectory.reply)}")


def min_length(params: Params, trajectory: Trajectory) -> AssertionVerdict:
    """The reply is not too short."""
    length, least = len(trajectory.reply), params["min"]
    message = f"the reply has {count(length, 'character')}, wanted at least {least}"
    return verdict(length >= least, message, min(1.0, length / least))


def max_length(params: Params, trajectory: Trajectory) -> AssertionVerdict:
    """The reply is not too long."""
    length = len(trajectory.reply)
    bounds = [(length, params.get("max"), "character"), (length // _SIGNS, params.get("max_tokens"), "token")]
    wanted = [(number, most, noun) for number, most, noun in bounds if most is not None]
    message = "; ".join(
        f"the reply has {count(number, noun)}, wanted at most {most}" for number, most, noun in wanted
    )
    score = min(most / max(number, most) for number, most, _noun in wanted)
    return verdict(score == 1, message, score)


def sentence_count(params: Params, trajectory: Trajectory) -> AssertionVerdict:
    """The reply has so many sentences."""
    number = sum(1 for part in re.split(r"[.!?]+(?:\s|$)", trajectory.reply) if part.strip())
    least, most = params.get("min", 0), params.get("max")
    if number < least or (most is not None and number > most):
        wanted = f"at least {least}" if number < least else f"at most {most}"
        return failed(f"the reply has {count(number, 'sentence')}, wanted {wanted}; {said(trajectory.reply)}")
    return held(f"the reply has {count(number, 'sentence')}")


def _quoted(parts: Sequence[str]) -> str:
    return ", ".join(f'"{shorten(part)}"' for part in parts)
