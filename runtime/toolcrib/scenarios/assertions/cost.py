"""Assertions about what a conversation took."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toolcrib.scenarios.assertions.trajectories import Trajectory
from toolcrib.scenarios.assertions.verdicts import AssertionVerdict, verdict

Params = Mapping[str, Any]


def cost_budget(params: Params, trajectory: Trajectory) -> AssertionVerdict:
    """The conversation took no more than that."""
    tokens = trajectory.tokens
    spent = [
        ("max_cost_usd", trajectory.cost, f"${trajectory.cost:.4f}"),
        ("max_total_tokens", tokens.input + tokens.output, f"{tokens.input + tokens.output} tokens"),
        ("max_input_tokens", tokens.input, f"{tokens.input} tokens sent"),
        ("max_output_tokens", tokens.output, f"{tokens.output} tokens came"),
    ]
    faults = [
        f"{words}, wanted at most {params[key]}"
        for key, value, words in spent
        if key in params and value > params[key]
    ]
    within = ", ".join(words for key, _value, words in spent if key in params)
    return verdict(not faults, "; ".join(faults) or within)
