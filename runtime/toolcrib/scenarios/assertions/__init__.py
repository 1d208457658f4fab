"""Assertions about the trajectory of an agent: their input, and their verdicts."""

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
