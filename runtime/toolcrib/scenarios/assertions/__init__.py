"""Assertions about the way that an agent took: what they see, and what comes of them."""

from toolcrib.scenarios.assertions.evaluator import ASKING, JUDGING, NOBODY, AssertionContext, judge
from toolcrib.scenarios.assertions.trajectories import AssertionVerdict, Trajectory

__all__ = ["ASKING", "JUDGING", "NOBODY", "AssertionContext", "AssertionVerdict", "Trajectory", "judge"]
