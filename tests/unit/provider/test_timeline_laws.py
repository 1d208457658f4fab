"""What holds of every timeline, whatever happens in the conversation."""

from __future__ import annotations

import json
import random

from hypothesis import given, settings
from hypothesis import strategies as st

from sampling import examples
from toolcrib.provider.loop.timeline import RANKS, Event, Timeline, TimelinePosition, View

KINDS = ("user", "text", "reasoning")

PIECES = st.sampled_from(["", "a", "a", "ha", " ", "\n", "**B", "é\u2028", "{}"])
IDS = st.sampled_from(["c1", "c2", "c3", "c4"])
STATUSES = st.sampled_from(["", *RANKS])
ARGUMENTS = st.sampled_from([None, {}, {"a": 1}])

ACTIONS = st.lists(
    st.tuples(st.sampled_from(KINDS), PIECES)
    | st.tuples(st.just("call"), IDS, st.sampled_from(["", "read", "edit"]), ARGUMENTS)
    | st.tuples(st.just("call_updated"), IDS, STATUSES)
    | st.just(("message_ended",))
    | st.tuples(st.just("turn_ended"), st.sampled_from(["answered", "pending", "cancelled"])),
    max_size=40,
)

few = settings(max_examples=examples(200), deadline=None)


def done(timeline: Timeline, actions) -> list[Event]:
    return [event for name, *arguments in actions for event in getattr(timeline, name)(*arguments)]


def viewed(events) -> View:
    view = View()
    for event in events:
        view.apply(event)
    return view


def in_order(actions) -> tuple[list[tuple[str, str]], list[str]]:
    """What a conversation comes to, told another way: stretches of text, each between two others, and calls at their first mention."""
    order: list[tuple[str, str]] = []
    begun: list[str] = []
    going_on = False
    for name, *rest in actions:
        if name.endswith("ended"):
            going_on = False
        elif name.startswith("call"):
            if rest[0] not in begun:
                begun.append(rest[0])
                order.append(("call", rest[0]))
                going_on = False
        elif name == "user":
            order.append((name, rest[0]))
            going_on = False
        elif rest[0]:
            if going_on and order[-1][0] == name:
                order[-1] = (name, order[-1][1] + rest[0])
            else:
                order.append((name, rest[0]))
            going_on = True
    return order, begun


@few
@given(ACTIONS)
def test_nothing_is_lost_merged_or_said_twice_and_all_stands_in_order(actions):
    segments = viewed(done(Timeline(), actions)).segments
    for kind in KINDS:
        said = "".join(rest[0] for name, *rest in actions if name == kind)
        assert "".join(each.text for each in segments if each.kind == kind) == said
    order, begun = in_order(actions)
    assert [(each.kind, each.id or each.text) for each in segments] == order
    assert [each.id for each in segments if each.kind == "call"] == begun
    assert [each.number for each in segments] == [*range(1, len(segments) + 1)]


@few
@given(ACTIONS)
def test_events_are_numbered_without_a_gap_and_segments_begin_in_order(actions):
    events = done(Timeline(), actions)
    assert [event.seq for event in events] == [*range(1, len(events) + 1)]
    first = list(dict.fromkeys(event.segment for event in events if event.segment))
    assert first == [*range(1, len(first) + 1)]


@few
@given(ACTIONS)
def test_the_status_of_a_call_goes_on_alone(actions):
    now: dict[str, str] = {}
    for event in done(Timeline(), actions):
        if event.status:
            before = now.get(event.id, "pending")
            assert RANKS[event.status] >= RANKS[before]
            assert RANKS[before] < 2
            now[event.id] = event.status


@few
@given(ACTIONS, st.sampled_from(["answered", "pending", "cancelled"]))
def test_after_a_turn_nothing_is_open(actions, stop):
    timeline = Timeline()
    view = viewed([*done(timeline, actions), *timeline.turn_ended(stop)])
    assert not any(each.open for each in view.segments)
    assert view.stop == stop
    waiting = [each for each in view.segments if each.status == "waiting"]
    assert not waiting or stop == "pending"


@few
@given(ACTIONS, st.randoms(use_true_random=False), st.data())
def test_a_view_is_the_same_however_often_and_in_which_order_events_come(
    actions, chance: random.Random, data
):
    events = done(Timeline(), actions)
    wanted = viewed(events)
    again = data.draw(st.lists(st.sampled_from(events), max_size=20)) if events else []
    shuffled = [*events, *again]
    chance.shuffle(shuffled)
    view = View()
    taken = [view.apply(event) for event in shuffled]
    assert sum(taken) == len(events)
    assert (view.segments, view.seq, view.stop, view.missing) == (
        wanted.segments,
        wanted.seq,
        wanted.stop,
        None,
    )
    for event in events:
        assert not view.apply(event)
    assert view.as_json() == wanted.as_json()


@few
@given(ACTIONS, st.integers(0, 60))
def test_a_stream_is_resumed_after_any_event_through_json(actions, after):
    events = done(Timeline(), actions)
    told = [Event.parse(json.loads(json.dumps(event.as_json()))) for event in events]
    assert told == events
    early = viewed(told[:after])
    view = View.parse(json.loads(json.dumps(early.as_json())))
    assert [view.apply(event) for event in told[max(0, after - 3) :]].count(True) == len(events[after:])
    assert view.segments == viewed(events).segments


@few
@given(ACTIONS, ACTIONS)
def test_a_timeline_that_goes_on_elsewhere_follows_the_first(first, second):
    here = Timeline()
    begun = [*done(here, first), *here.turn_ended("pending")]
    elsewhere = Timeline(TimelinePosition.parse(json.loads(json.dumps(here.place.as_json()))))
    whole = viewed([*begun, *done(elsewhere, second)])
    assert whole.segments == viewed([*begun, *done(here, second)]).segments
