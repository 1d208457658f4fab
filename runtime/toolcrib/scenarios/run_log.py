"""The log of a run: its calls, and the state of its mocks. Reports with masked secrets are made on demand."""

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
"""Outcomes of calls that did not reach a tool, and are not counted."""


class StepEvent(NamedTuple):
    """The result of one step.

    Attributes:
        step: The step.
        args: The arguments of its call.
        result: The result of the call; None if there was no call.
        wrong: Why the arguments could not be computed; None if there was a call.
    """

    step: CallStep
    args: JSON
    result: Result | None
    wrong: ScenarioFailure | None = None


class LoggedCall(NamedTuple):
    """A call that reached a tool.

    Attributes:
        place: Index among the calls of the run.
        step: The step that made the call.
        args: The arguments.
        outcome: The outcome.
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
        """Title of the step, or of the turn and call of an agent."""
        return self.step.title


Judge: TypeAlias = Callable[[StepEvent, Result], tuple[Sequence[ScenarioFailure], GoldenChange | None]]
"""Checks a result: accepts the event and its masked result; returns failures and the golden file to write."""


def _good(_event: StepEvent, _masked: Result) -> tuple[Sequence[ScenarioFailure], GoldenChange | None]:
    return (), None


def _reached(outcome: Outcome) -> bool:
    # Most outcomes are `ok`, and hashing an enum member for the set runs Python code.
    return outcome is _OK or outcome not in NOT_CALLED


class RunLog:
    """The steps of a run in order; parallel calls are one group."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._groups: list[Sequence[StepEvent]] = []
        self._reported = 0
        self._step_reports: list[StepReport] = []
        self._seen = Redactor()
        # Most runs pass. For them, appending is all that the log does; no report is made and nothing is masked.
        self.add: Callable[[Sequence[StepEvent]], object] = self._groups.append

    def note_call(self, step: CallStep, args: JSON) -> None:
        """Prepare for a call of third-party code, which may modify its arguments and earlier results."""
        self._catch_up()
        # The secrets are collected now, since the code may replace them in its arguments.
        self._seen.add(args, self._schema(step, "input_schema"))

    def report_at_once(self) -> None:
        """Report every group immediately from now on: third-party code may keep a result and modify it later."""
        self.add = self._report_now

    def _report_now(self, group: Sequence[StepEvent]) -> None:
        self._groups.append(group)
        self._catch_up()

    def report(self, group: Sequence[StepEvent], judge: Judge) -> list[StepReport]:
        """Add a group that may have failed, and report it immediately."""
        self._catch_up()
        self._groups.append(group)
        self._reported += 1
        reports = [*self._reports(group, judge)]
        self._step_reports += reports
        return reports

    def reports(self) -> tuple[StepReport, ...]:
        """The reports of all steps; each masks the secrets that were known when the step ended."""
        self._catch_up()
        return tuple(self._step_reports)

    def calls(self) -> list[LoggedCall]:
        """Return the calls that reached a tool."""
        events = (event for group in self._groups for event in group)
        return [
            # Faster than calling the class, and this runs for every call of every run.
            tuple.__new__(LoggedCall, (place, step, args, result.outcome))
            for place, (step, args, result, _wrong) in enumerate(events)
            if result is not None
            and _reached(result.outcome)
            and isinstance(args, dict)
            and (type(step) is CallStep or getattr(step, "reached", True))
        ]

    def attempts(self) -> int:
        """Total number of attempts of all calls."""
        results = (result for group in self._groups for _step, _args, result, _wrong in group)
        return sum(result.usage.attempts for result in results if result is not None)

    def mask(self, value: JSON) -> JSON:
        """Mask the secrets of the steps so far in a value."""
        self._catch_up()
        return self._seen.hide_in(value)

    def mask_text(self, text: str) -> str:
        """Mask the secrets of the steps so far in a text."""
        self._catch_up()
        return self._seen.hide_in_text(text)

    def masked_args(self, call: LoggedCall) -> JSON:
        """Return the arguments of a call with secrets masked."""
        return self.reports()[call.place].args

    def mask_failures(self, failures: Iterable[ScenarioFailure]) -> tuple[ScenarioFailure, ...]:
        """Mask the secrets of the steps so far in failures."""
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
        """Report a group."""
        # Collect the secrets of all arguments first: one parallel call may return what another received.
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
        """Remember the secrets in the arguments of a step; return the masked arguments, or the masked template."""
        schema = self._schema(event.step, "input_schema")
        if event.wrong is None:
            return self._seen.add(event.args, schema)
        return self._seen.hide_in(redact(event.step.written, schema))

    def _schema(self, step: CallStep, which: str) -> Schema | None:
        tool = self._registry.get(step.call)
        if tool is None:
            # Models call tools by their aliases.
            named = self._registry.named_by_alias(step.call)
            tool = None if named is None else self._registry.get(named)
        schema: Schema | None = None if tool is None else getattr(tool, which)
        return schema

    def _masked(self, result: Result, schema: Schema | None) -> Result:
        """Mask every part of a result: any of them may repeat a secret from the arguments of a call."""
        # A result may contain new secrets, which later results and arguments may repeat.
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
    """The store of a session, read on demand."""

    __slots__ = ("_fixture", "_scenario", "_session")

    def __init__(self, session: Session, scenario: Scenario) -> None:
        self._session = session
        self._scenario = scenario
        self._fixture: Fixture | None = None

    @property
    def fixture(self) -> Fixture:
        """The collections and machines that are visible to the run."""
        # Most runs never read the store, so its visible part is computed on demand.
        if self._fixture is None:
            self._fixture = visible_state(self._scenario, self._session.registry).fixture
        return self._fixture

    def rows(self, names: Iterable[str] | None = None) -> dict[str, Any]:
        """Return collection -> key -> current row, for the named or all visible collections.

        Reading a collection with invalid rows raises an ExpressionError.
        """
        from toolcrib.executors.mock.unit_of_work import UnitOfWork  # noqa: PLC0415 -- most scenarios read no rows

        there = self.fixture.collections
        chosen = there if names is None else {name: there[name] for name in names if name in there}
        return UnitOfWork(self._session.store, Fixture(chosen)).store()

    def changed(self) -> dict[str, Any]:
        """Return collection -> key -> current row, for rows that differ from the initial ones; None for a deleted row."""
        return {
            name: rows
            for name, rows in self._session.store.changed().items()
            if name in self.fixture.collections
        }

    def states(self) -> dict[str, JSON]:
        """Return machine -> current state."""
        return state_by_machine(self.fixture, self._session.store.version)

    def shown(self, rows: dict[str, Any]) -> dict[str, Any]:
        """Mask rows by the schemas of their collections and the names of their keys."""
        return {
            name: {key: redact(row, self.fixture.collections[name].schema) for key, row in inside.items()}
            for name, inside in rows.items()
        }


def changes_of(store: Store) -> dict[str, Any]:
    """Return the changed rows (None for a deleted one) and states, with secrets masked by their names."""
    changed: dict[str, Any] = {"rows": store.changed(), "states": dict(store.version.states)}
    return {key: redact(value) for key, value in changed.items()}


class RunScope(dict[str, JSON]):
    """The variables for expressions of a run; `store` and `state` are computed when they are read."""

    __slots__ = ("_kept",)

    def __init__(self, kept: StoreView, names: Mapping[str, JSON]) -> None:
        super().__init__(names)
        self._kept = kept

    def __missing__(self, name: str) -> JSON:
        # Few expressions read the store, and collecting its rows is slow.
        if name == "store":
            return self._kept.rows()
        if name == "state":
            return self._kept.states()
        raise KeyError(name)

    def copy(self) -> RunScope:
        """Copy the variables; `store` and `state` stay live."""
        return RunScope(self._kept, self)
