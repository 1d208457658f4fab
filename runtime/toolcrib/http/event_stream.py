"""Server-sent events (WHATWG HTML, section 9.2), as used by model providers and MCP servers."""

from __future__ import annotations

import codecs
import re
from typing import Final, NamedTuple

LARGEST_EVENT: Final = 8 * 1024 * 1024
"""Maximum number of characters in one event."""

_LINE_END: Final = re.compile(r"\r\n|\n|\r")


class StreamEvent(NamedTuple):
    """One event.

    Attributes:
        type: The event type, `message` by default.
        data: The data lines, joined by newlines.
    """

    type: str
    data: str


class EventStream:
    """Incremental parser of events from chunks of bytes, split at any position.

    Lines end with CR, LF or CRLF; invalid UTF-8 is replaced by U+FFFD. `id` and `retry` are ignored, because
    responses are never resumed.

    Args:
        largest: Maximum number of characters in one event.
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
        """The events that are complete after this chunk.

        Raises:
            ValueError: An event exceeds the limit.
        """
        text = self._decode(chunk)
        if not self._begun and text:
            self._begun = True
            text = text.removeprefix("\ufeff")
        # A CRLF may be split between two chunks; its LF must not end a second, empty line.
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
        # A comment (a line that begins with a colon) has an empty name and is ignored like an unknown field.
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._type = value
        return None

    def _event_ended(self) -> StreamEvent | None:
        # Only a blank line completes an event (section 9.2.6): an event at the end of the stream may be
        # truncated.
        event = StreamEvent(self._type or "message", "\n".join(self._data)) if self._data else None
        self._data.clear()
        self._type, self._size = "", 0
        return event
