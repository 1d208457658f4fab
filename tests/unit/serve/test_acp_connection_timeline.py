"""The events of a connection, from the messages of a client and an agent."""

from __future__ import annotations

from typing import Any

import pytest

from acp_messages import ALL, ASK, CALL, NEW, PROMPT, answer, chunk, error, request, told, update
from toolcrib.provider import View
from toolcrib.serve.acp.connection_timeline import ConnectionTimeline, SessionEvent, masked_message


def opened(capabilities: Any = None) -> ConnectionTimeline:
    timeline = ConnectionTimeline()
    events = timeline.message(
        "client", request(0, "initialize", protocolVersion=1, clientCapabilities=capabilities or {})
    )
    events += timeline.message("agent", answer(0, {"protocolVersion": 1}))
    events += timeline.message("client", NEW)
    events += timeline.message("agent", answer(1, {"sessionId": "s"}))
    assert events == []
    return timeline


def fed(timeline: ConnectionTimeline, *messages: tuple[Any, Any]) -> list[SessionEvent]:
    return [event for sender, message in messages for event in timeline.message(sender, message)]


def violations(events: list[SessionEvent]) -> list[tuple[str, str]]:
    return [
        (each.session, str((each.event.details or {})["code"]))
        for each in events
        if each.event.type == "violation"
    ]


def shape(events: list[SessionEvent], session: str = "s") -> list[tuple[str, str, str]]:
    view = View()
    for each in events:
        if each.session == session:
            view.apply(each.event)
    return [(part.kind, part.id or part.text, part.status) for part in view.segments]


def test_a_turn_with_a_question_is_a_timeline():
    timeline = opened()
    events = fed(
        timeline,
        ("client", PROMPT),
        ("agent", chunk("I edit.")),
        ("agent", CALL),
        ("agent", ASK),
        ("client", answer(1, {"outcome": {"outcome": "selected", "optionId": "yes"}})),
        ("agent", update(sessionUpdate="tool_call_update", toolCallId="c", status="completed")),
        ("agent", answer(2, {"stopReason": "end_turn"})),
    )
    assert violations(events) == []
    assert shape(events) == [("user", "go", ""), ("text", "I edit.", ""), ("call", "c", "completed")]
    statuses = [each.event.status for each in events if each.event.status]
    assert statuses == ["pending", "waiting", "running", "completed"]
    assert events[-1].event.stop == "end_turn"
    assert events[-1].as_json()["session"] == "s"
    assert timeline.requests == {}


@pytest.mark.parametrize(
    ("outcome", "waiting", "found"),
    [
        ({"outcome": "selected", "optionId": "no"}, True, []),
        ({"outcome": "cancelled"}, True, []),
        ({"outcome": "selected", "optionId": "perhaps"}, True, [("s", "unknown_option")]),
        ({"outcome": "selected", "optionId": "yes"}, False, []),
        (5, True, []),
    ],
)
def test_only_a_permitted_call_runs(outcome, waiting, found):
    timeline = opened()
    events = fed(timeline, ("client", PROMPT), ("agent", CALL), ("agent", ASK))
    events += timeline.message("client", answer(1, {"outcome": outcome}))
    assert shape(events)[-1][-1] == ("waiting" if waiting else "running")
    assert violations(events) == found


@pytest.mark.parametrize(
    ("sender", "message", "found"),
    [
        ("agent", chunk("?", "other"), [("", "unknown_session"), ("other", "outside_turn")]),
        ("agent", [], [("", "invalid_message")]),
        ("agent", {"jsonrpc": "2.0"}, [("", "invalid_message")]),
        ("agent", answer(99), [("", "answer_without_request")]),
        ("agent", error(None, -32700), []),
        ("agent", request(5, "fs/read_text_file", sessionId="s", path="/a"), [("s", "unannounced_method")]),
        ("agent", told("_vendor/thing"), []),
        ("client", told("session/cancel", sessionId="nobody"), []),
        ("client", request(7, "session/set_mode", sessionId="s", modeId="ask"), []),
    ],
)
def test_what_is_against_the_protocol_is_reported(sender, message, found):
    assert violations(opened().message(sender, message)) == found


def test_a_client_that_announces_a_method_and_has_none_is_reported():
    timeline = opened(ALL)
    read = request(5, "fs/read_text_file", sessionId="s", path="/a")
    assert violations(fed(timeline, ("agent", read), ("client", error(5, -32601)))) == [
        ("s", "method_missing")
    ]
    assert violations(fed(timeline, ("agent", read), ("client", error(5, -32002)))) == []


