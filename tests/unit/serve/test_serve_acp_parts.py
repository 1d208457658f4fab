"""Parts of the ACP agent: what is new in the output of a terminal, and events as updates."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from toolcrib.provider import Timeline
from toolcrib.serve.acp.editor_tools import BackgroundCommand
from toolcrib.serve.acp.updates import UpdateWriter

PIECES = st.lists(st.text("ab\n", max_size=5), max_size=8)


@given(PIECES)
def test_output_is_neither_lost_nor_doubled(pieces):
    command, whole = BackgroundCommand("terminal"), ""
    for piece in pieces:
        whole += piece
        command.add(whole)
    assert (command.text, command.begin, command.end) == (whole, 0, len(whole))


@given(st.lists(st.integers(0, 6), max_size=12), st.integers(6, 20))
def test_output_whose_beginning_the_terminal_cuts_off_is_continued(sizes, limit):
    # Every character occurs once, so that there is only one way to continue.
    command, whole = BackgroundCommand("terminal"), ""
    for size in sizes:
        whole += "".join(chr(0x4E00 + len(whole) + at) for at in range(size))
        command.add(whole[-limit:])
    assert command.text == whole


CHANGES = st.one_of(
    st.tuples(st.just("text"), st.text("ab", max_size=3)),
    st.tuples(st.just("reasoning"), st.text("ab", max_size=3)),
    st.tuples(st.sampled_from("xyz"), st.sampled_from(["", "running", "waiting", "completed", "failed"])),
)


@given(st.lists(CHANGES, max_size=20))
def test_updates_keep_the_order_and_lose_nothing(changes):
    timeline, writer = Timeline(), UpdateWriter(lambda _tool: None, "/")
    events = []
    for what, said in changes:
        if what == "text":
            events += timeline.text(said)
        elif what == "reasoning":
            events += timeline.reasoning(said)
        else:
            events += timeline.call_updated(what, said, tool="tool", text=said)
    events += timeline.turn_ended("answered")
    updates = [update for event in events if (update := writer.of(event)) is not None]
    for kind, name in (("agent_message_chunk", "text"), ("agent_thought_chunk", "reasoning")):
        told = "".join(each["content"]["text"] for each in updates if each["sessionUpdate"] == kind)
        assert told == "".join(said for what, said in changes if what == name)
    of_call = {}
    for update in updates:
        if "toolCallId" in update:
            of_call.setdefault(update["toolCallId"], []).append(update)
    assert of_call.keys() == {what for what, _said in changes if what in "xyz"}
    ranks = {"pending": 0, "in_progress": 1, "completed": 2, "failed": 2}
    for first, *others in of_call.values():
        assert (first["sessionUpdate"], first["status"]) == ("tool_call", "pending")
        assert all(each["sessionUpdate"] == "tool_call_update" for each in others)
        statuses = [each["status"] for each in (first, *others) if "status" in each]
        assert [ranks[status] for status in statuses] == sorted({ranks[status] for status in statuses})
        # A turn leaves no call open.
        assert ranks[statuses[-1]] == 2
