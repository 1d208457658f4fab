"""The timeline of one session of an agent, built from the messages of the protocol.

Nothing here needs the SDK, and nothing waits: updates go in, events come out. What an agent does against the protocol becomes
an event of the type `violation`, and its update is used as far as it can be; what cannot be used is in the event.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from toolcrib.core.model import JSON, Outcome
from toolcrib.provider import Event, Timeline
from toolcrib.schema.validation.violations import shorten

STATUSES: Final[Mapping[str, tuple[int, str]]] = {
    "pending": (0, "pending"),
    "in_progress": (1, "running"),
    "completed": (2, "completed"),
    "failed": (2, "failed"),
}
"""Status of a call in the protocol -> its rank, which never decreases, and the status in the timeline."""

ENDED: Final = 2
"""Rank of a call that has ended."""

KINDS: Final = frozenset(
    ("read", "edit", "delete", "move", "search", "execute", "think", "fetch", "switch_mode", "other")
)
"""The kinds of calls in the protocol."""

STOP_REASONS: Final = frozenset(("end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"))
"""The reasons for the end of a turn in the protocol."""

LOST: Final = "lost"
"""Reason for the end of a turn whose agent has died."""

DETAILS: Final = ("title", "kind", "content", "locations", "rawInput", "rawOutput")
"""The members of an update of a call that become details of its events."""

_FORMS: Final[Mapping[str, tuple[type, str]]] = {
    "title": (str, "a string"),
    "kind": (str, "a string"),
    "status": (str, "a string"),
    "content": (list, "an array"),
    "locations": (list, "an array"),
}

_FACTS: Final[Mapping[str, tuple[str, str, type]]] = {
    "current_mode_update": ("mode", "currentModeId", str),
    "available_commands_update": ("commands", "availableCommands", list),
    "config_option_update": ("options", "configOptions", list),
}
"""Updates of the session: kind -> name of the fact, the member with its value, and the form of that."""

_CHUNKS: Final[Mapping[str, str]] = {
    "user_message_chunk": "user",
    "agent_message_chunk": "text",
    "agent_thought_chunk": "reasoning",
}


class _Call:
    """What is known of a call.

    Attributes:
        id: Its ID in the timeline, which differs from that in the protocol if the agent has used that before.
        status: Its status in the protocol.
        rich: Whether its details have content.
    """

    __slots__ = ("id", "rich", "status")

    def __init__(self, id_: str) -> None:
        self.id = id_
        self.status = "pending"
        self.rich = False

    @property
    def rank(self) -> int:
        """The rank of its status."""
        return STATUSES[self.status][0]


class SessionTimeline:
    """Creates the events of one session of an agent. Each method returns its new events, possibly none.

    The agent may be a foreign one: whatever it sends, the order is kept, and nothing is lost or doubled.

    Args:
        id: ID of the session in its events.

    Attributes:
        id: ID of the session in its events.
        turn: Number of turns so far.
        running: Whether a turn is running.
        cancelled: Whether the client has cancelled the running turn.
        loading: Whether the agent sends the history of the session, which belongs to no turn.
        open_calls: IDs of the calls that have not ended, as in the protocol.
    """

    def __init__(self, id: str = "") -> None:  # noqa: A002 -- the name in the protocol
        self.id = id
        self._timeline = Timeline()
        self._calls: dict[str, _Call] = {}
        self._said: list[str] = []
        self._speaker: tuple[str, str | None] = ("", None)
        self.turn = 0
        self.running = self.cancelled = self.loading = False

    @property
    def open_calls(self) -> tuple[str, ...]:
        """IDs of the calls that have not ended."""
        return tuple(id_ for id_, call in self._calls.items() if call.rank != ENDED)

    def prompt(self, blocks: Sequence[Any]) -> list[Event]:
        """Begin a turn with a message of the user.

        Args:
            blocks: Its content blocks.
        """
        told = self._flushed()
        if self.running:
            told += self.violation("prompt_overlap", "a prompt was sent before the last one was answered")
        self.turn += 1
        self.running, self.cancelled = True, False
        text = [str(block["text"]) for block in blocks if _is_text(block)]
        if text or not blocks:
            told += self._timeline.user("\n".join(text))
        for block in blocks:
            if isinstance(block, dict) and not _is_text(block):
                told += self._timeline.content("user", block, content_text(block))
        self._speaker = ("", None)
        return told

    def stopped(self, reason: object) -> list[Event]:
        """End the turn, because its prompt was answered.

        Args:
            reason: The stop reason of the answer.
        """
        told = self._flushed()
        if reason not in STOP_REASONS:
            text = f"the prompt was answered with the unknown stop reason `{shorten(str(reason))}`"
            told += self.violation("unknown_stop", text)
        elif self.cancelled and reason != "cancelled":
            text = f"the turn was cancelled, and its prompt was answered `{reason}` instead of `cancelled`"
            told += self.violation("not_cancelled", text)
        return [*told, *self._end(str(reason), complain=not self.cancelled)]

    def failed(self, message: str) -> list[Event]:
        """End the turn, because its prompt was answered with an error.

        Args:
            message: The message of the error.
        """
        told = self._flushed()
        if self.cancelled:
            text = "the turn was cancelled, and its prompt was answered with an error instead of `cancelled`"
            told += self.violation("not_cancelled", f"{text}: {shorten(message)}")
        return [*told, *self._end("failed", complain=True)]

    def lost(self) -> list[Event]:
        """End the turn, because the agent has died or the connection has ended."""
        told = self._flushed()
        if self.running or self.open_calls:
            told += self._end(LOST, complain=False)
        return told

    def cancel(self) -> list[Event]:
        """Note that the client cancels the turn."""
        self.cancelled = self.running
        return []

    def load(self) -> list[Event]:
        """Begin the history of the session, which the agent sends."""
        self.loading = True
        return []

    def loaded(self) -> list[Event]:
        """End the history. A call of it that has not ended never will."""
        told = [*self._flushed(), *self._timeline.message_ended()]
        for call in self._calls.values():
            if call.rank != ENDED:
                call.status = "failed"
                told += self._timeline.call_updated(call.id, "failed", outcome=Outcome.UNKNOWN_OUTCOME)
        self.loading, self._speaker = False, ("", None)
        return told

    def asked(self, call: object) -> list[Event]:
        """Note that the agent asks for the permission of a call.

        Args:
            call: The call, as an update.
        """
        id_ = call.get("toolCallId") if isinstance(call, dict) else None
        if not isinstance(call, dict) or not isinstance(id_, str):
            return self.violation("invalid_update", "a permission was requested without a call", update=call)
        told = self._flushed()
        if id_ not in self._calls:
            text = f"the permission of the call `{shorten(id_)}` was requested before the call was reported"
            told += self.violation("permission_without_call", text, call=id_)
            told += self._begin(id_, call)
        else:
            told += self._changed(id_, {**call, "status": None})
        known = self._calls[id_]
        return [*told, *self._timeline.call_updated(known.id, "waiting")]

    def answered(self, id_: object, *, allowed: bool) -> list[Event]:
        """Note the answer to a request for permission.

        Args:
            id_: ID of the call.
            allowed: Whether the call may run.
        """
        known = self._calls.get(id_) if isinstance(id_, str) else None
        if known is None or not allowed:
            return []  # the agent reports that the call has failed
        return self._timeline.call_updated(known.id, "running")

    def update(self, update: object) -> list[Event]:
        """Add an update of the agent.

        Args:
            update: The member `update` of the parameters of `session/update`.
        """
        kind = update.get("sessionUpdate") if isinstance(update, dict) else None
        if not isinstance(update, dict) or not isinstance(kind, str):
            return self.violation("invalid_update", "an update has no `sessionUpdate`", update=update)
        role = _CHUNKS.get(kind)
        if role is not None:
            return self._chunk(role, update)
        if kind == "tool_call":
            return [*self._flushed(), *self._tool_call(update)]
        if kind == "tool_call_update":
            return [*self._flushed(), *self._tool_call_update(update)]
        if kind == "plan":
            entries = update.get("entries")
            if not isinstance(entries, list):
                return self.violation("invalid_update", "a plan has no `entries`", update=update)
            return [*self._flushed(), *self._outside("a plan"), *self._timeline.plan(entries)]
        return self._session_facts(kind, update)

    def violation(self, code: str, text: str, *, call: str = "", update: object = None) -> list[Event]:
        """Report what the agent did against the protocol.

        Args:
            code: Its code.
            text: A sentence.
            call: ID of the call.
            update: What could not be used.
        """
        details: dict[str, JSON] = {"code": code}
        if update is not None:
            details["update"] = update  # type: ignore[assignment] # JSON from the wire
        return self._timeline.violation(text, details, call)

    # Text.

    def _chunk(self, role: str, update: Mapping[str, Any]) -> list[Event]:
        block, message = update.get("content"), update.get("messageId")
        if not isinstance(block, dict) or not isinstance(block.get("type"), str):
            text = f"`{update['sessionUpdate']}` has no content"
            return self.violation("invalid_update", text, update=update)
        told = self._outside("a message") if role != "user" else []
        speaker = (role, message if isinstance(message, str) else None)
        if speaker != self._speaker:
            # The same kind of text in another message is another segment.
            told += self._flushed()
            if speaker[0] == self._speaker[0]:
                told += self._timeline.message_ended()
            self._speaker = speaker
        if not _is_text(block):
            told += self._flushed()
            return [*told, *self._timeline.content(role, block, content_text(block))]
        if role == "user":
            # A segment of the user is complete at once, and the end of this one is not known yet.
            self._said.append(block["text"])
            return told
        piece = self._timeline.text if role == "text" else self._timeline.reasoning
        return [*told, *piece(block["text"])]

    def _flushed(self) -> list[Event]:
        """End the message of the user, if there is one."""
        if not self._said:
            return []
        said, self._said = "".join(self._said), []
        return self._timeline.user(said)

    def _outside(self, what: str, call: str = "") -> list[Event]:
        if self.running or self.loading:
            return []
        return self.violation("outside_turn", f"{what} was sent while no prompt was running", call=call)

    # Calls.

    def _tool_call(self, update: Mapping[str, Any]) -> list[Event]:
        id_ = update.get("toolCallId")
        if not isinstance(id_, str) or not id_:
            return self.violation("invalid_update", "`tool_call` has no `toolCallId`", update=update)
        told = self._outside("a call", id_)
        known = self._calls.get(id_)
        if known is None:
            return [*told, *self._begin(id_, update)]
        if known.rank == ENDED:
            text = f"the ID `{shorten(id_)}` of a call that has ended was used for another call"
            return [*told, *self.violation("call_reused", text, call=id_), *self._begin(id_, update)]
        text = f"the call `{shorten(id_)}` was reported twice as a new one"
        return [*told, *self.violation("call_repeated", text, call=id_), *self._changed(id_, update)]

    def _tool_call_update(self, update: Mapping[str, Any]) -> list[Event]:
        id_ = update.get("toolCallId")
        if not isinstance(id_, str) or not id_:
            return self.violation("invalid_update", "`tool_call_update` has no `toolCallId`", update=update)
        if id_ in self._calls:
            return self._changed(id_, update)
        told = self._outside("a call", id_)
        text = f"the call `{shorten(id_)}` was updated before it was reported"
        return [*told, *self.violation("unknown_call", text, call=id_), *self._begin(id_, update)]

    def _begin(self, id_: str, update: Mapping[str, Any]) -> list[Event]:
        before = self._calls.get(id_)
        known = _Call(id_)
        if before is not None:
            _name, _mark, number = before.id.removeprefix(id_).rpartition("#")
            known.id = f"{id_}#{int(number or 1) + 1}"
        self._calls[id_] = known
        said, violations = self._said_of(id_, update)
        begun = self._timeline.call(known.id, said.tool, said.arguments, _without_content(said.details))
        said.details = {name: value for name, value in said.details.items() if name == "content"}
        return [*violations, *begun, *self._status(id_, known, said)]

    def _changed(self, id_: str, update: Mapping[str, Any]) -> list[Event]:
        known = self._calls[id_]
        said, violations = self._said_of(id_, update)
        if known.rank == ENDED:
            if said.status in {"", known.status} and not (said.text or said.arguments or said.details):
                return violations  # it says nothing new; agents send `_meta` after the end
            text = f"the call `{shorten(id_)}` was updated after it had ended"
            return [*violations, *self.violation("update_after_end", text, call=id_, update=dict(update))]
        return [*violations, *self._status(id_, known, said)]

    def _status(self, id_: str, known: _Call, said: _Said) -> list[Event]:
        told, status = [], ""
        if said.status and STATUSES[said.status][0] < known.rank:
            text = (
                f"the status of the call `{shorten(id_)}` went back from `{known.status}` to `{said.status}`"
            )
            told = self.violation("status_went_back", text, call=id_)
        elif said.status != known.status and said.status:
            known.status = said.status
            status = STATUSES[said.status][1]
        outcome = said.outcome if known.rank == ENDED else None
        content = said.details.get("content")
        if content and said.is_plain:
            # All of it is in the text, unless it replaces other content.
            said.details = {**said.details, "content": []} if known.rich else _without_content(said.details)
        elif content is not None:
            known.rich = True
        return [
            *told,
            *self._timeline.call_updated(
                known.id,
                status,
                outcome=outcome,
                text=said.text,
                tool=said.tool,
                arguments=said.arguments,
                details=said.details,
            ),
        ]

    def _said_of(self, id_: str, update: Mapping[str, Any]) -> tuple[_Said, list[Event]]:
        """What an update says about a call, and what is wrong with it."""
        told: list[Event] = []
        sound: dict[str, Any] = dict(update)
        for name, (form, wanted) in _FORMS.items():
            value = sound.get(name)
            if value is not None and not isinstance(value, form):
                text = f"`{name}` of the call `{shorten(id_)}`: expected {wanted}"
                told += self.violation("invalid_update", text, call=id_, update={name: value})
                del sound[name]
        for name, known in (("status", STATUSES), ("kind", KINDS)):
            value = sound.get(name)
            if value is not None and value not in known:
                text = f"the call `{shorten(id_)}` has the unknown {name} `{shorten(value)}`"
                told += self.violation(f"unknown_{name}", text, call=id_)
                del sound[name]
        return _Said(sound), told

    # Facts of the session.

    def _session_facts(self, kind: str, update: Mapping[str, Any]) -> list[Event]:
        rest = {key: value for key, value in update.items() if key not in {"sessionUpdate", "_meta"}}
        if kind == "usage_update":
            return self._timeline.session({"usage": rest})
        if kind == "session_info_update":
            return self._timeline.session({"info": rest})
        if kind not in _FACTS:
            text = f"the update `{shorten(kind)}` is unknown"
            return self.violation("unknown_update", text, update=dict(update))
        name, member, form = _FACTS[kind]
        if not isinstance(update.get(member), form):
            text = f"`{kind}` has no `{member}`"
            return self.violation("invalid_update", text, update=dict(update))
        return self._timeline.session({name: update[member]})

    # The end of a turn.

    def _end(self, reason: str, *, complain: bool) -> list[Event]:
        open_calls = [(id_, call) for id_, call in self._calls.items() if call.rank != ENDED]
        told = []
        for id_, call in open_calls:
            if complain:
                text = f"the turn ended, and the call `{shorten(id_)}` is neither `completed` nor `failed`"
                told += self.violation("call_left_open", text, call=id_)
            call.status = "failed"
        outcome = Outcome.CANCELLED if self.cancelled and reason != LOST else Outcome.UNKNOWN_OUTCOME
        self.running = self.cancelled = False
        self._speaker = ("", None)
        return [*told, *self._timeline.turn_ended(reason, outcome)]


class _Said:
    """What an update says about a call.

    Attributes:
        status: Status in the protocol; empty if unchanged.
        tool: Name of the tool; empty if unknown.
        arguments: Arguments; None if unknown.
        text: The text of its content.
        outcome: The outcome, if the update ends the call.
        details: The other members.
        is_plain: Whether the text is all of its content.
    """

    __slots__ = ("arguments", "details", "is_plain", "outcome", "status", "text", "tool")

    def __init__(self, update: Mapping[str, Any]) -> None:
        self.status: str = update.get("status") or ""
        self.tool = _tool_name(update)
        arguments = update.get("rawInput")
        self.arguments: dict[str, JSON] | None = arguments if isinstance(arguments, dict) else None
        content: list[Any] = update.get("content") or []
        self.text = "".join(_texts(content))
        self.outcome = _outcome(self.status, update.get("rawOutput"))
        self.details: dict[str, JSON] = {
            name: update[name] for name in DETAILS if update.get(name) is not None
        }
        if self.arguments is not None:
            del self.details["rawInput"]
        self.is_plain = all(_is_plain(each) for each in content)


def _without_content(details: Mapping[str, JSON]) -> dict[str, JSON]:
    return {name: value for name, value in details.items() if name != "content"}


def _tool_name(update: Mapping[str, Any]) -> str:
    """The name of the tool: the draft of the next protocol has it, and agents tell it in `_meta`."""
    meta = update.get("_meta")
    told = [update.get("name")]
    if isinstance(meta, dict):
        for said in meta.values():
            if isinstance(said, dict):
                told += [said.get("tool"), said.get("toolName")]
    return next((name for name in told if isinstance(name, str) and name), "")


def _outcome(status: str, output: object) -> str | None:
    if status == "completed":
        return Outcome.OK
    if status != "failed":
        return None
    # toolcrib's own agents tell it.
    told = output.get("outcome") if isinstance(output, dict) else None
    return told if isinstance(told, str) and told in Outcome.__members__.values() else Outcome.TOOL_ERROR


def _is_text(block: object) -> bool:
    return isinstance(block, dict) and block.get("type") == "text" and isinstance(block.get("text"), str)


def _is_plain(item: object) -> bool:
    return isinstance(item, dict) and item.get("type") == "content" and _is_text(item.get("content"))


def _texts(content: Sequence[Any]) -> Iterator[str]:
    for item in content:
        if _is_plain(item):
            yield item["content"]["text"]


def content_text(block: Mapping[str, Any]) -> str:
    """A line that describes a content block."""
    kind = block.get("type")
    if _is_text(block):
        return str(block["text"])
    if kind == "resource_link":
        return f"[{block.get('title') or block.get('name') or 'link'}]({block.get('uri')})"
    if kind == "resource":
        resource = block.get("resource")
        return f"[resource]({resource.get('uri')})" if isinstance(resource, dict) else "[resource]"
    data = block.get("data")
    size = f", {len(data) * 3 // 4 - data[-2:].count('='):,} bytes" if isinstance(data, str) else ""
    return f"[{kind}: {block.get('mimeType') or 'unknown type'}{size}]"
