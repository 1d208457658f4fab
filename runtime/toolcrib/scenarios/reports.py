"""What came of a scenario, as values, as text for people, and as JSON."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from toolcrib.loading.scenarios import Scenario, Step
from toolcrib.model import JSON, Result
from toolcrib.scenarios.goldens import GoldenChange
from toolcrib.text import compact, truncate

SHOWN = 2000
"""Bytes of one value that a report shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """One thing that was not as the scenario says.

    Attributes:
        what: `outcome`, `result`, `golden`, `error`, `content`, `attempts`, `elapsed`, `calls`, `order`, `args`;
            `worker` where the run itself was lost.
        lines: What was expected and what was there.
        pointer: Where the scenario says so.
    """

    what: str
    lines: tuple[str, ...]
    pointer: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """What came of one step.

    Attributes:
        step: The step.
        args: The arguments of the call, worked out, or as written if that failed; secrets masked.
        result: What the call answered; None if its arguments could not be worked out.
        failures: What was not as expected.
        golden: The golden file that is to be written; None for none.
    """

    step: Step
    args: JSON
    result: Result | None
    failures: tuple[Failure, ...] = ()
    golden: GoldenChange | None = None

    @property
    def number(self) -> int:
        """The number of the scenario's step, from 1; the calls of a parallel step share it."""
        return self.step.number


@dataclass(frozen=True, slots=True, kw_only=True)
class ScenarioReport:
    """What came of a scenario. It stops after the first step that fails, since later ones build on it.

    Attributes:
        scenario: The scenario.
        seed: The seed that was used.
        steps: What came of the steps that ran.
        failures: What `verify` found.
        duration: Seconds of real time.
        virtual: Seconds of the scenario's own time.
    """

    scenario: Scenario
    seed: int
    steps: tuple[StepReport, ...]
    failures: tuple[Failure, ...] = ()
    duration: float = 0.0
    virtual: float = 0.0

    @property
    def passed(self) -> bool:
        """Whether everything was as the scenario says."""
        return not self.failures and not any(step.failures for step in self.steps)

    def __str__(self) -> str:
        """The failure as one readable block; one line for a scenario that passed."""
        if self.passed:
            return f"passed {self.scenario.name}"
        lines = []
        for step in self.steps:
            lines += _step_lines(self.scenario, step) if step.failures else []
        left = len(self.scenario.steps) - (self.steps[-1].number if self.steps else 0)
        for failure in self.failures:
            what = "run" if failure.what == "worker" else "verify"
            lines.append(
                f"FAILED {self.scenario.name} › {what} ({self.scenario.origin.place(failure.pointer)})"
            )
            lines += [f"  {line}" for line in failure.lines]
        if left:
            lines.append(f"  {left} later step{'s' if left != 1 else ''} did not run")
        lines.append(f"  seed {self.seed}")
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        """The report as a JSON document."""
        return {
            "scenario": self.scenario.name,
            "source": self.scenario.origin.source,
            "line": self.scenario.origin.line,
            "matrix": dict(self.scenario.values),
            "run": self.scenario.run,
            "passed": self.passed,
            "seed": self.seed,
            "duration": round(self.duration, 6),
            "virtual": round(self.virtual, 6),
            "steps": [_step_json(self.scenario, step) for step in self.steps],
            "failures": [_failure_json(self.scenario, failure) for failure in self.failures],
        }


def _step_lines(scenario: Scenario, step: StepReport) -> list[str]:
    place = scenario.origin.place(step.step.pointer)
    title = f" “{step.step.name}”" if step.step.name else ""
    lines = [f"FAILED {scenario.name} › step {step.step.label}{title} ({place})"]
    lines.append(f"  call      {step.step.call} {truncate(compact(step.args), SHOWN)}")
    if step.result is not None:
        lines += _answer_lines(step.result)
    for failure in step.failures:
        head, *rest = failure.lines
        lines.append(f"  {failure.what:<9} {head}")
        lines += [f"            {line}" for line in rest]
    return lines


def _answer_lines(result: Result) -> list[str]:
    if result.error is None:
        return [f"  answered  {truncate(compact(result.value), SHOWN)}"]
    first, *rest = result.message.splitlines() or [""]
    return [
        f"  answered  {result.outcome} ({result.error.code}): {first}",
        *(f"            {line}" for line in rest),
    ]


def _step_json(scenario: Scenario, step: StepReport) -> dict[str, Any]:
    return {
        "number": step.number,
        "branch": step.step.branch or None,
        "name": step.step.name,
        "call": step.step.call,
        "args": step.args,
        "line": scenario.origin.locate(step.step.pointer)[0],
        "result": None if step.result is None else step.result.as_json(),
        "failures": [_failure_json(scenario, failure) for failure in step.failures],
    }


def _failure_json(scenario: Scenario, failure: Failure) -> dict[str, Any]:
    line = scenario.origin.locate(failure.pointer)[0]
    return {"what": failure.what, "lines": list(failure.lines), "pointer": failure.pointer, "line": line}
