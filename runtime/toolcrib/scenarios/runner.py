"""Runs one scenario: a fresh session on virtual time, its steps in order, then its verification."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any

from toolcrib.clock import RealClock, VirtualClock, format_time
from toolcrib.engine import Runtime, with_modes
from toolcrib.errors import ExpressionError
from toolcrib.loading.scenarios import Scenario, Step, mocked
from toolcrib.model import JSON, Content, Outcome, Result, Schema
from toolcrib.registry import Registry
from toolcrib.scenarios.reports import Failure, ScenarioReport, StepReport
from toolcrib.scenarios.verifying import Recorded, told, verify
from toolcrib.secrets import SeenSecrets, redact
from toolcrib.session import Session

NOT_CALLED = frozenset({Outcome.NOT_FOUND, Outcome.INVALID_ARGUMENTS})
"""Calls that end so reached no tool and do not count as made."""


async def run_scenario(runtime: Runtime, scenario: Scenario, *, seed: int | None = None) -> ScenarioReport:
    """Run a scenario in a session of its own.

    Args:
        runtime: Holds the tools; it is not changed.
        scenario: What to run.
        seed: In place of the scenario's own.
    """
    started = RealClock().monotonic()
    seed = scenario.seed if seed is None else seed
    session = runtime.session(
        id=scenario.name,
        seed=seed,
        clock=VirtualClock(scenario.start),
        registry=registry_for(runtime.registry, scenario),
    )
    run = _Run(session)
    steps: list[StepReport] = []
    for number, step in enumerate(scenario.steps, start=1):
        steps.append(await run.step(step, number))
        if steps[-1].failures:
            break
    finished = not steps[-1].failures
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

    def __init__(self, session: Session) -> None:
        self._session = session
        self._saved: dict[str, JSON] = {}
        self._seen = SeenSecrets()
        self.recorded: list[Recorded] = []

    async def step(self, step: Step, number: int) -> StepReport:
        """Call, keep what came of it, compare."""
        scope = self.scope()
        tool = self._session.registry.get(step.call)
        schema = tool.input_schema if tool is not None else None
        try:
            args = step.args.render(scope)
        except ExpressionError as error:
            failure = Failure(what="args", lines=(error.message,), pointer=step.pointer + "/args")
            written = self._seen.hide_in(redact(step.written, schema))
            failures = self.safe([failure])
            return StepReport(step=step, number=number, args=written, result=None, failures=failures)
        result = await self._session.call(step.call, args)  # type: ignore[arg-type]
        self._seen.add(args, schema)
        shown = self._seen.hide_in(redact(args, schema))
        if result.outcome not in NOT_CALLED and isinstance(args, dict):
            self.recorded.append(Recorded(step.call, args, shown, f"step {number}"))
        if step.save_as:
            self._saved[step.save_as] = saved(result)
        masked = self._masked(result, tool.output_schema if tool is not None else None)
        failures = self.safe(compare(step, result, masked, scope))
        return StepReport(step=step, number=number, args=shown, result=masked, failures=failures)

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
            and replace(
                error, message=self._seen.hide_in_text(error.message), details=hide(dict(error.details))
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
        """What expressions of the scenario read: the results of the steps so far, the time, the seed."""
        now = format_time(self._session.clock.now())
        return {"now": now, "seed": self._session.seed, **self._saved}


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
