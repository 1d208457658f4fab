"""What happens in a conversation as events, and what a front end sees of them: examples."""

from __future__ import annotations

import json

import pytest

from toolcrib import ConfigurationError, Outcome
from toolcrib.provider.loop.timeline import MOST_HELD, Event, Timeline, TimelinePosition, View


def viewed(events) -> View:
    view = View()
    assert all(view.apply(event) for event in events)
    return view


def shown(view: View) -> list[tuple[str, str]]:
    """Kind and text of each segment; of a call its id and status."""
    return [
        (each.kind, f"{each.id} {each.status}" if each.kind == "call" else each.text)
        for each in view.segments
    ]


def ten_steps(timeline: Timeline) -> list[Event]:
    """Prompt, answer that streams, a call in the middle that reaches the client and comes back, more text, another call."""
    return [
        *timeline.user("Fix the bug in main.py"),
        *timeline.reasoning("I should read "),
        *timeline.reasoning("the file."),
        *timeline.text("Let me look "),
        *timeline.text("at it."),
        *timeline.call("c1", "read", {"path": "main.py"}),
        *timeline.call_updated("c1", "running"),
        *timeline.call_updated("c1", "completed", outcome=Outcome.OK, text="42 lines"),
        *timeline.text("Found it. "),
        *timeline.text("I change it."),
        *timeline.call("c2", "edit", {"path": "main.py"}),
        *timeline.call_updated("c2", "failed", outcome=Outcome.DENIED, text="not allowed"),
        *timeline.text("That was not allowed."),
        *timeline.turn_ended("answered"),
    ]


def test_text_and_calls_stand_in_their_true_order():
    view = viewed(ten_steps(Timeline()))
    assert shown(view) == [
        ("user", "Fix the bug in main.py"),
        ("reasoning", "I should read the file."),
        ("text", "Let me look at it."),
        ("call", "c1 completed"),
        ("text", "Found it. I change it."),
        ("call", "c2 failed"),
        ("text", "That was not allowed."),
    ]
    assert [each.number for each in view.segments] == [1, 2, 3, 4, 5, 6, 7]
    assert not any(each.open for each in view.segments)
    assert view.stop == "answered"


def test_one_message_with_all_calls_behind_it_does_not_come_out():
    kinds = [each.kind for each in viewed(ten_steps(Timeline())).segments]
    merged = ["user", "reasoning", "text", "call", "call"]
    assert kinds != merged
    assert kinds == ["user", "reasoning", "text", "call", "text", "call", "text"]


def test_a_call_closes_what_is_open_and_its_updates_close_nothing():
    timeline = Timeline()
    timeline.call("c1", "slow", {})
    opened = timeline.text("Meanwhile ")
    assert [event.type for event in timeline.call_updated("c1", "running")] == ["call_updated"]
    (more,) = timeline.text("I go on.")
    assert more.segment == opened[0].segment
    closed, begun = timeline.call("c2", "other", {})
    assert (closed.type, closed.segment) == ("closed", opened[0].segment)
    assert (begun.type, begun.segment, begun.status) == ("call", opened[0].segment + 1, "pending")


def test_text_of_another_kind_is_another_segment():
    timeline = Timeline()
    events = [*timeline.text("a"), *timeline.reasoning("b"), *timeline.text("c")]
    assert shown(viewed(events)) == [("text", "a"), ("reasoning", "b"), ("text", "c")]


def test_text_of_another_message_is_another_segment():
    timeline = Timeline()
    events = [
        *timeline.call("c1", "slow", {}),
        *timeline.text("Meanwhile I wait."),
        *timeline.message_ended(),
        *timeline.call_updated("c1", "completed", outcome="ok"),
        *timeline.text("It is 42."),
    ]
    assert shown(viewed(events)) == [
        ("call", "c1 completed"),
        ("text", "Meanwhile I wait."),
        ("text", "It is 42."),
    ]
    assert Timeline().message_ended() == []


def test_pieces_that_are_equal_are_all_kept():
    timeline = Timeline()
    events = [event for piece in ("ha", "ha", " ", " ", "ha") for event in timeline.text(piece)]
    assert shown(viewed(events)) == [("text", "haha  ha")]


def test_an_empty_piece_is_nothing():
    timeline = Timeline()
    assert timeline.text("") == []
    assert timeline.reasoning("") == []
    assert [event.text for event in timeline.user("")] == [""]


def test_an_update_that_is_seen_first_begins_the_call():
    timeline = Timeline()
    events = [
        *timeline.text("Look: "),
        *timeline.call_updated("c1", "running", text="10 %"),
        *timeline.text("Done."),
        *timeline.call("c1", "late", {"n": 1}),
    ]
    assert [event.type for event in events] == [
        "text",
        "closed",
        "call",
        "call_updated",
        "text",
        "call_updated",
    ]
    call = viewed(events).segments[1]
    assert (call.tool, call.arguments, call.status, call.text) == ("late", {"n": 1}, "running", "10 %")


