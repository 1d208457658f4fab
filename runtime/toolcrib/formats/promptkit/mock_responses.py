"""Convert mock responses to the script of a model.

PromptKit numbers the requests to the model: entry k is the reply to the request after k - 1 replies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from toolcrib.core.errors import Problem
from toolcrib.core.pointers import keys_of
from toolcrib.expressions import escape_expressions
from toolcrib.formats.promptkit.source_nodes import (
    PlacedValue,
    SourceNode,
    place_list,
    place_object,
    place_value,
)


class ResponseSection:
    """The part of a file of mock responses for one scenario or persona.

    Attributes:
        entries: Number of the request -> its reply.
    """

    def __init__(self, whole: SourceNode, section: SourceNode) -> None:
        self._whole = whole
        self._section = section
        self.entries = {int(key): entry for key, entry in section.part("turns").entries()}

    @property
    def is_whole(self) -> bool:
        """Whether all its entries could be read."""
        return bool(self._section.value == self._section.as_written.value)

    @property
    def default(self) -> SourceNode | None:
        """The reply to a request without an entry; None if there is no default."""
        return next(
            (node for holder in (self._section, self._whole) for node in _defaults(holder) if node.text), None
        )

    def text(self, number: int) -> SourceNode | None:
        """The text of an entry, or the default."""
        entry = self.entries.get(number)
        said = _said(entry) if entry is not None else None
        return said if said is not None else self.default


def responses_for_scenario(whole: SourceNode, scenario: str) -> ResponseSection:
    """The responses for a scenario."""
    return ResponseSection(whole, whole.part("scenarios", scenario))


def responses_for_persona(whole: SourceNode, persona: str, scenario: str) -> ResponseSection:
    """The responses for a persona in a scenario: those under its own name, else those of the scenario."""
    own = whole.part("selfplay", persona)
    return ResponseSection(whole, own) if own else responses_for_scenario(whole, scenario)


def without_invalid_entries(whole: SourceNode, faults: Sequence[Problem]) -> SourceNode | None:
    """A file without its invalid entries; None if it is invalid elsewhere."""
    for fault in faults:
        if fault.severity != "error":
            continue
        steps = keys_of(fault.pointer)[:_STEPS_TO_ENTRY]
        if len(steps) < _STEPS_TO_ENTRY or steps[2] != "turns":
            return None
        whole = whole.without(*steps)
    return whole


_STEPS_TO_ENTRY = 4
"""Depth of an entry: `scenarios` or `selfplay`, a name, `turns`, a number."""


def check_default_keys(whole: SourceNode) -> Iterator[Problem]:
    """A warning for each default that PromptKit ignores because of the spelling of its key."""
    holders = [whole, *(entry for key in ("scenarios", "selfplay") for _, entry in whole.part(key).entries())]
    for holder in holders:
        misspelt = holder.part("default_response")
        if misspelt:
            message = "PromptKit ignores `default_response`; toolcrib reads it"
            yield misspelt.problem("unknown_key", message, "use `defaultResponse`", "warning")


def _defaults(holder: SourceNode) -> tuple[SourceNode, ...]:
    return holder.part("defaultResponse"), holder.part("default_response")


def _said(entry: SourceNode) -> SourceNode | None:
    if not isinstance(entry.value, dict):
        return entry
    for key in ("content", "text", "response"):
        if entry.part(key).text:
            return entry.part(key)
    return None


def calls_of(entry: SourceNode) -> list[SourceNode]:
    """The calls of an entry."""
    return list(entry.part("tool_calls").each())


def reply_script(mocks: ResponseSection, fallback: PlacedValue) -> PlacedValue:
    """The script: one reply per entry, and the default for any other request."""
    numbered = sorted(mocks.entries.items())
    replies = [
        _reply(entry, {"when": place_value({"replies": number - 1}, entry)})
        for number, entry in numbered
        # Entry 0 answers no request.
        if number
    ]
    default = mocks.default
    node = default if default is not None else fallback.places[""]
    said = place_value(escape_expressions(default.text), default) if default is not None else fallback
    # `times: 0` is any number of times; optional, because every request may have an entry.
    last = {"say": said, "times": place_value(0, node), "optional": place_value(True, node)}
    return place_list(node, [*replies, place_object(node, last)])


def _reply(entry: SourceNode, parts: dict[str, PlacedValue | None]) -> PlacedValue:
    calls = calls_of(entry)
    said = _said(entry)
    texts = [part.part("text") for part in entry.part("parts").each() if part.part("text").text]
    if said is not None:
        parts["say"] = place_value(escape_expressions(said.text), said)
    elif texts:
        parts["say"] = place_value(escape_expressions("".join(text.text for text in texts)), texts[0])
    # A reply needs a text or a call.
    elif not calls:
        parts["say"] = place_value("", entry)
    if len(calls) == 1:
        parts |= _call(calls[0])
    elif calls:
        parts["calls"] = place_list(
            entry.part("tool_calls"), [place_object(call, _call(call)) for call in calls]
        )
    return place_object(entry, parts)


def _call(call: SourceNode) -> dict[str, PlacedValue | None]:
    arguments = call.part("arguments")
    given = place_value(escape_expressions(arguments.value), arguments) if arguments.value else None
    return {"call": place_value(call.part("name").text, call.part("name")), "args": given}


class ConversationCourse:
    """The course of a conversation according to its mocks: the requests and the called tools of each turn."""

    def __init__(self, mocks: ResponseSection, turns: int) -> None:
        self._mocks = mocks
        self.calls: list[list[str]] = []
        number = 0
        for _ in range(turns):
            called: list[str] = []
            number += 1
            # A reply with calls is followed by another request within the turn.
            while tools := self._tools(number):
                called += tools
                number += 1
            self.calls.append(called)
        self.requests = number

    def _tools(self, number: int) -> Sequence[str]:
        entry = self._mocks.entries.get(number)
        return [call.part("name").text for call in calls_of(entry)] if entry is not None else ()

    @property
    def unanswered(self) -> list[int]:
        """The requests without an entry and without a default."""
        if self._mocks.default is not None:
            return []
        return [number for number in range(1, self.requests + 1) if number not in self._mocks.entries]

    def span(self, turn: int, tool: str) -> tuple[int, int]:
        """The numbers of the first and the last call of a tool in a turn, from 1; last < first if there is none."""
        before = sum(called.count(tool) for called in self.calls[:turn])
        return before + 1, before + self.calls[turn].count(tool)
