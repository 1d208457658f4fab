"""`toolcrib chat` at a terminal: questions, Ctrl-C, Ctrl-D, signals."""

from __future__ import annotations

import signal
import sys

import pytest

from chatting import install
from toolcrib.provider import load_transcript

if sys.platform == "win32":
    pytest.skip("terminals are of another kind there", allow_module_level=True)

from chatting import Talk

TOOLS = """
name: refund
input_schema: {type: object, properties: {amount: {type: integer}}}
mock: {result: "{{ args.amount }}"}
---
name: locate
client: {consent: {required: true, message: May your place be told?}}
mode: client
mock: {result: {lat: 1}}
---
name: ask_person
client: {}
---
name: slow
input_schema: {type: object, properties: {password: {type: string}}}
mock: {result: 1, latency: 60s}
"""


@pytest.fixture
def talk(tmp_path):
    (tmp_path / "tools.yaml").write_text(TOOLS)
    (tmp_path / "policy.yaml").write_text("ask: [refund]\n")
    words = ("tools.yaml", "--provider", "echo", "--policy", "policy.yaml", "--transcript", "talk.jsonl")
    return lambda: Talk(install(tmp_path), tmp_path, *words)


def test_calls_that_wait_are_asked_for(talk, tmp_path):
    with talk() as chat:
        chat.until("> ")
        chat.type('call refund {"amount": 1}')
        assert "refund` requires approval" in chat.until("make the call? [y/session/always/N/edit] ")
        chat.type("y")
        assert "refund: ok 1" in chat.until("\n> ")
        chat.type('call refund {"amount": 1}')
        chat.until("[y/session/always/N/edit] ")
        chat.type("e")
        chat.until("the arguments, as a JSON object: ")
        chat.type('{"amount": 2}')
        assert "as was decided] 2" in chat.until("\n> ")
        chat.type('call refund {"amount": 1}')
        chat.until("[y/session/always/N/edit] ")
        chat.type("e")
        chat.until("the arguments, as a JSON object: ")
        chat.type('{"amount": 2, "amount": 9}')
        refused = chat.until("\n> ")
        assert "duplicate key `amount` in one object; the call is refused" in refused
        assert "refund: denied" in refused
        chat.type('call refund {"amount": 3}')
        chat.until("[y/session/always/N/edit] ")
        chat.type("")
        assert "refund: denied" in chat.until("\n> ")
        chat.type("call locate")
        assert "May your place be told?" in chat.until("give its result? [y/N/result] ")
        chat.type("y")
        assert 'locate: ok {"lat":1}' in chat.until("\n> ")
        chat.type("call locate")
        chat.until("[y/N/result] ")
        chat.type("r")
        chat.until("the result, as JSON or text: ")
        chat.type("[1]")
        assert "locate: ok [1]" in chat.until("\n> ")
        chat.type("call ask_person")
        chat.until("give its result? [N/result] ")
        chat.type("no")
        assert "ask_person: denied" in chat.until("\n> ")
        chat.end_of_input()
        assert chat.ended() == 0
    roles = [message.role for message in load_transcript(tmp_path / "talk.jsonl")]
    assert roles == ["user", "assistant", "tool", "assistant"] * 7


def test_ctrl_c_ends_the_turn_and_keeps_the_conversation(talk, tmp_path):
    with talk() as chat:
        chat.until("> ")
        chat.type("wait for it")
        chat.until("I am waiting")
        # Again after a second of silence: asyncio can miss a signal that arrives just before it waits.
        assert "the turn was cancelled; the conversation so far is kept" in chat.until(
            "\n> ", sending=signal.SIGINT
        )
        chat.type("count")
        assert "\n3\r" in chat.until("\n> ")
        chat.until("Ctrl-D or /quit ends the conversation\r\n> ", sending=signal.SIGINT)
        chat.type("/quit")
        assert chat.ended() == 18
    assert [
        message.text for message in load_transcript(tmp_path / "talk.jsonl") if message.role == "user"
    ] == [
        "wait for it",
        "count",
    ]


def test_ctrl_c_amid_a_call_ends_that_and_all_of_it_counts(talk):
    with talk() as chat:
        chat.until("> ")
        chat.type('call slow {"password": "hunter2"}')
        chat.until("* slow")
        chat.signal()
        assert "slow: cancelled" in chat.until("\n> "), chat.screen
        chat.type("/cost")
        told = " ".join(chat.until("\n> ").split())
        assert "requests 1 calls 1 tokens sent 10 " in told
        chat.type("count")
        assert "\n4\r" in chat.until("\n> ")
        chat.type("/quit")
        assert chat.ended() == 18


@pytest.mark.parametrize("waiting", [False, True])
def test_other_signals_end_the_command(talk, waiting):
    with talk() as chat:
        chat.until("> ")
        if waiting:
            chat.type("wait for it")
            chat.until("I am waiting")
        chat.until("ended by SIGTERM", sending=signal.SIGTERM)
        assert chat.ended() == 143
