"""One turn, from round to round: what was said, what was asked for, what came of it. Nothing here waits.

A round, in the order of its methods: `request`, `hearing` and `take`, `judge`, `tell`, `close`; then `over`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from toolcrib.model import JSON, NOTHING, Outcome, Result
from toolcrib.provider.answers import planned, rejection
from toolcrib.provider.assembling import AnswerPart
from toolcrib.provider.calls import Begun, Ended, Planned
from toolcrib.provider.conversations import Answer, CallRecord, Conversation, Pending, Stop
from toolcrib.provider.enforcing import Ledger, Rulebook
from toolcrib.provider.hearing import Hearing, Ids
from toolcrib.provider.messages import Message, ToolCall, ToolResult
from toolcrib.provider.offering import Offering
from toolcrib.provider.pricing import Prices
from toolcrib.provider.refusing import REFUSED_ANSWER, Gate
from toolcrib.provider.requests import Finish, ProviderError, Request, Tokens
from toolcrib.provider.seeing import as_decided
from toolcrib.provider.spilling import media, told
from toolcrib.provider.timeline import Event, Timeline


class Terms(NamedTuple):
    """What a conversation is held under.

    Attributes:
        rulebook: The policy, by tool.
        prices: What answers cost; None where nobody knows.
        limit: Bytes that a model is shown of one result.
        reader: Name of the tool that reads on in long results.
        settings: The provider's own.
    """

    rulebook: Rulebook
    prices: Prices | None
    limit: int
    reader: str
    settings: Mapping[str, JSON]


class Turn:
    """A turn under way.

    Args:
        terms: What it is held under.
        gate: Says what may be called.
        conversation: Where it begins, or goes on.
    """

    def __init__(self, terms: Terms, gate: Gate, conversation: Conversation) -> None:
        self.spilled = dict(conversation.spilled)
        self._terms = terms
        self._gate = gate
        self._before = conversation
        self._messages = list(conversation.messages)
        self._new = self._messages[conversation.seen :]
        self._records = {record.id: record for record in conversation.calls}
        self._pending = {each.id: each for each in conversation.pending}
        self._tokens, self._cost = conversation.tokens, conversation.cost
        self._rounds, self._model = conversation.rounds, conversation.model
        self._timeline = Timeline(conversation.place)
        self._news: list[Event] = []
        known = {call.id for message in self._messages for call in message.calls}
        self._ids = Ids(known | conversation.place.calls.keys())
        self._turn = conversation.turns
        self._round = _rounds_of_turn(self._messages)
        self._ledger = Ledger(terms.rulebook, conversation.calls, self._turn)
        self._calls: tuple[ToolCall, ...] = ()
        self._open: dict[str, ToolCall] = {}
        self._told: dict[str, Message] = {}
        self._begun: dict[str, Begun] = {}
        self._finish: Finish | None = None
        self._spoke = False
        self._failed: tuple[Stop, str] | None = None

    # What was said.

    def begin(self) -> None:
        """The user has spoken."""
        spoken = [message for message in self._new if message.role == "user" and message.text]
        for message in spoken:
            self._hear(self._timeline.user(message.text))

    def request(self, offering: Offering, *, streaming: bool) -> Request:
        """What the model is asked next."""
        policy = self._terms.rulebook.policy
        first = self._round == 0 and offering.can_choose(policy.tool_choice)
        choice = policy.tool_choice if first else "auto"
        declared = () if choice == "none" else offering.declared(reading=bool(self.spilled))
        self._gate.enter(offering, choice)
        self._calls, self._finish = (), None
        self._round += 1
        self._rounds += 1
        return Request(
            messages=tuple(self._messages),
            tools=declared,
            tool_choice=offering.choice(choice) if declared or choice == "none" else "auto",
            parallel=policy.max_parallel > 1,
            streaming=streaming,
            settings=self._terms.settings,
            aware=any(message.calls for message in self._messages),
        )

    def hearing(self) -> Hearing:
        """Who hears the answer."""
        return Hearing(self._timeline, self._ids, self._gate.offering.tool_of)

    def take(self, hearing: Hearing) -> None:
        """The answer is whole: what it says and what it costs are part of the conversation."""
        parts, finish, events = hearing.end()
        self._finish = finish
        self._hear(events)
        self._spend(finish.tokens)
        self._model = finish.model or self._model
        message = Message("assistant", tuple(map(self._named, parts)))
        self._calls = message.calls
        self._open = {call.id: call for call in self._calls}
        for call in self._calls:
            self._note(call)
            self._hear(self._timeline.call(call.id, call.name, call.arguments))
        self._hear(self._timeline.message_ended())
        self._spoke = bool(parts)
        if parts:  # no provider takes a message of nothing
            self._say(message)

    def fail(self, error: ProviderError) -> None:
        """There is no answer."""
        self._failed = Stop.PROVIDER_FAILED, f"{error.message} ({error.code})"

    def give_up(self) -> None:
        """The provider has cancelled itself."""
        self._failed = Stop.CANCELLED, "the request to the model was cancelled from within"

    def _named(self, part: AnswerPart) -> AnswerPart:
        """A call by the name of its tool, with arguments as that takes them."""
        if not isinstance(part, ToolCall):
            return part
        offering = self._gate.offering
        tool = offering.tool_of(part.name)
        arguments = None if part.arguments is None else offering.restored(tool, part.arguments)
        return ToolCall(part.id, tool, arguments, part.written, "" if tool == part.name else part.name)

    def _spend(self, tokens: Tokens) -> None:
        self._tokens = self._tokens.plus(tokens)
        if self._terms.prices is not None:
            self._cost += self._terms.prices.cost(tokens)

    # What was asked for.

    def judge(self) -> list[Planned]:
        """The calls of the answer that are to be made; the others have their results, or wait."""
        too_dear = self._unaffordable()
        if self._calls and too_dear:
            self._ledger.exceed(Stop.MAX_COST, too_dear)
        plans = []
        for call in self._calls:
            refusal = self._gate.refusal(call, self._ledger, self._finish or Finish())
            if refusal is None:
                plans.append(Planned(call))
            elif isinstance(refusal, Pending):
                self._wait(refusal)
            else:
                self._settle(call, refusal)
        return plans

    def resume(self, answers: Mapping[str, Answer], offering: Offering) -> list[Planned]:
        """The calls that waited and are to be made now; the others have their results."""
        self._gate.enter(offering, "auto")
        last = next(message for message in reversed(self._messages) if message.calls)
        self._calls = last.calls
        self._open = {call.id: call for call in self._calls if call.id in self._pending}
        plans = []
        for call in self._open.copy().values():
            answer = answers[call.id]
            del self._pending[call.id]
            made = call if answer.arguments is None else call._replace(arguments=answer.arguments)
            self._open[call.id] = made
            refusal = rejection(call.name, answer) if answer.kind == "reject" else None
            refusal = refusal or self._ledger.judge_again(made, self._gate.now())
            if refusal is None:
                plans.append(planned(made, answer))
            else:
                self._settle(made, refusal)
        return plans

    def _note(self, call: ToolCall) -> None:
        self._records[call.id] = CallRecord(
            call.id, call.name, call.arguments, self._turn, self._round, at=self._gate.now()
        )

    # What came of it.

    def tell(self, news: Begun | Ended) -> None:
        """A call has begun, or has ended."""
        if isinstance(news, Begun):
            self._begun[news.id] = news
            self._hear(self._timeline.call_updated(news.id, "running"))
            return
        call, result = self._open[news.id], news.result
        if result.outcome is not Outcome.NEEDS_APPROVAL:
            self._settle(call, result)
            return
        error = result.error
        code, details = (result.outcome.value, NOTHING) if error is None else (error.code, error.details)
        self._wait(Pending(call.id, call.name, call.arguments or {}, code, result.message, details))

    def _wait(self, pending: Pending) -> None:
        self._pending[pending.id] = pending
        record = self._records[pending.id]
        self._records[pending.id] = record._replace(code=pending.code, message=pending.message)
        self._hear(self._timeline.call_updated(pending.id, "waiting", text=pending.message))

    def _settle(self, call: ToolCall, result: Result) -> None:
        """A call has its result."""
        text, handle, whole = told(result, self._terms.limit, self.spilled, self._terms.reader)
        if handle:
            self.spilled[handle] = whole
        text = self._edited(call) + text
        code = "" if result.error is None else result.error.code
        parts = (ToolResult(call.id, call.name, result.outcome, text, media(result), code),)
        self._told[call.id] = Message("tool", parts)
        del self._open[call.id]
        self._records[call.id] = self._recorded(call, result, code)
        status = "completed" if result.outcome is Outcome.OK else "failed"
        self._hear(self._timeline.call_updated(call.id, status, outcome=result.outcome.value, text=text))

    def _edited(self, call: ToolCall) -> str:
        """What the model is told of arguments that somebody else has decided on."""
        asked = next(each for each in self._calls if each.id == call.id)
        if asked.arguments == call.arguments:
            return ""
        return as_decided(call.arguments)

    def _recorded(self, call: ToolCall, result: Result, code: str) -> CallRecord:
        begun = self._begun.get(call.id)
        record = self._records[call.id]
        return record._replace(
            arguments=call.arguments,
            outcome=result.outcome,
            value=result.value,
            content=result.content,
            code=code,
            message=result.message,
            reached=result.usage.attempts > 0,
            attempts=result.usage.attempts,
            duration=result.usage.duration,
            at=record.at if begun is None else begun.at,
            states=NOTHING if begun is None else begun.states,
        )

    def close(self) -> None:
        """The round is over: its results are part of the conversation, in the order of the calls."""
        self._ledger.settle(self._records[call.id] for call in self._calls if call.id in self._told)
        if not self._told:
            return
        place = max(index for index, message in enumerate(self._messages) if message.calls) + 1
        behind = self._messages[place:]
        results = {part.id: message for message in behind for part in message.results} | self._told
        others = [message for message in behind if not message.results]
        self._messages[place:] = [*(results[call.id] for call in self._calls if call.id in results), *others]
        new = len(self._new) - len(others)  # what the user says to calls that wait comes behind their results
        self._new[new:new] = [self._told[call.id] for call in self._calls if call.id in self._told]
        self._told = {}
        if others:
            self._calls = ()

    def break_off(self) -> None:
        """The turn was cancelled, or can't go on: what is open is over."""
        for call in [*self._open.values()]:
            self._pending.pop(call.id, None)
            why = f"the call of `{call.name}` was cancelled"
            if call.id in self._begun:
                why += "; it had begun, and may have acted"
            self._settle(call, Result.failed(Outcome.CANCELLED, why))
        self.close()

    # Whether it goes on.

    def over(self) -> tuple[Stop, str] | None:
        """Why the turn is over, and the same for a person; None while it goes on."""
        if self._pending:
            waiting = ", ".join(f"`{each.tool}` ({each.id}: {each.code})" for each in self._pending.values())
            return Stop.PENDING, f"waiting: {waiting}"
        if self._failed is not None:
            return self._failed
        if self._finish is not None and not self._calls:
            return self._answered(self._finish.reason)
        records = [self._records[call.id] for call in self._calls]
        return self._bounded(records) or self._stopped(records) or self._no_more()

    def _answered(self, reason: str) -> tuple[Stop, str]:
        said = "" if self._spoke else "the model said nothing"
        return _ENDS.get(reason, Stop.ANSWERED), said if reason in _ENDS else f"the provider says `{reason}`"

    def _bounded(self, records: Iterable[CallRecord]) -> tuple[Stop, str] | None:
        for record in records:
            if record.outcome is Outcome.LIMIT_EXCEEDED and not record.reached and record.code in _BOUNDS:
                return Stop(record.code), record.message
            if record.code == REFUSED_ANSWER:
                return Stop.REFUSED, record.message
        return None

    def _stopped(self, records: Iterable[CallRecord]) -> tuple[Stop, str] | None:
        for record in records:
            if record.outcome is Outcome.OK and self._terms.rulebook.of(record.tool).stops:
                return Stop.STOP_ON_TOOL, f"`{record.tool}` was called"
        return None

    def _no_more(self) -> tuple[Stop, str] | None:
        """Why the model may not be asked once more."""
        policy = self._terms.rulebook.policy
        if self._round >= policy.max_rounds:
            return Stop.MAX_ROUNDS, f"one turn may have no more than {policy.max_rounds} requests"
        if policy.max_cost is not None and self._cost >= policy.max_cost:
            return (
                Stop.MAX_COST,
                f"the conversation has cost {self._cost:.6g} of {policy.max_cost:.6g} dollars",
            )
        return None

    def _unaffordable(self) -> str:
        most = self._terms.rulebook.policy.max_cost
        if most is None:
            return ""
        if self._terms.prices is None and any(self._tokens):
            return (
                f"what the conversation costs is not known, and it may cost no more than {most:.6g} dollars"
            )
        return f"the conversation may cost no more than {most:.6g} dollars" if self._cost > most else ""

    # What others see of it.

    def news(self) -> list[Event]:
        """What has happened since this was asked last."""
        news, self._news = self._news, []
        return news

    @property
    def unwritten(self) -> Sequence[Message]:
        """The messages that the sink has not got yet."""
        return tuple(self._new)

    def written(self) -> None:
        """The sink has them now."""
        self._new = []

    def end(self) -> Conversation:
        """The conversation, as far as it came."""
        over = self.over()
        if over is None:
            raise AssertionError("a turn that goes on has no end")
        stop, detail = over
        self._hear(self._timeline.turn_ended(stop.value))
        return Conversation(
            messages=tuple(self._messages),
            stop=stop,
            detail=detail,
            pending=tuple(self._pending[id_] for id_ in self._records if id_ in self._pending),
            calls=tuple(self._records.values()),
            tokens=self._tokens,
            cost=self._cost,
            rounds=self._rounds,
            spilled=self.spilled,
            model=self._model,
            seen=len(self._messages),
            place=self._timeline.place,
        )

    def _say(self, message: Message) -> None:
        self._messages.append(message)
        self._new.append(message)

    def _hear(self, events: Iterable[Event]) -> None:
        self._news += events


_BOUNDS = frozenset(stop.value for stop in Stop if stop.value.startswith("max_"))

_ENDS: Mapping[str, Stop] = {
    "stop": Stop.ANSWERED,
    "tool_calls": Stop.ANSWERED,
    "length": Stop.LENGTH,
    "refused": Stop.REFUSED,
}
"""Why an answer ended -> why the turn did, where nothing was called."""


def _rounds_of_turn(messages: list[Message]) -> int:
    """How often the model has answered since the user spoke last."""
    rounds = 0
    for message in reversed(messages):
        if message.role == "user":
            break
        rounds += message.role == "assistant"
    return rounds
