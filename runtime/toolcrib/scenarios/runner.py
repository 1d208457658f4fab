"""Runs one scenario: a fresh session on virtual time, its steps in order, then its verification."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any

from toolcrib.clock import RealClock, format_time
from toolcrib.engine import Runtime
from toolcrib.errors import ConfigurationError, ExpressionError
from toolcrib.in_force import with_modes
from toolcrib.loading.expectations import Expectation
from toolcrib.loading.scenarios import Parallel, Scenario, Step, mocked
from toolcrib.model import JSON, Outcome, Result
from toolcrib.registry import Registry
from toolcrib.rendering import Rendering
from toolcrib.scenarios.goldens import GoldenChange, judge_golden
from toolcrib.scenarios.logs import Happened, Log
from toolcrib.scenarios.reports import Failure, ScenarioReport
from toolcrib.scenarios.verifying import told
from toolcrib.scenarios.verifying import verify as verified
from toolcrib.session import Session
from toolcrib.virtual_clock import VirtualClock

_OK = Outcome.OK


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
    started = RealClock.monotonic()
    seed = scenario.seed if seed is None else seed
    session = runtime.session(
        id=scenario.base or scenario.name,
        seed=seed,
        clock=VirtualClock(scenario.start),
        registry=registry_for(runtime.registry, scenario),
    )
    run = _Run(session, scenario, update=update)
    try:
        passed = await run.to_the_end()
    finally:
        await session.aclose()
    verify = scenario.verify
    failures = run.verified() if passed and (verify.calls or verify.order is not None) else ()
    return ScenarioReport(
        scenario=scenario,
        seed=seed,
        steps=run.log.reports,
        passed=passed and not failures,
        failures=failures,
        duration=RealClock.monotonic() - started,
        virtual=session.clock.monotonic(),
    )


def registry_for(registry: Registry, scenario: Scenario) -> Registry:
    """The tools as a scenario sees them: its modes, then its mocks."""
    if not scenario.modes and not scenario.mocks:
        return registry

    def derive() -> Registry:
        moded = with_modes(registry, scenario.modes)
        return moded.with_tools(mocked(moded[name], scenario) for name in scenario.mocks)

    return registry.derived_once((scenario.modes, scenario.mocks, scenario.origin), derive)


class _Run:
    """The steps of one run: what they saved and what was called."""

    def __init__(self, session: Session, scenario: Scenario, *, update: bool) -> None:
        self._session = session
        self._scenario = scenario
        self._update = update
        self._scope: dict[str, JSON] = {"seed": session.seed, "run": scenario.run}
        if scenario.values:
            self._scope["matrix"] = dict(scenario.values)
        self.log = Log(session.registry)

    async def to_the_end(self) -> bool:
        """Run the steps, up to the first that is not as it says; whether there is none."""
        for step in self._scenario.steps:
            if not (await self.together(step) if isinstance(step, Parallel) else await self.step(step)):
                return False
        return True

    async def step(self, step: Step) -> bool:
        """Call, keep what came of it, compare; whether all was as the step says."""
        expect = step.expect
        # The commonest step reads nothing and expects only that its call ends well.
        scope = self._scope_of(step) if expect.parts or step.args.names else self._scope
        try:
            args: Any = step.args.run(scope)
        except ExpressionError as error:
            return self._told((_not_begun(step, error),), scope)
        session = self._session
        if session.answers_at_once(step.call):
            result = await session.call(step.call, args)
        else:
            args = self._handed_out(step, args)
            result = await session.call(step.call, args)
            self._keep_up_with(step)
        group = (tuple.__new__(Happened, (step, args, result, None)),)
        if step.save_as:
            self._save(step, result)
        if _is_good(expect, result, scope):
            self.log.add(group)
            return True
        return self._told(group, scope)

    async def together(self, parallel: Parallel) -> bool:
        """Begin all calls at one moment; when all have ended, settle them in the order of their beginning."""
        scope = self.scope().copy()
        made = [self._begun(step, scope) for step in parallel.calls]
        calls = [each for each in made if each.wrong is None]
        if all(self._session.answers_at_once(each.step.call) for each in calls):
            results = await self._one_by_one(calls)
        else:
            results = await self._at_once(calls)
            for each in calls:
                self._keep_up_with(each.step)
        answers = iter(results)
        ended = [each if each.wrong is not None else each._replace(result=next(answers)) for each in made]
        return self._settled(ended, scope)

    async def _one_by_one(self, begun: Iterable[Happened]) -> list[Result]:
        """The answers of calls that do not wait: each ends before the next one could begin anyway."""
        call: Callable[..., Awaitable[Result]] = self._session.call
        return [await call(each.step.call, each.args) for each in begun]

    async def _at_once(self, begun: Iterable[Happened]) -> list[Result]:
        call: Callable[..., Awaitable[Result]] = self._session.call
        # As one call under way, whose own calls they are: time can't move before the last of them has begun.
        with self._session.clock.working():
            return await asyncio.gather(*(call(each.step.call, each.args) for each in begun))

    def _begun(self, step: Step, scope: Mapping[str, JSON]) -> Happened:
        """A step with the arguments of its call, or with why they can't be worked out."""
        try:
            args = step.args.render(scope)
        except ExpressionError as error:
            return _not_begun(step, error)
        known = self._session.answers_at_once(step.call)
        return Happened(step, args if known else self._handed_out(step, args), None)

    def _handed_out(self, step: Step, args: JSON) -> JSON:
        """The arguments for somebody else's code: a copy, since the document and earlier answers may be in them."""
        self.log.before(step, args)
        return deepcopy(args)

    def _keep_up_with(self, step: Step) -> None:
        if not self._session.answers_at_once(step.call):
            self.log.keep_up()

    def _save(self, step: Step, result: Result) -> None:
        """Let later steps see what came of a step: as it is now, even if whoever answered changes it."""
        kept = saved(result)
        self._scope[step.save_as] = kept if self._session.answers_at_once(step.call) else deepcopy(kept)

    def _settled(self, group: Sequence[Happened], scope: Mapping[str, JSON]) -> bool:
        """Save and compare what came of steps; whether all was as they say."""
        good = True
        for step, _args, result, _wrong in group:
            if step.save_as and result is not None:
                self._save(step, result)
            good = good and result is not None and _is_good(step.expect, result, scope)
        if good:
            self.log.add(group)
            return True
        return self._told(group, scope)

    def _told(self, group: Sequence[Happened], scope: Mapping[str, JSON]) -> bool:
        """Tell steps of which not all is known to be good; whether all is."""

        def judge(happened: Happened, masked: Result) -> tuple[list[Failure], GoldenChange | None]:
            return self._judged(happened, masked, scope)

        return not any(report.failures for report in self.log.tell(group, judge))

    def _judged(
        self, happened: Happened, masked: Result, scope: Mapping[str, JSON]
    ) -> tuple[list[Failure], GoldenChange | None]:
        step, _args, result, _wrong = happened
        failures = [] if result is None else [*compare(step, result, masked, scope)]
        if step.expect.golden is None or masked.outcome is not Outcome.OK:
            return failures, None
        return failures, self._golden(step, step.expect.golden, masked, failures)

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

    def verified(self) -> tuple[Failure, ...]:
        """What is not as the scenario's `verify` says."""
        log = self.log
        return log.safe(verified(self._scenario.verify, log.recorded(), self.scope(), log.show))

    def _scope_of(self, step: Step) -> Mapping[str, JSON]:
        """What expressions of a step read; the time of day only if they do, since it takes long to write."""
        if "now" in step.args.names:
            return self.scope()
        for matcher in step.expect.parts.values():
            if "now" in matcher.names:
                return self.scope()
        return self._scope

    def scope(self) -> dict[str, JSON]:
        """What expressions of the scenario read: the results of the steps so far, the time, seed, run, matrix."""
        self._scope["now"] = format_time(self._session.clock.now())
        return self._scope


