"""What event in a run: its calls, and what its mocks keep. Reports without secrets are made only on demand."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

from toolcrib.core.model import JSON, Content, Fixture, Outcome, Result, Schema
from toolcrib.engine.session import Session
from toolcrib.loading.scenarios.model import CallStep, Scenario, visible_state
from toolcrib.registry.registry import Registry
from toolcrib.scenarios.reports import GoldenChange, ScenarioFailure, StepReport
from toolcrib.security.redaction import Redactor, redact
from toolcrib.simulation.store import Store, state_by_machine

_OK = Outcome.OK

NOT_CALLED = frozenset({Outcome.NOT_FOUND, Outcome.INVALID_ARGUMENTS})
"""Calls that end so reached no tool and do not count as made."""


class StepEvent(NamedTuple):
    """What came of one step.

    Attributes:
        step: The step.
        args: The arguments of its call.
        result: What the call answered; None if there was no call.
        wrong: Why its arguments could not be worked out, where there was no call.
    """

    step: CallStep
    args: JSON
    result: Result | None
    wrong: ScenarioFailure | None = None


class LoggedCall(NamedTuple):
    """A call that was made.

    Attributes:
        place: Its number among the calls of the run, from 0.
        step: The step that made it.
        args: Its arguments.
        outcome: How it ended.
    """

    place: int
    step: CallStep
    args: JSON
    outcome: Outcome

    @property
    def tool(self) -> str:
        """The name by which the tool was called."""
        return self.step.call

    @property
    def label(self) -> str:
        """By which step, or in which turn."""
        return self.step.title


Judge: TypeAlias = Callable[[StepEvent, Result], tuple[Sequence[ScenarioFailure], GoldenChange | None]]
"""What is wrong with an answer, and what a golden file should hold; it gets what may be shown of the answer, too."""


def _good(_event: StepEvent, _masked: Result) -> tuple[Sequence[ScenarioFailure], GoldenChange | None]:
    return (), None


def _reached(outcome: Outcome) -> bool:
    return outcome is _OK or outcome not in NOT_CALLED  # most are, and the hash of an outcome is slow


class RunLog:
    """The steps of a run in their order; those that began together are one group."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._groups: list[Sequence[StepEvent]] = []
        self._reported = 0
        self._step_reports: list[StepReport] = []
        self._seen = Redactor()
        # For a run whose steps are all good, which most are, this is all that is ever done.
        self.add: Callable[[Sequence[StepEvent]], object] = self._groups.append

    def note_call(self, step: CallStep, args: JSON) -> None:
        """Report what is known before a call that runs foreign code, which may change what it is given or was given."""
        self._catch_up()
        self._seen.add(args, self._schema(step, "input_schema"))

    def report_at_once(self) -> None:
        """From now on report each group as it is added: who answers may keep their answer, and change it."""
        self.add = self._report_now

    def _report_now(self, group: Sequence[StepEvent]) -> None:
        self._groups.append(group)
        self._catch_up()

    def report(self, group: Sequence[StepEvent], judge: Judge) -> list[StepReport]:
        """Add a group of which not all is known to be good, and report it at once."""
        self._catch_up()
        self._groups.append(group)
        self._reported += 1
        reports = [*self._reports(group, judge)]
        self._step_reports += reports
        return reports

    def reports(self) -> tuple[StepReport, ...]:
        """What came of all steps, secrets masked: each as far as they were known when it had ended."""
        self._catch_up()
        return tuple(self._step_reports)

    def calls(self) -> list[LoggedCall]:
        """The calls that reached a tool."""
        events = (event for group in self._groups for event in group)
        return [
            tuple.__new__(LoggedCall, (place, step, args, result.outcome))
            for place, (step, args, result, _wrong) in enumerate(events)
            if result is not None
            and _reached(result.outcome)
            and isinstance(args, dict)
            and (type(step) is CallStep or getattr(step, "reached", True))
        ]

    def attempts(self) -> int:
        """The attempts of all calls together."""
        results = (result for group in self._groups for _step, _args, result, _wrong in group)
        return sum(result.usage.attempts for result in results if result is not None)

    def mask(self, value: JSON) -> JSON:
        """A value without the secrets that the steps so far brought."""
        self._catch_up()
        return self._seen.hide_in(value)

    def mask_text(self, text: str) -> str:
        """A text without the secrets that the steps so far brought."""
        self._catch_up()
        return self._seen.hide_in_text(text)

    def masked_args(self, call: LoggedCall) -> JSON:
        """The arguments of a call with secrets masked."""
        return self.reports()[call.place].args

    def mask_failures(self, failures: Iterable[ScenarioFailure]) -> tuple[ScenarioFailure, ...]:
        """The failures without the secrets that the steps so far brought."""
        found = tuple(failures)
        if not found:
            return ()
        self._catch_up()
        return self._masked_failures(found)

    def _masked_failures(self, failures: Iterable[ScenarioFailure]) -> tuple[ScenarioFailure, ...]:
        return tuple(
            failure._replace(lines=tuple(self._seen.hide_in_text(line) for line in failure.lines))
            for failure in failures
        )

    def _catch_up(self) -> None:
        while self._reported < len(self._groups):
            group = self._groups[self._reported]
            self._reported += 1
            self._step_reports += self._reports(group, _good)

    def _reports(self, group: Sequence[StepEvent], judge: Judge) -> Iterator[StepReport]:
        """The reports of a group; the secrets of all its arguments are known before any of its answers is reported."""
        arguments = [self._note_args(event) for event in group]
        for event, args in zip(group, arguments, strict=True):
            step, _args, result, wrong = event
            if result is None:
                failures = () if wrong is None else self._masked_failures([wrong])
                yield StepReport(step, args, None, failures)
            else:
                shown = self._seen.hide_in(args)
                masked = self._masked(result, self._schema(step, "output_schema"))
                found, golden = judge(event, masked)
                yield StepReport(step, shown, masked, self._masked_failures(found) if found else (), golden)

    def _note_args(self, event: StepEvent) -> JSON:
        """Remember the secrets of arguments; gives what may be shown of them, or of what is written for them."""
        schema = self._schema(event.step, "input_schema")
        if event.wrong is None:
            return self._seen.add(event.args, schema)
        return self._seen.hide_in(redact(event.step.written, schema))

    def _schema(self, step: CallStep, which: str) -> Schema | None:
        tool = self._registry.get(step.call)
        if tool is None:
            named = self._registry.named_by_alias(step.call)
            tool = None if named is None else self._registry.get(named)
        schema: Schema | None = None if tool is None else getattr(tool, which)
        return schema

    def _masked(self, result: Result, schema: Schema | None) -> Result:
        """What may be shown of a result: secrets that calls brought may be anywhere in it."""
        value = self._seen.add(result.value, schema)
        hide: Callable[[Any], Any] = self._seen.hide_in
        error = result.error
        return result._replace(
            value=hide(value),
            content=tuple(Content(**hide(part.as_json())) for part in result.content),
            message=self._seen.hide_in_text(result.message),
            error=error
            and error._replace(
                message=self._seen.hide_in_text(error.message), details=hide(dict(error.details))
            ),
            meta=hide(dict(result.meta)),
        )


