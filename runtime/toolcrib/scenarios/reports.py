"""Reports of scenarios and agents, as text for people and as JSON; and the digest of a run."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from toolcrib.core.model import JSON, Failure, Outcome, Result
from toolcrib.core.text import canonical, compact, truncate
from toolcrib.expressions import Rendering
from toolcrib.loading.scenarios.model import NO_RULES, CallStep, ParallelStep, RepeatStep, Scenario

if TYPE_CHECKING:
    from toolcrib.provider import Tokens

SHOWN = 2000
"""Maximum bytes of a value in a report."""

SHOWN_TEXT = 600
"""Maximum bytes of a text of a conversation in a report for people."""

BRIEF = 120
"""Maximum bytes of the reason why an assertion was not judged."""

TRIALS = 3
"""Maximum number of failed trials that a report describes in full."""


class ScenarioFailure(NamedTuple):
    """One failed expectation of a scenario.

    Attributes:
        what: `outcome`, `result`, `golden`, `error`, `content`, `attempts`, `elapsed`, `args` of a step; `calls`,
            `order`, `store`, `state`, `budget`, `final_text`, `stop` of the end; `fault` for one that did not happen;
            `unused_rules`; `worker` if the process of the run died; `agent`, `user`, `answers`, `pending`, `provider`,
            `unscripted`, `script_failed`, `expect_result`, `assertion`, `unused_turns` of an agent; `trials` for all
            trials together.
        lines: The expected and the actual values.
        pointer: JSON Pointer of the expectation in the scenario.
    """

    what: str
    lines: tuple[str, ...]
    pointer: str


def common_warnings(reports: Sequence[ScenarioReport]) -> list[ScenarioFailure]:
    """The warnings that all runs share, as in the first report."""
    first, *others = reports
    # Compare kind and pointer only: the lines may contain values that differ between runs.
    odd = [{warning[::2] for warning in other.warnings} for other in others]
    return [warning for warning in first.warnings if all(warning[::2] in each for each in odd)]


class NotRun(NamedTuple):
    """Something that should have run but did not.

    Attributes:
        kind: `scenario`, `examples` of a tool, `tool`, or an unreadable `file`.
        name: Name of the scenario or tool; empty for a file.
        source: Path of the file.
        line: First line in the file, from 1; 0 for a folder.
        code: Code of the problem, such as `server_down`.
        reason: Why it did not run.
        outcome: `unavailable` or `denied`, which fail the run; None if it was skipped on purpose.
    """

    kind: Literal["scenario", "examples", "tool", "file"]
    name: str
    source: str
    line: int
    code: str
    reason: str
    outcome: Outcome | None = Outcome.UNAVAILABLE

    def __str__(self) -> str:
        what = {"scenario": self.name, "examples": f"the examples of {self.name}"}.get(self.kind, self.name)
        outcome = f"{self.outcome}: " if self.outcome is not None else ""
        place = f"{self.source}:{self.line}" if self.line else self.source
        return f"{what} ({place}): {outcome}{self.reason}" if what else f"{place}: {outcome}{self.reason}"


@dataclass(frozen=True, slots=True)
class GoldenChange:
    """A golden file to write.

    Attributes:
        name: Path, as the scenario names it.
        value: New content, with secrets masked.
        missing: Whether the file does not exist yet.
    """

    name: str
    value: JSON
    missing: bool


class StepReport(NamedTuple):
    """The result of one step.

    Attributes:
        step: The step.
        args: Arguments of the call with secrets masked; as written if they could not be computed.
        result: Result of the call; None if the arguments could not be computed.
        failures: Failed expectations.
        golden: The golden file to write; None for none.
    """

    step: CallStep
    args: JSON
    result: Result | None
    failures: tuple[ScenarioFailure, ...] = ()
    golden: GoldenChange | None = None

    @property
    def number(self) -> int:
        """Number of the step in the scenario, from 1; the calls of a parallel step share it."""
        return self.step.number


class FailureSummary(NamedTuple):
    """One block in the report of a failed scenario.

    Attributes:
        what: `ScenarioFailure.what` of the first failure.
        title: `step 2 “the card is declined”`, `verify` or `run`.
        pointer: JSON Pointer into the document.
        head: First line of the first failure.
        lines: All lines: the call, its result, and the failures.
    """

    what: str
    title: str
    pointer: str
    head: str
    lines: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentCall(CallStep):
    """A call that an agent made, as a step of its own.

    Attributes:
        turn: Number of the turn in the document, from 1.
        place: Number of the call in its turn, from 1.
        id: Id of the call in the conversation.
        reached: Whether the call reached the tool.
    """

    turn: int = 0
    place: int = 0
    id: str = ""
    reached: bool = True

    @property
    def label(self) -> str:
        """`t2.1` for the first call of the second turn."""
        return f"t{self.turn}.{self.place}"

    @property
    def title(self) -> str:
        """`turn 2, call 1`, for reports."""
        return f"turn {self.turn}, call {self.place}"


def constant(value: JSON) -> Rendering:
    """A rendering that returns a fixed value."""
    return Rendering(constant=True, names=frozenset(), run=lambda _scope: value)


class TranscriptEntry(NamedTuple):
    """One entry in the transcript of a turn.

    Attributes:
        kind: `user`, `thinks`, `says`, `call` or `told`.
        text: Text of a message or of a result.
        tool: Name of the tool of a call or a result.
        args: Arguments of a call.
        outcome: Outcome of a result.
        code: Error code of a result.
    """

    kind: str
    text: str = ""
    tool: str = ""
    args: JSON = None
    outcome: str = ""
    code: str = ""

    def line(self) -> str:
        """Format the entry for people."""
        if self.kind == "call":
            args = self.args if isinstance(self.args, str) else compact(self.args)
            return f"call      {self.tool} {truncate(args, SHOWN_TEXT)}"
        text = truncate(self.text, SHOWN_TEXT)
        if self.kind == "told":
            code = f" ({self.code})" if self.code not in {"", self.outcome} else ""
            text = f"{self.tool}: {self.outcome}{code} {text.removeprefix(f'{self.code}: ')}"
        first, *rest = text.splitlines() or [""]
        return "\n".join([f"{self.kind:<9} {first}", *(f"          {line}" for line in rest)])

    def as_json(self) -> dict[str, JSON]:
        """Return the entry as an object without its empty members."""
        told: dict[str, JSON] = {
            key: value for key, value in self._asdict().items() if value not in ("", None)
        }
        return told


class AssertionReport(NamedTuple):
    """The result of an assertion.

    Attributes:
        type: Kind of the assertion.
        pointer: JSON Pointer into the document.
        message: The `message` of the assertion, as written.
        threshold: Share of trials in which the assertion must hold, from 0 to 1.
        applies: Whether the assertion was judged.
        passed: Whether the assertion holds.
        score: How far it holds, from 0 to 1.
        found: The expected and the actual values, or why it was not judged.
        unmet: Whether it was not judged because its own `when` did not happen.
    """

    type: str
    pointer: str
    message: str
    threshold: float
    applies: bool
    passed: bool
    score: float
    found: str
    unmet: bool = False

    @property
    def failed(self) -> bool:
        """Whether this result fails the run."""
        return self.applies and not self.passed and self.threshold > 0

    @property
    def named(self) -> str:
        """Kind and message."""
        return f"{self.type} ({self.message})" if self.message else self.type

    @property
    def failure(self) -> ScenarioFailure:
        """The failure for an assertion that does not hold."""
        lines = tuple(f"{self.named}: {self.found}".splitlines())
        return ScenarioFailure(what="assertion", lines=lines, pointer=self.pointer)

    def as_json(self) -> dict[str, JSON]:
        """Return the result as an object."""
        return dict(self._asdict())


class TurnReport(NamedTuple):
    """The result of one turn.

    Attributes:
        number: Number of the turn in the document, from 1.
        pointer: JSON Pointer into the document.
        entries: Transcript of the turn, with secrets masked.
        stop: Why the turn ended; empty if it did not begin.
        detail: The reason in words.
        failures: Failed expectations, without assertions.
        judged: Results of the assertions of the turn.
    """

    number: int
    pointer: str
    entries: tuple[TranscriptEntry, ...] = ()
    stop: str = ""
    detail: str = ""
    failures: tuple[ScenarioFailure, ...] = ()
    judged: tuple[AssertionReport, ...] = ()

    @property
    def said(self) -> str:
        """Message of the user; empty for a turn that answers pending calls."""
        return next((entry.text for entry in self.entries if entry.kind == "user"), "")

    @property
    def all_failures(self) -> tuple[ScenarioFailure, ...]:
        """All failures, including assertions."""
        return (*self.failures, *(judged.failure for judged in self.judged if judged.failed))

    @property
    def ending(self) -> str:
        """Why the turn ended, on one line."""
        return f"{self.stop}: {self.detail}" if self.detail else self.stop

    def lines(self) -> Iterator[str]:
        """Format the transcript for people."""
        for entry in self.entries:
            yield from entry.line().splitlines()
        # A failure explains the end of the turn already.
        if self.stop and not self.failures:
            yield from f"stopped   {truncate(self.ending, SHOWN_TEXT)}".splitlines()

    def as_json(self) -> dict[str, Any]:
        """Return the turn as an object, without its failures."""
        return {
            "number": self.number,
            "entries": [entry.as_json() for entry in self.entries],
            "stop": self.stop,
            "detail": self.detail,
            "assertions": [judged.as_json() for judged in self.judged],
        }


class AgentReport(NamedTuple):
    """The result of a conversation.

    Attributes:
        provider: Name of the provider.
        tokens: Tokens of all requests.
        model: Name of the model that answered last; empty if unknown.
        turns: Results of the turns.
        judged: Results of the assertions about the whole conversation.
        guardrails: Guardrails that are never judged.
        rounds: Number of requests to the model.
        cost: Cost in US dollars; 0 without known prices.
    """

    provider: str
    tokens: Tokens
    model: str = ""
    turns: tuple[TurnReport, ...] = ()
    judged: tuple[AssertionReport, ...] = ()
    guardrails: tuple[AssertionReport, ...] = ()
    rounds: int = 0
    cost: float = 0.0

    @property
    def assertions(self) -> tuple[AssertionReport, ...]:
        """All assertions: those of the turns, then those about the whole conversation."""
        return (*(judged for turn in self.turns for judged in turn.judged), *self.judged)

    def as_json(self) -> dict[str, Any]:
        """Return the conversation as an object."""
        return {
            "provider": self.provider,
            "model": self.model,
            "turns": [turn.as_json() for turn in self.turns],
            "assertions": [judged.as_json() for judged in self.judged],
            "guardrails": [judged.as_json() for judged in self.guardrails],
            "rounds": self.rounds,
            "tokens": self.tokens._asdict(),
            "cost": self.cost,
        }


class ScenarioReport:
    """The result of a scenario, which stops after the first failed step, since later steps build on it.

    The report of several trials contains their reports, and the steps of all of them.

    Attributes:
        scenario: The scenario.
        seed: The seed of the run.
        failed: Whether an expectation failed.
        failures: Failures of `verify`, and of the conversation as a whole.
        warnings: Findings that do not fail the run, such as mock rules that no call used.
        agent: Result of the conversation; None without an agent.
        trials: Reports of the trials; empty for a single one.
        duration: Virtual time in seconds; 0 for a scenario in real time.
        wall_time: Real time in seconds. It differs in every run, and is not in the JSON document.
    """

    __slots__ = (
        "_digest",
        "_steps",
        "_tell",
        "_tell_digest",
        "agent",
        "duration",
        "failed",
        "failures",
        "scenario",
        "seed",
        "trials",
        "wall_time",
        "warnings",
    )

    def __init__(
        self,
        *,
        scenario: Scenario,
        seed: int,
        steps: Callable[[], tuple[StepReport, ...]],
        passed: bool,
        failures: tuple[ScenarioFailure, ...] = (),
        warnings: tuple[ScenarioFailure, ...] = (),
        duration: float = 0.0,
        wall_time: float = 0.0,
        digest: Callable[[], str] = str,
        agent: AgentReport | None = None,
        trials: tuple[ScenarioReport, ...] = (),
    ) -> None:
        """Create a report. `steps` and `digest` are called when the properties are first read."""
        self.scenario = scenario
        self.seed = seed
        self.failed = not passed
        self.failures = failures
        self.warnings = warnings
        self.duration = duration
        self.wall_time = wall_time
        self.agent = agent
        self.trials = trials
        # Masking secrets in the steps takes time, and the steps of a passed run are rarely read.
        self._tell = steps
        self._tell_digest = digest
        self._steps: tuple[StepReport, ...] | None = None
        self._digest: str | None = None

    @property
    def steps(self) -> tuple[StepReport, ...]:
        """Reports of the steps that ran."""
        if self._steps is None:
            self._steps = self._tell()
        return self._steps

    @property
    def digest(self) -> str:
        """SHA-256 of the trace in hex; equal for runs with equal traces. Empty for a lost run."""
        if self._digest is None:
            self._digest = self._tell_digest()
        return self._digest

    def __repr__(self) -> str:
        return f"<ScenarioReport {self.scenario.name!r}, {self.verdict}>"

    @property
    def verdict(self) -> Literal["passed", "failed", "not judged"]:
        """The verdict; `not judged` if all assertions were skipped."""
        if self.failed:
            return "failed"
        return "passed" if self._is_judged else "not judged"

    @property
    def passed(self) -> bool:
        """Whether all expectations hold, and at least one was judged."""
        return self.verdict == "passed"

    @property
    def _is_judged(self) -> bool:
        """Whether a step, an assertion or a rule was judged, or the scenario contains none."""
        agents = [each.agent for each in (self.trials or (self,)) if each.agent is not None]
        assertions = [judged for agent in agents for judged in agent.assertions]
        scenario = self.scenario
        # A run whose every assertion was skipped proves nothing, so it must not be counted as passed.
        return bool(
            not assertions
            or any(judged.applies for judged in assertions)
            or any(True for _step in scenario.calls)
            or scenario.verify is not NO_RULES
            or (
                scenario.agent is not None
                and any(call.expect_result is not None for call in scenario.agent.scripted_calls)
            )
        )

    @property
    def skipped(self) -> tuple[AssertionReport, ...]:
        """Assertions and guardrails that were not judged in any trial."""
        judged: dict[tuple[str, str], list[AssertionReport]] = {}
        for each in self.trials or (self,):
            agent = each.agent
            for one in (*agent.assertions, *agent.guardrails) if agent is not None else ():
                judged.setdefault((one.pointer, one.type), []).append(one)
        return tuple(
            # Any reason is more informative than an unmet `when`.
            min(several, key=lambda one: one.unmet)
            for several in judged.values()
            if not any(one.applies for one in several)
        )

    @property
    def faults(self) -> list[FailureSummary]:
        """Failed steps and turns, then failures of `verify`, each as one block for people."""
        if self.trials:
            return [*(_fault_at_end(failure) for failure in self.failures), *self._faults_of_trials()]
        return [
            *(_fault_of(step) for step in self.steps if step.failures),
            *(_fault_of_turn(turn) for turn in self._turns if turn.all_failures),
            *(_fault_at_end(failure) for failure in self.failures),
        ]

    @property
    def _turns(self) -> Sequence[TurnReport]:
        return () if self.agent is None else self.agent.turns

    def _faults_of_trials(self) -> Iterator[FailureSummary]:
        # Failed trials usually fail alike, so only the first ones are described.
        bad = [(number, trial) for number, trial in enumerate(self.trials, start=1) if trial.failed]
        for number, trial in bad[:TRIALS]:
            for fault in trial.faults:
                yield fault._replace(title=f"trial {number} (seed {trial.seed}) › {fault.title}")

    def __str__(self) -> str:
        """Format a failure as a readable block; a passed scenario is one line."""
        if not self.failed:
            return "\n".join([f"{self.verdict} {self.scenario.name}", *self._warned])
        lines = []
        for fault in self.faults:
            place = self.scenario.origin.place(fault.pointer)
            lines.append(f"FAILED {self.scenario.name} › {fault.title} ({place})")
            lines += [f"  {line}" for line in fault.lines]
        left = self._left()
        if left:
            what = "turn" if self._turns else "step"
            lines.append(f"  {left} later {what}{'s' if left != 1 else ''} did not run")
        if self._untold:
            lines.append(f"  and {self._untold} more failed trial{'s' if self._untold != 1 else ''}")
        lines += [*self._warned, *(f"  {line}" for line in self.order_lines)]
        lines.append(f"  seed {self.seed}")
        return "\n".join(lines)

    @property
    def _untold(self) -> int:
        """Number of failed trials that are not described in full."""
        return max(sum(trial.failed for trial in self.trials) - TRIALS, 0)

    @property
    def _warned(self) -> list[str]:
        return [
            *(f"  {self.warned(warning)}" for warning in self.warnings),
            *(f"  {line}" for line in self.skipped_lines),
        ]

    @property
    def skipped_lines(self) -> list[str]:
        """One line with the place of each assertion and guardrail that was not judged."""
        return [
            f"`{each.named}` was not judged: {truncate(each.found, BRIEF)} ({self.scenario.origin.place(each.pointer)})"
            for each in self.skipped
        ]

    def warned(self, warning: ScenarioFailure) -> str:
        """Format a warning as a line with its place."""
        return f"warning: {warning.lines[0]} ({self.scenario.origin.place(warning.pointer)})"

    @property
    def order_lines(self) -> list[str]:
        """The order in which the calls of each parallel step began; empty unless the scenario runs in several orders."""
        return [f"calls began in the order {', '.join(labels)}" for labels in self._order()]

    def _order(self) -> list[list[str]]:
        if not self.scenario.order:
            return []
        steps = [
            each
            for step in self.scenario.steps
            for each in (step.once if isinstance(step, RepeatStep) else (step,))
        ]
        return [[call.label for call in step.calls] for step in steps if isinstance(step, ParallelStep)]

    def _left(self) -> int:
        """Number of steps that did not run; once the conversation began, number of turns."""
        if self.trials:
            return 0
        if self.scenario.agent is not None and self._turns:
            return len(self.scenario.agent.turns) - len(self._turns)
        if not self.steps:
            # A run whose process died has no step reports at all.
            return len(self.scenario.steps) if any(each.what == "worker" for each in self.failures) else 0
        failed = any(step.failures for step in self.steps)
        return len(self.scenario.steps) - self.steps[-1].number if failed else 0

    def as_json(self) -> dict[str, Any]:
        """Return the report as a JSON document."""
        return {
            "scenario": self.scenario.name,
            "source": self.scenario.origin.source,
            "line": self.scenario.origin.line,
            "matrix": dict(self.scenario.values),
            "run": self.scenario.run,
            "order": self._order(),
            "verdict": self.verdict,
            "passed": self.passed,
            "seed": self.seed,
            "duration": round(self.duration, 6),
            "digest": self.digest,
            # The reports of the trials contain their steps.
            "steps": [] if self.trials else [_step_json(self.scenario, step) for step in self.steps],
            "failures": [_failure_json(self.scenario, failure) for failure in self.failures],
            "warnings": [_failure_json(self.scenario, warning) for warning in self.warnings],
            "skipped": [
                {**each.as_json(), "line": self.scenario.origin.locate(each.pointer)[0]}
                for each in self.skipped
            ],
            **self._agent_json(),
        }

    def _agent_json(self) -> dict[str, Any]:
        """The members for a conversation and for trials."""
        told: dict[str, Any] = {}
        if self.agent is not None:
            told["agent"] = self.agent.as_json()
            for turn, each in zip(self._turns, told["agent"]["turns"], strict=True):
                each["line"] = self.scenario.origin.locate(turn.pointer)[0]
                each["failures"] = [_failure_json(self.scenario, failure) for failure in turn.all_failures]
        if self.trials:
            told["trials"] = [trial.as_json() for trial in self.trials]
        return told


def _fault_of(step: StepReport) -> FailureSummary:
    names = " › ".join(name for name in (step.step.within, step.step.name) if name)
    lines = [f"call      {step.step.call} {truncate(compact(step.args), SHOWN)}"]
    if step.result is not None:
        lines += _answer_lines(step.result)
    for failure in step.failures:
        head, *rest = failure.lines
        lines.append(f"{failure.what:<9} {head}")
        lines += [f"          {line}" for line in rest]
    return FailureSummary(
        what=step.failures[0].what,
        title=f"{step.step.title}{f' “{names}”' if names else ''}",
        pointer=step.step.pointer,
        head=step.failures[0].lines[0],
        lines=tuple(lines),
    )


def _fault_of_turn(turn: TurnReport) -> FailureSummary:
    failures = turn.all_failures
    lines = [*turn.lines()]
    for failure in failures:
        head, *rest = failure.lines
        lines.append(f"{_LABELS.get(failure.what, failure.what):<9} {head}")
        lines += [f"          {line}" for line in rest]
    said = f" “{truncate(turn.said, _TITLE)}”" if turn.said else ""
    return FailureSummary(
        what=failures[0].what,
        title=f"turn {turn.number}{said}",
        pointer=failures[0].pointer or turn.pointer,
        head=failures[0].lines[0],
        lines=tuple(lines),
    )


_LABELS = {"expect_result": "expected", "script_failed": "script", "unscripted": "script"}
"""Labels that fit the column of nine characters."""

_TITLE = 60
"""Maximum bytes of a user's message in a title."""

