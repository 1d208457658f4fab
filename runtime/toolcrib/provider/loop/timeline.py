"""What happens in a conversation as events in their true order, and the segments that a front end makes of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from toolcrib.core.errors import ConfigurationError, did_you_mean
from toolcrib.core.model import JSON, NOTHING
from toolcrib.core.text import compact

RANKS: Final[Mapping[str, int]] = {"pending": 0, "running": 1, "waiting": 1, "completed": 2, "failed": 2}
"""Status of a call -> how far it is: never back, and never further once it is over."""

OVER: Final = 2
"""The rank of a call to which nothing happens any more."""

STRETCHES: Final = ("user", "text", "reasoning")
"""Kinds of segments that are text; the other kind is `call`."""

TYPES: Final[Mapping[str, frozenset[str]]] = {
    **dict.fromkeys(STRETCHES, frozenset({"segment", "text"})),
    "call": frozenset({"segment", "id", "tool", "arguments", "status"}),
    "call_updated": frozenset({"segment", "id", "tool", "arguments", "status", "outcome", "text"}),
    "closed": frozenset({"segment"}),
    "turn_ended": frozenset({"stop"}),
}
"""Type of an event -> what it has beside its number."""


class Event(NamedTuple):
    """One thing that happened. In JSON it has `seq`, `type`, and what its type has.

    It is for people: in the arguments, results and messages of calls that the loop tells, `***` stands in place of
    secrets, which the schemas of the tools or names say. What is said, by the user or the model, is told as it is.

        user            segment, text         a segment of its own, which is closed
        text, reasoning segment, text         a piece; the first one of a segment opens it
        call            segment, id, tool, arguments, status
        call_updated    segment, id, and of tool, arguments, status, outcome, text what is new
        closed          segment               no further piece comes
        turn_ended      stop

    Attributes:
        seq: Its number in the conversation, from 1, without a gap.
        type: What happened.
        segment: Where, numbered from 1; 0 for the end of a turn.
        text: A piece of text; or what a call tells of itself: its progress, its result.
        id: Of the call.
        tool: Name of the tool; empty while it is not known.
        arguments: Of the call; None while they are not known.
        status: `pending`, `running`, `waiting` (for somebody), `completed` or `failed`; empty for unchanged.
        outcome: How the call ended; empty for unchanged.
        stop: Why the turn ended.
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

    def as_json(self) -> dict[str, JSON]:
        """The event as a JSON object; what it does not say is left out."""
        has = {"seq", "type"} | TYPES[self.type]
        told: dict[str, Any] = {key: value for key, value in self._asdict().items() if key in has}
        return {key: value for key, value in told.items() if value not in ("", None)}

    def as_sse(self) -> str:
        """The event as a message of a `text/event-stream` (HTML, server-sent events).

        Its id is `seq`: a browser that connects again says in `Last-Event-ID` which one it has seen last.
        """
        return f"id: {self.seq}\nevent: {self.type}\ndata: {compact(self.as_json())}\n\n"

    @classmethod
    def parse(cls, value: Mapping[str, Any]) -> Event:
        """The event that `as_json` told.

        Raises:
            ConfigurationError: It is none.
        """
        why = _why_no_event(value)
        if why:
            hint = "pass the output of `Event.as_json()`"
            raise ConfigurationError(f"invalid timeline event: {why}", code="invalid_event", hint=hint)
        return cls(**value)


_FORMS: Final[Mapping[str, type]] = {
    **dict.fromkeys(("type", "text", "id", "tool", "status", "outcome", "stop"), str),
    **dict.fromkeys(("seq", "segment"), int),
    "arguments": dict,
}


def _why_no_event(value: object) -> str:
    """What is wrong with the JSON form of an event; empty if nothing."""
    if not isinstance(value, Mapping):
        return f"expected an object, got `{type(value).__name__}`"
    kind = value.get("type")
    if not isinstance(kind, str) or kind not in TYPES:
        return f"unknown type {kind!r}; {did_you_mean(str(kind), TYPES)}".removesuffix("; ")
    has = {"seq", "type"} | TYPES[kind]
    for key, item in value.items():
        if key not in has:
            return f"unknown key `{key}` of `{kind}`; {did_you_mean(key, has)}".removesuffix("; ")
        if type(item) is not _FORMS[key]:
            return f"`{key}`: expected `{_FORMS[key].__name__}`, got `{type(item).__name__}`"
    for key in {"seq", "segment"} & has:
        if value.get(key, 0) < 1:
            return f"`{key}` must be at least 1"
    if value.get("status", "pending") not in RANKS:
        return f"unknown status `{value['status']}`; expected one of {', '.join(RANKS)}"
    return ""


