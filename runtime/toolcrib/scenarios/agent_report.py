"""What came of the turns of an agent: plain values, as text for people, and as JSON."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from toolcrib.core.model import JSON, Outcome, Result
from toolcrib.core.text import compact, truncate
from toolcrib.expressions import Rendering
from toolcrib.loading.scenarios.model import CallStep
from toolcrib.provider import CallRecord, Message, Reasoning, Text, Tokens, ToolCall, ToolResult
from toolcrib.scenarios.reports import ScenarioFailure

SHOWN = 600
"""Bytes of one text that a report for people shows."""


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


def agent_call(record: CallRecord, turn: int, place: int, pointer: str) -> AgentCall:
    """The call of a record as a step."""
    arguments: JSON = record.arguments
    return AgentCall(
        call=record.tool,
        args=constant(arguments),
        turn=turn,
        place=place,
        id=record.id,
        reached=record.reached,
        pointer=pointer,
        written=arguments,
    )


def constant(value: JSON) -> Rendering:
    """A value that is data."""
    return Rendering(constant=True, names=frozenset(), run=lambda _scope: value)


def result_of(record: CallRecord) -> Result:
    """The result that a record tells of."""
    outcome = record.outcome or Outcome.INTERNAL
    if outcome is Outcome.OK:
        result = Result.ok(record.value, content=record.content)
    else:
        result = Result.failed(outcome, record.message, code=record.code or None, content=record.content)
    return result.with_usage(record.attempts, record.duration)


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
            return f"call      {self.tool} {truncate(args, SHOWN)}"
        text = truncate(self.text, SHOWN)
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
        pointer: Where it stands.
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
        pointer: Where it stands.
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
            yield from f"stopped   {truncate(self.ending, SHOWN)}".splitlines()

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
        model: The model that answered last; empty where that is not known.
        turns: What came of each turn.
        judged: The assertions about all of it.
        guardrails: Those that are never judged.
        rounds: Requests to the model.
        tokens: What its answers took.
        cost: US dollars; 0 where no prices are known.
    """

    provider: str
    model: str = ""
    turns: tuple[TurnReport, ...] = ()
    judged: tuple[AssertionReport, ...] = ()
    guardrails: tuple[AssertionReport, ...] = ()
    rounds: int = 0
    tokens: Tokens = Tokens()
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


def entries_of(
    messages: Sequence[Message], args: Mapping[str, JSON], hide: Callable[[str], str]
) -> Iterator[TranscriptEntry]:
    """What happened in some messages.

    Args:
        messages: Of one turn; what instructs the model is left out.
        args: Id of a call -> its arguments with secrets masked.
        hide: Masks secrets in a text.
    """
    for message in messages:
        for part in message.parts if message.role != "system" else ():
            match part:
                case Text(text):
                    yield TranscriptEntry("user" if message.role == "user" else "says", hide(text))
                case Reasoning(text) if text:
                    yield TranscriptEntry("thinks", hide(text))
                case ToolCall():
                    known = part.id in args and part.arguments is not None
                    shown = args[part.id] if known else hide(part.written or compact(part.arguments))
                    yield TranscriptEntry("call", tool=part.name, args=shown)
                case ToolResult():
                    yield TranscriptEntry(
                        "told", hide(part.text), part.name, None, part.outcome.value, part.code
                    )