_TITLES = {
    "agent": "agent",
    "assertion": "agent",
    "fault": "fault",
    "trials": "trials",
    "unused_rules": "mocks",
    "unused_turns": "script",
    "worker": "run",
}


def _fault_at_end(failure: ScenarioFailure) -> FailureSummary:
    return FailureSummary(
        what=failure.what,
        title=_TITLES.get(failure.what, "verify"),
        pointer=failure.pointer,
        head=failure.lines[0],
        lines=failure.lines,
    )


def _answer_lines(result: Result) -> list[str]:
    if result.error is None:
        return [f"answered  {truncate(compact(result.value), SHOWN)}"]
    first, *rest = result.message.splitlines() or [""]
    outcome, code = str(result.outcome), result.error.code
    named = outcome if code == outcome else f"{outcome} ({code})"
    return [
        f"answered  {named}: {first}",
        *(f"          {line}" for line in [*rest, *_attempts(result, result.error)]),
    ]


_STOPPED_BY = {
    "budget": "the tool has used up its budget of repetitions",
    "deadline": "another attempt would begin after the deadline",
}
"""Why a temporary failure was not tried again, as `retry` in the details of the error says."""


def _attempts(result: Result, error: Failure) -> list[str]:
    """How often a failed call was attempted, and why not again; nothing for a single attempt that nothing stopped."""
    made = result.usage.attempts
    stopped = _STOPPED_BY.get(str(error.details.get("retry")))
    if made < 2 and stopped is None:
        return []
    return [f"{made} attempt{'s' if made != 1 else ''}{f'; {stopped}' if stopped else ''}"]