class StoreView:
    """The store of a run's session. Nothing of it is looked at before somebody asks."""

    __slots__ = ("_fixture", "_scenario", "_session")

    def __init__(self, session: Session, scenario: Scenario) -> None:
        self._session = session
        self._scenario = scenario
        self._fixture: Fixture | None = None

    @property
    def fixture(self) -> Fixture:
        """What the run can see of the collections and machines."""
        if self._fixture is None:
            self._fixture = visible_state(self._scenario, self._session.registry).fixture
        return self._fixture

    def rows(self, names: Iterable[str] | None = None) -> dict[str, Any]:
        """Collection -> key -> row as it is now, of these collections or of all in sight.

        Where the rows of one can't be had, who looks for them is told, with an ExpressionError.
        """
        from toolcrib.executors.mock.unit_of_work import UnitOfWork  # noqa: PLC0415 -- most scenarios read no rows

        there = self.fixture.collections
        chosen = there if names is None else {name: there[name] for name in names if name in there}
        return UnitOfWork(self._session.store, Fixture(chosen)).store()

    def states(self) -> dict[str, JSON]:
        """Machine -> its state now."""
        return state_by_machine(self.fixture, self._session.store.version)

    def shown(self, rows: dict[str, Any]) -> dict[str, Any]:
        """Rows without what the schemas of their collections, or their own keys, call a secret."""
        return {
            name: {key: redact(row, self.fixture.collections[name].schema) for key, row in inside.items()}
            for name, inside in rows.items()
        }


def changes_of(store: Store) -> dict[str, Any]:
    """What is different from the beginning: the rows of collections, None for a row that was deleted; states.

    What their names call a secret is masked.
    """
    changed: dict[str, Any] = {"rows": store.changed(), "states": dict(store.version.states)}
    return {key: redact(value) for key, value in changed.items()}


class RunScope(dict[str, JSON]):
    """What the expressions of a run read: what it has put in, and `store` and `state` as they are at that moment."""

    __slots__ = ("_kept",)

    def __init__(self, kept: StoreView, names: Mapping[str, JSON]) -> None:
        super().__init__(names)
        self._kept = kept

    def __missing__(self, name: str) -> JSON:
        if name == "store":
            return self._kept.rows()
        if name == "state":
            return self._kept.states()
        raise KeyError(name)

    def copy(self) -> RunScope:
        """What is put in as it is now; the rows and states go on."""
        return RunScope(self._kept, self)
