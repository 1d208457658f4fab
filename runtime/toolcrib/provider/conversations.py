"""A conversation with a model as plain data: messages, calls, cost, and why it stopped; and where it is written down."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from toolcrib.core.errors import ConfigurationError, ToolcribError
from toolcrib.core.model import JSON, NOTHING, Content, Outcome
from toolcrib.core.text import compact, decode_json
from toolcrib.provider.data_schema import (
    amount,
    anything,
    by_name,
    content,
    count,
    each,
    flag,
    identity,
    number,
    one_of,
    or_null,
    outcome,
    pair,
    record,
    table,
    text,
)
from toolcrib.provider.loop.timeline import RANKS, TimelinePosition
from toolcrib.provider.messages import Message, message_form, parse_message, parse_messages, user
from toolcrib.provider.models.protocol import Tokens


class Stop(StrEnum):
    """Why a turn ended: a closed set."""

    ANSWERED = "answered"
    """The model said what it had to say."""
    PENDING = "pending"
    """Calls wait for somebody: an approval, or the result of a tool that the caller fulfils."""
    STOP_ON_TOOL = "stop_on_tool"
    LENGTH = "length"
    """The model's answer was cut off."""
    REFUSED = "refused"
    """The provider or the model refused to answer."""
    PROVIDER_FAILED = "provider_failed"
    MAX_ROUNDS = "max_rounds"
    MAX_CALLS = "max_calls"
    MAX_CALLS_PER_TURN = "max_calls_per_turn"
    MAX_CALLS_PER_TOOL = "max_calls_per_tool"
    MAX_CALLS_PER_MINUTE = "max_calls_per_minute"
    MAX_IDENTICAL = "max_identical"
    MAX_FAILURES = "max_failures"
    MAX_COST = "max_cost"
    CANCELLED = "cancelled"


class CallRecord(NamedTuple):
    """A call that the model asked for, and what came of it.

    Attributes:
        id: Of the call.
        tool: The tool's name, or what the model wrote.
        arguments: As they reached the runtime; None where they were no JSON object.
        turn: The number of the user's message that it follows, from 1.
        round: The number of the request in that turn, from 1.
        outcome: How it ended; None while it waits.
        value: The answer, where it ended `ok`.
        content: Further parts of the answer.
        code: Finer than the outcome.
        message: Why it did not end `ok`.
        reached: Whether it reached the tool: no policy, no bad arguments stopped it before.
        duration: Seconds on the session's clock.
        at: When it began: seconds since 1970 on the session's clock.
        states: Named states of the session's mocks when it began.
        attempts: How often the tool was tried.
    """

    id: str
    tool: str
    arguments: dict[str, JSON] | None
    turn: int
    round: int
    outcome: Outcome | None = None
    value: JSON = None
    content: tuple[Content, ...] = ()
    code: str = ""
    message: str = ""
    reached: bool = False
    duration: float = 0.0
    at: float = 0.0
    states: Mapping[str, JSON] = NOTHING
    attempts: int = 0


class Pending(NamedTuple):
    """A call that waits for somebody, as that one may see it: `***` stands in place of secrets.

    The call is made with its secrets all the same, also where edited arguments leave a `***` in its place.

    Attributes:
        id: Of the call.
        tool: The tool's name.
        arguments: What it would be called with.
        code: Why: `needs_approval`, `client_tool_deferred`, or a layer's own.
        message: What to ask whoever decides.
        details: Facts that belong to the code.
    """

    id: str
    tool: str
    arguments: dict[str, JSON]
    code: str
    message: str
    details: Mapping[str, JSON] = NOTHING


