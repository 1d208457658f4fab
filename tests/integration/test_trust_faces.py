"""What clients of a face are told of a project that nobody trusts: mocks answer, and nothing else happens."""

from __future__ import annotations

import json
import subprocess

import pytest

from commands import python_command
from hostile_workspace import WATCHED, hostile


@pytest.fixture
def canaries(tmp_path):
    with hostile(tmp_path) as found:
        yield found


def served(canaries, *requests, **variables):
    """Speak with `toolcrib serve mcp` over stdio; the answers by id, and what the server did."""
    log = canaries.top.parent / "served"
    hello = {
        "jsonrpc": "2.0",
        "id": 0,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-06-18",
            "capabilities": {},
            "clientInfo": {"name": "t", "version": "1"},
        },
    }
    ready = {"jsonrpc": "2.0", "method": "notifications/initialized"}
    process = subprocess.Popen(
        python_command(WATCHED, log, "serve", "mcp", "--no-watch"),
        cwd=canaries.top,
        env=canaries.environment(**variables),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    answers = {}
    with process:
        for message in (hello, ready, *requests):
            process.stdin.write(json.dumps(message) + "\n")
            process.stdin.flush()
            while "id" in message and message["id"] not in answers:
                answer = json.loads(process.stdout.readline())
                answers[answer.get("id")] = answer
        process.stdin.close()
        errors = process.stderr.read()
        assert process.wait(60) == 0
    done = subprocess.CompletedProcess([], 0, json.dumps(answers), errors)
    return answers, canaries.deeds(done, log.read_text().splitlines()), errors


def call(number, name):
    return {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": {"name": name, "arguments": {}}}


LIST = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}


def test_a_served_project_that_nobody_trusts_answers_from_its_mocks(canaries):
    names = ["greet", "send", "sign", "token", "ask_program", "look"]
    calls = [call(number, name) for number, name in enumerate(names, 2)]
    answers, deeds, errors = served(canaries, LIST, *calls)
    assert deeds == []
    assert {"greet", "send"} <= {tool["name"] for tool in answers[1]["result"]["tools"]}
    assert answers[2]["result"]["content"][0]["text"] == "hi"
    for number in (3, 4, 5, 6):
        told = answers[number]["result"]
        assert told["isError"]
        assert "`toolcrib trust`" in told["content"][0]["text"]
        assert told["_meta"]["dev.toolcrib/outcome"]["code"] == "untrusted_workspace"
        assert str(canaries.top) not in json.dumps(told)
    assert json.loads(answers[7]["result"]["content"][0]["text"]) == {"from": "inside"}
    assert errors.count("denied (untrusted_workspace)") == 1
    assert "start    " in errors


@pytest.mark.exhaustive
def test_once_it_is_trusted_the_next_call_works(canaries):
    """The same server goes on: no restart is needed."""
    answers, deeds, _errors = served(canaries, call(2, "send"), TOOLCRIB_TRUST="all")
    assert "untrusted_workspace" not in json.dumps(answers[2])
    assert "variable CANARY_SECRET" in deeds
