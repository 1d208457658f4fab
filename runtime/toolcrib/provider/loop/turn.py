"""One turn, from round to round: what was said, what was asked for, what came of it. Nothing here waits.

A round, in the order of the methods of `ConversationTurn`: `request`, `decoder` and `accept`, `judge`, `record`,
`end_round`; then `stop_reason`. `StreamDecoder` makes events of an answer while it comes, in the order in which its
parts began.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, Final, NamedTuple, TypeAlias

from toolcrib.core.model import JSON, NOTHING, Content, Outcome, Result
from toolcrib.core.text import part_text, truncate
from toolcrib.provider.conversations import Answer, CallRecord, Conversation, Pending, Stop
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
from toolcrib.security.redaction import CallRedactor, restore_hidden


class TurnSettings(NamedTuple):
    """What a conversation is held under.

    Attributes:
        rulebook: The policy, by tool.
        prices: What answers cost; None where nobody knows.
        limit: Bytes that a model is shown of one result.
        content_limit: Bytes of base64 of the parts of one result.
        settings: The provider's own.
        costly: Whether the provider reaches out, so that no answer is for nothing.
    """

    rulebook: Rulebook
    prices: Prices | None
    limit: int
    content_limit: int
    settings: Mapping[str, JSON]
    costly: bool = False


class ConversationTurn:
    """A turn under way.

    Args:
        settings: What it is held under.
        gate: Says what may be called.
        conversation: Where it begins, or goes on.
    """

    def __init__(self, settings: TurnSettings, gate: ApprovalGate, conversation: Conversation) -> None:
        self.spilled = dict(conversation.spilled)
        self._settings = settings
        self._gate = gate
        self._before = conversation
        self._messages = list(conversation.messages)
        self._new = self._messages[conversation.seen :]
        self._records = {record.id: record for record in conversation.calls}
        self._pending = {each.id: each for each in conversation.pending}
        self._tokens, self._cost, self._unpriced = conversation.tokens, conversation.cost, False
        self._rounds, self._model = conversation.rounds, conversation.model
        self._timeline = Timeline(conversation.place)
        self._events: list[Event] = []
        known = {call.id for message in self._messages for call in message.calls}
        self._ids = CallIds(known | conversation.place.calls.keys())
        self._turn = conversation.turns
        self._round = _rounds_of_turn(self._messages)
        self._call_usage = CallUsage(settings.rulebook, conversation.calls, self._turn)
        self._calls: tuple[ToolCall, ...] = ()
        self._requested: dict[str, ToolCall] = {}
        self._open: dict[str, ToolCall] = {}
        self._results: dict[str, Message] = {}
        self._starts: dict[str, CallStart] = {}
        self._finish: Finish | None = None
        self._decoder: StreamDecoder | None = None
        self._spoke = False
        self._required = ""
        self._failed: tuple[Stop, str] | None = None
        self._failure: Mapping[str, JSON] = NOTHING

    @cached_property
    def _redactor(self) -> CallRedactor:
        """What people see of the calls; it knows the secrets of those before."""
        return CallRedactor(self._gate.tool, self._before.calls)

    # What was said.

    def begin(self) -> None:
        """The user has spoken."""
        for message in self._new:
            if message.role == "user" and (text := message.text or _described(message)):
                self._emit(self._timeline.user(text))

    def request(self, offering: ToolOffer, *, streaming: bool) -> Request:
        """What the model is asked next."""
        policy = self._settings.rulebook.policy
        first = self._round == 0 and offering.can_choose(policy.tool_choice)
        choice = policy.tool_choice if first else "auto"
        declared = () if choice == "none" else offering.declared(reading=bool(self.spilled))
        self._gate.enter(offering, choice)
        self._calls, self._finish = (), None
        self._required = "" if choice in {"auto", "none"} else choice
        self._round += 1
        self._rounds += 1
        return Request(
            messages=tuple(self._messages),
            tools=declared,
            tool_choice=offering.choice(choice) if declared or choice == "none" else "auto",
            parallel=policy.max_parallel > 1,
            streaming=streaming,
            settings=self._settings.settings,
            aware=any(message.calls for message in self._messages),
        )

    def decoder(self) -> StreamDecoder:
        """The decoder of the answer."""
        self._decoder = StreamDecoder(self._timeline, self._ids, self._gate.offering.tool_of)
        return self._decoder

    def accept(self, decoder: StreamDecoder) -> None:
        """The answer is whole: what it says and what it costs are part of the conversation."""
        self._decoder = None
        parts, finish, events = decoder.end()
        self._finish = finish
        self._emit(events)
        self._spend(finish.tokens)
        self._model = finish.model or self._model
        while parts and isinstance(parts[-1], Reasoning) and not finish.is_complete:
            parts.pop()  # services refuse a conversation in which nothing follows a thought
        message = Message("assistant", tuple(map(self._named, parts)))
        self._calls = message.calls
        self._requested = {call.id: call for call in self._calls}
        self._open = self._requested.copy()
        for call in self._calls:
            self._note(call)
            shown = self._redactor.arguments(call.name, call.arguments)
            self._emit(self._timeline.call(call.id, call.name, shown))
        self._emit(self._timeline.message_ended())
        self._spoke = bool(parts)
        if parts:  # no provider takes a message of nothing
            self._append(message)

    def fail(self, error: ProviderError) -> None:
        """There is no answer; what was said of it stays."""
        calls = self._cut()
        cut_off = f"; its calls were not made: {name_calls(calls)}" if calls else ""
        hint = f"; {error.hint}" if error.hint else ""
        self._failed = Stop.PROVIDER_FAILED, f"{error.message} ({error.code}){cut_off}{hint}"
        self._failure = error.as_json()

    def cancel_request(self) -> None:
        """The provider has cancelled itself."""
        self._failed = Stop.CANCELLED, "the provider cancelled the request to the model"
        self._cut()

    def _cut(self) -> dict[str, str]:
        """The answer that is being heard breaks off: its text is what was said, and its calls are not made.

        Returns:
            Id -> tool of the calls that were begun.
        """
        if self._decoder is None:
            return {}
        texts, calls, events = self._decoder.cut()
        self._decoder = None
        for id_ in calls:
            why = "not called: the answer that requested it was interrupted"
            events += self._timeline.call_updated(id_, "failed", outcome=Outcome.CANCELLED.value, text=why)
        self._emit([*events, *self._timeline.message_ended()])
        if texts:
            self._append(Message("assistant", texts))
        return calls

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
        bound = self._settings.rulebook.policy.max_cost is not None
        self._unpriced = bound and self._settings.costly and not any(tokens)
        if self._settings.prices is not None:
            self._cost += self._settings.prices.cost(tokens)

    # What was asked for.

    def judge(self) -> list[PlannedCall]:
        """The calls of the answer that are to be made; the others have their results, or wait."""
        too_dear = self._unaffordable()
        if self._calls and too_dear:
            self._call_usage.exceed(Stop.MAX_COST, too_dear)
        plans = []
        for call in self._calls:
            refusal = self._gate.refusal(call, self._call_usage, self._finish or Finish())
            if refusal is None:
                plans.append(PlannedCall(call))
            elif isinstance(refusal, Pending):
                self._wait(refusal)
            else:
                self._settle(call, refusal)
        return plans

    def resume(self, answers: Mapping[str, Answer], offering: ToolOffer) -> list[PlannedCall]:
        """The calls that waited and are to be made now; the others have their results."""
        self._gate.enter(offering, "auto")
        last = next(message for message in reversed(self._messages) if message.calls)
        self._calls = last.calls
        self._requested = {call.id: call for call in self._calls}
        self._open = {call.id: call for call in self._calls if call.id in self._pending}
        plans = []
        for call in self._open.copy().values():
            answer = answers[call.id]
            pending, now = self._pending.pop(call.id), self._gate.now()
            made = self._open[call.id] = _decided(call, answer, pending)
            refusal = answer_refusal(made, answer, pending, now - self._records[call.id].at)
            refusal = refusal or self._call_usage.judge_again(made, now)
            if refusal is None:
                plans.append(planned_call(made, answer))
            else:
                self._settle(made, refusal)
        return plans

    def _note(self, call: ToolCall) -> None:
        self._records[call.id] = CallRecord(
            call.id, call.name, call.arguments, self._turn, self._round, at=self._gate.now()
        )

    # What came of it.

    def record(self, event: CallEvent) -> None:
        """A call has begun, tells of itself, or has ended."""
        if isinstance(event, CallStart):
            self._starts[event.id] = event
            self._emit(self._timeline.call_updated(event.id, "running"))
            return
        if not isinstance(event, CallEnd):
            self._emit(self._timeline.call_updated(event.id, text=str(self._redactor.value(event.text))))
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
        self._emit(self._timeline.call_updated(pending.id, "waiting", text=pending.message))

    def _settle(self, call: ToolCall, result: Result) -> None:
        """A call has its result."""
        fitting = limit_content(result, self._settings.content_limit)
        text, handle, whole = render_result(
            fitting, self._settings.limit, self.spilled, self.reader.tool.name
        )
        shown = self._shown(call, fitting, text)
        if handle:
            self.spilled[handle] = whole
        if self._is_edited(call):
            text = decision_note(self._redactor.arguments(call.name, call.arguments)) + text
        code = "" if result.error is None else result.error.code
        parts = (ToolResult(call.id, call.name, result.outcome, text, media_parts(fitting), code),)
        self._results[call.id] = Message("tool", parts)
        del self._open[call.id]
        self._records[call.id] = self._recorded(call, result, code)
        status = "completed" if result.outcome is Outcome.OK else "failed"
        self._emit(self._timeline.call_updated(call.id, status, outcome=result.outcome.value, text=shown))

    def _shown(self, call: ToolCall, result: Result, text: str) -> str:
        """What people see of a result, of which the model reads `text`."""
        decided = ""
        if self._is_edited(call):  # those arguments may have secrets of their own
            decided = decision_note(self._redactor.arguments(call.name, call.arguments))
        seen = self._redactor.result(call.name, result)
        if seen != result:
            text, _handle, _whole = render_result(
                seen, self._settings.limit, self.spilled, self.reader.tool.name
            )
        return decided + text

    def _is_edited(self, call: ToolCall) -> bool:
        """Whether somebody else has decided on the arguments."""
        return self._requested[call.id].arguments != call.arguments

    def _recorded(self, call: ToolCall, result: Result, code: str) -> CallRecord:
        begun = self._starts.get(call.id)
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
            at=self._begun_at(record),
            states=NOTHING if begun is None else begun.states,
        )

    def _begun_at(self, record: CallRecord) -> float:
        begun = self._starts.get(record.id)
        return record.at if begun is None else begun.at

    def end_round(self) -> None:
        """The round is over: its results are part of the conversation, in the order of the calls."""
        self._call_usage.settle(self._records[call.id] for call in self._calls if call.id in self._results)
        if not self._results:
            return
        place = len(self._messages)
        while not self._messages[place - 1].calls:
            place -= 1
        behind = self._messages[place:]
        results = {part.id: message for message in behind for part in message.results} | self._results
        others = [message for message in behind if not message.results]
        self._messages[place:] = [*(results[call.id] for call in self._calls if call.id in results), *others]
        new = len(self._new) - len(others)  # what the user says to calls that wait comes behind their results
        self._new[new:new] = [self._results[call.id] for call in self._calls if call.id in self._results]
        self._results = {}
        if others:
            self._calls = ()

    def break_off(self, *, cancelled: bool) -> None:
        """The turn was cancelled, or can't go on: what is open is over."""
        self._cut()
        if cancelled:
            self._failed = Stop.CANCELLED, "the turn was cancelled"
        for call in [*self._open.values()]:
            self._pending.pop(call.id, None)
            why = f"the call of `{call.name}` was cancelled"
            if call.id in self._starts:
                why += "; it had started and may have had an effect"
            self._settle(call, Result.failed(Outcome.CANCELLED, why))
        self.end_round()

    # Whether it goes on.

    def stop_reason(self) -> tuple[Stop, str] | None:
        """Why the turn is over, and the same for a person; None while it goes on."""
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
        """Why the model may not be asked once more."""
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

    # What others see of it.

    def take_events(self) -> list[Event]:
        """The events since the last time this was called."""
        events, self._events = self._events, []
        return events

    def unwritten(self) -> Sequence[Message]:
        """The messages that the sink has not been given yet; it is given them now."""
        new, self._new = self._new, []
        return new

    @property
    def reader(self) -> ResultReader:
        """Reads on in long results."""
        return self._gate.offering.reader

    def end(self) -> Conversation:
        """The conversation, as far as it came."""
        stop, detail = self.stop_reason() or (None, "")
        if stop is not None:
            self._emit(self._timeline.turn_ended(stop.value))
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
            failure=self._failure,
            id=self._before.id,
        )

    def _append(self, message: Message) -> None:
        self._messages.append(message)
        self._new.append(message)

    def _emit(self, events: Iterable[Event]) -> None:
        self._events += events