def test_tool_and_arguments_may_come_later_than_the_call():
    timeline = Timeline()
    events = [*timeline.call("c1"), *timeline.call("c1", "pay"), *timeline.call("c1", "pay", {})]
    assert [(event.type, event.tool, event.arguments) for event in events] == [
        ("call", "", None),
        ("call_updated", "pay", None),
        ("call_updated", "", {}),
    ]
    assert timeline.call("c1", "pay", {}) == []


@pytest.mark.parametrize(
    ("before", "then", "after"),
    [
        ("pending", "running", "running"),
        ("pending", "completed", "completed"),
        ("running", "pending", "running"),
        ("running", "waiting", "waiting"),
        ("waiting", "running", "running"),
        ("waiting", "pending", "waiting"),
        ("completed", "running", "completed"),
        ("completed", "failed", "completed"),
        ("failed", "completed", "failed"),
    ],
)
def test_the_status_of_a_call_never_goes_back(before, then, after):
    timeline = Timeline()
    events = [
        *timeline.call("c1", "t"),
        *timeline.call_updated("c1", before),
        *timeline.call_updated("c1", then),
    ]
    assert viewed(events).segments[0].status == after


def test_nothing_happens_to_a_call_that_is_over():
    timeline = Timeline()
    timeline.call_updated("c1", "completed", outcome="ok", text="42")
    assert timeline.call_updated("c1", "failed", outcome="timeout", text="late") == []
    assert timeline.call("c1", "other", {"a": 1}) == []


def test_what_an_update_says_besides_a_status_that_is_past_is_kept():
    timeline = Timeline()
    timeline.call_updated("c1", "running")
    (event,) = timeline.call_updated("c1", "pending", text="half")
    assert (event.status, event.text) == ("", "half")


def test_a_status_that_is_none_is_told():
    with pytest.raises(ConfigurationError, match="unknown status `done`") as error:
        Timeline().call_updated("c1", "done")
    assert "completed" in error.value.hint


def test_the_end_of_a_turn_leaves_nothing_open():
    timeline = Timeline()
    events = [
        *timeline.call("c1", "slow", {}),
        *timeline.call_updated("c2", "running"),
        *timeline.call_updated("c3", "waiting"),
        *timeline.text("half a sen"),
        *timeline.turn_ended("cancelled"),
    ]
    view = viewed(events)
    assert shown(view) == [
        ("call", "c1 failed"),
        ("call", "c2 failed"),
        ("call", "c3 failed"),
        ("text", "half a sen"),
    ]
    assert {each.outcome for each in view.segments[:3]} == {"cancelled"}
    assert not any(each.open for each in view.segments)
    assert timeline.turn_ended("cancelled") == []


def test_calls_that_wait_go_on_waiting_and_end_in_a_later_turn_elsewhere():
    timeline = Timeline()
    view = viewed(
        [
            *timeline.call("c1", "pay", {}),
            *timeline.call_updated("c1", "waiting"),
            *timeline.turn_ended("pending"),
        ]
    )
    assert (view.segments[0].status, view.segments[0].open, view.stop) == ("waiting", False, "pending")
    elsewhere = Timeline(TimelinePosition.parse(json.loads(json.dumps(timeline.place.as_json()))))
    later = [
        *elsewhere.call_updated("c1", "running"),
        *elsewhere.call_updated("c1", "completed", outcome="ok"),
        *elsewhere.text("Paid."),
        *elsewhere.turn_ended("answered"),
    ]
    assert all(view.apply(event) for event in later)
    assert shown(view) == [("call", "c1 completed"), ("text", "Paid.")]
    assert (view.missing, view.stop) == (None, "answered")


def test_a_turn_is_under_way_as_soon_as_something_happens():
    timeline = Timeline()
    view = viewed([*timeline.user("a"), *timeline.turn_ended("answered")])
    assert view.stop == "answered"
    for event in timeline.user("b"):
        view.apply(event)
    assert view.stop == ""


def test_a_gap_is_noticed_and_closed():
    events = ten_steps(Timeline())
    view = View()
    for event in (*events[:3], *events[5:7], events[9]):
        assert view.apply(event)
    assert (view.seq, view.missing) == (3, (4, 5))
    assert [each.kind for each in view.segments] == ["user", "reasoning"]
    assert not view.apply(events[6])
    view.apply(events[3])
    assert view.missing == (5, 5)
    view.apply(events[4])
    assert view.missing == (8, 9)
    for event in events:
        view.apply(event)
    assert view.missing is None
    assert view.segments == viewed(events).segments


def test_no_more_events_are_held_than_a_view_can_ask_for_again():
    timeline = Timeline()
    events = [event for number in range(MOST_HELD + 50) for event in timeline.text(f"{number} ")]
    view = View()
    taken = [view.apply(event) for event in events[1:]]
    assert taken == [True] * MOST_HELD + [False] * 49
    assert (view.seq, view.missing) == (0, (1, 1))
    assert view.apply(events[0])
    assert (view.seq, view.missing) == (MOST_HELD + 1, (MOST_HELD + 2, MOST_HELD + 50))
    assert all(view.apply(event) for event in events[MOST_HELD + 1 :])
    assert view.missing is None
    assert view.segments == viewed(events).segments


