"""`toolcrib agent run`: at a terminal, from a pipe, and as JSON lines, with an agent of the official Python SDK."""

from __future__ import annotations

import json
import signal
import subprocess
import sys

import pytest

from acp_agents import FAULTY_AGENT, SDK_AGENT
from commands import toolcrib_command

if sys.platform == "win32":
    pytest.skip("terminals are of another kind there", allow_module_level=True)

from chatting import Talk

AGENT = f"{sys.executable} {SDK_AGENT}"


@pytest.fixture
def talk(tmp_path):
    (tmp_path / "notes.txt").write_text("water the plants\n")
    empty = tmp_path / "nothing"
    empty.mkdir()
    return lambda *words: Talk(empty, tmp_path, "run", AGENT, *words, verb="agent")


def run(folder, *words, given=""):
    command = toolcrib_command("agent", "run", *words)
    return subprocess.run(
        command, cwd=folder, input=given, capture_output=True, text=True, check=False, timeout=120
    )


def test_a_person_decides_and_ctrl_c_cancels_the_turn(talk, tmp_path):
    with talk() as agent:
        agent.until("> ")
        agent.type(f"read {tmp_path}/notes.txt")
        shown = agent.until("or press Enter to reject: ")
        assert f"Read {tmp_path}/notes.txt (read)" in shown
        assert "1) Allow once" in shown
        agent.type("9")
        assert "`9` is none of them" in agent.until("or press Enter to reject: ")
        agent.type("1")
        assert "ok water the plants" in agent.until("\n> ")
        agent.type(f"read {tmp_path}/notes.txt")
        agent.until("or press Enter to reject: ")
        agent.type("")
        assert "tool_error rejected" in agent.until("\n> ")
        # A question that is open, and a call that runs.
        agent.type(f"read {tmp_path}/notes.txt")
        agent.until("or press Enter to reject: ")
        agent.signal()
        assert "the turn ended: cancelled" in agent.until("\n> ")
        agent.type("hang")
        agent.until("* Hang")
        agent.signal()
        assert "the turn ended: cancelled" in agent.until("\n> ")
        agent.type("say still here")
        agent.until("still here")
        agent.until("\n> ")
        agent.end_of_input()
        assert agent.ended() == 18


def test_a_second_ctrl_c_ends_the_agent(tmp_path):
    empty = tmp_path / "nothing"
    empty.mkdir()
    words = ("run", f"{sys.executable} {FAULTY_AGENT}", "deaf")
    with Talk(empty, tmp_path, *words, verb="agent") as agent:
        agent.until("* Deaf")
        agent.signal()
        agent.until("interrupted", sending=signal.SIGINT)
        assert agent.ended() == 130


def test_prompts_of_a_pipe_and_their_exit_code(tmp_path):
    done = run(tmp_path, AGENT, "--root", str(tmp_path), given="say one\ndie 3\n\nsay two\n")
    assert done.returncode == 22
    assert done.stdout.splitlines() == [
        "> say one",
        "On it. one",
        "> die 3",
        "On it. ",
        "* Die ",
        "  Die: unknown_outcome ",
        "> say two",
        "On it. two",
    ]
    assert "agent_ended: the agent exited with code 3; its last output on stderr:" in done.stderr
    assert "the last words" in done.stderr


def test_json_lines(tmp_path):
    done = run(tmp_path, AGENT, "run echo hi", "--json")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0
    assert [line["type"] for line in lines][-2:] == ["turn_ended", "result"]
    assert lines[-1]["stop"] == "end_turn"
    assert [line["seq"] for line in lines[:-1]] == [*range(1, len(lines))]


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [
        (("no-such-agent", "hi"), 2, "was not found in PATH"),
        (("'", "hi"), 2, "cannot be divided into words"),
        ((" ", "hi"), 2, "COMMAND is empty"),
        (
            ("python", "agent.py", "hi"),
            2,
            "(hi). Quote the command of the agent with its arguments: `toolcrib agent run 'python ...'",
        ),
        (("gemini", "--experimental-acp", "hi"), 2, "'--experimental-acp'. Quote the command"),
        ((AGENT, "hi", "--env", "NOT_SET_ANYWHERE"), 2, "the variable is not set"),
        ((AGENT, "hi", "--timeout", "soon"), 2, "--timeout"),
        ((AGENT, "hi", "--policy", "policy.yaml"), 2, "`max_rounds` of the policy cannot be applied"),
        ((f"{sys.executable} {FAULTY_AGENT} --version 2", "hi"), 21, "speaks version 2"),
        ((f"{sys.executable} {FAULTY_AGENT}", "error it is broken"), 21, "it is broken"),
        ((f"{sys.executable} {FAULTY_AGENT}", "stop refusal"), 15, "the turn ended: refusal"),
        ((AGENT, "hi", "--resume", "earlier"), 2, "cannot continue sessions"),
    ],
)
def test_what_goes_wrong_and_its_exit_code(words, code, told, tmp_path):
    (tmp_path / "policy.yaml").write_text("max_rounds: 3\n")
    done = run(tmp_path, *words)
    assert (done.returncode, told in done.stderr) == (code, True), done.stderr
    assert "Traceback" not in done.stderr


def test_a_variable_reaches_the_agent_only_if_it_is_passed(tmp_path):
    seen = {
        options: run(tmp_path, AGENT, "env KEY", *options).stdout for options in ((), ("--env", "KEY=value"))
    }
    assert ["value" in said for said in seen.values()] == [False, True]
