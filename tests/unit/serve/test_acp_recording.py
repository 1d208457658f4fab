"""Recordings of ACP connections: written, read, replayed, diagnosed; and the watchdog, on virtual time."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from acp_messages import (
    ALL,
    ASK,
    CALL,
    NEW,
    PROMPT,
    answer,
    chunk,
    error,
    request,
    told,
    update,
)
from sampling import examples
from toolcrib import ConfigurationError
from toolcrib.core.virtual_clock import VirtualClock
from toolcrib.serve.acp.connection_observer import ConnectionObserver
from toolcrib.serve.acp.connection_timeline import ConnectionTimeline, SessionEvent
from toolcrib.serve.acp.diagnosis import ConnectionDiagnosis, diagnose
from toolcrib.serve.acp.recordings import RecordedMessage, Recorder, Recording, replayed

READ = request(7, "fs/read_text_file", sessionId="s", path="/a")


def started(capabilities: Any = None, meta: Any = None) -> list[tuple[Any, Any]]:
    """The messages with which a connection begins."""
    opened = {"sessionId": "s", **({} if meta is None else {"_meta": {"toolcrib": meta}})}
    info = {"name": "editor", "version": "1"}
    return [
        (
            "client",
            request(
                0,
                "initialize",
                protocolVersion=1,
                clientCapabilities=ALL if capabilities is None else capabilities,
                clientInfo=info,
            ),
        ),
        ("agent", answer(0, {"protocolVersion": 1, "agentInfo": {"name": "helper"}})),
        ("client", NEW),
        ("agent", answer(1, opened)),
    ]


class Seconds(VirtualClock):
    """A clock that a test sets."""

    seconds = 0.0

    def monotonic(self) -> float:
        return self.seconds


def recorded(path: Path, messages: Any, *, end: str | None = "exit 0") -> list[SessionEvent]:
    """Record messages, one each second, and return the events that they had."""
    clock = Seconds()
    recorder = Recorder(path, by="client", name="agent --acp", clock=clock)
    observer = ConnectionObserver(recorder=recorder, clock=clock)
    events: list[SessionEvent] = []
    observer.listeners.append(events.append)
    for sender, message in messages:
        if isinstance(message, str):
            observer.invalid_line(sender, "it is not JSON", message)
        else:
            observer.message(sender, message)
        clock.seconds += 1
    if end is not None:
        observer.ended(end)
        observer.close()
    recorder.close()  # without an end, as if the process was killed
    return events


def diagnosed(tmp_path: Path, messages: Any, *, end: str | None = None) -> ConnectionDiagnosis:
    recorded(tmp_path / "r.jsonl", messages, end=end)
    return diagnose(Recording(tmp_path / "r.jsonl"))


def found(diagnosis: ConnectionDiagnosis) -> list[tuple[str, str]]:
    return [(each.code, each.severity) for each in diagnosis.findings]


TURN = [
    *started(),
    ("client", PROMPT),
    ("agent", CALL),
    ("agent", ASK),
    ("client", answer(1, {"outcome": {"outcome": "selected", "optionId": "yes"}})),
    ("agent", READ),
    ("client", answer(7, {"content": "x"})),
    ("agent", update(sessionUpdate="tool_call_update", toolCallId="c", status="completed")),
    ("agent", chunk("Done.")),
    ("agent", answer(2, {"stopReason": "end_turn"})),
]


def test_a_recording_is_replayed_as_it_was(tmp_path):
    events = recorded(tmp_path / "r.jsonl", [*TURN, ("agent", "Debug: bye"), ("agent", [])])
    recording = Recording(tmp_path / "r.jsonl")
    assert [*replayed(recording)] == events
    assert recording.problems == []
    assert (recording.header.by, recording.header.name) == ("client", "agent --acp")
    assert recording.header.at == "2030-01-01T00:00:00Z"
    (invalid,) = [each for each in Recording(tmp_path / "r.jsonl") if each.invalid]
    assert (invalid.sender, invalid.line, invalid.text) == ("agent", 9, "Debug: bye")
    assert (tmp_path / "r.jsonl").stat().st_mode & 0o077 == 0


def test_a_recording_without_an_end_is_replayed_to_one(tmp_path):
    recorded(tmp_path / "r.jsonl", TURN[:6], end=None)
    events = [*replayed(Recording(tmp_path / "r.jsonl"))]
    assert events[-1].event.stop == "lost"


def test_an_agent_that_is_started_again_has_another_connection(tmp_path):
    path = tmp_path / "r.jsonl"
    recorder = Recorder(path, by="client")
    observer = ConnectionObserver(recorder=recorder)
    events: list[SessionEvent] = []
    observer.listeners.append(events.append)
    for sender, message in TURN[:6]:
        observer.message(sender, message)
    observer.ended("killed by SIGKILL")
    observer.ended("again")
    for sender, message in TURN:
        observer.message(sender, message)
    observer.close()
    assert [*replayed(Recording(path))] == events
    assert [each.event.stop for each in events if each.event.stop] == ["lost", "end_turn"]
    diagnosis = diagnose(Recording(path))
    assert [(each.id, each.turns) for each in diagnosis.sessions] == [
        ("s", ("lost",)),
        ("s (connection 2)", ("end_turn",)),
    ]
    assert {each.code for each in diagnosis.findings} == {"turn_open"}
    assert diagnosis.ended == "the connection was closed"


def test_no_secret_is_in_the_file(tmp_path):
    secret = "kX9-very-private"
    server = {"name": "s", "command": "c", "args": [], "env": [{"name": "S", "value": secret}]}
    call = update(sessionUpdate="tool_call", toolCallId="k", title="K", rawInput={"api_key": secret})
    new = {**NEW, "params": {"cwd": "/", "mcpServers": [server]}}
    messages = [*started()[:2], ("client", new), started()[3], ("client", PROMPT), ("agent", call)]
    events = recorded(tmp_path / "r.jsonl", messages)
    assert secret not in (tmp_path / "r.jsonl").read_text()
    assert secret not in str(events)
    assert [*replayed(Recording(tmp_path / "r.jsonl"))] == events


def test_a_recording_that_cannot_be_written_ends_and_the_connection_goes_on(tmp_path, caplog):
    with pytest.raises(ConfigurationError, match="cannot record to"):
        Recorder(tmp_path / "no" / "r.jsonl", by="client")
    recorder = Recorder(Path("/dev/full"), by="client") if Path("/dev/full").exists() else None
    if recorder is not None:
        assert "the recording `/dev/full` ends here: No space left on device" in caplog.text
        recorder.message("client", 1, {})  # nothing


HEADER = json.dumps({"acp_recording": 1, "by": "client"}) + "\n"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "it is empty"),
        ("hello\n", "got `hello`"),
        ('{"role": "user"}\n', "expected an object with `acp_recording`"),
        ('{"acp_recording": 9}\n', "is a recording of format 9"),
        ("[" * 100_000, "expected an object"),
    ],
)
def test_a_file_that_is_no_recording_is_refused(tmp_path, text, message):
    path = tmp_path / "r.jsonl"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=message) as failed:
        Recording(path)
    assert failed.value.code == "invalid_recording"
    assert failed.value.hint


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    for path in (tmp_path / "none", tmp_path):
        with pytest.raises(ConfigurationError, match="cannot read the recording") as failed:
            Recording(path)
        assert failed.value.code == "unreadable_file"


def test_every_line_that_cannot_be_read_is_reported(tmp_path):
    path = tmp_path / "r.jsonl"
    lines = [
        "?",
        "5",
        '{"t": true, "ended": "x"}',
        '{"t": 1, "from": "agent"}',
        '{"t": 1, "from": "editor", "line": 1, "message": {}}',
        '{"t": 1, "from": "agent", "line": "1", "message": {}}',
        '{"t": 1, "from": "agent", "line": 1}',
        "",
        '{"t": 2, "from": "agent", "line": 1, "message": {"jsonrpc": "2.0", "method": "_x"}}',
        '{"t": 3, "from": "ag',
    ]
    path.write_text(HEADER + "\n".join(lines))
    recording = Recording(path)
    assert [each.at for each in recording] == [2]
    assert [(each.line, each.severity) for each in recording.problems] == [
        *((line, "error") for line in range(2, 9)),
        (11, "warning"),
    ]
    assert recording.problems[-1].message == "the last line was not written completely"
    assert all(each.source == str(path) for each in recording.problems)


def test_lines_of_64_mib_are_read_and_longer_ones_than_the_limit_are_skipped(tmp_path, monkeypatch):
    path = tmp_path / "r.jsonl"
    recorded(path, [*started(), ("client", PROMPT), ("agent", chunk("x" * (64 << 20)))])
    text = [each.event.text for each in replayed(Recording(path)) if each.event.type == "text"]
    assert [len(each) for each in text] == [64 << 20]
    monkeypatch.setattr("toolcrib.serve.acp.recordings.LONGEST_LINE", 1 << 20)
    recording = Recording(path)
    assert len([*recording]) == 6  # the connection before it, and its end
    (problem,) = recording.problems
    assert problem.message == "the line is longer than 1MiB"
    assert problem.line == 7


# Diagnosis.


def test_a_sound_connection_has_no_findings(tmp_path):
    meta = {
        "tools": ["a", "b"],
        "missing": {"c": {"code": "capability_missing", "message": "the client has no terminals"}},
        "replaced": {"Read": "a"},
    }
    messages = [*started(meta=meta), *TURN[4:]]
    diagnosis = diagnosed(tmp_path, messages, end="exit 0")
    assert found(diagnosis) == []
    assert (diagnosis.client, diagnosis.agent) == ("editor 1", "helper")
    assert diagnosis.capabilities == (
        "client.fs.read_text_file",
        "client.fs.write_text_file",
        "client.terminal",
    )
    assert diagnosis.messages == {"client": 5, "agent": 8}
    assert diagnosis.ended == "exit 0"
    (session,) = diagnosis.sessions
    assert session.tools == ("a", "b")
    assert session.missing == {"c": "the client has no terminals"}
    assert session.replaced == {"Read": "a"}
    assert session.turns == ("end_turn",)
    assert session.calls == {"completed": 1}
    assert session.used == {"Edit": 1}
    assert json.loads(json.dumps(diagnosis.as_json()))["findings"] == []


@pytest.mark.parametrize(
    ("messages", "wanted"),
    [
        # A call hangs, because the client gives no answer to a request.
        (
            [("client", PROMPT), ("agent", CALL), ("agent", READ)],
            [
                (
                    "turn_open",
                    "the turn of the session `s` has not ended, and nothing was sent for 1s",
                    "the agent waits for the answer to `fs/read_text_file` (agent, line 4)",
                ),
                (
                    "no_answer",
                    "the client has not answered `fs/read_text_file` for 1s",
                    "the handler of `fs/read_text_file` at the client gives no answer: see its log",
                ),
            ],
        ),
        # A call hangs in the agent itself.
        (
            [("client", PROMPT), ("agent", CALL)],
            [
                (
                    "turn_open",
                    "the turn of the session `s` has not ended, and nothing was sent for 1s",
                    "the agent has requested nothing of the client; its own handler of `c` has not ended",
                )
            ],
        ),
        # The model hangs.
        (
            [("client", PROMPT)],
            [
                (
                    "turn_open",
                    "the turn of the session `s` has not ended, and nothing was sent for 1s",
                    "the agent waits for nothing from the client; its model or its own code has not ended",
                )
            ],
        ),
        # Nobody answers a question.
        (
            [("client", PROMPT), ("agent", CALL), ("agent", ASK)],
            [
                (
                    "turn_open",
                    "the turn of the session `s` has not ended, and nothing was sent for 1s",
                    "the agent waits for the answer to `session/request_permission` (agent, line 4)",
                ),
                (
                    "permission_unanswered",
                    "nobody has answered the question about the call `c` for 1s",
                    "answer it in the client; a client without a user must answer `cancelled`",
                ),
            ],
        ),
        # The client lacks the method that it has announced.
        (
            [("agent", READ), ("client", error(7, -32601))],
            [
                (
                    "method_missing",
                    "the client has announced `client.fs.read_text_file`, but has no method `fs/read_text_file`",
                    "the client must answer this method, or not announce the capability in `initialize`",
                )
            ],
        ),
        (
            [("agent", READ), ("client", error(7, -32002, "no file"))],
            [
                (
                    "refused",
                    "the client answered `fs/read_text_file` with the error -32002: no file",
                    "",
                )
            ],
        ),
        # The agent prints.
        (
            [("agent", "Loading model...")],
            [
                (
                    "invalid_line",
                    "line 3 of the agent is no message: it is not JSON",
                    "something prints to stdout, which carries only the protocol: print to stderr",
                )
            ],
        ),
        (
            [("client", PROMPT), ("agent", error(2, -32603, "broken"))],
            [("prompt_failed", "the agent answered `session/prompt` with the error -32603: broken", "")],
        ),
        (
            [("client", request(3, "session/set_mode", sessionId="s", modeId="x"))],
            [("no_answer", "the agent has not answered `session/set_mode` for 1s", "")],
        ),
    ],
)
def test_a_diagnosis_says_why(tmp_path, messages, wanted):
    diagnosis = diagnosed(tmp_path, [*started(), *messages], end="exit 1")
    assert [(each.code, each.message, each.hint) for each in diagnosis.findings] == wanted


def test_a_diagnosis_of_a_connection_that_never_began(tmp_path):
    diagnosis = diagnosed(tmp_path, [("client", NEW), ("agent", error(1, -32600))])
    assert found(diagnosis) == [("refused", "warning"), ("not_initialized", "error")]
    assert diagnosed(tmp_path, []).findings == ()
    other = [started()[0], ("agent", answer(0, {"protocolVersion": 2}))]
    assert found(diagnosed(tmp_path, other)) == [("other_version", "warning")]


def test_the_findings_of_an_agent_that_does_the_same_for_hours_are_bounded(tmp_path):
    diagnosis = diagnose(RecordedMessage(0.0, "agent", line, chunk("?", "nobody")) for line in range(1, 2001))
    assert len(diagnosis.findings) == 1000
    assert diagnosis.omitted > 1000
    assert diagnosis.findings[0].line == 1


MESSAGES = st.lists(
    st.sampled_from(
        [
            *TURN,
            ("agent", "?"),
            ("agent", {}),
            ("agent", 5),
            ("agent", None),
            ("client", {**PROMPT, "id": 9}),
            ("client", told("session/cancel", sessionId="s")),
            ("client", request(4, "session/load", sessionId="s")),
            ("agent", answer(4, None)),
            ("client", request(5, "session/close", sessionId="s")),
            ("agent", answer(5)),
            ("agent", {"jsonrpc": "2.0", "method": "session/update", "params": 5}),
            ("agent", {"jsonrpc": "2.0", "id": None, "error": None}),
            ("client", {"jsonrpc": "2.0", "id": 1, "result": None}),
            ("client", {"jsonrpc": "2.0", "id": {}, "method": "initialize"}),
            ("agent", request([], "session/request_permission", sessionId=4, options=[5, {}])),
        ]
    ),
    max_size=25,
)


@settings(
    max_examples=examples(150), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(MESSAGES)
def test_whatever_is_recorded_is_replayed_as_it_was_and_diagnosed(tmp_path, messages):
    path = tmp_path / "r.jsonl"
    events = recorded(path, messages)
    assert [*replayed(Recording(path))] == events
    diagnosis = diagnose(Recording(path))
    json.dumps(diagnosis.as_json())
    codes = [str((each.event.details or {})["code"]) for each in events if each.event.type == "violation"]
    assert [each.code for each in diagnosis.findings if each.code in codes] == codes


# The watchdog.


async def test_a_watchdog_reports_each_thing_once_while_it_happens():
    clock = VirtualClock()
    said: list[tuple[float, str]] = []
    observer = ConnectionObserver(
        warn=lambda finding: said.append((clock.monotonic(), finding.code)), clock=clock, patience=10
    )
    watching = asyncio.create_task(observer.watch())
    for sender, message in [*started(), ("client", PROMPT), ("agent", CALL), ("agent", READ)]:
        observer.message(sender, message)
    await clock.advance(9)
    assert said == []
    observer.invalid_line("agent", "it is not JSON", "Debug")
    observer.invalid_line("agent", "it is not JSON", "Debug")
    assert [code for _at, code in said] == ["invalid_line"]
    await clock.advance(60)
    assert [code for _at, code in said] == ["invalid_line", "turn_open", "no_answer"]
    # The call goes on after all, and then hangs again.
    observer.message("client", answer(7, {"content": ""}))
    observer.message("agent", {**READ, "id": 8})
    await clock.advance(60)
    assert [code for _at, code in said][3:] == ["no_answer"]
    watching.cancel()


async def test_a_turn_that_goes_on_is_not_reported():
    clock = VirtualClock()
    said: list[str] = []
    observer = ConnectionObserver(warn=lambda finding: said.append(finding.code), clock=clock, patience=10)
    watching = asyncio.create_task(observer.watch())
    for sender, message in [*started(), ("client", PROMPT)]:
        observer.message(sender, message)
    for _second in range(20):
        await clock.advance(5)
        observer.message("agent", chunk("x"))
    assert said == []
    await clock.advance(30)
    assert said == ["turn_open"]
    watching.cancel()


def test_a_watchdog_alone_needs_no_recording():
    said: list[str] = []
    observer = ConnectionObserver(warn=lambda finding: said.append(str(finding)))
    observer.message("agent", chunk("?"), 12)
    observer.ended()
    assert said == [
        "the session `s` is unknown (agent, line 12)",
        "a message was sent while no prompt was running (agent, line 12)",
    ]
    assert isinstance(observer.timeline, ConnectionTimeline)
