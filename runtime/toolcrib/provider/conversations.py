"""Conversations as plain data (messages, calls, cost, stop reason), and the sinks that store them."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from secrets import token_hex
from typing import Any, NamedTuple, Protocol

from toolcrib.core.errors import ConfigurationError, ToolcribError
from toolcrib.core.model import JSON, NOTHING, Content, Outcome, Result
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
from toolcrib.provider.messages import (
    Message,
    Part,
    Reasoning,
    ToolCall,
    ToolResult,
    message_form,
    parse_message,
    parse_messages,
    user,
)
from toolcrib.provider.models.protocol import Tokens
from toolcrib.security.approvals import Pending
from toolcrib.security.redaction import CallRedactor


class Stop(StrEnum):
    """The reasons why a turn can end; a closed set."""

    ANSWERED = "answered"
    """The model completed its answer."""
    PENDING = "pending"
    """Calls need an approval, or the result of a tool that the client fulfils."""
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
    """A call that the model requested, and its result.

    Attributes:
        id: ID of the call.
        tool: Name of the tool; for an unknown tool, the name that the model wrote.
        arguments: Arguments as passed to the runtime; None if they were not a JSON object.
        turn: Number of the turn, from 1.
        round: Number of the request in the turn, from 1.
        outcome: Outcome of the call; None while it is pending.
        value: Value of an `ok` result.
        content: Further parts of the result.
        code: Error code.
        message: Error message.
        reached: Whether the call reached the tool, so that neither the policy nor invalid arguments stopped
            it.
        duration: Seconds on the session's clock.
        at: Start time, in seconds since 1970 on the session's clock.
        states: Named states of the session's mocks at the start.
        attempts: Number of attempts.
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


