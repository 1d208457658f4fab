"""The ACP client, with an agent of the official Python SDK at the other end.

Every message that the client sends in these tests is checked against the official schema (`acp_agents.driving`).
"""

from __future__ import annotations

from acp_agents import driving, ends, texts
from toolcrib.provider import Stop


async def run(agent, text):
    """The updates of a turn, and its result."""
    turn = agent.prompt(text)
    return [update async for update in turn], turn.result


async def test_a_turn_delivers_text_and_calls_in_order(tmp_path):
    (tmp_path / "a.txt").write_text("one\ntwo\n")
    async with driving(roots=[tmp_path], approved=["read"]) as agent:
        updates, result = await run(agent, f"read {tmp_path}/a.txt")
    assert (result.stop, result.session) == (Stop.ANSWERED, agent.session)
    assert texts(updates) == ["On it. ", "one\ntwo\n"]
    assert ends(updates) == {"call_1": "completed"}
    assert agent.info == {"name": "sdk-agent", "version": "1"}
    assert [*agent.problems] == []


async def test_files_outside_of_the_roots_are_refused(tmp_path):
    inside = tmp_path / "inside"
    inside.mkdir()
    (tmp_path / "outside.txt").write_text("secret")
    (inside / "link.txt").symlink_to(tmp_path / "outside.txt")
    async with driving(roots=[inside], approved=["*"]) as agent:
        for path in (tmp_path / "outside.txt", inside / "link.txt"):
            for text in (f"read {path}", f"write {path} replaced"):
                updates, result = await run(agent, text)
                assert ends(updates)[[*ends(updates)][-1]] == "failed"
                assert result.stop is Stop.ANSWERED
    assert (tmp_path / "outside.txt").read_text() == "secret"


async def test_a_command_runs_with_its_output_and_its_exit_code(tmp_path):
    async with driving(roots=[tmp_path]) as agent:
        updates, _result = await run(agent, "run pwd; echo wrong >&2; exit 3")
    assert updates[-1]["rawOutput"] == {"code": 3, "signal": None, "output": f"{tmp_path}\nwrong\n"}


async def test_a_cancelled_turn_ends_cancelled(tmp_path):
    async with driving(roots=[tmp_path]) as agent:
        turn = agent.prompt("hang")
        async for update in turn:
            if update.get("status") == "in_progress":
                await turn.cancel()
        assert turn.result.stop is Stop.CANCELLED
        updates, result = await run(agent, "say still here")
        assert (texts(updates), result.stop) == (["On it. ", "still here"], Stop.ANSWERED)


async def test_an_agent_that_dies_is_started_again(tmp_path):
    async with driving(roots=[tmp_path]) as agent:
        first = agent.session
        _updates, result = await run(agent, "die 3")
        assert (result.stop, result.failure["code"]) == (Stop.PROVIDER_FAILED, "agent_ended")
        assert "exited with code 3" in result.failure["message"]
        assert "the last words" in result.failure["message"]
        updates, result = await run(agent, "say back")
        assert (texts(updates), result.stop) == (["On it. ", "back"], Stop.ANSWERED)
        assert agent.session != first
    assert [problem.code for problem in agent.problems] == ["session_lost"]
