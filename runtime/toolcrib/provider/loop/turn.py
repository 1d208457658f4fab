"""The state of one turn: messages, calls, results and events. Nothing here waits.

The methods of `ConversationTurn` in the order of a round: `request`, `decoder`, `accept`, `judge`, `record`,
`end_round`, `stop_reason`. `StreamDecoder` turns an answer into events as it arrives, in the order in which
its parts start.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from toolcrib.core.model import JSON, NOTHING, Content, Outcome, Result
from toolcrib.core.text import part_text, truncate
from toolcrib.provider.conversations import CallRecord, Conversation, Stop, mask_message
from toolcrib.provider.loop.approvals import ApprovalGate, answer_refusal, planned_call
from toolcrib.provider.loop.calls import (
    CallEnd,
    CallEvent,
    CallStart,
    PlannedCall,
    ResultReader,
    limit_content,
    media_parts,
    render_result,
)
from toolcrib.provider.loop.policy_enforcer import CallUsage, Rulebook, ToolOffer
from toolcrib.provider.loop.timeline import Event, Timeline
from toolcrib.provider.messages import Message, Reasoning, Text, ToolCall, ToolResult
from toolcrib.provider.models.assembler import AnswerPart, Assembler
from toolcrib.provider.models.protocol import (
    NO_TOKENS,
    CallDelta,
    Delta,
    Finish,
    Prices,
    ProviderError,
    ReasoningDelta,
    Request,
    TextDelta,
    Tokens,
)
from toolcrib.provider.models.scripted import decision_note
from toolcrib.security.approvals import Answer, Pending
from toolcrib.security.redaction import CallRedactor, restore_hidden
from toolcrib.servers.environment import NetworkEnvironment


class TurnSettings(NamedTuple):
    """The settings of all turns of a loop.

    Attributes:
        rulebook: The policy, by tool.
        prices: Prices of the model, if known.
        limit: Maximum bytes of one result that the model sees.
        content_limit: Maximum bytes of base64 of the parts of one result.
        settings: Provider settings.
        costly: Whether every answer costs something.
    """

    rulebook: Rulebook
    prices: Prices | None
    limit: int
    content_limit: int
    settings: Mapping[str, JSON]
    costly: bool = False


class ConversationTurn:
    """A running turn.

    Args:
        settings: The settings of the loop.
        gate: Decides which calls may be made.
        conversation: The conversation to continue.
        heard: Whether anybody takes the events.

    Attributes:
        hear: Adds a piece of the answer to the last request, and returns its events.
        rounds: Number of requests to the model, in all turns.
        spilled: Maps the handle of a truncated result to its whole text.
    """

    hear: Callable[[Delta], Sequence[Event]]

    # A dictionary of so many attributes would take as long to build as the events of an answer.
    __slots__ = (
        "_aware",
        "_before",
        "_call_usage",
        "_calls",
        "_cost",
        "_decoder",
        "_edited",
        "_events",
        "_failed",
        "_failure",
        "_finish",
        "_gate",
        "_heard",
        "_ids",
        "_known",
        "_messages",
        "_model",
        "_new",
        "_now",
        "_open",
        "_pending",
        "_records",
        "_required",
        "_results",
        "_round",
        "_settings",
        "_spoke",
        "_starts",
        "_timeline",
        "_tokens",
        "_turn",
        "_unmasked",
        "_unpriced",
        "hear",
        "rounds",
        "spilled",
    )

    def __init__(
        self,
        settings: TurnSettings,
        gate: ApprovalGate,
        conversation: Conversation,
        *,
        heard: bool = True,
    ) -> None:
        self._heard = heard
        self._known: CallRedactor | None = None
        self._unmasked: list[tuple[ToolCall, Result | None]] = []
        self.spilled = dict(conversation.spilled)
        self._settings = settings
        self._gate = gate
        self._before = conversation
        self._messages = list(conversation.messages)
        self._new = self._messages[conversation.seen :]
        self._records = {record.id: record for record in conversation.calls}
        self._pending = {each.id: each for each in conversation.pending}
        self._tokens, self._cost, self._unpriced = conversation.tokens, conversation.cost, False
        self.rounds, self._model = conversation.rounds, conversation.model
        self._timeline = Timeline(conversation.place, heard=heard)
        self._events: list[Event] = []
        known = {call.id for message in self._messages for call in message.calls}
        # Also IDs of the timeline: a call of an interrupted answer has events but is in no message.
        self._ids = CallIds(known.union(conversation.place.calls))
        self._turn = conversation.turns
        self._round = _rounds_of_turn(self._messages)
        self._call_usage = CallUsage(settings.rulebook, conversation.calls, self._turn)
        self._calls: tuple[ToolCall, ...] = ()
        self._now = 0.0
        self._edited: set[str] = set()
        self._open: dict[str, ToolCall] = {}
        self._results: dict[str, Message] = {}
        self._starts: dict[str, CallStart] = {}
        self._finish: Finish | None = None
        self._decoder: StreamDecoder | None = None
        self._aware = bool(known)
        self._spoke = False
        self._required = ""
        self._failed: tuple[Stop, str] | None = None
        self._failure: Mapping[str, JSON] = NOTHING

    @property
    def id(self) -> str:
        """ID of the conversation."""
        return self._before.id

    @property
    def _redactor(self) -> CallRedactor:
        """Masks secrets in events; it knows the secrets of earlier calls."""
        redactor = self._known
        if redactor is None:
            redactor = self._known = CallRedactor(self._gate.tool, self._before.calls)
        # What nobody hears is not masked, but its secrets can occur in a later question to a person.
        unmasked, self._unmasked = self._unmasked, []
        for call, result in unmasked:
            redactor.arguments(call.name, call.arguments)
            if result is not None:
                redactor.result(call.name, result)
        return redactor

    # Messages.

    def begin(self) -> None:
        """Emit the events of the new user messages."""
        for message in self._new:
            if message.role == "user" and (text := message.text or _described(message)):
                self._events += self._timeline.user(text)

    def request(
        self, offering: ToolOffer, *, streaming: bool, world: NetworkEnvironment | None = None
    ) -> Request:
        """Build the next request."""
        policy = self._settings.rulebook.policy
        # `tool_choice` applies to the first round only: a forced call in every round would never end the
        # turn.
        first = self._round == 0 and offering.can_choose(policy.tool_choice)
        choice = policy.tool_choice if first else "auto"
        declared = () if choice == "none" else offering.declared(reading=bool(self.spilled))
        self._gate.enter(offering, choice)
        decoder = self._decoder = StreamDecoder(self._timeline, self._ids, offering.tool_of)
        self.hear = decoder.decode
        self._calls, self._finish = (), None
        self._required = "" if choice in {"auto", "none"} else choice
        self._round += 1
        self.rounds += 1
        return Request(
            messages=tuple(self._messages),
            tools=declared,
            tool_choice=offering.choice(choice) if declared or choice == "none" else "auto",
            parallel=policy.max_parallel > 1,
            streaming=streaming,
            settings=self._settings.settings,
            aware=self._aware,
            world=world,
        )

    def accept(self) -> None:
        """Add a complete answer to the conversation, with its cost."""
        assert self._decoder is not None  # noqa: S101 -- `request` creates it
        parts, finish, events = self._decoder.end()
        self._decoder = None
        self._finish = finish
        self._events += events
        self._spend(finish.tokens)
        self._model = finish.model or self._model
        # Services refuse a message that ends with reasoning.
        while parts and isinstance(parts[-1], Reasoning) and not finish.is_complete:
            parts.pop()
        named = [self._named(part) if type(part) is ToolCall else part for part in parts]
        message = Message("assistant", tuple(named))
        self._calls = message.calls
        self._open = {call.id: call for call in self._calls}
        if self._calls:
            self._aware, self._now = True, self._gate.now()
        for call in self._calls:
            self._records[call.id] = CallRecord(
                call.id, call.name, call.arguments, self._turn, self._round, at=self._now
            )
            shown = call.arguments
            if self._heard:
                shown = self._redactor.arguments(call.name, shown)
            else:
                self._unmasked.append((call, None))
            self._events += self._timeline.call(call.id, call.name, shown)
        self._events += self._timeline.message_ended()
        self._spoke = bool(parts)
        if parts:  # providers refuse an empty message
            self._append(message)

    def fail(self, error: ProviderError) -> None:
        """End the turn with an error of the provider; the text received so far stays."""
        calls = self._cut()
        cut_off = f"; its calls were not made: {name_calls(calls)}" if calls else ""
        hint = f"; {error.hint}" if error.hint else ""
        self._failed = Stop.PROVIDER_FAILED, f"{error.message} ({error.code}){cut_off}{hint}"
        self._failure = error.as_json()

    def cancel_request(self) -> None:
        """End the turn because the provider cancelled itself."""
        self._failed = Stop.CANCELLED, "the provider cancelled the request to the model"
        self._cut()

    def _cut(self) -> dict[str, str]:
        """Interrupt the current answer: keep its text and drop its calls.

        Returns:
            Maps the IDs of the dropped calls to their tools.
        """
        if self._decoder is None:
            return {}
        texts, calls, events = self._decoder.cut()
        self._decoder = None
        for id_ in calls:
            why = "not called: the answer that requested it was interrupted"
            events += self._timeline.call_updated(id_, "failed", outcome=Outcome.CANCELLED.value, text=why)
        self._events += [*events, *self._timeline.message_ended()]
        if texts:
            self._append(Message("assistant", texts))
        return calls

    def _named(self, call: ToolCall) -> ToolCall:
        """Translate a call to the name of its tool and the arguments that the tool accepts."""
        offering = self._gate.offering
        tool = offering.tool_of(call.name)
        arguments = None if call.arguments is None else offering.restored(tool, call.arguments)
        if tool == call.name and arguments is call.arguments:
            return call
        return ToolCall(call.id, tool, arguments, call.written, "" if tool == call.name else call.name)

    def _spend(self, tokens: Tokens) -> None:
        if tokens is not NO_TOKENS:
            self._tokens = self._tokens.plus(tokens)
        # A service that reports no tokens would make `max_cost` ineffective, so the turn ends.
        bound = self._settings.rulebook.policy.max_cost is not None
        self._unpriced = bound and self._settings.costly and not any(tokens)
        if self._settings.prices is not None:
            self._cost += self._settings.prices.cost(tokens)

    # Calls.

    def judge(self) -> list[PlannedCall]:
        """Check the calls of the answer and return those to make; others get results or become pending."""
        plans: list[PlannedCall] = []
        if not self._calls:
            return plans
        too_dear = self._unaffordable()
        if too_dear:
            self._call_usage.exceed(Stop.MAX_COST, too_dear)
        finish = self._finish or Finish()
        for call in self._calls:
            refusal = self._gate.refusal(call, self._call_usage, finish, self._now)
            if refusal is None:
                plans.append(PlannedCall(call))
            elif isinstance(refusal, Pending):
                self._wait(refusal)
            else:
                self._settle(call, refusal)
        return plans

    def resume(self, answers: Mapping[str, Answer], offering: ToolOffer) -> list[PlannedCall]:
        """Apply the answers to pending calls and return those to make; the others get their results."""
        self._gate.enter(offering, "auto")
        last = next(message for message in reversed(self._messages) if message.calls)
        self._calls = last.calls
        self._open = {call.id: call for call in self._calls if call.id in self._pending}
        plans = []
        for call in self._open.copy().values():
            answer = answers[call.id]
            pending, now = self._pending.pop(call.id), self._gate.now()
            made = self._open[call.id] = _decided(call, answer, pending)
            if made.arguments != call.arguments:
                self._edited.add(call.id)
            # The policy is checked again: other calls, or edited arguments, may forbid the call by now.
            refusal = answer_refusal(made, answer, pending, now - self._records[call.id].at)
            if refusal is None:
                refusal = self._call_usage.judge_again(made, now)
            if refusal is None:
                plans.append(planned_call(made, answer, pending))
            else:
                self._settle(made, refusal)
        return plans

    # Results.

    def record(self, event: CallEvent) -> None:
        """Record that a call has started, reported progress, or ended."""
        if isinstance(event, CallStart):
            self._starts[event.id] = event
            self._events += self._timeline.call_updated(event.id, "running")
            return
        if not isinstance(event, CallEnd):
            self._events += self._timeline.call_updated(event.id, text=str(self._redactor.value(event.text)))
            return
        call, result = self._open[event.id], event.result
        if result.outcome is not Outcome.NEEDS_APPROVAL:
            self._settle(call, result)
            return
        error = result.error
        code, details = (result.outcome.value, NOTHING) if error is None else (error.code, error.details)
        self._wait(Pending(call.id, call.name, call.arguments or {}, code, result.message, details))

    def _wait(self, pending: Pending) -> None:
        pending = self._pending[pending.id] = _without_secrets(pending, self._redactor)
        record = self._records[pending.id]
        self._records[pending.id] = record._replace(
            code=pending.code, message=pending.message, at=self._begun_at(record)
        )
        self._events += self._timeline.call_updated(pending.id, "waiting", text=pending.message)

    def _settle(self, call: ToolCall, result: Result) -> None:
        """Record the result of a call, for the model, for the conversation and for events."""
        fitting = limit_content(result, self._settings.content_limit)
        text, handle, whole = render_result(
            fitting, self._settings.limit, self.spilled, self.reader.tool.name
        )
        # Whether an approver changed the arguments.
        edited = call.id in self._edited
        if self._heard:
            shown = self._shown(call, fitting, text, edited=edited)
        else:
            shown = ""
            self._unmasked.append((call, fitting))
        if handle:
            self.spilled[handle] = whole
        # Otherwise the model would explain the result with its own arguments.
        if edited:
            text = decision_note(self._redactor.arguments(call.name, call.arguments)) + text
        code = "" if result.error is None else result.error.code
        media = media_parts(fitting) if fitting.content else ()
        self._results[call.id] = Message(
            "tool", (ToolResult(call.id, call.name, result.outcome, text, media, code),)
        )
        del self._open[call.id]
        self._records[call.id] = self._recorded(call, result, code)
        status = "completed" if result.outcome is Outcome.OK else "failed"
        self._events += self._timeline.call_updated(call.id, status, outcome=result.outcome, text=shown)

    def _shown(self, call: ToolCall, result: Result, text: str, *, edited: bool) -> str:
        """The text of a result in events, without secrets; `text` is what the model reads."""
        decided = ""
        if edited:  # edited arguments may contain secrets, too
            decided = decision_note(self._redactor.arguments(call.name, call.arguments))
        seen = self._redactor.result(call.name, result)
        # Render again only if there is something to mask: most results have no secrets.
        if seen != result:
            text, _handle, _whole = render_result(
                seen, self._settings.limit, self.spilled, self.reader.tool.name
            )
        return decided + text

    def _recorded(self, call: ToolCall, result: Result, code: str) -> CallRecord:
        begun = self._starts.get(call.id)
        record, usage = self._records[call.id], result.usage
        return CallRecord(
            call.id,
            record.tool,
            call.arguments,
            record.turn,
            record.round,
            outcome=result.outcome,
            value=result.value,
            content=result.content,
            code=code,
            message=result.message,
            reached=usage.attempts > 0,
            duration=usage.duration,
            at=record.at if begun is None else begun.at,
            states=NOTHING if begun is None else begun.states,
            attempts=usage.attempts,
        )

    def _begun_at(self, record: CallRecord) -> float:
        begun = self._starts.get(record.id)
        return record.at if begun is None else begun.at

    def end_round(self) -> None:
        """End the round: add its results to the conversation, in the order of the calls."""
        if not self._calls:
            return
        ended = [call.id for call in self._calls if call.id in self._results]
        self._call_usage.settle([self._records[id_] for id_ in ended])
        if not ended:
            return
        if self._messages[-1].calls:  # nobody has said anything since
            added = [self._results[id_] for id_ in ended]
            self._messages += added
            self._new += added
            self._results = {}
            return
        # Results must directly follow their calls. The user may have said something since, when calls were
        # pending; that moves behind the results.
        place = len(self._messages)
        while not self._messages[place - 1].calls:
            place -= 1
        behind = self._messages[place:]
        results = {part.id: message for message in behind for part in message.results} | self._results
        others = [message for message in behind if not message.results]
        self._messages[place:] = [*(results[call.id] for call in self._calls if call.id in results), *others]
        new = len(self._new) - len(others)  # the sink gets the results before those user messages
        self._new[new:new] = [self._results[id_] for id_ in ended]
        self._results = {}
        if others:
            self._calls = ()

    def cancel_pending(self, offering: ToolOffer) -> None:
        """End the turn before its pending calls are made; each gets a result."""
        self._gate.enter(offering, "auto")
        self._calls = next(message for message in reversed(self._messages) if message.calls).calls
        self._open = {call.id: call for call in self._calls if call.id in self._pending}
        self.break_off(cancelled=True)

    def break_off(self, *, cancelled: bool) -> None:
        """End a turn that was cancelled or failed; every open call gets a result."""
        self._cut()
        if cancelled:
            self._failed = Stop.CANCELLED, "the turn was cancelled"
        for call in [*self._open.values()]:
            self._pending.pop(call.id, None)
            why = f"the call of `{call.name}` was cancelled"
            if call.id in self._starts:
                why += "; it had started and may have had an effect"
            self._settle(call, Result.failure(Outcome.CANCELLED, why))
        self.end_round()

    # The end of the turn.

    def stop_reason(self) -> tuple[Stop, str] | None:
        """The reason why the turn ends, with a text for people; None while it continues."""
        # Pending calls come first: their conversation can be resumed whatever else has happened.
        if self._pending:
            waiting = ", ".join(f"`{each.tool}` ({each.id}: {each.code})" for each in self._pending.values())
            return Stop.PENDING, f"waiting: {waiting}"
        if self._failed is not None:
            return self._failed
        if self._unpriced:
            return Stop.MAX_COST, self._unaffordable()
        if self._finish is not None and not self._calls:
            return answer_reason(self._finish.reason, self._required, spoke=self._spoke)
        if self._finish is not None and not self._finish.is_complete:
            return cut_off_reason(self._finish, {call.id: call.name for call in self._calls})
        records = [self._records[call.id] for call in self._calls]
        return bound_reached(records) or self._stopped(records) or self._no_more()

    def _stopped(self, records: Iterable[CallRecord]) -> tuple[Stop, str] | None:
        for record in records:
            if record.outcome is Outcome.OK and self._settings.rulebook.of(record.tool).stops:
                return Stop.STOP_ON_TOOL, f"`{record.tool}` was called"
        return None

    def _no_more(self) -> tuple[Stop, str] | None:
        """The bound that forbids another request, if any."""
        policy = self._settings.rulebook.policy
        if self._round >= policy.max_rounds:
            return Stop.MAX_ROUNDS, f"a turn is limited to {policy.max_rounds} requests"
        if policy.max_cost is not None and self._cost >= policy.max_cost:
            return (
                Stop.MAX_COST,
                f"the conversation has cost {self._cost:.6g} dollars; the limit is {policy.max_cost:.6g} dollars",
            )
        return None

    def _unaffordable(self) -> str:
        most = self._settings.rulebook.policy.max_cost
        if most is None:
            return ""
        if self._unpriced or (self._settings.prices is None and any(self._tokens)):
            why = "the provider reports no token counts" if self._unpriced else "no prices are configured"
            return f"the cost of the conversation is unknown because {why}; the limit is {most:.6g} dollars"
        return f"the conversation is limited to {most:.6g} dollars" if self._cost > most else ""

    # Output.

    def take_events(self) -> list[Event]:
        """The events since the last time this was called."""
        events, self._events = self._events, []
        return events

    def unwritten(self) -> Sequence[Message]:
        """Return the messages that the sink has not received yet, and count them as passed on."""
        # Even if the sink fails: it may have written them, and must not get a message twice.
        new, self._new = self._new, []
        return new

    def masked(self, messages: Sequence[Message]) -> list[Message]:
        """Return messages with `***` in place of secrets."""
        return [mask_message(message, self._redactor) for message in messages]

    @property
    def reader(self) -> ResultReader:
        """The reader of long results."""
        return self._gate.offering.reader

    def end(self, reason: tuple[Stop, str] | None) -> Conversation:
        """Return the conversation so far, and emit the event of its end if the turn is over.

        Args:
            reason: The result of `stop_reason`.
        """
        stop, detail = reason or (None, "")
        if stop is not None:
            self._events += self._timeline.turn_ended(stop)
        return Conversation(
            messages=tuple(self._messages),
            stop=stop,
            detail=detail,
            pending=tuple([self._pending[id_] for id_ in self._records if id_ in self._pending]),
            calls=tuple(self._records.values()),
            tokens=self._tokens,
            cost=self._cost,
            rounds=self.rounds,
            spilled=self.spilled,
            model=self._model,
            seen=len(self._messages),
            place=self._timeline.place,
            failure=self._failure,
            id=self._before.id,
        )

    def _append(self, message: Message) -> None:
        self._messages.append(message)
        self._new.append(message)


def _decided(call: ToolCall, answer: Answer, shown: Pending) -> ToolCall:
    """The call with the arguments of the approver."""
    # The approver saw `***` in place of secrets; restore them where the edited arguments still have it.
    if answer.arguments is None:
        return call
    return call._replace(arguments=restore_hidden(answer.arguments, shown.arguments, call.arguments or {}))


def _described(message: Message) -> str:
    """Describe the parts of a message without text."""
    return "\n".join(part_text(part) for part in message.parts if isinstance(part, Content))


def _rounds_of_turn(messages: list[Message]) -> int:
    """Number of answers since the last user message."""
    rounds = 0
    for message in reversed(messages):
        if message.role == "user":
            break
        rounds += message.role == "assistant"
    return rounds


_BOUNDS: Final = frozenset(stop.value for stop in Stop if stop.value.startswith("max_"))

_ENDS: Final[Mapping[str, Stop]] = {
    "stop": Stop.ANSWERED,
    "tool_calls": Stop.ANSWERED,
    "length": Stop.LENGTH,
    "refused": Stop.REFUSED,
    "pause_turn": Stop.LENGTH,  # Anthropic: the answer is incomplete and another request would continue it
}
"""Maps the end of an answer without calls to the end of its turn."""

_SHOWN: Final = 100
"""Maximum bytes of a name in a message; the model may have invented it."""


def name_calls(calls: Mapping[str, str]) -> str:
    """Format calls (ID -> tool) for people."""
    return ", ".join(f"`{truncate(tool, _SHOWN)}` ({truncate(id_, _SHOWN)})" for id_, tool in calls.items())


def cut_off_reason(finish: Finish, calls: Mapping[str, str]) -> tuple[Stop, str]:
    """The reason, with a text for people, why a turn ends after an incomplete answer with calls.

    Args:
        finish: The end of the answer.
        calls: Maps the IDs of its calls to their tools.
    """
    stop = Stop.REFUSED if finish.reason == "refused" else Stop.LENGTH
    what = "was refused" if stop is Stop.REFUSED else "was cut off"
    own_word = "" if finish.reason in _ENDS else f" (the provider reports `{finish.reason}`)"
    return stop, f"the answer {what}{own_word}; its calls were not made: {name_calls(calls)}"


def answer_reason(reason: str, wanted: str, *, spoke: bool) -> tuple[Stop, str]:
    """The reason, with a text for people, why a turn ends after an answer without calls.

    Args:
        reason: Finish reason of the answer.
        wanted: The tool that had to be called, `required` for any tool; empty if none had to be.
        spoke: Whether the answer has any content.
    """
    stop = _ENDS.get(reason, Stop.ANSWERED)
    said = []
    if reason not in _ENDS:
        said.append(f"the provider reports `{reason}`")
    elif not spoke:
        said.append("the model returned an empty answer")
    if wanted and stop is Stop.ANSWERED:
        what = "a tool" if wanted == "required" else f"`{wanted}`"
        said.append(f"the model had to call {what} but called nothing")
    return stop, "; ".join(said)


def bound_reached(records: Iterable[CallRecord]) -> tuple[Stop, str] | None:
    """The bound of the policy that a call of the round exceeded, if any."""
    for record in records:
        # Not `reached`: tools also end with `limit_exceeded`, which does not end the turn.
        if record.outcome is Outcome.LIMIT_EXCEEDED and not record.reached and record.code in _BOUNDS:
            return Stop(record.code), record.message
    return None


_Held: TypeAlias = "int | TextDelta | ReasoningDelta"
"""An item that waits to be emitted: the number of a call, or a text after it."""


class CallIds:
    """Assigns unique IDs to the calls of a conversation."""

    # Some services number the calls of each answer from 0, and some send no ID at all.

    __slots__ = ("_numbers", "_taken")

    def __init__(self, taken: set[str]) -> None:
        self._taken = taken
        self._numbers = {"call": len(self._taken)}

    def settle(self, wanted: str) -> str:
        """Return the ID of the next call: the provider's, or a numbered one if that is missing or used."""
        settled = wanted or self._next("call")
        while settled in self._taken:
            settled = self._next(wanted or "call")
        self._taken.add(settled)
        return settled

    def _next(self, start: str) -> str:
        self._numbers[start] = number = self._numbers.get(start, 1) + 1
        return f"{start}_{number}"


