"""What is wrong on an ACP connection: why a call hangs, what nobody has answered, and what is against the protocol.

`diagnose` reads a whole connection, such as a recording. `Watchdog` says the same while a connection is in use.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Literal, NamedTuple

from toolcrib.core.clock import RealClock, format_duration
from toolcrib.core.model import JSON, NOTHING
from toolcrib.core.protocols import Clock
from toolcrib.provider import View
from toolcrib.schema.validation.violations import shorten
from toolcrib.serve.acp.connection_timeline import (
    CAPABILITIES,
    METHOD_NOT_FOUND,
    ConnectionTimeline,
    SessionEvent,
    Side,
    UnansweredRequest,
)
from toolcrib.serve.acp.recordings import RecordedMessage, replay_record

PATIENCE: Final = 30.0
"""Seconds after which the watchdog reports a request without an answer."""

_TOOLCRIB: Final = "toolcrib"

_MOST: Final = 1000
"""Maximum number of findings; an agent that does the same thing wrong for hours must not fill the memory."""


class ConnectionFinding(NamedTuple):
    """One thing that is wrong on a connection.

    Attributes:
        code: Its code.
        severity: `error` if something does not work, `warning` if it works, though somebody is wrong.
        message: What is wrong.
        hint: The way out; may be empty.
        session: ID of the session; empty for the whole connection.
        call: ID of the call; empty if it is about none.
        sender: The sender of the line; empty if it is about none.
        line: Number of the line among those of its sender; 0 if it is about none.
    """

    code: str
    severity: Literal["error", "warning"]
    message: str
    hint: str = ""
    session: str = ""
    call: str = ""
    sender: str = ""
    line: int = 0

    def as_json(self) -> dict[str, JSON]:
        """Return the finding as a JSON object without empty fields."""
        return {name: value for name, value in self._asdict().items() if value not in ("", 0)}

    def __str__(self) -> str:
        """The finding in one line."""
        place = f" ({self.sender}, line {self.line})" if self.line else ""
        return f"{self.message}{place}{f'; {self.hint}' if self.hint else ''}"


_WARNINGS: Final = frozenset(
    (
        "answer_without_request",
        "call_repeated",
        "call_reused",
        "outside_turn",
        "permission_without_call",
        "status_went_back",
        "unannounced_method",
        "unknown_call",
        "unknown_kind",
        "unknown_session",
        "unknown_update",
        "update_after_end",
    )
)
"""Violations after which everything goes on; the others lose something or stop it."""

_HINTS: Final[Mapping[str, str]] = {
    "invalid_line": "something prints to stdout, which carries only the protocol: print to stderr",
    "method_missing": "the client must answer this method, or not announce the capability in `initialize`",
    "unannounced_method": "the agent must read `clientCapabilities`; `requires` of a tool does that",
    "call_left_open": "the agent must end each call with `completed` or `failed` before it answers the prompt",
    "not_cancelled": "the agent must answer a cancelled prompt with `stopReason: cancelled`",
    "prompt_overlap": "wait for the answer to a prompt, or send `session/cancel`",
    "unknown_option": "the client must select one of the offered `optionId`s",
}


def open_finding(request: UnansweredRequest, timeline: ConnectionTimeline, now: float) -> ConnectionFinding:
    """Why a request without an answer matters, and what to do.

    Args:
        request: The request.
        timeline: Its connection.
        now: Seconds since the start of the connection.
    """
    other = "agent" if request.sender == "client" else "client"
    code, hint, call = "no_answer", "", request.call
    message = f"the {other} has not answered `{request.method}`{_lasting(now - request.at)}"
    if request.method == "session/request_permission":
        code = "permission_unanswered"
        message = (
            f"nobody has answered the question about the call `{shorten(call)}`{_lasting(now - request.at)}"
        )
        hint = "answer it in the client; a client without a user must answer `cancelled`"
    elif request.method == "session/prompt":
        code = "turn_open"
        quiet = _lasting(now - timeline.active_since(request))
        message = f"the turn of the session `{shorten(request.session)}` has not ended"
        message += f", and nothing was sent{quiet}" if quiet else ""
        hint = _why_open(request, timeline)
    elif request.method in CAPABILITIES:
        hint = f"the handler of `{request.method}` at the client gives no answer: see its log"
    return ConnectionFinding(
        code, "error", message, hint, request.session, call, request.sender, request.line
    )


def _lasting(seconds: float) -> str:
    """` for 5s`; empty for no time at all, as at the last message of a recording."""
    return f" for {format_duration(round(seconds, 3))}" if seconds >= 0.001 else ""


def _why_open(prompt: UnansweredRequest, timeline: ConnectionTimeline) -> str:
    """What the turn of a prompt waits for."""
    waits = [
        f"`{each.method}` ({each.sender}, line {each.line})" if each.line else f"`{each.method}`"
        for each in timeline.requests.values()
        if each.sender == "agent" and each.session == prompt.session
    ]
    if waits:
        return f"the agent waits for the answer to {', '.join(waits)}"
    session = timeline.sessions.get(prompt.session)
    calls = () if session is None else session.open_calls
    if calls:
        named = ", ".join(f"`{shorten(each)}`" for each in calls)
        return f"the agent has requested nothing of the client; its own handler of {named} has not ended"
    return "the agent waits for nothing from the client; its model or its own code has not ended"


def violation_finding(event: SessionEvent, sender: str = "", line: int = 0) -> ConnectionFinding:
    """The finding of a violation.

    Args:
        event: An event of the type `violation`.
        sender: The sender of its message.
        line: Number of its line among those of its sender.
    """
    code = str((event.event.details or {}).get("code", ""))
    severity: Literal["error", "warning"] = "warning" if code in _WARNINGS else "error"
    return ConnectionFinding(
        code, severity, event.event.text, _HINTS.get(code, ""), event.session, event.event.id, sender, line
    )


class SessionSummary(NamedTuple):
    """What a session had.

    Attributes:
        id: Its ID.
        cwd: Its working folder.
        servers: Names of the MCP servers that the client offered.
        tools: Its tools, as the agent told them; None if the agent does not tell.
        missing: Tool -> why the session does not have it.
        replaced: Name -> the tool that replaces it.
        turns: How the turns have ended, in order.
        calls: Status -> number of calls.
        used: Names or titles of the tools that were called -> number of calls.
    """

    id: str
    cwd: str = ""
    servers: tuple[str, ...] = ()
    tools: tuple[str, ...] | None = None
    missing: Mapping[str, str] = NOTHING
    replaced: Mapping[str, str] = NOTHING
    turns: tuple[str, ...] = ()
    calls: Mapping[str, int] = NOTHING
    used: Mapping[str, int] = NOTHING

    def as_json(self) -> dict[str, JSON]:
        """Return the session as a JSON object."""
        told: dict[str, Any] = {
            name: [*value]
            if isinstance(value, tuple)
            else dict(value)
            if isinstance(value, Mapping)
            else value
            for name, value in self._asdict().items()
        }
        return told


class ConnectionDiagnosis(NamedTuple):
    """What happened on a connection.

    Attributes:
        seconds: Time from its start to the last message.
        messages: Number of messages of each side.
        client: Name and version of the client.
        agent: Name and version of the agent.
        capabilities: What the client has announced, as `requires` of tools names it; None without `initialize`.
        sessions: The sessions, in the order in which they were opened.
        ended: Why the connection has ended; empty if that was not recorded.
        findings: What is wrong.
        omitted: Number of further findings.
    """

    seconds: float
    messages: Mapping[str, int]
    client: str
    agent: str
    capabilities: tuple[str, ...] | None
    sessions: tuple[SessionSummary, ...]
    ended: str
    findings: tuple[ConnectionFinding, ...]
    omitted: int = 0

    def as_json(self) -> dict[str, JSON]:
        """Return the diagnosis as a JSON object."""
        return {
            "seconds": self.seconds,
            "messages": dict(self.messages),
            "client": self.client,
            "agent": self.agent,
            "capabilities": None if self.capabilities is None else [*self.capabilities],
            "sessions": [session.as_json() for session in self.sessions],
            "ended": self.ended,
            "findings": [finding.as_json() for finding in self.findings],
            "omitted": self.omitted,
        }


def diagnose(records: Iterable[RecordedMessage]) -> ConnectionDiagnosis:
    """Read a whole connection, and find what is wrong on it.

    Args:
        records: Its messages in the order of the wire.
    """
    reader = _Reader()
    for record in records:
        reader.add(record)
    return reader.diagnosis()


class _Reader:
    """Reads a connection, message by message."""

    def __init__(self) -> None:
        self.timeline = ConnectionTimeline()
        self.findings: list[ConnectionFinding] = []
        self.omitted = 0
        self._messages: Counter[str] = Counter()
        self._names = {"client": "", "agent": ""}
        self._views: dict[str, View] = {}
        self._facts: dict[str, dict[str, Any]] = {}
        self._turns: dict[str, list[str]] = {}
        self._ended = ""
        self._now = 0.0
        self._initialized = True
        self._connections = 1

    def add(self, record: RecordedMessage) -> None:
        self._now = max(self._now, record.at)
        if self._ended:
            # An agent that was started again has another connection.
            self._ended, self.timeline = "", ConnectionTimeline()
            self._connections += 1
        if record.ended:
            self._ended = record.ended
            self._leave_open()
        else:
            self._messages[record.sender] += 1
            self._before(record)
        for event in replay_record(record, self.timeline):
            self._event(event, record)
        # The first message must be `initialize`.
        self._initialized = self._initialized and (
            self.timeline.capabilities is not None or bool(record.ended or record.invalid)
        )

    def _key(self, session: str) -> str:
        return session if self._connections == 1 else f"{session} (connection {self._connections})"

    def diagnosis(self) -> ConnectionDiagnosis:
        if not self._ended:
            self._leave_open()
            # A recording may be read while the connection is in use, so its calls are not over.
        if not self._initialized:
            self._find(
                ConnectionFinding(
                    "not_initialized",
                    "error",
                    "the client has not sent `initialize`",
                    "it must be the first request",
                )
            )
        known = self.timeline.capabilities
        ids = dict.fromkeys([*self._facts, *(id_ for id_ in self._views if id_ and not id_.startswith(" ("))])
        return ConnectionDiagnosis(
            round(self._now, 3),
            dict(self._messages),
            self._names["client"],
            self._names["agent"],
            None if known is None else tuple(sorted(known)),
            tuple(self._summary(id_) for id_ in ids),
            self._ended,
            tuple(self.findings),
            self.omitted,
        )

    def _find(self, finding: ConnectionFinding) -> None:
        if len(self.findings) < _MOST:
            self.findings.append(finding)
        else:
            self.omitted += 1

    def _leave_open(self) -> None:
        for request in self.timeline.requests.values():
            self._find(open_finding(request, self.timeline, self._now))

    def _event(self, event: SessionEvent, record: RecordedMessage) -> None:
        key = self._key(event.session)
        self._views.setdefault(key, View()).apply(event.event)
        if event.event.type == "violation":
            self._find(violation_finding(event, record.sender, record.line))
        elif event.event.type == "turn_ended":
            self._turns.setdefault(key, []).append(event.event.stop)

    def _before(self, record: RecordedMessage) -> None:
        """Read what the timeline does not: names, the facts of sessions, and errors."""
        message = record.message
        if not isinstance(message, dict):
            return
        params = message.get("params")
        if message.get("method") == "initialize" and isinstance(params, dict):
            self._names["client"] = _name_of(params.get("clientInfo"))
        if "method" in message or "id" not in message:
            return
        asker: Side = "agent" if record.sender == "client" else "client"
        request = self.timeline.request_of(asker, message["id"])
        if request is None:
            return
        result = message.get("result")
        if "error" in message:
            self._refused(request, message["error"], record)
        elif request.method == "initialize" and isinstance(result, dict):
            self._names["agent"] = _name_of(result.get("agentInfo"))
            self._versions(request, result, record)
        elif request.method in {"session/new", "session/load", "session/resume"}:
            self._opened(request, result)

    def _opened(self, request: UnansweredRequest, result: object) -> None:
        told: dict[str, Any] = result if isinstance(result, dict) else {}
        id_ = request.session or told.get("sessionId")
        if not isinstance(id_, str):
            return
        meta = told.get("_meta")
        own = meta.get(_TOOLCRIB) if isinstance(meta, dict) else None
        session = self.timeline.sessions.get(id_)
        self._facts[self._key(id_ if session is None else session.id)] = {
            "cwd": request.params.get("cwd"),
            "servers": request.params.get("mcpServers"),
            **(own if isinstance(own, dict) else {}),
        }

    def _versions(
        self, request: UnansweredRequest, result: Mapping[str, Any], record: RecordedMessage
    ) -> None:
        asked, got = request.params.get("protocolVersion"), result.get("protocolVersion")
        if asked != got:
            self._find(
                ConnectionFinding(
                    "other_version",
                    "warning",
                    f"the client asked for version {asked} of the protocol, and the agent speaks {got}",
                    "the client must disconnect if it does not speak that version",
                    sender=record.sender,
                    line=record.line,
                )
            )

    def _refused(self, request: UnansweredRequest, error: object, record: RecordedMessage) -> None:
        told: dict[str, Any] = error if isinstance(error, dict) else {}
        number = told.get("code")
        if number == METHOD_NOT_FOUND and self.timeline.has_announced(request.method):
            return  # the violation `method_missing`
        why = shorten(str(told.get("message", "")))
        prompt = request.method == "session/prompt"
        self._find(
            ConnectionFinding(
                "prompt_failed" if prompt else "refused",
                "error" if prompt else "warning",
                f"the {record.sender} answered `{request.method}` with the error {number}: {why}",
                "",
                request.session,
                request.call,
                record.sender,
                record.line,
            )
        )

    def _summary(self, id_: str) -> SessionSummary:
        facts = self._facts.get(id_, {})
        segments = self._views[id_].segments if id_ in self._views else ()
        calls = [each for each in segments if each.kind == "call"]
        servers, tools = facts.get("servers"), facts.get("tools")
        missing, replaced = facts.get("missing"), facts.get("replaced")
        turns = [*self._turns.get(id_, ())]
        if any(self._key(each.id) == id_ and each.running for each in self.timeline.sessions.values()):
            turns.append("running")
        return SessionSummary(
            id_,
            str(facts.get("cwd") or ""),
            tuple(
                str(each.get("name"))
                for each in (servers if isinstance(servers, list) else ())
                if isinstance(each, dict)
            ),
            tuple(map(str, tools)) if isinstance(tools, list) else None,
            {name: _reason(why) for name, why in missing.items()} if isinstance(missing, dict) else {},
            {str(name): str(by) for name, by in replaced.items()} if isinstance(replaced, dict) else {},
            tuple(turns),
            dict(Counter(each.status for each in calls)),
            dict(Counter(each.tool or str((each.details or {}).get("title") or "unknown") for each in calls)),
        )


def _name_of(info: object) -> str:
    if not isinstance(info, dict):
        return ""
    return " ".join(str(info[name]) for name in ("name", "version") if info.get(name))


def _reason(why: object) -> str:
    return str(why.get("message")) if isinstance(why, dict) else str(why)


class Watchdog:
    """Reports what is wrong on a connection while it is in use: each thing once.

    Args:
        timeline: Returns the connection.
        say: Receives the findings.
        clock: Clock.
        patience: Seconds after which a request without an answer is reported.
    """

    def __init__(
        self,
        timeline: Callable[[], ConnectionTimeline],
        say: Callable[[ConnectionFinding], None],
        clock: Clock | None = None,
        patience: float = PATIENCE,
    ) -> None:
        self._timeline = timeline
        self._say = say
        self._clock = RealClock() if clock is None else clock
        self._patience = patience
        self._start = self._clock.monotonic()
        self._said: set[object] = set()

    @property
    def now(self) -> float:
        """Seconds since the start of the connection."""
        return self._clock.monotonic() - self._start

    def event(self, event: SessionEvent, sender: Side | str = "", line: int = 0) -> None:
        """Report an event if it is a violation that was not reported yet."""
        if event.event.type != "violation":
            return
        finding = violation_finding(event, sender, line)
        # A thing that is done wrong in every message is said once for each session.
        self._report((finding.code, finding.session), finding)

    def check(self) -> float:
        """Report the requests that have waited too long.

        Returns:
            Seconds until the next check.
        """
        now, timeline = self.now, self._timeline()
        following = self._patience
        for request in [*timeline.requests.values()]:
            left = timeline.active_since(request) + self._patience - now
            if left > 0:
                following = min(following, left)
            else:
                key = (request.sender, str(request.id), request.at)
                self._report(key, open_finding(request, timeline, now))
        return following

    async def run(self) -> None:
        """Check until cancelled."""
        while True:
            await self._clock.sleep(self.check())

    def _report(self, key: object, finding: ConnectionFinding) -> None:
        if key in self._said or len(self._said) >= _MOST:
            return
        self._said.add(key)
        self._say(finding)
