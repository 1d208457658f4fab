"""Recordings, replays and broadcasts of agents of the official SDK that toolcrib drives."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from websockets.asyncio.client import connect

from acp_agents import SDK_AGENT, Dialogue, driving
from commands import toolcrib_command
from toolcrib.cli import agent as agent_command
from toolcrib.cli import doctor
from toolcrib.provider import Event
from toolcrib.serve.acp.diagnosis import diagnose
from toolcrib.serve.acp.recordings import Recording, replayed

PATIENCE = 60.0
AGENT = f"{sys.executable} {SDK_AGENT}"
ENV = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


def run(*words, cwd, given=""):
    return subprocess.run(
        toolcrib_command("agent", *words),
        input=given,
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env=ENV,
        timeout=PATIENCE,
    )


def test_a_recorded_run_is_replayed_as_it_was(tmp_path):
    notes = tmp_path / "notes.txt"
    notes.write_text("water the plants")
    options = ["--env", "PYTHONPATH", "--approve", "*", "--json", "--record", "run.jsonl"]
    done = run("run", AGENT, *options, cwd=tmp_path, given=f"read {notes}\ndie 3\nread {notes}\n")
    assert done.returncode == 22, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    events = [line for line in lines if line["type"] != "result"]
    again = run("replay", "run.jsonl", "--json", cwd=tmp_path)
    assert again.returncode == 0, again.stderr
    shown = [json.loads(line) for line in again.stdout.splitlines()]

    # The agent was started again, which begins another connection; `run` numbers the events of both in one row.
    def unnumbered(event):
        return {name: event[name] for name in event if name not in {"seq", "segment", "session"}}

    assert [*map(unnumbered, shown)] == [*map(unnumbered, events)]
    assert [each["stop"] for each in shown if "stop" in each] == ["end_turn", "lost", "end_turn"]
    first = {shown[0]["session"]}
    one = CliRunner().invoke(
        agent_command.command, ["replay", str(tmp_path / "run.jsonl"), "--session", *first]
    )
    assert one.output.startswith(f"session {shown[0]['session']}\n> read {notes}\n")
    assert "water the plants" in one.output
    told = CliRunner().invoke(doctor.command, ["--acp", str(tmp_path / "run.jsonl")])
    assert "its own handler of `call_2` has not ended" in told.output
    assert told.exit_code == 1


def test_a_recording_that_cannot_be_replayed_is_refused(tmp_path):
    (tmp_path / "broken.jsonl").write_text('{"acp_recording": 1}\n?\n')
    broken = CliRunner().invoke(agent_command.command, ["replay", str(tmp_path / "broken.jsonl")])
    assert broken.exit_code == 1
    assert "the line is not valid JSON" in broken.output
    none = CliRunner().invoke(agent_command.command, ["replay", str(tmp_path / "none.jsonl")])
    assert "cannot read the recording" in str(none.exception)
    (tmp_path / "empty.jsonl").write_text('{"acp_recording": 1}\n')
    other = CliRunner().invoke(
        agent_command.command, ["replay", str(tmp_path / "empty.jsonl"), "--session", "s"]
    )
    assert "the recording has no session `s`" in str(other.exception)


async def test_what_an_agent_does_is_in_its_recording_even_if_it_dies(tmp_path):
    path = tmp_path / "run.jsonl"
    async with driving(record=path, roots=[tmp_path]) as agent:
        await Dialogue(agent).say("die 3")
    recording = Recording(path)
    assert (recording.header.by, recording.header.name) == ("client", Path(sys.executable).name)
    assert [each.event.stop for each in replayed(recording) if each.event.stop] == ["lost"]
    assert "the agent " in diagnose(Recording(path)).ended


async def test_a_turn_that_is_silent_is_reported_once_while_it_runs(tmp_path):
    there = asyncio.Event()
    problems = []

    def report(problem):
        problems.append(problem)
        if problem.code == "turn_open":  # a slow start is reported, too
            there.set()

    async with driving(report=report, patience=0.05, roots=[tmp_path]) as agent:
        turn = agent.prompt("hang")
        reading = asyncio.create_task(anext(aiter(turn)))
        await asyncio.wait_for(there.wait(), PATIENCE)
        await reading
        await agent.cancel()
    assert [problem.code for problem in problems].count("turn_open") == 1


@pytest.mark.parametrize("token", ["", "a-token-that-nobody-guesses"])
async def test_front_ends_see_the_turns_of_an_agent(tmp_path, token):
    (tmp_path / "notes.txt").write_text("water the plants")
    words = ["run", AGENT, "--env", "PYTHONPATH", "--approve", "*", "--json", "--broadcast", "0"]
    words += ["--token-env", "FRONT_END_TOKEN"] if token else []
    process = await asyncio.create_subprocess_exec(
        *toolcrib_command("agent", *words),
        cwd=tmp_path,
        env={**ENV, "FRONT_END_TOKEN": token},
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(PATIENCE):
        line = (await process.stderr.readline()).decode()
        assert line.startswith("broadcasting at http://127.0.0.1:"), line
        url = line.split()[-1].replace("http", "ws")
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        async with connect(url, additional_headers=headers) as front_end:
            process.stdin.write(b"read notes.txt\n")
            process.stdin.close()
            told = [json.loads(message) async for message in front_end]  # until the command ends
        out = await process.stdout.read()
        await process.wait()
    printed = [json.loads(line) for line in out.decode().splitlines()]
    assert [each["event"] for each in told] == [each for each in printed if each["type"] != "result"]
    assert Event.parse(told[-1]["event"]).stop == "end_turn"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--broadcast", "here"], "`here` is neither a port nor an address"),
        (["--broadcast", "70000"], "`70000` is neither a port nor an address"),
        (["--token-env", "X"], "`--token-env` needs `--broadcast`"),
    ],
)
def test_options_of_a_broadcast_that_do_not_fit_are_refused(tmp_path, words, message):
    done = run("run", AGENT, "hello", *words, cwd=tmp_path)
    assert done.returncode == 2
    assert message in done.stderr
