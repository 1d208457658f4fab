"""What happened in a run, as it happened. It is told without secrets, and only when somebody looks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

from toolcrib.core.model import JSON, Content, Outcome, Result, Schema
from toolcrib.loading.scenarios.steps import CallStep
from toolcrib.registry.registry import Registry
from toolcrib.scenarios.goldens import GoldenChange
from toolcrib.scenarios.reports import ScenarioFailure, StepReport
from toolcrib.scenarios.verification import LoggedCall
from toolcrib.security.redaction import SeenSecrets, redact

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


Judge: TypeAlias = Callable[[StepEvent, Result], tuple[Sequence[ScenarioFailure], GoldenChange | None]]
"""What is wrong with an answer, and what a golden file should hold; it gets what may be shown of the answer, too."""


def _good(_happened: StepEvent, _masked: Result) -> tuple[Sequence[ScenarioFailure], GoldenChange | None]:
    return (), None


def _reached(outcome: Outcome) -> bool:
    return outcome is _OK or outcome not in NOT_CALLED  # most are, and the hash of an outcome is slow


class RunLog:
    """The steps of a run in their order; those that began together are one group."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._groups: list[Sequence[StepEvent]] = []
        self._untold = 0
        self._told: list[StepReport] = []
        self._seen = SeenSecrets()
        # For a run whose steps are all good, which most are, this is all that is ever done.
        self.add: Callable[[Sequence[StepEvent]], object] = self._groups.append

    def before(self, step: CallStep, args: JSON) -> None:
        """Somebody else's code is about to run: it may change what it is given, and what it was given before."""
        self._catch_up()
        self._seen.add(args, self._schema(step, "input_schema"))

    def keep_up(self) -> None:
        """From now on tell each group as it is added: whoever answers may keep what they answered, and change it."""
        self.add = self._tell_now

    def _tell_now(self, group: Sequence[StepEvent]) -> None:
        self._groups.append(group)
        self._catch_up()

    def tell(self, group: Sequence[StepEvent], judge: Judge) -> list[StepReport]:
        """Add a group of which not all is known to be good, and tell it at once."""
        self._catch_up()
        self._groups.append(group)
        self._untold += 1
        reports = [*self._reports(group, judge)]
        self._told += reports
        return reports

    def reports(self) -> tuple[StepReport, ...]:
        """What came of all steps, secrets masked: each as far as they were known when it had ended."""
        self._catch_up()
        return tuple(self._told)

    def recorded(self) -> list[LoggedCall]:
        """The calls that reached a tool."""
        happened = (happened for group in self._groups for happened in group)
        return [
            tuple.__new__(LoggedCall, (place, step, args, result.outcome))
            for place, (step, args, result, _wrong) in enumerate(happened)
            if result is not None
            and _reached(result.outcome)
            and isinstance(args, dict)
            and (type(step) is CallStep or getattr(step, "reached", True))
        ]

    def attempts(self) -> int:
        """The attempts of all calls together."""
        results = (result for group in self._groups for _step, _args, result, _wrong in group)
        return sum(result.usage.attempts for result in results if result is not None)

    def hidden(self, value: JSON) -> JSON:
        """A value without the secrets that the steps so far brought."""
        self._catch_up()
        return self._seen.hide_in(value)

    def hidden_text(self, text: str) -> str:
        """A text without the secrets that the steps so far brought."""
        self._catch_up()
        return self._seen.hide_in_text(text)

    def show(self, call: LoggedCall) -> JSON:
        """The arguments of a call with secrets masked."""
        return self.reports()[call.place].args

    def safe(self, failures: Iterable[ScenarioFailure]) -> tuple[ScenarioFailure, ...]:
        """The failures without the secrets that the steps so far brought."""
        found = tuple(failures)
        if not found:
            return ()
        self._catch_up()
        return self._hidden(found)

    def _hidden(self, failures: Iterable[ScenarioFailure]) -> tuple[ScenarioFailure, ...]:
        return tuple(
            failure._replace(lines=tuple(self._seen.hide_in_text(line) for line in failure.lines))
            for failure in failures
        )

    def _catch_up(self) -> None:
        while self._untold < len(self._groups):
            group = self._groups[self._untold]
            self._untold += 1
            self._told += self._reports(group, _good)

    def _reports(self, group: Sequence[StepEvent], judge: Judge) -> Iterator[StepReport]:
        """The reports of a group; the secrets of all its arguments are known before any of its answers is told."""
        begun = [self._begun(happened) for happened in group]
        for happened, args in zip(group, begun, strict=True):
            step, _args, result, wrong = happened
            if result is None:
                failures = () if wrong is None else self._hidden([wrong])
                yield StepReport(step, args, None, failures)
            else:
                shown = self._seen.hide_in(args)
                masked = self._masked(result, self._schema(step, "output_schema"))
                found, golden = judge(happened, masked)
                yield StepReport(step, shown, masked, self._hidden(found) if found else (), golden)

    def _begun(self, happened: StepEvent) -> JSON:
        """Remember the secrets of arguments; gives what may be shown of them, or of what is written for them."""
        schema = self._schema(happened.step, "input_schema")
        if happened.wrong is None:
            return self._seen.add(happened.args, schema)
        return self._seen.hide_in(redact(happened.step.written, schema))

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
