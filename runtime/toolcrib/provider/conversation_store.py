"""Stored conversations, which another process can continue by their ID.

A store keeps the messages of a conversation and what a front end was shown. `FolderConversations` keeps both in files, which
survive a crash: a line that was not written to its end is ignored.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

from toolcrib.core.errors import ConfigurationError, did_you_mean
from toolcrib.core.model import JSON, Outcome
from toolcrib.core.text import compact, decode_json, escape_terminal
from toolcrib.core.user_folders import why_not_own
from toolcrib.provider.conversations import Conversation, JSONLSink, Sink, load_transcript
from toolcrib.provider.messages import Message, ToolResult

LOST: Final = "toolcrib ended before the call did; it may have had an effect"
"""What is said about a call whose end nobody has recorded."""

_ID = re.compile(r"[0-9A-Za-z_-]{1,100}")


class ConversationFacts(NamedTuple):
    """What a list of conversations shows.

    Attributes:
        id: ID of the conversation.
        title: Beginning of the first message of the user.
        cwd: Working folder; empty if it has none.
        updated: Time of the last change, in seconds since 1970.
    """

    id: str
    title: str = ""
    cwd: str = ""
    updated: float = 0.0


class ConversationStore(Protocol):
    """Keeps conversations.

    A method that does not know the conversation raises ConfigurationError with the code `unknown_conversation`.
    """

    def sink(self, id: str, /) -> Sink:  # noqa: A002 -- the public name of the field
        """The sink for the messages of a conversation."""
        ...

    def describe(self, facts: ConversationFacts, /) -> None:
        """Store what lists show of a conversation; the time of the change is that of the store."""
        ...

    def record(self, id: str, line: Mapping[str, JSON], /) -> None:  # noqa: A002 -- as above
        """Append what a front end was shown, without secrets."""
        ...

    def list(self) -> Sequence[ConversationFacts]:
        """The conversations, the last changed one first."""
        ...

    def load(self, id: str, /) -> Conversation:  # noqa: A002 -- as above
        """The conversation, in which every call has a result, so that it can continue."""
        ...

    def shown(self, id: str, /) -> Sequence[dict[str, Any]]:  # noqa: A002 -- as above
        """What `record` has stored, in order."""
        ...

    def delete(self, id: str, /) -> None:  # noqa: A002 -- as above
        """Forget a conversation."""
        ...


class FolderConversations:
    """Conversations in a folder of the user, one folder each.

    Secrets in messages are stored as by `JSONLSink`: encrypted, or not at all without a key.

    Example:
        ```python
        config = Config(store=FolderConversations("conversations"))
        loop = ProviderMiddleware(open_provider("openai", model="gpt-5-mini"), tools, config=config)
        first = await loop.run("Where is my order ORD-1?")
        again = await loop.resume(first.id)  # also in another process
        second = await loop.run(again.saying("And ORD-2?"))
        ```

    Attributes:
        folder: The folder; the first conversation creates it.
    """

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder).absolute()

    def sink(self, id: str) -> Sink:  # noqa: A002 -- as in the protocol
        """The sink for the messages of a conversation.

        Raises:
            ConfigurationError: The ID cannot be the name of a folder (`invalid_conversation`), or the folder is not the
                user's own (`unsafe_folder`).
        """
        return JSONLSink(self._of(id, create=True) / "messages.jsonl")

    def describe(self, facts: ConversationFacts) -> None:
        """Store what lists show of a conversation."""
        file = self._of(facts.id, create=True) / "facts.json"
        written = file.with_name(f"facts.{os.getpid()}.tmp")
        written.write_text(json.dumps({"title": facts.title, "cwd": facts.cwd}), encoding="utf-8")
        written.replace(file)

    def record(self, id: str, line: Mapping[str, JSON]) -> None:  # noqa: A002 -- as in the protocol
        """Append what a front end was shown."""
        try:
            text = compact(dict(line)).encode()
        except ValueError:  # a lone surrogate has no UTF-8 form and must be escaped
            text = json.dumps(line).encode()
        with (self._of(id, create=True) / "shown.jsonl").open("ab") as file:
            file.write(text + b"\n")

    def list(self) -> Sequence[ConversationFacts]:
        """The conversations, the last changed one first. A folder that is none is left out."""
        if not self.folder.is_dir():
            return ()
        found = [facts for each in self.folder.iterdir() if (facts := _facts_in(each)) is not None]
        return sorted(found, key=lambda facts: facts.updated, reverse=True)

    def load(self, id: str) -> Conversation:  # noqa: A002 -- as in the protocol
        """The conversation. A call without a recorded result gets one with the outcome `unknown_outcome`.

        The records of calls are not stored, so that the limits of a policy start at zero.

        Raises:
            ConfigurationError: The conversation is unknown, or cannot be read or decrypted.
        """
        file = self._known(id) / "messages.jsonl"
        _drop_torn_line(file)
        messages = with_results(load_transcript(file) if file.exists() else ())
        return Conversation(messages=messages, seen=len(messages), id=id)

    def shown(self, id: str) -> Sequence[dict[str, Any]]:  # noqa: A002 -- as in the protocol
        """What `record` has stored, in order."""
        file = self._known(id) / "shown.jsonl"
        _drop_torn_line(file)
        lines = file.read_bytes().split(b"\n") if file.exists() else []
        values = [decode_json(line) for line in lines if line.strip()]
        return [value for value in values if isinstance(value, dict)]

    def _known(self, id_: str) -> Path:
        folder = self._of(id_)
        if not folder.is_dir():
            known = [facts.id for facts in self.list()]
            hint = did_you_mean(id_, known) or f"{len(known)} conversations are stored in {self.folder}"
            raise ConfigurationError(f"unknown conversation `{id_}`", code="unknown_conversation", hint=hint)
        return folder

    def delete(self, id: str) -> None:  # noqa: A002 -- as in the protocol
        """Remove the folder of a conversation.

        Raises:
            ConfigurationError: The store has no conversation with this ID (`unknown_conversation`), or the folder is not the
                user's own (`unsafe_folder`).
            OSError: A file cannot be removed.
        """
        shutil.rmtree(self._known(id))

    def _of(self, id_: str, *, create: bool = False) -> Path:
        if not _ID.fullmatch(id_):
            message = f"`{escape_terminal(id_[:100])}` cannot be the ID of a stored conversation"
            hint = "use letters, digits, `_` and `-`"
            raise ConfigurationError(message, code="unknown_conversation", hint=hint)
        folder = self.folder / id_
        if create and not folder.is_dir():
            # Conversations are private, whatever the umask says.
            os.makedirs(self.folder, mode=0o700, exist_ok=True)
            os.makedirs(folder, mode=0o700, exist_ok=True)
        why = why_not_own(str(self.folder)) or why_not_own(str(folder), links=False)
        if why:
            message = f"cannot keep conversations in {self.folder}: {why}"
            hint = "use a folder that only you can write to"
            raise ConfigurationError(message, code="unsafe_folder", hint=hint)
        return folder


def _facts_in(folder: Path) -> ConversationFacts | None:
    try:
        said = decode_json((folder / "facts.json").read_bytes())
        changed = max(each.stat().st_mtime for each in folder.iterdir())
    except (OSError, ValueError):
        return None
    if not isinstance(said, dict):
        return None
    return ConversationFacts(folder.name, str(said.get("title", "")), str(said.get("cwd", "")), changed)


def _drop_torn_line(file: Path) -> None:
    """Cut off a last line that a crash has left without its end, so that the next one starts a line of its own."""
    try:
        with file.open("r+b") as opened:
            data = opened.read()
            if data and not data.endswith(b"\n"):
                opened.truncate(data.rfind(b"\n") + 1)
    except FileNotFoundError:
        return


def with_results(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The messages, in which each call without a result has one that says that its end is unknown."""
    ended = {part.id for message in messages for part in message.results}
    whole: list[Message] = []
    missing: list[Message] = []
    for message in messages:
        if message.role != "tool":
            whole, missing = [*whole, *missing], []
        whole.append(message)
        missing += [
            Message(
                "tool",
                (ToolResult(call.id, call.name, Outcome.UNKNOWN_OUTCOME, LOST, code="unknown_outcome"),),
            )
            for call in message.calls
            if call.id not in ended
        ]
    return (*whole, *missing)
