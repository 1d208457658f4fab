"""The events of a conversation in order, and the segments that a front end builds from them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from toolcrib.core.errors import ConfigurationError, did_you_mean
from toolcrib.core.model import JSON, NOTHING
from toolcrib.core.text import compact

RANKS: Final[Mapping[str, int]] = {"pending": 0, "running": 1, "waiting": 1, "completed": 2, "failed": 2}
"""Maps the status of a call to its rank, which never decreases. A call with the last rank never changes."""

OVER: Final = 2
"""Rank of a call that has ended."""

STRETCHES: Final = ("user", "text", "reasoning")
"""Kinds of text segments; the other kind is `call`."""

TYPES: Final[Mapping[str, frozenset[str]]] = {
    **dict.fromkeys(STRETCHES, frozenset({"segment", "text"})),
    "call": frozenset({"segment", "id", "tool", "arguments", "status", "details"}),
    "call_updated": frozenset({"segment", "id", "tool", "arguments", "status", "outcome", "text", "details"}),
    "content": frozenset({"segment", "text", "details"}),
    "plan": frozenset({"segment", "details"}),
    "closed": frozenset({"segment"}),
    "session": frozenset({"details"}),
    "violation": frozenset({"id", "text", "details"}),
    "turn_ended": frozenset({"stop"}),
}
"""Maps the type of an event to its fields, in addition to `seq` and `type`."""


class Event(NamedTuple):
    """One event of a conversation. In JSON it has `seq`, `type` and the fields of its type.

    Events are for people: `***` replaces secrets in the arguments, results and messages of calls. Secrets are
    found by the schemas of the tools and by their names. Text of the user and the model is unchanged.

        user            segment, text         a complete segment
        text, reasoning segment, text         a piece; the first one opens the segment
        call            segment, id, tool, arguments, status
        call_updated    segment, id, and the changed ones of tool, arguments, status, outcome, text
        closed          segment               the segment gets no more pieces
        turn_ended      stop

    The events of a foreign agent have `details` as well, and four more types. Names and values in them are those of the
    Agent Client Protocol.

        call            details: title, kind, content, locations, rawInput, rawOutput
        call_updated    the changed ones
        content         segment, text, details: role, block; a complete segment that is not text, such as an image
        plan            segment, details: entries; a later one of the same segment replaces it
        session         details: the changed ones of mode, commands, options, usage, info
        violation       id, text, details: code, update; what the agent did against the protocol

    Attributes:
        seq: Number of the event in the conversation, from 1, without gaps.
        type: Type of the event.
        segment: Number of the segment, from 1; 0 for the end of a turn.
        text: A piece of text; for a call, its progress or its result.
        id: ID of the call.
        tool: Name of the tool; empty while unknown.
        arguments: Arguments of the call; None while unknown.
        status: `pending`, `running`, `waiting` (for a person), `completed` or `failed`; empty if unchanged.
        outcome: Outcome of the call; empty if unchanged.
        stop: Reason for the end of the turn.
        details: Further facts of a foreign agent; None if there are none.
    """

    seq: int
    type: str
    segment: int = 0
    text: str = ""
    id: str = ""
    tool: str = ""
    arguments: dict[str, JSON] | None = None
    status: str = ""
    outcome: str = ""
    stop: str = ""
    details: dict[str, JSON] | None = None

    def as_json(self) -> dict[str, JSON]:
        """Return the event as a JSON object without empty fields."""
        has = {"seq", "type"} | TYPES[self.type]
        told: dict[str, Any] = {key: value for key, value in self._asdict().items() if key in has}
        return {key: value for key, value in told.items() if value not in ("", None)}

    def as_sse(self) -> str:
        """Return the event as a message of a `text/event-stream` (server-sent events); its ID is `seq`."""
        # A browser that reconnects sends the last ID in the header `Last-Event-ID`.
        return f"id: {self.seq}\nevent: {self.type}\ndata: {compact(self.as_json())}\n\n"

    @classmethod
    def parse(cls, value: Mapping[str, Any]) -> Event:
        """Parse the output of `as_json`.

        Raises:
            ConfigurationError: The value is not an event.
        """
        why = _why_no_event(value)
        if why:
            hint = "pass the output of `Event.as_json()`"
            raise ConfigurationError(f"invalid timeline event: {why}", code="invalid_event", hint=hint)
        return cls(**value)


_FORMS: Final[Mapping[str, type]] = {
    **dict.fromkeys(("type", "text", "id", "tool", "status", "outcome", "stop"), str),
    **dict.fromkeys(("seq", "segment"), int),
    **dict.fromkeys(("arguments", "details"), dict),
}


def _why_no_event(value: object) -> str:
    """The first violation in the JSON form of an event; empty if it is valid."""
    if not isinstance(value, Mapping):
        return f"expected an object, got `{type(value).__name__}`"
    kind = value.get("type")
    if not isinstance(kind, str) or kind not in TYPES:
        return f"unknown type {kind!r}; {did_you_mean(str(kind), TYPES)}".removesuffix("; ")
    has = {"seq", "type"} | TYPES[kind]
    for key, item in value.items():
        if key not in has:
            return f"unknown key `{key}` of `{kind}`; {did_you_mean(key, has)}".removesuffix("; ")
        if type(item) is not _FORMS[key]:  # not `isinstance`: a boolean is an int
            return f"`{key}`: expected `{_FORMS[key].__name__}`, got `{type(item).__name__}`"
    for key in {"seq", "segment"} & has:
        if value.get(key, 0) < 1:
            return f"`{key}` must be at least 1"
    if value.get("status", "pending") not in RANKS:
        return f"unknown status `{value['status']}`; expected one of {', '.join(RANKS)}"
    return ""


class TimelinePosition(NamedTuple):
    """The position of a timeline, with which another process can continue it.

    Attributes:
        seq: Number of the last event; 0 before the first one.
        segments: Number of segments.
        calls: Maps the ID of a call to its segment and status.
    """

    seq: int = 0
    segments: int = 0
    calls: Mapping[str, tuple[int, str]] = NOTHING

    def as_json(self) -> dict[str, JSON]:
        """Return plain data for `parse`."""
        calls: dict[str, JSON] = {id_: [*place] for id_, place in self.calls.items()}
        return {"seq": self.seq, "segments": self.segments, "calls": calls}

    @classmethod
    def parse(cls, value: Mapping[str, Any]) -> TimelinePosition:
        """Parse the output of `as_json`.

        Raises:
            KeyError, TypeError, ValueError: The value is invalid.
        """
        calls = {id_: (int(segment), str(status)) for id_, (segment, status) in value["calls"].items()}
        if not all(status in RANKS for _segment, status in calls.values()):
            raise ValueError("a call of the timeline has an unknown status")
        return cls(int(value["seq"]), int(value["segments"]), calls)


class Timeline:
    """Creates the events of a conversation. Each method returns its new events, possibly none.

    Args:
        place: Position of the earlier timeline that this one continues.
        heard: Whether anybody reads the events; if not, they are counted but not created.
    """

    __slots__ = ("_calls", "_ended", "_heard", "_open", "_plan", "_segments", "_seq")

    def __init__(
        self,
        place: TimelinePosition = TimelinePosition(),  # noqa: B008 -- immutable
        *,
        heard: bool = True,
    ) -> None:
        self._heard = heard
        self._seq = place.seq
        self._segments = place.segments
        self._calls: dict[str, _CallStatus] = {}
        if place.calls:
            self._calls = {id_: _CallStatus(*at) for id_, at in place.calls.items()}
        self._open = self._ended = ""
        self._plan = 0

    @property
    def place(self) -> TimelinePosition:
        """The current position."""
        calls = {id_: (call.segment, call.status) for id_, call in self._calls.items()}
        return TimelinePosition(self._seq, self._segments, calls)

    def user(self, text: str) -> list[Event]:
        """Add a segment with text of the user."""
        return [*self._close(), *self._event("user", self._begin(), {"text": text})]

    def text(self, piece: str) -> list[Event]:
        """Add a piece of text of the model."""
        return self._piece("text", piece)

    def reasoning(self, piece: str) -> list[Event]:
        """Add a piece of the model's reasoning."""
        return self._piece("reasoning", piece)

    def content(self, role: str, block: dict[str, JSON], text: str) -> list[Event]:
        """Add a segment with content that is not text.

        Args:
            role: Who has said it: `user`, `text` or `reasoning`.
            block: The content.
            text: A description of it.
        """
        details: dict[str, JSON] = {"role": role, "block": block}
        return [*self._close(), *self._event("content", self._begin(), {"text": text, "details": details})]

    def plan(self, entries: list[JSON]) -> list[Event]:
        """Add the plan of the turn, or replace it."""
        told = []
        if not self._plan:
            told = self._close()
            self._plan = self._begin()
        return [*told, *self._event("plan", self._plan, {"details": {"entries": entries}})]

    def session(self, facts: dict[str, JSON]) -> list[Event]:
        """Report changed facts of the session, which belong to no segment."""
        return self._event("session", 0, {"details": facts})

    def violation(self, text: str, details: dict[str, JSON], call: str = "") -> list[Event]:
        """Report what an agent did against its protocol. It changes no segment."""
        return self._event("violation", 0, {"text": text, "id": call, "details": details})

    def message_ended(self) -> list[Event]:
        """Close the open segment, because the answer of the model is complete."""
        return self._close()

    def call(
        self,
        id: str,  # noqa: A002 -- the public name of the field
        tool: str = "",
        arguments: dict[str, JSON] | None = None,
        details: dict[str, JSON] | None = None,
    ) -> list[Event]:
        """Add a segment for a call; its tool and arguments may follow later.

        For a known call, this updates the tool, the arguments and the details.
        """
        return self.call_updated(id, tool=tool, arguments=arguments, details=details)

    def call_updated(
        self,
        id: str,  # noqa: A002 -- as above
        status: str = "",
        *,
        outcome: str | None = None,
        text: str = "",
        tool: str = "",
        arguments: dict[str, JSON] | None = None,
        details: dict[str, JSON] | None = None,
    ) -> list[Event]:
        """Update a call; an unknown call gets a segment first.

        The status never goes back, and a call that has ended ignores all updates.

        Args:
            id: ID of the call.
            status: `running`, `waiting`, `completed` or `failed`; empty if unchanged.
            outcome: Outcome of the call; None if unchanged.
            text: Its progress or its result; empty if unchanged.
            tool: Name of the tool, if it was unknown.
            arguments: The arguments, if they were unknown or have changed.
            details: Further facts that have changed.

        Raises:
            ConfigurationError: The status is unknown.
        """
        if status and status not in RANKS:
            message = f"unknown status `{status}`"
            raise ConfigurationError(message, hint=f"known statuses: {', '.join(RANKS)}")
        known = self._calls.get(id)
        if known is not None:
            return self._update(
                id, known, status, str(outcome or ""), text, tool=tool, arguments=arguments, details=details
            )
        begun = self._close()
        known = self._calls[id] = _CallStatus(self._begin(), tool=tool, arguments=arguments)
        facts = {
            "id": id,
            "tool": tool,
            "arguments": arguments,
            "status": known.status,
            "details": details or None,
        }
        begun += self._event("call", known.segment, facts)
        if status or outcome or text:
            begun += self._update(id, known, status, str(outcome or ""), text)
        return begun

    def turn_ended(self, stop: str, outcome: str = "cancelled") -> list[Event]:
        """End the turn and close everything.

        Running calls become `failed` with the outcome. Waiting calls stay so if `stop` is `pending`, else they become
        `failed` as well.

        Args:
            stop: Reason for the end.
            outcome: Outcome of the open calls.
        """
        # Called again if the conversation is built twice, as after a failing sink; the event must not repeat.
        if self._ended == stop:
            return []
        told = self._close()
        for id_, call in self._calls.items():
            if not (call.status == "waiting" and stop == "pending"):
                told += self._update(id_, call, "failed", outcome)
        told += self._event("turn_ended", 0, {"stop": str(stop)})
        self._ended = str(stop)
        self._plan = 0
        return told

    def _piece(self, kind: str, piece: str) -> list[Event]:
        if not piece:
            return []
        told = self._close() if self._open != kind else []
        if not self._open:
            self._open = kind
            self._begin()
        told += self._event(kind, self._segments, {"text": piece})
        return told

    def _begin(self) -> int:
        self._segments += 1
        return self._segments

    def _close(self) -> list[Event]:
        """Close the open text segment, which is always the last one."""
        if not self._open:
            return []
        self._open = ""
        return self._event("closed", self._segments)

    def _update(
        self,
        id_: str,
        known: _CallStatus,
        status: str,
        outcome: str,
        text: str = "",
        *,
        tool: str = "",
        arguments: dict[str, JSON] | None = None,
        details: dict[str, JSON] | None = None,
    ) -> list[Event]:
        """Build one event with the changes of a call, if any."""
        rank = RANKS[known.status]
        if rank == OVER:
            return []
        news: dict[str, Any] = {}
        if status and status != known.status and RANKS[status] >= rank:
            news["status"] = known.status = status
        if outcome and outcome != known.outcome:
            news["outcome"] = known.outcome = outcome
        if text and text != known.text:
            news["text"] = known.text = text
        if tool and tool != known.tool:
            news["tool"] = known.tool = tool
        if arguments is not None and arguments != known.arguments:
            news["arguments"] = known.arguments = arguments
        if details:
            news["details"] = details
        return self._event("call_updated", known.segment, {"id": id_, **news}) if news else []

    def _event(self, type_: str, segment: int, facts: Mapping[str, Any] = NOTHING) -> list[Event]:
        self._seq += 1
        self._ended = ""
        return [Event(self._seq, type_, segment, **facts)] if self._heard else []


