"""Where a conversation is written down while it goes on."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from toolcrib.errors import ConfigurationError
from toolcrib.provider.messages import Message, parse_message
from toolcrib.text import compact


class Sink(Protocol):
    """Takes the messages of a conversation, each once.

    It gets them after every round, and when a turn ends, also by an error or because it was cancelled. Whatever it
    gets is whole: each call that is in it has its result, unless the call waits for somebody; then the result comes
    when the conversation goes on.
    """

    async def append(self, messages: Sequence[Message], /) -> None:
        """Write down what is new. What it raises ends the turn, and goes to whoever runs it."""
        ...


class JSONLSink:
    """Writes each message as one line of JSON, as `Message.as_json` tells it. `load_transcript` reads them.

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
    for number, line in enumerate(Path(path).read_text(encoding="utf-8").split("\n"), 1):
        if not line.strip():
            continue
        try:
            messages.append(parse_message(json.loads(line)))
        except (ValueError, ConfigurationError) as error:
            raise ConfigurationError(f"{path}:{number}: {error}", code="invalid_message") from None
    return tuple(messages)


def _line(message: Message) -> str:
    told = message.as_json()
    try:
        return compact(told) + "\n"
    except ValueError:  # half of a character, which only an escape can write
        return json.dumps(told, separators=(",", ":")) + "\n"