def _decided(call: ToolCall, answer: Answer, shown: Pending) -> ToolCall:
    """The call as somebody wants it who saw what was shown of it."""
    if answer.arguments is None:
        return call
    return call._replace(arguments=restore_hidden(answer.arguments, shown.arguments, call.arguments or {}))


def _described(message: Message) -> str:
    """What a message says that has no text."""
    return "\n".join(part_text(part) for part in message.parts if isinstance(part, Content))


def _rounds_of_turn(messages: list[Message]) -> int:
    """How often the model has answered since the user spoke last."""
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
    "pause_turn": Stop.LENGTH,  # Anthropic's: the service would go on, if it were asked once more
}
"""Why an answer ended -> why the turn did, where nothing was called."""

_SHOWN: Final = 100
"""Bytes of a name that is shown, which the model may have made up."""


def name_calls(calls: Mapping[str, str]) -> str:
    """Calls (id -> tool) as they are named for a person."""
    return ", ".join(f"`{truncate(tool, _SHOWN)}` ({truncate(id_, _SHOWN)})" for id_, tool in calls.items())


def cut_off_reason(finish: Finish, calls: Mapping[str, str]) -> tuple[Stop, str]:
    """Why a turn ends with an answer that did not come to its end, of which no call was made; the same for a person.

    Args:
        finish: The end of the answer.
        calls: The calls that it asks for: id -> tool.
    """
    stop = Stop.REFUSED if finish.reason == "refused" else Stop.LENGTH
    what = "was refused" if stop is Stop.REFUSED else "was cut off"
    own_word = "" if finish.reason in _ENDS else f" (the provider reports `{finish.reason}`)"
    return stop, f"the answer {what}{own_word}; its calls were not made: {name_calls(calls)}"


