"""Several trials of one run: each with a seed of its own, and one report of them all."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeAlias

from toolcrib.loading.scenarios.scenario import Scenario
from toolcrib.scenarios.digests import digest_of_all
from toolcrib.scenarios.reports import ScenarioFailure, ScenarioReport, common_warnings
from toolcrib.scenarios.turns import AssertionReport

_ROUNDING = 1e-9
"""A third of three trials is one, whatever a third is in binary."""

Running: TypeAlias = Callable[[Scenario, int], Awaitable[ScenarioReport]]
"""Runs a scenario once, with a seed."""


async def run_trials(scenario: Scenario, first: int, run: Running) -> ScenarioReport:
    """Run a scenario as often as it is tried, with the seeds `first`, `first + 1` and so on.

    It passes where the share of trials in which each assertion holds, and the share of those in which all else is
    good, reach their thresholds.
    """
    trials = []
    for number in range(scenario.trials):
        seed = first + number
        trials.append(await run(replace(scenario, trials=1, seed=seed), seed))
    return report_of(scenario, first, trials)


def report_of(scenario: Scenario, seed: int, trials: Sequence[ScenarioReport]) -> ScenarioReport:
    """One report of all trials."""
    failures = [*_failures(scenario, trials)]
    passed = not failures
    return ScenarioReport(
        scenario=scenario,
        seed=seed,
        steps=lambda: tuple(step for trial in trials for step in trial.steps),
        passed=passed,
        failures=tuple(failures),
        warnings=(*common_warnings(trials), *(_flaky(trials) if passed else ())),
        duration=sum(trial.duration for trial in trials),
        virtual=sum(trial.virtual for trial in trials),
        digest=lambda: digest_of_all([trial.digest for trial in trials]),
        trials=tuple(trials),
    )


def _failures(scenario: Scenario, trials: Sequence[ScenarioReport]) -> Iterator[ScenarioFailure]:
    """What did not hold often enough."""
    many, threshold = len(trials), scenario.pass_threshold
    good = sum(not _is_bad(trial) for trial in trials)
    if not _enough(good, many, threshold):
        line = f"{good} of {many} trials were good, {_wanted(threshold, many)}"
        yield ScenarioFailure("trials", (line,), _first_pointer(trials))
    for pointer, several in _by_pointer(trials).items():
        held = sum(judged.passed for judged in several)
        judged = several[0]
        if not _enough(held, len(several), judged.threshold):
            line = f"{judged.named} held in {held} of {len(several)} trials, {_wanted(judged.threshold, len(several))}"
            yield ScenarioFailure("trials", (line,), pointer)


def _is_bad(trial: ScenarioReport) -> bool:
    """Whether anything but an assertion is not as it must be."""
    turns = () if trial.agent is None else trial.agent.turns
    return bool(
        any(step.failures for step in trial.steps)
        or any(turn.failures for turn in turns)
        or any(failure.what != "assertion" for failure in trial.failures)
    )


def _by_pointer(trials: Sequence[ScenarioReport]) -> dict[str, list[AssertionReport]]:
    """Where an assertion stands -> what came of it in the trials in which it applied."""
    found: dict[str, list[AssertionReport]] = {}
    for trial in trials:
        for judged in () if trial.agent is None else trial.agent.assertions:
            if judged.applies:
                found.setdefault(judged.pointer, []).append(judged)
    return found


def _enough(held: int, many: int, threshold: float) -> bool:
    return held >= threshold * many - _ROUNDING


def _wanted(threshold: float, many: int) -> str:
    least = math.ceil(threshold * many - _ROUNDING)
    return "and all must be" if least == many else f"and {least} of {many} must be"


def _first_pointer(trials: Sequence[ScenarioReport]) -> str:
    """Where the first thing stands that is wrong."""
    faults = (fault for trial in trials if _is_bad(trial) for fault in trial.faults)
    return next((fault.pointer for fault in faults if fault.what != "assertion"), "")


def _flaky(trials: Sequence[ScenarioReport]) -> Iterator[ScenarioFailure]:
    """What was not as it must be in some trials, and often enough in the others."""
    many = len(trials)
    for number, trial in enumerate(trials, start=1):
        if trial.failed:
            fault = trial.faults[0]
            good = sum(not each.failed for each in trials)
            line = f"flaky: {good} of {many} trials passed; trial {number} (seed {trial.seed}) failed at {fault.title}: {fault.what}: {fault.head}"
            yield ScenarioFailure("trials", (line,), fault.pointer)
