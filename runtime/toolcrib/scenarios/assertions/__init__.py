"""Assertions about the way that an agent took: what they see, and what comes of them."""

from toolcrib.scenarios.assertions.evaluator import (
    CHECKS,
    JUDGE_CHECKS,
    NOBODY,
    AssertionContext,
    evaluate_assertion,
)
from toolcrib.scenarios.assertions.trajectories import AssertionVerdict, Trajectory

__all__ = [
    "CHECKS",
    "JUDGE_CHECKS",
    "NOBODY",
    "AssertionContext",
    "AssertionVerdict",
    "Trajectory",
    "evaluate_assertion",
]