def answer_reason(reason: str, wanted: str, *, spoke: bool) -> tuple[Stop, str]:
    """Why a turn ends with an answer that calls nothing, and the same for a person.

    Args:
        reason: Why the answer ended.
        wanted: What was to be called: `required` for any tool, or the name of one; empty for nothing.
        spoke: Whether anything was said.
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
    """The bound that calls of a round come to."""
    for record in records:
        if record.outcome is Outcome.LIMIT_EXCEEDED and not record.reached and record.code in _BOUNDS:
            return Stop(record.code), record.message
    return None


_Held: TypeAlias = "int | TextDelta | ReasoningDelta"
"""What can't be told yet: the number of a call, or what was said behind it."""


class CallIds:
    """The ids of the calls of a conversation: every one of them is there once."""

    def __init__(self, taken: Collection[str]) -> None:
        self._taken = set(taken)
        self._numbers = {"call": len(self._taken)}

    def settle(self, wanted: str) -> str:
        """The id of the next call: the provider's, or one like it where that is taken or missing."""
        settled = wanted or self._next("call")
        while settled in self._taken:
            settled = self._next(wanted or "call")
        self._taken.add(settled)
        return settled

    def _next(self, start: str) -> str:
        self._numbers[start] = number = self._numbers.get(start, 1) + 1
        return f"{start}_{number}"


