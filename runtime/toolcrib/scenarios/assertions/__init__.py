"""Assertions about the way that an agent took: what they see, and what comes of them."""

from toolcrib.scenarios.assertions.evaluator import ASKING, JUDGING, judge
from toolcrib.scenarios.assertions.judges import NOBODY, AssertionContext
from toolcrib.scenarios.assertions.trajectories import Trajectory
from toolcrib.scenarios.assertions.verdicts import AssertionVerdict

__all__ = ["ASKING", "JUDGING", "NOBODY", "AssertionContext", "AssertionVerdict", "Trajectory", "judge"]