class Answer(NamedTuple):
    """What somebody says of a pending call.

    In JSON: `{approve: true}`, `{approve: {arguments: {...}}}`, `{reject: reason}`, `{result: value}` or
    `{error: {code, message}}`. The last two are for a call that waits with the code `client_tool_deferred`: whoever
    gives them has fulfilled it, and has asked for the consent that the tool wants (`details` of the pending call). To
    reject such a call is to decline it, and the tool's `decline_strategy` says what comes of that.

    Attributes:
        kind: `approve`, `reject`, `result` or `error`.
        arguments: To call with, in place of the model's; None for those.
        value: The result of a tool that the caller fulfils.
        code: Of the error.
        message: Why it is rejected, or what failed.
    """

    kind: str
    arguments: dict[str, JSON] | None = None
    value: JSON = None
    code: str = ""
    message: str = ""

    @classmethod
    def approve(cls, arguments: dict[str, JSON] | None = None) -> Answer:
        """Make the call, with these arguments or the model's own; they are judged like any."""
        return cls("approve", arguments=arguments)

    @classmethod
    def reject(cls, reason: str = "") -> Answer:
        """Don't make it."""
        return cls("reject", message=reason)

    @classmethod
    def result(cls, value: JSON) -> Answer:
        """It was made elsewhere, and answered this."""
        return cls("result", value=value)

    @classmethod
    def error(cls, code: str, message: str = "") -> Answer:
        """It was made elsewhere, and failed."""
        return cls("error", code=code, message=message)

    @classmethod
    def parse(cls, value: Answer | Mapping[str, Any]) -> Answer:
        """An answer of its JSON form.

        Raises:
            ConfigurationError: It is none.
        """
        match value:
            case Answer(kind="approve" | "reject" | "result" | "error"):
                return value
            case {"approve": True, **rest} if not rest:
                return cls.approve()
            case {"approve": {"arguments": dict(arguments), **more}, **rest} if not (rest or more):
                return cls.approve(arguments)
            case {"reject": str(reason), **rest} if not rest:
                return cls.reject(reason)
            case {"result": result, **rest} if not rest:
                return cls.result(result)
            case {"error": {"code": str(code), **more}, **rest} if code and not (rest or more.keys() - _WHY):
                if isinstance(why := more.get("message", ""), str):
                    return cls.error(code, why)
        raise ConfigurationError(
            "invalid answer to a pending call",
            code="invalid_answer",
            hint='write {"approve": true}, {"approve": {"arguments": {...}}}, {"reject": "why"}, {"result": ...} or {"error": {"code": "..."}}',
        )


_WHY = {"message"}


