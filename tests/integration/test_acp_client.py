"""The ACP client, with an agent of the official Python SDK at the other end.

Every message that the client sends in these tests is checked against the official schema (`acp_agents.driving`).
"""

from __future__ import annotations

import sys

import pytest

from acp_agents import SDK_AGENT, Dialogue, driving, ends, text_of
from in_memory import runtime_of
from toolcrib import ConfigurationError, ToolPolicy
from toolcrib.acp import AgentFailure

TOOLS = """
name: get_order
input_schema: {type: object, properties: {id: {type: string}}}
mock: {result: {status: paid}}
---
name: refund_order
input_schema: {type: object}
mock: {result: refunded}
"""


async def test_a_turn_delivers_text_and_calls_in_order(tmp_path):
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    async with driving(roots=[tmp_path], approved=["read"]) as agent:
        segments, result = await Dialogue(agent).say(f"read {tmp_path}/a.txt")
    assert (result.stop, result.session, result.ok) == ("end_turn", agent.session, True)
    assert [segment.kind for segment in segments] == ["user", "text", "call"]
    assert text_of(segments) == "On it. "
    assert ends(segments) == {"call_1": ("completed", "ok", "one\ntwo\n")}
    assert agent.info == {"name": "sdk-agent", "version": "1"}
    assert [*agent.problems] == []


async def test_files_outside_of_the_roots_are_refused(tmp_path):
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "outside.txt").write_text("secret")
    (inside / "link.txt").symlink_to(tmp_path / "outside.txt")
    async with driving(roots=[inside], approved=["*"]) as agent:
        dialogue = Dialogue(agent)
        for path in (tmp_path / "outside.txt", inside / "link.txt"):
            for text in (f"read {path}", f"write {path} replaced"):
                segments, result = await dialogue.say(text)
                assert [end[:2] for end in ends(segments).values()] == [("failed", "tool_error")]
                assert result.ok
    assert (tmp_path / "outside.txt").read_text() == "secret"


async def test_a_command_runs_with_its_output_and_its_exit_code(tmp_path):
    async with driving(roots=[tmp_path]) as agent:
        segments, _result = await Dialogue(agent).say("run pwd; echo wrong >&2; exit 3")
    assert ends(segments) == {"call_1": ("failed", "tool_error", f"{tmp_path}\nwrong\nexit 3")}


async def test_a_cancelled_turn_ends_cancelled(tmp_path):
    async with driving(roots=[tmp_path]) as agent:
        turn = agent.prompt("hang")
        events = []
        async for event in turn:
            events.append(event)
            if event.status == "running":
                await turn.cancel()
        assert turn.result.stop == "cancelled"
        assert [event.status for event in events if event.id] == ["pending", "running", "failed"]
        assert events[-1].stop == "cancelled"
        dialogue = Dialogue(agent)
        for event in events:
            dialogue.view.apply(event)
        segments, result = await dialogue.say("say still here")
        assert (text_of(segments), result.stop) == ("On it. still here", "end_turn")


async def test_an_agent_that_dies_is_started_again(tmp_path):
    async with driving(roots=[tmp_path]) as agent:
        dialogue, first = Dialogue(agent), agent.session
        segments, result = await dialogue.say("die 3")
        assert (result.stop, result.failure["code"]) == ("lost", "agent_ended")
        assert "exited with code 3" in result.failure["message"]
        assert "the last words" in result.failure["message"]
        assert ends(segments) == {"call_1": ("failed", "unknown_outcome", "")}
        assert dialogue.view.stop == "lost"
        segments, result = await dialogue.say("say back")
        assert (text_of(segments), result.stop) == ("On it. back", "end_turn")
        assert agent.session != first
    assert [problem.code for problem in agent.problems] == ["session_lost"]


@pytest.mark.parametrize("option", ["", "--http"])
async def test_the_agent_uses_the_tools_of_the_runtime(option, tmp_path):
    command = [sys.executable, str(SDK_AGENT), *filter(None, [option])]
    policy = ToolPolicy(deny=("refund_*",))
    async with runtime_of(TOOLS, clock=None) as runtime:
        calls = []
        runtime.observe(calls.append)
        async with driving(*command, runtime=runtime, roots=[tmp_path], policy=policy) as agent:
            dialogue = Dialogue(agent)
            segments, _result = await dialogue.say('use get_order {"id": "7"}')
            assert text_of(segments) == "On it. get_order"
            assert ends(segments) == {"call_1": ("completed", "ok", '{"status":"paid"}')}
            segments, _result = await dialogue.say("use refund_order")
            assert ends(segments)["call_2"][:2] == ("failed", "tool_error")
    # The calls were made in this runtime; the agent is their user.
    assert [(each.call.tool.name, each.call.context.user) for each in calls if hasattr(each, "call")]


@pytest.mark.parametrize("option", ["--load", "--resume"])
async def test_an_agent_that_can_continue_its_session_does_so_after_its_death(option, tmp_path):
    async with driving(sys.executable, str(SDK_AGENT), option, roots=[tmp_path]) as agent:
        dialogue, first = Dialogue(agent), agent.session
        await dialogue.say("say one")
        await dialogue.say("die 1")
        # What the agent repeats is not told again, and the numbers of the events go on.
        segments, result = await dialogue.say("say two")
        assert result.ok, result
        assert [segment.text for segment in segments] == ["say two", "On it. two"]
        assert (agent.session, result.session) == (first, first)
        assert dialogue.view.segments[0].text == "say one"
        assert [*agent.problems] == []


async def test_an_earlier_session_is_continued(tmp_path):
    command = (sys.executable, str(SDK_AGENT), "--load")
    async with driving(*command, roots=[tmp_path]) as agent:
        await Dialogue(agent).say("say one")
        earlier = agent.session
    async with driving(*command, roots=[tmp_path]) as agent:
        own = agent.session
        history = await agent.resume(earlier)
        assert [(event.type, event.text) for event in history if event.text] == [
            ("user", "say one"),
            ("text", "On it. "),
        ]
        assert agent.session == earlier
        # Once more on the same connection.
        again = await agent.resume(earlier)
        assert [event.text for event in again] == [event.text for event in history]
        assert [event.seq for event in again] == [event.seq + len(history) for event in history]
        with pytest.raises(AgentFailure, match=r"refused `session/load`"):
            await agent.resume("nobody")
        assert agent.session == earlier
        turn = agent.prompt("say two")
        assert [event.type async for event in turn][-1] == "turn_ended"
        assert turn.result.ok
    assert own != earlier


async def test_an_agent_that_cannot_continue_sessions_says_so(tmp_path):
    async with driving(roots=[tmp_path]) as agent:
        with pytest.raises(ConfigurationError) as refused:
            await agent.resume("earlier")
    assert refused.value.code == "unsupported"


async def test_a_session_that_the_agent_has_lost_is_replaced(tmp_path):
    async with driving(sys.executable, str(SDK_AGENT), "--load", roots=[tmp_path]) as agent:
        dialogue, first = Dialogue(agent), agent.session
        await dialogue.say("die 1")
        (tmp_path / f"{first}.history").unlink()
        segments, result = await dialogue.say("say two")
        assert (text_of(segments), result.ok) == ("On it. two", True)
        assert agent.session != first
    assert [problem.code for problem in agent.problems] == ["session_lost"]
    assert "refused `session/load`" in agent.problems[0].message
