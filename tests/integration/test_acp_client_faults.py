"""The ACP client with agents that break the protocol: what they do is reported and survived.

The messages that the client sends are checked against the official schema (`acp_agents.driving`).
"""

from __future__ import annotations

import asyncio
import json
import sys

import pytest

from acp_agents import FAULTY_AGENT, Dialogue, driving, ends, text_of
from toolcrib import ConfigurationError, ToolPolicy
from toolcrib.acp import Agent, AgentFailure

COMMAND = (sys.executable, str(FAULTY_AGENT))


def codes(agent):
    return [problem.code for problem in agent.problems]


async def test_lines_that_are_no_messages_are_reported_with_their_numbers():
    async with driving(*COMMAND) as agent:
        dialogue = Dialogue(agent)
        segments, result = await dialogue.say("garbage")
        assert result.ok
        assert segments[0].text == "garbage"
        messages = dialogue.violations
    # The answers to `initialize` and `session/new`, and an update, came before. The blank line counts.
    assert [message.partition(" is no")[0] for message in messages] == [
        f"line {number} of the agent" for number in (4, 6, 7, 8)
    ]
    assert "a banner" in messages[0]
    assert "duplicate key" in messages[2]
    assert {*codes(agent)} == {"invalid_line"}


async def test_a_line_of_64_mib_is_reported_and_survived():
    async with driving(*COMMAND) as agent:
        dialogue = Dialogue(agent)
        _segments, result = await dialogue.say(f"long {(64 << 20) + 1}")
        assert result.ok
        assert codes(agent) == ["invalid_line"]
        assert "longer than 64MiB" in dialogue.violations[0]
        # A line of just that length is read, though it is no message either.
        await dialogue.say(f"long {64 << 20}")
        assert "longer than" not in dialogue.violations[1]


async def test_answers_and_updates_that_belong_to_nothing():
    async with driving(*COMMAND) as agent:
        segments, result = await Dialogue(agent).say("strays")
        assert result.ok
    assert {
        "answer_without_request",
        "invalid_update",
        "unknown_call",
        "unknown_session",
    } <= {*codes(agent)}
    # The call is shown nevertheless.
    assert ends(segments)["ghost"][:2] == ("completed", "ok")
    assert "lost" not in text_of(segments)


async def test_of_two_prompts_at_once_the_second_is_refused_and_the_first_goes_on():
    async with driving(*COMMAND, cancel_timeout=0.2) as agent:
        first = agent.prompt("deaf")
        events = aiter(first)
        await anext(events)
        with pytest.raises(ConfigurationError) as refused:
            await Dialogue(agent).say("stop end_turn")
        assert refused.value.code == "turn_running"
        assert [event.type async for event in cancelled(first, events)][-1] == "turn_ended"


async def cancelled(turn, events):
    """The events of a turn that is cancelled at once."""
    await turn.cancel()
    async for event in events:
        yield event


async def test_an_agent_that_ignores_the_cancellation_is_ended_and_started_again():
    async with driving(*COMMAND, cancel_timeout=0.2) as agent:
        dialogue, turn = Dialogue(agent), agent.prompt("deaf")
        async for event in turn:
            dialogue.view.apply(event)
            if event.status == "running":
                await turn.cancel()
        assert turn.result.stop == "cancelled"
        assert codes(agent) == ["not_cancelled"]
        assert ends(dialogue.view.segments)["c"][:2] == ("failed", "unknown_outcome")
        _segments, result = await dialogue.say("stop end_turn")
        assert result.ok


async def test_a_turn_that_takes_too_long_is_cancelled():
    async with driving(*COMMAND, cancel_timeout=0.2) as agent:
        segments, result = await Dialogue(agent).say("deaf", timeout=0.5)
    assert (result.stop, result.failure["code"]) == ("timeout", "agent_timeout")
    assert ends(segments)["c"][0] == "failed"


async def test_an_iteration_that_is_left_cancels_the_turn():
    async with driving(*COMMAND, cancel_timeout=0.2) as agent:
        stream = aiter(agent.prompt("deaf"))
        async for _event in stream:
            break
        await stream.aclose()
        assert codes(agent) == ["not_cancelled"]
        turn = agent.prompt("stop end_turn")
        assert [event.type async for event in turn][-1] == "turn_ended"


