"""Runs one scenario: a fresh session on virtual time, its steps in order, then its verification."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from toolcrib.clock import RealClock, format_time
from toolcrib.engine import Runtime
from toolcrib.errors import ConfigurationError, ExpressionError
from toolcrib.in_force import with_modes
from toolcrib.loading.scenarios import Parallel, Scenario, Step, mocked
from toolcrib.model import JSON, Content, Outcome, Result, Schema
from toolcrib.registry import Registry
from toolcrib.rendering import Rendering
from toolcrib.scenarios.goldens import GoldenChange, judge_golden
from toolcrib.scenarios.reports import Failure, ScenarioReport, StepReport
from toolcrib.scenarios.verifying import Recorded, told, verify
from toolcrib.secrets import SeenSecrets, redact
from toolcrib.session import Session
from toolcrib.virtual_clock import VirtualClock

NOT_CALLED = frozenset({Outcome.NOT_FOUND, Outcome.INVALID_ARGUMENTS})
"""Calls that end so reached no tool and do not count as made."""


async def run_scenario(
    runtime: Runtime, scenario: Scenario, *, seed: int | None = None, update: bool = False
) -> ScenarioReport:
    """Run a scenario in a session of its own.

    Args:
        runtime: Holds the tools; it is not changed.
        scenario: What to run; of one with a matrix or that repeats, one of its runs (`runs_of`).
        seed: In place of the scenario's own.
        update: Take a result that differs from its golden file for right: the report says what to write.

    Raises:
        ConfigurationError: The scenario has a matrix, and this is none of its runs.
    """
    if scenario.matrix and not scenario.values:
        raise ConfigurationError(
            f"scenario `{scenario.name}` has a matrix", hint="run each of `runs_of(scenario)`"
        )
    started = RealClock().monotonic()
    seed = scenario.seed if seed is None else seed
    session = runtime.session(
        id=scenario.base or scenario.name,
        seed=seed,
        clock=VirtualClock(scenario.start),
        registry=registry_for(runtime.registry, scenario),
    )
    run = _Run(session, scenario, update=update)
    steps: list[StepReport] = []
    finished = True
    for step in scenario.steps:
        reports = await run.together(step) if isinstance(step, Parallel) else (await run.step(step),)
        steps += reports
        finished = not any(report.failures for report in reports)
        if not finished:
            break
    return ScenarioReport(
        scenario=scenario,
        seed=seed,
        steps=tuple(steps),
        failures=run.safe(verify(scenario.verify, run.recorded, run.scope())) if finished else (),
        duration=RealClock().monotonic() - started,
        virtual=session.clock.monotonic(),
    )


def registry_for(registry: Registry, scenario: Scenario) -> Registry:
    """The tools as a scenario sees them: its modes, then its mocks."""
    if not scenario.modes and not scenario.mocks:
        return registry
    moded = with_modes(registry, scenario.modes)
    return moded.with_tools(mocked(moded[name], scenario) for name in scenario.mocks)


class _Run:
    """The steps of one run: what they saved and what was called."""

    def __init__(self, session: Session, scenario: Scenario, *, update: bool) -> None:
        self._session = session
        self._scenario = scenario
        self._update = update
        self._saved: dict[str, JSON] = {"matrix": dict(scenario.values)} if scenario.values else {}
        self._seen = SeenSecrets()
        self.recorded: list[Recorded] = []

    async def step(self, step: Step) -> StepReport:
        """Call, keep what came of it, compare."""
        scope = self.scope()
        args = self._arguments(step, scope)
        if isinstance(args, StepReport):
            return args
        result = await self._session.call(step.call, args)  # type: ignore[arg-type]
        return self._settled(step, scope, args, result)

    async def together(self, parallel: Parallel) -> Sequence[StepReport]:
        """Begin all calls at one moment; when all have ended, settle them in the order of their beginning."""
        scope = self.scope()
        made = [(step, self._arguments(step, scope)) for step in parallel.calls]
        session = self._session
        # As one call under way, whose own calls they are: time can't move before the last of them has begun.
        with session.clock.working():
            results = await asyncio.gather(
                *(
                    session.call(step.call, args)  # type: ignore[arg-type]
                    for step, args in made
                    if not isinstance(args, StepReport)
                )
            )
        answers = iter(results)
        return [
            args if isinstance(args, StepReport) else self._settled(step, scope, args, next(answers))
            for step, args in made
        ]

    def _arguments(self, step: Step, scope: Mapping[str, JSON]) -> JSON | StepReport:
        """The arguments of a call, whose secrets are known from here on; a report where they can't be worked out."""
        schema = self._input_schema(step)
        try:
            args = step.args.render(scope)
        except ExpressionError as error:
            failure = Failure(what="args", lines=(error.message,), pointer=step.pointer + "/args")
            written = self._seen.hide_in(redact(step.written, schema))
            return StepReport(step=step, args=written, result=None, failures=self.safe([failure]))
        self._seen.add(args, schema)
        return args

    def _input_schema(self, step: Step) -> Schema | None:
        tool = self._session.registry.get(step.call)
        return tool.input_schema if tool is not None else None

    def _settled(self, step: Step, scope: Mapping[str, JSON], args: JSON, result: Result) -> StepReport:
        """What came of a call that was made: recorded, saved, compared."""
        shown = self._seen.hide_in(redact(args, self._input_schema(step)))
        if result.outcome not in NOT_CALLED and isinstance(args, dict):
            self.recorded.append(Recorded(step.call, args, shown, f"step {step.label}"))
        if step.save_as:
            self._saved[step.save_as] = saved(result)
        tool = self._session.registry.get(step.call)
        masked = self._masked(result, tool.output_schema if tool is not None else None)
        failures = [*compare(step, result, masked, scope)]
        change = None
        if step.expect.golden is not None and result.outcome is Outcome.OK:
            change = self._golden(step, step.expect.golden, masked, failures)
        return StepReport(step=step, args=shown, result=masked, failures=self.safe(failures), golden=change)

    def _golden(
        self, step: Step, golden: Rendering, masked: Result, failures: list[Failure]
    ) -> GoldenChange | None:
        """Compare with the golden file. What to write is told only of a step that is right otherwise."""
        scope: dict[str, JSON] = {"matrix": dict(self._scenario.values), "run": self._scenario.run}
        judged = judge_golden(golden, masked.value, self._scenario.origin.files, scope)
        if self._update and judged.change is not None and not failures:
            return judged.change
        if judged.lines:
            pointer = f"{step.pointer}/expect/golden"
            failures.append(Failure(what="golden", lines=judged.lines, pointer=pointer))
        return None

    def _masked(self, result: Result, schema: Schema | None) -> Result:
        """What may be shown of a result: secrets that calls brought may be anywhere in it."""
        self._seen.add(result.value, schema)
        hide: Callable[[Any], Any] = self._seen.hide_in
        error = result.error
        return result._replace(
            value=hide(redact(result.value, schema)),
            content=tuple(Content(**hide(part.as_json())) for part in result.content),
            message=self._seen.hide_in_text(result.message),
            error=error
            and error._replace(
                message=self._seen.hide_in_text(error.message), details=hide(dict(error.details))
            ),
            meta=hide(dict(result.meta)),
        )

    def safe(self, failures: Iterable[Failure]) -> tuple[Failure, ...]:
        """The failures without the secrets that the calls so far brought."""
        return tuple(
            replace(failure, lines=tuple(self._seen.hide_in_text(line) for line in failure.lines))
            for failure in failures
        )

    def scope(self) -> Mapping[str, JSON]:
        """What expressions of the scenario read: the results of the steps so far, the time, seed, run, matrix."""
        now = format_time(self._session.clock.now())
        return {"now": now, "seed": self._session.seed, "run": self._scenario.run, **self._saved}


