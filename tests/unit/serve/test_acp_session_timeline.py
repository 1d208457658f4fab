"""The events of a session, from the updates of agents that keep to the protocol and of those that do not."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sampling import examples
from toolcrib.core.model import Outcome
from toolcrib.provider import Event, View
from toolcrib.provider.loop.timeline import RANKS
from toolcrib.serve.acp.session_timeline import STATUSES, SessionTimeline

few = settings(max_examples=examples(200), deadline=None)


def chunk(text: str, kind: str = "agent_message_chunk", message: str | None = None) -> dict[str, Any]:
    update: dict[str, Any] = {"sessionUpdate": kind, "content": {"type": "text", "text": text}}
    return update if message is None else {**update, "messageId": message}


def call(id_: str, **members: Any) -> dict[str, Any]:
    return {"sessionUpdate": "tool_call", "toolCallId": id_, "title": id_, **members}


def changed(id_: str, **members: Any) -> dict[str, Any]:
    return {"sessionUpdate": "tool_call_update", "toolCallId": id_, **members}


def text_content(text: str) -> dict[str, Any]:
    return {"type": "content", "content": {"type": "text", "text": text}}


def viewed(events: list[Event]) -> View:
    view = View()
    for event in events:
        view.apply(event)
    return view


def turn_of(*updates: Any, stop: str = "end_turn") -> list[Event]:
    timeline = SessionTimeline()
    events = timeline.prompt([{"type": "text", "text": "go"}])
    for update in updates:
        events += timeline.update(update)
    return [*events, *timeline.stopped(stop)]


def violations(events: list[Event]) -> list[tuple[str, str]]:
    return [(str((each.details or {})["code"]), each.id) for each in events if each.type == "violation"]


def shape(events: list[Event]) -> list[tuple[str, str]]:
    return [(each.kind, each.id or each.text) for each in viewed(events).segments]


def test_text_calls_and_later_text_stay_in_the_order_in_which_they_were_sent():
    # Merged by kind, this conversation would be one message followed by all calls.
    events = turn_of(
        chunk("I read "),
        chunk("the file."),
        call("1", kind="read", status="pending"),
        changed("1", status="in_progress"),
        changed("1", status="completed", content=[text_content("x = 1")]),
        chunk("Now I edit it."),
        call("2", kind="edit", status="pending"),
        changed("2", status="completed"),
        chunk("Done."),
        chunk("Done."),
    )
    assert shape(events) == [
        ("user", "go"),
        ("text", "I read the file."),
        ("call", "1"),
        ("text", "Now I edit it."),
        ("call", "2"),
        ("text", "Done.Done."),
    ]
    assert violations(events) == []
    read = viewed(events).segments[2]
    assert (read.status, read.outcome, read.text) == ("completed", "ok", "x = 1")
    assert read.details == {"title": "1", "kind": "read"}


def test_every_kind_of_update_becomes_an_event():
    diff = {"type": "diff", "path": "/a", "oldText": "1", "newText": "2"}
    image = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
    events = turn_of(
        chunk("hm", "agent_thought_chunk"),
        {
            "sessionUpdate": "plan",
            "entries": [{"content": "a", "priority": "low", "status": "pending"}],
        },
        call(
            "1", kind="edit", status="in_progress", locations=[{"path": "/a", "line": 3}], rawInput={"p": 1}
        ),
        changed("1", content=[diff, {"type": "terminal", "terminalId": "t"}, text_content("ok")]),
        changed("1", status="completed", rawOutput=5),
        {
            "sessionUpdate": "plan",
            "entries": [{"content": "a", "priority": "low", "status": "completed"}],
        },
        {"sessionUpdate": "agent_message_chunk", "content": image},
        {"sessionUpdate": "current_mode_update", "currentModeId": "ask"},
        {"sessionUpdate": "available_commands_update", "availableCommands": [{"name": "web"}]},
        {"sessionUpdate": "config_option_update", "configOptions": []},
        {"sessionUpdate": "session_info_update", "title": "A title"},
        {"sessionUpdate": "usage_update", "used": 5, "size": 10},
    )
    assert violations(events) == []
    view = viewed(events)
    assert [each.kind for each in view.segments] == ["user", "reasoning", "plan", "call", "content"]
    _user, _thought, plan, edit, content = view.segments
    assert plan.details == {"entries": [{"content": "a", "priority": "low", "status": "completed"}]}
    assert edit.arguments == {"p": 1}
    assert edit.details == {
        "title": "1",
        "kind": "edit",
        "locations": [{"path": "/a", "line": 3}],
        "content": [diff, {"type": "terminal", "terminalId": "t"}, text_content("ok")],
        "rawOutput": 5,
    }
    assert edit.text == "ok"
    assert content.text == "[image: image/png, 2 bytes]"
    assert content.details == {"role": "text", "block": image}
    assert view.session == {
        "mode": "ask",
        "commands": [{"name": "web"}],
        "options": [],
        "info": {"title": "A title"},
        "usage": {"used": 5, "size": 10},
    }
    assert View.parse(view.as_json()).as_json() == view.as_json()
    # The events survive their own wire format, and a front end that gets them twice.
    assert [Event.parse(json.loads(json.dumps(each.as_json()))) for each in events] == events
    assert viewed([*events, *events]).as_json() == view.as_json()


@pytest.mark.parametrize(
    ("updates", "found"),
    [
        ([changed("1", status="completed")], [("unknown_call", "1")]),
        ([call("1", status="completed"), call("1", status="completed")], [("call_reused", "1")]),
        ([call("1"), call("1", status="failed")], [("call_repeated", "1")]),
        (
            [call("1", status="in_progress"), changed("1", status="pending"), changed("1", status="failed")],
            [("status_went_back", "1")],
        ),
        ([call("1", status="completed"), changed("1", status="in_progress")], [("update_after_end", "1")]),
        (
            [call("1", status="completed"), changed("1", content=[text_content("late")])],
            [("update_after_end", "1")],
        ),
        ([call("1", status="done"), changed("1", status="failed")], [("unknown_status", "1")]),
        ([call("1", kind="dance", status="failed")], [("unknown_kind", "1")]),
        ([call("1", content={}, status="failed")], [("invalid_update", "1")]),
        ([call("1")], [("call_left_open", "1")]),
        ([{"sessionUpdate": "dance"}], [("unknown_update", "")]),
        ([{"sessionUpdate": "tool_call"}], [("invalid_update", "")]),
        ([{"sessionUpdate": "tool_call_update", "toolCallId": 5}], [("invalid_update", "")]),
        ([{"sessionUpdate": "plan"}], [("invalid_update", "")]),
        ([{"sessionUpdate": "agent_message_chunk"}], [("invalid_update", "")]),
        ([{"sessionUpdate": "current_mode_update"}], [("invalid_update", "")]),
        ([7], [("invalid_update", "")]),
        ([{}], [("invalid_update", "")]),
        # Repetitions and `_meta` after the end change nothing.
        ([call("1", status="completed"), changed("1", status="completed")], []),
        ([call("1", status="completed"), changed("1", _meta={"claudeCode": {"toolName": "Read"}})], []),
    ],
)
def test_what_is_against_the_protocol_is_reported_and_the_rest_is_used(updates, found):
    events = turn_of(*updates, chunk("still here"))
    assert violations(events) == found
    assert shape(events)[-1] == ("text", "still here")
    calls = [each for each in viewed(events).segments if each.kind == "call"]
    assert all(each.status in {"completed", "failed"} for each in calls)


def test_what_cannot_be_used_is_in_the_event():
    late = changed("1", content=[text_content("late")])
    events = turn_of(call("1", status="completed"), late, {"sessionUpdate": "dance", "steps": 3})
    kept = [(each.details or {}).get("update") for each in events if each.type == "violation"]
    assert kept == [late, {"sessionUpdate": "dance", "steps": 3}]


def test_an_id_that_is_used_again_is_another_call():
    timeline = SessionTimeline()
    events: list[Event] = []
    for _turn in range(3):
        events += timeline.prompt([{"type": "text", "text": "go"}])
        events += timeline.update(call("1", status="in_progress"))
        events += timeline.update(changed("1", status="completed", content=[text_content("r")]))
        events += timeline.stopped("end_turn")
    calls = [each for each in viewed(events).segments if each.kind == "call"]
    assert [(each.id, each.status, each.text) for each in calls] == [
        ("1", "completed", "r"),
        ("1#2", "completed", "r"),
        ("1#3", "completed", "r"),
    ]
    assert violations(events) == [("call_reused", "1")] * 2


def test_a_plan_belongs_to_its_turn():
    timeline = SessionTimeline()
    plan = {"sessionUpdate": "plan", "entries": []}
    events = [*timeline.prompt([]), *timeline.update(plan), *timeline.stopped("end_turn")]
    events += [*timeline.prompt([]), *timeline.update(plan), *timeline.stopped("end_turn")]
    assert [each.kind for each in viewed(events).segments] == ["user", "plan", "user", "plan"]


def test_messages_with_different_ids_are_different_segments():
    events = turn_of(chunk("a", message="m1"), chunk("b", message="m1"), chunk("c", message="m2"))
    assert shape(events) == [("user", "go"), ("text", "ab"), ("text", "c")]


def test_a_chunk_after_the_end_of_the_turn_is_reported_and_kept():
    timeline = SessionTimeline()
    events = [*timeline.prompt([]), *timeline.stopped("end_turn"), *timeline.update(chunk("late"))]
    events += timeline.update(call("1"))
    assert violations(events) == [("outside_turn", ""), ("outside_turn", "1")]
    assert shape(events)[1:] == [("text", "late"), ("call", "1")]


def test_a_question_makes_its_call_wait():
    timeline = SessionTimeline()
    timeline.prompt([])
    timeline.update(call("1"))
    asked = timeline.asked({"toolCallId": "1", "title": "Really?"})
    assert [each.status for each in asked if each.status] == ["waiting"]
    answered = timeline.answered("1", allowed=True)
    assert [each.status for each in answered] == ["running"]
    early = timeline.asked({"toolCallId": "2", "title": "Early"})
    assert violations(early) == [("permission_without_call", "2")]
    assert timeline.answered("2", allowed=False) == []
    assert timeline.answered("3", allowed=True) == []
    assert violations(timeline.asked(None)) == [("invalid_update", "")]
    assert timeline.open_calls == ("1", "2")


@pytest.mark.parametrize(
    ("end", "outcome", "found"),
    [
        (lambda timeline: timeline.lost(), Outcome.UNKNOWN_OUTCOME, []),
        (
            lambda timeline: timeline.failed("broken"),
            Outcome.UNKNOWN_OUTCOME,
            [("call_left_open", "1")],
        ),
        (
            lambda timeline: timeline.stopped("dance"),
            Outcome.UNKNOWN_OUTCOME,
            [("unknown_stop", ""), ("call_left_open", "1")],
        ),
        (lambda timeline: [*timeline.cancel(), *timeline.stopped("cancelled")], Outcome.CANCELLED, []),
        (
            lambda timeline: [*timeline.cancel(), *timeline.stopped("end_turn")],
            Outcome.CANCELLED,
            [("not_cancelled", "")],
        ),
        (
            lambda timeline: [*timeline.cancel(), *timeline.failed("broken")],
            Outcome.CANCELLED,
            [("not_cancelled", ""), ("call_left_open", "1")],
        ),
    ],
)
def test_a_call_that_is_open_at_the_end_fails(end, outcome, found):
    timeline = SessionTimeline()
    events = [*timeline.prompt([]), *timeline.update(call("1", status="in_progress"))]
    events += end(timeline)
    (left,) = [each for each in viewed(events).segments if each.kind == "call"]
    assert (left.status, left.outcome) == ("failed", outcome)
    assert violations(events) == found
    assert timeline.open_calls == ()
    assert timeline.lost() == []


def test_a_failed_call_has_the_outcome_that_its_agent_tells():
    events = turn_of(
        call("1", status="failed", rawOutput={"outcome": "denied", "message": "no"}),
        call("2", status="failed", rawOutput={"outcome": "dance"}),
    )
    calls = [each for each in viewed(events).segments if each.kind == "call"]
    assert [each.outcome for each in calls] == ["denied", "tool_error"]


def test_a_history_belongs_to_no_turn_and_its_open_calls_are_over():
    timeline = SessionTimeline()
    events = timeline.load()
    for update in (
        chunk("Fix ", "user_message_chunk"),
        chunk("it", "user_message_chunk"),
        chunk("Sure"),
        chunk("Next", "user_message_chunk"),
        call("1"),
    ):
        events += timeline.update(update)
    events += timeline.loaded()
    assert shape(events) == [("user", "Fix it"), ("text", "Sure"), ("user", "Next"), ("call", "1")]
    assert violations(events) == []
    assert viewed(events).segments[-1].outcome == "unknown_outcome"


def test_two_prompts_at_once_are_reported():
    timeline = SessionTimeline()
    events = [*timeline.prompt([]), *timeline.prompt([{"type": "resource_link", "name": "n", "uri": "u"}])]
    assert violations(events) == [("prompt_overlap", "")]
    assert shape(events)[-1] == ("content", "[n](u)")


# What holds of every sequence of updates.

IDS = st.sampled_from(["a", "b", "c"])
PIECES = st.sampled_from(["x", "x", "y", "\n", " ", "**B"])
STATUS = st.sampled_from([None, "pending", "in_progress", "completed", "failed", "done", 5])
CONTENT = st.sampled_from(
    [None, [], [text_content("r")], [{"type": "diff", "path": "/a", "newText": "n"}], {}, ["?"]]
)
CALLS = st.builds(
    lambda kind, id_, status, content: {
        "sessionUpdate": kind,
        "toolCallId": id_,
        **({} if status is None else {"status": status}),
        **({} if content is None else {"content": content}),
    },
    st.sampled_from(["tool_call", "tool_call_update"]),
    IDS | st.none(),
    STATUS,
    CONTENT,
)
CHUNKS = st.builds(
    chunk,
    PIECES,
    st.sampled_from(["agent_message_chunk", "agent_thought_chunk", "user_message_chunk"]),
    st.sampled_from([None, None, "m1", "m2"]),
)
OTHERS = st.sampled_from(
    [
        None,
        "?",
        {},
        {"sessionUpdate": "dance"},
        {"sessionUpdate": "plan", "entries": []},
        {"sessionUpdate": "plan"},
        {"sessionUpdate": "usage_update", "used": 1},
        {"sessionUpdate": "agent_message_chunk", "content": {"type": "image", "data": "aGk="}},
        {"sessionUpdate": "agent_message_chunk", "content": {"type": "text"}},
    ]
)
STEPS = st.lists(
    st.tuples(st.just("update"), CALLS | CHUNKS | OTHERS)
    | st.tuples(st.just("prompt"), st.just([{"type": "text", "text": "p"}]))
    | st.tuples(st.just("stopped"), st.sampled_from(["end_turn", "cancelled", "dance"]))
    | st.tuples(st.just("asked"), st.builds(changed, IDS) | st.none())
    | st.tuples(st.just("cancel"))
    | st.tuples(st.just("load"))
    | st.tuples(st.just("loaded")),
    max_size=40,
)


def done(steps: Any) -> list[Event]:
    timeline = SessionTimeline()
    events = [event for name, *given_ in steps for event in getattr(timeline, name)(*given_)]
    return [*events, *timeline.loaded(), *timeline.lost()]


def spoken(steps: Any, kind: str) -> str:
    return "".join(
        value[0]["content"]["text"]
        for name, *value in steps
        if name == "update"
        and isinstance(value[0], dict)
        and value[0].get("sessionUpdate") == kind
        and value[0]["content"].get("text")
    )


@few
@given(STEPS)
def test_no_text_is_lost_or_doubled_whatever_an_agent_sends(steps):
    segments = viewed(done(steps)).segments
    for kind, sent in (("text", "agent_message_chunk"), ("reasoning", "agent_thought_chunk")):
        assert "".join(each.text for each in segments if each.kind == kind) == spoken(steps, sent)
    said = "".join(
        "p" if name == "prompt" else spoken([(name, *given_)], "user_message_chunk")
        for name, *given_ in steps
    )
    assert "".join(each.text for each in segments if each.kind == "user") == said


@few
@given(STEPS)
def test_segments_stand_in_the_order_of_their_first_updates(steps):
    timeline, order = SessionTimeline(), []
    for name, *given_ in steps:
        before = {event.segment for event in order}
        for event in getattr(timeline, name)(*given_):
            assert event.segment == 0 or event.segment in before or event.segment > max(before, default=0)
            order.append(event)
            before.add(event.segment)
    assert [event.seq for event in order] == [*range(1, len(order) + 1)]


@few
@given(STEPS)
def test_every_call_begins_once_goes_on_and_ends(steps):
    events = done(steps)
    begun = [event.id for event in events if event.type == "call"]
    assert len(begun) == len({*begun})
    now = dict.fromkeys(begun, "pending")
    for event in events:
        if event.type == "call_updated" and event.status:
            assert RANKS[now[event.id]] < 2
            assert RANKS[event.status] >= RANKS[now[event.id]]
            now[event.id] = event.status
    assert {*now.values()} <= {"completed", "failed"}
    # Every ID that an agent reports has its call.
    sent = {
        value[0]["toolCallId"]
        for name, *value in steps
        if name == "update" and isinstance(value[0], dict) and value[0].get("toolCallId")
    }
    assert sent <= {*begun}


@few
@given(STEPS)
def test_replay_changes_nothing(steps):
    events = done(steps)
    # The same updates make the same events, and the same events in any amount make the same view.
    assert done(steps) == events
    view = viewed(events)
    assert viewed([*events, *events]).as_json() == view.as_json()
    sent = [json.loads(json.dumps(each.as_json())) for each in events]
    assert viewed([Event.parse(each) for each in sent]).as_json() == view.as_json()
    assert View.parse(json.loads(json.dumps(view.as_json()))).as_json() == view.as_json()


@few
@given(STEPS)
def test_an_agent_that_keeps_to_the_protocol_is_never_blamed(steps):
    timeline, events, status = SessionTimeline(), [], {}
    for name, *given_ in steps:
        update = given_[0] if given_ else None
        if name == "prompt" and not timeline.running and not timeline.loading:
            events += timeline.prompt(update)
        elif name == "update" and timeline.running and isinstance(update, dict) and "toolCallId" in update:
            id_, wanted = update["toolCallId"], update.get("status") or "pending"
            if wanted not in STATUSES or not isinstance(update.get("content", []), list) or not id_:
                continue
            kind = "tool_call_update" if id_ in status else "tool_call"
            if STATUSES[wanted][0] < STATUSES[status.get(id_, "pending")][0] or status.get(id_) in {
                "completed",
                "failed",
            }:
                continue
            status[id_] = wanted
            events += timeline.update({**update, "sessionUpdate": kind, "status": wanted})
        elif name == "stopped" and timeline.running:
            for id_ in timeline.open_calls:
                status[id_] = "failed"
                events += timeline.update(changed(id_, status="failed"))
            events += timeline.stopped("cancelled" if timeline.cancelled else "end_turn")
        elif name == "cancel":
            events += timeline.cancel()
    assert violations(events) == []