class Conversation(NamedTuple):
    """The state of a conversation.

    To continue a conversation, pass the whole object to `ProviderMiddleware.run`. A conversation built from
    its messages alone has no record of earlier calls, so the limits of a policy start at zero again.

    Example:
        ```python
        first = await loop.run("Where is order ORD-1?")
        second = await loop.run(first.saying("And ORD-2?"))
        ```

    Attributes:
        messages: All messages; a system message comes first.
        stop: Reason for the end of the last turn; None before the first one.
        detail: The same as a text of one line.
        pending: The pending calls; only if `stop` is `pending`.
        calls: All calls that the model requested, in order.
        tokens: Token counts of all answers.
        cost: Cost in US dollars; 0 without prices.
        rounds: Number of requests to the model, in all turns.
        spilled: Maps the handle of a truncated result to its whole text.
        model: The model that answered last.
        seen: Number of messages that the loop has processed and passed to its sink; later ones are new.
        place: Position of the timeline.
        failure: Error of the provider if `stop` is `provider_failed`: `{code, message, hint, retryable,
            details}`, with facts such as `status` and `retry_after` (seconds) in `details`. Else empty.
        id: Unique ID; the first turn creates it if it is empty.
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
        """The last text of the model in this turn; empty if its last message has only calls."""
        said = (each for each in reversed(self.messages) if each.role in {"assistant", "user"})
        last = next(said, None)
        return last.text if last is not None and last.role == "assistant" else ""

    @property
    def turns(self) -> int:
        """Number of user messages."""
        return [message.role for message in self.messages].count("user")

    def saying(self, *parts: str | Content) -> Conversation:
        """Return the conversation with another message of the user, to pass to `run`."""
        return self._replace(messages=(*self.messages, user(*parts)))

    def as_json(self) -> dict[str, JSON]:
        """Return plain data for `parse`.

        Messages, `calls` and `spilled` contain secrets unmasked, because the conversation could not continue
        without them. `pending` and events are masked.
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
        """Parse the output of `as_json`.

        Raises:
            ConfigurationError: The value is not a conversation; the error lists all violations.
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
        """Create a conversation with a new ID from text of the user or from messages.

        A conversation is returned unchanged.

        Raises:
            ConfigurationError: A message is invalid.
        """
        if isinstance(messages, cls):
            return messages
        return cls(messages=parse_messages(messages), id=new_id())


def new_id() -> str:
    """A unique ID of a conversation."""
    return token_hex(16)


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
    """Yield contradictions between the fields of a conversation."""
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
    """Stores the messages of a conversation. It receives each message once.

    The loop calls it after every round and at the end of a turn, even after an error or a cancellation. The
    messages are
    complete: every call has its result, except pending calls, whose results follow when the conversation
    continues. From an interrupted answer, the sink receives the text.

    Messages contain the secrets in arguments and results unmasked, because the conversation could not
    continue without them. Restrict access to what you store. Events (`Event`) are masked. A sink that also has the
    method `append_masked(messages, masked)` gets the messages twice there instead: unmasked, and with `***` in place of
    secrets.

    Example:
        ```python
        class DatabaseSink:
            async def append(self, messages):
                await database.insert([message.as_json() for message in messages])
        ```
    """

    async def append(self, messages: Sequence[Message], /) -> None:
        """Store new messages. A cancelled turn waits for this to end and does not cancel it.

        An exception ends the turn with `SinkFailed`.
        """
        ...


class SinkFailed(ToolcribError):
    """A sink failed. The conversation is complete and can continue.

    Attributes:
        conversation: The conversation so far; `stop` is None if the turn would have continued.
        unwritten: The messages that the sink failed to store. It does not receive them again.
    """

    code = "sink_failed"

    def __init__(
        self, error: BaseException, conversation: Conversation, unwritten: Sequence[Message]
    ) -> None:
        super().__init__(f"cannot write the conversation: {type(error).__name__}: {error}")
        self.conversation = conversation
        self.unwritten = tuple(unwritten)


async def append_once(
    sink: Sink, messages: Sequence[Message], masked: Callable[[], Sequence[Message]]
) -> None:
    """Pass messages to a sink exactly once, even if the caller is cancelled meanwhile.

    Args:
        sink: The sink.
        messages: The messages.
        masked: Returns the messages with `***` in place of secrets, for a sink with `append_masked`.

    Raises:
        Exception: The exception of the sink.
        asyncio.CancelledError: The sink cancelled itself, or the caller was cancelled; the sink is then
        finished.
    """
    # A cancellation in the middle of `append` would leave open whether the messages were stored.
    append_masked = getattr(sink, "append_masked", None)
    work = sink.append(messages) if append_masked is None else append_masked(messages, masked())
    appending = asyncio.ensure_future(work)
    try:
        await asyncio.shield(appending)
    except asyncio.CancelledError:
        # `shield` keeps `append` running; wait for its end before the cancellation continues.
        if not appending.done():
            await asyncio.wait([appending])
        # The cancellation takes precedence, so an error of the sink can only be logged.
        if not appending.cancelled() and (error := appending.exception()) is not None:
            logging.getLogger("toolcrib").exception("a sink failed", exc_info=error)
        raise


def mask_message(message: Message, redactor: CallRedactor) -> Message:
    """Return a message with `***` in place of the secrets in its calls and results."""
    return message._replace(parts=tuple(_masked_part(part, redactor) for part in message.parts))


def _masked_part(part: Part, redactor: CallRedactor) -> Part:
    if isinstance(part, ToolCall):
        arguments = redactor.arguments(part.name, part.arguments)
        same = arguments == part.arguments
        written = redactor.text(part.written) if same else compact(arguments)
        return part._replace(arguments=arguments, written=written)
    if isinstance(part, ToolResult):
        shown = redactor.result(part.name, Result.success(part.text, content=part.content))
        return part._replace(text=str(shown.value), content=shown.content)
    if isinstance(part, Content):
        return redactor.result("", Result.success(None, content=(part,))).content[0]
    if isinstance(part, Reasoning):
        return part._replace(text=redactor.text(part.text), data=redactor.value(part.data))
    return part._replace(text=redactor.text(part.text))


class JSONLSink:
    """Appends each message to a file as one line of JSON. `load_transcript` reads the file.

    A message with secrets is written with `***` in their place, and encrypted as a whole in `sealed`, with the key of
    the user (`toolcrib approvals key`). Without a key, its secrets are not stored: `sealed` is null, and a warning is
    logged.

    Attributes:
        path: The file; the first message creates it.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self._names = CallRedactor(lambda _tool: None)
        self._warned = False

    async def append(self, messages: Sequence[Message], /) -> None:
        """Append the messages to the file. Without the schemas of the tools, secrets are found by their names only.

        Raises:
            OSError: The file cannot be written.
        """
        await self.append_masked(messages, [mask_message(message, self._names) for message in messages])

    async def append_masked(self, messages: Sequence[Message], masked: Sequence[Message], /) -> None:
        """Append the messages to the file.

        Args:
            messages: The messages.
            masked: The same messages with `***` in place of secrets.

        Raises:
            OSError: The file cannot be written.
        """
        # One write for all lines, so that a crash does not separate a call from its result.
        lines = "".join(map(self._line, messages, masked))
        # Binary: Windows would write `\r\n` in text mode.
        with self.path.open("ab") as file:
            file.write(lines.encode())

    def _line(self, message: Message, masked: Message) -> str:
        whole, told = message.as_json(), masked.as_json()
        if told != whole:
            told["sealed"] = self._sealed(whole)
        try:
            return compact(told) + "\n"
        except ValueError:  # a lone surrogate has no UTF-8 form and must be escaped
            return json.dumps(told, separators=(",", ":")) + "\n"

    def _sealed(self, whole: dict[str, JSON]) -> str | None:
        # Deferred, and looked up each time: few messages hold secrets, and a person may create the key meanwhile.
        from toolcrib.security.encryption import NoKey, load_cipher  # noqa: PLC0415

        try:
            return load_cipher().encrypt(whole)
        except NoKey as error:
            if not self._warned:
                self._warned = True
                logging.getLogger("toolcrib").warning(
                    "%s: messages with secrets are stored with `***` in their place, and the secrets stay in the memory of "
                    "this process: %s; %s",
                    self.path,
                    error.message,
                    error.hint,
                )
            return None


