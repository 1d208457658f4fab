"""Reports on their way from one process to another: plain data, without what was compiled of the scenario."""

from __future__ import annotations

from typing import NamedTuple

from toolcrib.loading.scenarios import Scenario
from toolcrib.model import JSON, Result
from toolcrib.scenarios.goldens import GoldenChange
from toolcrib.scenarios.reports import Failure, ScenarioReport, StepReport


class PackedStep(NamedTuple):
    """What came of a step, without the step."""

    args: JSON
    result: Result | None
    failures: tuple[Failure, ...]
    golden: GoldenChange | None


class PackedReport(NamedTuple):
    """What came of a scenario, without the scenario."""

    seed: int
    passed: bool
    steps: tuple[PackedStep, ...]
    failures: tuple[Failure, ...]
    warnings: tuple[Failure, ...]
    duration: float
    virtual: float
    digest: str


def packed(report: ScenarioReport) -> PackedReport:
    """The report as data that can be pickled. What the tools really answered stays behind."""
    return PackedReport(
        seed=report.seed,
        passed=report.passed,
        steps=tuple(
            PackedStep(step.args, _plain(step.result), step.failures, step.golden) for step in report.steps
        ),
        failures=report.failures,
        warnings=report.warnings,
        duration=report.duration,
        virtual=report.virtual,
        digest=report.digest,
    )


def _plain(result: Result | None) -> Result | None:
    if result is None:
        return None
    error = result.error
    return result._replace(
        meta=dict(result.meta),
        error=error and error._replace(details=dict(error.details)),
        raw_value=None,
    )


def unpacked(report: PackedReport, scenario: Scenario) -> ScenarioReport:
    """The report, put together again with the scenario that it is about."""
    steps = tuple(
        StepReport(step=step, args=args, result=result, failures=failures, golden=golden)
        for step, (args, result, failures, golden) in zip(scenario.calls, report.steps, strict=False)
    )
    return ScenarioReport(
        scenario=scenario,
        seed=report.seed,
        steps=lambda: steps,
        passed=report.passed,
        failures=report.failures,
        warnings=report.warnings,
        duration=report.duration,
        virtual=report.virtual,
        digest=lambda: report.digest,
    )