class StreamDecoder:
    """Makes events of one answer.

    A call is told once its id is known; what is said behind it waits until then, so that the order is true.
    """

    def __init__(self, timeline: Timeline, ids: CallIds, tool_of: Callable[[str], str]) -> None:
        self._timeline = timeline
        self._settle = ids.settle
        self._tool_of = tool_of
        self._answer = Assembler()
        self._ids: dict[int, str] = {}
        self._tools: dict[int, str] = {}
        self._held: deque[_Held] = deque()

    def decode(self, delta: Delta) -> Iterator[Event]:
        """Take a piece, and tell what is new."""
        for piece in self._answer.add(delta):
            if isinstance(piece, CallDelta):
                yield from self._call(piece)
            elif isinstance(piece, TextDelta | ReasoningDelta):
                self._held.append(piece)
                yield from self._release()

    def end(self) -> tuple[list[AnswerPart], Finish, list[Event]]:
        """The parts of the answer, its calls with their ids; its end; and what has not been told yet."""
        parts: list[AnswerPart] = []
        number = 0
        for part in self._answer.parts():
            if isinstance(part, ToolCall):
                if number not in self._ids:
                    self._ids[number] = self._settle(part.id)
                    if number not in self._tools:
                        self._held.append(number)
                part = part._replace(id=self._ids[number])  # noqa: PLW2901 -- the same call
                number += 1
            parts.append(part)
        unsaid = Finish(
            "length" if number else "stop"
        )  # without an end, nobody says that the calls are whole
        return parts, self._answer.finish or unsaid, list(self._release())

    def cut(self) -> tuple[tuple[Text, ...], dict[str, str], list[Event]]:
        """The texts of an answer that breaks off, the calls that were told (id -> tool), and what was not told yet.

        What the model thought is nothing to go on with when it is cut off, and neither are its calls.
        """
        self._held = deque(held for held in self._held if not isinstance(held, int) or held in self._ids)
        events = [*self.decode(Finish()), *self._release()]
        calls = {id_: self._tools[number] for number, id_ in self._ids.items()}
        return tuple(part for part in self._answer.parts() if isinstance(part, Text)), calls, events

    def _call(self, piece: CallDelta) -> Iterator[Event]:
        number = piece.slot
        if number not in self._tools:
            self._held.append(number)
            self._tools[number] = ""
        if piece.id and number not in self._ids:
            self._ids[number] = self._settle(piece.id)
        if piece.name:
            self._tools[number] = self._tool_of(piece.name)
        if piece.id or piece.name:
            yield from self._release()

    def _release(self) -> Iterator[Event]:
        """Tell what is known, up to the first call whose id is not."""
        while self._held:
            first = self._held[0]
            if isinstance(first, int) and first not in self._ids:
                return
            self._held.popleft()
            if isinstance(first, int):
                yield from self._timeline.call(self._ids[first], self._tools.get(first, ""))
            elif first.text:
                say = self._timeline.text if isinstance(first, TextDelta) else self._timeline.reasoning
                yield from say(first.text)


def _without_secrets(pending: Pending, redactor: CallRedactor) -> Pending:
    """A call that waits, without secrets."""
    details: Any = redactor.value(dict(pending.details))
    return pending._replace(
        arguments=redactor.arguments(pending.tool, pending.arguments) or {},
        message=redactor.text(pending.message),
        details=details,
    )