def load_transcript(path: str | Path) -> tuple[Message, ...]:
    """Read the messages that a `JSONLSink` has written, and decrypt those with secrets.

    A message that was stored without a key has `***` in place of its secrets; a warning is logged.

    Raises:
        OSError: The file cannot be read.
        ConfigurationError: A line is not a message, or cannot be decrypted (`no_key`, `cannot_decrypt`).
    """
    messages = []
    lost = 0
    # Not `splitlines`, which also splits at U+2028 and U+0085; JSON strings may contain these.
    for at, line in enumerate(Path(path).read_text(encoding="utf-8").split("\n"), 1):
        if not line.strip():
            continue
        try:
            value: Any = decode_json(line)
            if isinstance(value, dict) and "sealed" in value:
                sealed = value.pop("sealed")
                lost += sealed is None
                value = value if sealed is None else _unsealed(sealed)
            messages.append(parse_message(value))
        except (ValueError, ConfigurationError) as error:
            raise ConfigurationError(f"{path}:{at}: {error}", code="invalid_message") from None
        except ToolcribError as error:
            raise ConfigurationError(
                f"{path}:{at}: {error.message}", code=error.code, hint=error.hint
            ) from None
    if lost:
        logging.getLogger("toolcrib").warning(
            "%s: %s without secrets, because there was no encryption key when they were stored",
            path,
            "1 message is" if lost == 1 else f"{lost} messages are",
        )
    return tuple(messages)


def _unsealed(sealed: Any) -> Any:
    from toolcrib.security.encryption import load_cipher  # noqa: PLC0415 -- few messages hold secrets

    if not isinstance(sealed, str):
        raise ValueError("`sealed` is not a text")  # noqa: TRY004 -- as for text that is not JSON
    return load_cipher().decrypt(sealed)
