"""What a model sees of a conversation: all that a scripted one decides by."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeAlias

from toolcrib.core.model import JSON, Outcome
from toolcrib.core.text import JSON_DECODER, compact
from toolcrib.provider.messages import Message, ToolResult

Named: TypeAlias = Callable[[str], str]


def as_it_is(tool: str) -> str:
    """A tool by its name."""
    return tool


class Sight(NamedTuple):
    """A conversation, as a script reads it.

    Attributes:
        user: The last text of the user.
        turn: How often the user has spoken.
        reply: The number of the next reply among those since then, from 1.
        replies: How often the model has replied.
        results: Tool -> the last value that it answered.
        last: What was told last of a call: `{tool, outcome, code, value, text}`; None before the first.
    """

    user: str = ""
    turn: int = 0
    reply: int = 1
    replies: int = 0
    results: dict[str, JSON] = {}  # noqa: RUF012 -- never changed
    last: dict[str, JSON] | None = None

    @classmethod
    def of(cls, messages: Sequence[Message], named: Named = as_it_is) -> Sight:
        """What there is to see in some messages; `named` says what the script calls a tool."""
        user, turn, reply, replies = "", 0, 1, 0
        results: dict[str, JSON] = {}
        last: dict[str, JSON] | None = None
        for message in messages:
            if message.role == "user":
                user, turn, reply = message.text, turn + 1, 1
            elif message.role == "assistant":
                reply, replies = reply + 1, replies + 1
            for result in results_in(message):
                last = told_of(result, named)
                if result.outcome is Outcome.OK:
                    results[named(result.name)] = last["value"]
        return cls(user, turn, reply, replies, results, last)

    def put_into(self, names: dict[str, JSON]) -> dict[str, JSON]:
        """Names that expressions read, with what scripts see among them."""
        names.update(user=self.user, results=self.results, turn=self.turn)
        return names


def results_in(message: Message) -> list[ToolResult]:
    """What a message tells of calls."""
    return [part for part in message.parts if isinstance(part, ToolResult)]


def told_of(result: ToolResult, named: Named = as_it_is) -> dict[str, JSON]:
    """What a model is told of a call: `{tool, outcome, code, value, text}`."""
    return {
        "tool": named(result.name),
        "outcome": result.outcome.value,
        "code": result.code,
        "value": value_of(result.text),
        "text": result.text,
    }


def as_decided(arguments: JSON) -> str:
    """The line that tells a model with which arguments a call was made, where they are not its own."""
    return f"{_CALLED_WITH}{compact(arguments)}{_AS_DECIDED}\n"


_CALLED_WITH, _AS_DECIDED = "[called with ", ", as was decided]"


def value_of(text: str) -> JSON:
    """The value that a text is JSON of, or begins with; the text itself where it is none.

    What is told beside an object or a list, on lines of its own, is left out.
    """
    first, line, rest = text.partition("\n")
    if line and first.startswith(_CALLED_WITH) and first.endswith(_AS_DECIDED):
        text = rest
    try:
        value, end = JSON_DECODER.raw_decode(text)
    except (ValueError, RecursionError):
        return text
    whole = end == len(text) or (isinstance(value, dict | list) and text[end] == "\n")
    return value if whole else text
