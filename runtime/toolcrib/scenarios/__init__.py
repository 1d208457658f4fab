"""Scripted runs: calls in order on virtual time, what they answered, what must have happened."""

from toolcrib.scenarios.matrix import runs_of
from toolcrib.scenarios.reports import NotRun, ScenarioFailure, ScenarioReport, StepReport
from toolcrib.scenarios.runner import run_scenario
from toolcrib.scenarios.selection import select

__all__ = ["NotRun", "ScenarioFailure", "ScenarioReport", "StepReport", "run_scenario", "runs_of", "select"]