class StreamDecoder:
    """Turns one answer into events.

    The event of a call needs its ID. Texts after a call wait until the ID is known, so that events stay in
    order.
    """

    __slots__ = ("_answer", "_held", "_ids", "_settle", "_timeline", "_tool_of", "_tools")

    def __init__(self, timeline: Timeline, ids: CallIds, tool_of: Callable[[str], str]) -> None:
        self._timeline = timeline
        self._settle = ids.settle
        self._tool_of = tool_of
        self._answer = Assembler()
        self._ids: dict[int, str] = {}
        self._tools: dict[int, str] = {}
        self._held: deque[_Held] = deque()

    def decode(self, delta: Delta) -> list[Event]:
        """Add a piece and return the new events."""
        events: list[Event] = []
        for piece in self._answer.add(delta):
            if isinstance(piece, CallDelta):
                events += self._call(piece)
            elif not isinstance(piece, Finish):
                if self._held:  # a call before it has no ID yet
                    self._held.append(piece)
                else:
                    events += self._said(piece)
        return events

    def end(self) -> tuple[list[AnswerPart], Finish, list[Event]]:
        """Return the parts of the answer, its end, and the remaining events."""
        parts: list[AnswerPart] = []
        number = 0
        for part in self._answer.parts():
            if isinstance(part, ToolCall):
                if number not in self._ids:
                    self._ids[number] = self._settle(part.id)
                    if number not in self._tools:
                        self._held.append(number)
                if part.id != self._ids[number]:
                    part = part._replace(id=self._ids[number])  # noqa: PLW2901 -- the same call
                number += 1
            parts.append(part)
        # Without an end, the last call may be cut off, so no call may be made.
        finish = self._answer.finish or Finish("length" if number else "stop")
        return parts, finish, self._release()

    def cut(self) -> tuple[tuple[Text, ...], dict[str, str], list[Event]]:
        """Return the texts of an interrupted answer, its reported calls (ID -> tool), and remaining events.

        Interrupted reasoning and calls are dropped, because no request could continue them.
        """
        self._held = deque(held for held in self._held if not isinstance(held, int) or held in self._ids)
        events = [*self.decode(Finish()), *self._release()]
        calls = {id_: self._tools[number] for number, id_ in self._ids.items()}
        return tuple(part for part in self._answer.parts() if isinstance(part, Text)), calls, events

    def _call(self, piece: CallDelta) -> list[Event]:
        number = piece.slot
        begins = number not in self._tools
        if piece.id and number not in self._ids:
            self._ids[number] = self._settle(piece.id)
        if piece.name or begins:
            self._tools[number] = self._tool_of(piece.name) if piece.name else ""
        if begins:
            if not self._held and piece.id:
                return self._timeline.call(self._ids[number], self._tools[number])
            self._held.append(number)
        return self._release() if piece.id or piece.name else []

    def _release(self) -> list[Event]:
        """Emit the held items, up to the first call whose ID is unknown."""
        events: list[Event] = []
        while self._held:
            first = self._held[0]
            if isinstance(first, int) and first not in self._ids:
                break
            self._held.popleft()
            if isinstance(first, int):
                events += self._timeline.call(self._ids[first], self._tools.get(first, ""))
            else:
                events += self._said(first)
        return events

    def _said(self, piece: TextDelta | ReasoningDelta) -> list[Event]:
        say = self._timeline.text if isinstance(piece, TextDelta) else self._timeline.reasoning
        return say(piece.text)


def _without_secrets(pending: Pending, redactor: CallRedactor) -> Pending:
    """A pending call with its secrets masked, because people see it."""
    details: Any = redactor.value(dict(pending.details))
    return pending._replace(
        arguments=redactor.arguments(pending.tool, pending.arguments) or {},
        message=redactor.text(pending.message),
        details=details,
    )