class Conversation(NamedTuple):
    """A conversation, as far as it came.

    Whoever goes on with one passes it on whole. One that is made anew of its messages alone knows none of the calls
    before: all bounds of a policy begin at zero again, and nothing was called before.

    Attributes:
        messages: All of it, what the system says first.
        stop: Why the last turn ended; None before the first.
        detail: The same for a person, in one line.
        pending: The calls that wait; only where `stop` is `pending`.
        calls: Every call that was asked for, in order.
        tokens: What the model's answers took.
        cost: US dollars; 0 where no prices are known.
        rounds: Requests to the model, of all turns.
        spilled: Handle -> the whole text of a result that was too long to be shown at once.
        model: The model that answered last.
        seen: How many of the messages the loop has seen, so that its sink has them; those behind are new.
        place: How far the timeline is.
        failure: What the provider failed with, where `stop` is `provider_failed`: `{code, message, hint, retryable,
            details}`, where `details` are facts such as `status` and `retry_after` (seconds). Else empty.
        id: Tells it from all others; made where its first turn begins, unless it has one.
    """

    messages: tuple[Message, ...] = ()
    stop: Stop | None = None
    detail: str = ""
    pending: tuple[Pending, ...] = ()
    calls: tuple[CallRecord, ...] = ()
    tokens: Tokens = Tokens()
    cost: float = 0.0
    rounds: int = 0
    spilled: Mapping[str, str] = NOTHING
    model: str = ""
    seen: int = 0
    place: TimelinePosition = TimelinePosition()
    failure: Mapping[str, JSON] = NOTHING
    id: str = ""

    @property
    def text(self) -> str:
        """What the model said last since the user spoke; empty if its last message asks for calls alone."""
        said = (each for each in reversed(self.messages) if each.role in {"assistant", "user"})
        last = next(said, None)
        return last.text if last is not None and last.role == "assistant" else ""

    @property
    def turns(self) -> int:
        """How often the user spoke."""
        return sum(message.role == "user" for message in self.messages)

    def saying(self, *parts: str | Content) -> Conversation:
        """The conversation with a further message of the user, ready to be run."""
        return self._replace(messages=(*self.messages, user(*parts)))

    def as_json(self) -> dict[str, JSON]:
        """Plain data, which `parse` reads.

        Secrets in messages, in the arguments and values of `calls`, and in `spilled` are in it as they are: without
        them nobody could go on. Those of `pending`, and the events of the turn, are without them.
        """
        return {
            "messages": [message.as_json() for message in self.messages],
            "stop": None if self.stop is None else self.stop.value,
            "detail": self.detail,
            "pending": [{**each._asdict(), "details": dict(each.details)} for each in self.pending],
            "calls": [_record_as_json(each) for each in self.calls],
            "tokens": self.tokens._asdict(),
            "cost": self.cost,
            "rounds": self.rounds,
            "spilled": dict(self.spilled),
            "model": self.model,
            "seen": self.seen,
            "place": self.place.as_json(),
            "failure": dict(self.failure),
            "id": self.id,
        }

    @classmethod
    def parse(cls, value: Mapping[str, Any]) -> Conversation:
        """The conversation that `as_json` told.

        Raises:
            ConfigurationError: It is none; everything that is wrong with it is told at once.
        """
        wrong = [*_FORM(value, "")] or [*_at_odds(value)]
        if wrong:
            message = "invalid conversation:\n" + "\n".join(f"- {each_}" for each_ in wrong)
            hint = "pass the output of `Conversation.as_json()`"
            raise ConfigurationError(message, code="invalid_conversation", hint=hint)
        return cls(
            **{
                **value,
                "messages": parse_messages(value["messages"]),
                "stop": None if value["stop"] is None else Stop(value["stop"]),
                "pending": tuple(Pending(**each_) for each_ in value["pending"]),
                "calls": tuple(map(_parse_record, value["calls"])),
                "tokens": Tokens(**value["tokens"]),
                "place": TimelinePosition.parse(value["place"]),
            }
        )

    @classmethod
    def of(cls, messages: Any) -> Conversation:
        """A conversation that begins with a text of the user, or with messages.

        Raises:
            ConfigurationError: One of them is no message.
        """
        return messages if isinstance(messages, cls) else cls(messages=parse_messages(messages))


def _record_as_json(record: CallRecord) -> dict[str, JSON]:
    told: dict[str, Any] = record._asdict()
    told["outcome"] = None if record.outcome is None else record.outcome.value
    told["content"] = [part.as_json() for part in record.content]
    told["states"] = dict(record.states)
    return told


def _parse_record(value: Mapping[str, Any]) -> CallRecord:
    ended = value["outcome"]
    return CallRecord(
        **{
            **value,
            "outcome": None if ended is None else Outcome(ended),
            "content": tuple(Content(**part) for part in value["content"]),
        }
    )


_RECORD = record(
    {
        "id": identity,
        "tool": text,
        "arguments": or_null(table),
        "turn": count,
        "round": count,
        "outcome": or_null(outcome),
        "value": anything,
        "content": each(content),
        "code": text,
        "message": text,
        "reached": flag,
        "duration": amount,
        "at": number,
        "states": table,
        "attempts": count,
    }
)
_PENDING = record(
    {"id": identity, "tool": text, "arguments": table, "code": text, "message": text, "details": table}
)
_FORM = record(
    {
        "messages": each(message_form),
        "stop": or_null(one_of([stop.value for stop in Stop])),
        "detail": text,
        "pending": each(_PENDING),
        "calls": each(_RECORD),
        "tokens": record(dict.fromkeys(Tokens._fields, count)),
        "cost": amount,
        "rounds": count,
        "spilled": by_name(text),
        "model": text,
        "seen": count,
        "place": record({"seq": count, "segments": count, "calls": by_name(pair(count, one_of([*RANKS])))}),
        "failure": table,
        "id": text,
    }
)


