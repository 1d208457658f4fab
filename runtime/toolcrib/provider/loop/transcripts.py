"""Where a conversation is written down while it goes on."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

from toolcrib.core.errors import ConfigurationError, ToolcribError
from toolcrib.core.text import compact, decode_json
from toolcrib.provider.conversations import Conversation
from toolcrib.provider.messages import Message, parse_message


class Sink(Protocol):
    """Takes the messages of a conversation, each once.

    It gets them after every round, and when a turn ends, also by an error or because it was cancelled. Whatever it
    gets is whole: each call that is in it has its result, unless the call waits for somebody; then the result comes
    when the conversation goes on. Of an answer that broke off, because the provider failed or the turn was cancelled,
    it gets the text.

    The messages are what the model reads, with all secrets in arguments and results: without them nobody could go on.
    Whoever may read what is written down may know those; events (`Event`) are told without them.
    """

    async def append(self, messages: Sequence[Message], /) -> None:
        """Write down what is new. It is not cancelled with the turn, which waits for it to end.

        What it raises ends the turn: whoever runs it gets a `SinkFailed`.
        """
        ...


class SinkFailed(ToolcribError):
    """What was said could not be written down. Nothing of it is lost, and the conversation can go on.

    Attributes:
        conversation: As far as it came; `stop` is None where the turn would have gone on.
        unwritten: The messages that the sink was given and has not taken. It is not given them again.
    """

    code = "sink_failed"

    def __init__(
        self, error: BaseException, conversation: Conversation, unwritten: Sequence[Message]
    ) -> None:
        super().__init__(f"the conversation can't be written down: {type(error).__name__}: {error}")
        self.conversation = conversation
        self.unwritten = tuple(unwritten)


async def append_once(sink: Sink, messages: Sequence[Message]) -> None:
    """Give messages to a sink, so that it has them once, also where the caller is cancelled meanwhile.

    Raises:
        Exception: The sink's own.
        asyncio.CancelledError: The sink's own; or the caller's, once the sink has the messages.
    """
    appending = asyncio.ensure_future(sink.append(messages))
    try:
        await asyncio.shield(appending)
    except asyncio.CancelledError:
        if not appending.done():
            await asyncio.wait([appending])
        if not appending.cancelled() and (error := appending.exception()) is not None:
            logging.getLogger("toolcrib").exception("a sink has failed", exc_info=error)
        raise


class JSONLSink:
    """Writes each message as one line of JSON, as `Message.as_json` tells it. `load_transcript` reads them.

    Secrets in arguments and results are written as they are (see `Sink`): keep the file where few can read it.

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
            value: Any = decode_json(line)
            messages.append(parse_message(value))
        except (ValueError, ConfigurationError) as error:
            raise ConfigurationError(f"{path}:{number}: {error}", code="invalid_message") from None
    return tuple(messages)


def _line(message: Message) -> str:
    told = message.as_json()
    try:
        return compact(told) + "\n"
    except ValueError:  # half of a character, which only an escape can write
        return json.dumps(told, separators=(",", ":")) + "\n"