class _CallStatus:
    """The last reported state of a call."""

    __slots__ = ("arguments", "outcome", "segment", "status", "text", "tool")

    def __init__(
        self,
        segment: int,
        status: str = "pending",
        tool: str = "",
        arguments: dict[str, JSON] | None = None,
    ) -> None:
        self.segment = segment
        self.status = status
        self.tool = tool
        self.arguments = arguments
        self.outcome = self.text = ""


class Segment(NamedTuple):
    """One segment of a conversation: a text, reasoning or a call.

    Attributes:
        number: Number of the segment, from 1.
        kind: `user`, `text`, `reasoning` or `call`; of foreign agents also `content` or `plan`.
        text: The whole text; for a call, its last progress or its result.
        open: Whether more may follow. A call that waits for a person is not open.
        id: ID of the call.
        tool: Name of its tool.
        arguments: Its arguments.
        status: Its status.
        outcome: Its outcome.
        details: Further facts of a foreign agent; None if there are none.
    """

    number: int
    kind: str
    text: str = ""
    open: bool = True
    id: str = ""
    tool: str = ""
    arguments: dict[str, JSON] | None = None
    status: str = ""
    outcome: str = ""
    details: dict[str, JSON] | None = None

    def as_json(self) -> dict[str, JSON]:
        """Return the segment as a JSON object without empty fields."""
        return {key: value for key, value in self._asdict().items() if value not in ("", None)}