class TimelinePosition(NamedTuple):
    """How far a timeline is: enough to go on with it elsewhere.

    Attributes:
        seq: The number of the last event; 0 before the first.
        segments: How many there are.
        calls: Id of a call -> its segment and status.
    """

    seq: int = 0
    segments: int = 0
    calls: Mapping[str, tuple[int, str]] = NOTHING

    def as_json(self) -> dict[str, JSON]:
        """Plain data, which `parse` reads."""
        calls: dict[str, JSON] = {id_: [*place] for id_, place in self.calls.items()}
        return {"seq": self.seq, "segments": self.segments, "calls": calls}

    @classmethod
    def parse(cls, value: Mapping[str, Any]) -> TimelinePosition:
        """The place that `as_json` told.

        Raises:
            KeyError, TypeError, ValueError: It is none.
        """
        calls = {id_: (int(segment), str(status)) for id_, (segment, status) in value["calls"].items()}
        if not all(status in RANKS for _segment, status in calls.values()):
            raise ValueError("a call of the timeline has an unknown status")
        return cls(int(value["seq"]), int(value["segments"]), calls)


class Timeline:
    """Makes events of what happens. Each method gives those that it comes to, none where there is nothing new.

    Args:
        place: Where an earlier timeline of the conversation ended, whose events this one's follow.
    """

    def __init__(self, place: TimelinePosition = TimelinePosition()) -> None:  # noqa: B008 -- immutable
        self._seq = place.seq
        self._segments = place.segments
        self._calls = {id_: _CallStatus(*at) for id_, at in place.calls.items()}
        self._open = self._ended = ""

    @property
    def place(self) -> TimelinePosition:
        """How far it is."""
        calls = {id_: (call.segment, call.status) for id_, call in self._calls.items()}
        return TimelinePosition(self._seq, self._segments, calls)

    def user(self, text: str) -> list[Event]:
        """The user says something: a segment of its own."""
        return [*self._close(), self._event("user", self._begin(), text=text)]

    def text(self, piece: str) -> list[Event]:
        """The model says something, or goes on saying it."""
        return self._piece("text", piece)

    def reasoning(self, piece: str) -> list[Event]:
        """The model thinks aloud, or goes on."""
        return self._piece("reasoning", piece)

    def message_ended(self) -> list[Event]:
        """The model's answer is whole: what it says in the next one is no more of this."""
        return self._close()

    def call(
        self,
        id: str,  # noqa: A002 -- its name everywhere
        tool: str = "",
        arguments: dict[str, JSON] | None = None,
    ) -> list[Event]:
        """The model asks for a call: a segment of its own, whose tool and arguments may follow later.

        Of a call that is known already it says what the tool and the arguments are.
        """
        return self.call_updated(id, tool=tool, arguments=arguments)

    def call_updated(
        self,
        id: str,  # noqa: A002 -- as above
        status: str = "",
        *,
        outcome: str | None = None,
        text: str = "",
        tool: str = "",
        arguments: dict[str, JSON] | None = None,
    ) -> list[Event]:
        """Something became of a call; one that is not known yet begins with it.

        Its status goes on and never back, and to a call that is over nothing happens any more.

        Args:
            id: Of the call.
            status: `running`, `waiting`, `completed` or `failed`; empty for unchanged.
            outcome: How it ended; None for unchanged.
            text: What it tells of itself, its progress or its result; empty for unchanged.
            tool: Name of the tool, where it is not known yet.
            arguments: What it is called with, where that is not known yet, or other than it was.

        Raises:
            ConfigurationError: There is no such status.
        """
        if status and status not in RANKS:
            message = f"unknown status `{status}`"
            raise ConfigurationError(message, hint=f"valid statuses: {', '.join(RANKS)}")
        begun: list[Event] = []
        if id not in self._calls:
            begun = self._close()
            known = self._calls[id] = _CallStatus(self._begin(), tool=tool, arguments=arguments)
            begun.append(
                self._event("call", known.segment, id=id, tool=tool, arguments=arguments, status=known.status)
            )
        news: dict[str, Any] = {
            "outcome": str(outcome or ""),
            "text": text,
            "tool": tool,
            "arguments": arguments,
        }
        return [*begun, *self._update(id, {"status": status, **news})]

    def turn_ended(self, stop: str) -> list[Event]:
        """The turn is over, and nothing of it is open.

        Calls that were under way are given up: `failed`, with the outcome `cancelled`. Those that wait go on waiting
        if `stop` is `pending`; else they are given up too.
        """
        if self._ended == stop:
            return []
        told = self._close()
        for id_, call in self._calls.items():
            if not (call.status == "waiting" and stop == "pending"):
                told += self._update(id_, {"status": "failed", "outcome": "cancelled"})
        told.append(self._event("turn_ended", 0, stop=str(stop)))
        self._ended = str(stop)
        return told

    def _piece(self, kind: str, piece: str) -> list[Event]:
        if not piece:
            return []
        told = self._close() if self._open != kind else []
        if not self._open:
            self._open = kind
            self._begin()
        return [*told, self._event(kind, self._segments, text=piece)]

    def _begin(self) -> int:
        self._segments += 1
        return self._segments

    def _close(self) -> list[Event]:
        """The end of the text that is open, which is the last segment."""
        if not self._open:
            return []
        self._open = ""
        return [self._event("closed", self._segments)]

    def _update(self, id_: str, said: Mapping[str, Any]) -> list[Event]:
        """What is new of it, in one event."""
        known = self._calls[id_]
        if RANKS[known.status] == OVER:
            return []
        news = {
            key: value
            for key, value in said.items()
            if value not in ("", None) and value != getattr(known, key)
        }
        if RANKS[news.get("status", known.status)] < RANKS[known.status]:
            del news["status"]
        self._calls[id_] = known._replace(**news)
        return [self._event("call_updated", known.segment, id=id_, **news)] if news else []

    def _event(self, type_: str, segment: int, **facts: Any) -> Event:
        self._seq += 1
        self._ended = ""
        return Event(self._seq, type_, segment, **facts)


