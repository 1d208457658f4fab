"""Reports on their way from one process to another: plain data, without what was compiled of the scenario."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

from toolcrib.core.model import JSON, Result
from toolcrib.loading.scenarios.scenario import Scenario
from toolcrib.loading.scenarios.steps import CallStep
from toolcrib.scenarios.goldens import GoldenChange
from toolcrib.scenarios.reports import ScenarioFailure, ScenarioReport, StepReport

if TYPE_CHECKING:
    from toolcrib.scenarios.turns import AgentReport


class PackedStep(NamedTuple):
    """What came of a step, without the step."""

    args: JSON
    result: Result | None
    failures: tuple[ScenarioFailure, ...]
    golden: GoldenChange | None
    asked: tuple[str, int, int, str, bool, str] | None = None
    """Of a call that an agent made: the tool, turn, place, id, whether it was reached, pointer."""


class PackedReport(NamedTuple):
    """What came of a scenario, without the scenario."""

    seed: int
    passed: bool
    steps: tuple[PackedStep, ...]
    failures: tuple[ScenarioFailure, ...]
    warnings: tuple[ScenarioFailure, ...]
    duration: float
    virtual: float
    digest: str
    agent: AgentReport | None = None
    trials: tuple[PackedReport, ...] = ()


def pack_report(report: ScenarioReport) -> PackedReport:
    """The report as data that can be pickled. What the tools really answered stays behind."""
    return PackedReport(
        seed=report.seed,
        passed=not report.failed,
        steps=() if report.trials else tuple(map(_packed_step, report.steps)),
        failures=report.failures,
        warnings=report.warnings,
        duration=report.duration,
        virtual=report.virtual,
        digest=report.digest,
        agent=report.agent,
        trials=tuple(map(pack_report, report.trials)),
    )


def _packed_step(report: StepReport) -> PackedStep:
    step: Any = report.step
    asked = None
    if type(step) is not CallStep:
        asked = (step.call, step.turn, step.place, step.id, step.reached, step.pointer)
    return PackedStep(report.args, _plain(report.result), report.failures, report.golden, asked)


def _plain(result: Result | None) -> Result | None:
    if result is None:
        return None
    error = result.error
    return result._replace(
        meta=dict(result.meta),
        error=error and error._replace(details=dict(error.details)),
        raw_value=None,
    )


def unpack_report(report: PackedReport, scenario: Scenario) -> ScenarioReport:
    """The report, put together again with the scenario that it is about."""
    if report.trials:
        from toolcrib.scenarios.trials import report_of  # noqa: PLC0415 -- most scenarios are tried once

        tried = [unpack_report(each, replace(scenario, trials=1, seed=each.seed)) for each in report.trials]
        return report_of(scenario, report.seed, tried)
    steps = _unpacked_steps(report.steps, scenario)
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
        agent=report.agent,
    )


def _unpacked_steps(packed_steps: Sequence[PackedStep], scenario: Scenario) -> tuple[StepReport, ...]:
    written = [each for each in packed_steps if each.asked is None]
    own = [
        StepReport(step=step, args=each.args, result=each.result, failures=each.failures, golden=each.golden)
        for step, each in zip(scenario.calls, written, strict=False)
    ]
    asked = [each for each in packed_steps if each.asked is not None]
    if not asked:
        return tuple(own)
    from toolcrib.scenarios.turns import AgentCall, constant  # noqa: PLC0415 -- most scenarios have no agent

    for each in asked:
        call, turn, place, name, reached, pointer = each.asked or ("", 0, 0, "", True, "")
        step = AgentCall(
            call=call,
            args=constant(each.args),
            turn=turn,
            place=place,
            id=name,
            reached=reached,
            pointer=pointer,
        )
        own.append(StepReport(step=step, args=each.args, result=each.result, failures=each.failures))
    return tuple(own)