@pytest.mark.parametrize(
    ("prompt", "stop", "code"),
    [
        ("stop max_tokens", "max_tokens", None),
        ("stop refusal", "refusal", None),
        ("stop perhaps", "failed", "invalid_response"),
        ("error it is broken", "failed", "agent_refused"),
    ],
)
async def test_how_a_turn_can_end(prompt, stop, code):
    async with driving(*COMMAND) as agent:
        _segments, result = await Dialogue(agent).say(prompt)
    assert (result.stop, result.failure.get("code")) == (stop, code)


@pytest.mark.parametrize(
    ("option", "code", "told"),
    [
        ("--silent", "agent_timeout", "did not answer `initialize` within 0.5 s"),
        ("--version 2", "unsupported_version", "speaks version 2"),
        ("--refuse-session", "authentication_needed", "Authentication required"),
    ],
)
async def test_an_agent_that_opens_no_session(option, code, told):
    with pytest.raises(AgentFailure) as failure:
        async with Agent([*COMMAND, *option.split()], start_timeout=0.5 if option == "--silent" else 60):
            pass
    assert (failure.value.code, told in failure.value.message) == (code, True)


async def test_a_program_that_is_no_agent():
    with pytest.raises(AgentFailure) as failure:
        async with Agent([sys.executable, "-c", "import sys; sys.exit('what is this?')"]):
            pass
    assert failure.value.code == "agent_ended"
    assert "exited with code 1" in failure.value.message
    assert "what is this?" in failure.value.message
    with pytest.raises(ConfigurationError) as missing:
        async with Agent(["no-such-agent"]):
            pass
    assert missing.value.code == "no_program"


# Permissions.

KINDS = "allow_always allow_once reject_always reject_once"


async def answer(options, approved=(), **more):
    """What an agent is answered to a question."""
    async with driving(*COMMAND, approved=approved, **more) as agent:
        segments, result = await Dialogue(agent).say(f"ask {options}")
        assert result.ok
        told = json.loads(text_of(segments))
    if "error" in told:
        return told["error"]["message"], codes(agent)
    outcome = told["result"]["outcome"]
    picked = (
        options.split()[int(outcome["optionId"][1:])] if outcome["outcome"] == "selected" else "cancelled"
    )
    return picked, codes(agent)


@pytest.mark.parametrize(
    ("options", "approved", "picked"),
    [
        (KINDS, ["execute"], "allow_once"),
        (KINDS, [], "reject_once"),
        ("allow_once reject_always", [], "reject_always"),
        # Nobody has permitted more than this call.
        ("allow_always reject_once", ["execute"], "reject_once"),
        ("allow_once allow_forever", ["execute"], "allow_once"),
    ],
)
async def test_the_selected_option_says_what_was_decided(options, approved, picked):
    assert (await answer(options, approved))[0] == picked


@pytest.mark.parametrize(
    ("options", "approved", "told"),
    [
        ("allow_once", [], "no user was available to ask"),
        ("allow_forever", ["execute"], "no option that allows it once"),
        ("", ["execute"], "no option that allows it once"),
    ],
)
async def test_a_denial_without_an_option_is_an_error_and_never_cancelled(options, approved, told):
    message, problems = await answer(options, approved)
    assert told in message
    assert problems == (["unknown_option"] if "forever" in options else [])


@pytest.mark.parametrize("choice", ["allow_always", "reject_once", None, "other"])
async def test_a_person_selects_an_option_of_the_agent(choice):
    asked = []

    async def ask(question):
        asked.append(question)
        if choice == "other":
            return question.options[0]._replace(id="made up")
        return next((option for option in question.options if option.kind == choice), None)

    picked, problems = await answer(f"{KINDS} allow_forever", ask=ask)
    assert picked == (choice if choice in {"allow_always", "reject_once"} else "reject_once")
    assert [option.kind for option in asked[0].options] == KINDS.split()
    assert (asked[0].call.title, asked[0].call.kind) == ("Work", "execute")
    assert problems == ["unknown_option"] * (2 if choice == "other" else 1)


