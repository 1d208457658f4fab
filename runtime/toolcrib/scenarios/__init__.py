"""Scripted tests and agents: runs scenarios on virtual time, checks what happened, and reports it.

It imports provider, engine, and the rooms below them.
"""

from toolcrib.scenarios.reports import NotRun, ScenarioFailure, ScenarioReport, StepReport
from toolcrib.scenarios.runner import run_scenario
from toolcrib.scenarios.runs import runs_of, select

__all__ = ["NotRun", "ScenarioFailure", "ScenarioReport", "StepReport", "run_scenario", "runs_of", "select"]
