"""Assertions about the way that an agent took: what they see, and what comes of them."""

from toolcrib.scenarios.asserting.asking import NOBODY, Surroundings
from toolcrib.scenarios.asserting.judging import ASKING, JUDGING, judge
from toolcrib.scenarios.asserting.trajectories import Trajectory
from toolcrib.scenarios.asserting.verdicts import Verdict

__all__ = ["ASKING", "JUDGING", "NOBODY", "Surroundings", "Trajectory", "Verdict", "judge"]