class _CallStatus(NamedTuple):
    """What was told of a call."""

    segment: int
    status: str = "pending"
    tool: str = ""
    arguments: dict[str, JSON] | None = None
    outcome: str = ""
    text: str = ""


class Segment(NamedTuple):
    """One stretch of a conversation.

    Attributes:
        number: Which one it is, from 1.
        kind: `user`, `text`, `reasoning` or `call`.
        text: All of its text; of a call what it told of itself last.
        open: Whether it may go on. A call that waits for somebody is not open.
        id: Of a call.
        tool: Name of its tool.
        arguments: What it is called with.
        status: How far it is.
        outcome: How it ended.
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

    def as_json(self) -> dict[str, JSON]:
        """The segment as a JSON object; what it does not have is left out."""
        return {key: value for key, value in self._asdict().items() if value not in ("", None)}


MOST_HELD: Final = 1024
"""Events that a view holds until those before them are there."""


class View:
    """The segments that events come to. Any event may be applied any number of times, and in any order.

    One that was applied before changes nothing. One that comes too early is held until those before it are there, as
    long as no more than 1024 are; further ones are left out. `missing` says which to ask for again, those among them.

    Attributes:
        seq: The number of the last event that is in it; a stream is resumed after this one.
        stop: Why the last turn ended; empty while one is under way.
    """

    def __init__(self) -> None:
        self.seq = 0
        self.stop = ""
        self._segments: list[Segment] = []
        self._held: dict[int, Event] = {}
        self._last = 0
        self._growing = -1
        self._pieces: list[
            str
        ] = []  # of the text that grows: joined when somebody looks, so that its length costs once

    @property
    def segments(self) -> tuple[Segment, ...]:
        """All of them, in the order in which they began."""
        self._join()
        return tuple(self._segments)

    @property
    def missing(self) -> tuple[int, int] | None:
        """The first and the last number of the events that are waited for; None where there is no gap."""
        last = min(self._held) - 1 if self._held else self._last
        return (self.seq + 1, last) if last > self.seq else None

    def apply(self, event: Event) -> bool:
        """Take an event.

        Returns:
            Whether it is new, and was taken or is held.

        Raises:
            ConfigurationError: It is of another timeline: it goes to a segment that can't be there. The view is as it was.
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
        place, most = event.segment - 1, len(self._segments)
        there = self._segments[place] if 0 <= place < most else None
        if there is not None and there.open and there.kind == event.type != "call":
            self._grow(place, event.text)
        else:
            self._join()
            folded = _begun(event) if there is None else _gone_on(self._segments[place], event)
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
        """Put the pieces of the text that grows into its segment."""
        if self._pieces:
            grown = self._segments[self._growing]
            self._segments[self._growing] = grown._replace(text=grown.text + "".join(self._pieces))
            self._pieces = []

    def as_json(self) -> dict[str, JSON]:
        """Plain data, which `parse` reads: `{seq, stop, segments}`. Events that are held are not in it."""
        return {"seq": self.seq, "stop": self.stop, "segments": [each.as_json() for each in self.segments]}

    @classmethod
    def parse(cls, value: Mapping[str, Any]) -> View:
        """The view that `as_json` told, to go on with.

        Raises:
            ConfigurationError: It is none.
        """
        view = cls()
        try:
            view.seq, view.stop = int(value["seq"]), str(value["stop"])
            view._segments = [Segment(**each) for each in value["segments"]]
        except (KeyError, TypeError, ValueError) as error:
            message = f"invalid timeline view: {type(error).__name__}: {error}"
            hint = "pass the output of `View.as_json()`"
            raise ConfigurationError(message, code="invalid_view", hint=hint) from None
        return view


def _begun(event: Event) -> Segment | None:
    """The segment that an event begins; None where it begins none."""
    if event.type == "call":
        known = {key: getattr(event, key) for key in ("id", "tool", "arguments", "status")}
        return Segment(event.segment, "call", **known)
    if event.type in STRETCHES:
        return Segment(event.segment, event.type, event.text, open=event.type != "user")
    return None


def _gone_on(segment: Segment, event: Event) -> Segment | None:
    """The segment after an event; None where the event can't be one of it."""
    if event.type == "call_updated" and event.id == segment.id:
        said = {key: getattr(event, key) for key in ("tool", "arguments", "status", "outcome", "text")}
        later = segment._replace(**{key: value for key, value in said.items() if value not in ("", None)})
        return later._replace(open=later.status in {"pending", "running"})
    if segment.kind == "call" or not segment.open:
        return None
    return segment._replace(open=False) if event.type == "closed" else None