def _step_json(scenario: Scenario, step: StepReport) -> dict[str, Any]:
    return {
        "number": step.number,
        "branch": step.step.branch or None,
        "repetition": step.step.repetition or None,
        "name": step.step.name,
        "within": step.step.within,
        "call": step.step.call,
        "args": step.args,
        "line": scenario.origin.locate(step.step.pointer)[0],
        "result": None if step.result is None else step.result.as_json(),
        "failures": [_failure_json(scenario, failure) for failure in step.failures],
    }


def _failure_json(scenario: Scenario, failure: ScenarioFailure) -> dict[str, Any]:
    line = scenario.origin.locate(failure.pointer)[0]
    return {"what": failure.what, "lines": list(failure.lines), "pointer": failure.pointer, "line": line}


def digest_of(
    steps: Sequence[StepReport], changes: JSON, virtual: float | None, agent: AgentReport | None = None
) -> str:
    """Return the SHA-256 of a trace in hex: all calls in the order in which they began, and the final state.

    Args:
        steps: The calls: arguments, outcome, result, attempts and virtual duration, with secrets masked.
        changes: Changes in the state of the mocks.
        virtual: Virtual time in seconds; None for a run on real time, whose times are not part of the digest.
        agent: The conversation; None without an agent.
    """
    timed = virtual is not None
    trace: dict[str, Any] = {
        "calls": [_call(step, timed=timed) for step in steps],
        "kept": changes,
        "virtual": virtual,
        # Omitted, not null: another key would change the digest of every run without an agent.
        **({} if agent is None else {"said": [turn.as_json() for turn in agent.turns]}),
    }
    # Canonical JSON makes the digest independent of the order of keys.
    return hashlib.sha256(canonical(trace).encode()).hexdigest()


def _call(step: StepReport, *, timed: bool) -> dict[str, Any]:
    told: dict[str, Any] = {"step": step.step.label, "tool": step.step.call, "args": step.args}
    result = step.result
    if result is None:
        return told
    answer = {
        "outcome": result.outcome.value,
        "result": result.value,
        "content": [part.as_json() for part in result.content],
        "error": None if result.error is None else result.error.as_json(),
        "attempts": result.usage.attempts,
    }
    # Rounded, since sums of floats may differ in the last digits.
    elapsed = {"elapsed": round(result.usage.duration, 9)} if timed else {}
    return told | answer | elapsed


def digest_of_all(digests: Sequence[str]) -> str:
    """Combine the digests of several traces."""
    return hashlib.sha256("".join(digests).encode()).hexdigest()
