"""What happens on a connection between a client and an agent, from the messages of both.

The same messages make the same events, so a recording is replayed by passing its messages once more. Nothing here needs the
SDK, and nothing waits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from toolcrib.core.model import JSON
from toolcrib.provider import Event
from toolcrib.schema.validation.violations import shorten
from toolcrib.security.redaction import HIDDEN, redact
from toolcrib.serve.acp.session_timeline import SessionTimeline

Side: TypeAlias = Literal["client", "agent"]
"""The sender of a message."""

METHOD_NOT_FOUND: Final = -32601

_OPENING: Final = frozenset(("session/new", "session/load", "session/resume"))
_CLOSING: Final = frozenset(("session/close", "session/delete"))

CAPABILITIES: Final[Mapping[str, str]] = {
    "fs/read_text_file": "client.fs.read_text_file",
    "fs/write_text_file": "client.fs.write_text_file",
    "terminal/create": "client.terminal",
    "terminal/output": "client.terminal",
    "terminal/wait_for_exit": "client.terminal",
    "terminal/kill": "client.terminal",
    "terminal/release": "client.terminal",
}
"""Methods of the client -> the capability that it announces with them, as `requires` of tools names it."""


class SessionEvent(NamedTuple):
    """An event of a session.

    Attributes:
        session: ID of the session; empty for what concerns the whole connection. A session that is loaded when it was used
            before on this connection begins anew, as `ID#2`.
        event: The event.
    """

    session: str
    event: Event

    def as_json(self) -> dict[str, JSON]:
        """Return the event as a JSON object with its `session`."""
        return {"session": self.session, **self.event.as_json()}


class UnansweredRequest(NamedTuple):
    """A request that has no answer yet.

    Attributes:
        sender: Who has sent it.
        id: Its ID.
        method: Its method.
        params: Its parameters.
        at: When it was sent, in seconds since the start of the connection.
        line: Number of its line among those of its sender; 0 if unknown.
    """

    sender: Side
    id: str | int | None
    method: str
    params: Mapping[str, Any]
    at: float = 0.0
    line: int = 0

    @property
    def session(self) -> str:
        """ID of its session; empty if it has none."""
        return _text_of(self.params, "sessionId")

    @property
    def call(self) -> str:
        """ID of the call that it is about; empty if it is about none."""
        call = self.params.get("toolCall")
        return _text_of(call, "toolCallId") if isinstance(call, dict) else ""


class ConnectionTimeline:
    """Creates the events of all sessions of a connection, from the messages of both sides in the order of the wire.

    Attributes:
        capabilities: What the client has announced, as `requires` of tools names it; None before `initialize`.
        sessions: The sessions by ID; that with the empty ID is the connection itself.
        requests: The requests without an answer, by sender and ID.
    """

    def __init__(self) -> None:
        self.capabilities: frozenset[str] | None = None
        self.sessions: dict[str, SessionTimeline] = {"": SessionTimeline()}
        self.requests: dict[tuple[Side, Any], UnansweredRequest] = {}
        self._active: dict[str, float] = {}
        self._times: Counter[str] = Counter()
        self._on_request: dict[str, Callable[[SessionTimeline, UnansweredRequest], list[Event]]] = {
            "session/load": lambda session, _request: session.load(),
            "session/prompt": _prompted,
            "session/request_permission": lambda session, request: session.asked(
                request.params.get("toolCall")
            ),
        }
        self._on_answer: dict[
            str, Callable[[SessionTimeline, UnansweredRequest, Mapping[str, Any]], list[Event]]
        ] = {
            "session/load": lambda session, _request, _message: session.loaded(),
            "session/prompt": self._stopped,
            "session/request_permission": _answered,
        }

    def request_of(self, sender: Side, id_: object) -> UnansweredRequest | None:
        """The request without an answer that has an ID; None if there is none."""
        return self.requests.get((sender, _key(id_)))

    def has_announced(self, method: str) -> bool:
        """Whether the client has announced the capability of one of its methods."""
        return CAPABILITIES.get(method) in (self.capabilities or ())

    def active_since(self, request: UnansweredRequest) -> float:
        """When a request was sent; of a prompt, when its session had the last message."""
        if request.method != "session/prompt":
            return request.at
        return max(request.at, self._active.get(request.session, 0.0))

    def message(self, sender: Side, message: object, *, at: float = 0.0, line: int = 0) -> list[SessionEvent]:
        """Add a message.

        Args:
            sender: Who has sent it.
            message: The message.
            at: When, in seconds since the start of the connection.
            line: Number of its line among those of its sender.
        """
        if not isinstance(message, dict):
            return self._violation("invalid_message", f"the {sender} sent no message of JSON-RPC")
        method, params = message.get("method"), message.get("params")
        if isinstance(method, str):
            request = UnansweredRequest(
                sender, message.get("id"), method, params if isinstance(params, dict) else {}, at, line
            )
            return self._request(request) if "id" in message else self._notification(request)
        if "id" in message and ("result" in message or "error" in message):
            return self._answer(sender, message, at)
        return self._violation("invalid_message", f"the {sender} sent no message of JSON-RPC")

    def invalid_line(self, sender: Side, line: int, why: str) -> list[SessionEvent]:
        """Add a line that is not a message.

        Args:
            sender: Who has sent it.
            line: Its number among the lines of its sender.
            why: What is wrong with it.
        """
        return self._violation("invalid_line", f"line {line} of the {sender} is no message: {why}")

    def ended(self) -> list[SessionEvent]:
        """End the connection: turns and calls that are open never end."""
        self.requests.clear()
        return [
            SessionEvent(session.id, event) for session in self.sessions.values() for event in session.lost()
        ]

    def _violation(self, code: str, text: str, session: str = "") -> list[SessionEvent]:
        timeline = self.sessions.get(session, self.sessions[""])
        return [SessionEvent(timeline.id, event) for event in timeline.violation(code, text)]

    def _begin_session(self, id_: str) -> SessionTimeline:
        self._times[id_] += 1
        times = self._times[id_]
        session = self.sessions[id_] = SessionTimeline(id_ if times == 1 else f"{id_}#{times}")
        return session

    def _session(self, id_: str) -> tuple[SessionTimeline, list[SessionEvent]]:
        """A session, and the violation if nobody has opened it."""
        known = self.sessions.get(id_)
        if known is not None:
            return known, []
        opening = any(each.method == "session/new" for each in self.requests.values())
        told = []
        if not opening:  # else its answer may still be on the way
            told = self._violation("unknown_session", f"the session `{shorten(id_)}` is unknown")
        return self._begin_session(id_), told

    # Requests and notifications.

    def _request(self, request: UnansweredRequest) -> list[SessionEvent]:
        told: list[SessionEvent] = []
        key = (request.sender, _key(request.id))
        if key in self.requests:
            text = f"the {request.sender} used the ID `{shorten(str(request.id))}` of an open request again"
            told += self._violation("request_id_reused", text, request.session)
        self.requests[key] = request
        self._active[request.session] = request.at
        needed = CAPABILITIES.get(request.method)
        if request.sender == "agent" and needed is not None and needed not in (self.capabilities or ()):
            text = f"the agent requested `{request.method}`, but the client has not announced `{needed}`"
            told += self._violation("unannounced_method", text, request.session)
        if request.method == "initialize":
            self.capabilities = announced(request.params.get("clientCapabilities"))
            return told
        act = self._on_request.get(request.method)
        if act is None:
            return told
        if request.method == "session/load":
            # Once more: the client has forgotten the session, and gets its whole history.
            self._begin_session(request.session)
        session, unknown = self._session(request.session)
        return [*told, *unknown, *(SessionEvent(session.id, event) for event in act(session, request))]

    def _notification(self, notification: UnansweredRequest) -> list[SessionEvent]:
        id_ = notification.session
        self._active[id_] = notification.at
        if notification.method == "session/update":
            session, told = self._session(id_)
            events = session.update(notification.params.get("update"))
            return [*told, *(SessionEvent(session.id, event) for event in events)]
        if notification.method == "session/cancel" and id_ in self.sessions:
            self.sessions[id_].cancel()
        return []

    # Answers.

    def _answer(self, sender: Side, message: Mapping[str, Any], at: float) -> list[SessionEvent]:
        asker: Side = "agent" if sender == "client" else "client"
        request = self.requests.pop((asker, _key(message["id"])), None)
        if request is None:
            if message["id"] is None:
                return []  # the answer to a line that is not a message
            text = f"the {sender} answered the unknown request `{shorten(str(message['id']))}`"
            return self._violation("answer_without_request", text)
        self._active[request.session] = at
        told: list[SessionEvent] = []
        if self.has_announced(request.method) and _error_code(message) == METHOD_NOT_FOUND:
            needed = CAPABILITIES[request.method]
            text = f"the client has announced `{needed}`, but has no method `{request.method}`"
            told += self._violation("method_missing", text, request.session)
        if "result" in message and request.method in _OPENING:
            id_ = request.session or _text_of(message["result"], "sessionId")
            if id_ and id_ not in self.sessions:
                self._begin_session(id_)
        session, act = self.sessions.get(request.session), self._on_answer.get(request.method)
        events = [] if session is None or act is None else act(session, request, message)
        if session is not None and "result" in message and request.method in _CLOSING:
            del self.sessions[request.session]
            events = session.lost()
        id_ = "" if session is None else session.id
        return [*told, *(SessionEvent(id_, event) for event in events)]

    def _stopped(
        self, session: SessionTimeline, request: UnansweredRequest, message: Mapping[str, Any]
    ) -> list[Event]:
        if any(
            each.method == "session/prompt" and each.session == request.session
            for each in self.requests.values()
        ):
            return []  # a second prompt, which the agent has refused
        if "error" in message:
            return session.failed(_text_of(message["error"], "message"))
        result = message["result"]
        return session.stopped(result.get("stopReason") if isinstance(result, dict) else None)


def _answered(
    session: SessionTimeline, request: UnansweredRequest, message: Mapping[str, Any]
) -> list[Event]:
    result = message.get("result")
    outcome = result.get("outcome") if isinstance(result, dict) else None
    if not isinstance(outcome, dict) or outcome.get("outcome") != "selected":
        return []
    options = request.params.get("options")
    kinds = {
        each["optionId"]: each.get("kind")
        for each in (options if isinstance(options, list) else ())
        if isinstance(each, dict) and isinstance(each.get("optionId"), str)
    }
    option = outcome.get("optionId")
    if option not in kinds:
        text = f"the client answered with the unknown option `{shorten(str(option))}`"
        return session.violation("unknown_option", text, call=request.call)
    return session.answered(request.call, allowed=str(kinds[option]).startswith("allow"))


def _prompted(session: SessionTimeline, request: UnansweredRequest) -> list[Event]:
    blocks = request.params.get("prompt")
    return session.prompt(blocks if isinstance(blocks, list) else [])


def _key(id_: object) -> object:
    """The ID of a request as a key: 1 and "1" and true differ, as in JSON."""
    return (type(id_).__name__, id_) if isinstance(id_, str | int | float) else (None, str(id_))


def _text_of(value: object, name: str) -> str:
    found = value.get(name) if isinstance(value, dict) else None
    return found if isinstance(found, str) else ""


def _error_code(message: Mapping[str, Any]) -> object:
    error = message.get("error")
    return error.get("code") if isinstance(error, dict) else None


def announced(capabilities: object) -> frozenset[str]:
    """The capabilities of a client, as `requires` of tools names them.

    Args:
        capabilities: The member `clientCapabilities` of `initialize`.
    """
    has: Mapping[str, Any] = capabilities if isinstance(capabilities, dict) else {}
    fs = has.get("fs")
    files: Mapping[str, Any] = fs if isinstance(fs, dict) else {}
    found = {
        "client.fs.read_text_file": files.get("readTextFile"),
        "client.fs.write_text_file": files.get("writeTextFile"),
        "client.terminal": has.get("terminal"),
    }
    return frozenset(name for name, is_so in found.items() if is_so is True)


def masked_message(message: JSON) -> JSON:
    """A message with `***` in place of secrets, which are found by their names.

    The values of environment variables and headers that a client passes to servers and terminals are all masked.
    """
    return _without_pairs(redact(message))


def _without_pairs(value: JSON) -> JSON:
    if isinstance(value, list):
        return [_without_pairs(each) for each in value]
    if not isinstance(value, dict):
        return value
    shown = {name: _without_pairs(member) for name, member in value.items()}
    for name in ("env", "headers"):
        pairs = shown.get(name)
        if isinstance(pairs, list):
            shown[name] = [
                {**pair, "value": HIDDEN} if isinstance(pair, dict) and "value" in pair else pair
                for pair in pairs
            ]
    return shown