def test_text_that_grows_is_the_same_whenever_it_is_looked_at():
    events = ten_steps(Timeline())
    watched, unwatched = View(), View()
    for event in events:
        assert watched.apply(event)
        assert unwatched.apply(event)
        assert View.parse(watched.as_json()).segments == watched.segments
    assert unwatched.as_json() == watched.as_json()


def test_a_view_goes_on_from_where_it_was_saved():
    events = ten_steps(Timeline())
    view = viewed(events[:8])
    saved = View.parse(json.loads(json.dumps(view.as_json())))
    assert saved.segments == view.segments
    for event in events:
        assert saved.apply(event) == (event.seq > 8)
    assert saved.as_json() == viewed(events).as_json()


def test_an_event_of_another_timeline_is_refused_and_changes_nothing():
    view = viewed(ten_steps(Timeline())[:4])
    before = view.as_json()
    for event in (
        Event(5, "text", 9, "far"),
        Event(5, "text", 2, "closed"),
        Event(5, "text", 1, "not mine"),
        Event(5, "closed", 1),
        Event(5, "call_updated", 2, id="c1"),
        Event(5, "closed", 4),
    ):
        with pytest.raises(
            ConfigurationError, match=f"cannot be applied to segment {event.segment}"
        ) as error:
            view.apply(event)
        assert error.value.code == "invalid_event"
        assert view.as_json() == before
        assert view.missing is None


def test_the_json_form_says_what_its_type_has():
    assert [event.as_json() for event in ten_steps(Timeline())[5:11]] == [
        {"seq": 6, "type": "text", "segment": 3, "text": "at it."},
        {"seq": 7, "type": "closed", "segment": 3},
        {"seq": 8, "type": "call", "segment": 4, "id": "c1", "tool": "read", "arguments": {"path": "main.py"}, "status": "pending"},
        {"seq": 9, "type": "call_updated", "segment": 4, "id": "c1", "status": "running"},
        {"seq": 10, "type": "call_updated", "segment": 4, "id": "c1", "text": "42 lines", "status": "completed", "outcome": "ok"},
        {"seq": 11, "type": "text", "segment": 5, "text": "Found it. "},
    ]  # fmt: skip
    assert ten_steps(Timeline())[-1].as_json() == {"seq": 18, "type": "turn_ended", "stop": "answered"}


def test_an_event_is_a_message_of_an_event_stream():
    (event,) = Timeline().text("Two\nlines: é")
    assert event.as_sse() == (
        'id: 1\nevent: text\ndata: {"seq":1,"type":"text","segment":1,"text":"Two\\nlines: é"}\n\n'
    )


@pytest.mark.parametrize(
    ("value", "why"),
    [
        ([], "expected an object, got `list`"),
        ({"seq": 1}, "unknown type None"),
        ({"seq": 1, "type": "txt", "segment": 1}, "did you mean `text`"),
        ({"seq": 1, "type": "text", "segment": 1, "status": "running"}, "unknown key `status` of `text`"),
        ({"seq": 1, "type": "text", "segment": 1, "txet": ""}, "did you mean `text`"),
        ({"seq": "1", "type": "text", "segment": 1}, "`seq`: expected `int`, got `str`"),
        ({"seq": True, "type": "text", "segment": 1}, "`seq`: expected `int`, got `bool`"),
        ({"seq": 0, "type": "text", "segment": 1}, "`seq` must be at least 1"),
        ({"seq": 1, "type": "text"}, "`segment` must be at least 1"),
        (
            {"seq": 1, "type": "call_updated", "segment": 1, "id": "c", "status": "done"},
            "unknown status `done`",
        ),
        (
            {"seq": 1, "type": "call", "segment": 1, "id": "c", "arguments": []},
            "`arguments`: expected `dict`, got `list`",
        ),
    ],
)
def test_what_is_no_event_is_told(value, why):
    with pytest.raises(ConfigurationError) as error:
        Event.parse(value)
    assert why in str(error.value)
    assert error.value.code == "invalid_event"


@pytest.mark.parametrize(
    "value",
    [{}, {"seq": 1, "stop": "", "segments": [{"nubmer": 1}]}, {"seq": "x", "stop": "", "segments": []}],
)
def test_what_is_no_view_is_told(value):
    with pytest.raises(ConfigurationError, match="invalid timeline view") as error:
        View.parse(value)
    assert error.value.code == "invalid_view"


@pytest.mark.parametrize("value", [{}, {"seq": 1, "segments": 1, "calls": {"a": [1, "done"]}}])
def test_what_is_no_place_is_told(value):
    with pytest.raises((KeyError, ValueError)):
        TimelinePosition.parse(value)