async def test_an_open_question_of_a_cancelled_turn_is_answered_cancelled():
    asked = asyncio.Event()

    async def ask(_question):
        asked.set()
        await asyncio.Event().wait()

    sent = []
    async with driving(*COMMAND, ask=ask, observers=[sent.append]) as agent:
        turn = agent.prompt(f"ask {KINDS}")
        run = asyncio.ensure_future(collected(turn))
        await asked.wait()
        await turn.cancel()
        await run
    outcomes = [
        line.message["result"] for line in sent if line.direction == "out" and "result" in line.message
    ]
    assert outcomes == [{"outcome": {"outcome": "cancelled"}}]


async def collected(turn):
    return [event async for event in turn]


# Requests of the client's methods.


@pytest.mark.parametrize(
    ("method", "params", "told"),
    [
        ("fs/read_text_file", {"path": "notes.txt"}, "not an absolute path"),
        ("fs/read_text_file", {"path": "{root}/missing"}, "does not exist"),
        ("fs/read_text_file", {"path": "{root}"}, "is a folder"),
        ("fs/read_text_file", {"path": "{root}/binary"}, "is not text in UTF-8"),
        ("fs/read_text_file", {"path": "{root}/notes.txt", "line": 9}, "has only 2 lines"),
        ("fs/read_text_file", {"path": "{root}/notes.txt", "line": 0}, "`line` must be at least 1"),
        ("fs/read_text_file", {"path": 7}, "/path"),
        ("fs/write_text_file", {"path": "{root}/no/folder", "content": ""}, "does not exist"),
        ("fs/write_text_file", {"path": "{root}", "content": ""}, "is a folder"),
        ("terminal/create", {"command": "no-such-program"}, "does not exist"),
        ("terminal/create", {"command": "ls", "cwd": "/"}, "outside of the permitted folders"),
        ("terminal/output", {"terminalId": "terminal-9"}, "unknown terminal"),
        ("terminal/release", {"terminalId": "terminal-9"}, "unknown terminal"),
        ("elicitation/create", {}, "Method not found"),
        ("fs/readTextFile", {}, "did you mean `fs/read_text_file`"),
    ],
)
async def test_a_request_that_cannot_be_fulfilled_is_refused_with_its_reason(method, params, told, tmp_path):
    (tmp_path / "notes.txt").write_text("one\ntwo\n")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    named = {
        key: value.format(root=tmp_path) if isinstance(value, str) else value for key, value in params.items()
    }
    async with driving(*COMMAND, roots=[tmp_path]) as agent:
        segments, _result = await Dialogue(agent).say(
            f"request {method} {json.dumps({'sessionId': 'one', **named})}"
        )
    assert told in json.loads(text_of(segments))["error"]["message"]


async def test_methods_that_were_not_announced_and_sessions_that_are_unknown(tmp_path):
    async with driving(*COMMAND, roots=[tmp_path], writes=False, terminals=False) as agent:
        dialogue = Dialogue(agent)
        for method in ("fs/write_text_file", "terminal/create"):
            segments, _result = await dialogue.say(f"request {method} {{}}")
            assert "which this client has not announced" in text_of(segments)
        told = json.dumps({"sessionId": "two", "path": str(tmp_path / "x")})
        segments, _result = await dialogue.say(f"request fs/read_text_file {told}")
        assert "unknown session `two`" in text_of(segments)
    assert not (tmp_path / "x").exists()


async def test_rules_also_hold_for_requests_without_a_question(tmp_path):
    (tmp_path / "notes.txt").write_text("one\n")
    policy = ToolPolicy(deny=("read", "execute"))
    async with driving(*COMMAND, roots=[tmp_path], policy=policy) as agent:
        dialogue = Dialogue(agent)
        for method, params in (
            ("fs/read_text_file", {"path": f"{tmp_path}/notes.txt"}),
            ("terminal/create", {"command": "ls"}),
        ):
            segments, _result = await dialogue.say(
                f"request {method} {json.dumps({'sessionId': 'one', **params})}"
            )
            assert "refused: `deny` of the policy" in text_of(segments)


def test_a_policy_that_an_agent_cannot_follow_is_refused():
    with pytest.raises(ConfigurationError) as refused:
        Agent(["true"], policy=ToolPolicy(max_rounds=3))
    assert refused.value.code == "unsupported_policy"
    assert "`max_rounds`" in refused.value.message