MOST_HELD: Final = 1024
"""Maximum number of early events that a view holds until the missing ones arrive."""


class View:
    """Builds segments from events, which may arrive repeatedly and in any order.

    A repeated event is ignored. An early event is held until the missing ones arrive; beyond 1024 held
    events, further ones are dropped. `missing` is the range to request again, including dropped events.

    Example:
        ```python
        view = View()
        async for item in loop.stream("Where is my order?"):
            if isinstance(item, Event) and view.apply(item):
                render(view.segments)
        ```

    Attributes:
        seq: Number of the last applied event; resume a stream after this one.
        stop: Reason for the end of the last turn; empty while a turn is running.
        session: Facts of the session of a foreign agent, such as its mode and usage.
    """

    def __init__(self) -> None:
        self.seq = 0
        self.stop = ""
        self.session: dict[str, JSON] = {}
        self._segments: list[Segment] = []
        self._held: dict[int, Event] = {}
        self._last = 0
        self._growing = -1
        # Joined only when the segments are read: appending to a string for each piece takes quadratic time.
        self._pieces: list[str] = []

    @property
    def segments(self) -> tuple[Segment, ...]:
        """The segments, in the order in which they started."""
        self._join()
        return tuple(self._segments)

    @property
    def missing(self) -> tuple[int, int] | None:
        """The first and the last number of the missing events; None if there is no gap."""
        last = min(self._held) - 1 if self._held else self._last
        return (self.seq + 1, last) if last > self.seq else None

    def apply(self, event: Event) -> bool:
        """Apply an event.

        Returns:
            Whether the event is new and was applied or held.

        Raises:
            ConfigurationError: The event does not fit, as one of another timeline. The view is unchanged.
        """
        if event.seq <= self.seq or event.seq in self._held:
            return False
        early = event.seq > self.seq + 1
        if not early or len(self._held) < MOST_HELD:
            self._held[event.seq] = event
        while (due := self._held.pop(self.seq + 1, None)) is not None:
            self._fold(due)
            self.seq = due.seq
        self._last = max(self._last, event.seq)
        return not early or event.seq in self._held

    def _fold(self, event: Event) -> None:
        if event.type == "turn_ended":
            self.stop = event.stop
            return
        if event.segment == 0:  # it changes no segment, and does not begin a turn
            if event.type == "session":
                self.session = {**self.session, **(event.details or {})}
            return
        place, most = event.segment - 1, len(self._segments)
        there = self._segments[place] if 0 <= place < most else None
        if there is not None and there.open and there.kind == event.type != "call":
            self._grow(place, event.text)
        else:
            self._join()
            folded = _begun(event) if there is None else _gone_on(self._segments[place], event)
            # Checked before any change, so that an event of another timeline leaves the view as it is.
            if folded is None or not 0 <= place <= most:
                message = f"event {event.seq} (`{event.type}`) cannot be applied to segment {event.segment}"
                hint = "apply the events of a single timeline to a view"
                raise ConfigurationError(message, code="invalid_event", hint=hint)
            self._segments[place : place + 1] = [folded]
        self.stop = ""

    def _grow(self, place: int, piece: str) -> None:
        if place != self._growing:
            self._join()
            self._growing = place
        self._pieces.append(piece)

    def _join(self) -> None:
        """Append the collected pieces to their segment."""
        if self._pieces:
            grown = self._segments[self._growing]
            self._segments[self._growing] = grown._replace(text=grown.text + "".join(self._pieces))
            self._pieces = []

    def as_json(self) -> dict[str, JSON]:
        """Return plain data for `parse`, `{seq, stop, segments}`, without held events; and `session` if it has facts."""
        told: dict[str, JSON] = {
            "seq": self.seq,
            "stop": self.stop,
            "segments": [each.as_json() for each in self.segments],
        }
        return {**told, "session": self.session} if self.session else told

    @classmethod
    def parse(cls, value: Mapping[str, Any]) -> View:
        """Parse the output of `as_json`.

        Raises:
            ConfigurationError: The value is not a view.
        """
        view = cls()
        try:
            view.seq, view.stop = int(value["seq"]), str(value["stop"])
            view._segments = [Segment(**each) for each in value["segments"]]
            view.session = dict(value.get("session", {}))
        except (KeyError, TypeError, ValueError) as error:
            message = f"invalid timeline view: {type(error).__name__}: {error}"
            hint = "pass the output of `View.as_json()`"
            raise ConfigurationError(message, code="invalid_view", hint=hint) from None
        return view


def _begun(event: Event) -> Segment | None:
    """The segment that an event starts, if any."""
    if event.type == "call":
        known = {key: getattr(event, key) for key in ("id", "tool", "arguments", "status", "details")}
        return Segment(event.segment, "call", **known)
    if event.type in {"content", "plan"}:
        return Segment(event.segment, event.type, event.text, open=False, details=event.details)
    if event.type in STRETCHES:
        return Segment(event.segment, event.type, event.text, open=event.type != "user")
    return None


def _gone_on(segment: Segment, event: Event) -> Segment | None:
    """The segment after an event; None if the event does not belong to it."""
    if event.type == "call_updated" and event.id == segment.id:
        said = {key: getattr(event, key) for key in ("tool", "arguments", "status", "outcome", "text")}
        later = segment._replace(**{key: value for key, value in said.items() if value not in ("", None)})
        if event.details:
            later = later._replace(details={**(segment.details or {}), **event.details})
        return later._replace(open=later.status in {"pending", "running"})
    if event.type == segment.kind == "plan":
        return segment._replace(details=event.details)
    if segment.kind == "call" or not segment.open:
        return None
    return segment._replace(open=False) if event.type == "closed" else None
