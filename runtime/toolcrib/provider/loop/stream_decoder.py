"""An answer as it comes: its pieces as events, in the order in which its parts began."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator
from typing import TypeAlias

from toolcrib.provider.loop.timeline import Event, Timeline
from toolcrib.provider.messages import Text, ToolCall
from toolcrib.provider.models.assembler import AnswerPart, Assembler
from toolcrib.provider.models.protocol import CallDelta, Delta, Finish, ReasoningDelta, TextDelta

_Held: TypeAlias = "int | TextDelta | ReasoningDelta"
"""What can't be told yet: the number of a call, or what was said behind it."""


class Ids:
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


class Hearing:
    """Hears one answer.

    A call is told once its id is known; what is said behind it waits until then, so that the order is true.
    """

    def __init__(self, timeline: Timeline, ids: Ids, tool_of: Callable[[str], str]) -> None:
        self._timeline = timeline
        self._settle = ids.settle
        self._tool_of = tool_of
        self._answer = Assembler()
        self._ids: dict[int, str] = {}
        self._tools: dict[int, str] = {}
        self._held: deque[_Held] = deque()

    def hear(self, delta: Delta) -> Iterator[Event]:
        """Take a piece, and tell what is new."""
        for piece in self._answer.add(delta):
            if isinstance(piece, CallDelta):
                yield from self._call(piece)
            elif isinstance(piece, TextDelta | ReasoningDelta):
                self._held.append(piece)
                yield from self._let_go()

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
        return parts, self._answer.finish or unsaid, list(self._let_go())

    def cut(self) -> tuple[tuple[Text, ...], dict[str, str], list[Event]]:
        """The texts of an answer that breaks off, the calls that were told (id -> tool), and what was not told yet.

        What the model thought is nothing to go on with when it is cut off, and neither are its calls.
        """
        self._held = deque(held for held in self._held if not isinstance(held, int) or held in self._ids)
        events = [*self.hear(Finish()), *self._let_go()]
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
            yield from self._let_go()

    def _let_go(self) -> Iterator[Event]:
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