def saved(result: Result) -> JSON:
    """What later steps see of a call."""
    document = result.as_json()
    return {key: document[key] for key in ("outcome", "result", "error", "content")}


_PARTS: dict[str, Callable[[Result], JSON]] = {
    "result": lambda result: result.value,
    "error": lambda result: result.as_json()["error"],
    "content": lambda result: result.as_json()["content"],
    "attempts": lambda result: result.usage.attempts,
    "elapsed": lambda result: round(result.usage.duration, 9),
}


def compare(step: Step, result: Result, masked: Result, scope: Mapping[str, JSON]) -> Iterable[Failure]:
    """What a call answered otherwise than its step expects; `masked` is what may be shown of it."""
    wanted = step.expect.outcome
    pointer = f"{step.pointer}/expect"
    if wanted is None and result.outcome is Outcome.OK:
        yield Failure(what="outcome", lines=("expected an error, got ok",), pointer=pointer)
        return
    if wanted is not None and result.outcome is not wanted:
        yield Failure(what="outcome", lines=(f"expected {wanted}, got {result.outcome}",), pointer=pointer)
        return
    for part, matcher in step.expect.parts.items():
        try:
            lines = told(matcher, _PARTS[part](result), _PARTS[part](masked), scope)
        except ExpressionError as error:
            yield Failure(what=part, lines=(error.message,), pointer=f"{pointer}/{part}{error.pointer}")
            continue
        if lines:
            yield Failure(what=part, lines=tuple(lines), pointer=f"{pointer}/{part}")
