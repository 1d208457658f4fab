"""The report of a scenario and of its agent, as values, as text for people and as JSON; the digest of what happened."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from toolcrib.core.model import JSON, Outcome, Result
from toolcrib.core.text import canonical, compact, truncate
from toolcrib.expressions import Rendering
from toolcrib.loading.scenarios.model import NO_RULES, CallStep, ParallelStep, Scenario

if TYPE_CHECKING:
    from toolcrib.provider import Tokens

SHOWN = 2000
"""Bytes of one value that a report shows."""

SHOWN_TEXT = 600
"""Bytes of one text of a conversation that a report for people shows."""

BRIEF = 120
"""Bytes of why an assertion was not judged."""

TRIALS = 3
"""Bad trials that a report tells in full."""


class ScenarioFailure(NamedTuple):
    """One thing that was not as the scenario says.

    Attributes:
        what: `outcome`, `result`, `golden`, `error`, `content`, `attempts`, `elapsed`, `args` of a step; `calls`,
            `order`, `store`, `state`, `budget`, `final_text`, `stop` of the end; `fault` that did not happen;
            `unused_rules`; `worker` where the run itself was lost; `agent`, `user`, `answers`, `pending`, `provider`,
            `unscripted`, `script_failed`, `expect_result`, `assertion`, `unused_turns` of an agent; `trials` of all
            of them.
        lines: What was expected and what was there.
        pointer: Where the scenario says so.
    """

    what: str
    lines: tuple[str, ...]
    pointer: str


def common_warnings(reports: Sequence[ScenarioReport]) -> list[ScenarioFailure]:
    """What is odd about all of some runs, as the first tells it."""
    first, *others = reports
    odd = [{warning[::2] for warning in other.warnings} for other in others]
    return [warning for warning in first.warnings if all(warning[::2] in each for each in odd)]


class NotRun(NamedTuple):
    """Something that was to run and did not.

    Attributes:
        kind: `scenario`, `examples` of a tool, `tool`, or `file` of which nothing could be read.
        name: The name of the scenario or tool; empty for a file.
        source: The file.
        line: Where it begins, from 1.
        code: The code of the problem: `server_down` ...
        reason: Why it did not run.
        outcome: `unavailable` or `denied`, which fail a run; None where it was left out by a rule.
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
        place = f"{self.source}:{self.line}"
        return f"{what} ({place}): {outcome}{self.reason}" if what else f"{place}: {outcome}{self.reason}"


@dataclass(frozen=True, slots=True)
class GoldenChange:
    """A golden file that is to be written.

    Attributes:
        name: Its path, as the scenario names it.
        value: What it should hold; secrets masked.
        missing: Whether there is none yet.
    """

    name: str
    value: JSON
    missing: bool


class StepReport(NamedTuple):
    """What came of one step.

    Attributes:
        step: The step.
        args: The arguments of the call, worked out, or as written if that failed; secrets masked.
        result: What the call answered; None if its arguments could not be worked out.
        failures: What was not as expected.
        golden: The golden file that is to be written; None for none.
    """

    step: CallStep
    args: JSON
    result: Result | None
    failures: tuple[ScenarioFailure, ...] = ()
    golden: GoldenChange | None = None

    @property
    def number(self) -> int:
        """The number of the scenario's step, from 1; the calls of a parallel step share it."""
        return self.step.number


class FailureSummary(NamedTuple):
    """One block of the report of a scenario that failed.

    Attributes:
        what: As in `ScenarioFailure`, of its first one.
        title: `step 2 “the card is declined”`, `verify` or `run`.
        pointer: JSON Pointer into the document.
        head: The first thing that was not as it should be.
        lines: Everything: the call, what it answered, what was not as it should be.
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
        turn: The number of its turn in the document, from 1.
        place: Its number among the calls of the turn, from 1.
        id: Its id in the conversation.
        reached: Whether it reached the tool.
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
    """A value that is data."""
    return Rendering(constant=True, names=frozenset(), run=lambda _scope: value)


class TranscriptEntry(NamedTuple):
    """One thing that happened in a turn.

    Attributes:
        kind: `user`, `thinks`, `says`, `call` or `told`.
        text: What was said or told.
        tool: Of a call, and of what was told of it.
        args: Of a call.
        outcome: Of what was told.
        code: Finer than that.
    """

    kind: str
    text: str = ""
    tool: str = ""
    args: JSON = None
    outcome: str = ""
    code: str = ""

    def line(self) -> str:
        """The entry for people."""
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
        """The entry as an object; what it does not have is left out."""
        told: dict[str, JSON] = {
            key: value for key, value in self._asdict().items() if value not in ("", None)
        }
        return told


class AssertionReport(NamedTuple):
    """What came of an assertion.

    Attributes:
        type: Its kind.
        pointer: JSON Pointer into the document.
        message: What it shows, as written.
        threshold: The share of trials in which it must hold.
        applies: Whether it could be judged.
        passed: Whether it holds.
        score: How far.
        found: What was asked for and what was there; why it was not judged.
        unmet: Whether it was not judged because what its own `when` asks for did not happen.
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
        """Whether a run fails in which this came of it."""
        return self.applies and not self.passed and self.threshold > 0

    @property
    def named(self) -> str:
        """Its kind, and what it shows."""
        return f"{self.type} ({self.message})" if self.message else self.type

    @property
    def failure(self) -> ScenarioFailure:
        """It does not hold."""
        lines = tuple(f"{self.named}: {self.found}".splitlines())
        return ScenarioFailure(what="assertion", lines=lines, pointer=self.pointer)

    def as_json(self) -> dict[str, JSON]:
        """What came of it as an object."""
        return dict(self._asdict())


