"""What a front end sees of a conversation: the segments that the events of its timeline come to."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from toolcrib.core.errors import ConfigurationError
from toolcrib.core.model import JSON
from toolcrib.provider.loop.timeline import STRETCHES, Event


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
                message = f"event {event.seq} (`{event.type}`) can't go to segment {event.segment} here"
                hint = "apply the events of one timeline to a view"
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
            message = f"this is no view of a timeline: {type(error).__name__}: {error}"
            hint = "pass what `View.as_json()` gave"
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