def _at_odds(value: Mapping[str, Any]) -> Iterator[str]:
    """What parts of a conversation say against each other."""
    if value["seen"] > len(value["messages"]):
        yield f"`/seen`: expected at most {len(value['messages'])}, the number of messages, got {value['seen']}"
    if bool(value["pending"]) is not (value["stop"] == Stop.PENDING.value):
        yield "`/pending`: expected calls if and only if `stop` is `pending`"
    ids = Counter(each_["id"] for each_ in value["calls"])
    yield from (
        f"`/calls`: the id `{id_}` is used by {times} calls" for id_, times in ids.items() if times > 1
    )
    open_ = {each_["id"] for each_ in value["calls"] if each_["outcome"] is None}
    yield from (
        f"`/pending/{index}`: `/calls` has no open call `{each_['id']}`"
        for index, each_ in enumerate(value["pending"])
        if each_["id"] not in open_
    )


class Sink(Protocol):
    """Takes the messages of a conversation, each once.

    It gets them after every round, and when a turn ends, also by an error or because it was cancelled. Whatever it
    gets is whole: each call that is in it has its result, unless the call waits for somebody; then the result comes
    when the conversation goes on. Of an answer that broke off, because the provider failed or the turn was cancelled,
    it gets the text.

    The messages are what the model reads, with all secrets in arguments and results: without them nobody could go on.
    Whoever may read what is written down may know those; events (`Event`) are told without them.
    """

    async def append(self, messages: Sequence[Message], /) -> None:
        """Write down what is new. It is not cancelled with the turn, which waits for it to end.

        What it raises ends the turn: whoever runs it gets a `SinkFailed`.
        """
        ...


class SinkFailed(ToolcribError):
    """What was said could not be written down. Nothing of it is lost, and the conversation can go on.

    Attributes:
        conversation: As far as it came; `stop` is None where the turn would have gone on.
        unwritten: The messages that the sink was given and has not taken. It is not given them again.
    """

    code = "sink_failed"

    def __init__(
        self, error: BaseException, conversation: Conversation, unwritten: Sequence[Message]
    ) -> None:
        super().__init__(f"cannot write the conversation: {type(error).__name__}: {error}")
        self.conversation = conversation
        self.unwritten = tuple(unwritten)


async def append_once(sink: Sink, messages: Sequence[Message]) -> None:
    """Give messages to a sink, so that it has them once, also where the caller is cancelled meanwhile.

    Raises:
        Exception: The sink's own.
        asyncio.CancelledError: The sink's own; or the caller's, once the sink has the messages.
    """
    appending = asyncio.ensure_future(sink.append(messages))
    try:
        await asyncio.shield(appending)
    except asyncio.CancelledError:
        if not appending.done():
            await asyncio.wait([appending])
        if not appending.cancelled() and (error := appending.exception()) is not None:
            logging.getLogger("toolcrib").exception("a sink failed", exc_info=error)
        raise


class JSONLSink:
    """Writes each message as one line of JSON, as `Message.as_json` tells it. `load_transcript` reads them.

    Secrets in arguments and results are written as they are (see `Sink`): keep the file where few can read it.

    Attributes:
        path: The file; it is made with the first message, and added to.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    async def append(self, messages: Sequence[Message], /) -> None:
        """Add the lines to the file, all at once.

        Raises:
            OSError: The file can't be written.
        """
        lines = "".join(_line(message) for message in messages)
        with self.path.open("ab") as file:
            file.write(lines.encode())


def load_transcript(path: str | Path) -> tuple[Message, ...]:
    """The messages that a `JSONLSink` has written.

    Raises:
        OSError: The file can't be read.
        ConfigurationError: A line is no message.
    """
    messages = []
    for at, line in enumerate(Path(path).read_text(encoding="utf-8").split("\n"), 1):
        if not line.strip():
            continue
        try:
            value: Any = decode_json(line)
            messages.append(parse_message(value))
        except (ValueError, ConfigurationError) as error:
            raise ConfigurationError(f"{path}:{at}: {error}", code="invalid_message") from None
    return tuple(messages)


def _line(message: Message) -> str:
    told = message.as_json()
    try:
        return compact(told) + "\n"
    except ValueError:  # half of a character, which only an escape can write
        return json.dumps(told, separators=(",", ":")) + "\n"