def _not_begun(step: Step, error: ExpressionError) -> Happened:
    failure = Failure(what="args", lines=(error.message,), pointer=step.pointer + "/args")
    return Happened(step, None, None, failure)


def saved(result: Result) -> JSON:
    """What later steps see of a call."""
    outcome = result.outcome
    return {
        "outcome": "ok" if outcome is _OK else outcome.value,  # the value of an outcome is slow to look up
        "result": result.value,
        "error": _error(result),
        "content": _content(result),
    }


def _error(result: Result) -> JSON:
    return None if result.error is None else result.error.as_json()


def _content(result: Result) -> list[JSON]:
    return [part.as_json() for part in result.content]


_PARTS: dict[str, Callable[[Result], JSON]] = {
    "result": lambda result: result.value,
    "error": _error,
    "content": _content,
    "attempts": lambda result: result.usage.attempts,
    "elapsed": lambda result: round(result.usage.duration, 9),
}


def _is_good(expect: Expectation, result: Result, scope: Mapping[str, JSON]) -> bool:
    """Whether an answer is as expected. What is not, or may not be, is for `compare` to tell."""
    wanted, ended = expect.outcome, result.outcome
    if expect.golden is not None or (ended is not wanted and (wanted is not None or ended is _OK)):
        return False
    if not expect.parts:
        return True
    try:
        for part, matcher in expect.parts.items():
            if not matcher.matches(_PARTS[part](result), scope):
                return False
    except ExpressionError:
        return False
    return True


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