class TurnReport(NamedTuple):
    """What came of one turn.

    Attributes:
        number: Its number in the document, from 1.
        pointer: JSON Pointer into the document.
        entries: What happened, in order; secrets masked.
        stop: Why it ended; empty if it did not begin.
        detail: The same for a person.
        failures: What was not as expected, without assertions that did not hold.
        judged: Its assertions.
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
        """What the user said; empty where a turn went on."""
        return next((entry.text for entry in self.entries if entry.kind == "user"), "")

    @property
    def all_failures(self) -> tuple[ScenarioFailure, ...]:
        """What was not as it must be, assertions included."""
        return (*self.failures, *(judged.failure for judged in self.judged if judged.failed))

    @property
    def ending(self) -> str:
        """Why it ended, in a line."""
        return f"{self.stop}: {self.detail}" if self.detail else self.stop

    def lines(self) -> Iterator[str]:
        """What happened, for people."""
        for entry in self.entries:
            yield from entry.line().splitlines()
        if self.stop and not self.failures:
            yield from f"stopped   {truncate(self.ending, SHOWN_TEXT)}".splitlines()

    def as_json(self) -> dict[str, Any]:
        """The turn as an object, without its failures."""
        return {
            "number": self.number,
            "entries": [entry.as_json() for entry in self.entries],
            "stop": self.stop,
            "detail": self.detail,
            "assertions": [judged.as_json() for judged in self.judged],
        }


class AgentReport(NamedTuple):
    """What came of a conversation.

    Attributes:
        provider: Who spoke.
        tokens: What its answers took.
        model: The model that answered last; empty where that is not known.
        turns: What came of each turn.
        judged: The assertions about all of it.
        guardrails: Those that are never judged.
        rounds: Requests to the model.
        cost: US dollars; 0 where no prices are known.
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
        """All assertions: those of the turns, and those about all of it."""
        return (*(judged for turn in self.turns for judged in turn.judged), *self.judged)

    def as_json(self) -> dict[str, Any]:
        """The conversation as an object."""
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
    """What came of a scenario. It stops after the first step that fails, since later ones build on it.

    That of several trials holds their reports, and their steps one after the other.

    Attributes:
        scenario: The scenario.
        seed: The seed that was used.
        failed: Whether something was not as the scenario says.
        failures: What `verify` found, and what is wrong with a conversation as a whole.
        warnings: What is odd and fails no run: rules of its own mocks that no call used.
        agent: What came of its conversation; None where nobody spoke.
        trials: What came of each trial; none where there was one.
        duration: Seconds of real time.
        virtual: Seconds of virtual time.
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
        "virtual",
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
        virtual: float = 0.0,
        digest: Callable[[], str] = str,
        agent: AgentReport | None = None,
        trials: tuple[ScenarioReport, ...] = (),
    ) -> None:
        """Hold what is known; `steps` and `digest` work out what they give when somebody looks at it."""
        self.scenario = scenario
        self.seed = seed
        self.failed = not passed
        self.failures = failures
        self.warnings = warnings
        self.duration = duration
        self.virtual = virtual
        self.agent = agent
        self.trials = trials
        self._tell = steps
        self._tell_digest = digest
        self._steps: tuple[StepReport, ...] | None = None
        self._digest: str | None = None

    @property
    def steps(self) -> tuple[StepReport, ...]:
        """What came of the steps that ran."""
        if self._steps is None:
            self._steps = self._tell()
        return self._steps

    @property
    def digest(self) -> str:
        """SHA-256, in hex, of the trace: runs in which the same happened have the same one. Empty for a lost run."""
        if self._digest is None:
            self._digest = self._tell_digest()
        return self._digest

    def __repr__(self) -> str:
        return f"<ScenarioReport {self.scenario.name!r}, {self.verdict}>"

    @property
    def verdict(self) -> Literal["passed", "failed", "not judged"]:
        """What came of it; `not judged` where all that it asserts was skipped."""
        if self.failed:
            return "failed"
        return "passed" if self._is_judged else "not judged"

    @property
    def passed(self) -> bool:
        """Whether everything was as the scenario says, and something of that was judged."""
        return self.verdict == "passed"

    @property
    def _is_judged(self) -> bool:
        """Whether a step, an assertion or a rule was judged, or there is nothing but the conversation to judge."""
        agents = [each.agent for each in (self.trials or (self,)) if each.agent is not None]
        assertions = [judged for agent in agents for judged in agent.assertions]
        scenario = self.scenario
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
        """The assertions and guardrails that were not judged; of several trials, those that were judged in none."""
        judged: dict[tuple[str, str], list[AssertionReport]] = {}
        for each in self.trials or (self,):
            agent = each.agent
            for one in (*agent.assertions, *agent.guardrails) if agent is not None else ():
                judged.setdefault((one.pointer, one.type), []).append(one)
        return tuple(
            min(several, key=lambda one: one.unmet)
            for several in judged.values()
            if not any(one.applies for one in several)
        )

    @property
    def faults(self) -> list[FailureSummary]:
        """The steps and turns that failed, then what `verify` found, each as one block for people."""
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
        bad = [(number, trial) for number, trial in enumerate(self.trials, start=1) if trial.failed]
        for number, trial in bad[:TRIALS]:
            for fault in trial.faults:
                yield fault._replace(title=f"trial {number} (seed {trial.seed}) › {fault.title}")

    def __str__(self) -> str:
        """The failure as one readable block; one line for a scenario that passed."""
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
            lines.append(f"  and {self._untold} more bad trial{'s' if self._untold != 1 else ''}")
        lines += [*self._warned, *(f"  {line}" for line in self.order_lines)]
        lines.append(f"  seed {self.seed}")
        return "\n".join(lines)

    @property
    def _untold(self) -> int:
        """The number of bad trials that are not reported in full."""
        return max(sum(trial.failed for trial in self.trials) - TRIALS, 0)

    @property
    def _warned(self) -> list[str]:
        return [
            *(f"  {self.warned(warning)}" for warning in self.warnings),
            *(f"  {line}" for line in self.skipped_lines),
        ]

    @property
    def skipped_lines(self) -> list[str]:
        """The assertions and guardrails that were not judged, a line each, with its place."""
        return [
            f"`{each.named}` was not judged: {truncate(each.found, BRIEF)} ({self.scenario.origin.place(each.pointer)})"
            for each in self.skipped
        ]

    def warned(self, warning: ScenarioFailure) -> str:
        """One of the warnings as a line, with its place."""
        return f"warning: {warning.lines[0]} ({self.scenario.origin.place(warning.pointer)})"

    @property
    def order_lines(self) -> list[str]:
        """In which order the calls of parallel steps began, a line a step; none where they can begin in one only."""
        return [f"begun in the order {', '.join(labels)}" for labels in self._order()]

    def _order(self) -> list[list[str]]:
        if not self.scenario.order:
            return []
        parallel = (step for step in self.scenario.steps if isinstance(step, ParallelStep))
        return [[call.label for call in step.calls] for step in parallel]

    def _left(self) -> int:
        """How many steps did not run, or turns, where it came to those."""
        if self.trials:
            return 0
        if self.scenario.agent is not None and self._turns:
            return len(self.scenario.agent.turns) - len(self._turns)
        if not self.steps:
            return len(self.scenario.steps) if any(each.what == "worker" for each in self.failures) else 0
        failed = any(step.failures for step in self.steps)
        return len(self.scenario.steps) - self.steps[-1].number if failed else 0

    def as_json(self) -> dict[str, Any]:
        """The report as a JSON document."""
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
            "virtual": round(self.virtual, 6),
            "digest": self.digest,
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
        """What there is to tell of a conversation, and of trials."""
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
"""What is wrong with a turn, in one short word."""

_TITLE = 60
"""Bytes of what a user says that are shown as a title."""

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
        *(f"          {line}" for line in rest),
    ]


def _step_json(scenario: Scenario, step: StepReport) -> dict[str, Any]:
    return {
        "number": step.number,
        "branch": step.step.branch or None,
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
    """SHA-256, in hex, of all calls in order of their beginning, and of what is kept at the end. Secrets are masked.

    Args:
        steps: The calls: arguments, outcome, answer, attempts, and how long each took on virtual time.
        changes: What is different at the end in what mocks keep.
        virtual: Seconds of virtual time; None for a run on the machine's time, of which no time is in the digest.
        agent: What was said; None where nobody spoke.
    """
    timed = virtual is not None
    trace: dict[str, Any] = {
        "calls": [_call(step, timed=timed) for step in steps],
        "kept": changes,
        "virtual": virtual,
        **({} if agent is None else {"said": [turn.as_json() for turn in agent.turns]}),
    }
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
    elapsed = {"elapsed": round(result.usage.duration, 9)} if timed else {}
    return told | answer | elapsed


def digest_of_all(digests: Sequence[str]) -> str:
    """The digest of several traces together."""
    return hashlib.sha256("".join(digests).encode()).hexdigest()
