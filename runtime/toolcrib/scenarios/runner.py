"""Run one scenario in a fresh session on virtual time: its steps in order, its agent, then its verification.

A scenario with several trials runs once for each trial, with its own seed, and has one report for all of them.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeAlias

from toolcrib.core.clock import RealClock, format_time
from toolcrib.core.errors import ConfigurationError, ExpressionError, NetworkRefused
from toolcrib.core.model import JSON, Outcome, Result
from toolcrib.core.virtual_clock import VirtualClock
from toolcrib.engine.runtime import Runtime
from toolcrib.engine.session import Session, count_phrase
from toolcrib.loading.scenarios.model import (
    NO_RULES,
    REPETITION,
    AdvanceStep,
    CallStep,
    ParallelStep,
    RepeatStep,
    Scenario,
)
from toolcrib.scenarios.reports import (
    AssertionReport,
    GoldenChange,
    ScenarioFailure,
    ScenarioReport,
    StepReport,
    common_warnings,
    digest_of,
    digest_of_all,
)
from toolcrib.scenarios.run_log import RunLog, RunScope, StepEvent, StoreView, changes_of
from toolcrib.scenarios.run_setup import RunSetup, set_up_run
from toolcrib.scenarios.verification import (
    RunEvidence,
    compare_golden,
    compare_step,
    due_effects,
    failed_effects,
    fault_notes,
    is_expected,
    step_value,
    unfired_faults,
    unused_rules,
    verify,
)
from toolcrib.security.approvals import Answer, Pending

if TYPE_CHECKING:
    from toolcrib.expressions import Rendering
    from toolcrib.loading.scenarios.expectations import Golden
    from toolcrib.scenarios.agent_runner import AgentRunner
    from toolcrib.scenarios.run_setup import AgentSetup


async def run_scenario(
    runtime: Runtime, scenario: Scenario, *, seed: int | None = None, update: bool = False
) -> ScenarioReport:
    """Run a scenario in a new session; each of several trials has its own session.

    Args:
        runtime: The runtime with the tools; it is not changed.
        scenario: The scenario; for one with a matrix or repetitions, one of its runs (`runs_of`).
        seed: Replaces the seed of the scenario.
        update: Accept results that differ from their golden files; the report contains the new content.

    Raises:
        ConfigurationError: The scenario has a matrix, and is not one of its runs.
    """
    if scenario.matrix and not scenario.values:
        raise ConfigurationError(
            f"scenario `{scenario.name}` has a matrix", hint="run each of `runs_of(scenario)`"
        )
    first = scenario.seed if seed is None else seed
    if scenario.trials > 1:
        return await run_trials(
            scenario, first, lambda trial, number: _run(runtime, trial, number, update=update)
        )
    return await _run(runtime, scenario, first, update=update)


async def _run(runtime: Runtime, scenario: Scenario, seed: int, *, update: bool) -> ScenarioReport:
    started = RealClock.monotonic()
    setup = set_up_run(runtime, scenario)
    session = _session(runtime, setup, seed)
    run = _Run(session, scenario, update=update)
    try:
        passed = await run.run_steps()
        if passed and setup.agent is not None:
            passed = await run.run_agent(runtime, setup.agent)
    finally:
        await session.aclose()
    return _report_of(run, session, scenario, passed=passed, started=started)


def _session(runtime: Runtime, setup: RunSetup, seed: int) -> Session:
    scenario = setup.scenario
    return runtime.session(
        # The id is part of the key of generated values: runs of one scenario differ only by seed and matrix
        # values.
        id=scenario.base or scenario.name,
        seed=seed,
        clock=RealClock() if scenario.real else VirtualClock(scenario.start),
        registry=setup.tools,
    )


def _report_of(
    run: _Run, session: Session, scenario: Scenario, *, passed: bool, started: float
) -> ScenarioReport:
    """Create the report of a run. `verify` only applies if all steps passed; otherwise calls are missing."""
    failures = run.check_end() if passed else ()
    # Real times differ in every run, so they must not be part of the digest.
    virtual = None if scenario.real else session.clock.monotonic()
    log = run.log
    agent = None
    if run.agent is not None:
        failures = (*log.mask_failures(run.agent.all_failures), *_network_refusals(log.reports()), *failures)
        passed = passed and not run.agent.failed
        agent = run.agent.report()
    return ScenarioReport(
        scenario=scenario,
        seed=session.seed,
        steps=log.reports,
        passed=passed and not failures,
        failures=failures,
        warnings=run.warnings,
        agent=agent,
        duration=virtual or 0.0,
        wall_time=RealClock.monotonic() - started,
        digest=lambda: digest_of(log.reports(), log.mask(changes_of(session.store)), virtual, agent),
    )


def _network_refusals(steps: Iterable[StepReport]) -> list[ScenarioFailure]:
    """A failure for each tool whose calls by an agent may not reach the network. The agent may go on without their results."""
    errors = [step.result.error for step in steps if step.result is not None]
    refused = [error.message for error in errors if error is not None and error.code == NetworkRefused.code]
    return [ScenarioFailure("agent", (message,), "/agent") for message in dict.fromkeys(refused)]


class ScriptedApprover:
    """The approver of a step: gives its answers in order. `expire` waits until the approval has expired.

    Attributes:
        left: Number of answers that were not given yet.
    """

    def __init__(self, answers: Sequence[Rendering], scope: Mapping[str, JSON], session: Session) -> None:
        self.left = len(answers)
        self._answers = iter(answers)
        self._scope = scope
        self._clock = session.clock

    async def __call__(self, _pending: Pending) -> Answer | None:
        """Give the next answer; None after the last one, so that the call stays pending."""
        rendering = next(self._answers, None)
        if rendering is None:
            return None
        self.left -= 1
        said: Any = rendering.run(self._scope)
        answer = Answer.parse(said)
        if answer.kind == "expire" and isinstance(self._clock, VirtualClock):
            # The approvals end this wait when the approval expires.
            await self._clock.sleep(_LONGER_THAN_ANY)
        return answer


_LONGER_THAN_ANY = 1_000 * 366 * 86_400.0


class _Run:
    """One run: executes its steps, saves their results and logs their calls.

    Attributes:
        log: The calls of the run.
        store: The state of the mocks.
        agent: The conversation of the agent; None before it begins, and without an agent.
        advanced: Seconds by which steps advanced the time.
        warnings: Findings that do not fail the run.
    """

    def __init__(self, session: Session, scenario: Scenario, *, update: bool) -> None:
        self._session = session
        self._scenario = scenario
        self._update = update
        self.store = StoreView(session, scenario)
        self._scope = RunScope(self.store, {"seed": session.seed, "run": scenario.run})
        if scenario.values:
            self._scope["matrix"] = dict(scenario.values)
        self.log = RunLog(session.registry)
        self.agent: AgentRunner | None = None
        self.advanced = 0.0
        self.warnings: tuple[ScenarioFailure, ...] = ()
        self._began = session.clock.monotonic()
        self._approvers: dict[str, ScriptedApprover] = {}

    async def run_steps(self) -> bool:
        """Run the steps up to the first that fails. Returns whether all passed."""
        for step in self._scenario.steps:
            if not await (self._repeat(step) if isinstance(step, RepeatStep) else self._run(step)):
                return False
        return True

    async def _run(self, step: CallStep | ParallelStep | AdvanceStep) -> bool:
        if isinstance(step, CallStep):
            return await self.run_step(step)
        if isinstance(step, ParallelStep):
            return await self.run_parallel(step)
        return await self.advance(step)

    async def _repeat(self, repeated: RepeatStep) -> bool:
        """Run all repetitions, up to the first step that fails. Returns whether all passed."""
        many = len(repeated.once)
        for place, step in enumerate(repeated.steps):
            self._scope[REPETITION] = place // many + 1
            if not await self._run(step):
                return False
        del self._scope[REPETITION]
        return True

    async def run_agent(self, runtime: Runtime, setup: AgentSetup) -> bool:
        """Run the conversation of the agent. Returns whether all its turns ran."""
        from toolcrib.scenarios.agent_runner import AgentRun, AgentRunner  # noqa: PLC0415 -- most scenarios have no agent

        def names() -> RunScope:
            return self.scope().copy()

        self.agent = AgentRunner(AgentRun(runtime, self._session, self._scenario, setup, self.log, names))
        await self.agent.hold()
        return not self.agent.broken

    async def advance(self, step: AdvanceStep) -> bool:
        """Advance the time.

        Raises:
            ConfigurationError: The clock is real; the loader refuses such a document.
        """
        clock = self._session.clock
        if not isinstance(clock, VirtualClock):
            raise ConfigurationError("cannot advance a real clock", hint="remove the `AdvanceStep`")
        # Advancing also runs everything that is due in between, such as expiries and pending deadlines.
        await clock.advance(step.seconds)
        self.advanced += step.seconds
        return True

    async def run_step(self, step: CallStep) -> bool:
        """Make the call of a step, save its result and compare it. Returns whether it passed."""
        expect = step.expect
        # Most steps read no variables and only expect success. For them, no scope is computed.
        scope = self._scope_of(step) if expect.parts or step.args.names else self._scope
        try:
            args: Any = step.args.run(scope)
        except ExpressionError as error:
            return self._report((_not_called(step, error),), scope)
        session = self._session
        # Only mocks answer immediately. They keep no reference to their arguments, so these are not copied.
        if session.answers_at_once(step.call):
            result = await session.call(step.call, args)
        else:
            args = self._copied(step, args)
            result = await session.call(step.call, args, approver=self._approver(step))
            self._report_early(step)
        group = (tuple.__new__(StepEvent, (step, args, result, None)),)
        if step.save_as:
            self._save(step, result)
        # The boolean check is fast; differences are only computed for a failure.
        if is_expected(expect, result, scope) and not self._unused_answers(step):
            self.log.add(group)
            return True
        return self._report(group, scope)

    async def run_parallel(self, parallel: ParallelStep) -> bool:
        """Start all calls at the same time, wait for all, and compare the results in the order of their start."""
        # A copy, so that the calls cannot read each other's results.
        scope = self.scope().copy()
        made = [self._prepare(step, scope) for step in parallel.calls]
        calls = [each for each in made if each.wrong is None]
        if all(self._session.answers_at_once(each.step.call) for each in calls):
            results = await self._one_by_one(calls)
        else:
            results = await self._at_once(calls)
            for each in calls:
                self._report_early(each.step)
        answers = iter(results)
        ended = [each if each.wrong is not None else each._replace(result=next(answers)) for each in made]
        return self._finish(ended, scope)

    async def _one_by_one(self, begun: Iterable[StepEvent]) -> list[Result]:
        """Make calls that never wait; each would end before the next one could start."""
        call: Callable[..., Awaitable[Result]] = self._session.call
        return [await call(each.step.call, each.args) for each in begun]

    async def _at_once(self, begun: Iterable[StepEvent]) -> list[Result]:
        call: Callable[..., Awaitable[Result]] = self._session.call
        # `working` keeps virtual time from advancing until the last of the calls has started.
        with self._session.clock.working():
            return await asyncio.gather(
                *(call(each.step.call, each.args, approver=self._approver(each.step)) for each in begun)
            )

    def _approver(self, step: CallStep) -> ScriptedApprover | None:
        """The approver of a step; None if the step has no answers."""
        if not step.answers:
            return None
        approver = self._approvers[step.pointer] = ScriptedApprover(
            step.answers, self.scope().copy(), self._session
        )
        return approver

    def _unused_answers(self, step: CallStep) -> int:
        """The number of answers of a step that nobody asked for."""
        if not step.answers:
            return 0
        approver = self._approvers.get(step.pointer)
        return len(step.answers) if approver is None else approver.left

    def _prepare(self, step: CallStep, scope: Mapping[str, JSON]) -> StepEvent:
        """Compute the arguments of a step, or the reason why they cannot be computed."""
        try:
            args = step.args.render(scope)
        except ExpressionError as error:
            return _not_called(step, error)
        known = self._session.answers_at_once(step.call)
        return StepEvent(step, args if known else self._copied(step, args), None)

    def _copied(self, step: CallStep, args: JSON) -> JSON:
        """Copy arguments for third-party code, since they may share parts of the document and of earlier results."""
        self.log.note_call(step, args)
        return deepcopy(args)

    def _report_early(self, step: CallStep) -> None:
        if not self._session.answers_at_once(step.call):
            self.log.report_at_once()

    def _save(self, step: CallStep, result: Result) -> None:
        """Save the result of a step for later steps; a copy, if third-party code could modify it."""
        kept = step_value(result)
        self._scope[step.save_as] = kept if self._session.answers_at_once(step.call) else deepcopy(kept)

    def _finish(self, group: Sequence[StepEvent], scope: Mapping[str, JSON]) -> bool:
        """Save and compare the results of steps. Returns whether all passed."""
        good = True
        for step, _args, result, _wrong in group:
            if step.save_as and result is not None:
                self._save(step, result)
            good = good and result is not None and is_expected(step.expect, result, scope)
            good = good and not self._unused_answers(step)
        if good:
            self.log.add(group)
            return True
        return self._report(group, scope)

    def _report(self, group: Sequence[StepEvent], scope: Mapping[str, JSON]) -> bool:
        """Report steps that may have failed. Returns whether all passed."""

        def judge(event: StepEvent, masked: Result) -> tuple[list[ScenarioFailure], GoldenChange | None]:
            return self._check(event, masked, scope)

        return not any(report.failures for report in self.log.report(group, judge))

    def _check(
        self, event: StepEvent, masked: Result, scope: Mapping[str, JSON]
    ) -> tuple[list[ScenarioFailure], GoldenChange | None]:
        step, _args, result, _wrong = event
        failures = [] if result is None else [*compare_step(step, result, masked, scope)]
        unused = 0 if result is None else self._unused_answers(step)
        if unused:
            lines = (
                f"{count_phrase(unused, 'answer')} of the approver not used: the call was not held that often",
            )
            failures.append(ScenarioFailure("answers", lines, f"{step.pointer}/answers"))
        if failures and self._scenario.faults:
            failures += fault_notes(self._session, self._scenario, step.call)
        if step.expect.golden is None or masked.outcome is not Outcome.OK:
            return failures, None
        return failures, self._golden(step, step.expect.golden, masked, failures)

    def _golden(
        self, step: CallStep, golden: Golden, masked: Result, failures: list[ScenarioFailure]
    ) -> GoldenChange | None:
        """Compare with the golden file. A new content is only returned if the step passes otherwise."""
        scope: dict[str, JSON] = {"matrix": dict(self._scenario.values), "run": self._scenario.run}
        compared = compare_golden(golden, masked.value, self._scenario.origin.files, scope)
        # `--update` must not turn a wrong result into the expected one.
        if self._update and compared.change is not None and not failures:
            return compared.change
        if compared.lines:
            pointer = f"{step.pointer}/expect/golden"
            failures.append(ScenarioFailure(what="golden", lines=compared.lines, pointer=pointer))
        return None

    def check_end(self) -> tuple[ScenarioFailure, ...]:
        """Failures of `verify`, of faults that did not happen, and of unused mock rules."""
        scenario = self._scenario
        found = unfired_faults(self._session, scenario) if scenario.faults else []
        if scenario.mocks and scenario.verify.unused_rules != "ignore":
            left = unused_rules(self._session, scenario)
            if scenario.verify.unused_rules == "error":
                found += left
            else:
                self.warnings = tuple(left)
        found += failed_effects(self._session.store)
        self.warnings = (*self.warnings, *due_effects(self._session))
        if self.agent is not None:
            self.warnings = (*self.warnings, *self.log.mask_failures(self.agent.warnings))
        # Without rules, collecting the evidence is skipped.
        if scenario.verify is NO_RULES and not found:
            return ()
        log = self.log
        recorded = log.calls()
        spent = {"calls": len(recorded), "attempts": log.attempts(), "elapsed": self._elapsed()}
        last = None if self.agent is None else self.agent.last()
        evidence = RunEvidence(recorded, self.scope(), log.masked_args, self.store, spent, last)
        return log.mask_failures([*verify(scenario.verify, evidence), *found])

    def _elapsed(self) -> float:
        """Seconds since the first step began, without those by which steps advanced the time."""
        return round(self._session.clock.monotonic() - self._began - self.advanced, 9)

    def _scope_of(self, step: CallStep) -> Mapping[str, JSON]:
        """The variables for a step; `now` only if an expression reads it, since formatting it is slow."""
        if "now" in step.args.names:
            return self.scope()
        for matcher in step.expect.parts.values():
            if "now" in matcher.names:
                return self.scope()
        return self._scope

    def scope(self) -> RunScope:
        """The variables for expressions: results of the steps so far, `now`, `seed`, `run` and `matrix`."""
        self._scope["now"] = format_time(self._session.clock.now())
        return self._scope


def _not_called(step: CallStep, error: ExpressionError) -> StepEvent:
    failure = ScenarioFailure(what="args", lines=(error.message,), pointer=step.pointer + "/args")
    return StepEvent(step, None, None, failure)


_ROUNDING = 1e-9
"""Tolerance for thresholds such as 1/3, which have no exact binary form: one of three trials must reach it."""

RunTrial: TypeAlias = Callable[[Scenario, int], Awaitable[ScenarioReport]]
"""Runs a scenario once with a seed."""


async def run_trials(scenario: Scenario, first: int, run: RunTrial) -> ScenarioReport:
    """Run all trials of a scenario, with the seeds `first`, `first + 1` and so on.

    The scenario passes if the share of trials in which each assertion holds, and the share of trials without other
    failures, reach their thresholds.
    """
    trials = []
    for number in range(scenario.trials):
        seed = first + number
        trials.append(await run(replace(scenario, trials=1, seed=seed), seed))
    return report_of(scenario, first, trials)


def report_of(scenario: Scenario, seed: int, trials: Sequence[ScenarioReport]) -> ScenarioReport:
    """Combine the reports of all trials."""
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
        wall_time=sum(trial.wall_time for trial in trials),
        digest=lambda: digest_of_all([trial.digest for trial in trials]),
        trials=tuple(trials),
    )


def _failures(scenario: Scenario, trials: Sequence[ScenarioReport]) -> Iterator[ScenarioFailure]:
    """Failures for what did not hold in enough trials."""
    many, threshold = len(trials), scenario.pass_threshold
    good = sum(not _is_bad(trial) for trial in trials)
    if not _enough(good, many, threshold):
        line = f"{good} of {many} trials were good; {_wanted(threshold, many)}"
        yield ScenarioFailure("trials", (line,), _first_pointer(trials))
    for pointer, several in _by_pointer(trials).items():
        held = sum(judged.passed for judged in several)
        judged = several[0]
        if not _enough(held, len(several), judged.threshold):
            line = f"{judged.named} held in {held} of {len(several)} trials; {_wanted(judged.threshold, len(several))}"
            yield ScenarioFailure("trials", (line,), pointer)


def _is_bad(trial: ScenarioReport) -> bool:
    """Whether a trial has failures other than assertions."""
    turns = () if trial.agent is None else trial.agent.turns
    return bool(
        any(step.failures for step in trial.steps)
        or any(turn.failures for turn in turns)
        or any(failure.what != "assertion" for failure in trial.failures)
    )


def _by_pointer(trials: Sequence[ScenarioReport]) -> dict[str, list[AssertionReport]]:
    """Pointer of an assertion -> its results in the trials in which it applied."""
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
    return "all are required" if least == many else f"{least} of {many} are required"


def _first_pointer(trials: Sequence[ScenarioReport]) -> str:
    """The pointer of the first failure."""
    faults = (fault for trial in trials if _is_bad(trial) for fault in trial.faults)
    return next((fault.pointer for fault in faults if fault.what != "assertion"), "")


def _flaky(trials: Sequence[ScenarioReport]) -> Iterator[ScenarioFailure]:
    """Warnings for trials that failed although enough others passed."""
    many = len(trials)
    for number, trial in enumerate(trials, start=1):
        if trial.failed:
            fault = trial.faults[0]
            good = sum(not each.failed for each in trials)
            line = f"flaky: {good} of {many} trials passed; trial {number} (seed {trial.seed}) failed at {fault.title}: {fault.what}: {fault.head}"
            yield ScenarioFailure("trials", (line,), fault.pointer)
