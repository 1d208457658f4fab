"""Event streams (WHATWG HTML, section 9.2: server-sent events), as far as answers of models and of servers use them."""

from __future__ import annotations

import codecs
import re
from typing import Final, NamedTuple

LARGEST_EVENT: Final = 8 * 1024 * 1024
"""Characters of one event."""

_LINE_END: Final = re.compile(r"\r\n|\n|\r")


class StreamEvent(NamedTuple):
    """One event.

    Attributes:
        type: `message` unless the stream names another one.
        data: Its lines, with newlines between them.
    """

    type: str
    data: str


class EventStream:
    """Reads events of bytes, wherever these were cut.

    Lines may end with CR, LF or both; what is not UTF-8 is read as U+FFFD. An event that no blank line ends is none:
    its end may be missing. `id` and `retry` are for those who connect again, which nobody does within an answer.

    Args:
        largest: How many characters one event may have.
    """

    def __init__(self, largest: int = LARGEST_EVENT) -> None:
        self._decode = codecs.getincrementaldecoder("utf-8")(errors="replace").decode
        self._largest = largest
        self._begun = False
        self._after_return = False
        self._line: list[str] = []
        self._data: list[str] = []
        self._type = ""
        self._size = 0

    def add(self, chunk: bytes) -> list[StreamEvent]:
        """The events that end in this piece.

        Raises:
            ValueError: An event is larger than the bound.
        """
        text = self._decode(chunk)
        if not self._begun and text:
            self._begun = True
            text = text.removeprefix("\ufeff")
        if self._after_return and text:
            text = text.removeprefix("\n")
            self._after_return = False
        self._after_return = self._after_return or text.endswith("\r")
        *ended, rest = _LINE_END.split(text)
        events = []
        for line in ended:
            event = self._line_ended(line)
            if event is not None:
                events.append(event)
        self._keep(rest)
        return events

    def _keep(self, text: str) -> None:
        """Keep the beginning of a line."""
        if text:
            self._line.append(text)
            self._grow(text)

    def _grow(self, text: str) -> None:
        self._size += len(text)
        if self._size > self._largest:
            raise ValueError(f"an event exceeds {self._largest:,} characters")

    def _line_ended(self, end: str) -> StreamEvent | None:
        self._keep(end)
        line = "".join(self._line)
        self._line.clear()
        if not line:
            return self._event_ended()
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._type = value
        return None

    def _event_ended(self) -> StreamEvent | None:
        event = StreamEvent(self._type or "message", "\n".join(self._data)) if self._data else None
        self._data.clear()
        self._type, self._size = "", 0
        return event