def test_the_id_of_an_open_request_that_is_used_again_is_reported():
    timeline = opened(ALL)
    read = request(5, "fs/read_text_file", sessionId="s", path="/a")
    assert violations(fed(timeline, ("agent", read), ("agent", read))) == [("s", "request_id_reused")]
    # Both sides number their requests, and 5 is not "5".
    other = request("5", "fs/read_text_file", sessionId="s", path="/a")
    assert violations(fed(timeline, ("client", {**PROMPT, "id": 5}), ("agent", other))) == []


def test_a_line_that_is_no_message_is_reported_with_its_number():
    (event,) = opened().invalid_line("agent", 12, "it is not JSON")
    assert event.event.text == "line 12 of the agent is no message: it is not JSON"
    assert violations([event]) == [("", "invalid_line")]


def test_a_session_that_is_about_to_be_opened_may_have_updates():
    timeline = ConnectionTimeline()
    events = fed(
        timeline,
        ("client", NEW),
        ("agent", update("n", sessionUpdate="available_commands_update", availableCommands=[])),
        ("agent", answer(1, {"sessionId": "n"})),
    )
    assert violations(events) == []
    assert {*timeline.sessions} == {"", "n"}


def test_a_loaded_session_begins_with_its_history():
    timeline = opened()
    events = fed(timeline, ("client", PROMPT), ("agent", answer(2, {"stopReason": "end_turn"})))
    again = fed(
        timeline,
        ("client", request(3, "session/load", sessionId="s", cwd="/", mcpServers=[])),
        ("agent", chunk("go", kind="user_message_chunk")),
        ("agent", chunk("Done.")),
        ("agent", answer(3, {})),
    )
    assert violations(events + again) == []
    assert shape(again, "s#2") == [("user", "go", ""), ("text", "Done.", "")]


def test_the_end_of_the_connection_ends_turns_and_calls():
    timeline = opened()
    events = fed(timeline, ("client", PROMPT), ("agent", CALL))
    events += timeline.ended()
    assert shape(events)[-1] == ("call", "c", "failed")
    assert [each.event.outcome for each in events if each.event.outcome] == ["unknown_outcome"]
    assert events[-1].event.stop == "lost"
    assert timeline.requests == {}
    assert timeline.ended() == []


def test_closing_a_session_ends_its_calls_and_a_refused_one_stays():
    timeline = opened()
    close = request(3, "session/close", sessionId="s")
    events = fed(
        timeline, ("client", PROMPT), ("agent", CALL), ("client", close), ("agent", error(3, -32603))
    )
    assert "s" in timeline.sessions
    events += fed(timeline, ("client", close), ("agent", answer(3, {})))
    assert "s" not in timeline.sessions
    assert shape(events)[-1] == ("call", "c", "failed")


def test_a_second_prompt_that_is_refused_does_not_end_the_first():
    timeline = opened()
    events = fed(timeline, ("client", PROMPT), ("client", {**PROMPT, "id": 3}), ("agent", error(3, -32600)))
    assert violations(events) == [("s", "prompt_overlap")]
    assert timeline.sessions["s"].running
    ended = timeline.message("agent", answer(2, {"stopReason": "end_turn"}))
    assert ended[-1].event.stop == "end_turn"


@pytest.mark.parametrize(
    ("ended", "stop"),
    [(error(2, -32603, "broken"), "failed"), (answer(2, 7), "None"), (answer(2, {}), "None")],
)
def test_a_prompt_that_fails_ends_the_turn(ended, stop):
    timeline = opened()
    events = fed(timeline, ("client", PROMPT), ("agent", ended))
    assert events[-1].event.stop == stop
    assert not timeline.sessions["s"].running


def test_secrets_are_masked_by_name_and_in_environments():
    server = {
        "name": "s",
        "command": "c",
        "args": [],
        "env": [{"name": "HOME_KEY", "value": "very"}, {"name": "X", "value": "private"}],
    }
    message = request(
        1, "session/new", cwd="/", mcpServers=[server, {"headers": [{"name": "A", "value": "b"}]}]
    )
    message["params"]["_meta"] = {"api_key": "hidden", "number": 5}
    shown = masked_message(message)
    assert "very" not in str(shown)
    assert "private" not in str(shown)
    assert "hidden" not in str(shown)
    assert shown["params"]["_meta"]["number"] == 5  # type: ignore[index, call-overload]
    assert masked_message(shown) == shown
